//! How many packets of the bottleneck model a second, on one core.
//!
//! Sixteen senders into 400 Gb/s: an incast that never ends and bursts at 80 % load, first unobserved, then measured as
//! `whatif` does. Prints the best of several runs.

use std::hint::black_box;
use std::time::Instant;

use collector::sim::packet::{Control, Measure, Observer, Packet, Params, Workload, run};

/// Runs, and simulated time of each, ms, unless two arguments say otherwise.
const RUNS: u64 = 5;
const MILLISECONDS: u64 = 200;

/// Counts.
struct Count(u64);

impl Observer for Count {
    fn packet(&mut self, packet: &Packet) {
        self.0 += 1;
        black_box(packet.queue_bytes);
    }
}

/// Packets a second, millions: the best run.
fn best(runs: u64, mut run: impl FnMut() -> u64) -> f64 {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            let packets = run();
            assert!(packets > 100_000, "something was sent");
            packets as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .fold(0.0, f64::max)
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let runs = numbers.first().copied().unwrap_or(RUNS);
    let duration_ns = numbers.get(1).copied().unwrap_or(MILLISECONDS) * 1_000_000;
    let base = Params { control: Control::nic(400.0), duration_ns, warm_up_ns: 0, ..Params::example() };
    let incast = Params { workload: Workload::Incast { message_bytes: 256_000 }, ..base.clone() };
    for (name, params) in [("incast", incast), ("bursts", base)] {
        let unobserved = best(runs, || {
            let mut count = Count(0);
            run(&params, &mut count);
            count.0
        });
        let measured = best(runs, || Measure::of(&params, &[1.0, 2.0, 4.0, 8.0]).packets);
        println!("{name}: bare {unobserved:>6.1} Mpkt/s   measured for four L {measured:>6.1} Mpkt/s");
    }
}
