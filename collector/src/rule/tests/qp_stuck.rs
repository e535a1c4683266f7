//! `qp.stuck`.

use super::qp_signs::{log, stats};
use super::*;

/// Sweeps until `end`; the QP's numbers change only in the first ten seconds.
fn waiting(timeout: Option<u8>, completed: u64, sampled: bool, end: u32) -> Log {
    let mut log = log();
    let mut qp =
        json!({"device": "a", "port": 1, "qpn": 104, "event": "seen", "to": "RTS", "pid": 700, "comm": "python3"});
    if let Some(timeout) = timeout {
        qp["timeout"] = timeout.into();
    }
    log.add(0.2, "qp", qp);
    for s in 1..=end {
        let at = f64::from(s) + 0.5;
        if s <= 10 {
            let mut fields =
                json!({"posts": s * 10, "wrs": s * 10, "signaled": s * 10, "completions": u64::from(s) * 10});
            if s == 10 {
                fields["completions"] = completed.into();
            }
            if sampled {
                fields["sampled_ns"] = 100_000_000.into();
            }
            stats(&mut log, at, 104, fields);
        }
        log.probes(at);
    }
    log
}

#[test]
fn a_qp_without_a_completion_for_ten_of_its_own_timeouts_is_told() {
    // 4.096 µs · 2^18 = 1.07 s.
    let outcome = waiting(Some(18), 91, false, 40).run();
    assert_eq!(outcome.of("qp.stuck"), ["22 a QP 104 raised warning probable"]);
    let summary = &outcome.last("qp.stuck").summary;
    assert!(summary.starts_with("QP 104 of python3 (700) waits for 9 signalled work requests since"), "{summary}");
    // 67 ms: not before a few sweeps.
    assert_eq!(waiting(Some(14), 91, false, 40).run().of("qp.stuck"), ["14 a QP 104 raised warning probable"]);
}

#[test]
fn a_qp_that_is_not_seen_in_full_or_waits_for_nothing_or_for_ever_is_not_judged() {
    for (timeout, completed, sampled) in
        [(Some(18), 100, false), (Some(18), 140, false), (Some(18), 91, true), (Some(0), 91, false), (None, 91, false)]
    {
        let outcome = waiting(timeout, completed, sampled, 60).run();
        assert!(outcome.of("qp.stuck").is_empty(), "{timeout:?} {completed} {sampled}");
    }
    let reason = super::super::find("qp.stuck").unwrap();
    assert!(reason.not_judged(&waiting(Some(18), 91, true, 20).run().engine.view()).is_some());
    assert!(reason.not_judged(&waiting(Some(18), 91, false, 20).run().engine.view()).is_none());
}

#[test]
fn a_qp_whose_statistics_are_not_swept_any_more_is_not_stuck() {
    let mut log = waiting(Some(18), 91, false, 12);
    log.until(13, 60);
    assert!(log.run().of("qp.stuck").is_empty());
}

/// QP 104 with an ACK timeout of 67 ms, and each second what `at` says of it beside its posts.
fn swept(seconds: u32, at: impl Fn(u32, &mut Log)) -> Outcome {
    let mut log = log();
    log.add(0.2, "qp", json!({"device": "a", "port": 1, "qpn": 104, "event": "seen", "to": "RTS", "timeout": 14}));
    (1..=seconds).for_each(|s| at(s, &mut log));
    log.run()
}

#[test]
fn a_pause_of_one_group_of_probes_makes_no_healthy_qp_stuck() {
    for paused in ["completions_watched_ns", "posts_watched_ns"] {
        let outcome = swept(20, |s, log| {
            let n = s * 1000;
            if s < 4 {
                // Eight are always outstanding, as with every busy sender. When its posts end nothing is told of it any more.
                stats(
                    log,
                    f64::from(s) + 0.5,
                    104,
                    json!({"posts": n, "signaled": n, "completions": n - 8, "sent": n - 8}),
                );
            }
            let mut probes = json!({"wanted": 9, "attached": 9, "failed": []});
            if s >= 4 {
                probes[paused] = 2_600_000_000_u64.into();
            }
            log.add(f64::from(s) + 0.5, "probes", probes);
        });
        assert!(outcome.of("qp.stuck").is_empty(), "{paused}: {:?}", outcome.of("qp.stuck"));
        let why = super::super::find("qp.stuck").unwrap().not_judged(&outcome.engine.view());
        assert!(why.is_some_and(|why| why.contains("paused for the probes' budget")), "{paused}");
    }
}

#[test]
fn a_qp_of_whose_completions_some_are_not_counted_is_not_judged() {
    for (missed, told) in [(true, false), (false, true)] {
        let outcome = swept(20, |s, log| {
            let at = f64::from(s) + 0.5;
            stats(
                log,
                at,
                104,
                json!({"posts": s, "signaled": s * 100, "completions": 5, "completions_missed": missed}),
            );
            log.probes(at);
        });
        assert_eq!(!outcome.of("qp.stuck").is_empty(), told, "{missed}");
    }
}

#[test]
fn a_sender_that_hangs_while_it_receives_is_told_with_the_number_of_its_sends() {
    let outcome = swept(20, |s, log| {
        let at = f64::from(s) + 0.5;
        let completions = 5000 + s * 92;
        stats(log, at, 104, json!({"posts": 100, "signaled": 100, "completions": completions, "sent": 92}));
        log.probes(at);
    });
    assert_eq!(outcome.of("qp.stuck"), ["5 a QP 104 raised warning probable"]);
    let summary = &outcome.last("qp.stuck").summary;
    assert!(summary.contains("waits for 8 signalled work requests since"), "{summary}");
}

#[test]
fn the_loopback_probe_s_own_qp_is_no_finding() {
    let mut log = log();
    let own = json!({"device": "a", "port": 1, "qpn": 104, "event": "seen", "to": "RTS", "timeout": 14,
        "comm": "rdmascope-verbs"});
    log.add(0.2, "qp", own);
    for s in 1..20 {
        stats(&mut log, f64::from(s) + 0.5, 104, json!({"signaled": 9, "completions": 5}));
        log.probes(f64::from(s) + 0.5);
    }
    stats(&mut log, 20.5, 104, json!({"completions": 9, "errors": {"RETRY_EXC_ERR": 1}}));
    log.qp(20.6, "a", 104, "seen", Some("ERR")).until(21, 40);
    // The name is kept where another line does not say one: `qp` says `python3`.
    let line = log.lines.iter_mut().find(|line| line.contains(r#""to":"ERR""#)).expect("it was added");
    *line = line.replace("python3", "rdmascope-verbs");
    log.run().nothing();
}
