//! A library that processes run: kept open, so that it can be attached to whatever becomes of its name, with its code and
//! the functions it exports.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, FileHeader};
use object::read::{Object, ObjectSegment, ReadCache};
use object::{Architecture, Endianness, SegmentFlags, elf};

use super::reason::Why;

/// Code that is read at most, in bytes, from the segment a function is in; the largest provider has 0.4 MB.
const MOST_CODE: u64 = 8 << 20;

/// `f_type` of an overlay (include/uapi/linux/magic.h).
const OVERLAY: u64 = 0x794c_7630;

/// An open library.
pub(super) struct Library {
    file: File,
    ident: Ident,
}

/// What tells one file from another when one of them is seen through an overlay: its numbers are the overlay's, but
/// probes go to the file below, which several containers may share.
#[derive(Debug, PartialEq, Eq)]
struct Ident {
    overlay: bool,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

type Elf<'f> = ElfFile64<'f, Endianness, &'f ReadCache<&'f File>>;

impl Library {
    /// Opens a file that was found at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, Why> {
        let file = File::open(path).map_err(|error| format!("the file cannot be opened: {error}"))?;
        let facts = file.metadata().map_err(|error| format!("the file cannot be looked at: {error}"))?;
        #[allow(
            clippy::unnecessary_cast,
            clippy::cast_sign_loss,
            reason = "the type of f_type differs between platforms"
        )]
        let overlay = rustix::fs::fstatfs(&file).is_ok_and(|system| system.f_type as u64 == OVERLAY);
        let ident = Ident {
            overlay,
            inode: facts.ino(),
            size: facts.size(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
        };
        Ok(Self { file, ident })
    }

    /// The file is the one of `other`, seen through an overlay. An overlay gives a file the inode number it has below
    /// when its layers lie in one file system (Documentation/filesystems/overlayfs.rst, "Inode properties").
    pub(super) fn is_below(&self, other: &Self) -> bool {
        (self.ident.overlay || other.ident.overlay)
            && Ident { overlay: other.ident.overlay, ..self.ident } == other.ident
    }

    /// A path by which the kernel finds the open file.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// The code around a file offset, and where in it the offset is.
    ///
    /// # Errors
    /// Only for a file whose processes have other structures than those that are read: a 32-bit library.
    pub(super) fn code(&self, offset: u64) -> Result<Result<(Vec<u8>, usize), String>, Why> {
        let cache = ReadCache::new(&self.file);
        let elf = match parse(&cache) {
            Ok(elf) => elf,
            Err(error) if error.is_other_class() => {
                return Err("a 32-bit library, whose structures are laid out in another way".into());
            }
            Err(error) => return Ok(Err(error.to_string())),
        };
        for segment in elf.segments().filter(is_code) {
            let (start, size) = segment.file_range();
            if !(start..start.saturating_add(size)).contains(&offset) {
                continue;
            }
            // What lies far before the function is no part of it.
            let from = start.max(offset.saturating_sub(MOST_CODE / 2));
            let len = (start + size - from).min(MOST_CODE);
            let mut code = vec![0; usize::try_from(len).unwrap_or(0)];
            let read = std::os::unix::fs::FileExt::read_exact_at(&self.file, &mut code, from);
            let at = usize::try_from(offset - from).unwrap_or(usize::MAX);
            return Ok(read.map(|()| (code, at)).map_err(|error| error.to_string()));
        }
        Ok(Err("no segment of code holds it".to_owned()))
    }

    /// The file offset of an exported function, in the version that programs are linked with today.
    pub(super) fn exported(&self, name: &str) -> Option<u64> {
        let cache = ReadCache::new(&self.file);
        let elf = parse(&cache).ok()?;
        let address = exported(&elf, name)?;
        elf.segments().filter(is_code).find_map(|segment| {
            let inside = address.checked_sub(segment.address()).filter(|inside| *inside < segment.size())?;
            Some(segment.file_range().0 + inside)
        })
    }

    /// Which of these functions the file calls in these libraries, each named by how its file's name begins. The names of
    /// the libraries a file needs are few; those of its functions are read only where one of them matters.
    pub(super) fn calls<'f>(&self, functions: &[(&str, &'f str)]) -> Vec<&'f str> {
        let cache = ReadCache::new(&self.file);
        let Ok(elf) = parse(&cache) else { return Vec::new() };
        let needed: Vec<String> = elf
            .import_libraries()
            .into_iter()
            .flatten()
            .filter_map(|library| Some(String::from_utf8_lossy(library.ok()?.name()).into_owned()))
            .collect();
        let needs = |library: &str| needed.iter().any(|needed| needed.starts_with(library));
        let asked: Vec<&'f str> =
            functions.iter().filter(|(library, _)| needs(library)).map(|(_, function)| *function).collect();
        if asked.is_empty() {
            return asked;
        }
        let imports: HashSet<&[u8]> =
            elf.imports().into_iter().flatten().filter_map(|import| import.ok()?.name().into_name()).collect();
        asked.into_iter().filter(|function| imports.contains(function.as_bytes())).collect()
    }
}

#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("{0}")]
    Elf(#[from] object::Error),
    #[error("it is no 64-bit library")]
    OtherClass,
}

impl Unreadable {
    const fn is_other_class(&self) -> bool {
        matches!(self, Self::OtherClass)
    }
}

fn parse<'f>(cache: &'f ReadCache<&'f File>) -> Result<Elf<'f>, Unreadable> {
    if object::FileKind::parse(cache)? == object::FileKind::Elf32 {
        return Err(Unreadable::OtherClass);
    }
    let elf = Elf::parse(cache)?;
    let native = match std::env::consts::ARCH {
        "x86_64" => Architecture::X86_64,
        "aarch64" => Architecture::Aarch64,
        _ => elf.architecture(),
    };
    if elf.architecture() == native { Ok(elf) } else { Err(Unreadable::OtherClass) }
}

fn is_code<'f>(segment: &impl ObjectSegment<'f>) -> bool {
    matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.contains(elf::PF_X))
}

/// The address of an exported function. A library may export one name in several versions; older ones are hidden.
fn exported(elf: &Elf<'_>, name: &str) -> Option<u64> {
    let (endian, data) = (elf.endian(), elf.data());
    let sections = elf.elf_header().sections(endian, data).ok()?;
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM).ok()?;
    let versions = sections.versions(endian, data).ok()?;
    symbols.enumerate().find_map(|(index, symbol)| {
        use object::read::elf::Sym as _;
        let is_it = symbols.symbol_name(endian, symbol).is_ok_and(|other| other == name.as_bytes());
        let hidden = versions.as_ref().is_some_and(|versions| versions.version_index(endian, index).is_hidden());
        (is_it && !hidden && symbol.st_value(endian) != 0).then(|| symbol.st_value(endian))
    })
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
        let (code, at) = library.code(place.offset).expect("64 bits").expect("code");
        let mut running = [0; 16];
        let memory = File::open("/proc/self/mem").expect("one's own memory");
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut running, here).expect("it is mapped");
        assert_eq!(code[at..at + 16], running);
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
        assert!(library.code(0).is_ok_and(|code| code.is_err()));
        assert_eq!(library.exported("ibv_modify_qp"), None);
        assert!(library.calls(&[("libc.so", "malloc")]).is_empty());
    }
}
