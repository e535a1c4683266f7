//! How fast the simulated node is, and how far its congestion is from the packet model it was made from.
//!
//! With the argument `table` it prints the congestion table anew instead (`collector/src/sim/congestion/table.tsv`).

use std::hint::black_box;
use std::time::Instant;

use collector::sim::congestion::calibration::{Residual, residuals, table_text};
use collector::sim::{Simulator, Size};

/// Simulated seconds of the speed measurement, and conditions of the comparison.
const SECONDS: u64 = 600;
const COMPARISONS: u64 = 240;

fn main() {
    if std::env::args().any(|argument| argument == "table") {
        print!("{}", table_text());
        return;
    }
    for (what, qps_per_port, period_ns) in [
        ("1 s, 64 QPs/port", 64, 1_000_000_000),
        ("1 s, 8 QPs/port", 8, 1_000_000_000),
        ("100 ms, 8 QPs/port", 8, 100_000_000),
    ] {
        let best = (0..3).map(|_| speed(qps_per_port, period_ns)).fold(0.0, f64::max);
        println!("eight ports, {what:20} {best:>8.0} x real time (target 1000 at 1 s)");
    }
    let all = residuals(COMPARISONS, 4_711);
    println!("window model against packet model at {COMPARISONS} conditions that are not in the table:");
    quantiles("utilisation, difference", &all, |r| Some((r.table.utilisation - r.packets.utilisation).abs()));
    quantiles("mark share, factor (where above 1e-4)", &all, |r| {
        factor(r.table.mark_share, r.packets.mark_share, 1e-4)
    });
    quantiles("CNPs per mark, difference", &all, |r| {
        (r.packets.mark_share > 1e-4).then_some((r.table.cnp_per_mark - r.packets.cnp_per_mark).abs())
    });
    quantiles("pause share, difference", &all, |r| Some((r.table.pause_share - r.packets.pause_share).abs()));
    quantiles("small messages p50, factor", &all, |r| factor(r.table.small_ns[0], r.packets.small_ns[0], 1.0));
    quantiles("small messages p99, factor", &all, |r| factor(r.table.small_ns[2], r.packets.small_ns[2], 1.0));
    quantiles("bursts p50, factor", &all, |r| factor(r.table.large_ns[0], r.packets.large_ns[0], 1.0));
    quantiles("bursts p99, factor", &all, |r| factor(r.table.large_ns[1], r.packets.large_ns[1], 1.0));
}

/// Simulated seconds in a second.
fn speed(qps_per_port: u32, period_ns: u64) -> f64 {
    let simulator = Simulator::with_size("healthy", 1, Size { qps_per_port });
    let mut simulator = simulator.expect("the scenario is one of the list").polling_every(period_ns);
    let start = Instant::now();
    let mut observations = 0u64;
    simulator.advance(SECONDS * 1_000_000_000, &mut |observation| {
        black_box(observation);
        observations += 1;
    });
    assert!(observations > SECONDS);
    SECONDS as f64 / start.elapsed().as_secs_f64()
}

fn factor(table: f64, packets: f64, least: f64) -> Option<f64> {
    (packets > least).then(|| (table.max(1e-9) / packets).ln().abs().exp())
}

fn quantiles(what: &str, all: &[Residual], of: impl Fn(&Residual) -> Option<f64>) {
    let mut values: Vec<f64> = all.iter().filter_map(of).collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let at = (share * values.len() as f64) as usize;
        values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    };
    println!("  {what:40} median {:>7.3}   90 % {:>7.3}   ({} values)", at(0.5), at(0.9), values.len());
}
