//! `cargo xtask setup`: what the build and the tests need on this host, and the installation of what is missing.

use anyhow::Result;
use clap::Args;

use crate::debian::{self, BPF_PACKAGES, Package, TEST_PACKAGES};
use crate::{command, package, rotel, vm};

/// The BPF linker's version that the kept objects are built with; it matches aya 0.14.
const BPF_LINKER_VERSION: &str = "0.10.1";

/// Arguments of `cargo xtask setup`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only list, install nothing
    #[arg(long)]
    dry_run: bool,
}

/// Lists every package and tool with its purpose, then installs what is missing where it may.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let packages: Vec<&'static Package> = TEST_PACKAGES.iter().chain(BPF_PACKAGES).collect();
    let missing = debian::missing(&packages);
    for package in &packages {
        let state = if missing.iter().any(|other| other.name == package.name) { "missing" } else { "ok" };
        println!("{state:8} {:18} {}", package.name, package.purpose);
    }
    let linker = has_bpf_linker();
    let state = if linker { "ok" } else { "missing" };
    println!("{state:8} {:18} links the BPF programs (only to rebuild the kept objects)", "bpf-linker");
    let cargo_deb = if package::deb::has_tool() { "ok" } else { "missing" };
    println!("{cargo_deb:8} {:18} makes the .deb; built with cargo below target/tools", "cargo-deb");
    let collector = rotel::is_installed();
    println!("{:8} {:18} {}", if collector { "ok" } else { "missing" }, "rotel", rotel::PURPOSE);
    println!("{:8} {:18} {}", "", "the guests", vm::DOWNLOADS);

    if arguments.dry_run || !debian::may_install() {
        if !missing.is_empty() {
            println!("\nto install the packages, as root:\n{}", debian::by_hand(&missing));
        }
        if !linker {
            println!("\nto install the linker:\ncargo {}", linker_install().join(" "));
        }
        if !collector {
            println!("\nto install the OpenTelemetry collector:\n{}", rotel::by_hand());
        }
        return Ok(());
    }
    debian::ensure(&packages)?;
    rotel::ensure()?;
    if !linker {
        println!("installing bpf-linker {BPF_LINKER_VERSION} with cargo");
        command::run(&mut command::cargo(linker_install()))?;
    }
    package::deb::tool()?;
    Ok(())
}

fn has_bpf_linker() -> bool {
    command::text(command::system("bpf-linker").arg("--version"))
        .is_ok_and(|version| version.split_whitespace().any(|word| word == BPF_LINKER_VERSION))
}

fn linker_install() -> [&'static str; 5] {
    ["install", "bpf-linker", "--version", BPF_LINKER_VERSION, "--locked"]
}
