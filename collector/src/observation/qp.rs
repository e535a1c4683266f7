//! The life of a QP: created, changed, destroyed, or found in the kernel's list.

use serde::{Deserialize, Serialize};

use super::Text;

/// What happened to a QP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QpEvent {
    /// Created.
    Create,
    /// `modify_qp` returned.
    Modify,
    /// Destroyed.
    Destroy,
    /// Found in the kernel's list.
    #[default]
    Seen,
}

/// State of a QP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum QpState {
    /// Just created.
    Reset,
    /// Initialised.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained.
    Sqd,
    /// Send queue error (UD, UC).
    Sqe,
    /// Error.
    Err,
    /// Not known.
    #[default]
    #[serde(other)]
    Unknown,
}

impl QpState {
    /// The name in the recording and on the screen; `–` when it is not known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
            Self::Unknown => "–",
        }
    }

    /// From the kernel's `enum ib_qp_state` (`include/rdma/ib_verbs.h`).
    #[must_use]
    pub fn from_kernel(state: u32) -> Self {
        match state {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqd,
            5 => Self::Sqe,
            6 => Self::Err,
            _ => Self::Unknown,
        }
    }
}

/// A QP was created, changed, destroyed or found in the kernel's list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Qp<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// QP number, 24 bits.
    pub qpn: u32,
    /// Port number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// What happened.
    pub event: QpEvent,
    /// Type as the kernel names it, for example `RC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qp_type: Option<Text<'a>>,
    /// State before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<QpState>,
    /// State asked for, or found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<QpState>,
    /// The call's error as a positive errno; absent when it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<u32>,
    /// Owning process; absent for the kernel's own QPs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The owner's `comm`, or the kernel module's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<Text<'a>>,
    /// Container id, where the cgroup tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Text<'a>>,
    /// The peer's QPN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_qpn: Option<u32>,
    /// The peer's GID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_gid: Option<Text<'a>>,
    /// Local ACK timeout exponent: 4.096 µs · 2^timeout; 0 = infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u8>,
    /// Transport retries, 0–7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_cnt: Option<u8>,
    /// RNR retries, 0–7; 7 = infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rnr_retry: Option<u8>,
    /// Path MTU in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u32>,
}
