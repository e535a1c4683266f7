//! The NIC's PCIe link loses lanes or speed.

use super::{Fault, Step};
use crate::sim::job::JobKind;
use crate::sim::node::Shape;

pub(super) const FAULT: Fault = Fault {
    name: "pcie-downgrade",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 150.0,
    also: &["pcie.bandwidth_bound", "port.unstable_bandwidth"],
    play: |_, stage, random| {
        let port = stage.port;
        let (speed_gts, width) = [(32.0, 8), (16.0, 16), (8.0, 16), (32.0, 4)][random.index(4)];
        vec![
            Step::truth(stage.onset_s, port, "pcie.downgrade", true),
            Step::at_s(stage.onset_s, move |node, _, _| {
                let function = node.ports[port].function;
                // Both ends of the link: the bridge in front of the NIC is the function before it.
                for end in [function - 1, function] {
                    node.functions[end].speed_gts = speed_gts;
                    node.functions[end].width = width;
                }
                // After line coding, headers of 256-byte payloads and flow control.
                let gbps = speed_gts * f64::from(width) * (128.0 / 130.0) * 0.914 * 0.97;
                node.ports[port].condition.cap_gbps = Some(gbps);
            }),
        ]
    },
};
