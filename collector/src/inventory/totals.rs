//! What has been counted since the beginning, for exports: totals of meanings whose start moves at a reset, and sums of what
//! the world otherwise keeps by window only.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::failover::{Ending, Failover};
use super::grown::Grown;
use super::port::{Group, Place, PortRecord};
use crate::observation::Nanos;
use crate::timeline::counter_table::{How, Meaning};
use crate::timeline::{ByMeaning, Total};

/// Kinds of completion errors that are counted one by one; there are fewer than this (`enum ibv_wc_status`).
const MAX_STATUSES: usize = 64;

/// From where the total of a meaning is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Base {
    /// Its counters; when they change, counting begins anew.
    places: Arc<[Place]>,
    /// Since when.
    start: Nanos,
    /// What each counter stood at then, as far as the total does not hold it.
    from: Vec<u64>,
}

/// The bases of a port's meanings. They change seldom, so a snapshot shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bases(Arc<ByMeaning<Base>>);

impl Bases {
    /// What is there is the base of these counters still; so it is in nearly every window.
    fn holds(&self, meaning: Meaning, places: &Arc<[Place]>, start: impl FnOnce() -> Option<Nanos>) -> bool {
        // Nearly always the very same list, which need not be read then.
        let same = |old: &&Base| Arc::ptr_eq(&old.places, places) || old.places == *places;
        let old = self.0.get(&meaning).filter(same);
        old.is_some_and(|old| start().is_some_and(|start| old.start >= start))
    }

    /// The base of the counters as they are now. `None` when there was another one and the counters are not the same any
    /// more: the next window's end makes a new one.
    fn now(&self, meaning: Meaning, places: &Arc<[Place]>, totals: &[Total]) -> Option<Cow<'_, Base>> {
        let start = totals.iter().map(|total| total.start).max()?;
        let old = self.0.get(&meaning);
        if old.is_some_and(|old| old.places != *places) {
            return None;
        }
        if let Some(old) = old.filter(|old| old.start >= start) {
            return Some(Cow::Borrowed(old));
        }
        // A counter that began anew counts from its beginning; the others, what they held before then does not count.
        let from = totals.iter().map(|total| if total.start == start { 0 } else { total.value }).collect();
        Some(Cow::Owned(Base { places: Arc::clone(places), start, from }))
    }
}

impl PortRecord {
    /// What the port has counted of a meaning, in the meaning's unit (bytes where the counters count bytes or words). `None`
    /// when a counter of it cannot be read now, has not been read for three periods, or stands at its ceiling.
    ///
    /// The total of one counter is the driver's own number. One of several counters begins at zero when one of them is set
    /// back alone, and so does one whose counters are others than before.
    #[must_use]
    pub fn total(&self, meaning: Meaning, now: Nanos) -> Option<Total> {
        let (places, totals) = self.totals_of(meaning, now)?;
        let base = self.bases.now(meaning, places, &totals)?;
        let factor = self.at(*places.first()?).def.unit.bytes_factor().unwrap_or(1);
        let grown =
            totals.iter().zip(&base.from).map(|(total, from)| total.value.checked_sub(*from)?.checked_mul(factor));
        let value = grown.into_iter().try_fold(0u64, |sum, grown| sum.checked_add(grown?))?;
        Some(Total { value, start: base.start, t: totals.iter().map(|total| total.t).min()? })
    }

    /// The counters of a meaning one by one, each with the number in its name (priority, lane) where it has one. What
    /// [`PortRecord::total`] says of a missing total holds for each of them.
    pub fn totals_by_number(&self, meaning: Meaning, now: Nanos) -> impl Iterator<Item = (Option<u8>, Total)> + '_ {
        let places = self.group(meaning).map(|group| &group.places[..]).unwrap_or_default();
        places.iter().filter_map(move |place| {
            let series = self.at(*place);
            let total = series.total().filter(|_| series.fresh(now))?;
            let value = total.value.checked_mul(series.def.unit.bytes_factor().unwrap_or(1))?;
            Some((series.def.index_in(&series.name), Total { value, ..total }))
        })
    }

    /// Since when the totals of all counters of a group are counted.
    fn start_of(&self, group: &Group, now: Nanos) -> Option<Nanos> {
        group.places.iter().try_fold(0, |start: Nanos, place| {
            let total = Some(self.at(*place)).filter(|series| series.fresh(now))?.total()?;
            Some(start.max(total.start))
        })
    }

    fn totals_of(&self, meaning: Meaning, now: Nanos) -> Option<(&Arc<[Place]>, Vec<Total>)> {
        let group = self.group(meaning)?;
        let fresh = |place: &Place| Some(self.at(*place)).filter(|series| series.fresh(now))?.total();
        let totals = group.places.iter().map(fresh).collect::<Option<Vec<_>>>()?;
        // Times that overlap have no sum.
        (group.how != Some(How::Max) || totals.len() == 1).then_some((&group.places, totals))
    }

    /// The window ends: notes which meanings began to count anew in it.
    pub(super) fn rebase(&mut self, now: Nanos) {
        let mut bases = std::mem::take(&mut self.bases);
        for (meaning, group) in self.groups_now() {
            if bases.holds(meaning, &group.places, || self.start_of(group, now)) {
                continue;
            }
            let Some((places, totals)) = self.totals_of(meaning, now) else { continue };
            let anew = || Base {
                places: Arc::clone(places),
                start: totals.iter().map(|total| total.t).max().unwrap_or(now),
                from: totals.iter().map(|total| total.value).collect(),
            };
            let base = bases.now(meaning, places, &totals).map_or_else(anew, Cow::into_owned);
            if bases.0.get(&meaning) != Some(&base) {
                Arc::make_mut(&mut bases.0).insert(meaning, base);
            }
        }
        self.bases = bases;
    }
}

/// What the probes saw a port's QPs post since the beginning; a lower bound, as everything they tell.
#[derive(Debug, Clone, Default)]
pub struct PostTotals {
    /// Work requests.
    pub requests: u64,
    /// Bytes they asked to move.
    pub bytes: u64,
    /// By size: bucket i counts sizes in [2^i, 2^(i+1)) bytes, bucket 0 also 0; empty when none is known.
    pub sizes: Vec<u64>,
    /// Bytes of those whose size is known.
    pub sized_bytes: u64,
}

impl PostTotals {
    /// Adds what a QP's statistics grew by.
    pub(crate) fn add(&mut self, grown: &Grown) {
        self.requests = self.requests.saturating_add(grown.wrs);
        self.bytes = self.bytes.saturating_add(grown.bytes);
        if let Some(sizes) = &grown.sizes {
            add(&mut self.sizes, sizes);
            self.sized_bytes = self.sized_bytes.saturating_add(grown.bytes);
        }
    }
}

/// Adds counts to counts.
pub(crate) fn add(sums: &mut Vec<u64>, counts: &[u64]) {
    if sums.len() < counts.len() {
        sums.resize(counts.len(), 0);
    }
    sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
}

/// What became of a device's QPs since the beginning.
#[derive(Debug, Clone, Default)]
pub struct QpTotals {
    /// Error completions by status.
    pub errors: BTreeMap<Arc<str>, u64>,
    /// QPs that went into the error state because a call asked for it.
    pub asked: u64,
    /// QPs that were found in the error state, or told to be.
    pub unasked: u64,
}

impl QpTotals {
    /// Counts error completions.
    pub(crate) fn error(&mut self, status: &Arc<str>, n: u64) {
        if self.errors.len() < MAX_STATUSES || self.errors.contains_key(status) {
            let sum = self.errors.entry(status.clone()).or_default();
            *sum = sum.saturating_add(n);
        }
    }
}

/// The parts of a failover, in the order of [`FailoverTotals::phases`].
pub const PHASES: [&str; 4] = ["warning", "reaction", "recovery", "outage"];

/// A port's failovers since the beginning.
#[derive(Debug, Clone, Default)]
pub struct FailoverTotals {
    /// By how the QPs ended, in the order of the first failover of each.
    pub endings: Vec<(Ending, u64)>,
    /// The longest time each phase can have taken: bucket i counts [2^i, 2^(i+1)) ns.
    pub phases: [Vec<u64>; 4],
    /// Sums of those times, ns.
    pub sums_ns: [u64; 4],
}

impl FailoverTotals {
    /// Counts a failover that ended.
    pub(crate) fn ended(&mut self, failover: &Failover) {
        match self.endings.iter_mut().find(|(ending, _)| *ending == failover.ending) {
            Some((_, n)) => *n += 1,
            None => self.endings.push((failover.ending, 1)),
        }
        let spans = [failover.warning, failover.reaction, failover.recovery, failover.outage];
        for (at, span) in spans.into_iter().enumerate() {
            let Some(span) = span else { continue };
            let bucket = span.max_ns.checked_ilog2().unwrap_or(0) as usize;
            let mut one = vec![0; bucket + 1];
            one[bucket] = 1;
            add(&mut self.phases[at], &one);
            self.sums_ns[at] = self.sums_ns[at].saturating_add(span.max_ns);
        }
    }
}
