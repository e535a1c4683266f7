//! Rare events as log records: uncorrected PCIe errors, a port that comes or goes, a QP in the error state, a device that
//! is gone, a bond that chose another member. Everything else is in the metrics.

use std::collections::HashMap;

use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};

use super::attribute::Attributes;
use super::logs::{encoded, new};
use super::queue::{Item, Kind};
use super::wall::Wall;
use crate::inventory::{PortKey, QpFailure, QpRef, World};
use crate::observation::{Aer, AerSeverity, Body, Bond, Device, Nanos, Observation, PortState};

/// What an observation may have changed; the engine takes it after the sinks saw it.
#[derive(Debug)]
enum Concern {
    Port(String, u32),
    Qps,
}

/// Watches for events.
#[derive(Debug, Default)]
pub(super) struct Events {
    concern: Option<Concern>,
    /// The last change of state that was told of a port.
    ports: HashMap<PortKey, (Nanos, PortState)>,
    /// The last failure of a QP that was told.
    failure: Option<(Nanos, QpRef)>,
}

impl Events {
    /// Looks at what the observation before has changed.
    pub(super) fn settle(&mut self, world: &World, wall: Wall) -> Option<Item> {
        let record = match self.concern.take()? {
            Concern::Port(device, number) => self.port(world, &device, number, wall),
            Concern::Qps => self.failure(world, wall),
        };
        record.map(|record| encoded(Kind::Event, &record))
    }

    /// Looks at an observation which the engine has not taken yet. [`Self::settle`] comes first.
    pub(super) fn observe(&mut self, observation: &Observation<'_>, world: &World, wall: Wall) -> Option<Item> {
        let t = observation.t;
        let record = match &observation.body {
            Body::Port(port) => {
                self.concern = Some(Concern::Port(port.device.to_string(), port.port));
                None
            }
            Body::Async(event) => {
                self.concern = match (event.port, event.qpn) {
                    (_, Some(_)) => Some(Concern::Qps),
                    (Some(port), None) => Some(Concern::Port(event.device.to_string(), port)),
                    (None, None) => None,
                };
                None
            }
            Body::Qp(_) => {
                self.concern = Some(Concern::Qps);
                None
            }
            Body::Aer(aer) => uncorrected(t, aer, wall),
            Body::Device(device) => removed(t, device, world, wall),
            Body::Bond(bond) => switched(t, bond, world, wall),
            _ => None,
        };
        record.map(|record| encoded(Kind::Event, &record))
    }

    fn port(&mut self, world: &World, device: &str, number: u32, wall: Wall) -> Option<LogRecord> {
        let (id, _) = world.device_named(device)?;
        let port = world.port(PortKey { device: id, port: number })?;
        let (t, change) = port.states.last()?;
        if self.ports.insert(port.key, (*t, change.to)) == Some((*t, change.to)) {
            return None;
        }
        // That it can or cannot be read is no change of the port.
        if change.from == PortState::Unknown || change.to == PortState::Unknown {
            return None;
        }
        let severity = if change.to == PortState::Active { SeverityNumber::Info } else { SeverityNumber::Warn };
        let body = format!("{device}/{number}: {} → {}", change.from.name(), change.to.name());
        let attributes = Attributes::default()
            .text("rdma.subject.device", device)
            .int("rdma.subject.port", Some(u64::from(number)))
            .text("rdma.port.state.from", change.from.name())
            .text("rdma.port.state.to", change.to.name())
            .some_text("rdma.port.phys_state", change.phys_state.as_deref());
        Some(new("rdma.port.state", severity, *t, &body, attributes.done(), wall))
    }

    fn failure(&mut self, world: &World, wall: Wall) -> Option<LogRecord> {
        let (t, failure) = world.qp_failures.last()?;
        if self.failure.replace((*t, failure.id)) == Some((*t, failure.id)) {
            return None;
        }
        Some(failed(*t, failure, world, wall))
    }
}

fn failed(t: Nanos, failure: &QpFailure, world: &World, wall: Wall) -> LogRecord {
    let device = &world.device(failure.device).name;
    // A process that ends its QPs asks for the error state; that is no fault.
    let severity = if failure.asked { SeverityNumber::Info } else { SeverityNumber::Error };
    let who = if failure.asked { "moved to the error state by a call" } else { "went into the error state" };
    let body = format!("{device} QP {}: {who}", failure.qpn);
    let attributes = Attributes::default()
        .text("rdma.subject.device", &**device)
        .int("rdma.subject.port", failure.port.map(u64::from))
        .int("rdma.subject.qpn", Some(u64::from(failure.qpn)))
        .text("rdma.qp.state.from", failure.from.name())
        .truth("rdma.qp.asked", failure.asked)
        .int("process.pid", failure.pid.map(u64::from))
        .some_text("process.executable.name", failure.comm.as_deref());
    new("rdma.qp.error", severity, t, &body, attributes.done(), wall)
}

fn uncorrected(t: Nanos, aer: &Aer<'_>, wall: Wall) -> Option<LogRecord> {
    let (severity, word) = match aer.severity {
        AerSeverity::Corrected => return None,
        AerSeverity::Nonfatal => (SeverityNumber::Warn, "nonfatal"),
        AerSeverity::Fatal => (SeverityNumber::Error, "fatal"),
    };
    let names: Vec<&str> = aer.names.iter().map(|name| &**name).collect();
    let body = format!("{}: {word} PCIe error {}", aer.pci, names.join(", "));
    let attributes = Attributes::default()
        .text("rdma.subject.pci", &*aer.pci)
        .text("pcie.aer.severity", word)
        .int("pcie.aer.status", Some(u64::from(aer.status)))
        .texts("pcie.aer.names", names.iter().copied())
        .some_text("pcie.aer.agent", aer.agent.as_deref());
    Some(new("pcie.aer", severity, t, body.trim_end(), attributes.done(), wall))
}

fn removed(t: Nanos, device: &Device<'_>, world: &World, wall: Wall) -> Option<LogRecord> {
    if device.removed != Some(true) {
        return None;
    }
    let (_, known) = world.device_named(&device.device)?;
    let attributes = Attributes::default()
        .text("rdma.subject.device", &*known.name)
        .some_text("rdma.subject.pci", known.pci.as_deref())
        .some_text("rdma.device.driver", known.driver.as_deref());
    let body = format!("{} is gone", known.name);
    Some(new("rdma.device.removed", SeverityNumber::Warn, t, &body, attributes.done(), wall))
}

fn switched(t: Nanos, bond: &Bond<'_>, world: &World, wall: Wall) -> Option<LogRecord> {
    let before = world.bonds.get(&*bond.bond)?.active.as_deref();
    let now = bond.active.as_deref();
    if before == now {
        return None;
    }
    let body = format!("{}: {} → {}", bond.bond, before.unwrap_or("no member"), now.unwrap_or("no member"));
    let attributes = Attributes::default()
        .text("rdma.bond.name", &*bond.bond)
        .text("rdma.bond.mode", &*bond.mode)
        .some_text("rdma.bond.active.from", before)
        .some_text("rdma.bond.active.to", now);
    Some(new("rdma.bond.failover", SeverityNumber::Warn, t, &body, attributes.done(), wall))
}
