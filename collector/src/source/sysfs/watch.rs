//! One device under watch: its files stay open between the polls; what seldom changes is looked at seldom.

use super::SLOW_PERIOD_NS;
use super::counters::CounterSet;
use super::device::Described;
use super::port::{OfDevice, PortWatch};
use crate::observation::{Body, CounterSource, Device, Nanos, Observation};
use crate::source::Emit;
use crate::source::files::{Files, says_gone};

/// Between two readings of the GID tables, which can have hundreds of entries, of the lists of counters, and of the place of a
/// device, ns.
const RARE_PERIOD_NS: Nanos = 60_000_000_000;
/// The same where something has happened: no event tells of a GID table that changed (`dispatch_gid_change_event` of the
/// kernel's cache.c passes by `ib_dispatch_event`), and QPs that have lost their address fail, ns.
const GID_SHORTEST_NS: Nanos = 1_000_000_000;

/// One device under watch.
pub(super) struct DeviceWatch {
    pub(super) name: String,
    pub(super) inode: u64,
    pub(super) described: Described,
    /// It was emitted as it was seen.
    pub(super) said: bool,
    pub(super) ports: Vec<PortWatch>,
    /// `hw_counters` of the whole device, where the driver has them.
    own_counters: Option<CounterSet>,
    slow_due: Nanos,
    gids_due: Nanos,
    gids_t: Nanos,
    /// Something has happened since the GID tables were read.
    look_again: bool,
    /// A file said that the device is gone and everything was opened anew; not again before the next slow look.
    reopened: bool,
}

impl DeviceWatch {
    pub(super) fn open(files: &dyn Files, name: String, inode: u64) -> Self {
        let mut watch = Self {
            described: Described::read(files, &name),
            name,
            inode,
            said: false,
            ports: Vec::new(),
            own_counters: None,
            slow_due: 0,
            gids_due: 0,
            gids_t: 0,
            look_again: false,
            reopened: false,
        };
        watch.open_ports(files);
        watch
    }

    /// The device as it was seen last.
    pub(super) fn seen(&self) -> &Device<'static> {
        &self.described.seen
    }

    /// The same adapter as before under this name: neither PCI address nor GUID contradicts.
    pub(super) fn is_same(&self, before: &Self) -> bool {
        let agree = |a: &Option<_>, b: &Option<_>| a.is_none() || b.is_none() || a == b;
        let (now, before) = (self.seen(), before.seen());
        agree(&now.pci, &before.pci) && agree(&now.node_guid, &before.node_guid)
    }

    /// Takes over from the watch before it under the same name what was said, and when the caches were read.
    pub(super) fn inherit(&mut self, before: Self) {
        self.said = before.said && before.seen() == self.seen();
        self.inherit_ports(before.ports);
        if let (Some(own), Some(before)) = (&mut self.own_counters, &before.own_counters) {
            own.inherit(before);
        }
    }

    fn inherit_ports(&mut self, before: Vec<PortWatch>) {
        for before in before {
            if let Some(port) = self.ports.iter_mut().find(|port| port.number == before.number) {
                port.inherit(before);
            }
        }
    }

    fn open_ports(&mut self, files: &dyn Files) {
        let Some(numbers) = port_numbers(files, &self.name) else { return };
        let ports = numbers.into_iter().map(|n| PortWatch::open(files, &self.name, n)).collect();
        let before = std::mem::replace(&mut self.ports, ports);
        self.inherit_ports(before);
        let dir = format!("class/infiniband/{}", self.name);
        let own = CounterSet::open(files, &dir, None, CounterSource::HwCounters);
        self.own_counters = (!own.is_absent()).then_some(own);
        self.gids_due = 0;
    }

    pub(super) fn sets(&self) -> impl Iterator<Item = &CounterSet> {
        self.ports.iter().flat_map(|port| [&port.counters, &port.hw_counters]).chain(&self.own_counters)
    }

    /// The next look, or one soon after, is at the GID tables too.
    pub(super) fn look_again(&mut self) {
        self.look_again = true;
    }

    /// The slow look, when it is due.
    pub(super) fn refresh_slow(&mut self, files: &dyn Files, now: Nanos) {
        if now < self.slow_due {
            if self.look_again && now >= self.gids_t + GID_SHORTEST_NS {
                self.gids_t = now;
                let read = |unread, port: &mut PortWatch| !port.refresh_gids(files) || unread;
                self.look_again = self.ports.iter_mut().fold(false, read);
            }
            return;
        }
        if self.slow_due > 0 {
            let before = self.described.seen.clone();
            if now >= self.gids_due {
                self.described.read_anew(files);
            } else {
                self.described.refresh(files);
            }
            self.said &= before == self.described.seen;
            let known = || self.ports.iter().map(|port| port.number);
            if port_numbers(files, &self.name).is_some_and(|numbers| !numbers.into_iter().eq(known())) {
                self.open_ports(files);
            }
        }
        self.slow_due = now + SLOW_PERIOD_NS;
        self.reopened = false;
        let with_gids = now >= self.gids_due || self.look_again;
        if with_gids {
            self.gids_due = now + RARE_PERIOD_NS;
            (self.look_again, self.gids_t) = (false, now);
        }
        let parent = self.described.parent();
        let of =
            OfDevice { ports: self.ports.len(), parent: parent.as_deref(), is_software: self.seen().pci.is_none() };
        for port in &mut self.ports {
            // What could not be read is read at the next slow look, if nothing happens before.
            if !port.refresh_slow(files, &of, with_gids) {
                self.gids_due = now;
            }
        }
        if let Some(own) = &mut self.own_counters {
            let was_listed = !own.is_unlisted();
            own.refresh_slow(files, with_gids);
            if !was_listed && own.is_absent() {
                self.own_counters = None;
            }
        }
    }

    /// Reads every file of the tick; `false` when one says that the device is gone.
    fn read(&mut self, now: Nanos, hw_counters: bool) -> bool {
        let mut present = true;
        for port in &mut self.ports {
            present &= port.refresh() & port.counters.read(now);
            if hw_counters {
                present &= port.hw_counters.read(now);
            }
        }
        if let (true, Some(own)) = (hw_counters, &mut self.own_counters) {
            present &= own.read(now);
        }
        present
    }

    pub(super) fn poll(&mut self, files: &dyn Files, now: Nanos, hw_counters: bool, emit: &mut Emit<'_>) {
        let present = self.read(now, hw_counters);
        if !present && !self.reopened {
            // The driver made the device anew between the look at the directory and this reading; its caches are new.
            for port in &mut self.ports {
                port.hw_counters.forget_cache();
            }
            self.open_ports(files);
            self.slow_due = 0;
            self.refresh_slow(files, now);
            self.reopened = true;
            self.read(now, hw_counters);
        }
        for port in &mut self.ports {
            if let Some(body) = port.take_changed(&self.name) {
                emit(&Observation { t: now, body: Body::Port(body.clone()) });
            }
            for set in [&mut port.counters, &mut port.hw_counters] {
                if let Some(body) = set.take_observation(&self.name) {
                    emit(&Observation { t: now, body: Body::Counters(body) });
                }
            }
        }
        if let Some(body) = self.own_counters.as_mut().and_then(|own| own.take_observation(&self.name)) {
            emit(&Observation { t: now, body: Body::Counters(body) });
        }
    }
}

/// The numbers of a device's ports; `None` where they could not be listed, which says nothing of them.
fn port_numbers(files: &dyn Files, device: &str) -> Option<Vec<u32>> {
    let entries = match files.list(&format!("class/infiniband/{device}/ports")) {
        Ok(entries) => entries,
        Err(error) if says_gone(&error) => Vec::new(),
        Err(_) => return None,
    };
    Some(entries.into_iter().filter(|entry| entry.object).filter_map(|entry| entry.name.parse().ok()).collect())
}
