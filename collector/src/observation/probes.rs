//! The probes that are attached, those that are not, and what they cost.

use serde::{Deserialize, Serialize};

use super::Text;

/// Which probes are attached, and what they cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Probes<'a> {
    /// Probes wanted.
    pub wanted: u32,
    /// Probes attached.
    pub attached: u32,
    /// Those that could not be attached.
    #[serde(borrow, default)]
    pub failed: Vec<FailedProbe<'a>>,
    /// Length of the attach window, ns; absent when the data-path probes are attached all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// Period of the windows, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// Time for which posts were watched since the start, ns; absent when that is all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posts_watched_ns: Option<u64>,
    /// Time for which completions were watched since the start, ns; absent when that is all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions_watched_ns: Option<u64>,
    /// Data-path probe hits since start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Estimated cost of those hits, ns of CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// Share of one core the data-path probes may cost, 0–1; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_share: Option<f64>,
    /// The groups of data-path probes that are or were attached.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ProbeGroup<'a>>,
}

/// Data-path probes that are attached and detached together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeGroup<'a> {
    /// `posts` or `completions`.
    #[serde(borrow)]
    pub group: Text<'a>,
    /// Its hits since start.
    pub hits: u64,
    /// What one hit costs, ns of CPU.
    pub hit_ns: u64,
    /// The cost was measured at start; otherwise it is assumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured: bool,
    /// It is detached now, for the budget's sake.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Length of its last window, ns; absent when it was never paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// From the beginning of that window to the next one's, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
}

/// A probe that could not be attached, or was detached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FailedProbe<'a> {
    /// The probe's name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// Why.
    pub reason: Text<'a>,
}
