//! The Debian packages the host needs: what each is for, which are missing, and how they are installed.

use std::fs;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command;

/// A package, and what needs it.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) purpose: &'static str,
}

const fn package(name: &'static str, purpose: &'static str) -> Package {
    Package { name, purpose }
}

/// What the tests need.
pub(crate) const TEST_PACKAGES: &[Package] = &[
    package("gcc", "links the Rust programs and compiles the test bench's C programs"),
    package("libc6-dev", "C headers for the test bench's C programs"),
    package("libibverbs-dev", "verbs headers for the test bench's C programs"),
    package("librdmacm-dev", "connection manager headers for the test bench's C programs"),
    package("cmake", "builds the headers of the verbs bindings"),
    package("libclang-dev", "generates the verbs bindings"),
    package("pkg-config", "finds the libraries of the verbs bindings"),
    package("libnl-3-dev", "headers the verbs bindings' build looks for"),
    package("libnl-route-3-dev", "headers the verbs bindings' build looks for"),
    package("qemu-system-x86", "runs the guests of the test bench"),
    package("e2fsprogs", "mke2fs makes the guest's root image"),
    package("kmod", "depmod indexes the guest's kernel modules"),
    package("xz-utils", "unpacks kernels and kernel modules"),
    package("zstd", "unpacks kernels and recordings"),
    package("tmux", "the terminal that screen tests run in"),
    package("valgrind", "checks the helper process that loads libibverbs"),
    package("prometheus", "scrapes and checks the page for Prometheus"),
    package("prometheus-node-exporter", "what the cost of a scrape is compared with"),
    package("openssl", "makes the certificates of the exporters' tests"),
    package("python3-venv", "holds the OpenTelemetry collector of the exporters' tests"),
    package("binutils", "strings and objdump look into the BPF objects"),
    package("dpkg-dev", "tells which libraries the .deb depends on"),
    package("debootstrap", "makes the Debian that the .deb is installed in"),
    package("rpm", "packs the rpm"),
    package("systemd", "systemd-analyze judges the unit"),
];

/// What only a rebuild of the kept BPF objects needs, where rustup has no nightly toolchain with rust-src.
pub(crate) const BPF_PACKAGES: &[Package] = &[
    package("rustc-web", "a rustc with the library source, for the BPF target"),
    package("rust-web-src", "that library source"),
];

/// The packages of `wanted` that dpkg does not know as installed.
pub(crate) fn missing(wanted: &[&'static Package]) -> Vec<&'static Package> {
    wanted.iter().copied().filter(|package| !is_installed(package.name)).collect()
}

fn is_installed(name: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", name])
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

/// Whether this host is a Debian or Ubuntu whose packages we may install: as root.
pub(crate) fn may_install() -> bool {
    rustix::process::geteuid().is_root() && is_debian()
}

fn is_debian() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches('"').split_whitespace())
        .any(|id| id == "debian" || id == "ubuntu")
}

/// The one line that installs `packages` by hand.
pub(crate) fn by_hand(packages: &[&Package]) -> String {
    let names: Vec<_> = packages.iter().map(|package| package.name).collect();
    format!("apt-get update && apt-get install -y --no-install-recommends {}", names.join(" "))
}

/// Makes sure that `wanted` is installed: installs what is missing where it may, and says what; otherwise the error is
/// the line to run.
pub(crate) fn ensure(wanted: &[&'static Package]) -> Result<()> {
    let missing = missing(wanted);
    if missing.is_empty() {
        return Ok(());
    }
    if !may_install() {
        bail!("packages are missing; as root: {}", by_hand(&missing));
    }
    for package in &missing {
        println!("installing {}: {}", package.name, package.purpose);
    }
    command::run(apt_get().arg("update").arg("-qq"))?;
    command::run(
        apt_get()
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(missing.iter().map(|package| package.name)),
    )
}

/// `apt-get` that never asks.
pub(crate) fn apt_get() -> Command {
    let mut command = command::system("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
    command
}
