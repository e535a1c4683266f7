//! Pause: the queue tells its senders to stop, and they hear it a little later.

use std::collections::VecDeque;

use super::params::Pfc;
use super::{PS_PER_NS, Picos, serialization_ps};

/// The pause state of the switch and of its senders, which lag behind it.
#[derive(Debug, Default)]
pub(super) struct Pause {
    thresholds: Option<Thresholds>,
    /// The switch has asked for silence.
    asked: bool,
    /// What is on its way to the senders: when it arrives, and whether it is XOFF.
    underway: VecDeque<(Picos, bool)>,
    /// The senders are silent.
    silent: bool,
    /// Nothing was sent before this: the end of the last silence.
    floor: Picos,
}

/// The thresholds in the queue's own unit.
#[derive(Debug, Clone, Copy)]
struct Thresholds {
    xoff: Picos,
    xon: Picos,
    delay: Picos,
}

impl Pause {
    pub(super) fn new(pfc: Option<Pfc>, rate_bps: f64) -> Self {
        let thresholds = pfc.map(|pfc| Thresholds {
            xoff: serialization_ps(pfc.xoff_bytes, rate_bps),
            xon: serialization_ps(pfc.xon_bytes, rate_bps),
            delay: pfc.delay_ns * PS_PER_NS,
        });
        Self { thresholds, ..Self::default() }
    }

    /// The senders are silent.
    pub(super) fn silent(&self) -> bool {
        self.silent
    }

    /// No packet that was held arrives before this.
    pub(super) fn floor(&self) -> Picos {
        self.floor
    }

    /// The queue has grown: `empty_at` is when it would be empty.
    pub(super) fn grown(&mut self, t: Picos, empty_at: Picos) {
        if let Some(thresholds) = self.thresholds
            && !self.asked
            && empty_at - t > thresholds.xoff
        {
            self.asked = true;
            self.underway.push_back((t + thresholds.delay, true));
        }
    }

    /// When something happens next if no packet arrives before.
    pub(super) fn due(&self, empty_at: Picos) -> Picos {
        let Some(thresholds) = self.thresholds else { return Picos::MAX };
        let arrival = self.underway.front().map_or(Picos::MAX, |(at, _)| *at);
        let allow = if self.asked { empty_at.saturating_sub(thresholds.xon) } else { Picos::MAX };
        arrival.min(allow)
    }

    /// What happens at [`Pause::due`]; whether the senders' state changed.
    pub(super) fn happen(&mut self, t: Picos) -> Option<bool> {
        let thresholds = self.thresholds?;
        if let Some(&(at, silent)) = self.underway.front()
            && at <= t
        {
            self.underway.pop_front();
            self.silent = silent;
            self.floor = if silent { self.floor } else { t };
            return Some(silent);
        }
        self.asked = false;
        self.underway.push_back((t + thresholds.delay, false));
        None
    }
}
