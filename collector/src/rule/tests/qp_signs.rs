//! `qp.rnr`, `qp.software_error`, and what a QP's failure follows from.

use super::*;

pub(super) fn log() -> Log {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp").probes(0.0);
    for qpn in 100..120 {
        log.qp(0.0, "a", qpn, "seen", Some("RTS"));
    }
    log
}

/// One reading every so many seconds of a counter that grows by `rate` a second from `from` on.
fn counted(log: &mut Log, every: f64, end: f64, name: &str, (from, to): (f64, f64), rate: f64) {
    let mut at = 0u32;
    while f64::from(at) * every < end {
        let s = f64::from(at) * every + 0.05;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a test")]
        let n = 4_294_967_000 + ((s.min(to) - from).max(0.0) * rate) as u64;
        // mlx5's Q counters have 32 bits and go on at zero.
        log.counters(s, "a", "nldev", json!({name: n & 0xffff_ffff}));
        at += 1;
    }
}

pub(super) fn stats(log: &mut Log, s: f64, qpn: u32, fields: impl Into<Value>) {
    let fields: Value = fields.into();
    let mut line = json!({"device": "a", "qpn": qpn, "posts": 9, "wrs": 9, "bytes": 9});
    for (key, value) in fields.as_object().unwrap() {
        line[key] = value.clone();
    }
    log.add(s, "qp_stats", line);
}

#[test]
fn a_sender_whose_peers_have_no_buffers_is_told_as_the_sender() {
    for every in [0.1, 1.0, 10.0, 30.0] {
        for (rate, severity) in [(3.0, "info"), (50.0, "warning")] {
            let mut log = log();
            counted(&mut log, every, 150.0 + every * 10.0, "rnr_nak_retry_err", (20.0, 60.0 + every * 4.0), rate);
            let outcome = log.run();
            let told = outcome.of("qp.rnr");
            assert!(told[0].ends_with(&format!("a/1 raised {severity} suspected")), "{every} {rate}: {told:?}");
            assert!(told.last().unwrap().contains("cleared"), "{every} {rate}: {told:?}");
            assert!(outcome.last("qp.rnr").summary.contains("this node is the sender"));
        }
    }
}

#[test]
fn a_receiver_without_buffers_is_told_as_the_receiver_and_a_hiccup_is_not() {
    let mut log = log();
    counted(&mut log, 1.0, 100.0, "out_of_buffer", (20.0, 60.0), 500.0);
    let outcome = log.run();
    assert!(outcome.of("qp.rnr")[0].ends_with("a/1 raised warning suspected"));
    assert!(outcome.last("qp.rnr").summary.contains("this node is the receiver"), "{}", outcome.last("qp.rnr").summary);
    let mut log = self::log();
    counted(&mut log, 1.0, 100.0, "out_of_buffer", (20.0, 22.0), 500.0);
    log.run().nothing();
}

#[test]
fn a_receiver_on_the_same_node_makes_it_probable() {
    let mut log = log();
    log.device(0.0, "b", "mlx5_core", "0000:02:00.0");
    log.add(
        0.0,
        "port",
        json!({"device": "b", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE", "rate_gbps": 400.0,
        "gids": [{"index": 3, "gid": "fe80::b", "kind": "RoCE v2"}]}),
    );
    log.add(
        0.1,
        "qp",
        json!({"device": "a", "port": 1, "qpn": 100, "event": "seen", "to": "RTS", "remote_gid": "fe80::b"}),
    );
    for s in 0..60u32 {
        let n = s.saturating_sub(20) * 40;
        log.counters(f64::from(s), "a", "nldev", json!({"rnr_nak_retry_err": n}));
        log.counters(f64::from(s), "b", "nldev", json!({"out_of_buffer": n}));
    }
    let outcome = log.run();
    let told =
        outcome.changes.iter().rfind(|f| f.rule == "qp.rnr" && f.subject.device.as_deref() == Some("a")).unwrap();
    assert!(told.summary.contains("the receiver b/1 is on this node"), "{}", told.summary);
    assert_eq!(told.grade.name(), "probable");
}

#[test]
fn used_up_rnr_retries_are_confirmed_by_completions_and_the_head_of_the_qps_failure() {
    let mut log = log();
    stats(&mut log, 1.0, 104, json!({"completions": 5}));
    counted(&mut log, 1.0, 9.0, "req_rnr_retries_exceeded", (99.0, 99.0), 0.0);
    log.qp(9.4, "a", 104, "seen", Some("ERR"));
    stats(&mut log, 9.5, 104, json!({"completions": 9, "errors": {"RNR_RETRY_EXC_ERR": 1, "WR_FLUSH_ERR": 3}}));
    log.until(10, 80);
    let outcome = log.run();
    assert_eq!(outcome.of("qp.rnr"), ["10 a/1 raised warning confirmed", "70 a/1 cleared warning confirmed"]);
    assert!(outcome.last("qp.rnr").summary.contains("QP 104"));
    assert!(outcome.of("qp.retry_exceeded").is_empty(), "another kind of retry");
    let state = outcome.changes.iter().find(|f| f.rule == "qp.error_state").unwrap();
    assert_eq!(state.part_of.as_deref(), Some("qp.rnr:a/1"));
}

#[test]
fn errors_of_the_application_are_never_the_links() {
    let mut log = log();
    for s in 0..90u32 {
        log.counters(f64::from(s), "a", "nldev", json!({"req_remote_access_errors": 7 + u32::from(s > 9)}));
    }
    let outcome = log.run();
    assert_eq!(outcome.of("qp.software_error"), ["11 a/1 raised info suspected", "70 a/1 cleared info suspected"]);
    assert!(outcome.last("qp.software_error").summary.contains("1 access error since"));
    for rule in ["nic.composite", "phy.crc", "link.down", "qp.retry_exceeded"] {
        assert!(outcome.of(rule).is_empty(), "{rule}");
    }
}

#[test]
fn a_refused_work_request_is_confirmed_names_its_qp_and_heads_its_failure() {
    let mut log = log();
    stats(&mut log, 1.0, 104, json!({"completions": 5}));
    log.until(2, 8).qp(9.4, "a", 104, "seen", Some("ERR"));
    stats(&mut log, 9.5, 104, json!({"completions": 9, "errors": {"REM_ACCESS_ERR": 1, "WR_FLUSH_ERR": 30}}));
    log.until(10, 20);
    let outcome = log.run();
    assert_eq!(outcome.of("qp.software_error"), ["10 a/1 raised warning confirmed"]);
    assert!(outcome.last("qp.software_error").summary.contains("REM_ACCESS_ERR of QP 104"));
    let state = outcome.changes.iter().rfind(|f| f.rule == "qp.error_state").unwrap();
    assert_eq!(state.part_of.as_deref(), Some("qp.software_error:a/1"));
    assert!(state.summary.ends_with("a consequence of qp.software_error"), "{}", state.summary);
}

#[test]
fn flushed_completions_and_a_reset_of_the_counters_are_no_error() {
    let mut log = log();
    stats(&mut log, 1.0, 104, json!({"completions": 5}));
    for s in 0..30u32 {
        let n = if s < 10 { 90 } else { 2 };
        let at = f64::from(s) + 0.1;
        log.counters(at, "a", "nldev", json!({"req_remote_access_errors": n, "req_cqe_flush_error": s * 100}));
    }
    stats(&mut log, 30.5, 104, json!({"completions": 5000, "errors": {"WR_FLUSH_ERR": 3000}}));
    log.until(31, 40);
    log.run().nothing();
}

#[test]
fn what_follows_from_a_port_that_is_down_is_one_finding_of_each_rule() {
    let mut log = log();
    log.counters(1.0, "a", "nldev", json!({"req_transport_retries_exceeded": 0}));
    log.counters(2.0, "a", "nldev", json!({"req_transport_retries_exceeded": 0}));
    log.event(2.5, "a", "PORT_ERR");
    for qpn in 100..105 {
        log.qp(2.7, "a", qpn, "seen", Some("ERR"));
    }
    log.counters(3.2, "a", "nldev", json!({"req_transport_retries_exceeded": 5})).until(4, 8);
    let outcome = log.run();
    let mut raised: Vec<(&str, String, Option<&str>)> =
        outcome.engine.world().findings.iter().map(|f| (f.rule, f.subject.to_string(), f.part_of.as_deref())).collect();
    raised.sort();
    let root = Some("link.down:a/1");
    assert_eq!(
        raised,
        [
            ("link.down", "a/1".to_owned(), None),
            ("nic.composite", "a/1".to_owned(), root),
            ("qp.error_state", "a/1".to_owned(), root),
            ("qp.retry_exceeded", "a/1".to_owned(), root),
        ]
    );
}

#[test]
fn a_qp_that_failed_long_before_the_port_fell_is_no_consequence() {
    let mut log = log();
    log.qp(2.5, "a", 104, "seen", Some("ERR")).until(3, 60).event(60.5, "a", "PORT_ERR").until(61, 62);
    let outcome = log.run();
    let told = outcome.changes.iter().rfind(|f| f.rule == "qp.error_state").unwrap();
    assert_eq!((told.part_of.as_deref(), told.subject.qpn), (None, Some(104)));
}

#[test]
fn a_steady_rate_of_turned_away_requests_read_rarely_is_told_once() {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp");
    for s in 0..600u32 {
        if s % 30 == 0 {
            log.counters(f64::from(s) + 0.05, "a", "hw_counters", json!({"out_of_buffer": s}));
        }
        log.until(s + 1, s + 1);
    }
    let told = log.run().of("qp.rnr");
    assert!((1..=2).contains(&told.len()), "{told:?}");
}
