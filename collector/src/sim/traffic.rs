//! One tick of the node's traffic.

use super::congestion::{Conditions, Congestion, Control};
use super::job::{Offer, Pattern};
use super::node::{Node, RATE_GBPS, SimPort};
use super::qp::{Spread, Use};
use super::random::Random;

/// Headers of a `RoCEv2` packet around 4096 bytes of payload.
const OVERHEAD: f64 = 1.016;
const PACKET_BYTES: u64 = 4_162;
/// Bits a second the four lanes of a port could carry.
const LINE_BITS_PER_S: f64 = 425e9;
/// Bulk transfers are posted in messages of this size at least.
const LEAST_MESSAGE: f64 = 131_072.0;
/// More of the time no port is paused.
const MOST_PAUSED: f64 = 0.95;
/// A pause frame is renewed while it lasts; a short one takes so long, ns.
pub(super) const PAUSE_NS: f64 = 30_000.0;
/// What a queue that pauses its senders takes to empty, ns: 2 MB at 400 Gb/s, as in the table.
const PAUSING_NS: f64 = 40_000.0;
/// Of a node on which not all QPs are in use: the share of them that send as much as each for itself. Fewer send as much
/// together.
const USUAL_SHARE: f64 = 0.1;

/// What all ports share in a tick.
struct Tick {
    dt_s: f64,
    offer: Offer,
    pattern: Pattern,
    active_qps: f64,
    outstanding: f64,
}

impl Node {
    /// Everything that is counted moves on by so many seconds.
    pub(super) fn tick(&mut self, dt_s: f64) {
        let offer = self.job.offer(self.elapsed_s, dt_s);
        self.elapsed_s += dt_s;
        let tick = Tick {
            dt_s,
            offer,
            pattern: self.job.pattern,
            active_qps: self.shape.active_qps,
            outstanding: self.job.outstanding(),
        };
        for port in &mut self.ports {
            self.hits += port.tick(&tick, &mut self.random);
        }
    }
}

impl SimPort {
    /// One tick of traffic; the data-path probe hits it caused.
    fn tick(&mut self, tick: &Tick, random: &mut Random) -> u64 {
        self.physics(tick.dt_s, random);
        if !self.up || self.gone {
            self.load = 0.0;
            return 0;
        }
        let offered = if self.infiniband { tick.offer.storage } else { tick.offer.load };
        let load = (offered * self.weight * (1.0 + 0.03 * random.swing())).clamp(0.0, 0.98);
        let congestion = self.conditions(load, &tick.pattern).congestion();
        let paused = (congestion.pause_share + self.condition.paused).min(MOST_PAUSED);
        let mut carried = congestion.utilisation * (1.0 - self.condition.paused);
        if let Some(cap) = self.condition.cap_gbps {
            carried = carried.min(cap * (1.0 + 0.01 * random.swing()) / RATE_GBPS);
        }
        let share = if self.infiniband { 1.0 } else { tick.offer.share };
        self.load = carried * share;
        let bytes = RATE_GBPS * 1e9 / 8.0 * self.load * tick.dt_s;
        let (moved, hits) = self.post(bytes, tick, &congestion, random);
        // Some traffic is not posted where the probes look; what arrives is about what is sent.
        let sent = moved.max(bytes * 0.97) * OVERHEAD;
        // Between bursts the peers' control messages come as this port's go.
        let arrives = if bytes > 0.0 { bytes } else { moved };
        let received = arrives * OVERHEAD * (1.0 + 0.01 * random.swing());
        self.count(sent, received, random);
        if self.infiniband {
            self.pma.add("port_xmit_wait", random.count(4_000.0 * self.load * tick.dt_s));
        } else {
            self.congest(&congestion, paused * share, received / PACKET_BYTES as f64, tick.dt_s, random);
        }
        self.requests(tick.dt_s, random);
        hits
    }

    fn conditions(&self, load: f64, pattern: &Pattern) -> Conditions {
        let condition = &self.condition;
        // Receivers that send no CNPs and senders that obey none leave the same queue.
        let control = if condition.np_off || condition.rp_off { Control::Off } else { condition.control };
        let marking = condition.marking.filter(|_| !self.infiniband && !condition.wrong_class);
        Conditions { load, burst_bytes: pattern.burst_bytes, senders: pattern.senders, marking, control }
    }

    /// The QPs post what the port carries.
    fn post(&mut self, bytes: f64, tick: &Tick, congestion: &Congestion, random: &mut Random) -> (f64, u64) {
        let fetch = self.condition.fetch_ns;
        let message = tick.pattern.burst_bytes.max(LEAST_MESSAGE).log2().round();
        let paused = self.condition.paused.min(MOST_PAUSED);
        // Who pauses has a queue between its two limits, and all of this passes through it.
        let late = fetch + if paused > 0.0 { PAUSING_NS } else { 0.0 };
        let small = Spread::small(congestion, late, paused);
        // A message of several bursts takes several times as long.
        let large = Spread::large(congestion, (message.exp2() / tick.pattern.burst_bytes).max(1.0), late, paused);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a logarithm of bytes")]
        let class = message as usize;
        // Always the same ones: what is counted of a QP begins with its second reading.
        let n = self.qps.len() as f64;
        let active = |at: usize| (at as f64) < tick.active_qps * n;
        let of_bulk = |(at, qp): &(usize, &super::qp::SimQp)| active(*at) && qp.alive && qp.used_for == Use::Bulk;
        let each = bytes / (self.qps.iter().enumerate().filter(of_bulk).count() as f64).max(1.0);
        // Control traffic follows the bulk: rendezvous, credits, barriers.
        let mut messages = if tick.offer.running { (60.0 + 2_000.0 * self.load) * tick.dt_s } else { 0.0 };
        if tick.outstanding > 0.0 && !self.infiniband {
            // Whoever keeps so many outstanding sends as often as their latency allows.
            let latency_s = (congestion.small_ns[0] + late + paused * PAUSE_NS / 2.0) / 1e9;
            messages = tick.outstanding / latency_s * tick.dt_s / n.max(1.0);
        }
        if tick.active_qps < 1.0 {
            messages *= USUAL_SHARE / tick.active_qps;
        }
        let (mut moved, mut hits) = (0, 0);
        for (_, qp) in self.qps.iter_mut().enumerate().filter(|(at, qp)| active(*at) && qp.alive) {
            let this = match qp.used_for {
                Use::Bulk => qp.bulk(each * (1.0 + 0.04 * random.swing()), class, &large, &small, random),
                Use::Small => qp.small(messages * (1.0 + 0.1 * random.swing()), &small, random),
            };
            moved += this.bytes;
            hits += this.posts;
        }
        (moved as f64, hits)
    }

    fn count(&mut self, sent: f64, received: f64, random: &mut Random) {
        let (tx, rx) = (random.count(sent), random.count(received));
        let (tx_packets, rx_packets) = (tx.div_ceil(PACKET_BYTES), rx.div_ceil(PACKET_BYTES));
        self.pma.add("port_xmit_data", tx / 4);
        self.pma.add("port_rcv_data", rx / 4);
        self.pma.add("port_xmit_packets", tx_packets);
        self.pma.add("port_rcv_packets", rx_packets);
        self.pma.add("unicast_xmit_packets", tx_packets);
        self.pma.add("unicast_rcv_packets", rx_packets);
        self.hw.add_32("rx_write_requests", rx >> 19);
        let ethtool = &mut self.ethtool;
        ethtool.add("tx_bytes_phy", tx + tx_packets * 24);
        ethtool.add("rx_bytes_phy", rx + rx_packets * 24);
        ethtool.add("tx_packets_phy", tx_packets);
        ethtool.add("rx_packets_phy", rx_packets);
        let names = if self.condition.wrong_class {
            ["tx_prio0_bytes", "rx_prio0_bytes", "tx_prio0_packets", "rx_prio0_packets"]
        } else {
            ["tx_prio3_bytes", "rx_prio3_bytes", "tx_prio3_packets", "rx_prio3_packets"]
        };
        for (name, n) in names.into_iter().zip([tx, rx, tx_packets, rx_packets]) {
            ethtool.add(name, n);
        }
        // Everything else on the network device: ARP, ssh, metrics.
        let other = random.below(40);
        ethtool.add("tx_prio0_packets", other);
        ethtool.add("rx_prio0_packets", other);
        ethtool.add("tx_prio0_bytes", other * 300);
        ethtool.add("rx_prio0_bytes", other * 300);
    }

    /// Marks, CNPs and pause of a RoCE port.
    fn congest(&mut self, congestion: &Congestion, paused: f64, packets: f64, dt_s: f64, random: &mut Random) {
        let condition = &self.condition;
        let (marks, mut cnps) = congestion.marks(packets, random);
        // What the peers' receivers sent to this node.
        let (_, mut arrived) = congestion.marks(packets, random);
        if condition.np_off {
            cnps = 0;
        } else if condition.rp_off {
            // The peers obey, so what they send here is marked less; what this node sends is not.
            arrived *= 2;
        }
        self.hw.add("np_ecn_marked_roce_packets", marks);
        self.hw.add("np_cnp_sent", cnps);
        self.hw.add(if condition.rp_off { "rp_cnp_ignored" } else { "rp_cnp_handled" }, arrived);
        if condition.wrong_class && self.load > 0.2 {
            // Without PFC the queue drops.
            let lost = random.poisson(20.0 * dt_s * self.load);
            self.hw.add("out_of_sequence", lost * 3);
            self.hw.add("packet_seq_err", lost);
            self.hw.add("roce_slow_restart", lost);
        }
        let ethtool = &mut self.ethtool;
        ethtool.add("tx_prio6_packets", cnps);
        ethtool.add("tx_prio6_bytes", cnps * 74);
        ethtool.add("rx_prio6_packets", arrived);
        ethtool.add("rx_prio6_bytes", arrived * 74);
        ethtool.add("rx_prio3_marked", random.count(condition.host_marking * packets));
        let (stalled_rd, stalled_wr) =
            (random.below(condition.pci_stalled + 1), random.below(condition.pci_stalled + 1));
        ethtool.set("outbound_pci_stalled_rd", stalled_rd);
        ethtool.set("outbound_pci_stalled_wr", condition.pci_stalled.saturating_sub(stalled_wr / 4));
        if condition.wrong_class {
            return;
        }
        let paused_us = paused * dt_s * 1e6 * (1.0 + 0.1 * random.swing());
        let spells = paused_us * 1e3 / PAUSE_NS;
        ethtool.add("rx_prio3_pause_duration", random.count(paused_us));
        ethtool.add("rx_prio3_pause", random.count(spells) * 2);
        ethtool.add("rx_prio3_pause_transition", random.count(spells));
        // The device's own tick: 16 ns here.
        self.pma.add("port_xmit_wait", random.count(paused_us * 62.5));
    }

    /// Requests that were repeated, for one reason or another.
    fn requests(&mut self, dt_s: f64, random: &mut Random) {
        // A packet that took another way now and then.
        if random.unit() < dt_s / 40.0 {
            self.hw.add("out_of_sequence", 1 + random.below(3));
        }
        let condition = &self.condition;
        self.hw.add_32("rnr_nak_retry_err", random.poisson(condition.rnr_sent_per_s * dt_s));
        let refused = random.poisson(condition.rnr_received_per_s * dt_s);
        self.hw.add_32("out_of_buffer", refused);
        self.hw.add_32("duplicate_request", refused);
    }

    /// What the optics and the board count, traffic or not.
    fn physics(&mut self, dt_s: f64, random: &mut Random) {
        let condition = &self.condition;
        self.hwmon.set("temp1_input", 62_000 + condition.heat + random.below(4) * 1_000);
        if self.infiniband {
            let symbols = random.poisson(condition.post_fec_per_s * dt_s);
            self.pma.add_to("symbol_error", symbols, 0xffff);
            return;
        }
        // A link that is down receives nothing that could be wrong.
        if !self.up || self.gone {
            return;
        }
        let ethtool = &mut self.ethtool;
        let bits = LINE_BITS_PER_S * dt_s;
        let noise = 1.0 + 0.1 * random.swing();
        let corrected = random.count(bits * condition.bit_errors * noise);
        ethtool.add("rx_bits_phy", random.count(bits));
        ethtool.add("rx_corrected_bits_phy", corrected);
        ethtool.add("corrected_blocks", corrected / 2);
        for (lane, name) in
            (0..).zip(["rx_err_lane_0_phy", "rx_err_lane_1_phy", "rx_err_lane_2_phy", "rx_err_lane_3_phy"])
        {
            let share = match condition.bad_lane {
                None => 0.25,
                Some(bad) if bad == lane => 0.94,
                Some(_) => 0.02,
            };
            ethtool.add(name, random.count(corrected as f64 * share));
        }
        let symbols = random.poisson(condition.post_fec_per_s * dt_s);
        ethtool.add("rx_pcs_symbol_err_phy", symbols);
        ethtool.add("uncorrectable_blocks", symbols / 3);
        ethtool.add("rx_symbol_err_phy", symbols / 5);
        let bad = random.poisson(condition.crc_per_s * dt_s);
        ethtool.add("rx_crc_errors_phy", bad);
        self.hw.add("out_of_sequence", bad);
    }
}
