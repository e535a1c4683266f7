//! The last few windows of a port: its slices, cut into equal parts, and what they come to.

use super::View;
use crate::inventory::{PortRecord, Signal, Slice};
use crate::observation::Nanos;
use crate::rule::clock::ns;
use crate::timeline::counter_table::Meaning;

/// A window is no shorter than this, seconds, and than ten slices, and no longer than the engine's.
const MIN_WINDOW_S: f64 = 0.1;
/// Slices of one window when the sources are faster than the engine's window.
const SLICES_A_WINDOW: f64 = 10.0;
/// Part of the wanted time that must be there.
const ENOUGH: f64 = 0.9;
/// Signals older than so many windows (and their own period) are the past.
const STALE_WINDOWS: f64 = 3.0;

/// A share above this is no share: beyond what readings a moment apart can come to, one of the counters is wrong.
const MOST: f64 = 1.05;

/// A share, 0–1; `None` where the numbers cannot be true.
fn possible(share: f64) -> Option<f64> {
    (share <= MOST).then(|| share.min(1.0))
}

/// What one stretch of time came to. A number is `None` when the slices do not know it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sums {
    /// Its length, seconds.
    pub(super) seconds: f64,
    /// Share of the rate that was received, 0–1.
    pub(super) u_rx: Option<f64>,
    /// Share of the rate that was sent, 0–1.
    pub(super) u_tx: Option<f64>,
    /// CE packets received.
    pub(super) marks: Option<f64>,
    /// Packets received.
    pub(super) packets: Option<f64>,
    /// Bytes received.
    pub(super) bytes: Option<f64>,
    /// Packets sent.
    pub(super) tx_packets: Option<f64>,
    /// CNPs sent.
    pub(super) cnp_sent: Option<f64>,
    /// CNPs obeyed.
    pub(super) handled: Option<f64>,
    /// CNPs ignored.
    pub(super) ignored: Option<f64>,
}

impl Sums {
    /// Share of received packets that were marked, 0–1.
    pub(super) fn mark_rate(&self) -> Option<f64> {
        let packets = self.packets.filter(|packets| *packets > 0.0)?;
        self.marks.and_then(|marks| possible(marks / packets))
    }

    /// More packets were marked than received: the marks are none.
    pub(super) fn impossible(&self) -> bool {
        let packets = self.packets.filter(|packets| *packets > 0.0);
        self.marks.zip(packets).is_some_and(|(marks, packets)| possible(marks / packets).is_none())
    }

    /// CNPs sent for each mark.
    pub(super) fn cnp_per_mark(&self) -> Option<f64> {
        let marks = self.marks.filter(|marks| *marks > 0.0)?;
        self.cnp_sent.map(|sent| sent / marks)
    }

    /// CNPs received for each packet sent, 0 when nothing was sent and none came.
    pub(super) fn cnp_rate(&self) -> Option<f64> {
        let received = self.handled? + self.ignored.unwrap_or(0.0);
        if received <= 0.0 {
            return Some(0.0);
        }
        Some(received / self.tx_packets.filter(|packets| *packets > 0.0)?)
    }
}

/// The newest slices of a port that make up so many windows.
pub(super) struct Span<'w> {
    port: &'w PortRecord,
    /// Newest first.
    slices: Vec<&'w Slice>,
    bytes_per_s: f64,
    window_s: f64,
    /// Its beginning.
    pub(super) from: Nanos,
    /// Its end.
    pub(super) to: Nanos,
}

impl<'w> Span<'w> {
    /// The newest `windows` windows. `None` while there are too few slices, when they have stopped coming, or when the
    /// port is down or its rate unknown.
    pub(super) fn newest(view: &View<'_>, port: &'w PortRecord, windows: u32) -> Option<Self> {
        let rate = port.rate_gbps.filter(|rate| *rate > 0.0)?;
        if port.state != crate::observation::PortState::Active {
            return None;
        }
        let each_s = view.world.window_ns as f64 / 1e9;
        let wanted = each_s * f64::from(windows);
        let newest = port.slices.iter().next_back()?;
        let period = newest.seconds();
        if view.now.saturating_sub(newest.to) > ns((STALE_WINDOWS * each_s).max(STALE_WINDOWS * period)) {
            return None;
        }
        let mut seconds = 0.0;
        let mut slices = Vec::new();
        for slice in port.slices.iter().rev() {
            // The last slices may wait for a set that is read a moment later.
            if slices.is_empty() && slice.rate(Signal::RxBytes).is_none() && newest.to - slice.to < ns(each_s) {
                continue;
            }
            slices.push(slice);
            seconds += slice.seconds();
            if seconds >= wanted * ENOUGH && slices.len() >= windows as usize {
                break;
            }
        }
        // Fine slices make short windows: a tenth of a second has room for ten of them.
        let shortest = (SLICES_A_WINDOW * period).clamp(MIN_WINDOW_S.min(each_s), each_s.max(period));
        if slices.len() < windows as usize || seconds < shortest * f64::from(windows) * ENOUGH {
            return None;
        }
        let (from, to) = (slices.last()?.from, slices.first()?.to);
        Some(Self { port, slices, bytes_per_s: rate * 1e9 / 8.0, window_s: each_s, from, to })
    }

    /// Its length, seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.to.saturating_sub(self.from) as f64 / 1e9
    }

    /// All of it.
    pub(super) fn sums(&self) -> Sums {
        self.sums_of(&self.slices)
    }

    /// It in `n` parts of about equal length, newest first.
    pub(super) fn parts(&self, n: usize) -> Vec<Sums> {
        let each = self.slices.len().div_ceil(n.max(1)).max(1);
        self.slices.chunks(each).map(|part| self.sums_of(part)).collect()
    }

    fn sums_of(&self, slices: &[&Slice]) -> Sums {
        let seconds: f64 = slices.iter().map(|slice| slice.seconds()).sum();
        // Slices that do not know a number take its mean over those that do, if those are the larger part.
        let sum = |signal| {
            let (mut sum, mut known) = (0.0, 0.0);
            for slice in slices {
                if let Some(growth) = slice.growth(signal) {
                    sum += growth;
                    known += slice.seconds();
                }
            }
            (known > 0.0 && known >= seconds * 0.5).then(|| sum * seconds / known)
        };
        let share = |bytes: Option<f64>| bytes.map(|bytes| bytes / (self.bytes_per_s * seconds));
        let bytes = sum(Signal::RxBytes);
        Sums {
            seconds,
            u_rx: share(bytes),
            u_tx: share(sum(Signal::TxBytes)),
            marks: sum(Signal::Marked),
            packets: sum(Signal::RxPackets),
            bytes,
            tx_packets: sum(Signal::TxPackets),
            cnp_sent: sum(Signal::CnpSent),
            handled: sum(Signal::CnpHandled),
            ignored: sum(Signal::CnpIgnored),
        }
    }

    /// Received share of the rate where the marks fell: the mean over slices, weighted by their marks. Above the plain
    /// mean where a port is busy for a part of the time and marked then.
    pub(super) fn u_at_marks(&self) -> Option<f64> {
        let (mut sum, mut marks) = (0.0, 0.0);
        for slice in &self.slices {
            if let (Some(n), Some(rate)) = (slice.growth(Signal::Marked), slice.rate(Signal::RxBytes)) {
                sum += n * rate / self.bytes_per_s;
                marks += n;
            }
        }
        (marks > 0.0).then(|| sum / marks)
    }

    /// Share of slices with at least one mark: 1 where marks come all the time.
    pub(super) fn persistence(&self) -> Option<f64> {
        let known: Vec<f64> = self.slices.iter().filter_map(|slice| slice.growth(Signal::Marked)).collect();
        let marked = known.iter().filter(|marks| **marks > 0.0).count();
        (!known.is_empty()).then(|| marked as f64 / known.len() as f64)
    }

    /// Standard deviation of the received share of the rate between slices.
    pub(super) fn swing(&self) -> Option<f64> {
        let shares: Vec<f64> =
            self.slices.iter().filter_map(|s| s.rate(Signal::RxBytes)).map(|rate| rate / self.bytes_per_s).collect();
        if shares.len() < 3 {
            return None;
        }
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        Some((shares.iter().map(|u| (u - mean).powi(2)).sum::<f64>() / shares.len() as f64).sqrt())
    }

    /// Length of its slices, seconds.
    pub(super) fn slice_s(&self) -> f64 {
        self.seconds() / self.slices.len().max(1) as f64
    }

    /// Growth of a meaning that is not followed finely, over the span or, where it is read more rarely, over the last
    /// reading that reaches into it. `None` when it is not known.
    pub(super) fn growth(&self, meaning: Meaning) -> Option<u64> {
        let growth = self.port.growth(meaning, self.from)?;
        if !growth.broken {
            return Some(growth.sum);
        }
        // A counter that moves at every one of many readings keeps too few of them: its windows keep all.
        let windows = (self.seconds() / self.window_s).ceil().max(1.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few windows of a rate")]
        let known: Vec<f64> = self.port.rates.get(&meaning)?.newest_first().take(windows as usize).flatten().collect();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        (!known.is_empty()).then(|| (known.iter().sum::<f64>() * self.window_s).round() as u64)
    }

    /// Share of the time this port was told to stop (0–1) and told others to; `None` where the duration is not
    /// counted, or longer than the time.
    pub(super) fn pause(&self, meaning: Meaning) -> Option<f64> {
        let signal = if meaning == Meaning::TxPauseDuration { Signal::TxPause } else { Signal::RxPause };
        let (mut us, mut seconds) = (0.0, 0.0);
        for slice in &self.slices {
            if let Some(growth) = slice.growth(signal) {
                us += growth;
                seconds += slice.seconds();
            }
        }
        if seconds > 0.0 {
            return possible(us / 1e6 / seconds);
        }
        // Read too rarely for any slice: what is known of a longer time.
        let growth = self.port.growth(meaning, self.from)?;
        possible(growth.sum as f64 / 1e6 / self.seconds())
    }
}
