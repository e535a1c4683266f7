use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use super::queue::Item;
use super::*;
use crate::engine::Engine;
use crate::observation::recording::Reader;
use crate::rule::Settings as Rules;
use crate::sink;

/// A sink whose queue nobody empties.
fn idle() -> Otlp {
    Otlp {
        shared: Arc::new(Shared::new(DEFAULT_QUEUE_BYTES)),
        thread: None,
        detail: None,
        reports: Reports::default(),
        observations: 0,
        interval: Duration::from_secs(60),
        next: None,
        wall: None,
        logs: Some(Default::default()),
        spans: Some(Spans::default()),
    }
}

/// What waits after these lines of a recording.
fn played(lines: &[&str]) -> Vec<Item> {
    let header =
        r#"{"type":"header","format":"rdmascope-recording","version":1,"host":"n","unix_ns":1000000000,"mono_ns":0}"#;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("r.jsonl");
    std::fs::write(&path, [&[header], lines].concat().join("\n")).expect("written");
    let mut reader = Reader::open(&path).expect("a recording");
    let mut engine = Engine::new(reader.header().clone(), Rules::default());
    let otlp = idle();
    let shared = otlp.shared.clone();
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(otlp)];
    let step = |engine: &mut Engine, sinks: &mut Vec<Box<dyn Sink>>| sink::hand_on(engine, sinks);
    while let Some(()) = reader
        .next(|observation| {
            sinks[0].observation(observation, engine.world());
            engine.take(observation);
            step(&mut engine, &mut sinks);
        })
        .expect("a recording")
    {}
    assert_eq!(reader.notices().lines(), Vec::<String>::new());
    engine.finish();
    step(&mut engine, &mut sinks);
    sinks[0].last(engine.world(), &OwnCost::default());
    let mut queue = shared.queue();
    Signal::ALL.into_iter().flat_map(|signal| queue.take(signal, usize::MAX, usize::MAX)).collect()
}

fn records(items: &[Item]) -> Vec<LogRecord> {
    let logs = items.iter().filter(|item| item.kind.signal() == Signal::Logs);
    logs.map(|item| LogRecord::decode(&*item.bytes).expect("a record")).collect()
}

fn attributes(record: &[opentelemetry_proto::tonic::common::v1::KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Any| match value {
        Any::StringValue(text) => text.clone(),
        Any::IntValue(number) => number.to_string(),
        Any::BoolValue(truth) => truth.to_string(),
        other => format!("{other:?}"),
    };
    let value = |attribute: &opentelemetry_proto::tonic::common::v1::KeyValue| {
        attribute.value.as_ref().and_then(|value| value.value.as_ref()).map(text).unwrap_or_default()
    };
    record.iter().map(|attribute| (attribute.key.clone(), value(attribute))).collect()
}

const PORT: [&str; 2] = [
    r#"{"t":1,"type":"device","device":"d","driver":"mlx5_core","pci":"0000:01:00.0"}"#,
    r#"{"t":1,"type":"port","device":"d","port":1,"link_layer":"Ethernet","state":"ACTIVE"}"#,
];

#[test]
fn a_fallen_port_is_an_event_and_a_finding_with_their_times_and_severities() {
    let lines = [
        PORT[0],
        PORT[1],
        r#"{"t":2000000000,"type":"async","device":"d","port":1,"event":"PORT_ERR"}"#,
        r#"{"t":2100000000,"type":"port","device":"d","port":1,"link_layer":"Ethernet","state":"DOWN"}"#,
        r#"{"t":4000000000,"type":"source","source":"sysfs","state":"ok"}"#,
    ];
    let records = records(&played(&lines));
    let event: Vec<_> = records.iter().filter(|record| record.event_name == "rdma.port.state").collect();
    assert_eq!(event.len(), 1, "the poll that shows the same is no second event: {records:?}");
    assert_eq!((event[0].time_unix_nano, event[0].severity_number), (3_000_000_000, 13));
    let said = attributes(&event[0].attributes);
    assert_eq!((said["rdma.port.state.from"].as_str(), said["rdma.port.state.to"].as_str()), ("ACTIVE", "DOWN"));
    let finding = records
        .iter()
        .find(|record| attributes(&record.attributes).get("rdma.finding.rule").is_some_and(|rule| rule == "link.down"));
    let finding = finding.expect("it is told");
    let said = attributes(&finding.attributes);
    for (name, value) in [
        ("rdma.finding.state", "raised"),
        ("rdma.finding.id", "link.down:d/1"),
        ("rdma.subject.device", "d"),
        ("rdma.subject.port", "1"),
    ] {
        assert_eq!(said[name], value, "{said:?}");
    }
    assert!(said["rdma.finding.evidence"].contains("series"), "{said:?}");
    let severities = BTreeMap::from([("info", 9), ("warning", 13), ("critical", 17)]);
    assert_eq!(finding.severity_number, severities[said["rdma.finding.severity"].as_str()]);
    assert_eq!(finding.event_name, "rdma.finding");
}

#[test]
fn a_port_that_could_not_be_read_for_a_while_is_no_event() {
    let lines = [
        PORT[0],
        PORT[1],
        r#"{"t":2,"type":"port","device":"d","port":1,"link_layer":"Ethernet","state":"UNKNOWN"}"#,
        PORT[1],
    ];
    assert!(records(&played(&lines)).iter().all(|record| record.event_name != "rdma.port.state"));
}

#[test]
fn uncorrected_pcie_errors_lost_devices_and_bonds_are_events_and_corrected_errors_are_none() {
    let lines = [
        PORT[0],
        PORT[1],
        r#"{"t":2,"type":"bond","bond":"bond0","mode":"active-backup","active":"e0","slaves":[]}"#,
        r#"{"t":3,"type":"aer","pci":"0000:01:00.0","severity":"corrected","names":["RxErr"]}"#,
        r#"{"t":4,"type":"aer","pci":"0000:01:00.0","severity":"nonfatal","names":["CmpltTO"]}"#,
        r#"{"t":5,"type":"aer","pci":"0000:01:00.0","severity":"fatal","names":["DLP","SDES"]}"#,
        r#"{"t":6,"type":"bond","bond":"bond0","mode":"active-backup","active":"e1","slaves":[]}"#,
        r#"{"t":7,"type":"device","device":"d","removed":true}"#,
    ];
    let records = records(&played(&lines));
    let events: Vec<_> = records
        .iter()
        .filter(|record| record.event_name != "rdma.finding")
        .map(|record| (record.event_name.as_str(), record.severity_number, record.time_unix_nano - 1_000_000_000))
        .collect();
    let expected =
        [("pcie.aer", 13, 4), ("pcie.aer", 17, 5), ("rdma.bond.failover", 13, 6), ("rdma.device.removed", 13, 7)];
    assert_eq!(events, expected);
}

#[test]
fn a_qp_that_died_is_an_error_and_one_that_was_moved_is_not() {
    let lines = [
        PORT[0],
        PORT[1],
        r#"{"t":2,"type":"qp","device":"d","qpn":7,"port":1,"event":"create","qp_type":"RC","to":"RESET","pid":9,"comm":"job"}"#,
        r#"{"t":3,"type":"qp","device":"d","qpn":7,"port":1,"event":"modify","from":"RESET","to":"RTS","pid":9,"comm":"job"}"#,
        r#"{"t":4,"type":"qp","device":"d","qpn":8,"port":1,"event":"create","qp_type":"RC","to":"RTS"}"#,
        r#"{"t":5000000000,"type":"async","device":"d","qpn":7,"event":"QP_FATAL"}"#,
        r#"{"t":6000000000,"type":"qp","device":"d","qpn":8,"event":"modify","from":"RTS","to":"ERR"}"#,
        r#"{"t":7000000000,"type":"qp","device":"d","qpn":7,"event":"destroy"}"#,
    ];
    let items = played(&lines);
    let events: Vec<_> = records(&items)
        .iter()
        .filter(|record| record.event_name == "rdma.qp.error")
        .map(|record| (attributes(&record.attributes)["rdma.subject.qpn"].clone(), record.severity_number))
        .collect();
    assert_eq!(events, [("7".to_owned(), 17), ("8".to_owned(), 9)]);
    let spans: Vec<Span> = items
        .iter()
        .filter(|item| item.kind.signal() == Signal::Traces)
        .map(|item| Span::decode(&*item.bytes).expect("a span"))
        .collect();
    let [span] = &spans[..] else { panic!("one QP has ended: {spans:?}") };
    assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (1_000_000_002, 8_000_000_000));
    assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
    let states: Vec<_> = span.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(states[..2], ["RESET", "RTS"], "{states:?}");
    assert_eq!(attributes(&span.attributes)["process.executable.name"], "job");
}

#[test]
fn only_what_is_new_worse_surer_or_over_is_told_of_a_finding() {
    use crate::finding::{Book, Conclusion, Grade, Severity, Subject, SubjectKey, Verdict};
    let wall = Wall::new(&World::new(Header::new()));
    let (mut told, mut book, mut said) = (logs::Told::default(), Book::default(), Vec::new());
    let mut enter = |severity, grade, revision, holds: bool| {
        let conclusion = Conclusion {
            key: SubjectKey::Node,
            subject: Subject::default(),
            severity,
            grade,
            summary: String::new(),
            evidence: Vec::new(),
            advice: String::new(),
            would_raise: String::new(),
            part_of: None,
            since: 1,
            revision,
        };
        let mut changes = Vec::new();
        let verdicts = if holds { vec![Verdict::Holds(Box::new(conclusion))] } else { Vec::new() };
        book.enter("r", 1, verdicts, &mut changes);
        for item in changes.iter().filter_map(|finding| told.item(finding, wall)) {
            let record = LogRecord::decode(&*item.bytes).expect("a record");
            said.push((attributes(&record.attributes)["rdma.finding.state"].clone(), record.severity_number));
        }
    };
    enter(Severity::Warning, Grade::Suspected, 0, true);
    enter(Severity::Warning, Grade::Suspected, 1, true);
    enter(Severity::Critical, Grade::Suspected, 1, true);
    enter(Severity::Warning, Grade::Suspected, 1, true);
    enter(Severity::Critical, Grade::Suspected, 1, true);
    enter(Severity::Warning, Grade::Confirmed, 1, true);
    enter(Severity::Warning, Grade::Confirmed, 1, false);
    enter(Severity::Warning, Grade::Confirmed, 1, true);
    let states: Vec<_> = said.iter().map(|(state, severity)| (state.as_str(), *severity)).collect();
    assert_eq!(states, [("raised", 13), ("escalated", 17), ("escalated", 13), ("cleared", 9), ("raised", 13)]);
}

fn settings(endpoint: &str, more: &[(&str, &str)]) -> Settings {
    let asked = Asked { on: true, spans: true };
    let settings = Settings::from(asked, &|name| {
        let known = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)];
        known.iter().chain(more).find(|(known, _)| *known == name).map(|(_, value)| value.into())
    });
    settings.expect("no error").expect("on")
}

fn silent() -> Log {
    Arc::new(|_| {})
}

#[test]
fn the_end_does_not_wait_for_an_answer_and_what_is_left_is_counted() {
    // It accepts and says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("its address"));
    for protocol in ["grpc", "http/protobuf", "http/json"] {
        let settings = settings(&endpoint, &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
        let mut otlp = Otlp::start(&settings, &Header::new(), Options::default(), Reports::default(), silent())
            .expect("it starts");
        let item = || Item { kind: queue::Kind::Finding, records: 1, bytes: LogRecord::default().encode_to_vec() };
        otlp.shared.push([item(), item()]);
        let (status, begin) = (otlp.status(), Instant::now());
        otlp.finish();
        // A request alone may take ten seconds, the end two; between them is room for a busy machine.
        assert!(begin.elapsed() < Duration::from_secs(6), "{protocol}: {:?}", begin.elapsed());
        let [_, logs, _] = status();
        assert_eq!((logs.sent, logs.dropped, logs.queued), (0, 2, 0), "{protocol}");
    }
}
