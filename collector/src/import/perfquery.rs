//! `perfquery`: a heading that names the port by its LID, then a name, dots and a number a line.
//!
//! ```text
//! # Port extended counters: Lid 1719 port 1 (CapMask: 0x5300 CapMask2: 0x0000002)
//! PortXmitData:....................36298026860928
//! ```
//!
//! A LID is a port of the fabric, not of this machine, and several fabrics have the same LIDs: the device is named `lid
//! 1719` and nothing else. A file without output is a port that gave no answer.

use super::pma::{ALL_PORTS, sysfs_name};
use super::section::{Claim, Format, Section};
use super::sink::Sink;
use crate::observation::{CounterSource, Counters, LinkLayer, Pairs, Port};

/// Whether a line begins a section.
pub(super) fn claim(line: &str) -> Claim {
    if heading(line).is_some() { Claim::Begins(Format::Perfquery) } else { Claim::No }
}

/// A line of a section.
pub(super) fn continues(line: &str) -> bool {
    counter(line).is_some()
}

/// LID and port of a heading of counters.
fn heading(line: &str) -> Option<(u32, u32)> {
    let rest = line.trim_start().strip_prefix("# Port ")?;
    let (kind, rest) = rest.split_once(": Lid ")?;
    if !kind.ends_with("ounters") {
        return None;
    }
    let mut words = rest.split_whitespace();
    let lid = words.next()?.parse().ok()?;
    let port = words.next().filter(|word| *word == "port").and_then(|_| words.next())?;
    Some((lid, port.parse().unwrap_or(ALL_PORTS)))
}

/// Name and number of a line.
fn counter(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(":.")?;
    let value = value.trim_start_matches('.').trim();
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (plain && !value.is_empty() && !value.contains(' ')).then_some((name, value))
}

/// Reads a section.
pub(super) fn read(section: &Section<'_>, sink: &mut Sink<'_>) -> Result<(), String> {
    let mut place = None;
    let mut values = Pairs::with_capacity(24);
    let mut any = false;
    for line in &section.lines {
        if let Some(next) = heading(line) {
            any |= flush(place.replace(next), &mut values, sink);
        } else if let Some((name, number)) = counter(line)
            && let (Some(name), Ok(number)) = (sysfs_name(name), number.parse::<u64>())
        {
            values.push(name.to_owned(), number);
        }
    }
    any |= flush(place, &mut values, sink);
    if any { Ok(()) } else { Err("a heading and no counter".to_owned()) }
}

fn flush(place: Option<(u32, u32)>, values: &mut Pairs<'static, u64>, sink: &mut Sink<'_>) -> bool {
    let values = std::mem::take(values);
    let Some((lid, port)) = place.filter(|_| !values.is_empty()) else { return false };
    let device = format!("lid {lid}");
    let link_layer = LinkLayer::InfiniBand;
    let of = Port { device: device.clone().into(), port, link_layer, lid: Some(lid), ..Port::default() };
    sink.say(crate::observation::Body::Port(of));
    let source = CounterSource::Counters;
    sink.counters(Counters { device: device.into(), port: Some(port), source, values, ..Counters::default() });
    true
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;
    use crate::observation::Body;

    fn sets(text: &str) -> Vec<(Counters<'static>, u32)> {
        let found = read_text("x.txt", text).found;
        let set = |f: super::super::sink::Found| {
            if let Body::Counters(set) = f.body { Some((set, f.moment.order)) } else { None }
        };
        found.into_iter().filter_map(set).collect()
    }

    #[test]
    fn two_ports_in_one_output_are_two_sets_and_selectors_are_no_counters() {
        let text = "# Port extended counters: Lid 1719 port 1 (CapMask: 0x5300 CapMask2: 0x0000002)\n\
                    PortSelect:......................1\nCounterSelect:...................0x0000\n\
                    PortXmitData:....................36298026860928\nPortXmitWait:....................14681376621\n\
                    QP1Dropped:......................0\n\
                    # Port counters: Lid 1719 port 2\nXmtData:.........................5\nSymbolErrors:....3\n";
        let all = sets(text);
        let (first, second) = (&all[0].0, &all[1].0);
        assert_eq!((&*first.device, first.port, second.port), ("lid 1719", Some(1), Some(2)));
        assert_eq!(first.values.get("port_xmit_data"), Some(&36_298_026_860_928));
        assert_eq!(first.values.get("port_xmit_wait"), Some(&14_681_376_621));
        assert_eq!((first.values.len(), first.values.get("QP1Dropped")), (3, Some(&0)));
        assert_eq!((second.values.get("port_xmit_data"), second.values.get("symbol_error")), (Some(&5), Some(&3)));
    }

    #[test]
    fn two_readings_of_a_port_keep_their_order() {
        let block = |n: u32| format!("# Port counters: Lid 5 port 1 (x)\nPortXmitData:....{n}\n");
        let all = sets(&(block(1) + &block(9)));
        assert_eq!((all[0].1, all[1].1), (0, 1));
    }

    #[test]
    fn the_sum_over_all_ports_has_the_number_the_pma_gives_it() {
        assert_eq!(heading("# Port counters: Lid 2 port 255 (CapMask: 0x00)"), Some((2, 255)));
        assert_eq!(heading("# Port PFC counters"), None);
        assert_eq!(counter("PortXmitData:....................n/a now"), None);
    }
}
