//! How long to wait before the next attempt: twice as long after each failure, up to a limit, with a random part, so that
//! the nodes of a cluster do not all come at once when their collector is back.

use std::time::Duration;

use super::random;

/// The wait after the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait of its own accord.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest wait that is obeyed when the other end asks for one.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// Counts the failures in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It worked.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// It failed again: the time to wait, at least `asked` if the other end asked for a time.
    pub(super) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let wait = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        // Between half of it and all of it.
        let own = wait.mul_f64(0.5 + random::share() / 2.0);
        match asked {
            None => own,
            // Never before what was asked, and not exactly at it.
            Some(asked) => asked.min(LONGEST_ASKED) + FIRST.mul_f64(random::share()).min(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_limit_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        for seconds in [1, 2, 4, 8, 16, 30, 30, 30] {
            let (wait, whole) = (backoff.next(None), Duration::from_secs(seconds));
            assert!(whole / 2 <= wait && wait <= whole, "{wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.next(None) <= FIRST);
    }

    #[test]
    fn a_time_that_is_asked_for_is_kept_up_to_five_minutes() {
        let mut backoff = Backoff::default();
        for (asked, least) in [(7, 7), (86_400, 300), (0, 0)] {
            let wait = backoff.next(Some(Duration::from_secs(asked)));
            let least = Duration::from_secs(least);
            assert!(least <= wait && wait <= least + FIRST, "{wait:?} for {asked} s");
        }
    }

    #[test]
    fn two_waits_are_not_the_same() {
        let waits: Vec<Duration> = (0..8).map(|_| Backoff::default().next(None)).collect();
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    }
}
