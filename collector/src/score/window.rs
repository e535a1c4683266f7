//! ECN traces of the packet model, judged by second: a finding is right in a second in which the queue says so.
//!
//! A rule needs time to be sure and time to let go. A second of trouble counts as missed only when the trouble has lasted
//! for [`DELAY_NS`] without the finding; a second of a finding counts as wrong only when the trouble has been over for
//! [`HOLD_NS`]. Only `ecn.*` is judged on these traces.

use super::tally::Case;

/// Time a rule may take to be sure, ns.
pub(super) const DELAY_NS: u64 = 4_000_000_000;
/// Time a finding may stay after the trouble, ns.
pub(super) const HOLD_NS: u64 = 5_000_000_000;

/// The classes of traces there are.
pub(super) fn classes() -> Vec<&'static str> {
    Vec::new()
}

pub(super) fn judge(_class: &str, _seed: u64, _settings: &crate::rule::Settings) -> Option<Case> {
    None
}
