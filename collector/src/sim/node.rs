//! The simulated node: eight 400 Gb/s RoCE ports of a training job and one InfiniBand port for storage.

use super::random::Random;
use crate::observation::Histogram;

/// RoCE ports.
pub(super) const RAILS: usize = 8;
/// Signalling rate of every port, Gb/s.
pub(super) const RATE_GBPS: f64 = 400.0;
/// Counters of `ports/1/counters/`, in the kernel's order of names.
pub(super) const PMA: &[&str] = &[
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
];
/// mlx5's Q counters, then its congestion counters, which an InfiniBand port does not have.
pub(super) const HW: &[&str] = &[
    "rx_write_requests",
    "rx_read_requests",
    "rx_atomic_requests",
    "rx_dct_connect",
    "out_of_buffer",
    "out_of_sequence",
    "duplicate_request",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "resp_local_length_error",
    "resp_cqe_error",
    "req_cqe_error",
    "req_remote_invalid_request",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "resp_cqe_flush_error",
    "req_cqe_flush_error",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rx_icrc_encapsulated",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
];
/// Those of [`HW`] an InfiniBand port has.
pub(super) const HW_INFINIBAND: usize = 21;
/// Some of `ethtool -S` of a RoCE port.
pub(super) const ETHTOOL: &[&str] = &[
    "rx_packets_phy",
    "tx_packets_phy",
    "rx_bytes_phy",
    "tx_bytes_phy",
    "rx_crc_errors_phy",
    "rx_symbol_err_phy",
    "rx_discards_phy",
    "tx_discards_phy",
    "link_down_events_phy",
    "rx_pcs_symbol_err_phy",
    "rx_corrected_bits_phy",
    "rx_bits_phy",
    "rx_prio3_bytes",
    "rx_prio3_packets",
    "rx_prio3_pause",
    "rx_prio3_pause_duration",
    "tx_prio3_bytes",
    "tx_prio3_packets",
    "tx_prio3_pause",
    "tx_prio3_pause_duration",
    "outbound_pci_stalled_rd",
    "outbound_pci_stalled_wr",
];

/// How large the node is: a smaller one is simulated faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// QPs of a RoCE port; the InfiniBand port has a quarter of that.
    pub qps_per_port: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { qps_per_port: 64 }
    }
}

/// Everything the simulator knows of its node.
pub(super) struct Node {
    pub(super) random: Random,
    pub(super) ports: Vec<SimPort>,
    pub(super) functions: Vec<SimFunction>,
    /// Data-path probe hits.
    pub(super) hits: u64,
    /// Seconds simulated.
    pub(super) seconds: u64,
}

/// One port, of a device of its own.
pub(super) struct SimPort {
    pub(super) device: String,
    pub(super) netdev: String,
    pub(super) guid: String,
    pub(super) gid: String,
    pub(super) infiniband: bool,
    pub(super) up: bool,
    pub(super) pma: Counters,
    pub(super) hw: Counters,
    pub(super) ethtool: Counters,
    /// Where its function is in [`Node::functions`].
    pub(super) function: usize,
    pub(super) qps: Vec<SimQp>,
    /// Share of the rate it carries on average, and now.
    pub(super) mean_load: f64,
    pub(super) load: f64,
}

/// A set of counters: names, and a value for each.
pub(super) struct Counters {
    pub(super) names: &'static [&'static str],
    pub(super) values: Vec<u64>,
}

impl Counters {
    fn new(names: &'static [&'static str]) -> Self {
        Self { names, values: vec![0; names.len()] }
    }

    fn at(&self, name: &str) -> usize {
        self.names.iter().position(|n| *n == name).expect("the simulator names counters of its own lists")
    }

    /// Adds to a counter; one the set does not have counts nothing.
    pub(super) fn add(&mut self, name: &str, n: u64) {
        if self.names.is_empty() {
            return;
        }
        let at = self.at(name);
        self.values[at] = self.values[at].wrapping_add(n);
    }

    /// Adds to a counter of 32 bits, as mlx5's Q counters are.
    pub(super) fn add_32(&mut self, name: &str, n: u64) {
        self.add(name, n);
        if let Some(value) = self.names.iter().position(|n| *n == name).and_then(|at| self.values.get_mut(at)) {
            *value &= 0xffff_ffff;
        }
    }

    /// Sets a gauge, or a counter's past.
    pub(super) fn set(&mut self, name: &str, value: u64) {
        if !self.names.is_empty() {
            let at = self.at(name);
            self.values[at] = value;
        }
    }
}

/// One QP.
pub(super) struct SimQp {
    pub(super) qpn: u32,
    pub(super) remote_qpn: u32,
    pub(super) pid: Option<u32>,
    pub(super) comm: &'static str,
    pub(super) remote_gid: String,
    pub(super) timeout: u8,
    pub(super) alive: bool,
    pub(super) changed: bool,
    pub(super) posts: u64,
    pub(super) wrs: u64,
    pub(super) bytes: u64,
    pub(super) completions: u64,
    pub(super) switches: u64,
    pub(super) retry_exceeded: u64,
    pub(super) flushed: u64,
    pub(super) size: Histogram,
    pub(super) latency: Histogram,
}

/// One PCIe function on the way to a port.
pub(super) struct SimFunction {
    pub(super) pci: String,
    pub(super) class: &'static str,
    pub(super) path: Vec<String>,
    pub(super) aer: AerCounts,
    pub(super) root: bool,
}

/// AER totals: the kinds the scenarios use.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AerCounts {
    pub(super) rx_err: u64,
    pub(super) bad_tlp: u64,
    pub(super) rollover: u64,
    pub(super) cmplt_to: u64,
    pub(super) corrected: u64,
    pub(super) nonfatal: u64,
    pub(super) fatal: u64,
    pub(super) root_corrected: u64,
    pub(super) root_nonfatal: u64,
}

impl Node {
    pub(super) fn new(seed: u64, size: Size) -> Self {
        let mut node =
            Self { random: Random::new(seed), ports: Vec::new(), functions: Vec::new(), hits: 0, seconds: 0 };
        for rail in 0..RAILS {
            let base = [0x15, 0x3a, 0x97, 0xc5][rail / 2];
            let (root, up) = (format!("0000:{base:02x}:01.0"), format!("0000:{:02x}:00.0", base + 1));
            let down = format!("0000:{:02x}:{:02x}.0", base + 2, rail % 2);
            let nic = format!("0000:{:02x}:00.0", base + 3 + rail % 2);
            if rail % 2 == 0 {
                node.function("0x060400", vec![root.clone()]);
                node.function("0x060400", vec![root.clone(), up.clone()]);
            }
            node.function("0x060400", vec![root.clone(), up.clone(), down.clone()]);
            node.function("0x020000", vec![root, up, down, nic]);
            node.port(rail, false, size.qps_per_port);
        }
        node.function("0x060400", vec!["0000:e6:01.0".to_owned()]);
        node.function("0x020700", vec!["0000:e6:01.0".to_owned(), "0000:e7:00.0".to_owned()]);
        node.port(RAILS, true, size.qps_per_port.div_ceil(4));
        node
    }

    fn function(&mut self, class: &'static str, path: Vec<String>) {
        let pci = path.last().expect("a path ends at the function").clone();
        let root = path.len() == 1;
        self.functions.push(SimFunction { pci, class, path, aer: AerCounts::default(), root });
    }

    fn port(&mut self, index: usize, infiniband: bool, qps: u32) {
        let number = u32::try_from(index).expect("a node has few ports");
        let mut pma = Counters::new(PMA);
        let mut hw = Counters::new(if infiniband { &HW[..HW_INFINIBAND] } else { HW });
        let mut ethtool = Counters::new(if infiniband { &[] } else { ETHTOOL });
        // The node has been up for a while; what its counters hold is no evidence of anything.
        let past = self.random.below(1 << 40);
        pma.set("port_xmit_data", past << 3);
        pma.set("port_rcv_data", (past << 3) + self.random.below(1 << 30));
        pma.set("port_xmit_packets", past >> 7);
        pma.set("port_rcv_packets", past >> 7);
        pma.set("unicast_xmit_packets", past >> 7);
        pma.set("unicast_rcv_packets", past >> 7);
        pma.set("link_downed", self.random.below(4));
        hw.set("rx_write_requests", self.random.below(1 << 30));
        hw.set("local_ack_timeout_err", self.random.below(90));
        hw.set("out_of_sequence", self.random.below(4_000));
        hw.set("duplicate_request", self.random.below(50));
        ethtool.set("rx_bytes_phy", past << 5);
        ethtool.set("tx_bytes_phy", past << 5);
        ethtool.set("rx_bits_phy", past << 8);
        ethtool.set("rx_corrected_bits_phy", past >> 18);
        ethtool.set("link_down_events_phy", pma.values[2]);
        let function = self.functions.len() - 1;
        self.functions[function].aer.rx_err = self.random.below(3);
        self.functions[function].aer.corrected = self.functions[function].aer.rx_err;
        let gid = if infiniband {
            format!("fe80:0000:0000:0000:a088:c203:00ab:{index:02x}10")
        } else {
            format!("0000:0000:0000:0000:0000:ffff:0a64:{index:02x}11")
        };
        let (pid, comm) = if infiniband { (None, "ko2iblnd") } else { (Some(41_200 + number * 7), "python3") };
        let qps = (0..qps).map(|i| SimQp {
            qpn: 0x1a0 + number * 0x400 + i * 3,
            remote_qpn: 0x2b1 + number * 0x400 + i * 3,
            pid,
            comm,
            remote_gid: if infiniband {
                format!("fe80:0000:0000:0000:a088:c203:00cd:{:02x}10", i % 16)
            } else {
                format!("0000:0000:0000:0000:0000:ffff:0a64:{index:02x}{:02x}", 0x20 + i % 16)
            },
            timeout: 13,
            alive: true,
            changed: true,
            posts: 0,
            wrs: 0,
            bytes: 0,
            completions: 0,
            switches: 0,
            retry_exceeded: 0,
            flushed: 0,
            size: Histogram(vec![0; 32]),
            latency: Histogram(vec![0; 64]),
        });
        let mean_load = if infiniband { 0.12 } else { 0.77 };
        self.ports.push(SimPort {
            device: format!("mlx5_{index}"),
            netdev: if infiniband { "ib0".to_owned() } else { format!("eth{index}") },
            guid: format!("a088:c203:00ab:{index:02x}10"),
            gid,
            infiniband,
            up: true,
            pma,
            hw,
            ethtool,
            function,
            qps: qps.collect(),
            mean_load,
            load: mean_load,
        });
    }

    /// A port by its device's name, where the scenario runs on a node that has it.
    pub(super) fn port_named(&self, device: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.device == device)
    }
}
