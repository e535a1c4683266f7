//! How many QPs of a device are in use at once, over the last seconds.

use std::collections::VecDeque;

use crate::observation::{FanOut, Histogram, Nanos};

/// Readings kept: with one a second, ten seconds.
const KEPT: usize = 11;

/// What one reading says, cumulative.
#[derive(Debug, Clone, Default)]
struct Reading {
    t: Nanos,
    switches: u64,
    histograms: [Vec<u64>; 3],
}

/// The fan-out of one device.
#[derive(Debug, Clone, Default)]
pub struct FanOutRecord {
    readings: VecDeque<Reading>,
}

/// A middle and a high level of a histogram of powers of two: the lower bounds of the buckets they lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// Half of what was counted lies in this bucket or below.
    pub p50: u64,
    /// 99 % of it.
    pub p99: u64,
}

/// What posts to a device looked like over some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Distinct QPs posted to within a millisecond.
    pub in_1ms: Levels,
    /// Distinct QPs posted to within 100 ms; `None` when no such interval was complete.
    pub in_100ms: Option<Levels>,
    /// Switches between QPs until a QP's next turn: an upper bound of the distinct QPs in between; `None` when none came
    /// round again.
    pub reuse: Option<Levels>,
}

impl FanOutRecord {
    /// Takes a reading. One that fell is of another beginning: what was before says nothing of it.
    pub(crate) fn take(&mut self, t: Nanos, seen: &FanOut<'_>) {
        let reading = Reading {
            t,
            switches: seen.switches,
            histograms: [&seen.in_1ms, &seen.in_100ms, &seen.reuse].map(|Histogram(counts)| counts.clone()),
        };
        if self.readings.back().is_some_and(|last| reading.since(last).is_none()) {
            self.readings.clear();
        }
        if self.readings.len() == KEPT {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
    }

    /// Time of the newest reading.
    #[must_use]
    pub fn t(&self) -> Option<Nanos> {
        self.readings.back().map(|reading| reading.t)
    }

    /// What was counted between the readings after `from`, and the time between the first and the last of them, ns; `None`
    /// when there are no two, or nothing was posted. A reading is told when something was posted, so those kept may reach
    /// far back.
    #[must_use]
    pub fn spread(&self, from: Nanos) -> Option<(Spread, Nanos)> {
        let (first, last) = (self.readings.iter().find(|reading| reading.t >= from)?, self.readings.back()?);
        let [in_1ms, in_100ms, reuse] = last.since(first)?;
        let spread = Spread { in_1ms: levels(&in_1ms)?, in_100ms: levels(&in_100ms), reuse: levels(&reuse) };
        Some((spread, last.t - first.t))
    }
}

impl Reading {
    /// What was counted since an earlier reading; `None` when something fell.
    fn since(&self, before: &Self) -> Option<[Vec<u64>; 3]> {
        self.switches.checked_sub(before.switches)?;
        let mut grown: [Vec<u64>; 3] = Default::default();
        for ((grown, now), before) in grown.iter_mut().zip(&self.histograms).zip(&before.histograms) {
            let old = before.iter().copied().chain(std::iter::repeat(0));
            *grown = now.iter().zip(old).map(|(now, old)| now.checked_sub(old)).collect::<Option<_>>()?;
        }
        Some(grown)
    }
}

fn levels(counts: &[u64]) -> Option<Levels> {
    let total: u64 = counts.iter().fold(0, |sum, n| sum.saturating_add(*n));
    let level = |percent: u64| {
        // The smallest bucket up to which so many percent are counted, rounded up.
        let wanted = u128::from(total) * u128::from(percent);
        let mut sum = 0_u128;
        let bucket = counts.iter().position(|n| {
            sum += u128::from(*n) * 100;
            sum >= wanted
        })?;
        1_u64.checked_shl(u32::try_from(bucket).ok()?)
    };
    (total > 0).then_some(())?;
    Some(Levels { p50: level(50)?, p99: level(99)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::Text;

    fn reading(switches: u64, in_1ms: &[u64]) -> FanOut<'static> {
        let histogram = |counts: &[u64]| Histogram(counts.to_vec());
        FanOut {
            device: Text::Borrowed("mlx5_0"),
            switches,
            in_1ms: histogram(in_1ms),
            in_100ms: histogram(&[]),
            reuse: histogram(&[0, 0, switches]),
        }
    }

    #[test]
    fn the_spread_is_of_the_last_readings_and_not_of_the_whole_life() {
        let mut record = FanOutRecord::default();
        record.take(1, &reading(0, &[0, 0, 0, 1_000_000]));
        assert_eq!(record.spread(0), None, "one reading is a total, and a total is no evidence");
        record.take(2, &reading(5, &[98, 0, 0, 1_000_002]));
        let (spread, span_ns) = record.spread(0).expect("something was posted");
        assert_eq!((spread.in_1ms, span_ns), (Levels { p50: 1, p99: 8 }, 1));
        assert_eq!(spread.in_100ms, None);
        assert_eq!(spread.reuse, Some(Levels { p50: 4, p99: 4 }));
    }

    #[test]
    fn readings_before_the_window_do_not_count_and_old_ones_say_nothing() {
        let mut record = FanOutRecord::default();
        // A burst long ago, then a pause in which nothing is told, then two readings a second apart.
        for (t, n, wide) in [(10, 1, 0), (11, 2, 5_000), (600, 3, 5_000), (601, 4, 5_000)] {
            record.take(t, &reading(n, &[n, 0, 0, 0, 0, 0, 0, 0, wide]));
        }
        let (spread, span) = record.spread(595).expect("something was posted");
        assert_eq!((spread.in_1ms, span), (Levels { p50: 1, p99: 1 }, 1));
        assert_eq!(record.spread(602), None, "nobody has looked since");
    }

    #[test]
    fn a_reading_that_fell_begins_anew() {
        let mut record = FanOutRecord::default();
        record.take(1, &reading(10, &[100]));
        record.take(2, &reading(3, &[20]));
        assert_eq!(record.spread(0), None);
        record.take(3, &reading(4, &[30]));
        assert_eq!(record.spread(0).map(|(spread, _)| spread.in_1ms.p50), Some(1));
    }
}
