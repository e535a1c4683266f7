//! One second of the node's traffic.

use super::node::{Node, RATE_GBPS, SimPort, SimQp};
use super::random::Random;

const MIB: u64 = 1 << 20;
/// Headers of a `RoCEv2` packet around 4096 bytes of payload.
const OVERHEAD: f64 = 1.016;
/// CPU time of one data-path probe hit, ns: an emulated first instruction on bare metal.
pub(super) const HIT_NS: u64 = 330;

impl Node {
    /// Everything that is counted moves on by a second.
    pub(super) fn second(&mut self) {
        self.seconds += 1;
        // A training step: compute, then exchange gradients.
        let phase = (self.seconds % 9) as f64 / 9.0;
        let step = if phase < 0.2 { 0.93 } else { 1.02 };
        for port in &mut self.ports {
            self.hits += port.second(step, &mut self.random);
        }
    }
}

impl SimPort {
    /// One second of traffic; the data-path probe hits it caused.
    fn second(&mut self, step: f64, random: &mut Random) -> u64 {
        if !self.up {
            self.idle();
            return 0;
        }
        self.load = (self.load + 0.2 * (self.mean_load - self.load) + 0.008 * random.swing()).clamp(0.02, 0.96);
        let step = if self.infiniband { 1.0 } else { step };
        let bytes = RATE_GBPS * 1e9 / 8.0 * self.load * step;
        let live = self.qps.iter().filter(|qp| qp.alive).count().max(1) as f64;
        let mut posted = 0;
        let mut hits = 0;
        for qp in self.qps.iter_mut().filter(|qp| qp.alive) {
            let share = bytes / live * (1.0 + 0.04 * random.swing());
            hits += qp.second(share, random, &mut posted);
        }
        // Some traffic is not posted where the probes look.
        let sent = posted as f64 * 1.02 * OVERHEAD;
        let received = sent * (1.0 + 0.01 * random.swing());
        self.count(sent, received, random);
        hits
    }

    fn count(&mut self, sent: f64, received: f64, random: &mut Random) {
        let (tx, rx) = (whole(sent), whole(received));
        let (tx_packets, rx_packets) = (tx / 4162, rx / 4162);
        self.pma.add("port_xmit_data", tx / 4);
        self.pma.add("port_rcv_data", rx / 4);
        self.pma.add("port_xmit_packets", tx_packets);
        self.pma.add("port_rcv_packets", rx_packets);
        self.pma.add("unicast_xmit_packets", tx_packets);
        self.pma.add("unicast_rcv_packets", rx_packets);
        self.hw.add_32("rx_write_requests", rx / MIB);
        // A packet that took another way now and then.
        if random.below(40) == 0 {
            self.hw.add("out_of_sequence", 1 + random.below(3));
        }
        if self.infiniband {
            self.pma.add("port_xmit_wait", random.count(2_000.0));
            return;
        }
        let marked = random.count(1.2);
        self.hw.add("np_ecn_marked_roce_packets", marked);
        self.hw.add("np_cnp_sent", marked - random.below(marked + 1) / 4);
        self.hw.add("rp_cnp_handled", random.count(1.0));
        let ethtool = &mut self.ethtool;
        ethtool.add("tx_bytes_phy", tx + tx_packets * 24);
        ethtool.add("rx_bytes_phy", rx + rx_packets * 24);
        ethtool.add("tx_packets_phy", tx_packets);
        ethtool.add("rx_packets_phy", rx_packets);
        ethtool.add("tx_prio3_bytes", tx);
        ethtool.add("rx_prio3_bytes", rx);
        ethtool.add("tx_prio3_packets", tx_packets);
        ethtool.add("rx_prio3_packets", rx_packets);
        // PAM4 with a bit error ratio of 1e-8 before FEC.
        ethtool.add("rx_bits_phy", 425_000_000_000);
        let corrected = 4_250.0 * (1.0 + 0.1 * random.swing());
        ethtool.add("rx_corrected_bits_phy", random.count(corrected));
        let paused = random.below(5) == 0;
        ethtool.add("rx_prio3_pause", u64::from(paused) * 2);
        ethtool.add("rx_prio3_pause_duration", u64::from(paused) * (40 + random.below(300)));
        ethtool.set("outbound_pci_stalled_rd", random.below(3));
        ethtool.set("outbound_pci_stalled_wr", random.below(2));
    }

    fn idle(&mut self) {
        self.ethtool.set("outbound_pci_stalled_rd", 0);
        self.ethtool.set("outbound_pci_stalled_wr", 0);
        self.load = 0.0;
    }
}

impl SimQp {
    fn second(&mut self, bytes: f64, random: &mut Random, posted: &mut u64) -> u64 {
        let large = whole(bytes) / MIB * 3 / 4;
        let half = (whole(bytes) / MIB).saturating_sub(large) * 2;
        let small = 6 + random.below(5);
        let control = 8 + random.below(5);
        let wrs = large + half + small + control;
        // Lists of sixteen work requests, control messages one by one.
        let posts = (large + half).div_ceil(16) + small + control;
        self.size.0[20] += large;
        self.size.0[19] += half;
        self.size.0[12] += small;
        self.size.0[6] += control;
        let moved = large * MIB + half * (MIB / 2) + small * 4096 + control * 64;
        self.bytes += moved;
        self.wrs += wrs;
        self.posts += posts;
        self.switches += posts / 2;
        self.completions += posts;
        let tail = (large + half) / 400;
        self.latency.0[21] += tail;
        self.latency.0[20] += (large + half).div_ceil(16).saturating_sub(tail);
        self.latency.0[14] += small;
        self.latency.0[13] += control;
        self.changed = true;
        *posted += moved;
        posts
    }
}

fn whole(value: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of one second")]
    let whole = value.max(0.0) as u64;
    whole
}
