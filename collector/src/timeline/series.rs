//! One counter over time: its last reading, what it grew by, and the sums rules ask for.

use std::collections::VecDeque;
use std::sync::Arc;

use super::arithmetic::{Delta, Reading, Reason, delta, saturated};
use super::counter_table::{CounterDef, Kind};
use crate::observation::Nanos;

/// Changes that are kept per counter. A counter that never moves keeps none.
const MAX_CHANGES: usize = 96;
/// Readings closer together than this, ns, give their growth but no rate: no source reads so fast, so the times only
/// tell the order (samples of a bundle whose times nobody wrote down).
const SHORTEST_NS: Nanos = 1_000;
/// A reading is fresh for at least this long, ns.
const FRESH_NS: Nanos = 3_000_000_000;

/// One counter over time.
#[derive(Debug, Clone)]
pub struct Series {
    /// The driver's own name.
    pub name: Arc<str>,
    /// What the table says of it.
    pub def: &'static CounterDef,
    /// The last reading.
    pub reading: Reading,
    /// When it was read.
    pub t: Nanos,
    /// What the last two readings say; `Unknown` with fewer than two.
    pub delta: Delta,
    /// Growth per second in the counter's own unit, from the last two readings.
    pub rate: Option<f64>,
    /// The value and time of the last reading that was a value, and the start of the unbroken run it ends.
    run: Option<Run>,
    /// The run before, while the counter cannot be read: its total may go on.
    ended: Option<Box<Run>>,
    /// `None` as long as nothing has changed, as for most counters of errors: what is looked at in each window is kept small.
    #[allow(clippy::box_collection, reason = "a pointer is smaller than an empty list, and most are empty")]
    changes: Option<Box<VecDeque<Change>>>,
    /// Time between the last two readings, ns.
    dt: Nanos,
    /// The same of the two readings before, newest first, ns; 0 where there are none.
    earlier: [Nanos; 2],
    /// Growth since the open window began, and the time that growth covers.
    window: WindowSum,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    /// Since when every reading was a value and no delta was lost.
    from: Nanos,
    t: Nanos,
    value: u64,
    /// Since when the total is counted.
    start: Nanos,
    /// What was counted before the counter went over the end of its range, since `start`.
    wrapped: u64,
}

impl Run {
    /// Since when the total is counted when the next value has come, and what it counted before the end of its range.
    fn total_after(&self, t: Nanos, value: u64, delta: Delta) -> (Nanos, u64) {
        match delta {
            Delta::Known(_) | Delta::Saturated => (self.start, self.wrapped),
            Delta::Wrapped(counted) => {
                // Counted on from the old value, over the end, to the new one.
                let before = self.wrapped.saturating_add(self.value).saturating_add(counted).saturating_sub(value);
                (self.start, before)
            }
            Delta::Reset => (self.t, 0),
            Delta::Unknown => (t, 0),
        }
    }
}

/// What a counter has counted, in its own unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// The counter's own number, and what it counted before it went over the end of its range.
    pub value: u64,
    /// Since when: the reading before the counter was set back; the first reading where nobody knows (at the beginning,
    /// after a fall that can be anything), so that the value may hold older counts.
    pub start: Nanos,
    /// When it was read.
    pub t: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    t: Nanos,
    delta: Delta,
}

/// Growth within one window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct WindowSum {
    sum: u64,
    covered_ns: u64,
    broken: bool,
}

/// What a counter did over a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Sum of the known growth; a lower bound when `broken`.
    pub sum: u64,
    /// A part of the growth is not known (reset, ceiling, unreadable).
    pub broken: bool,
}

impl Series {
    /// A counter that was not read yet.
    #[must_use]
    pub fn new(name: Arc<str>, def: &'static CounterDef) -> Self {
        Self {
            name,
            def,
            reading: Reading::Unavailable(Reason::from("not read yet")),
            t: 0,
            delta: Delta::Unknown,
            rate: None,
            run: None,
            ended: None,
            changes: None,
            dt: 0,
            earlier: [0; 2],
            window: WindowSum::default(),
        }
    }

    /// The last value; `None` when it could not be read.
    #[must_use]
    pub fn value(&self) -> Option<u64> {
        match self.reading {
            Reading::Value(value) => Some(value),
            Reading::Unavailable(_) => None,
        }
    }

    /// The counter stands at its ceiling: what comes on top cannot be seen.
    #[must_use]
    pub fn saturated(&self) -> bool {
        self.value().is_some_and(|value| saturated(self.def, value))
    }

    /// The value of the last reading that was one, for the comparison of a whole set.
    #[must_use]
    pub fn last_value(&self) -> Option<u64> {
        self.run.map(|run| run.value)
    }

    /// Takes a value. With `set_reset` the whole set was reset in between: no delta of it is known.
    pub fn take(&mut self, t: Nanos, value: u64, set_reset: bool) {
        self.reading = Reading::Value(value);
        self.t = t;
        if self.run.is_some_and(|run| run.t >= t) {
            // Read twice in the same moment: no time has passed in which it could have grown.
            return;
        }
        let Some(run) = self.run else {
            let (start, wrapped) = match self.ended.take() {
                None => (t, 0),
                Some(old) => old.total_after(t, value, self.delta_from(&old, value, set_reset)),
            };
            self.run = Some(Run { from: t, t, value, start: start.min(t), wrapped });
            self.delta = Delta::Unknown;
            self.rate = None;
            return;
        };
        let delta = self.delta_from(&run, value, set_reset);
        let dt = t - run.t;
        self.earlier = [self.dt, self.earlier[0]];
        self.dt = dt;
        self.delta = delta;
        let from = match delta.value() {
            Some(_) if dt < SHORTEST_NS => {
                self.rate = None;
                run.from
            }
            Some(growth) => {
                self.rate = Some(growth as f64 * 1e9 / dt as f64);
                self.window.sum = self.window.sum.saturating_add(growth);
                self.window.covered_ns = self.window.covered_ns.saturating_add(dt);
                run.from
            }
            None => {
                self.rate = None;
                self.window.broken |= self.def.kind == Kind::Counter;
                t
            }
        };
        let (start, wrapped) = run.total_after(t, value, delta);
        self.run = Some(Run { from, t, value, start, wrapped });
        if delta.value() != Some(0) && self.def.kind == Kind::Counter {
            self.remember(Change { t, delta });
        }
    }

    fn delta_from(&self, run: &Run, value: u64, set_reset: bool) -> Delta {
        if set_reset { Delta::Reset } else { delta(self.def, run.value, value) }
    }

    /// The counter could not be read.
    pub fn miss(&mut self, t: Nanos, reason: Reason) {
        self.reading = Reading::Unavailable(reason);
        self.t = t;
        self.delta = Delta::Unknown;
        self.rate = None;
        // The next value starts anew: what grew meanwhile happened in no window that can be named.
        if let Some(run) = self.run.take() {
            self.ended = Some(Box::new(run));
            self.window.broken = true;
            self.remember(Change { t, delta: Delta::Unknown });
        }
    }

    /// Growth since `from` (exclusive) up to the last reading. `None` without two readings, for a gauge, or when the
    /// counter was not readable at the last reading.
    #[must_use]
    pub fn growth_since(&self, from: Nanos) -> Option<Growth> {
        let run = self.run?;
        if self.def.kind != Kind::Counter {
            return None;
        }
        let changes = self.changes();
        if run.from == run.t && changes.is_empty() {
            return None;
        }
        // What fell out of a full list may have grown after `from` too.
        let complete = changes.len() < MAX_CHANGES || changes.front().is_none_or(|oldest| oldest.t <= from);
        let mut growth = Growth { sum: 0, broken: !complete };
        for change in changes.iter().rev().take_while(|change| change.t > from) {
            match change.delta.value() {
                Some(delta) => growth.sum = growth.sum.saturating_add(delta),
                None => growth.broken = true,
            }
        }
        Some(growth)
    }

    /// What it has counted. `None` for a gauge, when the last reading was none or says "no count" (all ones), and while the
    /// counter stands at its ceiling: what comes on top cannot be seen.
    #[must_use]
    pub fn total(&self) -> Option<Total> {
        let (value, run) = (self.value()?, self.run?);
        if self.def.kind != Kind::Counter || value == u64::MAX || self.saturated() {
            return None;
        }
        Some(Total { value: run.wrapped.saturating_add(value), start: run.start, t: self.t })
    }

    /// The last reading is at most three periods (and three seconds) old.
    #[must_use]
    pub fn fresh(&self, now: Nanos) -> bool {
        now.saturating_sub(self.t) <= FRESH_NS.max(self.period().saturating_mul(3))
    }

    /// How often it is read, ns: the middle one of the last three intervals, so that neither a gap nor a reading out of
    /// turn is taken for it; the shorter one of two.
    fn period(&self) -> Nanos {
        let [older, oldest] = self.earlier;
        match (older, oldest) {
            (0, _) => self.dt,
            (_, 0) => self.dt.min(older),
            _ => self.dt.min(older).max(self.dt.max(older).min(oldest)),
        }
    }

    /// Since when growth is known without a gap; `None` when the last reading was none.
    #[must_use]
    pub fn known_since(&self) -> Option<Nanos> {
        self.run.map(|run| run.from)
    }

    /// Forgets a rate whose readings have stopped: what was true three readings (and at least three seconds) ago says
    /// nothing of now.
    pub fn expire(&mut self, now: Nanos) {
        if self.rate.is_some() && !self.fresh(now) {
            self.rate = None;
            self.delta = Delta::Unknown;
        }
    }

    /// Closes the window: growth per second within it, `None` when no reading fell into it or a delta was lost.
    pub fn close_window(&mut self) -> Option<f64> {
        let window = std::mem::take(&mut self.window);
        (window.covered_ns > 0 && !window.broken).then(|| window.sum as f64 * 1e9 / window.covered_ns as f64)
    }

    /// The times at which the counter grew after `from`, newest first, with the growth (`None`: not known).
    pub fn changes_since(&self, from: Nanos) -> impl Iterator<Item = (Nanos, Option<u64>)> + '_ {
        self.changes().iter().rev().take_while(move |change| change.t > from).map(|c| (c.t, c.delta.value()))
    }

    /// Time between the last two readings, ns; 0 with fewer than two.
    #[must_use]
    pub fn interval(&self) -> Nanos {
        self.dt
    }

    /// How far apart its readings are, ns, where there are two and no more.
    #[must_use]
    pub fn only_interval(&self) -> Option<Nanos> {
        Some(self.dt).filter(|dt| *dt > 0 && self.earlier[0] == 0)
    }

    /// Keeps a change at its place in time: the look back ends at the first one that is too old.
    fn remember(&mut self, change: Change) {
        let changes = self.changes.get_or_insert_default();
        let mut at = changes.iter().rposition(|old| old.t <= change.t).map_or(0, |before| before + 1);
        if changes.len() == MAX_CHANGES {
            if at == 0 {
                return;
            }
            changes.pop_front();
            at -= 1;
        }
        changes.insert(at, change);
    }

    fn changes(&self) -> &VecDeque<Change> {
        static NONE: VecDeque<Change> = VecDeque::new();
        self.changes.as_deref().unwrap_or(&NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::CounterSource;
    use crate::timeline::counter_table::lookup;

    fn told(name: &str, driver: &str, readings: &[(Nanos, u64)]) -> Series {
        let mut series = Series::new(name.into(), lookup(Some(driver), CounterSource::HwCounters, name));
        for (t, value) in readings {
            series.take(*t, *value, false);
        }
        series
    }

    #[test]
    fn a_counter_stays_small_for_all_of_them_are_looked_at_in_each_window() {
        assert!(size_of::<Series>() <= 208, "{}", size_of::<Series>());
    }

    #[test]
    fn a_reset_moves_the_start_to_the_reading_before_it_and_an_unexplained_fall_to_itself() {
        let total = |series: &Series| series.total().map(|total| (total.value, total.start, total.t));
        let mut series = told("np_cnp_sent", "mlx5_core", &[(10, 70), (20, 75)]);
        assert_eq!(total(&series), Some((75, 10, 20)), "the first reading holds what was counted before");
        series.take(30, 3, false);
        assert_eq!(total(&series), Some((3, 20, 30)));
        series.miss(40, Reason::fixed("EIO"));
        assert_eq!(total(&series), None);
        series.take(50, 9, false);
        assert_eq!(total(&series), Some((9, 20, 50)), "it was not lower meanwhile: nothing says that it began anew");
        series.miss(51, Reason::fixed("EIO"));
        series.miss(52, Reason::fixed("EIO"));
        series.take(55, 8, false);
        assert_eq!(total(&series), Some((8, 50, 55)), "the last known reading, not the missed one");
        series.take(60, u64::MAX, false);
        assert_eq!(total(&series), None, "the device has left the bus");
        let unknown = told("out_of_sequence", "mlx5_core", &[(10, 70), (20, 7)]);
        assert_eq!(total(&unknown), Some((7, 20, 20)));
    }

    #[test]
    fn a_counter_that_wraps_goes_on_and_one_at_its_ceiling_has_no_total() {
        let wraps = crate::timeline::counter_table::lookup_in(
            None,
            crate::timeline::counter_table::TableSource::Netdev,
            "carrier_changes",
        );
        let mut series = Series::new("carrier_changes".into(), wraps);
        let end = u64::from(u32::MAX);
        for (t, value) in [(10, end - 4), (20, 10), (30, 12)] {
            series.take(t, value, false);
        }
        assert_eq!(series.total(), Some(Total { value: end + 13, start: 10, t: 30 }));
        let sticks = lookup(None, CounterSource::Counters, "symbol_error");
        let mut series = Series::new("symbol_error".into(), sticks);
        for (t, value) in [(10, 65_000), (20, 65_535)] {
            series.take(t, value, false);
        }
        assert_eq!(series.total(), None);
        series.take(30, 2, false);
        assert_eq!(series.total(), Some(Total { value: 2, start: 20, t: 30 }));
    }

    #[test]
    fn a_gap_and_a_reading_out_of_turn_are_no_period() {
        const S: Nanos = 1_000_000_000;
        let fresh_for = |times: &[Nanos]| {
            let readings: Vec<(Nanos, u64)> = times.iter().map(|s| (s * S, *s)).collect();
            let series = told("np_cnp_sent", "mlx5_core", &readings);
            let last = series.t / S;
            (0..86_400).take_while(|s| series.fresh((last + s) * S)).last().unwrap()
        };
        assert_eq!(fresh_for(&[10, 11, 12, 313]), 3, "a gap of 301 s");
        assert_eq!(fresh_for(&[10, 11, 312]), 3);
        assert_eq!(fresh_for(&[10, 11, 12, 313, 314]), 3);
        assert_eq!(fresh_for(&[600, 1200, 1800]), 1800, "it is read each ten minutes");
        assert_eq!(fresh_for(&[600, 1200, 1800, 1801]), 1800, "and was looked at in between");
        assert_eq!(fresh_for(&[10]), 3);
    }

    #[test]
    fn a_late_reading_hides_no_newer_growth() {
        let def = lookup(Some("mlx5_core"), CounterSource::HwCounters, "rx_icrc_encapsulated");
        let mut series = Series::new("rx_icrc_encapsulated".into(), def);
        for (t, value) in [(10, 0), (20, 3), (30, 4)] {
            series.take(t, value, false);
        }
        series.miss(15, Reason::from("gone"));
        series.take(40, 5, false);
        let after: Vec<_> = series.changes_since(12).collect();
        assert_eq!(after, [(30, Some(1)), (20, Some(3)), (15, None)]);
        assert_eq!(series.growth_since(18), Some(Growth { sum: 4, broken: false }));
    }
}
