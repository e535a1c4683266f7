//! One port: its state each tick from files kept open, the slower facts every few seconds, its two counter sets.

use std::borrow::Cow;

use super::counters::CounterSet;
use super::device::function_of;
use super::{gid, netdev, rate, state};
use crate::observation::{CounterSource, Gid, LinkLayer, Port, PortState, Text};
use crate::source::files::{Files, Folder, Look, errno_name};

/// The files of a port that are watched, and their places among each other.
const FILES: [&str; 5] = ["state", "phys_state", "rate", "link_layer", "lid"];
const STATE: usize = 0;
const PHYS_STATE: usize = 1;
const RATE: usize = 2;
const LINK_LAYER: usize = 3;
const LID: usize = 4;

/// The small files of a port, kept open, whose texts are compared before they are looked at.
struct Watched {
    files: Folder,
    texts: [Result<Vec<u8>, Text<'static>>; FILES.len()],
}

impl Watched {
    fn new(dir: String) -> Self {
        let texts = FILES.map(|_| Err(Cow::Borrowed("ENOENT")));
        Self { files: Folder::new(dir, &FILES), texts }
    }

    /// Reads a file; `false` when the device is gone.
    fn refresh(&mut self, at: usize, changed: &mut bool) -> bool {
        let mut buf = [0u8; 128];
        let text = &mut self.texts[at];
        match self.files.read(at, &mut buf) {
            Ok(n) => {
                let bytes = buf.get(..n).unwrap_or_default();
                if text.as_deref() != Ok(bytes) {
                    *text = Ok(bytes.to_vec());
                    *changed = true;
                }
                true
            }
            Err(reason) => {
                let present = reason != "ENODEV";
                if text.as_ref().err() != Some(&reason) {
                    *text = Err(reason);
                    *changed = true;
                }
                present
            }
        }
    }

    /// The text, or a note why there is none under the file's name.
    fn text(&self, at: usize, notes: &mut Vec<Text<'static>>) -> Option<Cow<'_, str>> {
        match &self.texts[at] {
            Ok(bytes) => Some(String::from_utf8_lossy(bytes)),
            Err(reason) => {
                notes.push(format!("{}: {reason}", FILES[at]).into());
                None
            }
        }
    }
}

/// What a port's device tells of it.
pub(super) struct OfDevice<'d> {
    /// Ports it has.
    pub(super) ports: usize,
    /// The network device it names.
    pub(super) parent: Option<&'d str>,
    /// It has no function.
    pub(super) is_software: bool,
}

/// One port under watch.
pub(super) struct PortWatch {
    pub(super) number: u32,
    device_dir: String,
    watched: Watched,
    gids: Vec<Gid<'static>>,
    /// Why the GID table could not be read the last time; the entries are those that were read before.
    gids_unread: Option<Text<'static>>,
    pub(super) netdevs: Vec<String>,
    /// Of a software device: the function of its network device.
    pub(super) netdev_pci: Option<String>,
    pub(super) bond: Option<String>,
    pub(super) counters: CounterSet,
    pub(super) hw_counters: CounterSet,
    /// Its directory was listed once.
    listed: bool,
    /// Something may have changed since the last observation.
    changed: bool,
    said: Option<Port<'static>>,
}

impl PortWatch {
    /// Opens the counters; the other files are opened at the first slow look.
    pub(super) fn open(files: &dyn Files, device: &str, number: u32) -> Self {
        let device_dir = format!("class/infiniband/{device}");
        let dir = format!("{device_dir}/ports/{number}");
        Self {
            number,
            gids: Vec::new(),
            gids_unread: None,
            netdevs: Vec::new(),
            netdev_pci: None,
            bond: None,
            counters: CounterSet::open(files, &dir, Some(number), CounterSource::Counters),
            hw_counters: CounterSet::open(files, &dir, Some(number), CounterSource::HwCounters),
            listed: false,
            changed: true,
            said: None,
            watched: Watched::new(dir),
            device_dir,
        }
    }

    /// Looks at the GID table. `false` when it, or some of it, could not be read: that stays as it was, and
    /// it is said why.
    pub(super) fn refresh_gids(&mut self, files: &dyn Files) -> bool {
        let (gids, unread) = match gid::read(files, self.watched.files.path(), &self.gids) {
            Ok(read) => read,
            Err(error) => (self.gids.clone(), Some(error)),
        };
        let unread = unread.map(|error| errno_name(&error));
        self.changed |= gids != self.gids || unread != self.gids_unread;
        (self.gids, self.gids_unread) = (gids, unread);
        self.gids_unread.is_none()
    }

    /// Looks at what seldom changes: network devices, bond, LID, files that could not be opened, new counters. `with_gids`: also at what
    /// changes once in a device's life, the GID table and the lists of counters. `false` when the
    /// GID table was to be looked at too, and could not be read.
    pub(super) fn refresh_slow(&mut self, files: &dyn Files, of: &OfDevice<'_>, with_gids: bool) -> bool {
        let look = self.watched.files.look(files);
        self.listed |= look == Look::Listed;
        if look == Look::Untold && self.listed {
            // No descriptor or memory left: nothing is known to have changed, and nothing else could be looked at.
            return !with_gids;
        }
        let gids_read = !with_gids || self.refresh_gids(files);
        let netdevs = netdev::of_port(files, &self.device_dir, (self.number, of.ports), of.parent, &self.gids);
        let bond = netdev::bond_of(files, &netdevs);
        self.changed |= netdevs != self.netdevs || bond != self.bond;
        (self.netdevs, self.bond) = (netdevs, bond);
        if of.is_software {
            self.netdev_pci = self.netdevs.iter().find_map(|netdev| {
                let path = files.resolve(&format!("class/net/{netdev}/device")).ok()?;
                function_of(&path).map(str::to_owned)
            });
        }
        for set in [&mut self.counters, &mut self.hw_counters] {
            self.changed |= set.refresh_slow(files, with_gids);
        }
        for at in [LINK_LAYER, LID] {
            self.watched.refresh(at, &mut self.changed);
        }
        gids_read
    }

    /// Takes over from the watch before it on the same port what was said, the GID table until it is read, and when the caches
    /// were read.
    pub(super) fn inherit(&mut self, before: Self) {
        self.said = before.said;
        self.gids = before.gids;
        self.counters.inherit(&before.counters);
        self.hw_counters.inherit(&before.hw_counters);
    }

    /// Reads the state; `false` when the device is gone.
    pub(super) fn refresh(&mut self) -> bool {
        let mut present = true;
        for at in [STATE, PHYS_STATE, RATE] {
            present &= self.watched.refresh(at, &mut self.changed);
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
        if let Some(text) = self.watched.text(LINK_LAYER, &mut notes) {
            port.link_layer = match text.trim() {
                "InfiniBand" => LinkLayer::InfiniBand,
                "Ethernet" => LinkLayer::Ethernet,
                _ => LinkLayer::Unspecified,
            };
        }
        if let Some(text) = self.watched.text(STATE, &mut notes) {
            let (state, note) = state::port_state(text.trim());
            port.state = state;
            notes.extend(note.map(Into::into));
        }
        if let Some(text) = self.watched.text(PHYS_STATE, &mut notes) {
            let (phys_state, note) = state::phys_state(text.trim());
            port.phys_state = phys_state;
            notes.extend(note.map(Into::into));
        }
        if let Some(text) = self.watched.text(RATE, &mut notes) {
            describe_rate(text.trim(), &mut port, &mut notes);
        }
        // Not every driver has a LID; its absence is no oddity.
        port.lid = self.watched.text(LID, &mut Vec::new()).and_then(|text| {
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
        notes.extend(self.gids_unread.iter().map(|reason| format!("gids: {reason}").into()));
        notes.extend(self.counters.notes.iter().chain(&self.hw_counters.notes).map(|note| note.clone().into()));
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
