//! Ports compared: with the other rails of the node, and each with itself over time.

use super::span::Span;
use super::words::{confounders, definition, hand_check, joined, percent, share, us};
use super::{View, lacking, lag, ports};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{PortRecord, SizeClass};
use crate::rule::{Part, Rule};
use crate::timeline::counter_table::Meaning;

use super::premature::NEEDS;

/// Rails a comparison needs, the one in question included.
const RAILS: usize = 3;
/// Times the least share of marks below which marks are few.
const FEW: f64 = 5.0;
/// Times as many windows are looked at then.
const LONGER: u32 = 3;
/// Windows whose marks and load are compared, at most.
const MAX_WINDOWS: usize = 1_800;

/// `ecn.rail_asymmetry`.
pub(in crate::rule) struct RailAsymmetry;

impl Rule for RailAsymmetry {
    fn id(&self) -> &'static str {
        "ecn.rail_asymmetry"
    }

    fn meaning(&self) -> &'static str {
        "One rail is marked far more often than the others at the same load: its switch has other thresholds, or its path \
         carries somebody else's traffic too. Rails whose loads differ are not compared."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        hand_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let rails: Vec<Rail<'_>> = ports(view).filter_map(|port| Rail::of(view, port)).collect();
        rails.iter().enumerate().filter_map(|(at, _)| asymmetry(view, &rails, at)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        if let Some(reason) = lacking(view, NEEDS).nowhere() {
            return Some(reason);
        }
        let n = ports(view).filter(|port| port.reading(Meaning::EcnMarkedRx).is_some()).count();
        (n < RAILS).then(|| format!("{n} ports count marks; {RAILS} rails are needed"))
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        lacking(view, NEEDS).in_part()
    }
}

/// One rail's last windows.
struct Rail<'w> {
    port: &'w PortRecord,
    span: Span<'w>,
    m: f64,
    u: f64,
    marks: f64,
    /// m of each part.
    parts: Vec<f64>,
    /// Median latency of small operations, ns.
    small_ns: Option<f64>,
}

impl<'w> Rail<'w> {
    fn of(view: &View<'_>, port: &'w PortRecord) -> Option<Self> {
        let settings = &view.settings.ecn_rail_asymmetry;
        if lag(view, port).is_some() {
            return None;
        }
        let span = Span::newest(view, port, settings.windows)?;
        let sums = span.sums();
        let parts = span
            .parts(usize::try_from(settings.windows).unwrap_or(1))
            .iter()
            .filter_map(super::span::Sums::mark_rate)
            .collect();
        let small_ns = port.latencies.sum(SizeClass::Small, span.from).and_then(|w| w.quantile_ns(0.5));
        Some(Self { port, m: sums.mark_rate()?, u: sums.u_rx?, marks: sums.marks?, parts, small_ns, span })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Each of [`LONGER`] times as many windows is above.
fn lasts(view: &View<'_>, rail: &Rail<'_>, above: impl Fn(f64) -> bool) -> bool {
    let windows = view.settings.ecn_rail_asymmetry.windows.saturating_mul(LONGER);
    let parts = usize::try_from(windows).unwrap_or(usize::MAX);
    Span::newest(view, rail.port, windows)
        .is_some_and(|span| span.parts(parts).iter().all(|part| part.mark_rate().is_some_and(&above)))
}

fn asymmetry(view: &View<'_>, rails: &[Rail<'_>], at: usize) -> Option<Verdict> {
    let settings = &view.settings.ecn_rail_asymmetry;
    let rail = &rails[at];
    let (key, subject) = view.port_subject(rail.port);
    let raised = view.raised("ecn.rail_asymmetry", &key).is_some();
    let near = |other: &&Rail<'_>| {
        (other.u - rail.u).abs() <= settings.load_within * rail.u && other.port.rate_gbps == rail.port.rate_gbps
    };
    let others: Vec<&Rail<'_>> =
        rails.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, r)| r).filter(near).collect();
    if others.len() + 1 < RAILS {
        return None;
    }
    let usual = median(others.iter().map(|other| other.m).collect())?;
    let factor = settings.factor * if raised { 0.6 } else { 1.0 };
    let above = |m: f64| m > factor * usual && m > settings.mark_rate;
    let load = settings.load * if raised { 0.5 } else { 1.0 };
    if rail.u < load || !above(rail.m) || rail.marks < settings.marks as f64 || !rail.parts.iter().all(|m| above(*m)) {
        return None;
    }
    // Few marks come in clusters: for seconds one healthy rail has all of them, by chance.
    if !raised && rail.m < FEW * settings.mark_rate && !lasts(view, rail, above) {
        return None;
    }
    if rail.m <= settings.factor * usual {
        return Some(Verdict::Keep(key));
    }
    let window = Some(rail.span.seconds());
    let others_ns = median(others.iter().filter_map(|other| other.small_ns).collect());
    let latency = rail.small_ns.zip(others_ns);
    let mut evidence = vec![
        Evidence::new("marked / received packets", window, rail.m, settings.factor * usual, "share"),
        Evidence::new("the same, median of the other rails", window, usual, None, "share"),
        Evidence::new("received share of the rate", window, rail.u, None, "share"),
        Evidence::new("rails at a like load", window, others.len() as f64, RAILS as f64 - 1.0, "ports"),
    ];
    let mut summary = format!(
        "{} of the packets received are marked, {} on {} other rails at a like load ({})",
        share(rail.m),
        share(usual),
        others.len(),
        percent(rail.u)
    );
    if let Some((here, there)) = latency {
        evidence.push(Evidence::new("median latency of small operations", window, here, None, "ns"));
        evidence.push(Evidence::new("the same, median of the other rails", window, there, None, "ns"));
        let word = if here > LONGER_QUEUE * there {
            "a longer queue, as other traffic on its path makes it"
        } else {
            "no longer queue, so rather lower thresholds than more traffic"
        };
        summary.push_str(&format!("; small operations take {} here and {} there: {word}", us(here), us(there)));
    }
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade: if latency.is_some() { Grade::Probable } else { Grade::Suspected },
        summary: format!("{summary}. {}", definition(view, rail.port)),
        evidence,
        advice: format!(
            "Compare the ECN thresholds of this rail's switch port with those of the others{}. Bear in mind: {}.",
            if latency.is_some_and(|(here, there)| here <= LONGER_QUEUE * there) {
                ""
            } else {
                ", and look for other traffic on its path"
            },
            joined(&confounders(view, rail.port, &rail.span))
        ),
        would_raise: if latency.is_some() {
            "the switches' queues".to_owned()
        } else {
            "latency of small operations".to_owned()
        },
        part_of: None,
        since: rail.span.from,
        revision: 0,
    })))
}

/// Latency against that of the other rails from which on a queue is called longer.
const LONGER_QUEUE: f64 = 1.3;

/// Standard errors a correlation must be below zero: it is asked of every port in every window, so what happens once in
/// twenty times is no evidence.
const CHANCE: f64 = 3.3;

/// Windows between two looks at a correlation: half an hour of them looks no different after one more, and putting them
/// in order costs more than all other rules together.
const EVERY: u64 = 10;

/// `ecn.inversion`.
pub(in crate::rule) struct Inversion;

impl Rule for Inversion {
    fn id(&self) -> &'static str {
        "ecn.inversion"
    }

    fn meaning(&self) -> &'static str {
        "Over many windows this port is marked less at a high load than at a low one: the marks do not follow the load they \
         are meant to control. Marks can be made by traffic that does not come here, and congestion control \
         itself lowers the load where it is marked."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        hand_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        if !view.world.windows.is_multiple_of(EVERY) {
            let keys = ports(view).map(|port| view.port_subject(port).0);
            return keys.filter(|key| view.raised(self.id(), key).is_some()).map(Verdict::Keep).collect();
        }
        ports(view).filter_map(|port| inversion(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        if let Some(reason) = lacking(view, NEEDS).nowhere() {
            return Some(reason);
        }
        let settings = &view.settings.ecn_inversion;
        let most = ports(view).map(|port| pairs(port).len()).max().unwrap_or(0);
        (most < settings.windows).then(|| format!("{most} windows with marks; {} are needed", settings.windows))
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        lacking(view, NEEDS).in_part()
    }
}

/// Load and marks of the windows in which there were marks, newest first. The load is the received share of the rate.
fn pairs(port: &PortRecord) -> Vec<(f64, f64)> {
    let ring = |meaning| port.rates.get(&meaning);
    let (Some(marks), Some(packets), Some(bytes), Some(rate)) =
        (ring(Meaning::EcnMarkedRx), ring(Meaning::RxPackets), ring(Meaning::RxBytes), port.rate_gbps)
    else {
        return Vec::new();
    };
    let windows = marks.newest_first().zip(packets.newest_first()).zip(bytes.newest_first()).take(MAX_WINDOWS);
    windows
        .filter_map(|((marks, packets), bytes)| {
            let (marks, packets, bytes) = (marks?, packets?, bytes?);
            (marks > 0.0 && packets > 0.0).then(|| (bytes * 8.0 / (rate * 1e9), marks / packets))
        })
        .collect()
}

/// Ranks of values, equal ones sharing their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    // Numbers side by side sort several times as fast as places that are looked up.
    let mut order: Vec<(u64, usize)> = values.iter().enumerate().map(|(at, value)| (sortable(*value), at)).collect();
    order.sort_unstable();
    let mut ranks = vec![0.0; values.len()];
    let mut at = 0;
    for equal in order.chunk_by(|a, b| a.0 == b.0) {
        let mean = at as f64 + (equal.len() as f64 - 1.0) / 2.0;
        for (_, place) in equal {
            ranks[*place] = mean;
        }
        at += equal.len();
    }
    ranks
}

/// A number that sorts as `f64::total_cmp` does.
fn sortable(value: f64) -> u64 {
    let bits = value.to_bits();
    if value.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

/// How far the values spread, from their 10th to their 90th percentile. They change their order.
fn swing(values: &mut [f64]) -> f64 {
    let n = values.len();
    let mut at = |place: usize| *values.select_nth_unstable_by(place, f64::total_cmp).1;
    at(n * 9 / 10) - at(n / 10)
}

/// Spearman's rank correlation; `None` where either side does not vary.
fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let (a, b) =
        (ranks(&pairs.iter().map(|p| p.0).collect::<Vec<_>>()), ranks(&pairs.iter().map(|p| p.1).collect::<Vec<_>>()));
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let scale = (product(&a, &a) * product(&b, &b)).sqrt();
    (scale > 0.0).then(|| product(&a, &b) / scale)
}

fn inversion(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_inversion;
    // Cheap first: on a port without marks this is asked every window.
    port.rates.get(&Meaning::EcnMarkedRx)?;
    let span = Span::newest(view, port, 3)?;
    if span.sums().marks? <= 0.0 && view.raised("ecn.inversion", &view.port_subject(port).0).is_none() {
        return None;
    }
    let pairs = pairs(port);
    if pairs.len() < settings.windows.max(2) {
        return None;
    }
    let swing = swing(&mut pairs.iter().map(|pair| pair.0).collect::<Vec<f64>>());
    // A load that does not vary has no order the marks could follow.
    if swing < settings.load_swing {
        return None;
    }
    let rho = spearman(&pairs)?;
    let (key, subject) = view.port_subject(port);
    // Of windows without any order half have a correlation below zero: it must be clear, and more than chance.
    let chance = CHANCE / (pairs.len() as f64 - 1.0).max(1.0).sqrt();
    if rho > settings.correlation.min(-chance) {
        let stays = view.raised("ecn.inversion", &key).is_some() && rho < settings.correlation / 2.0;
        return stays.then_some(Verdict::Keep(key));
    }
    let window = Some(pairs.len() as f64 * view.world.window_ns as f64 / 1e9);
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Info,
        grade: Grade::Suspected,
        summary: format!(
            "over {} windows with marks, the marks fall as the load rises (rank correlation {rho:.2}; the load swings by {}). {}",
            pairs.len(),
            percent(swing),
            definition(view, port)
        ),
        evidence: vec![
            Evidence::new("rank correlation of load and marks", window, rho, settings.correlation, "rho"),
            Evidence::new("windows with marks", window, pairs.len() as f64, settings.windows as f64, "windows"),
            Evidence::new("swing of the load, 10th to 90th percentile", window, swing, settings.load_swing, "share"),
        ],
        advice: format!(
            "Look for other traffic on the path of this port; compare with the other rails. Bear in mind: {}; congestion \
             control lowers the load where it is marked.",
            joined(&confounders(view, port, &span))
        ),
        would_raise: "latency of small operations over the same windows; the switch's queue".to_owned(),
        part_of: None,
        since: span.from,
        revision: 0,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_correlation_of_a_rise_is_one_of_a_fall_minus_one_and_of_a_constant_none() {
        let rise: Vec<(f64, f64)> = (0..10).map(|i| (f64::from(i), f64::from(i * i))).collect();
        let fall: Vec<(f64, f64)> = (0..10).map(|i| (f64::from(i), -f64::from(i))).collect();
        assert!((spearman(&rise).unwrap() - 1.0).abs() < 1e-12);
        assert!((spearman(&fall).unwrap() + 1.0).abs() < 1e-12);
        assert_eq!(spearman(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [1.5, 0.0, 1.5]);
        assert_eq!(ranks(&[0.5, -1.0, 0.0, -2.0]), [3.0, 1.0, 2.0, 0.0]);
    }

    #[test]
    fn the_swing_leaves_out_the_tenths_at_either_end() {
        let mut values: Vec<f64> = (0..100).map(|i| f64::from(i * 37 % 100)).collect();
        assert!((swing(&mut values) - 80.0).abs() < 1e-12);
    }
}
