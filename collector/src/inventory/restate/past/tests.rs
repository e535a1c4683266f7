use super::super::restate;
use super::*;
use crate::engine::Engine;
use crate::observation::recording::{Header, Reader};
use crate::rule::Settings;

const S: Nanos = 1_000_000_000;
const HEADER: &str = r#"{"type":"header","format":"rdmascope-recording","version":1}"#;

fn engine() -> Engine {
    let header = Header { unix_ns: Some(1_790_000_000 * S), mono_ns: Some(0), ..Header::new() };
    Engine::new(header, Settings::default())
}

fn take(engine: &mut Engine, lines: &[String]) {
    let text = format!("{HEADER}\n{}\n", lines.join("\n"));
    let mut reader = Reader::new(text.as_bytes()).unwrap();
    while reader.next(|observation| engine.take(observation)).unwrap().is_some() {}
    assert_eq!(reader.notices().lines(), Vec::<String>::new(), "a bad line in a test's log");
}

fn line(s: u64, kind: &str, fields: &str) -> String {
    format!(r#"{{"t":{},"type":"{kind}",{fields}}}"#, s * S)
}

/// Two ports, corrected errors from 20 s on, a lost transaction, and the fall of one port with its QPs at 40 s.
fn incident() -> Vec<String> {
    let port = |name: &str, state: &str| {
        format!(r#""device":"{name}","port":1,"link_layer":"Ethernet","state":"{state}","netdevs":["e{name}"]"#)
    };
    let pcie = |rollover: u64| {
        format!(
            r#""pci":"0000:01:00.0","path":["0000:00:01.0","0000:01:00.0"],"aer":{{"correctable":{{"Rollover":{rollover}}},"nonfatal":{{}},"fatal":{{}}}}"#
        )
    };
    let qp = |qpn: u32, event: &str, to: &str| {
        format!(
            r#""device":"a","port":1,"qpn":{qpn},"event":"{event}","qp_type":"RC","to":"{to}","pid":7,"comm":"train""#
        )
    };
    let mut lines = vec![
        line(1, "device", r#""device":"a","driver":"mlx5_core","pci":"0000:01:00.0""#),
        line(1, "device", r#""device":"b","driver":"mlx5_core","pci":"0000:02:00.0""#),
        line(1, "port", &port("a", "ACTIVE")),
        line(1, "port", &port("b", "ACTIVE")),
        line(1, "pcie", &pcie(4)),
        line(1, "qp", &qp(20, "seen", "RTS")),
        line(1, "qp", &qp(21, "seen", "RTS")),
        line(20, "pcie", &pcie(6)),
        line(25, "pcie", &pcie(7)),
        line(39, "aer", r#""pci":"0000:01:00.0","severity":"nonfatal","status":16384,"names":["CmpltTO"]"#),
        line(40, "async", r#""device":"a","port":1,"event":"PORT_ERR""#),
        line(41, "qp", &qp(20, "seen", "ERR")),
        line(41, "qp", &qp(21, "modify", "ERR")),
    ];
    lines.extend((42..=60).map(|s| line(s, "source", r#""source":"sysfs","state":"ok""#)));
    lines
}

/// What is raised, as a list shows it.
fn told(engine: &Engine) -> Vec<(&'static str, String, &'static str, Nanos)> {
    let world = engine.world();
    world.findings.iter().map(|f| (f.rule, f.summary.clone(), f.grade.name(), f.first_t)).collect()
}

/// A recording of a world from now on.
fn recorded(world: &World) -> Engine {
    let mut engine = engine();
    let mut take = |observation: &Observation<'_>| engine.take(observation);
    restate_past(world, &mut take);
    restate(world, &mut take);
    engine.finish();
    engine
}

#[test]
fn a_recording_begun_after_the_fall_says_what_a_recording_of_the_whole_incident_says() {
    let mut live = engine();
    take(&mut live, &incident());
    let before = told(&live);
    let rules: Vec<_> = before.iter().map(|(rule, ..)| *rule).collect();
    assert_eq!(rules[0], "link.down", "{rules:?}");
    assert!(
        ["pcie.aer_fatal", "pcie.aer_storm", "qp.error_state"].iter().all(|rule| rules.contains(rule)),
        "{rules:?}"
    );
    let again = recorded(live.world());
    assert_eq!(told(&again), before);
    assert_eq!(again.world().pcie["0000:01:00.0"].aer, {
        let mut totals = live.world().pcie["0000:01:00.0"].aer.clone().unwrap();
        for total in &mut totals {
            total.start = 19 * S;
        }
        Some(totals)
    });
    let failover = |engine: &Engine| {
        let failover = engine.world().failovers.first().expect("a fall is an incident").clone();
        (failover.port_down.clone(), failover.first_qp.as_ref().map(|mark| mark.at.t), failover.qps.died)
    };
    assert_eq!(failover(&again), failover(&live));
    // And once more, from the recording.
    assert_eq!(told(&recorded(again.world())), before);
}

#[test]
fn nothing_is_said_of_the_past_where_nothing_happened_within_the_hour() {
    let mut live = engine();
    take(&mut live, &incident()[..7]);
    take(&mut live, &[line(60, "source", r#""source":"sysfs","state":"ok""#)]);
    restate_past(live.world(), &mut |observation| panic!("{observation:?}"));
}

#[test]
fn a_port_that_fell_longer_ago_is_down_since_then() {
    let mut live = engine();
    take(&mut live, &incident());
    take(&mut live, &[line(7_300, "source", r#""source":"sysfs","state":"ok""#)]);
    restate_past(live.world(), &mut |observation| panic!("{observation:?}"));
    let again = recorded(live.world());
    let fell: Vec<_> = told(&again).into_iter().filter(|(rule, ..)| *rule == "link.down").collect();
    assert_eq!(fell.len(), 1);
    assert_eq!(fell[0].3, 40 * S);
}

#[test]
fn what_a_qp_posted_before_the_recording_is_no_operation_after_the_fall() {
    let mut live = engine();
    take(&mut live, &incident());
    let elsewhere = r#""device":"b","port":1,"qpn":30,"event":"seen","qp_type":"RC","to":"RTS","pid":7,"comm":"train""#;
    take(&mut live, &[line(60, "qp", elsewhere)]);
    take(&mut live, &[line(60, "qp_stats", r#""device":"b","qpn":30,"posts":9,"wrs":9,"bytes":900"#)]);
    let again = recorded(live.world());
    assert_eq!(again.world().failovers[0].first_operation, None);
}

#[test]
fn who_had_taken_over_before_the_recording_did_not_begin_with_what_he_does_in_it() {
    let qp = |s: u64, qpn: u32, event: &str, posts: u64| {
        let qp = format!(
            r#""device":"b","port":1,"qpn":{qpn},"event":"{event}","qp_type":"RC","to":"RTS","pid":7,"comm":"train""#
        );
        [
            line(s, "qp", &qp),
            line(s, "qp_stats", &format!(r#""device":"b","qpn":{qpn},"posts":{posts},"wrs":{posts},"bytes":{posts}"#)),
        ]
    };
    let mut live = engine();
    let mut lines = incident();
    lines.truncate(13);
    lines.extend(qp(42, 30, "create", 5));
    lines.extend((43..=60).map(|s| line(s, "source", r#""source":"sysfs","state":"ok""#)));
    take(&mut live, &lines);
    let mut again = engine();
    let mut emit = |observation: &Observation<'_>| again.take(observation);
    restate_past(live.world(), &mut emit);
    restate(live.world(), &mut emit);
    assert_eq!(again.world().watched_since(), 60 * S, "single events are no watch");
    take(&mut again, &qp(62, 31, "create", 5));
    take(&mut again, &[line(64, "source", r#""source":"sysfs","state":"ok""#)]);
    let failover = &again.world().failovers[0];
    assert_eq!((&failover.first_operation, failover.outage), (&None, None));
}

#[test]
fn a_port_that_left_active_before_the_hour_and_changed_within_it_is_down_since_then() {
    let mut live = engine();
    take(&mut live, &incident());
    let init = r#""device":"a","port":1,"link_layer":"Ethernet","state":"INIT","netdevs":["ea"]"#;
    take(&mut live, &[line(7_000, "port", init), line(7_300, "source", r#""source":"sysfs","state":"ok""#)]);
    let fell = |engine: &Engine| {
        told(engine).into_iter().filter(|(rule, ..)| *rule == "link.down").map(|(.., t)| t).collect::<Vec<_>>()
    };
    assert_eq!(fell(&live), [40 * S]);
    assert_eq!(fell(&recorded(live.world())), [40 * S]);
}

#[test]
fn a_device_that_vanished_is_missed_in_the_recording_as_well() {
    let mut live = engine();
    take(&mut live, &incident()[..7]);
    take(&mut live, &[line(10, "device", r#""device":"b","removed":true"#)]);
    take(&mut live, &[line(20, "source", r#""source":"sysfs","state":"ok""#)]);
    let before = told(&live);
    assert_eq!(before.iter().map(|(rule, ..)| *rule).collect::<Vec<_>>(), ["link.down", "nic.composite"]);
    assert_eq!(told(&recorded(live.world())), before);
}
