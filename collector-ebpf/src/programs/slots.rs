//! Slots: found, given out at the first post or completion of a QP, retired when the QP is destroyed.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::bpf_probe_read_user as bpf_probe_read_user_raw;
use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_user, bpf_probe_read_user_str_bytes,
};
use collector_ebpf::atomic;
use collector_ebpf::slot::{Name, QpKey, SlotKey, state, who};

use super::maps::{self, BORN, BY_CONTEXT, BY_QPN, CQS, CqKey, CqUse, FREED, NAMES, NOEXIST, SLOT_OF, count};

/// `ibv_qp` up to and including `qp_num` (LP64 layout of rdma-core's verbs.h).
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) context: u64,
    /// `qp_context` and `pd`.
    skipped: [u64; 2],
    pub(super) send_cq: u64,
    pub(super) recv_cq: u64,
    srq: u64,
    handle: u32,
    pub(super) qpn: u32,
}

const _: () = assert!(size_of::<Head>() == 56, "qp_num lies at 52");

impl Head {
    /// The `ibv_qp` at an address of the current process.
    #[inline(always)]
    pub(super) fn read(qp: u64) -> Option<Self> {
        let mut head = MaybeUninit::<Self>::uninit();
        // SAFETY: the helper checks the address, and fills it where it returns 0; every bit pattern is valid.
        unsafe {
            let read = bpf_probe_read_user_raw(head.as_mut_ptr().cast(), size_of::<Self>() as u32, qp as *const c_void);
            (read == 0).then(|| head.assume_init())
        }
    }
}

/// `ibv_device.name`.
const DEVICE_NAME: u64 = 24;

/// The slot of a process's QP; a new one when it has none.
#[inline(always)]
pub(super) fn find_or_give(key: &SlotKey) -> Option<u32> {
    // SAFETY: the value is copied at once.
    if let Some(index) = unsafe { SLOT_OF.get(key) } {
        return Some(*index);
    }
    give(key)
}

/// Gives a slot to a QP. When another CPU does the same for the same QP at the same time, both end up with one slot.
fn give(key: &SlotKey) -> Option<u32> {
    let index = match FREED.pop() {
        Ok(Some(index)) => index,
        _ => maps::fresh_slot()?,
    };
    let slot = maps::slot(index)?;
    atomic::store(&slot.qp, key.qp);
    atomic::store(&slot.context, key.context);
    atomic::store(&slot.who, who(key.tgid, key.qpn));
    atomic::store(&slot.looked, 0);
    atomic::store(&slot.device, 0);
    // SAFETY: the helper has no precondition.
    atomic::store(&slot.created, unsafe { bpf_ktime_get_ns() });
    atomic::store(&slot.state, state::LIVE);
    if SLOT_OF.insert(key, index, NOEXIST).is_ok() {
        // A QP that was known by its completions alone until now: from here on they are counted here.
        if BY_CONTEXT.insert(key.in_context(), index, 0).is_err() {
            count(|totals| &mut totals.no_name);
        }
        return Some(index);
    }
    // Another CPU was first, or the map is full. This slot has counted nothing yet.
    atomic::store(&slot.state, state::FREE);
    if FREED.push(index, 0).is_err() {
        count(|totals| &mut totals.leaked);
    }
    // SAFETY: the value is copied at once.
    unsafe { SLOT_OF.get(key) }.copied()
}

/// Notes which device a slot belongs to, so that a destroy call finds the slot, when its QP was created, and which queues
/// its completions go to: `send_cq` and `recv_cq`, 0 where they are not known.
pub(super) fn introduce(index: u32, key: &SlotKey, send_cq: u64, recv_cq: u64) {
    let Some(slot) = maps::slot(index) else { return };
    let mut name = MaybeUninit::uninit();
    let name = empty(&mut name);
    if !read_device_name(key.context, name) {
        return count(|totals| &mut totals.no_name);
    }
    let device = name.id();
    // It is there already for all QPs of a device but the first.
    if NAMES.get_ptr(device).is_none() && NAMES.insert(device, &*name, 0).is_err() {
        count(|totals| &mut totals.no_name);
    }
    let by_qpn = QpKey { device, qpn: u64::from(key.qpn) };
    if BY_QPN.insert(by_qpn, index, 0).is_err() {
        count(|totals| &mut totals.no_name);
    }
    // SAFETY: the value is copied at once.
    if let Some(born) = unsafe { BORN.get(by_qpn) } {
        atomic::store(&slot.born, *born);
    }
    for (cq, role) in [(send_cq, CqUse::SENDS), (recv_cq, CqUse::RECEIVES)] {
        if cq != 0 {
            uses(key, device, cq, role | CqUse::WATCHED);
        }
    }
    atomic::store(&slot.device, device);
}

/// Notes which queues the completions of a QP go to that need not have posted yet.
#[inline(always)]
pub(super) fn queues(qp: u64, head: &Head) {
    let mut name = MaybeUninit::uninit();
    let name = empty(&mut name);
    if !read_device_name(head.context, name) {
        return;
    }
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let key = SlotKey { qp, context: head.context, tgid, qpn: head.qpn };
    let device = name.id();
    let watched = if was_born(device, head.qpn) { CqUse::WATCHED } else { 0 };
    uses(&key, device, head.send_cq, CqUse::SENDS | watched);
    uses(&key, device, head.recv_cq, CqUse::RECEIVES | watched);
}

/// The kernel created the QP before our eyes, and it is still there.
#[inline(always)]
fn was_born(device: u64, qpn: u32) -> bool {
    BORN.get_ptr(QpKey { device, qpn: u64::from(qpn) }).is_some()
}

/// The QP whose completions a queue was known to hold is still there, or its end would not have been seen. Queues belong
/// to one context, so it is on the same device.
#[inline(always)]
fn is_alive(before: &CqUse, device: u64, tgid: u32) -> bool {
    if before.role & CqUse::WATCHED == 0 || was_born(device, before.qpn) {
        return true;
    }
    let slot = maps::in_context(&before.key(tgid)).and_then(maps::slot);
    slot.is_some_and(|slot| atomic::load(&slot.state) == state::LIVE)
}

/// Notes that a QP's completions go to a queue.
#[inline(always)]
fn uses(key: &SlotKey, device: u64, cq: u64, role: u32) {
    let cq = CqKey { cq, tgid: u64::from(key.tgid) };
    let mut present = CqUse { context: key.context, qpn: key.qpn, role };
    // SAFETY: the value is copied at once.
    if let Some(before) = unsafe { CQS.get(cq) }.copied() {
        if before.context == key.context && before.qpn == key.qpn {
            present.role |= before.role;
        } else if !before.is_one_qp() || is_alive(&before, device, key.tgid) {
            present.role = CqUse::MANY;
        }
    }
    // Without it, completions of an extended queue find no owner, which is counted there.
    let _ = CQS.insert(cq, present, 0);
}

/// No name, written word by word: otherwise by a call, for which there is no room on the stack of 6.1.
#[inline(always)]
fn empty(name: &mut MaybeUninit<Name>) -> &mut Name {
    let words = name.as_mut_ptr().cast::<u64>();
    for i in 0..size_of::<Name>() / 8 {
        // SAFETY: it lies in `name`, which is aligned for it.
        unsafe { words.add(i).write_volatile(0) };
    }
    // SAFETY: all of it was written.
    unsafe { name.assume_init_mut() }
}

/// Reads `context->device->name`; `false` where there is none.
#[inline(always)]
fn read_device_name(context: u64, name: &mut Name) -> bool {
    // SAFETY: the helpers check the addresses.
    unsafe {
        let Ok(device) = bpf_probe_read_user(context as *const u64) else { return false };
        let read = bpf_probe_read_user_str_bytes(device.wrapping_add(DEVICE_NAME) as *const u8, &mut name.0);
        read.is_ok() && name.0[0] != 0
    }
}

/// Notes when the kernel created a QP for a process.
pub(super) fn born(name: &Name, qpn: u32, t: u64) {
    // A table that is full forgets its oldest entry: no latency by order for that QP.
    let _ = BORN.insert(QpKey { device: name.id(), qpn: u64::from(qpn) }, t, 0);
}

/// Retires the slot of a QP that is being destroyed: the next post of the same process to the same address with the
/// same number gets a new one.
pub(super) fn retire(device: u64, qpn: u32) -> Option<u32> {
    let by_qpn = QpKey { device, qpn: u64::from(qpn) };
    let _ = BORN.remove(by_qpn);
    // SAFETY: the value is copied at once.
    let index = *unsafe { BY_QPN.get(by_qpn) }?;
    let _ = BY_QPN.remove(by_qpn);
    let slot = maps::slot(index)?;
    let key = SlotKey {
        qp: atomic::load(&slot.qp),
        context: atomic::load(&slot.context),
        tgid: slot.tgid(),
        qpn: slot.qpn(),
    };
    let _ = SLOT_OF.remove(key);
    // It may have been known by its completions alone before it posted.
    let _ = SLOT_OF.remove(SlotKey { qp: 0, ..key });
    // Completions are still found here: a provider may take them out of a shared queue only after this.
    atomic::store(&slot.state, state::RETIRED);
    maps::mark(index);
    Some(index)
}
