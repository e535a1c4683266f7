//! The data path: `post_send` of a provider, at its entry.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_user, bpf_probe_read_user_str_bytes,
};
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use collector_ebpf::atomic;
use collector_ebpf::slot::{Name, SlotKey, Wide};
use collector_ebpf::walk::{ALL_STEPS, Memory, REQUEST_LEN, REQUEST_OFFSET, Request, Walk};

use super::maps::{self, LAST_SLOT, NOEXIST, WIDE, count};
use super::slots;

/// `ibv_qp` up to and including `qp_num`: `context` at 0, `qp_num` at 52 (LP64 layout of rdma-core's verbs.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct QpHead {
    context: u64,
    skipped: [u32; 11],
    qpn: u32,
}

/// `ibv_device.name`.
const DEVICE_NAME: u64 = 24;

/// `int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)`.
///
/// Counts what the process asks for; a work request that the provider then refuses is counted too.
#[uprobe]
fn post_send(ctx: ProbeContext) -> u32 {
    count(|totals| &mut totals.hits);
    let qp = ctx.arg::<u64>(0).unwrap_or(0);
    let wr = ctx.arg::<u64>(1).unwrap_or(0);
    // SAFETY: the helper checks the address.
    let Ok(head) = (unsafe { bpf_probe_read_user(qp as *const QpHead) }) else {
        count(|totals| &mut totals.no_qp);
        return 0;
    };
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let key = SlotKey { qp, context: head.context, tgid, qpn: head.qpn };
    let Some(index) = slots::find_or_give(&key) else {
        count(|totals| &mut totals.no_slot);
        return 0;
    };
    let Some(slot) = maps::slot(index) else { return 0 };
    if atomic::load(&slot.device) == 0 {
        match device_name(head.context) {
            Some(name) => slots::name(index, head.qpn, &name),
            None => count(|totals| &mut totals.no_name),
        }
    }

    // SAFETY: the elements of an array map are never freed while a program that uses it runs; all fields are atomic.
    let wide = WIDE.get_ptr(index).map(|wide| unsafe { &*wide });
    let mut post = Post { walk: Walk::new(wr), process: Process { wide } };
    // Nearly all lists have one work request: those do without the loop's calls.
    if post.step() && post.step() {
        // SAFETY: the callback has the signature the helper asks for, and gets the pointer to `post` back.
        unsafe {
            aya_ebpf::helpers::generated::bpf_loop(
                ALL_STEPS,
                next_step as *mut c_void,
                (&raw mut post).cast::<c_void>(),
                0,
            )
        };
    }

    if switched(tgid, index) {
        atomic::add(&slot.switches, 1);
    }
    // SAFETY: the helper has no precondition.
    slot.add(&post.walk.found, unsafe { bpf_ktime_get_ns() });
    maps::mark(index);
    0
}

/// A walk and the memory it walks in.
struct Post {
    walk: Walk,
    process: Process,
}

impl Post {
    #[inline(always)]
    fn step(&mut self) -> bool {
        self.walk.step(&self.process)
    }
}

/// The callback of `bpf_loop`: 0 goes on, 1 ends.
#[inline(never)]
extern "C" fn next_step(_: u64, post: *mut Post) -> i64 {
    // SAFETY: `post` is the pointer given to `bpf_loop`; nothing else uses it until the loop has ended.
    let post = unsafe { &mut *post };
    i64::from(!post.step())
}

/// The memory of the current process.
struct Process {
    wide: Option<&'static Wide>,
}

impl Memory for Process {
    #[inline(always)]
    fn request(&self, at: u64) -> Option<Request> {
        const { assert!(REQUEST_LEN == 28 && size_of::<[u32; 7]>() == REQUEST_LEN) };
        let at = at.wrapping_add(REQUEST_OFFSET) as *const [u32; 7];
        // SAFETY: the helper checks the address.
        let [next_low, next_high, list_low, list_high, num_sge, opcode, send_flags] =
            unsafe { bpf_probe_read_user(at) }.ok()?;
        let wide = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Some(Request {
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
    fn count(&self, bytes: u64, opcode: u32) {
        if let Some(wide) = self.wide {
            wide.add(bytes, opcode);
        }
    }
}

/// Reads `context->device->name`.
fn device_name(context: u64) -> Option<Name> {
    let mut name = Name::EMPTY;
    // SAFETY: the helpers check the addresses.
    unsafe {
        let device = bpf_probe_read_user(context as *const u64).ok()?;
        bpf_probe_read_user_str_bytes(device.wrapping_add(DEVICE_NAME) as *const u8, &mut name.0).ok()?;
    }
    (name.0[0] != 0).then_some(name)
}

/// The process posted to another QP just before.
#[inline(always)]
fn switched(tgid: u32, index: u32) -> bool {
    let present = u64::from(index) + 1;
    if let Some(last) = maps::last_slot(tgid) {
        // Looked at first: a process that stays with one QP writes nothing that its other threads read.
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
