//! `phy.post_fec`, `phy.crc`, `phy.pre_fec_trend`, `phy.symbol`.

use super::*;

const PERIODS: [f64; 4] = [0.1, 1.0, 10.0, 30.0];

fn log() -> Log {
    // The composite looks at the same counters.
    let mut log = Log::with("disabled = [\"nic.composite\"]");
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0");
    log.add(
        0.0,
        "port",
        json!({"device": "a", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE",
        "phys_state": "LinkUp", "rate_gbps": 400.0, "lanes": 4, "netdevs": ["ea"]}),
    );
    log
}

/// Readings every so many seconds until `end`; `values` says what a counter shows at a time.
fn read(log: &mut Log, every: f64, end: f64, values: impl Fn(f64) -> Value) {
    let mut at = 0u32;
    loop {
        let s = f64::from(at) * every + 0.05;
        if s > end {
            break;
        }
        log.counters(s, "a", "ethtool", values(s));
        at += 1;
    }
}

/// A counter that grows by `rate` a second between two times.
fn grown(s: f64, (from, to): (f64, f64), rate: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a test")]
    let n = ((s.min(to) - from).max(0.0) * rate) as u64;
    n
}

fn states(told: &[String]) -> Vec<&str> {
    told.iter().map(|line| line.split(' ').nth(2).unwrap()).collect()
}

#[test]
fn errors_after_fec_in_two_windows_are_critical_at_whatever_period_they_are_read() {
    for every in PERIODS {
        let mut log = log();
        let slow = every * 12.0;
        let end = 150.0 + slow * 1.3;
        read(&mut log, every, end, |s| json!({"rx_pcs_symbol_err_phy": 7 + grown(s, (40.0, 70.0f64.max(slow)), 40.0)}));
        let outcome = log.run();
        let told = outcome.of("phy.post_fec");
        assert!(told[0].ends_with("a/1 raised critical probable"), "{every}: {told:?}");
        assert_eq!(states(&told).last(), Some(&"cleared"), "{every}: {told:?}");
        assert_eq!(states(&told).iter().filter(|state| **state == "raised").count(), 1, "{every}: {told:?}");
    }
}

#[test]
fn one_burst_of_errors_is_no_finding_however_large_also_across_the_edge_of_two_windows() {
    for every in PERIODS {
        for (from, to) in [(44.0, 45.0), (39.0, 41.0), (38.5, 42.0)] {
            let mut log = log();
            read(&mut log, every, 120.0, |s| json!({"rx_pcs_symbol_err_phy": grown(s, (from, to), 1e6)}));
            let told = log.run().of("phy.post_fec");
            // At 30 s a burst is in one reading, at 10 s it may be in two that follow each other.
            assert!(told.is_empty() || (every > 5.0 && to - from > 1.5), "{every} {from}: {told:?}");
        }
    }
}

#[test]
fn as_many_readings_as_windows_count_and_a_steady_rate_is_told_once() {
    for every in [10.0, 30.0, 60.0] {
        let mut log = log();
        read(&mut log, every, 1_000.0, |s| json!({"rx_pcs_symbol_err_phy": grown(s, (0.0, 1e9), 1.0)}));
        // Time goes on between the readings.
        log.until(1, 1_000);
        log.lines.sort_by_key(|line| serde_json::from_str::<Value>(line).unwrap()["t"].as_u64());
        let outcome = log.run();
        let told = outcome.of("phy.post_fec");
        // 60 to 119 errors in two readings, up to 180 in three: one digit more at most.
        assert!(told.len() <= 2 && !states(&told).contains(&"cleared"), "{every}: {told:?}");
        for finding in outcome.changes.iter().filter(|finding| finding.rule == "phy.post_fec") {
            assert!(!finding.summary.contains(" in 4 windows"), "{}", finding.summary);
        }
    }
}

#[test]
fn what_stood_in_the_counters_before_or_is_reset_or_unknown_is_no_error() {
    let mut log = log();
    read(&mut log, 1.0, 100.0, |s| {
        let value = if s < 30.0 { 90_000 } else { 500 };
        json!({"rx_pcs_symbol_err_phy": value, "rx_crc_errors_phy": value, "rx_bits_phy": 7})
    });
    log.add(
        50.5,
        "counters",
        json!({"device": "a", "port": 1, "source": "ethtool", "values": {},
        "unavailable": {"*": "EIO"}}),
    );
    log.lines.sort_by_key(|line| serde_json::from_str::<Value>(line).unwrap()["t"].as_u64());
    log.run().nothing();
}

#[test]
fn errors_as_the_cable_is_pulled_and_as_the_link_trains_are_no_finding() {
    let mut log = log();
    for s in 0..90u32 {
        let s = f64::from(s);
        if (s - 30.0).abs() < 0.1 {
            log.event(30.0, "a", "PORT_ERR");
        }
        if (s - 60.0).abs() < 0.1 {
            log.event(60.0, "a", "PORT_ACTIVE");
        }
        // From the pull until the link has settled.
        log.counters(s + 0.05, "a", "ethtool", json!({"rx_pcs_symbol_err_phy": grown(s, (29.9, 63.0), 1e4)}));
    }
    assert!(log.run().of("phy.post_fec").is_empty());
}

#[test]
fn the_lane_that_stands_out_is_named() {
    let mut log = log();
    read(&mut log, 1.0, 60.0, |s| {
        let n = grown(s, (20.0, 60.0), 50.0);
        json!({"rx_pcs_symbol_err_phy": n, "rx_err_lane_0_phy": n / 30, "rx_err_lane_1_phy": n / 20,
            "rx_err_lane_2_phy": n * 100, "rx_err_lane_3_phy": 0})
    });
    let outcome = log.run();
    let summary = &outcome.last("phy.post_fec").summary;
    assert!(summary.contains("lane 2 has 100 % of the errors before FEC"), "{summary}");
    let even = |s: f64| {
        let n = grown(s, (20.0, 60.0), 50.0);
        json!({"rx_pcs_symbol_err_phy": n, "rx_err_lane_0_phy": n, "rx_err_lane_1_phy": n * 2,
            "rx_err_lane_2_phy": n * 3, "rx_err_lane_3_phy": n})
    };
    let mut log = self::log();
    read(&mut log, 1.0, 60.0, even);
    let outcome = log.run();
    assert!(!outcome.last("phy.post_fec").summary.contains("lane"), "{}", outcome.last("phy.post_fec").summary);
}

#[test]
fn a_raised_finding_stays_while_the_port_is_down_and_belongs_to_link_down() {
    let mut log = log();
    read(&mut log, 1.0, 60.0, |s| json!({"rx_pcs_symbol_err_phy": grown(s, (20.0, 60.0), 50.0)}));
    log.event(60.5, "a", "PORT_ERR").until(61, 160);
    let outcome = log.run();
    assert_eq!(states(&outcome.of("phy.post_fec")).last(), Some(&"updated"));
    assert_eq!(outcome.last("phy.post_fec").part_of.as_deref(), Some("link.down:a/1"));
}

#[test]
fn standard_fec_statistics_count_as_the_drivers_own() {
    let mut log = log();
    read(&mut log, 1.0, 60.0, |s| json!({"uncorrectable_blocks": grown(s, (20.0, 60.0), 3.0)}));
    let outcome = log.run();
    assert_eq!(outcome.last("phy.post_fec").evidence[0].series, "uncorrectable_blocks");
}

#[test]
fn bad_crcs_in_two_windows_are_critical_and_say_whether_they_were_made_here() {
    for every in PERIODS {
        let mut log = log();
        read(
            &mut log,
            every,
            200.0 + every * 6.0,
            |s| json!({"rx_crc_errors_phy": grown(s, (40.0, 80.0 + every * 4.0), 3.0), "rx_pcs_symbol_err_phy": 0}),
        );
        let outcome = log.run();
        assert!(outcome.of("phy.crc")[0].ends_with("raised critical probable"), "{every}");
        let summary = &outcome.last("phy.crc").summary;
        assert!(summary.contains("FEC corrected everything on this link"), "{summary}");
        assert!(outcome.of("phy.post_fec").is_empty());
    }
    let mut log = log();
    read(&mut log, 1.0, 70.0, |s| {
        let n = grown(s, (20.0, 70.0), 3.0);
        json!({"rx_crc_errors_phy": n, "rx_pcs_symbol_err_phy": n * 9})
    });
    let outcome = log.run();
    assert!(outcome.last("phy.crc").summary.contains("made here"), "{}", outcome.last("phy.crc").summary);
    assert_eq!(outcome.last("phy.crc").part_of.as_deref(), Some("phy.post_fec:a/1"));
    assert_eq!(outcome.last("phy.crc").grade.name(), "confirmed");
    assert_eq!(outcome.last("phy.post_fec").grade.name(), "confirmed");
}

#[test]
fn damage_no_link_saw_is_told_as_such() {
    let mut log = log();
    for s in 0..60 {
        let s = f64::from(s) + 0.05;
        log.counters(s, "a", "hw_counters", json!({"rx_icrc_encapsulated": grown(s, (20.0, 60.0), 0.4)}));
    }
    let outcome = log.run();
    let summary = &outcome.last("phy.crc").summary;
    assert!(summary.contains("packets with a bad ICRC"), "{summary}");
}

/// Corrected bits at a share of all bits that a function of time gives.
fn corrected(log: &mut Log, every: f64, end: f64, bits: bool, ber: impl Fn(f64) -> f64) {
    let (mut sum, mut at) = (0.0, 0u32);
    loop {
        let s = f64::from(at) * every + 0.05;
        if s > end {
            break;
        }
        sum += ber(s) * 4e11 * every;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a test")]
        let (corrected, all) = (sum as u64, (s * 4e11) as u64);
        let mut values = json!({"rx_corrected_bits_phy": corrected});
        if bits {
            values["rx_bits_phy"] = all.into();
        }
        log.counters(s, "a", "ethtool", values);
        at += 1;
    }
}

#[test]
fn ten_times_its_own_baseline_is_a_warning_that_names_the_windows_it_rests_on() {
    for (every, bits) in [(0.1, true), (1.0, true), (1.0, false), (10.0, true), (30.0, true)] {
        let mut log = log();
        let start = 400.0f64.max(every * 45.0);
        corrected(&mut log, every, start + 250.0, bits, |s| if s < start { 1e-7 } else { 3e-6 });
        let outcome = log.run();
        let told = outcome.of("phy.pre_fec_trend");
        assert!(told[0].ends_with("raised warning suspected"), "{every}: {told:?}");
        let summary = &outcome.changes.iter().find(|f| f.rule == "phy.pre_fec_trend").unwrap().summary;
        assert!(summary.contains("times this link's own 1.0e-7 ("), "{summary}");
        assert_eq!(summary.contains("not counted"), !bits, "{summary}");
    }
}

#[test]
fn a_steady_ratio_and_a_good_link_that_gets_a_little_worse_are_no_finding() {
    for ber in [1e-12, 1e-8, 1e-6, 9e-6] {
        let mut log = log();
        corrected(&mut log, 1.0, 700.0, true, |_| ber);
        log.run().nothing();
    }
    let mut log = log();
    corrected(&mut log, 1.0, 700.0, true, |s| if s < 500.0 { 1e-12 } else { 5e-9 });
    log.run().nothing();
    // One bad window of ten seconds.
    let mut log = self::log();
    corrected(&mut log, 1.0, 700.0, true, |s| if (500.0..508.0).contains(&s) { 5e-6 } else { 1e-7 });
    log.run().nothing();
}

#[test]
fn more_than_any_link_should_have_is_told_before_there_is_a_baseline() {
    let mut log = log();
    corrected(&mut log, 1.0, 100.0, true, |_| 3e-5);
    let outcome = log.run();
    assert!(outcome.of("phy.pre_fec_trend")[0].ends_with("raised warning suspected"));
    let told = outcome.last("phy.pre_fec_trend");
    assert!(
        told.summary.contains("no baseline yet") && told.summary.contains("corrects up to 2.4e-4"),
        "{}",
        told.summary
    );
}

#[test]
fn a_raised_trend_is_held_against_the_baseline_it_was_raised_with_and_clears_when_it_is_back() {
    let mut log = log();
    corrected(&mut log, 1.0, 4_000.0, true, |s| match s {
        s if s < 400.0 => 1e-7,
        s if s < 3_800.0 => 5e-6,
        _ => 1e-7,
    });
    let told = log.run().of("phy.pre_fec_trend");
    assert_eq!(states(&told).iter().filter(|state| **state == "cleared").count(), 1, "{told:?}");
    let cleared: f64 = told.last().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((3_800.0..3_830.0).contains(&cleared), "{told:?}");
}

#[test]
fn a_reset_of_the_corrected_bits_is_no_rise() {
    let mut log = log();
    corrected(&mut log, 1.0, 500.0, true, |_| 1e-7);
    log.counters(500.5, "a", "ethtool", json!({"rx_corrected_bits_phy": 5, "rx_bits_phy": 9})).until(501, 540);
    log.run().nothing();
}

#[test]
fn one_lane_far_above_the_others_is_told_only_where_it_has_many_errors() {
    let lanes = |s: f64, rate: f64| {
        let n = grown(s, (0.0, 1e9), rate);
        json!({"rx_corrected_bits_phy": n, "rx_bits_phy": grown(s, (0.0, 1e9), 4e11), "corrected_bits_lane_0": n / 99,
            "corrected_bits_lane_1": n, "corrected_bits_lane_2": n / 120, "corrected_bits_lane_3": n / 150})
    };
    for (rate, told) in [(1e3, false), (1.6e6, true)] {
        let mut log = log();
        read(&mut log, 1.0, 60.0, |s| lanes(s, rate));
        let outcome = log.run();
        assert_eq!(!outcome.of("phy.pre_fec_trend").is_empty(), told, "{rate}");
        if told {
            assert!(outcome.last("phy.pre_fec_trend").summary.contains("lane 1 has"));
        }
    }
}

fn infiniband() -> Log {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0");
    log.add(
        0.0,
        "port",
        json!({"device": "a", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE",
        "phys_state": "LinkUp", "rate_gbps": 400.0}),
    );
    log
}

fn pma(log: &mut Log, every: f64, end: f64, values: impl Fn(f64) -> Value) {
    let mut at = 0u32;
    while f64::from(at) * every < end {
        let s = f64::from(at) * every + 0.05;
        log.counters(s, "a", "counters", values(s));
        at += 1;
    }
}

#[test]
fn symbol_errors_of_an_infiniband_port_are_told_above_a_hundred_a_second() {
    for every in PERIODS {
        for (rate, told) in [(50.0, 0), (150.0, 2)] {
            let mut log = infiniband();
            pma(&mut log, every, 400.0, |s| json!({"symbol_error": grown(s, (100.0, 200.0), rate), "link_downed": 0}));
            let lines = log.run().of("phy.symbol");
            assert_eq!(lines.len(), told, "{every} {rate}: {lines:?}");
        }
    }
}

#[test]
fn a_burst_before_a_whole_window_was_watched_is_no_rate() {
    for every in [0.1, 1.0, 5.0] {
        let mut log = infiniband();
        pma(&mut log, every, 60.0, |s| json!({"symbol_error": grown(s, (0.0, 1.0), 150.0)}));
        assert!(log.run().of("phy.symbol").is_empty(), "{every}");
        let mut log = self::log();
        corrected(&mut log, every, 60.0, true, |s| if s < 1.5 { 4.7e-5 } else { 1e-7 });
        assert!(log.run().of("phy.pre_fec_trend").is_empty(), "{every}");
    }
    // One reading is no trend, however long ago the one before.
    let mut log = self::log();
    corrected(&mut log, 30.0, 50.0, true, |_| 4.7e-5);
    log.until(51, 58);
    assert!(log.run().of("phy.pre_fec_trend").is_empty());
}

#[test]
fn symbol_errors_that_reach_the_limit_of_sixteen_bits_end_the_rate_not_the_tool() {
    let mut log = infiniband();
    pma(&mut log, 1.0, 60.0, |s| json!({"symbol_error": grown(s, (10.0, 60.0), 5_000.0).min(65_535)}));
    let outcome = log.run();
    let told = outcome.of("phy.symbol");
    assert_eq!(states(&told).last(), Some(&"cleared"), "{told:?}");
    let reason = super::super::find("phy.symbol").unwrap().not_judged(&outcome.engine.view()).unwrap();
    assert!(reason.contains("a/1 has its counter at the limit"), "{reason}");
    assert!(!outcome.of("counter.saturated").is_empty());
}

#[test]
fn the_port_table_of_a_roce_port_is_not_trusted_and_said_so() {
    let mut log = log();
    pma(&mut log, 1.0, 60.0, |s| json!({"symbol_error": grown(s, (10.0, 60.0), 500.0)}));
    let outcome = log.run();
    assert!(outcome.of("phy.symbol").is_empty());
    let reason = super::super::find("phy.symbol").unwrap().not_judged(&outcome.engine.view()).unwrap();
    assert!(reason.contains("its zero says nothing"), "{reason}");
}

#[test]
fn a_link_recovery_is_told_unless_the_link_has_just_come_up() {
    let mut log = infiniband();
    pma(&mut log, 1.0, 60.0, |s| json!({"link_error_recovery": u64::from(s > 30.0)}));
    assert_eq!(log.run().of("phy.symbol"), ["31 a/1 raised warning probable"]);
    let mut log = infiniband();
    pma(&mut log, 1.0, 28.0, |_| json!({"link_error_recovery": 0}));
    log.event(28.5, "a", "PORT_ERR").event(29.5, "a", "PORT_ACTIVE");
    log.counters(31.0, "a", "counters", json!({"link_error_recovery": 1})).until(32, 60);
    assert!(log.run().of("phy.symbol").is_empty());
}

#[test]
fn a_port_that_counts_nothing_of_its_link_is_named() {
    let mut log = log();
    log.counters(1.0, "a", "nldev", json!({"out_of_sequence": 0})).until(2, 5);
    let outcome = log.run();
    for rule in ["phy.post_fec", "phy.crc", "phy.pre_fec_trend", "phy.symbol"] {
        let reason = super::super::find(rule).unwrap().not_judged(&outcome.engine.view()).unwrap();
        assert!(reason.contains("a/1"), "{rule}: {reason}");
    }
}

#[test]
fn a_rule_that_cannot_judge_one_port_of_two_says_of_how_many_it_is_judged() {
    let mut log = log();
    log.device(0.0, "b", "mlx5_core", "0000:02:00.0").port(0.0, "b", "ACTIVE", "LinkUp");
    read(&mut log, 1.0, 60.0, |s| json!({"rx_pcs_symbol_err_phy": grown(s, (10.0, 60.0), 50.0)}));
    let outcome = log.run();
    assert!(!outcome.of("phy.post_fec").is_empty());
    let (rule, view) = (super::super::find("phy.post_fec").unwrap(), outcome.engine.view());
    assert_eq!(rule.not_judged(&view), None, "it has spoken");
    let part = rule.judged_in_part(&view).unwrap();
    assert_eq!((part.judged, part.of, part.blind.len()), (1, 2, 1));
    assert_eq!(part.reason, "no errors after FEC counted on b/1");
}

#[test]
fn once_the_port_is_down_what_was_counted_on_it_is_of_the_past() {
    let mut log = log();
    read(&mut log, 1.0, 60.0, |s| {
        let n = grown(s, (20.0, 60.0), 50.0);
        json!({"rx_pcs_symbol_err_phy": n, "rx_crc_errors_phy": n / 10, "rx_err_lane_0_phy": n / 30,
            "rx_err_lane_1_phy": n * 100, "rx_err_lane_2_phy": n / 20, "rx_err_lane_3_phy": 0})
    });
    log.event(60.4, "a", "PORT_ERR").until(61, 200);
    let outcome = log.run();
    let findings = &outcome.engine.world().findings;
    for rule in ["phy.post_fec", "phy.crc"] {
        let finding = findings.iter().find(|finding| finding.rule == rule).unwrap();
        assert!(!finding.summary.contains("in the last"), "{}", finding.summary);
        // 1790000000 s is 14:13:20 UTC.
        assert!(finding.summary.contains(" s until the port went down at 14:14:20.400 UTC"), "{}", finding.summary);
        assert!(finding.measured_t < 62_000_000_000, "{}", finding.measured_t);
    }
    let post_fec = findings.iter().find(|finding| finding.rule == "phy.post_fec").unwrap();
    assert!(post_fec.summary.contains("; lane 1 had 100 % of the errors before FEC"), "{}", post_fec.summary);
    assert!(
        findings[0].advice.starts_with("Errors of the link came first (lane 1 had most of them): clean"),
        "{}",
        findings[0].advice
    );
}

#[test]
fn a_sentence_names_the_time_its_numbers_cover_once() {
    let mut log = log();
    read(&mut log, 1.0, 60.0, |s| json!({"rx_pcs_symbol_err_phy": grown(s, (20.0, 60.0), 50.0)}));
    let outcome = log.run();
    let finding = outcome.last("phy.post_fec");
    assert_eq!(finding.summary.matches(" s").count(), 1, "{}", finding.summary);
    assert_eq!(finding.evidence[1].series, "windows of 10.0 s with errors, of 3");
}

#[test]
fn errors_between_the_only_two_readings_are_suspected_when_there_is_no_more_to_come() {
    for (apart, seen) in [(1.5, "1.5 s"), (10.0, "10.0 s"), (600.0, "10 min")] {
        let mut log = log();
        let values = |n: u64| json!({"rx_crc_errors_phy": n, "rx_symbol_err_phy": 7, "rx_pcs_symbol_err_phy": 40 * n});
        log.counters(0.0, "a", "ethtool", values(1)).counters(apart, "a", "ethtool", values(101));
        let outcome = log.run();
        assert_eq!(outcome.of("phy.crc").len(), 1, "{apart}");
        assert!(outcome.of("phy.post_fec")[0].ends_with("a/1 raised warning suspected"), "{apart}");
        let summary = &outcome.last("phy.post_fec").summary;
        let said = format!("4000 errors FEC could not correct in the last {seen}, between the only two readings");
        assert!(summary.starts_with(&said), "{summary}");
        // One of several windows is none of it.
        let mut log = self::log();
        log.counters(0.0, "a", "ethtool", values(1)).counters(apart, "a", "ethtool", values(101));
        log.counters(2.0 * apart, "a", "ethtool", values(101)).counters(3.0 * apart, "a", "ethtool", values(101));
        log.counters(20.0 + 3.0 * apart, "a", "ethtool", values(101));
        log.run().nothing();
    }
}
