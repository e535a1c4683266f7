//! A port falls for good, and everything on it.

use super::Step;
use crate::sim::node::Node;

/// The port goes down at a time; its QPs run out of retries a little later.
pub(super) fn fall(node: &Node, port: usize, at_s: f64) -> Vec<Step> {
    let mut steps = vec![
        Step::truth(at_s, port, "link.down", true),
        Step::truth(at_s, port, "nic.composite", true),
        Step::at_s(at_s, move |node, t, emit| node.port_down(t, port, emit)),
        // The event makes the other sources look at once.
        Step::at_s(at_s + 0.004, move |node, t, emit| node.look(t, port, emit)),
        Step::truth(at_s + 0.271, port, "qp.retry_exceeded", true),
        Step::truth(at_s + 0.271, port, "qp.error_state", true),
    ];
    // 4.096 µs · 2^13 · (7 retries + 1) = 268 ms after the request that is not acknowledged, which was sent as the port fell.
    let qps = node.ports[port].qps.len();
    for at in 0..qps {
        let spread = if qps > 1 { at as f64 / (qps - 1) as f64 } else { 0.0 };
        let s = at_s + 0.271_01 + 0.039 * spread;
        steps.push(Step::at_s(s, move |node, t, emit| node.qp_dies(t, port, at, emit)));
    }
    steps
}
