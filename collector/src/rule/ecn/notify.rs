//! The receiver's part: every mark it counts should make it tell the sender.

use super::control::{Control, np_enabled};
use super::packets::Packets;
use super::span::Span;
use super::words::{confounders, definition, hand_check, joined};
use super::{View, lacking, lag, ports};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::rule::{Part, Rule};
use crate::timeline::counter_table::Meaning;

const NEEDS: &[(Meaning, &str)] =
    &[(Meaning::EcnMarkedRx, "packets received with CE"), (Meaning::CnpSent, "CNPs sent")];

/// `ecn.no_cnp`.
pub(in crate::rule) struct NoCnp;

impl Rule for NoCnp {
    fn id(&self) -> &'static str {
        "ecn.no_cnp"
    }

    fn meaning(&self) -> &'static str {
        "This port receives marked packets and sends no CNP: its senders are never told to slow down. The notification point \
         is off for the priority of the data, or the packets belong to no QP it knows. Congestion control by round-trip \
         time sends none either, and rightly."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        hand_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        ports(view).filter_map(|port| no_cnp(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        lacking(view, NEEDS).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        lacking(view, NEEDS).in_part()
    }
}

fn no_cnp(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_no_cnp;
    let control = Control::of(port);
    if control == Control::Rtt {
        return None;
    }
    let span = Span::newest(view, port, settings.windows)?;
    let sums = span.sums();
    let (marks, sent) = (sums.marks?, sums.cnp_sent?);
    if sent > 0.0 || sums.impossible() {
        return None;
    }
    let (key, subject) = view.port_subject(port);
    let steady = span.parts(settings.windows as usize).iter().all(|part| part.marks.is_some_and(|marks| marks > 0.0));
    if marks <= settings.marks as f64 || !steady {
        // Without marks nothing shows that CNPs are sent again.
        return view.raised("ecn.no_cnp", &key).is_some().then_some(Verdict::Keep(key));
    }
    let window = Some(span.seconds());
    let off = np_enabled(port).map(|by_priority| by_priority.iter().all(|on| !on));
    let packets = Packets::since(port, span.from);
    let seen = packets.is_some_and(|p| p.growth("rx_ce").is_some_and(|n| n > 0) && p.growth("tx_cnp") == Some(0));
    let summed = lag(view, port).is_some();
    let grade = match (seen, off == Some(true) && !summed) {
        (true, _) => Grade::Confirmed,
        (false, true) => Grade::Probable,
        (false, false) => Grade::Suspected,
    };
    let state = match off {
        Some(true) => "; the notification point is off for every priority",
        Some(false) => "; the notification point is on for some priority, perhaps not for that of the data",
        None => "",
    };
    let mut evidence = vec![
        Evidence::new("packets received with CE", window, marks, settings.marks as f64, "packets"),
        Evidence::new("CNPs sent", window, sent, 0.0, "packets"),
    ];
    if let Some(off) = off {
        evidence.push(Evidence::new("notification point on", None, f64::from(u8::from(!off)), 1.0, "state"));
    }
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if control == Control::Off { Severity::Info } else { Severity::Warning },
        grade,
        summary: format!(
            "{marks:.0} marked packets received in {:.1} s and no CNP sent{state}. {}",
            span.seconds(),
            definition(view, port)
        ),
        evidence,
        advice: format!(
            "Switch the notification point on for the priority of the data (mlx5: ecn/roce_np/enable of the network \
             device, or the NIC's configuration). Bear in mind: {}.",
            joined(&confounders(view, port, &span))
        ),
        would_raise: if grade == Grade::Confirmed {
            String::new()
        } else {
            "the notification point's setting; packets".to_owned()
        },
        part_of: None,
        since: span.from,
        revision: 0,
    })))
}

/// `ecn.cnp_without_ce`.
pub(in crate::rule) struct CnpWithoutCe;

impl Rule for CnpWithoutCe {
    fn id(&self) -> &'static str {
        "ecn.cnp_without_ce"
    }

    fn meaning(&self) -> &'static str {
        "This port sends more CNPs than it receives marked packets, and slow restart does not explain them: senders are \
         slowed down without a mark. A CNP answers one or more marks, so fewer CNPs than marks are normal. Host congestion \
         (marks made by the NIC itself) is another rule's."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        hand_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        ports(view).filter_map(|port| without_ce(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        lacking(view, NEEDS).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        lacking(view, NEEDS).in_part()
    }
}

fn without_ce(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_cnp_without_ce;
    let span = Span::newest(view, port, settings.windows)?;
    let sums = span.sums();
    let (marks, sent) = (sums.marks?, sums.cnp_sent?);
    // A counter of slow restarts that cannot be read could explain anything.
    let restarts = match port.series_of(Meaning::SlowRestartCnps).next() {
        Some(_) => span.growth(Meaning::SlowRestartCnps)? as f64,
        None => 0.0,
    };
    let host = span.growth(Meaning::HostMarked).unwrap_or(0) as f64;
    let unexplained = sent - marks - restarts - host;
    let (key, subject) = view.port_subject(port);
    let steady =
        span.parts(2).iter().all(|part| part.cnp_sent.zip(part.marks).is_some_and(|(sent, marks)| sent > marks));
    if unexplained <= settings.cnps as f64 || unexplained <= settings.share * sent || !steady {
        return None;
    }
    let window = Some(span.seconds());
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Info,
        grade: Grade::Suspected,
        summary: format!(
            "{sent:.0} CNPs sent for {marks:.0} marked packets received; slow restart explains {restarts:.0}. {}",
            definition(view, port)
        ),
        evidence: vec![
            Evidence::new("CNPs sent", window, sent, None, "packets"),
            Evidence::new("packets received with CE", window, marks, None, "packets"),
            Evidence::new("CNPs of slow restart", window, restarts, None, "packets"),
            Evidence::new("CNPs nothing explains", window, unexplained, settings.cnps as f64, "packets"),
        ],
        advice: format!(
            "Compare the firmware's release notes; look for a function of the same NIC whose marks are not counted here. \
             Bear in mind: {}.",
            joined(&confounders(view, port, &span))
        ),
        would_raise: "packets: CNPs and CE of the same QPs".to_owned(),
        part_of: None,
        since: span.from,
        revision: 0,
    })))
}
