//! The eBPF probes: what processes post to their QPs, how QPs come, change and go, asynchronous events, PCIe errors.
//!
//! ```text
//! attach    loads the kept object with the running kernel's field offsets (offsets, tracefs), attaches each probe
//! uprobes   what is attached to functions of libraries (library), and where in them it is cheapest (prologue,
//!           instruction); elf and frames read the files,
//!           opened is what is known of a place then, refused what is not attached to
//! asked     where the providers' functions lie, as child processes tell; awaited: an answer that may not come
//! discovery which processes use which build of a provider; learned is what they tell of it
//! modules   which load of a module they are attached to
//! follow    what is attached follows modules, builds and files that come and go
//!
//! running   what the loaded programs have to say: events as they come, statistics once a second
//! store     the maps, memory-mapped (mapped) where they are read every second
//! qps       which slot belongs to which QP; emits the statistics that changed (stats)
//! events    ring-buffer records to observations (names)
//! pids      whether the process ids they tell are those of `/proc` here
//!
//! confined  whether probes of returns leave processes alone that seccomp confines
//! budget    what the data-path probes may cost (calibrate); govern keeps them to it
//! report    what is attached, and what it costs; missing: what is not seen for want of it
//! ```
//!
//! Nothing is pinned and every link is a file descriptor: when the process ends, however it ends, nothing stays
//! attached.

#[cfg(test)]
mod accepted;
mod asked;
mod attach;
mod awaited;
#[cfg(all(target_arch = "x86_64", any(test, feature = "bench")))]
#[doc(hidden)]
pub mod bench;
mod budget;
mod calibrate;
mod confined;
mod devices;
mod discovery;
mod elf;
mod events;
mod follow;
mod frames;
mod govern;
#[cfg(all(test, target_arch = "x86_64"))]
mod governed;
#[cfg(target_arch = "x86_64")]
mod instruction;
mod learned;
mod library;
mod mapped;
mod missing;
mod modules;
pub(crate) mod names;
mod offsets;
mod opened;
mod pids;
mod prologue;
mod qps;
mod reason;
mod refused;
mod report;
mod running;
mod stats;
mod store;
mod tracefs;
mod uprobes;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

pub use budget::Budget;
pub use confined::{CHILD_ARG as CONFINED_ARG, child_main as confined_main};

use self::asked::Asked;
use self::attach::{Attached, DESTROY};
use self::awaited::Awaited;
use self::discovery::Discovery;
use self::reason::Why;
use self::running::Running;
use super::verbs::Making;
use super::{Availability, Emit, Missing, ProbeReport, Source};
use crate::observation::{Body, Nanos, Observation};

/// Time between two sweeps of the statistics.
const PERIOD_NS: Nanos = 1_000_000_000;

/// Sweeps between two looks for processes that are gone.
const REAP_SWEEPS: u64 = 10;

/// How long the start waits for the look at all processes.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// The source's name.
const NAME: &str = "probes";

/// How the probes are used.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeOptions {
    /// What the data-path probe may cost.
    pub budget: Budget,
    /// QPs whose statistics can be kept at once: 192 bytes each in the slot array and some 170 more in the indices,
    /// and 384 for the histograms of the first 32,768. The maps cannot grow later.
    pub max_qps: u32,
    /// Attach the data-path probe.
    pub data_path: bool,
    /// Have QPs and CQs made, for an instant, to learn their functions before a process makes its own: a change, so only
    /// where changes are allowed.
    pub making: Option<Making>,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self { budget: Budget::default(), max_qps: 16_384, data_path: true, making: None }
    }
}

/// The probes as a source.
pub struct Probes {
    attached: Attached,
    /// `None` when nothing could be loaded.
    running: Option<Running>,
    options: ProbeOptions,
    /// The data-path probe is wanted.
    data_path: bool,
    due: Nanos,
    /// When the governor looks again.
    look: Nanos,
    discovery: Discovery,
    /// Every process was looked at once.
    looked_at_all: bool,
    operations: Option<Awaited<Asked>>,
    /// Why the functions are not known that QPs and CQs would have that were made for it.
    not_made: Option<Missing>,
}

impl Probes {
    /// Loads and attaches what can be. Never fails: what does not work is in [`Source::probes`] and
    /// [`Source::availability`]. Blocks until the child processes have told the providers' operations,
    /// [`TIMEOUT`](super::verbs::TIMEOUT) at most each, and all processes were looked at, [`FIRST_LOOK`] at most; what takes
    /// longer comes with a later poll.
    #[must_use]
    pub fn start(options: &ProbeOptions) -> Self {
        let mut probes = Self::load(options);
        if probes.data_path && probes.running.is_some() {
            probes.attach(Asked::now(probes.options.making.as_ref()));
            probes.discover();
            let begin = Instant::now();
            while probes.discovery.is_busy()
                && probes.discovery.wait(FIRST_LOOK.saturating_sub(begin.elapsed()))
                && begin.elapsed() < FIRST_LOOK
            {
                probes.discover();
            }
        }
        probes
    }

    /// Loads and attaches all but the data path, whose places are not known yet.
    fn load(options: &ProbeOptions) -> Self {
        let wanted = options.data_path && options.budget != Budget::Share(0.0);
        let mut attached = Attached::new(options.max_qps);
        let running = Running::new(&mut attached, options);
        let running = match running {
            Ok(running) => running,
            Err(why) => {
                attached.give_up_all(&why);
                None
            }
        };
        let options = options.clone();
        let mut probes = Self {
            attached,
            running,
            options,
            data_path: wanted,
            due: 0,
            look: 0,
            discovery: Discovery::new(Path::new("/proc")),
            looked_at_all: false,
            operations: None,
            not_made: None,
        };
        if !wanted {
            let reason = if probes.options.data_path { "switched off by a probe budget of 0" } else { "switched off" };
            probes.attached.no_post_send(false, reason.into());
        } else if probes.running.is_none() {
            let why = probes
                .attached
                .reports()
                .find_map(|report| Some(Why { reason: report.reason.clone()?, fix: report.fix.clone() }));
            probes.attached.no_post_send(true, why.unwrap_or_else(|| "the programs could not be loaded".into()));
        } else {
            probes.attached.no_post_send(true, "the child process has not told the providers' operations yet".into());
        }
        probes
    }
}

impl Source for Probes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        self.seen()
    }

    fn due(&self) -> Nanos {
        if self.discovery.has_next() { 0 } else { self.due.min(self.look) }
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        if let Some(asked) = awaited::take(&mut self.operations) {
            self.attach(asked);
        }
        if now >= self.due {
            self.catch_up(now, emit);
        }
        let destroy_seen = self.attached.has(DESTROY);
        let watched = self.watched(now);
        let mut new_device = false;
        if let Some(running) = &mut self.running {
            running.qps.watched = watched;
            new_device = running.drain(emit);
            if now >= self.due {
                running.sweep(now, destroy_seen, emit);
            }
        }
        if new_device {
            self.refresh();
        }
        self.discover();
        self.govern(now, now >= self.due);
        if now >= self.due && self.running.as_ref().is_some_and(|running| running.sweeps.is_multiple_of(REAP_SWEEPS)) {
            self.let_go();
        }
        let t = self.running.as_ref().map_or(now, |running| running.last_t);
        self.discovery.tell(&mut |process| emit(&Observation { t, body: Body::Process(process) }));
        if now >= self.due {
            self.due = now + PERIOD_NS;
            // Every sweep ends with this line, also when nothing moved: it tells an idle QP from one nobody looks at.
            let t = self.running.as_ref().map_or(now, |running| running.last_t);
            emit(&Observation { t, body: Body::Probes(self.body(&watched)) });
        }
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.running.iter().map(|running| running.ring.as_fd()).chain(self.discovery.wake_fd()).collect()
    }

    fn probes(&self) -> Vec<ProbeReport> {
        self.attached.reports().cloned().collect()
    }
}
