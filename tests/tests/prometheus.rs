//! `collect`'s page as Prometheus sees it: checked by its own tool, scraped by its own server (Debian's packages).

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use end_to_end::binary::{Run, command, wait_until};
use end_to_end::http::{escaped, get};
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(60);

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `collect` with a page, and where it is.
struct Collecting {
    _process: Running,
    _errors: BufReader<ChildStderr>,
    page: SocketAddr,
    first: String,
}

fn collecting(address: &str, arguments: &[&str]) -> Collecting {
    let all = ["collect", "--socket", "off", "--prometheus", address].into_iter().chain(arguments.iter().copied());
    let mut child = command(all).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut errors = BufReader::new(child.stderr.take().expect("its errors"));
    let process = Running(child);
    let mut first = String::new();
    errors.read_line(&mut first).expect("a line");
    let at = first.split("Prometheus at ").nth(1).unwrap_or_else(|| panic!("no page: {first}"));
    let page = at.split(|c: char| c == ',' || c.is_whitespace()).next().and_then(|word| word.parse().ok());
    Collecting { _process: process, _errors: errors, page: page.expect("an address"), first }
}

/// The program is installed; says the skip when not.
fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

#[test]
fn promtool_finds_nothing_to_say_about_the_page_under_either_names() {
    if !have("promtool") {
        return;
    }
    for names in ["otel", "node"] {
        let more =
            ["--scenario", "aer-then-down", "--export-processes", "--export-qps", "8", "--prometheus-names", names];
        let collecting = collecting("127.0.0.1:0", &more);
        let mut page = String::new();
        let whole = wait_until(LONG, || {
            page = get(collecting.page, "/metrics").map(|(_, body)| body).unwrap_or_default();
            // Rates need two readings, the busiest QPs two sweeps.
            page.contains("\nrdma_qp_rate_bytes_per_second{") && page.contains("\nrdma_self_cpu_utilization_ratio ")
        });
        assert!(whole, "{page}");
        let mut tool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool starts");
        tool.stdin.take().expect("its input").write_all(page.as_bytes()).expect("it reads");
        let said = Run::from(tool.wait_with_output().expect("it ends"));
        assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "", ""), "{names}");
        let series = page.lines().filter(|line| !line.starts_with('#')).count();
        assert!((500..2000).contains(&series), "{names}: {series} series");
    }
}

/// A port with a reset in the middle and a counter that cannot be read. The last values are those of second 40.
fn recording(path: &Path) {
    let mut lines = vec![
        json!({"type": "header", "format": "rdmascope-recording", "version": 1}),
        json!({"t": 1_000_000_000_u64, "type": "device", "device": "mlx5_0", "driver": "mlx5_core", "pci": "0000:3b:00.0"}),
        json!({"t": 1_000_000_000_u64, "type": "port", "device": "mlx5_0", "port": 1, "link_layer": "Ethernet",
            "state": "ACTIVE", "rate_gbps": 400.0}),
    ];
    for s in 1..=40_u64 {
        let t = s * 1_000_000_000;
        let cnps = if s <= 20 { 1000 + 10 * s } else { 10 * (s - 20) };
        let sets = [
            (
                "counters",
                json!({"port_xmit_data": 1_000_000 * s, "port_rcv_data": 250_000 * s, "link_downed": 255}),
                json!({}),
            ),
            (
                "hw_counters",
                json!({"np_cnp_sent": cnps, "rp_cnp_handled": 3 * cnps, "np_ecn_marked_roce_packets": 7 * cnps}),
                json!({"rp_cnp_ignored": "EINVAL"}),
            ),
        ];
        for (source, values, unavailable) in sets {
            lines.push(json!({"t": t, "type": "counters", "device": "mlx5_0", "port": 1, "source": source,
                "values": values, "unavailable": unavailable}));
        }
    }
    let text: Vec<_> = lines.iter().map(ToString::to_string).collect();
    std::fs::write(path, text.join("\n") + "\n").expect("a recording can be written");
}

/// An address that is free now; nobody else is likely to take it before it is used.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// A Prometheus that scrapes the page, and where it answers.
fn prometheus(dir: &Path, page: SocketAddr) -> (Running, SocketAddr) {
    let config = format!(
        "global:\n  scrape_interval: 500ms\nscrape_configs:\n- job_name: rdmascope\n  static_configs:\n  - targets: ['{page}']\n"
    );
    std::fs::write(dir.join("prometheus.yml"), config).expect("a file can be written");
    let free = free();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address={free}"))
        .arg("--log.level=error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus starts");
    (Running(child), free)
}

/// The values of an expression now.
fn values(prometheus: SocketAddr, expression: &str) -> Option<Vec<f64>> {
    let (status, body) = get(prometheus, &format!("/api/v1/query?query={}", escaped(expression)))?;
    let answer: Value = serde_json::from_str(&body).ok().filter(|_| status == 200)?;
    let rows = answer["data"]["result"].as_array()?;
    rows.iter().map(|row| row["value"][1].as_str()?.parse().ok()).collect()
}

#[test]
fn a_prometheus_has_the_recordings_values_sees_its_reset_and_nothing_of_what_is_unknown() {
    if !have("prometheus") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("r.jsonl");
    recording(&file);
    let file = file.display().to_string();
    // Prometheus first: it is to see what is before the reset, too.
    let page = free();
    let (_server, at) = prometheus(dir.path(), page);
    assert!(wait_until(LONG, || values(at, "up") == Some(vec![0.0])), "prometheus does not begin to scrape");
    let collecting = collecting(&page.to_string(), &["--replay", &file, "--speed", "3", "--stay"]);
    assert_eq!(collecting.page, page);
    let last = wait_until(LONG, || values(at, "rdma_cnp_sent_total") == Some(vec![200.0]));
    assert!(
        last,
        "{:?} from {}: {:?}",
        values(at, "rdma_cnp_sent_total"),
        collecting.first,
        get(collecting.page, "/metrics")
    );
    for (expression, expected) in [
        ("up", vec![1.0]),
        ("hw_network_io_bytes_total{network_io_direction=\"transmit\"}", vec![160e6]),
        ("hw_network_io_bytes_total{network_io_direction=\"receive\"}", vec![40e6]),
        ("rdma_cnp_handled_total{hw_id=\"0000:3b:00.0\",hw_name=\"mlx5_0\",rdma_port=\"1\"}", vec![600.0]),
        ("rdma_ecn_marked_total", vec![1400.0]),
        ("hw_network_up", vec![1.0]),
        ("hw_network_bandwidth_limit_bytes_per_second", vec![5e10]),
        ("resets(rdma_cnp_sent_total[5m])", vec![1.0]),
        ("resets(hw_network_io_bytes_total{network_io_direction=\"transmit\"}[5m])", vec![0.0]),
        // Cannot be read; stands at its ceiling.
        ("rdma_cnp_ignored_total", vec![]),
        ("hw_errors_total{error_type=\"link_downed\"}", vec![]),
        // Nobody looked.
        ("rdma_qps", vec![]),
        ("rdma_coverage_ratio", vec![]),
    ] {
        assert_eq!(values(at, expression), Some(expected), "{expression}");
    }
    let all = values(at, "scrape_samples_scraped").unwrap_or_default();
    assert!(all.first().is_some_and(|n| *n > 20.0), "{all:?}");
}

#[test]
fn an_address_in_use_and_words_that_are_none_are_one_line_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("its address").to_string();
    let base = ["collect", "--scenario", "healthy", "--socket", "off", "--prometheus"];
    let run = |more: &[&str]| Run::of(base.iter().chain(more));
    run(&[&address]).says(2, &[&address, "Prometheus"]);
    run(&["here"]).says(2, &["prometheus", "here", "127.0.0.1:9948"]);
    run(&["127.0.0.1:0", "--prometheus-names", "mine"]).says(2, &["mine", "otel", "node"]);
}
