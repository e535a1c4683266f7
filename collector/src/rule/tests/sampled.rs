//! What is told where posts are watched for a part of the time only: the same as where they are watched in full, or nothing.

use super::*;

/// A port of 400 Gb/s, on which a QP posts 1.3 M messages of 4 KB a second, one each 3 µs. Posts are watched for 0.2 s in
/// each `period` seconds; all the time where that is 0.
fn load(period: u32, seconds: u32) -> Log {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp");
    log.qp(0.0, "a", 10, "create", Some("RTS"));
    let (mut posts, mut watched_ns) = (0_u64, 0_u64);
    for s in 0..seconds {
        let at = f64::from(s) + 0.5;
        log.counters(
            at,
            "a",
            "counters",
            json!({"port_xmit_data": u64::from(s) * 1_320_000 * 1024, "port_rcv_data": 9}),
        );
        let full = period == 0;
        if full || s % period == 0 {
            posts += if full { 1_320_000 } else { 264_000 };
            watched_ns += 200_000_000;
            let histogram = |bucket: usize| [vec![0; bucket], vec![posts]].concat();
            let mut line = json!({"device": "a", "qpn": 10, "posts": posts, "wrs": posts, "bytes": posts * 4096,
                "signaled": posts, "completions": posts, "size_log2": histogram(12), "latency_log2_ns": histogram(11)});
            if !full {
                line["sampled_ns"] = watched_ns.into();
            }
            log.add(at, "qp_stats", line);
        }
        let mut probes = json!({"wanted": 9, "attached": 9, "failed": []});
        if !full {
            probes["posts_watched_ns"] = watched_ns.into();
            if s % period != 0 {
                probes["failed"] = json!([{"name": "post_send", "reason": "paused"}]);
            }
        }
        log.add(at, "probes", probes);
    }
    log
}

#[test]
fn a_load_that_is_sampled_is_told_once_and_with_the_numbers_of_the_whole() {
    // In the first window nothing can have grown yet: ten seconds are over with the eleventh.
    for (period, raised) in [(0, 11.0), (6, 19.0)] {
        let outcome = load(period, 200).run();
        let told = outcome.of("qp.small_messages");
        assert_eq!(told[0], format!("{raised} a/1 raised warning probable"), "every {period} s");
        assert!(!told.iter().any(|line| line.contains("cleared")), "every {period} s: {told:?}");
        let finding = outcome.last("qp.small_messages");
        assert!(finding.summary.starts_with("100 % of 1320 k work requests a second"), "{}", finding.summary);
        assert!(finding.summary.contains("10.8 % of the line rate; 4.1 outstanding"), "{}", finding.summary);
        let coverage = outcome.engine.world().coverage();
        assert_eq!(coverage.bytes_ratio.map(|ratio| (ratio * 100.0).round()), Some(100.0), "every {period} s");
    }
    // Three windows, twelve seconds from the first to the last.
    let outcome = load(6, 20).run();
    assert_eq!(outcome.last("qp.small_messages").evidence[0].window_s, Some(13.0));
}

#[test]
fn windows_in_which_nobody_watched_are_unknown_and_not_zero() {
    let outcome = load(6, 60).run();
    let port = &outcome.engine.world().ports[0];
    let known: Vec<f64> = port.traced.newest_first().flatten().collect();
    assert_eq!(known.len(), 9, "one in six, but for the first, of which nobody says how long it was");
    assert!(known.iter().all(|bytes| (*bytes - 1_320_000.0 * 4096.0).abs() < 1e6), "{known:?}");
    assert_eq!(port.posting.newest_first().count(), 9);
}

#[test]
fn what_is_exported_as_counted_is_not_multiplied_up() {
    let outcome = load(6, 60).run();
    let posted = &outcome.engine.world().ports[0].posted;
    assert_eq!((posted.requests, posted.bytes), (2_640_000, 2_640_000 * 4096));
    assert_eq!(posted.sizes[12], 2_640_000);
}

#[test]
fn a_finding_about_posts_clears_when_the_samples_say_that_it_is_over() {
    let mut log = load(6, 60);
    let mut watched_ns = 2_000_000_000_u64;
    for s in 60..300 {
        if s % 6 == 0 {
            watched_ns += 200_000_000;
        }
        let probes = json!({"wanted": 9, "attached": 9, "failed": [], "posts_watched_ns": watched_ns});
        log.add(f64::from(s) + 0.5, "probes", probes);
    }
    let told = log.run().of("qp.small_messages");
    assert!(told.last().is_some_and(|line| line.contains("cleared")), "{told:?}");
}
