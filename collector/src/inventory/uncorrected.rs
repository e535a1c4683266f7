//! Uncorrected PCIe errors one by one, and which of a root port's messages they account for.
//!
//! A function that detects an error sends a message to its root port, which counts it whoever sent it: one error is seen
//! as an event, as growth of the function's totals and as growth of the root port's, each at a time of its own. Counts
//! of longer stretches cannot be held against each other: of one error, the one falls on this side of an edge and the
//! other on that.

use super::AerCount;
use crate::observation::{AerSeverity, Nanos};
use crate::timeline::Events;

/// Moments kept per function. Uncorrected errors are rare; corrected ones, which come in storms, are not among them.
const MAX_MOMENTS: usize = 512;
/// A root port's totals are read, and an event arrives, up to this long before or after what else tells of the same error,
/// ns: totals are read once a second, and a source may be a second late.
pub(crate) const SKEW_NS: Nanos = 3_000_000_000;

/// What told of an error. Event, sum and kind describe the same errors of the function itself and are never added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Event,
    /// A line that counts errors of all kinds.
    Sum,
    /// A line that counts one kind.
    Kind,
    /// The count of messages of a root port, its own errors among them.
    Message,
}

/// When how many errors were told of.
type Moment = (Nanos, u64);

/// Uncorrected errors of one function, and messages of such errors where it is a root port.
#[derive(Debug, Clone)]
pub struct Uncorrected {
    moments: Events<(AerSeverity, Told, u64)>,
}

impl Default for Uncorrected {
    fn default() -> Self {
        Self { moments: Events::new(MAX_MOMENTS) }
    }
}

impl Uncorrected {
    /// None was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    pub(super) fn event(&mut self, t: Nanos, severity: AerSeverity) {
        self.note(t, severity, Told::Event, 1);
    }

    pub(super) fn growth(&mut self, t: Nanos, severity: AerSeverity, name: &str, n: u64) {
        let told = if name.contains("rootport") {
            Told::Message
        } else if name.starts_with("TOTAL_") {
            Told::Sum
        } else {
            Told::Kind
        };
        self.note(t, severity, told, n);
    }

    fn note(&mut self, t: Nanos, severity: AerSeverity, told: Told, n: u64) {
        if severity != AerSeverity::Corrected {
            self.moments.push(t, (severity, told, n));
        }
    }

    fn list(&self, severity: AerSeverity, told: Told) -> Vec<Moment> {
        let of = self.moments.iter().filter(|(_, (s, by, _))| (*s, *by) == (severity, told));
        of.map(|(t, (_, _, n))| (*t, *n)).collect()
    }

    /// Since when all is known: earlier moments may have fallen out of the list.
    fn complete_from(&self) -> Nanos {
        let oldest = self.moments.iter().next().filter(|_| self.moments.dropped > 0);
        oldest.map_or(0, |(t, _)| t.saturating_add(SKEW_NS))
    }

    /// Messages of `severity` counted from `from` to `to` that no error of a function below, nor of the root port
    /// itself, accounts for. An error accounts for one message within [`SKEW_NS`] before or after it: `to` should be that
    /// long ago, or what explains a message is still to come. `below` has the root port itself among them.
    ///
    /// Where so much happened that not every error is known any more, no message is called unexplained.
    pub(crate) fn unexplained<'r>(
        &self,
        below: impl Iterator<Item = &'r Self>,
        severity: AerSeverity,
        (from, to): (Nanos, Nanos),
    ) -> AerCount {
        let mut count = AerCount::default();
        let messages = self.list(severity, Told::Message);
        if messages.last().is_none_or(|(t, _)| *t < from) {
            return count;
        }
        let mut from = from.max(self.complete_from());
        let mut accounts = Vec::new();
        for function in below {
            from = from.max(function.complete_from());
            accounts.push(Account::of(function, severity));
        }
        // Those before `from` too: what explains them explains no later one.
        for (t, n) in messages.into_iter().filter(|(t, _)| *t <= to) {
            accounts.sort_by_key(|account| account.earliest(t));
            let left = accounts.iter_mut().fold(n, |left, account| left - account.take(t, left));
            if t >= from && left > 0 {
                count.n = count.n.saturating_add(left);
                count.first.get_or_insert(t);
                count.last = Some(t);
            }
        }
        count
    }
}

/// Errors of one function that account for no message yet: by its events, and by its totals.
struct Account {
    lists: [Vec<Moment>; 2],
}

impl Account {
    fn of(function: &Uncorrected, severity: AerSeverity) -> Self {
        let sums = function.list(severity, Told::Sum);
        // One message can tell of several kinds.
        let totals = if sums.is_empty() { function.list(severity, Told::Kind) } else { sums };
        Self { lists: [function.list(severity, Told::Event), totals] }
    }

    /// The first error left that is near `t`: the one that can wait least.
    fn earliest(&self, t: Nanos) -> Nanos {
        let left = self.lists.iter().flatten().filter(|(at, n)| *n > 0 && at.abs_diff(t) <= SKEW_NS);
        left.map(|(at, _)| *at).min().unwrap_or(Nanos::MAX)
    }

    /// Takes up to `n` errors near `t`, the same ones from either list; says how many there were.
    fn take(&mut self, t: Nanos, n: u64) -> u64 {
        let mut most = 0;
        for list in &mut self.lists {
            let mut wanted = n;
            for (_, left) in list.iter_mut().filter(|(at, _)| at.abs_diff(t) <= SKEW_NS) {
                let taken = wanted.min(*left);
                *left -= taken;
                wanted -= taken;
            }
            most = most.max(n - wanted);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const ALWAYS: (Nanos, Nanos) = (0, Nanos::MAX);

    fn root(messages: &[(u64, u64)]) -> Uncorrected {
        let mut root = Uncorrected::default();
        for (ms, n) in messages {
            root.growth(ms * MS, AerSeverity::Nonfatal, "aer_rootport_total_err_nonfatal", *n);
        }
        root
    }

    fn unexplained(root: &Uncorrected, below: &[&Uncorrected], span: (Nanos, Nanos)) -> AerCount {
        root.unexplained(below.iter().copied().chain([root]), AerSeverity::Nonfatal, span)
    }

    #[test]
    fn an_error_explains_one_message_shortly_before_or_after_it() {
        let mut nic = Uncorrected::default();
        nic.event(9_990 * MS, AerSeverity::Nonfatal);
        nic.event(20_000 * MS, AerSeverity::Nonfatal);
        assert_eq!(unexplained(&root(&[(10_010, 1), (17_500, 1)]), &[&nic], ALWAYS).n, 0);
        let twice = unexplained(&root(&[(10_010, 1), (10_020, 1)]), &[&nic], ALWAYS);
        assert_eq!(twice, AerCount { n: 1, first: Some(10_020 * MS), last: Some(10_020 * MS) });
        assert_eq!(
            unexplained(&root(&[(14_000, 1)]), &[&nic], ALWAYS).n,
            1,
            "too long after one, too early for the other"
        );
        assert_eq!(unexplained(&root(&[(14_000, 1)]), &[&nic], (15_000 * MS, Nanos::MAX)).n, 0);
    }

    #[test]
    fn the_event_and_the_total_of_one_error_explain_one_message() {
        let mut nic = Uncorrected::default();
        nic.event(1_000 * MS, AerSeverity::Nonfatal);
        nic.growth(1_500 * MS, AerSeverity::Nonfatal, "CmpltTO", 1);
        nic.growth(1_500 * MS, AerSeverity::Nonfatal, "PoisonTLP", 1);
        nic.growth(1_500 * MS, AerSeverity::Nonfatal, "TOTAL_ERR_NONFATAL", 1);
        assert_eq!(unexplained(&root(&[(1_500, 3)]), &[&nic], ALWAYS).n, 2);
    }

    #[test]
    fn the_error_that_can_wait_least_explains_first() {
        let (mut a, mut b) = (Uncorrected::default(), Uncorrected::default());
        a.event(12_900 * MS, AerSeverity::Nonfatal);
        b.event(7_100 * MS, AerSeverity::Nonfatal);
        assert_eq!(unexplained(&root(&[(10_000, 1), (11_000, 1)]), &[&a, &b], ALWAYS).n, 0);
    }

    #[test]
    fn severities_are_kept_apart_and_corrected_errors_are_not_kept() {
        let mut nic = Uncorrected::default();
        nic.event(1_000 * MS, AerSeverity::Corrected);
        assert!(nic.is_empty());
        nic.event(1_000 * MS, AerSeverity::Fatal);
        assert_eq!(unexplained(&root(&[(1_000, 1)]), &[&nic], ALWAYS).n, 1);
    }

    #[test]
    fn no_message_is_unexplained_where_not_every_error_is_known_any_more() {
        let mut nic = Uncorrected::default();
        for i in 0..600 {
            nic.event((10_000 + i) * MS, AerSeverity::Nonfatal);
        }
        assert_eq!(unexplained(&root(&[(1_000, 7), (10_000, 9), (20_000, 1)]), &[&nic], ALWAYS).n, 1);
    }
}
