//! The RDMA ports the sysfs source found, for the sources that read what lies beside a port: its network devices, its
//! PCI function.
//!
//! The sysfs source is polled before them and has the filter of devices applied: what is not in here is not opened.

use std::sync::{Arc, Mutex, PoisonError};

/// One RDMA port and what lies beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RdmaPort {
    /// Device name.
    pub device: String,
    /// The inode of the device's entry: another one under the same name is another object. 0 where nobody looked.
    pub inode: u64,
    /// Port number, from 1.
    pub port: u32,
    /// The port's network devices.
    pub netdevs: Vec<String>,
    /// The bond the port's network device is, or belongs to.
    pub bond: Option<String>,
    /// The device's PCI function, `0000:3b:00.0`; of a software device the one of its network device.
    pub pci: Option<String>,
    /// The kernel driver bound to the device's function; unknown for a software device.
    pub driver: Option<String>,
}

/// The ports as the sysfs source last saw them. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct PortMap(Arc<Mutex<Arc<[RdmaPort]>>>);

impl PortMap {
    /// The list now; the same pointer as long as nothing changed.
    #[must_use]
    pub fn now(&self) -> Arc<[RdmaPort]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another list in place if it differs.
    pub fn set(&self, ports: Vec<RdmaPort>) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if **now != ports[..] {
            *now = ports.into();
        }
    }
}
