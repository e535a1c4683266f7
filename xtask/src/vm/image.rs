//! The guest's files: the kernel, a read-only ext4 root image and the initrd, made from Debian packages only.
//!
//! Nothing is installed, mounted or changed on the host: packages are unpacked into a tree, `mke2fs -d` turns the tree
//! into an image. An image is kept under a name that hashes everything it was made from.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::apt;
use super::cpio::Archive;
use super::kernel::{self, Kernel};
use crate::command;

/// What the guest's programs come from; apt adds what these depend on. The first line is what minimal images lack.
#[rustfmt::skip]
const PACKAGES: &[&str] = &[
    "bash", "coreutils", "diffutils", "findutils", "grep", "gzip", "hostname", "libc-bin", "mawk", "mount", "sed", "util-linux",
    "busybox-static", "kmod", "pciutils", "procps", "python3-minimal", "strace", "systemd",
    "ncurses-base", "ncurses-bin", "tmux",
    "bpftool", "ethtool", "iproute2", "iputils-ping", "nftables", "tcpdump",
    "ibverbs-providers", "ibverbs-utils", "infiniband-diags", "libibverbs1", "librdmacm1", "perftest", "rdma-core",
    "rdmacm-utils",
];

/// Packages that others depend on although no payload needs them, or that only serve an installation.
const LEFT_OUT: &[&str] =
    &["adduser", "debconf", "dpkg", "gcc-12-base", "libperl5.36", "passwd", "perl-modules-5.36", "tzdata"];

/// What of the kernel's modules goes into the image, below `kernel/` of its modules' directory.
#[rustfmt::skip]
const MODULES: &[&str] = &[
    "arch/x86/crypto", "block", "crypto", "drivers/acpi", "drivers/block/virtio_blk.ko", "drivers/char/hw_random",
    "drivers/char/virtio_console.ko", "drivers/dca", "drivers/i2c/algos", "drivers/infiniband", "drivers/net/bonding",
    "drivers/net/dummy.ko", "drivers/net/ethernet/intel", "drivers/net/ethernet/mellanox", "drivers/net/mdio",
    "drivers/net/mdio.ko", "drivers/net/net_failover.ko", "drivers/net/phy", "drivers/net/veth.ko",
    "drivers/net/virtio_net.ko", "drivers/nvme", "drivers/pci", "drivers/pps", "drivers/ptp", "drivers/virtio", "fs/9p",
    "fs/configfs", "fs/ext4", "fs/fscache", "fs/fuse", "fs/jbd2", "fs/mbcache.ko", "fs/netfs", "fs/overlayfs", "lib",
    "net",
];

/// What the initrd loads to find the root disk and, already here, the port the results leave by.
const EARLY_MODULES: &[&str] = &["virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_console"];

const INITRD_INIT: &str = include_str!("initrd-init.sh");

/// The image's spare room, in MiB: it is mounted read-only, so this only covers the file system's own tables.
const SPARE_MIB: u64 = 96;

/// A bootable set of files.
pub(crate) struct Image {
    /// What `uname -r` will say.
    pub(crate) version: String,
    pub(crate) kernel: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) initrd: PathBuf,
}

/// The image for `kernel` below `cache`, made now unless it is there.
pub(crate) fn image(kernel: &Kernel, cache: &Path) -> Result<Image> {
    let directory = cache.join(format!("image-{}-{}", kernel.version(), recipe_hash(kernel)));
    let image = Image {
        version: kernel.version().to_owned(),
        kernel: directory.join("vmlinux"),
        root: directory.join("root.img"),
        initrd: directory.join("initrd.cpio"),
    };
    if !directory.exists() {
        // Made beside its place and moved there when complete: an interrupted run leaves nothing that looks finished.
        let unfinished = cache.join(format!("unfinished-{}", kernel.version()));
        remove(&unfinished)?;
        fs::create_dir_all(&unfinished)?;
        build(kernel, cache, &unfinished)?;
        remove_all(cache, &format!("image-{}.", kernel.family.name()))?;
        fs::rename(&unfinished, &directory)?;
    }
    Ok(image)
}

fn recipe_hash(kernel: &Kernel) -> String {
    let mut hash = Sha256::new();
    for part in [&[kernel.version(), INITRD_INIT], PACKAGES, LEFT_OUT, MODULES, EARLY_MODULES].concat() {
        hash.update(part);
        hash.update([0]);
    }
    hex(&hash.finalize()[..6])
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every write");
        text
    })
}

fn build(kernel: &Kernel, cache: &Path, into: &Path) -> Result<()> {
    let tree = tree(cache)?;
    let unpacked = kernel.unpack(cache)?;
    let version = kernel.version();
    kernel::extract_elf(&unpacked.join(format!("boot/vmlinuz-{version}")), &into.join("vmlinux"))?;

    let modules = tree.join("usr/lib/modules");
    remove(&modules)?;
    fs::create_dir_all(&modules)?;
    take_modules(&unpacked.join("lib/modules").join(version), &modules.join(version))?;
    remove(&unpacked)?;
    command::output(command::system("depmod").arg("-b").arg(&tree).arg(version))?;

    let used = command::text(command::system("du").arg("-sm").arg(&tree))?;
    let used_mib: u64 = used.split_whitespace().next().unwrap_or_default().parse().context("du prints a size")?;
    command::output(
        command::system("mke2fs")
            .args(["-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-E", "root_owner=0:0", "-d"])
            .arg(&tree)
            .arg(into.join("root.img"))
            .arg(format!("{}M", used_mib + SPARE_MIB)),
    )?;
    initrd(&tree, &modules.join(version), &into.join("initrd.cpio"))?;
    remove(&modules)
}

/// The tree of the guest's programs without a kernel's modules; kept, since every kernel shares it.
fn tree(cache: &Path) -> Result<PathBuf> {
    let mut hash = Sha256::new();
    hash.update([PACKAGES, LEFT_OUT].concat().join(" "));
    let tree = cache.join(format!("tree-{}", hex(&hash.finalize()[..6])));
    if tree.exists() {
        return Ok(tree);
    }
    remove_all(cache, "tree-")?;
    let unfinished = cache.join("unfinished-tree");
    remove(&unfinished)?;
    for directory in ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64"] {
        fs::create_dir_all(unfinished.join(directory))?;
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{link}"), unfinished.join(link))?;
    }
    for package in apt::download_with_dependencies(PACKAGES, cache)? {
        let name = package.file_name().unwrap_or_default().to_string_lossy();
        if !LEFT_OUT.iter().any(|left_out| name.starts_with(&format!("{left_out}_"))) {
            unpack(&package, &unfinished)?;
        }
    }
    for directory in ["dev", "etc", "mnt", "payload", "proc", "root", "run", "sys", "tmp", "var"] {
        fs::create_dir_all(unfinished.join(directory))?;
    }
    fs::write(unfinished.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(unfinished.join("etc/group"), "root:x:0:\n")?;
    fs::write(unfinished.join("etc/hosts"), "127.0.0.1 localhost guest\n")?;
    // What the packages' installation scripts would have linked.
    for (link, to) in [("sh", "bash"), ("awk", "mawk"), ("python3", "python3.11")] {
        let link = unfinished.join("usr/bin").join(link);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
        symlink(to, link)?;
    }
    fs::rename(&unfinished, &tree)?;
    Ok(tree)
}

fn unpack(package: &Path, tree: &Path) -> Result<()> {
    let mut archive = command::system("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start dpkg-deb")?;
    let stream = archive.stdout.take().context("dpkg-deb has no output")?;
    let unpacked = command::system("tar")
        .args(["-x", "--keep-directory-symlink", "--no-same-owner", "--exclude=*.a"])
        .args(["--exclude=./usr/share/doc/*", "--exclude=./usr/share/man/*", "--exclude=./usr/share/locale/*"])
        .arg("-C")
        .arg(tree)
        .stdin(stream)
        .status()
        .context("cannot start tar")?;
    let read = archive.wait()?;
    ensure!(unpacked.success() && read.success(), "cannot unpack {}", package.display());
    Ok(())
}

/// Moves the wanted modules from an unpacked kernel package into the tree and decompresses them: inserting a compressed
/// module would cost the emulated guest far more than the host.
fn take_modules(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for index in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        fs::rename(from.join(index), to.join(index)).with_context(|| format!("the kernel package lacks {index}"))?;
    }
    for wanted in MODULES {
        let wanted = Path::new("kernel").join(wanted);
        let compressed = PathBuf::from(format!("{}.xz", wanted.display()));
        for path in [wanted, compressed] {
            if from.join(&path).exists() {
                let target = to.join(&path);
                fs::create_dir_all(target.parent().context("a module lies in a directory")?)?;
                fs::rename(from.join(&path), target)?;
            }
        }
    }
    let mut compressed = Vec::new();
    find_compressed(to, &mut compressed)?;
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let share = compressed.len().div_ceil(workers).max(1);
    let mut running = Vec::new();
    for files in compressed.chunks(share) {
        running.push(command::system("xz").args(["-d", "-f", "--"]).args(files).spawn().context("cannot start xz")?);
    }
    for mut worker in running {
        ensure!(worker.wait()?.success(), "xz could not unpack the kernel's modules");
    }
    Ok(())
}

fn find_compressed(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_compressed(&entry.path(), found)?;
        } else if entry.path().extension().is_some_and(|extension| extension == "xz") {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn initrd(tree: &Path, modules: &Path, file: &Path) -> Result<()> {
    let mut archive = Archive::new(BufWriter::new(File::create(file)?));
    for directory in ["bin", "dev", "modules", "newroot", "payload", "proc", "sys"] {
        archive.directory(directory)?;
    }
    let busybox = tree.join("usr/bin/busybox");
    archive.copy("bin/busybox", &busybox)?;
    archive.copy("bin/sh", &busybox)?;
    archive.file("init", INITRD_INIT.as_bytes())?;
    let index = fs::read_to_string(modules.join("modules.dep")).context("depmod left no modules.dep")?;
    let mut order = String::new();
    for path in load_order(&index, EARLY_MODULES) {
        let name = path.rsplit('/').next().unwrap_or(path);
        archive.copy(&format!("modules/{name}"), &modules.join(path))?;
        order.push_str(name);
        order.push('\n');
    }
    archive.file("modules/order", order.as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// The modules to insert, dependencies first, for `wanted`; what is built into the kernel is not in the index and needs
/// no insertion. A line of `modules.dep` names a module, a colon, and everything it needs, the nearest first.
fn load_order<'a>(index: &'a str, wanted: &[&str]) -> Vec<&'a str> {
    let name = |path: &'a str| path.rsplit('/').next().and_then(|file| file.split('.').next()).unwrap_or(path);
    let lines: HashMap<_, _> = index
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (name(path), (path, needs)))
        .collect();
    let mut order = Vec::new();
    for module in wanted {
        if let Some((path, needs)) = lines.get(module) {
            for path in needs.split_whitespace().rev().chain([*path]) {
                if !order.contains(&path) {
                    order.push(path);
                }
            }
        }
    }
    order
}

/// Removes what earlier recipes or kernels made: the directories whose names start with `prefix`.
fn remove_all(cache: &Path, prefix: &str) -> Result<()> {
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_inserted_after_what_they_need_and_once() {
        let index = "kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko\n\
                     kernel/fs/jbd2/jbd2.ko:\n\
                     kernel/drivers/block/virtio_blk.ko: kernel/lib/crc16.ko\n";
        assert_eq!(
            load_order(index, &["virtio_blk", "ext4", "built_in"]),
            [
                "kernel/lib/crc16.ko",
                "kernel/drivers/block/virtio_blk.ko",
                "kernel/fs/jbd2/jbd2.ko",
                "kernel/fs/ext4/ext4.ko"
            ]
        );
    }
}
