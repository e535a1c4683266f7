//! The rules' thresholds, each with its default. Every one can be set in the configuration file under `[rule]`.

use serde::{Deserialize, Serialize};

/// Thresholds of all rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Length of a window, seconds.
    pub window_s: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { window_s: 1.0 }
    }
}
