//! What the engine makes of observations that come late, twice, out of order, or from the middle of a life.

use super::*;
use crate::observation::PortState;
use crate::observation::recording::Reader;

const HEADER: &str = r#"{"type":"header","format":"rdmascope-recording","version":1}"#;
const PORT: &str =
    r#"{"t":1,"type":"port","device":"d","port":1,"link_layer":"Ethernet","state":"ACTIVE","rate_gbps":100}"#;

/// An engine that has taken these lines (`t` in ms is turned into ns by the caller).
fn after(lines: &[&str]) -> Engine {
    let text = [&[HEADER], lines].concat().join("\n");
    let mut reader = Reader::new(text.as_bytes()).unwrap();
    let mut engine = Engine::new(reader.header().clone(), Settings::default());
    while reader.next(|observation| engine.take(observation)).unwrap().is_some() {}
    assert_eq!(reader.notices().lines(), Vec::<String>::new());
    engine
}

fn raised(engine: &Engine) -> Vec<String> {
    engine.world().findings.iter().map(|finding| finding.id()).collect()
}

#[test]
fn an_older_word_about_a_port_told_later_does_not_undo_a_newer_event() {
    let engine = after(&[
        PORT,
        r#"{"t":3500000000,"type":"async","device":"d","port":1,"event":"PORT_ERR"}"#,
        r#"{"t":3400000000,"type":"port","device":"d","port":1,"link_layer":"Ethernet","state":"ACTIVE"}"#,
    ]);
    assert_eq!(engine.world().ports[0].state, PortState::Down);
    assert!(raised(&engine).contains(&"link.down:d/1".to_owned()));
}

#[test]
fn a_port_said_again_after_an_event_that_did_not_last_clears_the_finding() {
    let engine = after(&[
        PORT,
        r#"{"t":3500000000,"type":"async","device":"d","port":1,"event":"PORT_ERR"}"#,
        r#"{"t":3600000000,"type":"port","device":"d","port":1,"link_layer":"Ethernet","state":"ACTIVE"}"#,
    ]);
    assert_eq!(raised(&engine), Vec::<String>::new());
}

#[test]
fn every_event_that_tells_of_a_qp_in_error_is_a_failure_that_a_later_call_does_not_excuse() {
    for event in ["QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR"] {
        let engine = after(&[
            PORT,
            r#"{"t":2,"type":"qp","device":"d","qpn":17,"port":1,"event":"seen","to":"RTS"}"#,
            &format!(r#"{{"t":3500000000,"type":"async","device":"d","qpn":17,"event":"{event}"}}"#),
            r#"{"t":3500100000,"type":"qp","device":"d","qpn":17,"event":"modify","to":"ERR"}"#,
        ]);
        let failure = &engine.world().qp_failures.last().expect("the QP failed").1;
        assert_eq!((failure.qpn, failure.asked, failure.told), (17, false, true), "{event}");
    }
}

#[test]
fn a_device_that_says_it_is_lost_is_a_critical_finding() {
    let mut engine = after(&[PORT, r#"{"t":3500000000,"type":"async","device":"d","event":"DEVICE_FATAL"}"#]);
    engine.finish();
    assert!(raised(&engine).contains(&"nic.health:d".to_owned()), "{:?}", raised(&engine));
}

#[test]
fn calls_that_failed_make_and_end_no_qp() {
    let engine = after(&[
        PORT,
        r#"{"t":2,"type":"qp","device":"d","qpn":17,"event":"seen","to":"RTS"}"#,
        r#"{"t":3,"type":"qp","device":"d","qpn":17,"event":"destroy","errno":16}"#,
        r#"{"t":4,"type":"qp","device":"d","qpn":18,"event":"create","errno":12}"#,
    ]);
    let numbers: Vec<u32> = engine.world().qps.iter().map(|qp| qp.qpn).collect();
    assert_eq!(numbers, [17]);
}

#[test]
fn the_first_numbers_of_a_qp_that_was_there_before_are_no_rate() {
    let probes = |t: u64| format!(r#"{{"t":{t},"type":"probes","wanted":1,"attached":1,"failed":[]}}"#);
    let stats = |t: u64, bytes: u64| {
        format!(r#"{{"t":{t},"type":"qp_stats","device":"d","qpn":17,"posts":9,"wrs":9,"bytes":{bytes}}}"#)
    };
    let seen = r#"{"t":2,"type":"qp","device":"d","qpn":17,"port":1,"event":"seen","to":"RTS"}"#;
    let lines = [probes(1_000_000_000), stats(2_000_000_000, 1 << 46), probes(2_000_000_000)];
    let mut all = vec![PORT, seen];
    all.extend(lines.iter().map(String::as_str));
    let engine = after(&all);
    let qp = engine.world().qps.find(DeviceId(0), 17).unwrap();
    assert_eq!(engine.world().qps.rate_now(qp, engine.world().now), None);
    let more = [stats(3_000_000_000, (1 << 46) + 500), probes(3_000_000_000)];
    all.extend(more.iter().map(String::as_str));
    let engine = after(&all);
    let qp = engine.world().qps.find(DeviceId(0), 17).unwrap();
    assert_eq!(engine.world().qps.rate_now(qp, engine.world().now), Some(500.0));
}

#[test]
fn a_rate_is_the_present_one_for_ten_seconds_after_the_sweep_that_gave_it() {
    let stats = |t: u64| {
        let n = t * 1000;
        format!(r#"{{"t":{t}000000000,"type":"qp_stats","device":"d","qpn":17,"posts":{n},"wrs":{n},"bytes":{n}}}"#)
    };
    let probes = |t: u64, watched: &str| {
        format!(r#"{{"t":{t}000000000,"type":"probes","wanted":1,"attached":1,"failed":[]{watched}}}"#)
    };
    let created = r#"{"t":2,"type":"qp","device":"d","qpn":17,"port":1,"event":"create","to":"RTS"}"#;
    let mut lines = vec![PORT.to_owned(), created.to_owned()];
    (1..=3).for_each(|t| lines.extend([stats(t), probes(t, "")]));
    // Paused from here on.
    lines.extend((4..=14).map(|t| probes(t, r#","posts_watched_ns":2500000000"#)));
    for (n, rate) in [(lines.len() - 1, Some(1000.0)), (lines.len(), None)] {
        let lines: Vec<&str> = lines[..n].iter().map(String::as_str).collect();
        let engine = after(&lines);
        let qp = engine.world().qps.find(DeviceId(0), 17).unwrap();
        assert_eq!(engine.world().qps.rate_now(qp, engine.world().now), rate, "{n}");
    }
}

#[test]
fn a_moment_of_watching_changes_no_rate_and_brings_none_back() {
    let probes = |t: u64, watched: u64| {
        format!(r#"{{"t":{t},"type":"probes","wanted":1,"attached":1,"failed":[],"posts_watched_ns":{watched}}}"#)
    };
    let stats = |t: u64, n: u64, watched: u64| {
        format!(
            r#"{{"t":{t},"type":"qp_stats","device":"d","qpn":17,"posts":{n},"wrs":{n},"bytes":{n},"sampled_ns":{watched}}}"#
        )
    };
    let created = r#"{"t":2,"type":"qp","device":"d","qpn":17,"port":1,"event":"create","to":"RTS"}"#;
    let s = 1_000_000_000;
    let lines = [
        probes(s, s),
        // 0.5 s of 1 s.
        stats(2 * s, 1000, s + s / 2),
        probes(2 * s, s + s / 2),
        // Idle for a whole sweep.
        probes(3 * s, 2 * s),
        // 1 ms: nothing can be said of it.
        stats(4 * s, 1001, 2 * s + 1_000_000),
        probes(4 * s, 2 * s + 1_000_000),
    ];
    for (n, rate) in [(3, Some(2000.0)), (4, Some(0.0)), (6, Some(0.0))] {
        let mut all = vec![PORT, created];
        all.extend(lines[..n].iter().map(String::as_str));
        let engine = after(&all);
        let qp = engine.world().qps.find(DeviceId(0), 17).unwrap();
        assert_eq!(engine.world().qps.rate_now(qp, engine.world().now), rate, "{n}");
    }
}

#[test]
fn no_error_among_the_completions_that_were_looked_at_is_no_zero() {
    for (watched, errors, known) in [
        ("", "", Some(0)),
        (r#","completions_sampled_ns":30000000"#, "", None),
        (r#","completions_sampled_ns":30000000"#, r#","errors":{"RETRY_EXC_ERR":2}"#, Some(2)),
        (r#","completions_missed":true"#, "", None),
    ] {
        let stats = format!(
            r#"{{"t":3,"type":"qp_stats","device":"d","qpn":17,"posts":9,"wrs":9,"bytes":9,"completions":9{watched}{errors}}}"#
        );
        let report = crate::command::qps::report(after(&[PORT, &stats]).world());
        assert_eq!((report.qps[0].errors, report.qps[0].sampled), (known, !watched.is_empty()), "{watched} {errors}");
        // From now on completions have no number.
        let more =
            r#"{"t":4,"type":"qp_stats","device":"d","qpn":17,"posts":9,"wrs":9,"bytes":9,"completions_missed":true}"#;
        let report = crate::command::qps::report(after(&[PORT, &stats, more]).world());
        assert_eq!(report.qps[0].errors, known.filter(|n| *n > 0), "{watched} {errors}");
    }
}

fn names(engine: &Engine) -> Vec<String> {
    engine.world().present().map(|(id, device)| format!("{} {}", id.0, device.name)).collect()
}

fn introduced(t: u64, name: &str, guid: u8) -> String {
    format!(r#"{{"t":{t},"type":"device","device":"{name}","pci":"0000:3b:00.{guid}","node_guid":"0:0:0:{guid}"}}"#)
}

fn port_of(t: u64, device: &str) -> String {
    format!(r#"{{"t":{t},"type":"port","device":"{device}","port":1,"link_layer":"Ethernet","state":"ACTIVE"}}"#)
}

#[test]
fn a_device_seen_under_a_new_name_is_the_one_it_was_though_nobody_told_of_a_removal() {
    let lines = [
        introduced(1, "mlx5_0", 1),
        port_of(2, "mlx5_0"),
        introduced(5_000_000_000, "rocep59s0f1", 1),
        port_of(5_000_000_001, "rocep59s0f1"),
        port_of(9_000_000_000, "rocep59s0f1"),
    ];
    let engine = after(&lines.each_ref().map(|line| &**line));
    assert_eq!(names(&engine), ["0 rocep59s0f1"]);
    assert_eq!((engine.world().ports.len(), raised(&engine)), (1, Vec::new()));
}

#[test]
fn two_devices_that_change_names_with_each_other_stay_two_and_neither_has_fallen() {
    let lines = [
        introduced(1, "mlx5_0", 1),
        introduced(1, "mlx5_1", 2),
        port_of(2, "mlx5_0"),
        port_of(2, "mlx5_1"),
        introduced(5_000_000_000, "mlx5_0", 2),
        introduced(5_000_000_000, "mlx5_1", 1),
        port_of(5_000_000_001, "mlx5_0"),
        port_of(5_000_000_001, "mlx5_1"),
        port_of(9_000_000_000, "mlx5_0"),
    ];
    let engine = after(&lines.each_ref().map(|line| &**line));
    assert_eq!(names(&engine), ["0 mlx5_1", "1 mlx5_0"]);
    assert_eq!((engine.world().ports.len(), raised(&engine)), (2, Vec::new()));
}

#[test]
fn a_device_and_its_management_sub_device_share_function_and_guid_and_are_two() {
    let lines = [introduced(1, "mlx5_0", 1), introduced(1, "smi0", 1), introduced(9_000_000_000, "smi0", 1)];
    let engine = after(&lines.each_ref().map(|line| &**line));
    assert_eq!(names(&engine), ["0 mlx5_0", "1 smi0"]);
}

#[test]
fn a_process_is_known_by_its_ways_until_it_has_none_and_a_later_recording_begins_with_it() {
    let process = r#"{"t":2,"type":"process","pid":7,"comm":"train","unseen":[{"way":"ucx_mlx5","library":"libuct_ib_mlx5.so.0"},{"way":"of a later version"}]}"#;
    let engine = after(&[PORT, process]);
    let ways: Vec<_> = engine.world().processes[&7].ways.iter().map(|unseen| unseen.way.name()).collect();
    assert_eq!(ways, ["ucx_mlx5", "other"]);
    let mut restated = Vec::new();
    crate::inventory::restate(engine.world(), &mut |observation| {
        if let Body::Process(process) = &observation.body {
            restated.push((process.pid, process.comm.as_deref().map(str::to_owned), process.unseen.len()));
        }
    });
    assert_eq!(restated, [(7, Some("train".to_owned()), 2)]);
    let engine = after(&[PORT, process, r#"{"t":3,"type":"process","pid":7}"#]);
    assert!(engine.world().processes.is_empty());
}

/// A set of type RC that counts two QPs, on a port whose own counters have the same names.
#[test]
fn ports_of_one_kind_share_the_names_of_their_counters_and_where_these_are() {
    let counters = |device: &str, source: &str| {
        format!(
            r#"{{"t":1,"type":"counters","device":"{device}","port":1,"source":"{source}","values":{{"port_rcv_data":7,"np_cnp_sent":1}}}}"#
        )
    };
    let lines: Vec<String> =
        ["a", "b"].iter().flat_map(|d| [counters(d, "counters"), counters(d, "hw_counters")]).collect();
    let engine = after(&lines.iter().map(|line| &**line).collect::<Vec<_>>());
    let [a, b] = &engine.world().ports[..] else { panic!("two ports") };
    for (a, b) in a.sets.iter().zip(&b.sets).flat_map(|(a, b)| a.series.iter().zip(&b.series)) {
        assert!(Arc::ptr_eq(&a.name, &b.name), "{}", a.name);
    }
    assert!(a.shares_groups_with(b));
}

fn bound(t: u64, set: u32, qpns: &str, value: u64) -> String {
    format!(
        r#"{{"t":{t},"type":"counters","device":"d","port":1,"source":"qp","qp_type":"RC","set":{set}{qpns},"values":{{"rx_write_requests":{value}}}}}"#
    )
}

#[test]
fn a_bound_set_is_no_part_of_its_port_and_of_no_qp_it_does_not_count() {
    let own = |t: u64, value: u64| {
        format!(
            r#"{{"t":{t},"type":"counters","device":"d","port":1,"source":"nldev","values":{{"rx_write_requests":{value}}}}}"#
        )
    };
    let engine = after(&[
        PORT,
        &own(2, 100),
        &bound(3, 4, r#","qpns":[17,18]"#, 60),
        &own(2_000_000_000, 150),
        &bound(2_000_000_003, 4, "", 90),
    ]);
    let port = &engine.world().ports[0];
    assert_eq!(port.sets.len(), 1);
    assert_eq!(port.counter("rx_write_requests").and_then(crate::timeline::Series::value), Some(150));
    let sets: Vec<_> = port.bound.counting(18).collect();
    assert_eq!((sets.len(), sets[0].of(), &*sets[0].qpns), (1, "type RC", &[17, 18][..]), "its QPs are as last said");
    let series = sets[0].counters.get("rx_write_requests").unwrap();
    assert_eq!((series.value(), series.delta.value()), (Some(90), Some(30)));
    assert_eq!(port.bound.counting(19).count(), 0);
}

#[test]
fn a_bound_set_that_is_gone_leaves_nothing_and_the_next_one_is_no_reset() {
    let engine = after(&[
        PORT,
        &bound(3, 4, r#","qpns":[17]"#, 60),
        r#"{"t":2000000000,"type":"counters","device":"d","port":1,"source":"qp","set":4,"removed":true,"values":{}}"#,
        &bound(7_000_000_000, 5, r#","qpns":[21]"#, 1),
    ]);
    let world = engine.world();
    let sets: Vec<_> = world.ports[0].bound.iter().map(|set| (set.id, set.qpns.to_vec())).collect();
    assert_eq!(sets, [(5, vec![21])]);
    assert_eq!(world.devices[0].reset, None);
    let gone = after(&[PORT, &bound(3, 4, "", 60), r#"{"t":4,"type":"device","device":"d","removed":true}"#]);
    assert_eq!(gone.world().ports[0].bound.iter().count(), 0, "a device that goes takes its sets with it");
}

#[test]
fn bound_sets_are_said_again_at_the_beginning_of_a_part() {
    let engine = after(&[PORT, &bound(3, 4, r#","qpns":[17,18]"#, 60)]);
    let mut said = Vec::new();
    crate::inventory::restate(engine.world(), &mut |observation| {
        if let Body::Counters(set) = &observation.body {
            said.push((set.set, set.qp_type.as_deref().map(str::to_owned), set.qpns.clone(), set.values.len()));
        }
    });
    assert_eq!(said, [(Some(4), Some("RC".to_owned()), Some(vec![17, 18]), 1)]);
}

#[test]
fn a_late_word_about_a_removed_device_makes_no_other_and_its_return_clears_the_fall() {
    let s = 1_000_000_000;
    let removed = r#"{"t":3000000000,"type":"device","device":"mlx5_0","removed":true}"#;
    for late in [
        r#"{"t":3010000000,"type":"qp","device":"mlx5_0","qpn":5,"event":"destroy"}"#,
        r#"{"t":3010000000,"type":"qp_stats","device":"mlx5_0","qpn":5,"posts":9,"wrs":9,"bytes":9}"#,
        r#"{"t":3010000000,"type":"async","device":"mlx5_0","port":1,"event":"PORT_ERR"}"#,
        r#"{"t":3010000000,"type":"async","device":"mlx5_0","event":"DEVICE_FATAL"}"#,
        r#"{"t":3010000000,"type":"counters","device":"mlx5_0","port":1,"source":"counters","values":{"port_xmit_data":0}}"#,
    ] {
        let (device, port) = (introduced(1, "mlx5_0", 1), port_of(2, "mlx5_0"));
        let gone = [&device, &port, removed, late, r#"{"t":9000000000,"type":"source","source":"x","state":"ok"}"#];
        let engine = after(&gone);
        assert!(raised(&engine).contains(&"link.down:mlx5_0/1".to_owned()), "{late}: {:?}", raised(&engine));
        // One source knows the device's function, the other does not.
        for back in [
            introduced(10 * s, "mlx5_0", 1),
            format!(r#"{{"t":{},"type":"device","device":"mlx5_0","node_guid":"0:0:0:1"}}"#, 10 * s),
        ] {
            let port = port_of(10 * s + 1, "mlx5_0");
            let engine = after(&[&gone[..], &[&back, &port]].concat());
            assert_eq!(names(&engine), ["0 mlx5_0"], "{late}");
            assert!(!raised(&engine).iter().any(|id| id.starts_with("link.")), "{late}: {:?}", raised(&engine));
            assert_eq!((engine.world().devices.len(), engine.world().qps.len()), (1, 0), "{late}");
        }
    }
}

#[test]
fn what_is_told_under_the_old_name_of_a_renamed_device_or_early_under_its_new_one_is_its_own() {
    let s = 1_000_000_000;
    let first = [introduced(1, "mlx5_0", 1), port_of(2, "mlx5_0")];
    let removed = format!(r#"{{"t":{},"type":"device","device":"mlx5_0","removed":true}}"#, 5 * s);
    let early = format!(r#"{{"t":{},"type":"qp","device":"roce0","qpn":17,"event":"seen","to":"RTS"}}"#, 5 * s - 1);
    let renamed = [introduced(5 * s, "roce0", 1), port_of(5 * s + 1, "roce0")];
    let late = format!(r#"{{"t":{},"type":"qp","device":"mlx5_0","qpn":18,"event":"seen","to":"RTS"}}"#, 6 * s);
    let end = port_of(12 * s, "roce0");
    for told in [vec![removed.clone()], Vec::new()] {
        let lines = [&first[..], std::slice::from_ref(&early), &told, &renamed, &[late.clone(), end.clone()]].concat();
        let engine = after(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(names(&engine), ["0 roce0"], "{told:?}");
        assert_eq!(raised(&engine), Vec::<String>::new(), "{told:?}");
        assert!(engine.world().qps.find(DeviceId(0), 18).is_some(), "{told:?}");
    }
}

#[test]
fn a_number_given_to_another_set_begins_anew_and_a_set_of_no_port_is_none() {
    let by = |t: u64, by: &str, value: u64| {
        format!(
            r#"{{"t":{t},"type":"counters","device":"d","port":1,"source":"qp","set":4,{by},"values":{{"rx_write_requests":{value}}}}}"#
        )
    };
    for (before, after_) in [(r#""pid":7"#, r#""pid":99"#), (r#""pid":7,"qpns":[17]"#, r#""pid":7,"qpns":[30,31]"#)] {
        let engine =
            after(&[PORT, &by(3, before, 60), &by(1_000_000_003, before, 90), &by(2_000_000_003, after_, 900)]);
        let set = engine.world().ports[0].bound.iter().next().unwrap();
        let series = set.counters.get("rx_write_requests").unwrap();
        assert_eq!((series.value(), series.delta.value()), (Some(900), None), "{after_}");
    }
    let of_no_port =
        r#"{"t":3,"type":"counters","device":"d","source":"qp","set":4,"pid":7,"values":{"rx_write_requests":60}}"#;
    assert_eq!(after(&[PORT, of_no_port]).world().devices[0].sets.len(), 0);
}

/// Seconds of a busy QP that is there from the beginning, all of it traced, as sweeps and polls tell them.
fn traced(created: bool, probes_from: u64, seconds: std::ops::RangeInclusive<u64>) -> Vec<String> {
    let s = 1_000_000_000;
    let event = if created { "create" } else { "seen" };
    let mut lines = vec![
        PORT.to_owned(),
        format!(r#"{{"t":2,"type":"qp","device":"d","qpn":17,"port":1,"event":"{event}","to":"RTS"}}"#),
    ];
    for i in seconds {
        let (words, packets) = (i * 250_000_000, i * 250_000);
        lines.push(format!(
            r#"{{"t":{},"type":"counters","device":"d","port":1,"source":"counters","values":{{"port_xmit_data":{words},"port_xmit_packets":{packets}}}}}"#,
            i * s + 1_000_000
        ));
        if i >= probes_from {
            let (posts, bytes) = (i * 1000, i * 970_000_000);
            lines.push(format!(
                r#"{{"t":{t},"type":"qp_stats","device":"d","qpn":17,"posts":{posts},"wrs":{posts},"bytes":{bytes}}}"#,
                t = i * s + 5_000_000
            ));
            lines.push(format!(
                r#"{{"t":{t},"type":"probes","wanted":1,"attached":1,"failed":[]}}"#,
                t = i * s + 5_000_000
            ));
        }
    }
    lines
}

#[test]
fn the_first_seconds_and_the_last_window_are_not_taken_for_traffic_that_nobody_saw() {
    for (created, probes_from) in [(false, 0), (true, 0), (false, 3), (true, 3)] {
        for last in 2..=20 {
            let lines = traced(created, probes_from, 0..=last);
            let mut engine = after(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            for end in [false, true] {
                if end {
                    engine.finish();
                }
                let coverage = engine.world().coverage();
                let share = coverage.bytes_ratio.unwrap_or(1.0);
                assert!(share > 0.9, "{created} {probes_from} {last} {end}: {share}");
                let none = coverage.unexplained.is_none_or(|bytes| bytes < 1.0);
                assert!(none, "{created} {probes_from} {last} {end}: {:?}", coverage.unexplained);
                if last == 20 {
                    assert!(
                        coverage.bytes_ratio.is_some() && coverage.unexplained.is_some(),
                        "{created} {probes_from}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_sweep_may_end_with_a_line_a_moment_younger_than_its_numbers() {
    let s = 1_000_000_000u64;
    let mut lines = vec![
        PORT.to_owned(),
        r#"{"t":2,"type":"qp","device":"d","qpn":17,"port":1,"event":"create","to":"RTS"}"#.to_owned(),
    ];
    for i in 1..=5 {
        let n = i * 1000;
        lines.push(format!(
            r#"{{"t":{},"type":"qp_stats","device":"d","qpn":17,"posts":{n},"wrs":{n},"bytes":{n}}}"#,
            i * s
        ));
        lines.push(format!(r#"{{"t":{},"type":"probes","wanted":1,"attached":1,"failed":[]}}"#, i * s + 100_000));
    }
    let rate = |lines: &[String]| {
        let engine = after(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let qp = engine.world().qps.find(DeviceId(0), 17).unwrap();
        engine.world().qps.rate_now(qp, engine.world().now).map(f64::round)
    };
    assert_eq!(rate(&lines), Some(1000.0));
    // Idle in the next one.
    lines.push(format!(r#"{{"t":{},"type":"probes","wanted":1,"attached":1,"failed":[]}}"#, 6 * s + 100_000));
    assert_eq!(rate(&lines), Some(0.0));
}

#[test]
fn what_was_forgotten_of_a_storm_is_told_as_a_part_and_a_qp_in_it_is_one() {
    let mut lines = vec![PORT.to_owned()];
    for n in 0..5000 {
        lines.push(format!(
            r#"{{"t":2,"type":"qp","device":"d","qpn":{n},"port":1,"event":"create","to":"RTS","pid":7}}"#,
            n = n + 10
        ));
    }
    lines.push(r#"{"t":3500000000,"type":"async","device":"d","port":1,"event":"PORT_ERR"}"#.to_owned());
    for n in 0..5000 {
        // Each ends by what its completions tell, and by its state.
        lines.push(format!(
            r#"{{"t":3700000000,"type":"qp_stats","device":"d","qpn":{n},"posts":9,"wrs":9,"bytes":9,"completions":9,"errors":{{"RETRY_EXC_ERR":1,"WR_FLUSH_ERR":5}}}}"#,
            n = n + 10
        ));
        lines.push(format!(
            r#"{{"t":3700000000,"type":"qp","device":"d","qpn":{n},"event":"seen","to":"ERR"}}"#,
            n = n + 10
        ));
    }
    lines.push(r#"{"t":5000000000,"type":"probes","wanted":9,"attached":9,"failed":[]}"#.to_owned());
    let mut engine = after(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    engine.finish();
    let world = engine.world();
    let summary = |rule: &str| &*world.findings.iter().find(|finding| finding.rule == rule).unwrap().summary;
    assert!(summary("link.down").contains("; at least 4096 QPs in error"), "{}", summary("link.down"));
    let retries = summary("qp.retry_exceeded");
    assert!(retries.starts_with("at least 2048 requests ran out"), "{retries}");
    assert!(summary("qp.error_state").contains("then at least "), "{}", summary("qp.error_state"));
    let least = |rule: &str, begin: &str| {
        let finding = world.findings.iter().find(|finding| finding.rule == rule).unwrap();
        finding.evidence.iter().any(|row| row.series.starts_with(begin) && row.series.ends_with(", at least"))
    };
    assert!(least("link.down", "QPs in error") && least("qp.retry_exceeded", "WR_FLUSH_ERR"));
    let qps = world.failovers[0].qps;
    assert_eq!((qps.died, qps.uncounted), (4096, 5000 - 4096));
}

#[test]
fn a_rule_that_is_switched_off_while_it_runs_is_told_as_not_judged() {
    let mut engine = after(&[PORT]);
    let why = |engine: &Engine| {
        let report = crate::command::check::report(&engine.view());
        report.not_judged.iter().find(|missed| missed.rule == "link.down").map(|missed| missed.reason.clone())
    };
    assert_eq!(why(&engine), None);
    engine.set_settings(Settings { disabled: vec!["link.down".to_owned()], ..Settings::default() });
    assert_eq!(why(&engine).as_deref(), Some("switched off by the configuration"));
    assert_eq!(engine.snapshot().settings.disabled, ["link.down"]);
}

#[test]
fn devices_that_could_not_all_be_listed_are_not_called_well() {
    let said = |reason: &str| {
        let source =
            format!(r#"{{"t":1000000000,"type":"source","source":"sysfs","state":"partial","reason":"{reason}"}}"#);
        let engine = after(&[PORT, &source]);
        let report = crate::command::check::report(&engine.view());
        (report.verdict, report.reason)
    };
    assert_eq!(said("hw_counters: EINVAL"), (crate::command::check::Verdict::Ok, None));
    let (verdict, reason) = said("RDMA devices: class/infiniband: EMFILE");
    assert_eq!(verdict, crate::command::check::Verdict::Warning);
    assert_eq!(reason.as_deref(), Some("the RDMA devices could not all be listed: EMFILE"));
}

#[test]
fn a_reset_is_told_with_how_many_counters_fell_of_how_many() {
    let told = |busy: &str| {
        let counters = |t: u64, rest: &str| {
            format!(r#"{{"t":{t},"type":"counters","device":"d","port":1,"source":"counters","values":{{{rest}}}}}"#)
        };
        let before = r#""port_rcv_data":900,"port_xmit_data":800,"symbol_error":5,"link_downed":4"#;
        let now = r#""port_rcv_data":9,"port_xmit_data":8,"symbol_error":0,"link_downed":0"#;
        let engine = after(&[
            PORT,
            &counters(2_000_000_000, &format!("{before},\"port_rcv_packets\":10")),
            &counters(3_000_000_000, &format!("{now},\"port_rcv_packets\":{busy}")),
        ]);
        let notes = crate::command::notes::of_node(engine.world());
        notes.into_iter().find(|note| note.contains("reset")).expect("told")
    };
    assert_eq!(told("3"), "counters of d reset (all 5 nonzero counters fell together)");
    assert_eq!(told("20"), "counters of d reset (4 of 5 nonzero counters fell together)");
}
