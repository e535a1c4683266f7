//! Far more QPs in use than the NIC keeps contexts of.

use super::{Fault, Scenario, ScenarioInfo, Stage, Step};
use crate::sim::job::JobKind;
use crate::sim::node::{RAILS, Shape};
use crate::sim::qp::Use;

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "qp-storm",
        summary: "261,632 QPs, from 20 s on a tenth of them in use at once: small messages wait for QP contexts",
    },
    // With the 64 of the storage port: 512 · 511.
    shape: Shape { qps_per_port: 32_696, active_qps: 0.004, ..Shape::TRAINING },
    plan: |node, _| {
        node.job.pattern.load = 0.25;
        for port in node.ports.iter_mut().filter(|port| !port.infiniband) {
            port.qps.iter_mut().for_each(|qp| qp.used_for = Use::Small);
        }
        // Most of the QPs are idle at first.
        let mut steps = vec![Step::at_s(DEMO_S, |node, _, _| node.shape.active_qps = 0.1)];
        for port in 0..RAILS {
            steps.push(Step::truth(DEMO_S, port, "qp.cache_pressure", true));
            steps.push(Step::at_s(DEMO_S, move |node, _, _| node.ports[port].condition.fetch_ns = 9_000.0));
        }
        steps
    },
};

/// When a demonstration begins, s.
const DEMO_S: f64 = 20.0;

pub(super) const FAULT: Fault = Fault {
    name: "qp-storm",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 60.0,
    also: &[],
    play: |_, Stage { port, onset_s, .. }, random| {
        let fetch_ns = random.log_between(5_000.0, 20_000.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of QPs")]
        let qps = random.log_between(3_000.0, 9_000.0) as u32;
        vec![
            Step::truth(onset_s, port, "qp.cache_pressure", true),
            Step::at_s(onset_s, move |node, _, _| {
                // A second job with one small-message QP for each pair of ranks.
                let port = &mut node.ports[port];
                let old = std::mem::take(&mut port.qps);
                port.create_qps(0, qps, 40);
                port.qps.iter_mut().for_each(|qp| qp.used_for = Use::Small);
                port.qps.splice(0..0, old);
                port.condition.fetch_ns = fetch_ns;
            }),
        ]
    },
};
