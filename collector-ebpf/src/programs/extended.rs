//! Posts call by call: the operations of `ibv_qp_ex`, from `wr_start` to `wr_complete`.
//!
//! Each of these functions is a place of its own in the provider. A request begins with the call that names its opcode;
//! the calls after it say what it moves.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use collector_ebpf::batch::{Batch, KEPT};
use collector_ebpf::pairing;
use collector_ebpf::walk::MAX_SGES;

use super::maps::{self, BatchKey, count};
use super::posts::{self, Owner};

/// Where `ibv_qp_ex` keeps `wr_id`, and behind it `wr_flags`.
const WR_ID: u64 = 168;

/// Size of `ibv_sge` and of `ibv_data_buf`; both have the length at 8, in 4 and in 8 bytes.
const ELEMENT: u64 = 16;

/// `enum ibv_wr_opcode`.
mod opcode {
    pub(super) const RDMA_WRITE: u32 = 0;
    pub(super) const RDMA_WRITE_WITH_IMM: u32 = 1;
    pub(super) const SEND: u32 = 2;
    pub(super) const SEND_WITH_IMM: u32 = 3;
    pub(super) const RDMA_READ: u32 = 4;
    pub(super) const ATOMIC_CMP_AND_SWP: u32 = 5;
    pub(super) const ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub(super) const LOCAL_INV: u32 = 7;
    pub(super) const BIND_MW: u32 = 8;
    pub(super) const SEND_WITH_INV: u32 = 9;
    pub(super) const TSO: u32 = 10;
    pub(super) const FLUSH: u32 = 14;
    pub(super) const ATOMIC_WRITE: u32 = 15;
}

/// `void wr_start(struct ibv_qp_ex *qp)`.
#[uprobe]
fn wr_start(ctx: ProbeContext) -> u32 {
    maps::own_stack(&ctx);
    count(|totals| &mut totals.hits);
    let qp = ctx.arg::<u64>(0).unwrap_or(0);
    let Some(owner) = Owner::of(qp) else { return 0 };
    match maps::batch_or_new(&key(qp)) {
        Some(batch) => batch.start(owner.index),
        None => count(|totals| &mut totals.no_batch),
    }
    0
}

/// One program for each function that begins a request: `void wr_…(struct ibv_qp_ex *qp, …)`.
macro_rules! begins {
    ($($program:ident $opcode:ident;)*) => {$(
        #[uprobe]
        fn $program(ctx: ProbeContext) -> u32 {
            begin(&ctx, opcode::$opcode)
        }
    )*};
}

begins! {
    wr_rdma_write RDMA_WRITE;
    wr_rdma_write_imm RDMA_WRITE_WITH_IMM;
    wr_send SEND;
    wr_send_imm SEND_WITH_IMM;
    wr_send_inv SEND_WITH_INV;
    wr_send_tso TSO;
    wr_rdma_read RDMA_READ;
    wr_atomic_cmp_swp ATOMIC_CMP_AND_SWP;
    wr_atomic_fetch_add ATOMIC_FETCH_AND_ADD;
    wr_atomic_write ATOMIC_WRITE;
    wr_local_inv LOCAL_INV;
    wr_bind_mw BIND_MW;
    wr_flush FLUSH;
}

#[inline(always)]
fn begin(ctx: &ProbeContext, opcode: u32) -> u32 {
    maps::own_stack(ctx);
    count(|totals| &mut totals.hits);
    let qp = ctx.arg::<u64>(0).unwrap_or(0);
    let Some(batch) = maps::batch(&key(qp)) else { return 0 };
    // SAFETY: the helper checks the address.
    match unsafe { bpf_probe_read_user(qp.wrapping_add(WR_ID) as *const [u64; 2]) } {
        Ok([wr_id, flags]) => batch.begin(wr_id, opcode, flags as u32, count_kept),
        Err(_) => batch.found.unread = 1,
    }
    0
}

/// `void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)`.
#[uprobe]
fn wr_set_sge(ctx: ProbeContext) -> u32 {
    moves(&ctx, u64::from(ctx.arg::<u64>(3).unwrap_or(0) as u32))
}

/// `void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)`.
#[uprobe]
fn wr_set_inline_data(ctx: ProbeContext) -> u32 {
    moves(&ctx, ctx.arg::<u64>(2).unwrap_or(0))
}

/// `void wr_set_sge_list(struct ibv_qp_ex *qp, size_t num_sge, const struct ibv_sge *sg_list)`.
#[uprobe]
fn wr_set_sge_list(ctx: ProbeContext) -> u32 {
    moves_list(&ctx, |word| word & 0xffff_ffff)
}

/// `void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t num_buf, const struct ibv_data_buf *buf_list)`.
#[uprobe]
fn wr_set_inline_data_list(ctx: ProbeContext) -> u32 {
    moves_list(&ctx, |word| word)
}

#[inline(always)]
fn moves(ctx: &ProbeContext, bytes: u64) -> u32 {
    maps::own_stack(ctx);
    count(|totals| &mut totals.hits);
    if let Some(batch) = maps::batch(&key(ctx.arg::<u64>(0).unwrap_or(0))) {
        batch.data(bytes);
    }
    0
}

#[inline(always)]
fn moves_list(ctx: &ProbeContext, length: fn(u64) -> u64) -> u32 {
    maps::own_stack(ctx);
    count(|totals| &mut totals.hits);
    let (elements, list) = (ctx.arg::<u64>(1).unwrap_or(0), ctx.arg::<u64>(2).unwrap_or(0));
    let Some(batch) = maps::batch(&key(ctx.arg::<u64>(0).unwrap_or(0))) else { return 0 };
    if elements > u64::from(MAX_SGES) {
        batch.found.truncated += 1;
        return 0;
    }
    maps::count_many(|totals| &mut totals.post_steps, elements.saturating_sub(1));
    let mut bytes = 0;
    for i in 0..u64::from(MAX_SGES) {
        if i >= elements {
            break;
        }
        // SAFETY: the helper checks the address.
        match unsafe { bpf_probe_read_user(list.wrapping_add(i * ELEMENT + 8) as *const u64) } {
            Ok(word) => bytes += length(word),
            Err(_) => batch.found.unread = 1,
        }
    }
    batch.data(bytes);
    0
}

/// `int wr_complete(struct ibv_qp_ex *qp)`: now the requests are posted.
#[uprobe]
fn wr_complete(ctx: ProbeContext) -> u32 {
    maps::own_stack(&ctx);
    count(|totals| &mut totals.hits);
    let Some(batch) = maps::batch(&key(ctx.arg::<u64>(0).unwrap_or(0))) else { return 0 };
    batch.close(count_kept);
    maps::count_many(|totals| &mut totals.post_steps, batch.found.wrs.saturating_sub(1));
    count_kept(batch);
    if batch.found.wrs != 0
        && let Some(owner) = Owner::with_slot(batch.slot)
    {
        // SAFETY: the helper has no precondition.
        owner.posted(&batch.found, unsafe { bpf_ktime_get_ns() });
    }
    batch.start(batch.slot);
    0
}

/// `void wr_abort(struct ibv_qp_ex *qp)`: nothing is posted.
#[uprobe]
fn wr_abort(ctx: ProbeContext) -> u32 {
    maps::own_stack(&ctx);
    count(|totals| &mut totals.hits);
    let Some(batch) = maps::batch(&key(ctx.arg::<u64>(0).unwrap_or(0))) else { return 0 };
    if batch.found.wrs > KEPT as u64
        && let Some(slot) = maps::slot(batch.slot)
    {
        // Some have been counted as signalled and will never complete.
        pairing::failed(slot);
    }
    batch.start(batch.slot);
    0
}

#[inline(always)]
fn key(qp: u64) -> BatchKey {
    BatchKey { qp, tgid: bpf_get_current_pid_tgid() >> 32 }
}

/// Counts the requests that are kept.
#[inline(always)]
fn count_kept(batch: &Batch) {
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    for (i, built) in batch.kept.iter().enumerate() {
        if i >= batch.n as usize {
            break;
        }
        posts::take(batch.slot, built, now);
    }
}
