//! Windows of a rule's own length, over counters that are read at any period.
//!
//! The engine's window is a second; the errors of a link are judged over ten. A counter may be read every 100 ms, once a
//! second or every 30 s, and the verdict must be the same: what counts is in how many windows errors showed, not in how
//! many readings. A counter read more rarely than once a window gives windows as long as the time between two readings.

use super::View;
use super::clock::ns;
use super::fall::state_at;
use crate::inventory::PortRecord;
use crate::observation::{Nanos, PortState};
use crate::timeline::counter_table::Meaning;
use crate::timeline::{Ring, Series};

/// What is read more rarely than this says nothing of now, ns.
const LONGEST_INTERVAL_NS: Nanos = 120_000_000_000;
/// A link that has just come up counts the errors of its training, ns.
const TRAINING_NS: Nanos = 5_000_000_000;

/// What the counters of one meaning did in the last windows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Errors {
    /// Windows in which they grew.
    pub(super) windows: u64,
    /// By how much; a lower bound when `at_least`.
    pub(super) n: u64,
    /// A part of the growth is not known (reset, limit).
    pub(super) at_least: bool,
    /// When they first grew.
    pub(super) first: Nanos,
    /// The time looked back over, ns.
    pub(super) span_ns: Nanos,
    /// The driver's name of the counter, and its unit.
    pub(super) counter: (String, &'static str),
}

/// Time between two readings of a meaning's counters, ns; 0 when it is not known.
pub(super) fn interval(port: &PortRecord, meaning: Meaning) -> Nanos {
    longest_interval(port.series_of(meaning))
}

fn longest_interval<'s>(counters: impl Iterator<Item = &'s Series>) -> Nanos {
    counters.map(Series::interval).max().unwrap_or(0)
}

/// The growth of a meaning in the last `of` windows of `window_s`; `None` when there was none.
///
/// Windows begin at multiples of their length, so that one moment is in one window whenever it is asked about. A burst
/// across the edge of two windows (its first and last error less than half a window apart) is one. What was counted while
/// the port was not ACTIVE, or while its link was trained, is no error of the link in use.
pub(super) fn errors(view: &View<'_>, port: &PortRecord, meaning: Meaning, window_s: f64, of: u64) -> Option<Errors> {
    let engine_ns = ns(view.settings.window_s).max(1);
    let window = ns(window_s).max(engine_ns);
    let counters = port.series_of(meaning);
    let interval = longest_interval(counters.clone()).min(LONGEST_INTERVAL_NS);
    let started = view.world.started;
    let index = |t: Nanos| t.saturating_sub(started) / window;
    let looked_back = interval.saturating_mul(of);
    let (from, span_ns) = if interval < window {
        // The open window is one of them.
        let from = (index(view.now) + 1).saturating_sub(of).saturating_mul(window).saturating_add(started);
        (from.saturating_sub(1), view.now.saturating_sub(from.saturating_sub(1)))
    } else {
        // The newest `of` readings and no more; what was read longer ago than those take is over.
        let newest = counters.clone().map(|series| series.t).max().unwrap_or(view.now);
        let readings = newest.saturating_add(interval / 2).saturating_sub(looked_back);
        (readings.max(view.now.saturating_sub(looked_back.saturating_add(interval / 10))), looked_back)
    };
    let in_use = |t: Nanos| in_use(port, t);
    let mut times: Vec<Nanos> = Vec::new();
    let mut n: u64 = 0;
    let mut at_least = false;
    for series in counters.clone() {
        for (t, growth) in series.changes_since(from).filter(|(t, _)| in_use(*t)) {
            match growth {
                Some(0) => {}
                Some(growth) => {
                    times.push(t);
                    n = n.saturating_add(growth);
                }
                None => at_least = true,
            }
        }
    }
    if interval > 0 && interval < engine_ns {
        // More readings than a series keeps changes: the windows' rates remember longer.
        let end = started + view.now.saturating_sub(started) / engine_ns * engine_ns;
        // The middle of the newest window that is closed, and how many of them have theirs after `from`.
        let middle = end.saturating_sub(engine_ns / 2);
        let closed = usize::try_from(middle.saturating_sub(from).div_ceil(engine_ns)).unwrap_or(usize::MAX);
        let rates = port.rates.get(&meaning).into_iter().flat_map(Ring::newest_first);
        let mut sum = 0.0;
        rates.take(closed).enumerate().for_each(|(back, rate)| {
            let Some(rate) = rate.filter(|rate| *rate > 0.0) else { return };
            let t = middle.saturating_sub(back as u64 * engine_ns);
            if in_use(t) {
                times.push(t);
                sum += rate * engine_ns as f64 / 1e9;
            }
        });
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of rates of counts")]
        let sum = sum.round() as u64;
        n = n.max(sum);
    }
    let first = times.iter().copied().min()?;
    let last = times.iter().copied().max()?;
    let mut distinct: Vec<u64> = times.iter().map(|t| index(*t)).collect();
    distinct.sort_unstable();
    distinct.dedup();
    // Two counters of the meaning may be read at different times.
    let bad = if last - first < window / 2 { 1 } else { (distinct.len() as u64).min(of) };
    let counter = counters
        .clone()
        .find(|series| series.changes_since(from).next().is_some())
        .or_else(|| counters.clone().next())
        .map_or_else(|| (meaning.name().to_owned(), "events"), |s| (s.name.to_string(), s.def.unit.name()));
    Some(Errors { windows: bad, n, at_least, first, span_ns, counter })
}

/// The port was ACTIVE at that time and had been for a moment, or its state was not known.
pub(super) fn in_use(port: &PortRecord, t: Nanos) -> bool {
    match state_at(port, t) {
        None | Some(PortState::Unknown) => true,
        Some(PortState::Active) => {
            let came = port.states.iter().rev().find(|(at, change)| *at <= t && change.to == PortState::Active);
            came.is_none_or(|(at, change)| change.from == PortState::Unknown || t.saturating_sub(*at) >= TRAINING_NS)
        }
        Some(_) => false,
    }
}

/// Engine windows that make `window_s`, or the time between two readings of the meaning where that is longer.
pub(super) fn windows_of(view: &View<'_>, port: &PortRecord, meaning: Meaning, window_s: f64) -> usize {
    let engine_ns = ns(view.settings.window_s).max(1);
    let interval = interval(port, meaning).min(LONGEST_INTERVAL_NS);
    // A reading is late by a little now and then.
    let length = ns(window_s).max(interval.saturating_add(interval / 20)).max(engine_ns);
    usize::try_from(length.div_ceil(engine_ns)).unwrap_or(1)
}

/// Growth is known for as long as `window_s`, and for half of the last one: a mean over less would be that of a moment.
pub(super) fn covers(view: &View<'_>, port: &PortRecord, meaning: Meaning, window_s: f64) -> bool {
    let engine_ns = ns(view.settings.window_s).max(1);
    let interval = interval(port, meaning).min(LONGEST_INTERVAL_NS);
    let length = ns(window_s).max(engine_ns);
    // What one known window tells of: itself, or the time since the reading before.
    let each = interval.max(engine_ns);
    let n = windows_of(view, port, meaning, window_s);
    let Some(ring) = port.rates.get(&meaning) else { return false };
    // One window may be without a reading: it came a moment late and is in the next one.
    let (mut oldest, mut recent) = (None, 0u64);
    ring.newest_first().take(2 * n).enumerate().filter(|(_, rate)| rate.is_some()).for_each(|(at, _)| {
        oldest = Some(at as u64);
        recent += u64::from(at < n);
    });
    oldest.is_some_and(|at| (at * engine_ns).saturating_add(each).saturating_add(each / 20) >= length)
        && recent.saturating_mul(each).saturating_mul(2) >= length
}

/// Mean growth per second of a meaning over the last `window_s`; `None` when it was not read for as long as that or the
/// growth is not known.
pub(super) fn mean_rate(view: &View<'_>, port: &PortRecord, meaning: Meaning, window_s: f64) -> Option<f64> {
    if !covers(view, port, meaning, window_s) {
        return None;
    }
    let n = windows_of(view, port, meaning, window_s);
    mean(port.rates.get(&meaning)?.newest_first().take(n))
}

/// The mean of the known ones; `None` when none is.
pub(super) fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (mut sum, mut n) = (0.0, 0u32);
    for value in values.flatten() {
        sum += value;
        n += 1;
    }
    (n > 0).then(|| sum / f64::from(n))
}
