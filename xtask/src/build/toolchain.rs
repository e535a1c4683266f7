//! A compiler that can build for BPF: one with the source of the standard library, and the linker.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;

/// Debian's compiler for its own web browsers; its sysroot gets the library source from the package `rust-web-src`.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// A toolchain.
pub(super) struct Toolchain {
    /// What `rustc --version` says.
    pub(super) rustc: String,
    /// What `bpf-linker --version` says.
    pub(super) linker: String,
    /// Where the library's source lies, by every name the compiler may write down.
    pub(super) std_sources: Vec<PathBuf>,
    kind: Kind,
    linker_directory: PathBuf,
}

enum Kind {
    /// A stable rustc at a path, told to accept unstable features, driven by the cargo that runs this program.
    Debian,
    /// rustup's nightly.
    Nightly,
}

impl Toolchain {
    /// Finds one: the one whose version is `preferred` if it is there, for the same bytes again, or else any.
    pub(super) fn find(preferred: Option<&str>) -> Result<Self> {
        let Some(linker) = linker_path() else {
            bail!(
                "bpf-linker is missing: `cargo xtask setup` installs it, or `cargo install bpf-linker --version 0.10.1 --locked`"
            );
        };
        let version = command::text(Command::new(&linker).arg("--version"))?.trim().to_owned();
        let directory = linker.parent().context("the linker has a directory")?.to_owned();
        let mut found: Vec<Self> = [Kind::Debian, Kind::Nightly]
            .into_iter()
            .filter_map(|kind| Self::try_kind(kind, &version, &directory))
            .collect();
        let index = found.iter().position(|toolchain| Some(toolchain.rustc.as_str()) == preferred).unwrap_or(0);
        if found.is_empty() {
            bail!(
                "no compiler for BPF: it needs the source of the standard library. Either\n  \
                 rustup toolchain install nightly --component rust-src\nor, on Debian,\n  \
                 apt-get install rustc-web rust-web-src"
            );
        }
        Ok(found.swap_remove(index))
    }

    fn try_kind(kind: Kind, linker: &str, linker_directory: &Path) -> Option<Self> {
        let rustc = |argument: &[&str]| {
            let mut rustc = match kind {
                Kind::Debian => Command::new(DEBIAN_RUSTC),
                Kind::Nightly => {
                    let mut rustup = Command::new("rustup");
                    rustup.args(["run", "nightly", "rustc"]);
                    rustup
                }
            };
            command::text(rustc.args(argument)).ok().map(|text| text.trim().to_owned())
        };
        let source = Path::new(&rustc(&["--print", "sysroot"])?).join("lib/rustlib/src/rust");
        source.join("library/core/Cargo.toml").exists().then_some(())?;
        // Distributions link the source to where it really lies, and the compiler knows both names.
        let mut library = vec![source.clone()];
        for path in
            [fs::canonicalize(&source).ok(), fs::canonicalize(source.join("library")).ok()].into_iter().flatten()
        {
            let path = if path.ends_with("library") { path.parent()?.to_owned() } else { path };
            if !library.contains(&path) {
                library.push(path);
            }
        }
        if let Some(hash) =
            rustc(&["--version", "--verbose"])?.lines().find_map(|line| line.strip_prefix("commit-hash: "))
        {
            library.push(Path::new("/rustc").join(hash));
        }
        Some(Self {
            rustc: rustc(&["--version"])?,
            linker: linker.to_owned(),
            std_sources: library,
            kind,
            linker_directory: linker_directory.to_owned(),
        })
    }

    /// Cargo with this compiler, and with the linker on its path.
    pub(super) fn cargo(&self) -> Command {
        let mut cargo = match self.kind {
            Kind::Debian => {
                let mut cargo = command::cargo([""; 0]);
                cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
                cargo
            }
            Kind::Nightly => {
                let mut rustup = Command::new("rustup");
                rustup.args(["run", "nightly", "cargo"]);
                for variable in ["RUSTC", "CARGO", "RUSTUP_TOOLCHAIN", "RUSTDOC"] {
                    rustup.env_remove(variable);
                }
                rustup
            }
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.linker_directory.clone()).chain(env::split_paths(&path));
        if let Ok(path) = env::join_paths(path) {
            cargo.env("PATH", path);
        }
        cargo
    }
}

/// Where cargo keeps what it downloads.
pub(super) fn cargo_home() -> Result<PathBuf> {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("neither CARGO_HOME nor HOME is set")
}

fn linker_path() -> Option<PathBuf> {
    let installed = cargo_home().ok()?.join("bin/bpf-linker");
    command::find("bpf-linker").or_else(|| installed.exists().then_some(installed))
}
