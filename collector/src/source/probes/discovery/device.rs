//! The character devices of verbs, and which processes have one open. A file's name says nothing: anybody may call a file
//! `infiniband/uverbs0`.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

/// Where the kernel lists them; `dev` of each is its number, `MAJOR:MINOR`.
pub(super) const CLASS: &str = "/sys/class/infiniband_verbs";

/// Open files of one process that are looked at; of one that has more it cannot be told.
const MOST_FILES: usize = 65_536;

/// The numbers of the devices there are.
#[derive(Debug, Default)]
pub(super) struct Devices(HashSet<(u32, u32)>);

impl Devices {
    /// The devices that are listed in a directory.
    pub(super) fn list(class: &Path) -> Self {
        let entries = fs::read_dir(class).into_iter().flatten().flatten();
        Self(entries.filter_map(|entry| number(&fs::read_to_string(entry.path().join("dev")).ok()?)).collect())
    }

    /// Whether a process, by its directory in `/proc`, has one open.
    ///
    /// # Errors
    /// When its open files may not be looked at, or are too many.
    pub(super) fn open_in(&self, process: &Path) -> io::Result<bool> {
        self.open_among(process, MOST_FILES)
    }

    fn open_among(&self, process: &Path, most: usize) -> io::Result<bool> {
        let mut refused = None;
        for (n, entry) in fs::read_dir(process.join("fd"))?.enumerate() {
            if n >= most {
                return Err(io::Error::other(format!("it has more than {most} files open")));
            }
            let path = entry?.path();
            match fs::read_link(&path) {
                Ok(name) if may_be_one(&name.to_string_lossy()) => {}
                // It was closed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    refused = Some(error);
                    continue;
                }
                Ok(_) | Err(_) => continue,
            }
            // The file itself, wherever its name leads, by what is known of it: no file system is asked.
            let Ok(file) = statx(CWD, &path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) else { continue };
            let is_device = FileType::from_raw_mode(file.stx_mode.into()) == FileType::CharacterDevice;
            if is_device && self.0.contains(&(file.stx_rdev_major, file.stx_rdev_minor)) {
                return Ok(true);
            }
        }
        refused.map_or(Ok(false), Err)
    }
}

/// Whether a file of this name is worth a closer look: it is no proof, but saves one for the others.
fn may_be_one(name: &str) -> bool {
    name.starts_with("/dev/") || name.contains("uverbs")
}

fn number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(dev: &str) -> Devices {
        let class = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(class.path().join("uverbs0")).expect("a directory");
        fs::write(class.path().join("uverbs0/dev"), dev).expect("a file");
        fs::write(class.path().join("abi_version"), "6\n").expect("a file");
        Devices::list(class.path())
    }

    #[test]
    fn an_open_device_is_told_by_its_number_and_a_file_of_its_name_is_none() {
        let files = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(files.path().join("infiniband")).expect("a directory");
        let name = files.path().join("infiniband/uverbs0");
        fs::write(&name, "").expect("a file");
        let _named = fs::File::open(&name).expect("it can be opened");
        let own = Path::new("/proc/self");
        // /dev/full is 1:7 on every Linux (Documentation/admin-guide/devices.txt).
        assert!(!devices("1:7\n").open_in(own).expect("one's own process"));
        let _open = fs::File::open("/dev/full").expect("it can be opened");
        assert!(devices("1:7\n").open_in(own).expect("one's own process"));
        assert!(!devices("231:192\n").open_in(own).expect("one's own process"));
        assert!(!devices("nonsense").open_in(own).expect("one's own process"));
    }

    #[test]
    fn no_more_files_of_a_process_are_looked_at_than_the_bound() {
        let process = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(process.path().join("fd")).expect("a directory");
        for n in 0..8 {
            std::os::unix::fs::symlink("/dev/null", process.path().join(format!("fd/{n}"))).expect("a link");
        }
        let devices = devices("231:192\n");
        assert!(!devices.open_among(process.path(), 8).expect("it can be looked at"));
        let error = devices.open_among(process.path(), 7).expect_err("too many").to_string();
        assert!(error.contains("more than 7 files"), "{error}");
    }

    #[test]
    fn a_process_whose_files_cannot_be_looked_at_is_an_error() {
        assert!(Devices::default().open_in(Path::new("/proc/none")).is_err());
    }
}
