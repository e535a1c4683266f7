//! `ecn.premature`: marks without a queue.

use super::control::Control;
use super::packets::{Delays, Packets};
use super::span::{Span, Sums};
use super::weigh::{Signs, weigh};
use super::words::{confounders, definition, hand_check, joined, percent, share, us};
use super::{View, lacking, lag, ports};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{Baseline, PortRecord};
use crate::rule::{Part, Rule};
use crate::timeline::counter_table::Meaning;

/// Marks that are enough to be weighed.
const MIN_MARKS: f64 = 100.0;
/// A raised finding stays while the signs weigh this much less than they must to raise it.
const SLACK: f64 = 1.0;
/// What the signs must weigh more where pause is not counted (true marks of full buffers look alike then), and where
/// large messages alone tell of latency.
const BLIND: f64 = 0.5;
/// Share of the mark rate that each part of the time must reach.
const PART: f64 = 0.5;
/// Windows of `TxWait` its usual level rests on, at least.
const USUAL_WINDOWS: usize = 30;

/// `ecn.premature`.
pub(in crate::rule) struct Premature;

impl Rule for Premature {
    fn id(&self) -> &'static str {
        "ecn.premature"
    }

    fn meaning(&self) -> &'static str {
        "Packets to this port are marked although no queue stands on the way: the switch's Kmin is too low for this \
         speed, or a queue is counted that is none. Every mark slows a sender down for nothing. Marks of short bursts look \
         alike in counters: with counters alone this is a suspicion. It is not said of marks at a high load, with pause, or \
         where congestion control works by round-trip time."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        hand_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        ports(view).filter_map(|port| judge(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        if let Some(reason) = lacking(view, NEEDS).nowhere() {
            return Some(reason);
        }
        let excused = |port: &PortRecord| !Control::of(port).needs_marks();
        ports(view).all(excused).then(|| "no port's congestion control works by marks".to_owned())
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        lacking(view, NEEDS).in_part()
    }
}

/// Without these the rule says nothing.
pub(super) const NEEDS: &[(Meaning, &str)] = &[
    (Meaning::EcnMarkedRx, "packets received with CE"),
    (Meaning::RxPackets, "received packets"),
    (Meaning::RxBytes, "received bytes"),
];

/// What was looked at.
struct Case<'w> {
    port: &'w PortRecord,
    span: Span<'w>,
    sums: Sums,
    /// m and u of all of it, and u where the marks fell.
    m: f64,
    u: f64,
    u_at_marks: f64,
}

fn judge(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_premature;
    if !Control::of(port).needs_marks() {
        return None;
    }
    let (key, _) = view.port_subject(port);
    let raised = view.raised("ecn.premature", &key).is_some();
    let span = Span::newest(view, port, settings.windows)?;
    let sums = span.sums();
    let (m, u) = (sums.mark_rate()?, sums.u_rx?);
    let case = Case { port, u_at_marks: span.u_at_marks().unwrap_or(u), span, sums, m, u };
    let (slack_m, slack_u) = if raised { (0.5, 0.05) } else { (1.0, 0.0) };
    if case.m <= settings.mark_rate * slack_m || case.u.max(case.u_at_marks) >= settings.utilisation + slack_u {
        return None;
    }
    if host_marks(&case) || queue_signs(view, &case) {
        return None;
    }
    let signs = weigh(view, port, &case.sums, case.span.from);
    let delays = Packets::since(port, case.span.from).map_or(Delays::Unclear, |packets| packets.delays());
    if matches!(delays, Delays::Queue(_)) {
        return None;
    }
    let confirmed = matches!(delays, Delays::NoQueue(_));
    let blind = [!pause_known(&case), signs.per_qp && !signs.small];
    let more = signs.per_qp || confirmed;
    let wanted = settings.weight + blind.iter().filter(|blind| **blind).count() as f64 * BLIND;
    let wanted = if more { wanted } else { wanted.max(settings.counters_weight) };
    // Counters alone: a long queue met by RED's first, unlikely marks gives isolated marks too, but few of them.
    // With more than counters each part may have fewer than all of it must: few marks come in unequal parts.
    let least = if more { settings.mark_rate * PART } else { settings.counters_mark_rate };
    let least = if raised { least * 0.5 } else { least };
    let steady =
        case.span.parts(settings.windows as usize).iter().all(|part| {
            part.mark_rate().is_some_and(|m| m > least) && part.u_rx.is_some_and(|u| u < settings.utilisation)
        });
    // Many marks are no isolated ones: of many flows each packet is far enough from the last for a CNP of its own.
    if !more && case.m > settings.counters_mark_rate_most {
        return None;
    }
    let holds = steady && case.sums.marks? >= MIN_MARKS && (confirmed || signs.sum() >= wanted);
    if !holds {
        let stays = raised && (confirmed || signs.sum() >= wanted - SLACK);
        return stays.then_some(Verdict::Keep(key));
    }
    // Where nearly every window had marks, latencies are held against the lowest of all: a queue that comes and goes shows
    // there too, and so the rule is as often right (docs/accuracy.md). The sentence says that few were quiet.
    let grade = match (confirmed, signs.per_qp && lag(view, port).is_none()) {
        (true, _) => Grade::Confirmed,
        (false, true) => Grade::Probable,
        (false, false) => Grade::Suspected,
    };
    Some(conclude(view, &case, &signs, delays, grade))
}

/// The NIC marks by itself: then marks say nothing of the fabric.
fn host_marks(case: &Case<'_>) -> bool {
    case.span.growth(Meaning::HostMarked).is_some_and(|n| n > 0)
}

/// Something shows that a queue stood: pause in either direction, or waiting that grew.
fn queue_signs(view: &View<'_>, case: &Case<'_>) -> bool {
    let paused = |meaning| case.span.pause(meaning).is_some_and(|share| share > 0.0);
    let frames = |meaning| case.span.growth(meaning).is_some_and(|n| n > 0);
    paused(Meaning::RxPauseDuration)
        || paused(Meaning::TxPauseDuration)
        || frames(Meaning::RxPauseFrames)
        || frames(Meaning::TxPauseFrames)
        || !wait_is_flat(view, case)
}

/// Waiting to send does not grow, or no faster than it always does. Its tick is the device's own: it is compared with
/// nothing but itself.
fn wait_is_flat(view: &View<'_>, case: &Case<'_>) -> bool {
    let Some(grown) = case.span.growth(Meaning::TxWait).filter(|n| *n > 0) else { return true };
    let rate = grown as f64 / case.span.seconds();
    let Some(ring) = case.port.rates.get(&Meaning::TxWait) else { return false };
    let hour = (3600e9 / view.world.window_ns.max(1) as f64).max(1.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "windows of an hour")]
    let mut usual: Vec<f64> = ring.newest_first().take(hour as usize).flatten().collect();
    if usual.len() < USUAL_WINDOWS {
        return false;
    }
    usual.sort_unstable_by(f64::total_cmp);
    rate <= 2.0 * usual[usual.len() / 10]
}

fn pause_known(case: &Case<'_>) -> bool {
    case.span.pause(Meaning::RxPauseDuration).is_some() || case.span.growth(Meaning::RxPauseFrames).is_some()
}

fn conclude(view: &View<'_>, case: &Case<'_>, signs: &Signs, delays: Delays, grade: Grade) -> Verdict {
    let settings = &view.settings.ecn_premature;
    let window = Some(case.span.seconds());
    let (key, subject) = view.port_subject(case.port);
    let marked = case.port.series_of(Meaning::EcnMarkedRx).next().map_or("CE packets", |series| &*series.name);
    let mut evidence = vec![
        Evidence::new("marked / received packets", window, case.m, settings.mark_rate, "share"),
        Evidence::new(marked, window, case.sums.marks, MIN_MARKS, "packets"),
        Evidence::new("received share of the rate", window, case.u, settings.utilisation, "share"),
        Evidence::new("the same where the marks fell", window, case.u_at_marks, settings.utilisation, "share"),
        Evidence::new("pause received", window, case.span.pause(Meaning::RxPauseDuration), 0.0, "share of time"),
        Evidence::new("pause sent", window, case.span.pause(Meaning::TxPauseDuration), 0.0, "share of time"),
    ];
    let wait = case.span.growth(Meaning::TxWait).map(|n| n as f64);
    evidence.push(Evidence::new("port_xmit_wait", window, wait, None, "ticks"));
    evidence.push(Evidence::new("readings with a mark", window, case.span.persistence(), None, "share"));
    evidence.push(Evidence::new("swing of the received share", window, case.span.swing(), None, "share"));
    evidence.extend(signs.rows(case.span.seconds()));
    let alone = grade == Grade::Suspected && !signs.per_qp;
    let least = if alone { settings.weight.max(settings.counters_weight) } else { settings.weight };
    evidence.push(Evidence::new("sum of the weights", window, signs.sum(), least, "weight"));
    let mut parts = vec![format!(
        "{} of the packets received are marked at {} of the rate ({} where the marks fell){}",
        share(case.m),
        percent(case.u),
        percent(case.u_at_marks),
        if pause_known(case) { " without pause" } else { "; pause is not known here" }
    )];
    if let Some(latency) = signs.latency {
        parts.push(format!(
            "operations take {} / {} (median / p99 of {}){}",
            us(latency.l50_ns),
            us(latency.l99_ns),
            latency.n,
            latency.base.map_or(String::new(), |base| against(&base))
        ));
    }
    if let Delays::NoQueue(means) = delays {
        parts.push(format!(
            "marked packets take {}, the others {}, the fastest {}",
            us(means.ce_ns),
            us(means.plain_ns),
            us(means.min_ns)
        ));
        evidence.push(Evidence::new("delay of marked packets", window, means.ce_ns, means.plain_ns, "ns"));
    }
    let lead =
        if grade == Grade::Suspected { "consistent with marks without a queue" } else { "marks without a queue" };
    let mut not_the_cause = confounders(view, case.port, &case.span);
    not_the_cause.push(format!("DCQCN itself lowers the load; what is left is {}", percent(case.u)));
    Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade,
        summary: format!("{lead}: {}. {}", joined(&parts), definition(view, case.port)),
        evidence,
        advice: format!(
            "Look at the switch port to this host: Kmin and Kmax of the class of the data, and whether its queue is seen \
             at all at these times. A larger Kmax, not Kmin alone, gives throughput back; its price is a longer queue. \
             Bear in mind: {}.",
            joined(&not_the_cause)
        ),
        would_raise: match grade {
            Grade::Suspected => "latency of the QPs' operations (small messages tell most)".to_owned(),
            Grade::Probable if signs.latency.and_then(|latency| latency.base).is_some_and(|base| !base.quiet) => {
                "windows with little load and no mark, to hold the latencies against; packets seen with their delays"
                    .to_owned()
            }
            Grade::Probable => "packets seen with their delays, or the switch's own queue telemetry".to_owned(),
            Grade::Confirmed => String::new(),
        },
        part_of: None,
        since: case.span.from,
        revision: 0,
    }))
}

/// What latencies are held against. Where nearly every window had marks there is little that is surely free of them.
fn against(base: &Baseline) -> String {
    let known = if base.quiet { "" } else { ", few of them or none quiet and without marks" };
    format!(" against {} {base}{known}", us(base.median_ns))
}
