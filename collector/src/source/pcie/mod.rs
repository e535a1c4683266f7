//! The PCIe source: the path of each RDMA device from its root port, link speed and width, and AER totals.
//!
//! A total counted on one side of a link can sit on the link partner, so every function on the path is observed: root
//! port, switch ports and the device's own function. A software device (rxe, siw) has no function of its own; its path
//! is the one of its network device. Only what sysfs shows without privileges is read: the payload size is in the
//! configuration space beyond 64 bytes and stays unknown, as does who owns AER.

mod function;
mod link;

use std::sync::Arc;

use self::function::Function;
use super::files::{Entry, Files};
use super::ports::{PortMap, RdmaPort};
use super::sysfs::device::is_pci_address;
use super::sysfs::{DeviceQuestion, SHORTEST_PERIOD_NS, netdevs_of};
use super::{Availability, Emit, Missing, Source};
use crate::observation::{Body, Nanos, Observation, Seeing};

/// Between two looks at the links, ns.
const SLOW_PERIOD_NS: Nanos = 10_000_000_000;
/// Between two looks at the paths, ns: a device that moves to another is made anew, which is seen at once.
const RARE_PERIOD_NS: Nanos = 60_000_000_000;

/// How the source is started.
pub struct PcieOptions {
    /// Where it looks.
    pub files: Arc<dyn Files>,
    /// The RDMA devices wanted. Of any other device no file is opened.
    pub wanted: DeviceQuestion,
    /// Where the sysfs source, polled before this one, tells what it found: as long as that stays the same the devices
    /// are not listed once more. `None` where there is no such source.
    pub ports: Option<PortMap>,
    /// Between two readings of the AER totals, ns.
    pub period_ns: Nanos,
}

impl PcieOptions {
    /// All devices, AER totals once a second.
    #[must_use]
    pub fn new(files: Arc<dyn Files>) -> Self {
        Self { files, wanted: Arc::new(|_| true), ports: None, period_ns: 1_000_000_000 }
    }
}

/// Reads the PCIe functions of the RDMA devices and the bridges above them.
pub struct PcieSource {
    options: PcieOptions,
    due: Nanos,
    last_poll: Nanos,
    slow_due: Nanos,
    rare_due: Nanos,
    /// The ports the functions were found for.
    ports: Option<Arc<[RdmaPort]>>,
    /// The entries of `class/infiniband` the functions were found for.
    devices: Vec<Entry>,
    functions: Vec<Function>,
    /// Devices without a function.
    without: Vec<String>,
}

impl PcieSource {
    /// A source that has not looked at anything yet; it is due at once.
    #[must_use]
    pub fn new(options: PcieOptions) -> Self {
        Self {
            options,
            due: 0,
            last_poll: 0,
            slow_due: 0,
            rare_due: 0,
            ports: None,
            devices: Vec::new(),
            functions: Vec::new(),
            without: Vec::new(),
        }
    }

    /// Goes on in another tree of the same machine, taken later: what did not change is not said again.
    pub fn look_at(&mut self, files: Arc<dyn Files>) {
        self.options.files = files;
        self.ports = None;
        self.devices.clear();
        for function in &mut self.functions {
            function.close();
        }
    }

    /// Finds the functions when the devices are others than the last time.
    fn scan(&mut self, now: Nanos) {
        let ports = self.options.ports.as_ref().map(PortMap::now);
        let same = ports.as_ref().zip(self.ports.as_ref()).is_some_and(|(now, before)| Arc::ptr_eq(now, before));
        if same && now < self.slow_due {
            return;
        }
        self.ports = ports;
        let files = &*self.options.files;
        let mut devices = files.list("class/infiniband").unwrap_or_default();
        devices.retain(|entry| entry.object && (self.options.wanted)(&entry.name));
        if devices == self.devices && now < self.slow_due {
            return;
        }
        self.slow_due = now + SLOW_PERIOD_NS;
        if same && devices == self.devices && now < self.rare_due {
            self.functions.iter_mut().for_each(|function| function.refresh_link(files));
            return;
        }
        self.rare_due = now + RARE_PERIOD_NS;
        let mut known = std::mem::take(&mut self.functions);
        self.without.clear();
        for device in &devices {
            let Some(path) = path_of(files, &device.name) else {
                self.without.push(device.name.clone());
                continue;
            };
            for (directory, addresses) in steps(&path) {
                if self.functions.iter().any(|function| function.directory() == directory) {
                    continue;
                }
                let at = known.iter().position(|function| function.directory() == directory);
                let mut function = at.map_or_else(|| Function::new(directory, addresses), |at| known.swap_remove(at));
                function.refresh_link(files);
                self.functions.push(function);
            }
        }
        self.devices = devices;
    }
}

/// The directory of the function below which the device hangs, with all links followed.
fn path_of(files: &dyn Files, device: &str) -> Option<String> {
    let dir = format!("class/infiniband/{device}");
    let with_function = |path: &String| path.split('/').any(is_pci_address);
    if let Some(path) = files.resolve(&format!("{dir}/device")).ok().filter(with_function) {
        return Some(path);
    }
    netdevs_of(files, device)
        .iter()
        .filter_map(|netdev| files.resolve(&format!("class/net/{netdev}/device")).ok())
        .find(with_function)
}

/// Each function on a path: its directory, and the addresses from the root port to it.
fn steps(path: &str) -> Vec<(String, Vec<String>)> {
    let mut steps = Vec::new();
    let mut addresses = Vec::new();
    let mut end = 0;
    for part in path.split('/') {
        end += part.len();
        if is_pci_address(part) {
            addresses.push(part.to_owned());
            steps.push((path[..end].to_owned(), addresses.clone()));
        }
        end += 1;
    }
    steps
}

impl Source for PcieSource {
    fn name(&self) -> &'static str {
        "pcie"
    }

    fn availability(&self) -> Availability {
        let mut missing = Vec::new();
        let mut lack = |what: &str, names: Vec<&str>, reason: &str| {
            if !names.is_empty() {
                let what = format!("{what} of {}", names.join(", "));
                missing.push(Missing { what, reason: reason.to_owned(), fix: None });
            }
        };
        let without: Vec<&str> = self.without.iter().map(String::as_str).collect();
        lack("PCIe path", without, "no PCI function is visible for it");
        let of = |lacks: fn(&Function) -> bool| -> Vec<&str> {
            self.functions.iter().filter(|function| lacks(function)).map(Function::address).collect()
        };
        lack("link", of(|function| !function.has_link()), "no current_link_speed or current_link_width");
        lack("AER totals", of(|function| !function.has_aer()), "no aer_dev_* files: no AER, or firmware owns it");
        if self.functions.is_empty() && missing.is_empty() {
            missing.push(Missing {
                what: "PCIe links".to_owned(),
                reason: "no RDMA device here".to_owned(),
                fix: None,
            });
        }
        let state = match (self.functions.is_empty(), missing.is_empty()) {
            (true, _) => Seeing::Off,
            (false, true) => Seeing::Ok,
            (false, false) => Seeing::Partial,
        };
        Availability { name: "pcie", state, sees: format!("{} functions", self.functions.len()), missing }
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn nudge(&mut self, now: Nanos) {
        self.due = self.due.min(now.max(self.last_poll + SHORTEST_PERIOD_NS));
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.scan(now);
        let files = &*self.options.files;
        for function in &mut self.functions {
            function.refresh_aer(files);
            if let Some(body) = function.take_changed() {
                emit(&Observation { t: now, body: Body::Pcie(body) });
            }
        }
        self.last_poll = now;
        let period = self.options.period_ns.max(SHORTEST_PERIOD_NS);
        self.due = if self.due + period > now { self.due + period } else { now + period };
    }
}

#[cfg(test)]
mod tests;
