//! The state of a port, with its link and its GIDs.

use serde::{Deserialize, Serialize};

use super::{Nanos, Text};

/// The link layer of a port, as the kernel names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// Neither (for example EFA), or not readable.
    #[default]
    #[serde(other)]
    Unspecified,
}

/// The logical state of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PortState {
    /// No link.
    Down,
    /// Link trained, not yet configured by a subnet manager.
    Init,
    /// Configured, not yet active.
    Armed,
    /// Carries data.
    Active,
    /// The state could not be read or is not one of the four.
    #[default]
    #[serde(other)]
    Unknown,
}

impl PortState {
    /// The name in the recording and on the screen; `–` when it is not known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "DOWN",
            Self::Init => "INIT",
            Self::Armed => "ARMED",
            Self::Active => "ACTIVE",
            Self::Unknown => "–",
        }
    }
}

/// The state of one port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Port<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number, from 1.
    pub port: u32,
    /// Link layer.
    #[serde(default)]
    pub link_layer: LinkLayer,
    /// Logical state.
    #[serde(default)]
    pub state: PortState,
    /// The physical state's name as the kernel wrote it, or its number where number and name disagree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phys_state: Option<Text<'a>>,
    /// Signalling rate in Gb/s (10^9 bit/s); absent when it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_gbps: Option<f64>,
    /// Lanes in use (1, 2, 4, 8, 12), from the rate's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u32>,
    /// InfiniBand local identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lid: Option<u32>,
    /// Network devices of this port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub netdevs: Vec<Text<'a>>,
    /// The PCI function behind the port's network device, where the RDMA device itself has none (a software device):
    /// its PCIe path is this function's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netdev_pci: Option<Text<'a>>,
    /// The bond the port's network device belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Text<'a>>,
    /// Milliseconds for which the driver serves `hw_counters` from its cache (`lifespan`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifespan_ms: Option<u32>,
    /// GID table entries in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gids: Vec<Gid<'a>>,
    /// What was odd about reading this port, for the notes of the screen and of `ports --json`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Text<'a>>,
    /// When it left ACTIVE, where that was observed before the recording began: said once, with the first line of a port
    /// that is not ACTIVE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_active_t: Option<Nanos>,
}

/// One used entry of a port's GID table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gid<'a> {
    /// Table index.
    pub index: u32,
    /// The GID in the kernel's notation.
    #[serde(borrow)]
    pub gid: Text<'a>,
    /// `IB/RoCE v1` or `RoCE v2`, as the kernel writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Text<'a>>,
    /// Network device behind the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netdev: Option<Text<'a>>,
}
