//! The sender's part: every CNP it gets should slow a flow down, and every CNP its peers send should get here.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::control::{Control, rp_enabled};
use super::span::{Span, Sums};
use super::words::{confounders, definition, hand_check, joined, percent};
use super::{View, lacking, lag, ports};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{PortRecord, QpRecord};
use crate::rule::Rule;
use crate::timeline::Ring;
use crate::timeline::counter_table::Meaning;

/// Share of the sent bytes the probes must see.
const SEEN: f64 = 0.9;

/// `ecn.cnp_ignored`.
pub(in crate::rule) struct CnpIgnored;

impl Rule for CnpIgnored {
    fn id(&self) -> &'static str {
        "ecn.cnp_ignored"
    }

    fn meaning(&self) -> &'static str {
        "CNPs reach this port and its senders do not slow down: the NIC counts them as ignored (the reaction point is off for \
         the priority), or counts them as handled while the port goes on at full rate. A few ignored CNPs belong to QPs that \
         have just been destroyed and are no finding."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        hand_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        ports(view).filter_map(|port| ignored(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        let counted = |port: &PortRecord| {
            [Meaning::CnpIgnored, Meaning::CnpHandled].iter().any(|meaning| port.reading(*meaning).is_some())
        };
        if ports(view).any(counted) {
            return None;
        }
        lacking(view, &[(Meaning::CnpHandled, "CNPs received")]).nowhere()
    }
}

/// How the port shows that it does not obey.
enum Disobeys {
    Ignores(f64),
    KeepsRate(f64),
}

fn ignored(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_cnp_ignored;
    let span = Span::newest(view, port, settings.windows)?;
    let sums = span.sums();
    let (key, subject) = view.port_subject(port);
    let raised = view.raised("ecn.cnp_ignored", &key).is_some();
    let parts = span.parts(settings.windows as usize);
    let received = sums.handled.unwrap_or(0.0) + sums.ignored.unwrap_or(0.0);
    let ignores = sums.ignored.filter(|n| {
        *n >= settings.cnps as f64
            && *n >= settings.share * received
            && parts.iter().all(|part| part.ignored.is_some_and(|n| n > 0.0))
    });
    let keeps =
        || keeps_rate(view, port, &parts).filter(|_| sums.ignored.is_none_or(|n| n < settings.share * received));
    let Some(how) = ignores.map(Disobeys::Ignores).or_else(|| keeps().map(Disobeys::KeepsRate)) else {
        // Where no CNP comes, nothing shows that they are obeyed again.
        let quiet = received == 0.0 || sums.ignored.is_some_and(|n| n >= settings.share * received && n > 0.0);
        return (raised && quiet).then_some(Verdict::Keep(key));
    };
    let control = Control::of(port);
    let off = rp_enabled(port).map(|by_priority| by_priority.iter().all(|on| !on));
    let window = Some(span.seconds());
    let u = sums.u_tx.map_or("an unknown share".to_owned(), percent);
    let mut evidence = vec![
        Evidence::new("CNPs ignored", window, sums.ignored, settings.cnps as f64, "packets"),
        Evidence::new("CNPs handled", window, sums.handled, None, "packets"),
        Evidence::new("sent share of the rate", window, sums.u_tx, None, "share"),
    ];
    if let Some(off) = off {
        evidence.push(Evidence::new("reaction point on", None, f64::from(u8::from(!off)), 1.0, "state"));
    }
    let what = match how {
        Disobeys::Ignores(n) => {
            format!("{n:.0} of {received:.0} CNPs received were ignored; the port sends at {u} of its rate")
        }
        Disobeys::KeepsRate(per_s) => {
            evidence.push(Evidence::new("CNPs handled per second", window, per_s, settings.handled_per_s, "packets/s"));
            format!(
                "{per_s:.0} CNPs a second are counted as handled by {} QPs and the port goes on sending at {u} of its rate",
                port.qps
            )
        }
    };
    let state = if off == Some(true) { "; the reaction point is off for every priority" } else { "" };
    let mut notes = confounders(view, port, &span);
    notes.push("CNPs of QPs that no longer exist are ignored too".to_owned());
    let sure = off == Some(true) && matches!(how, Disobeys::Ignores(_)) && lag(view, port).is_none();
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if control.needs_marks() { Severity::Warning } else { Severity::Info },
        grade: if sure { Grade::Probable } else { Grade::Suspected },
        summary: format!("{what}{state}. {}", definition(view, port)),
        evidence,
        advice: format!(
            "Switch the reaction point on for the priority of the data (mlx5: ecn/roce_rp/enable of the network device). \
             Bear in mind: {}.",
            joined(&notes)
        ),
        would_raise: "the reaction point's setting; packets: the gap between them after a CNP".to_owned(),
        part_of: None,
        since: span.from,
        revision: 0,
    })))
}

/// CNPs are handled all the time and the port sends at nearly its full rate: CNPs a second.
///
/// Several flows share the rate: each is slowed down to its part and the port stays full, so CNPs at full rate are normal
/// there. A single flow that gets CNPs faster than DCQCN's alpha fades (some 50 µs) is halved again and again and cannot
/// stay near the rate of the line.
fn keeps_rate(view: &View<'_>, port: &PortRecord, parts: &[Sums]) -> Option<f64> {
    let settings = &view.settings.ecn_cnp_ignored;
    let few = (1..=settings.qps).contains(&port.qps);
    if !Control::of(port).needs_marks() || !few || !all_seen(port) {
        return None;
    }
    let (mut handled, mut seconds) = (0.0, 0.0);
    for part in parts {
        let n = part.handled?;
        if n < settings.handled_per_s * f64::from(port.qps) * part.seconds || part.u_tx? < settings.utilisation {
            return None;
        }
        handled += n;
        seconds += part.seconds;
    }
    (seconds > 0.0).then(|| handled / seconds)
}

/// The probes see nearly all that the port sends, so the QPs that are known are all its flows.
fn all_seen(port: &PortRecord) -> bool {
    let sent = port.rates.get(&Meaning::TxBytes).and_then(Ring::last);
    port.traced.last().zip(sent).is_some_and(|(traced, sent)| sent > 0.0 && traced >= SEEN * sent)
}

/// `ecn.cnp_lost`.
pub(in crate::rule) struct CnpLost;

impl Rule for CnpLost {
    fn id(&self) -> &'static str {
        "ecn.cnp_lost"
    }

    fn meaning(&self) -> &'static str {
        "The peers of this port sent more CNPs than arrived here: CNPs are lost or land in a class that is dropped. It can be \
         said only where all peers' counters are known, that is, where both ends are ports of the same recording and talk to \
         nobody else."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        hand_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        closed_pairs(view).into_iter().filter_map(|(sender, receiver)| lost(view, sender, receiver)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        if !closed_pairs(view).is_empty() {
            return None;
        }
        let needs = [(Meaning::CnpSent, "CNPs sent"), (Meaning::CnpHandled, "CNPs received")];
        let both_ends = "it takes the counters of both ends, and those of the peers are not seen here";
        Some(lacking(view, &needs).nowhere().unwrap_or_else(|| both_ends.to_owned()))
    }
}

/// Ports that talk to exactly one other port, which talks to nobody else: what one sends, the other must get.
fn closed_pairs<'w>(view: &View<'w>) -> Vec<(&'w PortRecord, &'w PortRecord)> {
    let all: Vec<&PortRecord> = ports(view).collect();
    if all.len() < 2 {
        return Vec::new();
    }
    let peers = peers_of(view, &all);
    let only_peer = |at: usize| {
        let gids = peers[at].as_ref().filter(|gids| !gids.is_empty())?;
        let mut owners = gids.iter().map(|gid| all.iter().position(|p| p.gids.iter().any(|(_, own, _)| own == *gid)));
        let first = owners.next()??;
        owners.all(|owner| owner == Some(first)).then_some(first).filter(|other| *other != at)
    };
    (0..all.len())
        .filter_map(|at| {
            let other = only_peer(at)?;
            (only_peer(other) == Some(at)).then(|| (all[at], all[other]))
        })
        .collect()
}

/// GIDs of the peers of each port's QPs; `None` when a peer is not known or no port of `all`. One look at each QP for all of
/// the ports, for there may be a quarter of a million, and none where every port leads elsewhere.
fn peers_of<'w>(view: &View<'w>, all: &[&PortRecord]) -> Vec<Option<BTreeSet<&'w Arc<str>>>> {
    let own: BTreeSet<&Arc<str>> = all.iter().flat_map(|port| &port.gids).map(|(_, own, _)| own).collect();
    let here = |qp: &QpRecord, port: &PortRecord| match qp.port {
        Some(number) => u32::from(number) == port.key.port,
        None => view.world.ports_of(port.key.device).count() == 1,
    };
    let mut peers = vec![Some(BTreeSet::new()); all.len()];
    let mut closed = all.len();
    // The management QPs 0 and 1 get no CNPs.
    for qp in view.world.qps.iter().filter(|qp| qp.qpn >= 2) {
        let port = all.iter().position(|port| port.key.device == qp.device && here(qp, port));
        let Some(slot) = port.and_then(|at| peers.get_mut(at)) else { continue };
        // Once something leads elsewhere nothing else matters.
        let Some(known) = slot else { continue };
        match qp.remote_gid.as_ref().filter(|gid| own.contains(gid)) {
            Some(gid) => _ = known.insert(gid),
            None => {
                *slot = None;
                closed -= 1;
                if closed == 0 {
                    break;
                }
            }
        }
    }
    peers
}

fn lost(view: &View<'_>, sender: &PortRecord, receiver: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_cnp_lost;
    if lag(view, sender).or(lag(view, receiver)).is_some() {
        return None;
    }
    let here = Span::newest(view, sender, settings.windows)?;
    let there = Span::newest(view, receiver, settings.windows)?;
    let (ours, theirs) = (here.sums(), there.sums());
    let got = (ours.handled? + ours.ignored.unwrap_or(0.0)) / ours.seconds;
    let sent = theirs.cnp_sent? / theirs.seconds;
    let part = (sent - got) / sent.max(1e-9);
    let steady = here.parts(2).iter().zip(there.parts(2)).all(|(ours, theirs)| {
        let got = ours.handled.unwrap_or(0.0) + ours.ignored.unwrap_or(0.0);
        theirs.cnp_sent.is_some_and(|sent| got / ours.seconds < (1.0 - settings.share) * sent / theirs.seconds)
    });
    if sent * theirs.seconds < settings.cnps as f64 || part <= settings.share || !steady {
        return None;
    }
    let (key, subject) = view.port_subject(sender);
    let (_, peer) = view.port_subject(receiver);
    let window = Some(here.seconds());
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade: Grade::Suspected,
        summary: format!(
            "{} of the CNPs that {peer} sends do not arrive ({sent:.0} a second sent, {got:.0} received). {}",
            percent(part),
            definition(view, sender)
        ),
        evidence: vec![
            Evidence::new("CNPs sent by the peer", window, sent, None, "packets/s"),
            Evidence::new("CNPs handled and ignored here", window, got, None, "packets/s"),
            Evidence::new("lost", window, part, settings.share, "share"),
        ],
        advice:
            "Look at the class of CNPs (DSCP 48 by default) on the way from the receiver to the sender: it should be \
                 strict priority and never dropped."
                .to_owned(),
        would_raise: "packets at both ends".to_owned(),
        part_of: None,
        since: here.from,
        revision: 0,
    })))
}
