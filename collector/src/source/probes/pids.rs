//! Whether the process ids that the programs see can be looked up here.

use std::fs;

/// The process ids the kernel gives the programs are those of this process's `/proc`: inode 4026531836 is the first pid
/// namespace (`include/linux/proc_ns.h`).
pub(super) fn own_pids() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}
