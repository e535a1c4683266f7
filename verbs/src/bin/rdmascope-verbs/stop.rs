//! The sign to end, which whoever waits hears at once.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Set once, never taken back.
#[derive(Default)]
pub(crate) struct Stop {
    set: Mutex<bool>,
    told: Condvar,
}

impl Stop {
    /// Gives it.
    pub(crate) fn set(&self) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    /// Waits until this moment, or for the sign; true when it was given.
    pub(crate) fn wait_until(&self, moment: Instant) -> bool {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        while !*set {
            let Some(left) = moment.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return false;
            };
            (set, _) = self.told.wait_timeout(set, left).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn whoever_waits_goes_on_at_the_sign_or_when_the_time_is_over() {
        let stop = Stop::default();
        assert!(!stop.wait_until(Instant::now() + Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| stop.wait_until(Instant::now() + Duration::from_secs(3600)));
            stop.set();
            assert!(waiting.join().expect("it does not panic"));
        });
        assert!(stop.wait_until(Instant::now()));
    }
}
