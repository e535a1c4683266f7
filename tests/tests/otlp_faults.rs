//! Whatever an endpoint of OTLP does, `collect` goes on: nothing stalls, nothing grows without limit, nothing is lost
//! unsaid, no line is said twice, and no secret is said at all.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use end_to_end::binary::{Run, command, wait_until};
use end_to_end::otlp::certificates::Authority;
use end_to_end::otlp::{Behaviour, Number, Receiver, Speaks};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(40);
/// No two readings of a counter that is read every 100 ms are further apart. Far above what a busy machine makes of it,
/// and far below what it would be if the collection waited for an endpoint.
const GAP_NS: u64 = 3_000_000_000;
const BOTH: [(Speaks, &str); 2] = [(Speaks::Grpc, "grpc"), (Speaks::Http, "http/protobuf")];

/// A `collect` that watches a tree of one port, exports every second, and records.
struct Collecting {
    dir: tempfile::TempDir,
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    reader: std::thread::JoinHandle<()>,
}

impl Collecting {
    fn start(endpoint: &str, protocol: &str, more: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let port = dir.path().join("tree/class/infiniband/dev0/ports/1");
        std::fs::create_dir_all(port.join("counters")).expect("a tree can be made");
        for (file, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("link_layer", "InfiniBand"),
            ("counters/port_rcv_data", "7"),
            ("counters/port_xmit_data", "9"),
        ] {
            std::fs::write(port.join(file), text).expect("a file can be written");
        }
        let mut command = command(["--interval", "100ms", "collect", "--socket", "off"]);
        command.arg("--sysfs-root").arg(dir.path().join("tree")).arg("--record").arg(dir.path().join("r.jsonl"));
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
        command.env("OTEL_METRIC_EXPORT_INTERVAL", "500").envs(more.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let said = Arc::new(Mutex::new(Vec::new()));
        let (lines, errors) = (said.clone(), BufReader::new(child.stderr.take().expect("its errors")));
        let reader = std::thread::spawn(move || {
            for line in errors.lines() {
                lines.lock().expect("no panic").push(line.expect("text"));
            }
        });
        Self { dir, child, said, reader }
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().expect("no panic").clone()
    }

    fn says(&self, word: &str) {
        let there = wait_until(LONG, || self.said().iter().any(|line| line.contains(word)));
        assert!(there, "{word:?} is not said: {:?}", self.said());
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The times of the readings that are recorded by now; the last line may be half written.
    fn readings(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(self.at("r.jsonl")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["type"] == "counters").filter_map(|line| line["t"].as_u64()).collect()
    }

    /// Ends it; nothing of the collection stalled meanwhile. All it said.
    fn end(mut self) -> Vec<String> {
        let read = || self.readings().len() > 5;
        assert!(wait_until(LONG, read), "nothing is read: {:?}", self.said());
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")).expect("a pid");
        kill_process(pid, Signal::TERM).expect("it is there");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0), "{:?}", self.said());
        let times = self.readings();
        self.reader.join().expect("it does not panic");
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().expect("two readings");
        assert!(longest < GAP_NS, "{longest} ns without a reading: {times:?}");
        self.said.lock().expect("no panic").clone()
    }
}

/// The newest value of one of the exporter's own counts.
fn own(receiver: &Receiver, name: &str, signal: &str) -> f64 {
    let points = receiver.points();
    let newest = points.iter().rev().find(|point| point.name == name && point.attributes["rdma.signal"] == signal);
    match newest.map(|point| &point.value) {
        Some(Number::Sum(value, true)) => *value,
        other => panic!("{name} of {signal}: {other:?}"),
    }
}

/// Points have come since `before` of them had.
fn more_points(receiver: &Receiver, before: usize) -> bool {
    wait_until(LONG, || receiver.points().len() > before)
}

#[test]
fn an_endpoint_that_is_down_costs_two_lines_and_what_did_not_fit_which_it_is_told_later() {
    for (speaks, protocol) in BOTH {
        let mut receiver = Receiver::start(speaks);
        receiver.stop();
        // Room for two or three exports of this tree.
        let more = [("RDMASCOPE_OTLP_QUEUE", "24K")];
        let collecting = Collecting::start(&receiver.url(), protocol, &more);
        collecting.says("refused");
        // Long enough for more exports than there is room for.
        assert!(wait_until(LONG, || collecting.readings().len() > 80), "it does not go on");
        receiver.start_again();
        collecting.says("works again");
        let exported = || own(&receiver, "rdma.self.export.dropped", "metrics") > 0.0;
        assert!(more_points(&receiver, 0));
        assert!(wait_until(LONG, exported), "what was dropped is not exported");
        assert!(own(&receiver, "rdma.self.export.failed", "metrics") > 0.0);
        // What was kept is as old as it is.
        let times: std::collections::BTreeSet<u64> =
            receiver.points().iter().filter(|point| point.name == "hw.network.io").map(|point| point.time).collect();
        assert!(times.len() > 1, "{times:?}");
        let said = collecting.end();
        let words = ["collecting", "refused", "works again", "ended"];
        assert_eq!(said.len(), words.len(), "{said:?}");
        assert!(words.iter().zip(&said).all(|(word, line)| line.contains(word)), "{said:?}");
        assert!(said[2].contains("data points") && said[3].contains("lost"), "{said:?}");
    }
}

#[test]
fn an_endpoint_that_asks_for_time_gets_it_and_loses_nothing() {
    let cases = [
        (BOTH[0], Behaviour::Code(14, Some(2)), "Unavailable"),
        (BOTH[0], Behaviour::Code(8, Some(2)), "ResourceExhausted"),
        (BOTH[1], Behaviour::Status(429, Some("2")), "429"),
        (BOTH[1], Behaviour::Status(503, Some("2")), "503"),
    ];
    for ((speaks, protocol), behaviour, word) in cases {
        let receiver = Receiver::start(speaks);
        receiver.behave(behaviour);
        let collecting = Collecting::start(&receiver.url(), protocol, &[("OTEL_LOGS_EXPORTER", "none")]);
        assert!(wait_until(LONG, || receiver.asked().len() >= 2), "{word}");
        let asked = receiver.asked();
        assert!(asked[1] - asked[0] >= Duration::from_secs(2), "{word}: {:?}", asked[1] - asked[0]);
        receiver.behave(Behaviour::Take);
        collecting.says("works again");
        let said = collecting.end();
        assert!(said[1].contains(word) && said.len() == 4 && !said[3].contains("lost"), "{said:?}");
    }
}

#[test]
fn what_is_refused_for_good_is_not_sent_again_but_counted_and_said_once() {
    for ((speaks, protocol), behaviour, word) in [
        (BOTH[0], Behaviour::Code(3, None), "InvalidArgument"),
        (BOTH[0], Behaviour::Code(8, None), "ResourceExhausted"),
        (BOTH[1], Behaviour::Status(400, None), "400"),
        (BOTH[1], Behaviour::Status(404, None), "404"),
    ] {
        let receiver = Receiver::start(speaks);
        receiver.behave(behaviour);
        let collecting = Collecting::start(&receiver.url(), protocol, &[("OTEL_LOGS_EXPORTER", "none")]);
        collecting.says(word);
        assert!(wait_until(LONG, || receiver.asked().len() >= 3), "{word}");
        receiver.behave(Behaviour::Take);
        assert!(more_points(&receiver, 0));
        let dropped = own(&receiver, "rdma.self.export.dropped", "metrics");
        assert!(dropped > 0.0, "{word}");
        let said = collecting.end();
        assert!(said[1].contains(word) && said[2].contains("works again"), "{said:?}");
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[3].contains("lost"), "{said:?}");
    }
}

#[test]
fn what_is_taken_in_part_is_counted_and_said_once() {
    for (speaks, protocol) in BOTH {
        let receiver = Receiver::start(speaks);
        receiver.behave(Behaviour::Partial(3));
        let collecting = Collecting::start(&receiver.url(), protocol, &[("OTEL_LOGS_EXPORTER", "none")]);
        collecting.says("3 data points not taken: too much");
        let dropped = || receiver.asked().len() >= 3 && own(&receiver, "rdma.self.export.dropped", "metrics") >= 6.0;
        assert!(wait_until(LONG, dropped));
        let said = collecting.end();
        assert_eq!(said.len(), 3, "{said:?}");
    }
}

#[test]
fn an_endpoint_that_is_slow_or_breaks_off_is_tried_again() {
    for (speaks, protocol) in BOTH {
        for (behaviour, words) in [
            (Behaviour::Slow(Duration::from_secs(30)), &["no answer within 700 ms"][..]),
            (Behaviour::Breaks, &["closed", "reset", "error", "incomplete", "end"]),
        ] {
            let receiver = Receiver::start(speaks);
            receiver.behave(behaviour);
            let more = [("OTEL_EXPORTER_OTLP_TIMEOUT", "700"), ("OTEL_LOGS_EXPORTER", "none")];
            let collecting = Collecting::start(&receiver.url(), protocol, &more);
            assert!(
                wait_until(LONG, || receiver.asked().len() >= 2),
                "{protocol} {behaviour:?}: {:?}",
                collecting.said()
            );
            receiver.behave(Behaviour::Take);
            collecting.says("works again");
            assert!(more_points(&receiver, 0));
            let said = collecting.end();
            assert!(words.iter().any(|word| said[1].contains(word)), "{protocol} {behaviour:?}: {said:?}");
            assert!(said.len() == 4 && !said[3].contains("lost"), "{said:?}");
        }
    }
}

#[test]
fn tls_trusts_whom_it_is_told_to_and_nobody_else() {
    let (authority, stranger) = (Authority::new("one"), Authority::new("another"));
    let path = |path: PathBuf| path.display().to_string();
    let (trusted, other) = (path(authority.certificate()), path(stranger.certificate()));
    let (certificate, key) = authority.issue("client");
    let (certificate, key) = (path(certificate), path(key));
    let ca = |file| ("OTEL_EXPORTER_OTLP_CERTIFICATE", file);
    for (speaks, protocol) in BOTH {
        let receiver = Receiver::with_tls(speaks, authority.server("localhost", false));
        let collecting = Collecting::start(&receiver.url(), protocol, &[ca(trusted.as_str())]);
        assert!(more_points(&receiver, 0), "{:?}", collecting.said());
        assert_eq!(collecting.end().len(), 2);

        let wants = Receiver::with_tls(speaks, authority.server("localhost", true));
        let client = [
            ca(trusted.as_str()),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", certificate.as_str()),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", key.as_str()),
        ];
        let collecting = Collecting::start(&wants.url(), protocol, &client);
        assert!(more_points(&wants, 0), "{:?}", collecting.said());
        assert_eq!(collecting.end().len(), 2);

        let renamed = Receiver::with_tls(speaks, authority.server("elsewhere", false));
        let cases = [
            (&receiver, vec![ca(other.as_str())], "UnknownIssuer"),
            (&receiver, vec![], "UnknownIssuer"),
            (&renamed, vec![ca(trusted.as_str())], "not valid for name"),
            (&wants, vec![ca(trusted.as_str())], ""),
        ];
        for (receiver, variables, word) in cases {
            let (before, connections) = (receiver.points().len(), receiver.connections());
            let collecting = Collecting::start(&receiver.url(), protocol, &variables);
            assert!(wait_until(LONG, || receiver.connections() > connections + 1), "{word}: it is not tried again");
            collecting.says("sent again");
            let said = collecting.end();
            assert!(said[1].contains(word), "{protocol}: {said:?}");
            assert_eq!(receiver.points().len(), before, "{protocol}: {word}");
            // Its line, and what could not be sent at the end.
            assert_eq!(said.len(), 4, "{said:?}");
        }
    }
}

#[test]
fn no_secret_is_said_recorded_or_exported() {
    let secrets = ["swordfish", "opensesame", "hunter2", "tunafish"];
    let dir = tempfile::tempdir().expect("a temporary directory");
    let key = dir.path().join("key.pem");
    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n").expect("written");
    let key = key.display().to_string();
    let clean = |text: &str, what: &str| {
        for secret in secrets {
            assert!(!text.contains(secret), "{what} tells {secret}: {text}");
        }
    };
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20swordfish,x-key=swordfish");
    for (speaks, protocol) in BOTH {
        let receiver = Receiver::start(speaks);
        for behaviour in [Behaviour::Take, Behaviour::Status(400, None), Behaviour::Code(3, None)] {
            receiver.behave(behaviour);
            let url = format!("http://opensesame:hunter2@localhost:{}/?key=tunafish", receiver.port());
            let collecting = Collecting::start(&url, protocol, &[headers]);
            assert!(wait_until(LONG, || !receiver.asked().is_empty()), "{:?}", collecting.said());
            let recording = collecting.at("r.jsonl");
            assert!(wait_until(LONG, || recording.metadata().is_ok_and(|file| file.len() > 4096)));
            let recorded = std::fs::read_to_string(recording).expect("a recording");
            clean(&recorded, "the recording");
            clean(&collecting.end().join("\n"), "standard error");
        }
        // They did go where they belong.
        let taken = receiver.taken();
        let header =
            |name: &str| taken[0].headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        assert_eq!(header("authorization").as_deref(), Some("Bearer swordfish"));
        clean(&format!("{:?}", taken.iter().map(|taken| &taken.message).collect::<Vec<_>>()), "what was exported");
    }
    // What is wrong at the start.
    let certificate =
        [("OTEL_EXPORTER_OTLP_CLIENT_KEY", key.as_str()), ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", key.as_str())];
    for variables in [
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://opensesame:hunter2@host:tunafish")][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_EXPORTER_OTLP_HEADERS", "swordfish")],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://opensesame:hunter2@c"), certificate[0], certificate[1]],
    ] {
        let mut command = command(["collect", "--socket", "off", "--scenario", "healthy", "--for", "1s"]);
        let run = Run::new(command.envs(variables.iter().copied()));
        run.says(2, &["OT"]);
        clean(&run.stderr, "the error");
    }
    // Commands that print what they find.
    for words in [&["doctor"][..], &["doctor", "--json"], &["config"], &["collect", "--help"]] {
        let mut command = command(words);
        let run = Run::new(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://opensesame:hunter2@c").envs([headers]));
        clean(&format!("{}{}", run.stdout, run.stderr), words[0]);
    }
}
