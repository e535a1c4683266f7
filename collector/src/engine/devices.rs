//! What observations say of devices: which one has a name now, and what became of it.

use std::sync::Arc;

use super::Engine;
use crate::inventory::{DeviceId, DeviceRecord, Identity, PortEvent};
use crate::observation::{self, Nanos, PortState};
use crate::rule::Trigger;

/// Devices that are introduced within this time are all there at once, ns.
const TOLD_TOGETHER_NS: u64 = 1_000_000_000;

impl Engine {
    /// The device of a name; a name nobody introduced is a device of which only the name is known.
    ///
    /// The sources are read one after another, and some go on with a name they learned earlier: a name that was lost by a
    /// rename still means its device, and what is told of a device after its removal is about what ended with it. `None`
    /// then: only a `device` line brings a device back.
    pub(super) fn device_id(&mut self, t: Nanos, name: &str) -> Option<DeviceId> {
        if let Some(id) = self.names.get(name) {
            return Some(*id);
        }
        match self.former.get(name) {
            Some(id) => (!self.world.device(*id).removed).then_some(*id),
            None => Some(self.new_device(t, name)),
        }
    }

    /// The device that has the name, or else the one that had it last, though it may be gone: for what a device says of
    /// itself, which may be told a moment after its removal.
    pub(super) fn owner_of(&mut self, t: Nanos, name: &str) -> DeviceId {
        let known = self.names.get(name).or_else(|| self.former.get(name)).copied();
        known.unwrap_or_else(|| self.new_device(t, name))
    }

    fn new_device(&mut self, t: Nanos, name: &str) -> DeviceId {
        let id = DeviceId::at(self.world.devices.len());
        self.world.devices.push(Arc::new(DeviceRecord::new(name, t)));
        self.names.insert(name.into(), id);
        id
    }

    pub(super) fn device_mut(&mut self, id: DeviceId) -> &mut DeviceRecord {
        Arc::make_mut(&mut self.world.devices[id.0 as usize])
    }

    pub(super) fn device(&mut self, t: Nanos, seen: &observation::Device<'_>) {
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
            let known = self.world.device(id).identity();
            let is_named_only = known.pci.is_none() && known.guid.is_none();
            if is_named_only && self.is_known(t, id, seen, &identity) {
                // Somebody used the name before it was introduced.
                self.forget_device(t, id);
            } else if !known.contradicts(&identity) {
                self.update_device(id, seen);
                return;
            } else {
                // Another device has the name now; the one that had it is gone from here.
                self.remove_device(t, id);
            }
        } else if seen.removed == Some(true) {
            return;
        }
        let renamed = self.renamed(t, seen, &identity, named.is_some());
        let id = match renamed.or_else(|| self.back(seen, &identity)) {
            Some(index) if renamed.is_some() => {
                // Nobody said that the old name is gone.
                let former = self.world.devices[index].name.clone();
                self.names.remove(&former);
                self.former.insert(former, DeviceId::at(index));
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
            None => self.new_device(t, &seen.device),
        };
        self.update_device(id, seen);
    }

    /// The device that is gone and is the one seen. One source may know its function and another not: under the name it
    /// had, the GUID alone tells.
    fn back(&self, seen: &observation::Device<'_>, identity: &Identity) -> Option<usize> {
        let gone = |is: &dyn Fn(&DeviceRecord) -> bool| {
            self.world.devices.iter().rposition(|device| device.removed && is(device))
        };
        gone(&|device| *device.name == *seen.device && device.identity().agrees(identity))
            .or_else(|| gone(&|device| device.identity().matches(identity)))
    }

    /// The device seen was there before as another than `id`.
    fn is_known(&self, t: Nanos, id: DeviceId, seen: &observation::Device<'_>, identity: &Identity) -> bool {
        self.back(seen, identity)
            .or_else(|| self.renamed(t, seen, identity, true))
            .is_some_and(|at| at != id.0 as usize)
    }

    /// A device of which only the name was known is another one: what was told under its name is nobody's fall.
    fn forget_device(&mut self, t: Nanos, id: DeviceId) {
        let name = self.world.device(id).name.clone();
        self.names.remove(&name);
        self.device_mut(id).removed = true;
        for port in self.world.ports.iter_mut().filter(|port| port.key.device == id) {
            Arc::make_mut(port).lose_device(t);
        }
        self.world.qps.end_device(t, id);
    }

    pub(super) fn update_device(&mut self, id: DeviceId, seen: &observation::Device<'_>) {
        let before = self.world.device(id);
        let (removed, place) = (before.removed, before.place().cloned());
        self.device_mut(id).update(seen);
        self.world.place_device(id);
        let now = self.world.device(id);
        let moved = now.place() != place.as_ref();
        if removed || moved {
            let stays = now.second && !moved;
            let place = now.place().cloned();
            let first = |(other, device): (DeviceId, &DeviceRecord)| {
                other != id && !device.second && device.place() == place.as_ref()
            };
            let second = place.is_some() && (stays || self.world.present().any(first));
            self.device_mut(id).second = second;
        }
    }

    /// The device that is there under another name and is the one seen: it was renamed, and nobody told of a removal.
    ///
    /// A function and GUID may have two devices at once (a device and its management sub-device); those have different
    /// indices and are seen in the same moment. The name's last owner having lost it (`taken`) leaves no such doubt.
    pub(super) fn renamed(
        &self,
        t: Nanos,
        seen: &observation::Device<'_>,
        identity: &Identity,
        taken: bool,
    ) -> Option<usize> {
        self.world.devices.iter().position(|device| {
            let same_index = device.index.zip(seen.index).map(|(before, now)| before == now);
            let late = t.saturating_sub(device.first_seen) >= TOLD_TOGETHER_NS;
            !device.removed
                && *device.name != *seen.device
                && device.identity().matches(identity)
                && same_index.unwrap_or(taken || late)
        })
    }

    pub(super) fn remove_device(&mut self, t: Nanos, id: DeviceId) {
        let name = self.world.device(id).name.clone();
        self.names.remove(&name);
        self.former.insert(name, id);
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

    pub(super) fn health(&mut self, t: Nanos, seen: &observation::Health<'_>) {
        let named = seen.device.as_deref().map(|name| self.owner_of(t, name));
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
}
