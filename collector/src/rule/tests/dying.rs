//! A link that dies in the usual order: every sign is found before the end, and in the end the list has one entry.

use super::*;
use crate::incident::incidents;

/// An optic that dies: FEC has more to do at 400 s, gives up at 460 s, frames arrive damaged at 500 s, the link flaps at
/// 540 s and 560 s and is down for good at 600 s with its QPs.
fn dying_optic(every: f64) -> Log {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:01:00.0").device(0.0, "b", "mlx5_core", "0000:02:00.0").probes(0.0);
    for name in ["a", "b"] {
        log.add(
            0.0,
            "port",
            json!({"device": name, "port": 1, "link_layer": "Ethernet", "state": "ACTIVE",
            "phys_state": "LinkUp", "rate_gbps": 400.0, "lanes": 4, "netdevs": [format!("e{name}")]}),
        );
    }
    for qpn in 100..108 {
        log.qp(0.1, "a", qpn, "seen", Some("RTS"));
    }
    let flaps = [(540.2, "PORT_ERR"), (542.2, "PORT_ACTIVE"), (560.2, "PORT_ERR"), (562.2, "PORT_ACTIVE")];
    let mut events = flaps.iter().peekable();
    let (mut corrected, mut post_fec, mut crc, mut retries) = (0u64, 0u64, 0u64, 0u64);
    let mut at = 0u32;
    loop {
        let s = f64::from(at) * every + 0.05;
        at += 1;
        while let Some((t, event)) = events.next_if(|(t, _)| *t < s) {
            log.event(*t, "a", event);
        }
        if s > 600.0 {
            break;
        }
        let each = |on: bool, rate: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a test")]
            let n = (rate * every) as u64;
            if on { n } else { 0 }
        };
        corrected += each(true, if s < 400.0 { 4e4 } else { 4e6 });
        post_fec += each(s > 460.0, 30.0);
        crc += each(s > 500.0, 10.0);
        retries += each(s > 500.0, 2.0);
        let bits = each(true, 4e11) * u64::from(at);
        let lane = |n: u64| corrected / n;
        log.counters(
            s,
            "a",
            "ethtool",
            json!({"rx_corrected_bits_phy": corrected, "rx_bits_phy": bits,
            "rx_pcs_symbol_err_phy": post_fec, "rx_crc_errors_phy": crc, "rx_err_lane_0_phy": lane(50),
            "rx_err_lane_1_phy": lane(1), "rx_err_lane_2_phy": lane(60), "rx_err_lane_3_phy": lane(70)}),
        );
        log.counters(s, "a", "nldev", json!({"req_transport_retries_exceeded": 0, "local_ack_timeout_err": retries}));
        log.counters(
            s,
            "b",
            "ethtool",
            json!({"rx_corrected_bits_phy": at, "rx_bits_phy": bits,
            "rx_pcs_symbol_err_phy": 0, "rx_crc_errors_phy": 0}),
        );
    }
    log.event(600.5, "a", "PORT_ERR");
    for qpn in 100..108 {
        log.qp(600.8, "a", qpn, "seen", Some("ERR"));
    }
    log.counters(601.1, "a", "nldev", json!({"req_transport_retries_exceeded": 8, "local_ack_timeout_err": retries}));
    log.until(602, 640);
    log
}

#[test]
fn every_sign_of_a_dying_optic_is_found_before_it_is_down_and_in_the_end_there_is_one_incident() {
    for every in [0.1, 1.0, 5.0] {
        let outcome = dying_optic(every).run();
        let raised = |rule: &str| outcome.changes.iter().find(|f| f.rule == rule && f.state == FindingState::Raised);
        let at = |rule: &str| raised(rule).unwrap_or_else(|| panic!("{rule} at {every}")).t;
        let order = ["phy.pre_fec_trend", "phy.post_fec", "phy.crc", "link.flap"];
        for pair in order.windows(2) {
            assert!(at(pair[0]) < at(pair[1]), "{every}: {pair:?}");
        }
        for rule in order {
            // Flaps have a link.down of their own; the last one is at 600.5 s.
            assert!(at(rule) < 601_500_000_000, "{every}: {rule}");
        }
        assert!(at("phy.post_fec") < 541_000_000_000, "before the first flap");

        let world = outcome.engine.world();
        let all = incidents(&world.findings);
        let roots: Vec<String> = all.iter().map(|incident| incident.root.id()).collect();
        assert_eq!(roots, ["link.down:a/1"], "{every}");
        let mut parts: Vec<&str> = all[0].parts.iter().map(|finding| finding.rule).collect();
        parts.sort_unstable();
        assert_eq!(
            parts,
            [
                "link.flap",
                "nic.composite",
                "phy.crc",
                "phy.post_fec",
                "phy.pre_fec_trend",
                "qp.error_state",
                "qp.retry_exceeded"
            ],
            "{every}: each rule once"
        );
        let summary = &all[0].root.summary;
        assert!(summary.contains("; signs: phy.pre_fec_trend 3 min before, phy.post_fec 2 min before"), "{summary}");
        let text = crate::command::findings::text(world, &world.findings.iter().map(|f| &**f).collect::<Vec<_>>());
        assert!(text.contains("link.down +7") && text.contains("└ phy.post_fec"), "{text}");
        assert!(!outcome.changes.iter().any(|f| f.subject.device.as_deref() == Some("b")), "the other port is well");
    }
}

#[test]
fn errors_of_the_bus_and_the_fall_they_led_to_are_one_incident() {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", "0000:02:00.0").port(0.0, "a", "ACTIVE", "LinkUp").probes(0.0);
    log.qp(0.1, "a", 100, "seen", Some("RTS")).qp(0.1, "a", 101, "seen", Some("RTS"));
    let path = ["0000:00:01.0", "0000:02:00.0"];
    log.add(0.5, "pcie", json!({"pci": "0000:02:00.0", "path": path}));
    log.add(0.5, "pcie", json!({"pci": "0000:00:01.0", "path": [path[0]]}));
    for s in 0..20u32 {
        log.add(
            f64::from(s) + 0.6,
            "aer",
            json!({"pci": "0000:02:00.0", "severity": "corrected", "status": 256, "names": ["Rollover"]}),
        );
    }
    log.add(20.7, "aer", json!({"pci": "0000:02:00.0", "severity": "nonfatal", "status": 16384, "names": ["CmpltTO"]}));
    log.event(21.5, "a", "PORT_ERR").qp(21.8, "a", 100, "seen", Some("ERR")).qp(21.9, "a", 101, "seen", Some("ERR"));
    log.until(22, 26);
    let outcome = log.run();
    let all = incidents(&outcome.engine.world().findings);
    assert_eq!(all.iter().map(|incident| incident.root.id()).collect::<Vec<_>>(), ["link.down:a/1"]);
    assert!(all[0].root.summary.contains("signs: pcie.aer_storm"), "{}", all[0].root.summary);
    assert!(all[0].root.summary.contains("pcie.aer_fatal 800 ms before"), "{}", all[0].root.summary);
    assert_eq!(all[0].parts.len(), 4, "{:?}", all[0].parts.iter().map(|f| f.id()).collect::<Vec<_>>());
}

/// Replay errors from 5 s on, a lost transaction at 30 s, the port down at 30.5 s for longer than any rule looks back.
fn lost_on_the_bus() -> Log {
    let nic = "0000:01:00.0";
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", nic).port(0.0, "a", "ACTIVE", "LinkUp");
    for at in 0..10u32 {
        log.add(5.0 + 2.0 * f64::from(at), "aer", json!({"pci": nic, "severity": "corrected", "status": 0x100}));
    }
    log.add(30.0, "aer", json!({"pci": nic, "severity": "nonfatal", "status": 0x4000}));
    log.event(30.5, "a", "PORT_ERR").port(30.6, "a", "DOWN", "Disabled").until(31, 1000);
    log
}

#[test]
fn what_led_to_a_fall_stays_with_it_and_says_where_to_look_first() {
    let outcome = lost_on_the_bus().run();
    for rule in ["pcie.aer_storm", "pcie.aer_fatal"] {
        let told = outcome.of(rule);
        assert!(!told.iter().any(|line| line.contains("cleared")), "{told:?}");
        assert_eq!(outcome.last(rule).part_of.as_deref(), Some("link.down:a/1"), "{rule}");
    }
    let findings = &outcome.engine.world().findings;
    assert_eq!((incidents(findings).len(), findings[0].rule), (1, "link.down"));
    assert!(findings[0].summary.ends_with("signs: pcie.aer_storm 25.5 s before, pcie.aer_fatal 500 ms before"));
    assert!(findings[0].advice.starts_with("PCIe errors came first"), "{}", findings[0].advice);
    let storm = findings.iter().find(|finding| finding.rule == "pcie.aer_storm").unwrap();
    assert!(storm.summary.starts_with("10 replay errors since "), "{}", storm.summary);
    let fatal = findings.iter().find(|finding| finding.rule == "pcie.aer_fatal").unwrap();
    assert_eq!(fatal.evidence[0].window_s, None, "one event has no length");
    assert!(fatal.measured_t < outcome.engine.world().now);
}

#[test]
fn the_signs_of_a_fall_are_over_by_their_own_rules_when_the_port_is_back() {
    let mut log = lost_on_the_bus();
    log.event(1001.0, "a", "PORT_ACTIVE").port(1001.1, "a", "ACTIVE", "LinkUp").until(1002, 1010);
    let outcome = log.run();
    for rule in ["pcie.aer_storm", "pcie.aer_fatal"] {
        assert!(outcome.of(rule).last().unwrap().contains("cleared"), "{:?}", outcome.of(rule));
    }
    assert!(outcome.last("pcie.aer_storm").summary.starts_with("10 replay errors"), "it ends as it was at its worst");
}
