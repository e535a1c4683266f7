//! `ecn.host_marking`: the NIC marks by itself because its host is slow.

use super::packets::Packets;
use super::span::Span;
use super::words::{definition, hand_check};
use super::{View, lacking, ports};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::rule::{Part, Rule};
use crate::timeline::counter_table::Meaning;

/// `ecn.host_marking`.
pub(in crate::rule) struct HostMarking;

impl Rule for HostMarking {
    fn id(&self) -> &'static str {
        "ecn.host_marking"
    }

    fn meaning(&self) -> &'static str {
        "The NIC itself marks packets because the way into its host is too slow (PCIe credits, memory): senders slow down for \
         this host, not for the network. The fabric's thresholds are not at fault."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let mut lines = hand_check(view, finding);
        lines.push("ethtool -S NETDEV | grep -E 'outbound_pci_stalled|prio[0-7]_marked'".to_owned());
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        ports(view).filter_map(|port| judge(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        lacking(view, &[(Meaning::HostMarked, "packets the NIC marked itself")]).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        lacking(view, &[(Meaning::HostMarked, "packets the NIC marked itself")]).in_part()
    }
}

fn judge(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_host_marking;
    let span = Span::newest(view, port, settings.windows)?;
    let (key, subject) = view.port_subject(port);
    let raised = view.raised("ecn.host_marking", &key).is_some();
    let marked = span.growth(Meaning::HostMarked)?;
    let times = port
        .series_of(Meaning::HostMarked)
        .map(|series| series.changes_since(span.from).filter(|(_, n)| n.is_some_and(|n| n > 0)).count())
        .max()
        .unwrap_or(0);
    // A gauge of the last second, in percent.
    let stalled = [Meaning::PcieStallWrite, Meaning::PcieStallRead]
        .iter()
        .filter_map(|meaning| port.reading(*meaning)?.total)
        .max();
    let stalls =
        stalled.is_none_or(|percent| percent as f64 > settings.stalled_percent * if raised { 0.5 } else { 1.0 });
    if marked == 0 || !stalls || (times < 2 && !raised) {
        return None;
    }
    let window = Some(span.seconds());
    let packets = Packets::since(port, span.from);
    let absent = packets.is_some_and(|packets| packets.growth("rx_ce") == Some(0));
    let grade = if absent { Grade::Confirmed } else { Grade::Suspected };
    let wait = stalled
        .map_or("PCIe stalls are not known".to_owned(), |n| format!("PCIe was stalled {n} % of the last second"));
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade,
        summary: format!(
            "the NIC marked {marked} packets by itself; {wait}: the host is slow, not the fabric. {}",
            definition(view, port)
        ),
        evidence: vec![
            Evidence::new("packets marked by the NIC", window, marked as f64, 0.0, "packets"),
            Evidence::new("PCIe stalled", Some(1.0), stalled.map(|n| n as f64), settings.stalled_percent, "percent"),
        ],
        advice:
            "Look at the PCIe link (pcie.downgrade), the payload size, the memory node of the buffers and the IOMMU. \
                 Leave the switches' thresholds alone."
                .to_owned(),
        would_raise: if grade == Grade::Confirmed { String::new() } else { "packets: no CE on the wire".to_owned() },
        part_of: None,
        since: span.from,
        revision: 0,
    })))
}
