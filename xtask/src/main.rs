//! `cargo xtask …`: the project's development commands, one file per subcommand.
//!
//! The rooms: [`debian`] knows the packages of the host, [`command`] runs programs, [`stage`] times the steps of a run;
//! the virtual machine's own plan is in [`vm`].

mod bench;
mod build;
mod ci;
mod command;
mod counts;
mod debian;
mod package;
mod rotel;
mod score;
mod setup;
mod stage;
mod test;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "rdmascope's development commands")]
struct Arguments {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Lists what the build and the tests need, and installs what is missing (root on Debian or Ubuntu)
    Setup(setup::Arguments),
    /// Builds the BPF programs that are kept in the repository
    Build(build::Arguments),
    /// Runs every test: unit, integration, and on real kernels in a virtual machine
    Test(test::Arguments),
    /// Boots the virtual test bench and runs payloads in it
    Vm(vm::Arguments),
    /// Makes the .deb and the rpm
    Package(package::Arguments),
    /// Runs the benchmarks
    Bench(bench::Arguments),
    /// Measures how accurate the rules are on simulated traces
    Score(score::Arguments),
    /// Everything a change must pass: format, lints, kept BPF programs, tests
    Ci(ci::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Subcommands::Setup(arguments) => setup::run(&arguments),
        Subcommands::Build(arguments) => build::run(&arguments),
        Subcommands::Test(arguments) => test::run(&arguments),
        Subcommands::Vm(arguments) => vm::run(&arguments),
        Subcommands::Package(arguments) => package::run(&arguments),
        Subcommands::Bench(arguments) => bench::run(&arguments),
        Subcommands::Score(arguments) => score::run(&arguments),
        Subcommands::Ci(arguments) => ci::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<test::NotPassed>() => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
