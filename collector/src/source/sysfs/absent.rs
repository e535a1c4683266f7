//! Why there is no RDMA device: no subsystem, no device, or a driver that is only half loaded.

use std::fmt;

use super::device::is_pci_address;
use crate::source::files::{Files, base_name};

/// The reason why no RDMA device can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoDevice {
    /// `class/infiniband` does not exist and no function of the node is known to do RDMA.
    NoSubsystem,
    /// The subsystem is loaded and has no device.
    NoDevice,
    /// There are functions that can do RDMA, and no RDMA device on any of them.
    DriverHalfLoaded {
        /// How many such functions.
        functions: usize,
        /// The driver bound to the first of them; `None` when none is bound.
        driver: Option<String>,
        /// The kernel module that would make the RDMA devices, where it is known.
        hint: Option<&'static str>,
    },
}

impl NoDevice {
    /// What the operator can do about it; `None` when nothing is known to help.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        match self {
            Self::NoSubsystem | Self::NoDevice => {
                Some("load the RDMA driver of the adapter, where there is one".to_owned())
            }
            Self::DriverHalfLoaded { hint, .. } => hint.map(|module| format!("modprobe {module}")),
        }
    }
}

impl fmt::Display for NoDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSubsystem => f.write_str("no RDMA subsystem (class/infiniband missing)"),
            Self::NoDevice => f.write_str("RDMA subsystem loaded, 0 devices"),
            Self::DriverHalfLoaded { functions, driver, hint } => {
                let s = if *functions == 1 { "" } else { "s" };
                write!(f, "{functions} RDMA-capable PCI function{s} but no RDMA device: ")?;
                match (hint, driver) {
                    (Some(module), _) => write!(f, "{module} not loaded?"),
                    (None, Some(driver)) => write!(f, "no RDMA driver for functions of {driver}?"),
                    (None, None) => f.write_str("no driver bound"),
                }
            }
        }
    }
}

/// The class of an InfiniBand host adapter (PCI code and ID assignment: base 02, sub-class 07).
const INFINIBAND_CLASS: &str = "0x0207";

/// Functions that can do RDMA whatever class they show: vendor, devices (none = every device of the driver), the
/// driver that binds them, the module that makes the RDMA device. Only hardware that always can is listed: a network
/// card of which some models cannot (`bnxt_en`, most of `i40e`) would make a plain Ethernet node look broken.
const CAPABLE: [(&str, &[&str], &str, &str); 7] = [
    ("0x15b3", &[], "mlx5_core", "mlx5_ib"),
    ("0x15b3", &[], "mlx4_core", "mlx4_ib"),
    ("0x8086", &["0x1591", "0x1592", "0x1593", "0x1599", "0x159a", "0x159b"], "ice", "irdma"),
    ("0x8086", &["0x37d0", "0x37d1", "0x37d2", "0x37d3"], "i40e", "irdma"),
    ("0x8086", &["0x24f0", "0x24f1"], "", "hfi1"),
    ("0x1d0f", &["0xefa0", "0xefa1", "0xefa2", "0xefa3"], "", "efa"),
    ("0x1ded", &["0x107f"], "", "erdma"),
];

/// Drivers that hand a function to a guest or a program: there is no RDMA device here by intent.
const GIVEN_AWAY: [&str; 4] = ["vfio-pci", "mlx5_vfio_pci", "uio_pci_generic", "pci-stub"];

/// Why there is no device; `None` when there is one.
#[must_use]
pub fn why_no_device(files: &dyn Files) -> Option<NoDevice> {
    let listed = files.list("class/infiniband");
    if listed.as_ref().is_ok_and(|entries| entries.iter().any(|entry| entry.object)) {
        return None;
    }
    let mut capable = files.list("bus/pci/devices").unwrap_or_default().into_iter().filter_map(|entry| {
        let function = is_pci_address(&entry.name).then(|| format!("bus/pci/devices/{}", entry.name))?;
        rdma_module(files, &function)
    });
    if let Some((driver, hint)) = capable.next() {
        return Some(NoDevice::DriverHalfLoaded { functions: 1 + capable.count(), driver, hint });
    }
    Some(if listed.is_ok() { NoDevice::NoDevice } else { NoDevice::NoSubsystem })
}

/// The bound driver and the missing module of a function that can do RDMA; `None` for any other function.
fn rdma_module(files: &dyn Files, function: &str) -> Option<(Option<String>, Option<&'static str>)> {
    let text = |file: &str| files.text(&format!("{function}/{file}")).unwrap_or_default();
    let (class, vendor, device) = (text("class"), text("vendor"), text("device"));
    let driver = files.resolve(&format!("{function}/driver")).ok().map(|path| base_name(&path).to_owned());
    if driver.as_deref().is_some_and(|driver| GIVEN_AWAY.contains(&driver)) {
        return None;
    }
    let known = CAPABLE.iter().find(|(of, devices, binds, _)| {
        vendor == *of
            && (devices.is_empty() || devices.contains(&device.as_str()))
            && (binds.is_empty() || driver.as_deref() == Some(*binds))
    });
    let hint = known.map(|(_, _, _, module)| *module).filter(|module| driver.as_deref() != Some(*module));
    (known.is_some() || class.starts_with(INFINIBAND_CLASS)).then_some((driver, hint))
}
