//! What the source says of itself at the end of every sweep: which probes are attached, and what they cost.

use super::Probes;
use super::budget::{GROUPS, Standing};
use super::stats::Watched;
use crate::observation::{FailedProbe, Nanos, ProbeGroup, Probes as ProbesBody, Text};
use crate::source::verbs::Operation;

impl Probes {
    /// The line of a sweep, `watched` being for how long it was watched.
    pub(super) fn body(&self, watched: &Watched) -> ProbesBody<'_> {
        let reports = || self.attached.reports();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let failed = reports().filter(|report| report.wanted && !report.attached);
        // A probe that was never attached has no hits, not zero of them.
        let counted = self.running.as_ref().filter(|_| self.attached.was_attached(Operation::PostSend));
        let windows = counted.and_then(|running| running.governor.window());
        ProbesBody {
            wanted: count(reports().filter(|report| report.wanted).count()),
            attached: count(reports().filter(|report| report.attached).count()),
            failed: failed
                .map(|report| FailedProbe {
                    name: Text::Borrowed(&report.name),
                    reason: Text::Borrowed(report.reason.as_deref().unwrap_or("unknown")),
                })
                .collect(),
            posts_watched_ns: watched.posts_ns,
            completions_watched_ns: watched.completions_ns,
            window_ns: windows.map(|(window, _)| window),
            period_ns: windows.map(|(_, period)| period),
            hits: counted.map(|running| running.totals.hits + running.totals.poll_hits),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "CPU time since the start")]
            cost_ns: counted.map(|running| running.governor.spent_ns() as Nanos),
            budget_share: counted.and_then(|running| running.governor.share()),
            groups: self.groups(),
        }
    }

    /// The groups that are or were attached.
    pub(super) fn groups(&self) -> Vec<ProbeGroup<'static>> {
        let Some(running) = &self.running else { return Vec::new() };
        let was = |operation| self.attached.was_attached(operation);
        let all =
            [("posts", was(Operation::PostSend)), ("completions", was(Operation::PollCq) || was(Operation::StartPoll))];
        let seen = all.into_iter().zip(GROUPS).filter(|((_, was_attached), _)| *was_attached);
        let standing = |((name, _), group)| {
            let Standing { hits, hit_ns, paused, window } = running.governor.standing(group);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below a second")]
            ProbeGroup {
                group: Text::Borrowed(name),
                hits,
                hit_ns: hit_ns.round() as u64,
                measured: running.costs.measured,
                paused,
                window_ns: window.map(|(window, _)| window),
                period_ns: window.map(|(_, period)| period),
            }
        };
        seen.map(standing).collect()
    }
}
