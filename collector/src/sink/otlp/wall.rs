//! Times by the wall clock, which is what OTLP wants.

use crate::clock;
use crate::inventory::World;
use crate::observation::Nanos;

/// Wall clock minus `CLOCK_MONOTONIC` of the observed node, ns: what the header says, once for all; where it does not
/// tie the two (an import without dates), the newest observation is taken to be of the moment of the first look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wall {
    offset_ns: i128,
}

impl Wall {
    pub(super) fn new(world: &World) -> Self {
        let newest = world.unix_ns(world.now).unwrap_or_else(clock::unix_ns);
        Self { offset_ns: i128::from(newest) - i128::from(world.now) }
    }

    /// ns since 1970 of a monotonic time.
    pub(super) fn unix_ns(self, t: Nanos) -> u64 {
        u64::try_from(i128::from(t) + self.offset_ns).unwrap_or(0)
    }
}
