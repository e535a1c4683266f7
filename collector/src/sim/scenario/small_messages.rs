//! A job that moves its data in small messages, one at a time.

use super::{Fault, Scenario, ScenarioInfo, Stage, Step};
use crate::sim::job::JobKind;
use crate::sim::node::{Node, RAILS, Shape};
use crate::sim::qp::Use;

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "small-messages",
        summary: "4 KB messages, eight of them outstanding on a port: the rails idle while the job waits",
    },
    shape: Shape { job: JobKind::SmallMessages, ..Shape::TRAINING },
    plan: |node, _| {
        small_from_the_start(node);
        (0..RAILS).map(|port| Step::truth(0.0, port, "qp.small_messages", true)).collect()
    },
};

pub(super) const FAULT: Fault = Fault {
    name: "small-messages",
    shape: Shape { job: JobKind::SmallMessages, ..Shape::TRAINING },
    lasts_s: 60.0,
    also: &[],
    play: |node, Stage { .. }, _| {
        small_from_the_start(node);
        (0..RAILS).map(|port| Step::truth(0.0, port, "qp.small_messages", true)).collect()
    },
};

fn small_from_the_start(node: &mut Node) {
    for port in node.ports.iter_mut().filter(|port| !port.infiniband) {
        port.qps.iter_mut().for_each(|qp| qp.used_for = Use::Small);
    }
}
