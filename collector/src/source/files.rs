//! Every file the sysfs and PCIe sources touch is listed, opened, read and resolved here.
//!
//! [`Files`] is the seam: the product looks through [`RootedFiles`] at a directory that is the `/sys` of this machine or
//! of another one, a test looks through a reader that answers with the errno it wants (a plain file cannot answer
//! `EINVAL`). Paths are relative to that directory, for example `class/infiniband/mlx5_0/ports/1/rate`.
//!
//! What [`RootedFiles`] promises: no symbolic link leads out of the root, nothing is opened for writing, and nothing is
//! opened that is not a regular file with a read bit (root may open a mode 0200 attribute, and reading it can have effects).

#[cfg(any(test, feature = "faults"))]
pub mod faults;

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

/// A file that stays open between the polls.
pub trait OpenFile: Send {
    /// Reads from the start of the file into `buf`. A sysfs attribute is made anew at each such read.
    ///
    /// # Errors
    /// The errno of `pread`; `ENODEV` when the attribute's device is gone.
    fn read(&self, buf: &mut [u8]) -> io::Result<usize>;
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its inode: another one under the same name is another object.
    pub inode: u64,
    /// It is a directory or a symbolic link, the two forms an object has in sysfs.
    pub object: bool,
}

/// A directory tree in the form of `/sys`.
pub trait Files: Send + Sync {
    /// The entries of a directory in the order of their numbers (`mlx5_2` before `mlx5_10`), without hidden ones.
    ///
    /// # Errors
    /// The errno of opening or reading the directory.
    fn list(&self, path: &str) -> io::Result<Vec<Entry>>;

    /// Opens a file to be read again and again.
    ///
    /// # Errors
    /// The errno of opening it; `EACCES` without a read bit, `EISDIR` for a directory.
    fn open(&self, path: &str) -> io::Result<Box<dyn OpenFile>>;

    /// The path with every symbolic link followed inside the root.
    ///
    /// # Errors
    /// `ENOENT` when a part of it does not exist, for example the target of a link.
    fn resolve(&self, path: &str) -> io::Result<String>;

    /// What a symbolic link says, unfollowed.
    ///
    /// # Errors
    /// `EINVAL` when it is none.
    fn link(&self, path: &str) -> io::Result<String>;

    /// The text of a small file, without white space around it; bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// The errno of opening or reading it.
    fn text(&self, path: &str) -> io::Result<String> {
        let mut buf = [0u8; 4096];
        let n = self.open(path)?.read(&mut buf)?;
        Ok(String::from_utf8_lossy(&buf[..n]).trim().to_owned())
    }

    /// The path leads to something.
    fn exists(&self, path: &str) -> bool {
        self.resolve(path).is_ok()
    }
}

/// The last part of a path.
#[must_use]
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// How an error is named where it stands for a reading: the errno's symbol, as in `man 3 errno`.
#[must_use]
pub fn errno_name(error: &io::Error) -> Cow<'static, str> {
    let Some(errno) = Errno::from_io_error(error) else { return Cow::Owned(error.to_string()) };
    Cow::Borrowed(match errno {
        Errno::PERM => "EPERM",
        Errno::NOENT => "ENOENT",
        Errno::INTR => "EINTR",
        Errno::IO => "EIO",
        Errno::NXIO => "ENXIO",
        Errno::BADF => "EBADF",
        Errno::AGAIN => "EAGAIN",
        Errno::NOMEM => "ENOMEM",
        Errno::ACCESS => "EACCES",
        Errno::BUSY => "EBUSY",
        Errno::NODEV => "ENODEV",
        Errno::NOTDIR => "ENOTDIR",
        Errno::ISDIR => "EISDIR",
        Errno::INVAL => "EINVAL",
        Errno::NFILE => "ENFILE",
        Errno::MFILE => "EMFILE",
        Errno::NOSYS => "ENOSYS",
        Errno::LOOP => "ELOOP",
        Errno::NODATA => "ENODATA",
        Errno::STALE => "ESTALE",
        Errno::TIMEDOUT => "ETIMEDOUT",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        other => return Cow::Owned(format!("errno {}", other.raw_os_error())),
    })
}

/// A directory taken as `/sys`.
#[derive(Debug)]
pub struct RootedFiles {
    root: OwnedFd,
    path: PathBuf,
}

/// Links followed before a path counts as a loop; the kernel's own limit.
const MOST_LINKS: u32 = 40;

impl RootedFiles {
    /// Opens the directory. The soft limit of open files is raised to the hard one: a node with sixteen ports has more
    /// counters than the usual 1,024.
    ///
    /// # Errors
    /// The errno of opening the directory.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty())?;
        let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
        if current != maximum {
            // A refusal leaves the soft limit as it is: files beyond it are then unavailable with EMFILE.
            let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        }
        Ok(Self { root, path })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a path with the links on it followed inside the root. The kernel does it in one call since 5.6; older
    /// kernels, filters that forbid the call, and absolute links (which start at the observed machine's `/sys`) are
    /// walked by [`Files::resolve`].
    fn open_inside(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = with_own(flags);
        self.open_at_once(path, flags).or_else(|error| {
            if error == Errno::NOENT && self.is_absent(path) {
                return Err(error.into());
            }
            let path = self.resolve(path)?;
            Ok(rustix::fs::openat(&self.root, dot(&path), flags | OFlags::NOFOLLOW, Mode::empty())?)
        })
    }

    /// The kernel's way alone.
    fn open_at_once(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, dot(path), flags, Mode::empty(), resolve)
    }

    /// Nothing has this name in a directory that the kernel reached, or that is absent itself: there is no link here that
    /// a walk could follow further. Much that is looked for is not there, and a walk is a call for each part of a path.
    fn is_absent(&self, path: &str) -> bool {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if matches!(name, "" | "." | "..") {
            return false;
        }
        match self.open_at_once(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC) {
            Ok(parent) => rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT),
            Err(Errno::NOENT) => self.is_absent(parent),
            Err(_) => false,
        }
    }
}

/// The flags of every opening besides its own. Not NONBLOCK beside PATH, which opens nothing that could block: `openat2`
/// refuses the two together.
fn with_own(flags: OFlags) -> OFlags {
    let nonblock = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
    flags | OFlags::CLOEXEC | nonblock
}

/// The root itself by a name that can be opened.
fn dot(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
}

/// Puts the parts of a path on the stack of what is still to be walked.
fn push_parts(pending: &mut Vec<String>, path: &str) {
    pending.extend(path.split('/').rev().filter(|part| !matches!(*part, "" | ".")).map(str::to_owned));
}

impl Files for RootedFiles {
    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let fd = self.open_inside(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in Dir::new(fd)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let object = matches!(entry.file_type(), FileType::Directory | FileType::Symlink | FileType::Unknown);
            entries.push(Entry { name: name.to_owned(), inode: entry.ino(), object });
        }
        entries.sort_by(|a, b| natural(&a.name).cmp(natural(&b.name)));
        Ok(entries)
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        // Looked at before it is opened: O_PATH does not reach the attribute.
        let stat = rustix::fs::fstat(self.open_inside(path, OFlags::PATH)?)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_mode & 0o444 == 0 => return Err(Errno::ACCESS.into()),
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR.into()),
            // A pipe or a device node in a copied tree: opening one can block or act.
            _ => return Err(Errno::OPNOTSUPP.into()),
        }
        Ok(Box::new(Kept(self.open_inside(path, OFlags::RDONLY)?)))
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        let mut pending = Vec::new();
        push_parts(&mut pending, path);
        let mut walked = String::new();
        let mut links = 0;
        while let Some(part) = pending.pop() {
            if part == ".." {
                // Above the root is the root, as in a chroot.
                walked.truncate(walked.rfind('/').unwrap_or(0));
                continue;
            }
            let before = walked.len();
            if !walked.is_empty() {
                walked.push('/');
            }
            walked.push_str(&part);
            match rustix::fs::readlinkat(&self.root, walked.as_str(), Vec::new()) {
                Ok(target) => {
                    links += 1;
                    let target = target.to_str().map_err(|_| Errno::INVAL)?;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    walked.truncate(before);
                    if target.starts_with('/') {
                        walked.clear();
                    }
                    // An absolute link of the observed machine starts at its own /sys, which is the root here.
                    push_parts(&mut pending, target.strip_prefix("/sys/").unwrap_or(target));
                }
                Err(Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(walked)
    }

    fn link(&self, path: &str) -> io::Result<String> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.open_inside(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        let target = rustix::fs::readlinkat(&parent, name, Vec::new())?;
        Ok(target.to_string_lossy().into_owned())
    }

    fn exists(&self, path: &str) -> bool {
        self.open_inside(path, OFlags::PATH).is_ok()
    }
}

/// A name cut into what sorts: texts as texts, numbers as numbers.
fn natural(name: &str) -> impl Iterator<Item = (&str, u64)> {
    let mut rest = name;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let text_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(text_end);
        let digits_end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (digits, after) = tail.split_at(digits_end);
        rest = after;
        Some((text, digits.parse().unwrap_or(0)))
    })
}

struct Kept(OwnedFd);

impl OpenFile for Kept {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(self.0.as_fd(), buf, 0)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn tree() -> (tempfile::TempDir, RootedFiles) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys/devices/d")).unwrap();
        std::fs::create_dir_all(dir.path().join("sys/class/x")).unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        std::fs::write(dir.path().join("sys/devices/d/value"), " 7\n").unwrap();
        let files = RootedFiles::new(dir.path().join("sys")).unwrap();
        (dir, files)
    }

    #[test]
    fn a_relative_and_an_absolute_link_lead_to_the_same_file_inside_the_root() {
        let (dir, files) = tree();
        symlink("../../devices/d", dir.path().join("sys/class/x/relative")).unwrap();
        symlink("/sys/devices/d", dir.path().join("sys/class/x/absolute")).unwrap();
        for name in ["relative", "absolute"] {
            assert_eq!(files.text(&format!("class/x/{name}/value")).unwrap(), "7");
            assert_eq!(files.resolve(&format!("class/x/{name}")).unwrap(), "devices/d");
        }
    }

    #[test]
    fn no_link_leads_out_of_the_root() {
        let (dir, files) = tree();
        let outside = dir.path().join("secret");
        symlink(&outside, dir.path().join("sys/class/x/absolute")).unwrap();
        symlink("../../../secret", dir.path().join("sys/class/x/relative")).unwrap();
        symlink("loop", dir.path().join("sys/class/x/loop")).unwrap();
        for name in ["absolute", "relative"] {
            let error = files.text(&format!("class/x/{name}")).unwrap_err();
            assert_eq!(errno_name(&error), "ENOENT");
        }
        assert_eq!(errno_name(&files.text("class/x/loop").unwrap_err()), "ELOOP");
    }

    #[test]
    fn a_file_without_a_read_bit_and_a_directory_are_not_opened() {
        let (dir, files) = tree();
        let path = dir.path().join("sys/devices/d/create_child");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o200)).unwrap();
        assert_eq!(errno_name(&files.text("devices/d/create_child").unwrap_err()), "EACCES");
        assert_eq!(errno_name(&files.text("devices/d").unwrap_err()), "EISDIR");
    }

    #[test]
    fn what_is_absent_is_told_from_what_lies_behind_an_absolute_link() {
        let (dir, files) = tree();
        symlink("/sys/devices/d", dir.path().join("sys/class/x/absolute")).unwrap();
        symlink("/sys/devices/gone", dir.path().join("sys/class/x/dangling")).unwrap();
        for absent in
            ["class/x/none", "class/none/value", "none/none/none", "class/x/absolute/none", "class/x/dangling"]
        {
            assert!(!files.exists(absent), "{absent}");
            assert_eq!(errno_name(&files.text(absent).unwrap_err()), "ENOENT", "{absent}");
        }
        for there in ["", "class", "class/x/absolute", "class/x/absolute/value", "class/x/../x/absolute/value"] {
            assert!(files.exists(there), "{there}");
        }
        assert_eq!(files.link("class/x/dangling").unwrap(), "/sys/devices/gone");
        assert_eq!(errno_name(&files.link("class/x/absolute/value").unwrap_err()), "EINVAL");
    }

    #[test]
    fn the_kernel_follows_relative_links_for_every_way_of_opening() {
        let (dir, files) = tree();
        symlink("../../devices/d", dir.path().join("sys/class/x/relative")).unwrap();
        if files.open_at_once("class", OFlags::PATH | OFlags::CLOEXEC).is_err() {
            eprintln!("skipped: no openat2 here (Linux 5.6)");
            return;
        }
        // What the kernel refuses would be walked, and nobody would notice.
        for (path, flags) in [
            ("class/x/relative/value", OFlags::RDONLY),
            ("class/x/relative/value", OFlags::PATH),
            ("class/x/relative", OFlags::PATH | OFlags::DIRECTORY),
            ("class/x/relative", OFlags::RDONLY | OFlags::DIRECTORY),
        ] {
            assert!(files.open_at_once(path, with_own(flags)).is_ok(), "{path} {flags:?}");
        }
    }

    #[test]
    fn entries_are_listed_by_their_numbers_and_hidden_ones_left_out() {
        let (dir, files) = tree();
        for name in ["mlx5_10", "mlx5_2", ".keep"] {
            std::fs::create_dir(dir.path().join("sys/class/x").join(name)).unwrap();
        }
        let names: Vec<_> = files.list("class/x").unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["mlx5_2", "mlx5_10"]);
    }
}
