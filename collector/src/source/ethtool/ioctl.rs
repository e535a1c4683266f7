//! The driver's own statistics by the `SIOCETHTOOL` ioctl: what `ethtool -S` prints exists nowhere else.
//!
//! The kernel writes as many names or values as the driver has at that moment, whatever the caller has room for
//! (`ethtool_get_strings` and `ethtool_get_stats` in net/ethtool/ioctl.c), so a driver that got more queues since it was
//! asked for their number would write past any buffer. Here the buffer is a mapping of its own with a page behind it that
//! nobody may touch: the kernel stops there with EFAULT. Only the three commands below are used; each needs no privilege
//! and changes nothing.

#![allow(unsafe_code, reason = "an ioctl with a pointer in its argument; the buffer is a mapping of its own")]

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::driver::{Name, Statistics};

/// `SIOCETHTOOL` (include/uapi/linux/sockios.h).
const SIOCETHTOOL: u32 = 0x8946;

/// Commands and the string set, from include/uapi/linux/ethtool.h.
mod uapi {
    pub(super) const GSTRINGS: u32 = 0x1b;
    pub(super) const GSTATS: u32 = 0x1d;
    pub(super) const GSSET_INFO: u32 = 0x37;
    pub(super) const SS_STATS: u32 = 1;
    pub(super) const GSTRING_LEN: usize = 32;
    pub(super) const IFNAMSIZ: usize = 16;
}

/// Room for the answers: 65,536 names. Pages that were never written cost nothing.
const ROOM: usize = 2 * 1024 * 1024 + PAGE;
/// The guard, and what precedes the names. A multiple of every page size in use (4, 16 and 64 KiB).
const PAGE: usize = 64 * 1024;
/// Counters a driver may have.
const MOST: usize = 65_536;

/// `struct ifreq` as far as this ioctl uses it: the name, then a pointer, in 40 bytes on 64-bit machines.
#[repr(C)]
struct Ifreq {
    name: [u8; uapi::IFNAMSIZ],
    data: *mut c_void,
    rest: [u8; 16],
}

/// A socket for the ioctl and the memory the kernel answers into.
pub(super) struct Ioctl {
    socket: Socket,
    room: NonNull<u8>,
}

// SAFETY: the mapping belongs to this value alone; the pointer is used only through `&mut self`, from whichever thread
// owns the value.
unsafe impl Send for Ioctl {}

impl Ioctl {
    /// Opens a socket (the ioctl works on any) and maps the memory.
    pub(super) fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_GENERIC)?;
        // SAFETY: an anonymous mapping at an address of the kernel's choice overlaps nothing.
        let room = unsafe { mmap_anonymous(ptr::null_mut(), ROOM + PAGE, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        let this = Self { socket, room: NonNull::new(room.cast()).ok_or(Errno::NOMEM)? };
        // SAFETY: the range is the first part of the mapping just made; the last PAGE bytes stay without access.
        unsafe { mprotect(room, ROOM, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        Ok(this)
    }

    /// Runs the command that lies at the start of the memory.
    fn run(&mut self, netdev: &str) -> io::Result<()> {
        let mut ifreq = Ifreq { name: [0; uapi::IFNAMSIZ], data: self.room.as_ptr().cast(), rest: [0; 16] };
        let bytes = netdev.as_bytes();
        if bytes.len() >= uapi::IFNAMSIZ || bytes.is_empty() || bytes.contains(&0) {
            return Err(Errno::NODEV.into());
        }
        for (to, from) in ifreq.name.iter_mut().zip(bytes) {
            *to = *from;
        }
        // SAFETY: the argument is a whole `struct ifreq` whose pointer leads to a command that only reads device state
        // and answers behind it. The answer is as long as the driver pleases: it goes into a mapping of this value that
        // nothing else lies in, and ends at the latest at the guard behind it.
        unsafe { ioctl(&self.socket, Updater::<SIOCETHTOOL, Ifreq>::new(&mut ifreq)) }?;
        Ok(())
    }

    /// The words at the start of the memory.
    fn put(&mut self, words: &[u32]) {
        for (index, word) in words.iter().enumerate() {
            // SAFETY: a command has at most four words, and the mapping is aligned to a page and far larger.
            unsafe { self.room.cast::<u32>().add(index).write(*word) };
        }
    }

    fn word(&self, index: usize) -> u32 {
        // SAFETY: as in `put`; anonymous memory is initialised.
        unsafe { self.room.cast::<u32>().add(index).read() }
    }

    /// The answer's bytes from `at` on.
    fn answer(&self, at: usize, length: usize) -> io::Result<&[u8]> {
        if at.checked_add(length).is_none_or(|end| end > ROOM) {
            return Err(Errno::FAULT.into());
        }
        // SAFETY: the range lies in the accessible part of the mapping, which is initialised and which nobody writes
        // while `self` is borrowed: the kernel writes only during an ioctl, and that needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(self.room.as_ptr().add(at), length) })
    }
}

impl Drop for Ioctl {
    fn drop(&mut self) {
        // SAFETY: the whole mapping made in `open`, of which no reference is left.
        let _ = unsafe { munmap(self.room.as_ptr().cast(), ROOM + PAGE) };
    }
}

impl Statistics for Ioctl {
    fn count(&mut self, netdev: &str) -> io::Result<usize> {
        // struct ethtool_sset_info: command, reserved, a 64-bit mask of sets, a count for each set that exists.
        self.put(&[uapi::GSSET_INFO, 0, 1 << uapi::SS_STATS, 0, 0]);
        self.run(netdev)?;
        let has = self.word(2) & (1 << uapi::SS_STATS) != 0;
        if has { Ok(self.word(4) as usize) } else { Err(Errno::OPNOTSUPP.into()) }
    }

    fn names(&mut self, netdev: &str, count: usize, names: &mut Vec<Name>) -> io::Result<()> {
        names.clear();
        // struct ethtool_gstrings: command, set, length, then the names.
        self.put(&[uapi::GSTRINGS, uapi::SS_STATS, length(count)?]);
        self.run(netdev)?;
        let bytes = self.answer(12, self.word(2) as usize * uapi::GSTRING_LEN)?;
        names.extend(bytes.as_chunks().0);
        Ok(())
    }

    fn values(&mut self, netdev: &str, count: usize, values: &mut Vec<u64>) -> io::Result<()> {
        values.clear();
        // struct ethtool_stats: command, length, then the values.
        self.put(&[uapi::GSTATS, length(count)?]);
        self.run(netdev)?;
        let bytes = self.answer(8, self.word(1) as usize * 8)?;
        values.extend(bytes.as_chunks().0.iter().map(|value| u64::from_ne_bytes(*value)));
        Ok(())
    }
}

fn length(count: usize) -> io::Result<u32> {
    u32::try_from(count).ok().filter(|_| count <= MOST).ok_or_else(|| Errno::FBIG.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::files::errno_name;

    #[test]
    fn a_name_that_is_none_and_a_device_that_is_not_there_are_enodev() {
        let mut ioctl = Ioctl::open().unwrap();
        for name in ["", "a\0b", "a_name_of_sixteen", "rdmascope_none0"] {
            assert_eq!(errno_name(&ioctl.count(name).unwrap_err()), "ENODEV", "{name:?}");
        }
    }

    #[test]
    fn an_answer_longer_than_the_memory_is_an_error_and_the_page_behind_it_is_no_memory() {
        let ioctl = Ioctl::open().unwrap();
        assert!(ioctl.answer(8, ROOM - 8).is_ok());
        assert_eq!(ioctl.answer(8, ROOM).unwrap_err().raw_os_error(), Some(14));
        // The kernel itself refuses to write there, as it would refuse to write an answer that is too long.
        let guard = ioctl.room.as_ptr() as usize + ROOM;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{guard:x}-"))).expect("a mapping of its own");
        assert!(line.contains("---p"), "{line}");
    }
}
