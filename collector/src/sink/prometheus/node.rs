//! The kernel's counters under the names of `node_exporter`'s `infiniband` collector, with its labels, units and values: the
//! driver's own number, also where a counter stands at its ceiling, since that is what its dashboards expect.

use std::sync::Arc;

use super::exposition::{head, label, line};
use crate::inventory::{DeviceRecord, PortRecord, World};
use crate::metric::node_names::{NODE_NAMES, NodeName};
use crate::observation::PortState;
use crate::timeline::Series;
use crate::timeline::counter_table::{TableSource, lookup_in};

const PREFIX: &str = "node_infiniband_";

/// What is no counter, in the order of [`What::Gauge`]: name, help.
const GAUGES: [(&str, &str); 4] = [
    ("lifespan_seconds", "How long the driver serves the hardware counters from its cache"),
    (
        "physical_state_id",
        "Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 link error recovery, 7 test",
    ),
    ("rate_bytes_per_second", "Signalling rate of the port"),
    ("state_id", "State of the port: 1 down, 2 init, 3 armed, 4 active"),
];

/// One line of the page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodePoint {
    what: What,
    labels: String,
    value: String,
}

/// What a line is of. The order is that of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Info,
    /// By its place in [`GAUGES`].
    Gauge(usize),
    /// By its place in [`NODE_NAMES`].
    Counter(usize),
}

/// The lines of all ports that are there, those of one metric together.
pub(super) fn points(world: &World) -> Vec<NodePoint> {
    let mut points = Vec::new();
    for (_, device) in world.present() {
        points.push(info(device));
    }
    for (device, port) in world.present_ports() {
        let mut labels = String::new();
        label(&mut labels, "device", &device.name);
        label(&mut labels, "port", &port.key.port.to_string());
        let mut add = |what, value: String| points.push(NodePoint { what, labels: labels.clone(), value });
        for (at, value) in gauges(port).into_iter().enumerate() {
            if let Some(value) = value {
                add(What::Gauge(at), value.to_string());
            }
        }
        for (at, row) in NODE_NAMES.iter().enumerate() {
            if let Some(value) = counter(world, port, row) {
                add(What::Counter(at), value.to_string());
            }
        }
    }
    points.sort_by_key(|point| point.what);
    points
}

fn info(device: &DeviceRecord) -> NodePoint {
    let text = |text: &Option<Arc<str>>| text.clone().unwrap_or_default();
    let mut labels = String::new();
    // One text stands for both here: the board's, or the HCA's type where there is no board.
    label(&mut labels, "board_id", &text(&device.model));
    label(&mut labels, "device", &device.name);
    label(&mut labels, "firmware_version", &text(&device.fw));
    label(&mut labels, "hca_type", "");
    NodePoint { what: What::Info, labels, value: "1".to_owned() }
}

/// In the order of [`GAUGES`].
fn gauges(port: &PortRecord) -> [Option<f64>; 4] {
    let state = match port.state {
        PortState::Down => Some(1.0),
        PortState::Init => Some(2.0),
        PortState::Armed => Some(3.0),
        PortState::Active => Some(4.0),
        PortState::Unknown => None,
    };
    [
        port.lifespan_ms.map(|ms| f64::from(ms) / 1000.0),
        port.phys_state.as_deref().and_then(physical_state),
        port.rate_gbps.map(|gbps| (gbps * 1e9 / 8.0).round()),
        state,
    ]
}

/// The number of a physical state (`phys_state_to_str` in the kernel's `drivers/infiniband/core/sysfs.c`).
fn physical_state(name: &str) -> Option<f64> {
    let names =
        ["Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"];
    let number = names.iter().position(|known| *known == name).map(|at| at as f64 + 1.0);
    number.or_else(|| name.parse::<u8>().ok().map(f64::from))
}

fn counter(world: &World, port: &PortRecord, row: &NodeName) -> Option<u64> {
    let sets = port.sets.iter().filter(|set| set.bound.is_none());
    let here = sets.filter(|set| TableSource::of(set.source) == Some(row.source));
    let readable = |series: &&Series| series.fresh(world.now) && series.value().is_some_and(|value| value != u64::MAX);
    let series = here.filter_map(|set| set.get(row.file)).find(readable)?;
    series.value()?.checked_mul(row.factor)
}

/// Writes all lines.
pub(super) fn write(page: &mut String, points: &[NodePoint]) {
    let mut last = None;
    let mut name = String::new();
    for point in points {
        if last != Some(point.what) {
            last = Some(point.what);
            let (word, help, kind) = match point.what {
                What::Info => ("info", "Always 1: what is known of the device".to_owned(), "gauge"),
                What::Gauge(at) => (GAUGES[at].0, GAUGES[at].1.to_owned(), "gauge"),
                What::Counter(at) => (NODE_NAMES[at].name, help(&NODE_NAMES[at]), "counter"),
            };
            name = format!("{PREFIX}{word}");
            head(page, &name, &help, kind);
        }
        line(page, &name, "", &point.labels, &point.value);
    }
}

/// What the counter table says of the file, in bytes where `node_exporter` converts.
fn help(row: &NodeName) -> String {
    let words = lookup_in(Some("mlx5"), row.source, row.file).help;
    if row.factor == 1 { format!("{}: {words}", row.file) } else { format!("{} in bytes: {words}", row.file) }
}
