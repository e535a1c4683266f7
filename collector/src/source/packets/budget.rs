//! How many packets are looked at in a second.
//!
//! Beyond the budget the ring is not read until the second is over. When it is full the kernel drops what comes, which
//! costs it the filter and nothing else, and counts it: that is told as lost.

use crate::observation::Nanos;

const SECOND_NS: Nanos = 1_000_000_000;

/// The budget of the second that is running.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: u64,
    since: Nanos,
    used: u64,
    /// It was used up at least once.
    exceeded: bool,
}

impl Budget {
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second: per_second.into(), since: 0, used: 0, exceeded: false }
    }

    /// There is something left at `now`.
    pub(super) fn allows(&mut self, now: Nanos) -> bool {
        if now >= self.since.saturating_add(SECOND_NS) {
            (self.since, self.used) = (now, 0);
        }
        self.used < self.per_second
    }

    /// So many packets were looked at.
    pub(super) fn spend(&mut self, packets: u64) {
        self.used = self.used.saturating_add(packets);
        self.exceeded |= self.is_spent();
    }

    /// It is used up, as of the last look.
    pub(super) fn is_spent(&self) -> bool {
        self.used >= self.per_second
    }

    /// When there is something again.
    pub(super) fn renewed_at(&self) -> Nanos {
        self.since.saturating_add(SECOND_NS)
    }

    /// It was used up at least once.
    pub(super) fn was_exceeded(&self) -> bool {
        self.exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_allows_its_packets_and_the_next_one_as_many_again() {
        let mut budget = Budget::new(100);
        assert!(budget.allows(5 * SECOND_NS));
        budget.spend(99);
        assert!(budget.allows(5 * SECOND_NS + 1) && !budget.is_spent() && !budget.was_exceeded());
        budget.spend(50);
        assert!(!budget.allows(6 * SECOND_NS - 1) && budget.is_spent());
        assert_eq!((budget.renewed_at(), budget.was_exceeded()), (6 * SECOND_NS, true));
        assert!(budget.allows(6 * SECOND_NS));
    }

    #[test]
    fn a_budget_of_nothing_allows_nothing() {
        assert!(!Budget::new(0).allows(SECOND_NS));
    }
}
