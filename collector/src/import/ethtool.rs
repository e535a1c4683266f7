//! `ethtool -S NETDEV`.
//!
//! A line is a name, a colon and a number, indented (`     tx_bytes_phy: 61000`), below the heading `NIC statistics:`.
//! Drivers with queues write `[0]: rx_packets: 7`: the last colon is the one before the number. The network device is
//! in the call before the output, or in the file's name: `ethtool-S.eth0.txt`.

use super::machine::Netdev;
use super::section::{Claim, Format, Section};
use super::sink::Sink;
use crate::observation::{Body, CounterSource, Counters, Pairs, Port, Text};

/// Whether a line begins a section, or is one's first line although the heading is missing.
pub(super) fn claim(line: &str, open: Option<Format>, command: Option<&str>, file: &str) -> Claim {
    let named = || netdev_of_file(file).is_some() || command.is_some_and(|command| command.starts_with("ethtool"));
    let headless = || open.is_none() && line.starts_with([' ', '\t']) && continues(line) && named();
    if line.trim() == "NIC statistics:" || headless() { Claim::Begins(Format::Ethtool) } else { Claim::No }
}

/// A line of a section: a name, a colon, and what is no sentence.
pub(super) fn continues(line: &str) -> bool {
    line.rsplit_once(':').is_some_and(|(name, value)| {
        !name.trim().is_empty() && !value.trim().is_empty() && value.split_whitespace().count() == 1
    })
}

/// `ethtool-S.eth0.txt`, `ethtool_-S_eth0`, `ethtool.eth0.log`: the network device in a file's name.
fn netdev_of_file(file: &str) -> Option<&str> {
    let rest = file.strip_prefix("ethtool")?.trim_start_matches(['-', '_', '.', ' ']);
    let rest = rest.strip_prefix('S').filter(|rest| rest.starts_with(['-', '_', '.', ' '])).unwrap_or(rest);
    let rest = rest.trim_start_matches(['-', '_', '.', ' ']);
    let ends = [".zst", ".gz", ".txt", ".log", ".out"];
    let rest = ends.iter().fold(rest, |rest, end| rest.strip_suffix(end).unwrap_or(rest));
    (!["", "S", "txt", "log", "out"].contains(&rest) && !rest.contains(' ')).then_some(rest)
}

/// The network device in the call: the last word that is no flag.
fn netdev_of_command(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace().skip(1);
    words.find(|word| !word.starts_with('-') && !word.starts_with(['|', '>', '<', '2']))
}

/// Reads a section.
pub(super) fn read(section: &Section<'_>, file: &str, sink: &mut Sink<'_>) -> Result<(), String> {
    let netdev = section.command.and_then(netdev_of_command).or_else(|| netdev_of_file(file));
    let Some(netdev) = netdev else {
        return Err("the network device is neither in a call before the output nor in the file's name".to_owned());
    };
    let (device, port) = match sink.machine.netdev(netdev) {
        Netdev::Port(device, port) => (device, port),
        Netdev::NoRdma => return Err(format!("no RDMA port has the network device {netdev}")),
        Netdev::Unknown => {
            // Which RDMA port it is, or whether it is one, nobody says: it has its own name and no other.
            let of = Port { device: netdev.to_owned().into(), port: 1, ..Port::default() };
            sink.say(Body::Port(Port { netdevs: vec![netdev.to_owned().into()], ..of }));
            (netdev.to_owned(), 1)
        }
    };
    let (values, unavailable) = parse(&section.lines);
    if values.is_empty() && unavailable.is_empty() {
        return Err("no line with a counter".to_owned());
    }
    sink.counters(Counters {
        device: device.into(),
        port: Some(port),
        netdev: Some(netdev.to_owned().into()),
        source: CounterSource::Ethtool,
        values,
        unavailable,
        ..Counters::default()
    });
    Ok(())
}

/// Counters that were read, and by name the text of those that are no number.
fn parse(lines: &[&str]) -> (Pairs<'static, u64>, Pairs<'static, Text<'static>>) {
    let (mut values, mut unavailable) = (Pairs::with_capacity(64), Pairs::with_capacity(0));
    for line in lines {
        let Some((name, value)) = line.rsplit_once(':') else { continue };
        let (name, value) = (name.trim().to_owned(), value.trim());
        if name.is_empty() || value.is_empty() {
            continue;
        }
        match value.parse::<u64>() {
            Ok(number) => values.push(name, number),
            Err(_) => unavailable.push(name, value.to_owned().into()),
        }
    }
    (values, unavailable)
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;

    #[test]
    fn each_line_is_a_counter_and_what_is_no_number_is_unavailable_with_its_text() {
        let lines = ["NIC statistics:", "     tx_bytes_phy: 61000", "     [0]: rx_ucast: 7", "     temperature: n/a"];
        let (values, unavailable) = parse(&lines);
        assert_eq!((values.get("tx_bytes_phy"), values.get("[0]: rx_ucast")), (Some(&61000), Some(&7)));
        assert_eq!(unavailable.get("temperature").map(|text| &**text), Some("n/a"));
        assert_eq!((values.len(), unavailable.len()), (2, 1));
    }

    #[test]
    fn the_network_device_is_in_the_call_or_in_the_files_name() {
        for file in ["ethtool-S.eth0.txt", "ethtool_S_eth0.txt", "ethtool -S eth0", "ethtool.eth0.log"] {
            assert_eq!(netdev_of_file(file), Some("eth0"), "{file}");
        }
        assert_eq!(netdev_of_file("ethtool-S.txt"), None);
        assert_eq!(netdev_of_command("ethtool -S enp1s0f0np0 | grep phy"), Some("enp1s0f0np0"));
        let read = read_text("x.txt", "+ ethtool -S eth7\nNIC statistics:\n   a: 1\n");
        let Body::Counters(set) = &read.found[1].body else { panic!("{read:?}") };
        assert_eq!((&*set.device, set.netdev.as_deref(), set.values.get("a")), ("eth7", Some("eth7"), Some(&1)));
        assert!(read_text("x.txt", "NIC statistics:\n   a: 1\n").found.is_empty(), "of which device?");
    }

    #[test]
    fn output_without_its_heading_is_known_by_the_files_name() {
        assert_eq!(read_text("ethtool-S.eth0.txt", "  a: 1\n  b: 2\n").found.len(), 2);
        assert_eq!(read_text("notes.txt", "  a: 1\n  b: 2\n").found.len(), 0);
    }
}
