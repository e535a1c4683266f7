//! What ended a QP: told by its own completions, with its flushes, and not by what else happened on its port.

use super::*;

fn log() -> Log {
    let mut log = Log::new();
    for device in ["a", "b"] {
        log.device(0.0, device, "mlx5_core", "0000:01:00.0").port(0.0, device, "ACTIVE", "LinkUp");
    }
    log.probes(0.0);
    for qpn in [104, 105, 106] {
        log.qp(0.0, "a", qpn, "create", Some("RESET")).qp(0.1, "a", qpn, "modify", Some("RTS"));
        stats(&mut log, 1.0, "a", qpn, json!({}));
    }
    log
}

/// The statistics of a QP with these failed completions.
fn stats(log: &mut Log, s: f64, device: &str, qpn: u32, errors: impl Into<Value>) {
    let fields = json!({"device": device, "qpn": qpn, "posts": 9, "wrs": 9, "bytes": 9, "completions": 9, "errors": errors.into()});
    log.add(s, "qp_stats", fields);
}

fn first<'o>(outcome: &'o Outcome, rule: &str, qpn: Option<u32>) -> &'o Finding {
    let found = outcome.changes.iter().find(|f| f.rule == rule && (qpn.is_none() || f.subject.qpn == qpn));
    found.unwrap_or_else(|| panic!("no {rule} of {qpn:?}: {:?}", outcome.of(rule)))
}

fn evidence(finding: &Finding, series: &str) -> Option<f64> {
    finding.evidence.iter().find(|row| row.series == series)?.value
}

const FLUSHED: &str = "WR_FLUSH_ERR completions that followed";

#[test]
fn qps_of_one_port_that_ended_by_different_things_are_each_told_with_their_own() {
    let mut log = log();
    stats(&mut log, 2.5, "a", 104, json!({"RETRY_EXC_ERR": 1, "WR_FLUSH_ERR": 7}));
    stats(&mut log, 2.5, "a", 105, json!({"REM_ACCESS_ERR": 1, "WR_FLUSH_ERR": 3}));
    stats(&mut log, 2.5, "a", 106, json!({"RNR_RETRY_EXC_ERR": 1}));
    for qpn in [104, 105, 106] {
        log.qp(2.6, "a", qpn, "seen", Some("ERR"));
    }
    log.until(3, 5);
    let outcome = log.run();
    let head = |rule, flushed| {
        let finding = first(&outcome, rule, None);
        assert_eq!((finding.grade.name(), evidence(finding, FLUSHED)), ("confirmed", flushed), "{finding:?}");
        finding.summary.clone()
    };
    let retries = head("qp.retry_exceeded", Some(7.0));
    assert!(retries.contains("1 QP in error (104)"), "{retries}");
    assert!(head("qp.software_error", Some(3.0)).contains("REM_ACCESS_ERR of QP 105"));
    assert!(head("qp.rnr", None).contains("(QP 106)"));
    for (qpn, root, severity, words) in [
        (104, "qp.retry_exceeded:a/1", "info", "RETRY_EXC_ERR, then 7 work requests flushed; retries were used up"),
        (105, "qp.software_error:a/1", "warning", "REM_ACCESS_ERR, then 3 work requests flushed; a consequence of"),
        (106, "qp.rnr:a/1", "warning", "RNR_RETRY_EXC_ERR; a consequence of qp.rnr"),
    ] {
        let state = first(&outcome, "qp.error_state", Some(qpn));
        assert_eq!((state.part_of.as_deref(), state.severity.name()), (Some(root), severity), "{state:?}");
        assert!(state.summary.contains(words), "{}", state.summary);
    }
    assert_eq!(evidence(first(&outcome, "qp.error_state", Some(104)), FLUSHED), Some(7.0));
}

#[test]
fn flushes_that_are_told_later_are_told_with_the_finding_again() {
    let mut log = log();
    stats(&mut log, 2.5, "a", 104, json!({"RETRY_EXC_ERR": 1}));
    log.until(3, 3);
    stats(&mut log, 3.5, "a", 104, json!({"RETRY_EXC_ERR": 1, "WR_FLUSH_ERR": 12}));
    log.until(4, 5);
    let outcome = log.run();
    assert_eq!(outcome.of("qp.retry_exceeded").len(), 2, "{:?}", outcome.of("qp.retry_exceeded"));
    assert_eq!(evidence(outcome.last("qp.retry_exceeded"), FLUSHED), Some(12.0));
}

#[test]
fn a_qp_whose_work_was_only_flushed_follows_from_nothing_that_ended_others() {
    let mut log = log();
    stats(&mut log, 2.5, "a", 104, json!({"RNR_RETRY_EXC_ERR": 1}));
    stats(&mut log, 2.5, "a", 105, json!({"WR_FLUSH_ERR": 2}));
    log.qp(2.6, "a", 104, "seen", Some("ERR")).qp(2.6, "a", 105, "seen", Some("ERR")).until(3, 5);
    let outcome = log.run();
    let state = first(&outcome, "qp.error_state", Some(105));
    assert_eq!((state.part_of.as_deref(), state.severity.name()), (None, "warning"));
    assert!(
        state.summary.ends_with("without a modify call; 2 work requests flushed, none failed"),
        "{}",
        state.summary
    );
    assert_eq!(evidence(state, FLUSHED), Some(2.0));
}

#[test]
fn the_end_that_refused_a_request_is_part_of_the_finding_about_it() {
    let mut log = log();
    log.add(
        0.2,
        "port",
        json!({"device": "a", "port": 1, "state": "ACTIVE", "gids": [{"index": 3, "gid": "fe80::a", "kind": "RoCE v2"}]}),
    );
    let connected = json!({"device": "b", "port": 1, "qpn": 7, "event": "create", "to": "RTS", "remote_gid": "fe80::a",
        "remote_qpn": 105});
    log.add(0.3, "qp", connected);
    stats(&mut log, 1.0, "b", 7, json!({}));
    stats(&mut log, 2.5, "a", 105, json!({"REM_ACCESS_ERR": 1}));
    stats(&mut log, 2.5, "b", 7, json!({"WR_FLUSH_ERR": 1}));
    log.qp(2.6, "a", 105, "seen", Some("ERR")).qp(2.6, "b", 7, "seen", Some("ERR")).until(3, 5);
    let outcome = log.run();
    let state = first(&outcome, "qp.error_state", Some(7));
    assert_eq!(state.part_of.as_deref(), Some("qp.software_error:a/1"), "{state:?}");
}

/// The port's table of addresses as it was read.
fn gids(log: &mut Log, s: f64, addresses: &[&str]) {
    let gids: Vec<Value> =
        addresses.iter().enumerate().map(|(i, gid)| json!({"index": i, "gid": gid, "kind": "RoCE v2"})).collect();
    log.add(s, "port", json!({"device": "a", "port": 1, "state": "ACTIVE", "gids": gids}));
}

#[test]
fn a_request_that_could_not_be_sent_when_an_address_was_taken_is_not_the_applications() {
    for (before, after) in [(true, false), (false, true), (false, false)] {
        let moved = before || after;
        let mut log = log();
        gids(&mut log, 0.3, &["fe80::a", "::ffff:10.0.1.1"]);
        if before {
            log.event(2.4, "a", "GID_CHANGE");
        }
        stats(&mut log, 2.5, "a", 104, json!({"LOC_QP_OP_ERR": 1, "WR_FLUSH_ERR": 4}));
        // The table is read because a QP failed.
        gids(&mut log, 2.55, if after { &["fe80::a"] } else { &["fe80::a", "::ffff:10.0.1.1"] });
        log.qp(2.6, "a", 104, "seen", Some("ERR")).until(3, 6);
        // Another change later takes nothing back.
        gids(&mut log, 6.5, &["fe80::a", "::ffff:10.0.1.2"]);
        log.until(7, 8);
        let outcome = log.run();
        let state = outcome.last("qp.error_state");
        assert_eq!(state.summary.contains("addresses (GIDs) had changed"), moved, "{}", state.summary);
        assert_eq!(outcome.of("qp.software_error").is_empty(), moved, "{:?}", outcome.of("qp.software_error"));
        assert_eq!(state.part_of.is_none(), moved, "{:?}", state.part_of);
    }
}

#[test]
fn a_bond_that_changed_over_is_named_as_what_ended_the_qp() {
    let mut log = log();
    let port = json!({"device": "a", "port": 1, "state": "ACTIVE", "bond": "bond0", "netdevs": ["bond0"]});
    let bond = |active| json!({"bond": "bond0", "mode": "active-backup", "active": active, "event": true});
    log.add(0.3, "port", port).add(0.4, "bond", bond("e0")).add(2.4, "bond", bond("e1"));
    stats(&mut log, 2.5, "a", 104, json!({"WR_FLUSH_ERR": 4}));
    log.qp(2.6, "a", 104, "seen", Some("ERR")).until(3, 6);
    let outcome = log.run();
    let state = first(&outcome, "qp.error_state", Some(104));
    assert!(state.summary.ends_with("; its bond had changed over (bond0: e0 → e1)"), "{}", state.summary);
}

#[test]
fn the_cause_of_a_qp_whose_state_is_found_long_after_is_remembered() {
    let mut log = log();
    stats(&mut log, 2.5, "a", 104, json!({"REM_ACCESS_ERR": 1}));
    log.until(3, 25).qp(25.6, "a", 104, "seen", Some("ERR")).until(26, 27);
    let outcome = log.run();
    let state = first(&outcome, "qp.error_state", Some(104));
    assert_eq!(state.part_of.as_deref(), Some("qp.software_error:a/1"), "{state:?}");
}

#[test]
fn a_request_that_could_not_be_sent_through_a_port_that_is_down_is_not_the_applications() {
    let mut log = log();
    log.event(2.4, "a", "PORT_ERR");
    stats(&mut log, 2.5, "a", 104, json!({"LOC_QP_OP_ERR": 1}));
    log.qp(2.6, "a", 104, "seen", Some("ERR")).until(3, 5);
    let outcome = log.run();
    assert!(outcome.of("qp.software_error").is_empty());
    assert_eq!(first(&outcome, "qp.error_state", Some(104)).part_of.as_deref(), Some("link.down:a/1"));
}

#[test]
fn a_counter_that_is_read_after_the_completion_it_counts_does_not_outlive_it() {
    let mut log = log();
    for s in 1..4u32 {
        let n = u32::from(s > 2);
        let counts = json!({"req_rnr_retries_exceeded": n, "req_transport_retries_exceeded": n});
        log.counters(f64::from(s) + 0.3, "a", "nldev", counts);
        if s == 2 {
            stats(&mut log, 2.5, "a", 104, json!({"RETRY_EXC_ERR": 1}));
            stats(&mut log, 2.5, "a", 105, json!({"RNR_RETRY_EXC_ERR": 1}));
        }
    }
    log.until(4, 70);
    let outcome = log.run();
    for rule in ["qp.retry_exceeded", "qp.rnr"] {
        let told = outcome.of(rule);
        assert!(told.iter().all(|line| line.ends_with("confirmed")), "{told:?}");
        assert!(told.last().unwrap().contains("cleared"), "{told:?}");
    }
}

#[test]
fn a_port_that_falls_long_after_explains_no_failure() {
    let mut log = log();
    log.qp(2.5, "a", 104, "seen", Some("ERR")).until(3, 60).event(60.5, "a", "PORT_ERR").until(61, 62);
    let told = log.run();
    let state = told.last("qp.error_state");
    assert_eq!((state.severity.name(), state.summary.contains("down")), ("warning", false), "{}", state.summary);
}

#[test]
fn an_address_that_is_added_ends_no_qp() {
    for told in [false, true] {
        let mut log = log();
        gids(&mut log, 0.3, &["fe80::a"]);
        if told {
            log.event(2.4, "a", "GID_CHANGE");
        }
        stats(&mut log, 2.5, "a", 104, json!({"LOC_QP_OP_ERR": 1, "WR_FLUSH_ERR": 4}));
        gids(&mut log, 2.55, &["fe80::a", "::ffff:10.0.1.1"]);
        log.qp(2.6, "a", 104, "seen", Some("ERR")).until(3, 6);
        let outcome = log.run();
        assert_eq!(first(&outcome, "qp.software_error", None).subject.port, Some(1));
        let state = outcome.last("qp.error_state");
        assert!(!state.summary.contains("addresses"), "{}", state.summary);
    }
}
