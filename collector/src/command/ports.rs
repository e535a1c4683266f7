//! `ports`: every port with what is known of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::notes;
use super::table::{Align, Table, line, or_dash};
use crate::inventory::{CounterSet, DeviceId, DeviceRecord, LinkState, PcieRecord, PortRecord, Role, World};
use crate::observation::{AerSeverity, LinkLayer, PortState};
use crate::timeline::arithmetic::Reading;
use crate::timeline::counter_table::Meaning;

/// `ports --json`; stable.
#[derive(Debug, Serialize)]
pub struct PortsReport {
    /// The node as a whole.
    pub node: Node,
    /// One entry per port.
    pub ports: Vec<Port>,
    /// What to know before believing the numbers.
    pub notes: Vec<String>,
}

/// The node as a whole.
#[derive(Debug, Serialize)]
pub struct Node {
    /// RDMA devices named by the kernel, readable or not.
    pub devices: usize,
    /// Adapters: distinct PCI devices (all functions of one card are one), and software devices.
    pub adapters: usize,
    /// Ports that carry data of their own: no virtual functions, no management sub-devices. Null when no port is readable.
    pub data_ports: Option<usize>,
    /// Sum of their signalling rates where they are ACTIVE, Gb/s. Null when no port is readable, or the state or
    /// rate of one is unknown.
    pub capacity_gbps: Option<f64>,
}

/// One port.
#[derive(Debug, Serialize)]
pub struct Port {
    /// Device name.
    pub device: Arc<str>,
    /// Port number.
    pub port: u32,
    /// PCI function (of the network device, for a software device).
    pub pci: Option<Arc<str>>,
    /// Driver.
    pub driver: Option<Arc<str>>,
    /// Node GUID.
    pub node_guid: Option<Arc<str>>,
    /// Board or HCA type.
    pub model: Option<Arc<str>>,
    /// What the device is for.
    pub role: Option<Role>,
    /// The device it is a part of.
    pub parent: Option<Arc<str>>,
    /// Link layer; null when unspecified.
    pub link_layer: Option<LinkLayer>,
    /// State; null when it cannot be read.
    pub state: Option<&'static str>,
    /// Physical state.
    pub phys_state: Option<Arc<str>>,
    /// Signalling rate. A port that is down shows its default here, not a negotiated rate.
    pub rate_gbps: Option<f64>,
    /// Lanes in use.
    pub lanes: Option<u32>,
    /// Network devices.
    pub netdevs: Vec<Arc<str>>,
    /// Used GID table entries.
    pub gids: Vec<GidEntry>,
    /// PCIe link.
    pub pcie: Option<PcieLink>,
    /// AER totals of the PCI function; null where it shows none.
    pub aer: Option<AerTotals>,
    /// RDMA bytes sent since the counter's own start.
    pub tx_bytes: Option<u64>,
    /// RDMA bytes received.
    pub rx_bytes: Option<u64>,
    /// A counter of the sent bytes stands at its limit: they are this many or more.
    pub tx_saturated: bool,
    /// The same of the received bytes.
    pub rx_saturated: bool,
    /// RDMA throughput sent over the last interval.
    pub tx_gbps: Option<f64>,
    /// RDMA throughput received.
    pub rx_gbps: Option<f64>,
    /// Busier direction's share of the rate, 0–1.
    pub utilisation: Option<f64>,
    /// The last reset of the device's counters that was observed.
    pub reset: Option<Reset>,
    /// How long the driver serves `hw_counters` from its cache, seconds.
    pub lifespan_s: Option<f64>,
    /// All counters.
    pub counters: Vec<Counter>,
    /// Raised findings about the port, its device or its PCIe path.
    pub findings: Vec<String>,
    /// What to know before believing the numbers.
    pub notes: Vec<Arc<str>>,
}

/// One used GID table entry.
#[derive(Debug, Serialize)]
pub struct GidEntry {
    /// Index.
    pub index: u32,
    /// GID.
    pub gid: Arc<str>,
    /// `RoCE v2`, …
    pub kind: Option<Arc<str>>,
}

/// PCIe link.
#[derive(Debug, Serialize)]
pub struct PcieLink {
    /// Speed and width.
    #[serde(flatten)]
    pub link: LinkState,
    /// What it carries in one direction after line coding.
    pub gbps: Option<f64>,
}

/// Errors a PCI function has counted since it was enumerated; null where it shows none of the severity.
#[derive(Debug, Serialize)]
pub struct AerTotals {
    /// Correctable.
    pub correctable: Option<u64>,
    /// Uncorrectable, not fatal.
    pub nonfatal: Option<u64>,
    /// Uncorrectable and fatal.
    pub fatal: Option<u64>,
}

/// A reset of counters.
#[derive(Debug, Serialize)]
pub struct Reset {
    /// When, seconds since the first observation.
    pub at_s: f64,
    /// How many counters fell together.
    pub counters: u32,
}

/// One counter.
#[derive(Debug, Serialize)]
pub struct Counter {
    /// The driver's name.
    pub name: Arc<str>,
    /// Where it was read.
    pub source: &'static str,
    /// What the set belongs to where it is not the port or device: `qp 17`, `type RC`.
    pub of: Option<Arc<str>>,
    /// QPs that a bound set counts together; null where it is not known, and for a set that is not bound.
    pub of_qps: Option<usize>,
    /// The raw number.
    pub value: Option<u64>,
    /// Its unit.
    pub unit: &'static str,
    /// Driver-independent meaning.
    pub meaning: Option<&'static str>,
    /// Growth between the last two readings; null when it is not known.
    pub delta: Option<u64>,
    /// The same per second.
    pub rate: Option<f64>,
    /// Why there is no value.
    pub unavailable: Option<String>,
    /// It stands at its ceiling: the true count is this or more.
    pub saturated: bool,
}

/// Builds the report.
#[must_use]
pub fn report(world: &World) -> PortsReport {
    let ports: Vec<Port> = world.present_ports().map(|(device, port)| one(world, device, port)).collect();
    PortsReport { node: node(world), ports, notes: notes::of_node(world) }
}

/// A port that carries data of its own.
fn is_data_port(world: &World, port: &PortRecord) -> bool {
    !matches!(world.role(port.key.device), Some(Role::Vf | Role::Management))
}

fn node(world: &World) -> Node {
    let mut adapters = BTreeSet::new();
    for (id, device) in world.present() {
        if matches!(world.role(id), Some(Role::Vf | Role::Management)) && world.parent(id).is_some() {
            continue;
        }
        adapters.insert(device.pci.as_deref().map_or(&*device.name, |pci| pci.split('.').next().unwrap_or(pci)));
    }
    let data: Vec<&PortRecord> =
        world.present_ports().map(|(_, port)| port).filter(|port| is_data_port(world, port)).collect();
    let readable = world.present_ports().next().is_some();
    let states_known = data.iter().all(|port| port.state != PortState::Unknown);
    let active = data.iter().filter(|port| port.state == PortState::Active);
    Node {
        devices: world.present().count(),
        adapters: adapters.len(),
        data_ports: readable.then_some(data.len()),
        capacity_gbps: active.map(|port| port.rate_gbps).sum::<Option<f64>>().filter(|_| readable && states_known),
    }
}

fn one(world: &World, device: &DeviceRecord, port: &PortRecord) -> Port {
    let id = port.key.device;
    let function = world.function_of(port);
    let reading = |meaning| port.reading(meaning);
    let total = |meaning| reading(meaning).and_then(|r| r.total);
    let saturated = |meaning| reading(meaning).is_some_and(|r| r.saturated);
    let now = port.throughput();
    Port {
        device: device.name.clone(),
        port: port.key.port,
        pci: function.cloned(),
        driver: device.driver.clone(),
        node_guid: device.node_guid.clone(),
        model: device.model.clone(),
        role: world.role(id),
        parent: world.parent(id).map(|parent| world.device(parent).name.clone()),
        link_layer: Some(port.link_layer).filter(|layer| *layer != LinkLayer::Unspecified),
        state: Some(port.state).filter(|state| *state != PortState::Unknown).map(PortState::name),
        phys_state: port.phys_state.clone(),
        rate_gbps: port.rate_gbps,
        lanes: port.lanes,
        netdevs: port.netdevs.clone(),
        gids: port
            .gids
            .iter()
            .map(|(index, gid, kind)| GidEntry { index: *index, gid: gid.clone(), kind: kind.clone() })
            .collect(),
        pcie: function.and_then(|function| world.pcie.get(function)).and_then(|record| {
            let known = record.link != LinkState::default();
            known.then(|| PcieLink { link: record.link, gbps: record.link.gbps() })
        }),
        aer: function.and_then(|function| aer(world.pcie.get(function)?)),
        tx_bytes: total(Meaning::TxBytes),
        rx_bytes: total(Meaning::RxBytes),
        tx_saturated: saturated(Meaning::TxBytes),
        rx_saturated: saturated(Meaning::RxBytes),
        tx_gbps: now.tx_gbps,
        rx_gbps: now.rx_gbps,
        utilisation: port.utilisation(),
        reset: device
            .reset
            .map(|(t, fell)| Reset { at_s: t.saturating_sub(world.started) as f64 / 1e9, counters: fell.counters }),
        lifespan_s: port.lifespan_ms.map(|ms| f64::from(ms) / 1e3),
        counters: all_counters(device, port),
        findings: findings_about(world, id, port),
        notes: notes::of_port(port),
    }
}

/// The counters of the port, of its device, and of the sets bound to its QPs.
fn all_counters(device: &DeviceRecord, port: &PortRecord) -> Vec<Counter> {
    let own = port.sets.iter().chain(&device.sets).flat_map(|set| counters(set, None));
    let bound = port.bound.iter().flat_map(|set| counters(&set.counters, Some(set.qpns.len()).filter(|n| *n > 0)));
    own.chain(bound).collect()
}

/// The totals by severity: the kernel's own sum where it writes one, else the sum over the kinds; `None` where none are
/// counted.
fn aer(record: &PcieRecord) -> Option<AerTotals> {
    let totals = record.counts()?;
    let of = |severity: AerSeverity| {
        let lines = || totals.iter().filter(move |total| total.severity == severity);
        let written = lines().find(|total| total.is_sum()).map(|total| total.value);
        written.or_else(|| lines().map(|total| total.value).reduce(u64::saturating_add))
    };
    Some(AerTotals {
        correctable: of(AerSeverity::Corrected),
        nonfatal: of(AerSeverity::Nonfatal),
        fatal: of(AerSeverity::Fatal),
    })
}

fn counters(set: &CounterSet, of_qps: Option<usize>) -> Vec<Counter> {
    let mut counters: Vec<Counter> = set
        .series
        .iter()
        .map(|series| Counter {
            name: series.name.clone(),
            source: set.source.name(),
            of: set.bound.clone(),
            of_qps,
            value: series.value(),
            unit: series.def.unit.name(),
            meaning: series.def.meaning.map(Meaning::name),
            delta: series.delta.value(),
            rate: series.rate,
            unavailable: match &series.reading {
                Reading::Value(_) => None,
                Reading::Unavailable(reason) => Some(reason.to_string()),
            },
            saturated: series.saturated(),
        })
        .collect();
    if let Some(reason) = &set.unavailable {
        counters.push(Counter {
            name: "*".into(),
            source: set.source.name(),
            of: set.bound.clone(),
            of_qps,
            value: None,
            unit: "none",
            meaning: None,
            delta: None,
            rate: None,
            unavailable: Some(reason.to_string()),
            saturated: false,
        });
    }
    counters
}

/// Ids of the raised findings about a port, its device or its PCIe path.
fn findings_about(world: &World, id: DeviceId, port: &PortRecord) -> Vec<String> {
    world.findings_about(id, port).map(|finding| finding.id()).collect()
}

/// A total; one that rests on a counter at its limit is a lower bound.
fn at_least(total: Option<u64>, saturated: bool) -> String {
    if saturated { or_dash(total.map(|total| format!(">{total}"))) } else { or_dash(total) }
}

impl PortsReport {
    /// The report as an aligned table, notes below.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = Table::new(&[
            ("DEVICE", Align::Left),
            ("PORT", Align::Right),
            ("NETDEV", Align::Left),
            ("LINK", Align::Left),
            ("STATE", Align::Left),
            ("RATE Gb/s", Align::Right),
            ("RX Gb/s", Align::Right),
            ("TX Gb/s", Align::Right),
            ("RX bytes", Align::Right),
            ("TX bytes", Align::Right),
            ("PCIE Gb/s", Align::Right),
            ("ROLE", Align::Left),
            ("FINDINGS", Align::Left),
        ]);
        // A management sub-device is a note below its parent, not rows of its own.
        let folded = |port: &&Port| port.role != Some(Role::Management) || port.parent.is_none();
        for port in self.ports.iter().filter(folded) {
            let three = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.3}")));
            let up = port.state == Some("ACTIVE");
            table.row(vec![
                port.device.to_string(),
                port.port.to_string(),
                if port.netdevs.is_empty() { "–".to_owned() } else { port.netdevs.join(",") },
                or_dash(port.link_layer.map(|layer| format!("{layer:?}"))),
                or_dash(port.state),
                or_dash(port.rate_gbps.filter(|_| up)),
                three(port.rx_gbps),
                three(port.tx_gbps),
                at_least(port.rx_bytes, port.rx_saturated),
                at_least(port.tx_bytes, port.tx_saturated),
                or_dash(port.pcie.as_ref().and_then(|link| link.gbps).map(|gbps| format!("{gbps:.1}"))),
                port.role.map_or_else(String::new, |role| match (role, &port.parent) {
                    (Role::Pf, _) => "pf".to_owned(),
                    (Role::Vf, Some(parent)) => format!("vf of {parent}"),
                    (Role::Vf, None) => "vf (PF not visible)".to_owned(),
                    (Role::Management, _) => "management".to_owned(),
                }),
                port.findings.join(" "),
            ]);
        }
        let mut text = if table.is_empty() { String::new() } else { table.to_string() };
        for port in &self.ports {
            for note in &port.notes {
                line(&mut text, &format!("{}/{}: {note}", port.device, port.port));
            }
        }
        for note in &self.notes {
            line(&mut text, note);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::Engine;
    use crate::observation::recording::{Header, Reader};
    use crate::rule::Settings;

    #[test]
    fn a_total_at_its_counters_limit_is_a_lower_bound_in_table_and_report() {
        let lines = [
            json!({"type": "header", "format": "rdmascope-recording", "version": 1}),
            json!({"t": 1, "type": "device", "device": "ib0", "driver": "mlx4_core"}),
            json!({"t": 1, "type": "port", "device": "ib0", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE"}),
            json!({"t": 2, "type": "counters", "device": "ib0", "port": 1, "source": "counters",
                "values": {"port_rcv_data": u32::MAX, "port_xmit_data": 7}}),
        ];
        let text = lines.map(|line| format!("{line}\n")).concat();
        let mut reader = Reader::new(text.as_bytes()).unwrap();
        let mut engine = Engine::new(Header::new(), Settings::default());
        while reader.next(|observation| engine.take(observation)).unwrap().is_some() {}
        let report = report(engine.world());
        let port = &report.ports[0];
        assert_eq!((port.rx_saturated, port.tx_saturated, port.tx_bytes), (true, false, Some(28)));
        assert!(report.text().contains(">17179869180 ") && !report.text().contains(">28"), "{}", report.text());
    }
}
