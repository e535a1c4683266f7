//! The statistics of one QP: the sum of its slots, as an observation.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use collector_ebpf::slot::{OPCODES, SIZES};

use super::names;
use super::store::Store;
use crate::observation::{Histogram, Pairs, QpStats, Text};

/// Adds up slots. Kept between QPs, so that a sweep allocates nothing for the histogram.
#[derive(Default)]
pub(super) struct Sum {
    posts: u64,
    wrs: u64,
    bytes: u64,
    signaled: u64,
    switches: u64,
    truncated: u64,
    unread: u64,
    last_post: u64,
    opcodes: [u64; OPCODES],
    sizes: Vec<u64>,
    has_wide: bool,
}

impl Sum {
    /// Reads the slots of one QP.
    pub(super) fn read(&mut self, store: &dyn Store, slots: impl Iterator<Item = u32>) {
        *self = Self { sizes: std::mem::take(&mut self.sizes), has_wide: true, ..Self::default() };
        self.sizes.clear();
        for index in slots {
            let Some(slot) = store.slot(index) else { continue };
            let read = |counter: &AtomicU64| counter.load(Relaxed);
            self.posts += read(&slot.posts);
            self.wrs += read(&slot.wrs);
            self.bytes += read(&slot.bytes);
            self.signaled += read(&slot.signaled);
            self.switches += read(&slot.switches);
            self.truncated += read(&slot.truncated);
            self.unread += read(&slot.unread);
            self.last_post = self.last_post.max(read(&slot.last_post));
            let Some(wide) = store.wide(index) else {
                self.has_wide = false;
                continue;
            };
            self.sizes.resize(SIZES, 0);
            self.opcodes.iter_mut().zip(&wide.opcodes).for_each(|(sum, n)| *sum += read(n));
            self.sizes.iter_mut().zip(&wide.size_log2).for_each(|(sum, n)| *sum += read(n));
        }
    }

    /// A number that changes whenever one of the counters does: none of them ever falls.
    pub(super) fn signature(&self) -> u64 {
        [self.wrs, self.bytes, self.signaled, self.switches, self.truncated, self.unread]
            .iter()
            .fold(self.posts, |sum, n| sum.wrapping_add(*n))
    }

    /// Lists that could not be read to their end.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// Lends the sum as an observation's body.
    pub(super) fn lend<'a>(&mut self, device: &'a str, qpn: u32) -> QpStats<'a> {
        let mut stats = QpStats {
            device: Text::Borrowed(device),
            qpn,
            posts: self.posts,
            wrs: self.wrs,
            bytes: self.bytes,
            signaled: Some(self.signaled),
            switches: Some(self.switches),
            last_post_t: Some(self.last_post),
            truncated: (self.truncated != 0).then_some(self.truncated),
            ..QpStats::default()
        };
        if self.has_wide {
            stats.size_log2 = Some(Histogram(std::mem::take(&mut self.sizes)));
            stats.opcodes = (self.opcodes.iter().zip(names::OPCODE))
                .filter(|(n, _)| **n != 0)
                .map(|(n, name)| (Text::Borrowed(name), *n))
                .collect::<Pairs<'_, u64>>();
        }
        stats
    }

    /// Takes the histogram's memory back.
    pub(super) fn take_back(&mut self, stats: QpStats<'_>) {
        if let Some(Histogram(sizes)) = stats.size_log2 {
            self.sizes = sizes;
        }
    }
}
