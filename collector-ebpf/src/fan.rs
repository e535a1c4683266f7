//! How many QPs of a device are in use at once, and how soon one comes round again: what a NIC's cache of QP contexts
//! sees.
//!
//! A QP's context has to be fetched over PCIe when it is not in the NIC's cache. No counter tells how often that
//! happens; how many distinct QPs are posted to within a millisecond and within 100, and how many others come between two
//! turns of one QP, tells how large a cache would have to be.

use core::sync::atomic::AtomicU64;

use crate::atomic;
use crate::slot::Slot;

/// Buckets of the histograms: the last one begins at 2^19, above the QPs of any device of today that are used at once.
pub const COUNTS: usize = 20;

/// Milliseconds in the longer interval.
const LONG_MS: u64 = 100;

/// The fan-out of one device.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Fan {
    /// The present millisecond (`CLOCK_MONOTONIC`), and the QPs posted to in it.
    tick: AtomicU64,
    in_tick: AtomicU64,
    /// The present 100 milliseconds, and the QPs posted to in them.
    long: AtomicU64,
    in_long: AtomicU64,
    /// The watch ([`Watch::epoch`](crate::pairing::Watch::epoch)) of these, and the millisecond of its first post: of
    /// the intervals that it began in only a part was seen.
    epoch: AtomicU64,
    began: AtomicU64,
    /// Posts that came right after a post of the same process to another QP.
    pub switches: AtomicU64,
    /// Milliseconds with posts, by the number of distinct QPs posted to: bucket i counts [2^i, 2^(i+1)).
    pub in_1ms: [AtomicU64; COUNTS],
    /// The same for intervals of 100 ms.
    pub in_100ms: [AtomicU64; COUNTS],
    /// Switches back to a QP, by the switches since its last turn: an upper bound of the distinct QPs in between.
    pub reuse: [AtomicU64; COUNTS],
}

/// A [`Fan`] as read out of the map.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FanCounts {
    /// The present intervals, which are not over.
    pub present: [u64; 6],
    /// See [`Fan::switches`].
    pub switches: u64,
    /// See [`Fan::in_1ms`].
    pub in_1ms: [u64; COUNTS],
    /// See [`Fan::in_100ms`].
    pub in_100ms: [u64; COUNTS],
    /// See [`Fan::reuse`].
    pub reuse: [u64; COUNTS],
}

const _: () = assert!(size_of::<Fan>() == size_of::<FanCounts>(), "the same fields");

impl Fan {
    /// A post to a QP of the device in the millisecond `ms` of the watch `epoch`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
    pub fn posted(&self, slot: &Slot, ms: u64, epoch: u64, switched: bool) {
        if atomic::load(&self.epoch) != epoch {
            // The intervals of the watch before were cut off.
            for part in [&self.tick, &self.in_tick, &self.long, &self.in_long] {
                atomic::store(part, 0);
            }
            atomic::store(&self.began, ms);
            atomic::store(&self.epoch, epoch);
        }
        let before = atomic::load(&slot.tick);
        if before != ms {
            atomic::store(&slot.tick, ms);
            let began = atomic::load(&self.began);
            turn_to(&self.tick, &self.in_tick, &self.in_1ms, ms, began);
            let long = ms / LONG_MS;
            if before / LONG_MS != long {
                turn_to(&self.long, &self.in_long, &self.in_100ms, long, began / LONG_MS);
            }
        }
        if switched {
            let turn = atomic::fetch_add(&self.switches, 1) + 1;
            let last = atomic::swap(&slot.turn, turn);
            if last != 0 {
                count(&self.reuse, turn.saturating_sub(last));
            }
        }
    }
}

/// Counts a QP in an interval; the first one of a new interval closes the one before, unless that was the first of a watch.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
fn turn_to(present: &AtomicU64, qps: &AtomicU64, histogram: &[AtomicU64; COUNTS], now: u64, first: u64) {
    if atomic::load(present) != now {
        let before = atomic::swap(present, now);
        // Where two CPUs come here at once, one of them finds the other's `now`.
        if before != now && before != 0 {
            let n = atomic::swap(qps, 0);
            if before != first {
                count(histogram, n);
            }
        }
    }
    atomic::add(qps, 1);
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
fn count(histogram: &[AtomicU64; COUNTS], n: u64) {
    if n == 0 {
        return;
    }
    // Hidden from the compiler: see `Outcome::completed`.
    let class = core::hint::black_box(63 - n.leading_zeros() as usize);
    let class = if class < COUNTS { class } else { COUNTS - 1 };
    if let Some(counter) = histogram.get(class) {
        atomic::add(counter, 1);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::sync::atomic::Ordering::Relaxed;
    use std::vec::Vec;

    use super::*;

    fn read(histogram: &[AtomicU64; COUNTS]) -> Vec<(usize, u64)> {
        histogram.iter().map(|n| n.load(Relaxed)).enumerate().filter(|(_, n)| *n != 0).collect()
    }

    #[test]
    fn qps_are_counted_once_per_interval_however_often_they_post() {
        let fan = Fan::default();
        let slots: Vec<Slot> = (0..10).map(|_| Slot::default()).collect();
        for ms in 1000..1200 {
            // Five QPs in each millisecond, the other five every tenth.
            let used = if ms % 10 == 0 { 10 } else { 5 };
            for _ in 0..3 {
                slots[..used].iter().for_each(|slot| fan.posted(slot, ms, 1, false));
            }
        }
        fan.posted(&slots[0], 1200, 1, false);
        // But for the first of both: the watch may have begun in its midst.
        assert_eq!(read(&fan.in_1ms), [(2, 180), (3, 19)]);
        assert_eq!(read(&fan.in_100ms), [(3, 1)]);
    }

    #[test]
    fn intervals_that_a_window_cuts_off_are_not_counted_as_whole_ones() {
        let fan = Fan::default();
        let slots: Vec<Slot> = (0..8).map(|_| Slot::default()).collect();
        let watch = |epoch: u64, ms: core::ops::Range<u64>| {
            ms.for_each(|ms| slots.iter().for_each(|slot| fan.posted(slot, ms, epoch, false)));
        };
        // From the middle of an interval to the end of the next: no later post shows that it was whole.
        (1..5).for_each(|n| watch(n, 1000 * n + 50..1000 * n + 200));
        assert_eq!(read(&fan.in_100ms), []);
        watch(9, 9050..9250);
        assert_eq!(read(&fan.in_100ms), [(3, 1)]);
    }

    #[test]
    fn a_qp_that_comes_round_after_all_others_has_their_number_as_its_distance() {
        let fan = Fan::default();
        let slots: Vec<Slot> = (0..8).map(|_| Slot::default()).collect();
        (0..5).for_each(|_| slots.iter().for_each(|slot| fan.posted(slot, 1, 1, true)));
        assert_eq!(read(&fan.reuse), [(3, 32)]);
        assert_eq!(fan.switches.load(Relaxed), 40);
    }

    #[test]
    fn a_process_that_stays_with_one_qp_never_switches() {
        let fan = Fan::default();
        let slot = Slot::default();
        (0..100).for_each(|ms| fan.posted(&slot, ms, 1, false));
        assert!(read(&fan.reuse).is_empty());
        assert_eq!(read(&fan.in_1ms), [(0, 98)]);
    }
}
