//! The statistics of one QP, and the small keys and counters around them.
//!
//! A slot is three cache lines: who it is, what was posted, what was completed. The histograms lie in two more arrays
//! ([`Wide`], and [`Outcome`](crate::outcome::Outcome)) that may be shorter than the first; another array holds one byte
//! per slot that says whether the slot changed since the last sweep, so that a sweep touches only slots in use. Every
//! counter is changed by atomic additions alone, because two threads may post to one QP at once.

use core::sync::atomic::AtomicU64;

use crate::{atomic, pairing};

/// Length of a device's name, in the kernel (`IB_DEVICE_NAME_MAX`) and in libibverbs (`IBV_SYSFS_NAME_MAX`).
pub const NAME_LEN: usize = 64;

/// Buckets of the size histogram: a message is at most 2^31 bytes.
pub const SIZES: usize = 32;

/// Opcodes told apart; `enum ibv_wr_opcode` ends at 15 (`IBV_WR_ATOMIC_WRITE`).
pub const OPCODES: usize = LAST_OPCODE as usize + 1;

/// The last of them; its counter also takes what is above.
const LAST_OPCODE: u32 = 15;

/// Marks that share one element of the array of marks: elements of a BPF array are 8 bytes at least, marks are one.
pub const MARKS_PER_BLOCK: u32 = 64;

/// Places for processes whose last QP is found without a hash; a power of two.
pub const LAST_PLACES: u32 = 1 << 12;

/// A device's name, zero-filled.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name(pub [u8; NAME_LEN]);

impl Name {
    /// No name.
    pub const EMPTY: Self = Self([0; NAME_LEN]);

    /// A number that stands for the name in keys; never 0, which means that the name has not been read yet.
    #[must_use]
    pub fn id(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let (words, _) = self.0.as_chunks::<8>();
        for word in words {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        if hash == 0 { 1 } else { hash }
    }

    /// The bytes before the first zero.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(NAME_LEN);
        self.0.get(..end).unwrap_or(&self.0)
    }
}

/// The bucket of a size: bucket i counts [2^i, 2^(i+1)), bucket 0 also 0, the last one everything above.
#[must_use]
pub const fn size_class(bytes: u64) -> usize {
    let class = 63 - (bytes | 1).leading_zeros() as usize;
    if class < SIZES { class } else { SIZES - 1 }
}

/// What tells one QP of one process from another. The QP's address alone is not enough: the allocator gives the same
/// address to the next QP; its number alone is not either: two devices give out the same numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SlotKey {
    /// Address of the `ibv_qp` in the process.
    pub qp: u64,
    /// Address of its `ibv_context`.
    pub context: u64,
    /// Process.
    pub tgid: u32,
    /// QP number.
    pub qpn: u32,
}

/// A QP as a completion knows it: a completion tells the number, and its queue the context.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ContextKey {
    /// Address of the `ibv_context` in the process.
    pub context: u64,
    /// Process.
    pub tgid: u32,
    /// QP number.
    pub qpn: u32,
}

impl SlotKey {
    /// The same QP as completions know it.
    #[must_use]
    pub const fn in_context(&self) -> ContextKey {
        ContextKey { context: self.context, tgid: self.tgid, qpn: self.qpn }
    }
}

/// A QP as the kernel knows it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct QpKey {
    /// [`Name::id`] of the device.
    pub device: u64,
    /// QP number.
    pub qpn: u64,
}

/// What a slot is used for, [`Slot::state`].
pub mod state {
    /// Nothing.
    pub const FREE: u64 = 0;
    /// A QP that is in use.
    pub const LIVE: u64 = 1;
    /// A QP that has been destroyed; user space takes the last numbers and frees the slot.
    pub const RETIRED: u64 = 2;
}

/// One QP: who it is, and its counters. (All of it 64 bits wide: rustc has no 32-bit atomics for BPF.)
#[repr(C)]
#[derive(Debug, Default)]
pub struct Slot {
    /// Address of the `ibv_qp` in the process; 0 when the QP is known by its completions alone (it has posted nothing
    /// yet, and what it receives was posted to a shared receive queue).
    pub qp: AtomicU64,
    /// Address of its `ibv_context`.
    pub context: AtomicU64,
    /// [`Name::id`] of the device's name as the process knows it; 0 until it could be read.
    pub device: AtomicU64,
    /// `CLOCK_MONOTONIC` ns of the first post or completion that was seen.
    pub created: AtomicU64,
    /// Process and QP number, see [`who`].
    pub who: AtomicU64,
    /// [`Watch::changes`](crate::pairing::Watch::changes) at the last look at the `ibv_qp` itself; 0 before the first one.
    pub looked: AtomicU64,
    /// One of [`state`].
    pub state: AtomicU64,
    /// `CLOCK_MONOTONIC` ns at which the kernel created the QP; 0 when that was not seen.
    pub born: AtomicU64,
    /// `post_send` calls.
    pub posts: AtomicU64,
    /// Work requests in those calls.
    pub wrs: AtomicU64,
    /// Bytes of those work requests.
    pub bytes: AtomicU64,
    /// Work requests with `IBV_SEND_SIGNALED`.
    pub signaled: AtomicU64,
    /// Posts that came right after a post of the same process to another QP.
    pub switches: AtomicU64,
    /// Work requests that were counted in none of the other numbers: their list was too long.
    pub truncated: AtomicU64,
    /// Lists with a part that could not be read: what follows it is in none of the other numbers.
    pub unread: AtomicU64,
    /// `CLOCK_MONOTONIC` ns of the last post.
    pub last_post: AtomicU64,
    /// Completions polled, of sends and receives, those with an error among them.
    pub completions: AtomicU64,
    /// Completions with an error.
    pub errors: AtomicU64,
    /// Successful completions of sends: what latency is measured on where work requests share one id.
    pub sent: AtomicU64,
    /// Receive work requests posted to the QP's own receive queue.
    pub recv_wrs: AtomicU64,
    /// `wr_id` of the last signalled work request.
    pub last_wr_id: AtomicU64,
    /// How posts and completions are paired, bits of [`crate::pairing`].
    pub pairing: AtomicU64,
    /// Millisecond (`CLOCK_MONOTONIC`) of the last post.
    pub tick: AtomicU64,
    /// Switches between QPs on the device at the QP's last post.
    pub turn: AtomicU64,
}

/// [`Slot::who`]: the process in the upper half, the QP number in the lower one.
#[must_use]
pub const fn who(tgid: u32, qpn: u32) -> u64 {
    (tgid as u64) << 32 | qpn as u64
}

const _: () = assert!(size_of::<Slot>() == 192, "a slot is three cache lines");

impl Slot {
    /// It is that of this QP, which has not been destroyed.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
    pub fn is_of(&self, key: &SlotKey) -> bool {
        atomic::load(&self.qp) == key.qp
            && atomic::load(&self.context) == key.context
            && atomic::load(&self.who) == who(key.tgid, key.qpn)
            && atomic::load(&self.state) == state::LIVE
    }

    /// It is that of the QP at this address of the process, and that QP is still the one that was looked at: no QP has been
    /// made, changed or destroyed since. `changes` was read before.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
    pub fn is_still_at(&self, qp: u64, tgid: u32, changes: u64) -> bool {
        changes & pairing::FOLLOWED != 0
            && atomic::load(&self.looked) == changes
            && atomic::load(&self.qp) == qp
            && atomic::load(&self.who) >> 32 == u64::from(tgid)
            && atomic::load(&self.state) == state::LIVE
    }

    /// The process.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the upper half")]
    pub fn tgid(&self) -> u32 {
        (atomic::load(&self.who) >> 32) as u32
    }

    /// The QP number.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
    pub fn qpn(&self) -> u32 {
        atomic::load(&self.who) as u32
    }

    /// Adds what a walk found, as the last step of one post.
    pub fn add(&self, found: &crate::walk::Found, now: u64) {
        atomic::add(&self.posts, 1);
        atomic::add(&self.wrs, found.wrs);
        atomic::add(&self.bytes, found.bytes);
        if found.truncated != 0 {
            atomic::add(&self.truncated, found.truncated);
        }
        if found.unread != 0 {
            atomic::add(&self.unread, found.unread);
        }
        // An exchange is a full barrier in BPF, an addition is not: the mark is looked at only after all of the above
        // can be seen (see `marks` in the programs).
        atomic::swap(&self.last_post, now);
    }
}

/// The histograms of one QP.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Wide {
    /// Work requests by size, see [`size_class`].
    pub size_log2: [AtomicU64; SIZES],
    /// Work requests by opcode; opcodes above the last one are counted in it.
    pub opcodes: [AtomicU64; OPCODES],
}

impl Wide {
    /// Adds one work request.
    pub fn add(&self, bytes: u64, opcode: u32) {
        // The masks change nothing: both indices are below the lengths, which are powers of two. They are for the
        // kernel's verifier, which cannot follow how the logarithm is computed; the compiler can, and would drop them.
        let class = core::hint::black_box(size_class(bytes)) & (SIZES - 1);
        if let Some(count) = self.size_log2.get(class) {
            atomic::add(count, 1);
        }
        let opcode = core::hint::black_box(opcode.min(LAST_OPCODE)) as usize & (OPCODES - 1);
        if let Some(count) = self.opcodes.get(opcode) {
            atomic::add(count, 1);
        }
    }
}

/// What the programs count for themselves, per CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Hits of the probes on posting functions.
    pub hits: u64,
    /// Hits of the probes on polling functions, entries and returns.
    pub poll_hits: u64,
    /// Work requests, receives and elements beyond the first of a hit: what hits of posting functions took beside what
    /// each takes.
    pub post_steps: u64,
    /// Completions beyond the first of a poll.
    pub poll_steps: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
    /// Completions that belong to no QP that is known: they are in no statistics.
    pub no_owner: u64,
    /// Completions that could not be read from the process's memory: they are in no statistics.
    pub no_completion: u64,
    /// Lists of work requests that began to be built and could not be kept track of.
    pub no_batch: u64,
    /// Posts that found no free slot: they are in no statistics.
    pub no_slot: u64,
    /// Posts whose QP could not be read from the process's memory: they are in no statistics.
    pub no_qp: u64,
    /// First posts whose device name could not be read, or not be kept.
    pub no_name: u64,
    /// Posts whose process has no entry for its last QP: switches are not counted for it.
    pub no_process: u64,
    /// Slots that could not be given back.
    pub leaked: u64,
    /// Rare events that found the ring buffer full.
    pub lost: u64,
    /// Rare events that were given up because the kernel's memory could not be read.
    pub unreadable: u64,
    /// Calls that found no room for what was known at their entry.
    pub no_call: u64,
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;
    use crate::walk::Found;

    fn name(text: &str) -> Name {
        let mut name = Name::EMPTY;
        name.0[..text.len()].copy_from_slice(text.as_bytes());
        name
    }

    #[test]
    fn sizes_fall_into_the_bucket_of_their_highest_bit() {
        for (bytes, class) in [(0, 0), (1, 0), (2, 1), (3, 1), (4095, 11), (4096, 12), (1 << 31, 31), (u64::MAX, 31)] {
            assert_eq!(size_class(bytes), class, "{bytes}");
        }
    }

    #[test]
    fn names_that_differ_anywhere_have_different_ids() {
        let long = "a".repeat(NAME_LEN);
        let ids = ["rxea", "rxeb", "mlx5_0", "mlx5_10", "mlx5_1", "", &long, &long[1..]].map(|n| name(n).id());
        for (i, id) in ids.iter().enumerate() {
            assert_ne!(*id, 0);
            assert!(!ids[..i].contains(id), "the id of name {i} is not its own");
        }
    }

    #[test]
    fn a_name_ends_at_the_first_zero() {
        assert_eq!(name("mlx5_0").bytes(), b"mlx5_0");
        assert_eq!(name(&"x".repeat(NAME_LEN)).bytes().len(), NAME_LEN);
    }

    #[test]
    fn a_post_adds_all_it_found() {
        let slot = Slot::default();
        let found = Found { wrs: 3, bytes: 300, truncated: 2, unread: 1 };
        slot.add(&found, 5);
        slot.add(&found, 9);
        let read = |v: &AtomicU64| v.load(Ordering::Relaxed);
        assert_eq!([read(&slot.posts), read(&slot.wrs), read(&slot.bytes)], [2, 6, 600]);
        assert_eq!([read(&slot.truncated), read(&slot.unread)], [4, 2]);
        assert_eq!(read(&slot.last_post), 9);
    }

    #[test]
    fn a_slot_is_found_by_the_address_alone_only_while_no_qp_has_changed() {
        let slot = Slot::default();
        let seen = 4 | pairing::FOLLOWED;
        for (field, value) in [(&slot.qp, 0x1000), (&slot.who, who(7, 9)), (&slot.state, state::LIVE)] {
            field.store(value, Ordering::Relaxed);
        }
        assert!(!slot.is_still_at(0x1000, 7, 0), "nobody follows, and nobody has looked");
        slot.looked.store(seen, Ordering::Relaxed);
        assert!(slot.is_still_at(0x1000, 7, seen));
        assert!(!slot.is_still_at(0x1000, 7, seen + pairing::CHANGE), "a QP has changed since");
        assert!(!slot.is_still_at(0x2000, 7, seen), "another address");
        assert!(!slot.is_still_at(0x1000, 8, seen), "another process");
        slot.state.store(state::RETIRED, Ordering::Relaxed);
        assert!(!slot.is_still_at(0x1000, 7, seen), "it was destroyed");
        assert_eq!((slot.tgid(), slot.qpn()), (7, 9));
    }

    #[test]
    fn an_unknown_opcode_is_counted_as_the_last_one() {
        let wide = Wide::default();
        wide.add(4096, 0);
        wide.add(4097, u32::MAX);
        assert_eq!(wide.size_log2[12].load(Ordering::Relaxed), 2);
        assert_eq!(wide.opcodes[0].load(Ordering::Relaxed), 1);
        assert_eq!(wide.opcodes[OPCODES - 1].load(Ordering::Relaxed), 1);
    }
}
