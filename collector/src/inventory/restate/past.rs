//! What happened before a recording that begins in the middle: single events of the last hour, each at its own time.
//!
//! Whoever begins to record when a port has fallen wants the fall to be in the recording. Counters, their histories and what
//! was posted are not said again: of the time before the recording only what is here is known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{function_line, lend, lend_option, port_line, say_device};
use crate::inventory::{AerTotal, DeviceId, DeviceRecord, PcieRecord, PortEvent, PortRecord, QpFailure, QpRef, World};
use crate::observation::{Aer, Async, Body, Device, Nanos, Observation, PortState, Qp, QpEvent, QpState};
use crate::source::Emit;

/// How far back, ns: as far as the rules on single events look.
const PAST_NS: Nanos = 3_600_000_000_000;

/// Says what happened to ports, functions and QPs within the last hour, and before it what was known when it began. Nothing
/// is said where nothing happened. [`restate`](super::restate) comes after it.
///
/// It is for the beginning of a recording only: said to somebody who has observed it, it would have happened twice.
pub fn restate_past(world: &World, emit: &mut Emit<'_>) {
    let past = Past { world, from: world.now.saturating_sub(PAST_NS) };
    let mut events = Vec::new();
    past.of_functions(&mut events);
    past.of_devices(&mut events);
    past.of_ports(&mut events);
    past.of_qps(&mut events);
    // What is of one moment stays in this order.
    events.sort_by_key(|event| event.t);
    let Some(first) = events.first().map(|event| event.t) else { return };
    past.say_before(first.saturating_sub(world.window_ns), emit);
    for event in &events {
        emit(event);
    }
}

/// The hour before a world.
struct Past<'w> {
    world: &'w World,
    /// Events after this are told.
    from: Nanos,
}

/// A device vanished so long ago that its ports do not remember it, or is there.
fn vanished(world: &World, id: DeviceId) -> Option<Nanos> {
    let removed = world.device(id).removed;
    let of_port =
        |port: &PortRecord| port.events.iter().rev().find(|(_, event)| *event == PortEvent::Removed).map(|(t, _)| *t);
    removed.then(|| world.ports_of(id).filter_map(of_port).max()).flatten()
}

impl<'w> Past<'w> {
    /// Devices that are there, or vanished within the hour.
    fn devices(&self) -> impl Iterator<Item = (DeviceId, &'w DeviceRecord)> {
        let world = self.world;
        let from = self.from;
        let all = (0..world.devices.len()).map(DeviceId::at).map(move |id| (id, world.device(id)));
        all.filter(move |(id, device)| !device.removed || vanished(world, *id).is_some_and(|t| t > from))
    }

    /// What was known at `t`, before the first of the events.
    fn say_before(&self, t: Nanos, emit: &mut Emit<'_>) {
        let mut say = |body: Body<'_>| emit(&Observation { t, body });
        for (id, device) in self.devices() {
            say_device(device, &mut say);
            for port in self.world.ports_of(id) {
                let change = port.states.iter().find(|(at, _)| *at > self.from);
                let state = change.map_or(port.state, |(_, change)| change.from);
                say(Body::Port(port_line(device, port, state, port.phys_state.as_ref().filter(|_| change.is_none()))));
            }
        }
        for record in self.world.pcie.values() {
            let totals = record.aer.as_ref().map(|totals| self.totals_before(record, totals));
            say(Body::Pcie(function_line(record, totals.as_deref())));
        }
        let mut told = BTreeSet::new();
        for (_, failure) in self.failures() {
            if told.insert(failure.id) {
                say(Body::Qp(self.qp_line(failure, QpEvent::Seen, Some(failure.from))));
            }
        }
    }

    /// A function's totals without what they grew by since.
    fn totals_before(&self, record: &PcieRecord, totals: &[AerTotal]) -> Vec<AerTotal> {
        let mut before = totals.to_vec();
        for (_, (severity, name, n)) in record.growth.since(self.from) {
            if let Some(total) = before.iter_mut().find(|total| total.severity == *severity && total.name == *name) {
                total.value = total.value.saturating_sub(*n);
            }
        }
        before
    }

    fn of_functions(&self, events: &mut Vec<Observation<'w>>) {
        for record in self.world.pcie.values().filter(|record| record.had_errors()) {
            for (t, event) in record.events.since(self.from) {
                let names = event.names.iter().map(lend).collect();
                let (pci, severity, status) = (lend(&record.pci), event.severity, event.status);
                let body = Aer { pci, severity, status, names, tlp: Vec::new(), agent: None };
                events.push(Observation { t: *t, body: Body::Aer(body) });
            }
            let Some(totals) = &record.aer else { continue };
            let mut totals = self.totals_before(record, totals);
            let mut readings: BTreeMap<Nanos, Vec<_>> = BTreeMap::new();
            for (t, growth) in record.growth.since(self.from) {
                readings.entry(*t).or_default().push(growth);
            }
            for (t, grown) in readings {
                for (severity, name, n) in grown {
                    if let Some(total) =
                        totals.iter_mut().find(|total| total.severity == *severity && total.name == *name)
                    {
                        total.value = total.value.saturating_add(*n);
                    }
                }
                events.push(Observation { t, body: Body::Pcie(function_line(record, Some(&totals))) });
            }
        }
    }

    fn of_devices(&self, events: &mut Vec<Observation<'w>>) {
        for (id, device) in self.devices() {
            for (t, report) in device.reports.since(self.from) {
                let body = Async { device: lend(&device.name), event: lend(report), ..Async::default() };
                events.push(Observation { t: *t, body: Body::Async(body) });
            }
            if let Some(t) = vanished(self.world, id) {
                let body = Device { device: lend(&device.name), removed: Some(true), ..Device::default() };
                events.push(Observation { t, body: Body::Device(body) });
            }
        }
    }

    fn of_ports(&self, events: &mut Vec<Observation<'w>>) {
        for (id, device) in self.devices() {
            for port in self.world.ports_of(id) {
                for (t, event) in port.events.since(self.from) {
                    let PortEvent::Async(event) = event else { continue };
                    let number = Some(port.key.port);
                    let body =
                        Async { device: lend(&device.name), port: number, event: lend(event), ..Async::default() };
                    events.push(Observation { t: *t, body: Body::Async(body) });
                }
                let gone = vanished(self.world, id);
                for (t, change) in port.states.since(self.from).filter(|(t, _)| gone.is_none_or(|gone| *t < gone)) {
                    let body = port_line(device, port, change.to, change.phys_state.as_ref());
                    events.push(Observation { t: *t, body: Body::Port(body) });
                }
            }
        }
    }

    /// QPs of devices that are told of and failed within the hour, oldest first.
    fn failures(&self) -> impl Iterator<Item = &'w (Nanos, QpFailure)> {
        let (world, from) = (self.world, self.from);
        let told = move |id: DeviceId| !world.device(id).removed || vanished(world, id).is_some_and(|t| t > from);
        world.qp_failures.iter().filter(move |(t, failure)| *t > from && told(failure.device))
    }

    fn of_qps(&self, events: &mut Vec<Observation<'w>>) {
        let mut told: BTreeSet<QpRef> = BTreeSet::new();
        for (t, failure) in self.failures() {
            if !told.insert(failure.id) {
                // It had been set up again.
                let body = self.qp_line(failure, QpEvent::Seen, Some(failure.from));
                events.push(Observation { t: *t, body: Body::Qp(body) });
            }
            let body = if failure.told {
                let device = lend(&self.world.device(failure.device).name);
                Body::Async(Async { device, qpn: Some(failure.qpn), event: "QP_FATAL".into(), ..Async::default() })
            } else {
                let event = if failure.asked { QpEvent::Modify } else { QpEvent::Seen };
                Body::Qp(self.qp_line(failure, event, Some(QpState::Err)))
            };
            events.push(Observation { t: *t, body });
        }
        for qp in self.world.qps.gone().filter(|qp| told.contains(&qp.id)) {
            let Some(t) = qp.destroyed else { continue };
            let device = lend(&self.world.device(qp.device).name);
            let port = qp.port.map(u32::from);
            let body = Qp { device, qpn: qp.qpn, port, event: QpEvent::Destroy, ..Qp::default() };
            events.push(Observation { t, body: Body::Qp(body) });
        }
    }

    fn qp_line(&self, failure: &'w QpFailure, event: QpEvent, to: Option<QpState>) -> Qp<'w> {
        let known = self.world.qps.get(failure.id);
        let text = |of: fn(&crate::inventory::QpRecord) -> Option<&Arc<str>>| known.and_then(of).map(lend);
        Qp {
            device: lend(&self.world.device(failure.device).name),
            qpn: failure.qpn,
            port: failure.port,
            event,
            qp_type: text(|qp| qp.qp_type.as_ref()),
            to,
            pid: failure.pid,
            comm: lend_option(failure.comm.as_ref()),
            container: text(|qp| qp.container.as_ref()),
            remote_qpn: known.and_then(|qp| qp.remote_qpn),
            remote_gid: text(|qp| qp.remote_gid.as_ref()),
            timeout: known.and_then(|qp| qp.timeout),
            retry_cnt: known.and_then(|qp| qp.retry_cnt),
            rnr_retry: known.and_then(|qp| qp.rnr_retry),
            ..Qp::default()
        }
    }
}

/// The state a port was in before it left ACTIVE is not lost with the hour: `left_active_t` of [`port_line`].
pub(super) fn left_active(port: &PortRecord, state: PortState) -> Option<Nanos> {
    // What has not happened at the time of the line is no news yet: who reads it leaves that out.
    port.left_active().filter(|_| state != PortState::Active)
}

#[cfg(test)]
mod tests;
