//! What observations say of failovers: the stopwatch is told, and the world shows what it knows.

use std::sync::Arc;

use super::Engine;
use crate::inventory::failover::stopwatch::Moved;
use crate::inventory::{DeviceId, Failover, Moment, PortKey, QpRecord, World};
use crate::observation::{self, Nanos, PortState, QpEvent, QpState};

/// Failovers that are remembered.
const MAX_FAILOVERS: usize = 64;

impl Engine {
    /// The failovers that began, went on or ended since the last call, in order.
    pub fn drain_failovers(&mut self) -> Vec<Arc<Failover>> {
        std::mem::take(&mut self.failover_changes)
    }

    /// After an observation: what is new is shown.
    pub(super) fn follow_failovers(&mut self, at_window: bool) {
        if !self.stopwatch.refresh(&self.world, &self.settings.failover, at_window) {
            return;
        }
        for failover in self.stopwatch.take_changed() {
            if failover.closed_t.is_some()
                && let Some(at) = self.world.place_of(failover.key)
            {
                Arc::make_mut(&mut self.world.ports[at]).failovers.ended(&failover);
            }
            let known = self.world.failovers.iter_mut().rev().find(|known| known.id == failover.id);
            match known {
                Some(known) => *known = failover.clone(),
                None => {
                    if self.world.failovers.len() == MAX_FAILOVERS {
                        self.world.failovers.remove(0);
                        self.world.failovers_dropped += 1;
                    }
                    self.world.failovers.push(failover.clone());
                }
            }
            self.failover_changes.push(failover);
        }
        for failover in self.stopwatch.take_counted() {
            if let Some(known) = self.world.failovers.iter_mut().rev().find(|known| known.id == failover.id) {
                *known = failover;
            }
        }
    }

    pub(super) fn close_failovers(&mut self, at: Nanos) {
        let vanished_ns = crate::rule::clock::ns(self.settings.link_down.vanished_s);
        self.stopwatch.window(&self.world, &self.settings.failover, vanished_ns, at);
        self.follow_failovers(true);
    }

    /// A port's state was read.
    pub(super) fn port_read(&mut self, key: PortKey, t: Nanos, before: (Nanos, PortState), to: PortState) {
        let at = self.stopwatch.read(t, before.0);
        let what = format!("state {} was read", to.name());
        self.stopwatch.port(&self.world, &self.settings.failover, key, (at, before.1, to), what);
    }

    /// A bond was told by an event, or read.
    pub(super) fn bond_said(&mut self, t: Nanos, event: bool, bond: (&Arc<str>, Option<&Arc<str>>)) {
        let at = if event { Moment::at(t) } else { self.stopwatch.read(t, 0) };
        self.stopwatch.bond(&self.world, &self.settings.failover, bond, at);
    }

    /// An event told a port's state.
    pub(super) fn port_told(&mut self, key: PortKey, t: Nanos, from: PortState, event: &str) {
        let to = match event {
            "PORT_ERR" => PortState::Down,
            "PORT_ACTIVE" => PortState::Active,
            _ => return,
        };
        let change = (Moment::at(t), from, to);
        self.stopwatch.port(&self.world, &self.settings.failover, key, change, format!("{event} event"));
    }

    /// A call changed a QP.
    pub(super) fn qp_called(&mut self, t: Nanos, device: DeviceId, number: u32, seen: &observation::Qp<'_>) {
        let (QpEvent::Modify, Some(to @ (QpState::Sqd | QpState::Err)), None) = (seen.event, seen.to, seen.errno)
        else {
            return;
        };
        let Some(qp) = others(&self.world, device, number) else { return };
        let Some(port) = self.port_of_qp(device, qp.port) else { return };
        let key = PortKey { device, port };
        self.stopwatch.qp_asked(&self.world, &self.settings.failover, (key, qp), (t, to));
    }

    /// A QP ended that nobody was seen asking for.
    pub(super) fn qp_died(&mut self, device: DeviceId, number: u32, at: Moment, told: bool, what: &str) {
        let Some(qp) = others(&self.world, device, number) else { return };
        let Some(port) = self.port_of_qp(device, qp.port) else { return };
        let key = PortKey { device, port };
        let what = format!("QP {} {what}", qp.qpn);
        self.stopwatch.qp_died(&self.world, &self.settings.failover, (key, qp), (at, told), what);
    }

    /// A QP posted, or completed without an error.
    pub(super) fn qp_moved(&mut self, device: DeviceId, number: u32, moved: &Moved) {
        if !self.stopwatch.is_running() {
            return;
        }
        let Some(qp) = others(&self.world, device, number) else { return };
        let key = self.port_of_qp(device, qp.port).map(|port| PortKey { device, port });
        self.stopwatch.qp_moved(&self.world, (key, qp), moved);
    }

    /// The first numbers of a QP say that it has posted, before anybody looked.
    pub(super) fn qp_had_posted(&mut self, device: DeviceId, number: u32) {
        if !self.stopwatch.is_running() {
            return;
        }
        let Some(qp) = others(&self.world, device, number) else { return };
        let key = self.port_of_qp(device, qp.port).map(|port| PortKey { device, port });
        self.stopwatch.posted_sometime(key, qp);
    }
}

/// A QP that is not rdmascope's own: what becomes of that is no application's failover.
fn others(world: &World, device: DeviceId, number: u32) -> Option<&QpRecord> {
    world.qps.find(device, number).filter(|qp| !qp.is_own())
}
