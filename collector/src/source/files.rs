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
mod folder;

use std::borrow::Cow;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

pub(crate) use self::folder::{Folder, Look};

/// A file that stays open between the polls.
pub trait OpenFile: Send {
    /// Reads from the start of the file into `buf`. A sysfs attribute is made anew at each such read.
    ///
    /// # Errors
    /// The errno of `pread`; `ENODEV` when the attribute's device is gone.
    fn read(&self, buf: &mut [u8]) -> io::Result<usize>;
}

/// A directory that stays open between the polls: the way to it need not be walked for each list.
pub trait OpenDirectory: Send {
    /// As [`Files::each`]. A directory that was removed has no entries, or is an error.
    ///
    /// # Errors
    /// The errno of reading the directory; entries may have been told before it.
    fn each(&self, tell: &mut dyn FnMut(Listed<'_>)) -> io::Result<()>;
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

/// One entry of a directory that is being listed: the parts of an [`Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'n> {
    /// Its name.
    pub name: &'n str,
    /// Its inode.
    pub inode: u64,
    /// It is a directory or a symbolic link.
    pub object: bool,
}

impl Listed<'_> {
    /// The entry, to be kept.
    #[must_use]
    pub fn entry(&self) -> Entry {
        Entry { name: self.name.to_owned(), inode: self.inode, object: self.object }
    }
}

impl PartialEq<Entry> for Listed<'_> {
    fn eq(&self, entry: &Entry) -> bool {
        self.inode == entry.inode && self.object == entry.object && self.name == entry.name
    }
}

/// Puts entries into the order of their numbers: `mlx5_2` before `mlx5_10`.
pub fn put_in_order(entries: &mut [Entry]) {
    entries.sort_by(|a, b| natural(&a.name).cmp(natural(&b.name)));
}

/// A directory tree in the form of `/sys`.
pub trait Files: Send + Sync {
    /// The entries of a directory in the order of their numbers (`mlx5_2` before `mlx5_10`), without hidden ones.
    ///
    /// # Errors
    /// The errno of opening or reading the directory.
    fn list(&self, path: &str) -> io::Result<Vec<Entry>>;

    /// The same entries one by one, in the order the directory has them. That order stays as long as the entries do: who
    /// only wants to know whether they are the same needs neither copies nor sorting.
    ///
    /// # Errors
    /// The errno of opening or reading the directory; entries may have been told before it.
    fn each(&self, path: &str, tell: &mut dyn FnMut(Listed<'_>)) -> io::Result<()> {
        for Entry { name, inode, object } in self.list(path)? {
            tell(Listed { name: &name, inode, object });
        }
        Ok(())
    }

    /// Opens a directory to be listed again and again; `None` where it cannot be, and is listed by its path.
    fn directory(&self, _path: &str) -> Option<Box<dyn OpenDirectory>> {
        None
    }

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

/// The error says that the file or directory is not there any more. Any other one (no descriptor or memory left, no permission)
/// says nothing of it.
#[must_use]
pub(crate) fn says_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV | Errno::NOTDIR))
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
#[derive(Debug, Clone)]
pub struct RootedFiles {
    root: Arc<OwnedFd>,
    path: PathBuf,
    /// Access times are left alone. Only who owns the files, or may do all, can ask for it.
    leaves_atime: Arc<AtomicBool>,
    room: Arc<Room>,
}

/// Descriptors for files that stay open.
#[derive(Debug)]
struct Room {
    taken: AtomicUsize,
    most: usize,
}

/// Descriptors that are left for everything else: probes, sockets, terminals, and files that are open for an instant.
const OTHERS: usize = 512;

/// Links followed before a path counts as a loop; the kernel's own limit.
const MOST_LINKS: u32 = 40;

impl RootedFiles {
    /// Opens the directory. The soft limit of open files is raised to the hard one: a node with sixteen ports has more
    /// counters than the usual 1,024. Where that is not enough, the files beyond it are opened anew for each reading.
    ///
    /// # Errors
    /// The errno of opening the directory.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty())?;
        let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
        if current != maximum {
            // A refusal leaves the soft limit as it is.
            let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        }
        // `None`: no limit.
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let most = limit - OTHERS.min(limit / 2);
        Ok(Self {
            root: Arc::new(root),
            path,
            leaves_atime: Arc::new(AtomicBool::new(true)),
            room: Arc::new(Room { taken: AtomicUsize::new(0), most }),
        })
    }

    /// Opens a file that stays what it is.
    fn open_again(&self, file: &ByPath) -> io::Result<OwnedFd> {
        let fd = self.open_inside(&file.path, OFlags::RDONLY)?;
        // Another file under its name is not the one that was opened.
        if identity(&rustix::fs::fstat(&fd)?) == file.is { Ok(fd) } else { Err(Errno::NODEV.into()) }
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
            Ok(rustix::fs::openat(&*self.root, dot(&path), flags | OFlags::NOFOLLOW, Mode::empty())?)
        })
    }

    /// The kernel's way alone.
    fn open_at_once(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let open = |flags| rustix::fs::openat2(&*self.root, dot(path), flags, Mode::empty(), resolve);
        if !flags.contains(OFlags::PATH) && self.leaves_atime.load(Ordering::Relaxed) {
            // A copied tree is not to show that it was read, and each reading is cheaper; sysfs keeps no such times.
            match open(flags | OFlags::NOATIME) {
                Err(Errno::PERM) => self.leaves_atime.store(false, Ordering::Relaxed),
                opened => return opened,
            }
        }
        open(flags)
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
        let mut entries = Vec::new();
        self.each(path, &mut |entry| entries.push(entry.entry()))?;
        put_in_order(&mut entries);
        Ok(entries)
    }

    fn each(&self, path: &str, tell: &mut dyn FnMut(Listed<'_>)) -> io::Result<()> {
        tell_entries(self.open_inside(path, OFlags::RDONLY | OFlags::DIRECTORY)?.as_fd(), tell)
    }

    fn directory(&self, path: &str) -> Option<Box<dyn OpenDirectory>> {
        let fd = self.open_inside(path, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
        Some(Box::new(Kept { fd, _place: Place::take(&self.room)? }))
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
        let fd = self.open_inside(path, OFlags::RDONLY)?;
        Ok(match Place::take(&self.room) {
            Some(place) => Box::new(Kept { fd, _place: place }),
            None => Box::new(ByPath { path: path.to_owned(), is: identity(&stat), files: self.clone() }),
        })
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
            match rustix::fs::readlinkat(&*self.root, walked.as_str(), Vec::new()) {
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

/// Tells the entries from where the directory stands.
fn tell_entries(directory: BorrowedFd<'_>, tell: &mut dyn FnMut(Listed<'_>)) -> io::Result<()> {
    // Most directories of sysfs fit into it, so that one call tells them, and one more that this was all.
    let mut buf = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(directory, &mut buf);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') {
            continue;
        }
        let object = matches!(entry.file_type(), FileType::Directory | FileType::Symlink | FileType::Unknown);
        tell(Listed { name, inode: entry.ino(), object });
    }
    Ok(())
}

struct Kept {
    fd: OwnedFd,
    _place: Place,
}

impl OpenDirectory for Kept {
    fn each(&self, tell: &mut dyn FnMut(Listed<'_>)) -> io::Result<()> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(0))?;
        tell_entries(self.fd.as_fd(), tell)
    }
}

impl OpenFile for Kept {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(self.fd.as_fd(), buf, 0)?)
    }
}

/// A descriptor's share of the room, given back with it.
struct Place(Arc<Room>);

impl Place {
    fn take(room: &Arc<Room>) -> Option<Self> {
        let taken = room.taken.fetch_add(1, Ordering::Relaxed);
        // Made before it is known whether there is room: it gives back what was taken either way.
        let place = Self(room.clone());
        (taken < room.most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A file there was no room to keep open.
struct ByPath {
    path: String,
    is: (u64, u64),
    files: RootedFiles,
}

impl OpenFile for ByPath {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(self.files.open_again(self)?, buf, 0)?)
    }
}

/// Device and inode: no other file has them while it is there.
fn identity(stat: &rustix::fs::Stat) -> (u64, u64) {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between platforms")]
    (stat.st_dev as u64, stat.st_ino as u64)
}

#[cfg(test)]
mod tests;
