//! Firmware that has stopped: registers read as ones, or nothing is answered, or the driver noticed first.

use super::{Fault, Step};
use crate::sim::job::JobKind;
use crate::sim::node::Shape;

pub(super) const FAULT: Fault = Fault {
    name: "stuck-firmware",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 90.0,
    also: &["counter.saturated"],
    play: |_, stage, random| {
        let (port, at) = (stage.port, stage.onset_s);
        let form = random.below(3);
        let noticed = if form == 2 { at } else { at + random.between(6.0, 12.0) };
        let mut steps = vec![
            Step::truth(noticed, port, "nic.health", true),
            // The driver polls the firmware's heartbeat every two to three seconds and gives up after three misses.
            Step::at_s(noticed, move |node, t, emit| {
                node.health(
                    t,
                    port,
                    "fw_fatal",
                    "FW fatal reporter: device's health compromised - reached miss count",
                    emit,
                );
            }),
        ];
        if form < 2 {
            steps.push(Step::truth(at, port, "nic.stuck", true));
            steps.push(Step::at_s(at, move |node, _, _| {
                let condition = &mut node.ports[port].condition;
                *(if form == 0 { &mut condition.all_ones } else { &mut condition.silent }) = true;
            }));
        }
        steps
    },
};
