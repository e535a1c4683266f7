//! One set of counters read together from one place.

use std::collections::HashMap;
use std::sync::Arc;

use crate::observation::{CounterSource, Nanos};
use crate::timeline::Series;
use crate::timeline::arithmetic::{Fell, Reading, Reason, ResetDetector, SetVerdict};
use crate::timeline::counter_table::lookup;

/// A set that names more counters than this is not a NIC's: the rest is counted, not stored.
const MAX_COUNTERS: usize = 4096;

/// One set of counters read together from one place.
#[derive(Debug, Clone)]
pub struct CounterSet {
    /// Where it is read.
    pub source: CounterSource,
    /// Network device, for ethtool sets.
    pub netdev: Option<Arc<str>>,
    /// The bound QP or QP type, for bound sets.
    pub bound: Option<Arc<str>>,
    /// The counters, in the order they first appeared.
    pub series: Vec<Series>,
    /// Why the set as a whole cannot be read now.
    pub unavailable: Option<Reason>,
    /// When it was last read.
    pub t: Nanos,
    /// Counters that were not stored because the set has too many.
    pub dropped: u64,
    driver: Option<Arc<str>>,
    index: Arc<HashMap<Arc<str>, usize>>,
}

impl CounterSet {
    pub(crate) fn new(
        source: CounterSource,
        netdev: Option<&str>,
        bound: Option<Arc<str>>,
        driver: Option<Arc<str>>,
    ) -> Self {
        Self {
            source,
            netdev: netdev.map(Into::into),
            bound,
            series: Vec::new(),
            unavailable: None,
            t: 0,
            dropped: 0,
            driver,
            index: Arc::default(),
        }
    }

    /// No counter of the set was ever readable.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.series.iter().all(|series| series.value().is_none() && series.last_value().is_none())
    }

    /// A counter by the driver's name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Series> {
        self.index.get(name).map(|at| &self.series[*at])
    }

    /// Takes one reading of the set; says how many counters fell if the whole set was reset since the last one, and
    /// whether the set has a counter it did not have before.
    pub(crate) fn take<'v>(
        &mut self,
        t: Nanos,
        vf: bool,
        device_reset: bool,
        driver: Option<&Arc<str>>,
        values: impl Iterator<Item = (&'v str, u64)>,
        unavailable: impl Iterator<Item = (&'v str, &'v str)>,
    ) -> Taken {
        let mut taken = Taken { fell: None, new_names: self.driver_changed(driver) };
        self.t = t;
        self.unavailable = None;
        let mut detector = ResetDetector::default();
        let mut hint = 0;
        let mut placed: Vec<(usize, u64)> = Vec::with_capacity(self.series.len());
        for (name, value) in values {
            let Some(at) = self.place(name, &mut hint, &mut taken.new_names) else { continue };
            placed.push((at, value));
            let series = &self.series[at];
            if let Some(before) = series.last_value() {
                detector.observe(series.def, before, value);
            }
        }
        taken.fell = match detector.verdict() {
            SetVerdict::WholeSetReset { .. } => Some(detector.fell()),
            // Another set of the device has just been reset: one that fell here fell with it.
            SetVerdict::Single { .. } if device_reset => Some(detector.fell()),
            SetVerdict::Single { .. } | SetVerdict::None => None,
        };
        let set_reset = taken.fell.is_some();
        for (at, value) in placed {
            let series = &mut self.series[at];
            match Reading::of(series.def, value, vf) {
                Reading::Value(value) => series.take(t, value, set_reset),
                Reading::Unavailable(reason) => series.miss(t, reason),
            }
        }
        for (name, reason) in unavailable {
            if name == "*" {
                self.unavailable = Some(Reason::from(reason));
                continue;
            }
            let Some(at) = self.place(name, &mut hint, &mut taken.new_names) else { continue };
            let series = &mut self.series[at];
            // An unchanged reason is not copied again.
            let same = matches!(&series.reading, Reading::Unavailable(old) if old.as_str() == reason);
            let reason = match &series.reading {
                Reading::Unavailable(old) if same => old.clone(),
                _ => Reason::from(reason),
            };
            series.miss(t, reason);
        }
        // A counter the set no longer mentions is not known any more, whatever it was.
        for series in &mut self.series {
            if series.t < t && matches!(series.reading, Reading::Value(_)) {
                let reason = self.unavailable.clone();
                series.miss(t, reason.unwrap_or_else(|| Reason::fixed("no longer in the set")));
            }
        }
        taken
    }

    /// Where a counter is stored. A live source names its counters in the same order every time, so the guess is
    /// nearly always right and costs one comparison.
    fn place(&mut self, name: &str, hint: &mut usize, new_names: &mut bool) -> Option<usize> {
        let guess = *hint;
        *hint += 1;
        if self.series.get(guess).is_some_and(|series| &*series.name == name) {
            return Some(guess);
        }
        if let Some(at) = self.index.get(name) {
            *hint = at + 1;
            return Some(*at);
        }
        if self.series.len() == MAX_COUNTERS {
            self.dropped += 1;
            return None;
        }
        let name: Arc<str> = name.into();
        let at = self.series.len();
        let def = lookup(self.driver.as_deref(), self.source, &name);
        self.series.push(Series::new(name.clone(), def));
        Arc::make_mut(&mut self.index).insert(name, at);
        *new_names = true;
        *hint = at + 1;
        Some(at)
    }

    /// The driver decides what a counter is; it may become known after the first reading.
    fn driver_changed(&mut self, driver: Option<&Arc<str>>) -> bool {
        if self.driver.as_ref() == driver {
            return false;
        }
        self.driver = driver.cloned();
        for series in &mut self.series {
            series.def = lookup(self.driver.as_deref(), self.source, &series.name);
        }
        true
    }
}

/// What one reading of a set brought.
pub(crate) struct Taken {
    /// The whole set was reset; so many counters fell.
    pub(crate) fell: Option<Fell>,
    /// The set has a counter it did not have, or its counters changed their meaning.
    pub(crate) new_names: bool,
}
