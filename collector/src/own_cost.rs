//! What the program itself uses: shown on the screen, and exported.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::clock;
use crate::feed::OwnCost;
use crate::observation::Nanos;

/// CPU and memory of this process.
pub(crate) struct Own {
    cpu_ns: u64,
    at: Nanos,
    cost: OwnCost,
    /// `/proc/self/statm`, kept open: opening it costs more than reading it. `None` where there is none.
    statm: Option<File>,
}

impl Own {
    pub(crate) fn new() -> Self {
        Self {
            cpu_ns: clock::process_cpu_ns(),
            at: clock::monotonic_ns(),
            cost: OwnCost::default(),
            statm: File::open("/proc/self/statm").ok(),
        }
    }

    /// Of the last second or more.
    pub(crate) fn cost(&self) -> OwnCost {
        self.cost
    }

    /// Measures anew, when about a second has passed: a tick may come a little before its second is over.
    pub(crate) fn measure(&mut self, now: Nanos) {
        if now < self.at + 900_000_000 {
            return;
        }
        let cpu_ns = clock::process_cpu_ns();
        self.cost.cpu_share = Some(cpu_ns.saturating_sub(self.cpu_ns) as f64 / (now - self.at) as f64);
        (self.cpu_ns, self.at) = (cpu_ns, now);
        self.cost.resident_bytes = self.statm.as_ref().and_then(resident_bytes);
    }
}

/// Resident memory of this process from `/proc/self/statm` (second field, pages).
fn resident_bytes(statm: &File) -> Option<u64> {
    // Seven numbers.
    let mut buf = [0u8; 256];
    let n = statm.read_at(&mut buf, 0).ok()?;
    let statm = std::str::from_utf8(buf.get(..n)?).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    u64::try_from(rustix::param::page_size()).ok()?.checked_mul(pages)
}
