//! QPs whose requests got no answer until their retries were used up.

use super::clock::{at_least, least, ns, plural, when};
use super::fall::{state_at, was_down_within};
use super::link::names;
use super::phy::digits;
use super::qp_end::{Cause, Ends, flushed};
use super::{Rule, Trigger, View, root};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{DeviceId, PortRecord, QpFailure, QpRef};
use crate::observation::{Nanos, PortState};
use crate::timeline::Series;
use crate::timeline::counter_table::Meaning;

/// What requests without an answer can follow from.
const RETRY_ROOTS: [&str; 5] = ["link.down", "nic.stuck", "pcie.aer_fatal", "nic.health", "phy.post_fec"];
/// QPs named in a sentence.
const NAMED: usize = 4;

/// Where to look at QPs.
pub(super) fn qp_check(finding: &Finding) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(device) = &finding.subject.device {
        let link = finding.subject.port.map_or(format!("{device}/-"), |port| format!("{device}/{port}"));
        let which = finding.subject.qpn.map_or("state ERR".to_owned(), |qpn| format!("lqpn {qpn}"));
        lines.push(format!("rdma -d resource show qp link {link} {which}"));
    }
    if let Some((device, port)) = names(finding) {
        lines.push(format!("rdma link show {device}/{port}"));
        lines.push(format!("rdma statistic show link {device}/{port}"));
    }
    lines
}

/// `qp.retry_exceeded`.
pub(super) struct RetryExceeded;

impl Rule for RetryExceeded {
    fn id(&self) -> &'static str {
        "qp.retry_exceeded"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Qp
    }

    fn meaning(&self) -> &'static str {
        "A QP sent a request again and again, got no answer and went to the error state: the peer, or the way to it, is \
         gone. While the own port is ACTIVE the cause is elsewhere; when the own port was down it is the consequence of \
         that. A peer that just ended its process looks the same."
    }

    fn hand_check(&self, _view: &View<'_>, finding: &Finding) -> Vec<String> {
        qp_check(finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let settings = &view.settings.qp_retry_exceeded;
        let ends = Ends::since(view, view.ago(settings.clear_s + 2.0 * settings.window_s));
        view.world.present_ports().filter_map(|(_, port)| retry_exceeded(view, port, &ends)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        let counted = |port: &PortRecord| port.reading(Meaning::RetryExceeded).is_some();
        let seen = view.world.probes.as_ref().is_some_and(|probes| probes.data_path());
        if seen || view.world.present_ports().any(|(_, port)| counted(port)) {
            return None;
        }
        Some("no port counts exceeded retries, and no probe sees completions".to_owned())
    }
}

/// The growth of the counter of exceeded retries after `from`, with its first time; and its last time.
fn counted(port: &PortRecord, from: Nanos) -> (Option<(&Series, u64, Nanos)>, Option<Nanos>) {
    let mut counted: Option<(&Series, u64, Nanos)> = None;
    let mut grew = None;
    for series in port.series_of(Meaning::RetryExceeded) {
        for (t, n) in series.changes_since(from).filter_map(|(t, n)| Some((t, n?))).filter(|(_, n)| *n > 0) {
            let (_, sum, first) = counted.get_or_insert((series, 0, t));
            *sum = sum.saturating_add(n);
            *first = (*first).min(t);
            grew = grew.max(Some(t));
        }
    }
    (counted, grew)
}

/// What the port has to do with it, whose last request failed at `last`.
fn why(down: bool, port: &PortRecord, last: Nanos) -> &'static str {
    match (down, port.state) {
        (true, _) => "; the port was down: a consequence of that",
        (false, PortState::Active) => "; the port stayed ACTIVE",
        (false, _) if state_at(port, last).is_some_and(|state| state == PortState::Active) => {
            "; the port was ACTIVE then"
        }
        (false, _) => "; the port's state is not known",
    }
}

fn retry_exceeded(view: &View<'_>, port: &PortRecord, ends: &Ends<'_>) -> Option<Verdict> {
    let settings = &view.settings.qp_retry_exceeded;
    let from = view.ago(settings.clear_s);
    let slack = ns(settings.window_s);
    let here = |device: DeviceId, number: Option<u32>| here(port, device, number);
    let (counted, grew) = counted(port, from);
    // A counter is read a moment after the completion it counts: one does not grow old before the other.
    let told_from = if counted.is_some() { from.saturating_sub(slack) } else { from };
    let completions: Vec<(Nanos, QpRef, u32, u64)> = view
        .world
        .qp_errors
        .since(told_from)
        .filter(|(_, e)| here(e.device, e.port) && e.status.contains("RETRY_EXC") && !e.status.contains("RNR"))
        .map(|(t, e)| (*t, e.id, e.qpn, e.n))
        .collect();
    let since = counted.map(|(_, _, t)| t).into_iter().chain(completions.iter().map(|(t, ..)| *t)).min()?;
    let told_in_part = view.world.qp_errors.in_part(told_from);
    let failed_in_part = view.world.qp_failures.in_part(since.saturating_sub(slack));
    // What failed a moment before a counter was read belongs to its growth, if its completions do not tell another cause.
    let by_retries =
        |t, f: &QpFailure| matches!(ends.of(view, f.id, t, f.last_good, slack).cause, Cause::Retries | Cause::Unknown);
    let mut failed: Vec<u32> = view
        .world
        .qp_failures
        .since(since.saturating_sub(slack))
        .filter(|(t, f)| here(f.device, f.port) && !f.asked && by_retries(*t, f))
        .map(|(_, f)| f.qpn)
        .chain(completions.iter().map(|(_, _, qpn, _)| *qpn))
        .collect();
    failed.sort_unstable();
    failed.dedup();
    let (key, subject) = view.port_subject(port);
    let window = Some(settings.clear_s);
    let mut evidence = Vec::new();
    if let Some((series, n, _)) = counted {
        evidence.push(Evidence::new(&*series.name, window, n as f64, 0.0, series.def.unit.name()));
    }
    let completed: u64 = completions.iter().fold(0, |sum, (.., n)| sum.saturating_add(*n));
    let flushes = ends.flushed(completions.iter().map(|(_, id, ..)| *id));
    if completed > 0 {
        evidence.push(Evidence::new(
            least("RETRY_EXC_ERR completions", told_in_part),
            window,
            completed as f64,
            0.0,
            "completions",
        ));
    }
    evidence.extend(flushed(flushes, window, ends.in_part));
    if !failed.is_empty() {
        evidence.push(Evidence::new(
            least("QPs that went to the error state", failed_in_part),
            window,
            failed.len() as f64,
            0.0,
            "QPs",
        ));
    }
    let last = grew.into_iter().chain(completions.iter().map(|(t, ..)| *t)).max().unwrap_or(since);
    // A fall that came after the last of them is no cause.
    let down = was_down_within(port, since.saturating_sub(slack), last.saturating_add(slack));
    let (grade, would_raise) = match (completed > 0, failed.is_empty()) {
        (true, _) => (Grade::Confirmed, String::new()),
        (false, false) => (Grade::Probable, "error completions seen by the probes".to_owned()),
        (false, true) => (Grade::Suspected, "the QPs' states, or error completions seen by the probes".to_owned()),
    };
    let n = counted.map_or(0, |(_, n, _)| n).max(completed);
    let at = when(view, since);
    let whom = if failed.is_empty() {
        String::new()
    } else {
        format!(
            "; {}{} in error ({})",
            at_least(failed_in_part || told_in_part),
            plural(failed.len() as u64, "QP"),
            listed(&failed)
        )
    };
    let why = why(down, port, last);
    // Where the counter says more than the completions that are remembered, it says all.
    let some = at_least(told_in_part && completed == n);
    let summary = format!("{some}{} ran out of retries since {at}{whom}{why}", plural(n, "request"));
    // The port's own fall is told by link.down, at once and as critical; its dead QPs are no second cause. With the port
    // ACTIVE somebody's job is broken, but this node is not known to be at fault.
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if down { Severity::Info } else { Severity::Warning },
        grade,
        summary,
        evidence,
        advice: if down {
            "See link.down of this port.".to_owned()
        } else {
            "Look at the peers of these QPs: is the process there alive, is its port ACTIVE, does the path between drop \
             packets? Several peers at once point at the fabric, one peer at that peer."
                .to_owned()
        },
        would_raise,
        part_of: root::of_port(view, port, &RETRY_ROOTS, since, slack),
        since,
        revision: n.min(u64::MAX >> 24) << 24 | digits(flushes) << 16 | (failed.len() as u64).min(0xffff),
    })))
}

/// Something of a QP happened on this port.
pub(super) fn here(port: &PortRecord, device: DeviceId, number: Option<u32>) -> bool {
    device == port.key.device && number == Some(port.key.port)
}

/// The first few numbers of a sorted list.
pub(super) fn listed(qpns: &[u32]) -> String {
    let some: Vec<String> = qpns.iter().take(NAMED).map(ToString::to_string).collect();
    let rest = if qpns.len() > NAMED { ", …" } else { "" };
    format!("{}{rest}", some.join(", "))
}
