//! The kernel's list of QPs, and what changed in it since the last one.
//!
//! `RDMA_NLDEV_CMD_RES_QP_GET` asks the driver for each QP (`ib_query_qp`): one firmware command each on mlx5. The
//! caller therefore counts first ([`super::reply::qp_count`] costs nothing) and stretches the period.
//!
//! The kernel resumes a long list by position, not by QP. When a QP goes away between two parts of the answer the next
//! one is skipped, so a list of several parts never proves that a QP is gone: it must be missing from two.

use std::collections::HashMap;

use crate::observation::{Body, Nanos, Observation, Qp, QpEvent, QpState, Text};
use crate::source::Emit;

use super::conversation::Answer;
use super::owner::Owners;
use super::reply::{DeviceInfo, QpInfo};
use super::uapi;

/// SMI and GSI QPs have the numbers 0 and 1 on every port; all other numbers are unique to their device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    device: u32,
    qpn: u32,
    port: u32,
}

/// What the last list said of a QP.
#[derive(Debug, Clone, Copy)]
struct Known {
    qp_type: u8,
    state: u8,
    pid: Option<u32>,
    remote_qpn: Option<u32>,
    port: Option<u32>,
    /// The list it was last in.
    round: u32,
    /// It was missing from the list before.
    missed: bool,
}

/// The QPs known from the lists so far.
#[derive(Default)]
pub(super) struct QpList {
    known: HashMap<Key, Known>,
    round: u32,
}

impl QpList {
    /// A new listing begins.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// QPs known now.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Takes one entry of the list and emits it when it is new or its state, owner, port or peer is another.
    pub(super) fn see(
        &mut self,
        device: &DeviceInfo,
        qp: QpInfo<'_>,
        owners: &mut Owners,
        now: Nanos,
        emit: &mut Emit<'_>,
    ) {
        let key = Key {
            device: device.index,
            qpn: qp.qpn,
            port: if uapi::is_per_port(qp.qp_type) { qp.port.unwrap_or(0) } else { 0 },
        };
        let found = Known {
            qp_type: qp.qp_type,
            state: qp.state,
            pid: qp.pid,
            remote_qpn: qp.remote_qpn,
            port: qp.port,
            round: self.round,
            missed: false,
        };
        let told = |k: &Known| (k.qp_type, k.state, k.pid, k.remote_qpn, k.port);
        if self.known.insert(key, found).is_some_and(|before| told(&before) == told(&found)) {
            return;
        }
        let owner = qp.pid.map(|pid| owners.of(pid));
        let comm = owner.and_then(|owner| owner.comm.as_deref()).or(qp.kernel_name);
        let body = Body::Qp(Qp {
            to: Some(QpState::from_kernel(u32::from(qp.state))),
            pid: qp.pid,
            comm: comm.map(Text::from),
            container: owner.and_then(|owner| owner.container.as_deref()).map(Text::from),
            remote_qpn: qp.remote_qpn,
            ..identity(&device.name, qp.qpn, qp.port, qp.qp_type, QpEvent::Seen)
        });
        emit(&Observation { t: now, body });
    }

    /// The whole list of a device has been seen: emits a destroy for what is no longer in it. Another source may have
    /// told of it already, and more exactly; the engine takes the first.
    pub(super) fn end(&mut self, device: &DeviceInfo, answer: Answer, now: Nanos, emit: &mut Emit<'_>) {
        if answer.interrupted {
            return;
        }
        let round = self.round;
        self.known.retain(|key, known| {
            if key.device != device.index || known.round == round {
                return true;
            }
            if answer.parts > 1 && !known.missed {
                known.missed = true;
                return true;
            }
            destroyed(&device.name, *key, *known, now, emit);
            false
        });
    }

    /// A device has left the list of devices, and its QPs with it.
    pub(super) fn device_gone(&mut self, device: &DeviceInfo, now: Nanos, emit: &mut Emit<'_>) {
        self.known.retain(|key, known| {
            if key.device != device.index {
                return true;
            }
            destroyed(&device.name, *key, *known, now, emit);
            false
        });
    }
}

fn destroyed(device: &str, key: Key, known: Known, now: Nanos, emit: &mut Emit<'_>) {
    let body =
        Body::Qp(Qp { pid: known.pid, ..identity(device, key.qpn, known.port, known.qp_type, QpEvent::Destroy) });
    emit(&Observation { t: now, body });
}

fn identity(device: &str, qpn: u32, port: Option<u32>, qp_type: u8, event: QpEvent) -> Qp<'_> {
    // A type without a name is told by its number: it is not the reader's fault that the kernel is newer.
    let qp_type = uapi::qp_type_name(qp_type).map_or_else(|| Text::from(qp_type.to_string()), Text::from);
    Qp { device: device.into(), qpn, port, event, qp_type: Some(qp_type), ..Qp::default() }
}
