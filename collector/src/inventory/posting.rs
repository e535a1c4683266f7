//! What the probes saw a port's QPs post and complete, by window.
//!
//! The statistics of a QP count from its beginning; what they grew by is added to the window it was told in. What cannot
//! be told (a QP without a history, a number that fell) is left out, so that every number here is a lower bound.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::grown::{Grown, total};
use crate::observation::Nanos;

/// Windows kept: ten minutes of one second each.
const MAX_WINDOWS: usize = 600;
/// Levels kept of older windows in which about as many QPs posted.
const MAX_LEVELS: usize = 120;
/// A bucket of sizes up to this one is small: [4096, 8192) holds messages of 4 KB exactly.
const SMALL_BUCKET: usize = 12;
/// Mean size of the bucket's work requests up to which they are taken for 4 KB, bytes: some carry a header besides.
const SMALL_BYTES: u64 = 4_352;

/// Work requests of at most 4 KB among `sizes` (bucket i counts [2^i, 2^(i+1)) bytes), which came to `bytes`. Those of
/// [4096, 8192) are small unless the bytes say that they must be larger.
pub(super) fn small(sizes: &[u64], bytes: u64) -> u64 {
    let smaller = total(sizes.get(..SMALL_BUCKET).unwrap_or(sizes));
    let edge = sizes.get(SMALL_BUCKET).copied().unwrap_or(0);
    // What the others came to at most; larger ones may have taken any number of bytes.
    let larger = sizes.iter().skip(SMALL_BUCKET + 1).any(|n| *n > 0);
    let others = sizes.iter().take(SMALL_BUCKET).enumerate().fold(0u64, |sum, (i, n)| sum.saturating_add(n << (i + 1)));
    let too_large = !larger && bytes.saturating_sub(others) > edge.saturating_mul(SMALL_BYTES);
    if too_large { smaller } else { smaller.saturating_add(edge) }
}

/// How posts were watched in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traced {
    /// Nobody watched.
    No,
    /// All the time.
    All,
    /// Now and then: what was counted stands for the time that the window's sweeps cover, ns; 0 where there is none in
    /// which posts were watched.
    Swept(Nanos),
}

impl Traced {
    /// The time for which what was counted in a window of this length stands; `None` where nothing can be said.
    pub(crate) fn ns(self, window_ns: Nanos) -> Option<Nanos> {
        match self {
            Self::No | Self::Swept(0) => None,
            Self::All => Some(window_ns),
            Self::Swept(ns) => Some(ns),
        }
    }
}

/// What was posted in one window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PostWindow {
    /// Its end.
    pub t: Nanos,
    /// Time for which its numbers stand: its length, or where posts are paused now and then that of the sweeps in it, ns.
    pub ns: Nanos,
    /// QPs that posted.
    pub qps: u32,
    /// Times a process posted to another QP than before, and the posts of the QPs of which that is counted.
    pub switches: (u64, u64),
    /// Work requests.
    pub wrs: u64,
    /// Bytes they asked to move.
    pub bytes: u64,
    /// Work requests whose size is known.
    pub sized: u64,
    /// Those of them of at most 4 KB: sizes are known as powers of two, so some may be of less than 8 KB.
    pub small: u64,
    /// Operations whose latency was measured, and the sum of their latencies, ns.
    pub latency: (u64, f64),
    /// The same of QPs that posted only small work requests.
    pub small_latency: (u64, f64),
}

impl PostWindow {
    /// Mean latency, ns; `None` when none was measured.
    #[must_use]
    pub fn mean_latency_ns(&self) -> Option<f64> {
        (self.latency.0 > 0).then(|| self.latency.1 / self.latency.0 as f64)
    }

    /// Mean latency of small operations, ns; `None` when none was measured.
    #[must_use]
    pub fn mean_small_latency_ns(&self) -> Option<f64> {
        (self.small_latency.0 > 0).then(|| self.small_latency.1 / self.small_latency.0 as f64)
    }
}

/// How long small operations took in one window, and how much was posted in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Mean latency, ns.
    pub latency_ns: f64,
    /// Work requests a second.
    pub wrs_per_s: f64,
}

impl Level {
    fn of(window: &PostWindow) -> Option<Self> {
        let wrs_per_s = window.wrs as f64 * 1e9 / window.ns.max(1) as f64;
        Some(Self { latency_ns: window.mean_small_latency_ns()?, wrs_per_s })
    }
}

/// The windows of one port.
#[derive(Debug, Clone, Default)]
pub struct Posting {
    open: PostWindow,
    /// Windows closed so far, so that each QP, which keeps the number of the one it posted in, is counted once in each:
    /// QPs need not be told at one time.
    number: u32,
    closed: Arc<VecDeque<PostWindow>>,
    /// Those of windows that are older, by the power of two of how many QPs posted: a condition that lasts must not push out
    /// what it is held against.
    levels: Arc<BTreeMap<u32, VecDeque<Level>>>,
}

impl Posting {
    /// The windows, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &PostWindow> {
        self.closed.iter().rev()
    }

    /// Small operations in windows in which QPs posted and at most `qps` of them: of the windows kept, and of older ones of
    /// which it is certain.
    #[must_use]
    pub fn small_levels(&self, qps: u32) -> Vec<Level> {
        let few = self.closed.iter().filter(|window| window.qps > 0 && window.qps <= qps);
        let mut levels: Vec<Level> = few.filter_map(Level::of).collect();
        let certain = self.levels.iter().filter(|(log2, _)| (2u64 << **log2) - 1 <= u64::from(qps));
        levels.extend(certain.flat_map(|(_, older)| older));
        levels
    }

    /// Takes what a QP's statistics grew by; it was last counted in the window `posted_in`. Says in which it is counted
    /// now, if it posted.
    pub(crate) fn take(&mut self, posted_in: u32, grown: &Grown) -> Option<u32> {
        if grown.new {
            return None;
        }
        let window = self.number.wrapping_add(1);
        let now = (grown.wrs > 0).then_some(window);
        let open = &mut self.open;
        if grown.wrs > 0 && posted_in != window {
            open.qps = open.qps.saturating_add(1);
        }
        open.wrs = open.wrs.saturating_add(grown.wrs);
        open.bytes = open.bytes.saturating_add(grown.bytes);
        if let Some(switches) = grown.switches {
            open.switches = (open.switches.0.saturating_add(switches), open.switches.1.saturating_add(grown.posts));
        }
        let by_size = grown.sizes.as_ref();
        let (sized, small) = by_size.map_or((0, 0), |counts| (total(counts), small(counts, grown.bytes)));
        open.sized = open.sized.saturating_add(sized);
        open.small = open.small.saturating_add(small);
        let Some(latency) = &grown.latency else { return now };
        // The middle of a bucket [2^i, 2^(i+1)).
        let buckets = (0i32..).zip(latency).filter(|(_, count)| **count > 0);
        let (n, sum) = buckets.fold((0u64, 0.0), |(n, sum), (bucket, count)| {
            (n.saturating_add(*count), sum + *count as f64 * 1.5 * f64::from(bucket).exp2())
        });
        let add = |all: &mut (u64, f64)| *all = (all.0.saturating_add(n), all.1 + sum);
        add(&mut open.latency);
        if sized > 0 && small == sized {
            add(&mut open.small_latency);
        }
        now
    }

    pub(super) fn close_window(&mut self, t: Nanos, window_ns: Nanos, traced: Traced) {
        self.number = self.number.wrapping_add(1);
        let mut window = std::mem::take(&mut self.open);
        // What was still posted before nobody watched any more.
        let rest = (traced == Traced::No && window.wrs > 0).then_some(window_ns);
        let Some(ns) = traced.ns(window_ns).or(rest) else { return };
        (window.t, window.ns) = (t, ns);
        let closed = Arc::make_mut(&mut self.closed);
        let oldest = if closed.len() == MAX_WINDOWS { closed.pop_front() } else { None };
        closed.push_back(window);
        let Some((oldest, level)) = oldest.and_then(|oldest| Some((oldest, Level::of(&oldest)?))) else {
            return;
        };
        let Some(log2) = oldest.qps.checked_ilog2() else { return };
        let levels = Arc::make_mut(&mut self.levels).entry(log2).or_default();
        if levels.len() == MAX_LEVELS {
            levels.pop_front();
        }
        levels.push_back(level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_just_below_eight_kilobytes_are_not_small_and_those_of_four_are() {
        let sizes = |at: usize, n: u64| {
            let mut sizes = [0; 32];
            (sizes[at], sizes[10]) = (n, 10);
            sizes
        };
        assert_eq!(small(&sizes(12, 100), 100 * 4096 + 10 * 1024), 110);
        assert_eq!(small(&sizes(12, 100), 100 * 8140 + 10 * 1024), 10);
        assert_eq!(small(&sizes(16, 100), 100 * 65_536 + 10 * 1024), 10);
    }

    #[test]
    fn a_level_with_few_qps_outlasts_any_number_of_windows_with_many() {
        let mut posting = Posting::default();
        let mut windows = |n: usize, qps: u32, bucket: usize| {
            for _ in 0..n {
                for _ in 0..qps {
                    let (mut sizes, mut latency) = ([0; 64], [0; 64]);
                    (sizes[12], latency[bucket]) = (1, 1);
                    let grown =
                        Grown { posts: 1, wrs: 1, sizes: Some(sizes), latency: Some(latency), ..Grown::default() };
                    posting.take(0, &grown);
                }
                posting.close_window(0, 1, Traced::All);
            }
            posting.small_levels(10).iter().map(|level| level.latency_ns).collect::<Vec<f64>>()
        };
        assert_eq!(windows(20, 3, 12).len(), 20);
        let after = windows(3 * MAX_WINDOWS, 40, 14);
        assert_eq!(after, vec![1.5 * 4096.0; 20], "those with few QPs, and no other");
    }

    #[test]
    fn a_window_has_what_the_numbers_grew_by_and_each_qp_once() {
        let mut posting = Posting::default();
        let grown = |small, large| {
            let mut sizes = [0; 64];
            (sizes[12], sizes[20]) = (small, large);
            Grown { posts: 5, wrs: 5, bytes: 5, switches: Some(5), sizes: Some(sizes), ..Grown::default() }
        };
        // Two QPs, told twice each, at times of their own.
        for grown in [grown(5, 0), grown(5, 7)] {
            let posted_in = posting.take(0, &grown).unwrap();
            posting.take(posted_in, &grown);
        }
        posting.close_window(3, 1, Traced::All);
        let window = posting.newest_first().next().unwrap();
        assert_eq!((window.qps, window.wrs, window.switches), (2, 20, (20, 20)));
        assert_eq!((window.small, window.sized), (20, 34));
        posting.close_window(4, 1, Traced::No);
        assert_eq!(posting.newest_first().count(), 1, "a window without tracing is none");
        posting.take(1, &grown(5, 0));
        posting.close_window(5, 1, Traced::All);
        assert_eq!(posting.newest_first().next().unwrap().qps, 1, "counted again in another window");
    }
}
