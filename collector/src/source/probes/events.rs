//! Records of the ring buffer become observations; what they say about a QP is remembered.

use std::fmt::Write as _;
use std::ptr;

use collector_ebpf::event::{Event, has, kind};
use collector_ebpf::outcome::FLUSHED;

use super::names;
use super::qps::Qps;
use super::store::Store;
use crate::observation::{Aer, Async, Body, Nanos, Observation, Qp, QpEvent, QpState, Text};
use crate::source::Emit;

/// A record's bytes as an event; `None` when they are too few.
pub(super) fn read(bytes: &[u8]) -> Option<Event> {
    if bytes.len() < size_of::<Event>() {
        return None;
    }
    #[allow(unsafe_code, reason = "the record was written by our own program as an `Event`")]
    // SAFETY: there are enough bytes, and an `Event` is integers only: any bytes are valid.
    Some(unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<Event>()) })
}

/// Turns events into observations.
pub(super) struct Events<'s> {
    pub(super) qps: &'s mut Qps,
    pub(super) store: &'s mut dyn Store,
    /// Calls whose result is not known, so that they could not be told of.
    pub(super) lost: &'s mut u64,
}

impl Events<'_> {
    /// Emits what an event says, at time `t` (its own, or a little later so that time does not step back).
    pub(super) fn take(&mut self, event: &Event, t: Nanos, emit: &mut Emit<'_>) {
        match event.kind {
            kind::CREATE => self.create(event, t, emit),
            kind::MODIFY => self.modify(event, t, emit),
            kind::DESTROY => self.destroy(event, t, emit),
            kind::DESTROY_FAILED => {
                let mut body = self.qp(event, QpEvent::Seen);
                body.errno = errno(event.result);
                emit(&Observation { t, body: Body::Qp(body) });
            }
            kind::ASYNC => self.asynchronous(event, t, emit),
            kind::AER => aer(event, t, emit),
            kind::COMPLETION => self.completion(event, t, emit),
            _ => *self.lost += 1,
        }
    }

    fn create(&mut self, event: &Event, t: Nanos, emit: &mut Emit<'_>) {
        let device = self.qps.devices.intern(&event.device);
        // One that is older was destroyed unseen.
        if let Some(qp) = self.qps.find(device, event.qpn)
            && self.qps.get(qp).is_some_and(|known| known.since <= event.t)
        {
            self.qps.end(self.store, qp, event.t, t, emit);
        }
        let qp = self.qps.find_or_add(device, event.qpn, event.t);
        if let Some(known) = self.qps.get(qp) {
            known.since = event.t;
            known.state = QpState::Reset;
            known.qp_type = event.get(has::QP_TYPE, event.qp_type);
            known.pid = event.get(has::USER, event.tgid);
            known.comm = known.pid.map(|_| event.comm);
        }
        let mut body = self.qp(event, QpEvent::Create);
        body.to = Some(QpState::Reset);
        emit(&Observation { t, body: Body::Qp(body) });
    }

    fn modify(&mut self, event: &Event, t: Nanos, emit: &mut Emit<'_>) {
        let device = self.qps.devices.intern(&event.device);
        let qp = self.qps.find_or_add(device, event.qpn, event.t);
        let to = event.get(has::STATE, event.state).map(QpState::from_kernel);
        let mut from = None;
        if let Some(known) = self.qps.get(qp) {
            from = (known.state != QpState::Unknown).then_some(known.state);
            known.qp_type = known.qp_type.or(event.get(has::QP_TYPE, event.qp_type));
            if let Some(pid) = event.get(has::USER, event.tgid)
                && known.pid.is_none_or(|owner| owner == pid)
            {
                known.pid = Some(pid);
                known.comm = Some(event.comm);
            }
            match event.get(has::RESULT, 0) {
                Some(_) if event.result == 0 => known.state = to.unwrap_or(known.state),
                Some(_) => {}
                None => {
                    // The call's return was missed: what it did is not known, so it is not told as done.
                    known.state = QpState::Unknown;
                    *self.lost += 1;
                    return;
                }
            }
        }
        let mut body = self.qp(event, QpEvent::Modify);
        body.from = from;
        body.to = to;
        body.errno = errno(event.result);
        body.remote_qpn = event.get(has::REMOTE_QPN, event.remote_qpn);
        body.remote_gid = (event.has & has::GID != 0).then(|| Text::Owned(gid(&event.gid)));
        let small = |bit, value: u32| event.get(bit, value).and_then(|value| u8::try_from(value).ok());
        body.timeout = small(has::TIMEOUT, event.timeout);
        body.retry_cnt = small(has::RETRY_CNT, event.retry_cnt);
        body.rnr_retry = small(has::RNR_RETRY, event.rnr_retry);
        body.path_mtu = event.get(has::PATH_MTU, event.path_mtu).and_then(names::mtu_bytes);
        emit(&Observation { t, body: Body::Qp(body) });
    }

    fn destroy(&mut self, event: &Event, t: Nanos, emit: &mut Emit<'_>) {
        let device = self.qps.devices.intern(&event.device);
        if let Some(slot) = event.get(has::SLOT, event.slot) {
            self.qps.adopt(device, event.qpn, slot, event.t);
        }
        // A younger QP with this number is not the one that was destroyed, whose end was told already.
        let ended =
            self.qps.find(device, event.qpn).filter(|qp| self.qps.get(*qp).is_some_and(|known| known.since <= event.t));
        let known = ended.and_then(|qp| self.qps.get(qp)).map(|known| (known.state, known.pid, known.comm));
        if let Some(qp) = ended {
            self.qps.end(self.store, qp, event.t, t, emit);
        }
        let mut body = self.qp(event, QpEvent::Destroy);
        if let Some((state, owner, comm)) = known {
            body.from = (state != QpState::Unknown).then_some(state);
            // A process that is killed may be cleaned up after by another task: the owner is who created the QP.
            if let Some(owner) = owner
                && body.pid != Some(owner)
            {
                body.pid = Some(owner);
                body.comm = comm.map(|comm| Text::Owned(text(&comm)));
            }
        }
        emit(&Observation { t, body: Body::Qp(body) });
    }

    fn asynchronous(&mut self, event: &Event, t: Nanos, emit: &mut Emit<'_>) {
        let device = self.qps.devices.intern(&event.device);
        let qpn = event.get(has::QPN, event.qpn);
        // QP_FATAL, QP_REQ_ERR and QP_ACCESS_ERR: the device has moved the QP to the error state by itself.
        if let (1..=3, Some(qpn)) = (event.code, qpn)
            && let Some(qp) = self.qps.find(device, qpn)
            && let Some(known) = self.qps.get(qp)
        {
            known.state = QpState::Err;
        }
        let body = Async {
            device: Text::Borrowed(self.qps.devices.name(device)),
            port: event.get(has::PORT, event.port),
            qpn,
            event: Text::Owned(names::event(event.code)),
        };
        emit(&Observation { t, body: Body::Async(body) });
    }

    /// An error completion: the QP's statistics are told at once, so that the error has its time.
    fn completion(&mut self, event: &Event, t: Nanos, emit: &mut Emit<'_>) {
        let device = self.qps.devices.intern(&event.device);
        if let Some(slot) = event.get(has::SLOT, event.slot) {
            self.qps.adopt(device, event.qpn, slot, event.t);
        }
        let Some(qp) = self.qps.find(device, event.qpn) else { return };
        if event.status != FLUSHED
            && let Some(known) = self.qps.get(qp)
        {
            known.vendor_err = known.vendor_err.or(event.get(has::VENDOR_ERR, event.code));
        }
        self.qps.emit_stats(self.store, qp, t, emit);
    }

    /// What all events of a QP say.
    fn qp(&mut self, event: &Event, what: QpEvent) -> Qp<'_> {
        let device = self.qps.devices.intern(&event.device);
        let pid = event.get(has::USER, event.tgid);
        Qp {
            device: Text::Borrowed(self.qps.devices.name(device)),
            qpn: event.qpn,
            port: event.get(has::PORT, event.port),
            event: what,
            qp_type: event.get(has::QP_TYPE, event.qp_type).and_then(names::qp_type).map(Text::Borrowed),
            pid,
            comm: pid.map(|_| Text::Owned(text(&event.comm))),
            ..Qp::default()
        }
    }
}

fn aer(event: &Event, t: Nanos, emit: &mut Emit<'_>) {
    let severity = names::severity(event.code);
    let body = Aer {
        pci: String::from_utf8_lossy(event.device.bytes()),
        severity,
        status: event.status,
        names: names::aer(severity, event.status).into_iter().map(Text::Owned).collect(),
        tlp: if event.has & has::TLP == 0 { Vec::new() } else { event.tlp.to_vec() },
        agent: None,
    };
    emit(&Observation { t, body: Body::Aer(body) });
}

/// A positive error code.
fn errno(result: i32) -> Option<u32> {
    (result < 0).then(|| result.unsigned_abs())
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
}

/// A GID in the kernel's notation: eight groups of four digits.
fn gid(bytes: &[u8; 16]) -> String {
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs.iter().fold(String::with_capacity(39), |mut text, pair| {
        if !text.is_empty() {
            text.push(':');
        }
        let _ = write!(text, "{:02x}{:02x}", pair[0], pair[1]);
        text
    })
}
