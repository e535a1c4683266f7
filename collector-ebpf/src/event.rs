//! The records of rare events: a QP created, modified or destroyed, an asynchronous event, an AER report.

use crate::slot::Name;

/// Length of a task's name in the kernel (`TASK_COMM_LEN`).
pub const COMM_LEN: usize = 16;

/// What an [`Event`] reports.
pub mod kind {
    /// A QP was created.
    pub const CREATE: u32 = 1;
    /// A modify call returned.
    pub const MODIFY: u32 = 2;
    /// A destroy call was entered: the QP takes no more work.
    pub const DESTROY: u32 = 3;
    /// A destroy call failed: the QP lives on.
    pub const DESTROY_FAILED: u32 = 4;
    /// An asynchronous event.
    pub const ASYNC: u32 = 5;
    /// An AER report.
    pub const AER: u32 = 6;
    /// A completion with an error: the first of its QP, or the first that is no flush.
    pub const COMPLETION: u32 = 7;
    /// A process's tables of operations, see [`super::Learned`].
    pub const LEARNED: u32 = 8;
}

/// Which optional fields of an [`Event`] hold something.
pub mod has {
    /// `port`.
    pub const PORT: u32 = 1 << 0;
    /// `qp_type`.
    pub const QP_TYPE: u32 = 1 << 1;
    /// `tgid` and `comm` are those of the process that called into the verbs; otherwise the kernel itself called.
    pub const USER: u32 = 1 << 2;
    /// `slot`.
    pub const SLOT: u32 = 1 << 3;
    /// `qpn`.
    pub const QPN: u32 = 1 << 4;
    /// `state`.
    pub const STATE: u32 = 1 << 5;
    /// `path_mtu`.
    pub const PATH_MTU: u32 = 1 << 6;
    /// `remote_qpn`.
    pub const REMOTE_QPN: u32 = 1 << 7;
    /// `timeout`.
    pub const TIMEOUT: u32 = 1 << 8;
    /// `retry_cnt`.
    pub const RETRY_CNT: u32 = 1 << 9;
    /// `rnr_retry`.
    pub const RNR_RETRY: u32 = 1 << 10;
    /// `gid`.
    pub const GID: u32 = 1 << 11;
    /// `tlp`.
    pub const TLP: u32 = 1 << 12;
    /// `result`.
    pub const RESULT: u32 = 1 << 13;
    /// `code`, of a completion.
    pub const VENDOR_ERR: u32 = 1 << 14;
}

/// `enum ib_qp_attr_mask` (`include/rdma/ib_verbs.h`), the bits the programs look at.
pub mod attr_mask {
    /// `qp_state`.
    pub const STATE: u32 = 1 << 0;
    /// `port_num`.
    pub const PORT: u32 = 1 << 5;
    /// `ah_attr`.
    pub const AV: u32 = 1 << 7;
    /// `path_mtu`.
    pub const PATH_MTU: u32 = 1 << 8;
    /// `timeout`.
    pub const TIMEOUT: u32 = 1 << 9;
    /// `retry_cnt`.
    pub const RETRY_CNT: u32 = 1 << 10;
    /// `rnr_retry`.
    pub const RNR_RETRY: u32 = 1 << 11;
    /// `dest_qp_num`.
    pub const DEST_QPN: u32 = 1 << 20;
}

/// `enum ib_ah_flags`: the address has a global route, so that its GID means something.
pub const AH_GRH: u32 = 1;

/// Pointers of `ibv_context` that are told, in the order of [`Learned::context`]: `poll_cq`, `post_srq_recv`, `post_send`,
/// `post_recv`; the numbers are offsets in the structure.
pub const CONTEXT_OPERATIONS: [usize; 4] = [96, 168, 208, 216];

/// Where in `ibv_qp_ex` the table of operations begins: `wr_atomic_cmp_swp`.
pub const QP_EX_OPERATIONS: usize = 184;
/// Its entries up to `wr_abort`, `wr_atomic_write` and `wr_flush`, eight bytes each, without a gap.
pub const QP_EX_COUNT: usize = 22;

/// Where in `ibv_cq_ex` the table of operations begins: `start_poll`, `next_poll`, `end_poll`.
pub const CQ_EX_OPERATIONS: usize = 144;
/// Its entries that are told.
pub const CQ_EX_COUNT: usize = 3;

/// At which addresses a process's provider has its data-path functions. (LP64 layout of rdma-core's verbs.h.)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Learned {
    /// `CLOCK_MONOTONIC` ns.
    pub t: u64,
    /// [`kind::LEARNED`].
    pub kind: u32,
    /// Process.
    pub tgid: u32,
    /// The pointers at [`CONTEXT_OPERATIONS`].
    pub context: [u64; CONTEXT_OPERATIONS.len()],
    /// What lies behind the QP from [`QP_EX_OPERATIONS`] on: operations only if the provider's QPs have them, else zeros
    /// or whatever the provider keeps there.
    pub qp_ex: [u64; QP_EX_COUNT],
    /// What lies behind the completion queue of sends from [`CQ_EX_OPERATIONS`] on; the same holds.
    pub send_cq_ex: [u64; CQ_EX_COUNT],
    /// What lies behind that of receives.
    pub recv_cq_ex: [u64; CQ_EX_COUNT],
}

const _: () = assert!(size_of::<Learned>() == 16 + 8 * (4 + 22 + 3 + 3), "the record has padding");
const _: () = assert!(core::mem::offset_of!(Learned, kind) == core::mem::offset_of!(Event, kind), "told apart by it");

/// One rare event. Which optional fields hold something is in [`Event::has`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// `CLOCK_MONOTONIC` ns: when the event was raised, or the call returned; for destroy calls, when it was entered.
    pub t: u64,
    /// One of [`kind`].
    pub kind: u32,
    /// Bits of [`has`].
    pub has: u32,
    /// Process of the current task.
    pub tgid: u32,
    /// QP number.
    pub qpn: u32,
    /// Name of the current task.
    pub comm: [u8; COMM_LEN],
    /// The RDMA device's name; for AER the PCI function.
    pub device: Name,
    /// Port number.
    pub port: u32,
    /// `enum ib_qp_type`.
    pub qp_type: u32,
    /// `enum ib_qp_state` asked for.
    pub state: u32,
    /// What the call returned: 0, or a negative errno.
    pub result: i32,
    /// The peer's QP number.
    pub remote_qpn: u32,
    /// `enum ib_mtu`.
    pub path_mtu: u32,
    /// Local ACK timeout exponent.
    pub timeout: u32,
    /// Transport retries.
    pub retry_cnt: u32,
    /// RNR retries.
    pub rnr_retry: u32,
    /// Index of the QP's slot.
    pub slot: u32,
    /// The peer's GID.
    pub gid: [u8; 16],
    /// `enum ib_event_type`, the severity of an AER report, or a completion's `vendor_err`.
    pub code: u32,
    /// AER status bits, or a completion's `enum ibv_wc_status`.
    pub status: u32,
    /// The logged TLP header.
    pub tlp: [u32; 4],
}

impl Event {
    /// An event of a kind that says nothing yet.
    #[must_use]
    pub const fn new(kind: u32, t: u64) -> Self {
        Self {
            t,
            kind,
            has: 0,
            tgid: 0,
            qpn: 0,
            comm: [0; COMM_LEN],
            device: Name::EMPTY,
            port: 0,
            qp_type: 0,
            state: 0,
            result: 0,
            remote_qpn: 0,
            path_mtu: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            slot: 0,
            gid: [0; 16],
            code: 0,
            status: 0,
            tlp: [0; 4],
        }
    }

    /// The value of an optional field.
    #[must_use]
    pub const fn get(&self, bit: u32, value: u32) -> Option<u32> {
        if self.has & bit == 0 { None } else { Some(value) }
    }
}

const _: () = assert!(size_of::<Event>() == 24 + COMM_LEN + 64 + 40 + 16 + 24, "the event has padding");
