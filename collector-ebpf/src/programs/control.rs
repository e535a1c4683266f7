//! The control path: QPs created, modified and destroyed, and asynchronous events, as ib_core sees them for every driver.

use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_kernel, bpf_probe_read_kernel_str_bytes,
};
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use collector_ebpf::config::Field;
use collector_ebpf::event::{AH_GRH, Event, attr_mask, has, kind};
use collector_ebpf::slot::Name;

use super::maps::{self, CALLS, count, place, report, sign};
use super::slots;

/// Pointers from here on are errors (`IS_ERR`, include/linux/err.h).
const ERRORS: u64 = -4095_i64 as u64;

/// Returns of `ib_create_qp_user`: a QP for a process.
#[kretprobe]
fn create_qp_user(ctx: RetProbeContext) -> u32 {
    created(ctx.ret::<u64>(), has::USER);
    0
}

/// Returns of `ib_create_qp_kernel`: a QP of the kernel itself.
#[kretprobe]
fn create_qp_kernel(ctx: RetProbeContext) -> u32 {
    created(ctx.ret::<u64>(), 0);
    0
}

#[inline(always)]
fn created(qp: u64, user: u32) {
    // A call that failed has made no QP, so there is none to tell of.
    if qp == 0 || qp >= ERRORS {
        return;
    }
    maps::qp_changes();
    let mut event = new_event(kind::CREATE);
    event.has |= user;
    if read_qp(qp, &mut event) {
        if user != 0 {
            slots::born(&event.device, event.qpn, event.t);
        }
        report(&event);
    } else {
        count(|totals| &mut totals.unreadable);
    }
}

/// Entry of `ib_modify_qp_with_udata(struct ib_qp *, struct ib_qp_attr *, int mask, struct ib_udata *)`.
#[kprobe]
fn modify_qp_user(ctx: ProbeContext) -> u32 {
    modify_entered(&ctx, has::USER);
    0
}

/// Entry of `ib_modify_qp(struct ib_qp *, struct ib_qp_attr *, int mask)`: the kernel's own QPs.
#[kprobe]
fn modify_qp_kernel(ctx: ProbeContext) -> u32 {
    modify_entered(&ctx, 0);
    0
}

#[inline(always)]
fn modify_entered(ctx: &ProbeContext, user: u32) {
    maps::qp_changes();
    let (Some(qp), Some(attr), Some(mask)) = (ctx.arg::<u64>(0), ctx.arg::<u64>(1), ctx.arg::<u64>(2)) else { return };
    let mut event = new_event(kind::MODIFY);
    event.has |= user;
    if !read_qp(qp, &mut event) {
        count(|totals| &mut totals.unreadable);
        return;
    }
    read_attr(attr, mask as u32, &mut event);
    // The task's own key: a task is in one call at a time. What is still there belongs to a call whose return was missed
    // (the kernel keeps a limited number of return probes in flight): it is reported without a result.
    let task = bpf_get_current_pid_tgid();
    if let Some(missed) = CALLS.get_ptr_mut(task) {
        // SAFETY: only this task uses the entry of its own key.
        let missed = unsafe { &mut *missed };
        if missed.kind == kind::MODIFY {
            report(missed);
        }
        let _ = CALLS.remove(task);
    }
    if CALLS.insert(task, &event, 0).is_err() {
        count(|totals| &mut totals.no_call);
    }
}

/// Return of either modify function: 0 or a negative errno.
#[kretprobe]
fn modify_qp_return(ctx: RetProbeContext) -> u32 {
    let task = bpf_get_current_pid_tgid();
    if let Some(event) = CALLS.get_ptr_mut(task) {
        // SAFETY: only this task uses the entry of its own key, and it is removed only below.
        let event = unsafe { &mut *event };
        if event.kind == kind::MODIFY {
            event.result = ctx.ret::<u64>() as i32;
            event.has |= has::RESULT;
            // SAFETY: the helper has no precondition.
            event.t = unsafe { bpf_ktime_get_ns() };
            report(event);
            let _ = CALLS.remove(task);
        }
    }
    0
}

/// Entry of `ib_destroy_qp_user(struct ib_qp *, struct ib_udata *)`, which the kernel's own `ib_destroy_qp` calls too.
///
/// At the entry, because the driver frees the QP's number before the call returns: by then another process may have
/// created a QP with it.
#[kprobe]
fn destroy_qp(ctx: ProbeContext) -> u32 {
    maps::qp_changes();
    let (Some(qp), Some(udata)) = (ctx.arg::<u64>(0), ctx.arg::<u64>(1)) else { return 0 };
    let mut event = new_event(kind::DESTROY);
    if udata != 0 {
        event.has |= has::USER;
    }
    if !read_qp(qp, &mut event) {
        count(|totals| &mut totals.unreadable);
        return 0;
    }
    if let Some(slot) = slots::retire(event.device.id(), event.qpn) {
        event.has |= has::SLOT;
        event.slot = slot;
    }
    report(&event);
    if CALLS.insert(bpf_get_current_pid_tgid(), &event, 0).is_err() {
        count(|totals| &mut totals.no_call);
    }
    0
}

/// Return of `ib_destroy_qp_user`: reported only when the call failed and the QP lives on.
#[kretprobe]
fn destroy_qp_return(ctx: RetProbeContext) -> u32 {
    let task = bpf_get_current_pid_tgid();
    if let Some(event) = CALLS.get_ptr_mut(task) {
        // SAFETY: only this task uses the entry of its own key, and it is removed only below.
        let event = unsafe { &mut *event };
        if event.kind == kind::DESTROY {
            event.result = ctx.ret::<u64>() as i32;
            if event.result != 0 {
                event.kind = kind::DESTROY_FAILED;
                event.has |= has::RESULT;
                report(event);
            }
            let _ = CALLS.remove(task);
        }
    }
    0
}

/// Entry of `ib_dispatch_event(struct ib_event *)` (events of ports and devices) and of
/// `ib_uverbs_qp_event_handler(struct ib_event *, void *)` (events of a process's QP).
#[kprobe]
fn async_event(ctx: ProbeContext) -> u32 {
    let Some(at) = ctx.arg::<u64>(0) else { return 0 };
    let mut event = new_event(kind::ASYNC);
    let read = || {
        event.code = word(at, place(|c| &c.event_code))?;
        read_device(pointer(at, place(|c| &c.event_device))?, &mut event)?;
        match event.code {
            // PORT_ACTIVE, PORT_ERR, LID, PKEY and SM change, CLIENT_REREGISTER, GID_CHANGE.
            9..=13 | 17 | 18 => {
                event.port = word(at, place(|c| &c.event_element))?;
                event.has |= has::PORT;
            }
            // QP_FATAL … PATH_MIG_ERR, QP_LAST_WQE_REACHED.
            1..=7 | 16 => {
                event.qpn = word(pointer(at, place(|c| &c.event_element))?, place(|c| &c.qp_qpn))?;
                event.has |= has::QPN;
            }
            _ => {}
        }
        Some(())
    };
    if { read }().is_some() {
        report(&event);
    } else {
        count(|totals| &mut totals.unreadable);
    }
    0
}

#[inline(always)]
fn new_event(kind: u32) -> Event {
    // SAFETY: the helper has no precondition.
    let mut event = Event::new(kind, unsafe { bpf_ktime_get_ns() });
    sign(&mut event);
    event
}

/// Device, number, type and port of a QP; `false` when the first two cannot be read.
#[inline(always)]
fn read_qp(qp: u64, event: &mut Event) -> bool {
    let Some(qpn) = word(qp, place(|c| &c.qp_qpn)) else { return false };
    event.qpn = qpn;
    event.has |= has::QPN;
    let Some(device) = pointer(qp, place(|c| &c.qp_device)) else { return false };
    if read_device(device, event).is_none() {
        return false;
    }
    if let Some(qp_type) = word(qp, place(|c| &c.qp_type)) {
        event.qp_type = qp_type;
        event.has |= has::QP_TYPE;
    }
    // 0 until the QP has been bound to a port.
    if let Some(port) = word(qp, place(|c| &c.qp_port))
        && port != 0
    {
        event.port = port;
        event.has |= has::PORT;
    }
    true
}

#[inline(always)]
fn read_device(device: u64, event: &mut Event) -> Option<()> {
    if !place(|c| &c.device_name).is_known() {
        return None;
    }
    event.device = Name::EMPTY;
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel_str_bytes(at(device, place(|c| &c.device_name)) as *const u8, &mut event.device.0) }
        .ok()?;
    Some(())
}

/// What a modify call asks for, as far as its mask says that it does.
#[inline(always)]
fn read_attr(attr: u64, mask: u32, event: &mut Event) {
    let read = |bit: u32, field: Field| if mask & bit == 0 { None } else { word(attr, field) };
    if let Some(v) = read(attr_mask::STATE, place(|c| &c.attr_state)) {
        event.state = v;
        event.has |= has::STATE;
    }
    if let Some(v) = read(attr_mask::PORT, place(|c| &c.attr_port)) {
        event.port = v;
        event.has |= has::PORT;
    }
    if let Some(v) = read(attr_mask::PATH_MTU, place(|c| &c.attr_path_mtu)) {
        event.path_mtu = v;
        event.has |= has::PATH_MTU;
    }
    if let Some(v) = read(attr_mask::DEST_QPN, place(|c| &c.attr_dest_qpn)) {
        event.remote_qpn = v;
        event.has |= has::REMOTE_QPN;
    }
    if let Some(v) = read(attr_mask::TIMEOUT, place(|c| &c.attr_timeout)) {
        event.timeout = v;
        event.has |= has::TIMEOUT;
    }
    if let Some(v) = read(attr_mask::RETRY_CNT, place(|c| &c.attr_retry_cnt)) {
        event.retry_cnt = v;
        event.has |= has::RETRY_CNT;
    }
    if let Some(v) = read(attr_mask::RNR_RETRY, place(|c| &c.attr_rnr_retry)) {
        event.rnr_retry = v;
        event.has |= has::RNR_RETRY;
    }
    if let Some(flags) = read(attr_mask::AV, place(|c| &c.attr_ah_flags))
        && flags & AH_GRH != 0
        && place(|c| &c.attr_dgid).is_known()
        // SAFETY: the helper checks the address.
        && let Ok(gid) = unsafe { bpf_probe_read_kernel(at(attr, place(|c| &c.attr_dgid)) as *const [u8; 16]) }
    {
        event.gid = gid;
        event.has |= has::GID;
    }
}

#[inline(always)]
fn at(structure: u64, field: Field) -> u64 {
    structure.wrapping_add(u64::from(field.offset))
}

/// A field of up to four bytes.
#[inline(always)]
fn word(structure: u64, field: Field) -> Option<u32> {
    if !field.is_known() {
        return None;
    }
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(at(structure, field) as *const u32) }.ok().map(|word| field.narrow(word))
}

/// A field that is a pointer.
#[inline(always)]
fn pointer(structure: u64, field: Field) -> Option<u64> {
    if !field.is_known() {
        return None;
    }
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(at(structure, field) as *const u64) }.ok()
}
