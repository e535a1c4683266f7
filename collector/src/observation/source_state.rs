//! What a source sees, and what it lost.

use serde::{Deserialize, Serialize};

use super::Text;

/// How much of its subject a source sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seeing {
    /// All it is meant to see.
    Ok,
    /// Some of it; the reason says what is missing.
    Partial,
    /// Nothing.
    #[default]
    Off,
}

/// What a source can see.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceState<'a> {
    /// The source's name.
    #[serde(borrow)]
    pub source: Text<'a>,
    /// How much it sees.
    pub state: Seeing,
    /// Why not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'a>>,
}

/// Observations that were lost before this point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lost<'a> {
    /// The source that lost them.
    #[serde(borrow)]
    pub source: Text<'a>,
    /// How many.
    pub n: u64,
}
