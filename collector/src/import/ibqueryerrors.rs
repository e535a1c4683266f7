//! `ibqueryerrors`, and the warnings it and its kin write about nodes that do not answer.
//!
//! ```text
//! Errors for "node1 mlx5_0"
//!    GUID 0x20 port ALL: [LinkDownedCounter == 25 (25.000)] [PortXmitWait == 14681376621 (13.673G)]
//! ```
//!
//! What stands in parentheses is the number once more, rounded and in binary units; it is left out. A node is named by
//! its GUID, never by a local name. `ALL` is the sum over the node's ports: port 255, as the PMA has it.

use super::pma::{ALL_PORTS, sysfs_name};
use super::section::{Claim, Format, Section};
use super::sink::Sink;
use crate::observation::{Body, CounterSource, Counters, Device, LinkLayer, Pairs, Port};

/// Whether a line begins a section.
pub(super) fn claim(line: &str) -> Claim {
    if node(line).is_some() || warning(line).is_some() { Claim::Begins(Format::Ibqueryerrors) } else { Claim::No }
}

/// A line of the frame around the errors.
pub(super) fn continues(line: &str) -> bool {
    let line = line.trim_start();
    ["Errors for ", "Link info:", "## ", "Suppressed:", "Thresholds:"].iter().any(|start| line.starts_with(start))
}

/// GUID, port and the counters of a line.
fn node(line: &str) -> Option<(u64, u32, Pairs<'static, u64>)> {
    let rest = line.trim_start().strip_prefix("GUID 0x")?;
    let (guid, rest) = rest.split_once(" port ")?;
    let (port, rest) = rest.split_once(':')?;
    let port = if port.trim() == "ALL" { ALL_PORTS } else { port.trim().parse().ok()? };
    let mut values = Pairs::with_capacity(8);
    for part in rest.split('[').skip(1) {
        let Some((name, value)) = part.split_once("==") else { continue };
        let digits = value.trim_start();
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        if let (Some(name), Ok(number)) = (sysfs_name(name.trim()), digits[..end].parse::<u64>()) {
            values.push(name.to_owned(), number);
        }
    }
    Some((u64::from_str_radix(guid, 16).ok()?, port, values))
}

/// What a warning says, in a sentence.
fn warning(line: &str) -> Option<String> {
    if let Some(rest) = line.trim_start().strip_prefix("ibwarn: [") {
        let (_, rest) = rest.split_once("] ")?;
        return Some(format!("the tool warns: {}", rest.trim()));
    }
    let (_, rest) = line.split_once("umad (")?;
    let (path, rest) = rest.split_once(") bad status ")?;
    let (status, why) = rest.split_once(';').unwrap_or((rest, ""));
    let why = if why.trim().is_empty() { String::new() } else { format!(" ({})", why.trim()) };
    Some(format!("unreachable: {path}: status {}{why}", status.trim()))
}

/// Reads a section.
pub(super) fn read(section: &Section<'_>, sink: &mut Sink<'_>) {
    let mut named: Option<&str> = None;
    for line in &section.lines {
        if let Some(warning) = warning(line) {
            sink.note(warning);
        } else if let Some((guid, port, values)) = node(line) {
            say(guid, port, values, named, sink);
        } else if let Some(rest) = line.trim_start().strip_prefix("Errors for ") {
            named = rest.split('"').nth(1);
        }
    }
}

fn say(guid: u64, port: u32, values: Pairs<'static, u64>, named: Option<&str>, sink: &mut Sink<'_>) {
    let device = format!("GUID {guid:#x}");
    let hex = format!("{guid:016x}");
    let parts: Vec<&str> = (0..4).map(|i| &hex[i * 4..i * 4 + 4]).collect();
    sink.say(Body::Device(Device {
        device: device.clone().into(),
        node_guid: Some(parts.join(":").into()),
        model: named.map(|name| name.to_owned().into()),
        ..Device::default()
    }));
    let link_layer = LinkLayer::InfiniBand;
    sink.say(Body::Port(Port { device: device.clone().into(), port, link_layer, ..Port::default() }));
    let source = CounterSource::Counters;
    sink.counters(Counters { device: device.into(), port: Some(port), source, values, ..Counters::default() });
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;

    #[test]
    fn the_number_is_taken_and_what_stands_in_parentheses_is_not() {
        let line =
            " GUID 0x20 port ALL: [LinkDownedCounter == 25 (25.000)] [PortXmitWait == 14681376621 (13.673G)] [x]";
        let (guid, port, values) = node(line).unwrap();
        assert_eq!((guid, port, values.len()), (0x20, 255, 2));
        assert_eq!((values.get("link_downed"), values.get("port_xmit_wait")), (Some(&25), Some(&14_681_376_621)));
        assert_eq!(node("GUID 0x7 port 12: [SymbolErrorCounter == 1]").unwrap().1, 12);
        assert!(node("GUID 0xzz port 1: [a == 1]").is_none());
    }

    #[test]
    fn a_node_that_does_not_answer_is_a_note_and_aborts_nothing() {
        let text = "src/query_smp.c:195; umad (DR path slid 0; dlid 0; 0,1,13 Attr 0x11:0) bad status 110; Connection timed out\n\
                    ibwarn: [1203] query_and_dump: PortXmitDiscardDetails query failed on node-x, Lid 1051 port 1\n\
                    Errors for \"sw1\"\n   GUID 0x7 port 12: [SymbolErrorCounter == 1]\n";
        let read = read_text("x.txt", text);
        assert!(read.notes[0].contains("unreachable") && read.notes[0].contains("Connection timed out"));
        assert_eq!(read.notes.len(), 2);
        let Body::Device(device) = &read.found[0].body else { panic!("{read:?}") };
        assert_eq!(device.node_guid.as_deref(), Some("0000:0000:0000:0007"));
        assert_eq!(device.model.as_deref(), Some("sw1"));
    }
}
