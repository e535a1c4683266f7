//! How fast a recording of counters is parsed, and how fast it goes through the whole engine.
//!
//! `counters` lines with 30 values each, of 16 ports, as a live node writes them. Prints lines per second on one core,
//! the best of several runs, and the ratio of the two.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use collector::engine::Engine;
use collector::observation::recording::{FORMAT, Header, Reader};
use collector::rule::Settings;

const PORTS: u64 = 16;
/// Ticks and runs, unless two arguments say otherwise (fewer for counting instructions under valgrind).
const TICKS: u64 = 12_500;
const RUNS: u64 = 5;

/// Real names of an mlx5 port's `hw_counters`, padded to 30.
const NAMES: [&str; 30] = [
    "rx_write_requests",
    "rx_read_requests",
    "rx_atomic_requests",
    "out_of_buffer",
    "out_of_sequence",
    "duplicate_request",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "resp_local_length_error",
    "resp_cqe_error",
    "req_cqe_error",
    "req_remote_invalid_request",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "resp_cqe_flush_error",
    "req_cqe_flush_error",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_ignored",
    "rp_cnp_handled",
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rx_icrc_encapsulated",
    "rx_dct_connect",
    "req_transport_retries_exceeded",
];

fn recording(ticks: u64) -> String {
    let mut text = format!("{{\"type\":\"header\",\"format\":\"{FORMAT}\",\"version\":1}}\n");
    for port in 0..PORTS {
        let _ = writeln!(text, "{{\"t\":0,\"type\":\"device\",\"device\":\"mlx5_{port}\",\"driver\":\"mlx5_core\"}}");
    }
    for tick in 1..=ticks {
        let t = tick * 100_000_000;
        for port in 0..PORTS {
            let _ = write!(
                text,
                "{{\"t\":{t},\"type\":\"counters\",\"device\":\"mlx5_{port}\",\"port\":1,\"source\":\"hw_counters\",\
                 \"values\":{{"
            );
            for (i, name) in (0u64..).zip(NAMES) {
                let comma = if i == 0 { "" } else { "," };
                // A third of the counters moves, as on a busy node.
                let value = if i % 3 == 0 { tick * (i + port + 1) * 1_000 } else { i };
                let _ = write!(text, "{comma}\"{name}\":{value}");
            }
            text.push_str("}}\n");
        }
    }
    text
}

fn best(runs: u64, lines: u64, mut run: impl FnMut() -> u64) -> f64 {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(black_box(run()), lines, "every line is an observation");
            lines as f64 / start.elapsed().as_secs_f64()
        })
        .fold(0.0, f64::max)
}

/// The least any reader of the format does: `serde_json`'s borrowed form of one line, nothing checked, nothing kept.
fn bare(line: &str) -> u64 {
    #[derive(serde::Deserialize)]
    #[allow(dead_code, reason = "it is the parsing that is measured")]
    struct Bare<'a> {
        t: u64,
        r#type: &'a str,
        device: &'a str,
        #[serde(borrow, default)]
        values: std::collections::BTreeMap<&'a str, u64>,
    }
    let bare: Bare<'_> = serde_json::from_str(line).expect("a good line");
    black_box(&bare);
    1
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let (ticks, runs) = (numbers.first().copied().unwrap_or(TICKS), numbers.get(1).copied().unwrap_or(RUNS));
    let text = recording(ticks);
    let lines = PORTS * (ticks + 1);
    let bare = best(runs, lines, || text.lines().skip(1).map(bare).sum());
    let parse = best(runs, lines, || {
        let mut reader = Reader::new(text.as_bytes()).expect("a good header");
        while reader.next(|observation| black_box(observation.t)).expect("good lines").is_some() {}
        reader.notices().observations
    });
    let engine = best(runs, lines, || {
        let mut reader = Reader::new(text.as_bytes()).expect("a good header");
        let mut engine = Engine::new(Header::new(), Settings::default());
        while reader.next(|observation| engine.take(observation)).expect("good lines").is_some() {}
        engine.finish();
        black_box(engine.world().windows);
        reader.notices().observations
    });
    println!("bare serde_json {bare:>9.0} lines/s");
    println!("parse only      {parse:>9.0} lines/s");
    let share = engine / parse;
    println!("whole engine    {engine:>9.0} lines/s   {share:.2} of parsing (target 400000)");
}
