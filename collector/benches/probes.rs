//! What a hit of the data-path probes costs on this kernel, beside a program that does nothing at the same instruction,
//! and what a loop of empty polls loses while its probes have a budget. Needs what the probes need: root.

use std::process::ExitCode;
use std::time::Duration;

use collector::source::probes::bench::{Governed, Row, calls, governed, programs};
use collector::source::probes::{CONFINED_ARG, confined_main};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(CONFINED_ARG) {
        return confined_main();
    }
    if let Err(reason) = hits().and_then(|()| budgets()) {
        println!("skipped: {reason}");
    }
    ExitCode::SUCCESS
}

fn hits() -> Result<(), String> {
    let rows = calls()?;
    let ns = |name: &str| rows.iter().find(|row| row.name == name).map_or(f64::NAN, |row| row.ns);
    let free = ns("no probe");
    println!("{:<44} {:>9}", "a call", "ns");
    for Row { name, ns } in &rows {
        println!("{name:<44} {ns:>9.1}");
    }
    let ratio = |what: &str, of: &str, to: &str, target: &str| {
        println!("{what:<44} {:>9.2}   {target}", (ns(of) - free) / (ns(to) - free));
    };
    println!("ratios, the bare call taken off");
    for name in [
        "push, post_send, not signalled",
        "push, post_send, signalled, no latency",
        "push, post_send, signalled, 1 in 8 timed",
        "push, post_send, signalled, each timed",
        "push, post_send, two QPs in turn",
        "push, post_send, element apart",
        "push, post_send, element apart, 1 in 8 timed",
    ] {
        ratio(name.trim_start_matches("push, "), name, "push, empty", "(target 1.3)");
    }
    for name in ["push, poll_cq, empty", "push, poll_cq, 1 completion, timed", "push, poll_cq, 16 completions"] {
        ratio(name.trim_start_matches("push, "), name, "push and return, empty", "");
    }
    let (chosen, entry) = ("push behind endbr64, post_send 1 in 8", "endbr64 (stepped), post_send 1 in 8");
    ratio("chosen instruction / stepped entry", chosen, entry, "(target 0.25)");
    ratio("the same, empty", "push behind endbr64, empty", "endbr64 (stepped), empty", "");
    println!("of that the program itself, by the kernel's statistics, ns a run (calls of all cases above)");
    for Row { name, ns } in programs()? {
        println!("{name:<44} {ns:>9.1}");
    }
    Ok(())
}

fn budgets() -> Result<(), String> {
    let (alone, watched) = (Duration::from_secs(4), Duration::from_secs(12));
    tell("20 %", 0.2, &governed(0.2, 4, alone, watched)?, "(target 0.25)");
    tell("1 %", 0.01, &governed(0.01, 1, alone, Duration::from_secs(60))?, "");
    Ok(())
}

fn tell(budget: &str, share: f64, seen: &Governed, target: &str) {
    println!("a loop of empty polls, budget {budget} of one core");
    for ((free, bound), share) in seen.polls_per_s.iter().zip(&seen.lost_share) {
        println!(
            "  polls/s {free:>12.0} without probes {bound:>12.0} with them, CPU taken from it {share:.3} of a core"
        );
    }
    let slower = median(seen.polls_per_s.iter().map(|(free, bound)| 1.0 - bound / free).collect());
    println!("  {:<42} {slower:>9.3}   {target}", "slow-down, median");
    println!("  {:<42} {:>9.3}", "CPU taken from the loop, share of a core", median(seen.lost_share.clone()));
    let estimated = seen.cost_ns / seen.elapsed_ns;
    println!("  {:<42} {:>9.4}   (budget {share})", "hits × cost of a hit, share of a core", estimated);
    println!("  {:<42} {:>9.4}", "of that the programs, by the kernel", seen.programs_ns / seen.elapsed_ns);
    let in_program = seen.programs_ns / seen.hits.max(1) as f64;
    println!(
        "  {} hits, {:.0} ns each: {in_program:.0} ns in the program, the rest in the trap",
        seen.hits, seen.hit_ns
    );
    if let Some((window, period)) = seen.window {
        println!("  last window {:.2} s of {:.2} s", window as f64 / 1e9, period as f64 / 1e9);
    }
    println!("  said: {}", seen.reason.as_deref().unwrap_or("nothing"));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
