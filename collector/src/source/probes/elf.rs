//! What a 64-bit ELF file of this machine says of itself: which code it has, which libraries it needs, where its functions
//! begin.
//!
//! The files are whatever some process has mapped, so nothing in them is believed: each read is bounded, wherever a file
//! says it has to go, and none is larger than [`MOST_SYMBOLS`]. (Layout: `elf(5)`; the table of functions: Linux Standard
//! Base, Core, "Exception Frames".)

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use object::elf;

use super::frames;

/// Program and section headers that are read at most.
const MOST_HEADERS: usize = 4096;

/// Entries of the dynamic section that are read at most.
const MOST_DYNAMIC: u64 = 4096;

/// Bytes of a table of symbols that are read at most, and of their names.
const MOST_SYMBOLS: u64 = 32 << 20;

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("it is no ELF file")]
    NoElf,
    #[error("it is no 64-bit library of this machine")]
    OtherClass,
    #[error("its headers lie outside of it or are too many")]
    Headers,
}

/// A part of the file that is mapped, or a table that lies in one that is.
#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u32,
    executable: bool,
    /// Where it lies in the file, in bytes.
    offset: u64,
    /// The address it is linked for.
    address: u64,
    /// Its bytes in the file.
    size: u64,
}

/// An ELF file.
pub(super) struct Elf<'f> {
    file: &'f File,
    segments: Vec<Segment>,
    /// Where the section headers are, and how many.
    sections: (u64, usize),
}

/// A table of symbols.
struct Symbols {
    table: Vec<u8>,
    names: Vec<u8>,
}

impl<'f> Elf<'f> {
    pub(super) fn read(file: &'f File) -> Result<Self, Unreadable> {
        let header = bytes(file, 0, 64).ok_or(Unreadable::NoElf)?;
        if header.get(..4) != Some(b"\x7fELF") {
            return Err(Unreadable::NoElf);
        }
        let machine = match std::env::consts::ARCH {
            "x86_64" => elf::EM_X86_64.0,
            "aarch64" => elf::EM_AARCH64.0,
            _ => return Err(Unreadable::OtherClass),
        };
        // Class, byte order, machine.
        if (header[4], header[5], u16_at(&header, 18)) != (2, 1, Some(machine)) {
            return Err(Unreadable::OtherClass);
        }
        let of = |at| u64_at(&header, at).ok_or(Unreadable::Headers);
        let count = |at| u16_at(&header, at).map(usize::from).ok_or(Unreadable::Headers);
        let (programs, n) = (of(32)?, count(56)?);
        if count(54)? != 56 || n > MOST_HEADERS {
            return Err(Unreadable::Headers);
        }
        let table = bytes(file, programs, n as u64 * 56).ok_or(Unreadable::Headers)?;
        let segment = |entry: &[u8]| {
            Some(Segment {
                kind: u32_at(entry, 0)?,
                executable: u32_at(entry, 4)? & elf::PF_X.0 != 0,
                offset: u64_at(entry, 8)?,
                address: u64_at(entry, 16)?,
                size: u64_at(entry, 32)?,
            })
        };
        let segments = table.chunks_exact(56).filter_map(segment).collect();
        // Without the sections there are no symbols; everything else is there.
        let sections = match (count(58)?, count(60)?) {
            (64, n) if n <= MOST_HEADERS => (of(40)?, n),
            _ => (0, 0),
        };
        Ok(Self { file, segments, sections })
    }

    fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == elf::PT_LOAD.0)
    }

    fn one(&self, kind: u32) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.kind == kind)
    }

    /// The bytes of the file, from and to which offset, of the code that holds an offset.
    pub(super) fn code(&self, offset: u64) -> Option<(u64, u64)> {
        let segment =
            self.loaded().find(|segment| segment.executable && holds(segment.offset, segment.size, offset))?;
        Some((segment.offset, segment.offset + segment.size))
    }

    /// The address of a byte of code.
    fn address(&self, offset: u64) -> Option<u64> {
        let segment =
            self.loaded().find(|segment| segment.executable && holds(segment.offset, segment.size, offset))?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Where an address of a segment lies in the file.
    fn offset(&self, address: u64, of: impl Fn(&Segment) -> bool) -> Option<u64> {
        let segment = self.loaded().find(|segment| of(segment) && holds(segment.address, segment.size, address))?;
        segment.offset.checked_add(address - segment.address)
    }

    /// A library whose name begins like this has to be loaded with the file (`DT_NEEDED`).
    pub(super) fn needs(&self, begins: &str) -> bool {
        self.needed(begins).unwrap_or(false)
    }

    fn needed(&self, begins: &str) -> Option<bool> {
        let dynamic = self.one(elf::PT_DYNAMIC.0)?;
        let table = bytes(self.file, dynamic.offset, dynamic.size.min(MOST_DYNAMIC * 16))?;
        let entries = || {
            let entries = table.chunks_exact(16).filter_map(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)));
            entries.take_while(|(tag, _)| *tag != 0)
        };
        let tagged = |tag: i64| move |entry: &(u64, u64)| i64::try_from(entry.0) == Ok(tag);
        let (_, names) = entries().find(tagged(elf::DT_STRTAB.0))?;
        let names = self.offset(names, |_| true)?;
        Some(entries().filter(tagged(elf::DT_NEEDED.0)).any(|(_, name)| {
            let at = names.checked_add(name);
            at.and_then(|at| bytes(self.file, at, begins.len() as u64)).is_some_and(|name| name == begins.as_bytes())
        }))
    }

    /// At which of these offsets of the file a function begins, by the table of them that is there for exceptions and is kept
    /// in stripped files, or by a symbol where there is no such table. The symbols are read once.
    pub(super) fn functions_at(&self, offsets: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut functions = BTreeSet::new();
        let mut without_frames = BTreeMap::new();
        for offset in offsets {
            let Some(address) = self.address(*offset) else { continue };
            match frames::begins(self, address) {
                Some(true) => drop(functions.insert(*offset)),
                Some(false) => {}
                None => drop(without_frames.insert(address, *offset)),
            }
        }
        if !without_frames.is_empty() {
            for symbols in self.all_symbols() {
                functions.extend(symbols.functions().filter_map(|(_, _, value)| without_frames.get(&value)));
            }
        }
        functions
    }

    /// Where the table of frames lies: its address and its bytes.
    pub(super) fn frames(&self) -> Option<(u64, u64)> {
        self.one(elf::PT_GNU_EH_FRAME.0).map(|segment| (segment.address, segment.size))
    }

    /// Bytes at an address, no more than the file has there of one segment.
    pub(super) fn at(&self, address: u64, most: u64) -> Option<Vec<u8>> {
        let segment = self.loaded().find(|segment| holds(segment.address, segment.size, address))?;
        let inside = address - segment.address;
        bytes(self.file, segment.offset.checked_add(inside)?, most.min(segment.size - inside))
    }

    /// The symbols of a kind of table that the file holds: `SHT_DYNSYM` or `SHT_SYMTAB`.
    fn symbols(&self, kind: u32) -> Option<Symbols> {
        let (headers, index) = self.section(kind)?;
        let (table, names) = (headers.get(index)?, headers.get(usize::try_from(headers.get(index)?.link).ok()?)?);
        if table.entry != 24 {
            return None;
        }
        Some(Symbols { table: self.section_bytes(table)?, names: self.section_bytes(names)? })
    }

    fn section(&self, kind: u32) -> Option<(Vec<Section>, usize)> {
        let table = bytes(self.file, self.sections.0, self.sections.1 as u64 * 64)?;
        let headers: Vec<Section> = table.chunks_exact(64).map_while(Section::read).collect();
        let index = headers.iter().position(|section| section.kind == kind)?;
        Some((headers, index))
    }

    fn section_bytes(&self, section: &Section) -> Option<Vec<u8>> {
        (section.size <= MOST_SYMBOLS).then(|| bytes(self.file, section.offset, section.size))?
    }

    fn all_symbols(&self) -> impl Iterator<Item = Symbols> {
        [elf::SHT_DYNSYM.0, elf::SHT_SYMTAB.0].into_iter().filter_map(|kind| self.symbols(kind))
    }

    /// The file has a function of this name in it, exported or not.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.all_symbols().any(|symbols| symbols.functions().any(|(_, at, _)| symbols.is_named(at, name)))
    }

    /// Which of these functions the file takes from other files.
    pub(super) fn imports<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        let Some(symbols) = self.symbols(elf::SHT_DYNSYM.0) else { return Vec::new() };
        let taken: Vec<usize> = symbols.taken().collect();
        names.iter().copied().filter(|name| taken.iter().any(|at| symbols.is_named(*at, name))).collect()
    }

    /// The file offset of an exported function. A library may export one name in several versions: older ones are hidden,
    /// the one that programs are linked with today is not.
    pub(super) fn exported(&self, name: &str) -> Option<u64> {
        /// Of a symbol's version: it is hidden.
        const HIDDEN: u16 = 0x8000;
        let symbols = self.symbols(elf::SHT_DYNSYM.0)?;
        let versions = self.section(elf::SHT_GNU_VERSYM.0);
        let versions =
            versions.and_then(|(headers, index)| self.section_bytes(headers.get(index)?)).unwrap_or_default();
        let hidden = |index: usize| u16_at(&versions, index * 2).is_some_and(|version| version & HIDDEN != 0);
        let mut all = symbols.functions();
        let (_, _, address) = all.find(|(index, at, _)| !hidden(*index) && symbols.is_named(*at, name))?;
        self.offset(address, |segment| segment.executable)
    }
}

impl Symbols {
    /// The functions that are in the file: which symbol each is, where its name is, its address.
    fn functions(&self) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        const FUNCTION: u8 = 2;
        let entry = |(index, entry): (usize, &[u8])| {
            let here = entry[4] & 0xf == FUNCTION && u16_at(entry, 6)? != 0 && u64_at(entry, 8)? != 0;
            here.then_some((index, usize::try_from(u32_at(entry, 0)?).ok()?, u64_at(entry, 8)?))
        };
        self.table.chunks_exact(24).enumerate().filter_map(entry)
    }

    /// What is in another file: where its name is.
    fn taken(&self) -> impl Iterator<Item = usize> + '_ {
        let entry = |entry: &[u8]| (u16_at(entry, 6)? == 0).then_some(usize::try_from(u32_at(entry, 0)?).ok()?);
        self.table.chunks_exact(24).filter_map(entry)
    }

    fn is_named(&self, at: usize, name: &str) -> bool {
        let rest = self.names.get(at..).and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// What a section header says.
struct Section {
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
    entry: u64,
}

impl Section {
    fn read(header: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u32_at(header, 4)?,
            offset: u64_at(header, 24)?,
            size: u64_at(header, 32)?,
            link: u32_at(header, 40)?,
            entry: u64_at(header, 56)?,
        })
    }
}

fn holds(start: u64, size: u64, at: u64) -> bool {
    at.checked_sub(start).is_some_and(|inside| inside < size)
}

/// Bytes of a file; `None` when it does not have them. For what is bounded by the caller.
fn bytes(file: &File, at: u64, len: u64) -> Option<Vec<u8>> {
    let size = file.metadata().ok()?.len();
    if at.checked_add(len)? > size {
        return None;
    }
    let mut into = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut into, at).ok()?;
    Some(into)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file a function of this process lies in, and where.
    fn place(function: u64) -> (File, u64) {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        let mapping =
            crate::source::verbs::maps::mappings(&maps).find(|mapping| mapping.holds(function)).expect("it is mapped");
        let place = mapping.place(function).expect("it comes from a file");
        (File::open(&place.path).expect("it can be read"), place.offset)
    }

    #[test]
    fn a_function_begins_where_it_begins_and_nowhere_else() {
        let functions =
            [a_function_begins_where_it_begins_and_nowhere_else as *const () as u64, libc::qsort as *const () as u64];
        for function in functions {
            let (file, offset) = place(function);
            let elf = Elf::read(&file).expect("an ELF file");
            assert_eq!(frames::begins(&elf, elf.address(offset).expect("code")), Some(true));
            let beside = BTreeSet::from([offset, offset + 1, offset + 2, offset - 1, 0, u64::MAX]);
            assert_eq!(elf.functions_at(&beside), BTreeSet::from([offset]));
        }
    }

    #[test]
    fn a_part_of_a_function_that_has_a_frame_of_its_own_is_no_function() {
        // The C library's stubs for functions of other libraries: a word is on the stack already when the first runs.
        let (file, _) = place(libc::qsort as *const () as u64);
        let elf = Elf::read(&file).expect("an ELF file");
        let all = frames::all(&elf);
        let begin = all.iter().filter(|address| frames::begins(&elf, **address) == Some(true)).count();
        println!("{begin} of {} frames are functions", all.len());
        assert!(all.len() > 1000 && begin < all.len() && begin > all.len() * 9 / 10);
    }

    #[test]
    fn what_a_file_needs_and_defines_is_what_it_says() {
        let (file, offset) = place(libc::qsort as *const () as u64);
        let elf = Elf::read(&file).expect("an ELF file");
        assert!(elf.needs("ld-linux") && !elf.needs("libibverbs.so") && !elf.needs("no"));
        assert!(elf.defines("qsort") && !elf.defines("qsor") && !elf.defines("ibv_open_device"));
        let address = elf.address(offset).expect("code");
        assert!(elf.all_symbols().any(|symbols| symbols.functions().any(|(_, _, value)| value == address)));
        assert_eq!(elf.exported("qsort"), Some(offset));
    }

    #[test]
    fn the_providers_of_this_machine_are_providers_and_begin_functions_by_their_frames() {
        let folder = format!("/usr/lib/{}-linux-gnu/libibverbs", std::env::consts::ARCH);
        let Ok(files) = std::fs::read_dir(&folder) else { return println!("skipped: no {folder}") };
        for path in files.flatten().map(|entry| entry.path()) {
            let file = File::open(&path).expect("it can be read");
            let elf = Elf::read(&file).expect("an ELF file");
            assert!(elf.needs("libibverbs.so"), "{}", path.display());
            assert!(frames::begins(&elf, 0).is_some(), "{}", path.display());
        }
    }

    #[test]
    fn no_lie_of_a_file_is_followed_out_of_it_or_without_end() {
        let (file, offset) = place(libc::qsort as *const () as u64);
        let honest = bytes(&file, 0, file.metadata().expect("a file").len()).expect("it can be read");
        let named = tempfile::NamedTempFile::new().expect("a temporary directory");
        std::fs::write(named.path(), &honest).expect("it is writable");
        let written = std::fs::OpenOptions::new().read(true).write(true).open(named.path()).expect("it is there");
        let elf = Elf::read(&file).expect("an ELF file");
        let frames = elf.one(elf::PT_GNU_EH_FRAME.0).expect("it has frames").offset;
        let frames = usize::try_from(frames).expect("small");
        // Every byte of the headers, and of the table of frames, is some lie once.
        for at in (0..1024).chain(frames..frames + 64) {
            for lie in [0, 0x7f, 0xff] {
                written.write_all_at(&[lie], at as u64).expect("it is writable");
                let Ok(elf) = Elf::read(&written) else { continue };
                let _ = (elf.needs("x"), elf.functions_at(&BTreeSet::from([offset])), elf.code(offset));
            }
            written.write_all_at(&honest[at..=at], at as u64).expect("it is writable");
        }
        std::fs::write(named.path(), &honest[..100]).expect("it is writable");
        let file = File::open(named.path()).expect("it can be read");
        assert_eq!(Elf::read(&file).err(), Some(Unreadable::Headers));
    }
}
