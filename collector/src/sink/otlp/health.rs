//! What is said of endpoints: one line when one fails, with the reason, and one when it takes data again. Whatever comes
//! between is counted. An endpoint that keeps changing is said once a minute.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::sink::Log;

/// The least time between two lines that the same thing fails.
const QUIET: Duration = Duration::from_secs(60);

/// The state of everything that can fail, by its name.
pub(super) struct Health {
    log: Log,
    failing: BTreeMap<String, Failing>,
    said_at: BTreeMap<String, Instant>,
}

struct Failing {
    since: Instant,
    failures: u64,
    said: bool,
}

impl Health {
    pub(super) fn new(log: Log) -> Self {
        Self { log, failing: BTreeMap::new(), said_at: BTreeMap::new() }
    }

    /// Something failed at `now`; `then` is what comes of it.
    pub(super) fn failed(&mut self, what: &str, why: &str, then: &str, now: Instant) {
        if let Some(failing) = self.failing.get_mut(what) {
            failing.failures += 1;
            return;
        }
        let quiet = self.said_at.get(what).is_some_and(|at| now.saturating_duration_since(*at) < QUIET);
        if !quiet {
            (self.log)(&format!("OTLP: {what}: {why}; {then}"));
            self.said_at.insert(what.to_owned(), now);
        }
        self.failing.insert(what.to_owned(), Failing { since: now, failures: 1, said: !quiet });
    }

    /// Something worked at `now`; `lost` says what could not be kept until then.
    pub(super) fn worked(&mut self, what: &str, lost: impl FnOnce() -> String, now: Instant) {
        let Some(failing) = self.failing.remove(what).filter(|failing| failing.said) else { return };
        let seconds = now.saturating_duration_since(failing.since).as_secs_f64();
        let failures = failing.failures;
        (self.log)(&format!("OTLP: {what}: works again after {seconds:.0} s and {failures} failures; {}", lost()));
    }

    /// Something that is said as it is.
    pub(super) fn say(&self, line: &str) {
        (self.log)(&format!("OTLP: {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn an_outage_is_two_lines_and_a_flapping_endpoint_is_said_once_a_minute() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let mut health = Health::new(Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned())));
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        for second in 0..50 {
            health.failed("http://c", "refused", "trying again", at(second));
        }
        health.worked("http://c", || "nothing was lost".into(), at(50));
        health.worked("http://c", || unreachable!("it works"), at(51));
        let said = [
            "OTLP: http://c: refused; trying again",
            "OTLP: http://c: works again after 50 s and 50 failures; nothing was lost",
        ];
        assert_eq!(*lines.lock().unwrap(), said);
        for second in 52..59 {
            health.failed("http://c", "refused", "trying again", at(second));
            health.worked("http://c", String::new, at(second));
        }
        assert_eq!(lines.lock().unwrap().len(), 2);
        health.failed("http://c", "refused", "trying again", at(61));
        health.failed("http://d", "refused", "trying again", at(61));
        assert_eq!(lines.lock().unwrap().len(), 4);
    }
}
