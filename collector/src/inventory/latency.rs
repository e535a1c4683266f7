//! How long operations took on a port, by window and size class, and the quiet level they are compared with.
//!
//! A QP's histogram counts from its beginning; what it grew by in a window is added to that window. A QP belongs to the
//! small class while (nearly) all of its work requests are at most 4 KB: DCQCN's own pacing lifts the latency of large
//! messages, also without a queue, and small ones alone tell of the queue.

use std::collections::VecDeque;
use std::sync::Arc;

use super::grown::{Grown, total};
use crate::observation::Nanos;

/// Buckets of a latency histogram.
pub const BUCKETS: usize = 64;
/// Windows kept with their whole histogram.
const MAX_WINDOWS: usize = 64;
/// Windows whose quiet level is kept: an hour of windows of 1 s.
const MAX_LEVELS: usize = 3_600;
/// Share of a QP's work requests that must be small.
const SMALL_SHARE: f64 = 0.9;
/// Fewer operations in a window say nothing of its level.
const MIN_OPERATIONS: u64 = 20;
/// The low percentile that is a window's low level, and that of the hour's windows.
const LOW: f64 = 0.1;
/// Of the quiet windows the tenth lowest says what their level is, where their low percentile is further up: a fault that
/// lasts for most of an hour does not become what is usual.
const LOWEST: usize = 9;

/// Size class of a QP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeClass {
    /// Messages of at most 4 KB.
    Small,
    /// Larger ones, or both.
    Large,
}

/// The operations of one window.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyWindow {
    /// Its end.
    pub t: Nanos,
    /// Operations whose latency was measured.
    pub n: u64,
    /// By latency: bucket i counts [2^i, 2^(i+1)) ns.
    pub counts: [u64; BUCKETS],
    /// Bytes and work requests of their QPs.
    pub bytes: u64,
    /// Work requests.
    pub wrs: u64,
}

impl LatencyWindow {
    /// Nothing yet.
    #[must_use]
    pub fn empty(t: Nanos) -> Self {
        Self { t, n: 0, counts: [0; BUCKETS], bytes: 0, wrs: 0 }
    }

    /// Adds another window.
    pub fn add(&mut self, other: &Self) {
        self.n = self.n.saturating_add(other.n);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.wrs = self.wrs.saturating_add(other.wrs);
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, n)| *sum = sum.saturating_add(n));
    }

    /// A quantile in ns; within a bucket the counts are taken to be spread evenly over its logarithm. `None` without any.
    #[must_use]
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        let rank = self.n as f64 * q;
        let mut seen = 0.0;
        for (bucket, n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let n = *n as f64;
            if seen + n >= rank {
                let exponent = bucket as f64 + ((rank - seen) / n).clamp(0.0, 1.0);
                return Some(exponent.exp2());
            }
            seen += n;
        }
        None
    }

    /// The bucket of a quantile.
    #[must_use]
    pub fn bucket(&self, q: f64) -> Option<usize> {
        let rank = self.n as f64 * q;
        let mut seen = 0.0;
        self.counts.iter().position(|n| {
            seen += *n as f64;
            *n > 0 && seen >= rank
        })
    }

    /// Operations that took 2^`bucket` ns or more.
    #[must_use]
    pub fn at_least(&self, bucket: usize) -> u64 {
        self.counts.get(bucket..).map_or(0, total)
    }
}

/// The quiet level of a size class: of windows in which the port was read not to be paused, or does not count it, next to
/// nothing it received was marked and less than half of its rate was in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Baseline {
    /// A low percentile of the windows' medians, ns.
    pub median_ns: f64,
    /// Windows it rests on.
    pub windows: usize,
    /// The port was quiet in them; otherwise it was not paused, and that is all.
    pub quiet: bool,
}

impl std::fmt::Display for Baseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = if self.windows == 1 { "" } else { "s" };
        if self.quiet {
            write!(f, "in the quiet of {} window{s}", self.windows)
        } else {
            write!(f, "at the least in {} window{s} without pause", self.windows)
        }
    }
}

/// What a port did in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calm {
    /// It was paused.
    Paused,
    /// Whether it was paused was not read.
    Unknown,
    /// It was busy, or how busy is not known, or what it received was marked.
    Busy,
    /// It was none of these.
    Quiet,
}

/// Quiet windows that are enough, so that those that were merely not paused are left aside.
const ENOUGH: usize = 5;

/// The latencies of one port.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    classes: [OfClass; 2],
}

#[derive(Debug, Clone, Default)]
struct OfClass {
    /// Since the beginning.
    total: Vec<u64>,
    open: Option<Box<LatencyWindow>>,
    closed: Arc<VecDeque<LatencyWindow>>,
    /// Low percentiles of the last windows, log2 ns.
    lows: Arc<VecDeque<f32>>,
    /// Medians of the last quiet windows, log2 ns.
    quiet: Arc<VecDeque<f32>>,
    /// The same of the busy ones without pause.
    busy: Arc<VecDeque<f32>>,
}

impl Latencies {
    /// The windows of a class that end after `t`, newest first; a window without an operation is left out.
    pub fn since(&self, class: SizeClass, t: Nanos) -> impl Iterator<Item = &LatencyWindow> {
        self.of(class).closed.iter().rev().take_while(move |window| window.t > t)
    }

    /// All operations of a class after `t`; `None` without one.
    #[must_use]
    pub fn sum(&self, class: SizeClass, t: Nanos) -> Option<LatencyWindow> {
        let mut windows = self.since(class, t);
        let mut sum = windows.next()?.clone();
        windows.for_each(|window| sum.add(window));
        Some(sum)
    }

    /// The quiet level of a class over an hour of quiet windows; `None` without one.
    #[must_use]
    pub fn baseline(&self, class: SizeClass) -> Option<Baseline> {
        let quiet = &self.of(class).quiet;
        Some(Baseline { median_ns: low(quiet, LOWEST)?, windows: quiet.len(), quiet: true })
    }

    /// What the latencies of a class are held against: its quiet level, or where that is not known what operations took at
    /// the least while the port was not paused, which is no less.
    #[must_use]
    pub fn reference(&self, class: SizeClass) -> Option<Baseline> {
        let (quiet, of) = (self.baseline(class), self.of(class));
        if of.busy.is_empty() || quiet.is_some_and(|quiet| quiet.windows >= ENOUGH) {
            return quiet;
        }
        let all: VecDeque<f32> = of.quiet.iter().chain(&*of.busy).copied().collect();
        Some(Baseline { median_ns: low(&all, LOWEST)?, windows: all.len(), quiet: false })
    }

    /// How long operations of a class take at least, ns: a low percentile of the low percentiles of the last hour's windows,
    /// quiet or not. `None` without a window.
    #[must_use]
    pub fn least_ns(&self, class: SizeClass) -> Option<f64> {
        low(&self.of(class).lows, usize::MAX)
    }

    /// All operations since the beginning, by latency: bucket i counts [2^i, 2^(i+1)) ns; empty when none was measured.
    #[must_use]
    pub fn total(&self) -> Vec<u64> {
        let mut total = Vec::new();
        self.classes.iter().for_each(|class| super::totals::add(&mut total, &class.total));
        total
    }

    fn of(&self, class: SizeClass) -> &OfClass {
        &self.classes[class as usize]
    }

    /// Takes what a QP's statistics grew by.
    pub(crate) fn take(&mut self, t: Nanos, grown: &Grown) {
        let Some(latency) = &grown.latency else { return };
        let class = &mut self.classes[size_class(grown) as usize];
        super::totals::add(&mut class.total, latency);
        let open = class.open.get_or_insert_with(|| Box::new(LatencyWindow::empty(t)));
        for (sum, n) in open.counts.iter_mut().zip(latency) {
            *sum = sum.saturating_add(*n);
        }
        open.n = open.n.saturating_add(total(latency));
        open.bytes = open.bytes.saturating_add(grown.bytes);
        open.wrs = open.wrs.saturating_add(grown.wrs);
    }

    /// Closes the window.
    pub(super) fn close_window(&mut self, t: Nanos, calm: Calm) {
        for class in &mut self.classes {
            let Some(mut window) = class.open.take().filter(|window| window.n > 0) else { continue };
            window.t = t;
            if window.n >= MIN_OPERATIONS
                && let (Some(low), Some(median)) = (window.quantile_ns(LOW), window.quantile_ns(0.5))
            {
                keep(&mut class.lows, low);
                match calm {
                    Calm::Quiet => keep(&mut class.quiet, median),
                    Calm::Busy => keep(&mut class.busy, median),
                    Calm::Paused | Calm::Unknown => {}
                }
            }
            let closed = Arc::make_mut(&mut class.closed);
            if closed.len() == MAX_WINDOWS {
                closed.pop_front();
            }
            closed.push_back(*window);
        }
    }
}

/// The low percentile of levels, or the one at place `at` where that is lower, ns.
fn low(levels: &VecDeque<f32>, at: usize) -> Option<f64> {
    let mut all: Vec<f32> = levels.iter().copied().collect();
    all.sort_unstable_by(f32::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
    let percentile = (all.len() as f64 * LOW) as usize;
    all.get(percentile.min(at)).map(|level| f64::from(*level).exp2())
}

fn keep(levels: &mut Arc<VecDeque<f32>>, ns: f64) {
    let levels = Arc::make_mut(levels);
    if levels.len() == MAX_LEVELS {
        levels.pop_front();
    }
    #[allow(clippy::cast_possible_truncation, reason = "an exponent between 0 and 64")]
    levels.push_back(ns.log2() as f32);
}

fn size_class(grown: &Grown) -> SizeClass {
    let small = match &grown.sizes {
        Some(sizes) if sizes.iter().any(|n| *n > 0) => {
            let (few, all) = (super::posting::small(sizes, grown.bytes), total(sizes));
            few as f64 >= SMALL_SHARE * all as f64
        }
        _ => grown.wrs > 0 && grown.bytes / grown.wrs <= 4_096,
    };
    if small { SizeClass::Small } else { SizeClass::Large }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(latencies: &mut Latencies, bucket: usize, calm: Calm) {
        let (mut sizes, mut latency) = ([0; BUCKETS], [0; BUCKETS]);
        (sizes[6], latency[bucket]) = (100, 100);
        let grown = Grown { wrs: 100, sizes: Some(sizes), latency: Some(latency), ..Grown::default() };
        latencies.take(0, &grown);
        latencies.close_window(0, calm);
    }

    #[test]
    fn the_quiet_level_is_of_quiet_windows_and_outlasts_a_fault_that_lasts() {
        let mut latencies = Latencies::default();
        window(&mut latencies, 14, Calm::Paused);
        assert_eq!(latencies.reference(SizeClass::Small), None, "paused all the time");
        window(&mut latencies, 13, Calm::Busy);
        assert_eq!(latencies.baseline(SizeClass::Small), None, "never quiet");
        let busy = latencies.reference(SizeClass::Small).unwrap();
        assert_eq!(busy.to_string(), "at the least in 1 window without pause");
        assert!(latencies.least_ns(SizeClass::Small).is_some());
        (0..20).for_each(|_| window(&mut latencies, 12, Calm::Quiet));
        // Slow without a pause or a load that says so, and then with them.
        (0..2_000).for_each(|_| window(&mut latencies, 14, Calm::Quiet));
        (0..5_000).for_each(|_| window(&mut latencies, 14, Calm::Paused));
        let base = latencies.baseline(SizeClass::Small).unwrap();
        assert_eq!(base.to_string(), "in the quiet of 2020 windows");
        assert_eq!(latencies.reference(SizeClass::Small), Some(base));
        assert!((4_096.0..8_192.0).contains(&base.median_ns), "{}", base.median_ns);
    }
}
