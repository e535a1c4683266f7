//! `link.down`, `link.flap`.

use super::*;

fn two_ports() -> Log {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").device(0.0, "b", "mlx5_core", "0000:02:00.0");
    log.port(0.0, "a", "ACTIVE", "LinkUp").port(0.0, "b", "ACTIVE", "LinkUp");
    log
}

#[test]
fn a_port_that_leaves_active_is_critical_at_once_names_its_dead_qps_and_clears_when_it_is_back() {
    let mut log = two_ports();
    log.qp(0.1, "a", 20, "seen", Some("RTS")).qp(0.1, "a", 21, "seen", Some("RTS"));
    log.event(4.118, "a", "PORT_ERR");
    log.qp(4.349, "a", 20, "seen", Some("ERR")).qp(4.388, "a", 21, "seen", Some("ERR"));
    log.until(5, 6).event(7.5, "a", "PORT_ACTIVE").until(8, 9);
    let outcome = log.run();
    assert_eq!(
        outcome.of("link.down"),
        [
            "4.118 a/1 raised critical confirmed",
            "5 a/1 updated critical confirmed",
            "7.5 a/1 cleared critical confirmed"
        ]
    );
    // 1790000000 s is 14:13:20 UTC.
    assert_eq!(
        outcome.last("link.down").summary,
        "port left ACTIVE at 14:13:24.118 UTC; 2 QPs in error 231–270 ms later; no drain"
    );
    let commands =
        super::super::find("link.down").unwrap().hand_check(&outcome.engine.view(), outcome.last("link.down"));
    assert!(commands.contains(&"rdma link show a/1".to_owned()), "{commands:?}");
}

#[test]
fn a_roce_port_without_carrier_says_disabled_and_is_down_all_the_same() {
    let mut log = two_ports();
    log.port(3.0, "a", "DOWN", "Disabled").until(4, 5);
    assert_eq!(log.run().of("link.down"), ["3 a/1 raised critical confirmed"]);
}

#[test]
fn an_infiniband_port_that_somebody_switched_off_is_worth_an_info() {
    let mut log = Log::new();
    let port = |state: &str, phys: &str| json!({"device": "i", "port": 1, "link_layer": "InfiniBand", "state": state, "phys_state": phys});
    log.device(0.0, "i", "mlx5_core", "0000:01:00.0").add(0.0, "port", port("ACTIVE", "LinkUp"));
    log.add(2.5, "port", port("DOWN", "Disabled")).until(3, 4);
    let outcome = log.run();
    assert_eq!(outcome.of("link.down"), ["2.5 i/1 raised info confirmed"]);
    assert!(outcome.of("nic.composite").is_empty());
}

#[test]
fn a_port_found_searching_is_critical_beside_an_active_sibling_and_a_warning_without_one() {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").device(0.0, "b", "mlx5_core", "0000:02:00.0");
    log.port(0.0, "a", "ACTIVE", "LinkUp").port(0.0, "b", "DOWN", "Polling");
    log.device(0.0, "c", "irdma", "0000:03:00.0").port(0.0, "c", "DOWN", "Polling").until(1, 3);
    log.lines[0] = log.lines[0].replace("mlx5_core\"", "mlx5_core\",\"model\":\"MT4129\"");
    log.lines[1] = log.lines[1].replace("mlx5_core\"", "mlx5_core\",\"model\":\"MT4129\"");
    let outcome = log.run();
    assert_eq!(outcome.of("link.down"), ["0 b/1 raised critical confirmed", "0 c/1 raised warning confirmed"]);
    assert!(outcome.of("nic.composite").is_empty(), "it was never up while watched");
}

#[test]
fn a_port_that_is_expected_is_critical_whatever_its_physical_state_says() {
    let mut log = Log::with("[link_down]\nexpected = [\"c*/1\"]");
    log.device(0.0, "c0", "irdma", "0000:03:00.0").port(0.0, "c0", "DOWN", "Disabled");
    log.device(0.0, "d0", "irdma", "0000:04:00.0").port(0.0, "d0", "DOWN", "Disabled").until(1, 3);
    assert_eq!(log.run().of("link.down"), ["0 c0/1 raised critical confirmed"]);
}

#[test]
fn uncabled_ports_that_are_disabled_from_boot_are_no_finding() {
    let mut log = Log::new();
    for (i, name) in ["irdma0", "irdma1", "irdma2", "irdma3"].into_iter().enumerate() {
        log.device(0.0, name, "ice", &format!("0000:1a:00.{i}")).port(0.0, name, "DOWN", "Disabled");
    }
    log.device(0.0, "mlx5_0", "mlx5_core", "0000:3b:00.0").port(0.0, "mlx5_0", "ACTIVE", "LinkUp").until(1, 20);
    log.run().nothing();
}

#[test]
fn a_management_sub_device_waiting_in_init_is_no_finding() {
    let mut log = Log::new();
    log.device(0.0, "ibp8s0f1", "mlx5_core", "0000:08:00.1").port(0.0, "ibp8s0f1", "ACTIVE", "LinkUp");
    log.counters(0.0, "ibp8s0f1", "counters", json!({"port_xmit_data": 1}));
    log.add(0.0, "device", json!({"device": "smi1", "driver": "mlx5_core", "pci": "0000:08:00.1"}));
    for port in 1..=4 {
        let fields = json!({"device": "smi1", "port": port, "link_layer": "InfiniBand", "state": "INIT", "phys_state": "LinkUp"});
        log.add(0.0, "port", fields);
    }
    log.until(1, 20);
    log.run().nothing();
}

#[test]
fn a_virtual_function_falls_with_its_physical_one_and_is_not_told_twice() {
    let mut log = two_ports();
    let vf = json!({"device": "v", "driver": "mlx5_core", "pci": "0000:01:00.2", "physfn": "0000:01:00.0", "vf": true});
    log.add(0.0, "device", vf).port(0.0, "v", "ACTIVE", "LinkUp");
    log.port(2.0, "a", "DOWN", "Disabled").port(2.0, "v", "DOWN", "Disabled").until(3, 5);
    let outcome = log.run();
    assert_eq!(outcome.of("link.down"), ["2 a/1 raised critical confirmed"]);
}

#[test]
fn a_rename_is_no_loss() {
    let mut log = two_ports();
    log.add(2.0, "device", json!({"device": "a", "removed": true}));
    log.device(2.1, "ibp1s0", "mlx5_core", "0000:01:00.0").port(2.1, "ibp1s0", "ACTIVE", "LinkUp").until(3, 9);
    log.run().nothing();
}

#[test]
fn a_device_that_vanishes_while_active_is_critical_after_a_window_until_it_is_back() {
    let mut log = two_ports();
    log.until(1, 1).add(2.3, "device", json!({"device": "a", "removed": true})).until(3, 6);
    log.device(7.5, "a", "mlx5_core", "0000:01:00.0").port(7.5, "a", "ACTIVE", "LinkUp").until(8, 9);
    let outcome = log.run();
    assert_eq!(outcome.of("link.down"), ["4 a/1 raised critical confirmed", "7.5 a/1 cleared critical confirmed"]);
    assert_eq!(outcome.last("link.down").summary, "device vanished while ACTIVE at 14:13:22.300 UTC");
}

#[test]
fn a_driver_reload_that_only_resets_the_counters_is_no_finding() {
    let mut log = two_ports();
    let values = |data: u64, downed: u64, symbol: u64, writes: u64| {
        (
            json!({"port_rcv_data": data, "link_downed": downed, "symbol_error": symbol}),
            json!({"rx_write_requests": writes}),
        )
    };
    let reading = [
        (0.0, values(9_000_000_000, 4, 12, 500_000)),
        (30.0, values(1000, 0, 0, 3)),
        (40.0, values(2_250_001_000, 0, 0, 9)),
    ];
    for (s, (counters, hw)) in reading {
        log.counters(s, "a", "counters", counters).counters(s, "a", "hw_counters", hw);
    }
    log.until(41, 45);
    log.run().nothing();
}

#[test]
fn ports_of_unequal_roles_and_rates_are_no_finding() {
    let mut log = Log::new();
    for i in 0..4 {
        let (name, pci) = (format!("mlx5_ib{i}"), format!("0101:0{i}:00.0"));
        log.device(0.0, &name, "mlx5_core", &pci);
        log.add(0.0, "port", json!({"device": name, "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "phys_state": "LinkUp", "rate_gbps": 200.0}));
    }
    log.device(0.0, "mlx5_an0", "mlx5_core", "e5f1:00:02.0");
    log.add(0.0, "port", json!({"device": "mlx5_an0", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE", "phys_state": "LinkUp", "rate_gbps": 40.0}));
    log.until(1, 20);
    log.run().nothing();
}

#[test]
fn two_falls_within_the_hour_are_a_flap_and_five_are_critical() {
    let mut log = two_ports();
    for i in 0..5u32 {
        let s = f64::from(i) * 60.0 + 10.0;
        log.event(s, "a", "PORT_ERR").event(s + 3.0, "a", "PORT_ACTIVE");
    }
    log.until(254, 256);
    let outcome = log.run();
    assert_eq!(
        outcome.of("link.flap"),
        [
            "73 a/1 raised warning confirmed",
            "133 a/1 updated warning confirmed",
            "193 a/1 updated warning confirmed",
            "253 a/1 updated critical confirmed"
        ]
    );
}

#[test]
fn one_fall_and_one_count_of_it_are_one_fall() {
    let mut log = two_ports();
    log.counters(1.0, "a", "counters", json!({"link_downed": 3}));
    log.counters(2.0, "a", "counters", json!({"link_downed": 3}));
    log.event(10.5, "a", "PORT_ERR").counters(11.0, "a", "counters", json!({"link_downed": 4}));
    log.event(12.5, "a", "PORT_ACTIVE").counters(13.0, "a", "counters", json!({"link_downed": 4})).until(14, 20);
    assert!(log.run().of("link.flap").is_empty());
}

#[test]
fn falls_that_no_poll_of_the_state_saw_are_counted_by_the_counter() {
    let mut log = two_ports();
    log.counters(1.0, "a", "counters", json!({"link_downed": 0}));
    log.counters(2.0, "a", "counters", json!({"link_downed": 2})).until(3, 5);
    assert_eq!(log.run().of("link.flap"), ["3 a/1 raised warning probable"]);
}

#[test]
fn a_flap_is_over_when_the_hour_is_clean() {
    let mut log = Log::with("[link_flap]\nwindow_s = 60.0");
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp");
    for s in [10.0, 30.0] {
        log.event(s, "a", "PORT_ERR").event(s + 1.0, "a", "PORT_ACTIVE");
    }
    log.until(32, 100);
    // In between, with one fall left in the window, it is kept.
    assert_eq!(log.run().of("link.flap"), ["31 a/1 raised warning confirmed", "91 a/1 cleared warning confirmed"]);
}

#[test]
fn a_driver_reloaded_twice_is_no_flap() {
    let mut log = two_ports();
    for s in [10.0, 20.0] {
        log.add(s, "device", json!({"device": "a", "removed": true}));
        log.device(s + 0.5, "a", "mlx5_core", "0000:01:00.0").port(s + 0.5, "a", "DOWN", "Disabled");
        log.port(s + 0.9, "a", "ACTIVE", "LinkUp");
    }
    log.until(22, 30);
    assert!(log.run().of("link.flap").is_empty());
}

#[test]
fn a_device_that_vanished_is_told_also_when_another_source_was_quicker() {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp");
    log.event(2.5, "a", "PORT_ERR").event(2.6, "a", "PORT_ACTIVE");
    log.add(2.55, "device", json!({"device": "a", "removed": true})).until(3, 6);
    let told = log.run().of("link.down");
    assert_eq!(told.last().map(String::as_str), Some("4 a/1 raised critical confirmed"), "{told:?}");
}

#[test]
fn a_port_found_down_that_qps_are_connected_on_should_be_up_and_a_spare_one_should_not() {
    let found = |kind: &str, state: &str, phys: &str| {
        let mut log = Log::new();
        for (name, pci) in [("a", "0000:01:00.0"), ("b", "0000:02:00.0")] {
            let fields = json!({"device": name, "driver": "mlx5_core", "pci": pci, "model": "MT4129"});
            log.add(0.0, "device", fields);
        }
        log.port(0.0, "a", "ACTIVE", "LinkUp").port(0.0, "b", "DOWN", phys);
        log.qp(0.1, "b", 20, "seen", Some(state)).until(1, 3);
        log.lines.iter_mut().for_each(|line| *line = line.replace("\"RC\"", &format!("\"{kind}\"")));
        let outcome = log.run();
        (outcome.of("link.down"), outcome.changes.first().map(|finding| finding.summary.clone()))
    };
    let (told, summary) = found("RC", "ERR", "Disabled");
    assert_eq!(told, ["1 b/1 raised critical confirmed"]);
    assert_eq!(
        summary.as_deref(),
        Some("DOWN since before watching; its sibling a/1 is ACTIVE; 1 QP was connected on it")
    );
    assert_eq!(found("RC", "RTS", "Disabled").0, told);
    for (kind, state) in [("UD", "RTS"), ("RC", "INIT")] {
        assert_eq!(found(kind, state, "Disabled"), (vec![], None), "{kind} {state}: it is ready without a peer");
    }
}

#[test]
fn a_port_found_down_stays_a_finding_when_its_dead_qps_are_gone_and_until_it_is_active() {
    let mut log = Log::new();
    for (name, pci) in [("a", "0000:01:00.0"), ("b", "0000:02:00.0")] {
        log.add(0.0, "device", json!({"device": name, "driver": "mlx5_core", "pci": pci, "model": "MT4129"}));
    }
    log.port(0.0, "a", "ACTIVE", "LinkUp").port(0.0, "b", "DOWN", "Disabled").qp(0.1, "b", 20, "seen", Some("ERR"));
    log.until(1, 5).qp(5.5, "b", 20, "destroy", None).until(6, 20).port(20.5, "b", "ACTIVE", "LinkUp").until(21, 40);
    let told = log.run().of("link.down");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("1 b/1 raised") && told[1].contains("cleared"), "{told:?}");
    let cleared: f64 = told[1].split(' ').next().unwrap().parse().unwrap();
    assert!(cleared >= 20.0, "{told:?}");
}

#[test]
fn a_port_found_searching_for_a_carrier_that_is_then_switched_off_is_a_finding_no_more() {
    let mut log = Log::new();
    log.device(0.0, "a", "rdma_rxe", "0000:01:00.0").port(0.0, "a", "DOWN", "Polling").until(1, 5);
    log.port(5.5, "a", "DOWN", "Disabled").until(6, 30);
    let told = log.run().of("link.down");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("raised") && told[1].contains("cleared"), "{told:?}");
}

#[test]
fn ports_that_the_configuration_names_and_that_are_not_there_are_critical_until_they_are() {
    let expected = "[link_down]\nexpected = [\"a/1\", \"b/1\", \"b/2\", \"c*/1\"]";
    let mut log = Log::with(expected);
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp").until(1, 30);
    log.device(30.5, "b", "mlx5_core", "0000:02:00.0").port(30.5, "b", "ACTIVE", "LinkUp");
    log.add(30.6, "port", json!({"device": "b", "port": 2, "link_layer": "Ethernet", "state": "ACTIVE"})).until(31, 40);
    let outcome = log.run();
    let told = outcome.of("link.down");
    assert!(told[0].contains("b/1 raised critical confirmed") && told[1].contains("cleared"), "{told:?}");
    assert_eq!(outcome.changes[0].summary, "b/1, b/2 are not there; the configuration expects them up");
    // A driver that is loaded as the watching begins is given its time.
    let mut log = Log::with(expected);
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp");
    log.device(0.5, "b", "mlx5_core", "0000:02:00.0").port(0.5, "b", "ACTIVE", "LinkUp");
    log.add(0.6, "port", json!({"device": "b", "port": 2, "link_layer": "Ethernet", "state": "ACTIVE"})).until(2, 9);
    log.run().nothing();
}
