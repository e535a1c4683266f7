//! `rdma link` and `rdma dev`: which ports there are, in which state, and which network devices they have.
//!
//! Where a tree shows the same device, only the network devices are taken: the tree knows more of the port's state.

use super::rdma_line::{Entry, entries};
use super::section::Section;
use super::sink::Sink;
use crate::observation::{Body, Device, Port, PortState};

/// What the section says of ports.
pub(super) fn ports(section: &Section<'_>) -> Vec<Port<'static>> {
    entries(section).iter().filter_map(port).collect()
}

/// Reads a section.
pub(super) fn read(section: &Section<'_>, sink: &mut Sink<'_>) {
    for entry in entries(section).iter().filter(|entry| !sink.machine.in_tree(&entry.device)).collect::<Vec<_>>() {
        if let Some(port) = port(entry) {
            sink.say(Body::Port(port));
        } else if entry.get("node_guid").is_some() {
            let text = |name: &str| entry.get(name).map(|text| text.to_owned().into());
            sink.say(Body::Device(Device {
                device: entry.device.clone().into(),
                node_guid: text("node_guid"),
                fw: text("fw"),
                ..Device::default()
            }));
        }
    }
}

fn port(entry: &Entry) -> Option<Port<'static>> {
    let state = match entry.get("state")? {
        "DOWN" => PortState::Down,
        "INIT" => PortState::Init,
        "ARMED" => PortState::Armed,
        "ACTIVE" => PortState::Active,
        _ => PortState::Unknown,
    };
    Some(Port {
        device: entry.device.clone().into(),
        port: entry.port?,
        state,
        phys_state: entry.get("physical_state").map(|phys| kernels_word(phys).into()),
        lid: entry.number("lid"),
        netdevs: entry.get("netdev").map(|netdev| netdev.to_owned().into()).into_iter().collect(),
        ..Port::default()
    })
}

/// The tool's word for a physical state as sysfs writes it.
fn kernels_word(phys: &str) -> String {
    match phys {
        "LINK_UP" => "LinkUp",
        "POLLING" => "Polling",
        "DISABLED" => "Disabled",
        "SLEEP" => "Sleep",
        "PORT_CONFIGURATION_TRAINING" => "PortConfigurationTraining",
        "LINK_ERROR_RECOVERY" => "LinkErrorRecovery",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;

    #[test]
    fn a_link_is_a_port_with_its_network_device_and_a_device_has_its_guid() {
        let text = "2: mlx5_0: node_type ca fw 16.0.1 node_guid 0002:0000:0000:0001\n\
                    link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0\n\
                    $ ethtool -S eth0\nNIC statistics:\n   a: 1\n";
        let read = read_text("x.txt", text);
        let Body::Port(port) = &read.found[1].body else { panic!("{read:?}") };
        assert_eq!((port.state, port.phys_state.as_deref(), port.port), (PortState::Active, Some("LinkUp"), 1));
        let Body::Counters(set) = &read.found[2].body else { panic!("{read:?}") };
        assert_eq!((&*set.device, set.netdev.as_deref()), ("mlx5_0", Some("eth0")));
    }
}
