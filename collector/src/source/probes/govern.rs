//! The governor's word is carried out: groups of probes are detached and attached, the programs are told what is watched,
//! and for how long each was is kept for the statistics.

use super::Probes;
use super::budget::{GROUPS, Turn, Work};
use super::stats::Watched;
use crate::observation::Nanos;
use crate::source::verbs::{Group, Operation};

/// Until the first look after something was attached or detached.
const SOON_NS: Nanos = 20_000_000;

impl Probes {
    /// Pauses what costs too much, brings back what can be paid for again, and tells the programs what is watched.
    pub(super) fn govern(&mut self, now: Nanos, swept: bool) {
        let Some(running) = &mut self.running else { return };
        if swept || now >= self.look {
            running.governor.set_price(running.costs.of(GROUPS.map(|group| self.attached.is_stepped(group))));
            let work = running.maps.totals().map_or(Work::default(), |totals| Work {
                hits: [totals.hits, totals.poll_hits],
                steps: [totals.post_steps, totals.poll_steps],
            });
            for turn in running.governor.step(now, work) {
                match turn {
                    Turn::Off(group, reason) => {
                        // First told, then done: what still hits is counted as a hit and in no statistics.
                        let on = GROUPS.map(|other| other != group && self.attached.has_group(other));
                        running.tell(on);
                        self.attached.detach_group(group, &reason);
                    }
                    Turn::On(group) => self.attached.attach_group(group),
                }
            }
            self.look = running.governor.next_look(now).unwrap_or(Nanos::MAX);
        }
        if running.told_changes != Some(self.attached.changes()) {
            running.told_changes = Some(self.attached.changes());
            running.tell(GROUPS.map(|group| self.attached.has_group(group)));
            // What was quiet because nothing was attached need not stay so.
            if running.governor.is_limited() {
                self.look = self.look.min(now + SOON_NS);
            }
        }
    }

    /// What is and was watched.
    pub(super) fn watched(&self, now: Nanos) -> Watched {
        let was = |operation| self.attached.was_attached(operation);
        let ns = |group| self.running.as_ref().and_then(|running| running.governor.watched_ns(group, now));
        let completions = was(Operation::PollCq) || was(Operation::StartPoll);
        Watched {
            posts_ns: ns(Group::Posts).filter(|_| was(Operation::PostSend)),
            receives: was(Operation::PostRecv),
            completions,
            missed: false,
            completions_ns: ns(Group::Completions).filter(|_| completions),
        }
    }
}
