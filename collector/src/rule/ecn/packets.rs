//! What a packet source adds: each packet's own ECN field, and whether the marked ones came later than the others.

use crate::inventory::{CounterSet, PortRecord};
use crate::observation::{CounterSource, Nanos};
use crate::timeline::Series;
use crate::timeline::counter_table::Kind;

/// Packets with a delay of each kind that are enough to compare.
const ENOUGH: u64 = 30;
/// Marked packets are no later than others up to this factor.
const SAME: f64 = 1.2;
/// Marked packets are later than others from this factor on.
const LATER: f64 = 1.5;
/// The typical delay of packets that found no queue is below this multiple of the least.
const NEAR_LEAST: f64 = 10.0;
/// Share of the delays whose class must be known for a median.
const MOST_KNOWN: f64 = 0.9;

/// What the delays say of the marks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Delays {
    /// Marked packets are as early as the others, which are near the least delay: no queue.
    NoQueue(Means),
    /// Marked packets are later: a queue.
    Queue(Means),
    /// Neither.
    Unclear,
}

/// Typical delays, ns: medians where the classes of the delays are told, else means, which one late packet can move.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::struct_field_names, reason = "the unit is part of a name")]
pub(super) struct Means {
    /// Of marked packets.
    pub(super) ce_ns: f64,
    /// Of the others.
    pub(super) plain_ns: f64,
    /// The least ever seen.
    pub(super) min_ns: f64,
}

/// The packets of a port.
pub(super) struct Packets<'w> {
    set: &'w CounterSet,
    from: Nanos,
}

impl<'w> Packets<'w> {
    /// Those since `from`, where a packet source looks at the port.
    pub(super) fn since(port: &'w PortRecord, from: Nanos) -> Option<Self> {
        port.set(CounterSource::Packets).map(|set| Self { set, from })
    }

    /// Growth of one of its counters; `None` when it is not known.
    pub(super) fn growth(&self, name: &str) -> Option<u64> {
        let growth = self.set.get(name)?.growth_since(self.from)?;
        (!growth.broken).then_some(growth.sum)
    }

    /// Counters of a name followed by a number, with the number and their growth, for example `tx_dscp_`.
    pub(super) fn by_number(&self, prefix: &str) -> Vec<(u8, u64)> {
        let numbers = self.set.series.iter().filter_map(|series| {
            let number = series.name.strip_prefix(prefix)?.parse().ok()?;
            Some((number, self.growth(&series.name)?))
        });
        numbers.collect()
    }

    /// The median of `n` delays by their classes, each a factor of 2 wide; `None` where the classes tell of too few of
    /// them: a class is there only once it occurred, and its first reading is no growth.
    fn median(&self, kind: &str, n: u64) -> Option<f64> {
        let mut classes = self.by_number(&format!("delay_{kind}_log2_"));
        classes.sort_unstable();
        let known = classes.iter().map(|(_, count)| count).sum::<u64>();
        if (known as f64) < MOST_KNOWN * n as f64 {
            return None;
        }
        let half = known as f64 / 2.0;
        let mut below = 0.0;
        for (class, count) in classes {
            let count = count as f64;
            if below + count >= half {
                // As if they lay evenly in the class, on its own scale.
                return Some((f64::from(class) + (half - below) / count).exp2());
            }
            below += count;
        }
        None
    }

    /// What the delays say.
    pub(super) fn delays(&self) -> Delays {
        let typical = |kind: &str| {
            let n = self.growth(&format!("delay_{kind}_n")).filter(|n| *n >= ENOUGH)?;
            let mean = || Some(self.growth(&format!("delay_{kind}_sum_ns"))? as f64 / n as f64);
            self.median(kind, n).or_else(mean)
        };
        let min = self.set.get("delay_min_ns").filter(|min| min.def.kind == Kind::Gauge).and_then(Series::value);
        let means = typical("ce").zip(typical("plain")).zip(min);
        let Some(((ce_ns, plain_ns), min)) = means.filter(|(_, min)| *min > 0) else { return Delays::Unclear };
        let means = Means { ce_ns, plain_ns, min_ns: min as f64 };
        if ce_ns <= SAME * plain_ns && ce_ns < NEAR_LEAST * means.min_ns {
            Delays::NoQueue(means)
        } else if ce_ns >= LATER * plain_ns || ce_ns >= NEAR_LEAST * means.min_ns {
            Delays::Queue(means)
        } else {
            Delays::Unclear
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::observation::recording::Header;
    use crate::observation::{Body, Counters, Observation, Pairs, Text};
    use crate::rule::Settings;

    /// What the delays say after two readings; of the first one everything is 0.
    fn delays(values: &[(&'static str, u64)]) -> Delays {
        let mut engine = Engine::new(Header::new(), Settings::default());
        for reading in 0..2 {
            let values: Pairs<'_, u64> = values
                .iter()
                .map(|(name, value)| {
                    let value = if reading == 0 && *name != "delay_min_ns" { 0 } else { *value };
                    (Text::Borrowed(*name), value)
                })
                .collect();
            let source = CounterSource::Packets;
            let body = Counters { device: "rxe0".into(), port: Some(1), source, values, ..Counters::default() };
            engine.take(&Observation { t: 1 + reading * 1_000_000_000, body: Body::Counters(body) });
        }
        Packets::since(&engine.world().ports[0], 0).expect("packets are seen").delays()
    }

    const COUNTS: [(&str, u64); 5] = [
        ("delay_min_ns", 10_000),
        ("delay_ce_n", 100),
        ("delay_plain_n", 300),
        ("delay_ce_sum_ns", 100 * 80_000),
        ("delay_plain_sum_ns", 300 * 30_000),
    ];

    #[test]
    fn a_few_late_packets_make_no_queue_where_the_classes_are_known() {
        assert!(matches!(delays(&COUNTS), Delays::Queue(_)), "the means alone say so");
        let classes = [
            ("delay_ce_log2_14", 98),
            ("delay_ce_log2_22", 2),
            ("delay_plain_log2_14", 299),
            ("delay_plain_log2_20", 1),
        ];
        let Delays::NoQueue(typical) = delays(&[&COUNTS[..], &classes[..]].concat()) else { panic!("no queue") };
        assert!((16_384.0..32_768.0).contains(&typical.ce_ns) && (16_384.0..32_768.0).contains(&typical.plain_ns));
    }

    #[test]
    fn most_packets_late_are_a_queue_and_classes_that_miss_some_are_not_used() {
        let late = [("delay_ce_log2_23", 100), ("delay_plain_log2_14", 300)];
        assert!(matches!(delays(&[&COUNTS[..], &late[..]].concat()), Delays::Queue(_)));
        let missing = [("delay_ce_log2_14", 20), ("delay_plain_log2_14", 300)];
        assert!(matches!(delays(&[&COUNTS[..], &missing[..]].concat()), Delays::Queue(_)), "the mean is used");
    }
}
