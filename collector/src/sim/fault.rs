//! What a scenario can do to the node, with all that a real node would show of it.

use super::node::Node;
use crate::observation::{Aer, AerSeverity, Async, Body, Health, Nanos, Observation, QpEvent, QpState, Text, Truth};
use crate::source::Emit;

/// A PCIe error of the kinds the scenarios use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PcieError {
    /// Receiver error, corrected (bit 0).
    RxErr,
    /// Bad TLP, corrected (bit 6).
    BadTlp,
    /// Bad DLLP, corrected (bit 7).
    BadDllp,
    /// Replay number rollover, corrected (bit 8).
    Rollover,
    /// Completion timeout, non-fatal (bit 14).
    CmpltTo,
}

/// Work requests a QP has outstanding when it fails.
const OUTSTANDING: u32 = 15;

impl Node {
    /// The truth changes: for scoring, never for the engine. The class is the id of the rule that should say so.
    pub(super) fn truth(&self, t: Nanos, port: usize, class: &'static str, active: bool, emit: &mut Emit<'_>) {
        let device = self.ports[port].device.as_str().into();
        emit(&Observation { t, body: Body::Truth(Truth { device, port: 1, class: class.into(), active }) });
    }

    /// The port's PCIe function reports an error.
    pub(super) fn pcie_error(&mut self, t: Nanos, port: usize, error: PcieError, emit: &mut Emit<'_>) {
        let function = self.ports[port].function;
        let root = self.functions[function].path[0].clone();
        let aer = &mut self.functions[function].aer;
        let (severity, status, name) = match error {
            PcieError::RxErr => (AerSeverity::Corrected, 1 << 0, "RxErr"),
            PcieError::BadTlp => (AerSeverity::Corrected, 1 << 6, "BadTLP"),
            PcieError::BadDllp => (AerSeverity::Corrected, 1 << 7, "BadDLLP"),
            PcieError::Rollover => (AerSeverity::Corrected, 1 << 8, "Rollover"),
            PcieError::CmpltTo => (AerSeverity::Nonfatal, 1 << 14, "CmpltTO"),
        };
        match error {
            PcieError::RxErr => aer.rx_err += 1,
            PcieError::BadTlp => aer.bad_tlp += 1,
            PcieError::BadDllp => aer.bad_dllp += 1,
            PcieError::Rollover => aer.rollover += 1,
            PcieError::CmpltTo => aer.cmplt_to += 1,
        }
        let corrected = severity == AerSeverity::Corrected;
        if corrected {
            aer.corrected += 1;
        } else {
            aer.nonfatal += 1;
        }
        if let Some(root) = self.functions.iter_mut().find(|f| f.pci == root) {
            if corrected {
                root.aer.root_corrected += 1;
            } else {
                root.aer.root_nonfatal += 1;
            }
        }
        let pci = self.functions[function].pci.as_str().into();
        let body = Aer { pci, severity, status, names: vec![Text::from(name)], tlp: Vec::new(), agent: None };
        emit(&Observation { t, body: Body::Aer(body) });
    }

    /// The port goes down: the event first, then the state a poll finds.
    pub(super) fn port_down(&mut self, t: Nanos, port: usize, emit: &mut Emit<'_>) {
        let port = &mut self.ports[port];
        port.up = false;
        port.pma.add("link_downed", 1);
        port.ethtool.add("link_down_events_phy", 1);
        port.emit_async(t, "PORT_ERR", emit);
    }

    /// The port comes back.
    pub(super) fn port_up(&mut self, t: Nanos, port: usize, emit: &mut Emit<'_>) {
        let port = &mut self.ports[port];
        port.up = true;
        port.emit_async(t, "PORT_ACTIVE", emit);
        port.emit_state(t, emit);
    }

    /// The kernel's list is read right after something happened.
    pub(super) fn look(&mut self, t: Nanos, port: usize, emit: &mut Emit<'_>) {
        self.ports[port].emit_state(t, emit);
    }

    /// A QP runs out of retries: its oldest request fails, the rest is flushed.
    pub(super) fn qp_dies(&mut self, t: Nanos, port: usize, at: usize, emit: &mut Emit<'_>) {
        let per_qp = self.per_qp;
        let port = &mut self.ports[port];
        let Some(qp) = port.qps.get_mut(at).filter(|qp| qp.alive) else { return };
        qp.alive = false;
        let stats = qp.stats_mut();
        stats.retry_exceeded += 1;
        stats.flushed += OUTSTANDING;
        port.hw.add("req_transport_retries_exceeded", 1);
        port.hw.add("local_ack_timeout_err", 7);
        port.hw.add("req_cqe_error", 1 + u64::from(OUTSTANDING));
        port.hw.add("req_cqe_flush_error", u64::from(OUTSTANDING));
        if per_qp {
            port.emit_qp(t, at, QpEvent::Seen, None, QpState::Err, emit);
        }
    }

    /// A reporter of the device says something, and its totals grow.
    pub(super) fn health(&mut self, t: Nanos, port: usize, reporter: &'static str, message: &str, emit: &mut Emit<'_>) {
        let port = &mut self.ports[port];
        let (state, count) = match reporter {
            "fw" => ("fw.state", "fw.error_count"),
            _ => ("fw_fatal.state", "fw_fatal.error_count"),
        };
        port.devlink.set(state, 1);
        port.devlink.add(count, 1);
        let body = Health {
            device: Some(port.device.as_str().into()),
            pci: None,
            reporter: reporter.into(),
            message: message.into(),
        };
        emit(&Observation { t, body: Body::Health(body) });
    }

    /// The driver is unloaded.
    pub(super) fn unload(&mut self, t: Nanos, port: usize, emit: &mut Emit<'_>) {
        let port = &mut self.ports[port];
        port.gone = true;
        for set in [&mut port.pma, &mut port.hw, &mut port.ethtool, &mut port.devlink] {
            set.reset();
        }
        let body = crate::observation::Device {
            device: port.device.as_str().into(),
            removed: Some(true),
            ..crate::observation::Device::default()
        };
        emit(&Observation { t, body: Body::Device(body) });
    }

    /// The driver is loaded again.
    pub(super) fn load(&mut self, t: Nanos, port: usize, emit: &mut Emit<'_>) {
        self.ports[port].gone = false;
        self.introduce_port(t, port, emit);
    }

    /// The job ends or begins: its QPs go or come. What the last tick said.
    pub(super) fn turn(&mut self, t: Nanos, emit: &mut Emit<'_>) {
        let running = self.job.running();
        if running == self.running {
            return;
        }
        self.running = running;
        self.jobs += u32::from(running);
        let (per_qp, n, jobs) = (self.per_qp, self.shape.qps_per_port, self.jobs);
        for (number, port) in (0..).zip(&mut self.ports).filter(|(_, port)| !port.infiniband) {
            if running {
                port.pid = port.pid.map(|pid| pid + 97);
                port.create_qps(number, n, jobs);
            }
            for at in (0..port.qps.len()).filter(|_| per_qp) {
                if running {
                    port.emit_qp(t, at, QpEvent::Create, None, QpState::Reset, emit);
                    for (from, to) in
                        [(QpState::Reset, QpState::Init), (QpState::Init, QpState::Rtr), (QpState::Rtr, QpState::Rts)]
                    {
                        port.emit_qp(t, at, QpEvent::Modify, Some(from), to, emit);
                    }
                } else {
                    port.emit_qp(t, at, QpEvent::Modify, Some(QpState::Rts), QpState::Err, emit);
                    port.emit_qp(t, at, QpEvent::Destroy, None, QpState::Err, emit);
                }
            }
            if !running {
                port.qps.clear();
            }
        }
    }
}

impl super::node::SimPort {
    fn emit_async(&self, t: Nanos, event: &'static str, emit: &mut Emit<'_>) {
        let device = self.device.as_str().into();
        emit(&Observation { t, body: Body::Async(Async { device, port: Some(1), qpn: None, event: event.into() }) });
    }
}
