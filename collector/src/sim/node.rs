//! The simulated node: eight 400 Gb/s RoCE ports of a training job and one InfiniBand port for storage.

use super::condition::Condition;
use super::counters::Counters;
use super::job::{Job, JobKind};
use super::names;
use super::qp::{SimQp, Use};
use super::random::Random;

/// RoCE ports.
pub(super) const RAILS: usize = 8;
/// Signalling rate of every port, Gb/s.
pub(super) const RATE_GBPS: f64 = 400.0;
/// Buses of the root ports the rails are below.
const BUSES: [u32; RAILS] = [0x15, 0x26, 0x3a, 0x4b, 0x97, 0xa8, 0xc5, 0xd6];

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

/// What kind of node it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    pub(super) qps_per_port: u32,
    pub(super) job: JobKind,
    /// Four NICs share one switch and its uplink, as on a board with two root ports.
    pub(super) shared_uplinks: bool,
    /// Share of the QPs that are posted to at all.
    pub(super) active_qps: f64,
    /// Bulk transfers go to memory of the host, not to a GPU below the same switch.
    pub(super) host_memory: bool,
}

impl Shape {
    pub(super) const TRAINING: Self =
        Self { qps_per_port: 64, job: JobKind::Steady, shared_uplinks: false, active_qps: 1.0, host_memory: false };
}

/// Everything the simulator knows of its node.
pub(super) struct Node {
    pub(super) random: Random,
    pub(super) job: Job,
    pub(super) shape: Shape,
    pub(super) ports: Vec<SimPort>,
    pub(super) functions: Vec<SimFunction>,
    /// The probes are attached and QPs are seen.
    pub(super) per_qp: bool,
    /// Data-path probe hits.
    pub(super) hits: u64,
    /// Time simulated, s.
    pub(super) elapsed_s: f64,
    /// The job runs: its QPs exist.
    pub(super) running: bool,
    /// Jobs begun, for the numbers of processes and QPs.
    pub(super) jobs: u32,
}

/// One port, of a device of its own.
pub(super) struct SimPort {
    pub(super) device: String,
    pub(super) netdev: String,
    pub(super) guid: String,
    pub(super) gid: String,
    /// The first seven groups of its peers' GIDs, and the last group's first byte.
    pub(super) peers: String,
    pub(super) infiniband: bool,
    pub(super) up: bool,
    /// Its device is not there.
    pub(super) gone: bool,
    pub(super) pma: Counters,
    pub(super) hw: Counters,
    pub(super) ethtool: Counters,
    pub(super) devlink: Counters,
    pub(super) hwmon: Counters,
    /// Where its function is in [`Node::functions`].
    pub(super) function: usize,
    pub(super) pid: Option<u32>,
    pub(super) comm: &'static str,
    pub(super) qps: Vec<SimQp>,
    /// Share of the others' load it carries.
    pub(super) weight: f64,
    /// Share of the rate it carried in the last tick.
    pub(super) load: f64,
    pub(super) condition: Condition,
}

/// One PCIe function on the way to a port, or a GPU.
pub(super) struct SimFunction {
    pub(super) pci: String,
    pub(super) class: &'static str,
    pub(super) path: Vec<String>,
    pub(super) speed_gts: f64,
    pub(super) width: u32,
    pub(super) aer: AerCounts,
    pub(super) root: bool,
}

/// AER totals: the kinds the scenarios use.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AerCounts {
    pub(super) rx_err: u64,
    pub(super) bad_tlp: u64,
    pub(super) bad_dllp: u64,
    pub(super) rollover: u64,
    pub(super) cmplt_to: u64,
    pub(super) corrected: u64,
    pub(super) nonfatal: u64,
    pub(super) fatal: u64,
    pub(super) root_corrected: u64,
    pub(super) root_nonfatal: u64,
}

impl Node {
    pub(super) fn new(seed: u64, shape: Shape) -> Self {
        let mut node = Self {
            random: Random::new(seed),
            job: Job::new(shape.job, Random::new(seed ^ 0x10b5_10b5)),
            shape,
            ports: Vec::new(),
            functions: Vec::new(),
            per_qp: true,
            hits: 0,
            elapsed_s: 0.0,
            running: true,
            jobs: 0,
        };
        for rail in 0..RAILS {
            let group = if shape.shared_uplinks { rail / 4 * 4 } else { rail };
            let slot = u32::try_from(rail - group).expect("a node has few ports");
            let base = BUSES[group];
            let (root, up) = (format!("0000:{base:02x}:01.0"), format!("0000:{:02x}:00.0", base + 1));
            let downs = [
                format!("0000:{:02x}:{:02x}.0", base + 2, slot * 2),
                format!("0000:{:02x}:{:02x}.0", base + 2, slot * 2 + 1),
            ];
            let nic = format!("0000:{:02x}:00.0", base + 3 + slot * 2);
            let gpu = format!("0000:{:02x}:00.0", base + 4 + slot * 2);
            if slot == 0 {
                node.function("0x060400", vec![root.clone()]);
                node.function("0x060400", vec![root.clone(), up.clone()]);
            }
            let [down, beside] = downs;
            node.function("0x060400", vec![root.clone(), up.clone(), beside.clone()]);
            node.function("0x030200", vec![root.clone(), up.clone(), beside, gpu]);
            node.function("0x060400", vec![root.clone(), up.clone(), down.clone()]);
            node.function("0x020000", vec![root, up, down, nic]);
            node.port(rail, false, shape.qps_per_port);
        }
        node.function("0x060400", vec!["0000:e6:01.0".to_owned()]);
        node.function("0x020700", vec!["0000:e6:01.0".to_owned(), "0000:e7:00.0".to_owned()]);
        node.port(RAILS, true, shape.qps_per_port.div_ceil(4).min(64));
        node
    }

    fn function(&mut self, class: &'static str, path: Vec<String>) {
        let pci = path.last().expect("a path ends at the function").clone();
        let root = path.len() == 1;
        let (speed_gts, width) = (32.0, 16);
        self.functions.push(SimFunction { pci, class, path, speed_gts, width, aer: AerCounts::default(), root });
    }

    fn port(&mut self, index: usize, infiniband: bool, qps: u32) {
        let number = u32::try_from(index).expect("a node has few ports");
        let function = self.functions.len() - 1;
        self.functions[function].aer.rx_err = self.random.below(3);
        self.functions[function].aer.corrected = self.functions[function].aer.rx_err;
        let (gid, peers) = if infiniband {
            (
                format!("fe80:0000:0000:0000:a088:c203:00ab:{index:02x}10"),
                "fe80:0000:0000:0000:a088:c203:00cd:".to_owned(),
            )
        } else {
            let network = format!("0000:0000:0000:0000:0000:ffff:0a64:{index:02x}");
            (format!("{network}11"), network)
        };
        let (pid, comm) = if infiniband { (None, "ko2iblnd") } else { (Some(41_200 + number * 7), "python3") };
        let mut port = SimPort {
            device: format!("mlx5_{index}"),
            netdev: if infiniband { "ib0".to_owned() } else { format!("eth{index}") },
            guid: format!("a088:c203:00ab:{index:02x}10"),
            gid,
            peers,
            infiniband,
            up: true,
            gone: false,
            pma: Counters::new(names::PMA),
            hw: Counters::new(if infiniband { &names::HW[..names::HW_INFINIBAND] } else { names::HW }),
            ethtool: Counters::new(if infiniband { &[] } else { names::ETHTOOL }),
            devlink: Counters::new(names::DEVLINK),
            hwmon: Counters::new(names::HWMON),
            function,
            pid,
            comm,
            qps: Vec::new(),
            weight: 1.0,
            load: 0.0,
            condition: Condition::default(),
        };
        port.remember(&mut self.random);
        port.create_qps(number, qps, 0);
        self.ports.push(port);
    }

    /// A port by its device's name, where the scenario runs on a node that has it.
    pub(super) fn port_named(&self, device: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.device == device)
    }
}

impl SimPort {
    /// The node has been up for a while; what its counters hold is no evidence of anything.
    fn remember(&mut self, random: &mut Random) {
        let past = random.below(1 << 40);
        self.pma.set("port_xmit_data", past << 3);
        self.pma.set("port_rcv_data", (past << 3) + random.below(1 << 30));
        self.pma.set("port_xmit_packets", past >> 7);
        self.pma.set("port_rcv_packets", past >> 7);
        self.pma.set("unicast_xmit_packets", past >> 7);
        self.pma.set("unicast_rcv_packets", past >> 7);
        self.pma.set("link_downed", random.below(4));
        self.hw.set("rx_write_requests", random.below(1 << 30));
        self.hw.set("local_ack_timeout_err", random.below(90));
        self.hw.set("out_of_sequence", random.below(4_000));
        self.hw.set("duplicate_request", random.below(50));
        self.ethtool.set("rx_bytes_phy", past << 5);
        self.ethtool.set("tx_bytes_phy", past << 5);
        self.ethtool.set("rx_packets_phy", past >> 7);
        self.ethtool.set("tx_packets_phy", past >> 7);
        self.ethtool.set("rx_bits_phy", past << 8);
        self.ethtool.set("rx_corrected_bits_phy", past >> 18);
        self.ethtool.set("link_down_events_phy", self.pma.values[2]);
        self.hwmon.set("temp1_input", 58_000 + random.below(9) * 1_000);
        self.hwmon.set("temp1_max", 105_000);
        self.hwmon.set("temp1_crit", 110_000);
    }

    /// The QPs of a job: of eight, seven for bulk transfers and one for small messages.
    pub(super) fn create_qps(&mut self, number: u32, n: u32, job: u32) {
        let first = 0x1a0 + number * 0x400 + job * 0x4_0000;
        self.qps = (0..n)
            .map(|i| SimQp {
                qpn: (first + i * 3) & 0xff_ffff,
                remote_qpn: (first + 0x111 + i * 3) & 0xff_ffff,
                peer: if self.infiniband { 0x10 } else { 0x20 + (i % 16) as u8 },
                used_for: if n > 1 && (i % 8 == 7 || n < 8 && i + 1 == n) { Use::Small } else { Use::Bulk },
                alive: true,
                changed: true,
                stats: None,
            })
            .collect();
    }

    /// A peer's GID.
    pub(super) fn peer_gid(&self, peer: u8, at: usize) -> String {
        if self.infiniband { format!("{}{:02x}10", self.peers, at % 16) } else { format!("{}{peer:02x}", self.peers) }
    }
}
