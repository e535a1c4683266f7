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
    stage("lints of what needs libibverbs", || {
        let verbs = ["clippy", "-p", "collector", "--features", "verbs", "--lib", "--bins", "--examples"];
        command::run(command::cargo(verbs).args(["--", "-D", "warnings"]))
    })?;
    stage("tests of what needs libibverbs", || {
        // Only the program's own: the guests need it built this way, and the library's are run with the others.
        let verbs = ["test", "--quiet", "-p", "collector", "--features", "verbs", "--bin", "rdmascope-verbs"];
        command::run(&mut command::cargo(verbs))
    })?;
    stage("kept BPF objects", build::check)?;
    stage("BPF objects built anew", build::rebuild_and_compare)?;
    test::run(&test::Arguments::default())
}
