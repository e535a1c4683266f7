//! A table of port states over time, comma separated with a heading, as pollers keep it:
//! `time,device,port,state,link_downed`. Columns may stand in any order; those that name a counter of sysfs are counters.

use super::calendar;
use super::moment::Clock;
use super::section::{Claim, Format, Section};
use super::sink::Sink;
use crate::observation::{Body, CounterSource, Counters, Pairs, Port, PortState};

/// Whether a line is the heading.
pub(super) fn claim(line: &str) -> Claim {
    let columns: Vec<&str> = line.trim().split(',').map(str::trim).collect();
    let has = |name: &str| columns.contains(&name);
    let head = has("time") && has("device") && has("port") && columns.len() > 3;
    if head { Claim::Begins(Format::PortSeries) } else { Claim::No }
}

/// A line of the table.
pub(super) fn continues(line: &str) -> bool {
    line.contains(',')
}

/// Reads a table.
pub(super) fn read(section: &Section<'_>, sink: &mut Sink<'_>) {
    let mut lines = section.lines.iter();
    let columns: Vec<&str> =
        lines.next().map(|line| line.trim().split(',').map(str::trim).collect()).unwrap_or_default();
    let mut bad = 0u64;
    for line in lines {
        if row(&columns, line, sink).is_none() {
            bad += 1;
        }
    }
    if bad > 0 {
        sink.note(format!("{bad} rows without a time, a device or a port were passed over"));
    }
}

fn row(columns: &[&str], line: &str, sink: &mut Sink<'_>) -> Option<()> {
    let cells: Vec<&str> = line.trim().split(',').map(str::trim).collect();
    let cell = |name: &str| columns.iter().position(|column| *column == name).and_then(|at| cells.get(at)).copied();
    let time = cell("time")?;
    let clock = match calendar::iso(time) {
        Some((t, _)) => Clock::Wall(t),
        None => Clock::Relative(super::seconds(time)?),
    };
    let (device, port) = (cell("device").filter(|name| !name.is_empty())?, cell("port")?.parse().ok()?);
    sink.machine.port_named(device, port);
    if let Some(state) = cell("state") {
        let state = match state.rsplit(": ").next().unwrap_or(state) {
            "DOWN" => PortState::Down,
            "INIT" => PortState::Init,
            "ARMED" => PortState::Armed,
            "ACTIVE" => PortState::Active,
            _ => PortState::Unknown,
        };
        let phys = cell("phys_state").map(|phys| phys.rsplit(": ").next().unwrap_or(phys).to_owned().into());
        let of = Port { device: device.to_owned().into(), port, state, phys_state: phys, ..Port::default() };
        sink.say_at(clock, Body::Port(of));
    }
    let mut values = Pairs::with_capacity(4);
    let own = ["time", "device", "port", "state", "phys_state"];
    for (name, value) in columns.iter().zip(&cells).filter(|(name, _)| !own.contains(*name)) {
        if let Ok(number) = value.parse::<u64>() {
            values.push((*name).to_owned(), number);
        }
    }
    if !values.is_empty() {
        let source = CounterSource::Counters;
        let set =
            Counters { device: device.to_owned().into(), port: Some(port), source, values, ..Counters::default() };
        sink.say_at(clock, Body::Counters(set));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;

    #[test]
    fn a_row_is_a_state_and_counters_at_its_time() {
        let text = "time,device,port,state,link_downed\n1970-01-01T00:00:07Z,mlx5_4,1,1: DOWN,3\nsoon,mlx5_4,1,x,1\n";
        let read = read_text("series.csv", text);
        let Body::Port(port) = &read.found[0].body else { panic!("{read:?}") };
        assert_eq!((port.state, read.found[0].moment.clock), (PortState::Down, Clock::Wall(7_000_000_000)));
        let Body::Counters(set) = &read.found[1].body else { panic!("{read:?}") };
        assert_eq!(set.values.get("link_downed"), Some(&3));
        assert!(read.notes[0].starts_with("1 rows"));
    }
}
