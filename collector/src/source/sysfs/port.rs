//! One port: its state each tick from files kept open, the slower facts every few seconds, its two counter sets.

use std::borrow::Cow;

use super::counters::CounterSet;
use super::device::function_of;
use super::{gid, netdev, rate, state};
use crate::observation::{CounterSource, Gid, LinkLayer, Port, PortState, Text};
use crate::source::files::{Files, OpenFile, errno_name};

/// A small file kept open whose text is compared before it is looked at.
struct Watched {
    path: String,
    handle: Option<Box<dyn OpenFile>>,
    text: Result<Vec<u8>, Text<'static>>,
}

impl Watched {
    fn open(files: &dyn Files, path: String) -> Self {
        let mut watched = Self { path, handle: None, text: Err(Cow::Borrowed("ENOENT")) };
        watched.reopen(files);
        watched
    }

    fn reopen(&mut self, files: &dyn Files) {
        match files.open(&self.path) {
            Ok(handle) => self.handle = Some(handle),
            Err(error) => (self.handle, self.text) = (None, Err(errno_name(&error))),
        }
    }

    /// Reads it; `false` when the device is gone.
    fn refresh(&mut self, changed: &mut bool) -> bool {
        let Some(handle) = &self.handle else { return true };
        let mut buf = [0u8; 128];
        match handle.read(&mut buf) {
            Ok(n) => {
                let bytes = buf.get(..n).unwrap_or_default();
                if self.text.as_deref() != Ok(bytes) {
                    self.text = Ok(bytes.to_vec());
                    *changed = true;
                }
                true
            }
            Err(error) => {
                let reason = errno_name(&error);
                *changed |= self.text.as_ref().err() != Some(&reason);
                self.text = Err(reason);
                error.raw_os_error() != Some(19)
            }
        }
    }

    /// The text, or a note why there is none under the file's name.
    fn text(&self, notes: &mut Vec<Text<'static>>) -> Option<Cow<'_, str>> {
        match &self.text {
            Ok(bytes) => Some(String::from_utf8_lossy(bytes)),
            Err(reason) => {
                notes.push(format!("{}: {reason}", crate::source::files::base_name(&self.path)).into());
                None
            }
        }
    }
}

/// One port under watch.
pub(super) struct PortWatch {
    pub(super) number: u32,
    dir: String,
    device_dir: String,
    state: Watched,
    phys_state: Watched,
    rate: Watched,
    link_layer: Watched,
    lid: Watched,
    gids: Vec<Gid<'static>>,
    pub(super) netdevs: Vec<String>,
    /// Of a software device: the function of its network device.
    pub(super) netdev_pci: Option<String>,
    pub(super) bond: Option<String>,
    pub(super) counters: CounterSet,
    pub(super) hw_counters: CounterSet,
    /// Something may have changed since the last observation.
    changed: bool,
    said: Option<Port<'static>>,
}

impl PortWatch {
    /// Opens what is read each tick.
    pub(super) fn open(files: &dyn Files, device: &str, number: u32) -> Self {
        let device_dir = format!("class/infiniband/{device}");
        let dir = format!("{device_dir}/ports/{number}");
        let watched = |name: &str| Watched::open(files, format!("{dir}/{name}"));
        Self {
            number,
            state: watched("state"),
            phys_state: watched("phys_state"),
            rate: watched("rate"),
            link_layer: watched("link_layer"),
            lid: watched("lid"),
            gids: Vec::new(),
            netdevs: Vec::new(),
            netdev_pci: None,
            bond: None,
            counters: CounterSet::open(files, &dir, Some(number), CounterSource::Counters),
            hw_counters: CounterSet::open(files, &dir, Some(number), CounterSource::HwCounters),
            changed: true,
            said: None,
            dir,
            device_dir,
        }
    }

    /// Looks at the GID table.
    pub(super) fn refresh_gids(&mut self, files: &dyn Files) {
        let gids = gid::read(files, &self.dir);
        self.changed |= gids != self.gids;
        self.gids = gids;
    }

    /// Looks at what seldom changes: network devices, bond, LID, files that could not be opened, new counters.
    pub(super) fn refresh_slow(&mut self, files: &dyn Files, ports: usize, with_gids: bool, software: bool) {
        if with_gids {
            self.refresh_gids(files);
        }
        let netdevs = netdev::of_port(files, &self.device_dir, self.number, ports, &self.gids);
        let bond = netdev::bond_of(files, &netdevs);
        self.changed |= netdevs != self.netdevs || bond != self.bond;
        (self.netdevs, self.bond) = (netdevs, bond);
        if software {
            self.netdev_pci = self.netdevs.iter().find_map(|netdev| {
                let path = files.resolve(&format!("class/net/{netdev}/device")).ok()?;
                function_of(&path).map(str::to_owned)
            });
        }
        for set in [&mut self.counters, &mut self.hw_counters] {
            self.changed |= set.refresh_slow(files);
        }
        // What fails to open now reads as a change, and an unchanged port is not said again.
        self.changed = true;
        for watched in [&mut self.state, &mut self.phys_state, &mut self.rate, &mut self.link_layer, &mut self.lid] {
            // Also where it is open: the file may have been replaced by another one of its name.
            watched.reopen(files);
        }
        for watched in [&mut self.link_layer, &mut self.lid] {
            watched.refresh(&mut self.changed);
        }
    }

    /// Takes over from the watch before it on the same port what was said, and when the caches were read.
    pub(super) fn inherit(&mut self, before: Self) {
        self.said = before.said;
        self.counters.inherit(&before.counters);
        self.hw_counters.inherit(&before.hw_counters);
    }

    /// Reads the state; `false` when the device is gone.
    pub(super) fn refresh(&mut self) -> bool {
        let mut present = true;
        for watched in [&mut self.state, &mut self.phys_state, &mut self.rate] {
            present &= watched.refresh(&mut self.changed);
        }
        present
    }

    /// Says the port at the next poll even if nothing changed: somebody else may have said something of it meanwhile.
    pub(super) fn say_again(&mut self) {
        self.changed = true;
        self.said = None;
    }

    /// The port as observed, when it is not as it was said last.
    pub(super) fn take_changed(&mut self, device: &str) -> Option<&Port<'static>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let port = self.describe(device);
        if self.said.as_ref() == Some(&port) {
            return None;
        }
        self.said = Some(port);
        self.said.as_ref()
    }

    fn describe(&self, device: &str) -> Port<'static> {
        let mut notes: Vec<Text<'static>> = Vec::new();
        let mut port = Port { device: device.to_owned().into(), port: self.number, ..Port::default() };
        if let Some(text) = self.link_layer.text(&mut notes) {
            port.link_layer = match text.trim() {
                "InfiniBand" => LinkLayer::InfiniBand,
                "Ethernet" => LinkLayer::Ethernet,
                _ => LinkLayer::Unspecified,
            };
        }
        if let Some(text) = self.state.text(&mut notes) {
            let (state, note) = state::port_state(text.trim());
            port.state = state;
            notes.extend(note.map(Into::into));
        }
        if let Some(text) = self.phys_state.text(&mut notes) {
            let (phys_state, note) = state::phys_state(text.trim());
            port.phys_state = phys_state;
            notes.extend(note.map(Into::into));
        }
        if let Some(text) = self.rate.text(&mut notes) {
            describe_rate(text.trim(), &mut port, &mut notes);
        }
        // Not every driver has a LID; its absence is no oddity.
        port.lid = self.lid.text(&mut Vec::new()).and_then(|text| {
            let text = text.trim();
            text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
        });
        if port.link_layer != LinkLayer::InfiniBand {
            // The kernel shows 0 where the link layer has no LIDs.
            port.lid = port.lid.filter(|lid| *lid != 0);
        }
        port.netdevs = self.netdevs.iter().map(|name| name.clone().into()).collect();
        port.netdev_pci = self.netdev_pci.clone().map(Into::into);
        port.bond = self.bond.clone().map(Into::into);
        port.lifespan_ms = self.hw_counters.lifespan_ms;
        port.gids.clone_from(&self.gids);
        notes.extend(self.counters.notes.iter().map(|note| note.clone().into()));
        port.notes = notes;
        port
    }
}

/// The rate's facts and what is odd about them.
fn describe_rate(text: &str, port: &mut Port<'static>, notes: &mut Vec<Text<'static>>) {
    let rate = rate::parse(text);
    port.rate_gbps = rate.gbps;
    port.lanes = rate.lanes;
    if rate.gbps.is_none() {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(32).collect();
        notes.push(if text.is_empty() { "rate: empty file".into() } else { format!("rate reads {shown:?}").into() });
    } else if rate.conflict {
        notes.push(format!("rate reads {text:?}: number and letters disagree, the number is used").into());
    }
    if port.state == PortState::Down && rate.gbps.is_some() {
        notes.push("the rate of a port that is down is a default of the driver, not a negotiated speed".into());
    }
    // Every InfiniBand adapter has four lanes; on Ethernet one lane is a cable's normal form (SFP28).
    if port.link_layer == LinkLayer::InfiniBand && rate.lanes == Some(1) && port.state != PortState::Down {
        notes.push("1 lane of 4 in use: the link is narrower than the adapter".into());
    }
}
