//! What the files of a bundle say of the machine together: which port a network device belongs to, which device a PCI
//! function is, whose log it is.

use std::collections::{BTreeMap, BTreeSet};

use crate::observation::{Body, Device, Observation, Port};

/// Drivers of adapters that carry RDMA, as the kernel log names them.
const DRIVERS: [&str; 11] =
    ["mlx5_core", "mlx4_core", "bnxt_en", "bnxt_re", "ice", "irdma", "hfi1", "qib", "ionic", "efa", "hns3"];

/// What a network device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Netdev {
    /// It belongs to this RDMA port.
    Port(String, u32),
    /// No RDMA port of the machine has it.
    NoRdma,
    /// Nobody said.
    Unknown,
}

/// The machine as its bundle shows it.
#[derive(Debug, Clone, Default)]
pub(super) struct Machine {
    by_netdev: BTreeMap<String, (String, u32)>,
    by_pci: BTreeMap<String, String>,
    ports: BTreeMap<String, BTreeSet<u32>>,
    /// A tree or `rdma link` listed all RDMA ports with their network devices.
    listed: bool,
    /// Devices a tree shows: what text says of their state would be poorer.
    from_tree: BTreeSet<String>,
    /// Functions that only a log names, with the driver.
    introduced: BTreeMap<String, String>,
    /// Counters that a port could have and has not switched on.
    pub(super) not_enabled: BTreeMap<(String, u32), BTreeSet<String>>,
    /// Hosts that logs of one machine (kernel log, syslog) name.
    pub(super) hosts: BTreeSet<String>,
}

impl Machine {
    /// Learns from what a tree's sources say.
    pub(super) fn see(&mut self, observation: &Observation<'_>) {
        match &observation.body {
            Body::Device(device) => {
                self.from_tree.insert(device.device.to_string());
                if let Some(pci) = &device.pci {
                    self.by_pci.insert(pci.to_string(), device.device.to_string());
                }
                self.listed = true;
            }
            Body::Port(port) => self.see_port(port),
            _ => {}
        }
    }

    /// Learns from a line of `rdma link`.
    pub(super) fn see_port(&mut self, port: &Port<'_>) {
        self.listed |= !port.netdevs.is_empty();
        self.ports.entry(port.device.to_string()).or_default().insert(port.port);
        for netdev in &port.netdevs {
            self.by_netdev.entry(netdev.to_string()).or_insert_with(|| (port.device.to_string(), port.port));
        }
    }

    /// What a network device is.
    pub(super) fn netdev(&self, name: &str) -> Netdev {
        match self.by_netdev.get(name) {
            Some((device, port)) => Netdev::Port(device.clone(), *port),
            None if self.listed => Netdev::NoRdma,
            None => Netdev::Unknown,
        }
    }

    /// All RDMA ports with their network devices are known.
    pub(super) fn lists_ports(&self) -> bool {
        self.listed
    }

    /// A tree shows the device.
    pub(super) fn in_tree(&self, device: &str) -> bool {
        self.from_tree.contains(device)
    }

    /// The device of a function, where a tree shows it.
    pub(super) fn device_of(&self, pci: &str) -> Option<&str> {
        self.by_pci.get(pci).map(String::as_str)
    }

    /// The only port of a device, where exactly one is known.
    pub(super) fn only_port(&self, device: &str) -> Option<u32> {
        let ports = self.ports.get(device)?;
        (ports.len() == 1).then(|| ports.first().copied()).flatten()
    }

    /// Notes that text speaks of a port.
    pub(super) fn port_named(&mut self, device: &str, port: u32) {
        self.ports.entry(device.to_owned()).or_default().insert(port);
    }

    /// The log names an adapter by its function only: it becomes a device named so, unless a tree shows it. Says whether
    /// the function carries RDMA as far as is known.
    pub(super) fn introduce(&mut self, pci: &str, driver: &str) -> bool {
        if self.by_pci.contains_key(pci) || self.introduced.contains_key(pci) {
            return true;
        }
        if !DRIVERS.contains(&driver) {
            return false;
        }
        self.introduced.insert(pci.to_owned(), driver.to_owned());
        true
    }

    /// The devices that only logs name.
    pub(super) fn introductions(&self) -> impl Iterator<Item = Body<'static>> + '_ {
        self.introduced.iter().map(|(pci, driver)| {
            Body::Device(Device {
                device: pci.clone().into(),
                driver: Some(driver.clone().into()),
                pci: Some(pci.clone().into()),
                ..Device::default()
            })
        })
    }

    /// The machine's name, where all its logs give one.
    pub(super) fn host(&self) -> Option<&str> {
        (self.hosts.len() == 1).then(|| self.hosts.first().map(String::as_str)).flatten()
    }
}
