//! Scores the rules (`cargo xtask score`). Arguments: `subset` for the small plan, `traces=`, `nodes=`, `hours=` to change
//! a plan, `out=` for the file of the page. To tune a rule: `first=` for another first seed (below a million), `only=` for
//! names of kinds of traces, `detail` to print what was true and told in each instead of counting.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use collector::rule::Settings;
use collector::score::{Plan, below, details, page, run, table};

/// What the page says it was made by.
const COMMAND: &str = "cargo xtask score --out docs/accuracy.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let subset = arguments.iter().any(|argument| argument == "subset");
    let out = arguments.iter().find_map(|argument| argument.strip_prefix("out="));
    let number = |name: &str| arguments.iter().find_map(|argument| argument.strip_prefix(name)?.parse::<u64>().ok());
    let mut plan = if subset { Plan::SUBSET } else { Plan::FULL };
    plan.traces = number("traces=").unwrap_or(plan.traces);
    plan.hours = number("hours=").unwrap_or(plan.hours);
    plan.nodes = number("nodes=").unwrap_or(plan.nodes);
    plan.first_seed = number("first=").unwrap_or(plan.first_seed);
    let only = arguments.iter().find_map(|argument| argument.strip_prefix("only="));
    plan.only = only.into_iter().flat_map(|only| only.split(',')).map(str::to_owned).collect();
    if arguments.iter().any(|argument| argument == "detail") {
        details(&plan, &Settings::default(), &mut |text| print!("{text}"));
        return ExitCode::SUCCESS;
    }
    let start = Instant::now();
    let accuracy = run(&plan, &Settings::default(), &|done, all| {
        if done % 50 == 0 {
            let _ = write!(std::io::stderr(), "\r{done} of {all} traces, {:.0} s ", start.elapsed().as_secs_f64());
        }
    });
    eprintln!("\r{:.0} s                              ", start.elapsed().as_secs_f64());
    print!("{}", table(&accuracy));
    if let Some(out) = out
        && let Err(error) = std::fs::write(out, page(&accuracy, &plan, COMMAND))
    {
        eprintln!("cannot write {out}: {error}");
        return ExitCode::FAILURE;
    }
    let low = if subset { below(&accuracy) } else { Vec::new() };
    for line in &low {
        println!("below its floor: {line}");
    }
    if low.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
