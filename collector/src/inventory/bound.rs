//! Hardware counters bound to QPs: what the driver counts of several QPs together, beside the port's own counters.
//!
//! The kernel adds a bound set to what it says of its port, so it is never added again; and a set that counts several QPs
//! says nothing of any one of them.

use std::sync::Arc;

use super::CounterSet;
use crate::observation;

/// Bound sets kept for each port; more are counted only.
const MAX_SETS: usize = 1024;

/// What a set was bound by; all unknown for a set that was bound by hand to several QPs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoundBy {
    /// One QP.
    pub qpn: Option<u32>,
    /// All QPs of a type.
    pub qp_type: Option<Arc<str>>,
    /// All QPs of a process.
    pub pid: Option<u32>,
}

impl BoundBy {
    fn is(&self, seen: &observation::Counters<'_>) -> bool {
        (self.qpn, self.qp_type.as_deref(), self.pid) == (seen.qpn, seen.qp_type.as_deref(), seen.pid)
    }

    fn of(seen: &observation::Counters<'_>) -> Self {
        Self { qpn: seen.qpn, qp_type: seen.qp_type.as_deref().map(Into::into), pid: seen.pid }
    }
}

/// One set of hardware counters that the kernel has bound to QPs of a port.
#[derive(Debug, Clone)]
pub struct BoundSet {
    /// The kernel's number of the set.
    pub id: u32,
    /// What it was bound by.
    pub by: BoundBy,
    /// The QPs it counts together, as last listed.
    pub qpns: Arc<[u32]>,
    /// Its counters. [`CounterSet::bound`] says what it was bound by: `type RC`, `qp 17`, `set 4`.
    pub counters: CounterSet,
}

impl BoundSet {
    /// The set counts this QP, alone or with others.
    #[must_use]
    pub fn counts(&self, qpn: u32) -> bool {
        self.qpns.contains(&qpn)
    }

    /// What it was bound by, in words.
    #[must_use]
    pub fn of(&self) -> &str {
        self.counters.bound.as_deref().unwrap_or("QPs")
    }
}

/// What a set is bound to, in words; `None` for a set of the whole port or device.
pub(crate) fn bound_to(seen: &observation::Counters<'_>) -> Option<Arc<str>> {
    match (seen.qpn, &seen.qp_type, seen.pid, seen.set) {
        (Some(qpn), ..) => Some(Arc::from(format!("qp {qpn}"))),
        (None, Some(qp_type), Some(pid), _) => Some(Arc::from(format!("type {qp_type} of process {pid}"))),
        (None, None, Some(pid), _) => Some(Arc::from(format!("process {pid}"))),
        (None, Some(qp_type), None, _) => Some(Arc::from(format!("type {qp_type}"))),
        (None, None, None, Some(id)) => Some(Arc::from(format!("set {id}"))),
        (None, None, None, None) => None,
    }
}

/// The bound sets of one port. Clones share them until one changes.
#[derive(Debug, Clone, Default)]
pub struct BoundSets {
    sets: Arc<Vec<BoundSet>>,
    /// Readings of sets that were not stored because there were too many.
    pub dropped: u64,
}

impl BoundSets {
    /// The sets, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &BoundSet> {
        self.sets.iter()
    }

    /// The sets that count a QP.
    pub fn counting(&self, qpn: u32) -> impl Iterator<Item = &BoundSet> {
        self.iter().filter(move |set| set.counts(qpn))
    }

    /// Takes one reading of a set, or that it is gone.
    pub(crate) fn take(
        &mut self,
        t: observation::Nanos,
        vf: bool,
        driver: Option<&Arc<str>>,
        id: u32,
        seen: &observation::Counters<'_>,
    ) {
        let place = self.sets.binary_search_by_key(&id, |set| set.id);
        if seen.removed == Some(true) {
            if let Ok(at) = place {
                Arc::make_mut(&mut self.sets).remove(at);
            }
            return;
        }
        if place.is_err() && self.sets.len() >= MAX_SETS {
            self.dropped += 1;
            return;
        }
        let sets = Arc::make_mut(&mut self.sets);
        let at = place.unwrap_or_else(|at| {
            let counters = CounterSet::new(seen.source, None, bound_to(seen), driver.cloned());
            sets.insert(at, BoundSet { id, by: BoundBy::of(seen), qpns: Arc::default(), counters });
            at
        });
        let set = &mut sets[at];
        // The kernel gives out numbers again: what was bound by something else, or counts none of the QPs it counted, is
        // another set, and its counters began anew.
        let others = |qpns: &Vec<u32>| !qpns.is_empty() && !set.qpns.is_empty() && !qpns.iter().any(|n| set.counts(*n));
        if !set.by.is(seen) || seen.qpns.as_ref().is_some_and(others) {
            let counters = CounterSet::new(seen.source, None, bound_to(seen), driver.cloned());
            *set = BoundSet { id, by: BoundBy::of(seen), qpns: Arc::default(), counters };
        }
        if let Some(qpns) = &seen.qpns {
            set.qpns = qpns.as_slice().into();
        }
        set.counters.take(
            t,
            vf,
            false,
            driver,
            seen.values.iter().map(|(name, value)| (&**name, *value)),
            seen.unavailable.iter().map(|(name, reason)| (&**name, &**reason)),
        );
    }

    /// The device is gone, and its sets with it.
    pub(crate) fn clear(&mut self) {
        self.sets = Arc::default();
    }
}
