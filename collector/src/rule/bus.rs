//! What a PCIe link carries of the data of network adapters, and which ports share one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::View;
use super::clock::ns;
use crate::inventory::{PcieRecord, PortRecord, Role, gbps};
use crate::observation::PortState;
use crate::timeline::counter_table::Meaning;

/// Bytes of header, sequence number, CRC and framing around the payload of a packet of the transaction layer (PCI Express
/// base specification: 12 to 16 of header, 2 and 4 of the data link layer, the rest framing).
const TLP_OVERHEAD: f64 = 24.0;
/// Share of the link left for data beside acknowledgements and flow control of the data link layer.
const DLLP_LEFT: f64 = 0.97;
/// Payload of a packet where it is not known: what most platforms set, bytes.
const USUAL_MPS: u32 = 256;

/// Usable Gb/s in one direction of a link, and whether the payload size was known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usable {
    pub(super) gbps: f64,
    /// Before the overhead of packets.
    pub(super) line_gbps: f64,
    /// Payload of a packet, bytes.
    pub(super) mps: u32,
    pub(super) mps_known: bool,
}

/// What the link of a function carries of data in one direction; `None` when speed or width is not known or not possible.
pub(super) fn usable(record: &PcieRecord, mps: Option<u32>) -> Option<Usable> {
    let speed = record.link.speed_gts.filter(|speed| *speed > 0.0)?;
    let width = record.link.width.filter(|width| matches!(width, 1 | 2 | 4 | 8 | 12 | 16 | 32))?;
    let line_gbps = gbps(speed, width);
    let known = mps.filter(|mps| (128..=4096).contains(mps));
    let mps = known.unwrap_or(USUAL_MPS);
    let payload = f64::from(mps);
    let gbps = line_gbps * payload / (payload + TLP_OVERHEAD) * DLLP_LEFT;
    Some(Usable { gbps, line_gbps, mps, mps_known: known.is_some() })
}

impl std::fmt::Display for Usable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let assumed = if self.mps_known { "" } else { " assumed" };
        write!(f, "{:.0} Gb/s of {:.0} at packets of {} bytes{assumed}", self.gbps, self.line_gbps, self.mps)
    }
}

/// The ports of physical functions, with the function of each.
pub(super) fn ports<'w>(view: &View<'w>) -> Vec<(&'w PortRecord, &'w Arc<PcieRecord>)> {
    let physical = view.world.present_ports().filter(|(_, port)| view.world.role(port.key.device) == Some(Role::Pf));
    physical.filter_map(|(device, port)| Some((port, view.world.pcie.get(device.pci.as_ref()?)?))).collect()
}

/// The functions of one adapter are at one place of the bus: domain, bus and device.
pub(super) fn slot(pci: &str) -> &str {
    pci.rsplit_once('.').map_or(pci, |(slot, _)| slot)
}

/// A port behind a bridge: its place among all, itself, and its adapter's slot.
type Behind<'w> = (usize, &'w PortRecord, &'w str);

/// A bridge: how far from the root it is, its address, the ports behind it.
type Candidate<'w> = (usize, &'w Arc<str>, Vec<&'w PortRecord>);

/// Bridges behind which ports of more than one adapter lie: the bridge nearest to them, and the ports.
pub(super) fn shared<'w>(view: &View<'w>) -> Vec<(&'w Arc<PcieRecord>, Vec<&'w PortRecord>)> {
    // Ports by bridge, and how far from the root the bridge is.
    let mut behind: BTreeMap<&Arc<str>, (usize, Vec<Behind<'_>>)> = BTreeMap::new();
    for (at, (port, record)) in ports(view).into_iter().enumerate() {
        for (depth, bridge) in record.path.iter().enumerate().filter(|(_, bdf)| **bdf != record.pci) {
            let entry = behind.entry(bridge).or_insert((depth, Vec::new()));
            entry.1.push((at, port, slot(&record.pci)));
        }
    }
    // Of the bridges of the same ports the one nearest to them has the link all of them share.
    let mut nearest: BTreeMap<Vec<usize>, Candidate<'_>> = BTreeMap::new();
    for (bridge, (depth, ports)) in behind {
        let several = ports.iter().any(|(_, _, slot)| *slot != ports[0].2);
        if !several || view.world.pcie.get(bridge).is_none_or(|record| usable(record, None).is_none()) {
            continue;
        }
        let which: Vec<usize> = ports.iter().map(|(at, _, _)| *at).collect();
        let candidate = (depth, bridge, ports.iter().map(|(_, port, _)| *port).collect());
        match nearest.get(&which) {
            Some((before, _, _)) if *before >= depth => {}
            _ => {
                nearest.insert(which, candidate);
            }
        }
    }
    nearest.into_values().filter_map(|(_, bridge, ports)| Some((view.world.pcie.get(bridge)?, ports))).collect()
}

/// Direction of data, from the port's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Sent: read from the host.
    Tx,
    /// Received: written to the host.
    Rx,
}

impl Direction {
    pub(super) const BOTH: [Self; 2] = [Self::Tx, Self::Rx];

    pub(super) fn meaning(self) -> Meaning {
        match self {
            Self::Tx => Meaning::TxBytes,
            Self::Rx => Meaning::RxBytes,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tx => "sent",
            Self::Rx => "received",
        }
    }
}

/// Throughput of each of the last windows that make `window_s`, Gb/s, newest first, summed over ports; `None` where that
/// of an ACTIVE port is not known in any of them.
pub(super) fn throughput(view: &View<'_>, ports: &[&PortRecord], of: Direction, window_s: f64) -> Option<Vec<f64>> {
    let engine_ns = ns(view.settings.window_s).max(1);
    let n = usize::try_from(ns(window_s).div_ceil(engine_ns)).unwrap_or(1).max(1);
    let mut sum = vec![0.0; n];
    for port in ports.iter().filter(|port| port.state == PortState::Active) {
        let mut rates = port.rates.get(&of.meaning())?.newest_first();
        for total in &mut sum {
            *total += rates.next()?? * 8.0 / 1e9;
        }
    }
    Some(sum)
}

/// The share of the last second in which the adapter waited for the bus, percent, the higher of reads and writes.
pub(super) fn stalled(port: &PortRecord) -> Option<u64> {
    let gauge = |meaning| port.reading(meaning).and_then(|reading| reading.total);
    [gauge(Meaning::PcieStallRead), gauge(Meaning::PcieStallWrite)].into_iter().flatten().filter(|p| *p <= 100).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::Pcie;

    fn link(speed_gts: f64, width: u32, mps: Option<u32>) -> f64 {
        let mut record = PcieRecord::new("a");
        let seen = Pcie { pci: "a".into(), speed_gts: Some(speed_gts), width: Some(width), ..Pcie::default() };
        record.update(1, &seen);
        usable(&record, mps).unwrap().gbps
    }

    #[test]
    fn what_a_link_carries_depends_on_generation_width_and_payload() {
        for (speed, width, mps, expected) in [
            (8.0, 16, Some(256), 111.8),
            (16.0, 16, Some(256), 223.5),
            (32.0, 16, Some(128), 411.7),
            (32.0, 16, Some(256), 447.0),
            (32.0, 16, Some(512), 467.0),
            (32.0, 16, None, 447.0),
            (64.0, 16, Some(512), 948.8),
        ] {
            let gbps = link(speed, width, mps);
            assert!((gbps - expected).abs() < 0.5, "{speed} x{width} {mps:?}: {gbps}");
        }
    }
}
