//! QPs: retries used up, and QPs in the error state that nobody sent there.

use std::collections::BTreeMap;

use super::clock::{ns, plural, when};
use super::fall::was_down_after;
use super::link::names;
use super::qp_rnr::USED_UP as RNR_USED_UP;
use super::{Rule, Trigger, View, root};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Subject, SubjectKey, Verdict};
use crate::inventory::{DeviceId, PortKey, PortRecord, QpFailure};
use crate::observation::{Nanos, PortState, QpState};
use crate::timeline::Series;
use crate::timeline::counter_table::Meaning;

/// With probes a failure is told this long after it was seen: by then the call that asked for it, if any, is known.
const PROBE_SETTLES_NS: u64 = 200_000_000;
/// What requests without an answer can follow from.
const RETRY_ROOTS: [&str; 5] = ["link.down", "nic.stuck", "pcie.aer_fatal", "nic.health", "phy.post_fec"];
/// What a QP's failure can follow from.
const FAILURE_ROOTS: [&str; 7] =
    ["link.down", "nic.stuck", "pcie.aer_fatal", "nic.health", "qp.retry_exceeded", "qp.rnr", "qp.software_error"];
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
        view.world.present_ports().filter_map(|(_, port)| retry_exceeded(view, port)).collect()
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

fn retry_exceeded(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.qp_retry_exceeded;
    let from = view.ago(settings.clear_s);
    let slack = ns(settings.window_s);
    let here = |device: DeviceId, number: Option<u32>| here(port, device, number);
    let mut counted: Option<(&Series, u64, Nanos)> = None;
    for series in port.series_of(Meaning::RetryExceeded) {
        for (t, n) in series.changes_since(from).filter_map(|(t, n)| Some((t, n?))).filter(|(_, n)| *n > 0) {
            let (_, sum, first) = counted.get_or_insert((series, 0, t));
            *sum = sum.saturating_add(n);
            *first = (*first).min(t);
        }
    }
    let completions: Vec<(Nanos, u32, u64)> = view
        .world
        .qp_errors
        .since(from)
        .filter(|(_, e)| here(e.device, e.port) && e.status.contains("RETRY_EXC") && !e.status.contains("RNR"))
        .map(|(t, e)| (*t, e.qpn, e.n))
        .collect();
    let since = counted.map(|(_, _, t)| t).into_iter().chain(completions.iter().map(|(t, _, _)| *t)).min()?;
    // What failed a moment before a counter was read belongs to its growth.
    let mut failed: Vec<u32> = view
        .world
        .qp_failures
        .since(since.saturating_sub(slack))
        .filter(|(_, f)| here(f.device, f.port) && !f.asked)
        .map(|(_, f)| f.qpn)
        .chain(completions.iter().map(|(_, qpn, _)| *qpn))
        .collect();
    failed.sort_unstable();
    failed.dedup();
    let (key, subject) = view.port_subject(port);
    let window = Some(settings.clear_s);
    let mut evidence = Vec::new();
    if let Some((series, n, _)) = counted {
        evidence.push(Evidence::new(&*series.name, window, n as f64, 0.0, series.def.unit.name()));
    }
    let completed: u64 = completions.iter().fold(0, |sum, (_, _, n)| sum.saturating_add(*n));
    if completed > 0 {
        evidence.push(Evidence::new("RETRY_EXC_ERR completions", window, completed as f64, 0.0, "completions"));
    }
    if !failed.is_empty() {
        evidence.push(Evidence::new("QPs that went to the error state", window, failed.len() as f64, 0.0, "QPs"));
    }
    let down = was_down_after(port, since.saturating_sub(slack));
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
        format!("; {} in error ({})", plural(failed.len() as u64, "QP"), listed(&failed))
    };
    let why = match (down, port.state) {
        (true, _) => "; the port was down: a consequence of that",
        (false, PortState::Unknown) => "; the port's state is not known",
        (false, _) => "; the port stayed ACTIVE",
    };
    let summary = format!("{} ran out of retries since {at}{whom}{why}", plural(n, "request"));
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
        revision: n.min(u64::MAX >> 24) << 24 | failed.len() as u64,
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

/// `qp.error_state`.
pub(super) struct ErrorState;

impl Rule for ErrorState {
    fn id(&self) -> &'static str {
        "qp.error_state"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Qp
    }

    fn meaning(&self) -> &'static str {
        "A QP went to the error state without a modify call: the transport gave up, or a work request was refused. Every \
         work request still queued is flushed; flush errors are consequences, never causes. An application that moves \
         its QPs to the error state to tear them down is no finding."
    }

    fn hand_check(&self, _view: &View<'_>, finding: &Finding) -> Vec<String> {
        qp_check(finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let seen = |failure: &QpFailure| {
            view.world.probes.as_ref().is_some_and(|probes| probes.sees_modify(failure.pid.is_none()))
        };
        let mut by_port: BTreeMap<_, Vec<(Nanos, &QpFailure)>> = BTreeMap::new();
        for (t, failure) in view.world.qp_failures.iter() {
            if stands(view, *t, failure, seen(failure)) {
                by_port.entry((failure.device, failure.port)).or_default().push((*t, failure));
            }
        }
        let mut verdicts = Vec::new();
        let slack = ns(view.settings.qp_retry_exceeded.window_s);
        for ((device, port), mut failures) in by_port {
            // A QP that failed again after a recovery is one QP.
            failures.sort_by_key(|(t, f)| (f.id, std::cmp::Reverse(*t)));
            failures.dedup_by_key(|(_, f)| f.id);
            let port = port.and_then(|port| view.world.port(PortKey { device, port }));
            let roots = port.map(|port| failure_roots(view, port)).unwrap_or_default();
            let root =
                |t: Nanos| roots.iter().find(|(_, first)| t.saturating_add(slack) >= *first).map(|(root, _)| root);
            // Those that follow from the same thing are one finding about the port.
            let (mut follow, mut own): (Vec<_>, Vec<_>) = failures.iter().partition(|(t, _)| root(*t).is_some());
            if own.len() > view.settings.qp_error_state.fold_above {
                own.append(&mut follow);
                own.sort_by_key(|(_, f)| f.id);
                std::mem::swap(&mut own, &mut follow);
            }
            let all_seen = |failures: &[(Nanos, &QpFailure)]| failures.iter().all(|(_, failure)| seen(failure));
            let of_all = follow
                .iter()
                .filter_map(|(t, _)| root(*t))
                .min_by_key(|root| roots.iter().position(|(other, _)| other == *root));
            if !follow.is_empty() {
                verdicts.push(error_state(view, device, port, &follow, all_seen(&follow), of_all.cloned()));
            }
            for one in &own {
                verdicts.push(error_state(view, device, port, std::slice::from_ref(one), seen(one.1), None));
            }
        }
        verdicts
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        let listed = view.world.qps.iter().any(|qp| qp.state != QpState::Unknown);
        if listed {
            return None;
        }
        Some(if view.world.qps.is_empty() { "no QP is known" } else { "the state of no QP is known" }.to_owned())
    }
}

/// The raised findings a failure of a QP on the port can follow from.
fn failure_roots(view: &View<'_>, port: &PortRecord) -> Vec<((&'static str, SubjectKey), Nanos)> {
    let mut roots = root::raised_of(view, port, &FAILURE_ROOTS);
    // Requests that are turned away and sent again fail no QP.
    roots.retain(|((id, key), _)| {
        let used_up = |finding: &Finding| finding.evidence.iter().any(|row| row.series == RNR_USED_UP);
        *id != "qp.rnr" || view.raised(id, key).is_some_and(used_up)
    });
    roots
}

/// The failure is one to tell of now.
fn stands(view: &View<'_>, t: Nanos, failure: &QpFailure, probes: bool) -> bool {
    let settings = &view.settings.qp_error_state;
    if failure.asked || failure.from == QpState::Err {
        return false;
    }
    let age = view.now.saturating_sub(t);
    let live = view.world.qps.find(failure.device, failure.qpn).filter(|qp| qp.id == failure.id);
    let in_error = live.is_some_and(|qp| qp.state == QpState::Err);
    let settle = if probes { PROBE_SETTLES_NS } else { ns(settings.settle_s) };
    if age < settle {
        return false;
    }
    let lasting = age < settle.saturating_add(ns(settings.keep_s));
    if probes {
        return in_error || lasting;
    }
    // Without probes it must have lasted; once told it stays for a while.
    let key = |key| view.raised("qp.error_state", &key).is_some();
    let raised =
        || key(SubjectKey::Qp(failure.id)) || failure.port.is_some_and(|p| key(SubjectKey::Port(failure.device, p)));
    in_error || (lasting && raised())
}

fn error_state(
    view: &View<'_>,
    device: DeviceId,
    port: Option<&PortRecord>,
    failures: &[(Nanos, &QpFailure)],
    probes: bool,
    part_of: root::Root,
) -> Verdict {
    let since = failures.iter().map(|(t, _)| *t).min().unwrap_or(view.now);
    let last = failures.iter().map(|(t, _)| *t).max().unwrap_or(view.now);
    let name = view.world.device(device).name.clone();
    let one = if let [(_, one)] = failures { Some(*one) } else { None };
    let number = failures.first().and_then(|(_, f)| f.port);
    let key = match (one, number) {
        (Some(one), _) => SubjectKey::Qp(one.id),
        (None, Some(number)) => SubjectKey::Port(device, number),
        (None, None) => SubjectKey::Device(device),
    };
    let subject = Subject { device: Some(name), port: number, qpn: one.map(|one| one.qpn), ..Subject::default() };
    let slack = ns(view.settings.qp_retry_exceeded.window_s);
    let down = port.is_some_and(|port| was_down_after(port, since.saturating_sub(slack)));
    let retried = port.is_some_and(|port| {
        let mut series = port.series_of(Meaning::RetryExceeded);
        series.any(|s| {
            s.changes_since(since.saturating_sub(slack))
                .any(|(t, n)| n.is_some_and(|n| n > 0) && t <= last.saturating_add(slack))
        })
    }) || {
        // Sorted by identity above.
        let ours = |id| failures.binary_search_by_key(&id, |(_, f)| f.id).is_ok();
        let mut errors = view.world.qp_errors.since(since.saturating_sub(slack));
        errors.any(|(_, e)| e.status.contains("RETRY_EXC") && ours(e.id))
    };
    let cause = match (down, retried, &part_of) {
        (true, _, _) => "; the port was down: a consequence of that".to_owned(),
        (false, true, _) => "; retries were used up".to_owned(),
        (false, false, Some((root, _))) => format!("; a consequence of {root}"),
        (false, false, None) => String::new(),
    };
    let at = when(view, since);
    let what = if let Some(one) = one {
        format!("QP {}{} went from {} to ERR at {at}", one.qpn, owner(one), one.from.name())
    } else {
        let mut qpns: Vec<u32> = failures.iter().map(|(_, f)| f.qpn).collect();
        qpns.sort_unstable();
        let mut owners: Vec<String> = failures.iter().map(|(_, f)| owner(f)).collect();
        owners.sort_unstable();
        owners.dedup();
        let whose = match &owners[..] {
            [one] => one.clone(),
            many => format!(" of {} processes", many.len()),
        };
        format!("{} QPs{whose} went to ERR since {at} ({})", failures.len(), listed(&qpns))
    };
    let how = if probes { " without a modify call" } else { "; without probes nobody knows who asked" };
    let evidence =
        vec![Evidence::new("QPs in ERR that nobody was seen asking for", None, failures.len() as f64, 0.0, "QPs")];
    Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if down || retried { Severity::Info } else { Severity::Warning },
        grade: if probes { Grade::Confirmed } else { Grade::Probable },
        summary: format!("{what}{how}{cause}"),
        evidence,
        advice: "Read the application's log for the first completion that is not a flush error (its status tells the \
                 cause), and compare with what happened on the port at that time."
            .to_owned(),
        would_raise: if probes { String::new() } else { "the modify_qp probe".to_owned() },
        part_of,
        since,
        revision: failures.len() as u64 | u64::from(down) << 32 | u64::from(retried) << 33,
    }))
}

fn owner(failure: &QpFailure) -> String {
    match (&failure.comm, failure.pid) {
        (Some(comm), Some(pid)) => format!(" of {comm} ({pid})"),
        (Some(comm), None) => format!(" of {comm}"),
        (None, Some(pid)) => format!(" of process {pid}"),
        (None, None) => String::new(),
    }
}
