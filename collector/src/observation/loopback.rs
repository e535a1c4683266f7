//! What the loopback probe measured.

use serde::{Deserialize, Serialize};

use super::Text;

/// A loopback latency measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loopback<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number.
    pub port: u32,
    /// Median, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// Maximum, ns.
    pub max_ns: u64,
    /// Operations measured.
    pub n: u64,
}
