//! What a kept object was built from and with.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::toolchain::Toolchain;

/// The package whose entries of `Cargo.lock`, with all they depend on, go into an object.
const BPF_DEPENDENCY: &str = "aya-ebpf";

/// The manifest beside a kept object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) inputs: Inputs,
    object: Object,
    pub(super) toolchain: Versions,
}

/// What goes into an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Inputs {
    /// SHA-256 of the sources: paths and contents, in the order of the paths.
    sources: String,
    /// SHA-256 of the lock entries.
    lock: String,
    /// SHA-256 of the profile in the workspace's `Cargo.toml`, with what it inherits.
    profile: String,
    flags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Object {
    sha256: String,
}

/// The tools that built an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Versions {
    pub(super) rustc: String,
    pub(super) linker: String,
}

impl Manifest {
    pub(super) fn new(inputs: Inputs, object: &[u8], toolchain: &Toolchain) -> Self {
        let toolchain = Versions { rustc: toolchain.rustc.clone(), linker: toolchain.linker.clone() };
        Self { inputs, object: Object { sha256: hex(object) }, toolchain }
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a manifest", path.display()))
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = format!(
            "# Written by `cargo xtask build`: what the object beside this file was built from and with.\n\n{}",
            toml::to_string(self)?
        );
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What does not fit any more, if anything.
    pub(super) fn outdated(&self, inputs: &Inputs, object: &[u8]) -> Option<&'static str> {
        let kept = &self.inputs;
        [
            (kept.sources == inputs.sources, "collector-ebpf"),
            (kept.lock == inputs.lock, "a dependency in Cargo.lock"),
            (kept.profile == inputs.profile, "the profile `bpf` in Cargo.toml"),
            (kept.flags == inputs.flags, "the flags in xtask"),
            (self.object.sha256 == hex(object), "the object itself"),
        ]
        .into_iter()
        .find_map(|(same, what)| (!same).then_some(what))
    }
}

impl Inputs {
    pub(super) fn read(root: &Path, flags: &[String]) -> Result<Self> {
        let package = root.join("collector-ebpf");
        let mut files = vec![package.join("Cargo.toml")];
        collect(&package.join("src"), &mut files)?;
        files.sort();
        let mut sources = Sha256::new();
        for file in &files {
            let name = file.strip_prefix(root)?.to_str().context("a source path that is not UTF-8")?;
            let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            sources.update(format!("{name}\n{}\n", content.len()));
            sources.update(&content);
        }
        let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"));
        Ok(Self {
            sources: text(&sources.finalize()),
            lock: hex(lock_entries(&read("Cargo.lock")?)?.as_bytes()),
            profile: hex(profile(&read("Cargo.toml")?)?.as_bytes()),
            flags: flags.to_vec(),
        })
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<LockEntry>,
}

#[derive(Deserialize)]
struct LockEntry {
    name: String,
    version: String,
    checksum: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// Name, version and checksum of the BPF dependency and of all it depends on.
fn lock_entries(lock: &str) -> Result<String> {
    let lock: Lock = toml::from_str(lock).context("Cargo.lock is not understood")?;
    let mut wanted = vec![BPF_DEPENDENCY.to_owned()];
    let mut lines = BTreeSet::new();
    while let Some(dependency) = wanted.pop() {
        // `name`, or `name version` where there are several.
        let mut words = dependency.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next());
        let found = lock
            .package
            .iter()
            .filter(|entry| entry.name == name && version.is_none_or(|version| entry.version == version));
        for entry in found {
            let line = format!("{} {} {}", entry.name, entry.version, entry.checksum.as_deref().unwrap_or("-"));
            if lines.insert(line) {
                wanted.extend(entry.dependencies.iter().cloned());
            }
        }
    }
    Ok(lines.into_iter().collect::<Vec<_>>().join("\n"))
}

/// The profile `bpf` and every profile it inherits from; cargo's own defaults need no entry.
fn profile(manifest: &str) -> Result<String> {
    let manifest: toml::Table = toml::from_str(manifest).context("Cargo.toml is not understood")?;
    let entry = |name: &str| manifest.get("profile").and_then(|profiles| profiles.get(name));
    let mut profile = entry("bpf").context("Cargo.toml has no profile `bpf`")?;
    let mut text = profile.to_string();
    while let Some(inherited) = profile.get("inherits").and_then(|name| entry(name.as_str()?)) {
        profile = inherited;
        text.push('\n');
        text.push_str(&profile.to_string());
    }
    Ok(text)
}

fn hex(bytes: &[u8]) -> String {
    text(&Sha256::digest(bytes))
}

fn text(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
        version = 4
        [[package]]
        name = "aya-ebpf"
        version = "0.2.1"
        checksum = "aa"
        dependencies = ["aya-ebpf-cty", "syn 2.0.0"]
        [[package]]
        name = "aya-ebpf-cty"
        version = "0.3.0"
        checksum = "bb"
        [[package]]
        name = "syn"
        version = "2.0.0"
        checksum = "cc"
        dependencies = ["aya-ebpf"]
        [[package]]
        name = "syn"
        version = "1.0.0"
        checksum = "dd"
        [[package]]
        name = "ratatui"
        version = "0.30.2"
        checksum = "ee"
    "#;

    fn inputs() -> Inputs {
        let text = |text: &str| text.to_owned();
        Inputs { sources: text("s"), lock: text("l"), profile: text("p"), flags: vec![text("f")] }
    }

    fn manifest() -> Manifest {
        Manifest {
            inputs: inputs(),
            object: Object { sha256: hex(b"object") },
            toolchain: Versions { rustc: "rustc 1".to_owned(), linker: "bpf-linker 1".to_owned() },
        }
    }

    #[test]
    fn only_what_goes_into_the_object_counts_of_the_lock() {
        let entries = lock_entries(LOCK).expect("a valid lock");
        assert_eq!(entries, "aya-ebpf 0.2.1 aa\naya-ebpf-cty 0.3.0 bb\nsyn 2.0.0 cc");
    }

    #[test]
    fn a_change_of_an_inherited_profile_counts() {
        let text = |opt: &str| {
            profile(&format!(
                "[profile.bpf]\ninherits = \"dev\"\n[profile.dev.package.\"*\"]\nopt-level = {opt}\n[profile.release]\nlto = true"
            ))
            .expect("a valid manifest")
        };
        assert_ne!(text("3"), text("\"s\""));
        assert!(!text("3").contains("lto"));
    }

    #[test]
    fn an_object_that_fits_is_not_stale() {
        assert_eq!(manifest().outdated(&inputs(), b"object"), None);
    }

    #[test]
    fn each_change_is_named() {
        let kept = manifest();
        assert_eq!(kept.outdated(&Inputs { sources: "x".to_owned(), ..inputs() }, b"object"), Some("collector-ebpf"));
        let lock = Inputs { lock: "x".to_owned(), ..inputs() };
        assert_eq!(kept.outdated(&lock, b"object"), Some("a dependency in Cargo.lock"));
        let flags = Inputs { flags: Vec::new(), ..inputs() };
        assert_eq!(kept.outdated(&flags, b"object"), Some("the flags in xtask"));
        assert_eq!(kept.outdated(&inputs(), b"other"), Some("the object itself"));
    }

    #[test]
    fn a_manifest_is_read_back_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("probes.toml");
        manifest().write(&path).expect("it can be written");
        assert_eq!(Manifest::read(&path).expect("it can be read"), manifest());
    }
}
