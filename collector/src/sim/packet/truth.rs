//! Which marks were right: what only the queue knows.
//!
//! With K* = 0.17 · rate · RTT, the queue is **congested** while it is above K* for at least L round trips. A mark inside
//! of such an interval is **true**, any other **premature**; a congested interval without a mark is **missed**. L is a
//! choice, and on one and the same trace the premature share moves by an order of magnitude with it: whoever prints such
//! a share must print L.

use super::simulation::{Ecn, Packet};
use super::{PS_PER_NS, Picos, whole};

/// K* as a share of rate · RTT.
const K_STAR: f64 = 0.17;

/// K* in bytes.
#[must_use]
pub fn k_star_bytes(rate_gbps: f64, rtt_ns: u64) -> u64 {
    whole(K_STAR * rate_gbps / 8.0 * rtt_ns as f64)
}

/// A time during which the queue was above K*, however short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// When the queue rose above K*, ps since the start of the run.
    pub start_ps: Picos,
    /// When it fell below; for an interval that is not over, the time of the last packet.
    pub end_ps: Picos,
    /// Marks inside of it.
    pub marks: u64,
}

impl Interval {
    /// How long it lasts, ps.
    #[must_use]
    pub fn length_ps(&self) -> Picos {
        self.end_ps - self.start_ps
    }
}

/// What one value of L makes of a run. Everything is counted as soon as it is certain, so the difference of two counts
/// is what became certain between them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Marks inside of congested intervals.
    pub true_marks: u64,
    /// All others.
    pub premature_marks: u64,
    /// Congested intervals that are over.
    pub congested: u64,
    /// Those of them in which nothing was marked.
    pub missed: u64,
    /// Time the queue was congested, ps.
    pub congested_ps: Picos,
}

impl Counts {
    /// Premature marks / marks; `None` without a mark.
    #[must_use]
    pub fn premature_share(&self) -> Option<f64> {
        share(self.premature_marks, self.true_marks + self.premature_marks)
    }

    /// Missed intervals / congested intervals; `None` without one.
    #[must_use]
    pub fn missed_share(&self) -> Option<f64> {
        share(self.missed, self.congested)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Judges every mark of a run, for several values of L at once.
#[derive(Debug, Clone)]
pub struct Truth {
    k_star_bytes: u64,
    rate_gbps: f64,
    by_l: Vec<ByL>,
    open: Option<Interval>,
    /// The queue behind the last packet, and its time.
    last: (Picos, u64),
}

#[derive(Debug, Clone)]
struct ByL {
    l: f64,
    least_ps: Picos,
    counts: Counts,
    /// Marks of the open interval that are not counted yet.
    pending: u64,
    /// The open interval is counted as congested up to here; `None` while it is too young.
    counted: Option<Picos>,
}

impl Truth {
    /// For a bottleneck of this rate and round trip.
    #[must_use]
    pub fn new(rate_gbps: f64, rtt_ns: u64, l: &[f64]) -> Self {
        let by_l = l
            .iter()
            .map(|&l| ByL {
                l,
                least_ps: whole(l * (rtt_ns * PS_PER_NS) as f64),
                counts: Counts::default(),
                pending: 0,
                counted: None,
            })
            .collect();
        Self { k_star_bytes: k_star_bytes(rate_gbps, rtt_ns), rate_gbps, by_l, open: None, last: (0, 0) }
    }

    /// K* in bytes.
    #[must_use]
    pub fn k_star_bytes(&self) -> u64 {
        self.k_star_bytes
    }

    /// L and what it makes of the run so far, in the order given.
    pub fn counts(&self) -> impl Iterator<Item = (f64, Counts)> {
        self.by_l.iter().map(|by| (by.l, by.counts))
    }

    /// The time above K* that is not over.
    #[must_use]
    pub fn open(&self) -> Option<Interval> {
        self.open
    }

    /// The next packet; the time above K* that ended before it, if one did.
    pub fn packet(&mut self, packet: &Packet) -> Option<Interval> {
        let t = packet.t_ps;
        let ended = if packet.queue_bytes <= self.k_star_bytes { self.end() } else { None };
        let behind = packet.queue_bytes + u64::from(packet.bytes);
        self.last = (t, behind);
        if behind > self.k_star_bytes {
            let open = self.open.get_or_insert(Interval { start_ps: t, end_ps: t, marks: 0 });
            open.end_ps = t;
            let marked = packet.ecn == Ecn::Ce;
            open.marks += u64::from(marked);
            let open = *open;
            for by in &mut self.by_l {
                by.pending += u64::from(marked);
                by.settle(&open);
            }
        } else if packet.ecn == Ecn::Ce {
            for by in &mut self.by_l {
                by.counts.premature_marks += 1;
            }
        }
        ended
    }

    /// The run is over: the open interval ends when the queue, with nothing more to come, falls below K*.
    pub fn finish(&mut self) -> Option<Interval> {
        self.end()
    }

    fn end(&mut self) -> Option<Interval> {
        let mut open = self.open.take()?;
        let (t, behind) = self.last;
        open.end_ps = t + whole(behind.saturating_sub(self.k_star_bytes) as f64 * 8_000.0 / self.rate_gbps);
        for by in &mut self.by_l {
            by.settle(&open);
            if by.counted.take().is_some() {
                by.counts.congested += 1;
                by.counts.missed += u64::from(open.marks == 0);
            } else {
                by.counts.premature_marks += std::mem::take(&mut by.pending);
            }
        }
        Some(open)
    }
}

impl ByL {
    /// Counts what the open interval is old enough for.
    fn settle(&mut self, open: &Interval) {
        if open.length_ps() < self.least_ps {
            return;
        }
        let from = self.counted.unwrap_or(open.start_ps);
        self.counts.congested_ps += open.end_ps - from;
        self.counted = Some(open.end_ps);
        self.counts.true_marks += std::mem::take(&mut self.pending);
    }
}
