//! The .deb, by cargo-deb, which is kept below `target/tools`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Programs, directory, emptied, files, only};
use crate::{command, workspace};

/// The version whose metadata keys `tui/Cargo.toml` uses.
const VERSION: &str = "3.8.0";

/// Makes the .deb of a release build, and returns its path.
pub(crate) fn make(programs: &Programs) -> Result<PathBuf> {
    let tool = tool()?;
    files::make(programs)?;
    let output = directory().join("deb");
    emptied(&output)?;
    // The release profile has stripped it.
    let mut cargo_deb = Command::new(tool);
    cargo_deb.args(["--quiet", "--package", "rdmascope", "--no-build", "--no-strip", "--output"]).arg(&output);
    command::run(cargo_deb.current_dir(workspace::root()))?;
    only(&output, "deb")
}

/// What is in it.
pub(crate) fn listing(package: &Path) -> Result<String> {
    command::text(command::system("dpkg-deb").arg("--contents").arg(package))
}

/// Installs cargo-deb unless it is there: a minute or two.
pub(crate) fn tool() -> Result<PathBuf> {
    if !has_tool() {
        println!("installing cargo-deb {VERSION} in {}", tools().display());
        let install = ["install", "cargo-deb", "--version", VERSION, "--locked", "--quiet", "--no-default-features"];
        // Debian's xz compresses in its place: the feature left out would build a copy of liblzma.
        command::run(command::cargo(install).arg("--root").arg(tools()))?;
    }
    Ok(program())
}

/// Whether the version that is wanted is there.
pub(crate) fn has_tool() -> bool {
    let version = command::text(Command::new(program()).arg("--version"));
    version.is_ok_and(|version| version.trim().ends_with(VERSION))
}

fn program() -> PathBuf {
    tools().join("bin/cargo-deb")
}

fn tools() -> PathBuf {
    workspace::root().join("target/tools")
}
