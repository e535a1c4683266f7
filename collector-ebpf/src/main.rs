//! The BPF programs. The plan is in `programs/mod.rs`; all computation is in the library beside this file.
//!
//! Built only for `bpfel-unknown-none`, by `cargo xtask build`.

#![no_std]
#![no_main]
#![allow(
    unsafe_code,
    reason = "a BPF program reads raw memory through the kernel's helpers; each block says why it is sound"
)]

mod programs;

/// A panic cannot happen: the verifier refuses programs that could reach an endless loop.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
