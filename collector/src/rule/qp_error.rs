//! QPs in the error state that nobody sent there, and what they follow from.

use std::collections::BTreeMap;

use super::clock::{at_least, least, ns, plural, when};
use super::fall::was_down_within;
use super::phy::digits;
use super::qp::{listed, qp_check};
use super::qp_end::{Cause, End, Ends, addresses_changed, bond_switched, flushed, refused_peer};
use super::qp_rnr::USED_UP as RNR_USED_UP;
use super::root::Root;
use super::{Rule, Trigger, View, root};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Subject, SubjectKey, Verdict};
use crate::inventory::{DeviceId, PortKey, PortRecord, QpFailure};
use crate::observation::{Nanos, QpState};
use crate::timeline::counter_table::Meaning;

/// With probes a failure is told this long after it was seen: by then the call that asked for it, if any, is known.
const PROBE_SETTLES_NS: u64 = 200_000_000;
/// What a QP's failure can follow from.
const FAILURE_ROOTS: [&str; 7] =
    ["link.down", "nic.stuck", "pcie.aer_fatal", "nic.health", "qp.retry_exceeded", "qp.rnr", "qp.software_error"];

/// A failure that is told.
struct Failed<'w> {
    t: Nanos,
    failure: &'w QpFailure,
    /// A call that asked for it would have been seen.
    seen: bool,
    end: End,
    root: Root,
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
        let slack = ns(view.settings.qp_retry_exceeded.window_s);
        let all = view.world.qp_failures.iter().map(|(t, failure)| (*t, failure, seen(failure)));
        let standing: Vec<_> = all.filter(|(t, failure, seen)| stands(view, *t, failure, *seen)).collect();
        let alive =
            |(t, failure, _): &(Nanos, &QpFailure, bool)| failure.last_good.unwrap_or(*t).min(t.saturating_sub(slack));
        let Some(oldest) = standing.iter().map(alive).min() else { return Vec::new() };
        let ends = Ends::since(view, oldest.saturating_sub(1));
        let mut by_port: BTreeMap<_, Vec<Failed<'_>>> = BTreeMap::new();
        for (t, failure, seen) in standing {
            let end = ends.of(view, failure.id, t, failure.last_good, slack);
            by_port.entry((failure.device, failure.port)).or_default().push(Failed {
                t,
                failure,
                seen,
                end,
                root: None,
            });
        }
        let mut verdicts = Vec::new();
        for ((device, port), mut failures) in by_port {
            // A QP that failed again after a recovery is one QP.
            failures.sort_by_key(|one| (one.failure.id, std::cmp::Reverse(one.t)));
            failures.dedup_by_key(|one| one.failure.id);
            let port = port.and_then(|port| view.world.port(PortKey { device, port }));
            let roots = port.map(|port| failure_roots(view, port)).unwrap_or_default();
            for one in &mut failures {
                let follows = |(id, first): &(&str, Nanos)| {
                    one.t.saturating_add(slack) >= *first && one.end.cause.follows_from(id)
                };
                let root = roots.iter().find(|((id, _), first)| follows(&(id, *first))).map(|(root, _)| root.clone());
                one.root = root.or_else(|| {
                    let id = one.failure.id;
                    (one.end.cause == Cause::Flushed).then(|| refused_peer(view, &ends, id, one.t, slack)).flatten()
                });
            }
            // Those that follow from the same thing are one finding about the port; of several such things, the one with
            // the most.
            let shared = most_shared(&failures);
            let (mut follow, mut own): (Vec<_>, Vec<_>) =
                failures.into_iter().partition(|one| shared.is_some() && one.root == shared);
            if own.len() > view.settings.qp_error_state.fold_above {
                follow.append(&mut own);
                follow.sort_by_key(|one| one.failure.id);
            }
            if !follow.is_empty() {
                verdicts.push(error_state(view, device, port, &follow, shared));
            }
            for one in own {
                let root = one.root.clone();
                verdicts.push(error_state(view, device, port, &[one], root));
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

/// What most of them follow from; of equals the one that comes first.
fn most_shared(failures: &[Failed<'_>]) -> Root {
    let mut roots: Vec<(&Root, usize)> = Vec::new();
    for one in failures.iter().filter(|one| one.root.is_some()) {
        match roots.iter_mut().find(|(root, _)| **root == one.root) {
            Some((_, n)) => *n += 1,
            None => roots.push((&one.root, 1)),
        }
    }
    let order = |root: &Root| FAILURE_ROOTS.iter().position(|id| root.as_ref().is_some_and(|(root, _)| root == id));
    roots.sort_by_key(|(root, n)| (std::cmp::Reverse(*n), order(root)));
    roots.first().and_then(|(root, _)| (*root).clone())
}

fn error_state(
    view: &View<'_>,
    device: DeviceId,
    port: Option<&PortRecord>,
    failures: &[Failed<'_>],
    part_of: Root,
) -> Verdict {
    let since = failures.iter().map(|one| one.t).min().unwrap_or(view.now);
    let last = failures.iter().map(|one| one.t).max().unwrap_or(view.now);
    let probes = failures.iter().all(|one| one.seen);
    let name = view.world.device(device).name.clone();
    let one = if let [one] = failures { Some(one) } else { None };
    let number = failures.first().and_then(|one| one.failure.port);
    let key = match (one, number) {
        (Some(one), _) => SubjectKey::Qp(one.failure.id),
        (None, Some(number)) => SubjectKey::Port(device, number),
        (None, None) => SubjectKey::Device(device),
    };
    let subject =
        Subject { device: Some(name), port: number, qpn: one.map(|one| one.failure.qpn), ..Subject::default() };
    let slack = ns(view.settings.qp_retry_exceeded.window_s);
    let (from, to) = (since.saturating_sub(slack), last.saturating_add(slack));
    let down = failures.iter().any(|one| one.end.cause.is_of_the_port())
        && port.is_some_and(|port| was_down_within(port, from, to));
    let counted = |port: &PortRecord| {
        let mut series = port.series_of(Meaning::RetryExceeded);
        series.any(|s| s.changes_since(from).any(|(t, n)| n.is_some_and(|n| n > 0) && t <= to))
    };
    let retried = failures.iter().any(|one| one.end.cause == Cause::Retries)
        || failures.iter().any(|one| one.end.cause == Cause::Unknown) && port.is_some_and(counted);
    let unsent = one.filter(|one| matches!(one.end.cause, Cause::Retries | Cause::Local | Cause::Flushed)).zip(port);
    let moved = unsent.and_then(|(one, port)| {
        let switched =
            bond_switched(view, port, one.end.t, slack).map(|how| format!("; its bond had changed over ({how})"));
        let changed = addresses_changed(port, one.end.t, slack);
        switched.or_else(|| changed.then(|| "; the port's addresses (GIDs) had changed".to_owned()))
    });
    let cause = match (down, &moved, retried, &part_of) {
        (true, ..) => "; the port was down: a consequence of that".to_owned(),
        (_, Some(how), ..) => how.clone(),
        (.., true, _) => "; retries were used up".to_owned(),
        (.., Some((root, _))) => format!("; a consequence of {root}"),
        _ => String::new(),
    };
    let in_part = one.is_none() && view.world.qp_failures.in_part(since.saturating_sub(1));
    let toll = Toll::of(failures, view.world.qp_errors.in_part(since.saturating_sub(slack)));
    let at = when(view, since);
    let what = if let Some(one) = one {
        let one = one.failure;
        format!("QP {}{} went from {} to ERR at {at}", one.qpn, owner(one), one.from.name())
    } else {
        let mut qpns: Vec<u32> = failures.iter().map(|one| one.failure.qpn).collect();
        qpns.sort_unstable();
        let mut owners: Vec<String> = failures.iter().map(|one| owner(one.failure)).collect();
        owners.sort_unstable();
        owners.dedup();
        let whose = match &owners[..] {
            [one] => one.clone(),
            many => format!(" of {} processes", many.len()),
        };
        format!("{}{} QPs{whose} went to ERR since {at} ({})", at_least(in_part), failures.len(), listed(&qpns))
    };
    let how = if probes { " without a modify call" } else { "; without probes nobody knows who asked" };
    let n = failures.len() as u64;
    let series = least("QPs in ERR that nobody was seen asking for", in_part);
    let mut evidence = vec![Evidence::new(series, None, n as f64, 0.0, "QPs")];
    evidence.extend(toll.evidence());
    let advice = if moved.is_some() && !down {
        "Look who took the address from the network device (ip monitor address, the failover of a bond, a container that \
         ended): connections over it must be set up again."
    } else {
        "Read the application's log for the first completion that is not a flush error (its status tells the cause), and \
         compare with what happened on the port at that time."
    };
    Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if down || retried { Severity::Info } else { Severity::Warning },
        grade: if probes { Grade::Confirmed } else { Grade::Probable },
        summary: format!("{what}{how}{toll}{cause}"),
        evidence,
        advice: advice.to_owned(),
        would_raise: if probes { String::new() } else { "the modify_qp probe".to_owned() },
        part_of,
        since,
        revision: n & 0xffff_ffff
            | u64::from(down) << 32
            | u64::from(retried) << 33
            | u64::from(moved.is_some()) << 34
            | digits(toll.flushed) << 40
            | (toll.failed.len() as u64 & 0xff) << 48,
    }))
}

/// What the completions of failed QPs said: the causes, each with its count, and what was flushed after them.
struct Toll<'a> {
    failed: BTreeMap<&'a str, u64>,
    flushed: u64,
    /// There may have been more.
    in_part: bool,
}

impl<'a> Toll<'a> {
    fn of(failures: &'a [Failed<'_>], in_part: bool) -> Self {
        let mut toll = Self { failed: BTreeMap::new(), flushed: 0, in_part };
        for end in failures.iter().map(|one| &one.end) {
            if let Some(status) = &end.status {
                let n = toll.failed.entry(&**status).or_default();
                *n = n.saturating_add(end.failed);
            }
            toll.flushed = toll.flushed.saturating_add(end.flushed);
        }
        toll
    }

    fn evidence(&self) -> Vec<Evidence> {
        let row = |(status, n): (&&str, &u64)| {
            Evidence::new(least(&format!("{status} completions"), self.in_part), None, *n as f64, 0.0, "completions")
        };
        self.failed.iter().map(row).chain(flushed(self.flushed, None, self.in_part)).collect()
    }
}

impl std::fmt::Display for Toll<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let failed: Vec<&str> = self.failed.keys().copied().collect();
        let some = at_least(self.in_part);
        match (failed.is_empty(), self.flushed) {
            (true, 0) => Ok(()),
            (true, n) => write!(f, "; {some}{} flushed, none failed", plural(n, "work request")),
            (false, 0) => write!(f, "; {}", failed.join(", ")),
            (false, n) => write!(f, "; {}, then {some}{} flushed", failed.join(", "), plural(n, "work request")),
        }
    }
}

fn owner(failure: &QpFailure) -> String {
    match (&failure.comm, failure.pid) {
        (Some(comm), Some(pid)) => format!(" of {comm} ({pid})"),
        (Some(comm), None) => format!(" of {comm}"),
        (None, Some(pid)) => format!(" of process {pid}"),
        (None, None) => String::new(),
    }
}
