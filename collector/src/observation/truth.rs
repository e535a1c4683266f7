//! The simulator's ground truth, by which the rules are scored.

use serde::{Deserialize, Serialize};

use super::Text;

/// Simulator only: the ground truth.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Truth<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number.
    pub port: u32,
    /// Class of the fault.
    pub class: Text<'a>,
    /// The fault is active from here on.
    pub active: bool,
}
