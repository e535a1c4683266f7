//! A round over the sources: those that have something to say first, then those that are due.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::nudge::calls_for_a_look;
use super::{Live, hand};
use crate::clock;
use crate::observation::{Nanos, Observation};
use crate::sink;

impl Live {
    /// One round.
    pub(super) fn poll_sources(&mut self, now: Nanos) {
        let mut nudged = self.poll_woken(now);
        for index in 0..self.sources.len() {
            let slot = &self.sources[index];
            if slot.broken.is_none() && slot.source.due() <= now {
                nudged |= self.poll_source(index, now);
                // An event is not to wait behind a whole round of counters.
                nudged |= self.poll_woken(now);
            }
        }
        if nudged {
            for slot in &mut self.sources {
                slot.source.nudge(now);
            }
        }
        self.say_sources(now);
    }

    /// Polls the sources that have something to say, due or not.
    fn poll_woken(&mut self, now: Nanos) -> bool {
        let mut nudged = false;
        for index in self.woken() {
            nudged |= self.poll_source(index, now);
        }
        nudged
    }

    /// The sources that have something to say, asked of the kernel at once.
    fn woken(&self) -> Vec<usize> {
        let (mut owners, mut fds) = (Vec::new(), Vec::new());
        for (index, slot) in self.sources.iter().enumerate().filter(|(_, slot)| slot.broken.is_none()) {
            for fd in slot.source.wake_fds() {
                owners.push(index);
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if fds.is_empty() || !poll(&mut fds, Some(&at_once)).is_ok_and(|n| n > 0) {
            return Vec::new();
        }
        let readable = owners.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        let mut woken: Vec<usize> = readable.map(|(owner, _)| owner).collect();
        woken.dedup();
        woken
    }

    /// Polls one source; true when it saw something that makes a fresh look of the others worth it.
    pub(super) fn poll_source(&mut self, index: usize, now: Nanos) -> bool {
        let (mut nudge, mut concluded) = (false, false);
        let (engine, sinks, recording) = (&mut self.engine, &mut self.sinks, &mut self.recording);
        let slot = &mut self.sources[index];
        slot.polled = true;
        let last_observed = &mut self.last_observed;
        let mut emit = |observation: &Observation<'_>| {
            *last_observed = now;
            nudge |= calls_for_a_look(engine, observation);
            hand(observation, engine, sinks, recording);
            // At once: what acts on a finding must not wait for the rest of what this source has to say.
            concluded |= sink::hand_on(engine, sinks);
        };
        // A fault in one source must not take the others, the screen or the recording with it.
        let polled = catch_unwind(AssertUnwindSafe(|| slot.source.poll(now, &mut emit)));
        if polled.is_err() {
            let name = slot.source.name();
            slot.broken = Some(format!("internal error in source {name}: it is switched off; please report it"));
            self.status.notices.extend(slot.broken.clone());
        }
        if concluded {
            self.last_publish = 0;
        }
        nudge
    }

    /// Lets the sources undo what they changed, and tell of it.
    pub(super) fn end_sources(&mut self) {
        let now = clock::monotonic_ns();
        for index in 0..self.sources.len() {
            let (engine, sinks, recording) = (&mut self.engine, &mut self.sinks, &mut self.recording);
            let mut emit = |observation: &Observation<'_>| hand(observation, engine, sinks, recording);
            let source = &mut self.sources[index].source;
            if catch_unwind(AssertUnwindSafe(|| source.end(now, &mut emit))).is_err() {
                let name = self.sources[index].source.name();
                self.status.notices.push(format!("internal error in source {name} at its end; please report it"));
            }
        }
    }
}
