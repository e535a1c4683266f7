//! What observations say of ports: their state, their counters, their events, the bonds over them.

use std::sync::Arc;

use super::{Engine, shared};
use crate::inventory::{
    BondRecord, CongestionRecord, CounterSet, DeviceId, LoopbackSample, PortEvent, PortKey, PortRecord, bound_to,
};
use crate::observation::{self, CounterSource, Nanos, PortState};
use crate::rule::Trigger;
use crate::timeline::arithmetic::Fell;

impl Engine {
    pub(super) fn port_index(&mut self, t: Nanos, device: DeviceId, port: u32, state: PortState) -> usize {
        let key = PortKey { device, port };
        self.world.place_of(key).unwrap_or_else(|| self.world.add_port(PortRecord::new(key, t, state)))
    }

    pub(super) fn port(&mut self, t: Nanos, seen: &observation::Port<'_>) {
        let Some(device) = self.device_id(t, &seen.device) else { return };
        let before = self.world.ports.len();
        let index = self.port_index(t, device, seen.port, seen.state);
        let new = self.world.ports.len() > before;
        let port = Arc::make_mut(&mut self.world.ports[index]);
        if port.first_seen.1 == PortState::Unknown && port.states.is_empty() {
            // The port was known by its counters only; its first state is no change.
            port.first_seen = (t, seen.state);
            port.state = seen.state;
        }
        if let Some(left) = seen.left_active_t.filter(|left| new && *left <= t) {
            // It fell before the first observation, and somebody saw it.
            port.fell_before(left, seen.state);
        }
        let before = (port.t, port.state);
        let changed = port.update(t, seen);
        // A port that is first seen in order is no news: a node with many would ask all rules of all ports for each.
        if changed || (new && seen.state != PortState::Active) {
            self.ask(Trigger::Port);
        }
        if changed && !new {
            self.port_read(PortKey { device, port: seen.port }, t, before, seen.state);
        }
    }

    pub(super) fn counters(&mut self, t: Nanos, seen: &observation::Counters<'_>) {
        if matches!(seen.source, CounterSource::Counters | CounterSource::HwCounters | CounterSource::Nldev) {
            self.stopwatch.round(t);
        }
        let Some(id) = self.device_id(t, &seen.device) else { return };
        let device = self.world.device(id);
        let (driver, vf) = (device.driver.clone(), device.vf);
        let device_reset = device.reset.is_some_and(|(at, _)| t.saturating_sub(at) < self.window_ns);
        let index = seen.port.map(|port| self.port_index(t, id, port, PortState::Unknown));
        if let Some(set) = seen.set {
            // A set belongs to a port. One of no port would be taken for the device's, and never be gone.
            if let Some(index) = index {
                Arc::make_mut(&mut self.world.ports[index]).bound.take(t, vf, driver.as_ref(), set, seen);
            }
            return;
        }
        let bound = bound_to(seen);
        let sets = match index {
            Some(index) => &mut Arc::make_mut(&mut self.world.ports[index]).sets,
            None => &mut Arc::make_mut(&mut self.world.devices[id.0 as usize]).sets,
        };
        let netdev = seen.netdev.as_deref();
        let known = sets
            .iter()
            .position(|set| set.source == seen.source && set.netdev.as_deref() == netdev && set.bound == bound);
        let at = known.unwrap_or_else(|| {
            sets.push(CounterSet::new(seen.source, netdev, bound, driver.clone()));
            sets.len() - 1
        });
        let taken = sets[at].take(
            t,
            vf,
            device_reset,
            driver.as_ref(),
            seen.values.iter().map(|(name, value)| (&**name, *value)),
            seen.unavailable.iter().map(|(name, reason)| (&**name, &**reason)),
        );
        if taken.new_names {
            // One name for all ports: what is compared in each reading is in the processor's cache after the first.
            for series in &mut sets[at].series {
                series.name = shared(&mut self.texts, &series.name);
            }
        }
        if let Some(index) = index {
            if taken.new_names {
                self.regroup(index);
            }
            let port = Arc::make_mut(&mut self.world.ports[index]);
            port.slice(at);
            if let Some(fell) = taken.fell {
                port.events.push(t, PortEvent::Reset(fell.counters));
            }
        }
        if let Some(fell) = taken.fell {
            // Sets of one device are read one after another: falls of the same moment are one reset.
            let window_ns = self.window_ns;
            let device = self.device_mut(id);
            device.reset = match device.reset {
                Some((at, before)) if t.saturating_sub(at) < window_ns => {
                    Some((at, Fell { counters: before.counters + fell.counters, of: before.of + fell.of }))
                }
                _ => Some((t, fell)),
            };
        }
    }

    /// Finds anew which counters give each meaning of a port. Ports of one kind have them in the same places: that is kept once.
    fn regroup(&mut self, index: usize) {
        Arc::make_mut(&mut self.world.ports[index]).regroup();
        let others = self.world.ports.iter().enumerate().filter(|(other, _)| *other != index);
        let twin = others.map(|(_, other)| other).find(|other| other.has_groups_of(&self.world.ports[index])).cloned();
        if let Some(twin) = twin {
            Arc::make_mut(&mut self.world.ports[index]).share_groups(&twin);
        }
    }

    pub(super) fn loopback(&mut self, t: Nanos, seen: &observation::Loopback<'_>) {
        let Some(id) = self.device_id(t, &seen.device) else { return };
        let index = self.port_index(t, id, seen.port, PortState::Unknown);
        let sample = LoopbackSample { p50_ns: seen.p50_ns, p99_ns: seen.p99_ns, max_ns: seen.max_ns, n: seen.n };
        Arc::make_mut(&mut Arc::make_mut(&mut self.world.ports[index]).loopbacks).push(t, sample);
    }

    pub(super) fn congestion_config(&mut self, t: Nanos, seen: &observation::CongestionConfig<'_>) {
        let Some(id) = self.device_id(t, &seen.device) else { return };
        let index = self.port_index(t, id, seen.port, PortState::Unknown);
        let port = Arc::make_mut(&mut self.world.ports[index]);
        if seen.says_nothing() {
            port.congestion = None;
            return;
        }
        port.congestion = Some(Arc::new(CongestionRecord {
            t,
            np: seen.np.clone(),
            rp: seen.rp.clone(),
            pfc_enabled: seen.pfc_enabled,
            trust: seen.trust.as_deref().map(Into::into),
            cnp_dscp: seen.cnp_dscp,
            cc_algorithm: seen.cc_algorithm.as_deref().map(Into::into),
        }));
    }

    pub(super) fn bond(&mut self, t: Nanos, seen: &observation::Bond<'_>) {
        let record = BondRecord {
            mode: seen.mode.as_ref().into(),
            active: seen.active.as_deref().map(Into::into),
            slaves: seen.slaves.iter().map(|slave| (slave.netdev.as_ref().into(), slave.up)).collect(),
        };
        let (bond, active): (Arc<str>, _) = (seen.bond.as_ref().into(), record.active.clone());
        self.world.bonds.insert(bond.clone(), Arc::new(record));
        self.bond_said(t, seen.event == Some(true), (&bond, active.as_ref()));
    }

    pub(super) fn async_event(&mut self, t: Nanos, seen: &observation::Async<'_>) {
        let is_of_device = seen.qpn.is_none() && seen.port.is_none();
        let device = if is_of_device {
            self.owner_of(t, &seen.device)
        } else {
            let Some(device) = self.device_id(t, &seen.device) else { return };
            device
        };
        if let Some(qpn) = seen.qpn {
            // The three events that tell of a QP in the error state (ibv_get_async_event(3)).
            if matches!(&*seen.event, "QP_FATAL" | "QP_REQ_ERR" | "QP_ACCESS_ERR") {
                self.qp_told_failed(t, device, qpn);
            }
            return;
        }
        let Some(number) = seen.port else {
            // Of some port of the device, or some QP: a log may not say which. No word about the device's own health.
            if seen.event.starts_with("PORT_") || seen.event.starts_with("QP_") {
                return;
            }
            let event = self.text(&seen.event);
            self.device_mut(device).reports.push(t, event);
            self.ask(Trigger::Port);
            return;
        };
        let index = self.port_index(t, device, number, PortState::Unknown);
        let port = Arc::make_mut(&mut self.world.ports[index]);
        let name: Arc<str> = seen.event.as_ref().into();
        // Some drivers raise the same event twice in a row (rxe: PORT_ACTIVE).
        let twice = port.events.last().is_some_and(|(at, event)| {
            *event == PortEvent::Async(name.clone()) && t.saturating_sub(*at) < 1_000_000_000
        });
        if !twice {
            port.events.push(t, PortEvent::Async(name));
        }
        let from = port.state;
        match &*seen.event {
            "PORT_ERR" => port.change_state(t, PortState::Down),
            "PORT_ACTIVE" => port.change_state(t, PortState::Active),
            _ => false,
        };
        self.ask(Trigger::Port);
        self.port_told(PortKey { device, port: number }, t, from, &seen.event);
    }
}
