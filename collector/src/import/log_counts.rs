//! What a log tells again and again of one port, as counters: so the rules see it grow, as they see counters of a device
//! grow. They count from 0 at the log's beginning.

use std::collections::BTreeMap;

use super::moment::{Clock, Moment};
use super::sink::Sink;
use crate::observation::{CounterSource, Counters, Pairs};

/// Device and port, the counter, and when it grew by how much.
type Growth = BTreeMap<(String, u32), Vec<(Clock, &'static str, u64)>>;

/// Counts of one log.
#[derive(Debug, Default)]
pub(super) struct LogCounts {
    growth: Growth,
}

impl LogCounts {
    /// Counts `n` of something; 0 notes that it is counted.
    pub(super) fn add(&mut self, clock: Clock, device: &str, port: u32, name: &'static str, n: u64) {
        self.growth.entry((device.to_owned(), port)).or_default().push((clock, name, n));
    }

    /// Something of the port was counted already.
    pub(super) fn knows(&self, device: &str, port: u32) -> bool {
        self.growth.contains_key(&(device.to_owned(), port))
    }

    /// Says the counters: 0 a nanosecond before the first growth, then a set at each growth.
    pub(super) fn finish(self, sink: &mut Sink<'_>) {
        for ((device, port), growth) in self.growth {
            let mut totals: BTreeMap<&'static str, u64> = growth.iter().map(|(_, name, _)| (*name, 0)).collect();
            let Some((first, ..)) = growth.first() else { continue };
            say(before(*first), &device, port, &totals, sink);
            for (clock, name, n) in growth.iter().filter(|(_, _, n)| *n > 0) {
                *totals.entry(name).or_default() += n;
                say(*clock, &device, port, &totals, sink);
            }
        }
    }
}

fn say(clock: Clock, device: &str, port: u32, totals: &BTreeMap<&'static str, u64>, sink: &mut Sink<'_>) {
    let mut values = Pairs::with_capacity(totals.len());
    for (name, n) in totals {
        values.push(*name, *n);
    }
    let (device, port) = (device.to_owned().into(), Some(port));
    let set = Counters { device, port, source: CounterSource::Log, values, ..Counters::default() };
    sink.counters_at(Moment::at(clock), set);
}

/// A nanosecond earlier.
fn before(clock: Clock) -> Clock {
    match clock {
        Clock::Uptime(t) => Clock::Uptime(t.saturating_sub(1)),
        Clock::Wall(t) => Clock::Wall(t.saturating_sub(1)),
        Clock::Relative(_) | Clock::Unknown => clock,
    }
}
