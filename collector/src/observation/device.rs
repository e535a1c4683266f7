//! An RDMA device: what the kernel calls it, and what it can be known by.

use serde::{Deserialize, Serialize};

use super::Text;

/// A device appeared, changed its name or vanished.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Device<'a> {
    /// The kernel's name now; never an identity.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// The RDMA device index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The kernel driver bound to the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Text<'a>>,
    /// `0011:2233:4455:6677`; an all-zero GUID counts as absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_guid: Option<Text<'a>>,
    /// Firmware version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fw: Option<Text<'a>>,
    /// The PCI function, `0000:3b:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<Text<'a>>,
    /// The physical function's address, when this device is a virtual function whose `physfn` can be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physfn: Option<Text<'a>>,
    /// The device is a virtual function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vf: Option<bool>,
    /// The adapter's board or HCA type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text<'a>>,
    /// The device is gone. A rename is a removal of the old name, then the new name with the same identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<bool>,
    /// Why nothing more of the device can be read (for example a class link without its target).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<Text<'a>>,
}
