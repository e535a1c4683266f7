//! The page over real connections, from clients of every kind.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::*;
use crate::engine::Engine;
use crate::metric::{Buckets, Point, Value, declared};
use crate::observation::Observation;
use crate::rule::Settings;
use crate::sim::Simulator;

const LONG: Duration = Duration::from_secs(20);

fn engine(scenario: &str, seconds: u64) -> Engine {
    let mut simulator = Simulator::new(scenario, 3).unwrap();
    let mut engine = Engine::new(simulator.header(), Settings::default());
    simulator.advance(seconds * 1_000_000_000, &mut |observation: &Observation<'_>| engine.take(observation));
    engine
}

fn start(names: Names) -> Prometheus {
    let address = "127.0.0.1:0".parse().unwrap();
    let options = PrometheusOptions { address, names, detail: Options::default() };
    Prometheus::start(options, Reports::default(), Arc::new(|_| ())).unwrap()
}

fn send(page: &Prometheus, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(page.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Head and body of an answer.
fn ask(page: &Prometheus, request: &str) -> (String, String) {
    let mut answer = String::new();
    send(page, request).read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn get(page: &Prometheus, path: &str) -> (String, String) {
    ask(page, &format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n"))
}

fn wait(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn only_get_of_the_page_and_its_index_is_answered() {
    let mut page = start(Names::Otel);
    page.tick(engine("healthy", 1).world(), &OwnCost::default());
    let (head, body) = get(&page, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(!body.is_empty());
    let (head, body) = get(&page, "/");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("/metrics"), "{head} {body}");
    assert!(get(&page, "/secret").0.starts_with("HTTP/1.1 404"));
    let (head, _) = ask(&page, "POST /metrics HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405") && head.to_lowercase().contains("allow: get"), "{head}");
    assert_eq!(page.status()().served, 1);
}

#[test]
fn the_page_is_that_of_the_last_tick_and_has_each_metric_once_with_help_and_type() {
    let mut page = start(Names::Otel);
    page.tick(engine("aer-then-down", 60).world(), &OwnCost::default());
    let (_, body) = get(&page, "/metrics");
    let lines: Vec<&str> = body.lines().collect();
    let heads = |word: &str| lines.iter().filter(|line| line.starts_with(&format!("# {word} "))).count();
    assert!(heads("HELP") > 40 && heads("HELP") == heads("TYPE"), "{}", heads("HELP"));
    let names: std::collections::HashSet<_> = lines.iter().filter(|line| line.starts_with("# TYPE")).collect();
    assert_eq!(names.len(), heads("TYPE"));
    assert!(lines.iter().any(|line| line.starts_with("hw_network_io_bytes_total{hw_id=\"0000:")), "{body}");
    let series = lines.iter().filter(|line| !line.starts_with('#')).count();
    assert!((500..2000).contains(&series), "{series} series");
    page.tick(engine("aer-then-down", 5).world(), &OwnCost { cpu_share: Some(0.25), resident_bytes: None });
    let again = get(&page, "/metrics").1;
    assert!(again.contains("\nrdma_self_cpu_utilization_ratio 0.25\n"), "the next tick is on the page");
}

#[test]
fn when_the_collection_itself_stands_still_there_is_no_page() {
    let page = start(Names::Otel);
    assert!(get(&page, "/metrics").0.starts_with("HTTP/1.1 503"), "the first read may hang too");
    let at = Instant::now().checked_sub(server::OLD + Duration::from_secs(1));
    *lock(&page.shared.now) = Arc::new(Now { at, ..Now::default() });
    assert!(get(&page, "/metrics").0.starts_with("HTTP/1.1 503"));
    *lock(&page.shared.now) = Arc::new(Now { at: Some(Instant::now()), ..Now::default() });
    assert!(get(&page, "/metrics").0.starts_with("HTTP/1.1 200"));
}

#[test]
fn histograms_are_cumulative_and_their_ends_hold_whole_numbers_exactly() {
    let mut text = String::new();
    let mut counts = vec![0; 30];
    // 40 messages below 256 bytes, 2 of 4096 or more.
    (counts[7], counts[12]) = (40, 2);
    let buckets = Buckets { counts, unit: 1.0, sum: Some(9000.0) };
    let point = Point { attributes: Arc::from([]), start: 0, t: 0, value: Value::Buckets(buckets) };
    exposition::write(&mut text, &Family { metric: &declared::MESSAGE_SIZE, points: vec![point] });
    for line in [
        "_bucket{le=\"127\"} 0",
        "_bucket{le=\"511\"} 40",
        "_bucket{le=\"2047\"} 40",
        "_bucket{le=\"8191\"} 42",
        "_bucket{le=\"+Inf\"} 42",
        "_sum 9000",
        "_count 42",
    ] {
        assert!(text.contains(&format!("rdma_message_size_bytes{line}\n")), "{line}: {text}");
    }
    let buckets = Buckets { counts: vec![1], unit: 1e-9, sum: None };
    let point = Point { attributes: Arc::from([]), start: 0, t: 0, value: Value::Buckets(buckets) };
    let mut text = String::new();
    exposition::write(&mut text, &Family { metric: &declared::OPERATION_LATENCY, points: vec![point] });
    assert!(text.contains("_bucket{le=\"0.000002047\"} 1\n") && !text.contains("_sum"), "{text}");
}

#[test]
fn labels_and_help_are_escaped() {
    let mut text = String::new();
    exposition::head(&mut text, "n", "a \\ b\nc", "gauge");
    let mut labels = String::new();
    exposition::label(&mut labels, "l", "a\"b\\c\nd");
    assert_eq!(text, "# HELP n a \\\\ b\\nc\n# TYPE n gauge\n");
    assert_eq!(labels, "l=\"a\\\"b\\\\c\\nd\"");
}

#[test]
fn under_the_names_of_node_exporter_nothing_is_told_twice() {
    let world = engine("healthy", 10);
    let (mut otel, mut node) = (start(Names::Otel), start(Names::Node));
    otel.tick(world.world(), &OwnCost::default());
    node.tick(world.world(), &OwnCost::default());
    let (otel, node) = (get(&otel, "/metrics").1, get(&node, "/metrics").1);
    let port = world.world().present_ports().find(|(device, _)| &*device.name == "mlx5_0").unwrap().1;
    let sent = port.counter("port_xmit_data").unwrap().value().unwrap() * 4;
    let line = format!("node_infiniband_port_data_transmitted_bytes_total{{device=\"mlx5_0\",port=\"1\"}} {sent}\n");
    assert!(node.contains(&line), "{line}{node}");
    assert!(node.contains("node_infiniband_state_id{device=\"mlx5_0\",port=\"1\"} 4\n"));
    assert!(node.contains("node_infiniband_info{board_id="));
    for ours in ["hw_network_io_bytes_total{", "rdma_cnp_sent_total{"] {
        assert!(otel.contains(ours) && !node.contains(ours), "{ours}");
    }
    assert!(node.contains("\nrdma_pause_time_seconds_total{"), "what node_exporter does not have");
}

#[test]
fn clients_that_say_nothing_or_read_nothing_hold_only_themselves() {
    let mut page = start(Names::Otel);
    page.tick(engine("healthy", 5).world(), &OwnCost::default());
    let mute: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(page.address()).unwrap()).collect();
    let deaf: Vec<TcpStream> = (0..10).map(|_| send(&page, "GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n")).collect();
    let half: Vec<TcpStream> = (0..10).map(|_| send(&page, "GET /met")).collect();
    let (head, _) = get(&page, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    drop((mute, deaf, half));
    wait("broken connections are counted", || page.status()().failed >= 10);
}

#[test]
fn too_many_connections_are_closed_and_counted_and_there_is_room_again_afterwards() {
    let mut page = start(Names::Otel);
    page.tick(engine("healthy", 1).world(), &OwnCost::default());
    let many: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(page.address()).unwrap()).collect();
    wait("some are refused", || page.status()().refused >= 16);
    drop(many);
    wait("there is room again", || {
        let mut stream = send(&page, "GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    });
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let page = start(Names::Otel);
    let options = PrometheusOptions { address: page.address(), names: Names::Otel, detail: Options::default() };
    let error = Prometheus::start(options, Reports::default(), Arc::new(|_| ())).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(&page.address().to_string()) && !error.contains('\n'), "{error}");
}

#[test]
fn the_end_does_not_wait_for_clients() {
    let mut page = start(Names::Otel);
    let held = TcpStream::connect(page.address()).unwrap();
    page.finish();
    assert!(page.thread.is_none());
    drop(held);
    assert!(TcpStream::connect(page.address()).is_err(), "nobody listens any more");
}
