//! BPF arrays mapped into this process: read and cleared without a system call per element.

#![allow(unsafe_code, reason = "the mapping is reached through a raw pointer; each block says why it is sound")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use collector_ebpf::outcome::Outcome;
use collector_ebpf::pairing::Watch;
use collector_ebpf::slot::{Slot, Wide};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Types made of atomics alone, for which all-zero bytes and any other bytes are valid.
pub(super) trait Shared {}
impl Shared for Slot {}
impl Shared for Wide {}
impl Shared for Outcome {}
impl Shared for Watch {}
impl Shared for AtomicU64 {}

/// A BPF array of `T`, made with `BPF_F_MMAPABLE`.
pub(super) struct Mapped<T> {
    base: NonNull<T>,
    len: usize,
    bytes: usize,
    element: PhantomData<T>,
}

// SAFETY: the mapping belongs to the whole process, and its elements are atomics.
unsafe impl<T: Shared> Send for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    /// Maps the first `len` elements of an array map.
    pub(super) fn new(map: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let bytes = (len * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        // SAFETY: a fresh mapping at an address of the kernel's choice. A BPF array cannot shrink.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, map.as_fd(), 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, len, bytes, element: PhantomData })
    }

    /// One element.
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: `index` is inside the mapping, which lives as long as `self`; the kernel changes the elements only by
        // whole words, and `T` is made of atomics.
        (index < self.len).then(|| unsafe { self.base.add(index).as_ref() })
    }

    /// All elements.
    pub(super) fn all(&self) -> &[T] {
        // SAFETY: as in `get`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
