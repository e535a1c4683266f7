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
        // A fall from all-ones it stuck at is a clearing; all-ones now says nothing, whatever stood there before.
        return if now != u64::MAX && saturated(def, before) { Delta::Reset } else { Delta::Unknown };
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
    // A reading beyond the range shows a counter wider than the table says, which had not come to its end.
    let to_end = range.checked_sub(before).filter(|to_end| *to_end > 0)?;
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

/// Counters that fell together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fell {
    /// How many.
    pub counters: u32,
    /// Of so many that were above 0 and told by their second reading whether they were set back.
    pub of: u32,
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
            std::cmp::Ordering::Less
                if def.overflow != Overflow::Sticks && wrapped(def.width, before, now).is_some() => {}
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

    /// How many fell, of how many that were heard.
    #[must_use]
    pub fn fell(self) -> Fell {
        Fell { counters: self.fell, of: self.fell + self.rose + self.stood }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::counter_table::{TableSource, all, lookup, lookup_in};
    use super::*;
    use crate::observation::CounterSource;

    const LIMIT_32: u64 = u32::MAX as u64;

    fn pma(name: &str) -> &'static CounterDef {
        lookup(None, CounterSource::Counters, name)
    }

    fn hw(driver: &str, name: &str) -> &'static CounterDef {
        lookup(Some(driver), CounterSource::HwCounters, name)
    }

    fn carrier_changes() -> &'static CounterDef {
        lookup_in(None, TableSource::Netdev, "carrier_changes")
    }

    #[test]
    fn a_rise_is_the_difference() {
        assert_eq!(delta(pma("port_rcv_data"), 1000, 2_250_001_000), Delta::Known(2_250_000_000));
        assert_eq!(delta(pma("port_rcv_packets"), 6_825_908_347, 6_825_908_350), Delta::Known(3));
        assert_eq!(delta(hw("efa", "tx_bytes"), 2, 2), Delta::Known(0));
    }

    #[test]
    fn a_counter_that_stands_at_its_limit_is_saturated_and_has_no_delta() {
        for (name, limit) in [
            ("port_xmit_wait", LIMIT_32),
            ("symbol_error", 65_535),
            ("link_downed", 255),
            ("local_link_integrity_errors", 15),
        ] {
            let def = pma(name);
            assert!(saturated(def, limit) && !saturated(def, limit - 1), "{name}");
            assert_eq!(delta(def, limit, limit), Delta::Saturated, "{name}");
            assert_eq!(delta(def, limit - 1, limit), Delta::Saturated, "{name}");
            assert_eq!(delta(def, limit, 0), Delta::Reset, "{name}");
            assert_eq!(Delta::Saturated.value(), None);
        }
    }

    #[test]
    fn a_data_counter_at_the_32_bit_limit_is_saturated_and_above_it_is_not() {
        let def = pma("port_xmit_data");
        assert_eq!(delta(def, 5, LIMIT_32), Delta::Saturated);
        assert!(!saturated(def, LIMIT_32 + 1));
        assert_eq!(delta(def, LIMIT_32, LIMIT_32 + 8), Delta::Known(8));
        assert_eq!(delta(def, LIMIT_32 + 8, 3), Delta::Reset);
        assert_eq!(delta(def, 5, u64::MAX), Delta::Saturated);
    }

    #[test]
    fn a_reading_above_the_limit_of_the_table_shows_a_wider_counter() {
        let def = pma("link_downed");
        assert!(!saturated(def, 300));
        assert_eq!(delta(def, 255, 300), Delta::Known(45));
        assert_eq!(delta(def, 300, 301), Delta::Known(1));
    }

    #[test]
    fn a_fall_of_a_sticking_or_64_bit_counter_is_a_reset() {
        assert_eq!(delta(pma("port_rcv_data"), 9_000_000_000, 1000), Delta::Reset);
        assert_eq!(delta(pma("symbol_error"), 12, 0), Delta::Reset);
        assert_eq!(delta(hw("mlx5_core", "np_cnp_sent"), 70, 3), Delta::Reset);
        assert_eq!(delta(hw("mlx5_core", "np_cnp_sent"), u64::MAX - 2, 3), Delta::Reset);
    }

    #[test]
    fn a_32_bit_counter_that_wraps_goes_over_the_end_only_near_it() {
        let def = carrier_changes();
        assert_eq!(delta(def, LIMIT_32 - 4, 10), Delta::Wrapped(15));
        assert_eq!(delta(def, LIMIT_32, 0), Delta::Wrapped(1));
        assert_eq!(delta(def, 1_000_000, 3), Delta::Reset);
        assert_eq!(delta(def, 3 << 30, 0), Delta::Reset);
        assert_eq!(delta(def, LIMIT_32 - 4, LIMIT_32 - 5), Delta::Reset);
    }

    #[test]
    fn a_fall_with_unknown_overflow_is_unknown_wherever_it_starts() {
        let q = hw("mlx5_core", "out_of_sequence");
        assert_eq!(delta(q, 500_000, 3), Delta::Unknown);
        assert_eq!(delta(q, LIMIT_32 - 4, 10), Delta::Unknown);
        assert_eq!(delta(q, LIMIT_32, LIMIT_32), Delta::Unknown);
        assert!(!saturated(q, LIMIT_32));
        assert_eq!(delta(q, 3, 10), Delta::Known(7));
        assert_eq!(delta(hw("nobody", "anything"), 10, 3), Delta::Unknown);
    }

    /// Its driver answers the PMA with the low bits of wider counters, so all-ones is a value like any other.
    #[test]
    fn the_narrow_pma_counters_of_bnxt_re_neither_stick_nor_reset() {
        let def = lookup(Some("bnxt_en"), CounterSource::Counters, "link_downed");
        assert!(!saturated(def, 255));
        assert_eq!(delta(def, 250, 255), Delta::Known(5));
        assert_eq!(delta(def, 255, 2), Delta::Unknown);
    }

    #[test]
    fn a_gauge_has_no_delta() {
        assert_eq!(delta(hw("bnxt_en", "active_qps"), 3, 5), Delta::Unknown);
        assert_eq!(delta(hw("mlx5_core", "lifespan"), 10, 10), Delta::Unknown);
    }

    #[test]
    fn the_drivers_ways_to_say_no_value_are_no_value() {
        let ionic = hw("ionic", "tx_rdma_ucast_bytes");
        assert_eq!(Reading::of(ionic, u64::MAX, false).value(), None);
        assert_eq!(Reading::of(ionic, 7, false), Reading::Value(7));
        let cnp = hw("bnxt_en", "tx_cnp_pkts");
        assert!(
            matches!(Reading::of(cnp, 0, true), Reading::Unavailable(why) if why.as_str().contains("virtual function"))
        );
        assert_eq!(Reading::of(cnp, 0, false), Reading::Value(0));
        assert_eq!(Reading::of(cnp, 5, true), Reading::Value(5));
    }

    #[test]
    fn a_device_that_left_the_bus_has_counted_nothing_known() {
        let def = hw("mlx5_core", "np_cnp_sent");
        assert_eq!(delta(def, 5, u64::MAX), Delta::Unknown);
        assert_eq!(delta(def, u64::MAX, 5), Delta::Unknown);
        let stuck = pma("symbol_error");
        assert!(saturated(stuck, stuck.width.ceiling()) && !saturated(stuck, u64::MAX));
        assert_eq!(delta(stuck, stuck.width.ceiling(), u64::MAX), Delta::Unknown, "no reset");
    }

    #[test]
    fn a_fall_from_the_first_number_beyond_the_range_is_no_wrap() {
        assert_eq!(delta(carrier_changes(), LIMIT_32 + 1, 0), Delta::Reset);
    }

    #[test]
    fn reasons_are_equal_by_their_words() {
        assert_eq!(Reason::fixed("EINVAL"), Reason::from("EINVAL"));
        assert_ne!(Reason::fixed("EINVAL"), Reason::from("EIO"));
        assert_eq!(Reason::from("EIO").to_string(), "EIO");
    }

    /// The counters of a device before and after its driver was loaded again.
    const RELOAD: [(&str, u64, u64); 8] = [
        ("link_downed", 4, 0),
        ("port_rcv_data", 9_000_000_000, 1000),
        ("port_rcv_packets", 70_000_000, 10),
        ("port_xmit_data", 8_000_000_000, 2000),
        ("port_xmit_packets", 60_000_000, 20),
        ("symbol_error", 12, 0),
        ("local_ack_timeout_err", 131, 0),
        ("rx_write_requests", 500_000, 3),
    ];

    fn heard<'a>(readings: impl IntoIterator<Item = &'a (&'a str, u64, u64)>) -> ResetDetector {
        let mut detector = ResetDetector::default();
        for (name, before, now) in readings {
            let counters = pma(name);
            let def = if counters.known() { counters } else { hw("mlx5_core", name) };
            assert!(def.known(), "{name}");
            detector.observe(def, *before, *now);
        }
        detector
    }

    #[test]
    fn all_counters_falling_together_is_one_reset_of_the_device() {
        let mut detector = heard(&RELOAD);
        // What was 0 and what is no counter says nothing.
        detector.observe(pma("port_rcv_errors"), 0, 2);
        detector.observe(hw("mlx5_core", "lifespan"), 10, 10);
        assert_eq!(detector.verdict(), SetVerdict::WholeSetReset { counters: 8 });
    }

    #[test]
    fn a_busy_counter_that_passed_its_old_value_does_not_hide_a_reset() {
        let mut detector = heard(&RELOAD);
        detector.observe(pma("multicast_rcv_packets"), 5, 90);
        assert_eq!(detector.verdict(), SetVerdict::WholeSetReset { counters: 8 });
        assert_eq!(detector.fell(), Fell { counters: 8, of: 9 });
    }

    #[test]
    fn one_counter_that_stood_still_contradicts_a_reset_of_all() {
        let mut detector = heard(&RELOAD);
        detector.observe(pma("VL15_dropped"), 7, 7);
        assert_eq!(detector.verdict(), SetVerdict::Single { fell: 8 });
    }

    #[test]
    fn a_fall_among_counters_that_go_on_is_its_own() {
        let mut detector = heard(&[("symbol_error", 12, 0), ("port_rcv_data", 5, 6), ("port_xmit_data", 5, 9)]);
        assert_eq!(detector.verdict(), SetVerdict::Single { fell: 1 });
        detector.merge(heard(&[("link_downed", 3, 0)]));
        assert_eq!(detector.verdict(), SetVerdict::Single { fell: 2 });
        assert_eq!(heard(&[("symbol_error", 12, 0)]).verdict(), SetVerdict::Single { fell: 1 });
    }

    #[test]
    fn counters_that_may_have_wrapped_are_no_reset_of_the_device() {
        let mlx5 = |name, before, now| (hw("mlx5_core", name), before, now);
        let mut detector = ResetDetector::default();
        for (def, before, now) in [
            mlx5("out_of_sequence", LIMIT_32 - 4, 5),
            mlx5("packet_seq_err", LIMIT_32, 3),
            mlx5("rx_write_requests", LIMIT_32 - 2, 2),
            mlx5("np_cnp_sent", 500, 400),
            mlx5("local_ack_timeout_err", 7, 9),
        ] {
            detector.observe(def, before, now);
        }
        assert_eq!(detector.verdict(), SetVerdict::Single { fell: 1 });
    }

    #[test]
    fn no_fall_no_verdict() {
        assert_eq!(heard(&[("port_rcv_data", 5, 6), ("symbol_error", 2, 2)]).verdict(), SetVerdict::None);
        assert_eq!(ResetDetector::default().verdict(), SetVerdict::None);
        let mut wrap = ResetDetector::default();
        wrap.observe(carrier_changes(), LIMIT_32, 3);
        assert_eq!(wrap.verdict(), SetVerdict::None);
    }

    /// Readings near every limit of the table, and anything.
    fn reading() -> impl Strategy<Value = u64> {
        let near = |at: u64| (at.saturating_sub(3)..=at.saturating_add(3)).boxed();
        prop_oneof![near(15), near(255), near(65_535), near(LIMIT_32), near(u64::MAX), any::<u64>(), 0u64..1000]
    }

    proptest! {
        #[test]
        fn a_known_delta_is_the_difference_and_never_of_a_gauge_or_a_saturated_counter(
            row in 0..all().len(), before in reading(), now in reading(),
        ) {
            let def = &all()[row];
            let got = delta(def, before, now);
            match got {
                Delta::Known(counted) => {
                    prop_assert_eq!(before.checked_add(counted), Some(now));
                    prop_assert!(def.kind == Kind::Counter && !saturated(def, now) && now != u64::MAX);
                }
                Delta::Wrapped(counted) => {
                    let range = def.width.ceiling() + 1;
                    prop_assert_eq!(def.overflow, Overflow::Wraps);
                    prop_assert!(now < before && before < range);
                    prop_assert_eq!((before + counted) % range, now);
                    prop_assert!(counted < range / 4);
                }
                Delta::Reset => prop_assert!(now < before && def.overflow != Overflow::Unknown),
                Delta::Saturated => prop_assert!(saturated(def, now)),
                Delta::Unknown => prop_assert!(
                    def.kind == Kind::Gauge || def.overflow == Overflow::Unknown || before == u64::MAX || now == u64::MAX
                ),
            }
            prop_assert_eq!(got.value().is_some(), matches!(got, Delta::Known(_) | Delta::Wrapped(_)));
        }

        #[test]
        fn every_ordinary_rise_of_a_counter_is_known(row in 0..all().len(), before in 0u64..1 << 40, step in 1u64..1 << 40) {
            let def = &all()[row];
            let now = before + step;
            prop_assume!(def.kind == Kind::Counter && !saturated(def, now));
            prop_assert_eq!(delta(def, before, now), Delta::Known(step));
        }

        #[test]
        fn the_verdict_does_not_depend_on_the_order_of_the_counters(
            mut pairs in prop::collection::vec((reading(), reading()), 0..12), cut in 0usize..12,
        ) {
            let hear = |pairs: &[(u64, u64)]| {
                let mut detector = ResetDetector::default();
                for (before, now) in pairs {
                    detector.observe(pma("port_rcv_data"), *before, *now);
                }
                detector
            };
            let whole = hear(&pairs);
            let (head, tail) = pairs.split_at(cut.min(pairs.len()));
            let mut merged = hear(head);
            merged.merge(hear(tail));
            prop_assert_eq!(merged, whole);
            pairs.reverse();
            prop_assert_eq!(hear(&pairs).verdict(), whole.verdict());
        }
    }
}
