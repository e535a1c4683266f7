//! The histories a finding's evidence was taken from, for the small charts beside it.
//!
//! Evidence names what it compares: a counter by the driver's name, or something computed from several, in words. Both
//! have a history somewhere in the world; what has none (a state, a limit) has no chart.

use collector::finding::{Finding, SubjectKey};
use collector::inventory::{LatencyWindow, PcieRecord, PortRecord, World};
use collector::observation::AerSeverity;
use collector::timeline::Ring;
use collector::timeline::counter_table::{Meaning, Unit};

use super::evidence_source::{Of, known};
use crate::health;
use crate::lane::Axis;
use crate::number;

/// Small charts of one finding.
const MOST: usize = 4;

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Bytes a second, as bits.
    Bits,
    /// A number a second.
    PerSecond,
    /// A share of one.
    Share,
    /// Nanoseconds.
    Time,
    /// A plain number.
    Count,
}

impl Write {
    /// A value with its unit.
    pub(crate) fn text(self, value: Option<f64>) -> String {
        let Some(value) = value else { return number::UNKNOWN.to_owned() };
        match self {
            Self::Bits => format!("{}b/s", number::bits(Some(value)).replace("  ", " ")),
            Self::PerSecond => format!("{}/s", number::per_second(Some(value))),
            Self::Share if value > 0.0 && value < 0.0005 => format!("{value:.0e}"),
            Self::Share => format!("{:.2}%", value * 100.0),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time is not negative")]
            Self::Time => number::short_time(value as u64),
            Self::Count => number::per_second(Some(value)),
        }
    }
}

/// One history on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct History {
    /// The evidence's name, where it shows just that.
    pub(crate) name: String,
    /// A value a cell.
    pub(crate) values: Vec<Option<f64>>,
    /// How they are written.
    pub(crate) write: Write,
}

/// The histories behind a finding, in the order of its evidence; what the port carried meanwhile comes last.
pub(crate) fn histories(world: &World, finding: &Finding, axis: &Axis) -> Vec<History> {
    let Some(port) = health::port_of(world, finding) else { return Vec::new() };
    let mut found: Vec<History> = Vec::new();
    for row in &finding.evidence {
        if found.len() + 1 >= MOST {
            break;
        }
        let history = of_counter(port, &row.series, axis).or_else(|| in_words(world, port, finding, &row.series, axis));
        let Some(history) = history else { continue };
        // Two names for the same numbers are one chart; what was never known is none.
        let new = !found.iter().any(|old| old.values == history.values);
        if new && history.values.iter().any(Option::is_some) {
            found.push(history);
        }
    }
    let carried = |name: &str, meaning| History {
        name: name.to_owned(),
        values: port.rates.get(&meaning).map_or_else(Vec::new, |ring| axis.values(ring)),
        write: Write::Bits,
    };
    for carried in [carried("received", Meaning::RxBytes), carried("sent", Meaning::TxBytes)] {
        let shown = found.iter().any(|old| old.write == Write::Bits);
        if !shown && carried.values.iter().any(Option::is_some) {
            found.push(carried);
        }
    }
    found
}

/// A counter's own history, under its own name: of its meaning, or else the times at which it grew.
fn of_counter(port: &PortRecord, name: &str, axis: &Axis) -> Option<History> {
    // What the evidence made of it has another unit.
    let name = name.split(", ").next().unwrap_or(name);
    let series = port.counter(name)?;
    let alone = |meaning: &Meaning| port.series_of(*meaning).count() == 1;
    if let Some(ring) = series.def.meaning.filter(alone).and_then(|meaning| port.rates.get(&meaning)) {
        let values = axis.values(ring);
        let (values, write) = match series.def.unit {
            Unit::Bytes | Unit::Words4 => (values, Write::Bits),
            Unit::Microseconds => (of_time(values), Write::Share),
            _ => (values, Write::PerSecond),
        };
        return Some(History { name: name.to_owned(), values, write });
    }
    let changes = series.changes_since(axis.from()).filter_map(|(t, n)| Some((t, n? as f64)));
    let values = summed(axis, series.known_since().unwrap_or(axis.now), changes);
    Some(History { name: name.to_owned(), values, write: Write::Count })
}

fn in_words(world: &World, port: &PortRecord, finding: &Finding, name: &str, axis: &Axis) -> Option<History> {
    let (name, of) = known(name)?;
    let ring = |meaning| port.rates.get(&meaning).map(|ring| axis.values(ring));
    let (values, write) = match of {
        Of::Rate(meanings, write) => (together(port, meanings, axis)?, write),
        Of::Sum(meaning) => (summed_up(world, finding, meaning, axis)?, Write::Bits),
        Of::Busier => {
            let carried = |meaning| port.rates.get(&meaning).map(|ring| (ring, sum_of(ring, axis.windows)));
            let both = [carried(Meaning::TxBytes), carried(Meaning::RxBytes)];
            // Of two alike the first, as the rule has it.
            let busier = both.into_iter().flatten().reduce(|a, b| if b.1 > a.1 { b } else { a })?;
            (axis.values(busier.0), Write::Bits)
        }
        Of::Ratio(some, all) => {
            let whole = ring(all)?;
            let ratio = |(some, all): (Option<f64>, Option<f64>)| {
                some.zip(all).filter(|(_, all)| *all > 0.0).map(|(some, all)| some / all)
            };
            (together(port, some, axis)?.into_iter().zip(whole).map(ratio).collect(), Write::Share)
        }
        Of::Paused(meaning) => (of_time(ring(meaning)?), Write::Share),
        Of::Posted(pick, write) => {
            let windows = port.posting.newest_first().take_while(|window| window.t > axis.from());
            (averaged(axis, windows.filter_map(|window| Some((window.t, pick(window)?)))), write)
        }
        Of::Latency(class, q) => {
            let quantile = |window: &LatencyWindow| Some((window.t, window.quantile_ns(q)?));
            (averaged(axis, port.latencies.since(class, axis.from()).filter_map(quantile)), Write::Time)
        }
        Of::Loopback => {
            let measured = port.loopbacks.since(axis.from());
            (averaged(axis, measured.map(|(t, sample)| (*t, sample.p50_ns as f64))), Write::Time)
        }
        Of::Failures => {
            let its = world.qp_failures.since(axis.from()).filter(|(_, failure)| {
                let here = failure.port.is_none_or(|number| number == port.key.port);
                failure.device == port.key.device && here && !failure.asked
            });
            (summed(axis, world.started, its.map(|(t, _)| (*t, 1.0))), Write::Count)
        }
        Of::Aer(severity) => {
            let function = match &finding.key {
                SubjectKey::Pci(pci) => world.pcie.get(pci),
                _ => world.function_of(port).and_then(|pci| world.pcie.get(pci)),
            };
            (aer(function?, severity, world.started, axis), Write::Count)
        }
    };
    Some(History { name: name.to_owned(), values, write })
}

/// Rates of several meanings together, of those that are counted: what a rule adds up it adds up so. `None` where none is.
fn together(port: &PortRecord, meanings: &[Meaning], axis: &Axis) -> Option<Vec<Option<f64>>> {
    let add = |(a, b): (Option<f64>, Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    let rings = meanings.iter().filter_map(|meaning| Some(axis.values(port.rates.get(meaning)?)));
    rings.reduce(|sum, one| sum.into_iter().zip(one).map(add).collect())
}

/// What the newest windows come to.
fn sum_of(ring: &Ring, windows: usize) -> f64 {
    ring.newest_first().take(windows).flatten().sum()
}

/// Microseconds a second as a share of time.
fn of_time(values: Vec<Option<f64>>) -> Vec<Option<f64>> {
    values.into_iter().map(|us| us.map(|us| us / 1e6)).collect()
}

/// The sum over the ports that the evidence has a row of; unknown where one of them is. `None` where it names none.
fn summed_up(world: &World, finding: &Finding, meaning: Meaning, axis: &Axis) -> Option<Vec<Option<f64>>> {
    let named = |device: &str, number: u32| {
        let name = format!("{device}/{number} ");
        finding.evidence.iter().any(|row| row.series.starts_with(&name))
    };
    let ports = world.present_ports().filter(|(device, port)| named(&device.name, port.key.port));
    let rings = ports.map(|(_, port)| port.rates.get(&meaning).map(|ring| axis.values(ring)));
    let add = |sum: Vec<Option<f64>>, one: Vec<Option<f64>>| {
        sum.into_iter().zip(one).map(|(sum, one)| Some(sum? + one?)).collect()
    };
    rings.collect::<Option<Vec<_>>>()?.into_iter().reduce(add)
}

/// AER errors of a function by time: reported ones, or where none were the growth of its totals.
fn aer(record: &PcieRecord, severity: Option<AerSeverity>, since: u64, axis: &Axis) -> Vec<Option<f64>> {
    let wanted = |s: AerSeverity| severity.is_none_or(|severity| severity == s);
    let reported = record.events.since(axis.from()).filter(|(_, event)| wanted(event.severity));
    let reported: Vec<(u64, f64)> = reported.map(|(t, _)| (*t, 1.0)).collect();
    if !reported.is_empty() {
        return summed(axis, since, reported.into_iter());
    }
    let counted =
        record.growth.since(axis.from()).filter(|(_, (s, name, _))| wanted(*s) && !name.starts_with("TOTAL_"));
    summed(axis, since, counted.map(|(t, (_, _, n))| (*t, *n as f64)))
}

/// What came in each cell; nothing came where somebody watched, unknown is what was before `since`.
fn summed(axis: &Axis, since: u64, events: impl Iterator<Item = (u64, f64)>) -> Vec<Option<f64>> {
    // Before the beginning of time nobody watched.
    let watched = |cell: u16| (axis.time(cell) >= since.max(1)).then_some(0.0);
    let mut values: Vec<Option<f64>> = (0..axis.width).map(watched).collect();
    for (t, n) in events {
        if let Some(value) = axis.cell(t).and_then(|cell| values.get_mut(usize::from(cell))) {
            *value = Some(value.unwrap_or(0.0) + n);
        }
    }
    values
}

/// The mean of what was measured in each cell; a cell shorter than the time between two measurements has the one before.
fn averaged(axis: &Axis, samples: impl Iterator<Item = (u64, f64)>) -> Vec<Option<f64>> {
    let mut sums: Vec<(f64, u32)> = vec![(0.0, 0); usize::from(axis.width)];
    for (t, value) in samples {
        if let Some(sum) = axis.cell(t).and_then(|cell| sums.get_mut(usize::from(cell))) {
            *sum = (sum.0 + value, sum.1 + 1);
        }
    }
    let window = usize::from(axis.width).div_ceil(axis.windows.max(1));
    let mut last: Option<(usize, f64)> = None;
    let mut values = Vec::with_capacity(sums.len());
    for (cell, (sum, n)) in sums.into_iter().enumerate() {
        if n > 0 {
            last = Some((cell, sum / f64::from(n)));
        }
        values.push(last.filter(|(at, _)| cell - at < window.max(1)).map(|(_, value)| value));
    }
    values
}

/// A chart that bears the name of evidence has its unit, or counts a second what that counts: told otherwise.
#[cfg(test)]
pub(crate) fn misnamed(world: &World, finding: &Finding) -> Vec<String> {
    let axis = Axis::new(world.now, 120, world.window_ns, 60);
    let alike = |write: Write, unit: &str| match write {
        Write::Bits => unit == "Gb/s" || unit == "bytes",
        Write::Share => ["share", "share of time", "percent", "microseconds"].contains(&unit),
        Write::Time => unit == "ns" || unit == "µs",
        Write::PerSecond | Write::Count => {
            let of_things =
                |unit: &str| !["Gb/s", "share", "share of time", "percent", "ns", "µs", "s"].contains(&unit);
            of_things(unit) && (write == Write::PerSecond || !unit.ends_with("/s"))
        }
    };
    let its = |history: &History| finding.evidence.iter().find(|row| row.series == history.name).cloned();
    let charts = histories(world, finding, &axis).into_iter();
    let wrong =
        charts.filter_map(|chart| Some((its(&chart)?, chart))).filter(|(row, chart)| !alike(chart.write, &row.unit));
    wrong
        .map(|(row, chart)| format!("{}: {} in {}, charted as {:?}", finding.id(), row.series, row.unit, chart.write))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use collector::inventory::{PortKey, QpFailure};
    use std::sync::Arc;

    const AXIS: Axis = Axis { now: 10_000_000_000, windows: 10, window_ns: 1_000_000_000, width: 10 };

    #[test]
    fn nothing_is_zero_where_somebody_watched_and_unknown_before() {
        let values = summed(&AXIS, 5_000_000_000, [(7_500_000_000, 2.0), (7_600_000_000, 1.0)].into_iter());
        assert_eq!(values[2], None);
        assert_eq!(values[9], Some(0.0));
        assert!((values.iter().flatten().sum::<f64>() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_measurement_stands_for_its_own_window_only() {
        let wide = Axis { width: 30, ..AXIS };
        let values = averaged(&wide, [(5_000_000_000, 7.0)].into_iter());
        assert_eq!(values.iter().flatten().count(), 3);
    }

    #[test]
    fn a_share_too_small_for_two_digits_is_not_zero() {
        assert_eq!(Write::Share.text(Some(2e-6)), "2e-6");
        assert_eq!(Write::Share.text(Some(0.0)), "0.00%");
        assert_eq!(Write::Share.text(None), "–");
    }

    #[test]
    fn a_chart_that_shows_something_else_than_the_evidence_says_so() {
        let world = crate::sample::faulty();
        let axis = Axis::new(world.now, 60, world.window_ns, 60);
        let finding = &world.findings[0];
        let mut port = (*world.ports[0]).clone();
        for meaning in [Meaning::PreFecCorrectedBits, Meaning::PostFecErrors] {
            port.rates.or_default(meaning).push(Some(7.0));
        }
        let chart = |name| in_words(&world, &port, finding, name, &axis).map(|history| history.name);
        assert_eq!(chart("pre-FEC bit error ratio").as_deref(), Some("bits that FEC corrected"));
        assert_eq!(chart("pre-FEC bit error ratio, baseline").as_deref(), Some("bits that FEC corrected"));
        assert_eq!(chart("pre-FEC bit error ratio, limit of KP4"), None);
        assert_eq!(chart("errors after FEC").as_deref(), Some("errors after FEC"));
        let name = port.sets[0].series[0].name.to_string();
        let chart = of_counter(&port, &format!("{name}, bit error ratio of the lane"), &axis);
        assert_eq!(chart.map(|history| history.name), Some(name));
    }

    #[test]
    fn what_a_rule_adds_up_its_chart_adds_up() {
        let world = crate::sample::faulty();
        let axis = Axis::new(world.now, 60, world.window_ns, 60);
        let mut port = (*world.ports[0]).clone();
        let rates = [
            (Meaning::EcnMarkedRx, 1.0),
            (Meaning::HostMarked, 2.0),
            (Meaning::CnpSent, 4.0),
            (Meaning::CnpHandled, 8.0),
            (Meaning::CnpIgnored, 16.0),
            (Meaning::TxPackets, 96.0),
            (Meaning::OutOfSequence, 32.0),
            (Meaning::SequenceNak, 64.0),
            (Meaning::RxBytes, 128.0),
            (Meaning::TxBytes, 1024.0),
        ];
        port.rates.clear();
        for (meaning, rate) in rates {
            port.rates.or_default(meaning).push(Some(rate));
        }
        let chart = |name: &str| {
            let history = in_words(&world, &port, &world.findings[0], name, &axis)?;
            Some((history.name, history.write, history.values.last().copied().flatten()?))
        };
        let is = |name: &str, write, value| Some((name.to_owned(), write, value));
        let own = |name: &str, value| assert_eq!(chart(name), is(name, Write::PerSecond, value), "{name}");
        own("packets marked by the NIC", 2.0);
        own("CNPs sent", 4.0);
        own("CNPs handled", 8.0);
        own("CNPs handled and ignored here", 24.0);
        // What is not counted is not added.
        own("packets out of sequence, discarded, NAKed", 96.0);
        let ratio = "CNPs received / packets sent";
        assert_eq!(chart(ratio), is(ratio, Write::Share, 0.25));
        assert_eq!(chart("received share of the rate"), is("received", Write::Bits, 128.0));
        assert_eq!(chart("throughput, mean"), is("throughput", Write::Bits, 1024.0));
        assert_eq!((chart("CNPs sent by the peer"), chart("packets received with CE, ever")), (None, None));
    }

    #[test]
    fn a_qp_that_was_moved_on_purpose_is_in_no_chart_of_those_nobody_asked_for() {
        let mut world = (*crate::sample::faulty()).clone();
        let (_, of_port) = world.qp_failures.iter().find(|(_, failure)| !failure.asked).cloned().unwrap();
        let port = world.port(PortKey { device: of_port.device, port: of_port.port.unwrap() }).unwrap().clone();
        let axis = Axis::new(world.now, 60, world.window_ns, 60);
        let chart = |world: &World| {
            let name = "QPs in ERR that nobody was seen asking for";
            let values = in_words(world, &port, &world.findings[0], name, &axis).unwrap().values;
            values.iter().flatten().sum::<f64>()
        };
        let before = chart(&world);
        let failures = Arc::make_mut(&mut world.qp_failures);
        failures.push(world.now, QpFailure { asked: true, ..of_port.clone() });
        assert!((chart(&world) - before).abs() < 0.1);
        let failures = Arc::make_mut(&mut world.qp_failures);
        failures.push(world.now, of_port);
        assert!((chart(&world) - before - 1.0).abs() < 0.1);
    }

    #[test]
    fn no_chart_of_the_sample_bears_the_name_of_something_else() {
        let world = crate::sample::faulty();
        let wrong: Vec<String> =
            world.findings.iter().chain(&world.cleared).flat_map(|finding| misnamed(&world, finding)).collect();
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn a_sum_is_that_of_the_ports_the_evidence_names() {
        let world = crate::sample::healthy();
        let axis = Axis::new(world.now, 60, world.window_ns, 60);
        let mut finding = (*crate::sample::faulty().findings[0]).clone();
        let row = finding.evidence[0].clone();
        let named = |series: &str| collector::finding::Evidence { series: series.into(), ..row.clone() };
        finding.evidence = ["sum sent", "mlx5_0/1 sent", "mlx5_2/1 sent"].map(named).into();
        let sum = summed_up(&world, &finding, Meaning::TxBytes, &axis).unwrap();
        let one = |at: usize| axis.values(&world.ports[at].rates[&Meaning::TxBytes]).last().copied().flatten().unwrap();
        let port = |name: &str| world.present_ports().position(|(device, _)| &*device.name == name).unwrap();
        let expected = one(port("mlx5_0")) + one(port("mlx5_2"));
        assert!((sum.last().copied().flatten().unwrap() - expected).abs() < 1.0);
    }
}
