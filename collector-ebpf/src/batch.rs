//! Work requests that a process builds call by call (`ibv_wr_start` … `ibv_wr_complete`) instead of as a list.
//!
//! Between the two calls nobody else may use the QP, so a batch is changed without atomic operations. What is built counts
//! only when it is completed; of a batch that is aborted nothing remains, but for batches of more than [`KEPT`] requests,
//! whose first ones are in the histograms by then.

use crate::walk::Found;

/// Work requests whose particulars are kept until the batch is completed.
pub const KEPT: usize = 16;

/// `IBV_SEND_SIGNALED`.
const SIGNALED: u32 = 1 << 1;

/// One work request.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Built {
    /// The number its completion will carry.
    pub wr_id: u64,
    /// Bytes.
    pub bytes: u64,
    /// `enum ibv_wr_opcode`.
    pub opcode: u32,
    /// `enum ibv_send_flags`.
    pub flags: u32,
}

impl Built {
    /// The work request has `IBV_SEND_SIGNALED`.
    #[must_use]
    pub const fn is_signaled(&self) -> bool {
        self.flags & SIGNALED != 0
    }
}

/// The work requests of one QP between the two calls.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Batch {
    /// Index of the QP's slot.
    pub slot: u32,
    /// 1 while [`Self::present`] is being built.
    open: u32,
    /// Requests in [`Self::kept`].
    pub n: u32,
    reserved: u32,
    /// The watch it was begun in, see [`Watch::epoch`](crate::pairing::Watch::epoch).
    pub epoch: u64,
    /// The sum of the requests that are built.
    pub found: Found,
    /// The request being built.
    present: Built,
    /// Those before it.
    pub kept: [Built; KEPT],
}

impl Batch {
    /// Empties it for a QP with this slot.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
    pub fn start(&mut self, slot: u32) {
        self.slot = slot;
        self.open = 0;
        self.n = 0;
        self.found = Found::default();
    }

    /// Begins a request; `full` takes those before it when there is no room for more.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
    pub fn begin(&mut self, wr_id: u64, opcode: u32, flags: u32, full: impl FnOnce(&Self)) {
        self.close(full);
        self.present = Built { wr_id, bytes: 0, opcode, flags };
        self.open = 1;
    }

    /// Gives the present request bytes to move.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
    pub fn data(&mut self, bytes: u64) {
        self.present.bytes += bytes;
    }

    /// Ends the present request, if there is one.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a pointer into a map stays known to the verifier")]
    pub fn close(&mut self, full: impl FnOnce(&Self)) {
        if self.open == 0 {
            return;
        }
        self.open = 0;
        self.found.wrs += 1;
        self.found.bytes += self.present.bytes;
        if self.n as usize >= KEPT {
            full(self);
            self.n = 0;
        }
        // The mask changes nothing and is for the verifier, see `Wide::add`.
        let at = core::hint::black_box(self.n) as usize & (KEPT - 1);
        if let Some(place) = self.kept.get_mut(at) {
            *place = self.present;
            self.n += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn build(n: u64, batch: &mut Batch) -> Vec<Built> {
        let mut flushed = Vec::new();
        for i in 0..n {
            batch.begin(i, 2, 2, |full| flushed.extend_from_slice(&full.kept[..full.n as usize]));
            batch.data(100);
            batch.data(i);
        }
        batch.close(|full| flushed.extend_from_slice(&full.kept[..full.n as usize]));
        flushed
    }

    #[test]
    fn what_is_built_is_added_up_and_kept_in_order() {
        let mut batch = Batch::default();
        batch.start(7);
        assert!(build(3, &mut batch).is_empty());
        assert_eq!(batch.found, Found { wrs: 3, bytes: 303, ..Found::default() });
        assert_eq!(batch.kept[..3].iter().map(|built| built.bytes).collect::<Vec<_>>(), [100, 101, 102]);
        assert_eq!((batch.slot, batch.n, batch.kept[0].is_signaled()), (7, 3, true));
    }

    #[test]
    fn more_than_is_kept_is_handed_over_once_each_and_in_order() {
        let mut batch = Batch::default();
        batch.start(0);
        let mut all = build(40, &mut batch);
        all.extend_from_slice(&batch.kept[..batch.n as usize]);
        assert_eq!(all.iter().map(|built| built.wr_id).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        assert_eq!(batch.found.wrs, 40);
    }

    #[test]
    fn a_new_start_forgets_what_was_not_completed() {
        let mut batch = Batch::default();
        batch.start(0);
        build(5, &mut batch);
        batch.begin(9, 0, 0, |_| unreachable!("there is room"));
        batch.start(0);
        assert!(build(1, &mut batch).is_empty());
        assert_eq!((batch.found.wrs, batch.n, batch.kept[0].wr_id), (1, 1, 0));
    }
}
