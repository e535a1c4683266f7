//! `pcie.aer_storm`, `pcie.aer_fatal`, `pcie.downgrade`.

use super::*;

const ROOT: &str = "0000:00:01.0";
const UP: &str = "0000:01:00.0";
const NIC: &str = "0000:02:00.0";
const GPU: &str = "0000:03:00.0";

/// A NIC and a GPU below one root port; the NIC has a bridge of its own as link partner.
fn log() -> Log {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", NIC).port(0.0, "a", "ACTIVE", "LinkUp");
    let none = json!({"correctable": {}, "nonfatal": {}, "fatal": {}});
    for (pci, path) in [(ROOT, vec![ROOT]), (UP, vec![ROOT, UP]), (NIC, vec![ROOT, UP, NIC]), (GPU, vec![ROOT, GPU])] {
        log.add(0.0, "pcie", json!({"pci": pci, "path": path, "aer": none}));
    }
    log
}

impl Log {
    fn aer(&mut self, s: f64, pci: &str, severity: &str, status: u32) -> &mut Self {
        self.add(s, "aer", json!({"pci": pci, "severity": severity, "status": status}))
    }

    fn totals(&mut self, s: f64, pci: &str, severity: &str, totals: Value) -> &mut Self {
        let mut aer = json!({"correctable": {}, "nonfatal": {}, "fatal": {}});
        aer[severity] = totals;
        self.add(s, "pcie", json!({"pci": pci, "aer": aer}))
    }

    fn link(&mut self, s: f64, pci: &str, now: (f64, u32), max: (f64, u32)) -> &mut Self {
        let fields =
            json!({"pci": pci, "speed_gts": now.0, "width": now.1, "max_speed_gts": max.0, "max_width": max.1});
        self.add(s, "pcie", fields)
    }
}

#[test]
fn a_replay_rollover_is_told_at_once_and_again_when_its_count_has_doubled() {
    let mut log = log();
    log.aer(2.5, NIC, "corrected", 0x100).aer(3.5, NIC, "corrected", 0x100);
    for s in 4..8 {
        log.aer(f64::from(s) + 0.5, NIC, "corrected", 0x100);
    }
    log.until(9, 320);
    let outcome = log.run();
    assert_eq!(
        outcome.of("pcie.aer_storm"),
        [
            "2.5 a 0000:02:00.0 raised warning confirmed",
            "3.5 a 0000:02:00.0 updated warning confirmed",
            "5.5 a 0000:02:00.0 updated warning confirmed",
            "308 a 0000:02:00.0 cleared warning confirmed"
        ]
    );
    assert!(outcome.changes[0].summary.starts_with("1 replay error since "));
}

#[test]
fn a_replay_timeout_in_the_totals_of_the_link_partner_counts_too() {
    let mut log = log();
    log.totals(1.0, UP, "correctable", json!({"Timeout": 4, "TOTAL_ERR_COR": 4}));
    log.totals(2.0, UP, "correctable", json!({"Timeout": 6, "TOTAL_ERR_COR": 6})).until(3, 4);
    let outcome = log.run();
    // The first reading lists the line for the first time, beside a reading that had no such line: it has just begun.
    assert_eq!(outcome.of("pcie.aer_storm")[0], "1 a 0000:01:00.0 raised warning confirmed");
    assert!(outcome.last("pcie.aer_storm").summary.ends_with("the NIC's link partner"));
}

#[test]
fn eleven_corrected_errors_in_each_of_five_minutes_are_a_storm_and_ten_are_none() {
    for (each, storm) in [(11u64, true), (10, false)] {
        let mut log = log();
        for minute in 0..6u32 {
            for i in 0..each {
                let s = f64::from(minute * 60) + 2.0 + 4.9 * f64::from(u32::try_from(i).unwrap());
                // The event and the total of the same error.
                log.aer(s, NIC, "corrected", 1);
                let n = u64::from(minute) * each + i + 1;
                log.totals(s + 0.5, NIC, "correctable", json!({"RxErr": n, "TOTAL_ERR_COR": n}));
            }
        }
        log.until(361, 362);
        assert_eq!(!log.run().of("pcie.aer_storm").is_empty(), storm, "{each} a minute");
    }
}

#[test]
fn a_minute_that_began_before_the_watch_is_none_of_a_storm() {
    let mut log = log();
    // The first reading is in the second half of a minute.
    for i in 0..274u32 {
        log.aer(f64::from(i) + 40.0, NIC, "corrected", 1);
    }
    for line in &mut log.lines {
        let mut fields: Value = serde_json::from_str(line).unwrap();
        if fields["t"] == 1_000_000_000u64 {
            fields["t"] = 40_500_000_000u64.into();
            *line = fields.to_string();
        }
    }
    let outcome = log.run();
    assert!(outcome.of("pcie.aer_storm").is_empty(), "{:?}", outcome.of("pcie.aer_storm"));
    let storm = super::super::find("pcie.aer_storm").unwrap();
    assert_eq!(storm.not_judged(&outcome.engine.view()), None, "a replay error would be told");
    let reason = storm.judged_in_part(&outcome.engine.view()).unwrap().reason;
    assert!(reason.contains("of the 5 minutes a storm takes"), "{reason}");
}

#[test]
fn lifetime_totals_are_no_finding() {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", NIC).port(0.0, "a", "ACTIVE", "LinkUp");
    for s in 0..9 {
        let aer = json!({"correctable": {"Rollover": 90, "TOTAL_ERR_COR": 90}, "nonfatal": {"CmpltTO": 3}, "fatal": {"DLP": 1}});
        log.add(f64::from(s), "pcie", json!({"pci": NIC, "path": [ROOT, UP, NIC], "aer": aer}));
    }
    log.run().nothing();
}

#[test]
fn an_uncorrected_error_on_the_path_is_critical_even_without_details() {
    let mut log = log();
    log.aer(2.5, UP, "nonfatal", 0).until(3, 4).aer(4.5, NIC, "fatal", 0x10).until(5, 6);
    let outcome = log.run();
    assert_eq!(
        outcome.of("pcie.aer_fatal"),
        ["2.5 a 0000:01:00.0 raised critical confirmed", "4.5 a 0000:02:00.0 raised critical confirmed"]
    );
    let commands =
        super::super::find("pcie.aer_fatal").unwrap().hand_check(&outcome.engine.view(), &outcome.changes[0]);
    assert!(commands[0].contains("/sys/bus/pci/devices/0000:01:00.0/aer_dev_"), "{commands:?}");
}

#[test]
fn errors_of_a_function_without_rdma_are_no_finding_nor_are_its_messages_at_the_root_port() {
    let mut log = log();
    log.totals(1.0, ROOT, "nonfatal", json!({"aer_rootport_total_err_nonfatal": 0}));
    log.aer(2.5, GPU, "nonfatal", 0x4000);
    log.totals(3.0, ROOT, "nonfatal", json!({"aer_rootport_total_err_nonfatal": 1})).until(4, 30);
    log.run().nothing();
}

#[test]
fn messages_at_the_root_port_that_nobody_explains_are_suspected() {
    let mut log = log();
    log.totals(1.0, ROOT, "nonfatal", json!({"aer_rootport_total_err_nonfatal": 7}));
    log.totals(2.5, ROOT, "nonfatal", json!({"aer_rootport_total_err_nonfatal": 8})).until(3, 8);
    assert_eq!(
        log.run().of("pcie.aer_fatal"),
        // Seven that the first reading had no line of, and the eighth.
        ["4 a 0000:00:01.0 raised critical suspected", "6 a 0000:00:01.0 updated critical suspected"]
    );
}

/// An error of the NIC every half second: the event, and some milliseconds after it the totals of the root port and the
/// NIC, as observed where each event is followed by a reading. One pair stands on either side of a ten-second edge.
fn errors_every_half_second(reading_after_s: f64) -> Log {
    let mut log = log();
    log.settings = toml::from_str("window_s = 0.1\n[pcie_aer_fatal]\nclear_s = 0.2").unwrap();
    log.totals(1.0, ROOT, "nonfatal", json!({"aer_rootport_total_err_nonfatal": 0, "TOTAL_ERR_NONFATAL": 0}));
    log.totals(1.0, NIC, "nonfatal", json!({"CmpltTO": 0, "TOTAL_ERR_NONFATAL": 0}));
    for n in 1..=60u32 {
        let event = 12.413_2 + 0.505_4 * f64::from(n - 1);
        let read = event + reading_after_s;
        let aer = |log: &mut Log| {
            log.aer(event, NIC, "nonfatal", 0x4000);
        };
        if reading_after_s >= 0.0 {
            aer(&mut log);
        }
        log.totals(read, ROOT, "nonfatal", json!({"aer_rootport_total_err_nonfatal": n, "TOTAL_ERR_NONFATAL": 0}));
        log.totals(read, NIC, "nonfatal", json!({"CmpltTO": n, "TOTAL_ERR_NONFATAL": n}));
        if reading_after_s < 0.0 {
            aer(&mut log);
        }
    }
    log
}

#[test]
fn an_error_and_the_message_of_it_are_one_finding_whichever_is_seen_first() {
    for reading_after_s in [0.007, 0.02, -0.02] {
        let mut log = errors_every_half_second(reading_after_s);
        log.until(43, 60);
        let outcome = log.run();
        let told = outcome.of("pcie.aer_fatal");
        assert!(!told.iter().any(|line| line.contains(ROOT)), "{reading_after_s}: {told:?}");
        assert_eq!(told.iter().filter(|line| line.contains("raised")).count(), 60, "{reading_after_s}: {told:?}");
    }
}

#[test]
fn a_message_among_explained_ones_that_nobody_explains_is_suspected() {
    let mut log = errors_every_half_second(0.02);
    log.totals(42.5, ROOT, "nonfatal", json!({"aer_rootport_total_err_nonfatal": 62, "TOTAL_ERR_NONFATAL": 0}));
    log.until(43, 60);
    let outcome = log.run();
    let root: Vec<_> = outcome.of("pcie.aer_fatal").into_iter().filter(|line| line.contains(ROOT)).collect();
    assert_eq!(
        root,
        ["45.5 a 0000:00:01.0 raised critical suspected", "45.8 a 0000:00:01.0 cleared critical suspected"],
        "told when what would explain it had three seconds to come, for `clear_s`"
    );
}

#[test]
fn an_error_stays_told_when_the_device_is_gone() {
    let mut log = log();
    log.aer(2.5, NIC, "fatal", 0x10)
        .until(3, 3)
        .add(3.5, "device", json!({"device": "a", "removed": true}))
        .until(4, 9);
    let outcome = log.run();
    assert_eq!(
        outcome.of("pcie.aer_fatal"),
        ["2.5 a 0000:02:00.0 raised critical confirmed", "5 a 0000:02:00.0 updated critical confirmed"]
    );
    assert_eq!(outcome.last("pcie.aer_fatal").part_of.as_deref(), Some("link.down:a/1"));
}

#[test]
fn a_narrow_slot_that_carries_less_than_the_ports_rate_is_told_at_the_first_reading() {
    let mut log = Log::new();
    log.device(0.0, "mlx5_0", "mlx5_core", NIC);
    log.add(
        0.0,
        "port",
        json!({"device": "mlx5_0", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "rate_gbps": 200.0}),
    );
    log.link(0.0, NIC, (16.0, 8), (16.0, 16));
    let outcome = log.run();
    assert_eq!(outcome.of("pcie.downgrade"), ["0 mlx5_0 0000:02:00.0 raised warning confirmed"]);
    assert_eq!(
        outcome.last("pcie.downgrade").summary,
        "PCIe link 16 GT/s x8: width x8 of x16; it carries 126.0 Gb/s, less than the port's 200 Gb/s: the slot limits the port"
    );
}

#[test]
fn a_link_is_only_held_against_what_both_ends_can() {
    for (partner_max, expected) in [((32.0, 16), Some("confirmed")), ((32.0, 8), None)] {
        let mut log = log();
        // 32 GT/s x8 carries 252 Gb/s.
        log.add(
            1.0,
            "port",
            json!({"device": "a", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE", "rate_gbps": 200.0}),
        );
        log.link(1.0, UP, (32.0, 8), partner_max).link(1.0, NIC, (32.0, 8), (32.0, 16));
        log.until(2, 9);
        let told = log.run().of("pcie.downgrade");
        assert_eq!(told.first().map(|line| line.rsplit(' ').next().unwrap()), expected, "{partner_max:?}");
    }
}

#[test]
fn an_adapter_whose_own_link_is_slower_than_its_port_is_no_finding() {
    let mut log = log();
    let port = json!({"device": "a", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "rate_gbps": 800.0});
    log.add(0.0, "port", port).link(1.0, NIC, (32.0, 16), (32.0, 16)).until(2, 6);
    log.run().nothing();
}

#[test]
fn a_narrow_link_of_which_the_other_ends_best_is_not_known_is_suspected() {
    let mut log = log();
    let port = json!({"device": "a", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "rate_gbps": 100.0});
    log.add(0.0, "port", port).link(1.0, NIC, (32.0, 8), (32.0, 16)).until(2, 6);
    assert_eq!(log.run().of("pcie.downgrade"), ["1 a 0000:02:00.0 raised warning suspected"]);
}

#[test]
fn a_lower_speed_must_last_for_half_a_minute_however_often_it_is_said() {
    let mut log = log();
    let max = (32.0, 16);
    log.port(0.0, "a", "ACTIVE", "LinkUp").link(0.0, UP, max, max).link(0.0, NIC, max, max);
    log.link(10.0, NIC, (2.5, 16), max).link(39.0, NIC, (2.5, 16), max).link(39.5, NIC, max, max);
    // Said once, as by a source that tells changes.
    log.link(50.5, NIC, (16.0, 16), max).until(51, 99).link(99.5, NIC, max, max).until(100, 101);
    assert_eq!(
        log.run().of("pcie.downgrade"),
        ["81 a 0000:02:00.0 raised warning confirmed", "99.5 a 0000:02:00.0 cleared warning confirmed"]
    );
}

#[test]
fn a_link_too_narrow_at_its_best_speed_is_told_while_its_speed_is_not_settled() {
    // Full width of both ends, but x4 at 16 GT/s carries 63 Gb/s at most.
    let mut log = log();
    log.port(0.0, "a", "ACTIVE", "LinkUp").link(1.0, UP, (2.5, 4), (16.0, 4));
    log.link(1.0, NIC, (2.5, 4), (32.0, 16)).until(2, 3);
    let outcome = log.run();
    assert_eq!(outcome.of("pcie.downgrade"), ["1 a 0000:02:00.0 raised warning confirmed"]);
    let summary = &outcome.last("pcie.downgrade").summary;
    assert!(summary.contains("carries 63.0 Gb/s at most, at 16 GT/s, less than the port's 400 Gb/s"), "{summary}");
}

#[test]
fn an_idle_adapter_whose_best_is_less_than_its_ports_rate_is_no_finding() {
    let mut log = log();
    let max = (16.0, 16);
    log.port(0.0, "a", "ACTIVE", "LinkUp").link(1.0, NIC, (2.5, 16), max).until(2, 9);
    log.link(9.5, NIC, max, max).until(10, 60);
    log.run().nothing();
}

#[test]
fn a_slow_link_on_a_quiet_node_is_told_from_the_source_that_tells_changes() {
    use crate::observation::{Body, Observation, SourceState};
    use crate::source::Source;
    use crate::source::files::RootedFiles;
    use crate::source::pcie::{PcieOptions, PcieSource};
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    let nic = format!("devices/pci0000:00/{ROOT}/{NIC}");
    std::fs::create_dir_all(at(&nic).join("infiniband/a")).unwrap();
    std::fs::create_dir_all(at("class/infiniband")).unwrap();
    std::os::unix::fs::symlink(format!("../../{nic}/infiniband/a"), at("class/infiniband/a")).unwrap();
    std::os::unix::fs::symlink("../..", at(&nic).join("infiniband/a/device")).unwrap();
    for (file, text) in [
        ("current_link_speed", "8.0 GT/s PCIe\n"),
        ("current_link_width", "16\n"),
        ("max_link_speed", "32.0 GT/s PCIe\n"),
        ("max_link_width", "16\n"),
        ("aer_dev_correctable", "RxErr 0\nTOTAL_ERR_COR 0\n"),
    ] {
        std::fs::write(at(&nic).join(file), text).unwrap();
        if file.contains("link") {
            std::fs::write(at(&format!("devices/pci0000:00/{ROOT}")).join(file), text).unwrap();
        }
    }
    let mut engine = Engine::new(Header::new(), Settings::default());
    let mut log = Log::new();
    log.device(0.0, "a", "mlx5_core", NIC).port(0.0, "a", "ACTIVE", "LinkUp");
    let text =
        format!("{{\"type\":\"header\",\"format\":\"rdmascope-recording\",\"version\":1}}\n{}\n", log.lines.join("\n"));
    let mut reader = Reader::new(text.as_bytes()).unwrap();
    while reader.next(|observation| engine.take(observation)).unwrap().is_some() {}
    let mut source = PcieSource::new(PcieOptions::new(Arc::new(RootedFiles::new(dir.path()).unwrap())));
    let (mut said, mut told) = (0, Vec::new());
    let mut now = 1_000_000_000;
    while now < 60_000_000_000 {
        now = now.max(source.due());
        if now > 50_000_000_000 {
            std::fs::write(at(&nic).join("current_link_speed"), "32.0 GT/s PCIe\n").unwrap();
        }
        source.poll(now, &mut |observation| {
            said += usize::from(matches!(&observation.body, Body::Pcie(pcie) if pcie.pci == NIC));
            engine.take(observation);
        });
        // Another source: only time passes.
        engine.take(&Observation {
            t: now,
            body: Body::Source(SourceState { source: "sysfs".into(), ..SourceState::default() }),
        });
        told.extend(
            engine.drain().iter().filter(|f| f.rule == "pcie.downgrade").map(|f| (f.state, f.t / 1_000_000_000)),
        );
    }
    assert_eq!(said, 2, "the source tells changes only");
    assert_eq!(told, [(FindingState::Raised, 31), (FindingState::Cleared, 51)]);
}

#[test]
fn a_link_that_is_not_shown_or_not_possible_is_no_finding() {
    let odd = [
        json!({"pci": NIC}),
        json!({"pci": NIC, "speed_gts": 16.0, "max_speed_gts": 16.0, "max_width": 16}),
        json!({"pci": NIC, "speed_gts": 0.0, "width": 0, "max_speed_gts": 16.0, "max_width": 16}),
        json!({"pci": NIC, "speed_gts": 2.5, "width": 63, "max_speed_gts": 16.0, "max_width": 255}),
    ];
    for link in odd {
        let mut log = log();
        for s in 0..6 {
            log.add(f64::from(s), "pcie", link.clone());
        }
        let outcome = log.run();
        outcome.nothing();
        let reason = super::super::find("pcie.downgrade").unwrap().not_judged(&outcome.engine.view());
        assert_eq!(reason.as_deref(), Some("link speed or width not shown by 0000:02:00.0"));
    }
}

#[test]
fn a_virtual_function_and_a_software_device_on_virtio_are_not_judged() {
    let mut log = Log::new();
    log.add(0.0, "device", json!({"device": "v", "driver": "mlx5_core", "pci": NIC, "vf": true}));
    log.port(0.0, "v", "ACTIVE", "LinkUp");
    log.add(0.0, "device", json!({"device": "rxe0", "driver": "rxe", "node_guid": "5054:00ff:fe12:3456"}));
    log.add(0.0, "port", json!({"device": "rxe0", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE", "rate_gbps": 100.0, "netdev_pci": GPU}));
    for s in 0..6 {
        log.link(f64::from(s), NIC, (8.0, 1), (16.0, 16)).link(f64::from(s), GPU, (2.5, 1), (16.0, 32));
    }
    log.run().nothing();
}

#[test]
fn counts_that_no_number_holds_are_a_finding_still() {
    let mut log = log();
    log.totals(2.5, NIC, "fatal", json!({"DLP": u64::MAX})).aer(2.6, NIC, "nonfatal", 0x4000);
    log.until(4, 9);
    assert_eq!(log.run().of("pcie.aer_fatal").len(), 1);

    let mut log = self::log();
    log.totals(2.5, ROOT, "nonfatal", json!({"aer_rootport_total_err_nonfatal": u64::MAX}));
    log.totals(2.5, ROOT, "fatal", json!({"aer_rootport_total_err_fatal": 1})).until(4, 9);
    assert_eq!(log.run().of("pcie.aer_fatal").len(), 1);
}

#[test]
fn functions_that_explain_more_than_a_number_holds_leave_nothing_unexplained() {
    let mut log = log();
    log.totals(1.0, ROOT, "fatal", json!({"aer_rootport_total_err_fatal": 0}));
    log.totals(2.5, GPU, "fatal", json!({"DLP": u64::MAX}));
    log.totals(2.5, UP, "fatal", json!({"DLP": 2}));
    log.totals(2.6, ROOT, "fatal", json!({"aer_rootport_total_err_fatal": 5})).until(4, 9);
    assert!(!log.run().of("pcie.aer_fatal").iter().any(|line| line.contains(ROOT)));
}

#[test]
fn a_count_begins_no_later_than_what_is_in_it_and_names_its_kinds() {
    let mut log = log();
    for (s, name) in [(7.9, "BadTLP"), (12.5, "RxErr"), (16.0, "Rollover"), (17.0, "Rollover"), (21.0, "RxErr")] {
        log.add(s, "aer", json!({"pci": NIC, "severity": "corrected", "status": 0, "names": [name]}));
    }
    log.until(22, 280);
    for at in 281..290u32 {
        let event = json!({"pci": NIC, "severity": "corrected", "status": 0, "names": ["Rollover"]});
        log.add(f64::from(at), "aer", event);
    }
    log.until(291, 400);
    let outcome = log.run();
    let raised = &outcome.changes.iter().find(|finding| finding.rule == "pcie.aer_storm").unwrap();
    let said = "1 replay error (Rollover) since 14:13:36.000 UTC; \
                2 other corrected errors (BadTLP, RxErr) since 14:13:27.900 UTC";
    assert_eq!(raised.summary, said);
    // Longer after the first ones than is looked back over: of what is left the begin is told, and the kinds.
    let newest = outcome.engine.world().findings.iter().find(|finding| finding.rule == "pcie.aer_storm").unwrap();
    let said = "11 replay errors (Rollover) since 14:13:36.000 UTC; \
                2 other corrected errors (RxErr) since 14:13:32.500 UTC";
    assert_eq!(newest.summary, said);
}

#[test]
fn an_uncorrected_error_is_called_fatal_only_where_it_was() {
    for (severity, fatal) in [("nonfatal", false), ("fatal", true)] {
        let mut log = log();
        log.aer(2.5, NIC, severity, 0x4000).until(3, 4);
        let outcome = log.run();
        let finding = outcome.last("pcie.aer_fatal");
        assert_eq!(super::super::was_fatal(finding), fatal, "{severity}");
        let word = if fatal { "fatal" } else { "non-fatal" };
        assert!(finding.summary.starts_with(&format!("1 uncorrected ({word}) error")), "{}", finding.summary);
    }
}

#[test]
fn a_link_of_an_adapter_whose_best_is_not_known_is_no_more_than_a_note_beside_its_port_s_rate() {
    let mut log = log();
    let port = json!({"device": "a", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "rate_gbps": 400.0});
    log.add(0.0, "port", port);
    log.add(1.0, "pcie", json!({"pci": NIC, "speed_gts": 16.0, "width": 16})).until(2, 6);
    let outcome = log.run();
    assert_eq!(outcome.of("pcie.downgrade"), ["1 a 0000:02:00.0 raised info suspected"]);
    assert!(outcome.last("pcie.downgrade").summary.ends_with("which is not known"));
}
