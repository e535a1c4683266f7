//! Four NICs behind one PCIe switch whose uplink carries what one of them could.

use super::{Fault, Scenario, ScenarioInfo, Step};
use crate::sim::job::{JobKind, Pattern};
use crate::sim::node::{Node, RAILS, Shape};

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "shared-pcie",
        summary: "four NICs share one PCIe uplink: each gets a quarter of it, about 112 Gb/s of its 400",
    },
    shape: SHAPE,
    plan: |node, _| share(node, 0.0),
};

pub(super) const FAULT: Fault = Fault {
    name: "shared-pcie",
    shape: Shape { job: JobKind::Training, ..SHAPE },
    lasts_s: 60.0,
    also: &["pcie.bandwidth_bound"],
    play: |node, stage, random| {
        node.job.pattern = Pattern { load: random.between(0.5, 0.9), communicating: 1.0, ..node.job.pattern };
        share(node, stage.onset_s)
    },
};

const SHAPE: Shape = Shape { shared_uplinks: true, host_memory: true, ..Shape::TRAINING };
/// Gen5 x16 with payloads of 256 bytes: 63 GB/s after line coding, less headers and flow control.
const UPLINK_GBPS: f64 = 32.0 * 16.0 * (128.0 / 130.0) * 0.914 * 0.97;

/// Share of the time that an adapter waits for credits of a bus that is full, percent.
const STALLED_PERCENT: u64 = 70;

/// From a time on the job uses more than the uplinks carry; before, it is held back.
fn share(node: &mut Node, from_s: f64) -> Vec<Step> {
    let full = node.job.pattern.load;
    if from_s > 0.0 {
        node.job.pattern.load = 0.15;
    }
    let mut steps = vec![Step::at_s(from_s, move |node, _, _| {
        node.job.pattern.load = full;
        for port in &mut node.ports[..RAILS] {
            port.condition.pci_stalled = STALLED_PERCENT;
        }
    })];
    for port in 0..RAILS {
        steps.push(Step::truth(from_s, port, "pcie.shared_uplink", true));
        node.ports[port].condition.cap_gbps = Some(UPLINK_GBPS / 4.0);
    }
    steps
}
