//! `qp.retry_exceeded`, `qp.error_state`.

use super::*;

fn log(probes: bool) -> Log {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp");
    if probes {
        log.probes(0.0);
    }
    for qpn in 100..120 {
        log.qp(0.0, "a", qpn, "seen", Some("RTS"));
    }
    log
}

fn exceeded(log: &mut Log, s: f64, n: u64) {
    log.counters(s, "a", "nldev", json!({"req_transport_retries_exceeded": n}));
}

#[test]
fn a_qp_that_fails_by_itself_is_told_with_its_owner_until_it_is_destroyed() {
    let mut log = log(true);
    log.qp(2.5, "a", 104, "seen", Some("ERR")).until(3, 20).qp(20.5, "a", 104, "destroy", None).until(21, 22);
    let outcome = log.run();
    assert_eq!(
        outcome.of("qp.error_state"),
        ["3 a QP 104 raised warning confirmed", "21 a QP 104 cleared warning confirmed"]
    );
    let summary = &outcome.last("qp.error_state").summary;
    assert_eq!(summary, "QP 104 of python3 (700) went from RTS to ERR at 14:13:22.500 UTC without a modify call");
}

#[test]
fn a_failed_qp_that_is_destroyed_at_once_stays_visible_for_ten_seconds() {
    let mut log = log(true);
    log.qp(2.5, "a", 104, "seen", Some("ERR")).qp(2.6, "a", 104, "destroy", None).until(3, 20);
    assert_eq!(
        log.run().of("qp.error_state"),
        ["3 a QP 104 raised warning confirmed", "13 a QP 104 cleared warning confirmed"]
    );
}

#[test]
fn an_ordered_teardown_is_no_finding_in_whatever_order_call_and_list_are_told() {
    let mut log = log(true);
    log.qp(2.5, "a", 104, "modify", Some("ERR")).qp(2.6, "a", 104, "destroy", None);
    log.qp(3.5, "a", 105, "seen", Some("ERR")).qp(3.4, "a", 105, "modify", Some("ERR")).until(4, 20);
    log.run().nothing();
}

#[test]
fn without_probes_a_short_stay_in_the_error_state_is_no_finding_and_a_long_one_is_probable() {
    let mut log = log(false);
    log.qp(2.5, "a", 104, "seen", Some("ERR")).until(3, 7).qp(7.5, "a", 104, "destroy", None);
    log.qp(8.5, "a", 105, "seen", Some("ERR")).until(9, 19).qp(19.5, "a", 105, "destroy", None).until(20, 40);
    let outcome = log.run();
    assert_eq!(
        outcome.of("qp.error_state"),
        ["19 a QP 105 raised warning probable", "29 a QP 105 cleared warning probable"]
    );
    assert!(outcome.last("qp.error_state").summary.contains("without probes nobody knows who asked"));
}

#[test]
fn a_probe_that_could_not_be_attached_lowers_the_grade() {
    let mut log = log(false);
    let failed = json!([{"name": "ib_modify_qp_with_udata", "reason": "no such symbol"}]);
    log.add(0.0, "probes", json!({"wanted": 9, "attached": 8, "failed": failed}));
    log.qp(2.5, "a", 104, "seen", Some("ERR")).until(3, 14);
    assert_eq!(log.run().of("qp.error_state"), ["13 a QP 104 raised warning probable"]);
}

#[test]
fn a_qp_that_leaves_the_error_state_is_clear() {
    let mut log = log(true);
    log.qp(2.5, "a", 104, "seen", Some("ERR")).until(3, 14).qp(14.5, "a", 104, "modify", Some("RESET")).until(15, 20);
    assert_eq!(log.run().of("qp.error_state").last().unwrap(), "15 a QP 104 cleared warning confirmed");
}

#[test]
fn many_qps_are_told_as_one_finding_about_their_port() {
    let mut log = log(true);
    for qpn in 100..109 {
        log.qp(2.5, "a", qpn, "seen", Some("ERR"));
    }
    log.until(3, 5);
    let outcome = log.run();
    assert_eq!(outcome.of("qp.error_state"), ["3 a/1 raised warning confirmed"]);
    let summary = &outcome.last("qp.error_state").summary;
    assert!(summary.starts_with("9 QPs of python3 (700) went to ERR"), "{summary}");
    assert!(summary.contains("(100, 101, 102, 103, …)"), "{summary}");
}

#[test]
fn retries_used_up_while_the_port_stays_active_are_a_warning_and_over_after_a_quiet_minute() {
    let mut log = log(true);
    exceeded(&mut log, 1.0, 5);
    exceeded(&mut log, 2.0, 5);
    log.qp(2.4, "a", 104, "seen", Some("ERR"));
    exceeded(&mut log, 3.2, 6);
    log.until(4, 70);
    let outcome = log.run();
    assert_eq!(outcome.of("qp.retry_exceeded"), ["4 a/1 raised warning probable", "64 a/1 cleared warning probable"]);
    assert!(outcome.last("qp.retry_exceeded").summary.contains("1 QP in error (104); the port stayed ACTIVE"));
    // The state is the consequence.
    assert_eq!(outcome.of("qp.error_state").last().unwrap().rsplit(' ').nth(1), Some("info"));
}

#[test]
fn retries_used_up_because_the_own_port_was_down_are_a_consequence() {
    let mut log = log(true);
    exceeded(&mut log, 1.0, 0);
    exceeded(&mut log, 2.0, 0);
    log.event(2.5, "a", "PORT_ERR").qp(2.75, "a", 104, "seen", Some("ERR"));
    exceeded(&mut log, 3.2, 1);
    log.until(4, 6);
    let outcome = log.run();
    assert_eq!(outcome.of("qp.retry_exceeded"), ["4 a/1 raised info probable"]);
    assert_eq!(outcome.of("qp.error_state")[0], "3 a QP 104 raised info confirmed");
    assert_eq!(outcome.of("link.down")[0], "2.5 a/1 raised critical confirmed");
}

#[test]
fn an_error_completion_confirms_and_an_old_one_is_no_evidence() {
    let mut log = log(true);
    let stats = |n: u64, qpn: u32| json!({"device": "a", "qpn": qpn, "posts": 9, "wrs": 9, "bytes": 9, "completions": 9, "errors": {"RETRY_EXC_ERR": n, "WR_FLUSH_ERR": 50}});
    // QP 110 had its error before watching began.
    log.add(1.0, "qp_stats", stats(1, 110)).until(2, 3);
    log.add(3.5, "qp_stats", json!({"device": "a", "qpn": 111, "posts": 5, "wrs": 5, "bytes": 5}));
    log.add(4.5, "qp_stats", stats(1, 111)).until(5, 6);
    let outcome = log.run();
    assert_eq!(outcome.of("qp.retry_exceeded").len(), 1, "{:?}", outcome.of("qp.retry_exceeded"));
    assert!(outcome.last("qp.retry_exceeded").summary.contains("1 QP in error (111)"));
}

#[test]
fn a_healthy_software_device_that_sees_duplicates_is_no_finding() {
    let mut log = Log::new();
    log.add(0.0, "device", json!({"device": "rxe0", "driver": "rxe", "node_guid": "5054:00ff:fe12:3456"}));
    log.port(0.0, "rxe0", "ACTIVE", "LinkUp");
    for s in 0..30u32 {
        // An emulated machine is slow: the peer sends again now and then.
        let values = json!({"sent_pkts": 1000 * s, "rcvd_pkts": 1000 * s, "duplicate_request": s * 3, "retry_exceeded_err": 0,
            "completer_retry_err": s, "out_of_seq_request": s, "link_downed": 0});
        log.counters(f64::from(s) + 0.5, "rxe0", "nldev", values);
    }
    log.run().nothing();
}

#[test]
fn more_exceeded_retries_than_a_number_holds_are_a_finding_still() {
    let mut log = log(true);
    for (qpn, before, after) in [(110, 0, u64::MAX), (111, 0, 1)] {
        let stats = |n: u64| json!({"device": "a", "qpn": qpn, "posts": 9, "wrs": 9, "bytes": 9, "completions": 9, "errors": {"RETRY_EXC_ERR": n}});
        log.add(1.0, "qp_stats", stats(before)).add(2.5, "qp_stats", stats(after));
    }
    log.until(3, 4);
    let outcome = log.run();
    assert_eq!(outcome.of("qp.retry_exceeded").len(), 1);
    assert!(outcome.last("qp.retry_exceeded").summary.starts_with(&u64::MAX.to_string()));
}

#[test]
fn a_fall_of_the_port_that_comes_after_the_retries_were_used_up_is_not_their_cause() {
    let mut log = log(true);
    exceeded(&mut log, 1.0, 0);
    exceeded(&mut log, 2.0, 1);
    log.qp(2.4, "a", 104, "seen", Some("ERR")).until(3, 29);
    log.event(30.5, "a", "PORT_ERR").until(31, 40);
    let outcome = log.run();
    assert_eq!(outcome.of("qp.retry_exceeded"), ["3 a/1 raised warning probable"]);
    assert!(outcome.last("qp.retry_exceeded").part_of.is_none());
}
