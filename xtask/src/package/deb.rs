//! The .deb, by cargo-deb, which is kept below `target/tools`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{directory, emptied, files, only};
use crate::{command, workspace};

/// The version whose metadata keys `tui/Cargo.toml` uses.
const VERSION: &str = "3.8.0";

/// Makes the .deb of a release build, and returns its path.
pub(crate) fn make(program: &Path) -> Result<PathBuf> {
    let tool = tool()?;
    files::make(program)?;
    let output = directory().join("deb");
    emptied(&output)?;
    // Stripped by the release profile. The pages' time would differ in each run: cargo-deb takes that of the manifest.
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
    let root = workspace::root().join("target/tools");
    let program = root.join("bin/cargo-deb");
    let version = command::text(Command::new(&program).arg("--version"));
    if !version.is_ok_and(|version| version.trim().ends_with(VERSION)) {
        println!("installing cargo-deb {VERSION} in {}", root.display());
        let install = ["install", "cargo-deb", "--version", VERSION, "--locked", "--quiet", "--no-default-features"];
        // Debian's xz compresses in its place: the feature left out would build a copy of liblzma.
        command::run(command::cargo(install).arg("--root").arg(&root))?;
    }
    Ok(program)
}
