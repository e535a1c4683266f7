//! Where a process's provider has its data-path functions, told by the process itself.
//!
//! `ibv_modify_qp` is exported by libibverbs, called a few times in the life of a QP and before the first post, and has the
//! QP in hand: its context with the provider's table of operations, the operations of the QP itself, and its two
//! completion queues.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_user, bpf_probe_read_user_buf};
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use collector_ebpf::event::{
    CONTEXT_OPERATIONS, CQ_EX_COUNT, CQ_EX_OPERATIONS, Learned, QP_EX_COUNT, QP_EX_OPERATIONS, kind,
};

use super::maps::{self, EVENTS, KNOWN, NOEXIST, count};
use super::slots::{self, Head};

/// `int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)`.
#[uprobe]
fn learn(ctx: ProbeContext) -> u32 {
    maps::own_stack(&ctx);
    let qp = ctx.arg::<u64>(0).unwrap_or(0);
    let Some(head) = Head::read(qp) else { return 0 };
    slots::queues(qp, &head);
    let Some(mut record) = EVENTS.reserve::<Learned>(0) else {
        count(|totals| &mut totals.lost);
        return 0;
    };
    let learned = record.write(Learned {
        // SAFETY: the helper has no precondition.
        t: unsafe { bpf_ktime_get_ns() },
        kind: kind::LEARNED,
        tgid: (bpf_get_current_pid_tgid() >> 32) as u32,
        context: [0; CONTEXT_OPERATIONS.len()],
        qp_ex: [0; QP_EX_COUNT],
        send_cq_ex: [0; CQ_EX_COUNT],
        recv_cq_ex: [0; CQ_EX_COUNT],
    });
    let [poll_cq, post_srq_recv, post_send, post_recv] = CONTEXT_OPERATIONS;
    let pointer = |offset: usize| {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user(head.context.wrapping_add(offset as u64) as *const u64) }.unwrap_or(0)
    };
    learned.context = [pointer(poll_cq), pointer(post_srq_recv), pointer(post_send), pointer(post_recv)];
    // What lies behind the QP or the queue may end with its page: then there are no such operations.
    read(qp.wrapping_add(QP_EX_OPERATIONS as u64), &mut learned.qp_ex);
    read(head.send_cq.wrapping_add(CQ_EX_OPERATIONS as u64), &mut learned.send_cq_ex);
    read(head.recv_cq.wrapping_add(CQ_EX_OPERATIONS as u64), &mut learned.recv_cq_ex);
    let tables = tables(learned);
    if KNOWN.insert(tables, 1_u8, NOEXIST).is_ok() {
        record.submit(0);
    } else {
        record.discard(0);
    }
    0
}

/// Reads consecutive pointers; none where they cannot all be read.
#[inline(always)]
fn read<const N: usize>(at: u64, pointers: &mut [u64; N]) {
    // SAFETY: integers may be looked at as bytes.
    let bytes = unsafe { core::slice::from_raw_parts_mut(pointers.as_mut_ptr().cast::<u8>(), N * 8) };
    // SAFETY: the helper checks the address.
    if unsafe { bpf_probe_read_user_buf(at as *const u8, bytes) }.is_err() {
        *pointers = [0; N];
    }
}

/// A number that stands for a process with its tables.
#[inline(always)]
fn tables(learned: &Learned) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ u64::from(learned.tgid);
    let mut mix = |pointers: &[u64]| {
        for pointer in pointers {
            hash = (hash ^ *pointer).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
    };
    mix(&learned.context);
    mix(&learned.qp_ex);
    mix(&learned.send_cq_ex);
    mix(&learned.recv_cq_ex);
    hash
}
