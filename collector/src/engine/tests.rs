//! What the engine makes of observations that come late, twice, out of order, or from the middle of a life.

use super::*;
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
    assert_eq!(engine.world().qps.rate_now(qp), None);
    let more = [stats(3_000_000_000, (1 << 46) + 500), probes(3_000_000_000)];
    all.extend(more.iter().map(String::as_str));
    let engine = after(&all);
    let qp = engine.world().qps.find(DeviceId(0), 17).unwrap();
    assert_eq!(engine.world().qps.rate_now(qp), Some(500.0));
}
