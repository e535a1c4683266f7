//! Throughput that ends at the bus: the adapter's own link, and an uplink that several adapters share.

use super::bus::{Direction, Usable, ports, shared, slot, stalled, throughput, usable};
use super::judged::{Judged, Part};
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, SubjectKey, Verdict};
use crate::inventory::{PcieRecord, PortRecord};
use crate::observation::PortState;

/// Seconds a throughput must be flat.
const FLAT_S: f64 = 10.0;
/// Adapters wait for the bus in this share of the time when it is the limit, percent (mlx5 counts seconds above it).
const STALLED_PERCENT: u64 = 30;

/// Throughput at the bound of a link: the mean of the last windows, when every one of them is near to it.
fn at_bound(view: &View<'_>, ports: &[&PortRecord], of: Direction, bound: Usable, share: f64) -> Option<f64> {
    let windows = throughput(view, ports, of, FLAT_S)?;
    let near = windows.iter().all(|gbps| *gbps >= share * bound.gbps && *gbps <= bound.line_gbps * 1.02);
    near.then(|| windows.iter().sum::<f64>() / windows.len() as f64)
}

/// Whether a raised finding stays: throughput is a little below the bound only.
fn near_bound(view: &View<'_>, ports: &[&PortRecord], bound: Usable, share: f64) -> bool {
    let mean = |of| {
        let windows = throughput(view, ports, of, FLAT_S)?;
        Some(windows.iter().sum::<f64>() / windows.len() as f64)
    };
    Direction::BOTH.into_iter().filter_map(mean).any(|gbps| gbps >= (share - 0.1).max(0.0) * bound.gbps)
}

fn rates(ports: &[&PortRecord]) -> f64 {
    ports.iter().filter(|port| port.state == PortState::Active).filter_map(|port| port.rate_gbps).sum()
}

fn bus_check(view: &View<'_>, finding: &Finding) -> Vec<String> {
    let Some(pci) = finding.subject.pci.as_deref() else { return Vec::new() };
    let mut lines = vec![
        format!("sudo lspci -vvv -s {pci} | grep -E 'LnkCap:|LnkSta:|MaxPayload'"),
        "lspci -tv".to_owned(),
        "rdma statistic show     # port_xmit_data, port_rcv_data: words of 4 bytes, twice".to_owned(),
    ];
    let netdevs = ports(view)
        .into_iter()
        .filter(|(_, record)| record.path.iter().any(|bdf| **bdf == *pci) || *record.pci == *pci);
    for netdev in netdevs.flat_map(|(port, _)| &port.netdevs) {
        lines.push(format!("ethtool -S {netdev} | grep outbound_pci_stalled"));
    }
    lines
}

/// `pcie.bandwidth_bound`.
pub(super) struct Bound;

impl Rule for Bound {
    fn id(&self) -> &'static str {
        "pcie.bandwidth_bound"
    }

    fn meaning(&self) -> &'static str {
        "The port could carry more than the PCIe link of its adapter, and its throughput stands at what that link carries: \
         the bus is the limit now, not the network. A link that is slower than it could be is pcie.downgrade; a port that is \
         not busy is no finding, whatever its slot."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        bus_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let all = ports(view);
        let mut verdicts = Vec::new();
        let slots: Vec<&str> = all.iter().map(|(_, record)| slot(&record.pci)).collect();
        for (at, (_, record)) in all.iter().enumerate() {
            // The functions of an adapter share its link: judged once, at the first of them.
            if slots[..at].contains(&slots[at]) {
                continue;
            }
            let its: Vec<&PortRecord> =
                all.iter().zip(&slots).filter(|(_, slot)| **slot == slots[at]).map(|((port, _), _)| *port).collect();
            verdicts.extend(bound(view, record, &its));
        }
        verdicts
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        bound_extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        bound_extent(view).in_part()
    }
}

fn bound_extent(view: &View<'_>) -> Judged {
    let all = ports(view);
    if all.is_empty() {
        return Judged::Not("no PCIe function of a port is visible".to_owned());
    }
    let blind: Vec<&str> =
        all.iter().filter(|(_, record)| usable(record, record.mps).is_none()).map(|(_, r)| &*r.pci).collect();
    let reason = format!("link speed or width not shown by {}", blind.join(", "));
    Judged::without(blind.iter().map(|pci| SubjectKey::Pci((*pci).into())).collect(), all.len(), reason)
}

fn bound(view: &View<'_>, record: &PcieRecord, its: &[&PortRecord]) -> Option<Verdict> {
    let settings = &view.settings.pcie_bandwidth_bound;
    let bound = usable(record, record.mps)?;
    let rate = rates(its);
    if rate <= bound.gbps {
        return None;
    }
    let (key, subject) = view.pci_subject(&record.pci);
    let found = Direction::BOTH.into_iter().find_map(|of| Some((of, at_bound(view, its, of, bound, settings.share)?)));
    let Some((of, gbps)) = found else {
        let keep = view.raised("pcie.bandwidth_bound", &key).is_some() && near_bound(view, its, bound, settings.share);
        return keep.then_some(Verdict::Keep(key));
    };
    let stalled = its.iter().filter_map(|port| stalled(port)).max();
    let mut evidence = vec![
        Evidence::new(format!("throughput {}", of.name()), Some(FLAT_S), gbps, bound.gbps, "Gb/s"),
        Evidence::new("rate of the ports", None, rate, bound.gbps, "Gb/s"),
    ];
    evidence.extend(stall_row(stalled));
    let sure = stalled.is_some_and(|percent| percent > STALLED_PERCENT);
    let link = (record.link.speed_gts.unwrap_or(0.0), record.link.width.unwrap_or(0));
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade: if sure { Grade::Confirmed } else { Grade::Probable },
        summary: format!(
            "{gbps:.0} Gb/s {}, network headers included, is what PCIe {} GT/s x{} carries by calculation ({bound}); the port's {rate:.0} Gb/s do not fit",
            of.name(),
            link.0,
            link.1
        ),
        evidence,
        advice:
            "Put the adapter into a slot that carries its rate, or spread the load over more adapters. Nothing in the \
                 network is to be tuned for this."
                .to_owned(),
        would_raise: if sure { String::new() } else { "the adapter counting stalls of the bus".to_owned() },
        part_of: downgraded(view, record),
        since: view.since(FLAT_S),
        revision: u64::from(of == Direction::Rx) | u64::from(sure) << 1,
    })))
}

fn stall_row(stalled: Option<u64>) -> Option<Evidence> {
    let percent = stalled?;
    // It is no evidence for the finding where it is below.
    let name =
        if percent > STALLED_PERCENT { "waiting for the bus" } else { "waiting for the bus (speaks against it)" };
    Some(Evidence::new(name, Some(1.0), percent as f64, STALLED_PERCENT as f64, "percent"))
}

/// A link that is slower than it could be is the cause.
fn downgraded(view: &View<'_>, record: &PcieRecord) -> Option<(&'static str, SubjectKey)> {
    let key = SubjectKey::Pci(record.pci.clone());
    view.raised("pcie.downgrade", &key).is_some().then_some(("pcie.downgrade", key))
}

/// `pcie.shared_uplink`.
pub(super) struct SharedUplink;

impl Rule for SharedUplink {
    fn id(&self) -> &'static str {
        "pcie.shared_uplink"
    }

    fn meaning(&self) -> &'static str {
        "Several adapters lie behind one switch of the bus, and together they have come to what its uplink carries: each \
         gets a share, however fast its own link. Data between an adapter and a GPU behind the same switch does not use the \
         uplink; where there is such a GPU the sum may be reached without the uplink being full. Adapters that share an \
         uplink and do not fill it are no finding."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        bus_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        shared(view).into_iter().filter_map(|(bridge, ports)| uplink(view, bridge, &ports)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        uplink_extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        uplink_extent(view).in_part()
    }
}

fn uplink_extent(view: &View<'_>) -> Judged {
    let all = ports(view);
    if all.is_empty() {
        return Judged::Not("no PCIe function of a port is visible".to_owned());
    }
    let groups = shared(view);
    if groups.is_empty() {
        return Judged::Not("no two adapters lie behind one bridge whose link is known".to_owned());
    }
    let silent = |port: &&PortRecord| {
        port.state == PortState::Active && Direction::BOTH.iter().any(|of| port.reading(of.meaning()).is_none())
    };
    let unknown: Vec<&PortRecord> = groups.iter().flat_map(|(_, ports)| ports).copied().filter(silent).collect();
    let names: Vec<String> = unknown.iter().map(|port| view.port_subject(port).1.to_string()).collect();
    // The sum of an uplink is not known where that of one of its ports is not.
    let blind: Vec<SubjectKey> = groups
        .iter()
        .filter(|(_, ports)| ports.iter().any(&silent))
        .map(|(bridge, _)| SubjectKey::Pci(bridge.pci.clone()))
        .collect();
    Judged::without(blind, groups.len(), format!("the throughput of {} is not known", names.join(", ")))
}

fn uplink(view: &View<'_>, bridge: &PcieRecord, its: &[&PortRecord]) -> Option<Verdict> {
    let settings = &view.settings.pcie_shared_uplink;
    // The payload of a packet is the least on the way.
    let function = |port: &PortRecord| view.world.function_of(port).and_then(|pci| view.world.pcie.get(pci));
    let mps = its.iter().filter_map(|port| function(port)?.mps).chain(bridge.mps).min();
    let bound = usable(bridge, mps)?;
    let (key, subject) = view.pci_subject(&bridge.pci);
    let rate = rates(its);
    if rate <= bound.gbps {
        return None;
    }
    let found = Direction::BOTH.into_iter().find_map(|of| Some((of, at_bound(view, its, of, bound, settings.share)?)));
    let Some((of, gbps)) = found else {
        let keep = view.raised("pcie.shared_uplink", &key).is_some() && near_bound(view, its, bound, settings.share);
        return keep.then_some(Verdict::Keep(key));
    };
    let mut evidence = vec![Evidence::new(format!("sum {}", of.name()), Some(FLAT_S), gbps, bound.gbps, "Gb/s")];
    let mut shares = Vec::new();
    for port in its {
        let one =
            throughput(view, &[port], of, FLAT_S).map(|windows| windows.iter().sum::<f64>() / windows.len() as f64);
        let name = view.port_subject(port).1.to_string();
        evidence.push(Evidence::new(format!("{name} {}", of.name()), Some(FLAT_S), one, port.rate_gbps, "Gb/s"));
        shares.push(format!("{name} {:.0}", one.unwrap_or(0.0)));
    }
    let stalled = its.iter().filter_map(|port| stalled(port)).max();
    evidence.extend(stall_row(stalled));
    let full = stalled.is_some_and(|percent| percent > STALLED_PERCENT);
    let gpus = gpus_behind(view, bridge);
    // An adapter that hardly waits speaks against it.
    let grade = if full || (gpus == 0 && stalled.is_none()) { Grade::Probable } else { Grade::Suspected };
    let waits = match stalled {
        Some(percent) if !full => {
            format!("; the adapters wait for the bus in {percent} % of the time, which speaks against it")
        }
        Some(percent) => format!("; the adapters wait for the bus in {percent} % of the time"),
        None => String::new(),
    };
    let peers = match gpus {
        0 => String::new(),
        n => format!("; {n} GPUs behind it: data to them does not use the uplink"),
    };
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade,
        summary: format!(
            "{gbps:.0} Gb/s {} by {} ports ({}), network headers included, are about what the uplink they share carries by calculation ({bound}); their rates add up to {rate:.0} Gb/s{waits}{peers}",
            of.name(),
            its.len(),
            shares.join(", ")
        ),
        evidence,
        advice: "Move adapters to other root ports, or let each work with the GPU behind its own switch (GPUDirect), so that \
                 the uplink is not crossed."
            .to_owned(),
        would_raise: if full {
            "the traffic's way (to the host or to a peer)".to_owned()
        } else {
            "the adapters waiting for the bus, and the traffic's way (to the host or to a peer)".to_owned()
        },
        part_of: downgraded(view, bridge),
        since: view.since(FLAT_S),
        revision: u64::from(of == Direction::Rx) | u64::from(full) << 1 | (gpus as u64) << 8,
    })))
}

/// Display and 3D controllers and accelerators (class 03xx, 12xx) behind a bridge.
fn gpus_behind(view: &View<'_>, bridge: &PcieRecord) -> usize {
    let is_gpu = |record: &PcieRecord| {
        record.class.as_deref().is_some_and(|class| class.starts_with("0x03") || class.starts_with("0x12"))
    };
    view.world.pcie.values().filter(|record| is_gpu(record) && record.path.contains(&bridge.pci)).count()
}
