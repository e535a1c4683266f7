//! What the statistics of a QP, which count from its beginning, grew by: what a port's QPs posted in a window and how long
//! their operations took are sums of it.

use std::sync::Arc;

use super::{BUCKETS, QpRecord};
use crate::observation::{Histogram, QpStats};

/// Counts by powers of two.
pub(crate) type Counts = [u64; BUCKETS];

/// What a QP's newest statistics say beyond those before. `None`: not said, not known before, or fell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grown {
    /// The numbers of a QP that is new, or of a new owner of the number: all of them, in an unknown time.
    pub(crate) new: bool,
    pub(crate) posts: u64,
    pub(crate) wrs: u64,
    pub(crate) bytes: u64,
    /// Work requests that fetch bytes; the peer sends those.
    pub(crate) reads: u64,
    pub(crate) switches: Option<u64>,
    pub(crate) sizes: Option<Counts>,
    pub(crate) latency: Option<Counts>,
}

impl Grown {
    /// `None` where nothing can be told: the first numbers of a QP that was there before us are of its whole life.
    pub(crate) fn of(qp: &QpRecord, now: &QpStats<'_>) -> Option<Self> {
        let first = qp.stats_t.is_none();
        if first && !qp.created {
            return None;
        }
        if first || now.posts < qp.posts || now.wrs < qp.wrs || now.bytes < qp.bytes {
            return Some(Self::whole(now));
        }
        let before = qp.detail.as_deref();
        let grown = |now: Option<&Histogram>, before: Option<&Histogram>| growth(&before?.0, now?);
        Some(Self {
            new: false,
            posts: now.posts - qp.posts,
            wrs: now.wrs - qp.wrs,
            bytes: now.bytes - qp.bytes,
            reads: match before.filter(|before| !before.opcodes.is_empty()) {
                Some(before) => reads(now).saturating_sub(count(&before.opcodes)),
                // What they were is not known any more: as many as in all its life.
                None => share(now.wrs - qp.wrs, reads(now), now.wrs),
            },
            switches: now.switches.zip(before.and_then(|before| before.switches)).and_then(|(n, b)| n.checked_sub(b)),
            sizes: grown(now.size_log2.as_ref(), before.and_then(|before| before.size_log2.as_ref())),
            latency: grown(now.latency_log2_ns.as_ref(), before.and_then(|before| before.latency_log2_ns.as_ref())),
        })
    }

    /// An estimate for a time so many times longer than the one in which it was counted.
    #[must_use]
    pub(crate) fn scaled(&self, times: f64) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate; the cast saturates")]
        let scaled = |n: u64| (n as f64 * times) as u64;
        let counts = |counts: Option<Counts>| counts.map(|counts| counts.map(scaled));
        Self {
            new: self.new,
            posts: scaled(self.posts),
            wrs: scaled(self.wrs),
            bytes: scaled(self.bytes),
            reads: scaled(self.reads),
            switches: self.switches.map(scaled),
            sizes: counts(self.sizes),
            // A sample already, of which shares and levels are told.
            latency: self.latency,
        }
    }

    /// Bytes this side sends. Where one QP fetches and sends in one sweep, its bytes are split by work requests: an estimate.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.bytes.saturating_sub(share(self.bytes, self.reads, self.wrs))
    }

    fn whole(now: &QpStats<'_>) -> Self {
        let all = |now: Option<&Histogram>| growth(&[], now?);
        Self {
            new: true,
            posts: now.posts,
            wrs: now.wrs,
            bytes: now.bytes,
            reads: reads(now),
            switches: now.switches,
            sizes: all(now.size_log2.as_ref()),
            latency: all(now.latency_log2_ns.as_ref()),
        }
    }
}

/// `part / whole` of a number; all of it at most.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a number")]
fn share(of: u64, part: u64, whole: u64) -> u64 {
    if part == 0 { 0 } else { (of as f64 * (part as f64 / whole.max(1) as f64).min(1.0)) as u64 }
}

/// The opcode of work requests that fetch, as statistics name it.
const READ: &str = "RDMA_READ";

fn reads(stats: &QpStats<'_>) -> u64 {
    stats.opcodes.iter().find(|(name, _)| *name == READ).map_or(0, |(_, n)| *n)
}

fn count(opcodes: &[(Arc<str>, u64)]) -> u64 {
    opcodes.iter().find(|(name, _)| **name == *READ).map_or(0, |(_, n)| *n)
}

/// What a cumulative histogram grew by; `None` when it fell somewhere, for then it began anew.
fn growth(before: &[u64], now: &Histogram) -> Option<Counts> {
    let mut grown = [0; BUCKETS];
    let old = before.iter().copied().chain(std::iter::repeat(0));
    for ((sum, now), old) in grown.iter_mut().zip(&now.0).zip(old) {
        *sum = now.checked_sub(old)?;
    }
    Some(grown)
}

/// The sum of counts; it stops at the largest number.
pub(super) fn total(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{DeviceId, QpTable};

    fn stats(n: u64) -> QpStats<'static> {
        let histogram = Some(Histogram(vec![0, n]));
        QpStats {
            posts: n,
            wrs: n,
            bytes: n,
            switches: Some(n),
            size_log2: histogram.clone(),
            latency_log2_ns: histogram,
            ..QpStats::default()
        }
    }

    fn after(qp: &mut QpRecord, n: u64) {
        (qp.stats_t, qp.posts, qp.wrs, qp.bytes) = (Some(1), n, n, n);
        let now = stats(n);
        let detail = std::sync::Arc::make_mut(qp.detail.get_or_insert_default());
        (detail.switches, detail.size_log2, detail.latency_log2_ns) =
            (now.switches, now.size_log2, now.latency_log2_ns);
    }

    #[test]
    fn numbers_are_told_against_those_before_and_whole_where_the_qp_is_new() {
        let mut table = QpTable::default();
        let qp = table.entry(1, DeviceId(0), 17);
        assert!(Grown::of(qp, &stats(9)).is_none(), "of its whole life, which nobody saw begin");
        qp.created = true;
        let first = Grown::of(qp, &stats(9)).unwrap();
        assert_eq!((first.new, first.wrs, first.sizes.unwrap()[1]), (true, 9, 9));
        after(qp, 9);
        let grown = Grown::of(qp, &stats(11)).unwrap();
        assert_eq!((grown.new, grown.posts, grown.bytes, grown.switches), (false, 2, 2, Some(2)));
        assert_eq!(grown.latency.unwrap()[..2], [0, 2]);
        let fell = Grown::of(qp, &stats(3)).unwrap();
        assert_eq!((fell.new, fell.bytes), (true, 3), "another owner of the number");
    }

    #[test]
    fn what_is_fetched_is_not_sent() {
        let grown = |reads| Grown { wrs: 4, bytes: 4096, reads, ..Grown::default() };
        assert_eq!([0, 1, 4, 9].map(|reads| grown(reads).sent_bytes()), [4096, 3072, 0, 0]);
        let mut table = QpTable::default();
        let qp = table.entry(1, DeviceId(0), 17);
        after(qp, 9);
        let detail = Arc::make_mut(qp.detail.get_or_insert_default());
        detail.opcodes = vec![("RDMA_READ".into(), 3)];
        let mut now = stats(11);
        now.opcodes.push("SEND", 6);
        now.opcodes.push("RDMA_READ", 5);
        assert_eq!(Grown::of(qp, &now).expect("it was known").reads, 2);
        qp.detail = None;
        now.wrs = 20;
        assert_eq!(Grown::of(qp, &now).expect("it was known").reads, 2, "11 of 20, of which 5 fetch in all");
    }

    #[test]
    fn a_histogram_that_was_not_known_before_says_nothing_of_the_time_since() {
        let mut table = QpTable::default();
        let qp = table.entry(1, DeviceId(0), 17);
        after(qp, 9);
        qp.detail = None;
        let grown = Grown::of(qp, &stats(11)).unwrap();
        assert_eq!((grown.wrs, grown.sizes, grown.latency, grown.switches), (2, None, None, None));
    }
}
