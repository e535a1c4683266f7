//! `nic.composite`.

use super::*;

fn log(settings: &str) -> Log {
    let mut log = Log::with(settings);
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp");
    log
}

/// One reading a second from the growth of symbol errors and bad CRCs in each.
fn readings(log: &mut Log, growth: &[(u64, u64)]) {
    let (mut symbol, mut crc) = (0, 0);
    for (i, (more_symbol, more_crc)) in growth.iter().enumerate() {
        (symbol, crc) = (symbol + more_symbol, crc + more_crc);
        let s = f64::from(u32::try_from(i).unwrap()) + 0.5;
        log.counters(s, "a", "ethtool", json!({"rx_pcs_symbol_err_phy": symbol, "rx_crc_errors_phy": crc}));
    }
}

#[test]
fn bad_crcs_in_two_of_three_windows_suffice_and_clean_windows_clear() {
    let mut log = log("");
    readings(&mut log, &[(0, 0), (0, 0), (0, 5), (0, 0), (0, 5), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)]);
    assert_eq!(log.run().of("nic.composite"), ["5 a/1 raised critical suspected", "8 a/1 cleared critical suspected"]);
}

#[test]
fn bad_crcs_in_one_window_do_not_suffice() {
    let mut log = log("");
    readings(&mut log, &[(0, 0), (0, 0), (0, 5), (0, 0), (0, 0), (0, 5), (0, 0), (0, 0)]);
    log.run().nothing();
}

#[test]
fn the_default_acts_on_the_fall_at_once() {
    let mut log = log("");
    log.event(2.5, "a", "PORT_ERR").until(3, 5);
    assert_eq!(log.run().of("nic.composite"), ["2.5 a/1 raised critical confirmed"]);
}

#[test]
fn the_cross_check_wants_symbol_and_crc_errors_in_three_checks_in_a_row_and_one_clean_check_clears() {
    let mut log = log("[nic_composite]\npreset = \"cross_check\"");
    let (bad, clean) = ((200, 1), (200, 0));
    readings(&mut log, &[(0, 0), bad, bad, clean, bad, bad, bad, bad, clean, bad, bad]);
    assert_eq!(log.run().of("nic.composite"), ["7 a/1 raised critical suspected", "9 a/1 cleared critical suspected"]);
}

#[test]
fn the_cross_check_counts_checks_of_a_port_that_is_down() {
    let mut log = log("[nic_composite]\npreset = \"cross_check\"");
    log.event(2.5, "a", "PORT_ERR").until(3, 6).event(6.5, "a", "PORT_ACTIVE").until(7, 9);
    assert_eq!(
        log.run().of("nic.composite"),
        ["5 a/1 raised critical confirmed", "6.5 a/1 cleared critical confirmed"]
    );
}

#[test]
fn symbol_errors_alone_never_pass_the_cross_check() {
    let mut log = log("[nic_composite]\npreset = \"cross_check\"");
    readings(&mut log, &[(0, 0), (500, 0), (500, 0), (500, 0), (500, 0), (500, 0)]);
    log.run().nothing();
}

/// Readings of the set that sysfs has, so many seconds apart.
fn icrc(log: &mut Log, every: f64, values: &[u64]) {
    for (i, value) in values.iter().enumerate() {
        let s = f64::from(u32::try_from(i).unwrap()) * every;
        log.counters(s, "a", "hw_counters", json!({"rx_icrc_encapsulated": value}));
    }
}

#[test]
fn one_error_is_one_bad_window_however_far_apart_the_readings_are() {
    for every in [0.25, 0.7, 1.0, 1.3, 1.9, 5.0, 30.0] {
        for n in [1, 1_000] {
            let mut log = log("");
            icrc(&mut log, every, &[7, 7, 7, 7, 7 + n, 7 + n, 7 + n, 7 + n, 7 + n]);
            log.run().nothing();
        }
    }
}

#[test]
fn errors_in_two_of_three_readings_suffice_also_where_they_are_read_rarely() {
    for every in [1.0, 1.3, 5.0, 30.0] {
        let mut log = log("");
        icrc(&mut log, every, &[7, 7, 8, 8, 9, 9, 9, 9, 9, 9, 9]);
        let told = log.run().of("nic.composite");
        assert_eq!(told.len(), 2, "{every}: {told:?}");
        assert!(told[0].ends_with("raised critical suspected") && told[1].contains("cleared"), "{told:?}");
    }
}

#[test]
fn errors_that_a_fall_follows_are_confirmed() {
    let mut log = log("");
    icrc(&mut log, 1.0, &[7, 7, 8, 9]);
    log.event(4.5, "a", "PORT_ERR").until(5, 6);
    let told = log.run().of("nic.composite");
    assert_eq!(told[1], "4.5 a/1 updated critical confirmed", "{told:?}");
}

#[test]
fn the_cross_check_passes_over_windows_without_a_reading() {
    let mut log = log("[nic_composite]\npreset = \"cross_check\"");
    for i in 0..8u32 {
        let values = json!({"rx_pcs_symbol_err_phy": 900 * i, "rx_crc_errors_phy": i});
        log.counters(f64::from(i) * 1.4, "a", "ethtool", values);
    }
    assert_eq!(log.run().of("nic.composite").len(), 1);
}

#[test]
fn errors_of_the_training_of_a_link_that_came_up_are_none_of_the_link_in_use() {
    for preset in ["default", "cross_check"] {
        let mut log = log(&format!("[nic_composite]\npreset = \"{preset}\""));
        log.port(1.2, "a", "DOWN", "Polling").port(4.2, "a", "ACTIVE", "LinkUp");
        for s in 0..20u32 {
            let n = if s > 4 { u64::from(s.min(8)) * 500 } else { 0 };
            let values = json!({"rx_pcs_symbol_err_phy": n, "rx_crc_errors_phy": n});
            log.counters(f64::from(s) + 0.5, "a", "ethtool", values);
        }
        log.lines.sort_by_key(|line| serde_json::from_str::<Value>(line).unwrap()["t"].as_u64());
        let told = log.run().of("nic.composite");
        assert!(told.iter().all(|line| !line.contains("suspected")), "{preset}: {told:?}");
    }
}

#[test]
fn a_finding_does_not_begin_before_the_watch() {
    let mut log = log("");
    for (s, n) in [(0.5, 0), (10.5, 5), (20.5, 10)] {
        log.counters(s, "a", "ethtool", json!({"rx_crc_errors_phy": n}));
    }
    log.until(21, 22);
    let outcome = log.run();
    // Judged over the last 30 s of 21.
    assert_eq!(outcome.last("nic.composite").first_t, outcome.engine.world().started);
    assert_eq!(outcome.engine.view().since(1e6), outcome.engine.world().started);
}
