//! From an address of a process to a place in a file, through its `/proc/PID/maps`.

use std::path::PathBuf;

use super::Place;

/// A file as the kernel tells it apart: major and minor number of the file system's device, inode number.
pub type FileId = ((u32, u32), u64);

/// One line of a `maps` file (proc(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::source) struct Mapping<'m> {
    pub(in crate::source) start: u64,
    pub(in crate::source) end: u64,
    /// `rwxp` or `rwxs`, with `-` for what is not allowed.
    rights: &'m str,
    /// Where in the file the mapping starts, in bytes.
    offset: u64,
    /// The file; inode 0 for memory that no file backs.
    pub(in crate::source) file: FileId,
    /// Path in the process's mount namespace, or a name like `[heap]`; empty for anonymous memory.
    pub(in crate::source) name: &'m str,
    /// The file's name is gone: it was replaced or removed.
    pub(in crate::source) deleted: bool,
}

impl<'m> Mapping<'m> {
    fn read(line: &'m str) -> Option<Self> {
        // 7f35a6e06000-7f35a6e2c000 r-xp 00026000 fe:00 136323                     /usr/lib/x86_64-linux-gnu/libc.so.6
        let mut rest = line;
        let mut word = || {
            let (word, tail) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
            rest = tail;
            (!word.is_empty()).then_some(word)
        };
        let (start, end) = word()?.split_once('-')?;
        let (rights, offset, dev, inode) = (word()?, word()?, word()?, word()?);
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (major, minor) = dev.split_once(':')?;
        let dev = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let name = rest.trim_start();
        let (name, deleted) = name.strip_suffix(" (deleted)").map_or((name, false), |name| (name, true));
        let file = (dev, inode.parse().ok()?);
        Some(Self { start: hex(start)?, end: hex(end)?, rights, offset: hex(offset)?, file, name, deleted })
    }

    fn may(&self, right: u8) -> bool {
        self.rights.as_bytes().contains(&right)
    }

    /// Code that comes from a file.
    pub(in crate::source) fn is_code(&self) -> bool {
        self.may(b'x') && self.name.starts_with('/')
    }

    /// Memory of the process's own that it can write and that no file backs: heap, stacks, what allocators map.
    pub(in crate::source) fn is_own_memory(&self) -> bool {
        let heap = self.name.is_empty() || self.name == "[heap]" || self.name.starts_with("[anon");
        self.may(b'r') && self.may(b'w') && self.may(b'p') && self.file.1 == 0 && heap
    }

    /// The mapping holds an address.
    pub(in crate::source) fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The place of an address the mapping holds; `None` for memory that no file backs.
    pub(in crate::source) fn place(&self, address: u64) -> Option<Place> {
        let inside = self.name.starts_with('/') && self.holds(address);
        inside.then(|| Place {
            path: PathBuf::from(self.name),
            via: None,
            dev: self.file.0,
            inode: self.file.1,
            offset: self.offset + (address - self.start),
        })
    }
}

/// The lines of a `maps` file; what cannot be read is left out.
pub(in crate::source) fn mappings(maps: &str) -> impl Iterator<Item = Mapping<'_>> {
    maps.lines().filter_map(Mapping::read)
}

/// The place of an address in the text of a `maps` file; `None` for memory that no file backs.
pub(super) fn place(maps: &str, address: u64) -> Option<Place> {
    mappings(maps).find(|mapping| mapping.holds(address))?.place(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c3a00000-55d0c3a21000 rw-p 00000000 00:00 0                          [heap]
7f35a6de0000-7f35a6e06000 r--p 00000000 fe:00 136323                     /usr/lib/libc.so.6
7f35a6e06000-7f35a6e2c000 r-xp 00026000 fe:0a 136323                     /usr/lib/with space/librxe.so
7f35a6e2c000-7f35a6e2d000 r-xp 00001000 fe:0a 136324                     /usr/lib/libmlx5.so.1 (deleted)
7f35a6f5b000-7f35a6f5d000 rw-p 00000000 00:00 0
7f35a6f5d000-7f35a6f5e000 r-xp 00000000 00:00 0                          [vdso]
7f35a6f60000-7f35a6f61000 rw-s 00000000 00:05 512                        /dev/infiniband/uverbs0
";

    #[test]
    fn an_address_becomes_the_offset_in_its_file() {
        let found = place(MAPS, 0x7f35_a6e0_6cc0).expect("a library holds the address");
        assert_eq!(found.path, PathBuf::from("/usr/lib/with space/librxe.so"));
        assert_eq!((found.dev, found.inode, found.offset), ((0xfe, 0x0a), 136_323, 0x26cc0));
    }

    #[test]
    fn a_file_that_was_replaced_keeps_its_name() {
        let mapping = mappings(MAPS).find(|mapping| mapping.holds(0x7f35_a6e2_c000)).expect("it is mapped");
        assert!(mapping.deleted && mapping.name == "/usr/lib/libmlx5.so.1");
    }

    #[test]
    fn memory_without_a_file_has_no_place() {
        assert_eq!(place(MAPS, 0x7f35_a6f5_b010), None);
        assert_eq!(place(MAPS, 0x7f35_a6f5_d010), None);
        assert_eq!(place(MAPS, 1), None);
    }

    #[test]
    fn own_memory_is_what_only_this_process_writes() {
        let own: Vec<u64> = mappings(MAPS).filter(Mapping::is_own_memory).map(|mapping| mapping.start).collect();
        assert_eq!(own, [0x55d0_c3a0_0000, 0x7f35_a6f5_b000]);
    }

    #[test]
    fn this_process_s_own_code_is_found() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        let here = this_process_s_own_code_is_found as *const () as u64;
        let exe = std::env::current_exe().expect("this process has an executable");
        assert_eq!(place(&maps, here).expect("the code comes from a file").path, exe);
    }
}
