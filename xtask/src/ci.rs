//! `cargo xtask ci`: everything a change must pass.

use anyhow::Result;
use clap::Args;

use crate::stage::stage;
use crate::{build, command, test};

/// Arguments of `cargo xtask ci`.
#[derive(Args)]
pub(crate) struct Arguments {}

/// Format, lints, the kept BPF objects and a fresh build of them, then every test; each step's seconds are printed.
pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    stage("format", || command::run(&mut command::cargo(["fmt", "--all", "--check"])))?;
    stage("lints", || {
        command::run(&mut command::cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    stage("kept BPF objects", build::check)?;
    stage("BPF objects built anew", build::rebuild_and_compare)?;
    test::run(&test::Arguments::default())
}
