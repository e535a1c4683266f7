//! Posts as lists: `post_send` and `post_recv` of a provider.

use core::cell::Cell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;

use aya_ebpf::helpers::generated::bpf_probe_read_user as bpf_probe_read_user_raw;
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
    let first = First { now: post.process.now, watch: owner.watch, owner: &owner, wr, beside: Cell::new((0, 0)) };
    if post.walk.step(&first) {
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
    watch: &'static pairing::Watch,
    /// Where the slot is noted by the QP's address, and what was read there.
    near: &'static AtomicU64,
    noted: u64,
}

impl Owner {
    /// Of the `ibv_qp` at an address of the current process; counts why there is none. `None` while posts are not watched.
    #[inline(always)]
    pub(super) fn of(qp: u64) -> Option<Self> {
        let watch = maps::watch().filter(|watch| atomic::load(&watch.posts) != 0)?;
        let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        // Before the look at the QP: what changes during it makes the next post look again.
        let changes = atomic::load(&watch.changes);
        let near = maps::near(qp, tgid)?;
        let noted = atomic::load(near);
        if let Some(index) = (noted as u32).checked_sub(1)
            && let Some(slot) = maps::slot(index)
            && slot.is_still_at(qp, tgid, changes)
        {
            return Some(Self { index, slot, tgid, watch, near, noted });
        }
        let Some(head) = Head::read(qp) else {
            count(|totals| &mut totals.no_qp);
            return None;
        };
        let key = SlotKey { qp, context: head.context, tgid, qpn: head.qpn };
        let Some(index) = again(noted, &key).or_else(|| slots::find_or_give(&key)) else {
            count(|totals| &mut totals.no_slot);
            return None;
        };
        let slot = maps::slot(index)?;
        if atomic::load(&slot.device) == 0 {
            slots::introduce(index, &key, head.send_cq, head.recv_cq);
        }
        if atomic::load(&slot.device) != 0 {
            atomic::store(&slot.looked, changes);
        }
        let noted = u64::from(index) + 1;
        atomic::store(near, noted);
        Some(Self { index, slot, tgid, watch, near, noted })
    }

    /// The one with this slot, in the current process.
    #[inline(always)]
    pub(super) fn with_slot(index: u32) -> Option<Self> {
        let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        let slot = maps::slot(index)?;
        let near = maps::near(atomic::load(&slot.qp), tgid)?;
        Some(Self { index, slot, tgid, watch: maps::watch()?, near, noted: 0 })
    }

    /// The last step of a post.
    #[inline(always)]
    pub(super) fn posted(&self, found: &Found, now: u64) {
        let switched = switched(self.tgid, self.index);
        if switched {
            atomic::add(&self.slot.switches, 1);
        }
        let ms = now / MS;
        if (switched || atomic::load(&self.slot.tick) != ms)
            && let Some(fan) = maps::fan(atomic::load(&self.slot.device))
        {
            fan.posted(self.slot, ms, atomic::load(&self.watch.epoch), switched);
        }
        self.slot.add(found, now);
        maps::mark(self.index);
    }
}

/// The process posted to another QP just before.
#[inline(always)]
fn switched(tgid: u32, index: u32) -> bool {
    let present = u64::from(index) + 1;
    if let Some(last) = maps::last_of(tgid) {
        let own = u64::from(tgid) << 32 | present;
        let before = atomic::load(last);
        // Looked at first: a process that stays with one QP writes nothing that its other threads read.
        if before == own {
            return false;
        }
        if before >> 32 == u64::from(tgid) {
            return atomic::swap(last, own) != own;
        }
        if before == 0 && atomic::swap_if(last, 0, own) == 0 {
            return false;
        }
    }
    // Another process has the place.
    if let Some(last) = maps::last_slot(tgid) {
        if atomic::load(last) == present {
            return false;
        }
        let before = atomic::swap(last, present);
        return before != 0 && before != present;
    }
    // When another thread was first, its QP came before this one by a hair; which of them, nobody can tell.
    if LAST_SLOT.insert(tgid, present, NOEXIST).is_err() && maps::last_slot(tgid).is_none() {
        count(|totals| &mut totals.no_process);
    }
    false
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

/// Keeps when a work request was posted that is timed, see [`take_parts`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn keep_time(index: u32, id: u64, by_order: u32, now: u64) -> u64 {
    if let Some(watch) = maps::watch() {
        let pending = pairing::Pending { t: now, epoch: atomic::load(&watch.epoch) };
        pairing::Table::put(&PENDING_TABLE, &pairing::PendingKey { id, slot: index, by_order }, &pending);
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
        read_request(at)
    }

    #[inline(always)]
    fn sge_length(&self, at: u64) -> Option<u32> {
        read_length(at)
    }

    #[inline(always)]
    fn take(&self, request: &Built) {
        take(self.index, request, self.now);
    }
}

/// The work request at an address of the current process.
#[inline(always)]
fn read_request(at: u64) -> Option<Request> {
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

/// The length in the scatter/gather element at an address of the current process.
#[inline(always)]
fn read_length(at: u64) -> Option<u32> {
    // SAFETY: the helper checks the address; `ibv_sge.length` is at 8.
    unsafe { bpf_probe_read_user(at.wrapping_add(8) as *const u32) }.ok()
}

/// The memory at the first work request of a post. Its first element mostly lies beside it, where it lay at the post before:
/// then both are read at once, since what a read costs hardly depends on its length.
struct First<'a> {
    now: u64,
    watch: &'static pairing::Watch,
    owner: &'a Owner,
    wr: u64,
    /// The address of an element that was read with the work request, and its length.
    beside: Cell<(u64, u32)>,
}

/// Words that are read at once: those from the work request on, or, where the element lies before it, those from [`BEFORE`]
/// words before it to the end of what is needed of it. More would not fit on the stack (512 bytes with all that is called).
const AT_ONCE: usize = 19;
const BEFORE: usize = 14;

/// No page is smaller than this.
const PAGE_SHIFT: u32 = 12;

impl First<'_> {
    /// Both at once, where the element was near at the post before.
    #[inline(always)]
    fn with_element(&self, at: u64) -> Option<Request> {
        let words = (self.owner.noted >> 32) as u32 as i32;
        if words == 0 {
            return None;
        }
        let before = if words < 0 { BEFORE } else { 0 };
        let begin = at.wrapping_sub(before as u64 * 8);
        // On one page, so that what is read beside what is needed is there as well.
        if begin >> PAGE_SHIFT != begin.wrapping_add(AT_ONCE as u64 * 8 - 1) >> PAGE_SHIFT {
            return None;
        }
        let mut read = MaybeUninit::<[u64; AT_ONCE]>::uninit();
        // SAFETY: the helper checks the address, and fills all of `read` where it returns 0.
        let read = unsafe {
            if bpf_probe_read_user_raw(read.as_mut_ptr().cast(), AT_ONCE as u32 * 8, begin as *const c_void) != 0 {
                return None;
            }
            read.assume_init_ref()
        };
        // Hidden from the compiler: see `Outcome::completed`.
        let element = core::hint::black_box(before.wrapping_add_signed(words as isize).wrapping_add(1));
        let (true, Some(length)) = (element < AT_ONCE, read.get(element)) else { return None };
        self.beside.set((at.wrapping_add_signed(i64::from(words) * 8), *length as u32));
        let [wr_id, next, sg_list, sge, flags] =
            if words < 0 { *read.last_chunk::<5>()? } else { *read.first_chunk::<5>()? };
        let (num_sge, opcode) = (sge as u32, (sge >> 32) as u32);
        Some(Request { wr_id, next, sg_list, num_sge, opcode, send_flags: flags as u32, reserved: 0 })
    }

    /// Notes where the element lies, for the next post.
    #[inline(always)]
    fn note(&self, sge: u64) {
        const NEAREST: i64 = -8 * BEFORE as i64;
        // The length lies in the second of its words.
        const FARTHEST: i64 = 8 * (AT_ONCE as i64 - 2);
        let by = sge.wrapping_sub(self.wr) as i64;
        let words = if by % 8 == 0 && (NEAREST..=FARTHEST).contains(&by) { by / 8 } else { 0 };
        let noted = u64::from(self.owner.index) + 1 | (words as u64) << 32;
        if noted != self.owner.noted {
            atomic::store(self.owner.near, noted);
        }
    }
}

impl Memory for First<'_> {
    #[inline(always)]
    fn request(&self, at: u64) -> Option<Request> {
        self.with_element(at).or_else(|| read_request(at))
    }

    #[inline(always)]
    fn sge_length(&self, at: u64) -> Option<u32> {
        let (beside, length) = self.beside.get();
        if beside == at && at != 0 {
            return Some(length);
        }
        self.note(at);
        read_length(at)
    }

    // As `take`, without a call: one costs as much as all these additions (docs/probe-budget.md).
    #[inline(always)]
    fn take(&self, request: &Built) {
        if let Some(wide) = maps::wide(self.owner.index) {
            wide.add(request.bytes, request.opcode);
        }
        if request.is_signaled() {
            let (slot, wr_id) = (self.owner.slot, request.wr_id);
            let order = atomic::fetch_add(&slot.signaled, 1);
            if let Some(by_order) = pairing::is_timed(slot, wr_id, order, self.watch) {
                let id = if by_order { order } else { wr_id };
                keep_time(self.owner.index, id, u32::from(by_order), self.now);
            }
        }
    }
}

/// The slot that was noted by the QP's address, if it is that QP's.
#[inline(always)]
fn again(noted: u64, key: &SlotKey) -> Option<u32> {
    let index = (noted as u32).checked_sub(1)?;
    maps::slot(index)?.is_of(key).then_some(index)
}
