//! What a finding is about: its names, for people and machines, and the identity that outlives a rename.

use std::sync::Arc;

use serde::Serialize;

use crate::inventory::{DeviceId, QpRef};

/// What a finding is about, as names for people and machines; the empty subject is the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Subject {
    /// Device name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<Arc<str>>,
    /// Port number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// QP number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// PCI function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci: Option<Arc<str>>,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.device, self.port, self.qpn, &self.pci) {
            (Some(device), _, Some(qpn), _) => write!(f, "{device} QP {qpn}"),
            (Some(device), Some(port), None, _) => write!(f, "{device}/{port}"),
            (Some(device), None, None, Some(pci)) => write!(f, "{device} {pci}"),
            (Some(device), None, None, None) => write!(f, "{device}"),
            (None, _, _, Some(pci)) => write!(f, "{pci}"),
            (None, _, _, None) => write!(f, "node"),
        }
    }
}

/// What a finding is about, as an identity that survives a rename.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubjectKey {
    /// The node.
    Node,
    /// A device.
    Device(DeviceId),
    /// A port of a device.
    Port(DeviceId, u32),
    /// A QP.
    Qp(QpRef),
    /// A PCI function.
    Pci(Arc<str>),
}
