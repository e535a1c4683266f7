//! `pcie.bandwidth_bound`, `pcie.shared_uplink`, `port.unstable_bandwidth`, `qp.small_messages`, `qp.cache_pressure`.

use super::*;

const GBPS: f64 = 1e9 / 8.0 / 4.0;

fn pci(at: u32) -> String {
    format!("0000:{:02x}:00.0", 0x10 + at)
}

/// Ports of 400 Gb/s behind one switch: root port, uplink, a downstream port each.
fn ports(n: u32, own: (f64, u32), uplink: (f64, u32), mps: Option<u32>) -> Log {
    let mut log = Log::with("disabled = [\"pcie.downgrade\"]");
    let link = |bdf: &str, path: &[&str], (speed, width): (f64, u32)| {
        let mut line = json!({"pci": bdf, "path": path, "speed_gts": speed, "width": width, "max_speed_gts": speed,
            "max_width": width});
        if let Some(mps) = mps {
            line["mps"] = mps.into();
        }
        line
    };
    let (root, up) = ("0000:00:01.0", "0000:01:00.0");
    log.add(0.0, "pcie", link(root, &[root], uplink)).add(0.0, "pcie", link(up, &[root, up], uplink));
    for at in 0..n {
        let (name, pci, down) = (format!("m{at}"), pci(at), format!("0000:02:{at:02x}.0"));
        log.device(0.0, &name, "mlx5_core", &pci).port(0.0, &name, "ACTIVE", "LinkUp");
        log.add(0.0, "pcie", link(&down, &[root, up, &down], own));
        log.add(0.0, "pcie", link(&pci, &[root, up, &down, &pci], own));
    }
    log
}

/// Readings every so many seconds of bytes sent at a rate in Gb/s.
fn traffic(log: &mut Log, at: u32, every: f64, (from, to): (f64, f64), gbps: impl Fn(f64) -> f64) {
    let name = format!("m{at}");
    let (mut words, mut s) = (0.0, from);
    while s < to {
        words += gbps(s) * GBPS * every;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "words of a test")]
        let sent = words as u64;
        log.counters(
            s + 0.01 * f64::from(at + 1),
            &name,
            "counters",
            json!({"port_xmit_data": sent, "port_rcv_data": 9}),
        );
        s += every;
    }
    log.lines.sort_by_key(|line| serde_json::from_str::<Value>(line).unwrap()["t"].as_u64());
}

#[test]
fn throughput_that_stands_at_what_the_adapters_own_link_carries_is_told() {
    for every in [0.1, 1.0, 2.5] {
        let mut log = ports(1, (16.0, 16), (32.0, 16), Some(256));
        traffic(&mut log, 0, every, (0.5, 60.0), |s| if s < 40.0 { 221.0 } else { 90.0 });
        let outcome = log.run();
        let told = outcome.of("pcie.bandwidth_bound");
        assert!(told[0].ends_with("m0 0000:10:00.0 raised warning probable"), "{every}: {told:?}");
        assert!(told[1].contains("cleared"), "{every}: {told:?}");
        let summary = &outcome.last("pcie.bandwidth_bound").summary;
        assert!(
            summary.contains("PCIe 16 GT/s x16 carries by calculation (224 Gb/s of 252 at packets of 256 bytes)"),
            "{summary}"
        );
    }
}

#[test]
fn a_port_that_fits_its_link_is_not_busy_or_not_steady_at_the_bound_is_no_finding() {
    let steady = |gbps: f64| move |_: f64| gbps;
    for (own, gbps) in [((32.0, 16), 390.0), ((16.0, 16), 120.0), ((16.0, 16), 300.0)] {
        let mut log = ports(1, own, (32.0, 16), None);
        traffic(&mut log, 0, 1.0, (0.5, 40.0), steady(gbps));
        assert!(log.run().of("pcie.bandwidth_bound").is_empty(), "{own:?} {gbps}");
    }
    let mut log = ports(1, (16.0, 16), (32.0, 16), None);
    traffic(&mut log, 0, 1.0, (0.5, 60.0), |s| if s.rem_euclid(5.0) < 1.0 { 150.0 } else { 222.0 });
    assert!(log.run().of("pcie.bandwidth_bound").is_empty());
}

#[test]
fn an_unknown_payload_is_said_and_stalls_of_the_bus_confirm() {
    let mut log = ports(1, (16.0, 16), (32.0, 16), None);
    for s in 0..40u32 {
        log.counters(
            f64::from(s) + 0.2,
            "m0",
            "ethtool",
            json!({"outbound_pci_stalled_rd": 70, "outbound_pci_stalled_wr": 1}),
        );
    }
    traffic(&mut log, 0, 1.0, (0.5, 40.0), |_| 215.0);
    let outcome = log.run();
    let told = outcome.last("pcie.bandwidth_bound");
    assert!(told.summary.contains("256 bytes assumed"), "{}", told.summary);
    assert_eq!(told.grade.name(), "confirmed");
}

#[test]
fn four_ports_that_fill_the_uplink_they_share_are_told_with_the_share_of_each() {
    let mut log = ports(4, (32.0, 16), (32.0, 16), Some(256));
    for at in 0..4 {
        traffic(&mut log, at, 1.0, (0.5, 60.0), move |s| if s < 40.0 { 95.0 + 10.0 * f64::from(at) } else { 40.0 });
    }
    let outcome = log.run();
    let told = outcome.of("pcie.shared_uplink");
    assert!(told[0].ends_with("m0 0000:01:00.0 raised warning probable"), "{told:?}");
    assert!(told[1].contains("cleared"), "{told:?}");
    let told = outcome.last("pcie.shared_uplink");
    assert!(
        told.summary.starts_with("440 Gb/s sent by 4 ports (m0/1 95, m1/1 105, m2/1 115, m3/1 125)"),
        "{}",
        told.summary
    );
    assert!(told.summary.contains("their rates add up to 1600 Gb/s"), "{}", told.summary);
    assert!(outcome.of("pcie.bandwidth_bound").is_empty());
}

#[test]
fn ports_that_share_an_uplink_and_do_not_fill_it_or_pass_by_it_are_no_finding() {
    for each in [60.0, 200.0] {
        let mut log = ports(4, (32.0, 16), (32.0, 16), Some(256));
        for at in 0..4 {
            traffic(&mut log, at, 1.0, (0.5, 40.0), move |_| each);
        }
        assert!(log.run().of("pcie.shared_uplink").is_empty(), "{each}");
    }
    // An uplink that carries all of them.
    let mut log = ports(2, (16.0, 8), (64.0, 16), Some(256));
    for at in 0..2 {
        traffic(&mut log, at, 1.0, (0.5, 40.0), |_| 390.0);
    }
    assert!(log.run().of("pcie.shared_uplink").is_empty());
}

#[test]
fn a_gpu_behind_the_same_switch_lowers_the_grade() {
    let mut log = ports(4, (32.0, 16), (32.0, 16), Some(256));
    log.add(
        0.1,
        "pcie",
        json!({"pci": "0000:90:00.0", "class": "0x030200",
        "path": ["0000:00:01.0", "0000:01:00.0", "0000:02:1f.0", "0000:90:00.0"]}),
    );
    for at in 0..4 {
        traffic(&mut log, at, 1.0, (0.5, 40.0), |_| 110.0);
    }
    let outcome = log.run();
    let told = outcome.last("pcie.shared_uplink");
    assert_eq!(told.grade.name(), "suspected");
    assert!(told.summary.contains("data to them does not use the uplink"), "{}", told.summary);
}

#[test]
fn a_port_whose_throughput_is_not_known_is_not_taken_for_idle() {
    let mut log = ports(4, (32.0, 16), (32.0, 16), Some(256));
    for at in 0..3 {
        traffic(&mut log, at, 1.0, (0.5, 40.0), |_| 147.0);
    }
    let outcome = log.run();
    assert!(outcome.of("pcie.shared_uplink").is_empty());
    let reason = super::super::find("pcie.shared_uplink").unwrap().not_judged(&outcome.engine.view());
    assert_eq!(reason.as_deref(), Some("the throughput of m3/1 is not known"));
}

/// A port that is steady but for one window in ten.
fn steady(high: f64, low: f64) -> impl Fn(f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a test")]
    move |s: f64| if (s as u64) % 10 == 3 { low } else { high }
}

#[test]
fn throughput_far_below_its_mean_at_times_is_told_and_a_little_below_is_not() {
    // One window in ten is low: mean 350 and p5 200; mean 320 and p5 285.
    for (high, low, told) in [(366.7, 200.0, true), (323.9, 285.0, false)] {
        let mut log = ports(1, (32.0, 16), (32.0, 16), None);
        traffic(&mut log, 0, 1.0, (0.5, 200.0), steady(high, low));
        let outcome = log.run();
        let lines = outcome.of("port.unstable_bandwidth");
        assert_eq!(!lines.is_empty(), told, "{high} {low}: {lines:?}");
        if told {
            let summary = &outcome.last("port.unstable_bandwidth").summary;
            assert!(summary.starts_with("350 Gb/s on average and 200 in the lowest 5 %"), "{summary}");
            assert!(summary.contains("42.9 % below; what is asked for is not known"), "{summary}");
            assert!(lines[0].ends_with("raised info suspected"), "{lines:?}");
        }
    }
}

#[test]
fn as_many_readings_are_needed_where_they_are_rarer_than_windows() {
    let low = |s: f64| if s.rem_euclid(100.0) < 10.0 { 200.0 } else { 366.7 };
    for (end, told) in [(400.0, false), (700.0, true)] {
        let mut log = ports(1, (32.0, 16), (32.0, 16), None);
        traffic(&mut log, 0, 10.0, (0.5, end), low);
        let outcome = log.run();
        assert_eq!(!outcome.of("port.unstable_bandwidth").is_empty(), told, "{end}");
        if told {
            let summary = &outcome.last("port.unstable_bandwidth").summary;
            assert!(summary.contains("of 60 busy readings"), "{summary}");
        }
    }
}

#[test]
fn bursts_of_a_job_that_computes_in_between_are_no_finding() {
    let mut log = ports(1, (32.0, 16), (32.0, 16), None);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a test")]
    traffic(&mut log, 0, 1.0, (0.5, 400.0), |s| match (s as u64) % 20 {
        0..=11 => 380.0,
        12 => 130.0,
        _ => 3.0,
    });
    assert!(log.run().of("port.unstable_bandwidth").is_empty());
}

#[test]
fn one_rail_that_is_unsteady_among_steady_ones_is_told_and_all_together_are_not() {
    let mut log = ports(4, (32.0, 16), (64.0, 16), None);
    for at in 0..4 {
        let (high, low) = if at == 2 { (366.7, 200.0) } else { (350.0, 340.0) };
        traffic(&mut log, at, 1.0, (0.5, 150.0), steady(high, low));
    }
    let outcome = log.run();
    let told = outcome.of("port.unstable_bandwidth");
    assert!(told.iter().all(|line| line.contains("m2/1")) && told[0].ends_with("raised info suspected"), "{told:?}");
    assert!(outcome.last("port.unstable_bandwidth").summary.contains("the other rails are steady"));
    let mut log = ports(4, (32.0, 16), (64.0, 16), None);
    (0..4).for_each(|at| traffic(&mut log, at, 1.0, (0.5, 150.0), steady(366.7, 200.0)));
    assert!(log.run().of("port.unstable_bandwidth").is_empty());
}

#[test]
fn rails_that_swing_together_around_the_busy_limit_are_not_called_steady() {
    // All rise and fall together. The first is busy throughout; the others are a little lower, and in their low seconds not
    // busy at all: what they have in their own busy windows says nothing.
    let mut log = ports(4, (32.0, 16), (64.0, 16), None);
    for at in 0..4 {
        let share = if at == 0 { 1.0 } else { 0.75 };
        traffic(&mut log, at, 1.0, (0.5, 290.0), move |s| {
            share * if s.rem_euclid(60.0) < 12.0 { 115.0 } else { 260.0 }
        });
    }
    let outcome = log.run();
    assert!(outcome.of("port.unstable_bandwidth").is_empty(), "{:?}", outcome.of("port.unstable_bandwidth"));
}

#[test]
fn unsteadiness_is_as_old_as_its_first_low_window() {
    let mut log = ports(4, (32.0, 16), (64.0, 16), None);
    for at in 0..4 {
        let low = |s: f64| if s > 150.0 && s.rem_euclid(10.0) < 2.0 { 150.0 } else { 350.0 };
        traffic(&mut log, at, 1.0, (0.5, 250.0), move |s| if at == 2 { low(s) } else { 350.0 });
    }
    let outcome = log.run();
    let first = outcome.last("port.unstable_bandwidth").first_t as f64 / 1e9;
    assert!((150.0..153.0).contains(&first), "{first}");
}

/// Statistics of QPs that each post so many work requests of a size a second.
struct Posts {
    qps: u32,
    per_s: u64,
    size_log2: usize,
    latency_log2: Option<usize>,
    switches: bool,
}

fn posts(log: &mut Log, (from, to): (u32, u32), posts: &Posts) {
    for s in from..to {
        let at = f64::from(s) + 0.5;
        for qpn in 0..posts.qps {
            let n = posts.per_s * u64::from(s);
            let histogram = |bucket: usize, n: u64| [vec![0; bucket], vec![n]].concat();
            let mut line = json!({"device": "m0", "qpn": qpn + 10, "posts": n, "wrs": n, "bytes": n << posts.size_log2,
                "signaled": n, "completions": n, "size_log2": histogram(posts.size_log2, n)});
            if let Some(bucket) = posts.latency_log2 {
                line["latency_log2_ns"] = histogram(bucket, n).into();
            }
            if posts.switches {
                line["switches"] = n.into();
            }
            log.add(at, "qp_stats", line);
        }
        log.probes(at);
    }
}

#[test]
fn small_messages_one_by_one_are_told_with_the_depth_the_link_would_take() {
    // 4 QPs, one operation of 4 KB each 3 µs: 1.3 M a second, 43 Gb/s of 400.
    let mut log = ports(1, (32.0, 16), (32.0, 16), None);
    let one = Posts { qps: 4, per_s: 330_000, size_log2: 12, latency_log2: Some(11), switches: false };
    posts(&mut log, (1, 40), &one);
    let outcome = log.run();
    let told = outcome.of("qp.small_messages");
    assert!(told[0].ends_with("m0/1 raised warning probable"), "{told:?}");
    let summary = &outcome.last("qp.small_messages").summary;
    assert!(
        summary.contains(
            "10.8 % of the line rate; 4.1 outstanding at 3.1 µs each; at that latency some 38 fill the link, \
             and at 2 µs without load some 24"
        ),
        "{summary}"
    );
}

#[test]
fn without_a_latency_the_depth_is_said_to_be_unknown() {
    let mut log = ports(1, (32.0, 16), (32.0, 16), None);
    posts(&mut log, (1, 40), &Posts { qps: 4, per_s: 330_000, size_log2: 12, latency_log2: None, switches: false });
    let outcome = log.run();
    assert!(outcome.of("qp.small_messages")[0].ends_with("raised info suspected"));
    assert!(outcome.last("qp.small_messages").summary.contains("is not known (latency is not measured)"));
}

#[test]
fn enough_small_messages_outstanding_few_of_them_and_large_ones_are_no_finding() {
    let some = [
        // Deep: a hundred outstanding; something else holds them up.
        Posts { qps: 4, per_s: 330_000, size_log2: 12, latency_log2: Some(16), switches: false },
        // Full.
        Posts { qps: 8, per_s: 1_200_000, size_log2: 12, latency_log2: Some(11), switches: false },
        // Control messages.
        Posts { qps: 64, per_s: 20, size_log2: 6, latency_log2: Some(12), switches: false },
        // Large.
        Posts { qps: 4, per_s: 10_000, size_log2: 20, latency_log2: Some(18), switches: false },
    ];
    for (at, some) in some.iter().enumerate() {
        let mut log = ports(1, (32.0, 16), (32.0, 16), None);
        posts(&mut log, (1, 30), some);
        let outcome = log.run();
        assert!(outcome.of("qp.small_messages").is_empty(), "{at}: {:?}", outcome.of("qp.small_messages"));
    }
}

#[test]
fn many_qps_in_turn_that_make_small_operations_slower_are_probable_and_never_more() {
    let settings = "[qp_cache_pressure]\nqps = 64\nmany = 256";
    let before = |per_s: u64, many: &Posts| {
        let mut log = ports(1, (32.0, 16), (32.0, 16), None);
        log.settings = toml::from_str(settings).unwrap();
        posts(&mut log, (1, 30), &Posts { qps: 8, per_s, size_log2: 6, latency_log2: Some(11), switches: true });
        posts(&mut log, (30, 60), many);
        log.run()
    };
    let run = |many: &Posts| before(1_000, many);
    let slow = Posts { qps: 100, per_s: 100, size_log2: 6, latency_log2: Some(13), switches: true };
    let outcome = run(&slow);
    let told = outcome.of("qp.cache_pressure");
    assert!(told[0].ends_with("m0/1 raised warning probable"), "{told:?}");
    assert!(outcome.last("qp.cache_pressure").summary.contains("(inferred): at least 100 QPs posted to"));
    let finding = outcome.last("qp.cache_pressure");
    let began_s = (finding.first_t as f64 / 1e9 - 1.0).round();
    assert!((29.0..=31.0).contains(&began_s), "with the first window of many QPs: {began_s}");
    // Far more was posted as well: that explains it too, and is said.
    let outcome = before(100, &slow);
    assert!(outcome.of("qp.cache_pressure")[0].ends_with("m0/1 raised warning suspected"));
    let finding = outcome.last("qp.cache_pressure");
    assert!(finding.summary.contains(" times fewer requests were posted: the load explains it"), "{}", finding.summary);
    assert_eq!(
        finding.evidence.iter().filter(|row| row.unit == "1/s" && row.series.contains("half as many")).count(),
        1
    );
    // As quick as before; the same QP again and again.
    assert!(run(&Posts { latency_log2: Some(11), ..slow }).of("qp.cache_pressure").is_empty());
    assert!(run(&Posts { qps: 40, ..slow }).of("qp.cache_pressure").is_empty());
    // Without a latency only a very large number is worth a word.
    assert!(run(&Posts { latency_log2: None, ..slow }).of("qp.cache_pressure").is_empty());
    let told = run(&Posts { qps: 300, latency_log2: None, ..slow }).of("qp.cache_pressure");
    assert!(told[0].ends_with("raised info suspected"), "{told:?}");
}

#[test]
fn what_is_seen_of_the_posts_is_no_measure_of_a_port_that_sends_far_more() {
    let small = Posts { qps: 4, per_s: 330_000, size_log2: 12, latency_log2: Some(11), switches: false };
    let run = |gbps: f64| {
        let mut log = ports(2, (32.0, 16), (32.0, 16), None);
        posts(&mut log, (1, 40), &small);
        for s in 1..40u32 {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a test")]
            let bytes = |gbps: f64| (gbps * 1e9 / 8.0 * f64::from(s)) as u64;
            let values = json!({"port_xmit_data": bytes(gbps) / 4, "port_xmit_packets": bytes(gbps) / 4_096,
                "port_rcv_packets": bytes(gbps) / 4_096, "port_rcv_data": bytes(0.1) / 4});
            // Nobody posts on the other one where a probe sees it.
            log.counters(f64::from(s) + 0.4, "m1", "counters", values.clone());
            log.counters(f64::from(s) + 0.4, "m0", "counters", values);
        }
        log.lines.sort_by_key(|line| serde_json::from_str::<Value>(line).unwrap()["t"].as_u64());
        log.run()
    };
    let seen = run(45.0);
    assert!(
        !seen.last("qp.small_messages").summary.contains("of what is seen"),
        "{}",
        seen.last("qp.small_messages").summary
    );
    let part = run(70.0);
    let summary = &part.last("qp.small_messages").summary;
    assert!(summary.contains("work requests a second, of what is seen (3"), "{summary}");
    let most = run(180.0);
    assert_eq!(
        most.of("qp.small_messages").last().map(|line| line.contains("raised")),
        None,
        "{:?}",
        most.of("qp.small_messages")
    );
    for id in ["qp.small_messages", "qp.cache_pressure"] {
        let rule = super::super::find(id).unwrap();
        let why = |outcome: &Outcome| {
            let view = outcome.engine.view();
            format!("{:?}", (super::super::not_judged(rule, &view), super::super::judged_in_part(rule, &view)))
        };
        assert!(why(&most).contains("most of what m0/1, m1/1 sends"), "silence is no all-clear: {}", why(&most));
        assert!(why(&seen).contains("most of what m1/1 sends"), "{}", why(&seen));
    }
}

#[test]
fn where_nobody_counts_what_a_port_sends_the_posts_are_told_as_what_is_seen() {
    let small = Posts { qps: 4, per_s: 330_000, size_log2: 12, latency_log2: Some(11), switches: false };
    let mut log = ports(1, (32.0, 16), (32.0, 16), None);
    posts(&mut log, (1, 40), &small);
    let outcome = log.run();
    let summary = &outcome.last("qp.small_messages").summary;
    assert!(summary.contains("of what is seen (what the port sends in all is not known)"), "{summary}");
}
