//! The thread of the hooks: starts, feeds, times and reaps their processes, and waits only for all of them at once.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::debounce::Debounce;
use super::process::{Ending, Process};
use super::settings::Hook;
use super::{HookStatus, Job, Shared, lock};
use crate::clock;
use crate::finding::{Finding, FindingState};
use crate::observation::Nanos;
use crate::sink::Log;

/// Findings that wait for a free place of one hook.
const MAX_WAITING: usize = 256;
/// How often it is looked whether a process has ended, ns. (A descriptor that tells would need Linux 5.3.)
const LOOK_EVERY_NS: Nanos = 20_000_000;
/// At the end what runs gets this long, ns, before it is killed.
const LAST_MOMENTS_NS: Nanos = 1_000_000_000;
/// A killed process is waited for this long, ns.
const DEATH_NS: Nanos = 200_000_000;

/// The name of what is no longer configured, in the status.
const GONE: &str = "(no longer configured)";

pub(super) struct Runner {
    shared: Arc<Shared>,
    hooks: Vec<Lane>,
    /// Hooks that are no longer configured, of which something runs still.
    leaving: Vec<Lane>,
    /// What became of those of which nothing is left, together.
    gone: HookStatus,
    host: Option<String>,
    log: Log,
    told_lost: u64,
}

/// One hook with what runs and waits of it.
struct Lane {
    hook: Hook,
    debounce: Debounce,
    waiting: VecDeque<Job>,
    /// Raised findings that do not concern the hook: one that later does is news to it.
    below: HashSet<String>,
    running: Vec<(Arc<Finding>, Process)>,
    status: HookStatus,
}

impl Runner {
    pub(super) fn new(shared: Arc<Shared>, hooks: Vec<Hook>, host: Option<String>, log: Log) -> Self {
        Self {
            shared,
            hooks: hooks.into_iter().map(Lane::new).collect(),
            leaving: Vec::new(),
            gone: HookStatus { program: GONE.to_owned(), ..HookStatus::default() },
            host,
            log,
            told_lost: 0,
        }
    }

    pub(super) fn run(mut self) {
        let mut end: Option<Nanos> = None;
        loop {
            let ended = self.take_jobs();
            let now = clock::monotonic_ns();
            for lane in self.hooks.iter_mut().chain(&mut self.leaving) {
                lane.reap(now, &self.log);
                lane.start(self.host.as_deref(), &self.log);
            }
            self.let_go();
            self.publish();
            if ended {
                let over = *end.get_or_insert(now.saturating_add(LAST_MOMENTS_NS));
                let idle = self.lanes().all(|lane| lane.running.is_empty() && lane.waiting.is_empty());
                let given_up = idle || now >= over.saturating_add(DEATH_NS);
                if given_up || now >= over {
                    self.hooks.iter_mut().chain(&mut self.leaving).for_each(Lane::give_up);
                }
                if given_up {
                    self.publish();
                    return;
                }
            }
            self.wait(now);
        }
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.hooks.iter().chain(&self.leaving)
    }

    fn publish(&self) {
        let gone =
            (self.gone != HookStatus { program: GONE.to_owned(), ..HookStatus::default() }).then_some(&self.gone);
        *lock(&self.shared.status) = self.lanes().map(|lane| &lane.status).chain(gone).cloned().collect();
    }

    /// Other hooks from now on. One that is configured as before goes on as it is.
    fn exchange(&mut self, hooks: Vec<Hook>) {
        let mut before = std::mem::take(&mut self.hooks);
        for hook in hooks {
            let same = before.iter().position(|lane| lane.hook.settings() == hook.settings());
            self.hooks.push(same.map_or_else(|| Lane::new(hook), |at| before.remove(at)));
        }
        before.iter_mut().for_each(Lane::forget);
        self.leaving.append(&mut before);
    }

    /// Of a hook that is no longer configured only its numbers stay, once nothing of it runs.
    fn let_go(&mut self) {
        let gone = &mut self.gone;
        self.leaving.retain_mut(|lane| {
            if lane.running.is_empty() {
                let HookStatus { started, succeeded, failed, timed_out, suppressed, dropped, .. } = &lane.status;
                gone.started += started;
                gone.succeeded += succeeded;
                gone.failed += failed;
                gone.timed_out += timed_out;
                gone.suppressed += suppressed;
                gone.dropped += dropped;
            }
            !lane.running.is_empty()
        });
    }

    /// Takes what is new; true at the end.
    fn take_jobs(&mut self) -> bool {
        // Emptied before the queue is looked at: what comes later wakes again.
        let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
        let (jobs, lost, other, ended) = {
            let mut queue = lock(&self.shared.queue);
            (std::mem::take(&mut queue.jobs), queue.lost, queue.other.take(), queue.ended)
        };
        if let Some(hooks) = other {
            self.exchange(hooks);
        }
        if lost > self.told_lost {
            (self.log)(&format!("hooks: {} findings lost: too many at once", lost - self.told_lost));
            self.told_lost = lost;
        }
        let now = clock::monotonic_ns();
        for lane in &mut self.hooks {
            for job in &jobs {
                lane.offer(now, job, &self.log);
            }
            for job in lane.debounce.due(now) {
                lane.enqueue(job, &self.log);
            }
        }
        ended
    }

    fn wait(&self, now: Nanos) {
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        let mut next = Nanos::MAX;
        for lane in self.lanes() {
            next = next.min(lane.debounce.next().unwrap_or(Nanos::MAX));
            for (_, process) in &lane.running {
                fds.extend(process.interests());
                next = next.min(process.deadline().max(now + 1)).min(now + LOOK_EVERY_NS);
            }
        }
        let timeout = (next < Nanos::MAX).then(|| {
            let ns = next.saturating_sub(now);
            Timespec {
                tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
            }
        });
        // Interrupted by a signal: everything is looked at anyway.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

impl Lane {
    fn new(hook: Hook) -> Self {
        Self {
            debounce: Debounce::new(u64::try_from(hook.settings().debounce.as_nanos()).unwrap_or(u64::MAX)),
            waiting: VecDeque::new(),
            below: HashSet::new(),
            running: Vec::new(),
            status: HookStatus { program: hook.program(), ..HookStatus::default() },
            hook,
        }
    }

    fn offer(&mut self, now: Nanos, job: &Job, log: &Log) {
        let finding = &job.finding;
        let (concerns, cleared) = (self.hook.concerns(finding), finding.state == FindingState::Cleared);
        // It has become as severe as the hook asks for, or is no consequence any more.
        let news = if concerns || cleared {
            self.below.remove(&finding.id()) && !cleared
        } else {
            self.below.insert(finding.id());
            false
        };
        let suppressed = &mut self.status.suppressed;
        if self.hook.wants(finding) || (news && self.hook.settings().states.contains(&FindingState::Raised)) {
            if let Some(job) = self.debounce.offer(now, job.clone(), suppressed) {
                self.enqueue(job, log);
            }
        } else if concerns || cleared {
            self.debounce.overtake(job, suppressed);
        }
    }

    fn enqueue(&mut self, job: Job, log: &Log) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(job);
            return;
        }
        if self.status.dropped == 0 {
            let (program, id) = (&self.status.program, job.finding.id());
            log(&format!("hook {program} for {id}: dropped, {MAX_WAITING} wait already (said once; all are counted)"));
        }
        self.status.dropped += 1;
    }

    fn start(&mut self, host: Option<&str>, log: &Log) {
        while self.running.len() < self.hook.settings().max_concurrent
            && let Some(job) = self.waiting.pop_front()
        {
            match Process::start(&self.hook, &job, host) {
                Ok(process) => {
                    self.status.started += 1;
                    self.running.push((job.finding, process));
                }
                Err(error) => self.fail(&job.finding, format!("cannot be started: {error}"), log),
            }
        }
        self.status.running = self.running.len();
    }

    fn reap(&mut self, now: Nanos, log: &Log) {
        let mut ended = Vec::new();
        self.running.retain_mut(|(finding, process)| match process.go_on(now) {
            None => true,
            Some(ending) => {
                ended.push((finding.clone(), ending));
                false
            }
        });
        for (finding, ending) in ended {
            match ending {
                Ending::Success => {
                    self.status.succeeded += 1;
                    self.status.last = Some("exit code 0".to_owned());
                }
                Ending::Failure(why) => self.fail(&finding, why, log),
                Ending::TimedOut(why) => {
                    self.status.timed_out += 1;
                    self.fail(&finding, why, log);
                }
            }
        }
        self.status.running = self.running.len();
    }

    fn fail(&mut self, finding: &Finding, why: String, log: &Log) {
        self.status.failed += 1;
        log(&format!("hook {} for {}: {why}", self.status.program, finding.id()));
        self.status.last = Some(why);
    }

    /// Nothing more is started, what waits or is held is counted, and what runs is killed.
    fn give_up(&mut self) {
        self.forget();
        for (_, process) in &mut self.running {
            process.kill();
        }
    }

    /// Nothing more is started, and what waits or is held is counted.
    fn forget(&mut self) {
        let untold = self.waiting.len() + self.debounce.forget();
        self.status.dropped += u64::try_from(untold).unwrap_or(u64::MAX);
        self.waiting.clear();
    }
}
