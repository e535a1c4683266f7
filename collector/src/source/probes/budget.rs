//! The budget of the data-path probe: what its hits may cost, and when it has to go.

use crate::observation::Nanos;

/// How much of one core the data-path probe may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// No limit.
    Off,
    /// This share of one core, 0–1; with 0 the data-path probe is not attached at all.
    Share(f64),
}

impl Default for Budget {
    fn default() -> Self {
        Self::Share(0.01)
    }
}

/// Cost of one hit at a function's first instruction on bare metal: the kernel steps over `endbr64` or `mov` one by
/// one, which takes 0.9 µs, and the program 0.1–0.2 µs.
const HIT_NS: u64 = 1_100;

/// The same in a virtual machine, where the two traps leave the guest: 9–11 µs.
const HIT_IN_GUEST_NS: u64 = 10_000;

/// Windows in a row above the budget after which the probe is detached.
const PATIENCE: u32 = 3;

/// A window this many times above the budget is enough by itself.
const FLAGRANT: f64 = 10.0;

/// Watches the cost.
///
/// The cost is the number of hits times a fixed, conservative cost per hit: the kernel's own run-time statistics would
/// have to be switched on for the whole system, and leave out the trap, which is most of it.
#[derive(Debug)]
pub(super) struct Guard {
    budget: Budget,
    hit_ns: u64,
    before: Option<(Nanos, u64)>,
    above: u32,
}

impl Guard {
    pub(super) fn new(budget: Budget, in_guest: bool) -> Self {
        Self { budget, hit_ns: if in_guest { HIT_IN_GUEST_NS } else { HIT_NS }, before: None, above: 0 }
    }

    /// The assumed cost of one hit in ns.
    pub(super) fn hit_ns(&self) -> u64 {
        self.hit_ns
    }

    /// Takes the hits so far; the reason when the probe has to be detached.
    pub(super) fn check(&mut self, now: Nanos, hits: u64) -> Option<String> {
        let (then, hits_then) = self.before.replace((now, hits))?;
        let Budget::Share(share) = self.budget else { return None };
        let elapsed_ns = now.checked_sub(then).filter(|ns| *ns > 0)?;
        let fresh = hits.saturating_sub(hits_then);
        let cost = fresh as f64 * self.hit_ns as f64 / elapsed_ns as f64;
        if cost <= share {
            self.above = 0;
            return None;
        }
        self.above += 1;
        if self.above < PATIENCE && cost <= share * FLAGRANT {
            return None;
        }
        let per_second = fresh as f64 * 1e9 / elapsed_ns as f64;
        Some(format!(
            "detached: {per_second:.0} hits/s × {} ns exceed the budget of {} % of one core",
            self.hit_ns,
            (share * 1e4).round() / 1e2
        ))
    }
}

/// This is a virtual machine: x86 tells it in the processor's flags.
pub(super) fn in_guest(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_probe_inside_its_budget_stays() {
        let mut guard = Guard::new(Budget::Share(0.01), false);
        // 9,000 hits/s × 1.1 µs = 0.99 % of a core.
        assert!((0..100).all(|second| guard.check(second * SECOND, second * 9_000).is_none()));
    }

    #[test]
    fn a_short_burst_is_forgiven_and_a_lasting_excess_is_not() {
        let mut guard = Guard::new(Budget::Share(0.01), false);
        let hits = [0, 20_000, 40_000, 40_000, 60_000, 80_000, 100_000];
        let verdicts: Vec<bool> =
            hits.iter().zip(0..).map(|(hits, second)| guard.check(second * SECOND, *hits).is_some()).collect();
        assert_eq!(verdicts, [false, false, false, false, false, false, true]);
    }

    #[test]
    fn a_flagrant_excess_ends_at_once_with_its_numbers() {
        let mut guard = Guard::new(Budget::Share(0.01), false);
        assert_eq!(guard.check(0, 0), None);
        let reason = guard.check(SECOND, 1_000_000).expect("110 % of a core is too much");
        assert_eq!(reason, "detached: 1000000 hits/s × 1100 ns exceed the budget of 1 % of one core");
    }

    #[test]
    fn without_a_budget_nothing_is_detached() {
        let mut guard = Guard::new(Budget::Off, true);
        assert!((0..10).all(|second| guard.check(second * SECOND, second * 10_000_000).is_none()));
    }

    #[test]
    fn a_guest_knows_that_it_is_one() {
        assert!(in_guest("processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"));
        assert!(!in_guest("processor\t: 0\nflags\t\t: fpu vme lahf_lm\n"));
    }
}
