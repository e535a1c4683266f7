//! The fabric pauses its senders for most of the time, and marks nothing.

use super::{Fault, Scenario, ScenarioInfo, Stage, Step};
use crate::sim::job::{JobKind, Pattern};
use crate::sim::node::{RAILS, Shape};

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "pfc-storm",
        summary: "switches pause every rail for 45 % of the time and mark nothing, from 15 s on",
    },
    shape: Shape::TRAINING,
    plan: |_, random| (0..RAILS).flat_map(|port| storm(15.0, port, 0.45 + 0.03 * random.swing())).collect(),
};

pub(super) const FAULT: Fault = Fault {
    name: "pfc-storm",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 240.0,
    also: &["ecn.not_ect", "port.unstable_bandwidth"],
    play: |node, Stage { port, onset_s, .. }, random| {
        node.job.pattern = Pattern { load: random.between(0.5, 0.9), communicating: 1.0, ..node.job.pattern };
        storm(onset_s, port, random.between(0.15, 0.8))
    },
};

fn storm(s: f64, port: usize, paused: f64) -> Vec<Step> {
    vec![
        Step::truth(s, port, "ecn.missed", true),
        Step::at_s(s, move |node, _, _| {
            node.ports[port].condition.marking = None;
            node.ports[port].condition.paused = paused;
        }),
    ]
}
