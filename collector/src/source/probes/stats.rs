//! The statistics of one QP: the sum of its slots, as an observation.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use collector_ebpf::outcome::{LATENCIES, STATUSES};
use collector_ebpf::pairing::MIXED;
use collector_ebpf::slot::{OPCODES, SIZES};

use super::names;
use super::store::Store;
use crate::observation::{Histogram, Pairs, QpStats, Text};

/// What of all that processes do was watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Watched {
    /// Time for which posts were watched since the start, ns; `None` when that is all the time.
    pub(super) posts_ns: Option<u64>,
    /// Receive work requests are watched.
    pub(super) receives: bool,
    /// Completions are or were watched.
    pub(super) completions: bool,
    /// They are, but some of the QP's may have gone to nobody: then it has no number of them.
    pub(super) missed: bool,
    /// Time for which they were, ns; `None` when that is all the time.
    pub(super) completions_ns: Option<u64>,
}

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
    completions: u64,
    errors: u64,
    sent: u64,
    /// Some completions could not be told from receives.
    mixed: bool,
    recv_wrs: u64,
    opcodes: [u64; OPCODES],
    statuses: [u64; STATUSES],
    sizes: Vec<u64>,
    latency: Vec<u64>,
    has_wide: bool,
    has_outcome: bool,
}

impl Sum {
    /// Reads the slots of one QP.
    pub(super) fn read(&mut self, store: &dyn Store, slots: impl Iterator<Item = u32>) {
        let (sizes, latency) = (std::mem::take(&mut self.sizes), std::mem::take(&mut self.latency));
        *self = Self { sizes, latency, has_wide: true, has_outcome: true, ..Self::default() };
        self.sizes.clear();
        self.latency.clear();
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
            self.completions += read(&slot.completions);
            self.errors += read(&slot.errors);
            self.sent += read(&slot.sent);
            self.mixed |= read(&slot.pairing) & MIXED != 0;
            self.recv_wrs += read(&slot.recv_wrs);
            if let Some(wide) = store.wide(index) {
                self.sizes.resize(SIZES, 0);
                self.opcodes.iter_mut().zip(&wide.opcodes).for_each(|(sum, n)| *sum += read(n));
                self.sizes.iter_mut().zip(&wide.size_log2).for_each(|(sum, n)| *sum += read(n));
            } else {
                self.has_wide = false;
            }
            if let Some(outcome) = store.outcome(index) {
                self.latency.resize(LATENCIES, 0);
                self.statuses.iter_mut().zip(&outcome.statuses).for_each(|(sum, n)| *sum += read(n));
                self.latency.iter_mut().zip(&outcome.latency_log2_ns).for_each(|(sum, n)| *sum += read(n));
            } else {
                self.has_outcome = false;
            }
        }
    }

    /// A number that changes whenever one of the counters does: none of them ever falls.
    pub(super) fn signature(&self) -> u64 {
        let posted = [self.wrs, self.bytes, self.signaled, self.switches, self.truncated, self.unread];
        let completed = [self.completions, self.recv_wrs];
        (posted.iter().chain(&completed)).fold(self.posts, |sum, n| sum.wrapping_add(*n))
    }

    /// Lists that could not be read to their end.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// Lends the sum as an observation's body.
    pub(super) fn lend<'a>(&mut self, device: &'a str, qpn: u32, watched: &Watched) -> QpStats<'a> {
        let mut stats = QpStats {
            device: Text::Borrowed(device),
            qpn,
            posts: self.posts,
            wrs: self.wrs,
            bytes: self.bytes,
            signaled: Some(self.signaled),
            switches: Some(self.switches),
            last_post_t: (self.last_post != 0).then_some(self.last_post),
            truncated: (self.truncated != 0).then_some(self.truncated),
            recv_wrs: watched.receives.then_some(self.recv_wrs),
            sampled_ns: watched.posts_ns,
            ..QpStats::default()
        };
        if self.has_wide {
            stats.size_log2 = Some(Histogram(std::mem::take(&mut self.sizes)));
            stats.opcodes = named(&self.opcodes, &names::OPCODE);
        }
        stats.completions_missed = watched.missed;
        if watched.completions && !watched.missed && self.completions != 0 {
            stats.completions = Some(self.completions);
            stats.sent = (!self.mixed).then_some(self.sent);
            stats.completions_sampled_ns = watched.completions_ns;
            self.lend_outcome(&mut stats);
        }
        stats
    }

    fn lend_outcome(&mut self, stats: &mut QpStats<'_>) {
        let [succeeded, failed @ ..] = &self.statuses;
        let [_, names @ ..] = &names::STATUS;
        stats.errors = named(failed, names);
        let by_status: u64 = failed.iter().sum();
        if let Some(other) = self.errors.checked_sub(by_status).filter(|n| *n != 0) {
            stats.errors.push(names::OTHER_STATUS, other);
        }
        if self.has_outcome && *succeeded != 0 && self.latency.iter().any(|n| *n != 0) {
            // The format has as many buckets as a 64-bit number has powers of two.
            self.latency.resize(64, 0);
            stats.latency_log2_ns = Some(Histogram(std::mem::take(&mut self.latency)));
        }
    }

    /// Takes the histograms' memory back.
    pub(super) fn take_back(&mut self, stats: QpStats<'_>) {
        if let Some(Histogram(sizes)) = stats.size_log2 {
            self.sizes = sizes;
        }
        if let Some(Histogram(latency)) = stats.latency_log2_ns {
            self.latency = latency;
        }
    }
}

/// The counts that are not zero, with their names.
fn named<'a>(counts: &[u64], names: &[&'static str]) -> Pairs<'a, u64> {
    let pairs = counts.iter().zip(names).filter(|(n, _)| **n != 0);
    pairs.map(|(n, name)| (Text::Borrowed(*name), *n)).collect()
}
