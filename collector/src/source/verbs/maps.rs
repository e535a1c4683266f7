//! From an address of this process to a place in a file, through `/proc/self/maps`.

use std::path::PathBuf;

use super::Place;

/// The place of an address in the text of a `maps` file (proc(5)); `None` for memory that no file backs.
pub(super) fn place(maps: &str, address: u64) -> Option<Place> {
    maps.lines().find_map(|line| place_in_line(line, address))
}

fn place_in_line(line: &str, address: u64) -> Option<Place> {
    // 7f35a6e06000-7f35a6e2c000 r-xp 00026000 fe:00 136323                     /usr/lib/x86_64-linux-gnu/libc.so.6
    let mut rest = line;
    let mut word = || {
        let (word, tail) = rest.trim_start().split_once(' ')?;
        rest = tail;
        Some(word)
    };
    let (start, end) = word()?.split_once('-')?;
    let (_rights, offset, dev, inode) = (word()?, word()?, word()?, word()?);
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    if !(start..end).contains(&address) {
        return None;
    }
    let (major, minor) = dev.split_once(':')?;
    let path = rest.trim_start();
    path.starts_with('/').then_some(())?;
    Some(Place {
        path: PathBuf::from(path),
        dev: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode: inode.parse().ok()?,
        offset: hex(offset)? + (address - start),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f35a6de0000-7f35a6e06000 r--p 00000000 fe:00 136323                     /usr/lib/libc.so.6
7f35a6e06000-7f35a6e2c000 r-xp 00026000 fe:0a 136323                     /usr/lib/with space/librxe.so
7f35a6f5b000-7f35a6f5d000 rw-p 00000000 00:00 0
7f35a6f5d000-7f35a6f5e000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn an_address_becomes_the_offset_in_its_file() {
        let found = place(MAPS, 0x7f35_a6e0_6cc0).expect("a library holds the address");
        assert_eq!(found.path, PathBuf::from("/usr/lib/with space/librxe.so"));
        assert_eq!((found.dev, found.inode, found.offset), ((0xfe, 0x0a), 136_323, 0x26cc0));
    }

    #[test]
    fn memory_without_a_file_has_no_place() {
        assert_eq!(place(MAPS, 0x7f35_a6f5_b010), None);
        assert_eq!(place(MAPS, 0x7f35_a6f5_d010), None);
        assert_eq!(place(MAPS, 1), None);
    }

    #[test]
    fn this_process_s_own_code_is_found() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        let here = this_process_s_own_code_is_found as *const () as u64;
        let exe = std::env::current_exe().expect("this process has an executable");
        assert_eq!(place(&maps, here).expect("the code comes from a file").path, exe);
    }
}
