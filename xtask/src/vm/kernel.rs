//! The guest's kernels: Debian's stock packages, the newest of each family that apt knows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use super::apt;
use crate::{command, debian};

/// A kernel family of Debian 12.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    /// Debian 12's own kernel
    #[value(name = "6.1")]
    V6_1,
    /// The backported one
    #[value(name = "6.12")]
    V6_12,
}

impl Family {
    /// Every family, oldest first.
    pub(crate) const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    /// The name in options and result folders.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// What precedes and follows the number that grows from build to build in the package's name.
    fn affixes(self) -> (&'static str, &'static str) {
        match self {
            Self::V6_1 => ("linux-image-6.1.0-", "-amd64"),
            Self::V6_12 => ("linux-image-6.12.", "+deb12-amd64"),
        }
    }

    /// The growing number of a package of this family; `None` for others, also the cloud and real-time flavours.
    fn build(self, package: &str) -> Option<u32> {
        let (before, after) = self.affixes();
        package.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
    }

    /// The newest package of this family among `packages`.
    fn newest<'a>(self, packages: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        packages.filter_map(|package| Some((self.build(package)?, package))).max().map(|(_, package)| package)
    }
}

/// A kernel to boot.
pub(crate) struct Kernel {
    pub(crate) family: Family,
    /// Debian's package, `linux-image-…`.
    package: String,
}

impl Kernel {
    /// The newest kernel of the family that apt's lists name; on a fresh host the lists are fetched first, where they may.
    pub(crate) fn newest(family: Family) -> Result<Self> {
        let mut found = Self::listed(family)?;
        if found.is_none() && debian::may_install() {
            command::run(debian::apt_get().args(["update", "-qq"]))?;
            found = Self::listed(family)?;
        }
        found.with_context(|| {
            format!(
                "apt knows no Debian 12 kernel of the {} family; are its lists fresh (apt-get update)?",
                family.name()
            )
        })
    }

    fn listed(family: Family) -> Result<Option<Self>> {
        let (before, _) = family.affixes();
        let pattern = format!("^{}", before.replace('.', r"\."));
        let found = command::text(command::system("apt-cache").args(["search", "--names-only", &pattern]))?;
        let names = found.lines().filter_map(|line| line.split_whitespace().next());
        Ok(family.newest(names).map(|package| Self { family, package: package.to_owned() }))
    }

    /// What `uname -r` says in the guest, and the name of the modules' directory.
    pub(crate) fn version(&self) -> &str {
        self.package.strip_prefix("linux-image-").unwrap_or(&self.package)
    }

    /// Downloads and unpacks the package below `cache`; returns the directory with `boot/` and `lib/`.
    pub(crate) fn unpack(&self, cache: &Path) -> Result<PathBuf> {
        let directory = cache.join(format!("kernel-{}", self.version()));
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        let package = apt::download(&self.package, &cache.join("debs"))?;
        command::run(command::system("dpkg-deb").arg("-x").arg(package).arg(&directory))?;
        Ok(directory)
    }
}

/// The kernel's ELF file out of a bzImage: QEMU boots it directly, which saves the guest the decompression.
///
/// The place of the compressed payload is in the boot protocol's setup header (Linux, Documentation/arch/x86/boot.rst):
/// `setup_sects` at 0x1f1, `payload_offset` at 0x248, `payload_length` at 0x24c.
pub(crate) fn extract_elf(bzimage: &Path, elf: &Path) -> Result<()> {
    let image = fs::read(bzimage).with_context(|| format!("cannot read {}", bzimage.display()))?;
    let compressed = payload(&image).with_context(|| format!("{} is no bzImage", bzimage.display()))?;
    let unpacker = match compressed {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        _ => bail!("{} is compressed in a way that is neither xz nor zstd", bzimage.display()),
    };
    let packed = elf.with_extension("packed");
    fs::write(&packed, compressed)?;
    let status = command::system(unpacker)
        .args(["-d", "-c"])
        .stdin(fs::File::open(&packed)?)
        .stdout(fs::File::create(elf)?)
        .stderr(Stdio::inherit())
        .status()
        .with_context(|| format!("cannot start {unpacker}"))?;
    fs::remove_file(&packed)?;
    ensure!(status.success(), "{unpacker} could not unpack {}: {status}", bzimage.display());
    ensure!(fs::read(elf)?.starts_with(b"\x7fELF"), "{} holds no ELF file", bzimage.display());
    Ok(())
}

/// The compressed kernel in a bzImage, without the uncompressed size (four bytes) that the build appends to it.
fn payload(image: &[u8]) -> Option<&[u8]> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let word = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let setup_sectors = match *image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup_sectors + 1) * 512 + word(0x248)?;
    image.get(start..start + word(0x24c)?.checked_sub(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_the_highest_number_and_never_another_flavour() {
        let packages = [
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-57-amd64",
            "linux-image-6.1.0-60-cloud-amd64",
            "linux-image-6.1.0-60-rt-amd64",
            "linux-image-6.12.99+deb12-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.120+deb12-rt-amd64",
            "linux-image-6.12.130-amd64-unsigned",
        ];
        assert_eq!(Family::V6_1.newest(packages.into_iter()), Some("linux-image-6.1.0-57-amd64"));
        assert_eq!(Family::V6_12.newest(packages.into_iter()), Some("linux-image-6.12.117+deb12-amd64"));
        assert_eq!(Family::V6_1.newest(std::iter::empty()), None);
    }

    #[test]
    fn the_payload_of_a_bzimage_lies_where_its_header_says() {
        let mut image = vec![0; 3 * 512];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248] = 8;
        image[0x24c] = 10;
        image[1024 + 8..1024 + 14].copy_from_slice(b"packed");
        assert_eq!(payload(&image), Some(&b"packed"[..]));
        assert_eq!(payload(&image[..1024]), None);
        image[0x202] = 0;
        assert_eq!(payload(&image), None);
    }
}
