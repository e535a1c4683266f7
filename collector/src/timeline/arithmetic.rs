//! What two readings of a counter say.
//!
//! Unknown is never zero: every function here that cannot tell says so, and no difference is ever negative, wrapped
//! around by accident or taken from a counter that has stopped.

use std::fmt;
use std::sync::Arc;

use super::counter_table::{CounterDef, Kind, Overflow, Width};

/// Why there is no value. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reason(Words);

#[derive(Clone)]
enum Words {
    Fixed(&'static str),
    Shared(Arc<str>),
}

impl Reason {
    /// A reason that is part of the program.
    #[must_use]
    pub const fn fixed(words: &'static str) -> Self {
        Self(Words::Fixed(words))
    }

    /// The words.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl Words {
    fn as_str(&self) -> &str {
        match self {
            Self::Fixed(words) => words,
            Self::Shared(words) => words,
        }
    }
}

// By the words alone: it does not matter where they are kept.
impl PartialEq for Words {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Words {}

impl std::hash::Hash for Words {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl From<&str> for Reason {
    fn from(words: &str) -> Self {
        Self(Words::Shared(words.into()))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What reading a counter gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The driver's own number.
    Value(u64),
    /// No number, and why.
    Unavailable(Reason),
}

impl Reading {
    /// What a raw number is worth: some drivers have numbers that say "no value". `vf` is true for a virtual function.
    #[must_use]
    pub fn of(def: &CounterDef, raw: u64, vf: bool) -> Self {
        if def.flags.all_ones_na && raw == u64::MAX {
            Self::Unavailable(Reason::fixed("the device gives no value (all ones)"))
        } else if def.flags.vf_zero && vf && raw == 0 {
            Self::Unavailable(Reason::fixed("not counted on a virtual function"))
        } else {
            Self::Value(raw)
        }
    }

    /// The number, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<u64> {
        match self {
            Self::Value(value) => Some(*value),
            Self::Unavailable(_) => None,
        }
    }
}

/// What happened between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta {
    /// So many counts.
    Known(u64),
    /// So many counts, over the end of the counter's range.
    Wrapped(u64),
    /// The counter was set back in between: how much was counted is not known.
    Reset,
    /// The counter has stopped at its limit: at least something may have been counted, nobody knows what.
    Saturated,
    /// Cannot be told.
    Unknown,
}

impl Delta {
    /// The counts, where they are known.
    #[must_use]
    pub const fn value(self) -> Option<u64> {
        match self {
            Self::Known(n) | Self::Wrapped(n) => Some(n),
            Self::Reset | Self::Saturated | Self::Unknown => None,
        }
    }
}

/// The counter stands at the limit it sticks at: the true count is this or more.
///
/// Only for counters that are known to stick. A reading *above* the limit of the table shows a counter wider than the
/// table says, which is not saturated.
#[must_use]
pub fn saturated(def: &CounterDef, value: u64) -> bool {
    let at_limit = value == def.width.ceiling() || (def.width == Width::Bits32Or64 && value == u64::MAX);
    def.kind == Kind::Counter && def.overflow == Overflow::Sticks && at_limit
}

/// What was counted between two readings of the same counter, of which `before` is the earlier.
///
/// * A gauge has no delta: [`Delta::Unknown`].
/// * **Sticks** (PMA). `now` at the limit: [`Delta::Saturated`], also when `before` was there already. A fall is a
///   [`Delta::Reset`], also one from the limit: somebody cleared the counter.
/// * **Wraps.** A fall of a 32-bit (or narrower) counter is [`Delta::Wrapped`] if `before` was in the last quarter of
///   the range and the way over the end is shorter than a quarter of it; else it is a [`Delta::Reset`]. A quarter of
///   2³² is far more than any such counter of the table counts in a polling period, and leaves three quarters of all
///   resets recognised from the value alone; [`ResetDetector`] recognises the rest by the other counters. A counter of
///   64 bits does not live to wrap: a fall is a reset.
/// * **Unknown overflow** (mlx5 Q counters and all counters without a row). A fall is [`Delta::Unknown`], near the end
///   of the range (it may have wrapped, or have been cleared) and elsewhere (it may have been cleared, or be no counter
///   at all). Standing still at all-ones is unknown too: it may have stopped there.
/// * All-ones of 64 bits is no count (a device that has left the bus answers so): [`Delta::Unknown`], or
///   [`Delta::Saturated`] for a counter that sticks there.
#[must_use]
pub fn delta(def: &CounterDef, before: u64, now: u64) -> Delta {
    if def.kind == Kind::Gauge {
        return Delta::Unknown;
    }
    if saturated(def, now) {
        return Delta::Saturated;
    }
    if now == u64::MAX || before == u64::MAX {
        return if saturated(def, before) { Delta::Reset } else { Delta::Unknown };
    }
    let ceiling = def.width.ceiling();
    match (def.overflow, now.checked_sub(before)) {
        (Overflow::Unknown, Some(0)) if now == ceiling => Delta::Unknown,
        (_, Some(counted)) => Delta::Known(counted),
        (Overflow::Unknown, None) => Delta::Unknown,
        (Overflow::Sticks, None) => Delta::Reset,
        (Overflow::Wraps, None) => wrapped(def.width, before, now).map_or(Delta::Reset, Delta::Wrapped),
    }
}

/// The counts over the end of the range, when a fall from `before` to `now` looks like a wrap.
fn wrapped(width: Width, before: u64, now: u64) -> Option<u64> {
    let Width::Bits(bits @ ..=32) = width else { return None };
    let range = 1u64 << bits;
    let to_end = range.checked_sub(before)?;
    let counted = to_end + now;
    (counted < range / 4).then_some(counted)
}

/// What the falls in the counters of one device say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetVerdict {
    /// No counter fell.
    None,
    /// Some fell and others went on: each of them was cleared, or is broken, by itself.
    Single {
        /// How many fell.
        fell: u32,
    },
    /// The whole set was set back at once (driver reload, device reset, cleared by a tool): one event. No counter of
    /// the set has a delta over this interval, not even those that were 0 before and those that rose.
    WholeSetReset {
        /// How many counters fell.
        counters: u32,
    },
}

/// Tells a reset of a whole counter set from the fall of one counter.
///
/// Feed it every counter of a device (or of a set that can be cleared by itself) with its two readings, then ask. Only
/// counters that were above 0 can fall, so only they are heard:
///
/// * one that stands where it stood contradicts a reset of the whole set;
/// * one that rose hardly fits either, unless it is so busy that it has already passed its old value: one in five is let
///   pass;
/// * a fall that may be a wrap is heard neither way.
///
/// At least two must fall: a single fall is that counter's own matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResetDetector {
    fell: u32,
    rose: u32,
    stood: u32,
}

impl ResetDetector {
    /// Hears one counter.
    pub fn observe(&mut self, def: &CounterDef, before: u64, now: u64) {
        if def.kind == Kind::Gauge || before == 0 || before == u64::MAX || now == u64::MAX {
            return;
        }
        match now.cmp(&before) {
            std::cmp::Ordering::Less if matches!(delta(def, before, now), Delta::Wrapped(_)) => {}
            std::cmp::Ordering::Less => self.fell += 1,
            std::cmp::Ordering::Equal => self.stood += 1,
            std::cmp::Ordering::Greater => self.rose += 1,
        }
    }

    /// Adds what another detector heard (the sets of one device).
    pub fn merge(&mut self, other: Self) {
        self.fell += other.fell;
        self.rose += other.rose;
        self.stood += other.stood;
    }

    /// The verdict over all that was heard.
    #[must_use]
    pub fn verdict(self) -> SetVerdict {
        match self.fell {
            0 => SetVerdict::None,
            fell if fell >= 2 && self.stood == 0 && self.rose <= fell / 4 => {
                SetVerdict::WholeSetReset { counters: fell }
            }
            fell => SetVerdict::Single { fell },
        }
    }
}
