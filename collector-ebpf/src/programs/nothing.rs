//! Programs that do nothing: a hit with one of them costs what the trap alone costs. `cargo xtask bench probes` compares
//! the others with them; nothing else attaches them.

use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};

/// At any instruction.
#[uprobe]
fn nothing(_: ProbeContext) -> u32 {
    0
}

/// At any return.
#[uretprobe]
fn nothing_return(_: RetProbeContext) -> u32 {
    0
}
