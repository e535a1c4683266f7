//! Posts as lists: `post_send` and `post_recv` of a provider.

use core::ffi::c_void;
use core::sync::atomic::AtomicU64;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use collector_ebpf::atomic;
use collector_ebpf::batch::Built;
use collector_ebpf::pairing;
use collector_ebpf::slot::{Slot, SlotKey};
use collector_ebpf::walk::{ALL_STEPS, Found, Memory, REQUEST_LEN, Request, Walk};

use super::maps::{self, LAST_SLOT, NOEXIST, PENDING, count};
use super::slots::{self, Head};

/// Where `ibv_recv_wr` keeps the address of the next one.
const RECV_NEXT: u64 = 8;

/// Receive work requests of one list that are counted; an RC receive queue holds 32,768 at most on the hardware of today.
const MOST_RECEIVES: u32 = 40_960;

/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

/// `int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)`.
///
/// Counts what the process asks for; a work request that the provider then refuses is counted too.
#[uprobe]
fn post_send(ctx: ProbeContext) -> u32 {
    maps::own_stack(&ctx);
    count(|totals| &mut totals.hits);
    let Some(owner) = Owner::of(ctx.arg::<u64>(0).unwrap_or(0)) else { return 0 };
    let wr = ctx.arg::<u64>(1).unwrap_or(0);
    let mut post = Post { walk: Walk::new(wr, maps::unknown_zero()), process: Process::of(&owner) };
    // The first step, which is all there is to most posts, without the loop's calls.
    if post.walk.step(&post.process) {
        // SAFETY: the callback has the signature the helper asks for, and gets the pointer to `post` back.
        unsafe {
            aya_ebpf::helpers::generated::bpf_loop(
                ALL_STEPS - 1,
                next_step as *mut c_void,
                (&raw mut post).cast::<c_void>(),
                0,
            )
        };
        maps::count_many(|totals| &mut totals.post_steps, post.walk.more_steps());
    }
    owner.posted(&post.walk.found, post.process.now);
    0
}

/// `int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)`.
#[uprobe]
fn post_recv(ctx: ProbeContext) -> u32 {
    maps::own_stack(&ctx);
    count(|totals| &mut totals.hits);
    let Some(owner) = Owner::of(ctx.arg::<u64>(0).unwrap_or(0)) else { return 0 };
    // Not a 0 the verifier knows: it would look at every length of a list by itself.
    let mut list = Receives { wr: ctx.arg::<u64>(1).unwrap_or(0), n: u64::from(maps::unknown_zero()) };
    // SAFETY: as in `post_send`.
    unsafe {
        aya_ebpf::helpers::generated::bpf_loop(
            MOST_RECEIVES,
            next_receive as *mut c_void,
            (&raw mut list).cast::<c_void>(),
            0,
        )
    };
    maps::count_many(|totals| &mut totals.post_steps, list.n.saturating_sub(1));
    atomic::add(&owner.slot.recv_wrs, list.n);
    maps::mark(owner.index);
    0
}

/// The QP of a post, with its slot.
pub(super) struct Owner {
    pub(super) index: u32,
    pub(super) slot: &'static Slot,
    tgid: u32,
    /// The process's entry in `LAST_SLOT`, if it has one.
    last: Option<&'static AtomicU64>,
}

impl Owner {
    /// Of the `ibv_qp` at an address of the current process; counts why there is none. `None` while posts are not watched.
    #[inline(always)]
    pub(super) fn of(qp: u64) -> Option<Self> {
        if !maps::watches_posts() {
            return None;
        }
        let Some(head) = Head::read(qp) else {
            count(|totals| &mut totals.no_qp);
            return None;
        };
        let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        let key = SlotKey { qp, context: head.context, tgid, qpn: head.qpn };
        let last = maps::last_slot(tgid);
        let Some(index) = last.and_then(|last| again(last, &key)).or_else(|| slots::find_or_give(&key)) else {
            count(|totals| &mut totals.no_slot);
            return None;
        };
        let slot = maps::slot(index)?;
        if atomic::load(&slot.device) == 0 {
            slots::introduce(index, &key, Some(&head));
        }
        Some(Self { index, slot, tgid, last })
    }

    /// The one with this slot, in the current process.
    #[inline(always)]
    pub(super) fn with_slot(index: u32) -> Option<Self> {
        let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        Some(Self { index, slot: maps::slot(index)?, tgid, last: maps::last_slot(tgid) })
    }

    /// The last step of a post.
    #[inline(always)]
    pub(super) fn posted(&self, found: &Found, now: u64) {
        let switched = self.switched();
        if switched {
            atomic::add(&self.slot.switches, 1);
        }
        let ms = now / MS;
        if (switched || atomic::load(&self.slot.tick) != ms)
            && let Some(fan) = maps::fan(atomic::load(&self.slot.device))
            && let Some(watch) = maps::watch()
        {
            fan.posted(self.slot, ms, atomic::load(&watch.epoch), switched);
        }
        self.slot.add(found, now);
        maps::mark(self.index);
    }

    /// The process posted to another QP just before.
    #[inline(always)]
    fn switched(&self) -> bool {
        let present = u64::from(self.index) + 1;
        if let Some(last) = self.last {
            // Looked at first: a process that stays with one QP writes nothing that its other threads read.
            if atomic::load(last) == present {
                return false;
            }
            let before = atomic::swap(last, present);
            return before != 0 && before != present;
        }
        // When another thread was first, its QP came before this one by a hair; which of them, nobody can tell.
        if LAST_SLOT.insert(self.tgid, present, NOEXIST).is_err() && maps::last_slot(self.tgid).is_none() {
            count(|totals| &mut totals.no_process);
        }
        false
    }
}

/// Counts one work request of the QP with the slot `index`: in the histograms, and among the signalled ones.
#[inline(always)]
pub(super) fn take(index: u32, built: &Built, now: u64) {
    take_parts(index, built.wr_id, built.bytes, u64::from(built.flags) << 32 | u64::from(built.opcode), now);
}

/// Global, with numbers alone as its arguments: the verifier looks at such a function once, not on every way to each of its
/// calls, which are in loops.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_parts(index: u32, wr_id: u64, bytes: u64, flags_and_opcode: u64, now: u64) -> u64 {
    let (flags, opcode) = ((flags_and_opcode >> 32) as u32, flags_and_opcode as u32);
    if let Some(wide) = maps::wide(index) {
        wide.add(bytes, opcode);
    }
    if (Built { wr_id, bytes, opcode, flags }).is_signaled()
        && let (Some(slot), Some(watch)) = (maps::slot(index), maps::watch())
    {
        let order = atomic::fetch_add(&slot.signaled, 1);
        pairing::posted(slot, index, wr_id, order, now, watch, &PENDING_TABLE);
    }
    0
}

/// Timed work requests, as the pairing sees them.
pub(super) struct Timed;
/// The one there is.
pub(super) const PENDING_TABLE: Timed = Timed;

impl pairing::Table for Timed {
    #[inline(always)]
    fn put(&self, key: &pairing::PendingKey, pending: &pairing::Pending) {
        // A table that is full gives up its oldest entry: that request is not timed.
        let _ = PENDING.insert(key, pending, 0);
    }

    #[inline(always)]
    fn take(&self, key: &pairing::PendingKey) -> Option<pairing::Pending> {
        // SAFETY: the value is copied at once.
        let pending = *unsafe { PENDING.get(key) }?;
        let _ = PENDING.remove(key);
        Some(pending)
    }
}

/// A walk and the memory it walks in.
struct Post {
    walk: Walk,
    process: Process,
}

/// The callback of `bpf_loop`: 0 goes on, 1 ends.
#[inline(never)]
extern "C" fn next_step(_: u64, post: *mut Post) -> i64 {
    // SAFETY: `post` is the pointer given to `bpf_loop`; nothing else uses it until the loop has ended.
    let post = unsafe { &mut *post };
    i64::from(!post.walk.step(&post.process))
}

/// A list of receive work requests.
struct Receives {
    wr: u64,
    n: u64,
}

impl Receives {
    #[inline(always)]
    fn step(&mut self) -> bool {
        if self.wr == 0 {
            return false;
        }
        // SAFETY: the helper checks the address.
        match unsafe { bpf_probe_read_user(self.wr.wrapping_add(RECV_NEXT) as *const u64) } {
            Ok(next) => {
                self.n += 1;
                self.wr = next;
                next != 0
            }
            Err(_) => false,
        }
    }
}

/// The callback of `bpf_loop`: 0 goes on, 1 ends.
#[inline(never)]
extern "C" fn next_receive(_: u64, list: *mut Receives) -> i64 {
    // SAFETY: `list` is the pointer given to `bpf_loop`; nothing else uses it until the loop has ended.
    let list = unsafe { &mut *list };
    i64::from(!list.step())
}

/// The memory of the current process, and where what is found in it is counted.
struct Process {
    index: u32,
    now: u64,
}

impl Process {
    #[inline(always)]
    fn of(owner: &Owner) -> Self {
        // SAFETY: the helper has no precondition.
        Self { index: owner.index, now: unsafe { bpf_ktime_get_ns() } }
    }
}

impl Memory for Process {
    #[inline(always)]
    fn request(&self, at: u64) -> Option<Request> {
        const { assert!(REQUEST_LEN == 36 && size_of::<[u32; 9]>() == REQUEST_LEN) };
        // SAFETY: the helper checks the address.
        let [id_low, id_high, next_low, next_high, list_low, list_high, num_sge, opcode, send_flags] =
            unsafe { bpf_probe_read_user(at as *const [u32; 9]) }.ok()?;
        let wide = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Some(Request {
            wr_id: wide(id_low, id_high),
            next: wide(next_low, next_high),
            sg_list: wide(list_low, list_high),
            num_sge,
            opcode,
            send_flags,
            reserved: 0,
        })
    }

    #[inline(always)]
    fn sge_length(&self, at: u64) -> Option<u32> {
        // SAFETY: the helper checks the address; `ibv_sge.length` is at 8.
        unsafe { bpf_probe_read_user(at.wrapping_add(8) as *const u32) }.ok()
    }

    #[inline(always)]
    fn take(&self, request: &Built) {
        take(self.index, request, self.now);
    }
}

/// The slot of the process's last post, if that was to the same QP.
#[inline(always)]
fn again(last: &AtomicU64, key: &SlotKey) -> Option<u32> {
    let index = (atomic::load(last) as u32).checked_sub(1)?;
    maps::slot(index)?.is_of(key).then_some(index)
}
