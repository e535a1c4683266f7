//! Receivers without buffers: requests that were turned away because no receive work request was posted.

use std::collections::HashSet;

use super::clock::{at_least, ns, plural, when};
use super::judged::{Judged, Part};
use super::phy::{most_digits, row};
use super::qp::{here, listed, qp_check};
use super::qp_end::{Ends, flushed};
use super::root;
use super::span::{errors, mean_rate};
use super::{Rule, Trigger, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::observation::Nanos;
use crate::timeline::counter_table::Meaning;

/// The evidence that RNR retries were used up.
pub(super) const USED_UP: &str = "RNR retries used up";

/// `qp.rnr`.
pub(super) struct Rnr;

impl Rule for Rnr {
    fn id(&self) -> &'static str {
        "qp.rnr"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Qp
    }

    fn meaning(&self) -> &'static str {
        "A receiver had no buffer posted for what arrived and turned the sender away (RNR NAK). The sender waits and sends \
         again; when its RNR retries are used up its QP fails. It is the receiving application that is too slow to post \
         receives, or posts too few: neither the link nor the fabric. The finding says which side this node is."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let mut lines = qp_check(finding);
        if let Some((device, port)) = super::link::names(finding) {
            lines.push(format!(
                "rdma statistic show link {device}/{port} | tr ' ' '\\n' | grep -A1 -E 'rnr|out_of_buffer|RNR'"
            ));
        }
        if let Some(port) = super::link::port_of(view.world, finding).filter(|port| !port.netdevs.is_empty()) {
            lines.push(format!("rdma resource show qp | grep -E '{}'", port.netdevs.join("|")));
        }
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let settings = &view.settings.qp_rnr;
        let ends = Ends::since(view, view.ago(settings.clear_s + 2.0 * settings.window_s));
        view.world.present_ports().filter_map(|(_, port)| rnr(view, port, &ends)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        extent(view).in_part()
    }
}

fn extent(view: &View<'_>) -> Judged {
    let counted = [Meaning::RnrNak, Meaning::RnrNakSent, Meaning::OutOfBuffer, Meaning::RnrRetryExceeded];
    super::phy::counted_by(view, &counted, "RNR NAKs and no missing receive buffers")
}

/// RNR retries that were used up.
struct Exceeded {
    /// Requests.
    n: u64,
    first: Nanos,
    /// The QPs they were of, and the completions that told so.
    qpns: Vec<u32>,
    completed: u64,
    /// What was flushed after them.
    flushed: u64,
    /// There may have been more of all these.
    in_part: bool,
}

/// By a counter, and by completions that say the same.
fn exceeded(view: &View<'_>, port: &PortRecord, ends: &Ends<'_>) -> Option<Exceeded> {
    let settings = &view.settings.qp_rnr;
    let from = view.ago(settings.clear_s);
    let mut first: Option<Nanos> = None;
    let (mut counted, mut completed) = (0u64, 0u64);
    for (t, n) in port.series_of(Meaning::RnrRetryExceeded).flat_map(|series| series.changes_since(from)) {
        if let Some(n) = n.filter(|n| *n > 0) {
            counted = counted.saturating_add(n);
            first = Some(first.map_or(t, |first| first.min(t)));
        }
    }
    // A counter is read a moment after the completion it counts: one does not grow old before the other.
    let told_from = if counted > 0 { from.saturating_sub(ns(settings.window_s)) } else { from };
    let (mut qpns, mut ids) = (Vec::new(), Vec::new());
    for (t, error) in view.world.qp_errors.since(told_from) {
        if here(port, error.device, error.port) && error.status.contains("RNR_RETRY_EXC") {
            completed = completed.saturating_add(error.n);
            qpns.push(error.qpn);
            ids.push(error.id);
            first = Some(first.map_or(*t, |first| first.min(*t)));
        }
    }
    qpns.sort_unstable();
    qpns.dedup();
    Some(Exceeded {
        n: counted.max(completed),
        first: first?,
        qpns,
        completed,
        flushed: ends.flushed(ids.into_iter()),
        in_part: ends.in_part && completed > counted,
    })
}

fn rnr(view: &View<'_>, port: &PortRecord, ends: &Ends<'_>) -> Option<Verdict> {
    let settings = &view.settings.qp_rnr;
    let of = |meaning| errors(view, port, meaning, settings.window_s, settings.of);
    let enough = |found: &super::span::Errors| found.windows >= settings.windows.max(1);
    let (naks, sent, dropped) = (of(Meaning::RnrNak), of(Meaning::RnrNakSent), of(Meaning::OutOfBuffer));
    let failed = exceeded(view, port, ends);
    let (key, subject) = view.port_subject(port);
    let as_sender = naks.clone().filter(enough);
    let as_receiver = [sent.clone(), dropped.clone()].into_iter().flatten().find(enough);
    if as_sender.is_none() && as_receiver.is_none() && failed.is_none() {
        let some = naks.is_some() || sent.is_some() || dropped.is_some();
        return (some && view.raised("qp.rnr", &key).is_some()).then_some(Verdict::Keep(key));
    }
    let rate = |meaning| mean_rate(view, port, meaning, settings.window_s);
    let mut evidence = Vec::new();
    let mut parts = Vec::new();
    let mut since = view.now;
    let mut many = false;
    if let Some(found) = &as_sender {
        let rate = rate(Meaning::RnrNak);
        many |= rate.is_some_and(|rate| rate > settings.per_s);
        evidence.push(row(found, 0.0));
        evidence.push(Evidence::new("RNR NAKs received", Some(settings.window_s), rate, settings.per_s, "1/s"));
        parts.push(format!(
            "this node is the sender: its peers had no receive buffer for {}",
            plural(found.n, "request")
        ));
        since = since.min(found.first);
    }
    if let Some(found) = &as_receiver {
        let rate = [Meaning::OutOfBuffer, Meaning::RnrNakSent].into_iter().filter_map(rate).reduce(f64::max);
        many |= rate.is_some_and(|rate| rate > settings.per_s);
        evidence.push(row(found, 0.0));
        evidence.push(Evidence::new("requests turned away", Some(settings.window_s), rate, settings.per_s, "1/s"));
        let n = plural(found.n, "request");
        parts.push(format!("this node is the receiver: {n} found no receive buffer here ({})", found.counter.0));
        since = since.min(found.first);
    }
    let mut completed = 0;
    if let Some(Exceeded { n, first, qpns, completed: completions, flushed: flushes, in_part }) = &failed {
        let whom = if qpns.is_empty() { String::new() } else { format!(" (QP {})", listed(qpns)) };
        let (some, requests) = (at_least(*in_part), plural(*n, "request"));
        parts.push(format!("{some}{requests} ran out of RNR retries since {}{whom}", when(view, *first)));
        evidence.push(Evidence::new(USED_UP, Some(settings.clear_s), *n as f64, 0.0, "requests"));
        evidence.extend(flushed(*flushes, Some(settings.clear_s), *in_part));
        since = since.min(*first);
        completed = *completions;
    }
    let pair = as_sender.is_some().then(|| receiver_here(view, port)).flatten();
    if let Some(receiver) = &pair {
        parts.push(format!("the receiver {receiver} is on this node and counts them as well"));
    }
    let grade = match (completed > 0, pair.is_some()) {
        (true, _) => Grade::Confirmed,
        (false, true) => Grade::Probable,
        (false, false) => Grade::Suspected,
    };
    let raised = view.raised("qp.rnr", &key);
    let n = as_sender.iter().chain(&as_receiver).fold(0u64, |n, found| n.saturating_add(found.n));
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if failed.is_some() || many { Severity::Warning } else { Severity::Info },
        grade,
        summary: parts.join("; "),
        evidence,
        advice: if as_receiver.is_some() {
            "Let the application here post more receives (a deeper receive queue or SRQ) or post them sooner; look whether \
             its process is starved of CPU."
        } else {
            "Look at the receivers: which processes do these QPs lead to, and are they slow to post receives? out_of_buffer \
             grows on the node that is at fault."
        }
        .to_owned(),
        would_raise: match grade {
            Grade::Confirmed => String::new(),
            Grade::Probable => "RNR_RETRY_EXC_ERR completions".to_owned(),
            Grade::Suspected => "out_of_buffer of the peer at the same time, or RNR_RETRY_EXC_ERR completions".to_owned(),
        },
        part_of: root::of_port(view, port, &["link.down", "nic.stuck"], since, ns(settings.window_s)),
        since,
        revision: most_digits(raised, 16, n) << 16 | u64::from(as_sender.is_some()) << 2 | u64::from(as_receiver.is_some()) << 1
            | u64::from(failed.is_some()),
    })))
}

/// A port of this node that QPs of `port` lead to and that counts missing buffers at the same time.
fn receiver_here(view: &View<'_>, port: &PortRecord) -> Option<String> {
    let settings = &view.settings.qp_rnr;
    let short = |other: &PortRecord| {
        [Meaning::OutOfBuffer, Meaning::RnrNakSent]
            .into_iter()
            .any(|meaning| errors(view, other, meaning, settings.window_s, settings.of).is_some())
    };
    // Where the QPs lead to first: on a node whose QPs all lead elsewhere nothing else has to be looked at.
    let ours = view.world.qps.iter().filter(|qp| here(port, qp.device, qp.port.map(u32::from)));
    let peers: HashSet<&str> = ours.filter_map(|qp| qp.remote_gid.as_deref()).collect();
    if peers.is_empty() {
        return None;
    }
    let led_to = |other: &PortRecord| other.gids.iter().any(|(_, gid, _)| peers.contains(&**gid));
    let mut others = view.world.present_ports().map(|(_, other)| other).filter(|other| other.key != port.key);
    others.find(|other| led_to(other) && short(other)).map(|to| view.port_subject(to).1.to_string())
}
