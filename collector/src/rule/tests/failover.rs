//! The failover stopwatch, fed as the rules are.

use serde_json::json;

use super::{Log, Outcome};
use crate::inventory::{Ending, Failover, Mark, Verdict};

impl Log {
    /// A port `d/1` and a port `e/1`, both ACTIVE and read every second, and an RC QP 17 of process 700 on `d/1`.
    fn pair() -> Self {
        let mut log = Log::new();
        for (name, pci) in [("d", "0000:01:00.0"), ("e", "0000:02:00.0")] {
            log.device(0.0, name, "mlx5_core", pci).port(0.0, name, "ACTIVE", "LinkUp");
        }
        log.connect(0.1, "d", 17).reads(0, 5).probes(0.5);
        log.lines.sort_by_key(|line| time(line));
        log
    }

    /// Both ports are read every second.
    fn reads(&mut self, from: u32, to: u32) -> &mut Self {
        for s in from..=to {
            for name in ["d", "e"] {
                self.counters(f64::from(s), name, "counters", json!({"port_xmit_data": 1}));
            }
        }
        self
    }

    fn connect(&mut self, s: f64, name: &str, qpn: u32) -> &mut Self {
        self.qp(s, name, qpn, "create", Some("RESET"));
        for (n, state) in ["INIT", "RTR", "RTS"].into_iter().enumerate() {
            let s = s + 0.001 * (n + 1) as f64;
            let fields = json!({"device": name, "port": 1, "qpn": qpn, "event": "modify", "qp_type": "RC", "to": state,
                "timeout": 14, "retry_cnt": 3, "pid": 700});
            self.add(s, "qp", fields);
        }
        self
    }

    fn posted(&mut self, s: f64, name: &str, qpn: u32, posts: u64, last_s: f64) -> &mut Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a test")]
        let last = 1_000_000_000 + (last_s * 1e9) as u64;
        let fields = json!({"device": name, "qpn": qpn, "posts": posts, "wrs": posts, "bytes": posts * 4096,
            "last_post_t": last});
        self.add(s, "qp_stats", fields)
    }

    fn failovers(&mut self) -> Vec<Failover> {
        self.lines.sort_by_key(|line| time(line));
        let Outcome { engine, .. } = self.run();
        engine.world().failovers.iter().map(|failover| (**failover).clone()).collect()
    }
}

fn time(line: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(line).unwrap()["t"].as_u64().unwrap()
}

/// `2.5` where an event told it, `1.9..3` where a reading did.
fn at(mark: Option<&Mark>) -> String {
    let s = |t: u64| format!("{}", (t as f64 / 1e9 - 1.0) * 1e3).parse::<f64>().unwrap().round() / 1e3;
    match mark {
        None => "–".to_owned(),
        Some(mark) if mark.at.t == mark.at.not_before => s(mark.at.t).to_string(),
        Some(mark) => format!("{}..{}", s(mark.at.not_before), s(mark.at.t)),
    }
}

fn marks(failover: &Failover) -> Vec<String> {
    failover.lanes().into_iter().map(|(_, _, mark)| at(mark)).collect()
}

#[test]
fn a_qp_that_dies_after_its_port_is_an_abrupt_failover_with_the_floor_of_its_timers() {
    let mut log = Log::pair();
    log.event(2.0, "d", "PORT_ERR").port(2.1, "d", "DOWN", "Disabled").qp(2.268, "d", 17, "seen", Some("ERR"));
    log.connect(2.5, "e", 40).probes(2.4).posted(3.4, "e", 40, 5, 2.9).probes(3.4).until(4, 40);
    let failovers = log.failovers();
    let [failover] = &failovers[..] else { panic!("{failovers:?}") };
    assert_eq!(marks(failover), ["–", "2", "0.8..2.268", "–", "2.503..2.9"]);
    assert_eq!((failover.ending, failover.qps.died, failover.qps.drained), (Ending::Abrupt, 1, 0));
    assert_eq!(failover.floor.unwrap().max_ns, Some(268_435_456));
    let outage = failover.outage.unwrap();
    assert_eq!((outage.min_ns / 1_000_000, outage.max_ns / 1_000_000), (503, 2100));
    assert!(failover.budgets.iter().all(|budget| budget.verdict == Verdict::Missed), "{:?}", failover.budgets);
    assert_eq!(failover.replacement.as_ref().map(|path| (&*path.device, path.qpn)), Some(("e", 40)));
    assert!(failover.closed_t.is_some(), "it is over after a quiet time");
}

#[test]
fn an_operation_that_is_seen_before_the_qp_is_found_dead_is_the_first_one_all_the_same() {
    let mut log = Log::pair();
    log.event(2.0, "d", "PORT_ERR").connect(2.3, "e", 40).probes(2.1);
    log.posted(3.1, "e", 40, 5, 3.0).probes(3.1).qp(3.5, "d", 17, "seen", Some("ERR"));
    log.posted(4.1, "e", 40, 9, 4.0).probes(4.1).until(5, 40);
    assert_eq!(marks(&log.failovers()[0])[4], "2.303..3");
}

/// The statistics of a QP whose completions are seen: `failed` of them with an error.
fn completed(log: &mut Log, s: f64, (name, qpn): (&str, u32), posts: u64, (completions, failed): (u64, u64)) {
    let mut line = json!({"device": name, "qpn": qpn, "posts": posts, "wrs": posts, "bytes": posts * 4096,
        "signaled": posts});
    if completions > 0 {
        line["completions"] = completions.into();
    }
    if failed > 0 {
        line["errors"] = json!({"RETRY_EXC_ERR": failed});
    }
    log.add(s, "qp_stats", line);
}

#[test]
fn what_is_posted_onto_a_path_that_is_dead_too_or_fails_there_ends_no_outage() {
    // QP 17 showed that its process's completions are seen.
    let fallen = || {
        let mut log = Log::pair();
        completed(&mut log, 1.5, ("d", 17), 100, (100, 0));
        log.probes(1.5).event(2.0, "d", "PORT_ERR").qp(2.268, "d", 17, "seen", Some("ERR"));
        log.connect(2.5, "e", 40).probes(2.5);
        log
    };
    let mut posted = fallen();
    completed(&mut posted, 3.5, ("e", 40), 10, (0, 0));
    posted.probes(3.5);
    let mut failed = fallen();
    completed(&mut failed, 3.5, ("e", 40), 10, (1, 1));
    failed.probes(3.5);
    for log in [&mut posted, &mut failed] {
        assert_eq!(marks(&log.failovers()[0])[4], "–");
    }
    // The completion of what was posted before comes in a later sweep, in which nothing is posted.
    completed(&mut posted, 4.5, ("e", 40), 10, (10, 0));
    posted.probes(4.5).until(5, 40);
    let failovers = posted.failovers();
    assert_eq!(marks(&failovers[0])[4], "3.5..4.5");
    assert_eq!(failovers[0].first_operation.as_ref().unwrap().what, "QP 40 of e: completed");
}

#[test]
fn a_path_that_was_ready_all_along_is_in_use_when_something_completes_on_it() {
    let mut log = Log::pair();
    log.connect(0.2, "e", 40);
    completed(&mut log, 1.0, ("d", 17), 100, (100, 0));
    log.probes(1.0).event(4.0, "d", "PORT_ERR").qp(4.2, "d", 17, "seen", Some("ERR")).probes(4.3);
    completed(&mut log, 5.3, ("e", 40), 10, (0, 0));
    log.probes(5.3);
    completed(&mut log, 6.3, ("e", 40), 10, (10, 0));
    log.probes(6.3).until(7, 40);
    assert_eq!(marks(&log.failovers()[0])[4], "5.3..6.3");
}

#[test]
fn where_completions_are_paused_or_not_seen_a_post_is_the_first_operation() {
    let group = |paused: bool| json!([{"group": "completions", "hits": 1, "hit_ns": 1000, "paused": paused}]);
    for (paused, seen, expected) in [(true, true, "2.503..2.9"), (false, true, "–"), (false, false, "2.503..2.9")] {
        let mut log = Log::pair();
        completed(&mut log, 1.5, ("d", 17), 100, (if seen { 100 } else { 0 }, 0));
        log.event(2.0, "d", "PORT_ERR").qp(2.268, "d", 17, "seen", Some("ERR")).connect(2.5, "e", 40);
        log.add(2.4, "probes", json!({"wanted": 9, "attached": 9, "failed": [], "groups": group(paused)}));
        log.posted(3.4, "e", 40, 5, 2.9).probes(3.4).until(4, 40);
        assert_eq!(marks(&log.failovers()[0])[4], expected, "{paused} {seen}");
    }
}

#[test]
fn the_qps_of_the_loopback_probe_neither_die_nor_recover_in_a_failover() {
    let own = |log: &mut Log, s: f64, name: &str, qpn: u32, event: &str, to: &str| {
        let comm = "rdmascope-verbs";
        let line = json!({"device": name, "port": 1, "qpn": qpn, "event": event, "to": to, "pid": 9, "comm": comm});
        log.add(s, "qp", line);
    };
    let mut log = Log::pair();
    own(&mut log, 0.2, "d", 18, "create", "RTS");
    log.event(2.0, "d", "PORT_ERR").qp(2.268, "d", 17, "seen", Some("ERR"));
    own(&mut log, 2.3, "d", 18, "seen", "ERR");
    own(&mut log, 2.4, "e", 30, "create", "RTS");
    log.posted(3.4, "e", 30, 5, 2.9).probes(3.4).until(4, 40);
    let failovers = log.failovers();
    let [failover] = &failovers[..] else { panic!("{failovers:?}") };
    assert_eq!((failover.qps.died, marks(failover)[4].as_str()), (1, "–"));
    // Nor begin one, on a port that is predicted to fail.
    let mut log = Log::pair();
    log.add(1.5, "aer", json!({"pci": "0000:01:00.0", "severity": "nonfatal", "status": 16384, "names": ["CmpltTO"]}));
    own(&mut log, 1.4, "d", 18, "create", "RTS");
    own(&mut log, 1.6, "d", 18, "modify", "ERR");
    log.until(2, 10);
    assert_eq!(log.failovers(), []);
}

#[test]
fn a_flush_that_is_told_with_its_cause_is_not_what_killed_the_qp() {
    let mut log = Log::pair();
    log.posted(1.0, "d", 17, 5, 0.9).event(2.0, "d", "PORT_ERR");
    let errors = json!({"WR_FLUSH_ERR": 7, "RETRY_EXC_ERR": 1});
    let stats = json!({"device": "d", "qpn": 17, "posts": 9, "wrs": 9, "bytes": 9, "completions": 8, "errors": errors});
    log.add(2.3, "qp_stats", stats);
    // The probes tell statuses by their number, so a flush comes first; `json!` sorts by name.
    let line = log.lines.last_mut().expect("it was added");
    let flush_first =
        line.replace(r#"{"RETRY_EXC_ERR":1,"WR_FLUSH_ERR":7}"#, r#"{"WR_FLUSH_ERR":7,"RETRY_EXC_ERR":1}"#);
    assert_ne!(*line, flush_first);
    *line = flush_first;
    log.probes(2.5).until(4, 8);
    let failovers = log.failovers();
    let qp = failovers[0].first_qp.as_ref().expect("it died");
    assert_eq!(qp.what, "QP 17 had RETRY_EXC_ERR completions");
}

#[test]
fn a_drain_before_the_port_falls_is_graceful_and_its_outage_begins_with_the_drain() {
    let mut log = Log::pair();
    log.connect(0.2, "e", 40);
    log.add(1.5, "aer", json!({"pci": "0000:01:00.0", "severity": "nonfatal", "status": 16384, "names": ["CmpltTO"]}));
    log.add(1.51, "qp", json!({"device": "d", "port": 1, "qpn": 17, "event": "modify", "to": "SQD", "pid": 700}));
    log.add(1.52, "qp", json!({"device": "d", "port": 1, "qpn": 17, "event": "modify", "to": "ERR", "pid": 700}));
    log.probes(1.5).posted(2.5, "e", 40, 1, 1.53).probes(2.5).event(3.0, "d", "PORT_ERR").until(4, 40);
    let failovers = log.failovers();
    let [failover] = &failovers[..] else { panic!("{failovers:?}") };
    assert_eq!(marks(failover), ["1.5", "3", "1.51", "–", "1.51..1.53"]);
    assert_eq!((failover.ending, failover.qps.drained, failover.qps.died), (Ending::Graceful, 1, 0));
    assert_eq!(failover.warning.unwrap().max_ns, 10_000_000, "the time there was until the drain began");
    assert_eq!(failover.outage.unwrap().max_ns / 1_000_000, 20);
    assert!(failover.budgets.iter().all(|budget| budget.verdict == Verdict::Met), "{:?}", failover.budgets);
}

#[test]
fn qps_that_end_on_a_port_nothing_is_known_against_are_no_failover() {
    let mut log = Log::pair();
    log.add(1.5, "qp", json!({"device": "d", "port": 1, "qpn": 17, "event": "modify", "to": "ERR", "pid": 700}));
    log.qp(1.6, "d", 17, "destroy", None).connect(1.7, "d", 18).qp(2.0, "d", 18, "seen", Some("ERR")).until(4, 40);
    assert_eq!(log.failovers(), []);
}

#[test]
fn a_fall_that_only_a_reading_showed_lies_between_two_readings() {
    let mut log = Log::pair();
    log.port(3.0, "d", "DOWN", "Disabled").until(4, 40);
    let failovers = log.failovers();
    assert_eq!(marks(&failovers[0]), ["–", "1.9..3", "–", "–", "–"]);
    assert_eq!((failovers[0].ending, failovers[0].outage), (Ending::None, None));
    // An event told later, but more exactly.
    log.event(2.4, "d", "PORT_ERR");
    let line = log.lines.pop().unwrap();
    log.lines.insert(log.lines.iter().position(|line| line.contains("DOWN")).unwrap() + 1, line);
    let Outcome { engine, .. } = log.run();
    assert_eq!(at(engine.world().failovers[0].port_down.as_ref()), "2.4");
}

#[test]
fn a_call_that_is_told_after_the_state_it_asked_for_is_a_drain_and_one_after_the_fall_is_late() {
    let mut log = Log::pair();
    log.add(1.5, "aer", json!({"pci": "0000:01:00.0", "severity": "nonfatal", "status": 16384, "names": ["CmpltTO"]}));
    log.connect(0.3, "d", 18).qp(1.6, "d", 17, "seen", Some("ERR"));
    log.add(1.7, "qp", json!({"device": "d", "port": 1, "qpn": 17, "event": "modify", "to": "ERR", "pid": 700}));
    log.event(2.0, "d", "PORT_ERR");
    log.add(2.1, "qp", json!({"device": "d", "port": 1, "qpn": 18, "event": "modify", "to": "ERR", "pid": 700}));
    log.until(3, 40);
    let failovers = log.failovers();
    let qps = failovers[0].qps;
    assert_eq!((qps.drained, qps.died, qps.late), (1, 0, 1));
    assert_eq!(failovers[0].ending, Ending::Mixed);
}

#[test]
fn the_errors_that_came_first_are_the_first_sign() {
    let mut log = Log::pair();
    log.counters(1.0, "d", "ethtool", json!({"rx_crc_errors_phy": 0})).counters(
        2.0,
        "d",
        "ethtool",
        json!({"rx_crc_errors_phy": 9}),
    );
    log.event(2.5, "d", "PORT_ERR").until(3, 40);
    let failovers = log.failovers();
    let sign = failovers[0].first_sign.as_ref().expect("a sign");
    assert_eq!((at(Some(sign)).as_str(), sign.what.as_str()), ("1..2", "rx_crc_errors_phy grew"));
}

#[test]
fn a_bond_that_switches_is_told_for_the_port_it_left() {
    let mut log = Log::pair();
    for (s, active) in [(0.0, "ed"), (3.0, "ee")] {
        log.add(
            s,
            "bond",
            json!({"bond": "bond0", "mode": "active-backup", "active": active,
            "slaves": [{"netdev": "ed", "up": active == "ed"}, {"netdev": "ee", "up": true}]}),
        );
    }
    log.event(2.5, "d", "PORT_ERR").until(4, 40);
    let failovers = log.failovers();
    let [failover] = &failovers[..] else { panic!("{failovers:?}") };
    assert_eq!((&*failover.device, marks(failover)[3].as_str()), ("d", "1.9..3"));
    assert_eq!(failover.bond_switch.as_ref().unwrap().what, "bond0: ed → ee");
}

#[test]
fn a_bond_that_is_told_by_an_event_has_one_time_and_leaves_a_short_outage_certain() {
    let mut log = Log::pair();
    log.connect(0.2, "e", 40);
    log.add(1.5, "aer", json!({"pci": "0000:01:00.0", "severity": "nonfatal", "status": 16384, "names": ["CmpltTO"]}));
    log.add(1.51, "qp", json!({"device": "d", "port": 1, "qpn": 17, "event": "modify", "to": "ERR", "pid": 700}));
    log.probes(1.5).posted(2.5, "e", 40, 1, 1.519).probes(2.5).event(3.0, "d", "PORT_ERR").until(4, 40);
    let bond = |active| json!({"bond": "bond0", "mode": "active-backup", "active": active});
    let mut told = bond("ee");
    told["event"] = true.into();
    log.add(0.0, "bond", bond("ed")).add(1.515, "bond", told);
    let failovers = log.failovers();
    let [failover] = &failovers[..] else { panic!("{failovers:?}") };
    assert_eq!((marks(failover)[3].as_str(), failover.ending), ("1.515", Ending::Graceful));
    assert_eq!(failover.outage.unwrap().max_ns, 9_000_000);
    assert!(failover.budgets.iter().all(|budget| budget.verdict == Verdict::Met), "{:?}", failover.budgets);
}

#[test]
fn a_rename_is_no_failover_and_a_device_that_stays_away_is_one() {
    let mut log = Log::pair();
    let gone = json!({"device": "d", "removed": true});
    log.add(2.0, "device", gone.clone()).device(2.1, "d2", "mlx5_core", "0000:01:00.0").until(3, 40);
    assert_eq!(log.failovers(), []);
    let mut log = Log::pair();
    log.add(2.0, "device", gone).until(3, 40);
    let failovers = log.failovers();
    assert_eq!((marks(&failovers[0])[1].as_str(), failovers.len()), ("2", 1));
}

#[test]
fn a_storm_of_qps_is_counted_and_the_first_of_it_told() {
    let mut log = Log::pair();
    for qpn in 100..200 {
        log.connect(0.2, "d", qpn);
    }
    log.event(2.0, "d", "PORT_ERR");
    for qpn in 100..200 {
        log.qp(2.2 + f64::from(qpn - 100) / 1e4, "d", qpn, "seen", Some("ERR"));
    }
    log.until(3, 40);
    let failovers = log.failovers();
    assert_eq!((failovers[0].qps.died, marks(&failovers[0])[2].as_str()), (100, "0.8..2.2"));
}

#[test]
fn while_an_incident_goes_on_the_world_counts_its_qps_and_nobody_is_told_again() {
    let mut log = Log::pair();
    for qpn in 100..200 {
        log.connect(0.2, "d", qpn);
    }
    log.event(2.0, "d", "PORT_ERR");
    for qpn in 100..200 {
        log.qp(2.2 + f64::from(qpn - 100) / 1e4, "d", qpn, "seen", Some("ERR"));
    }
    log.until(3, 6);
    log.lines.sort_by_key(|line| time(line));
    let Outcome { mut engine, .. } = log.run();
    let known = &engine.world().failovers[0];
    assert_eq!((known.qps.died, known.closed_t), (100, None));
    let told = engine.drain_failovers();
    assert_eq!(told.last().map(|failover| failover.qps.died), Some(1), "told at the first of them: {told:#?}");
}

#[test]
fn a_flap_that_took_no_qp_is_no_outage_and_a_sign_of_the_one_after_it() {
    let mut log = Log::pair();
    log.reads(1, 20).event(5.0, "d", "PORT_ERR").event(5.1, "d", "PORT_ACTIVE");
    log.event(12.0, "d", "PORT_ERR").port(12.1, "d", "DOWN", "Disabled").qp(12.268, "d", 17, "seen", Some("ERR"));
    let failovers = log.until(21, 60).failovers();
    let [failover] = &failovers[..] else { panic!("{failovers:?}") };
    assert_eq!(at(failover.port_down.as_ref()), "12");
    assert_eq!((&failover.port_up, failover.standing()), (&None, "no takeover seen"));
}

#[test]
fn a_budget_is_missed_when_nothing_can_have_taken_over_and_open_when_something_may() {
    let verdicts = |elsewhere: bool, until: u32| {
        let mut log = Log::pair();
        log.event(2.0, "d", "PORT_ERR").port(2.1, "d", "DOWN", "Disabled").qp(2.268, "d", 17, "seen", Some("ERR"));
        if elsewhere {
            log.qp(1.0, "e", 40, "seen", Some("RTS"));
        }
        for s in 1..=until {
            log.probes(f64::from(s));
        }
        log.failovers()[0].budgets.iter().map(|budget| budget.verdict).collect::<Vec<_>>()
    };
    let late = |made: f64| {
        let mut log = Log::pair();
        log.event(2.0, "d", "PORT_ERR").port(2.1, "d", "DOWN", "Disabled").qp(2.268, "d", 17, "seen", Some("ERR"));
        log.qp(made, "e", 40, "seen", Some("RTS")).qp(made + 1.0, "e", 40, "destroy", None);
        for s in 1..=20 {
            log.probes(f64::from(s));
        }
        log.failovers()[0].budgets.iter().map(|budget| budget.verdict).collect::<Vec<_>>()
    };
    assert_eq!(late(8.5), [Verdict::Missed, Verdict::Missed], "that nothing was posted until then remains true");
    assert_eq!(late(2.05), [Verdict::Undecided, Verdict::Undecided], "what it did while it was there is not known");
    for until in [10, 40] {
        assert_eq!(verdicts(false, until), [Verdict::Missed, Verdict::Missed], "under way or over");
        assert_eq!(verdicts(true, until), [Verdict::Undecided, Verdict::Undecided]);
    }
}

#[test]
fn a_qp_that_fails_without_a_fall_was_in_order_when_it_was_last_known_to_be() {
    // Up for a long time; the bond changes over, and a QP with nothing but its first listing fails.
    for (worked, earliest) in [(false, "0.1"), (true, "9000")] {
        let mut log = Log::pair();
        let bond = |active: &str| json!({"bond": "bond0", "mode": "active-backup", "active": active, "event": true});
        log.add(
            0.0,
            "port",
            json!({"device": "d", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE",
            "netdevs": ["ed", "bond0"], "bond": "bond0"}),
        );
        log.add(0.2, "bond", bond("ed"));
        log.qp(0.1, "d", 18, "seen", Some("RTS"));
        if worked {
            for (s, n) in [(8999.0, 1), (9000.0, 2), (9001.0, 3)] {
                completed(&mut log, s, ("d", 18), n, (n, 0));
                log.probes(s);
            }
        }
        log.add(9010.0, "bond", bond("ee")).qp(9010.5, "d", 18, "seen", Some("ERR")).until(9011, 9012);
        let failovers = log.failovers();
        let first = at(failovers[0].first_qp.as_ref());
        assert_eq!(first, format!("{earliest}..9010.5"));
    }
}

#[test]
fn the_first_sign_is_the_one_that_the_fall_itself_names_also_when_it_is_long_ago() {
    let mut log = Log::pair();
    let nic = "0000:01:00.0";
    for s in [10.0, 20.0] {
        log.add(s, "aer", json!({"pci": nic, "severity": "corrected", "status": 0x100}));
    }
    log.until(21, 199).event(200.0, "d", "PORT_ERR").until(201, 210);
    log.lines.sort_by_key(|line| time(line));
    let outcome = log.run();
    let failover = &outcome.engine.world().failovers[0];
    let sign = failover.first_sign.as_ref().expect("a sign");
    assert_eq!((at(Some(sign)).as_str(), sign.what.as_str()), ("10", "pcie.aer_storm"));
    assert!(outcome.last("link.down").summary.contains("signs: pcie.aer_storm 3 min before"), "190 s");
}
