//! `cargo xtask score`: precision, recall, delay and false alarms of the rules on simulated traces of which the truth is
//! known (`collector/src/score/`), in the release build.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::{command, workspace};

/// Arguments of `cargo xtask score`.
#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// A few traces of each kind; fails when a figure falls below the floor kept in the tool
    #[arg(long)]
    subset: bool,
    /// Write the page to this file, for example docs/accuracy.md
    #[arg(long, value_name = "FILE")]
    out: Option<String>,
    /// Traces of each kind instead of the plan's number
    #[arg(long, value_name = "N")]
    traces: Option<u64>,
    /// Simulated hours of each node in which nothing is wrong, instead of the plan's number
    #[arg(long, value_name = "N")]
    hours: Option<u64>,
}

/// Runs the scoring and shows what it prints.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    // With the product's package: then its dependencies, and so the library, are those of the release build.
    let packages = ["--package", "rdmascope", "--package", "collector"];
    command::run(command::cargo(["build", "--quiet", "--release", "--bin", "score"]).args(packages))?;
    let mut score = Command::new(workspace::target().join("release/score"));
    if arguments.subset {
        score.arg("subset");
    }
    for (name, n) in [("traces", arguments.traces), ("hours", arguments.hours)] {
        score.args(n.map(|n| format!("{name}={n}")));
    }
    if let Some(out) = &arguments.out {
        let folder = std::env::current_dir().context("no current directory")?;
        let path = if folder.starts_with(workspace::root()) { workspace::root().join(out) } else { folder.join(out) };
        score.arg(format!("out={}", path.display()));
    }
    command::run(&mut score)
}

/// The subset, as a step of `cargo xtask test`.
pub(crate) fn subset() -> Result<()> {
    run(&Arguments { subset: true, ..Arguments::default() })
}
