//! What became of a QP's work: its completions by status, and how long they took.

use core::sync::atomic::AtomicU64;

use crate::atomic;

/// Statuses told apart; `enum ibv_wc_status` ends at 23 (`IBV_WC_TM_RNDV_INCOMPLETE`).
pub const STATUSES: usize = 24;

/// Buckets of the latency histogram: the last one begins at 2^39 ns, which is nine minutes.
pub const LATENCIES: usize = 40;

/// `IBV_WC_WR_FLUSH_ERR`: what was queued when the QP failed or was moved to the error state.
pub const FLUSHED: u32 = 5;

/// The completions of one QP.
#[repr(C)]
#[derive(Debug)]
pub struct Outcome {
    /// Completions by status; a status above the last one is counted in none of them.
    pub statuses: [AtomicU64; STATUSES],
    /// Time from the post of a signalled work request to the poll that found its completion: bucket i counts
    /// [2^i, 2^(i+1)) ns, bucket 0 also 0, the last one everything above.
    pub latency_log2_ns: [AtomicU64; LATENCIES],
}

impl Default for Outcome {
    fn default() -> Self {
        Self { statuses: [const { AtomicU64::new(0) }; _], latency_log2_ns: [const { AtomicU64::new(0) }; _] }
    }
}

const _: () = assert!(size_of::<Outcome>() == 512, "a power of two: no element lies on two pages");

/// The bucket of a latency.
#[must_use]
pub const fn latency_class(ns: u64) -> usize {
    let class = 63 - (ns | 1).leading_zeros() as usize;
    if class < LATENCIES { class } else { LATENCIES - 1 }
}

impl Outcome {
    /// Counts one completion.
    pub fn completed(&self, status: u32) {
        // The array's length is no power of two, so there is no mask that changes nothing: the comparison is hidden from
        // the compiler instead, which would move it to where the kernel's verifier does not see it any more.
        let status = core::hint::black_box(status) as usize;
        if status < STATUSES
            && let Some(count) = self.statuses.get(status)
        {
            atomic::add(count, 1);
        }
    }

    /// Counts one latency.
    pub fn took(&self, ns: u64) {
        let class = core::hint::black_box(latency_class(ns));
        if class < LATENCIES
            && let Some(count) = self.latency_log2_ns.get(class)
        {
            atomic::add(count, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn a_latency_falls_into_the_bucket_of_its_power_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 1023, 1024].map(latency_class), [0, 0, 1, 1, 2, 9, 10]);
        assert_eq!(latency_class(u64::MAX), LATENCIES - 1);
    }

    #[test]
    fn each_status_is_counted_by_itself_and_one_beyond_the_last_by_none() {
        let outcome = Outcome::default();
        for status in [0, 5, 5, 23, 24, u32::MAX] {
            outcome.completed(status);
        }
        let count = |status: usize| outcome.statuses[status].load(Relaxed);
        assert_eq!([count(0), count(5), count(23)], [1, 2, 1]);
        assert_eq!(outcome.statuses.iter().map(|n| n.load(Relaxed)).sum::<u64>(), 4);
    }
}
