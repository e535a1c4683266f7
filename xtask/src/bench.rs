//! `cargo xtask bench`: the benchmarks by name.

use anyhow::{Result, bail};
use clap::Args;

/// A benchmark: its name, what it measures, and the function that runs it and prints its figures.
struct Bench {
    name: &'static str,
    measures: &'static str,
    run: fn() -> Result<()>,
}

/// Every benchmark, in the order they run.
const BENCHES: &[Bench] = &[];

/// Arguments of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The benchmarks to run; without a name the list is printed
    names: Vec<String>,
}

/// Lists the benchmarks, or runs those that are named.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(unknown) = arguments.names.iter().find(|name| BENCHES.iter().all(|bench| bench.name != **name)) {
        bail!("no benchmark is called `{unknown}`; `cargo xtask bench` lists them");
    }
    if BENCHES.is_empty() {
        println!("there are no benchmarks yet");
    }
    for bench in BENCHES {
        if arguments.names.is_empty() {
            println!("{:20} {}", bench.name, bench.measures);
        } else if arguments.names.iter().any(|name| name == bench.name) {
            (bench.run)()?;
        }
    }
    Ok(())
}
