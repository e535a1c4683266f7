//! `nic.stuck`, `nic.health`, `loopback.high`.

use super::*;

const PCI: &str = "0000:01:00.0";

fn log() -> Log {
    let mut log = Log::with("disabled = [\"nic.composite\"]");
    log.device(0.0, "a", "mlx5_core", PCI).port(0.0, "a", "ACTIVE", "LinkUp");
    log.device(0.0, "b", "mlx5_core", "0000:02:00.0").port(0.0, "b", "ACTIVE", "LinkUp");
    log
}

fn of_device(log: &mut Log, s: f64, source: &str, values: impl Into<Value>) {
    let values: Value = values.into();
    log.add(s, "counters", json!({"device": "a", "source": source, "values": values}));
}

#[test]
fn several_counters_at_all_ones_at_once_are_a_device_that_does_not_answer() {
    let values = |ones: &[&str], s: u64| {
        let mut values = json!({"rx_bits_phy": s, "rx_bytes_phy": s, "tx_bytes_phy": s, "rx_packets_phy": s, "odd": s});
        for name in ones {
            values[*name] = u64::MAX.into();
        }
        values
    };
    for (ones, told) in
        [(&["rx_bits_phy", "rx_bytes_phy", "tx_bytes_phy"][..], true), (&["rx_bits_phy", "odd"][..], false)]
    {
        let mut log = log();
        for s in 0..20u32 {
            let now = if s < 10 { &[][..] } else { ones };
            log.counters(f64::from(s) + 0.5, "a", "ethtool", values(now, u64::from(s)));
        }
        let outcome = log.run();
        assert_eq!(outcome.of("nic.stuck").first().is_some_and(|line| line == "11 a raised critical probable"), told);
        assert_eq!(outcome.of("nic.stuck").is_empty(), !told);
    }
}

#[test]
fn several_counters_at_all_ones_from_the_first_reading_are_told_as_probable() {
    let mut log = log();
    for s in 0..5u32 {
        let ones = u64::MAX;
        let values = json!({"rx_bits_phy": ones, "rx_bytes_phy": ones, "tx_bytes_phy": ones, "rx_packets_phy": ones});
        log.counters(f64::from(s) + 0.5, "a", "ethtool", values);
    }
    let told = log.run().of("nic.stuck");
    assert!(told.len() == 1 && told[0].ends_with("critical probable"), "{told:?}");
}

#[test]
fn counters_that_stopped_at_their_limits_long_ago_are_no_dead_device() {
    let mut log = log();
    for s in 0..10u32 {
        log.counters(f64::from(s), "a", "counters", json!({"symbol_error": 65535, "link_downed": 255,
            "port_rcv_errors": 65535, "port_xmit_wait": 4_294_967_295u64, "port_xmit_data": 5 + s, "VL15_dropped": 65535,
            "local_link_integrity_errors": 15, "link_error_recovery": 255}));
    }
    assert!(log.run().of("nic.stuck").is_empty());
}

#[test]
fn a_firmware_that_never_had_a_value_is_no_dead_device_and_one_that_lost_them_is() {
    for (before, told) in [(u64::MAX, false), (7, true)] {
        let mut log = Log::new();
        log.device(0.0, "a", "ionic", PCI).port(0.0, "a", "ACTIVE", "LinkUp");
        for s in 0..10u32 {
            let value = if s < 5 { before } else { u64::MAX };
            let names = ["tx_rdma_ucast_bytes", "rx_rdma_ucast_bytes", "tx_rdma_ucast_pkts", "rx_rdma_ucast_pkts"];
            let values: serde_json::Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), value.into())).collect();
            log.counters(f64::from(s), "a", "hw_counters", values);
        }
        assert_eq!(!log.run().of("nic.stuck").is_empty(), told, "{before}");
    }
}

#[test]
fn reads_that_fail_for_ten_seconds_after_they_worked_are_told_and_others_are_not() {
    for (reason, told) in [("EIO", true), ("ETIMEDOUT: no answer", true), ("EACCES", false), ("EOPNOTSUPP", false)] {
        let mut log = log();
        for s in 0..40u32 {
            let at = f64::from(s) + 0.5;
            if (10..=30).contains(&s) {
                log.add(
                    at,
                    "counters",
                    json!({"device": "a", "port": 1, "source": "hw_counters", "values": {}, "unavailable": {"*": reason}}),
                );
            } else {
                log.counters(at, "a", "hw_counters", json!({"np_cnp_sent": 1, "out_of_sequence": 2}));
            }
        }
        let told_now = log.run().of("nic.stuck");
        let expected: &[&str] =
            if told { &["21 a raised critical probable", "32 a cleared critical probable"] } else { &[] };
        assert_eq!(told_now, expected, "{reason}");
    }
    // A driver that reloads, and a set that was never readable.
    let mut log = log();
    for s in 0..40u32 {
        let at = f64::from(s) + 0.5;
        let reason = json!({"*": "EIO"});
        log.add(
            at,
            "counters",
            json!({"device": "b", "port": 1, "source": "nldev", "values": {}, "unavailable": reason}),
        );
        if (10..15).contains(&s) {
            log.add(
                at,
                "counters",
                json!({"device": "a", "port": 1, "source": "hw_counters", "values": {}, "unavailable": reason}),
            );
        } else {
            log.counters(at, "a", "hw_counters", json!({"np_cnp_sent": 1}));
        }
    }
    assert!(log.run().of("nic.stuck").is_empty());
}

#[test]
fn a_device_that_is_no_longer_read_while_others_are_is_suspected() {
    for every in [1.0, 10.0] {
        let mut log = log();
        for i in 0..40u32 {
            let s = f64::from(i) * every;
            if i < 10 {
                log.counters(s, "a", "ethtool", json!({"rx_bits_phy": i}));
            }
            log.counters(s + 0.1, "b", "ethtool", json!({"rx_bits_phy": i}));
        }
        let outcome = log.run();
        let told = outcome.of("nic.stuck");
        assert!(told.len() == 1 && told[0].ends_with("a raised warning suspected"), "{every}: {told:?}");
    }
    // Nobody is read: the source has stopped.
    let mut log = log();
    for s in 0..10u32 {
        log.counters(f64::from(s), "a", "ethtool", json!({"rx_bits_phy": s}));
        log.counters(f64::from(s) + 0.1, "b", "ethtool", json!({"rx_bits_phy": s}));
    }
    log.until(10, 60);
    assert!(log.run().of("nic.stuck").is_empty());
}

#[test]
fn signs_of_life_that_stand_still_are_told_and_slow_ones_are_not() {
    for (last, told) in [(20, true), (200, false)] {
        let mut log = Log::new();
        log.device(0.0, "a", "efa", PCI).add(0.0, "port", json!({"device": "a", "port": 1, "state": "ACTIVE"}));
        for s in 0..90u32 {
            let beats = s.min(last) / 3;
            of_device(&mut log, f64::from(s), "hw_counters", json!({"keep_alive_rcvd": beats, "cmds_err": 0}));
        }
        assert_eq!(!log.run().of("nic.stuck").is_empty(), told, "{last}");
    }
}

#[test]
fn a_function_that_reads_all_ones_is_confirmed_and_one_that_always_did_is_unknown() {
    let link =
        |width: u32| json!({"pci": PCI, "speed_gts": 32.0, "width": width, "max_speed_gts": 32.0, "max_width": 16});
    let mut log = log();
    log.add(1.0, "pcie", link(16)).until(2, 9).add(9.5, "pcie", link(63)).until(10, 12);
    assert_eq!(log.run().of("nic.stuck"), ["9.5 a raised critical confirmed"]);
    let mut log = self::log();
    log.add(1.0, "pcie", link(63)).until(2, 9);
    assert!(log.run().of("nic.stuck").is_empty());
}

#[test]
fn a_health_reporter_in_error_and_its_growing_count_are_told_and_an_old_count_is_not() {
    for (error_count, state, told) in [(4, 0, 0), (5, 0, 1), (4, 1, 1)] {
        let mut log = log();
        for s in 0..30u32 {
            let (count, state) = if s < 10 { (4, 0) } else { (error_count, state) };
            of_device(
                &mut log,
                f64::from(s) + 0.5,
                "devlink",
                json!({"fw.error_count": count, "fw.recover_count": 0,
                "fw.state": state, "fw_fatal.state": 0}),
            );
        }
        let outcome = log.run();
        assert_eq!(outcome.of("nic.health").len(), told, "{:?}", outcome.of("nic.health"));
        if told > 0 {
            assert_eq!(outcome.of("nic.health")[0], "11 a raised critical confirmed");
        }
    }
}

#[test]
fn what_a_driver_says_of_the_power_of_its_slot_is_no_finding() {
    for message in [
        "PCIe slot advertised sufficient power (27W).",
        "mlx5_pcie_event:299:(pid 0): Detected insufficient power on the PCIe slot (27W).",
    ] {
        let mut log = log();
        log.add(2.5, "health", json!({"device": "a", "reporter": "mlx5_fw", "message": message})).until(3, 6);
        assert!(log.run().of("nic.health").is_empty(), "{message}");
    }
    let mut log = log();
    log.add(2.5, "health", json!({"device": "a", "reporter": "fw", "message": "power supply lost on the die"}));
    log.until(3, 6);
    assert_eq!(log.run().of("nic.health"), ["2.5 a raised critical confirmed"]);
}

#[test]
fn a_temperature_is_held_against_the_limits_of_its_own_sensor_and_clears_with_a_margin() {
    let mut log = log();
    let degrees = [60, 99, 103, 106, 103, 99, 97, 94, 90];
    for (s, degrees) in (0u32..).zip(degrees) {
        of_device(
            &mut log,
            f64::from(s) * 10.0,
            "hwmon",
            json!({"temp1_input": degrees * 1000, "temp1_crit": 105_000,
            "temp1_max": 100_000, "temp2_input": 70_000}),
        );
    }
    log.until(81, 85);
    assert_eq!(
        log.run().of("nic.health"),
        [
            "21 a raised warning confirmed",
            "31 a updated critical confirmed",
            "41 a updated warning confirmed",
            "71 a cleared warning confirmed"
        ]
    );
    let mut log = self::log();
    // No limit, an odd limit, an impossible reading.
    of_device(
        &mut log,
        1.0,
        "hwmon",
        json!({"temp1_input": 120_000, "temp2_input": 60_000, "temp2_crit": 0,
        "temp3_input": u64::MAX, "temp3_crit": 100_000}),
    );
    log.until(2, 9);
    assert!(log.run().of("nic.health").is_empty());
}

#[test]
fn failed_commands_and_a_hot_module_are_warnings() {
    let mut log = Log::new();
    log.device(0.0, "a", "efa", PCI).add(0.0, "port", json!({"device": "a", "port": 1, "state": "ACTIVE"}));
    for s in 0..20u32 {
        of_device(&mut log, f64::from(s), "hw_counters", json!({"cmds_err": 90 + s.saturating_sub(10).min(2)}));
    }
    assert!(log.run().of("nic.health").is_empty(), "two are what a process asked for in vain");
    for s in 20..30u32 {
        of_device(&mut log, f64::from(s), "hw_counters", json!({"cmds_err": 95}));
    }
    assert_eq!(log.run().of("nic.health"), ["21 a raised warning suspected"]);

    let mut log = self::log();
    for s in 0..20u32 {
        log.counters(
            f64::from(s),
            "a",
            "ethtool",
            json!({"module_high_temp": 3 + u32::from(s > 9), "module_unplug": s}),
        );
    }
    assert_eq!(log.run().of("nic.health"), ["11 a raised warning confirmed"]);
}

fn loopbacks(log: &mut Log, every: f64, values: &[(usize, u64)]) {
    let mut at = 0u32;
    for (n, p50_us) in values {
        for _ in 0..*n {
            let s = f64::from(at) * every;
            log.add(
                s,
                "loopback",
                json!({"device": "a", "port": 1, "p50_ns": p50_us * 1000, "p99_ns": p50_us * 2000,
                "max_ns": p50_us * 9000, "n": 100}),
            );
            at += 1;
        }
    }
}

#[test]
fn a_loopback_far_above_its_baseline_is_told_at_whatever_period_it_is_measured() {
    for every in [0.1, 1.0, 10.0] {
        let mut log = log();
        loopbacks(&mut log, every, &[(60, 3), (30, 120), (60, 3)]);
        let outcome = log.run();
        let told = outcome.of("loopback.high");
        assert!(told[0].ends_with("a/1 raised warning probable"), "{every}: {told:?}");
        assert!(told.last().unwrap().contains("cleared"), "{every}: {told:?}");
        assert!(outcome.last("loopback.high").summary.contains("40 times its own 3.0 µs ("));
    }
}

#[test]
fn a_slow_loopback_without_a_baseline_one_that_always_was_slow_and_one_slow_sample_are_no_finding() {
    for values in [&[(20, 3), (10, 150)][..], &[(90, 150)], &[(60, 3), (1, 500), (40, 3)], &[(60, 3), (40, 90)]] {
        let mut log = log();
        loopbacks(&mut log, 1.0, values);
        assert!(log.run().of("loopback.high").is_empty(), "{values:?}");
    }
}

#[test]
fn the_cross_check_takes_symbol_errors_with_a_slow_loopback() {
    let mut log = Log::with("[nic_composite]\npreset = \"cross_check\"");
    log.device(0.0, "a", "mlx5_core", PCI).port(0.0, "a", "ACTIVE", "LinkUp");
    for s in 0..20u64 {
        #[allow(clippy::cast_precision_loss, reason = "seconds of a test")]
        let at = s as f64;
        log.counters(at + 0.4, "a", "ethtool", json!({"rx_pcs_symbol_err_phy": s * 500}));
        let p50 = if (10..15).contains(&s) { 150_000 } else { 3_000 };
        log.add(
            at + 0.5,
            "loopback",
            json!({"device": "a", "port": 1, "p50_ns": p50, "p99_ns": p50, "max_ns": p50, "n": 9}),
        );
    }
    let outcome = log.run();
    assert_eq!(outcome.of("nic.composite"), ["13 a/1 raised critical suspected", "16 a/1 cleared critical suspected"]);
    assert!(outcome.last("nic.composite").summary.contains("with a slow loopback"));
}

#[test]
fn a_loopback_that_stays_slow_does_not_become_its_own_baseline() {
    let mut log = log();
    loopbacks(&mut log, 1.0, &[(60, 3), (600, 120)]);
    let outcome = log.run();
    let told = outcome.of("loopback.high");
    assert_eq!((told.len(), told[0].contains("raised")), (1, true), "{told:?}");
}
