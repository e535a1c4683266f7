//! The OpenTelemetry collector the tests send to: rotel, from `PyPI`, in a virtual environment below target/. Nothing is
//! installed on the host for it.

use std::path::PathBuf;

use anyhow::Result;

use crate::{command, workspace};

/// The collector's pinned version.
const VERSION: &str = "0.0.1a15";

/// What it is for.
pub(crate) const PURPOSE: &str = "an OpenTelemetry collector between the tests' sender and receiver";

/// Where it lies; `tests/src/otlp/rotel.rs` looks there.
fn place() -> PathBuf {
    workspace::root().join("target/rotel")
}

/// The pinned version is there.
pub(crate) fn is_installed() -> bool {
    let pythons = std::fs::read_dir(place().join("lib")).into_iter().flatten().flatten();
    let mut packages = pythons.map(|python| python.path().join("site-packages"));
    packages.any(|packages| {
        packages.join("rotel/rotel-agent").is_file() && packages.join(format!("rotel-{VERSION}.dist-info")).is_dir()
    })
}

/// The lines that install it by hand.
pub(crate) fn by_hand() -> String {
    format!("python3 -m venv target/rotel && target/rotel/bin/pip install rotel=={VERSION}")
}

/// Installs it where it is missing.
pub(crate) fn ensure() -> Result<()> {
    if is_installed() {
        return Ok(());
    }
    println!("installing rotel {VERSION}: {PURPOSE}");
    command::run(command::system("python3").args(["-m", "venv"]).arg(place()))?;
    let pip = place().join("bin/pip");
    let mut pip = std::process::Command::new(pip);
    command::run(pip.args(["install", "--quiet", "--disable-pip-version-check"]).arg(format!("rotel=={VERSION}")))
}
