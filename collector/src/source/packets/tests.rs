//! What is told of packets, from frames to observations; the rings themselves are tested in `ring.rs` and on real kernels.

use proptest::prelude::*;

use super::frames::Frame;
use super::places::RocePort;
use super::*;
use crate::source::nldev::peers::Connected;

const MS: u64 = 1_000_000;

/// Ports rxea (10.0.1.1, va) and rxeb (10.0.2.1, vb), both looked at, or only the first.
struct Scene {
    count: Count,
    taps: Vec<Tap>,
}

impl Scene {
    fn new(taps: usize) -> Self {
        let port = |device: &str, netdev: &str, n: u8| {
            let addresses = vec![IpAddr::from([10, 0, n, 1])];
            RocePort::software(device, netdev, addresses)
        };
        let mut count = Count::default();
        let numbers = count.know(vec![port("rxea", "va", 1), port("rxeb", "vb", 2)]);
        let taps: Vec<Tap> = [("va", 0), ("vb", 1)][..taps]
            .iter()
            .map(|(netdev, port)| Tap {
                netdev: (*netdev).to_owned(),
                ifindex: 1,
                mirror: false,
                port: Some(numbers[*port]),
            })
            .collect();
        count.tap(taps.iter());
        Self { count, taps }
    }

    fn see(&mut self, tap: usize, outgoing: bool, at_ns: u64, frame: &Frame) {
        let bytes = frame.bytes();
        self.count.take(&self.taps[tap], &Captured { frame: &bytes, outgoing, at_ns });
    }

    /// Everything told, by device and QP.
    fn told(&mut self, now_ns: u64) -> Vec<(String, Option<u32>, Pairs<'static, u64>)> {
        self.count.roll.settle(u64::MAX);
        let mut told = Vec::new();
        self.count.tell(0, now_ns, &mut |observation| {
            let Body::Counters(set) = &observation.body else { panic!("only counters") };
            assert_eq!((set.source, set.port), (CounterSource::Packets, Some(1)));
            let values = set.values.iter().map(|(name, value)| (name.to_string().into(), *value)).collect();
            told.push((set.device.to_string(), set.qpn, values));
        });
        told
    }

    fn value(&mut self, device: &str, qpn: Option<u32>, name: &str) -> Option<u64> {
        let told = self.told(0);
        let set = told.iter().find(|(of, number, _)| of == device && *number == qpn)?;
        set.2.get(name).copied()
    }
}

fn data(psn: u32, class: u8) -> Frame {
    Frame { psn, class, id: u16::try_from(psn).unwrap(), qpn: 31, ack_request: true, ..Frame::default() }
}

fn ack(psn: u32, class: u8) -> Frame {
    Frame { src: 2, dst: 1, opcode: 0x11, qpn: 17, psn, class, id: 0, ..Frame::default() }
}

const ECT0: u8 = 26 << 2 | 2;
const CE: u8 = 26 << 2 | 3;

#[test]
fn both_ends_of_a_connection_are_counted_by_port_and_by_qp() {
    let mut scene = Scene::new(2);
    for psn in 1..=4u32 {
        let at = u64::from(psn) * MS;
        scene.see(0, true, at, &data(psn, ECT0));
        // The router marks the second and the third.
        let class = if psn == 2 || psn == 3 { CE } else { ECT0 };
        scene.see(1, false, at + if class == CE { 900 } else { 100 }, &data(psn, class));
    }
    scene.see(1, true, 5 * MS, &ack(4, ECT0));
    scene.see(0, false, 5 * MS + 50, &ack(4, ECT0));
    let told: Vec<_> = scene.told(0).into_iter().map(|(device, qpn, _)| (device, qpn)).collect();
    let expected = [("rxea", None), ("rxea", Some(17)), ("rxeb", None), ("rxeb", Some(31))];
    assert_eq!(told, expected.map(|(device, qpn)| (device.to_owned(), qpn)));
    for (qpn, device) in [(None, "rxeb"), (Some(31), "rxeb")] {
        let mut value = |name: &str| scene.value(device, qpn, name);
        assert_eq!(["rx_data", "rx_ce", "rx_ect0", "rx_not_ect"].map(&mut value), [4, 2, 2, 0].map(Some));
        assert_eq!(["rx_ce_runs", "rx_ce_after_ce"].map(&mut value), [1, 1].map(Some));
        assert_eq!(["delay_ce_n", "delay_ce_sum_ns"].map(&mut value), [2, 1800].map(Some));
        assert_eq!(["delay_plain_n", "delay_plain_sum_ns", "delay_min_ns"].map(&mut value), [2, 200, 100].map(Some));
    }
    assert_eq!(scene.value("rxea", None, "tx_data"), Some(4));
    assert_eq!(scene.value("rxea", None, "tx_bytes"), Some(4 * 52));
    assert_eq!(scene.value("rxea", None, "rx_ack"), Some(1));
    assert_eq!(scene.value("rxea", Some(17), "delay_plain_sum_ns"), Some(50));
}

#[test]
fn what_went_out_is_added_to_its_qp_once_the_kernels_list_names_it() {
    let mut scene = Scene::new(1);
    scene.see(0, true, MS, &data(1, ECT0));
    assert_eq!(scene.value("rxea", Some(17), "tx_data"), None);
    assert!(scene.count.roll.wants_list(0));
    scene.count.roll.know(0, &[Connected { qpn: 17, remote_qpn: 31 }, Connected { qpn: 18, remote_qpn: 32 }]);
    assert!(!scene.count.roll.wants_list(0));
    scene.see(0, true, 2 * MS, &data(2, ECT0));
    assert_eq!(scene.value("rxea", Some(17), "tx_data"), Some(2));
    assert_eq!(scene.value("rxea", None, "tx_data"), Some(2));
    // Two QPs here that talk to the same number on two hosts cannot be told apart.
    scene.count.roll.know(0, &[Connected { qpn: 17, remote_qpn: 31 }, Connected { qpn: 19, remote_qpn: 31 }]);
    scene.see(0, true, 3 * MS, &data(3, ECT0));
    assert_eq!(scene.value("rxea", Some(17), "tx_data"), Some(2));
    assert_eq!(scene.value("rxea", None, "tx_data"), Some(3));
    assert_eq!(scene.count.roll.unfollowed(), 1);
}

#[test]
fn with_the_other_end_elsewhere_the_delay_is_from_request_to_answer() {
    let mut scene = Scene::new(1);
    scene.count.roll.know(0, &[Connected { qpn: 17, remote_qpn: 31 }]);
    scene.see(0, true, MS, &data(1, ECT0));
    scene.see(0, false, 2 * MS, &ack(1, ECT0));
    scene.see(0, true, 3 * MS, &data(2, ECT0));
    scene.see(0, false, 3 * MS + 5, &Frame { opcode: 0x81, class: 48 << 2, psn: 0, ..ack(0, 0) });
    scene.see(0, false, 7 * MS, &ack(2, ECT0));
    // Sent again: whichever was answered, no time can be told.
    scene.see(0, true, 8 * MS, &data(3, ECT0));
    scene.see(0, true, 9 * MS, &data(3, ECT0));
    scene.see(0, false, 10 * MS, &ack(3, ECT0));
    for qpn in [None, Some(17)] {
        let mut value = |name: &str| scene.value("rxea", qpn, name);
        assert_eq!(["delay_plain_n", "delay_plain_sum_ns"].map(&mut value), [1, MS].map(Some));
        assert_eq!(["delay_ce_n", "delay_ce_sum_ns"].map(&mut value), [1, 4 * MS].map(Some));
        assert_eq!(["rx_cnp", "cnp_dscp_48"].map(&mut value), [1, 1].map(Some));
    }
}

#[test]
fn packets_of_other_addresses_are_nobodys() {
    let mut scene = Scene::new(2);
    scene.see(0, false, MS, &Frame { src: 8, dst: 9, ..Frame::default() });
    scene.see(0, true, MS, &Frame { src: 2, dst: 1, ..Frame::default() });
    assert_eq!((scene.count.foreign, scene.count.packets), (2, 2));
    assert_eq!(scene.value("rxea", None, "rx_data"), Some(0));
    assert_eq!(scene.value("rxea", None, "tx_data"), Some(0));
}

#[test]
fn a_mirror_port_shows_both_directions_by_their_addresses() {
    let mut scene = Scene::new(0);
    scene.taps.push(Tap { netdev: "eth5".to_owned(), ifindex: 9, mirror: true, port: None });
    scene.count.tap(scene.taps.iter());
    scene.see(0, false, MS, &Frame { src: 9, dst: 2, class: CE, ..Frame::default() });
    scene.see(0, false, MS, &Frame { src: 2, dst: 9, ..Frame::default() });
    scene.see(0, false, MS, &Frame { src: 8, dst: 9, ..Frame::default() });
    assert_eq!(scene.value("rxeb", None, "rx_ce"), Some(1));
    assert_eq!(scene.value("rxeb", None, "tx_data"), Some(1));
    assert_eq!(scene.value("rxea", None, "rx_data"), Some(0), "it is looked at, and nothing came");
    assert_eq!(scene.count.foreign, 1);
}

#[test]
fn the_number_of_qps_followed_is_bounded_and_one_that_made_room_stays_away() {
    let mut scene = Scene::new(1);
    let from = |qpn: u32| Frame { src: 9, dst: 1, qpn, ..Frame::default() };
    for qpn in 0..200 {
        scene.see(0, false, MS, &from(qpn));
    }
    assert_eq!((scene.count.roll.qps(), scene.count.roll.unfollowed()), (128, 72));
    assert_eq!(scene.value("rxea", None, "rx_data"), Some(200), "the port counts them all");
    // A minute later an idle one makes room.
    let later = 61_000 * MS;
    scene.see(0, false, later, &from(500));
    assert_eq!(scene.value("rxea", Some(500), "rx_data"), Some(1));
    let told = scene.told(later);
    assert_eq!(told.iter().filter(|(_, qpn, _)| qpn.is_some()).count(), 1, "idle QPs are not told any more");
    scene.see(0, false, later, &from(0));
    assert_eq!(scene.count.roll.unfollowed(), 73, "its counts are gone: it would begin at 0");
}

#[test]
fn without_the_right_the_reason_names_it() {
    let missing = refusal("va", &io::Error::from_raw_os_error(libc::EPERM));
    assert_eq!(missing.what, "packets of va");
    assert_eq!(missing.reason, "packet sockets need CAP_NET_RAW");
    assert!(missing.fix.is_some());
}

proptest! {
    #[test]
    fn in_each_direction_the_codepoints_add_up_and_runs_do_so_to_the_marks(
        packets in prop::collection::vec((0usize..2, any::<bool>(), any::<u8>(), any::<u8>(), 0u32..4, 0u32..8), 0..200)
    ) {
        let mut scene = Scene::new(2);
        scene.count.roll.know(0, &[Connected { qpn: 0, remote_qpn: 0 }]);
        for (at, (tap, outgoing, class, opcode, qpn, psn)) in packets.into_iter().enumerate() {
            let (src, dst) = if outgoing == (tap == 0) { (1, 2) } else { (2, 1) };
            let frame = Frame { src, dst, class, opcode, qpn, psn, ..Frame::default() };
            scene.see(tap, outgoing, u64::try_from(at).unwrap() * 1000, &frame);
        }
        for (_, _, values) in scene.told(0) {
            let value = |name: &str| values.get(name).copied().unwrap();
            for way in ["rx", "tx"] {
                let parts = ["ect0", "ect1", "ce", "not_ect"].map(|part| value(&format!("{way}_{part}")));
                prop_assert_eq!(value(&format!("{way}_data")), parts.iter().sum::<u64>());
            }
            prop_assert_eq!(value("rx_ce"), value("rx_ce_runs") + value("rx_ce_after_ce"));
        }
    }
}
