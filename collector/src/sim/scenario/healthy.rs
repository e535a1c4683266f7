//! Nothing is wrong: a node's life with what belongs to it. Jobs come and go, networks are congested, a bit flips.

use super::{Scenario, ScenarioInfo, Step};
use crate::sim::fault::PcieError;
use crate::sim::job::JobKind;
use crate::sim::node::{Node, RAILS, Shape};
use crate::sim::random::Random;

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "healthy",
        summary: "training jobs, checkpoints and restarts on eight rails, nothing wrong",
    },
    shape: Shape { job: JobKind::Mixed, ..Shape::TRAINING },
    plan,
};

/// Nothing is planned beyond this time, s: two days.
const PLANNED_S: f64 = 172_800.0;

fn plan(node: &mut Node, random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    // The fabric was set up once; nobody knows whether well, but it is the same everywhere and it works.
    for port in &mut node.ports {
        port.condition.bit_errors = random.log_between(2e-9, 5e-7);
    }
    let port = |random: &mut Random| random.index(RAILS);
    // A receiver error on PCIe every few hours.
    let mut s = random.between(0.0, 7_200.0);
    while s < PLANNED_S {
        let port = port(random);
        steps.push(Step::at_s(s, move |node, t, emit| node.pcie_error(t, port, PcieError::RxErr, emit)));
        s += random.between(600.0, 14_400.0);
    }
    // A handful of symbols lost within a second.
    let mut s = random.between(600.0, 14_400.0);
    while s < PLANNED_S {
        let (port, burst) = (port(random), 1.0 + random.unit() * 3.0);
        steps.push(Step::at_s(s, move |node, _, _| node.ports[port].condition.post_fec_per_s = burst));
        steps.push(Step::at_s(s + 1.0, move |node, _, _| node.ports[port].condition.post_fec_per_s = 0.0));
        s += random.between(3_600.0, 28_800.0);
    }
    // The driver is loaded anew between two jobs.
    let mut s = random.between(600.0, 7_200.0);
    while s < PLANNED_S {
        let port = port(random);
        steps.push(Step::at_s(s + 0.15, move |node, t, emit| {
            if !node.running {
                node.unload(t, port, emit);
            }
        }));
        steps.push(Step::at_s(s + 0.85, move |node, t, emit| {
            if node.ports[port].gone {
                node.load(t, port, emit);
            }
        }));
        s += random.between(1_200.0, 7_200.0);
    }
    steps
}
