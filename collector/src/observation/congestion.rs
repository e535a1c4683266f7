//! The NIC's congestion control parameters.

use serde::{Deserialize, Serialize};

use super::Text;

/// The NIC's congestion control parameters by the driver's own names; an absent key is unknown. One that says nothing of
/// its port takes back what was said: it cannot be read any more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CongestionConfig<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number.
    pub port: u32,
    /// Notification point (receiver) parameters.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub np: serde_json::Map<String, serde_json::Value>,
    /// Reaction point (sender) parameters.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub rp: serde_json::Map<String, serde_json::Value>,
    /// PFC by priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pfc_enabled: Option<[bool; 8]>,
    /// What the port trusts: `pcp` or `dscp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Text<'a>>,
    /// DSCP of CNPs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cnp_dscp: Option<u8>,
    /// `dcqcn`, `rtt` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc_algorithm: Option<Text<'a>>,
}

impl CongestionConfig<'_> {
    /// Nothing is known of the port.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        let Self { device: _, port: _, np, rp, pfc_enabled, trust, cnp_dscp, cc_algorithm } = self;
        let parameters = !np.is_empty() || !rp.is_empty() || cnp_dscp.is_some() || cc_algorithm.is_some();
        !parameters && pfc_enabled.is_none() && trust.is_none()
    }
}
