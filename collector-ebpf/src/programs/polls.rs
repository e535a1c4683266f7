//! Completions: `poll_cq` of a provider, and the operations of `ibv_cq_ex`.
//!
//! Both are watched at the entry, which knows the queue, and at the return, which knows what was found.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use collector_ebpf::atomic;
use collector_ebpf::event::{Event, has, kind};
use collector_ebpf::outcome::FLUSHED;
use collector_ebpf::pairing::{self, BROKEN, TOLD};
use collector_ebpf::slot::{ContextKey, Slot, SlotKey};

use super::maps::{self, CQS, CqKey, CqUse, NOEXIST, Poll, UNTOLD, count, report, sign};
use super::posts::PENDING_TABLE;
use super::slots;

/// Size of `ibv_wc`.
const WC: u64 = 48;

/// Completions of one poll that are read; what is above is counted as not read.
const MOST: u32 = 4096;

/// `enum ibv_wc_opcode`: receives have this bit.
const RECV: u32 = 1 << 7;

/// Where `ibv_cq_ex` keeps the present completion: `status`, and behind it `wr_id`.
const EX_STATUS: u64 = 132;

/// `int poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)`.
#[uprobe]
fn poll_cq(ctx: ProbeContext) -> u32 {
    maps::own_stack(&ctx);
    count(|totals| &mut totals.poll_hits);
    entered(ctx.arg::<u64>(0).unwrap_or(0), ctx.arg::<u64>(2).unwrap_or(0))
}

/// Returns how many completions were found, or a negative error.
#[uretprobe]
fn poll_cq_return(ctx: RetProbeContext) -> u32 {
    maps::own_stack(&ctx);
    count(|totals| &mut totals.poll_hits);
    if !maps::watches_completions() {
        return 0;
    }
    let found = ctx.ret::<u64>() as i32;
    if found <= 0 {
        count(|totals| &mut totals.empty_polls);
        return 0;
    }
    let Some(poll) = maps::poll(bpf_get_current_pid_tgid()) else { return 0 };
    let found = found as u32;
    maps::count_many(|totals| &mut totals.poll_steps, u64::from(found - 1));
    let Some(mut batch) = Batch::of(poll, found.min(MOST)) else {
        maps::count_many(|totals| &mut totals.no_completion, u64::from(found));
        return 0;
    };
    if found > MOST {
        maps::count_many(|totals| &mut totals.no_completion, u64::from(found - MOST));
    }
    // SAFETY: the callback has the signature the helper asks for, and gets the pointer to `batch` back.
    unsafe {
        aya_ebpf::helpers::generated::bpf_loop(
            batch.left,
            next_completion as *mut c_void,
            (&raw mut batch).cast::<c_void>(),
            0,
        )
    };
    0
}

/// `int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)`.
#[uprobe]
fn start_poll(ctx: ProbeContext) -> u32 {
    maps::own_stack(&ctx);
    count(|totals| &mut totals.poll_hits);
    entered(ctx.arg::<u64>(0).unwrap_or(0), 0)
}

/// `int next_poll(struct ibv_cq_ex *cq)`.
#[uprobe]
fn next_poll(ctx: ProbeContext) -> u32 {
    maps::own_stack(&ctx);
    count(|totals| &mut totals.poll_hits);
    entered(ctx.arg::<u64>(0).unwrap_or(0), 0)
}

/// Returns 0 when the queue holds a completion now.
#[uretprobe]
fn start_poll_return(ctx: RetProbeContext) -> u32 {
    found_one(&ctx)
}

/// Returns 0 when the queue holds another completion now.
#[uretprobe]
fn next_poll_return(ctx: RetProbeContext) -> u32 {
    found_one(&ctx)
}

#[inline(always)]
fn entered(cq: u64, wc: u64) -> u32 {
    maps::begin_poll(bpf_get_current_pid_tgid(), cq, wc);
    0
}

/// No slot: above every index.
const NO_SLOT: u32 = u32::MAX;

/// The completions one poll has found.
struct Batch {
    wc: u64,
    context: u64,
    now: u64,
    tgid: u32,
    left: u32,
    /// The QP and the slot of the completion before: most have the same.
    qpn: u32,
    slot: u32,
}

impl Batch {
    #[inline(always)]
    fn of(poll: &Poll, left: u32) -> Option<Self> {
        // SAFETY: the helper checks the address; `ibv_cq.context` is at 0.
        let context = unsafe { bpf_probe_read_user(poll.cq as *const u64) }.ok()?;
        // SAFETY: the helper has no precondition.
        let now = unsafe { bpf_ktime_get_ns() };
        Some(Self {
            wc: poll.wc,
            context,
            now,
            tgid: (bpf_get_current_pid_tgid() >> 32) as u32,
            left,
            qpn: 0,
            slot: NO_SLOT,
        })
    }
}

/// The callback of `bpf_loop`: 0 goes on, 1 ends.
#[inline(never)]
extern "C" fn next_completion(at: u64, batch: *mut Batch) -> i64 {
    // SAFETY: `batch` is the pointer given to `bpf_loop`; nothing else uses it until the loop has ended.
    let batch = unsafe { &mut *batch };
    // SAFETY: the helper checks the address.
    let Ok([id_low, id_high, status, opcode, vendor_err, _, _, qpn]) =
        (unsafe { bpf_probe_read_user(batch.wc as *const [u32; 8]) })
    else {
        // This one and all behind it.
        maps::count_many(|totals| &mut totals.no_completion, u64::from(batch.left).saturating_sub(at));
        return 1;
    };
    batch.wc = batch.wc.wrapping_add(WC);
    let key = SlotKey { qp: 0, context: batch.context, tgid: batch.tgid, qpn };
    let wr_id = u64::from(id_high) << 32 | u64::from(id_low);
    let completion =
        Completion { wr_id, status, vendor_err: Some(vendor_err), sent: Some(opcode & RECV == 0), now: batch.now };
    if batch.slot == NO_SLOT || batch.qpn != qpn {
        let Some(index) = owner(&key) else {
            batch.slot = NO_SLOT;
            count(|totals| &mut totals.no_owner);
            return 0;
        };
        (batch.qpn, batch.slot) = (qpn, index);
    }
    completed(batch.slot, &completion);
    0
}

/// The slot of the QP a completion names; a QP that has posted nothing (its receives come from a shared queue) gets one.
#[inline(always)]
fn owner(key: &SlotKey) -> Option<u32> {
    if let Some(index) = maps::in_context(&key.in_context()) {
        return Some(index);
    }
    let index = slots::find_or_give(key)?;
    slots::introduce(index, key, 0, 0);
    Some(index)
}

/// One completion.
struct Completion {
    wr_id: u64,
    /// `enum ibv_wc_status`.
    status: u32,
    /// `None` where it would have to be asked for.
    vendor_err: Option<u32>,
    /// It is of a send; unknown where the process would have to ask.
    sent: Option<bool>,
    now: u64,
}

#[inline(always)]
fn completed(index: u32, completion: &Completion) {
    let Some(slot) = maps::slot(index) else { return };
    atomic::add(&slot.completions, 1);
    let outcome = maps::outcome(index);
    if let Some(outcome) = outcome {
        outcome.completed(completion.status);
    }
    if completion.sent.is_none() {
        pairing::mixed(slot);
    }
    if completion.status != 0 {
        failed(slot, index, completion);
    } else if completion.sent == Some(true)
        && let Some(watch) = maps::watch()
        && let Some(ns) = pairing::completed(slot, index, completion.wr_id, completion.now, watch, &PENDING_TABLE)
        && let Some(outcome) = outcome
    {
        outcome.took(ns);
    }
    maps::mark(index);
}

/// Tells of the first error of a QP, and of the first that is no flush: the cause, where the flushes came first.
#[inline(always)]
fn failed(slot: &Slot, index: u32, completion: &Completion) {
    let first = atomic::fetch_add(&slot.errors, 1) == 0;
    pairing::forget(index, completion.wr_id, &PENDING_TABLE);
    let pairing = atomic::load(&slot.pairing);
    let cause = completion.status != FLUSHED && pairing & TOLD == 0;
    if first || cause {
        let told = if completion.status == FLUSHED { 0 } else { TOLD };
        atomic::store(&slot.pairing, pairing | BROKEN | told);
        let vendor_err = completion.vendor_err.map_or(UNASKED, u64::from);
        tell(index, completion.status, vendor_err, completion.now);
    }
}

/// No [`Completion::vendor_err`], for [`tell`]: above every code there is.
const UNASKED: u64 = 1 << 32;

/// Tells of an error completion of the QP with the slot `index`.
///
/// A function of its own, with numbers alone as its arguments: the event is half of what the programs may have on their
/// stacks, and beside it there is no room for those of the functions that make a slot (512 bytes in all; 6.1 counts more
/// of a call chain that begins in a callback than 6.12 does).
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn tell(index: u32, status: u32, vendor_err: u64, now: u64) -> u64 {
    let Some(slot) = maps::slot(index) else { return 0 };
    let mut event = Event::new(kind::COMPLETION, now);
    sign(&mut event);
    event.qpn = slot.qpn();
    event.slot = index;
    event.has = has::QPN | has::SLOT | has::USER;
    event.status = status;
    if vendor_err < UNASKED {
        event.code = vendor_err as u32;
        event.has |= has::VENDOR_ERR;
    }
    if let Some(name) = maps::name(atomic::load(&slot.device)) {
        event.device = *name;
    }
    report(&event);
    0
}

/// A queue of `ibv_cq_ex` holds a completion. Which QP it belongs to is known only by a call the process may or may not
/// make, so it is attributed where one QP alone uses the queue.
#[inline(always)]
fn found_one(ctx: &RetProbeContext) -> u32 {
    maps::own_stack(ctx);
    count(|totals| &mut totals.poll_hits);
    if !maps::watches_completions() {
        return 0;
    }
    if ctx.ret::<u64>() as i32 != 0 {
        count(|totals| &mut totals.empty_polls);
        return 0;
    }
    let task = bpf_get_current_pid_tgid();
    let Some(poll) = maps::poll(task) else { return 0 };
    let cq = poll.cq;
    // SAFETY: the helper checks the address.
    let Ok([status, id_low, id_high]) = (unsafe { bpf_probe_read_user(cq.wrapping_add(EX_STATUS) as *const [u32; 3]) })
    else {
        count(|totals| &mut totals.no_completion);
        return 0;
    };
    // SAFETY: the value is copied at once.
    let used = unsafe { CQS.get(CqKey { cq, tgid: task >> 32 }) }.copied();
    let Some(CqUse { context, qpn, role }) = used.filter(CqUse::is_one_qp) else {
        // From here on nobody knows how many completions the QPs of this process have had.
        let _ = UNTOLD.insert((task >> 32) as u32, 1_u8, NOEXIST);
        count(|totals| &mut totals.no_owner);
        return 0;
    };
    let key = ContextKey { context, tgid: (task >> 32) as u32, qpn };
    let Some(index) = maps::in_context(&key) else {
        count(|totals| &mut totals.no_owner);
        return 0;
    };
    let wr_id = u64::from(id_high) << 32 | u64::from(id_low);
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    let sent = match role & (CqUse::SENDS | CqUse::RECEIVES) {
        CqUse::SENDS => Some(true),
        CqUse::RECEIVES => Some(false),
        _ => None,
    };
    completed(index, &Completion { wr_id, status, vendor_err: None, sent, now });
    0
}
