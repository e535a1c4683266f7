//! The end of a window: what each meaning did in it, what was posted, and whether the port was calm.

use super::PortRecord;
use super::meaning::Place;
use crate::inventory::{Calm, Traced};
use crate::observation::Nanos;
use crate::timeline::Ring;
use crate::timeline::counter_table::Meaning;

/// A port that carries less than this share of its rate is quiet, unless it is paused.
const QUIET_LOAD: f64 = 0.5;
/// And one of whose received packets more than this share is marked is not: what operations take then may be the queue itself.
const QUIET_MARKS: f64 = 1e-5;
/// And paused is one that is told to stop for more than this, µs a second.
const QUIET_PAUSE_US: f64 = 1_000.0;
/// Windows after which what cannot be read any more is taken for not counted.
const COUNTED_WINDOWS: usize = 60;

/// What flows: bytes and packets that arrive all the time, unlike errors and marks.
fn is_traffic(meaning: Meaning) -> bool {
    use Meaning::{LoopbackBytes, PriorityRxBytes, PriorityRxPackets, PriorityTxBytes, PriorityTxPackets, RxBytes};
    use Meaning::{RxMulticastPackets, RxPackets, RxUnicastPackets, TxBytes, TxMulticastPackets, TxPackets};
    use Meaning::{TxUnicastPackets, WireRxBytes, WireRxPackets, WireTxBytes, WireTxPackets};
    matches!(
        meaning,
        TxBytes
            | RxBytes
            | TxPackets
            | RxPackets
            | TxUnicastPackets
            | RxUnicastPackets
            | TxMulticastPackets
            | RxMulticastPackets
            | WireTxBytes
            | WireRxBytes
            | WireTxPackets
            | WireRxPackets
            | LoopbackBytes
            | PriorityTxBytes
            | PriorityRxBytes
            | PriorityTxPackets
            | PriorityRxPackets
    )
}

impl PortRecord {
    /// Lets the slices follow the counters that give each meaning now.
    pub(super) fn follow(&mut self) {
        let mut slices = std::mem::take(&mut self.slices);
        slices.follow(self.sets.len(), |meaning| {
            let group = self.group_or_first(meaning)?;
            Some((group.how?, &group.places[..]))
        });
        self.slices = slices;
    }

    /// A set was read: its growth belongs to a slice.
    pub(crate) fn slice(&mut self, at: usize) {
        if let Some(set) = self.sets.get(at) {
            self.slices.take(at, set);
        }
    }

    /// What the port did in the window that was closed. Pause and marks that are not counted are not held against it; of a
    /// window without a reading of a pause that is counted nothing is known; a load that is not known is not called quiet.
    fn calm(&self) -> Calm {
        let newest = |meaning| self.rates.get(&meaning).and_then(Ring::last);
        // µs of pause a second.
        match newest(Meaning::RxPauseDuration) {
            Some(us) if us > QUIET_PAUSE_US => return Calm::Paused,
            None if self.is_counted(Meaning::RxPauseDuration) => return Calm::Unknown,
            _ => {}
        }
        let load = [newest(Meaning::RxBytes), newest(Meaning::TxBytes)].into_iter().flatten().reduce(f64::max);
        let rate = self.rate_gbps.filter(|rate| *rate > 0.0);
        let marked = newest(Meaning::EcnMarkedRx).zip(newest(Meaning::RxPackets));
        let marked = marked.is_some_and(|(marks, packets)| marks > QUIET_MARKS * packets);
        let quiet = !marked && load.zip(rate).is_some_and(|(bytes, rate)| bytes * 8.0 / 1e9 < QUIET_LOAD * rate);
        if quiet { Calm::Quiet } else { Calm::Busy }
    }

    /// A meaning has counters that can be read, or could a short while ago.
    fn is_counted(&self, meaning: Meaning) -> bool {
        let was_read = |ring: &Ring| ring.newest_first().take(COUNTED_WINDOWS).flatten().next().is_some();
        self.group(meaning).is_some() || self.rates.get(&meaning).is_some_and(was_read)
    }

    /// Closes the window of this length: pushes each meaning's rate, and the traced bytes where posts were watched.
    pub(crate) fn close_window(&mut self, now: Nanos, window_ns: Nanos, seen: Traced) {
        // The rates of all sets one after another, and where each set begins.
        let mut rates: Vec<Option<f64>> = Vec::with_capacity(self.sets.iter().map(|set| set.series.len()).sum());
        let mut begins = Vec::with_capacity(self.sets.len());
        for set in &mut self.sets {
            begins.push(rates.len());
            for series in &mut set.series {
                let rate = series.close_window();
                series.expire(now);
                // A window without a reading shows the last rate for as long as the reading is fresh, but for what
                // comes in single events: one error is no error in every window until the next reading.
                let held = series.rate.filter(|_| series.def.meaning.is_some_and(is_traffic));
                rates.push(rate.or(held));
            }
        }
        let mut histories = std::mem::take(&mut self.rates);
        for (meaning, groups) in self.groups.iter() {
            let rate_at = |(set, series): Place| rates[begins[usize::from(set)] + usize::from(series)];
            let value = self.readable(groups).and_then(|group| self.combined(group, rate_at));
            histories.or_default(meaning).push(value);
        }
        self.rates = histories;
        self.rebase(now);
        self.posting.close_window(now, window_ns, seen);
        self.follow();
        self.latencies.close_window(now, self.calm());
        let traced = std::mem::take(&mut self.traced_bytes);
        let in_part = std::mem::take(&mut self.traced_in_part);
        let ns = seen.ns(window_ns).filter(|_| !in_part);
        if ns.is_some() || !self.traced.is_empty() {
            self.traced.push(ns.map(|ns| traced as f64 * 1e9 / ns as f64));
        }
    }
}
