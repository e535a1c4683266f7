//! What speaks for and against a queue behind the marks.
//!
//! Counters cannot tell a mark without a queue from one of a short burst: both come at a low mean load. Several signs
//! together can, each weakly. A sign's weight is the natural logarithm of how much more often it is seen with premature
//! marks than with true ones, on traces of the packet model whose queue is known (docs/rules/ecn.md has the table). The
//! weights are rounded, cut off where they rest on few traces, and added: the sum is not a probability.
//!
//! The physics behind each:
//! - **CNPs for each mark.** A queue above Kmax marks every packet, in runs; a run makes one CNP per flow and interval.
//!   Isolated marks, from the first stretch of RED, make one CNP each.
//! - **Small operations later than the floor.** They pass the same queue. Marks of a queue above K* come while the link
//!   is full, so the share of time in which that queue stands is at least m·u, and so is the share of small operations
//!   it delays. Where far fewer are late, the marks had no such queue.
//! - **Long queues among the queues.** RED at a low probability marks few of the packets of any queue, so the marks say
//!   little of how long one stood; the small operations do. Where one in a thousand of those that found a queue found one of
//!   about a round trip, nearly all the marks fell on shorter ones.
//! - **Other rails.** Rails at a like load whose small operations are as late have a queue like this one's; where they are
//!   marked far less, the marks here do not come from the queue but from lower thresholds.
//! - **Message size.** A queue above K* for L·RTT needs more than L bandwidth-delay products on their way at once. At a
//!   low load messages much smaller than that rarely meet in such numbers. A message that takes several times as long as at
//!   the full rate is sent piece by piece: only a part of it is on its way at once.

use super::View;
use super::span::{Span, Sums};
use crate::finding::Evidence;
use crate::inventory::{Baseline, LatencyWindow, PortRecord, SizeClass};
use crate::observation::Nanos;

/// Share of small operations above the floor's bucket from which on the floor is at its upper edge: at less than half of
/// the rate fewer than that find a queue.
const AT_EDGE: f64 = 0.3;

/// Operations that found a queue from which on those that found a long one are set against them, and of these the fewest:
/// below, none at all is a sign of its own.
const QUEUES: (u64, u64) = (100, 3);
/// Times its ideal a message may take before it counts as sent piece by piece: what a histogram by powers of two can tell.
const PIECEWISE: f64 = 1.5;

/// Times the middle of the other rails' share of marks, and of late small operations: more of the one and no more of the
/// other makes a rail stand out by its marks alone.
const RAIL: (f64, f64) = (5.0, 1.3);
/// Rails a comparison needs besides the one in question.
const OTHERS: usize = 2;
/// Share of its load by which a rail may differ.
const LOAD_WITHIN: f64 = 0.2;
/// What it weighs.
const OF_RAILS: f64 = 3.0;

/// A sign: what was measured, and its weight.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sign {
    /// What was measured, with its unit.
    what: (&'static str, &'static str),
    value: f64,
    /// Positive speaks for premature marks.
    pub(super) weight: f64,
}

/// All signs of a port.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Signs {
    list: Vec<Sign>,
    /// Latency of operations is among them.
    pub(super) per_qp: bool,
    /// Small operations were among those: large ones alone tell less.
    pub(super) small: bool,
    /// Something of them for the sentence.
    pub(super) latency: Option<Latency>,
}

/// Small operations against their floor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Latency {
    /// Quantiles now, ns.
    pub(super) l50_ns: f64,
    /// 99th percentile now, ns.
    pub(super) l99_ns: f64,
    /// What they are held against; `None` where the port was paused all the time.
    pub(super) base: Option<Baseline>,
    /// Operations now.
    pub(super) n: u64,
}

impl Signs {
    fn add(&mut self, what: &'static str, unit: &'static str, value: f64, weight: f64) {
        self.list.push(Sign { what: (what, unit), value, weight });
    }

    /// The sum of the weights.
    pub(super) fn sum(&self) -> f64 {
        self.list.iter().map(|sign| sign.weight).sum()
    }

    /// A row for each sign.
    pub(super) fn rows(&self, window_s: f64) -> Vec<Evidence> {
        let row = |sign: &Sign| {
            let name = format!("{} (weight {:+.1})", sign.what.0, sign.weight);
            Evidence::new(name, Some(window_s), sign.value, None, sign.what.1)
        };
        self.list.iter().map(row).collect()
    }
}

/// Weighs what is known of a port since `from`.
pub(super) fn weigh(view: &View<'_>, port: &PortRecord, sums: &Sums, from: Nanos) -> Signs {
    let mut signs = Signs::default();
    if let Some(c) = sums.cnp_per_mark().filter(|c| *c > 0.0) {
        signs.add("CNPs for each mark", "ratio", c, of_cnps(c));
    }
    // Share of the time a queue stood, were every mark true.
    let stood = sums.mark_rate().zip(sums.u_rx).map(|(m, u)| m * u);
    let small = port.latencies.sum(SizeClass::Small, from).filter(|small| small.n >= 100);
    let mut floor_ns = view.settings.ecn.rtt_us * 1e3;
    if let (Some(small), Some(stood)) = (&small, stood.filter(|stood| *stood > 0.0))
        && let Some(bucket) = floor(port, small)
    {
        let [late, very_late] = [small.at_least(bucket + 1), small.at_least(bucket + 2)];
        let n = small.n as f64;
        // The floor lies at the upper edge of its bucket: operations that found no queue are in both, and twice the
        // floor is the next edge. Otherwise it may be anywhere in the bucket, and that edge at up to four times.
        let at_edge = late as f64 >= AT_EDGE * n;
        floor_ns = (bucket as f64 + if at_edge { 1.0 } else { 0.5 }).exp2();
        let mut weights = if at_edge {
            (0.0, of_twice(very_late, small.n, stood))
        } else {
            (of_late(late, small.n, stood), of_very_late(late, very_late, small.n, stood))
        };
        let long = (late >= QUEUES.0 && very_late >= QUEUES.1).then(|| very_late as f64 / late as f64);
        if let Some(long) = long {
            weights.1 = 0.0;
            signs.add(
                "small operations later than twice the floor, of those later than it",
                "share",
                long,
                of_long(long, at_edge),
            );
        }
        signs.add(
            "small operations later than the floor, for each the marks call for",
            "ratio",
            late as f64 / n / stood,
            weights.0,
        );
        signs.add(
            "small operations later than twice the floor, likewise",
            "ratio",
            very_late as f64 / n / stood,
            weights.1,
        );
        if let Some(ratio) =
            sums.mark_rate().and_then(|m| against_rails(view, port, m, sums.u_rx?, bucket, late as f64 / n))
        {
            signs.add("marks, for each of other rails with a like load and queue", "ratio", ratio, OF_RAILS);
        }
        (signs.per_qp, signs.small) = (true, true);
        signs.latency = latency(port, small, SizeClass::Small);
    }
    if let Some(large) = port.latencies.sum(SizeClass::Large, from).filter(|large| large.n >= 20 && large.wrs > 0) {
        let rate = port.rate_gbps.unwrap_or(0.0) / 8.0;
        let size = large.bytes as f64 / large.wrs as f64;
        let bdp = rate * floor_ns;
        if bdp > 0.0 {
            let ideal_ns = floor_ns + size / rate;
            let slow = large.quantile_ns(0.5).map_or(1.0, |median| (median / ideal_ns / PIECEWISE).max(1.0));
            let at_once = size / bdp / slow;
            signs.add("message size on its way at once / (rate × round trip)", "ratio", at_once, of_size(at_once));
        }
        if small.is_none() && rate > 0.0 {
            // Without small operations the large ones tell a little: none of them was held up.
            let late = at_least_ns(&large, 2.0 * (floor_ns + size / rate));
            signs.add(
                "large messages that took twice their ideal time",
                "share",
                late,
                if late < 1e-3 { 0.6 } else { -0.6 },
            );
            signs.per_qp = true;
            signs.latency = latency(port, &large, SizeClass::Large);
        }
    }
    signs
}

/// How often this port is marked for each mark of the middle one of the other rails (at least one in a million packets),
/// where that is far more often and the small operations here are no later than there. `bucket` is the floor's, and `late`
/// the share of small operations above it.
fn against_rails(view: &View<'_>, port: &PortRecord, m: f64, u: f64, bucket: usize, late: f64) -> Option<f64> {
    let windows = view.settings.ecn_premature.windows;
    let mut marks = Vec::new();
    let mut lates = Vec::new();
    for other in super::ports(view).filter(|other| other.key != port.key && other.rate_gbps == port.rate_gbps) {
        let Some(span) = Span::newest(view, other, windows) else { continue };
        let sums = span.sums();
        let small = other.latencies.sum(SizeClass::Small, span.from).filter(|small| small.n >= 100);
        if let (Some(other_m), Some(other_u), Some(small)) = (sums.mark_rate(), sums.u_rx, small)
            && (other_u - u).abs() <= LOAD_WITHIN * u
        {
            marks.push(other_m);
            lates.push(small.at_least(bucket + 1) as f64 / small.n as f64);
        }
    }
    if marks.len() < OTHERS {
        return None;
    }
    let middle = |mut list: Vec<f64>| {
        list.sort_unstable_by(f64::total_cmp);
        list[list.len() / 2]
    };
    let ratio = m / middle(marks).max(1e-6);
    (ratio > RAIL.0 && late <= RAIL.1 * middle(lates)).then_some(ratio)
}

/// The bucket of an operation that found no queue. At less than half of the rate the queue is empty most of the time,
/// so the low percentile of the same windows is the floor, unless the hour knows a clearly lower one.
pub(super) fn floor(port: &PortRecord, small: &LatencyWindow) -> Option<usize> {
    let now = small.bucket(0.1)?;
    let hour = port.latencies.least_ns(SizeClass::Small);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an exponent between 0 and 64")]
    let low = hour.map_or(now, |least_ns| least_ns.log2() as usize);
    Some(if low + 2 <= now { low } else { now })
}

fn latency(port: &PortRecord, window: &LatencyWindow, class: SizeClass) -> Option<Latency> {
    Some(Latency {
        l50_ns: window.quantile_ns(0.5)?,
        l99_ns: window.quantile_ns(0.99)?,
        base: port.latencies.reference(class),
        n: window.n,
    })
}

/// Share of operations that surely took that long.
fn at_least_ns(window: &LatencyWindow, ns: f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an exponent between 0 and 64")]
    let bucket = ns.max(1.0).log2().ceil() as usize;
    window.at_least(bucket) as f64 / window.n.max(1) as f64
}

fn of_cnps(c: f64) -> f64 {
    match c {
        c if c < 0.1 => -0.8,
        c if c < 0.4 => -0.3,
        c if c < 0.6 => 0.3,
        c if c < 0.85 => 0.7,
        c if c < 0.9 => 1.6,
        _ => 2.0,
    }
}

/// Of `n` operations `late` are in a higher bucket than the floor's; at least `n`·`stood` had to be, were the marks true.
fn of_late(late: u64, n: u64, stood: f64) -> f64 {
    let wanted = n as f64 * stood;
    let found = late as f64;
    match (found, wanted) {
        (found, wanted) if found < 0.01 * wanted && wanted >= 30.0 => 3.0,
        (found, wanted) if found < 0.1 * wanted && wanted >= 10.0 => 1.3,
        // More than the marks call for, and not so many that the edge must be close to the floor: queues that reach the
        // edge stand often, and where marks are few among them RED is what makes them few.
        (found, wanted) if wanted >= 10.0 && (2.0 * wanted..30.0 * wanted).contains(&found) => -1.2,
        // Too few to be missed, and none seen.
        (found, _) if found < 3.0 => 0.5,
        // Far more than the marks call for: the bucket's edge is close to the floor, and a few packets pass it.
        (found, wanted) if found >= 10.0 * wanted => -0.3,
        _ => -0.6,
    }
}

/// Of `n` operations `late` took more than twice the floor, and the edge of the bucket is close to that. A queue above K*
/// for L round trips holds a good part of a bandwidth-delay product, and passes it on to a good part of those that meet it.
fn of_twice(late: u64, n: u64, stood: f64) -> f64 {
    let wanted = n as f64 * stood;
    let ratio = late as f64 / wanted;
    match ratio {
        ratio if ratio < 0.03 && wanted >= 30.0 => 1.5,
        _ if late < 3 => 0.6,
        ratio if ratio < 0.1 => 0.3,
        ratio if ratio < 0.3 => -1.8,
        _ => -2.8,
    }
}

/// Of `n` operations `late` are above the floor's bucket, and `very_late` above twice its edge.
fn of_very_late(late: u64, very_late: u64, n: u64, stood: f64) -> f64 {
    let wanted = n as f64 * stood;
    let ratio = very_late as f64 / wanted;
    match ratio {
        // The edge is close to the floor: twice of it is a queue of about a bandwidth-delay product, and there was none.
        _ if very_late < 3 && wanted >= 100.0 && late as f64 >= 50.0 * wanted => 1.2,
        _ if very_late < 3 => 0.6,
        ratio if ratio < 0.001 => 0.6,
        ratio if ratio < 0.01 => -0.5,
        ratio if ratio < 0.03 => -1.0,
        ratio if ratio < 0.1 => -1.8,
        _ => -2.8,
    }
}

/// Of the operations that found a queue this share found one of about a round trip. At the upper edge of its bucket the floor
/// makes nearly every queue count, and twice the floor is a queue of a round trip exactly; otherwise both bounds lie up to
/// twice as high.
fn of_long(share: f64, at_edge: bool) -> f64 {
    match (share, at_edge) {
        (share, true) if share < 0.001 => 1.5,
        (share, false) if share < 0.001 => 1.0,
        (share, true) if share < 0.003 => 1.0,
        (share, false) if share < 0.003 => 0.3,
        (share, true) if share < 0.01 => -2.0,
        (share, false) if share < 0.01 => -1.2,
        _ => -2.8,
    }
}

fn of_size(share: f64) -> f64 {
    match share {
        s if s < 0.2 => 1.5,
        s if s < 0.4 => 0.9,
        s if s < 0.6 => -0.4,
        s if s < 0.8 => -0.9,
        s if s < 1.2 => -1.5,
        _ => -2.0,
    }
}
