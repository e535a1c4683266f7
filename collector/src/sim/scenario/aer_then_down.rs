//! A marginal PCIe link: corrected errors, replay rollovers that become more and more, a lost transaction, and the port
//! goes down with everything on it.

use super::{Scenario, ScenarioInfo, Step};
use crate::sim::fault::PcieError;
use crate::sim::node::Node;
use crate::sim::random::Random;

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "aer-then-down",
        summary: "PCIe errors on mlx5_3 from 20 s on, its port goes down at 40 s and its QPs die",
    },
    plan,
};

/// When the port goes down, s.
const DOWN_S: f64 = 40.118;

fn plan(node: &Node, random: &mut Random) -> Vec<Step> {
    let Some(port) = node.port_named("mlx5_3") else { return Vec::new() };
    let error = |s: f64, error: PcieError| Step::at_s(s, move |node, t, emit| node.pcie_error(t, port, error, emit));
    let mut steps = vec![
        error(8.3, PcieError::RxErr),
        error(12.1, PcieError::BadTlp),
        error(16.7, PcieError::RxErr),
        Step::at_s(20.2, move |node, t, emit| node.truth(t, port, "pcie_aer", true, emit)),
    ];
    // Ever faster, from one in three seconds to several a second.
    let mut s = 20.21;
    let mut gap = 3.0;
    while s < 39.5 {
        steps.push(error(s, PcieError::Rollover));
        s += gap * (0.9 + 0.2 * random.unit());
        gap = (gap * 0.9).max(0.15);
    }
    steps.push(error(39.61, PcieError::CmpltTo));
    steps.push(Step::at_s(DOWN_S, move |node, t, emit| {
        node.truth(t, port, "link_down", true, emit);
        node.port_down(t, port, emit);
    }));
    // The event makes the other sources look at once.
    steps.push(Step::at_s(DOWN_S + 0.004, move |node, t, emit| node.look(t, port, emit)));
    // 4.096 µs · 2^13 · 7 retries = 235 ms after the last acknowledgement, which came a little before the fall.
    let qps = node.ports[port].qps.len();
    for at in 0..qps {
        let spread = if qps > 1 { at as f64 / (qps - 1) as f64 } else { 0.0 };
        steps
            .push(Step::at_s(DOWN_S + 0.231_01 + 0.039 * spread, move |node, t, emit| node.qp_dies(t, port, at, emit)));
    }
    steps
}
