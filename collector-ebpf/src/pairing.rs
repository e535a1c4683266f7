//! Which post a completion belongs to: what post-to-poll latency rests on.
//!
//! A completion carries the `wr_id` its work request was given. Where a process gives each outstanding request an id of
//! its own (an address, an index into a ring), the id pairs them. Many processes give all requests of a QP one id; there
//! the order pairs them, since a send queue completes in the order of its posts: the n-th signalled request and the n-th
//! successful send completion. Order needs an unbroken watch from the QP's creation on, because nobody can tell how many
//! requests were outstanding when the watch began; otherwise such a QP has no latency rather than a wrong one.
//!
//! What this cannot tell: a process that deals out a few ids in turn (A, B, A, B …) with several requests outstanding
//! under each, watched from the middle. Its latency comes out too short by whole rounds.

use core::sync::atomic::AtomicU64;

use crate::atomic;
use crate::slot::Slot;

/// [`Slot::pairing`]: two signalled requests in a row had one id.
pub const REPEATS: u64 = 1 << 0;
/// [`Slot::pairing`]: order pairs nothing any more: an error completion (requests that are not signalled complete as
/// well), or more completions than signalled requests (`sq_sig_all`, or posts that were not seen).
pub const BROKEN: u64 = 1 << 1;

/// [`Slot::pairing`]: an error that is no flush has been told of.
pub const TOLD: u64 = 1 << 2;
/// [`Slot::pairing`]: completions were counted of which is not known whether they are of sends.
pub const MIXED: u64 = 1 << 3;

/// What user space says of the watch.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Watch {
    /// Changes whenever a data-path probe is attached or detached.
    pub epoch: AtomicU64,
    /// `CLOCK_MONOTONIC` ns since which nothing was attached or detached.
    pub since: AtomicU64,
    /// 1 while posts are watched: a probe that is being detached hits for a while longer.
    pub posts: AtomicU64,
    /// 1 while completions are watched.
    pub completions: AtomicU64,
    /// 1 while posts and completions are both watched, so that latency can be measured.
    pub latency: AtomicU64,
    /// Every how many signalled requests of a QP one is timed, less 1: a power of two less 1.
    pub mask: AtomicU64,
    /// Grows by [`CHANGE`] whenever the kernel makes, modifies or destroys a QP of a process, and has [`FOLLOWED`] while
    /// that is watched. While it stays the same, no address in a process has become another QP's: that one would have had
    /// to be made and modified before it was posted to.
    pub changes: AtomicU64,
}

/// [`Watch::changes`]: all that happens to QPs is seen.
pub const FOLLOWED: u64 = 1;
/// [`Watch::changes`]: one change.
pub const CHANGE: u64 = 2;

/// What a timed work request is found by.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PendingKey {
    /// Its `wr_id`, or its place in the order of the QP's signalled requests.
    pub id: u64,
    /// Index of the QP's slot.
    pub slot: u32,
    /// 1 when `id` is a place in the order.
    pub by_order: u32,
}

/// A timed work request.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pending {
    /// `CLOCK_MONOTONIC` ns of the post.
    pub t: u64,
    /// [`Watch::epoch`] at the post: a completion may have gone unseen since another one began.
    pub epoch: u64,
}

/// Where timed work requests are kept.
pub trait Table {
    /// Keeps one; what is there under the same key is replaced.
    fn put(&self, key: &PendingKey, pending: &Pending);
    /// Takes one out.
    fn take(&self, key: &PendingKey) -> Option<Pending>;
}

/// A signalled work request is posted: the `order`-th of the QP, counted from 0.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
pub fn posted(slot: &Slot, index: u32, wr_id: u64, order: u64, now: u64, watch: &Watch, table: &impl Table) {
    if let Some(by_order) = is_timed(slot, wr_id, order, watch) {
        let key = PendingKey { id: if by_order { order } else { wr_id }, slot: index, by_order: u32::from(by_order) };
        table.put(&key, &Pending { t: now, epoch: atomic::load(&watch.epoch) });
    }
}

/// The same, but for what is kept of a request that is timed: by its order or by its id, if it is.
#[inline(always)]
#[must_use]
#[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
pub fn is_timed(slot: &Slot, wr_id: u64, order: u64, watch: &Watch) -> Option<bool> {
    let repeated = atomic::swap(&slot.last_wr_id, wr_id) == wr_id && order != 0;
    let mut pairing = atomic::load(&slot.pairing);
    if repeated && pairing & REPEATS == 0 {
        pairing |= REPEATS;
        set(&slot.pairing, REPEATS);
    }
    if atomic::load(&watch.latency) == 0 || order & atomic::load(&watch.mask) != 0 {
        return None;
    }
    let by_order = pairing & REPEATS != 0;
    // Whether the ids repeat is not known at the first request.
    if pairing & BROKEN != 0 && by_order || order == 0 && !by_order {
        return None;
    }
    Some(by_order)
}

/// A send has completed without an error; its latency in ns, if it was timed.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
pub fn completed(slot: &Slot, index: u32, wr_id: u64, now: u64, watch: &Watch, table: &impl Table) -> Option<u64> {
    let order = atomic::fetch_add(&slot.sent, 1);
    if atomic::load(&watch.latency) == 0 {
        return None;
    }
    let pairing = atomic::load(&slot.pairing);
    let by_order = pairing & REPEATS != 0;
    if by_order {
        if order >= atomic::load(&slot.signaled) {
            set(&slot.pairing, BROKEN);
            return None;
        }
        let born = atomic::load(&slot.born);
        if pairing & BROKEN != 0 || born == 0 || born < atomic::load(&watch.since) {
            return None;
        }
    }
    let key = PendingKey { id: if by_order { order } else { wr_id }, slot: index, by_order: u32::from(by_order) };
    let pending = table.take(&key)?;
    // What is older than the slot's QP was left by the one before.
    let valid = pending.epoch == atomic::load(&watch.epoch) && pending.t >= atomic::load(&slot.created);
    valid.then(|| now.saturating_sub(pending.t))
}

/// A request has failed: its id may be given to another one that is not timed.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one call")]
pub fn forget(index: u32, wr_id: u64, table: &impl Table) {
    let _ = table.take(&PendingKey { id: wr_id, slot: index, by_order: 0 });
}

/// A completion of which is not known whether it is of a send.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one test and one store")]
pub fn mixed(slot: &Slot) {
    set(&slot.pairing, MIXED);
}

/// A completion with an error: from here on order pairs nothing.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one test and one store")]
pub fn failed(slot: &Slot) {
    set(&slot.pairing, BROKEN);
}

/// Sets a bit. Two CPUs may set different bits at once and one of them be lost; it is set again at the next occasion.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
fn set(flags: &AtomicU64, bit: u64) {
    let before = atomic::load(flags);
    if before & bit == 0 {
        atomic::store(flags, before | bit);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::vec::Vec;

    use super::*;

    #[derive(Default)]
    struct Memory(RefCell<HashMap<PendingKey, Pending>>);

    impl Table for Memory {
        fn put(&self, key: &PendingKey, pending: &Pending) {
            self.0.borrow_mut().insert(*key, *pending);
        }
        fn take(&self, key: &PendingKey) -> Option<Pending> {
            self.0.borrow_mut().remove(key)
        }
    }

    /// One QP, born at 100 unless told otherwise, watched since 50.
    struct Qp {
        slot: Slot,
        watch: Watch,
        table: Memory,
    }

    impl Qp {
        fn new() -> Self {
            let qp = Self { slot: Slot::default(), watch: Watch::default(), table: Memory::default() };
            atomic::store(&qp.watch.latency, 1);
            atomic::store(&qp.watch.since, 50);
            atomic::store(&qp.slot.born, 100);
            atomic::store(&qp.slot.created, 101);
            qp
        }

        fn post(&self, wr_id: u64, t: u64) {
            let order = atomic::fetch_add(&self.slot.signaled, 1);
            posted(&self.slot, 3, wr_id, order, t, &self.watch, &self.table);
        }

        fn complete(&self, wr_id: u64, t: u64) -> Option<u64> {
            completed(&self.slot, 3, wr_id, t, &self.watch, &self.table)
        }
    }

    #[test]
    fn requests_with_ids_of_their_own_are_paired_by_id_in_any_order() {
        let qp = Qp::new();
        (0..4).for_each(|i| qp.post(10 + i, 1000 + 10 * i));
        // Completions of several QPs may share a queue, so these need not come in order for the pairing to hold.
        assert_eq!(qp.complete(13, 2000), Some(970));
        assert_eq!(qp.complete(11, 2001), Some(991));
        // The first is never timed: whether ids repeat is not known yet.
        assert_eq!(qp.complete(10, 2002), None);
    }

    #[test]
    fn ids_that_wrap_around_are_paired_with_their_last_post() {
        let qp = Qp::new();
        let mut told = Vec::new();
        for i in 0..100 {
            qp.post(i % 4, 1000 * i);
            told.extend(qp.complete(i % 4, 1000 * i + 7));
        }
        assert_eq!(told, std::vec![7; 99]);
    }

    #[test]
    fn requests_with_one_id_are_paired_by_their_order() {
        let qp = Qp::new();
        (0..8).for_each(|i| qp.post(0, 1000 + i));
        let told: Vec<_> = (0..8).map(|i| qp.complete(0, 5000 + 10 * i)).collect();
        // From the second on, with which the repetition shows.
        assert_eq!(told[0], None);
        assert_eq!(told[1..], (1..8).map(|i| Some(4000 + 9 * i)).collect::<Vec<_>>());
    }

    #[test]
    fn order_pairs_nothing_on_a_qp_that_was_there_before_the_watch() {
        for born in [0, 49] {
            let qp = Qp::new();
            atomic::store(&qp.slot.born, born);
            (0..8).for_each(|i| qp.post(0, 1000 + i));
            assert!((0..8).all(|i| qp.complete(0, 5000 + i).is_none()), "born at {born}");
        }
    }

    #[test]
    fn a_request_of_the_slots_last_qp_is_not_paired_with_a_completion_of_its_next() {
        let qp = Qp::new();
        (0..3).for_each(|id| qp.post(id, 1000));
        atomic::store(&qp.slot.created, 50_000);
        assert_eq!(qp.complete(2, 60_000), None);
    }

    #[test]
    fn a_request_that_failed_is_not_paired_with_a_later_one_of_its_id() {
        let qp = Qp::new();
        (0..3).for_each(|id| qp.post(id, 1000));
        forget(3, 2, &qp.table);
        assert_eq!(qp.complete(2, 60_000), None);
    }

    #[test]
    fn what_was_outstanding_when_the_watch_began_takes_no_later_post_for_its_own() {
        // A process that keeps 2 requests of one id outstanding, seen from the middle: poll, post, poll, post.
        let qp = Qp::new();
        atomic::store(&qp.slot.born, 10);
        let told: Vec<_> = (0..20)
            .map(|i| {
                let told = qp.complete(7, 1000 * i);
                qp.post(7, 1000 * i + 1);
                told
            })
            .collect();
        assert_eq!(told, std::vec![None; 20]);
    }

    #[test]
    fn a_post_of_an_earlier_window_is_not_paired_with_a_later_completion() {
        let qp = Qp::new();
        (0..3).for_each(|id| qp.post(id, 1000));
        atomic::store(&qp.watch.epoch, 1);
        assert_eq!(qp.complete(2, 9_000_000), None);
        qp.post(9, 9_000_000);
        assert_eq!(qp.complete(9, 9_000_400), Some(400));
    }

    #[test]
    fn more_completions_than_signalled_requests_end_the_pairing_by_order() {
        // sq_sig_all: requests without the flag complete too.
        let qp = Qp::new();
        (0..2).for_each(|_| qp.post(0, 1000));
        assert_eq!(qp.complete(0, 2000), None);
        assert_eq!(qp.complete(0, 2000), Some(1000));
        assert_eq!(qp.complete(0, 2000), None);
        (0..2).for_each(|_| qp.post(0, 3000));
        assert!((0..2).all(|_| qp.complete(0, 4000).is_none()));
    }

    #[test]
    fn an_error_ends_the_pairing_by_order_only() {
        let qp = Qp::new();
        (0..4).for_each(|_| qp.post(0, 1000));
        failed(&qp.slot);
        assert!((0..4).all(|_| qp.complete(0, 2000).is_none()));
        let qp = Qp::new();
        (0..4).for_each(|id| qp.post(id, 1000));
        failed(&qp.slot);
        assert_eq!(qp.complete(3, 2000), Some(1000));
    }

    #[test]
    fn one_in_so_many_is_timed() {
        let qp = Qp::new();
        atomic::store(&qp.watch.mask, 3);
        (0..16).for_each(|id| qp.post(100 + id, 1000));
        let timed: Vec<u64> = (0..16).filter(|id| qp.complete(100 + id, 2000).is_some()).collect();
        assert_eq!(timed, [4, 8, 12]);
    }

    #[test]
    fn nothing_is_timed_while_completions_are_not_watched() {
        let qp = Qp::new();
        atomic::store(&qp.watch.latency, 0);
        (0..4).for_each(|id| qp.post(id, 1000));
        assert!(qp.table.0.borrow().is_empty());
    }
}
