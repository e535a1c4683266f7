//! How much of the node's RDMA activity the probes see.

use super::World;
use crate::timeline::counter_table::Meaning;

/// Windows over which traced and counted bytes are compared: both jitter by a sweep against a poll.
const WINDOWS: usize = 10;

/// How much of the node's RDMA activity the probes see.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Coverage {
    /// Bytes that traced work requests send over the bytes the ports' counters say were sent, 0–1, over the last ten
    /// windows. `None` when nothing is traced, no port counts bytes, or nothing was sent. An estimate: counters also count
    /// headers, acknowledgements, what is sent again, and answers to RDMA READs, which nobody here posts, so it is below 1
    /// where everything is traced (far below with small messages); and what is posted may be sent a window later, so it is
    /// cut at 1.
    pub bytes_ratio: Option<f64>,
    /// Posts are watched in windows only, and the traced bytes scaled to the whole time.
    pub sampled: bool,
    /// Bytes per second that ports send and nothing that was seen explains, headers included; of the ports of which it is
    /// known. `None` where it is known of none.
    pub unexplained: Option<f64>,
    /// QPs with traced numbers.
    pub qps_traced: usize,
    /// QPs that are there.
    pub qps: usize,
}

impl World {
    /// How much of the node's RDMA activity the probes see.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        Coverage {
            bytes_ratio: self.traced_share(),
            sampled: self.probes.as_ref().is_some_and(|probes| probes.posts_watched_ns.is_some()),
            unexplained: self
                .present_ports()
                .filter_map(|(_, port)| self.unexplained(port))
                .fold(None, |sum, bytes| Some(sum.unwrap_or(0.0) + bytes)),
            qps_traced: self.qps.traced(),
            qps: self.qps.len(),
        }
    }

    /// [`Coverage::bytes_ratio`] alone.
    #[must_use]
    pub fn traced_share(&self) -> Option<f64> {
        let (mut traced, mut counted) = (0.0, 0.0);
        for (_, port) in self.present_ports() {
            let Some(sent) = port.rates.get(&Meaning::TxBytes) else { continue };
            let pairs = port.traced.newest_first().zip(sent.newest_first()).take(WINDOWS);
            for (probe, counter) in pairs.filter_map(|(probe, counter)| Some((probe?, counter?))) {
                traced += probe;
                counted += counter;
            }
        }
        (counted > 0.0).then(|| (traced / counted).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{DeviceId, DeviceRecord, PortKey, PortRecord};
    use crate::observation::PortState;
    use crate::observation::recording::Header;
    use std::sync::Arc;

    fn world(traced: &[Option<f64>], sent: &[Option<f64>]) -> World {
        let mut world = World::new(Header::new());
        world.devices.push(Arc::new(DeviceRecord::new("d", 0)));
        let mut port = PortRecord::new(PortKey { device: DeviceId(0), port: 1 }, 0, PortState::Active);
        for value in traced {
            port.traced.push(*value);
        }
        let ring = port.rates.or_default(Meaning::TxBytes);
        for value in sent {
            ring.push(*value);
        }
        world.add_port(port);
        world
    }

    #[test]
    fn windows_in_which_one_side_is_unknown_do_not_count() {
        let world = world(&[Some(50.0), None, Some(25.0)], &[Some(100.0), Some(900.0), None]);
        assert_eq!(world.coverage().bytes_ratio, Some(0.5));
    }

    #[test]
    fn without_traffic_or_probes_the_ratio_is_unknown() {
        assert_eq!(world(&[], &[Some(100.0)]).coverage().bytes_ratio, None);
        assert_eq!(world(&[Some(0.0)], &[Some(0.0)]).coverage().bytes_ratio, None);
    }
}
