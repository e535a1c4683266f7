//! What becomes of a port, and the reasons for leaving it as it is.

use super::kernel::{EPERM, Kernel, NEEDED, Trouble};
use crate::source::Missing;
use crate::source::nldev::reply::{CounterMode, DeviceInfo};
use crate::source::nldev::uapi::{COUNTER_MASK_PID, COUNTER_MASK_QP_TYPE, COUNTER_MODE_AUTO, COUNTER_MODE_NONE};

/// The kernel writes a set with all its QPs into one message of at most 32 KiB, 12 bytes each: a set of more than about 2,500
/// cannot be listed by anybody, and tools that try do not end. So nothing is bound on a device with more QPs than this.
pub(super) const MAX_QPS: u64 = 2_000;

pub(super) const EBUSY: i32 = 16;
pub(super) const EINVAL: i32 = 22;
/// `EOPNOTSUPP` (include/uapi/asm-generic/errno.h).
pub(super) const EOPNOTSUPP: i32 = 95;

/// A port and what became of it.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) device: DeviceInfo,
    pub(super) number: u32,
    pub(super) state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Given the automatic mode, with this mask.
    Bound { mask: u32 },
    /// Left as it is, and why; for good, or looked at again.
    Left { reason: String, fix: Option<String>, again: bool },
}

impl Port {
    /// The port in words.
    pub(super) fn name(&self) -> String {
        format!("{} port {}", self.device.name, self.number)
    }
}

pub(super) fn missing(what: &str, reason: String, fix: Option<String>) -> Missing {
    Missing { what: what.to_owned(), reason, fix }
}

pub(super) fn too_many(qps: u64) -> String {
    format!("the device has {qps} QPs, and the kernel cannot list a set of more than about {MAX_QPS}")
}

/// What a refusal to set the mode means.
pub(super) fn refused(trouble: &Trouble) -> State {
    let (reason, fix) = match trouble.errno() {
        Some(EPERM) => ("binding needs CAP_NET_ADMIN".to_owned(), Some(NEEDED)),
        Some(EBUSY) => (
            "QPs are bound to counters already (EBUSY); whoever did that keeps it".to_owned(),
            Some("rdma statistic qp unbind, when nobody needs them"),
        ),
        Some(EOPNOTSUPP) => ("the driver has no hardware counters that can be bound (EOPNOTSUPP)".to_owned(), None),
        Some(EINVAL) => ("the kernel does not bind by this on the port (EINVAL)".to_owned(), None),
        _ => (format!("the kernel did not take it: {trouble}"), None),
    };
    State::Left { reason, fix: fix.map(str::to_owned), again: false }
}

/// Whether a port may be changed, and the mode it has.
pub(super) fn may_bind(kernel: &mut Kernel, device: &DeviceInfo, port: u32) -> Result<CounterMode, State> {
    let left = |reason: String, fix: Option<&str>, again| State::Left { reason, fix: fix.map(str::to_owned), again };
    let mode = kernel
        .mode(device.index, port)
        .map_err(|trouble| left(format!("its counter mode cannot be asked: {trouble}"), None, true))?;
    if mode.mode != COUNTER_MODE_NONE {
        let how = match (mode.mode, mode.mask) {
            (COUNTER_MODE_AUTO, COUNTER_MASK_QP_TYPE) => "already bound by type",
            (COUNTER_MODE_AUTO, COUNTER_MASK_PID) => "already bound by process",
            (COUNTER_MODE_AUTO, _) => "already bound by type and process",
            _ => "already bound one by one",
        };
        return Err(left(format!("QPs are {how}; whoever did that keeps it, and their counters are read"), None, true));
    }
    match kernel.qps(device.index) {
        Some(qps) if qps > MAX_QPS => Err(left(too_many(qps), None, true)),
        _ => Ok(mode),
    }
}
