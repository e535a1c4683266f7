//! `cargo xtask test`: every test there is, and one line that counts them.
//!
//! 1. the host's packages, where they may be installed;
//! 2. the release builds, which tests look at and the guests run; the .deb with it, and a Debian to install it in;
//! 3. `cargo test` for the workspace;
//! 4. a few traces of each kind through the rules, which must not have become worse (`cargo xtask score --subset`);
//! 5. the payloads on every kernel, then the assertions over what they left (`tests/tests/vm`), which find the results
//!    by the environment variable [`RESULTS`] and skip without it.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader, pipe};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::counts::{Counts, Reader};
use crate::debian::{self, TEST_PACKAGES};
use crate::stage::stage;
use crate::vm::{self, Outcome};
use crate::workspace::VERBS;
use crate::{command, package, rotel, score, workspace};

/// The environment variable that names the folder of the guests' results.
const RESULTS: &str = "RDMASCOPE_VM_RESULTS";
/// The environment variable that names the release build.
const RELEASE: &str = "RDMASCOPE_RELEASE";
/// The environment variables that name the .deb, and the folder of the Debian to install it in.
const DEB: &str = "RDMASCOPE_DEB";
const CHROOT: &str = "RDMASCOPE_CHROOT";
/// The package that needs libibverbs' headers and what generates bindings from them.
const BINDINGS: &str = "ibverbs-sys";
/// The test program that asserts over them, as cargo names it.
const VM_ASSERTIONS: &str = "tests/vm/main.rs";

/// Arguments of `cargo xtask test`.
#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// Leaves out the virtual machine; its tests count as skipped
    #[arg(long)]
    no_vm: bool,
}

/// Runs every test. An error if one failed, or was skipped where `CI` is `true`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    // Without the packages some tests skip or fail, and say so themselves: the others still run.
    let missing = stage("set-up", || Ok(debian::ensure(&TEST_PACKAGES.iter().collect::<Vec<_>>()).err()))?;
    if let Some(missing) = missing {
        println!("set-up is incomplete: {missing:#}");
    }
    if let Err(error) = rotel::ensure() {
        println!("set-up is incomplete: {error:#}");
    }
    let guests = if arguments.no_vm { Some("--no-vm was given".to_owned()) } else { vm::unavailable() };
    let mut counts = Counts::default();
    let (made, excluded): (_, &[_]) = if bindings_build() {
        let programs = stage("release build", package::Programs::build)?;
        (stage("package", || packages(&programs))?, &[])
    } else {
        println!(
            "skipped: {VERBS} and the packages: libibverbs' bindings do not build; `cargo build -p {BINDINGS}` says why"
        );
        counts.skipped += 1;
        let product = stage("release build", package::Programs::build_product)?;
        (vec![(RELEASE, product)], &["--exclude", VERBS])
    };
    let (host, assertions) = stage("cargo test", || {
        cargo_test(&[&["--workspace"], excluded].concat(), Reader::setting_aside(VM_ASSERTIONS), &made)
    })?;
    counts += host;
    match stage("score of the rules, subset", score::subset) {
        Ok(()) => counts.passed += 1,
        Err(error) => {
            println!("the rules' score: {error:#}");
            counts.failed += 1;
        }
    }
    match guests {
        None => counts += stage("virtual machines", in_guests)?,
        Some(reason) => {
            println!("skipped: virtual machines: {reason}");
            counts += assertions;
            counts.skipped += 1;
        }
    }
    let forbids_skips = env::var_os("CI").is_some_and(|value| value == "true");
    let passed = counts.failed == 0 && !(forbids_skips && counts.skipped > 0);
    if counts.failed == 0 && !passed {
        println!("a skipped test is an error here, since CI is `true`");
    }
    // The last line: people and programs look for it.
    println!("{counts}");
    if passed { Ok(()) } else { Err(NotPassed.into()) }
}

/// Tests failed, or were skipped where that is an error; everything is said by then.
#[derive(Debug)]
pub(crate) struct NotPassed;

impl fmt::Display for NotPassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not every test passed")
    }
}

impl std::error::Error for NotPassed {}

/// Whether libibverbs' bindings can be built here.
fn bindings_build() -> bool {
    command::output(&mut command::cargo(["build", "--quiet", "--package", BINDINGS])).is_ok()
}

/// The .deb and what it is installed in, by the variables that name them; where there can be none, the test that wants
/// them says it was skipped.
fn packages(programs: &package::Programs) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut made = vec![(RELEASE, programs.rdmascope.clone())];
    if let Some(reason) = package::chroot::unavailable() {
        println!("no package is tried: {reason}");
    } else {
        made.push((DEB, package::deb::make(programs)?));
        made.push((CHROOT, package::chroot::base()?));
    }
    Ok(made)
}

/// The payloads, each a test on each kernel, and the assertions over their results.
fn in_guests() -> Result<Counts> {
    let mut counts = Counts::default();
    for run in vm::run_all()? {
        match run.outcome {
            Outcome::Passed => counts.passed += 1,
            Outcome::Failed(_) => counts.failed += 1,
            Outcome::Skipped(_) => counts.skipped += 1,
        }
    }
    if workspace::root().join("tests").join(VM_ASSERTIONS).exists() {
        let arguments = ["--package", "end-to-end", "--test", "vm"];
        let (assertions, _) = stage("assertions over the guests' results", || {
            cargo_test(&arguments, Reader::default(), &[(RESULTS, vm::results_directory())])
        })?;
        counts += assertions;
    }
    Ok(counts)
}

/// Runs `cargo test` to the end whatever fails, shows what it prints, and counts.
fn cargo_test(arguments: &[&str], mut reader: Reader, variables: &[(&str, PathBuf)]) -> Result<(Counts, Counts)> {
    // One pipe for both streams: cargo names the test program on one, the program prints its tests on the other.
    let (output, writer) = pipe()?;
    let mut cargo = command::cargo(["test", "--no-fail-fast"]);
    cargo.args(arguments).args(["--", "--show-output"]);
    for variable in [RESULTS, RELEASE, DEB, CHROOT] {
        cargo.env_remove(variable);
    }
    cargo.envs(variables.iter().map(|(name, path)| (name, path)));
    cargo.stdout(writer.try_clone()?).stderr(writer);
    let mut running = cargo.spawn().context("cannot start cargo")?;
    // The command holds our copies of the pipe's writing end; the output ends once they are closed.
    drop(cargo);
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        reader.line(&line);
    }
    let status = running.wait()?;
    let (mut counts, aside) = reader.finish();
    if !status.success() && counts.failed + aside.failed == 0 {
        println!("cargo test failed although no test did: {status}");
        counts.failed += 1;
    }
    Ok((counts, aside))
}
