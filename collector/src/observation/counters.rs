//! A set of counters, and where it was read.

use serde::{Deserialize, Serialize};

use super::{Pairs, Text};

/// Where a counter set was read. Among counters of one meaning and rank those of the first source here are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterSource {
    /// Lines of a log that tell of the same thing, counted since the log's beginning (imports only).
    Log,
    /// `ports/N/counters/` (PMA), with `counters_ext/` where an old kernel has it.
    Counters,
    /// `hw_counters/` of the port, or of the device when the set has no port.
    HwCounters,
    /// `RDMA_NLDEV_CMD_STAT_GET`.
    Nldev,
    /// The network device's statistics through ethtool.
    Ethtool,
    /// The carrier counts of the network device.
    Netdev,
    /// A counter set bound to one QP or one QP type.
    Qp,
    /// Health reporters of the device (`devlink health`).
    Devlink,
    /// Temperatures (`hwmon`), 10⁻³ °C.
    Hwmon,
    /// Packets seen on the network device of a software device, or at a mirror port: of one QP where the set has a
    /// `qpn`, else of the port.
    Packets,
    /// A source this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl CounterSource {
    /// The name in the recording.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Counters => "counters",
            Self::HwCounters => "hw_counters",
            Self::Nldev => "nldev",
            Self::Ethtool => "ethtool",
            Self::Netdev => "netdev",
            Self::Qp => "qp",
            Self::Devlink => "devlink",
            Self::Hwmon => "hwmon",
            Self::Packets => "packets",
            Self::Other => "other",
        }
    }
}

/// One set of counters. Names and units are the driver's own, exactly as read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number; absent for a set of the whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// Network device, for `ethtool` sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netdev: Option<Text<'a>>,
    /// Where the set was read.
    pub source: CounterSource,
    /// The QP a bound set belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// The QP type a bound set belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qp_type: Option<Text<'a>>,
    /// The process whose QPs a bound set counts, where it counts those of one process only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The kernel's number of a bound set (`RDMA_NLDEV_ATTR_STAT_COUNTER_ID`), unique to the device while the set lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<u32>,
    /// The QPs a bound set counts together; absent: those last said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpns: Option<Vec<u32>>,
    /// The bound set is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<bool>,
    /// Raw values by the driver's names.
    #[serde(borrow, default)]
    pub values: Pairs<'a, u64>,
    /// Why a counter could not be read. The name `*` stands for the whole set.
    #[serde(borrow, default, skip_serializing_if = "Pairs::is_empty")]
    pub unavailable: Pairs<'a, Text<'a>>,
}
