//! A library that processes run: kept open, so that it can be attached to whatever becomes of its name, with its code and
//! the functions it exports.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};

use super::elf::{Elf, Unreadable};
use super::opened::refused;
use super::reason::Why;

/// Code that is read at most, in bytes, from the segment a function is in; the largest provider has 0.4 MB.
const MOST_CODE: u64 = 2 << 20;

/// `f_type` of an overlay (include/uapi/linux/magic.h).
const OVERLAY: u64 = 0x794c_7630;

/// A function that only libibverbs has; a program that has it, and no need for the library, has all of it inside.
const OPEN_DEVICE: &str = "ibv_open_device";

/// An open library.
pub(super) struct Library {
    file: File,
    ident: Ident,
}

/// What tells one file from another when one of them is seen through an overlay: its numbers are the overlay's, but
/// probes go to the file below, which several containers may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ident {
    overlay: bool,
    inode: u64,
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
    links: u32,
}

impl Library {
    /// Opens a file that was found at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, Why> {
        let file = regular(path).map_err(|error| format!("the file cannot be opened: {error}"))?;
        let ident =
            Ident::of(&file, on_overlay(&file)).map_err(|error| format!("the file cannot be looked at: {error}"))?;
        Ok(Self { file, ident })
    }

    /// What it was when it was opened.
    pub(super) const fn ident(&self) -> &Ident {
        &self.ident
    }

    /// The file is the one of `other`, seen through an overlay. An overlay gives a file the inode number it has below
    /// when its layers lie in one file system (Documentation/filesystems/overlayfs.rst, "Inode properties").
    pub(super) fn is_below(&self, other: &Self) -> bool {
        (self.ident.overlay || other.ident.overlay)
            && Ident { overlay: other.ident.overlay, ..self.ident } == other.ident
    }

    /// The file is not what it was when it was opened: it was written over, or may have been. What was found in it means
    /// nothing any more.
    pub(super) fn is_overwritten(&self) -> bool {
        // What cannot be asked is no news.
        let Ok(now) = Ident::of(&self.file, self.ident.overlay) else { return false };
        // That a name of it is gone, as after an upgrade, changes this time as well, and nothing else.
        let touched = now.changed != self.ident.changed && now.links == self.ident.links;
        (now.size, now.modified) != (self.ident.size, self.ident.modified) || touched
    }

    /// A path by which the kernel finds the open file.
    pub(super) fn path(&self) -> PathBuf {
        held(&self.file)
    }

    /// Its code, of which nothing is read yet but where it lies.
    pub(super) fn code(&self) -> Code<'_> {
        Code { file: &self.file, elf: Elf::read(&self.file), from: 0, read: Vec::new() }
    }

    /// The file is a provider, by its content, since its name is no proof in a mount namespace that a user made. Reads its
    /// symbols where it needs no libibverbs.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn is_provider(&self) -> Result<bool, Why> {
        let elf = self.elf()?;
        Ok(elf.needs("libibverbs.so") || elf.defines(OPEN_DEVICE))
    }

    /// At which of these offsets a function begins. Elsewhere a breakpoint would change an instruction, or data, of every
    /// process that maps the file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn functions_at(&self, offsets: &BTreeSet<u64>) -> Result<BTreeSet<u64>, Why> {
        Ok(self.elf()?.functions_at(offsets))
    }

    fn elf(&self) -> Result<Elf<'_>, Why> {
        Elf::read(&self.file).map_err(|error| refused(&error.to_string()))
    }

    /// The file offset of an exported function, in the version that programs are linked with today.
    pub(super) fn exported(&self, name: &str) -> Option<u64> {
        Elf::read(&self.file).ok()?.exported(name)
    }

    /// Which of these functions the file calls in these libraries, each named by how its file's name begins. The names of
    /// the libraries a file needs are few; those of its functions are read only where one of them matters.
    pub(super) fn calls<'f>(&self, functions: &[(&str, &'f str)]) -> Vec<&'f str> {
        let Ok(elf) = Elf::read(&self.file) else { return Vec::new() };
        let needed = functions.iter().filter(|(library, _)| elf.needs(library));
        let asked: Vec<&'f str> = needed.map(|(_, function)| *function).collect();
        if asked.is_empty() { asked } else { elf.imports(&asked) }
    }
}

/// The code of a library, for as many places as are asked for.
pub(super) struct Code<'l> {
    file: &'l File,
    elf: Result<Elf<'l>, Unreadable>,
    /// What was read last, and its file offset.
    from: u64,
    read: Vec<u8>,
}

impl Code<'_> {
    /// The code around a file offset, and where in it the offset is. It is read anew only where it is not what was read for the
    /// place before: that of a provider is read once.
    ///
    /// # Errors
    /// Only for a file whose processes have other structures than those that are read: a 32-bit library.
    pub(super) fn around(&mut self, offset: u64) -> Result<Result<(&[u8], usize), String>, Why> {
        let elf = match &self.elf {
            Ok(elf) => elf,
            Err(Unreadable::OtherClass) => {
                return Err("a 32-bit library, whose structures are laid out in another way".into());
            }
            Err(error) => return Ok(Err(error.to_string())),
        };
        let Some((start, end)) = elf.code(offset) else {
            return Ok(Err("no segment of code holds it".to_owned()));
        };
        // What lies far before the function is no part of it; of code that is not longer than that all is read.
        let from = start.max(offset.saturating_sub(MOST_CODE / 2).min(end.saturating_sub(MOST_CODE)));
        let len = usize::try_from((end - from).min(MOST_CODE)).unwrap_or(0);
        if (self.from, self.read.len()) != (from, len) {
            self.from = from;
            self.read = vec![0; len];
            if let Err(error) = self.file.read_exact_at(&mut self.read, from) {
                self.read = Vec::new();
                return Ok(Err(error.to_string()));
            }
        }
        Ok(Ok((&self.read, usize::try_from(offset - from).unwrap_or(usize::MAX))))
    }
}

impl Ident {
    /// By what is known of the file here: it is asked for again and again, and a network file system whose server is away
    /// would keep the question waiting until it is back. What changed on the server is seen when anybody here sees it.
    fn of(file: &File, overlay: bool) -> io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS;
        let facts = statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted)?;
        let time = |at: rustix::fs::StatxTimestamp| (at.tv_sec, at.tv_nsec);
        Ok(Self {
            overlay,
            inode: facts.stx_ino,
            size: facts.stx_size,
            modified: time(facts.stx_mtime),
            changed: time(facts.stx_ctime),
            links: facts.stx_nlink,
        })
    }
}

/// Whether a file that has just been opened is on an overlay: that stays so.
fn on_overlay(file: &File) -> bool {
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "the type of f_type differs between platforms")]
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u64 == OVERLAY)
}

/// Opens a file, unless it is something that does more than being read when it is opened.
fn regular(path: &Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let found = File::from(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !found.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    File::open(held(&found))
}

/// A path by which the kernel finds an open file.
fn held(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_function_is_found_in_its_newest_version() {
        // glibc has two versions of memcpy on x86-64 and one of fopen elsewhere; both are in every process.
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        let here = libc::pthread_create as *const () as u64;
        let mapping = crate::source::verbs::maps::mappings(&maps).find(|mapping| mapping.holds(here)).expect("mapped");
        let place = mapping.place(here).expect("libc is a file");
        let library = Library::open(&place.path).expect("libc can be read");
        assert_eq!(library.exported("pthread_create"), Some(place.offset));
        assert_eq!(library.exported("no_such_function"), None);
    }

    #[test]
    fn the_code_of_a_function_is_what_runs() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        let here = the_code_of_a_function_is_what_runs as *const () as u64;
        let mapping = crate::source::verbs::maps::mappings(&maps).find(|mapping| mapping.holds(here)).expect("mapped");
        let place = mapping.place(here).expect("this is a file");
        let library = Library::open(&place.path).expect("it can be read");
        let mut all = library.code();
        let (code, at) = all.around(place.offset).expect("64 bits").expect("code");
        let mut running = [0; 16];
        let memory = File::open("/proc/self/mem").expect("one's own memory");
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut running, here).expect("it is mapped");
        assert_eq!(code[at..at + 16], running);
        // This program has more code than is read at once: another place may lie elsewhere, the same does not.
        let before = code.as_ptr();
        assert_eq!(all.around(place.offset).expect("64 bits").expect("code").0.as_ptr(), before);
    }

    #[test]
    fn code_that_is_not_longer_than_what_is_read_at_once_is_read_once_for_all_its_places() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        let here = libc::pthread_create as *const () as u64;
        let mapping = crate::source::verbs::maps::mappings(&maps).find(|mapping| mapping.holds(here)).expect("mapped");
        let place = mapping.place(here).expect("libc is a file");
        let library = Library::open(&place.path).expect("libc can be read");
        let (start, end) = library.elf().expect("64 bits").code(place.offset).expect("code");
        assert!((MOST_CODE / 2..MOST_CODE).contains(&(end - start)), "{}", end - start);
        let mut all = library.code();
        let mut read = |offset| {
            let (code, at) = all.around(offset).expect("64 bits").expect("code");
            (code.as_ptr(), at as u64 + start)
        };
        let (first, at) = read(start);
        assert_eq!((read(end - 1), at), ((first, end - 1), start));
    }

    #[test]
    fn what_a_file_calls_in_which_library_is_read_from_the_file() {
        let own = Library::open(&std::env::current_exe().expect("this is a program")).expect("it can be read");
        let calls = |library, function| own.calls(&[(library, function)]);
        assert_eq!(calls("libc.so", "malloc"), ["malloc"]);
        assert_eq!(calls("libc.so", "no_such_function"), Vec::<&str>::new());
        assert_eq!(calls("libmlx5.so", "malloc"), Vec::<&str>::new(), "it needs no such library");
    }

    #[test]
    fn what_is_no_library_says_so_and_stops_nothing() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "not a library").expect("it is writable");
        let library = Library::open(file.path()).expect("it can be opened");
        assert!(library.code().around(0).is_ok_and(|code| code.is_err()));
        assert_eq!(library.exported("ibv_modify_qp"), None);
        assert!(library.calls(&[("libc.so", "malloc")]).is_empty());
    }
}
