//! Hooks: programs that are started when a finding changes (docs/hooks.md).
//!
//! ```text
//! settings   what a hook is, which findings it wants, whether its program can be started
//! debounce   how often about one thing
//! process    one running program: its input, its first word on standard error, its end
//! runner     the thread that starts, feeds, times and reaps them
//! ```
//!
//! The engine's thread only puts findings into a queue. Nothing a hook does or fails to do reaches the collection.

mod debounce;
mod process;
mod runner;
mod settings;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use self::runner::Runner;
use self::settings::Hook;
pub use self::settings::{HookError, HookSettings};
use super::{Log, Sink};
use crate::finding::Finding;
use crate::inventory::World;
use crate::observation::recording::Header;
use crate::observation::{Nanos, Observation};

/// Findings that may wait for the hooks' thread; it never waits for anything, so there are never many.
const MAX_QUEUED: usize = 65_536;

/// What became of one hook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookStatus {
    /// Its program.
    pub program: String,
    /// Processes started.
    pub started: u64,
    /// Of those, ended with exit code 0.
    pub succeeded: u64,
    /// Could not be started, or ended otherwise (those of `timed_out` included).
    pub failed: u64,
    /// Killed, or something they had started was, because their time was over.
    pub timed_out: u64,
    /// Findings that were not told because a newer one about the same replaced them while the hook was debounced.
    pub suppressed: u64,
    /// Findings that were not told because too many waited for a free place, or because the end came while they waited
    /// or were held back by the debouncing.
    pub dropped: u64,
    /// Processes now.
    pub running: usize,
    /// How the last one ended: `exit code 1: no such host`.
    pub last: Option<String>,
}

/// A finding for the hooks.
#[derive(Debug, Clone)]
struct Job {
    finding: Arc<Finding>,
    /// Time of the observation that led to it.
    t_event: Nanos,
    /// The same by the wall clock, ns since 1970.
    unix_ns: Option<u64>,
    /// Findings about the same that were not told since the last one.
    suppressed: u64,
}

/// The hooks as a sink.
pub struct Hooks {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    newest: Nanos,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: OwnedFd,
    status: Mutex<Vec<HookStatus>>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    lost: u64,
    /// Other hooks from now on.
    other: Option<Vec<Hook>>,
    ended: bool,
}

/// Hooks that were checked: each of them can be started.
pub struct Checked(Vec<Hook>);

/// Changes the hooks while they run.
#[derive(Clone)]
pub struct Exchange {
    shared: Arc<Shared>,
}

impl Exchange {
    /// From now on these hooks and no others. One that is as it was goes on; what runs of one that is gone may end, what
    /// waits of it is not told.
    pub fn put(&self, hooks: Checked) {
        lock(&self.shared.queue).other = Some(hooks.0);
        self.shared.wake();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the mutexes guard is good after every statement, so also after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn wake(&self) {
        // The counter of an eventfd is full only when the other end has not looked for 2^64 times.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Hooks {
    /// Checks every hook and starts the thread that will start them.
    pub fn start(hooks: Vec<HookSettings>, header: &Header, log: Log) -> Result<Self, HookError> {
        let Checked(hooks) = Self::check(hooks)?;
        let status = hooks.iter().map(|hook| HookStatus { program: hook.program(), ..HookStatus::default() });
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| HookError::Thread(error.into()))?;
        let shared = Arc::new(Shared { queue: Mutex::default(), wake, status: Mutex::new(status.collect()) });
        let runner = Runner::new(shared.clone(), hooks, header.host.clone(), log);
        let thread = std::thread::Builder::new()
            .name("hooks".to_owned())
            .spawn(move || runner.run())
            .map_err(HookError::Thread)?;
        Ok(Self { shared, thread: Some(thread), newest: 0 })
    }

    /// Checks hooks without starting anything.
    pub fn check(hooks: Vec<HookSettings>) -> Result<Checked, HookError> {
        hooks.into_iter().map(Hook::new).collect::<Result<Vec<_>, _>>().map(Checked)
    }

    /// What puts other hooks in their place.
    #[must_use]
    pub fn exchange(&self) -> Exchange {
        Exchange { shared: self.shared.clone() }
    }

    /// What became of each hook, in the order of the configuration, and after them of those that are no longer in it; also
    /// later.
    pub fn status(&self) -> impl Fn() -> Vec<HookStatus> + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || lock(&shared.status).clone()
    }

    /// Findings that were lost for all hooks before any of them saw them, because too many came at once; also later.
    pub fn lost(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || lock(&shared.queue).lost
    }
}

impl Sink for Hooks {
    fn observation(&mut self, observation: &Observation<'_>, _: &World) {
        self.newest = observation.t;
    }

    fn findings(&mut self, findings: &[Arc<Finding>], world: &World) {
        let mut queue = lock(&self.shared.queue);
        for finding in findings {
            if queue.jobs.len() == MAX_QUEUED {
                queue.lost += 1;
                continue;
            }
            let t_event = self.newest;
            let job = Job { finding: finding.clone(), t_event, unix_ns: world.unix_ns(t_event), suppressed: 0 };
            queue.jobs.push_back(job);
        }
        drop(queue);
        self.shared.wake();
    }

    fn ending(&mut self) {
        lock(&self.shared.queue).ended = true;
        self.shared.wake();
    }

    fn finish(&mut self) {
        self.ending();
        if let Some(thread) = self.thread.take() {
            // It ends soon: what still runs is killed.
            let _ = thread.join();
        }
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests;
