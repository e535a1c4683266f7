//! QPs in two tiers: a compact record for every QP (here), and a history with histograms (`detail`) for those that matter
//! now. `table` keeps them all.

mod detail;
mod table;

use std::sync::Arc;

pub use detail::{By, QpChange, QpDetail};
pub use table::QpTable;

use super::DeviceId;
use crate::observation::{Nanos, QpState};
use crate::source::loopback::PROGRAM;

/// A QP's place in the table and its generation there: a QPN is used again, a `QpRef` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QpRef {
    /// Place.
    pub slot: u32,
    /// Generation.
    pub generation: u32,
}

/// The compact record of one QP.
#[derive(Debug, Clone)]
pub struct QpRecord {
    /// Its identity.
    pub id: QpRef,
    /// Device.
    pub device: DeviceId,
    /// Port; `None` before the QP has one or when nobody said.
    pub port: Option<u8>,
    /// QPN.
    pub qpn: u32,
    /// Type as the kernel names it.
    pub qp_type: Option<Arc<str>>,
    /// State, as last seen or asked for.
    pub state: QpState,
    /// Owner.
    pub pid: Option<u32>,
    /// The owner's comm.
    pub comm: Option<Arc<str>>,
    /// The owner's container.
    pub container: Option<Arc<str>>,
    /// The peer's QPN.
    pub remote_qpn: Option<u32>,
    /// The peer's GID.
    pub remote_gid: Option<Arc<str>>,
    /// It was created before this time, or at it when `created`.
    pub since: Nanos,
    /// Its creation was observed.
    pub created: bool,
    /// It was destroyed.
    pub destroyed: Option<Nanos>,
    /// When its numbers last changed; `None` when it was never traced.
    pub stats_t: Option<Nanos>,
    /// `post_send` calls.
    pub posts: u64,
    /// Work requests.
    pub wrs: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes per second over the last sweep in which it moved.
    pub rate: Option<f32>,
    /// The window of its port in which it was last counted among those that post; 0 when it never was.
    pub(crate) posted_in: u32,
    /// Error completions; `None` where completions are not watched, and where none was seen but not all were.
    pub errors: Option<u64>,
    /// Timers: ACK timeout exponent, retries, RNR retries.
    pub timeout: Option<u8>,
    /// Transport retries.
    pub retry_cnt: Option<u8>,
    /// RNR retries.
    pub rnr_retry: Option<u8>,
    /// Path MTU: 256 to 4096 (`enum ibv_mtu`).
    pub path_mtu_bytes: Option<u16>,
    /// Its history, where it is kept.
    pub detail: Option<Arc<QpDetail>>,
}

/// A QPN has 24 bits (`InfiniBand` base transport header).
const QPN_BITS: u32 = 24;

/// What names a QP of a device: its QPN. The management QPs 0 (SMI) and 1 (GSI) exist once on every port, so theirs
/// carries the port above the QPN's 24 bits.
#[must_use]
pub fn number(qpn: u32, port: Option<u32>) -> u32 {
    match port {
        Some(port @ 1..=255) if qpn < 2 => port << QPN_BITS | qpn,
        _ => qpn,
    }
}

impl QpRecord {
    /// It belongs to rdmascope itself, which makes it for the loopback probe: in the list of QPs as every other, but nothing
    /// that the node's applications do or suffer.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.comm.as_deref() == Some(PROGRAM)
    }

    /// It is one of those that manage the fabric, which carry no data: SMI and GSI.
    #[must_use]
    pub fn manages(&self) -> bool {
        self.qpn < 2 || self.qp_type.as_deref().is_some_and(|name| name == "GSI" || name == "SMI")
    }

    /// A process has, or had, a peer at its other end. That a datagram QP is there says nothing: it is ready without one.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let of_peer =
            self.qp_type.as_deref().is_some_and(|kind| matches!(kind, "RC" | "UC") || kind.starts_with("XRC"));
        let set_up = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err);
        of_peer && set_up && self.pid.is_some() && !self.is_own()
    }

    /// What names the QP on its device.
    #[must_use]
    pub fn number(&self) -> u32 {
        number(self.qpn, self.port.map(u32::from))
    }
}
