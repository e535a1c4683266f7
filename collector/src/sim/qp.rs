//! The node's QPs: a few bytes for each, and its statistics once it has posted.

#![allow(clippy::cast_possible_truncation, reason = "what one QP counts fits into 32 bits")]

use super::congestion::Congestion;
use super::random::Random;
use super::traffic::PAUSE_NS;

/// Classes of size and of latency that are counted; none of the simulated traffic is outside of them.
const SIZES: usize = 24;
const LATENCIES: usize = 34;
/// Small messages: 4 KB requests and 64-byte control messages.
const SMALL_BUCKET: usize = 12;
const CONTROL_BUCKET: usize = 6;

/// What a QP is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Bulk transfers.
    Bulk,
    /// Small messages only.
    Small,
}

/// One QP.
pub(super) struct SimQp {
    pub(super) qpn: u32,
    pub(super) remote_qpn: u32,
    /// The last byte of the peer's address.
    pub(super) peer: u8,
    pub(super) used_for: Use,
    pub(super) alive: bool,
    pub(super) changed: bool,
    pub(super) stats: Option<Box<Stats>>,
}

/// What was counted of one QP.
#[derive(Clone)]
pub(super) struct Stats {
    pub(super) posts: u64,
    pub(super) wrs: u64,
    pub(super) bytes: u64,
    pub(super) completions: u64,
    pub(super) switches: u64,
    pub(super) sends: u64,
    pub(super) retry_exceeded: u32,
    pub(super) rnr_exceeded: u32,
    pub(super) flushed: u32,
    pub(super) size: [u32; SIZES],
    pub(super) latency: [u32; LATENCIES],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            posts: 0,
            wrs: 0,
            bytes: 0,
            completions: 0,
            switches: 0,
            sends: 0,
            retry_exceeded: 0,
            rnr_exceeded: 0,
            flushed: 0,
            size: [0; SIZES],
            latency: [0; LATENCIES],
        }
    }
}

/// Where latencies fall: the share of each class, by a straight line between quantiles on a logarithmic scale.
pub(super) struct Spread {
    shares: [f64; LATENCIES],
}

impl Spread {
    /// Of small messages; `paused` is the share of the time for which the port may not send. Who comes then waits for the end
    /// of a spell of [`PAUSE_NS`].
    pub(super) fn small(congestion: &Congestion, extra_ns: f64, paused: f64) -> Self {
        let waits = |quantile: f64| PAUSE_NS * ((quantile + paused - 1.0) / paused.max(f64::MIN_POSITIVE)).max(0.0);
        let at = |quantile: f64, ns: f64| ns + extra_ns + waits(quantile);
        let [p50, p90, p99, p999] = congestion.small_ns;
        let [p50, p90, p99, p999] = [at(0.5, p50), at(0.9, p90), at(0.99, p99), at(0.999, p999)];
        Self::of(&[(0.0, p50 * 0.97), (0.5, p50), (0.9, p90), (0.99, p99), (0.999, p999), (1.0, p999 * 1.1)])
    }

    /// Of bulk transfers that take so many times as long as a burst. They last over many pauses: only the rest of the time
    /// is theirs.
    pub(super) fn large(congestion: &Congestion, scale: f64, extra_ns: f64, paused: f64) -> Self {
        let [p50, p99] = congestion.large_ns.map(|ns| ns * scale / (1.0 - paused) + extra_ns);
        Self::of(&[(0.0, p50 * 0.7), (0.5, p50), (0.99, p99), (1.0, p99 * 1.2)])
    }

    fn of(quantiles: &[(f64, f64)]) -> Self {
        let mut shares = [0.0; LATENCIES];
        for pair in quantiles.windows(2) {
            let ((from, low), (to, high)) = (pair[0], pair[1]);
            let (low, high) = (low.max(1.0).log2(), high.max(low + 1.0).max(1.0).log2());
            let mut at = low;
            while at < high {
                let next = (at.floor() + 1.0).min(high);
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a logarithm of ns")]
                let class = (at.max(0.0) as usize).min(LATENCIES - 1);
                shares[class] += (to - from) * (next - at) / (high - low);
                at = next;
            }
        }
        Self { shares }
    }

    fn count(&self, n: u64, into: &mut [u32; LATENCIES], random: &mut Random) {
        if n == 0 {
            return;
        }
        let mut left = n;
        for (class, share) in self.shares.iter().enumerate() {
            if *share > 0.0 {
                let here = random.count(*share * n as f64).min(left);
                into[class] = into[class].saturating_add(here as u32);
                left -= here;
            }
        }
        if left > 0 {
            // What rounding left over belongs where most is.
            let most = self.shares.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(class, _)| class);
            into[most] = into[most].saturating_add(left as u32);
        }
    }
}

/// What one QP moved in a tick.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    pub(super) posts: u64,
}

impl SimQp {
    pub(super) fn stats_mut(&mut self) -> &mut Stats {
        self.changed = true;
        self.stats.get_or_insert_default()
    }

    /// Bulk transfers: lists of sixteen work requests, and a control message now and then.
    pub(super) fn bulk(
        &mut self,
        bytes: f64,
        class: usize,
        large: &Spread,
        small: &Spread,
        random: &mut Random,
    ) -> Moved {
        let class = class.clamp(1, SIZES - 1);
        let size = 1u64 << class;
        let full = random.count(bytes / size as f64 * 0.75);
        let half = random.count((bytes - (full * size) as f64).max(0.0) / (size / 2) as f64);
        let control = random.count((full + half) as f64 / 40.0);
        if full + half + control == 0 {
            return Moved::default();
        }
        let posts = (full + half).div_ceil(16) + control;
        let moved = full * size + half * (size / 2) + control * 64;
        let stats = self.stats_mut();
        stats.sized(class, full);
        stats.sized(class - 1, half);
        stats.sized(CONTROL_BUCKET, control);
        stats.sends += control;
        large.count((full + half).div_ceil(16), &mut stats.latency, random);
        small.count(control, &mut stats.latency, random);
        stats.moved(moved, full + half + control, posts, posts / 2);
        Moved { bytes: moved, posts }
    }

    /// Small messages, each posted and signalled by itself.
    pub(super) fn small(&mut self, messages: f64, small: &Spread, random: &mut Random) -> Moved {
        let n = random.count(messages);
        if n == 0 {
            return Moved::default();
        }
        let control = n / 3;
        let moved = (n - control) * 4_096 + control * 64;
        let stats = self.stats_mut();
        stats.sized(SMALL_BUCKET, n - control);
        stats.sized(CONTROL_BUCKET, control);
        stats.sends += control;
        small.count(n, &mut stats.latency, random);
        stats.moved(moved, n, n, n * 9 / 10);
        Moved { bytes: moved, posts: n }
    }
}

impl Stats {
    fn sized(&mut self, class: usize, n: u64) {
        self.size[class] = self.size[class].saturating_add(n as u32);
    }

    fn moved(&mut self, bytes: u64, wrs: u64, posts: u64, switches: u64) {
        self.bytes += bytes;
        self.wrs += wrs;
        self.posts += posts;
        self.completions += posts;
        self.switches += switches;
    }
}
