//! The `ecn.*` rules: each row of what fires and what never does, on hand-made logs. Here is what such a log is made of; a
//! file beside has the rows of a family.

mod class;
mod cnp;
mod judged;
mod missed;
mod packets;
mod premature;
mod rails;

use std::collections::BTreeMap;

use super::*;

/// A port's counters second by second; each number is what one second adds.
#[derive(Clone, Copy)]
struct Second {
    /// Received and sent share of 400 Gb/s.
    u: f64,
    /// Marked packets.
    ce: u64,
    /// CNPs sent, handled, ignored.
    cnp: [u64; 3],
    /// Pause received and sent, µs.
    pause: [u64; 2],
    /// `port_xmit_wait`.
    wait: u64,
    /// Packets out of sequence.
    lost: u64,
    /// Marked by the NIC.
    host: u64,
    /// PCIe stalled, percent.
    stalled: u64,
    /// CNPs of slow restart.
    restart: u64,
    /// Priority of the data.
    priority: usize,
}

const CALM: Second = Second {
    u: 0.3,
    ce: 0,
    cnp: [0; 3],
    pause: [0; 2],
    wait: 0,
    lost: 0,
    host: 0,
    stalled: 0,
    restart: 0,
    priority: 3,
};

/// Isolated marks at a low load, a CNP for each.
const MARKED: Second = Second { ce: 8_000, cnp: [7_600, 7_600, 0], ..CALM };

/// A QP's operations, their bytes, and both by powers of two.
type Operations = (u64, u64, Vec<u64>, Vec<u64>);

struct Node {
    log: Log,
    totals: BTreeMap<(String, &'static str), u64>,
    histograms: BTreeMap<(String, u32), Operations>,
    /// Of so many readings one is also of ethtool.
    ethtool_every: usize,
    readings: usize,
}

impl Node {
    fn new(devices: &[&str]) -> Self {
        let mut log = Log::new();
        for (i, name) in devices.iter().enumerate() {
            log.device(0.0, name, "mlx5_core", &format!("0000:0{}:00.0", i + 1)).port(0.0, name, "ACTIVE", "LinkUp");
        }
        Self { log, totals: BTreeMap::default(), histograms: BTreeMap::default(), ethtool_every: 1, readings: 0 }
    }

    fn count(&mut self, name: &str, counter: &'static str, n: u64) -> u64 {
        let total = self.totals.entry((name.to_owned(), counter)).or_default();
        *total += n;
        *total
    }

    /// One reading, of what happened in the second before.
    fn second(&mut self, s: f64, name: &str, second: Second) -> &mut Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a second")]
        let bytes = (second.u * 50e9) as u64;
        let packets = bytes / 4_096;
        let pma = json!({
            "port_rcv_data": self.count(name, "port_rcv_data", bytes / 4),
            "port_rcv_packets": self.count(name, "port_rcv_packets", packets),
            "port_xmit_data": self.count(name, "port_xmit_data", bytes / 4),
            "port_xmit_packets": self.count(name, "port_xmit_packets", packets),
            "port_xmit_wait": self.count(name, "port_xmit_wait", second.wait),
        });
        let hw = json!({
            "np_ecn_marked_roce_packets": self.count(name, "np_ecn_marked_roce_packets", second.ce),
            "np_cnp_sent": self.count(name, "np_cnp_sent", second.cnp[0]),
            "rp_cnp_handled": self.count(name, "rp_cnp_handled", second.cnp[1]),
            "rp_cnp_ignored": self.count(name, "rp_cnp_ignored", second.cnp[2]),
            "out_of_sequence": self.count(name, "out_of_sequence", second.lost),
            "roce_slow_restart_cnps": self.count(name, "roce_slow_restart_cnps", second.restart),
        });
        let bytes_of = |n: usize| if n == second.priority { bytes } else { 0 };
        let mut ethtool = json!({
            "rx_prio3_pause_duration": self.count(name, "rx_prio3_pause_duration", second.pause[0]),
            "tx_prio3_pause_duration": self.count(name, "tx_prio3_pause_duration", second.pause[1]),
            "rx_prio3_marked": self.count(name, "rx_prio3_marked", second.host),
            "outbound_pci_stalled_wr": second.stalled,
        });
        ethtool["tx_prio0_bytes"] = self.count(name, "tx_prio0_bytes", bytes_of(0)).into();
        ethtool["tx_prio3_bytes"] = self.count(name, "tx_prio3_bytes", bytes_of(3)).into();
        ethtool["tx_prio6_bytes"] = self.count(name, "tx_prio6_bytes", bytes_of(6)).into();
        self.log.counters(s, name, "counters", pma);
        self.log.counters(s, name, "hw_counters", hw);
        if self.readings.is_multiple_of(self.ethtool_every) {
            self.log.counters(s, name, "ethtool", ethtool);
        }
        self.readings += 1;
        self
    }

    /// The same for every second of a stretch.
    fn seconds(&mut self, from: u32, to: u32, name: &str, second: Second) -> &mut Self {
        for s in from..=to {
            self.second(f64::from(s) - 0.5, name, second);
        }
        self
    }

    /// Operations of a QP in the second before: of a size, `(log2 ns, how many)`.
    fn operations(&mut self, s: f64, name: &str, qpn: u32, bytes: u64, latencies: &[(usize, u64)]) -> &mut Self {
        let entry = self.histograms.entry((name.to_owned(), qpn)).or_insert((0, 0, vec![0; 32], vec![0; 64]));
        for (bucket, n) in latencies {
            entry.0 += n;
            entry.1 += n * bytes;
            entry.2[bytes.ilog2() as usize] += n;
            entry.3[*bucket] += n;
        }
        let fields = json!({"device": name, "qpn": qpn, "posts": entry.0, "wrs": entry.0, "bytes": entry.1,
            "size_log2": entry.2, "completions": entry.0, "latency_log2_ns": entry.3});
        self.log.add(s, "qp_stats", fields);
        self
    }

    fn config(&mut self, name: &str, mut fields: Value) -> &mut Self {
        fields["device"] = name.into();
        fields["port"] = 1.into();
        self.log.add(0.0, "congestion_config", fields);
        self
    }

    fn run(&self) -> Outcome {
        self.log.run()
    }
}

/// Which rules said something, and the best grade of each.
fn told(outcome: &Outcome) -> Vec<String> {
    let mut best: BTreeMap<&str, crate::finding::Grade> = BTreeMap::default();
    for finding in outcome.changes.iter().filter(|f| f.rule.starts_with("ecn.")) {
        let grade = best.entry(finding.rule).or_insert(finding.grade);
        *grade = finding.grade.max(*grade);
    }
    best.iter().map(|(rule, grade)| format!("{rule} {}", grade.name())).collect()
}

fn one(second: Second) -> Vec<String> {
    let mut node = Node::new(&["a"]);
    node.seconds(1, 12, "a", second);
    told(&node.run())
}

fn configured(second: Second, config: Value) -> Vec<String> {
    let mut node = Node::new(&["a"]);
    node.config("a", config).seconds(1, 12, "a", second);
    told(&node.run())
}

const NONE: [&str; 0] = [];

/// Small operations of a QP beside the marks, in every second.
fn with_small(second: Second, latencies: &[(usize, u64)]) -> Outcome {
    after_calm(0, second, latencies)
}

/// The same after so many seconds without a mark, in which small operations are quick.
fn after_calm(calm: u32, second: Second, latencies: &[(usize, u64)]) -> Outcome {
    let mut node = Node::new(&["a"]);
    for s in 1..=calm {
        node.second(f64::from(s) - 0.5, "a", CALM).operations(f64::from(s) - 0.4, "a", 9, 256, &[(13, 40_000)]);
    }
    for s in calm + 1..=calm + 12 {
        node.second(f64::from(s) - 0.5, "a", second).operations(f64::from(s) - 0.4, "a", 9, 256, latencies);
    }
    node.run()
}
