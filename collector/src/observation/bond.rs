//! A bond of network devices, and which of them carries its traffic.

use serde::{Deserialize, Serialize};

use super::Text;

/// The state of a bond.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bond<'a> {
    /// Name of the bond.
    #[serde(borrow)]
    pub bond: Text<'a>,
    /// Mode as the kernel names it, for example `active-backup`.
    pub mode: Text<'a>,
    /// The active network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Text<'a>>,
    /// The bond's members.
    #[serde(default)]
    pub slaves: Vec<Slave<'a>>,
    /// The kernel told this change as it happened. Absent: read at a poll, so that it may be as old as the poll before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<bool>,
}

/// One member of a bond.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Slave<'a> {
    /// Network device.
    #[serde(borrow)]
    pub netdev: Text<'a>,
    /// The link is up.
    pub up: bool,
}
