//! What a receiver of OTLP gets from `collect` is what the recording says, through a real collector and directly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use end_to_end::binary::{Run, command, wait_until};
use end_to_end::otlp::rotel::{self, Rotel};
use end_to_end::otlp::{Number, Point, Receiver, Speaks};
use rustix::process::{Pid, Signal, kill_process};

const LONG: Duration = Duration::from_secs(30);
/// Wall clock of the recording's zero, ns since 1970.
const ZERO: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// A node of one port: traffic, marks, a counter that is set back, one that cannot be read; then an uncorrected error and
/// the port goes down.
fn recording(dir: &Path) -> PathBuf {
    let lines = [
        format!(r#"{{"type":"header","format":"rdmascope-recording","version":1,"host":"node7","kernel":"6.1.0-18","unix_ns":{ZERO},"mono_ns":0}}"#),
        r#"{"t":1000000000,"type":"device","device":"mlx5_0","driver":"mlx5_core","pci":"0000:3b:00.0"}"#.into(),
        r#"{"t":1000000000,"type":"port","device":"mlx5_0","port":1,"link_layer":"Ethernet","state":"ACTIVE","rate_gbps":100}"#.into(),
        counters(1, "counters", r#""port_xmit_data":1000,"port_rcv_data":2000"#, ""),
        counters(1, "hw_counters", r#""np_cnp_sent":7,"np_ecn_marked_roce_packets":70"#, r#""rp_cnp_handled":"EIO""#),
        counters(2, "counters", r#""port_xmit_data":1500,"port_rcv_data":2100"#, ""),
        counters(2, "hw_counters", r#""np_cnp_sent":9,"np_ecn_marked_roce_packets":75"#, r#""rp_cnp_handled":"EIO""#),
        r#"{"t":2500000000,"type":"aer","pci":"0000:3b:00.0","severity":"fatal","status":16,"names":["DLP"]}"#.into(),
        r#"{"t":2600000000,"type":"async","device":"mlx5_0","port":1,"event":"PORT_ERR"}"#.into(),
        counters(3, "counters", r#""port_xmit_data":1600,"port_rcv_data":2200"#, ""),
        counters(3, "hw_counters", r#""np_cnp_sent":2,"np_ecn_marked_roce_packets":80"#, r#""rp_cnp_handled":"EIO""#),
        r#"{"t":4000000000,"type":"source","source":"sysfs","state":"ok"}"#.into(),
    ];
    let path = dir.join("node7.jsonl");
    std::fs::write(&path, lines.join("\n")).expect("written");
    path
}

fn counters(second: u64, source: &str, values: &str, unavailable: &str) -> String {
    let t = second * SECOND;
    format!(
        r#"{{"t":{t},"type":"counters","device":"mlx5_0","port":1,"source":"{source}","values":{{{values}}},"unavailable":{{{unavailable}}}}}"#
    )
}

/// Starts `collect` on the recording.
fn collect(recording: &Path, variables: &[(&str, &str)]) -> Child {
    let line = ["collect", "--socket", "off", "--speed", "max", "--stay", "--replay"];
    let mut command = command(line);
    command.arg(recording).envs(variables.iter().copied()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

fn end(child: Child) -> String {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::TERM).expect("it is there");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stderr).expect("text")
}

/// The newest point of a metric whose attributes have these values.
fn newest(points: &[Point], name: &str, attributes: &[(&str, &str)]) -> Option<Point> {
    let fits = |point: &&Point| {
        point.name == name
            && attributes.iter().all(|(key, value)| point.attributes.get(*key).is_some_and(|v| v == value))
    };
    points.iter().rfind(fits).cloned()
}

/// Compares what was received with what the recording says.
fn check(receiver: &Receiver) {
    let points = receiver.points();
    let sum = |value| Number::Sum(value, true);
    let direction = |word| vec![("network.io.direction", word)];
    // Octets are counted in words of four. What was set back counts from the reading before.
    for (name, attributes, unit, start, value) in [
        ("hw.network.io", direction("transmit"), "By", 1, sum(6400.0)),
        ("hw.network.io", direction("receive"), "By", 1, sum(8800.0)),
        ("rdma.ecn.marked", vec![], "{packet}", 1, sum(80.0)),
        ("rdma.cnp.sent", vec![], "{packet}", 2, sum(2.0)),
    ] {
        let point = newest(&points, name, &attributes).unwrap_or_else(|| panic!("{name} {attributes:?}: {points:#?}"));
        assert_eq!((point.value, point.unit.as_str()), (value, unit), "{name}");
        assert_eq!((point.start, point.time), (ZERO + start * SECOND, ZERO + 3 * SECOND), "{name}");
        for (key, value) in [("hw.id", "0000:3b:00.0"), ("hw.name", "mlx5_0"), ("rdma.port", "1")] {
            assert_eq!(point.attributes[key], value, "{name}");
        }
        for (key, value) in
            [("service.name", "fabric"), ("host.name", "node7"), ("os.version", "6.1.0-18"), ("rack", "7 b")]
        {
            assert_eq!(point.resource[key], value, "{name}: {:?}", point.resource);
        }
    }
    assert_eq!(newest(&points, "rdma.cnp.handled", &[]), None, "what cannot be read has no point");
    let records = receiver.records();
    let events: BTreeMap<&str, (u64, i32)> =
        records.iter().map(|record| (record.event.as_str(), (record.time - ZERO, record.severity))).collect();
    assert_eq!(events["pcie.aer"], (2_500_000_000, 17));
    assert_eq!(events["rdma.port.state"], (2_600_000_000, 13));
    let down = records
        .iter()
        .find(|record| record.attributes.get("rdma.finding.rule").is_some_and(|rule| rule == "link.down"))
        .unwrap_or_else(|| panic!("link.down: {records:#?}"));
    assert_eq!((down.event.as_str(), &down.attributes["rdma.finding.state"]), ("rdma.finding", &"raised".into()));
    assert_eq!(
        (&down.attributes["rdma.subject.device"], &down.attributes["rdma.subject.port"]),
        (&"mlx5_0".into(), &1.into())
    );
    assert_eq!(down.attributes["rdma.finding.grade"], "confirmed");
    let evidence = down.attributes["rdma.finding.evidence"].as_array().expect("a list");
    assert!(evidence.iter().all(|row| row["series"].is_string() && row["unit"].is_string()), "{evidence:?}");
    assert!(down.body.as_str().is_some_and(|body| !body.is_empty()));
    assert_eq!(down.resource["host.name"], "node7");
}

const RESOURCE: [(&str, &str); 3] = [
    ("OTEL_RESOURCE_ATTRIBUTES", "rack=7%20b"),
    ("OTEL_SERVICE_NAME", "fabric"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
];

/// Runs the recording into `endpoint` until `receiver`, at its end, has all of it.
fn run(endpoint: &str, protocol: &str, more: &[(&str, &str)], receiver: &Receiver) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let variables =
        [&RESOURCE[..], &[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)], more]
            .concat();
    let child = collect(&recording(dir.path()), &variables);
    let there = wait_until(LONG, || {
        newest(&receiver.points(), "rdma.cnp.sent", &[]).is_some_and(|point| point.value == Number::Sum(2.0, true))
            && receiver.records().iter().any(|record| record.event == "rdma.finding")
    });
    let said = end(child);
    assert!(there, "it does not arrive: {said}");
    check(receiver);
    assert!(said.lines().count() == 2 && said.contains("sent by OTLP") && !said.contains("lost"), "{said}");
}

fn through_rotel(speaks: Speaks, protocol: &str) {
    let Some(program) = rotel::program() else {
        println!("skipped: rotel is not installed below {} (cargo xtask setup)", rotel::PLACE);
        return;
    };
    let receiver = Receiver::start(speaks);
    let rotel = Rotel::start(&program, &receiver);
    run(&rotel.url(speaks), protocol, &[], &receiver);
}

#[test]
fn a_real_collector_gets_the_recordings_values_over_grpc() {
    through_rotel(Speaks::Grpc, "grpc");
}

#[test]
fn a_real_collector_gets_the_recordings_values_over_http() {
    through_rotel(Speaks::Http, "http/protobuf");
}

#[test]
fn every_protocol_carries_the_same_compressed_or_not() {
    for (speaks, protocol) in [(Speaks::Grpc, "grpc"), (Speaks::Http, "http/protobuf"), (Speaks::Http, "http/json")] {
        for compression in ["none", "gzip"] {
            let receiver = Receiver::start(speaks);
            run(&receiver.url(), protocol, &[("OTEL_EXPORTER_OTLP_COMPRESSION", compression)], &receiver);
            for taken in receiver.taken() {
                let header =
                    |name: &str| taken.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
                let (name, agent) = match speaks {
                    Speaks::Grpc => {
                        ("grpc-encoding", header("user-agent").is_some_and(|agent| agent.starts_with("rdmascope/")))
                    }
                    Speaks::Http => {
                        ("content-encoding", header("user-agent").is_some_and(|agent| agent.starts_with("rdmascope/")))
                    }
                };
                assert_eq!(header(name) == Some("gzip"), compression == "gzip", "{protocol}: {:?}", taken.headers);
                assert!(agent, "{:?}", taken.headers);
            }
            assert!(receiver.spans().is_empty(), "nobody asked for spans");
        }
    }
}

#[test]
fn a_short_run_exports_once_at_its_end_and_signals_can_be_switched_off() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let recording = recording(dir.path());
    let replay = |variables: &[(&str, &str)]| {
        let mut command = command(["collect", "--socket", "off", "--speed", "max", "--replay"]);
        let run = Run::new(command.arg(&recording).envs(variables.iter().copied()));
        assert_eq!(run.code, Some(0), "{run:?}");
        run.stderr
    };
    let receiver = Receiver::start(Speaks::Http);
    let url = receiver.url();
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str());
    replay(&[endpoint, RESOURCE[0], RESOURCE[1]]);
    check(&receiver);
    let points = receiver.points().len();
    replay(&[endpoint, ("OTEL_METRICS_EXPORTER", "none"), ("OTEL_LOGS_EXPORTER", "none")]);
    replay(&[endpoint, ("OTEL_SDK_DISABLED", "true")]);
    replay(&[]);
    assert_eq!(receiver.points().len(), points, "switched off");
}

#[test]
fn spans_are_sent_when_they_are_asked_for() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let receiver = Receiver::start(Speaks::Grpc);
    let lines = [
        format!(r#"{{"type":"header","format":"rdmascope-recording","version":1,"host":"n","unix_ns":{ZERO},"mono_ns":0}}"#),
        r#"{"t":1000000000,"type":"device","device":"d"}"#.into(),
        r#"{"t":2000000000,"type":"qp","device":"d","qpn":7,"event":"create","qp_type":"RC","to":"RESET","pid":9,"comm":"job"}"#.into(),
        r#"{"t":3000000000,"type":"qp","device":"d","qpn":7,"event":"modify","from":"RESET","to":"RTS"}"#.into(),
        r#"{"t":4000000000,"type":"qp","device":"d","qpn":7,"event":"destroy"}"#.into(),
    ];
    let path = dir.path().join("qp.jsonl");
    std::fs::write(&path, lines.join("\n")).expect("written");
    let mut command = command(["collect", "--socket", "off", "--speed", "max", "--otlp-spans", "--replay"]);
    command.arg(&path).env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url()).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let run = Run::new(&mut command);
    assert_eq!(run.code, Some(0), "{run:?}");
    let spans = receiver.spans();
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert_eq!((spans[0].start_time_unix_nano, spans[0].end_time_unix_nano), (ZERO + 2 * SECOND, ZERO + 4 * SECOND));
    let states: Vec<(u64, &str)> =
        spans[0].events.iter().map(|event| (event.time_unix_nano - ZERO, event.name.as_str())).collect();
    assert_eq!(states, [(2 * SECOND, "RESET"), (3 * SECOND, "RTS")]);
}
