//! The sysfs source: devices, ports and counters below `class/infiniband`.
//!
//! ```text
//! mod.rs       the source: finds devices, polls them, says what is missing
//!   watch.rs     one device between the polls
//!   device.rs    what a device is            absent.rs   why there is none
//!   port.rs      state, rate, network devices    rate.rs, state.rs, gid.rs, netdev.rs: its texts and tables
//!   counters.rs  one directory of counters       number.rs: what a counter file holds
//!   fold.rs      what is unavailable, in few lines
//! ```
//!
//! Order of observations in one poll: devices that vanished, then devices that appeared or changed, then of each device
//! its ports (when changed) and its counters (each time), then the bonds. So a rename is `removed` of the old name with its
//! PCI address and GUID, followed by the new name's `device` with the same ones. A name that went to another device is
//! first removed, too: two devices that swapped their names are two removals, then two devices.

mod absent;
mod counters;
pub(crate) mod device;
mod fold;
pub mod gid;
mod netdev;
mod number;
mod port;
pub mod rate;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod watch;

use std::sync::Arc;

pub use absent::{NoDevice, why_no_device};
pub use fold::remedy;
pub(crate) use state::STATE_READS;

use self::counters::CounterSet;
use self::fold::Gap;
use self::watch::DeviceWatch;
use super::files::{Entry, Files, Listed, OpenDirectory, errno_name, put_in_order};
use super::ports::{PortMap, RdmaPort};
use super::{Availability, Emit, Missing, Source};
use crate::observation::{Body, Bond, CounterSource, Device, Nanos, Observation, Seeing, Text};

/// Answers a question about a device's name.
pub type DeviceQuestion = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The shortest period between two polls, ns. Below it firmware is asked more often than its own caches turn over.
pub const SHORTEST_PERIOD_NS: Nanos = 100_000_000;

/// The directory of the devices.
const CLASS: &str = "class/infiniband";

/// Between two looks at what seldom changes: names, network devices, files that could not be opened, ns.
const SLOW_PERIOD_NS: Nanos = 10_000_000_000;

/// How the source is started.
pub struct SysfsOptions {
    /// Where it looks.
    pub files: Arc<dyn Files>,
    /// The devices wanted. Of any other device no file is opened.
    pub wanted: DeviceQuestion,
    /// Devices whose statistics another source reads: their `hw_counters` are left alone.
    pub skip_hw_counters: DeviceQuestion,
    /// Where the ports found are told to the sources that read what lies beside them.
    pub ports: PortMap,
    /// Another source says the bonds now, at the moment they change.
    pub skip_bonds: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Between two polls, ns; at least [`SHORTEST_PERIOD_NS`].
    pub period_ns: Nanos,
}

impl SysfsOptions {
    /// All devices, all counters, once a second.
    #[must_use]
    pub fn new(files: Arc<dyn Files>) -> Self {
        Self {
            files,
            wanted: Arc::new(|_| true),
            skip_hw_counters: Arc::new(|_| false),
            ports: PortMap::default(),
            skip_bonds: Arc::new(|| false),
            period_ns: 1_000_000_000,
        }
    }
}

/// Reads `class/infiniband`.
pub struct SysfsSource {
    options: SysfsOptions,
    due: Nanos,
    last_poll: Nanos,
    devices: Vec<DeviceWatch>,
    /// The directory of the devices, kept open until its path is walked again; `None` where it is to be found by its path.
    directory: Option<Box<dyn OpenDirectory>>,
    directory_due: Nanos,
    /// The directory of the devices as it was last, in its own order; empty where it is to be looked at anew.
    listed: Vec<Entry>,
    bonds: Vec<Bond<'static>>,
    /// Those that could not be read: they are as they were.
    bonds_unread: Vec<Missing>,
    no_device: Option<NoDevice>,
    absent_due: Nanos,
    /// Why the directory of the devices could not be listed the last time.
    unlisted: Option<Text<'static>>,
    polled: bool,
}

impl SysfsSource {
    /// A source that has not looked at anything yet; it is due at once.
    #[must_use]
    pub fn new(options: SysfsOptions) -> Self {
        Self {
            options,
            due: 0,
            last_poll: 0,
            devices: Vec::new(),
            directory: None,
            directory_due: 0,
            listed: Vec::new(),
            bonds: Vec::new(),
            bonds_unread: Vec::new(),
            no_device: None,
            absent_due: 0,
            unlisted: None,
            polled: false,
        }
    }

    /// Goes on in another tree of the same machine, taken later: what did not change is not said again.
    pub fn look_at(&mut self, files: Arc<dyn Files>) {
        self.options.files = files;
        self.directory = None;
        self.listed.clear();
        for device in &mut self.devices {
            device.inode = 0;
        }
    }

    /// Why there is no device, as the last poll found it; `None` when there is one.
    #[must_use]
    pub fn no_device(&self) -> Option<&NoDevice> {
        self.no_device.as_ref()
    }

    /// Compares the directory with what it was, and says which devices appeared, changed and vanished.
    fn scan(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let files = &*self.options.files;
        self.unlisted = None;
        // In an ordinary poll it is as it was.
        let (mut at, mut same) = (0, true);
        let mut tell = |entry: Listed<'_>| {
            same &= self.listed.get(at).is_some_and(|known| entry == *known);
            at += 1;
        };
        let kept = self.directory.as_ref().filter(|_| now < self.directory_due);
        let listed = match kept {
            Some(directory) => directory.each(&mut tell),
            None => {
                self.directory = files.directory(CLASS);
                self.directory_due = now + SLOW_PERIOD_NS;
                match &self.directory {
                    Some(directory) => directory.each(&mut tell),
                    None => files.each(CLASS, &mut tell),
                }
            }
        };
        if listed.is_ok() && same && at > 0 && at == self.listed.len() && self.no_device.is_none() {
            for device in &mut self.devices {
                device.refresh_slow(files, now);
            }
        } else {
            self.compare(now, emit);
        }
        for device in &mut self.devices {
            if !std::mem::replace(&mut device.said, true) {
                emit(&Observation { t: now, body: Body::Device(device.seen().clone()) });
            }
        }
    }

    /// Compares the directory with the devices known, and says which vanished.
    fn compare(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let files = &*self.options.files;
        let mut entries = Vec::new();
        self.listed.clear();
        // What is kept may be gone from its path.
        self.directory = None;
        match files.each(CLASS, &mut |entry| entries.push(entry.entry())) {
            Ok(()) => self.listed.clone_from(&entries),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => entries.clear(),
            Err(error) => {
                // Out of descriptors, no permission: nothing is known to be gone.
                self.unlisted = Some(errno_name(&error));
                return;
            }
        }
        put_in_order(&mut entries);
        entries.retain(|entry| entry.object);
        if !entries.is_empty() {
            self.no_device = None;
        } else if self.no_device.is_none() || now >= self.absent_due {
            // Seldom: it looks at every PCI function.
            self.no_device = why_no_device(files);
            self.absent_due = now + SLOW_PERIOD_NS;
        }
        entries.retain(|entry| (self.options.wanted)(&entry.name));
        let mut known = std::mem::take(&mut self.devices);
        let mut gone = Vec::new();
        for entry in entries {
            let mut device = match known.iter().position(|device| device.name == entry.name) {
                Some(at) if known[at].inode == entry.inode => known.remove(at),
                Some(at) => {
                    let before = known.remove(at);
                    let mut device = DeviceWatch::open(files, entry.name, entry.inode);
                    if device.is_same(&before) {
                        device.inherit(before);
                    } else {
                        gone.push(before);
                    }
                    device
                }
                None => DeviceWatch::open(files, entry.name, entry.inode),
            };
            device.refresh_slow(files, now);
            self.devices.push(device);
        }
        for device in gone.into_iter().chain(known) {
            let Device { device, pci, node_guid, .. } = device.described.seen;
            let gone = Device { device, pci, node_guid, removed: Some(true), ..Device::default() };
            emit(&Observation { t: now, body: Body::Device(gone) });
        }
    }

    fn tell_ports(&self) {
        let ports = || self.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
        let known = self.options.ports.now();
        let told = known.iter().zip(ports()).all(|(known, (device, port))| {
            known.device == device.name
                && known.inode == device.inode
                && known.port == port.number
                && known.netdevs == port.netdevs
                && known.bond == port.bond
                && known.pci.as_deref() == device.seen().pci.as_deref().or(port.netdev_pci.as_deref())
                && known.driver.as_deref() == device.seen().driver.as_deref()
        });
        // Nothing is copied in an ordinary poll.
        if told && known.len() == ports().count() {
            return;
        }
        let ports = ports().map(|(device, port)| RdmaPort {
            device: device.name.clone(),
            inode: device.inode,
            port: port.number,
            netdevs: port.netdevs.clone(),
            bond: port.bond.clone(),
            pci: device.seen().pci.as_deref().or(port.netdev_pci.as_deref()).map(str::to_owned),
            driver: device.seen().driver.as_deref().map(str::to_owned),
        });
        self.options.ports.set(ports.collect());
    }

    fn poll_bonds(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        if (self.options.skip_bonds)() {
            // Said anew should the other source fail.
            self.bonds.clear();
            self.bonds_unread.clear();
            return;
        }
        let mut names: Vec<&String> =
            self.devices.iter().flat_map(|d| &d.ports).filter_map(|p| p.bond.as_ref()).collect();
        names.sort();
        names.dedup();
        let known = |name: &String| self.bonds.iter().find(|bond| bond.bond == name.as_str()).cloned();
        let mut unread = Vec::new();
        let now_or_before = |name: &String| {
            netdev::read_bond(&*self.options.files, name).unwrap_or_else(|error| {
                unread.push(Missing {
                    what: format!("bond {name}"),
                    reason: errno_name(&error).to_string(),
                    fix: None,
                });
                known(name)
            })
        };
        let bonds: Vec<Bond<'static>> = names.into_iter().filter_map(now_or_before).collect();
        self.bonds_unread = unread;
        for bond in &bonds {
            if !self.bonds.contains(bond) {
                emit(&Observation { t: now, body: Body::Bond(bond.clone()) });
            }
        }
        self.bonds = bonds;
    }

    fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for device in &self.devices {
            let mut gap = |port, what: String, reason: String| {
                gaps.push(Gap { device: device.name.clone(), port, what, reason });
            };
            if let Some(reason) = &device.seen().unreadable {
                gap(None, String::new(), reason.to_string());
            }
            let skipped = (self.options.skip_hw_counters)(&device.name);
            for set in device.sets().filter(|set| !(skipped && set.source == CounterSource::HwCounters)) {
                for (what, reason) in set.unavailable() {
                    gap(set.port, what, reason.into_owned());
                }
            }
        }
        gaps
    }
}

/// How the reason begins why the devices could not be listed.
pub(crate) const UNLISTED: &str = "class/infiniband: ";

/// The network devices of a device's first port, whatever function they hang below.
pub(crate) fn netdevs_of(files: &dyn Files, device: &str) -> Vec<String> {
    let dir = format!("class/infiniband/{device}");
    let parent = files.text(&format!("{dir}/parent")).ok();
    let by = |gids: &[_]| netdev::of_port(files, &dir, (1, 1), parent.as_deref(), gids);
    let netdevs = by(&[]);
    if netdevs.is_empty() {
        // Only where nothing shorter names it: the GID table is long.
        return by(&gids_of(files, device, 1));
    }
    netdevs
}

/// The GID table entries in use of one port; none where the table cannot be read.
pub(crate) fn gids_of(files: &dyn Files, device: &str, port: u32) -> Vec<crate::observation::Gid<'static>> {
    let read = gid::read(files, &format!("class/infiniband/{device}/ports/{port}"), &[]);
    read.map(|(gids, _)| gids).unwrap_or_default()
}

impl Source for SysfsSource {
    fn name(&self) -> &'static str {
        "sysfs"
    }

    fn availability(&self) -> Availability {
        let ports: usize = self.devices.iter().map(|device| device.ports.len()).sum();
        let counters: usize = self.devices.iter().flat_map(DeviceWatch::sets).map(CounterSet::known).sum();
        let mut missing = fold::fold(self.gaps());
        missing.extend(self.bonds_unread.iter().cloned());
        if let Some(reason) = &self.unlisted {
            let reason = format!("{UNLISTED}{reason}");
            missing.push(Missing { what: "RDMA devices".to_owned(), reason, fix: None });
        } else if let Some(why) = &self.no_device {
            missing.push(Missing { what: "RDMA devices".to_owned(), reason: why.to_string(), fix: why.fix() });
        } else if self.polled && self.devices.is_empty() {
            let reason = "every device is excluded".to_owned();
            missing.push(Missing { what: "RDMA devices".to_owned(), reason, fix: None });
        }
        let readable = self.devices.iter().any(|device| device.seen().unreadable.is_none());
        let state = match (readable, missing.is_empty()) {
            (false, _) => Seeing::Off,
            (true, true) => Seeing::Ok,
            (true, false) => Seeing::Partial,
        };
        let sees = format!("{} devices, {ports} ports, {counters} counters", self.devices.len());
        Availability { name: "sysfs", state, sees, missing }
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn set_interval(&mut self, interval_ns: u64) {
        self.options.period_ns = interval_ns;
        self.due = 0;
    }

    fn nudge(&mut self, now: Nanos) {
        // An event may have told a state that the file never showed, or shows no longer.
        for device in &mut self.devices {
            device.look_again();
            device.ports.iter_mut().for_each(port::PortWatch::say_again);
        }
        self.due = self.due.min(now.max(self.last_poll + SHORTEST_PERIOD_NS));
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.scan(now, emit);
        self.tell_ports();
        for device in &mut self.devices {
            let hw_counters = !(self.options.skip_hw_counters)(&device.name);
            device.poll(&*self.options.files, now, hw_counters, emit);
        }
        self.poll_bonds(now, emit);
        self.polled = true;
        self.last_poll = now;
        let period = self.options.period_ns.max(SHORTEST_PERIOD_NS);
        self.due = if self.due + period > now { self.due + period } else { now + period };
    }
}
