//! The clocks, read by sources and sinks; the engine never does.

use rustix::time::{ClockId, clock_gettime};

use crate::observation::Nanos;

/// `CLOCK_MONOTONIC` now, ns.
#[must_use]
pub fn monotonic_ns() -> Nanos {
    ns(ClockId::Monotonic)
}

/// `CLOCK_REALTIME` now, ns since 1970.
#[must_use]
pub fn unix_ns() -> u64 {
    ns(ClockId::Realtime)
}

/// CPU time this process has used, user and system, ns.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    ns(ClockId::ProcessCPUTime)
}

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
