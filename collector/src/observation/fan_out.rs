//! How many QPs of a device take turns.

use serde::{Deserialize, Serialize};

use super::{Histogram, Text};

/// How many QPs of a device are posted to at once, and how soon one comes round again: cumulative since the start, over the
/// time posts were watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FanOut<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Posts that came right after a post of the same process to another QP.
    pub switches: u64,
    /// Milliseconds with posts, by the number of distinct QPs posted to: bucket i counts [2^i, 2^(i+1)).
    pub in_1ms: Histogram,
    /// The same for intervals of 100 ms.
    pub in_100ms: Histogram,
    /// Switches back to a QP, by the switches since its last turn: an upper bound of the distinct QPs in between.
    pub reuse: Histogram,
}
