//! `cargo xtask ci`: everything a change must pass.

use anyhow::Result;
use clap::Args;

use crate::stage::stage;
use crate::workspace::WITH_VERBS;
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
    stage("lints of what needs libibverbs", || {
        command::run(command::cargo(["clippy"]).args(WITH_VERBS).args(["--", "-D", "warnings"]))
    })?;
    stage("tests of what needs libibverbs", || {
        // Only the program's own: the guests need it built this way, and the library's are run with the others.
        command::run(command::cargo(["test", "--quiet"]).args(WITH_VERBS))
    })?;
    stage("kept BPF objects", build::check)?;
    stage("BPF objects built anew", build::rebuild_and_compare)?;
    test::run(&test::Arguments::default())
}
