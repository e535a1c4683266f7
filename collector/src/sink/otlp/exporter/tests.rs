use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::ScopeMetrics;
use prost::Message as _;

use super::super::queue::Kind;
use super::super::{Asked, Otlp, Settings};
use super::*;
use crate::metric::{Options, Reports};
use crate::observation::recording::Header;

const LONG: Duration = Duration::from_secs(30);

/// Status and text of an answer to a request with this target; `None`: the connection stays open without one.
type Answers = dyn Fn(&str) -> Option<(u16, String)> + Send + Sync;

/// A receiver of OTLP over HTTP that answers as it is told.
struct Server {
    address: SocketAddr,
    answers: Arc<Mutex<Box<Answers>>>,
}

impl Server {
    fn start(answers: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let answers: Arc<Mutex<Box<Answers>>> = Arc::new(Mutex::new(Box::new(answers)));
        let told = answers.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for stream in listener.incoming().flatten() {
                let target = requested(&stream);
                let answer = told.lock().expect("no panic")(&target);
                match answer {
                    Some((status, text)) => answered(stream, status, &text),
                    None => unanswered.push(stream),
                }
            }
        });
        Self { address, answers }
    }

    fn answer(&self, answers: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) {
        *self.answers.lock().expect("no panic") = Box::new(answers);
    }
}

/// Reads a request to its end; its target.
fn requested(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut target, mut length) = (String::new(), 0);
    for line in (&mut reader).lines().map_while(Result::ok) {
        if line.is_empty() {
            break;
        }
        if target.is_empty() {
            target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().expect("a length");
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).expect("a body");
    target
}

fn answered(mut stream: TcpStream, status: u16, text: &str) {
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    // Who does not wait for the answer does not get it.
    let _ = stream.write_all(format!("{head}{text}").as_bytes());
}

/// An exporter to an endpoint, and what it says.
fn exporter(endpoint: &str, more: &[(&str, &str)]) -> (Otlp, Arc<Mutex<Vec<String>>>) {
    let settings = Settings::from(Asked::default(), &|name| {
        let known = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)];
        known.iter().chain(more).find(|(known, _)| *known == name).map(|(_, value)| value.into())
    });
    let settings = settings.expect("no error").expect("on");
    let said = Arc::new(Mutex::new(Vec::new()));
    let lines = said.clone();
    let log = Arc::new(move |line: &str| lines.lock().expect("no panic").push(line.to_owned()));
    let otlp = Otlp::start(&settings, &Header::new(), Options::default(), Reports::default(), log);
    (otlp.expect("it starts"), said)
}

fn item(kind: Kind) -> Item {
    let bytes = match kind {
        Kind::Metrics => ScopeMetrics::default().encode_to_vec(),
        _ => LogRecord::default().encode_to_vec(),
    };
    Item { kind, records: 1, bytes }
}

fn wait_for(what: &str, said: &Mutex<Vec<String>>, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: {:?}", said.lock().expect("no panic"));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_answer_that_repeats_user_password_or_query_is_said_without_them() {
    let server = Server::start(|target| {
        // opensesame:hunt@2er
        let encoded = "b3BlbnNlc2FtZTpodW50QDJlcg==";
        Some((
            400,
            format!("{target} is not for opensesame:hunt@2er, hunt%402er, Basic {encoded}, tuna fish, bare+word"),
        ))
    });
    let url = format!("http://opensesame:hunt%402er@{}/p?key=tuna%20fish&bare%2Bword", server.address);
    // Its own header is sent; user and password are secrets all the same.
    let more = [("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", &*url), ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=mine")];
    let (otlp, said) = exporter("http://localhost:1", &more);
    otlp.shared.push([item(Kind::Finding)]);
    wait_for("its answer is said", &said, || !said.lock().expect("no panic").is_empty());
    let said = said.lock().expect("no panic").join("\n");
    assert!(said.contains("HTTP 400") && said.contains("is not for"), "{said}");
    for secret in ["sesame", "hunt", "b3Bl", "tuna", "fish", "bare", "word"] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
}

#[test]
fn what_does_not_arrive_of_one_signal_is_not_over_when_another_arrives() {
    let refuses = Some((503, String::new()));
    for logs in [refuses, None] {
        let word = if logs.is_some() { "HTTP 503" } else { "no answer within 300 ms" };
        let taken = |_: &str| Some((200, String::new()));
        let server = Server::start(move |target| if target == "/v1/logs" { logs.clone() } else { taken(target) });
        let endpoint = format!("http://{}", server.address);
        let (otlp, said) = exporter(&endpoint, &[("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "300")]);
        let lines = || said.lock().expect("no panic").clone();
        let place = format!("OTLP: logs to {endpoint}/v1/logs: ");
        otlp.shared.push([item(Kind::Finding)]);
        wait_for("it fails", &said, || !lines().is_empty());
        // When the second is there, all that follows from the first has been said.
        for sent in 1..=2 {
            otlp.shared.push([item(Kind::Metrics)]);
            wait_for("metrics arrive", &said, || otlp.status()()[0].sent >= sent);
        }
        let failing = lines();
        assert!(failing.len() == 1 && failing[0].starts_with(&format!("{place}{word}")), "{failing:?}");
        server.answer(taken);
        wait_for("logs arrive", &said, || lines().len() > 1);
        let over = lines();
        assert!(over.len() == 2 && over[1].starts_with(&format!("{place}works again")), "{over:?}");
    }
}
