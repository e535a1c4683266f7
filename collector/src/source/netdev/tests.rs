//! The source over stored words of the kernel and a tree of files.

use super::link::tests::{bond, counts, link, master};
use super::link::{DEL_LINK, EXT_MASK, GET_LINK, HEADER_BYTES, NEW_LINK};
use super::*;
use crate::observation::{Counters, Slave};
use crate::source::files::RootedFiles;
use crate::source::netlink::attribute::push;
use crate::source::netlink::scene::{MULTI, done, exchange, raw, refusal};
use crate::source::netlink::stored::Stored;

const SECOND: Nanos = 1_000_000_000;
const DUMP: u16 = netlink_packet_core::NLM_F_DUMP;

fn ports(netdevs: &[&str]) -> PortMap {
    let ports = PortMap::default();
    let netdevs = netdevs.iter().map(|netdev| (*netdev).to_owned()).collect();
    ports.set(vec![RdmaPort { device: "rxe0".to_owned(), port: 1, netdevs, ..RdmaPort::default() }]);
    ports
}

fn tree(netdev: &str, counts: &[(&str, &str)]) -> (tempfile::TempDir, Arc<dyn Files>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("class/net").join(netdev)).unwrap();
    for (name, text) in counts {
        std::fs::write(dir.path().join("class/net").join(netdev).join(name), text).unwrap();
    }
    let files = Arc::new(RootedFiles::new(dir.path()).unwrap());
    (dir, files)
}

fn list(replies: Vec<Vec<u8>>) -> Stored {
    let mut payload = vec![0; HEADER_BYTES];
    push(&mut payload, EXT_MASK.0, &EXT_MASK.1.to_ne_bytes());
    Stored::new(vec![exchange(GET_LINK, DUMP, &payload, replies)])
}

/// A node with bond0 over eth0 (active) and eth1, both of which have carrier.
fn bonded(active: u32, eth0: bool, eth1: bool) -> Vec<Vec<u8>> {
    vec![
        link(2, "eth0", eth0, &[master(4), counts(2, 1)]),
        link(3, "eth1", eth1, &[master(4)]),
        link(4, "bond0", true, &[bond(1, Some(active))]),
    ]
}

fn listed(links: &[Vec<u8>]) -> Stored {
    let messages: Vec<u8> = links.iter().flat_map(|link| raw(NEW_LINK, MULTI, 1, link)).collect();
    list(vec![messages, done(0)])
}

#[allow(clippy::unnecessary_wraps, reason = "what arrives may be an error instead")]
fn event(links: &[Vec<u8>]) -> std::io::Result<Vec<u8>> {
    Ok(links.iter().flat_map(|link| raw(NEW_LINK, 0, 0, link)).collect())
}

fn source(ports: PortMap, files: Arc<dyn Files>, list: Stored, events: Vec<std::io::Result<Vec<u8>>>) -> Netdev {
    let events = Stored::arriving(events);
    Netdev::over(files, ports, Some(Monitor::over(Box::new(list), Box::new(events))), 0)
}

/// What is emitted: bonds as `bond0 active eth0: eth0+ eth1-` (`event: ` before it where it is one), counts as `eth0 carrier_changes=2`.
fn poll(source: &mut Netdev, now: Nanos) -> Vec<String> {
    let mut said = Vec::new();
    source.poll(now, &mut |observation: &Observation<'_>| {
        assert_eq!(observation.t, now);
        said.push(match &observation.body {
            Body::Bond(Bond { bond, active, slaves, event, .. }) => {
                let event = if *event == Some(true) { "event: " } else { "" };
                let slave = |slave: &Slave<'_>| format!("{}{}", slave.netdev, if slave.up { "+" } else { "-" });
                let slaves: Vec<String> = slaves.iter().map(slave).collect();
                format!("{event}{bond} active {}: {}", active.as_deref().unwrap_or("none"), slaves.join(" "))
            }
            Body::Counters(Counters { netdev, values, unavailable, source, .. }) => {
                assert_eq!(*source, crate::observation::CounterSource::Netdev);
                let values = values.iter().map(|(name, value)| format!("{name}={value}"));
                let unavailable = unavailable.iter().map(|(name, why)| format!("{name}:{why}"));
                format!("{} {}", netdev.as_deref().unwrap(), values.chain(unavailable).collect::<Vec<_>>().join(" "))
            }
            Body::Lost(lost) => format!("lost {}", lost.n),
            other => other.type_name().to_owned(),
        });
    });
    said
}

/// Bonds and losses alone.
fn bonds(source: &mut Netdev, now: Nanos) -> Vec<String> {
    poll(source, now).into_iter().filter(|said| !said.contains("carrier")).collect()
}

fn later(source: &mut Netdev, events: Vec<std::io::Result<Vec<u8>>>) {
    let monitor = source.monitor.as_mut().unwrap();
    monitor.hear_instead(Box::new(Stored::arriving(events)));
}

#[test]
fn a_bond_is_said_at_the_start_and_at_each_change_of_its_active_slave() {
    let (_dir, files) = tree("eth0", &[]);
    let mut source = source(ports(&["eth0"]), files, listed(&bonded(2, true, true)), vec![]);
    assert_eq!(bonds(&mut source, SECOND), ["bond0 active eth0: eth0+ eth1+"]);
    assert!(bonds(&mut source, 2 * SECOND).is_empty());
    let bond_only = |active| event(&[link(4, "bond0", true, &[bond(1, Some(active))])]);
    later(&mut source, vec![event(&[link(2, "eth0", false, &[master(4)])]), bond_only(3), bond_only(2)]);
    // Each word by itself: a change that was taken back before anybody looked is seen.
    let changes = ["eth0", "eth1", "eth0"].map(|active| format!("event: bond0 active {active}: eth0- eth1+"));
    assert_eq!(bonds(&mut source, 2 * SECOND + 1), changes);
}

#[test]
fn a_bond_of_no_rdma_port_is_not_said() {
    let (_dir, files) = tree("eth7", &[]);
    let mut source = source(ports(&["eth7"]), files, listed(&bonded(2, true, true)), vec![]);
    assert!(bonds(&mut source, SECOND).is_empty());
    source.ports.set(vec![RdmaPort { bond: Some("bond0".to_owned()), ..RdmaPort::default() }]);
    // An event about another network device does not make what was so before a change.
    later(&mut source, vec![event(&[link(9, "eth7", true, &[])])]);
    assert_eq!(bonds(&mut source, 2 * SECOND), ["bond0 active eth0: eth0+ eth1+"]);
}

#[test]
fn a_slave_that_leaves_and_a_bond_that_is_deleted_end() {
    let (_dir, files) = tree("eth0", &[]);
    let mut source = source(ports(&["eth0"]), files, listed(&bonded(2, true, true)), vec![]);
    bonds(&mut source, SECOND);
    let deleted = |index| Ok(raw(DEL_LINK, 0, 0, &link(index, "x", false, &[])));
    later(&mut source, vec![event(&[link(3, "eth1", true, &[])]), deleted(4)]);
    assert_eq!(bonds(&mut source, 2 * SECOND), ["event: bond0 active eth0: eth0+"]);
    assert!(source.bonds.is_empty());
}

#[test]
fn after_lost_events_the_list_is_asked_for_again_and_the_loss_is_said() {
    let (_dir, files) = tree("eth0", &[]);
    let mut list = listed(&bonded(2, true, true));
    let mut second = listed(&bonded(3, false, true));
    list.know(second.take_exchange());
    let mut source = source(ports(&["eth0"]), files, list, vec![]);
    bonds(&mut source, SECOND);
    later(&mut source, vec![Err(std::io::Error::from_raw_os_error(105))]);
    assert_eq!(bonds(&mut source, 2 * SECOND), ["bond0 active eth1: eth0- eth1+", "lost 1"]);
}

#[test]
fn carrier_counts_are_read_each_second_and_told_at_once_when_an_event_has_higher_ones() {
    let counted = [("carrier_changes", "2\n"), ("carrier_up_count", "1\n"), ("carrier_down_count", "1\n")];
    let (dir, files) = tree("eth0", &counted);
    let mut source = source(ports(&["eth0"]), files, listed(&[]), vec![]);
    let first = "eth0 carrier_changes=2 carrier_up_count=1 carrier_down_count=1";
    assert_eq!(poll(&mut source, SECOND), [first]);
    later(
        &mut source,
        vec![event(&[link(2, "eth0", false, &[counts(3, 2)])]), event(&[link(2, "eth0", true, &[counts(1, 1)])])],
    );
    let flap = "eth0 carrier_changes=3 carrier_up_count=1 carrier_down_count=2";
    assert_eq!(poll(&mut source, SECOND + 1), [flap], "the second event is older than what is known");
    assert!(poll(&mut source, SECOND + 2).is_empty());
    std::fs::write(dir.path().join("class/net/eth0/carrier_changes"), "4\n").unwrap();
    std::fs::write(dir.path().join("class/net/eth0/carrier_down_count"), "2\n").unwrap();
    assert_eq!(poll(&mut source, 2 * SECOND), ["eth0 carrier_changes=4 carrier_up_count=1 carrier_down_count=2"]);
}

#[test]
fn a_count_that_cannot_be_read_is_unavailable_and_costs_no_other() {
    let (dir, files) = tree("eth0", &[("carrier_changes", "2\n"), ("carrier_up_count", "many\n")]);
    let mut source = Netdev::of_tree(files, ports(&["eth0"]), 0);
    let said = "eth0 carrier_changes=2 carrier_up_count:not a number carrier_down_count:ENOENT";
    assert_eq!(poll(&mut source, SECOND), [said]);
    assert_eq!(source.availability().state, Seeing::Ok);
    std::fs::write(dir.path().join("class/net/eth0/carrier_down_count"), "1\n").unwrap();
    assert!(poll(&mut source, 2 * SECOND)[0].contains("carrier_down_count=1"), "a file that came is opened");
}

#[test]
fn the_sysfs_source_says_the_bonds_where_rtnetlink_does_not() {
    let (_dir, files) = tree("eth0", &[]);
    let mut source = source(ports(&["eth0"]), files, list(vec![refusal(-1)]), vec![]);
    assert!(source.says_bonds().load(Ordering::Relaxed));
    poll(&mut source, SECOND);
    assert!(!source.says_bonds().load(Ordering::Relaxed));
    assert!(source.availability().reason().unwrap().contains("Operation not permitted"));
    let (_dir, files) = tree("eth0", &[]);
    assert!(!Netdev::of_tree(files, ports(&["eth0"]), 0).says_bonds().load(Ordering::Relaxed));
}

#[test]
fn a_socket_that_fails_is_given_up() {
    let (_dir, files) = tree("eth0", &[]);
    let failing = vec![Err(std::io::Error::from_raw_os_error(9))];
    let mut source = source(ports(&["eth0"]), files, listed(&bonded(2, true, true)), vec![]);
    bonds(&mut source, SECOND);
    later(&mut source, failing);
    poll(&mut source, 2 * SECOND);
    assert!(!source.says_bonds().load(Ordering::Relaxed));
    assert!(source.wake_fds().is_empty());
}
