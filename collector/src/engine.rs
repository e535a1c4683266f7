//! The engine: observation in, world updated, rules asked. It reads no clock, does no I/O and draws no random number,
//! so the same observations give the same findings, live or replayed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::finding::{Book, Finding};
use crate::incident;
use crate::inventory::failover::stopwatch::Stopwatch;
use crate::inventory::{
    BondRecord, CongestionRecord, DeviceId, DeviceRecord, Failover, Identity, LoopbackSample, PcieRecord, PortEvent,
    PortKey, PortRecord, ProbeRecord, SourceRecord, World,
};
use crate::observation::recording::Header;
use crate::observation::{self, Body, CounterSource, Nanos, Observation, PortState};
use crate::rule::{self, Settings, Trigger, View};

mod failover;
mod qps;

/// After a gap of more windows than this (a recording of two moments far apart) the windows between are not closed
/// one by one: nothing was observed in them.
const MAX_GAP_WINDOWS: u64 = 100_000;
/// QP failures come in storms; the rules are asked once per storm of this length, ns.
const QP_STORM_NS: u64 = 10_000_000;
/// Devices that are introduced within this time are all there at once, ns.
const TOLD_TOGETHER_NS: u64 = 1_000_000_000;
/// Distinct texts (comm, GID, container) that are shared; beyond that they are stored one by one.
const MAX_SHARED_TEXTS: usize = 100_000;

/// Turns observations into a world and findings.
pub struct Engine {
    world: World,
    book: Book,
    settings: Settings,
    names: HashMap<Arc<str>, DeviceId>,
    texts: HashSet<Arc<str>>,
    window_ns: u64,
    window_end: Option<Nanos>,
    changes: Vec<Arc<Finding>>,
    /// QP failures the rules have not been asked about yet: since when.
    qp_pending: Option<Nanos>,
    stopwatch: Stopwatch,
    failover_changes: Vec<Arc<Failover>>,
}

impl Engine {
    /// An engine for one node.
    #[must_use]
    pub fn new(header: Header, settings: Settings) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0.1–3600 s")]
        let window_ns = (settings.window_s.clamp(0.1, 3600.0) * 1e9) as u64;
        let mut world = World::new(header);
        world.window_ns = window_ns;
        Self {
            world,
            book: Book::default(),
            settings,
            names: HashMap::new(),
            texts: HashSet::new(),
            window_ns,
            window_end: None,
            changes: Vec::new(),
            qp_pending: None,
            stopwatch: Stopwatch::default(),
            failover_changes: Vec::new(),
        }
    }

    /// The world as known now.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The rules' thresholds.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Asks the rules with other thresholds from now on. What is known and what is raised stays; each rule judges it anew
    /// when it is asked next. The length of a window stays too: histories are kept by windows.
    pub fn set_settings(&mut self, settings: Settings) {
        let window_s = self.settings.window_s;
        self.settings = Settings { window_s, ..settings };
    }

    /// The world as known now, to be kept: later observations do not change it.
    #[must_use]
    pub fn snapshot(&self) -> Arc<World> {
        Arc::new(self.world.clone())
    }

    /// What a rule sees now.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View { world: &self.world, now: self.world.now, settings: &self.settings, book: &self.book }
    }

    /// The findings that were raised, updated or cleared since the last call, in order.
    pub fn drain(&mut self) -> Vec<Arc<Finding>> {
        std::mem::take(&mut self.changes)
    }

    /// Takes one observation.
    pub fn take(&mut self, observation: &Observation<'_>) {
        let t = observation.t;
        self.advance(t);
        match &observation.body {
            Body::Device(device) => self.device(t, device),
            Body::Port(port) => self.port(t, port),
            Body::Counters(counters) => self.counters(t, counters),
            Body::Bond(bond) => self.bond(t, bond),
            Body::Pcie(pcie) => self.pcie(t, pcie),
            Body::Aer(aer) => self.aer(t, aer),
            Body::Async(event) => self.async_event(t, event),
            Body::Qp(qp) => self.qp(t, qp),
            Body::QpStats(stats) => self.qp_stats(t, stats),
            Body::Source(source) => self.source(t, source),
            Body::Probes(probes) => self.probes(t, probes),
            Body::Health(health) => self.health(t, health),
            Body::Lost(lost) => {
                let n = self.world.lost.entry(lost.source.as_ref().into()).or_default();
                *n = n.saturating_add(lost.n);
            }
            Body::Loopback(loopback) => self.loopback(t, loopback),
            Body::CongestionConfig(config) => self.congestion_config(t, config),
            // For scoring only.
            Body::Truth(_) => {}
            Body::Note(note) => {
                let note = self.text(&format!("{}: {}", note.source, note.text));
                Arc::make_mut(&mut self.world.notes).push(t, note);
            }
        }
        self.follow_failovers(false);
    }

    /// The stream has ended: judges the window that is still open.
    pub fn finish(&mut self) {
        // Also when all was observed at one moment, as in an imported tree.
        if self.window_end.take().is_some() {
            self.close_window(self.world.now);
        }
    }

    fn advance(&mut self, t: Nanos) {
        let end = match self.window_end {
            Some(end) => end,
            None => {
                if self.world.windows == 0 {
                    self.world.started = t;
                }
                *self.window_end.insert(t + self.window_ns)
            }
        };
        if t >= end {
            let windows = (t - end) / self.window_ns + 1;
            let each = windows <= MAX_GAP_WINDOWS;
            for i in 0..(if each { windows } else { 1 }) {
                let at = end + i * self.window_ns;
                self.world.now = self.world.now.max(at);
                self.close_window(at);
            }
            self.window_end = Some(end + windows * self.window_ns);
        } else if self.qp_pending.is_some_and(|since| t >= since + QP_STORM_NS) {
            self.ask(Trigger::Qp);
        }
        self.world.now = self.world.now.max(t);
    }

    fn close_window(&mut self, at: Nanos) {
        self.world.windows += 1;
        let tracing = self.tracing(at);
        self.close_qps(at, tracing);
        let window_s = self.window_ns as f64 / 1e9;
        for port in &mut self.world.ports {
            Arc::make_mut(port).close_window(at, window_s, tracing);
        }
        for device in self.world.devices.iter_mut().filter(|device| !device.sets.is_empty()) {
            Arc::make_mut(device).sets.iter_mut().flat_map(|set| &mut set.series).for_each(|series| series.expire(at));
        }
        for rule in rule::all() {
            self.ask_rule(*rule);
        }
        self.qp_pending = None;
        self.publish_findings();
        self.close_failovers(at);
    }

    /// The data path was swept within the last three seconds.
    fn tracing(&self, now: Nanos) -> bool {
        self.world.qps.sweeps[0].is_some_and(|sweep| now.saturating_sub(sweep) < 3_000_000_000)
            && self.world.probes.as_ref().is_none_or(|probes| probes.data_path())
    }

    fn ask(&mut self, trigger: Trigger) {
        if trigger == Trigger::Qp {
            self.qp_pending = None;
        }
        for rule in rule::all() {
            if rule.trigger() == trigger {
                self.ask_rule(*rule);
            }
        }
        self.publish_findings();
    }

    fn ask_rule(&mut self, rule: &'static dyn rule::Rule) {
        let disabled = self.settings.disabled.iter().any(|id| id == rule.id());
        let verdicts = if disabled { Vec::new() } else { rule.judge(&self.view()) };
        self.book.enter(rule.id(), self.world.now, verdicts, &mut self.changes);
    }

    fn publish_findings(&mut self) {
        let mut findings: Vec<Arc<Finding>> = self.book.all_raised().cloned().collect();
        findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(b.first_t.cmp(&a.first_t)).then(a.rule.cmp(b.rule)));
        let related = findings.iter().any(|finding| finding.part_of.is_some());
        self.world.findings = if related { incident::arranged(&findings) } else { findings };
        self.world.findings_dropped = self.book.overflow;
        self.world.cleared = self.book.cleared().iter().rev().cloned().collect();
    }

    /// The device of a name; a name nobody introduced is a device of which only the name is known.
    fn device_id(&mut self, t: Nanos, name: &str) -> DeviceId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = DeviceId::at(self.world.devices.len());
        self.world.devices.push(Arc::new(DeviceRecord::new(name, t)));
        self.names.insert(name.into(), id);
        id
    }

    fn device_mut(&mut self, id: DeviceId) -> &mut DeviceRecord {
        Arc::make_mut(&mut self.world.devices[id.0 as usize])
    }

    fn device(&mut self, t: Nanos, seen: &observation::Device<'_>) {
        let identity = Identity {
            pci: seen.pci.as_deref().map(Into::into),
            guid: crate::inventory::real_guid(seen).map(Into::into),
        };
        let named = self.names.get(&*seen.device).copied();
        if let Some(id) = named {
            if seen.removed == Some(true) {
                self.remove_device(t, id);
                return;
            }
            if !self.world.device(id).identity().contradicts(&identity) {
                self.update_device(id, seen);
                return;
            }
            // Another device has the name now; the one that had it is gone from here.
            self.remove_device(t, id);
        } else if seen.removed == Some(true) {
            return;
        }
        let back = |same_name: bool| {
            self.world.devices.iter().rposition(|device| {
                device.removed && device.identity().matches(&identity) && (!same_name || *device.name == *seen.device)
            })
        };
        let renamed = self.renamed(t, seen, &identity, named.is_some());
        let id = match renamed.or_else(|| back(true)).or_else(|| back(false)) {
            Some(index) if renamed.is_some() => {
                // Nobody said that the old name is gone.
                let former = self.world.devices[index].name.clone();
                self.names.remove(&former);
                self.names.insert(seen.device.as_ref().into(), DeviceId::at(index));
                DeviceId::at(index)
            }
            Some(index) => {
                let id = DeviceId::at(index);
                self.names.insert(seen.device.as_ref().into(), id);
                for port in self.world.ports.iter_mut().filter(|port| port.key.device == id) {
                    Arc::make_mut(port).events.push(t, PortEvent::Returned);
                }
                id
            }
            None => self.device_id(t, &seen.device),
        };
        self.update_device(id, seen);
    }

    fn update_device(&mut self, id: DeviceId, seen: &observation::Device<'_>) {
        self.device_mut(id).update(seen);
        self.world.place_device(id);
    }

    /// The device that is there under another name and is the one seen: it was renamed, and nobody told of a removal.
    ///
    /// A function and GUID may have two devices at once (a device and its management sub-device); those have different
    /// indices and are seen in the same moment. The name's last owner having lost it (`taken`) leaves no such doubt.
    fn renamed(&self, t: Nanos, seen: &observation::Device<'_>, identity: &Identity, taken: bool) -> Option<usize> {
        self.world.devices.iter().position(|device| {
            let same_index = device.index.zip(seen.index).map(|(before, now)| before == now);
            let late = t.saturating_sub(device.first_seen) >= TOLD_TOGETHER_NS;
            !device.removed
                && *device.name != *seen.device
                && device.identity().matches(identity)
                && same_index.unwrap_or(taken || late)
        })
    }

    fn remove_device(&mut self, t: Nanos, id: DeviceId) {
        let name = self.world.device(id).name.clone();
        self.names.remove(&name);
        self.device_mut(id).removed = true;
        for port in self.world.ports.iter_mut().filter(|port| port.key.device == id) {
            let port = Arc::make_mut(port);
            port.events.push(t, PortEvent::Removed);
            if port.state == PortState::Active {
                self.stopwatch.vanished(port.key, t);
            }
            port.lose_device(t);
        }
        self.world.qps.end_device(t, id);
        self.ask(Trigger::Port);
    }

    fn port_index(&mut self, t: Nanos, device: DeviceId, port: u32, state: PortState) -> usize {
        let key = PortKey { device, port };
        self.world.place_of(key).unwrap_or_else(|| self.world.add_port(PortRecord::new(key, t, state)))
    }

    fn port(&mut self, t: Nanos, seen: &observation::Port<'_>) {
        let device = self.device_id(t, &seen.device);
        let before = self.world.ports.len();
        let index = self.port_index(t, device, seen.port, seen.state);
        let new = self.world.ports.len() > before;
        let port = Arc::make_mut(&mut self.world.ports[index]);
        if port.first_seen.1 == PortState::Unknown && port.states.is_empty() {
            // The port was known by its counters only; its first state is no change.
            port.first_seen = (t, seen.state);
            port.state = seen.state;
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

    fn counters(&mut self, t: Nanos, seen: &observation::Counters<'_>) {
        if matches!(seen.source, CounterSource::Counters | CounterSource::HwCounters | CounterSource::Nldev) {
            self.stopwatch.round(t);
        }
        let id = self.device_id(t, &seen.device);
        let device = self.world.device(id);
        let (driver, vf) = (device.driver.clone(), device.vf);
        let device_reset = device.reset.is_some_and(|(at, _)| t.saturating_sub(at) < self.window_ns);
        let bound = match (seen.qpn, &seen.qp_type, seen.pid) {
            (Some(qpn), _, _) => Some(Arc::from(format!("qp {qpn}"))),
            (None, Some(qp_type), Some(pid)) => Some(Arc::from(format!("type {qp_type} of process {pid}"))),
            (None, None, Some(pid)) => Some(Arc::from(format!("process {pid}"))),
            (None, Some(qp_type), None) => Some(Arc::from(format!("type {qp_type}"))),
            (None, None, None) => None,
        };
        let index = seen.port.map(|port| self.port_index(t, id, port, PortState::Unknown));
        let sets = match index {
            Some(index) => &mut Arc::make_mut(&mut self.world.ports[index]).sets,
            None => &mut Arc::make_mut(&mut self.world.devices[id.0 as usize]).sets,
        };
        let netdev = seen.netdev.as_deref();
        let known = sets
            .iter()
            .position(|set| set.source == seen.source && set.netdev.as_deref() == netdev && set.bound == bound);
        let at = known.unwrap_or_else(|| {
            sets.push(crate::inventory::CounterSet::new(seen.source, netdev, bound, driver.clone()));
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
        if let Some(index) = index {
            let port = Arc::make_mut(&mut self.world.ports[index]);
            if taken.new_names {
                port.regroup();
            }
            port.slice(at);
            if let Some(fell) = taken.fell {
                port.events.push(t, PortEvent::Reset(fell));
            }
        }
        if let Some(fell) = taken.fell {
            // Sets of one device are read one after another: falls of the same moment are one reset.
            let window_ns = self.window_ns;
            let device = self.device_mut(id);
            device.reset = match device.reset {
                Some((at, before)) if t.saturating_sub(at) < window_ns => Some((at, before + fell)),
                _ => Some((t, fell)),
            };
        }
    }

    fn loopback(&mut self, t: Nanos, seen: &observation::Loopback<'_>) {
        let id = self.device_id(t, &seen.device);
        let index = self.port_index(t, id, seen.port, PortState::Unknown);
        let sample = LoopbackSample { p50_ns: seen.p50_ns, p99_ns: seen.p99_ns, max_ns: seen.max_ns, n: seen.n };
        Arc::make_mut(&mut Arc::make_mut(&mut self.world.ports[index]).loopbacks).push(t, sample);
    }

    fn congestion_config(&mut self, t: Nanos, seen: &observation::CongestionConfig<'_>) {
        let id = self.device_id(t, &seen.device);
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

    fn bond(&mut self, t: Nanos, seen: &observation::Bond<'_>) {
        let record = BondRecord {
            mode: seen.mode.as_ref().into(),
            active: seen.active.as_deref().map(Into::into),
            slaves: seen.slaves.iter().map(|slave| (slave.netdev.as_ref().into(), slave.up)).collect(),
        };
        let (bond, active): (Arc<str>, _) = (seen.bond.as_ref().into(), record.active.clone());
        self.world.bonds.insert(bond.clone(), Arc::new(record));
        self.bond_said(t, seen.event == Some(true), (&bond, active.as_ref()));
    }

    fn function(&mut self, pci: &str) -> &mut PcieRecord {
        let key: Arc<str> = pci.into();
        Arc::make_mut(self.world.pcie.entry(key).or_insert_with(|| Arc::new(PcieRecord::new(pci))))
    }

    fn pcie(&mut self, t: Nanos, seen: &observation::Pcie<'_>) {
        let record = self.function(&seen.pci);
        let link = record.link;
        let grew = record.update(t, seen);
        if grew || record.link != link {
            self.ask(Trigger::Pcie);
        }
    }

    fn aer(&mut self, t: Nanos, seen: &observation::Aer<'_>) {
        let event = crate::inventory::AerEvent {
            severity: seen.severity,
            status: seen.status,
            names: seen.names.iter().map(|name| name.as_ref().into()).collect(),
        };
        self.function(&seen.pci).report(t, event);
        self.ask(Trigger::Pcie);
    }

    fn async_event(&mut self, t: Nanos, seen: &observation::Async<'_>) {
        let device = self.device_id(t, &seen.device);
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

    fn health(&mut self, t: Nanos, seen: &observation::Health<'_>) {
        let named = seen.device.as_deref().map(|name| self.device_id(t, name));
        let id = named.or_else(|| {
            let pci = seen.pci.as_deref()?;
            self.world.present().find(|(_, device)| device.pci.as_deref() == Some(pci)).map(|(id, _)| id)
        });
        if let Some(id) = id {
            let report = self.text(&format!("{}: {}", seen.reporter, seen.message));
            self.device_mut(id).reports.push(t, report);
            self.ask(Trigger::Port);
        }
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.texts.get(text) {
            return shared.clone();
        }
        let shared: Arc<str> = text.into();
        if self.texts.len() < MAX_SHARED_TEXTS {
            self.texts.insert(shared.clone());
        }
        shared
    }

    fn source(&mut self, t: Nanos, seen: &observation::SourceState<'_>) {
        let record = SourceRecord { state: seen.state, reason: seen.reason.as_deref().map(Into::into), t };
        self.world.sources.insert(seen.source.as_ref().into(), record);
    }

    fn probes(&mut self, t: Nanos, seen: &observation::Probes<'_>) {
        self.world.qps.swept(t);
        let mut record = ProbeRecord {
            t,
            wanted: seen.wanted,
            attached: seen.attached,
            failed: seen.failed.iter().map(|f| (f.name.as_ref().into(), f.reason.as_ref().into())).collect(),
            hits: seen.hits,
            hits_per_s: None,
            cost_share: None,
            cost_ns: seen.cost_ns,
        };
        if let Some(before) = self.world.probes.as_ref().filter(|before| before.t < t) {
            let dt = (t - before.t) as f64;
            let rise = |now: Option<u64>, then: Option<u64>| Some(now?.checked_sub(then?)? as f64);
            record.hits_per_s = rise(seen.hits, before.hits).map(|hits| hits * 1e9 / dt);
            record.cost_share = rise(seen.cost_ns, before.cost_ns).map(|ns| ns / dt);
        }
        self.world.probes = Some(Arc::new(record));
    }
}

#[cfg(test)]
mod tests;
