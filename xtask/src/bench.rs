//! `cargo xtask bench`: the benchmarks by name.
//!
//! Each prints its figures beside what they are compared with, measured in the same run: the machine's mood hits both.

mod screen_cost;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::command;

/// A benchmark: its name, what it measures, and the package and bench target that run it.
struct Bench {
    name: &'static str,
    measures: &'static str,
    package: &'static str,
    /// A feature of the package it needs, or none.
    features: &'static str,
}

/// Every benchmark, in the order they run.
const BENCHES: &[Bench] = &[
    Bench {
        name: "replay",
        measures: "`counters` lines with 30 values each: bare serde_json, parsing, the whole engine (target 400 k lines/s)",
        package: "collector",
        features: "",
    },
    Bench {
        name: "sysfs",
        measures: "CPU of one poll of a 9-NIC tree of 423 files beside a C loop that preads them (target 3 x)",
        package: "collector",
        features: "",
    },
    Bench {
        name: "collect",
        measures: "CPU of a second of `collect` on that tree beside a scrape of node_exporter (target 0.25 x) and the C loop (4 x)",
        package: "end-to-end",
        features: "",
    },
    Bench {
        name: "memory",
        measures: "bytes per idle QP at 261,632 QPs (target 256), one snapshot, one sweep with all QPs busy",
        package: "collector",
        features: "",
    },
    Bench {
        name: "packet",
        measures: "packets of the queue model a second, bare and as `whatif` measures them (target 10 M/s)",
        package: "collector",
        features: "",
    },
    Bench {
        name: "packets",
        measures: "CPU of the packet source for each packet, and what the sender pays for the copies (loopback device)",
        package: "collector",
        features: "",
    },
    Bench {
        name: "probes",
        measures: "a hit of each data-path probe beside an empty program (target 1.3 x) and beside a stepped entry (0.25 x), and a polling loop inside a budget (root)",
        package: "collector",
        features: "bench",
    },
    Bench {
        name: "sim",
        measures: "simulated seconds a second (target 1000), and the window model against the packet model",
        package: "collector",
        features: "",
    },
    Bench {
        name: "tui",
        measures: "frames of four panes with 261,632 QPs (target p99 16 ms), key to frame (50 ms), memory of engine and screen (256 MiB)",
        package: "rdmascope",
        features: "",
    },
];

/// Arguments of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The benchmarks to run; without a name the list is printed; `all` runs every one but screen-cost
    names: Vec<String>,
    /// For screen-cost: the rdmatop to compare with (cargo install rdmatop --version 0.1.32 --root DIRECTORY)
    #[arg(long, value_name = "FILE")]
    rdmatop: Option<PathBuf>,
    /// For screen-cost: another rdmascope than one built now
    #[arg(long, value_name = "FILE")]
    rdmascope: Option<PathBuf>,
}

/// Lists the benchmarks, or runs those that are named.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let other = |name: &str| name == "all" || name == screen_cost::NAME;
    let named = |name: &str| arguments.names.iter().any(|wanted| wanted == name);
    if let Some(unknown) =
        arguments.names.iter().find(|name| !other(name) && BENCHES.iter().all(|bench| bench.name != **name))
    {
        bail!("no benchmark is called `{unknown}`; `cargo xtask bench` lists them");
    }
    for bench in BENCHES {
        if arguments.names.is_empty() {
            println!("{:8} {}", bench.name, bench.measures);
        } else if named("all") || named(bench.name) {
            println!("== {}: {}", bench.name, bench.measures);
            let what = ["--package", bench.package, "--features", bench.features, "--bench", bench.name];
            command::run(command::cargo(["bench", "--quiet"]).args(what))?;
        }
    }
    if arguments.names.is_empty() {
        println!("{:8} {}", screen_cost::NAME, screen_cost::MEASURES);
    } else if named(screen_cost::NAME) {
        println!("== {}: {}", screen_cost::NAME, screen_cost::MEASURES);
        screen_cost::run(arguments.rdmatop.as_deref(), arguments.rdmascope.as_deref())?;
    }
    Ok(())
}
