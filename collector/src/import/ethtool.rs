//! Saved output of `ethtool -S NETDEV`, beside a tree in a file named `ethtool-S.NETDEV.txt`.
//!
//! A line is a name, a colon and a number, indented (`     tx_bytes_phy: 61000`); the heading `NIC statistics:` has no
//! number. Drivers with queues write `[0]: rx_packets: 7`: the last colon is the one before the number.

use std::collections::BTreeMap;
use std::path::Path;

use crate::observation::{Body, CounterSource, Counters, Nanos, Observation, Pairs};
use crate::source::Emit;

/// Which port a network device belongs to, as the tree's ports say: device and port number.
pub(super) type PortsByNetdev = BTreeMap<String, (String, u32)>;

/// Emits a counter set for each such file in a directory, and says which could not be used.
pub(super) fn emit_beside(dir: &Path, t: Nanos, ports: &PortsByNetdev, emit: &mut Emit<'_>) -> Vec<String> {
    let mut passed_over = Vec::new();
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let netdev = name.strip_prefix("ethtool-S.").and_then(|rest| rest.strip_suffix(".txt"));
        let Some(netdev) = netdev.filter(|netdev| !netdev.is_empty()) else { continue };
        let mut not = |why: String| passed_over.push(format!("{}: {why}", path.display()));
        let Some((device, port)) = ports.get(netdev) else {
            not(format!("no RDMA port of the tree has the network device {netdev}"));
            continue;
        };
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                not(error.to_string());
                continue;
            }
        };
        let (values, unavailable) = parse(&text);
        if values.is_empty() && unavailable.is_empty() {
            not("no line with a counter".to_owned());
            continue;
        }
        let set = Counters {
            device: device.into(),
            port: Some(*port),
            netdev: Some(netdev.into()),
            source: CounterSource::Ethtool,
            values,
            unavailable,
            ..Counters::default()
        };
        emit(&Observation { t, body: Body::Counters(set) });
    }
    passed_over
}

/// Counters that were read, and by name the text of those that are no number.
fn parse(text: &str) -> (Pairs<'_, u64>, Pairs<'_, std::borrow::Cow<'_, str>>) {
    let (mut values, mut unavailable) = (Pairs::with_capacity(64), Pairs::with_capacity(0));
    for line in text.lines() {
        let Some((name, value)) = line.rsplit_once(':') else { continue };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || value.is_empty() {
            continue;
        }
        match value.parse::<u64>() {
            Ok(number) => values.push(name, number),
            Err(_) => unavailable.push(name, value.into()),
        }
    }
    (values, unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_counter_and_what_is_no_number_is_unavailable_with_its_text() {
        let text = "NIC statistics:\n     tx_bytes_phy: 61000\n     [0]: rx_ucast: 7\n     temperature: n/a\ngarbage\n";
        let (values, unavailable) = parse(text);
        assert_eq!((values.get("tx_bytes_phy"), values.get("[0]: rx_ucast")), (Some(&61000), Some(&7)));
        assert_eq!(unavailable.get("temperature").map(|text| &**text), Some("n/a"));
        assert_eq!((values.len(), unavailable.len()), (2, 1));
    }

    #[test]
    fn a_file_of_a_network_device_without_a_port_is_named_and_costs_no_other() {
        let dir = tempfile::tempdir().unwrap();
        for netdev in ["eth0", "eth1"] {
            std::fs::write(dir.path().join(format!("ethtool-S.{netdev}.txt")), "  a: 1\n").unwrap();
        }
        std::fs::write(dir.path().join("notes.txt"), "  a: 1\n").unwrap();
        let ports = PortsByNetdev::from([("eth1".to_owned(), ("mlx5_0".to_owned(), 1))]);
        let mut seen = Vec::new();
        let not = emit_beside(dir.path(), 5, &ports, &mut |observation| {
            let Body::Counters(set) = &observation.body else { panic!("a counter set") };
            seen.push((set.device.to_string(), set.netdev.as_deref().map(str::to_owned), set.values.get("a").copied()));
        });
        assert_eq!(seen, [("mlx5_0".to_owned(), Some("eth1".to_owned()), Some(1))]);
        assert!(matches!(&not[..], [line] if line.contains("eth0")), "{not:?}");
    }
}
