//! What a packet source adds: each packet's own ECN field, and whether the marked ones came later than the others.

use crate::inventory::{CounterSet, PortRecord};
use crate::observation::{CounterSource, Nanos};
use crate::timeline::counter_table::Kind;

/// Packets with a delay of each kind that are enough to compare.
const ENOUGH: u64 = 30;
/// Marked packets are no later than others up to this factor.
const SAME: f64 = 1.2;
/// Marked packets are later than others from this factor on.
const LATER: f64 = 1.5;
/// The mean delay of packets that found no queue is below this multiple of the least.
const NEAR_LEAST: f64 = 10.0;

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

/// Mean delays, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
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

    /// What the delays say.
    pub(super) fn delays(&self) -> Delays {
        let mean = |sum: &str, n: &str| {
            let n = self.growth(n).filter(|n| *n >= ENOUGH)?;
            Some(self.growth(sum)? as f64 / n as f64)
        };
        let min = self.set.get("delay_min_ns").filter(|min| min.def.kind == Kind::Gauge).and_then(|min| min.value());
        let means = mean("delay_ce_sum_ns", "delay_ce_n").zip(mean("delay_plain_sum_ns", "delay_plain_n")).zip(min);
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
