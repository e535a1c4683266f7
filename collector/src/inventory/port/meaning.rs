//! What a port's counters say together: those of one meaning are sorted into groups, of which the best that can be read
//! gives it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::PortRecord;
use crate::observation::{CounterSource, Nanos};
use crate::timeline::counter_table::{How, Meaning};
use crate::timeline::{Growth, Series};

/// The counters that give one meaning now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeaningReading {
    /// Combined total in the meaning's unit (bytes where the counters count bytes or words).
    pub total: Option<u64>,
    /// Combined growth per second of the last interval, in the same unit.
    pub rate: Option<f64>,
    /// The counters' names.
    pub counters: Vec<Arc<str>>,
    /// A counter stands at its ceiling: the total is a lower bound.
    pub saturated: bool,
}

/// One counter's place: set and series.
pub(in super::super) type Place = (u16, u16);

/// A counter that could give a meaning: rank, source, network device, how it combines, place.
type Candidate = (u8, CounterSource, Option<Arc<str>>, How, Place);

/// Counters of one meaning, best rank first; those of one rank from one source are combined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Group {
    pub(in super::super) places: Arc<[Place]>,
    pub(in super::super) how: Option<How>,
}

impl PortRecord {
    /// Rebuilds the meanings' groups after a set got a new counter.
    pub(crate) fn regroup(&mut self) {
        let mut all: BTreeMap<Meaning, Vec<Candidate>> = BTreeMap::new();
        for (s, set) in self.sets.iter().enumerate().filter(|(_, set)| set.bound.is_none()) {
            for (c, series) in set.series.iter().enumerate() {
                if let (Some(meaning), Some(combine)) = (series.def.meaning, series.def.combine)
                    && let (Ok(s), Ok(c)) = (u16::try_from(s), u16::try_from(c))
                {
                    let entry = (combine.rank, set.source, set.netdev.clone(), combine.how, (s, c));
                    all.entry(meaning).or_default().push(entry);
                }
            }
        }
        let groups = all.into_iter().map(|(meaning, mut places)| {
            places.sort_by(|a, b| (a.0, a.1, &a.2, a.4).cmp(&(b.0, b.1, &b.2, b.4)));
            let mut groups: Vec<(How, Vec<Place>)> = Vec::new();
            let mut last = None;
            for (rank, source, netdev, how, place) in places {
                let id = Some((rank, source, netdev));
                if last != id || groups.is_empty() {
                    groups.push((how, Vec::new()));
                    last = id;
                }
                // One counter is preferred to others of its rank; parts of a whole and overlapping times are combined.
                if let Some((_, places)) = groups.last_mut()
                    && (how != How::Prefer || places.is_empty())
                {
                    places.push(place);
                }
            }
            let groups =
                groups.into_iter().map(|(how, places)| Group { places: places.into(), how: Some(how) }).collect();
            (meaning, groups)
        });
        self.groups = Arc::new(groups.collect());
        self.follow();
    }

    /// The counters of both give the same meanings, in the same places.
    pub(crate) fn has_groups_of(&self, other: &Self) -> bool {
        !self.groups.is_empty() && self.groups == other.groups
    }

    /// Keeps what both ports have of groups once.
    pub(crate) fn share_groups(&mut self, twin: &Self) {
        self.groups = Arc::clone(&twin.groups);
    }

    #[cfg(test)]
    pub(crate) fn shares_groups_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.groups, &other.groups)
    }

    /// The group that gives a meaning now: the best rank of which every counter can be read.
    pub(in super::super) fn group(&self, meaning: Meaning) -> Option<&Group> {
        self.readable(self.groups.get(&meaning)?)
    }

    /// The group that gives a meaning now, or else the first.
    pub(super) fn group_or_first(&self, meaning: Meaning) -> Option<&Group> {
        self.group(meaning).or_else(|| self.groups.get(&meaning)?.first())
    }

    /// The first of the groups, which are sorted by rank, of which every counter can be read.
    pub(super) fn readable<'g>(&self, groups: &'g [Group]) -> Option<&'g Group> {
        groups.iter().find(|group| group.places.iter().all(|place| self.at(*place).value().is_some()))
    }

    /// Every meaning the port has counters for, with the group that gives it now.
    pub(in super::super) fn groups_now(&self) -> impl Iterator<Item = (Meaning, &Group)> {
        self.groups.iter().filter_map(|(meaning, groups)| Some((meaning, self.readable(groups)?)))
    }

    pub(in super::super) fn at(&self, (set, series): Place) -> &Series {
        &self.sets[usize::from(set)].series[usize::from(series)]
    }

    /// Meanings the port has counters for.
    pub fn meanings(&self) -> impl Iterator<Item = Meaning> + '_ {
        self.groups.iter().map(|(meaning, _)| meaning)
    }

    /// The counters behind a meaning, those in use now or else the first group.
    pub fn series_of(&self, meaning: Meaning) -> impl Iterator<Item = &Series> + Clone {
        let group = self.group_or_first(meaning);
        group.into_iter().flat_map(|group| group.places.iter().map(|place| self.at(*place)))
    }

    /// What the port's counters say of a meaning; `None` when none of them can be read.
    #[must_use]
    pub fn reading(&self, meaning: Meaning) -> Option<MeaningReading> {
        let group = self.group(meaning)?;
        let series = || group.places.iter().map(|place| self.at(*place));
        let max = matches!(group.how, Some(How::Max));
        let total = series().try_fold(0u64, |sum, series| {
            let total = series.value()?.checked_mul(series.def.unit.bytes_factor().unwrap_or(1))?;
            if max { Some(sum.max(total)) } else { sum.checked_add(total) }
        });
        Some(MeaningReading {
            total,
            rate: self.rate_of(group),
            counters: series().map(|series| series.name.clone()).collect(),
            saturated: series().any(Series::saturated),
        })
    }

    /// The rate of [`Self::reading`] alone, for whoever asks in every window.
    #[must_use]
    pub fn rate(&self, meaning: Meaning) -> Option<f64> {
        self.rate_of(self.group(meaning)?)
    }

    fn rate_of(&self, group: &Group) -> Option<f64> {
        self.combined(group, |place| self.at(place).rate)
    }

    /// The rate of a group, made of those of its counters, in the meaning's unit; `None` when one of them is not known.
    pub(super) fn combined(&self, group: &Group, rate_at: impl Fn(Place) -> Option<f64>) -> Option<f64> {
        let max = matches!(group.how, Some(How::Max));
        group.places.iter().try_fold(0.0f64, |sum, place| {
            let rate = rate_at(*place)? * self.at(*place).def.unit.bytes_factor().unwrap_or(1) as f64;
            Some(if max { sum.max(rate) } else { sum + rate })
        })
    }

    /// Growth of a meaning after `from`; `None` when it cannot be told.
    #[must_use]
    pub fn growth(&self, meaning: Meaning, from: Nanos) -> Option<Growth> {
        let group = self.group(meaning)?;
        let max = matches!(group.how, Some(How::Max));
        let mut all = Growth { sum: 0, broken: false };
        for place in &*group.places {
            let series = self.at(*place);
            let growth = series.growth_since(from)?;
            let sum = growth.sum.saturating_mul(series.def.unit.bytes_factor().unwrap_or(1));
            all.sum = if max { all.sum.max(sum) } else { all.sum.saturating_add(sum) };
            all.broken |= growth.broken;
        }
        Some(all)
    }
}
