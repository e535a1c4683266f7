//! What the program itself uses: shown on the screen, and exported.

use crate::clock;
use crate::feed::OwnCost;
use crate::observation::Nanos;

/// CPU and memory of this process.
pub(crate) struct Own {
    cpu_ns: u64,
    at: Nanos,
    cost: OwnCost,
}

impl Own {
    pub(crate) fn new() -> Self {
        Self { cpu_ns: clock::process_cpu_ns(), at: clock::monotonic_ns(), cost: OwnCost::default() }
    }

    /// Of the last second or more.
    pub(crate) fn cost(&self) -> OwnCost {
        self.cost
    }

    /// Measures anew, when a second has passed.
    pub(crate) fn measure(&mut self, now: Nanos) {
        if now < self.at + 1_000_000_000 {
            return;
        }
        let cpu_ns = clock::process_cpu_ns();
        self.cost.cpu_share = Some(cpu_ns.saturating_sub(self.cpu_ns) as f64 / (now - self.at) as f64);
        (self.cpu_ns, self.at) = (cpu_ns, now);
        self.cost.resident_bytes = resident_bytes();
    }
}

/// Resident memory of this process from `/proc/self/statm` (second field, pages).
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    u64::try_from(rustix::param::page_size()).ok()?.checked_mul(pages)
}
