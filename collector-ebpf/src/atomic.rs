//! The atomic operations the statistics need, on the host and in BPF.
//!
//! rustc takes BPF for a target without read-modify-write atomics, so `core::sync::atomic` has only loads and stores
//! there, and LLVM lowers neither of them for it. The instructions exist (kernel 5.12 and later); the compiler's intrinsics reach them.

#![cfg_attr(
    target_arch = "bpf",
    allow(unsafe_code, internal_features, reason = "the only way to the instructions; the blocks say why it is sound")
)]

use core::sync::atomic::AtomicU64;

/// Adds without ordering anything.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one instruction")]
pub fn add(counter: &AtomicU64, n: u64) {
    #[cfg(not(target_arch = "bpf"))]
    counter.fetch_add(n, core::sync::atomic::Ordering::Relaxed);
    #[cfg(target_arch = "bpf")]
    // SAFETY: the pointer comes from a reference to an atomic: valid, aligned, shared by atomic accesses alone.
    unsafe {
        use core::intrinsics::{AtomicOrdering, atomic_xadd};
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter.as_ptr(), n);
    }
}

/// Adds and gives the value before.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one instruction")]
pub fn fetch_add(counter: &AtomicU64, n: u64) -> u64 {
    #[cfg(not(target_arch = "bpf"))]
    return counter.fetch_add(n, core::sync::atomic::Ordering::SeqCst);
    #[cfg(target_arch = "bpf")]
    // SAFETY: as in `add`.
    unsafe {
        use core::intrinsics::{AtomicOrdering, atomic_xadd};
        atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter.as_ptr(), n)
    }
}

/// Exchanges; what was written before can be seen before, everywhere.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one instruction")]
pub fn swap(value: &AtomicU64, new: u64) -> u64 {
    #[cfg(not(target_arch = "bpf"))]
    return value.swap(new, core::sync::atomic::Ordering::SeqCst);
    #[cfg(target_arch = "bpf")]
    // SAFETY: as in `add`.
    unsafe {
        use core::intrinsics::{AtomicOrdering, atomic_xchg};
        atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(value.as_ptr(), new)
    }
}

/// Writes `new` where `old` is, and gives what was there.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one instruction")]
pub fn swap_if(value: &AtomicU64, old: u64, new: u64) -> u64 {
    #[cfg(not(target_arch = "bpf"))]
    return match value.compare_exchange(
        old,
        new,
        core::sync::atomic::Ordering::SeqCst,
        core::sync::atomic::Ordering::SeqCst,
    ) {
        Ok(before) | Err(before) => before,
    };
    #[cfg(target_arch = "bpf")]
    // SAFETY: as in `add`.
    unsafe {
        use core::intrinsics::{AtomicOrdering, atomic_cxchg};
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(value.as_ptr(), old, new).0
    }
}

/// Reads without ordering anything. In BPF an aligned volatile access: single words are not torn there either.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one instruction")]
#[must_use]
pub fn load(value: &AtomicU64) -> u64 {
    #[cfg(not(target_arch = "bpf"))]
    return value.load(core::sync::atomic::Ordering::Relaxed);
    #[cfg(target_arch = "bpf")]
    // SAFETY: as in `add`.
    unsafe {
        core::ptr::read_volatile(value.as_ptr())
    }
}

/// Writes without ordering anything, see [`load`].
#[inline(always)]
#[allow(clippy::inline_always, reason = "one instruction")]
pub fn store(value: &AtomicU64, new: u64) {
    #[cfg(not(target_arch = "bpf"))]
    value.store(new, core::sync::atomic::Ordering::Relaxed);
    #[cfg(target_arch = "bpf")]
    // SAFETY: as in `add`.
    unsafe {
        core::ptr::write_volatile(value.as_ptr(), new);
    }
}
