//! AER counts per stretch of ten seconds, for rules that look back minutes: lists of single events are too short for
//! that in a storm.

use std::collections::VecDeque;

use crate::observation::{AerSeverity, Nanos};

/// Length of one bucket, ns.
const BUCKET_NS: u64 = 10_000_000_000;
/// Buckets kept: an hour in which something happened all the time.
const MAX_BUCKETS: usize = 360;
/// Replay number rollover (bit 8) and replay timer timeout (bit 12) of the correctable error status register (PCI Express
/// base specification, 7.8.4.5): the link had to be retrained, or a transaction was repeated until it got through.
const REPLAY_BITS: u32 = 1 << 8 | 1 << 12;

/// What an AER count is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AerClass {
    /// Corrected errors of the function itself.
    Corrected,
    /// Those of them that are a replay rollover or a replay timeout.
    Replay,
    /// Non-fatal errors of the function itself.
    Nonfatal,
    /// Fatal errors of the function itself.
    Fatal,
}

const CLASSES: usize = 4;

/// Counts of one class. Events, totals and kinds describe the same errors and are never added.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    events: u64,
    /// Growth of the line that counts messages of all kinds.
    sum: u64,
    /// Growth of the lines that count one kind each.
    kinds: u64,
    first: Option<Nanos>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    start: Nanos,
    counts: [Count; CLASSES],
    last: [Nanos; CLASSES],
}

/// How much of a class was counted in a stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AerCount {
    /// The larger of what the events and what the totals say.
    pub n: u64,
    /// When the first of them was seen.
    pub first: Option<Nanos>,
    /// When the last of them was seen.
    pub last: Option<Nanos>,
}

/// AER counts of one function over the last hour.
#[derive(Debug, Clone, Default)]
pub struct AerTally {
    buckets: VecDeque<Bucket>,
}

impl AerTally {
    /// Nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The last end of a bucket at or before `t`: times at which counts can be cut exactly.
    #[must_use]
    pub fn edge(t: Nanos) -> Nanos {
        t - t % BUCKET_NS
    }

    /// What was counted from `from` to `to`; exact to the ten seconds, and exact where both are edges and `to` is
    /// excluded by one nanosecond.
    #[must_use]
    pub fn count(&self, class: AerClass, from: Nanos, to: Nanos) -> AerCount {
        let at = class as usize;
        let (mut events, mut sum, mut kinds) = (0u64, 0u64, 0u64);
        let mut count = AerCount::default();
        for bucket in self.buckets.iter().filter(|b| b.start.saturating_add(BUCKET_NS) > from && b.start <= to) {
            let one = &bucket.counts[at];
            let Some(first) = one.first else { continue };
            if first > to || bucket.last[at] < from {
                continue;
            }
            events = events.saturating_add(one.events);
            sum = sum.saturating_add(one.sum);
            kinds = kinds.saturating_add(one.kinds);
            count.first.get_or_insert(first);
            count.last = Some(bucket.last[at]);
        }
        count.n = events.max(if sum > 0 { sum } else { kinds });
        count
    }

    pub(crate) fn event(&mut self, t: Nanos, severity: AerSeverity, status: u32, names: &[impl AsRef<str>]) {
        let replay = status & REPLAY_BITS != 0 || names.iter().any(|name| is_replay(name.as_ref()));
        self.note(t, own(severity), |count| count.events = count.events.saturating_add(1));
        if severity == AerSeverity::Corrected && replay {
            self.note(t, AerClass::Replay, |count| count.events = count.events.saturating_add(1));
        }
    }

    pub(crate) fn growth(&mut self, t: Nanos, severity: AerSeverity, name: &str, n: u64) {
        if name.contains("rootport") {
            // Messages of errors anywhere below it: `Uncorrected` has them.
            return;
        }
        if name.starts_with("TOTAL_") {
            self.note(t, own(severity), |count| count.sum = count.sum.saturating_add(n));
        } else {
            self.note(t, own(severity), |count| count.kinds = count.kinds.saturating_add(n));
            if severity == AerSeverity::Corrected && is_replay(name) {
                self.note(t, AerClass::Replay, |count| count.kinds = count.kinds.saturating_add(n));
            }
        }
    }

    fn note(&mut self, t: Nanos, class: AerClass, add: impl FnOnce(&mut Count)) {
        let start = t - t % BUCKET_NS;
        // A source may be up to a second late: the bucket before the newest is still open.
        let known = self.buckets.iter().rposition(|bucket| bucket.start <= start);
        let index = match known {
            Some(index) if self.buckets[index].start == start => index,
            known => {
                let index = known.map_or(0, |index| index + 1);
                self.buckets.insert(index, Bucket { start, counts: Default::default(), last: [0; CLASSES] });
                index
            }
        };
        let bucket = &mut self.buckets[index];
        let count = &mut bucket.counts[class as usize];
        add(count);
        count.first = Some(count.first.map_or(t, |first| first.min(t)));
        bucket.last[class as usize] = bucket.last[class as usize].max(t);
        if self.buckets.len() > MAX_BUCKETS {
            self.buckets.pop_front();
        }
    }
}

fn own(severity: AerSeverity) -> AerClass {
    match severity {
        AerSeverity::Corrected => AerClass::Corrected,
        AerSeverity::Nonfatal => AerClass::Nonfatal,
        AerSeverity::Fatal => AerClass::Fatal,
    }
}

/// `Rollover` and `Timeout` as sysfs and the kernel's newer log lines call them, `RELAY_NUM Rollover` and `Replay Timer
/// Timeout` as older ones do. A completion timeout is another, uncorrectable error (`CmpltTO`).
pub(crate) fn is_replay(name: &str) -> bool {
    name.ends_with("Rollover") || name == "Timeout" || name == "Replay Timer Timeout"
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const NONE: [&str; 0] = [];

    #[test]
    fn counts_stop_at_the_largest_number() {
        let mut tally = AerTally::default();
        for name in ["TOTAL_ERR_COR", "Rollover"] {
            tally.growth(S, AerSeverity::Corrected, name, u64::MAX);
            tally.growth(2 * S, AerSeverity::Corrected, name, 2);
        }
        for class in [AerClass::Corrected, AerClass::Replay] {
            assert_eq!(tally.count(class, 0, 9 * S).n, u64::MAX, "{class:?}");
        }
    }

    #[test]
    fn events_and_totals_of_the_same_errors_are_not_added() {
        let mut tally = AerTally::default();
        for t in 1..=5 {
            tally.event(t * S, AerSeverity::Corrected, 0x100, &NONE);
        }
        tally.growth(6 * S, AerSeverity::Corrected, "Rollover", 7);
        tally.growth(6 * S, AerSeverity::Corrected, "RxErr", 2);
        tally.growth(6 * S, AerSeverity::Corrected, "TOTAL_ERR_COR", 7);
        assert_eq!(tally.count(AerClass::Corrected, 0, 60 * S).n, 7);
        let replay = tally.count(AerClass::Replay, 0, 60 * S);
        assert_eq!(replay, AerCount { n: 7, first: Some(S), last: Some(6 * S) });
    }

    #[test]
    fn a_root_ports_messages_are_not_its_own_errors() {
        let mut tally = AerTally::default();
        tally.growth(S, AerSeverity::Fatal, "aer_rootport_total_err_fatal", 1);
        assert!(tally.is_empty());
    }

    #[test]
    fn an_hour_of_storm_is_bounded_and_late_events_find_their_place() {
        let mut tally = AerTally::default();
        for t in 0..5_000 {
            tally.event(t * S, AerSeverity::Corrected, 1, &NONE);
        }
        tally.event(4_989 * S, AerSeverity::Corrected, 1, &NONE);
        assert_eq!(tally.buckets.len(), MAX_BUCKETS);
        assert_eq!(tally.count(AerClass::Corrected, 4_990 * S, 5_000 * S - 1).n, 10);
        assert_eq!(tally.count(AerClass::Corrected, 4_980 * S, 4_990 * S - 1).n, 11);
    }
}
