//! A receiver that posts too few buffers: here, or at the other end.

use super::{Fault, Step};
use crate::sim::job::JobKind;
use crate::sim::node::Shape;

pub(super) const FAULT: Fault = Fault {
    name: "rnr-receiver",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 120.0,
    also: &[],
    play: |_, stage, random| {
        let (port, rate) = (stage.port, random.log_between(5.0, 2_000.0));
        let here = random.below(2) == 0;
        vec![
            Step::truth(stage.onset_s, port, "qp.rnr", true),
            Step::at_s(stage.onset_s, move |node, _, _| {
                let condition = &mut node.ports[port].condition;
                *(if here { &mut condition.rnr_received_per_s } else { &mut condition.rnr_sent_per_s }) = rate;
            }),
        ]
    },
};
