//! What marks, CNPs, pauses and bytes did side by side, at the sources' own period.
//!
//! A window of a second hides what happens within it: a port that sends for a fifth of it at line rate has a low mean and
//! a full queue. The counters of a port come from several sets, read at different times and periods. So time is cut into
//! slices at the readings of one of them, the leading set: the one with the marks, else the one with the received bytes.
//! What another set counted between two of its readings is shared out over the slices that time overlaps. A slice is
//! therefore no finer than the set a number came from, and each number says how much of the slice it covers.
//!
//! The cost of a line is a few additions for each signal of its set.

use std::collections::VecDeque;
use std::sync::Arc;

use super::CounterSet;
use super::port::Place;
use crate::observation::Nanos;
use crate::timeline::counter_table::{How, Meaning};

/// Slices kept for each port: 5 s at 10 ms, 51 s at 100 ms, 8 min at 1 s.
const MAX_SLICES: usize = 512;
/// Readings closer together than this make one slice, ns.
const MIN_SLICE_NS: Nanos = 9_000_000;
/// Of a slice at least this share must be covered by readings for a number of it to be known.
const COVERED: f64 = 0.5;

/// What is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// RDMA bytes received.
    RxBytes,
    /// RDMA bytes sent.
    TxBytes,
    /// RDMA packets received.
    RxPackets,
    /// RDMA packets sent.
    TxPackets,
    /// RoCE packets received with CE.
    Marked,
    /// CNPs sent.
    CnpSent,
    /// CNPs received that slowed a sender down.
    CnpHandled,
    /// CNPs received that changed nothing.
    CnpIgnored,
    /// Time this port was stopped, µs.
    RxPause,
    /// Time this host stopped others, µs.
    TxPause,
    /// Ticks with something to send and nothing sent.
    TxWait,
}

/// Every signal, with the meaning its counters have.
const SIGNALS: [(Signal, Meaning); 11] = [
    (Signal::RxBytes, Meaning::RxBytes),
    (Signal::TxBytes, Meaning::TxBytes),
    (Signal::RxPackets, Meaning::RxPackets),
    (Signal::TxPackets, Meaning::TxPackets),
    (Signal::Marked, Meaning::EcnMarkedRx),
    (Signal::CnpSent, Meaning::CnpSent),
    (Signal::CnpHandled, Meaning::CnpHandled),
    (Signal::CnpIgnored, Meaning::CnpIgnored),
    (Signal::RxPause, Meaning::RxPauseDuration),
    (Signal::TxPause, Meaning::TxPauseDuration),
    (Signal::TxWait, Meaning::TxWait),
];

/// A number of a slice: growth, and the time it was counted over.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Part {
    sum: f32,
    covered_ns: f32,
}

/// A stretch of time between two readings of the leading set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slice {
    /// Its beginning, excluded.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    parts: [Part; SIGNALS.len()],
}

impl Slice {
    /// Its length, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to.saturating_sub(self.from) as f64 / 1e9
    }

    /// Growth of a signal per second, in bytes, packets, µs or ticks; `None` when less than half of the slice is covered
    /// by readings.
    #[must_use]
    pub fn rate(&self, signal: Signal) -> Option<f64> {
        let part = self.parts[signal as usize];
        let length = self.to.saturating_sub(self.from) as f64;
        let covered = f64::from(part.covered_ns);
        (covered > 0.0 && covered >= length * COVERED).then(|| f64::from(part.sum) * 1e9 / covered)
    }

    /// Growth of a signal within it.
    #[must_use]
    pub fn growth(&self, signal: Signal) -> Option<f64> {
        self.rate(signal).map(|rate| rate * self.seconds())
    }

    /// Adds what was counted evenly over a stretch of time.
    fn add(&mut self, at: usize, (from, to): (Nanos, Nanos), growth: f64) {
        let overlap = to.min(self.to).saturating_sub(from.max(self.from)) as f64;
        if overlap <= 0.0 {
            return;
        }
        let part = &mut self.parts[at];
        #[allow(clippy::cast_possible_truncation, reason = "24 bits of a rate are more than a rule compares")]
        {
            part.sum += (growth * overlap / (to - from) as f64) as f32;
            part.covered_ns += overlap as f32;
        }
    }
}

/// Where a signal's counters are in one set.
#[derive(Debug, Clone, PartialEq)]
struct Followed {
    at: usize,
    how: How,
    series: Vec<usize>,
}

/// What a set is followed for.
#[derive(Debug, Clone, Default, PartialEq)]
struct OfSet {
    signals: Vec<Followed>,
    /// Its last reading: one that is told twice counts once.
    t: Nanos,
}

/// A port's slices.
#[derive(Debug, Clone, Default)]
pub struct Slices {
    sets: Vec<OfSet>,
    lead: Option<usize>,
    /// The slice that is not over; its end is the end of time.
    open: Option<Slice>,
    closed: Arc<VecDeque<Slice>>,
}

impl Slices {
    /// The slices, oldest first.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Slice> + Clone {
        self.closed.iter()
    }

    /// The slices that end after `t`, newest first.
    pub fn since(&self, t: Nanos) -> impl Iterator<Item = &Slice> + Clone {
        self.closed.iter().rev().take_while(move |slice| slice.to > t)
    }

    /// Follows the counters that give each meaning now: `find` says how they combine and where they are.
    pub(super) fn follow<'p>(&mut self, sets: usize, find: impl Fn(Meaning) -> Option<(How, &'p [Place])>) {
        if self.sets.len() == sets && self.follows(&find) {
            return;
        }
        for set in &mut self.sets {
            set.signals.clear();
        }
        self.sets.resize_with(sets, OfSet::default);
        let (mut marked, mut bytes) = (None, None);
        for (at, (signal, meaning)) in SIGNALS.iter().enumerate() {
            let Some((how, places)) = find(*meaning) else { continue };
            let Some(set) = places.first().map(|(set, _)| usize::from(*set)) else { continue };
            let series = places.iter().map(|(_, series)| usize::from(*series)).collect();
            match signal {
                Signal::Marked => marked = Some(set),
                Signal::RxBytes => bytes = Some(set),
                _ => {}
            }
            if let Some(of_set) = self.sets.get_mut(set) {
                of_set.signals.push(Followed { at, how, series });
            }
        }
        let lead = marked.or(bytes);
        if lead != self.lead {
            self.lead = lead;
            self.open = None;
        }
    }

    /// Nothing is elsewhere than it was: so it is in nearly every window.
    fn follows<'p>(&self, find: &impl Fn(Meaning) -> Option<(How, &'p [Place])>) -> bool {
        SIGNALS.iter().enumerate().all(|(at, (_, meaning))| {
            let followed = self.sets.iter().enumerate().find_map(|(set, of_set)| {
                let followed = of_set.signals.iter().find(|followed| followed.at == at)?;
                Some((set, followed))
            });
            match (followed, find(*meaning).filter(|(_, places)| !places.is_empty())) {
                (None, None) => true,
                (Some((set, followed)), Some((how, places))) => {
                    followed.how == how
                        && places.first().is_some_and(|(first, _)| usize::from(*first) == set)
                        && followed.series.iter().copied().eq(places.iter().map(|(_, series)| usize::from(*series)))
                }
                _ => false,
            }
        })
    }

    /// Takes a reading of a set.
    pub(super) fn take(&mut self, at: usize, set: &CounterSet) {
        let Some(of_set) = self.sets.get_mut(at) else { return };
        let t = set.t;
        if t <= of_set.t || of_set.signals.is_empty() {
            return;
        }
        of_set.t = t;
        for followed in &of_set.signals {
            let mut sum: Option<f64> = None;
            let mut dt = 0;
            for index in &followed.series {
                let series = &set.series[*index];
                let Some(growth) = series.delta.value().filter(|_| series.t == t) else {
                    sum = None;
                    break;
                };
                let growth = growth as f64 * series.def.unit.bytes_factor().unwrap_or(1) as f64;
                dt = series.interval();
                sum = Some(match (sum, followed.how) {
                    (None, _) => growth,
                    (Some(sum), How::Max) => sum.max(growth),
                    (Some(sum), _) => sum + growth,
                });
            }
            let Some(growth) = sum.filter(|_| dt > 0) else { continue };
            let stretch = (t.saturating_sub(dt), t);
            if let Some(open) = &mut self.open {
                open.add(followed.at, stretch, growth);
                if open.from <= stretch.0 {
                    continue;
                }
            }
            let late = |slice: &&mut Slice| slice.to > stretch.0;
            for slice in Arc::make_mut(&mut self.closed).iter_mut().rev().take_while(late) {
                slice.add(followed.at, stretch, growth);
            }
        }
        if self.lead == Some(at) {
            self.cut(t);
        }
    }

    /// Ends the open slice and begins the next.
    fn cut(&mut self, t: Nanos) {
        let next = Slice { from: t, to: Nanos::MAX, parts: [Part::default(); SIGNALS.len()] };
        match &mut self.open {
            Some(open) if t.saturating_sub(open.from) < MIN_SLICE_NS => {}
            Some(open) => {
                let mut slice = std::mem::replace(open, next);
                slice.to = t;
                let closed = Arc::make_mut(&mut self.closed);
                if closed.len() == MAX_SLICES {
                    closed.pop_front();
                }
                closed.push_back(slice);
            }
            None => self.open = Some(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::CounterSource;

    /// Two sets: marks every 100 ms, bytes a little later.
    fn sets() -> (Slices, CounterSet, CounterSet) {
        let driver: Arc<str> = "mlx5_core".into();
        let hw = CounterSet::new(CounterSource::HwCounters, None, None, Some(driver.clone()));
        let pma = CounterSet::new(CounterSource::Counters, None, None, Some(driver));
        let mut slices = Slices::default();
        slices.follow(2, |meaning| match meaning {
            Meaning::EcnMarkedRx => Some((How::Prefer, &[(0, 0)][..])),
            Meaning::RxBytes => Some((How::Prefer, &[(1, 0)][..])),
            _ => None,
        });
        (slices, hw, pma)
    }

    fn read(slices: &mut Slices, at: usize, set: &mut CounterSet, ms: u64, name: &str, value: u64) {
        let driver: Arc<str> = "mlx5_core".into();
        set.take(ms * 1_000_000, false, false, Some(&driver), std::iter::once((name, value)), std::iter::empty());
        slices.take(at, set);
    }

    #[test]
    fn what_is_read_a_moment_later_belongs_to_the_slice_it_was_counted_in() {
        let (mut slices, mut hw, mut pma) = sets();
        for i in 0..=4u64 {
            // Bytes flow in the third tenth of a second only.
            let words = if i >= 3 { 250_000 } else { 0 };
            read(&mut slices, 0, &mut hw, 1_000 + i * 100, "np_ecn_marked_roce_packets", i * 7);
            read(&mut slices, 1, &mut pma, 1_005 + i * 100, "port_rcv_data", words);
        }
        let marks: Vec<_> = slices.iter().map(|s| s.growth(Signal::Marked).unwrap()).collect();
        assert_eq!(marks, [7.0; 4]);
        let bytes: Vec<f64> = slices.iter().map(|s| s.growth(Signal::RxBytes).unwrap()).collect();
        assert!(bytes[0] < 1.0 && bytes[1] < 1.0 && (940e3..1_010e3).contains(&bytes[2]), "{bytes:?}");
        assert!(slices.iter().all(|s| s.rate(Signal::CnpSent).is_none()), "nobody counted CNPs");
    }

    #[test]
    fn a_coarse_set_is_shared_out_over_fine_slices() {
        let (mut slices, mut hw, mut pma) = sets();
        read(&mut slices, 1, &mut pma, 1_000, "port_rcv_data", 0);
        for i in 0..=10u64 {
            read(&mut slices, 0, &mut hw, 1_000 + i * 100, "np_ecn_marked_roce_packets", i);
        }
        read(&mut slices, 1, &mut pma, 2_000, "port_rcv_data", 1_000);
        let even = slices.iter().all(|s| (s.growth(Signal::RxBytes).unwrap() - 400.0).abs() < 0.5);
        assert!(even && slices.iter().count() == 10);
    }

    #[test]
    fn a_reset_leaves_the_slice_unknown_and_not_zero() {
        let (mut slices, mut hw, _) = sets();
        for (ms, value) in [(1_000, 50), (1_100, 60), (1_200, 3), (1_300, 5)] {
            read(&mut slices, 0, &mut hw, ms, "np_ecn_marked_roce_packets", value);
        }
        let marks: Vec<_> = slices.iter().map(|s| s.growth(Signal::Marked)).collect();
        assert_eq!(marks, [Some(10.0), None, Some(2.0)]);
    }

    #[test]
    fn the_history_is_bounded() {
        let (mut slices, mut hw, _) = sets();
        for i in 0..2_000u64 {
            read(&mut slices, 0, &mut hw, 1_000 + i * 10, "np_ecn_marked_roce_packets", i);
        }
        assert_eq!(slices.iter().count(), MAX_SLICES);
    }
}
