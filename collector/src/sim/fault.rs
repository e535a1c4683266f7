//! What a scenario can do to the node, with all that a real node would show of it.

use super::node::Node;
use crate::observation::{Aer, AerSeverity, Async, Body, Nanos, Observation, QpEvent, QpState, Text, Truth};
use crate::source::Emit;

/// A PCIe error of the kinds the scenarios use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PcieError {
    /// Receiver error, corrected (bit 0).
    RxErr,
    /// Bad TLP, corrected (bit 6).
    BadTlp,
    /// Replay number rollover, corrected (bit 8).
    Rollover,
    /// Completion timeout, non-fatal (bit 14).
    CmpltTo,
}

impl Node {
    /// The truth changes: for scoring, never for the engine.
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
            PcieError::Rollover => (AerSeverity::Corrected, 1 << 8, "Rollover"),
            PcieError::CmpltTo => (AerSeverity::Nonfatal, 1 << 14, "CmpltTO"),
        };
        match error {
            PcieError::RxErr => aer.rx_err += 1,
            PcieError::BadTlp => aer.bad_tlp += 1,
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
        let body = Aer { pci, severity, status, names: vec![Text::from(name)], tlp: Vec::new() };
        emit(&Observation { t, body: Body::Aer(body) });
    }

    /// The port goes down: the event first, then the state a poll finds.
    pub(super) fn port_down(&mut self, t: Nanos, port: usize, emit: &mut Emit<'_>) {
        let port = &mut self.ports[port];
        port.up = false;
        port.pma.add("link_downed", 1);
        port.ethtool.add("link_down_events_phy", 1);
        let device = port.device.as_str().into();
        emit(&Observation {
            t,
            body: Body::Async(Async { device, port: Some(1), qpn: None, event: "PORT_ERR".into() }),
        });
    }

    /// The kernel's list is read right after something happened.
    pub(super) fn look(&mut self, t: Nanos, port: usize, emit: &mut Emit<'_>) {
        self.ports[port].emit_state(t, emit);
    }

    /// A QP runs out of retries: its oldest request fails, the rest is flushed.
    pub(super) fn qp_dies(&mut self, t: Nanos, port: usize, at: usize, emit: &mut Emit<'_>) {
        let outstanding = 15;
        let port = &mut self.ports[port];
        port.hw.add("req_transport_retries_exceeded", 1);
        port.hw.add("local_ack_timeout_err", 7);
        port.hw.add("req_cqe_error", 1 + outstanding);
        port.hw.add("req_cqe_flush_error", outstanding);
        let qp = &mut port.qps[at];
        qp.alive = false;
        qp.changed = true;
        qp.retry_exceeded += 1;
        qp.flushed += outstanding;
        port.qps[at].emit_event(t, port, QpEvent::Seen, QpState::Err, emit);
    }
}
