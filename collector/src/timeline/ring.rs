//! A bounded history of one series at falling resolution, cheap to share: a snapshot copies pointers and one block.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::observation::Nanos;

/// Samples in one block. A shared history is copied at most one block at a time.
const BLOCK: usize = 64;
/// Blocks of fine samples: 64 × 64 windows, about 68 minutes of 1 s windows.
const FINE_BLOCKS: usize = 64;
/// Fine samples that make one coarse sample.
const COARSE_OF: usize = 30;
/// Blocks of coarse samples: 48 × 64 × 30 windows, about 25 hours of 1 s windows.
const COARSE_BLOCKS: usize = 48;

/// One value per window, `None` where it is not known.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    fine: Blocks,
    coarse: Blocks,
    pending_sum: f64,
    pending_known: usize,
    pending: usize,
}

impl Ring {
    /// Appends the value of the window that has just closed.
    pub fn push(&mut self, value: Option<f64>) {
        self.fine.push(value, FINE_BLOCKS);
        self.pending += 1;
        if let Some(value) = value {
            self.pending_sum += value;
            self.pending_known += 1;
        }
        if self.pending == COARSE_OF {
            let mean = (self.pending_known > 0).then(|| self.pending_sum / self.pending_known as f64);
            self.coarse.push(mean, COARSE_BLOCKS);
            (self.pending, self.pending_known, self.pending_sum) = (0, 0, 0.0);
        }
    }

    /// The last value; `None` when it is not known or there is none.
    #[must_use]
    pub fn last(&self) -> Option<f64> {
        self.fine.iter_back().next().flatten()
    }

    /// Fine samples held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fine.len
    }

    /// No sample was pushed yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fine.len == 0
    }

    /// The fine samples, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        self.fine.iter_back()
    }

    /// The last `n` samples in time order; shorter when there are fewer.
    #[must_use]
    pub fn tail(&self, n: usize) -> Vec<Option<f64>> {
        let mut tail: Vec<_> = self.fine.iter_back().take(n).collect();
        tail.reverse();
        tail
    }

    /// `columns` values over the last `span_windows` windows in time order, each the mean of its share, for charts.
    #[must_use]
    pub fn resampled(&self, span_windows: usize, columns: usize) -> Vec<Option<f64>> {
        if columns == 0 {
            return Vec::new();
        }
        let per_column = span_windows.div_ceil(columns).max(1);
        // The fine samples still hold everything there ever was.
        let complete = self.fine.len == self.coarse.len * COARSE_OF + self.pending;
        // A column shorter than a coarse sample needs fine ones, or its time would be wrong.
        let fine_enough = per_column < COARSE_OF || span_windows <= self.fine.len || complete;
        let (blocks, step) =
            if fine_enough { (&self.fine, per_column) } else { (&self.coarse, per_column.div_ceil(COARSE_OF).max(1)) };
        let mut values = blocks.iter_back();
        let mut out: Vec<Option<f64>> = (0..columns)
            .map(|_| {
                let (mut sum, mut n) = (0.0, 0u32);
                for value in values.by_ref().take(step).flatten() {
                    sum += value;
                    n += 1;
                }
                (n > 0).then(|| sum / f64::from(n))
            })
            .collect();
        out.reverse();
        out
    }
}

/// Blocks of samples, oldest first; all but the last are full.
///
/// The newest samples, as long as they are the same, are not in a block yet but counted: most series are of errors and
/// stand still, and one more of the same touches nothing but the ring itself.
#[derive(Debug, Clone, Default)]
struct Blocks {
    kept: VecDeque<Arc<Vec<Option<f32>>>>,
    /// Samples held, those of the run included.
    len: usize,
    /// The newest sample, and how many of it are still to be put into the last block, which has room for them.
    run: (Option<f32>, usize),
}

/// The same sample, whatever a comparison of numbers says.
fn is_same(a: Option<f32>, b: Option<f32>) -> bool {
    a.map(f32::to_bits) == b.map(f32::to_bits)
}

impl Blocks {
    fn push(&mut self, value: Option<f64>, max_blocks: usize) {
        #[allow(clippy::cast_possible_truncation, reason = "charts need 24 bits of a rate, not 53")]
        let value = value.map(|value| value as f32);
        // All blocks but the last are full, so the length says whether that one is.
        if self.len.is_multiple_of(BLOCK) {
            self.put_run();
            if self.kept.len() == max_blocks {
                self.kept.pop_front();
                self.len -= BLOCK;
            }
            self.kept.push_back(Arc::new(Vec::with_capacity(BLOCK)));
        }
        if self.run.1 > 0 && !is_same(self.run.0, value) {
            self.put_run();
        }
        self.run = (value, self.run.1 + 1);
        self.len += 1;
    }

    /// Puts what was counted into the last block.
    fn put_run(&mut self) {
        let (value, n) = std::mem::take(&mut self.run);
        if let Some(block) = self.kept.back_mut().filter(|_| n > 0) {
            let block = Arc::make_mut(block);
            block.resize(block.len() + n, value);
        }
    }

    fn iter_back(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let (value, n) = self.run;
        let older = self.kept.iter().rev().flat_map(|block| block.iter().rev().copied());
        std::iter::repeat_n(value, n).chain(older).map(|value| value.map(f64::from))
    }
}

/// A bounded list of events, oldest first; what falls out is counted.
#[derive(Debug, Clone)]
pub struct Events<T> {
    kept: VecDeque<(Nanos, T)>,
    cap: usize,
    /// Events that fell out of the list.
    pub dropped: u64,
}

impl<T> Events<T> {
    /// An empty list of at most `cap` events.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self { kept: VecDeque::new(), cap, dropped: 0 }
    }

    /// Adds an event at its place in time, after those of the same moment. Sources may be late by up to a second, so it
    /// is not always the newest.
    pub fn push(&mut self, t: Nanos, event: T) {
        let mut at = self.kept.iter().rposition(|(old, _)| *old <= t).map_or(0, |before| before + 1);
        if self.kept.len() >= self.cap {
            self.dropped = self.dropped.saturating_add(1);
            if at == 0 {
                return;
            }
            self.kept.pop_front();
            at -= 1;
        }
        self.kept.insert(at, (t, event));
    }

    /// The events, oldest first.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &(Nanos, T)> {
        self.kept.iter()
    }

    /// The events after `t`, newest first.
    pub fn since(&self, t: Nanos) -> impl Iterator<Item = &(Nanos, T)> {
        self.kept.iter().rev().take_while(move |(at, _)| *at > t)
    }

    /// Some of the events after `t` may have fallen out of the list: what is counted of them is the least there were.
    #[must_use]
    pub fn in_part(&self, t: Nanos) -> bool {
        self.dropped > 0 && self.kept.front().is_none_or(|(oldest, _)| *oldest > t)
    }

    /// The newest event after `t` that passes the test, for changing.
    pub(crate) fn newest_mut(&mut self, t: Nanos, test: impl Fn(&T) -> bool) -> Option<&mut T> {
        let late = self.kept.iter_mut().rev().take_while(|(at, _)| *at > t);
        late.map(|(_, event)| event).find(|event| test(event))
    }

    /// Number of events held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// No event is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The newest event.
    #[must_use]
    pub fn last(&self) -> Option<&(Nanos, T)> {
        self.kept.back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_unknown_apart_from_zero() {
        let mut ring = Ring::default();
        ring.push(Some(0.0));
        ring.push(None);
        assert_eq!(ring.tail(5), [Some(0.0), None]);
        assert_eq!(ring.last(), None);
    }

    #[test]
    fn old_samples_fall_out_and_the_coarse_history_remembers_their_mean() {
        let mut ring = Ring::default();
        for i in 0..10_000u32 {
            ring.push(Some(f64::from(i)));
        }
        assert!(ring.len() <= FINE_BLOCKS * BLOCK);
        assert_eq!(ring.last(), Some(9_999.0));
        let day = ring.resampled(9_990, 3);
        assert_eq!(day.len(), 3);
        assert!(day[0].unwrap() < 3_400.0 && day[2].unwrap() > 6_600.0, "{day:?}");
    }

    #[test]
    fn runs_of_one_value_are_kept_as_if_each_had_been_put_down() {
        let mut ring = Ring::default();
        let mut told: Vec<Option<f64>> = Vec::new();
        // Runs of all lengths up to several blocks, of values that differ, are equal to the last, or are unknown.
        for length in (0..160usize).chain([64, 63, 1, 128, 65, 2]) {
            let value = [Some(0.0), None, Some(0.5), Some(-0.0)][length % 4];
            for _ in 0..length {
                ring.push(value);
                told.push(value);
            }
        }
        let held = ring.tail(usize::MAX);
        assert_eq!(ring.len(), held.len());
        assert!(ring.len() > (FINE_BLOCKS - 1) * BLOCK && ring.len() <= FINE_BLOCKS * BLOCK);
        let bits = |values: &[Option<f64>]| values.iter().map(|value| value.map(f64::to_bits)).collect::<Vec<_>>();
        assert_eq!(bits(&held), bits(&told[told.len() - held.len()..]));
        assert_eq!(ring.last(), Some(0.5));
    }

    #[test]
    fn a_short_history_on_a_long_axis_keeps_its_time() {
        let mut ring = Ring::default();
        (0..90u32).for_each(|i| ring.push(Some(f64::from(i))));
        let columns = ring.resampled(200, 100);
        assert_eq!(columns.iter().flatten().count(), 45);
        assert_eq!(columns[99], Some(88.5));
        let columns = ring.resampled(3_600, 60);
        assert_eq!(columns.iter().flatten().count(), 2);
    }

    #[test]
    fn a_shared_ring_does_not_change_when_the_original_grows() {
        let mut ring = Ring::default();
        ring.push(Some(1.0));
        let shared = ring.clone();
        ring.push(Some(2.0));
        assert_eq!(shared.tail(9), [Some(1.0)]);
        assert_eq!(ring.tail(9), [Some(1.0), Some(2.0)]);
    }

    #[test]
    fn the_event_list_counts_what_falls_out() {
        let mut events = Events::new(2);
        for t in 1..=3 {
            events.push(t, t);
        }
        assert_eq!(events.iter().map(|e| e.1).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(events.dropped, 1);
        assert_eq!(events.since(2).map(|e| e.1).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_late_event_hides_none_of_the_newer_ones() {
        let mut events = Events::new(3);
        for t in [10, 20, 12] {
            events.push(t, t);
        }
        assert_eq!(events.since(11).map(|e| e.1).collect::<Vec<_>>(), [20, 12]);
        assert_eq!(events.since(15).map(|e| e.1).collect::<Vec<_>>(), [20]);
        assert_eq!(events.last(), Some(&(20, 20)));
        events.push(11, 11);
        events.push(1, 1);
        assert_eq!(events.iter().map(|e| e.1).collect::<Vec<_>>(), [11, 12, 20]);
        assert_eq!(events.dropped, 2);
    }
}
