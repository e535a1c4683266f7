//! The source over stored answers: a kernel that defines statistics, and drivers of every temper.

use super::driver::tests::{Fake, fake};
use super::uapi::{NESTED, attr, message};
use super::*;
use crate::observation::{Body, Counters, Observation};
use crate::source::netlink::scene::{FAMILY, attribute, exchange, families, number, raw, refusal, text};
use crate::source::netlink::stored::{Asked, Exchange, Stored};

const SECOND: Nanos = 1_000_000_000;

fn port(device: &str, netdevs: &[&str]) -> RdmaPort {
    let netdevs = netdevs.iter().map(|netdev| (*netdev).to_owned()).collect();
    RdmaPort { device: device.to_owned(), port: 1, netdevs, ..RdmaPort::default() }
}

fn ports(list: Vec<RdmaPort>) -> PortMap {
    let ports = PortMap::default();
    ports.set(list);
    ports
}

fn word(value: u64) -> [u8; 8] {
    value.to_ne_bytes()
}

/// What the source asks about a network device, as it is sent.
fn question(command: u8, netdev: &str) -> Vec<u8> {
    let name = text(attr::HEADER_DEV_NAME, netdev);
    let mut payload = vec![command, 1, 0, 0];
    if command == message::STATS_GET {
        let bitset =
            [attribute(attr::BITSET_NOMASK, &[]), number(attr::BITSET_SIZE, 4), number(attr::BITSET_VALUE, 0b1111)];
        payload.extend(attribute(NESTED | attr::STATS_HEADER, &name));
        payload.extend(attribute(NESTED | attr::STATS_GROUPS, &bitset.concat()));
    } else {
        let header = [name, number(attr::HEADER_FLAGS, 4)].concat();
        payload.extend(attribute(NESTED | attr::HEADER, &header));
    }
    payload
}

fn answer(command: u8, netdev: &str, attributes: &[u8]) -> Exchange {
    let reply = raw(FAMILY, 0, 1, &[&[command, 1, 0, 0], attributes].concat());
    exchange(FAMILY, 0, &question(command, netdev), vec![reply])
}

fn refused(command: u8, netdev: &str, errno: i32) -> Exchange {
    exchange(FAMILY, 0, &question(command, netdev), vec![refusal(-errno)])
}

/// The names of a group's counters.
fn strings(set: u32, names: &[&str]) -> Exchange {
    let id = number(attr::STRINGSET_ID, set);
    let sets = attribute(NESTED | attr::STRSET_STRINGSETS, &attribute(NESTED | attr::STRINGSETS_STRINGSET, &id));
    let ask = [attribute(NESTED | attr::HEADER, &[]), sets].concat();
    let list: Vec<u8> = (0u32..)
        .zip(names)
        .flat_map(|(place, name)| {
            let string = [number(attr::STRING_INDEX, place), text(attr::STRING_VALUE, name)].concat();
            attribute(NESTED | attr::STRINGS_STRING, &string)
        })
        .collect();
    let one = [id, attribute(NESTED | attr::STRINGSET_STRINGS, &list)].concat();
    let reply = attribute(NESTED | attr::STRSET_STRINGSETS, &attribute(NESTED | attr::STRINGSETS_STRINGSET, &one));
    let reply = raw(FAMILY, 0, 1, &[&[message::STRSET_GET, 1, 0, 0], &reply[..]].concat());
    exchange(FAMILY, 0, &[&[message::STRSET_GET, 1, 0, 0], &ask[..]].concat(), vec![reply])
}

fn stat(place: u16, value: u64) -> Vec<u8> {
    attribute(NESTED | attr::STATS_GRP_STAT, &attribute(place, &word(value)))
}

fn group(id: u32, set: u32, content: &[Vec<u8>]) -> Vec<u8> {
    let head = [number(2, id), number(attr::STATS_GRP_SS_ID, set)].concat();
    attribute(NESTED | attr::STATS_GRP, &[head, content.concat()].concat())
}

fn size_class(low: u32, high: u32, value: u64) -> Vec<u8> {
    let class = [
        number(attr::STATS_GRP_HIST_BKT_LOW, low),
        number(attr::STATS_GRP_HIST_BKT_HI, high),
        attribute(attr::STATS_GRP_HIST_VAL, &word(value)),
    ];
    attribute(NESTED | attr::STATS_GRP_HIST_RX, &class.concat())
}

/// A kernel that answers everything about eth0.
fn generous() -> Vec<Exchange> {
    let groups = [
        group(0, 17, &[stat(0, 5)]),
        group(1, 18, &[stat(4, 2), stat(99, 1)]),
        group(3, 20, &[size_class(0, 64, 11), size_class(65, 127, 12), size_class(1519, 0, 13)]),
    ];
    let lanes = [word(30), word(10), word(20)].concat();
    let fec = [
        attribute(attr::FEC_STAT_CORRECTED, &word(7)),
        attribute(attr::FEC_STAT_UNCORR, &[]),
        attribute(attr::FEC_STAT_CORR_BITS, &lanes),
    ];
    let pause = attribute(attr::PAUSE_STAT_RX_FRAMES, &word(3));
    vec![
        families("ethtool", "monitor"),
        answer(message::STATS_GET, "eth0", &groups.concat()),
        answer(message::FEC_GET, "eth0", &attribute(NESTED | attr::FEC_STATS, &fec.concat())),
        answer(message::PAUSE_GET, "eth0", &attribute(NESTED | attr::PAUSE_STATS, &pause)),
        answer(message::LINKSTATE_GET, "eth0", &number(attr::LINKSTATE_EXT_DOWN_CNT, 4)),
        strings(17, &["SymbolErrorDuringCarrier"]),
        strings(18, &["a", "b", "c", "d", "FrameCheckSequenceErrors"]),
    ]
}

/// A kernel that refuses everything about a network device with this errno.
fn refusing(netdev: &str, errno: i32) -> Vec<Exchange> {
    let commands = [message::STATS_GET, message::FEC_GET, message::PAUSE_GET, message::LINKSTATE_GET];
    let mut exchanges = vec![families("ethtool", "monitor")];
    exchanges.extend(commands.map(|command| refused(command, netdev, errno)));
    exchanges
}

fn source(ports: PortMap, driver: Fake, exchanges: Vec<Exchange>) -> (Ethtool, Asked) {
    let stored = Stored::new(exchanges);
    let asked = Arc::clone(&stored.asked);
    let generic = Generic::over(Box::new(stored), "ethtool", 1).unwrap().unwrap();
    (Ethtool::over(ports, Ok(Box::new(driver)), Ok(Standard::over(generic)), 0), asked)
}

type Read = (String, Vec<(String, u64)>, Vec<(String, String)>);

fn poll(source: &mut Ethtool, now: Nanos) -> Vec<Read> {
    let mut sets = Vec::new();
    source.poll(now, &mut |observation: &Observation<'_>| {
        let Body::Counters(Counters { netdev, values, unavailable, .. }) = &observation.body else {
            panic!("counters")
        };
        let values = values.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        let unavailable = unavailable.iter().map(|(name, why)| (name.to_string(), why.to_string())).collect();
        sets.push((netdev.as_deref().unwrap().to_owned(), values, unavailable));
    });
    sets
}

fn named(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

#[test]
fn one_set_has_the_drivers_counters_and_the_kernels_by_the_names_ethtool_prints() {
    let driver = fake(&[(b"rx_packets_phy", 1000)]);
    let (mut source, _) = source(ports(vec![port("mlx5_0", &["eth0"])]), driver, generous());
    let expected = named(&[
        ("rx_packets_phy", 1000),
        ("SymbolErrorDuringCarrier", 5),
        ("FrameCheckSequenceErrors", 2),
        ("rx-rmon-etherStatsPkts64Octets", 11),
        ("rx-rmon-etherStatsPkts65to127Octets", 12),
        ("rx-rmon-etherStatsPkts1519toMaxOctets", 13),
        ("corrected_blocks", 7),
        ("corrected_bits", 30),
        ("corrected_bits_lane_0", 10),
        ("corrected_bits_lane_1", 20),
        ("rx_pause_frames", 3),
        ("link_down_events", 4),
    ]);
    // Neither a counter without a name nor FEC blocks the driver does not count are there, as 0 or otherwise.
    assert_eq!(poll(&mut source, SECOND), [("eth0".to_owned(), expected, vec![])]);
    let availability = source.availability();
    assert_eq!((availability.state, &*availability.sees), (Seeing::Ok, "1 network devices, 12 counters"));
}

#[test]
fn where_the_driver_has_the_kernels_name_its_own_stands() {
    let driver = fake(&[(b"rx_pause_frames", 900), (b"link_down_events", 901)]);
    let (mut source, _) = source(ports(vec![port("bnxt_re0", &["eth0"])]), driver, generous());
    let (_, values, _) = poll(&mut source, SECOND).remove(0);
    let of = |name: &str| values.iter().filter(|(n, _)| n == name).map(|(_, value)| *value).collect::<Vec<_>>();
    assert_eq!((of("rx_pause_frames"), of("link_down_events")), (vec![900], vec![901]));
}

#[test]
fn the_names_of_a_group_are_asked_for_once() {
    let (mut source, asked) = source(ports(vec![port("mlx5_0", &["eth0"])]), fake(&[]), generous());
    for now in 1..4 {
        poll(&mut source, now * SECOND);
    }
    let asked = asked.lock().unwrap();
    let of = |command: u8| {
        let mine = move |request: &&Vec<u8>| request[4..6] == FAMILY.to_ne_bytes() && request[16] == command;
        asked.iter().filter(mine)
    };
    assert_eq!((of(message::STATS_GET).count(), of(message::STRSET_GET).count()), (3, 2));
}

#[test]
fn a_network_device_of_no_port_is_asked_nothing_and_one_of_two_ports_once() {
    let driver = Fake {
        drivers: ["eth0", "eth1", "eth2"].map(|netdev| (netdev, Ok(vec![(b"a".to_vec(), 1)]))).to_vec(),
        ..Fake::default()
    };
    let heard = Arc::clone(&driver.asked);
    let list = vec![port("mlx5_0", &["eth0"]), port("rxe0", &["eth0"]), port("ib0", &[])];
    let (mut source, asked) = source(ports(list), driver, refusing("eth0", 95));
    assert_eq!(poll(&mut source, SECOND).len(), 1);
    assert!(heard.lock().unwrap().iter().all(|question| question.ends_with("eth0")));
    assert_eq!(heard.lock().unwrap().len(), 3);
    assert_eq!(asked.lock().unwrap().len(), 5, "the families, and four questions about eth0");
}

#[test]
fn what_a_driver_does_not_offer_is_no_gap_and_asked_for_again_after_a_minute() {
    let driver = fake(&[(b"a", 1)]);
    let (mut source, asked) = source(ports(vec![port("rxe0", &["eth0"])]), driver, refusing("eth0", 95));
    for now in 1..=60 {
        poll(&mut source, now * SECOND);
    }
    assert_eq!(asked.lock().unwrap().len(), 5);
    assert_eq!((source.availability().state, source.availability().reason()), (Seeing::Ok, None));
    poll(&mut source, 61 * SECOND);
    assert_eq!(asked.lock().unwrap().len(), 9);
}

#[test]
fn a_question_that_an_older_kernel_does_not_know_is_no_gap() {
    let (mut source, asked) = source(ports(vec![port("rxe0", &["eth0"])]), fake(&[(b"a", 1)]), refusing("eth0", 22));
    poll(&mut source, SECOND);
    poll(&mut source, 2 * SECOND);
    assert_eq!((source.availability().state, source.availability().reason()), (Seeing::Ok, None));
    assert_eq!(asked.lock().unwrap().len(), 5);
}

#[test]
fn drivers_that_offer_nothing_at_all_are_named() {
    let driver = Fake { drivers: vec![("eth0", Err(95))], ..Fake::default() };
    let (mut source, _) = source(ports(vec![port("rxe0", &["eth0"])]), driver, refusing("eth0", 95));
    assert!(poll(&mut source, SECOND).is_empty());
    let availability = source.availability();
    assert_eq!(availability.state, Seeing::Off);
    assert_eq!(availability.reason().unwrap(), "statistics of eth0: their drivers offer none");
}

#[test]
fn a_refusal_is_said_with_its_reason_and_costs_only_what_was_refused() {
    let (mut source, _) = source(ports(vec![port("rxe0", &["eth0"])]), fake(&[(b"a", 1)]), refusing("eth0", 1));
    assert_eq!(poll(&mut source, SECOND), [("eth0".to_owned(), named(&[("a", 1)]), vec![])]);
    let availability = source.availability();
    assert_eq!(availability.state, Seeing::Partial);
    assert!(availability.reason().unwrap().contains("FEC statistics of eth0"), "{availability:?}");
    assert!(availability.reason().unwrap().contains("EPERM"), "{availability:?}");
}

#[test]
fn counters_that_cannot_be_read_any_more_are_unavailable_by_name() {
    let (mut source, _) = source(ports(vec![port("rxe0", &["eth0"])]), fake(&[(b"a", 1)]), refusing("eth0", 95));
    poll(&mut source, SECOND);
    source.driver = Ok(Box::new(Fake { drivers: vec![("eth0", Err(5))], ..Fake::default() }));
    let lost = ("eth0".to_owned(), vec![], vec![("a".to_owned(), "EIO".to_owned())]);
    assert_eq!(poll(&mut source, 2 * SECOND), [lost]);
}

#[test]
fn a_network_device_that_vanished_is_said_once_and_found_again() {
    let list = ports(vec![port("rxe0", &["eth0", "eth9"])]);
    let mut exchanges = refusing("eth0", 95);
    exchanges.extend(refusing("eth9", 19));
    let driver = fake(&[(b"a", 1)]);
    let heard = Arc::clone(&driver.asked);
    let (mut source, _) = source(list, driver, exchanges);
    let gone = ("eth9".to_owned(), vec![], vec![("*".to_owned(), "ENODEV".to_owned())]);
    assert_eq!(poll(&mut source, SECOND)[1], gone);
    assert!(source.availability().reason().unwrap().contains("eth9: the network device is gone"));
    assert_eq!(poll(&mut source, 2 * SECOND).len(), 1);
    // The ioctl is not tried for it: it would make the kernel look for a module.
    assert!(!heard.lock().unwrap().iter().any(|question| question.ends_with("eth9")));

    let mut back = refusing("eth0", 95);
    back.extend(refusing("eth9", 95));
    let generic = Generic::over(Box::new(Stored::new(back)), "ethtool", 1).unwrap().unwrap();
    source.standard = Ok(Standard::over(generic));
    let driver = Fake { drivers: vec![("eth9", Ok(vec![(b"b".to_vec(), 2)]))], ..Fake::default() };
    source.driver = Ok(Box::new(driver));
    let sets = poll(&mut source, 11 * SECOND);
    assert!(sets.contains(&("eth9".to_owned(), named(&[("b", 2)]), vec![])), "{sets:?}");
}

#[test]
fn statistics_are_read_once_a_second_however_short_the_interval() {
    let (mut source, _) = source(ports(vec![port("rxe0", &["eth0"])]), fake(&[(b"a", 1)]), refusing("eth0", 95));
    source.set_interval(SECOND / 10);
    poll(&mut source, 5 * SECOND);
    assert_eq!(source.due(), 6 * SECOND);
    source.set_interval(3 * SECOND);
    poll(&mut source, 6 * SECOND);
    assert_eq!(source.due(), 9 * SECOND);
}

#[test]
fn ports_that_change_are_followed() {
    let list = ports(vec![]);
    let driver = Fake {
        drivers: ["eth0", "eth1"].map(|netdev| (netdev, Ok(vec![(b"a".to_vec(), 1)]))).to_vec(),
        ..Fake::default()
    };
    let mut exchanges = refusing("eth0", 95);
    exchanges.extend(refusing("eth1", 95));
    let (mut source, _) = source(list.clone(), driver, exchanges);
    assert!(poll(&mut source, SECOND).is_empty());
    assert_eq!(source.availability().state, Seeing::Off);
    for (now, netdev) in [(2, "eth0"), (3, "eth1")] {
        list.set(vec![port("rxe0", &[netdev])]);
        let sets = poll(&mut source, now * SECOND);
        assert_eq!(sets.iter().map(|(netdev, ..)| &**netdev).collect::<Vec<_>>(), [netdev]);
    }
}

proptest::proptest! {
    #[test]
    fn no_answer_can_panic(
        changes in proptest::collection::vec((16usize..400, proptest::num::u8::ANY), 0..16),
        which in 1usize..7,
    ) {
        let mut exchanges = generous();
        for (at, byte) in changes {
            if let Some(place) = exchanges[which].replies[0].0.get_mut(at) {
                *place = byte;
            }
        }
        let (mut source, _) = source(ports(vec![port("mlx5_0", &["eth0"])]), fake(&[(b"a", 1)]), exchanges);
        proptest::prop_assert_eq!(poll(&mut source, SECOND).len(), 1);
    }
}
