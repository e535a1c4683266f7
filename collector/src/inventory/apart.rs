//! What it costs to keep a world beside a later one: what they share costs nothing.

use std::sync::Arc;

use super::World;

/// A port that changed, with one block of each of its histories and its counters, bytes: measured on the simulated node.
const PORT: usize = 150 * 1024;
/// A device, a function, a finding or a list that changed, bytes.
const PART: usize = 4 * 1024;
/// The world itself, bytes.
const WORLD: usize = 16 * 1024;

impl World {
    /// About the memory this world takes while `later` is kept too, bytes: the parts of it that changed since. An estimate
    /// from how many they are; it looks at no single QP.
    #[must_use]
    pub fn apart_from(&self, later: &Self) -> usize {
        let ports = changed(&self.ports, &later.ports);
        let smaller = changed(&self.devices, &later.devices)
            + changed(&self.findings, &later.findings)
            + changed(&self.failovers, &later.failovers)
            + self.pcie.iter().filter(|(pci, own)| !later.pcie.get(*pci).is_some_and(|n| Arc::ptr_eq(own, n))).count()
            + usize::from(!Arc::ptr_eq(&self.qp_failures, &later.qp_failures))
            + usize::from(!Arc::ptr_eq(&self.qp_errors, &later.qp_errors));
        WORLD + ports * PORT + smaller * PART + self.qps.apart_from(&later.qps)
    }
}

/// How many parts of a list are not the very same in another.
fn changed<T>(own: &[Arc<T>], other: &[Arc<T>]) -> usize {
    own.iter().enumerate().filter(|(at, part)| !other.get(*at).is_some_and(|other| Arc::ptr_eq(part, other))).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::observation::recording::Header;
    use crate::observation::{Body, Observation, Port, PortState, Qp, QpEvent, QpStats};
    use crate::rule::Settings;

    #[test]
    fn a_world_costs_what_changed_since() {
        let mut engine = Engine::new(Header::new(), Settings::default());
        let mut take = |t: u64, body: Body<'_>| {
            engine.take(&Observation { t, body });
            engine.snapshot()
        };
        for qpn in 0..2_000 {
            take(1, Body::Qp(Qp { device: "d".into(), qpn, event: QpEvent::Seen, ..Qp::default() }));
        }
        // Two ports: nobody knows which one the QPs are on, so what they do changes neither.
        take(2, Body::Port(Port { device: "d".into(), port: 2, ..Port::default() }));
        let first = take(2, Body::Port(Port { device: "d".into(), port: 1, ..Port::default() }));
        assert_eq!(first.apart_from(&first), WORLD, "it shares everything with itself");
        let stats = QpStats { device: "d".into(), qpn: 7, posts: 1, wrs: 1, ..QpStats::default() };
        let second = take(3, Body::QpStats(stats));
        let qps = first.apart_from(&second);
        // A chunk has 512; a QP takes up to 256 bytes, and its history more.
        assert!(qps > WORLD + 512 * 64 && qps < WORLD + 600 * 2_856, "one chunk of the QPs, not all of them: {qps}");
        let down = Port { device: "d".into(), port: 1, state: PortState::Down, ..Port::default() };
        let third = take(4, Body::Port(down));
        assert_eq!(first.apart_from(&third), qps + PORT);
    }
}
