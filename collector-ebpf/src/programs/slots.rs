//! Slots: found, given out at the first post of a QP, retired when the QP is destroyed.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use collector_ebpf::atomic;
use collector_ebpf::slot::{Name, QpKey, SlotKey, state};

use super::maps::{self, BY_QPN, FREED, NAMES, NOEXIST, SLOT_OF, count};

/// The slot of a process's QP; a new one at its first post.
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
    atomic::store(&slot.tgid, u64::from(key.tgid));
    atomic::store(&slot.qpn, u64::from(key.qpn));
    atomic::store(&slot.device, 0);
    // SAFETY: the helper has no precondition.
    atomic::store(&slot.created, unsafe { bpf_ktime_get_ns() });
    atomic::store(&slot.state, state::LIVE);
    if SLOT_OF.insert(key, index, NOEXIST).is_ok() {
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

/// Notes which device a slot belongs to, so that a destroy call finds the slot.
pub(super) fn name(index: u32, qpn: u32, name: &Name) {
    let Some(slot) = maps::slot(index) else { return };
    let device = name.id();
    // It is there already for all QPs of a device but the first.
    if NAMES.get_ptr(device).is_none() && NAMES.insert(device, name, 0).is_err() {
        count(|totals| &mut totals.no_name);
    }
    let key = QpKey { device, qpn: u64::from(qpn) };
    if BY_QPN.insert(key, index, 0).is_err() {
        count(|totals| &mut totals.no_name);
    }
    atomic::store(&slot.device, device);
}

/// Retires the slot of a QP that is being destroyed: the next post of the same process to the same address with the
/// same number gets a new one.
pub(super) fn retire(device: u64, qpn: u32) -> Option<u32> {
    let by_qpn = QpKey { device, qpn: u64::from(qpn) };
    // SAFETY: the value is copied at once.
    let index = *unsafe { BY_QPN.get(by_qpn) }?;
    let _ = BY_QPN.remove(by_qpn);
    let slot = maps::slot(index)?;
    let key = SlotKey {
        qp: atomic::load(&slot.qp),
        context: atomic::load(&slot.context),
        tgid: atomic::load(&slot.tgid) as u32,
        qpn: atomic::load(&slot.qpn) as u32,
    };
    let _ = SLOT_OF.remove(key);
    atomic::store(&slot.state, state::RETIRED);
    maps::mark(index);
    Some(index)
}
