//! `cargo xtask package`: the .deb and the rpm, in `target/package/`.
//!
//! [`files`] are what both hold beside the program and the files of `packaging/`: the pages, completions and the sample
//! configuration, made by the program itself. [`deb`] is made by cargo-deb (metadata in `tui/Cargo.toml`), [`rpm`] by
//! rpmbuild (`packaging/rpm/rdmascope.spec`). [`chroot`] is a minimal Debian that a test installs the .deb in.

pub(crate) mod chroot;
pub(crate) mod deb;
mod files;
mod rpm;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::workspace::VERBS;
use crate::{command, workspace};

/// Arguments of `cargo xtask package`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// What to make
    #[arg(value_enum, default_value = "all")]
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Deb,
    Rpm,
    All,
}

/// Builds the program and packs it; lists what went in.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let programs = Programs::build()?;
    if arguments.kind != Kind::Rpm {
        let package = deb::make(&programs)?;
        print!("{}", deb::listing(&package)?);
        say_size(&package)?;
    }
    if arguments.kind != Kind::Deb {
        let package = rpm::make(&programs)?;
        print!("{}", rpm::listing(&package)?);
        say_size(&package)?;
    }
    Ok(())
}

/// Where packages go. Not below `CARGO_TARGET_DIR`: cargo-deb's metadata names the files by their place in the working copy.
fn directory() -> PathBuf {
    workspace::root().join("target/package")
}

/// The programs of a release build.
pub(crate) struct Programs {
    /// The product.
    pub(crate) rdmascope: PathBuf,
    /// What makes QPs for it.
    pub(crate) verbs: PathBuf,
}

impl Programs {
    /// Builds both.
    pub(crate) fn build() -> Result<Self> {
        let packages = ["--package", "rdmascope", "--package", VERBS];
        command::run(command::cargo(["build", "--quiet", "--release"]).args(packages))?;
        Ok(Self { rdmascope: Self::product(), verbs: workspace::target().join("release").join(VERBS) })
    }

    /// Builds the product alone, which needs nothing of libibverbs; returns its path.
    pub(crate) fn build_product() -> Result<PathBuf> {
        command::run(&mut command::cargo(["build", "--quiet", "--release", "--package", "rdmascope"]))?;
        Ok(Self::product())
    }

    fn product() -> PathBuf {
        workspace::target().join("release/rdmascope")
    }
}

fn say_size(package: &Path) -> Result<()> {
    let bytes = fs::metadata(package).with_context(|| format!("no {}", package.display()))?.len();
    println!("{}: {bytes} bytes", package.display());
    Ok(())
}

/// The one file with this extension in a folder that held none before.
fn only(folder: &Path, extension: &str) -> Result<PathBuf> {
    let mut found = None;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|other| other == extension) {
            found = Some(path);
        }
    }
    found.with_context(|| format!("no .{extension} came to be in {}", folder.display()))
}

/// An empty folder at this path.
fn emptied(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
