//! A PCIe function: its path, its link, and the errors it reports (AER).

use serde::{Deserialize, Serialize};

use super::{Pairs, Text};

/// A PCIe function, its path and its link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pcie<'a> {
    /// The function's address, `0000:3b:00.0`.
    #[serde(borrow)]
    pub pci: Text<'a>,
    /// Class code as sysfs writes it, `0x020700`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Text<'a>>,
    /// Addresses from the root port to the function itself.
    #[serde(default)]
    pub path: Vec<Text<'a>>,
    /// Current link speed, GT/s per lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_gts: Option<f64>,
    /// Current link width, lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Highest speed of the function, GT/s per lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_speed_gts: Option<f64>,
    /// Highest width of the function, lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_width: Option<u32>,
    /// Maximum payload size, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mps: Option<u32>,
    /// The operating system owns AER on this function; absent when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aer_owned: Option<bool>,
    /// AER totals; absent where the function shows none.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub aer: Option<AerTotals<'a>>,
}

/// AER totals of one function by severity, as `aer_dev_*` lists them (names such as `RxErr`, `TOTAL_ERR_COR`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AerTotals<'a> {
    /// `aer_dev_correctable`.
    #[serde(borrow, default)]
    pub correctable: Pairs<'a, u64>,
    /// `aer_dev_nonfatal`.
    #[serde(borrow, default)]
    pub nonfatal: Pairs<'a, u64>,
    /// `aer_dev_fatal`.
    #[serde(borrow, default)]
    pub fatal: Pairs<'a, u64>,
}

/// Severity of an AER event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AerSeverity {
    /// Corrected by the hardware.
    Corrected,
    /// Uncorrected, the link still works.
    Nonfatal,
    /// Uncorrected, the link is unreliable.
    Fatal,
}

/// One AER event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aer<'a> {
    /// The function that reported, `0000:3b:00.0`.
    #[serde(borrow)]
    pub pci: Text<'a>,
    /// Severity.
    pub severity: AerSeverity,
    /// The status register's bits; 0 when the report carried none.
    #[serde(default)]
    pub status: u32,
    /// The bits' names in the PCIe specification's short form, for example `Rollover`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Text<'a>>,
    /// The logged TLP header, when it is valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tlp: Vec<u32>,
    /// In which part the function had in the failed transaction, where the report says so, for example `Receiver ID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Text<'a>>,
}
