//! Errors that are the application's: requests that ask for what they may not have, or do not fit.

use super::clock::{at_least, least, ns, plural, when};
use super::fall::was_down_within;
use super::judged::{Judged, Part};
use super::phy::digits;
use super::qp::{here, listed, qp_check};
use super::qp_end::{Cause, Ends, KNOWN_NS, addresses_changed, flushed};
use super::{Rule, Trigger, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{PortRecord, QpFailure};
use crate::observation::Nanos;
use crate::timeline::counter_table::Meaning;

/// Counters that mean so, whatever the driver calls them.
pub(super) const MEANINGS: [(Meaning, &str); 4] = [
    (Meaning::AccessErrors, "access error"),
    (Meaning::InvalidRequests, "invalid request"),
    (Meaning::LengthErrors, "length error"),
    (Meaning::ProtectionErrors, "protection error"),
];

/// Completions that mean so (`enum ibv_wc_status`, without the prefix).
pub(super) fn is_software(status: &str) -> bool {
    [
        "LOC_LEN_ERR",
        "LOC_QP_OP_ERR",
        "LOC_PROT_ERR",
        "LOC_ACCESS_ERR",
        "REM_ACCESS_ERR",
        "REM_INV_REQ_ERR",
        "MW_BIND_ERR",
    ]
    .iter()
    .any(|name| status.contains(name))
}

/// The status of a work request that the adapter itself could not carry out.
const LOCAL: &str = "LOC_QP_OP_ERR";

/// Such a work request may have asked for nothing wrong: there was no way to send it, for the port was down or had just
/// lost an address. Nobody can tell before what befell the port is known.
fn could_not_send(view: &View<'_>, port: &PortRecord, t: Nanos, slack: Nanos) -> bool {
    let known = t.saturating_add(KNOWN_NS);
    view.now < known || was_down_within(port, t.saturating_sub(slack), known) || addresses_changed(port, t, slack)
}

/// `qp.software_error`.
pub(super) struct SoftwareError;

impl Rule for SoftwareError {
    fn id(&self) -> &'static str {
        "qp.software_error"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Qp
    }

    fn meaning(&self) -> &'static str {
        "A work request was refused because of what it asked for: memory it may not reach (access, protection), a request \
         the other side does not allow, a message longer than the buffer. It is a mistake or a race of the application on \
         this node or its peer, never a fault of link, adapter or fabric. Its QP fails and must be set up again."
    }

    fn hand_check(&self, _view: &View<'_>, finding: &Finding) -> Vec<String> {
        let mut lines = qp_check(finding);
        lines.push("rdma resource show mr".to_owned());
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let settings = &view.settings.qp_software_error;
        let ends = Ends::since(view, view.ago(settings.clear_s + 2.0 * settings.window_s));
        view.world.present_ports().filter_map(|(_, port)| software(view, port, &ends)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        extent(view).in_part()
    }
}

fn extent(view: &View<'_>) -> Judged {
    let meanings = MEANINGS.map(|(meaning, _)| meaning);
    super::phy::counted_by(view, &meanings, "access, request, length or protection errors")
}

/// QPs that failed at that time by themselves: most likely those that were refused.
fn failed(view: &View<'_>, port: &PortRecord, ends: &Ends<'_>, since: Nanos) -> Vec<u32> {
    let slack = ns(view.settings.qp_software_error.window_s);
    let refused = |t, failure: &QpFailure| {
        let cause = ends.of(view, failure.id, t, failure.last_good, slack).cause;
        matches!(cause, Cause::Unknown) || cause.follows_from("qp.software_error")
    };
    let mut failed: Vec<u32> = view
        .world
        .qp_failures
        .since(since.saturating_sub(slack))
        .filter(|(t, failure)| here(port, failure.device, failure.port) && !failure.asked && refused(*t, failure))
        .map(|(_, failure)| failure.qpn)
        .collect();
    failed.sort_unstable();
    failed.dedup();
    failed
}

fn software(view: &View<'_>, port: &PortRecord, ends: &Ends<'_>) -> Option<Verdict> {
    let settings = &view.settings.qp_software_error;
    let slack = ns(settings.window_s);
    let from = view.ago(settings.clear_s);
    let window = Some(settings.clear_s);
    let mut evidence = Vec::new();
    let mut kinds = Vec::new();
    let mut since: Option<Nanos> = None;
    let mut sooner = |t: Nanos| since = Some(since.map_or(t, |since| since.min(t)));
    let mut counted = 0u64;
    for (meaning, what) in MEANINGS {
        let mut n = 0u64;
        for series in port.series_of(meaning) {
            let grown: Vec<(Nanos, u64)> =
                series.changes_since(from).filter_map(|(t, n)| Some((t, n?))).filter(|(_, n)| *n > 0).collect();
            if let Some((first, _)) = grown.last() {
                sooner(*first);
                let sum = grown.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
                evidence.push(Evidence::new(&*series.name, window, sum as f64, 0.0, series.def.unit.name()));
                n = n.saturating_add(sum);
            }
        }
        if n > 0 {
            kinds.push(plural(n, what));
            counted = counted.saturating_add(n);
        }
    }
    let (mut qpns, mut ids) = (Vec::new(), Vec::new());
    let mut statuses: Vec<&str> = Vec::new();
    let mut completed = 0u64;
    for (t, error) in view.world.qp_errors.since(from) {
        let asked_for =
            |status: &str| is_software(status) && !(status.contains(LOCAL) && could_not_send(view, port, *t, slack));
        if here(port, error.device, error.port) && asked_for(&error.status) {
            sooner(*t);
            completed = completed.saturating_add(error.n);
            qpns.push(error.qpn);
            ids.push(error.id);
            statuses.push(&error.status);
        }
    }
    let since = since?;
    qpns.sort_unstable();
    qpns.dedup();
    statuses.sort_unstable();
    statuses.dedup();
    let failed = failed(view, port, ends, since);
    if completed > 0 {
        evidence.push(Evidence::new(
            least(&statuses.join(" + "), ends.in_part),
            window,
            completed as f64,
            0.0,
            "completions",
        ));
        if kinds.is_empty() {
            kinds.push(format!("{}{}", at_least(ends.in_part), plural(completed, "refused work request")));
        }
    }
    let flushes = ends.flushed(ids.into_iter());
    evidence.extend(flushed(flushes, window, ends.in_part));
    let who = match (qpns.is_empty(), failed.is_empty()) {
        (false, _) => format!("; {} of QP {}", statuses.join(", "), listed(&qpns)),
        (true, false) => format!("; {} in error ({})", plural(failed.len() as u64, "QP"), listed(&failed)),
        (true, true) => String::new(),
    };
    let grade = match (completed > 0, failed.is_empty()) {
        (true, _) => Grade::Confirmed,
        (false, false) => Grade::Probable,
        (false, true) => Grade::Suspected,
    };
    let (key, subject) = view.port_subject(port);
    let n = counted.max(completed);
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if grade == Grade::Suspected { Severity::Info } else { Severity::Warning },
        grade,
        summary: format!("{} since {}{who}: the application's, not the link's", kinds.join(", "), when(view, since)),
        evidence,
        advice:
            "Read the application's log on both sides: a stale or wrong rkey, memory deregistered too early, a receive \
                 buffer that is too small. No cable, module or switch is to be replaced for this."
                .to_owned(),
        would_raise: match grade {
            Grade::Confirmed => String::new(),
            _ => "error completions seen by the probes".to_owned(),
        },
        part_of: None,
        since,
        revision: digits(flushes) << 32 | digits(n) << 16 | (qpns.len().max(failed.len()) as u64).min(0xffff),
    })))
}
