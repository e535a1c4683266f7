//! `cargo xtask build`: builds the BPF programs that are kept in the repository.
//!
//! The objects lie in `collector/bpf/`, one per CPU architecture, each beside a manifest that says what it was built
//! from and with. An ordinary `cargo build` embeds them and needs no BPF toolchain; [`check`] says whether they still
//! belong to their sources. No path of the build machine gets into an object, so that another machine with the same
//! toolchain builds the same bytes: `cargo xtask build --check` compares them.

mod manifest;
mod toolchain;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use object::build::elf::{Builder, SectionData};
use object::elf;

use self::manifest::{Inputs, Manifest};
use self::toolchain::Toolchain;
use crate::{command, workspace};

/// The CPU architectures an object is kept for. BPF itself is the same on both; where the probed functions' arguments
/// are found is not.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// What cargo is asked for, besides the architecture.
const CARGO_ARGUMENTS: [&str; 12] = [
    "build",
    "--locked",
    "--package",
    "collector-ebpf",
    "--bin",
    "probes",
    "--features",
    "bpf",
    "--profile",
    "bpf",
    "--target",
    "bpfel-unknown-none",
];

/// What rustc is asked for. Version 3 of the instruction set has the atomic operations (kernel 5.12 and later).
const RUSTC_FLAGS: [&str; 4] = ["-Cdebuginfo=2", "-Ctarget-cpu=v3", "-Clinker=bpf-linker", "-Clink-arg=--btf"];

/// Arguments of `cargo xtask build`.
#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// Build, and compare with the kept objects instead of replacing them
    #[arg(long)]
    check: bool,
}

/// Rebuilds the kept BPF objects.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let inputs = Inputs::read(workspace::root(), &flags())?;
    let kept = ARCHITECTURES.iter().find_map(|arch| Manifest::read(&manifest_path(arch)).ok());
    let toolchain = Toolchain::find(kept.as_ref().map(|manifest| manifest.toolchain.rustc.as_str()))?;
    for arch in ARCHITECTURES {
        let object = compile(&toolchain, arch)?;
        no_path_of_this_machine(&object)?;
        let manifest = Manifest::new(inputs.clone(), &object, &toolchain);
        if arguments.check {
            compare(arch, &object, &manifest)?;
        } else {
            let path = object_path(arch);
            fs::create_dir_all(path.parent().context("the object has a directory")?)?;
            fs::write(&path, &object).with_context(|| format!("cannot write {}", path.display()))?;
            manifest.write(&manifest_path(arch))?;
            println!("wrote {} ({} bytes)", path.display(), object.len());
        }
    }
    Ok(())
}

/// Builds the BPF objects anew and compares them with the kept ones, as `cargo xtask build --check` does.
pub(crate) fn rebuild_and_compare() -> Result<()> {
    run(&Arguments { check: true })
}

/// Says whether the kept BPF objects still belong to their sources.
pub(crate) fn check() -> Result<()> {
    let inputs = Inputs::read(workspace::root(), &flags())?;
    for arch in ARCHITECTURES {
        let manifest = Manifest::read(&manifest_path(arch))?;
        let path = object_path(arch);
        let object = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(what) = manifest.outdated(&inputs, &object) {
            bail!("{} is stale: {what} changed since it was built. Run `cargo xtask build`", path.display());
        }
        println!("{} belongs to its sources", path.display());
    }
    Ok(())
}

fn compare(arch: &str, object: &[u8], built: &Manifest) -> Result<()> {
    let path = object_path(arch);
    let kept = Manifest::read(&manifest_path(arch))?;
    let kept_object = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if let Some(what) = kept.outdated(&built.inputs, &kept_object) {
        bail!("{} is stale: {what} changed since it was built. Run `cargo xtask build`", path.display());
    }
    if kept.toolchain != built.toolchain {
        println!("{arch}: built; not compared, the kept object comes from {}", kept.toolchain.rustc);
    } else if object == kept_object {
        println!("{arch}: the rebuilt object is the kept one, byte for byte");
    } else {
        bail!("{arch}: the rebuilt object differs from the kept one although sources and toolchain are the same");
    }
    Ok(())
}

fn compile(toolchain: &Toolchain, arch: &str) -> Result<Vec<u8>> {
    println!("building for {arch} with {}", toolchain.rustc);
    let target = workspace::target().join("bpf").join(arch);
    let mut flags: Vec<String> = RUSTC_FLAGS.map(str::to_owned).to_vec();
    flags.push(format!("--cfg=bpf_target_arch=\"{arch}\""));
    flags.extend(remaps(toolchain, &target)?);
    let mut cargo = toolchain.cargo();
    cargo.current_dir(workspace::root()).args(CARGO_ARGUMENTS).args(["-Z", "build-std=core"]);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env("CARGO_TARGET_DIR", &target);
    // Empty, not absent: the workspace's configuration names a wrapper too.
    cargo.env("RUSTC_WRAPPER", "");
    for variable in ["RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTFLAGS"] {
        cargo.env_remove(variable);
    }
    command::run(&mut cargo)?;
    let object = target.join("bpfel-unknown-none/bpf/probes");
    let object = fs::read(&object).with_context(|| format!("cannot read {}", object.display()))?;
    without_debug_sections(&object)
}

/// The object without what only a debugger reads (DWARF), which is most of it and would all be in the product's binary.
/// The types the kernel and the loader read (BTF) are made from it by the linker, and stay.
fn without_debug_sections(object: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(object).context("the linker's output is no ELF object")?;
    for section in &mut builder.sections {
        let name = section.name.to_vec();
        // What would relocate the types moves nothing: they count from the beginning of each section as it is.
        section.delete =
            name.starts_with(b".debug_") || name.starts_with(b".rel.debug_") || name.starts_with(b".rel.BTF");
    }
    // The linker keeps all names in one table; what writes the object wants those of the sections by themselves.
    let names = builder.sections.add();
    names.name = b".shstrtab"[..].into();
    names.sh_type = elf::SHT_STRTAB;
    names.data = SectionData::SectionString;
    builder.delete_orphans();
    let mut bytes = Vec::new();
    builder.write(&mut bytes).context("the object cannot be written again")?;
    Ok(bytes)
}

/// Replaces the directories of this machine in everything the compiler writes down; the last match wins.
fn remaps(toolchain: &Toolchain, target: &Path) -> Result<Vec<String>> {
    let mut pairs = vec![(workspace::root().to_owned(), "rdmascope"), (target.to_owned(), "target")];
    let registry = toolchain::cargo_home()?.join("registry/src");
    // One directory for each registry; crates come from one of them.
    for entry in fs::read_dir(&registry).into_iter().flatten() {
        pairs.push((entry?.path(), "registry"));
    }
    for library in &toolchain.std_sources {
        pairs.push((library.clone(), "library"));
    }
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
    pairs.iter().map(|(from, to)| Ok(format!("--remap-path-prefix={}={to}", text(from)?))).collect()
}

/// An object with a path of this machine would tell where it was built, and differ on the next machine.
fn no_path_of_this_machine(object: &[u8]) -> Result<()> {
    let home = std::env::var("HOME").unwrap_or_default();
    let root = workspace::root().display().to_string();
    for path in [root.as_str(), home.as_str(), "/usr/src/", "/usr/lib/rustlib", "/rustc/", "registry/src"] {
        if path.len() > 1 && object.windows(path.len()).any(|window| window == path.as_bytes()) {
            bail!("the object contains {path}, a path of this machine: a path prefix is not replaced");
        }
    }
    Ok(())
}

/// Everything on the command lines that changes the object, for the manifest.
fn flags() -> Vec<String> {
    CARGO_ARGUMENTS.iter().chain(&RUSTC_FLAGS).map(|flag| (*flag).to_owned()).collect()
}

fn object_path(arch: &str) -> PathBuf {
    workspace::root().join(format!("collector/bpf/probes.{arch}.o"))
}

fn manifest_path(arch: &str) -> PathBuf {
    workspace::root().join(format!("collector/bpf/probes.{arch}.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_with_a_path_of_this_machine_is_refused() {
        let root = workspace::root().display().to_string();
        let object = [b"\x7fELF".as_slice(), root.as_bytes(), b"/collector-ebpf"].concat();
        assert!(no_path_of_this_machine(&object).is_err());
        assert!(no_path_of_this_machine(b"\x7fELF rdmascope/collector-ebpf").is_ok());
    }

    #[test]
    fn the_kept_objects_hold_no_path_of_a_build_machine() {
        for arch in ARCHITECTURES {
            let object = fs::read(object_path(arch)).expect("the object is in the repository");
            let text = String::from_utf8_lossy(&object);
            for path in ["/root", "/home/", "/usr/", "/tmp/", ".cargo", "index.crates.io"] {
                assert!(!text.contains(path), "{arch} contains {path}");
            }
        }
    }
}
