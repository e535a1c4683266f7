//! The `ecn.*` rules: each row of what fires and what never does, on hand-made logs.

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
}

impl Node {
    fn new(devices: &[&str]) -> Self {
        let mut log = Log::new();
        for (i, name) in devices.iter().enumerate() {
            log.device(0.0, name, "mlx5_core", &format!("0000:0{}:00.0", i + 1)).port(0.0, name, "ACTIVE", "LinkUp");
        }
        Self { log, totals: BTreeMap::default(), histograms: BTreeMap::default() }
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
        self.log.counters(s, name, "ethtool", ethtool);
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

#[test]
fn a_configuration_that_says_nothing_leaves_everything_unknown() {
    let mut node = Node::new(&["a"]);
    node.config("a", json!({"cc_algorithm": "none", "cnp_dscp": 48}));
    let known = |node: &Node| node.run().engine.world().ports[0].congestion.is_some();
    assert!(known(&node));
    node.config("a", json!({}));
    assert!(!known(&node));
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

#[test]
fn traffic_without_marks_is_no_finding() {
    assert_eq!(one(CALM), NONE);
    assert_eq!(one(Second { u: 0.97, ..CALM }), NONE);
}

#[test]
fn isolated_marks_at_a_low_load_are_suspected_to_be_premature_by_counters_alone() {
    let mut node = Node::new(&["a"]);
    node.seconds(1, 10, "a", MARKED).seconds(11, 16, "a", CALM);
    let outcome = node.run();
    let told = outcome.of("ecn.premature");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].ends_with("a/1 raised warning suspected") && told[1].contains("cleared"), "{told:?}");
    let said = &outcome.last("ecn.premature").summary;
    assert!(said.contains("L = 2") && said.contains("K* = 68 KB") && said.contains("consistent with"), "{said}");
}

#[test]
fn marks_at_a_high_load_are_not_premature() {
    assert_eq!(one(Second { u: 0.6, ..MARKED }), NONE);
}

#[test]
fn runs_of_marks_are_not_called_premature_by_counters_alone() {
    assert_eq!(one(Second { cnp: [900, 900, 0], ..MARKED }), NONE);
}

#[test]
fn marks_with_pause_in_either_direction_or_with_waiting_are_not_premature() {
    assert_eq!(one(Second { pause: [40, 0], ..MARKED }), NONE);
    assert_eq!(one(Second { pause: [0, 40], ..MARKED }), NONE);
    assert_eq!(one(Second { wait: 5_000_000, ..MARKED }), NONE);
}

/// The same second in a hundred readings.
fn every_10_ms(second: Second, config: Option<Value>) -> Vec<String> {
    let mut node = Node::new(&["a"]);
    if let Some(config) = config {
        node.config("a", config);
    }
    let part = |n: u64| n / 100;
    let tenth = Second {
        u: second.u / 100.0,
        ce: part(second.ce),
        cnp: second.cnp.map(part),
        pause: second.pause.map(part),
        wait: part(second.wait),
        lost: part(second.lost),
        ..second
    };
    for tick in 1..=600u32 {
        node.second(f64::from(tick) / 100.0 - 0.005, "a", tenth);
    }
    told(&node.run())
}

#[test]
fn counters_that_move_at_every_reading_of_10_ms_are_judged_as_those_of_a_second() {
    assert_eq!(every_10_ms(MARKED, None), ["ecn.premature suspected"]);
    assert_eq!(every_10_ms(Second { wait: 5_000_000, ..MARKED }, None), NONE);
    assert_eq!(every_10_ms(Second { pause: [4_000, 0], ..MARKED }, None), NONE);
    let lossy = Second { u: 0.7, lost: 4_000, ..CALM };
    assert!(every_10_ms(lossy, None).contains(&"ecn.missed suspected".to_owned()));
    let pfc = json!({"pfc_enabled": [false, false, false, true, false, false, false, false]});
    assert_eq!(every_10_ms(Second { priority: 0, ..CALM }, Some(pfc)), ["ecn.wrong_class suspected"]);
}

#[test]
fn marks_are_not_premature_under_rtt_based_control_nor_where_the_nic_marks_itself() {
    assert_eq!(configured(MARKED, json!({"cc_algorithm": "rtt"})), NONE);
    assert_eq!(configured(MARKED, json!({"rp": {"rtt_resp_dscp": 26}})), NONE);
    assert_eq!(configured(MARKED, json!({"cc_algorithm": "dcqcn"})), ["ecn.premature suspected"]);
    assert_eq!(one(Second { host: 500, stalled: 10, ..MARKED }), NONE);
}

#[test]
fn one_marked_window_is_not_enough() {
    let mut node = Node::new(&["a"]);
    node.seconds(1, 5, "a", CALM).seconds(6, 6, "a", MARKED).seconds(7, 12, "a", CALM);
    assert_eq!(told(&node.run()), NONE);
}

#[test]
fn a_port_that_is_busy_for_a_third_of_the_time_is_judged_by_the_load_where_the_marks_fell() {
    let mut node = Node::new(&["a"]);
    for tick in 1..=120u32 {
        let busy = tick % 3 == 0;
        let second = if busy {
            Second { u: 0.09, ce: 2_400, cnp: [2_300, 2_300, 0], ..CALM }
        } else {
            Second { u: 0.0, ..CALM }
        };
        node.second(f64::from(tick) / 10.0 - 0.01, "a", second);
    }
    assert_eq!(told(&node.run()), NONE, "at 100 ms the marks fell at 0.9 of the rate");
}

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

#[test]
fn flat_latency_of_small_operations_makes_it_probable() {
    // A thousandth of the packets at a third of the load: 10 of 40 000 had to be late. None was.
    let outcome = after_calm(10, MARKED, &[(13, 40_000)]);
    assert_eq!(told(&outcome), ["ecn.premature probable"]);
    let said = &outcome.last("ecn.premature").summary;
    assert!(said.contains("in the quiet of"), "{said}");
}

#[test]
fn latencies_of_windows_that_all_had_marks_are_not_called_quiet() {
    let outcome = with_small(MARKED, &[(13, 40_000)]);
    assert_eq!(told(&outcome), ["ecn.premature probable"]);
    let finding = outcome.last("ecn.premature");
    assert!(finding.summary.contains("few of them or none quiet and without marks"), "{}", finding.summary);
    assert!(finding.would_raise.starts_with("windows with little load and no mark"), "{}", finding.would_raise);
}

#[test]
fn that_marks_were_seen_before_the_pause_is_said_with_the_time_they_ended() {
    let paused = Second { u: 0.7, pause: [90_000, 0], wait: 9_000_000, ..CALM };
    let mut node = Node::new(&["a"]);
    node.seconds(1, 20, "a", MARKED).seconds(21, 40, "a", paused);
    let outcome = node.run();
    let finding = outcome.last("ecn.missed");
    assert!(finding.summary.contains("; marks were seen until 14:13:4"), "{}", finding.summary);
    assert!(finding.advice.starts_with("The last mark came at 14:13:4"), "{}", finding.advice);
    let mut node = Node::new(&["a"]);
    node.seconds(1, 20, "a", CALM).seconds(21, 40, "a", paused);
    let outcome = node.run();
    assert!(outcome.last("ecn.missed").advice.starts_with("See whether ECN marking is on"));
}

#[test]
fn small_operations_as_late_as_true_marks_make_them_speak_against_it() {
    assert_eq!(told(&with_small(MARKED, &[(13, 39_000), (14, 700), (15, 300)])), NONE);
}

#[test]
fn marks_of_queues_of_which_hardly_one_is_long_are_probable_and_where_some_are_they_are_not() {
    // Half of the small operations find a queue; of these 4 and 400 a long one.
    let late = |long| after_calm(10, MARKED, &[(13, 20_000), (14, 20_000 - long), (15, long)]);
    assert_eq!(told(&late(4)), ["ecn.premature probable"]);
    assert_eq!(told(&late(400)), NONE);
}

#[test]
fn many_marks_with_a_cnp_for_each_are_no_isolated_ones_to_counters() {
    let packets = MARKED.ce;
    assert_eq!(one(Second { ce: packets * 100, cnp: [packets * 100, 0, 0], ..MARKED }), NONE);
}

#[test]
fn small_operations_as_late_as_the_pause_is_long_make_missed_congestion_probable() {
    let paused = Second { u: 0.7, pause: [90_000, 0], wait: 9_000_000, ..CALM };
    let grade = |late| told(&with_small(paused, &[(13, 10_000 - late), (15, late)]))[0].clone();
    assert_eq!(grade(2_000), "ecn.missed probable");
    assert_eq!(grade(200), "ecn.missed suspected", "9 % of the time stopped, 2 % late: another class's pause");
}

#[test]
fn pause_without_marks_is_missed_congestion_and_without_a_single_mark_ever_perhaps_not_ect() {
    let paused = Second { u: 0.7, pause: [90_000, 0], wait: 9_000_000, ..CALM };
    let mut node = Node::new(&["a"]);
    node.seconds(1, 12, "a", paused);
    let outcome = node.run();
    assert_eq!(told(&outcome), ["ecn.missed suspected", "ecn.not_ect suspected"]);
    assert_eq!(outcome.last("ecn.not_ect").part_of.as_deref(), Some("ecn.missed:a/1"));
    let mut node = Node::new(&["a"]);
    node.seconds(1, 1, "a", MARKED).seconds(2, 14, "a", paused);
    assert_eq!(told(&node.run()), ["ecn.missed suspected"], "it has been marked before");
}

#[test]
fn a_latency_far_above_its_quiet_level_makes_missed_congestion_probable() {
    let mut node = Node::new(&["a"]);
    for s in 1..=24 {
        let (second, bucket) = if s <= 12 { (CALM, 13) } else { (Second { u: 0.9, pause: [90_000, 0], ..CALM }, 15) };
        node.second(f64::from(s) - 0.5, "a", second).operations(f64::from(s) - 0.4, "a", 9, 256, &[(bucket, 5_000)]);
    }
    assert!(told(&node.run()).contains(&"ecn.missed probable".to_owned()));
}

#[test]
fn a_window_in_which_pause_was_not_read_is_not_called_quiet() {
    for (paused, expected) in [(450_000, None), (0, Some(11..=13))] {
        let mut node = Node::new(&["a"]);
        for s in 1..=24 {
            if s % 2 == 0 {
                node.second(f64::from(s) - 0.5, "a", Second { u: 0.2, pause: [paused, 0], ..CALM });
            }
            node.operations(f64::from(s) - 0.4, "a", 9, 256, &[(13, 5_000)]);
        }
        let engine = node.run().engine;
        let base = engine.world().ports[0].latencies.baseline(crate::inventory::SizeClass::Small);
        let as_expected = match (&base, expected) {
            (Some(base), Some(windows)) => windows.contains(&base.windows),
            (None, None) => true,
            _ => false,
        };
        assert!(as_expected, "{paused} µs a second: {base:?}");
    }
}

#[test]
fn pause_is_not_missed_congestion_when_there_are_marks_or_cnps_or_this_host_is_the_slow_one() {
    let paused = Second { u: 0.7, pause: [90_000, 0], ..CALM };
    assert_eq!(one(Second { ce: 50_000, cnp: [9_000, 0, 0], ..paused }), NONE);
    assert_eq!(one(Second { cnp: [0, 9_000, 0], ..paused }), NONE, "its peers count the marks");
    assert_eq!(one(Second { pause: [90_000, 60_000], ..paused }), NONE);
    assert_eq!(one(Second { pause: [0, 90_000], ..paused }), NONE);
    assert_eq!(one(Second { pause: [2_000, 0], ..paused }), NONE, "0.2 % is short");
    assert_ne!(one(Second { pause: [20_000, 0], ..paused }), NONE, "2 % without a mark is not");
}

#[test]
fn loss_in_order_without_marks_is_missed_congestion_and_a_few_packets_are_not() {
    let lossy = Second { u: 0.7, lost: 4_000, ..CALM };
    assert!(one(lossy).contains(&"ecn.missed suspected".to_owned()));
    assert_eq!(one(Second { lost: 20, ..lossy }), NONE);
}

#[test]
fn marks_without_a_cnp_are_no_cnp_and_probable_where_the_notification_point_is_off() {
    let silent = Second { u: 0.7, ce: 50_000, ..CALM };
    assert_eq!(one(silent), ["ecn.no_cnp suspected"]);
    let off = json!({"np": {"enable": [false, false, false, false, false, false, false, false]}});
    assert_eq!(configured(silent, off), ["ecn.no_cnp probable"]);
}

#[test]
fn no_cnp_is_not_said_under_rtt_based_control_nor_of_few_marks_nor_with_a_single_cnp_and_is_only_information_without_control()
 {
    let silent = Second { u: 0.7, ce: 50_000, ..CALM };
    assert_eq!(configured(silent, json!({"cc_algorithm": "rtt"})), NONE);
    assert_eq!(one(Second { ce: 200, ..silent }), NONE);
    assert_eq!(one(Second { cnp: [20_000, 0, 0], ..silent }), NONE);
    let mut node = Node::new(&["a"]);
    node.config("a", json!({"cc_algorithm": "none"})).seconds(1, 12, "a", silent);
    assert!(node.run().of("ecn.no_cnp")[0].contains("info"));
    for (reacts, severity) in [(0, "info"), (1, "warning")] {
        let mut node = Node::new(&["a"]);
        let config =
            json!({"np": {"enable": [0, 0, 0, 0, 0, 0, 0, 0]}, "rp": {"enable": [0, 0, 0, reacts, 0, 0, 0, 0]}});
        node.config("a", config).seconds(1, 12, "a", silent);
        let told = node.run().of("ecn.no_cnp");
        assert!(told[0].contains(severity), "{told:?}");
    }
}

#[test]
fn a_dscp_of_round_trip_measurement_that_is_not_in_force_is_no_congestion_control() {
    let silent = Second { u: 0.7, ce: 5_000, ..CALM };
    let rp = |valid: Value| configured(silent, json!({"rp": {"rtt_resp_dscp": 26, "rtt_resp_dscp_valid": valid}}));
    assert_eq!(rp(json!(0)), ["ecn.no_cnp suspected"]);
    assert_eq!(rp(json!(1)), NONE);
    assert_eq!(configured(silent, json!({"rp": {"rtt_resp_dscp": 26}})), NONE);
}

#[test]
fn more_marks_than_packets_and_more_pause_than_time_are_no_evidence() {
    // 0.3 of 400 Gb/s are 3.7 million packets a second.
    assert_eq!(one(Second { ce: 200_000_000, ..CALM }), NONE);
    assert_eq!(one(Second { u: 0.7, pause: [2_000_000, 0], ..CALM }), NONE);
    assert_eq!(
        one(Second { u: 0.7, pause: [1_020_000, 0], ..CALM }),
        one(Second { u: 0.7, pause: [900_000, 0], ..CALM })
    );
    let mut node = Node::new(&["a"]);
    node.seconds(1, 12, "a", Second { u: 0.7, pause: [1_020_000, 0], ..CALM });
    let outcome = node.run();
    let said = &outcome.last("ecn.missed").summary;
    assert!(said.contains("told to stop for 100.0 % of the time"), "{said}");
}

#[test]
fn ignored_cnps_are_a_finding_and_probable_where_the_reaction_point_is_off() {
    let deaf = Second { u: 0.9, cnp: [0, 0, 9_000], ..CALM };
    assert_eq!(one(deaf), ["ecn.cnp_ignored suspected"]);
    let off = json!({"rp": {"enable": [0, 0, 0, 0, 0, 0, 0, 0]}});
    assert_eq!(configured(deaf, off), ["ecn.cnp_ignored probable"]);
    assert_eq!(one(Second { cnp: [0, 9_000, 60], ..deaf }), NONE, "some belong to QPs that are gone");
}

#[test]
fn more_cnps_than_marks_are_told_unless_slow_restart_explains_them() {
    let many = Second { u: 0.7, ce: 1_000, cnp: [2_000, 1_000, 0], ..CALM };
    assert_eq!(one(many), ["ecn.cnp_without_ce suspected"]);
    assert_eq!(one(Second { restart: 1_000, ..many }), NONE);
    assert_eq!(one(Second { cnp: [1_000, 1_000, 0], ..many }), NONE);
}

#[test]
fn marks_of_the_nic_itself_are_told_when_the_way_to_the_host_stalls() {
    let host = Second { u: 0.7, host: 9_000, stalled: 45, ..CALM };
    assert_eq!(one(host), ["ecn.host_marking suspected"]);
    assert_eq!(one(Second { stalled: 5, ..host }), NONE);
}

#[test]
fn data_outside_of_the_protected_priority_or_in_that_of_the_cnps_is_in_the_wrong_class() {
    let pfc = || json!({"pfc_enabled": [false, false, false, true, false, false, false, false], "trust": "dscp"});
    assert_eq!(configured(Second { priority: 0, ..CALM }, pfc()), ["ecn.wrong_class suspected"]);
    assert_eq!(configured(CALM, pfc()), NONE);
    assert_eq!(one(Second { priority: 0, ..CALM }), NONE, "priorities unknown");
    let cnp = json!({"np": {"cnp_802p_prio": 6}});
    assert_eq!(configured(Second { priority: 6, ..CALM }, cnp), ["ecn.wrong_class suspected"]);
}

/// Four rails at a like load; the last is marked `ce` times a second, the others 400 times.
fn rails(names: &[&str], load: f64, ce: u64) -> Vec<String> {
    let mut node = Node::new(names);
    for (i, name) in names.iter().enumerate() {
        let last = i + 1 == names.len();
        let second = if last {
            Second { u: load, ce, cnp: [ce / 20, ce / 20, 0], ..CALM }
        } else {
            Second { u: 0.6, ce: 400, cnp: [20, 20, 0], ..CALM }
        };
        node.seconds(1, 12, name, second);
    }
    told(&node.run())
}

#[test]
fn a_rail_marked_more_than_five_times_as_often_at_a_like_load_stands_out() {
    assert_eq!(rails(&["a", "b", "c", "d"], 0.62, 60_000), ["ecn.rail_asymmetry suspected"]);
    assert_eq!(rails(&["a", "b", "c", "d"], 0.62, 1_500), NONE);
    assert_eq!(rails(&["a", "b", "c", "d"], 0.9, 60_000), NONE, "its load is another");
    assert_eq!(rails(&["a", "d"], 0.62, 60_000), NONE, "two rails are no comparison");
}

#[test]
fn marks_that_fall_while_the_load_rises_are_an_inversion_after_sixty_windows() {
    let falling = |to: u32, sign: f64| {
        let mut node = Node::new(&["a"]);
        for s in 1..=to {
            let wave = f64::from(s % 7) / 7.0;
            let marks = 30_000.0 + sign * 20_000.0 * wave;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
            let ce = marks as u64;
            node.second(
                f64::from(s) - 0.5,
                "a",
                Second { u: 0.55 + 0.3 * wave, ce, cnp: [ce / 20, ce / 20, 0], ..CALM },
            );
        }
        told(&node.run())
    };
    assert_eq!(falling(80, -1.0), ["ecn.inversion suspected"]);
    assert_eq!(falling(80, 3.0), NONE);
    assert_eq!(falling(50, -1.0), NONE);
}

/// Two ports that talk to each other only: `b` sends CNPs, `a` gets `handled` of 9 000.
fn pair(handled: u64, stranger: bool) -> Outcome {
    let mut node = Node::new(&["a", "b"]);
    for (name, gid, peer) in [("a", "::a", "::b"), ("b", "::b", "::a")] {
        let port = json!({"device": name, "port": 1, "link_layer": "Ethernet", "state": "ACTIVE", "rate_gbps": 400.0,
            "gids": [{"index": 3, "gid": gid}]});
        node.log.add(0.0, "port", port);
        let qp = |qpn: u32, peer: &str| json!({"device": name, "port": 1, "qpn": qpn, "event": "seen", "to": "RTS", "remote_gid": peer});
        node.log.add(0.1, "qp", qp(7, peer));
        if stranger {
            node.log.add(0.1, "qp", qp(8, "::c"));
        }
    }
    for s in 1..=16 {
        let sent = Second { u: 0.7, ce: 50_000, cnp: [9_000, 0, 0], ..CALM };
        node.second(f64::from(s) - 0.5, "b", sent);
        node.second(f64::from(s) - 0.4, "a", Second { u: 0.7, ce: 0, cnp: [0, handled, 0], ..CALM });
    }
    node.run()
}

#[test]
fn cnps_that_do_not_arrive_are_told_where_both_ends_are_known_and_not_judged_elsewhere() {
    assert_eq!(told(&pair(8_000, false)), ["ecn.cnp_lost suspected"]);
    assert_eq!(told(&pair(8_990, false)), NONE);
    let outcome = pair(8_000, true);
    assert_eq!(told(&outcome), NONE);
    let rule = super::super::find("ecn.cnp_lost").unwrap();
    assert!(rule.not_judged(&outcome.engine.view()).unwrap().contains("those of the peers are not seen here"));
}

#[test]
fn on_a_bond_whose_counters_are_summed_nothing_is_more_than_suspected() {
    let mut node = Node::new(&["a"]);
    let port = json!({"device": "a", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE", "rate_gbps": 400.0,
        "netdevs": ["e0"], "bond": "bond0"});
    let slaves = json!([{"netdev": "e0", "up": true}, {"netdev": "e1", "up": true}]);
    node.log.add(0.0, "port", port).add(0.0, "bond", json!({"bond": "bond0", "mode": "802.3ad", "slaves": slaves}));
    for s in 1..=12 {
        node.second(f64::from(s) - 0.5, "a", MARKED).operations(f64::from(s) - 0.4, "a", 9, 256, &[(13, 40_000)]);
    }
    let outcome = node.run();
    assert_eq!(told(&outcome), ["ecn.premature suspected"]);
    assert!(outcome.last("ecn.premature").advice.contains("summed over the links of bond0"));
}

#[test]
fn an_infiniband_port_is_not_judged() {
    let mut node = Node::new(&["a"]);
    let port = json!({"device": "a", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "rate_gbps": 400.0});
    node.log.add(0.0, "port", port);
    node.seconds(1, 12, "a", Second { pause: [90_000, 0], ..MARKED });
    assert_eq!(told(&node.run()), NONE);
}

#[test]
fn efa_iwarp_and_roce_without_ip_are_not_judged() {
    let silent = Second { u: 0.7, ce: 5_000, ..CALM };
    let on = |driver: &str, layer: &str, gids: Value| {
        let mut node = Node::new(&[]);
        node.log.device(0.0, "a", driver, "0000:01:00.0");
        let port =
            json!({"device": "a", "port": 1, "link_layer": layer, "state": "ACTIVE", "rate_gbps": 400.0, "gids": gids});
        node.log.add(0.0, "port", port);
        node.seconds(1, 12, "a", silent);
        told(&node.run())
    };
    let v1 = || json!({"index": 0, "gid": "0200::", "kind": "IB/RoCE v1"});
    let v2 = || json!({"index": 1, "gid": "fe80::1", "kind": "RoCE v2"});
    assert_eq!(on("mlx5_core", "Ethernet", json!([])), ["ecn.no_cnp suspected"], "kinds unknown");
    assert_eq!(on("mlx5_core", "Ethernet", json!([v1(), v2()])), ["ecn.no_cnp suspected"]);
    assert_eq!(on("mlx5_core", "Ethernet", json!([v1()])), NONE, "iWARP, or RoCE without IP");
    assert_eq!(on("mlx5_core", "Unspecified", json!([])), NONE, "EFA");
    assert_eq!(on("siw", "Ethernet", json!([])), NONE);
}

/// Packets seen on the wire: marked ones with a mean delay, others with another, ns.
fn packets(ce_ns: u64, plain_ns: u64) -> Outcome {
    let mut node = Node::new(&["a"]);
    for s in 1..=10u64 {
        node.seconds(
            u32::try_from(s).unwrap(),
            u32::try_from(s).unwrap(),
            "a",
            Second { u: 0.1, ce: 4_000, cnp: [40, 0, 0], ..CALM },
        );
        let seen = json!({"rx_data": s * 16_000, "rx_ce": s * 4_000, "tx_data": s * 100, "tx_not_ect": 0,
            "delay_ce_sum_ns": s * 4_000 * ce_ns, "delay_ce_n": s * 4_000, "delay_plain_sum_ns": s * 12_000 * plain_ns,
            "delay_plain_n": s * 12_000, "delay_min_ns": 20_000});
        node.log.counters(s as f64 - 0.4, "a", "packets", seen);
    }
    node.run()
}

#[test]
fn marked_packets_as_early_as_the_others_confirm_premature_marks_and_late_ones_deny_them() {
    assert_eq!(told(&packets(31_000, 30_000)), ["ecn.premature confirmed"]);
    assert_eq!(told(&packets(900_000, 60_000)), NONE);
    assert_eq!(told(&packets(900_000, 900_000)), NONE, "a standing queue delays all");
}

#[test]
fn packets_sent_not_ect_or_in_the_dscp_of_the_cnps_are_confirmed() {
    let seen = |not_ect: u64, dscp: &str| {
        let mut node = Node::new(&["a"]);
        for s in 1..=10u64 {
            node.seconds(u32::try_from(s).unwrap(), u32::try_from(s).unwrap(), "a", CALM);
            let mut seen = json!({"rx_data": s * 100, "tx_data": s * 10_000, "tx_not_ect": s * not_ect});
            seen[dscp] = (s * 10_000).into();
            node.log.counters(s as f64 - 0.4, "a", "packets", seen);
        }
        told(&node.run())
    };
    assert_eq!(seen(0, "tx_dscp_26"), NONE);
    assert_eq!(seen(5_000, "tx_dscp_26"), ["ecn.not_ect confirmed"]);
    assert_eq!(seen(0, "tx_dscp_48"), ["ecn.wrong_class confirmed"]);
}
