//! Who is named as posting unseen, and how sure it is.

use super::*;
use crate::inventory::{DeviceId, DeviceRecord, ProbeRecord};
use crate::observation::PortState;
use crate::observation::recording::Header;

const GB: f64 = 1e9;

/// What a port moved in each of ten windows.
struct Moved {
    sent: f64,
    packets: Option<f64>,
    traced: Option<f64>,
    reads: Option<f64>,
    timeouts: Option<f64>,
}

const UNSEEN: Moved =
    Moved { sent: GB, packets: Some(250e3), traced: Some(0.0), reads: Some(0.0), timeouts: Some(0.0) };

fn world(moved: &Moved) -> World {
    let mut world = World::new(Header::new());
    world.probes = Some(Arc::new(ProbeRecord { attached: 9, ..ProbeRecord::default() }));
    world.now = 100_000_000_000;
    world.devices.push(Arc::new(DeviceRecord::new("d", 0)));
    add_port(&mut world, 1, moved);
    world
}

fn add_port(world: &mut World, number: u32, moved: &Moved) {
    let mut port = PortRecord::new(PortKey { device: DeviceId(0), port: number }, 0, PortState::Active);
    for _ in 0..10 {
        port.traced.push(moved.traced);
        for (meaning, value) in [
            (Meaning::TxBytes, Some(moved.sent)),
            (Meaning::TxPackets, moved.packets),
            (Meaning::RxReadRequests, moved.reads),
            (Meaning::AckTimeout, moved.timeouts),
        ] {
            port.rates.or_default(meaning).push(value);
        }
    }
    world.add_port(port);
}

/// A QP in RTS; `posts` says whether one of its posts was seen.
fn qp(world: &mut World, qpn: u32, pid: Option<u32>, posts: bool) {
    let qp = world.qps.entry(1, DeviceId(0), qpn);
    (qp.pid, qp.comm, qp.state) = (pid, Some("train".into()), QpState::Rts);
    let id = qp.id;
    if posts {
        world.qps.counted(2, id);
    }
}

fn maps(world: &mut World, pid: u32, way: Way) {
    let ways = vec![UnseenWay { way, file: Some("libx.so.1".into()), reason: None }];
    world.processes.insert(pid, Arc::new(ProcessRecord { t: 1, comm: Some("train".into()), ways }));
}

fn told(world: &World) -> Vec<(Option<u32>, Likelihood)> {
    world.unseen().iter().map(|process| (process.pid, process.likelihood)).collect()
}

#[test]
fn a_mapped_library_alone_is_a_possibility() {
    let mut world = world(&Moved { sent: 0.0, packets: Some(0.0), ..UNSEEN });
    maps(&mut world, 7, Way::UcxMlx5);
    qp(&mut world, 17, Some(7), true);
    assert_eq!(told(&world), [(Some(7), Likelihood::Possible)]);
    let text = world.unseen()[0].text(|rate| format!("{rate} B/s"));
    assert_eq!(text, "may post through UCX's accelerated transports (libx.so.1)");
}

#[test]
fn silent_qps_on_a_port_that_sends_what_nothing_explains_make_it_likely() {
    let mut world = world(&UNSEEN);
    maps(&mut world, 7, Way::UcxMlx5);
    qp(&mut world, 17, Some(7), false);
    qp(&mut world, 18, Some(7), true);
    let all = world.unseen();
    assert_eq!((all[0].likelihood, all[0].qps, all[0].silent), (Likelihood::Likely, 2, 1));
    assert_eq!(all[0].unexplained, Some(GB - 250e3 * OVERHEAD));
    assert!(all[0].text(|_| "1 GB/s".to_owned()).contains("1 of its 2 QPs in RTS"));
}

#[test]
fn what_is_explained_by_posts_headers_and_acknowledgements_says_nothing() {
    for moved in [
        Moved { traced: Some(0.95 * GB), ..UNSEEN },
        // 64-byte messages: most of what is sent is headers.
        Moved { sent: 120e6, packets: Some(1e6), traced: Some(64e6), ..UNSEEN },
        // A receiver of much, which acknowledges it.
        Moved { sent: 15e6, packets: Some(250e3), ..UNSEEN },
    ] {
        let mut world = world(&moved);
        maps(&mut world, 7, Way::UcxMlx5);
        qp(&mut world, 17, Some(7), false);
        qp(&mut world, 18, Some(8), false);
        assert_eq!(world.coverage().unexplained, Some(0.0));
        assert_eq!(told(&world), [(Some(7), Likelihood::Possible)]);
    }
}

#[test]
fn where_reads_are_answered_or_not_counted_bytes_prove_nothing() {
    for reads in [Some(5.0), None] {
        let mut world = world(&Moved { reads, ..UNSEEN });
        maps(&mut world, 7, Way::Gpu);
        qp(&mut world, 17, Some(7), false);
        let process = &world.unseen()[0];
        assert_eq!(process.likelihood, Likelihood::Possible);
        assert!(process.text(|_| "1 GB/s".to_owned()).ends_with("unless they answer READs"));
    }
}

#[test]
fn unknown_bytes_packets_or_posts_leave_the_rest_unknown() {
    for moved in [Moved { packets: None, ..UNSEEN }, Moved { traced: None, ..UNSEEN }] {
        let mut world = world(&moved);
        maps(&mut world, 7, Way::Gpu);
        qp(&mut world, 17, Some(7), false);
        assert_eq!(world.coverage().unexplained, None);
        assert_eq!(world.unseen()[0].unexplained, None);
        assert_eq!(told(&world), [(Some(7), Likelihood::Possible)]);
    }
}

#[test]
fn bytes_alone_name_a_process_when_it_is_the_only_one_that_could_have_sent_them() {
    let mut world = world(&UNSEEN);
    qp(&mut world, 17, Some(8), false);
    assert_eq!(told(&world), [(Some(8), Likelihood::Likely)]);
    assert!(world.unseen()[0].text(|_| String::new()).starts_with("posts where no probe sees it"));
    qp(&mut world, 18, Some(9), false);
    assert_eq!(told(&world), [(Some(8), Likelihood::Possible), (Some(9), Likelihood::Possible)]);
    maps(&mut world, 10, Way::UcxMlx5);
    qp(&mut world, 19, Some(10), false);
    assert_eq!(told(&world), [(Some(10), Likelihood::Likely)], "one that has a way explains it");
}

#[test]
fn a_process_whose_qps_nobody_lists_is_a_possibility_on_every_port_and_no_more() {
    let mut world = world(&UNSEEN);
    maps(&mut world, 7, Way::Devx);
    maps(&mut world, 8, Way::UnknownProvider);
    assert_eq!(told(&world), [(Some(7), Likelihood::Possible), (Some(8), Likelihood::Possible)]);
    let text = world.unseen()[0].text(|_| "1 GB/s".to_owned());
    assert!(text.ends_with("; 1 GB/s of its ports nothing seen explains, unless others sent them"), "{text}");
    // Nor is another one the only one that could have sent it.
    qp(&mut world, 17, Some(9), false);
    assert_eq!(told(&world).iter().filter(|(_, likelihood)| *likelihood == Likelihood::Likely).count(), 0);
}

#[test]
fn of_several_processes_that_have_a_way_nobody_can_say_which_one_it_was() {
    let mut world = world(&UNSEEN);
    for (pid, qpn) in [(7, 17), (8, 18)] {
        maps(&mut world, pid, Way::UcxMlx5);
        qp(&mut world, qpn, Some(pid), false);
    }
    assert_eq!(told(&world), [(Some(7), Likelihood::Possible), (Some(8), Likelihood::Possible)]);
    assert!(world.unseen()[0].text(|_| String::new()).ends_with("unless others sent them"));
}

#[test]
fn beside_a_process_whose_qps_nobody_lists_no_other_one_is_likely() {
    let mut world = world(&UNSEEN);
    maps(&mut world, 7, Way::UcxMlx5);
    qp(&mut world, 17, Some(7), false);
    assert_eq!(told(&world), [(Some(7), Likelihood::Likely)]);
    maps(&mut world, 8, Way::Devx);
    assert_eq!(told(&world), [(Some(7), Likelihood::Possible), (Some(8), Likelihood::Possible)]);
    assert!(world.unseen().iter().all(|one| one.text(|_| String::new()).ends_with("unless others sent them")));
}

#[test]
fn of_a_likely_one_the_bytes_are_told_that_nothing_else_explains() {
    let mut world = world(&UNSEEN);
    add_port(&mut world, 2, &Moved { sent: 20.0 * GB, reads: Some(5.0), ..UNSEEN });
    maps(&mut world, 7, Way::UcxMlx5);
    qp(&mut world, 17, Some(7), false);
    qp(&mut world, 18, Some(7), false);
    for (qpn, port) in [(17, 1), (18, 2)] {
        world.qps.entry(1, DeviceId(0), qpn).port = Some(port);
    }
    let process = &world.unseen()[0];
    assert_eq!((process.likelihood, process.unexplained), (Likelihood::Likely, Some(GB - 250e3 * OVERHEAD)));
    assert_eq!((process.reads, process.again, process.others), (false, false, false));
}

#[test]
fn counters_of_what_is_sent_again_that_cannot_be_read_do_not_say_that_nothing_was() {
    let mut world = world(&Moved { timeouts: None, ..UNSEEN });
    maps(&mut world, 7, Way::UcxMlx5);
    qp(&mut world, 17, Some(7), false);
    assert_eq!(told(&world), [(Some(7), Likelihood::Possible)]);
    assert!(world.unseen()[0].text(|_| String::new()).ends_with("unless they were sent again"));
}

#[test]
fn what_a_port_sends_again_is_nobodys_post() {
    for (timeouts, reads, unless) in [
        (Some(3.0), Some(0.0), "they were sent again"),
        (None, Some(0.0), "they were sent again"),
        (Some(3.0), Some(2.0), "they answer READs or they were sent again"),
    ] {
        let mut world = world(&Moved { reads, timeouts, ..UNSEEN });
        if timeouts.is_none() {
            Arc::make_mut(&mut world.ports[0]).rates.remove(&Meaning::AckTimeout);
        }
        maps(&mut world, 7, Way::UcxMlx5);
        qp(&mut world, 17, Some(7), false);
        assert_eq!(told(&world), [(Some(7), Likelihood::Possible)]);
        let text = world.unseen()[0].text(|_| String::new());
        assert!(text.ends_with(&format!("unless {unless}")), "{text}");
    }
    // Where its bytes are counted, they are explained.
    let mut world = world(&Moved { timeouts: Some(3.0), ..UNSEEN });
    maps(&mut world, 7, Way::UcxMlx5);
    qp(&mut world, 17, Some(7), false);
    for (resent, left, likelihood) in
        [(0.97 * GB, 0.0, Likelihood::Possible), (0.1 * GB, 0.9 * GB - 250e3 * OVERHEAD, Likelihood::Likely)]
    {
        let ring = Arc::make_mut(&mut world.ports[0]).rates.or_default(Meaning::RetransmittedBytes);
        (0..10).for_each(|_| ring.push(Some(resent)));
        let process = &world.unseen()[0];
        assert!(process.unexplained.is_some_and(|bytes| (bytes - left).abs() < 1.0), "{process:?}");
        assert_eq!(process.likelihood, likelihood);
    }
}

#[test]
fn a_process_is_one_whatever_names_its_threads_have() {
    let mut world = world(&UNSEEN);
    maps(&mut world, 7, Way::UcxMlx5);
    qp(&mut world, 17, Some(7), false);
    qp(&mut world, 18, Some(7), false);
    world.qps.entry(1, DeviceId(0), 18).comm = Some("worker".into());
    let all = world.unseen();
    assert_eq!((all.len(), all[0].silent, &*all[0].who()), (1, 2, "train (7)"));
}

#[test]
fn fewer_windows_than_ten_say_nothing() {
    let mut world = world(&UNSEEN);
    qp(&mut world, 17, Some(8), false);
    let port = Arc::make_mut(&mut world.ports[0]);
    let ring = port.rates.get_mut(&Meaning::TxBytes).unwrap();
    *ring = Ring::default();
    (0..9).for_each(|_| ring.push(Some(GB)));
    assert_eq!((world.coverage().unexplained, told(&world)), (None, Vec::new()));
}

#[test]
fn the_kernels_own_qps_are_told_but_for_those_of_management() {
    let mut world = world(&Moved { sent: 0.0, packets: Some(0.0), ..UNSEEN });
    qp(&mut world, 1, None, false);
    assert_eq!(told(&world), []);
    qp(&mut world, 17, None, false);
    let process = &world.unseen()[0];
    assert_eq!((process.pid, process.ways[0].way, process.who().as_str()), (None, Way::Kernel, "the kernel (train)"));
}

#[test]
fn where_posts_are_not_watched_that_none_is_seen_says_nothing() {
    let mut world = world(&UNSEEN);
    qp(&mut world, 17, None, false);
    qp(&mut world, 18, Some(8), false);
    maps(&mut world, 7, Way::UcxMlx5);
    qp(&mut world, 19, Some(7), false);
    world.probes = None;
    let all = world.unseen();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].pid, all[0].silent, all[0].likelihood), (Some(7), 0, Likelihood::Possible));
}

#[test]
fn a_qp_that_has_just_come_may_be_about_to_post() {
    let mut world = world(&UNSEEN);
    world.now = 5_000_000_000;
    qp(&mut world, 17, Some(8), false);
    assert_eq!(told(&world), []);
}
