//! A marginal PCIe link: corrected errors, replay rollovers that become more and more, a lost transaction, and the port
//! goes down with everything on it. Or corrected errors without end, and nothing else.

use super::fall::fall;
use super::{Fault, Scenario, ScenarioInfo, Stage, Step};
use crate::sim::fault::PcieError;
use crate::sim::job::JobKind;
use crate::sim::node::{Node, Shape};
use crate::sim::random::Random;

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "aer-then-down",
        summary: "PCIe errors on mlx5_3 from 20 s on, its port goes down at 40 s and its QPs die",
    },
    shape: Shape::TRAINING,
    plan: |node, random| {
        let Some(port) = node.port_named("mlx5_3") else { return Vec::new() };
        let mut steps: Vec<Step> = [(8.3, PcieError::RxErr), (12.1, PcieError::BadTlp), (16.7, PcieError::RxErr)]
            .into_iter()
            .map(|(s, error)| error_at(s, port, error))
            .collect();
        steps.extend(then_down(node, Stage { port, onset_s: 20.2, pace: 0.0 }, random));
        steps
    },
};

pub(super) const FAULT: Fault = Fault {
    name: "aer-then-down",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 200.0,
    also: &[],
    play: then_down,
};

pub(super) const STORM_FAULT: Fault = Fault {
    name: "aer-storm",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 520.0,
    also: &[],
    play: storm,
};

/// Replay errors of a demonstration last so long, s; in scoring it is drawn.
const DEMO_S: f64 = 19.3;

fn error_at(s: f64, port: usize, error: PcieError) -> Step {
    Step::at_s(s, move |node, t, emit| node.pcie_error(t, port, error, emit))
}

/// Rollovers ever faster, a completion timeout, the fall.
fn then_down(node: &mut Node, stage: Stage, random: &mut Random) -> Vec<Step> {
    let Stage { port, onset_s, pace } = stage;
    let lasts = if pace > 0.0 { random.log_between(15.0, 150.0) } else { DEMO_S };
    let lost = onset_s + lasts + 0.11;
    let down = lost + if pace > 0.0 { random.log_between(0.2, 20.0) } else { 0.508 };
    let mut steps = vec![Step::truth(onset_s, port, "pcie.aer_storm", true)];
    // From one in three seconds to several a second.
    let (mut s, mut gap) = (onset_s + 0.01, 3.0);
    while s < onset_s + lasts {
        steps.push(error_at(s, port, PcieError::Rollover));
        s += gap * (0.9 + 0.2 * random.unit());
        gap = (gap * 0.9).max(0.15);
    }
    steps.push(Step::truth(lost, port, "pcie.aer_fatal", true));
    steps.push(error_at(lost, port, PcieError::CmpltTo));
    steps.extend(fall(node, port, down));
    steps
}

/// Corrected errors that never stop.
fn storm(_: &mut Node, stage: Stage, random: &mut Random) -> Vec<Step> {
    let Stage { port, onset_s, .. } = stage;
    let gap = 60.0 / random.log_between(16.0, 200.0);
    let mut steps = vec![Step::truth(onset_s, port, "pcie.aer_storm", true)];
    let mut s = onset_s;
    while s < onset_s + 500.0 {
        let error = [PcieError::RxErr, PcieError::BadTlp, PcieError::BadDllp][random.index(3)];
        steps.push(error_at(s, port, error));
        s += gap * (0.7 + 0.6 * random.unit());
    }
    steps
}
