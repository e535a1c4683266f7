//! Facts the model must keep: conservation, what each knob and fault does, and the figures of a model made before.

mod known;

use super::*;

/// Sums of everything an observer is told.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    packets: u64,
    bytes: u64,
    ce: u64,
    not_ect: u64,
    longest: u64,
    last_ps: Picos,
    cnps_sent: u64,
    cnps_handled: u64,
    cnps_ignored: u64,
    messages: u64,
    message_bytes: u64,
    probes_ns: Vec<u64>,
    pauses: u64,
}

impl Observer for Seen {
    fn packet(&mut self, packet: &Packet) {
        assert!(packet.t_ps >= self.last_ps, "in the order of time");
        self.last_ps = packet.t_ps;
        self.packets += 1;
        self.bytes += u64::from(packet.bytes);
        self.ce += u64::from(packet.ecn == Ecn::Ce);
        self.not_ect += u64::from(packet.ecn == Ecn::NotEct);
        self.longest = self.longest.max(packet.queue_bytes);
    }

    fn cnp_sent(&mut self, _: &Cnp) {
        self.cnps_sent += 1;
    }

    fn cnp_arrived(&mut self, _: &Cnp, handled: bool) {
        if handled {
            self.cnps_handled += 1;
        } else {
            self.cnps_ignored += 1;
        }
    }

    fn message(&mut self, message: &Message) {
        assert!(message.end_ps > message.start_ps);
        if message.probe {
            self.probes_ns.push((message.end_ps - message.start_ps) / PS_PER_NS);
        } else {
            self.messages += 1;
            self.message_bytes += message.bytes;
        }
    }

    fn pause(&mut self, _: Picos, silent: bool) {
        self.pauses += u64::from(silent);
    }
}

/// 5 ms of [`Params::example`], changed.
fn seen(change: impl FnOnce(&mut Params)) -> Seen {
    let mut params = Params { duration_ns: 5_000_000, warm_up_ns: 0, ..Params::example() };
    change(&mut params);
    params.check().unwrap();
    let mut seen = Seen::default();
    run(&params, &mut seen);
    seen
}

fn incast(params: &mut Params) {
    params.workload = Workload::Incast { message_bytes: 256_000 };
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let one = seen(|_| {});
    assert!(one.packets > 10_000 && one.ce > 0, "{one:?}");
    assert_eq!(one, seen(|_| {}));
    assert_ne!(one, seen(|params| params.seed = 2));
}

#[test]
fn the_extremes_of_every_parameter_end_without_overflow() {
    let extremes: [fn(&mut Params); 8] = [
        |params| params.control.recovery_steps = u32::MAX,
        |params| (params.control.byte_reset, params.control.increase_period_ns) = (None, 1_000_000_000_000),
        |params| (params.control.cnp_interval_ns, params.control.min_cut_interval_ns) = (0, 0),
        |params| (params.control.g, params.control.min_rate_gbps) = (1.0, 1e-6),
        |params| params.red = Red { kmin_bytes: 0, kmax_bytes: 0, pmax: 0.0 },
        |params| (params.senders, params.rate_gbps, params.duration_ns) = (4_096, 3_200.0, 5_000),
        |params| params.pfc = Some(Pfc { xoff_bytes: 4_178, xon_bytes: 0, delay_ns: 1_000_000 }),
        |params| (params.rate_gbps, params.packet_bytes, params.rtt_ns) = (1.0, 65_536, 10_000_000),
    ];
    for extreme in extremes {
        let seen = seen(|params| {
            incast(params);
            params.duration_ns = 1_000_000;
            extreme(params);
        });
        assert!(seen.packets > 0);
    }
}

#[test]
fn a_run_in_pieces_is_the_run_in_one() {
    let params = Params { duration_ns: 3_000_000, ..Params::example() };
    let (mut whole, mut pieces) = (Seen::default(), Seen::default());
    run(&params, &mut whole);
    let mut simulation = Simulation::new(&params);
    for until in [1, 1_000_000, 1_234_567, 3_000_000] {
        simulation.advance(until * PS_PER_NS, &mut pieces);
    }
    assert_eq!(whole, pieces);
}

#[test]
fn no_more_is_sent_than_the_bottleneck_carries_in_the_long_run() {
    let params = Params { workload: Workload::Incast { message_bytes: 256_000 }, ..Params::example() };
    let figures = Measure::of(&Params { duration_ns: 30_000_000, ..params }, &[2.0]);
    assert!(figures.utilisation > 0.95 && figures.utilisation <= 1.0 + 1e-9, "{figures:?}");
    assert!((figures.packets as f64 * 4_178.0 * 8.0 / 10e6 / 400.0 - 1.0).abs() < 0.05, "{figures:?}");
}

#[test]
fn messages_carry_what_packets_carried_and_a_burst_alone_takes_its_wire_time_and_a_round_trip() {
    let mut latencies = Latencies::default();
    let params = Params {
        senders: 1,
        workload: Workload::Bursts { bytes: 41_780, load: 0.01 },
        duration_ns: 1_000_000,
        ..Params::example()
    };
    run(&params, &mut latencies);
    assert!(!latencies.0.is_empty());
    assert!(latencies.0.iter().all(|ns| *ns == 8_835), "ten packets of 83.56 ns, and 8 µs: {:?}", latencies.0);
}

#[derive(Default)]
struct Latencies(Vec<u64>);

impl Observer for Latencies {
    fn message(&mut self, message: &Message) {
        self.0.push((message.end_ps - message.start_ps) / PS_PER_NS);
    }
}

#[test]
fn every_cnp_that_was_sent_arrives_or_is_on_its_way() {
    let seen = seen(incast);
    assert!(seen.cnps_handled > 100 && seen.cnps_sent - seen.cnps_handled <= 16 * 4, "{seen:?}");
    assert!(seen.cnps_sent <= seen.ce);
}

#[test]
fn each_fault_has_its_sign() {
    let marking_off = seen(|params| {
        incast(params);
        params.faults.marking_off = true;
        params.pfc = Some(Pfc { xoff_bytes: 1_000_000, xon_bytes: 900_000, delay_ns: 1_000 });
    });
    assert!(marking_off.ce == 0 && marking_off.pauses > 100, "{marking_off:?}");
    let not_ect = seen(|params| params.faults.not_ect_share = 0.5);
    assert!((0.4..0.6).contains(&(not_ect.not_ect as f64 / not_ect.packets as f64)), "{not_ect:?}");
    let np_off = seen(|params| {
        params.faults.np_off = true;
    });
    assert!(np_off.ce > 1_000 && np_off.cnps_sent == 0, "{np_off:?}");
    let rp_off = seen(|params| params.faults.rp_off = true);
    assert!(rp_off.cnps_ignored > 100 && rp_off.cnps_handled == 0, "{rp_off:?}");
    let lost = seen(|params| params.faults.cnp_loss = 1.0);
    assert!(lost.cnps_sent > 100 && lost.cnps_handled + lost.cnps_ignored == 0, "{lost:?}");
}

#[test]
fn senders_that_hear_no_cnp_keep_sending_at_line_rate() {
    let params = Params { duration_ns: 300_000, ..Params::example() };
    let deaf = Params { faults: Faults { rp_off: true, ..Faults::default() }, ..params.clone() };
    for (params, obeys) in [(params, true), (deaf, false)] {
        let mut simulation =
            Simulation::new(&Params { workload: Workload::Incast { message_bytes: 256_000 }, ..params });
        simulation.advance(300_000 * PS_PER_NS, &mut ());
        let rate = simulation.rate_gbps(0).unwrap();
        assert!(if obeys { rate < 200.0 } else { rate >= 400.0 }, "{rate} {obeys}");
        assert_eq!(simulation.rate_gbps(16), None);
    }
}

#[test]
fn marks_without_a_queue_are_all_premature() {
    let params = Params {
        workload: Workload::Paced { load: 0.3, message_bytes: 256_000 },
        red: Red { kmin_bytes: 1_000_000, kmax_bytes: 2_000_000, pmax: 0.01 },
        faults: Faults { random_marking: 0.01, ..Faults::default() },
        duration_ns: 30_000_000,
        ..Params::example()
    };
    let figures = Measure::of(&params, &[1.0, 2.0]);
    let rate = figures.mark_rate.unwrap();
    assert!((0.008..0.012).contains(&rate), "{rate}");
    assert!(figures.truth.iter().all(|(_, counts)| counts.premature_share() == Some(1.0)), "{figures:?}");
}

#[test]
fn pause_keeps_the_queue_below_what_arrives_while_it_travels() {
    // 16 senders at line rate for the microsecond until they hear it: 800 KB.
    let xoff = 1_000_000;
    let seen = seen(|params| {
        incast(params);
        params.faults.rp_off = true;
        params.pfc = Some(Pfc { xoff_bytes: xoff, xon_bytes: 900_000, delay_ns: 1_000 });
    });
    assert!(seen.longest > xoff && seen.longest < xoff + 900_000, "{}", seen.longest);
    let figures = Measure::of(
        &Params {
            workload: Workload::Incast { message_bytes: 256_000 },
            faults: Faults { rp_off: true, ..Faults::default() },
            pfc: Some(Pfc { xoff_bytes: xoff, xon_bytes: 900_000, delay_ns: 1_000 }),
            duration_ns: 30_000_000,
            ..Params::example()
        },
        &[2.0],
    );
    let pause = figures.pause_share.unwrap();
    assert!(pause > 0.9 && figures.utilisation > 0.99, "16 line rates into one: {figures:?}");
    assert!((0.0..=1.0).contains(&pause));
}

#[test]
fn a_small_message_waits_for_the_queue_in_front_of_it() {
    let probe = Some(Probe { bytes: 300, gap_ns: 20_000 });
    let idle = seen(|params| {
        params.workload = Workload::Paced { load: 0.1, message_bytes: 256_000 };
        params.probe = probe;
    });
    let busy = seen(|params| {
        params.red = Red { kmin_bytes: 400_000, kmax_bytes: 1_600_000, pmax: 0.2 };
        params.probe = probe;
    });
    let (least, most) =
        (|seen: &Seen| seen.probes_ns.iter().min().copied(), |seen: &Seen| seen.probes_ns.iter().max().copied());
    assert_eq!(least(&idle), Some(8_006), "300 bytes take 6 ns");
    assert!(most(&idle) < Some(9_000) && most(&busy) > Some(16_000), "{:?} {:?}", most(&idle), most(&busy));
}

#[test]
fn k_star_is_68_kilobytes_at_400_gbps_and_8_microseconds() {
    assert_eq!(truth::k_star_bytes(400.0, 8_000), 68_000);
}

/// A packet of 1000 bytes that finds a queue.
fn found(at_ns: u64, queue_bytes: u64, ce: bool) -> Packet {
    let t_ps = at_ns * PS_PER_NS;
    let ecn = if ce { Ecn::Ce } else { Ecn::Ect };
    Packet { t_ps, leaves_ps: t_ps, flow: 0, bytes: 1_000, queue_bytes, ecn }
}

#[test]
fn a_mark_is_true_inside_of_a_long_enough_time_above_k_star_and_premature_elsewhere() {
    // K* is 68 KB, a round trip 8 µs; the queue drains 50 bytes a nanosecond.
    let mut truth = Truth::new(400.0, 8_000, &[1.0, 2.0]);
    assert_eq!(truth.packet(&found(0, 10_000, true)), None);
    // Above for 10 µs: long for L = 1, short for L = 2.
    truth.packet(&found(1_000, 68_000, false));
    truth.packet(&found(5_000, 90_000, true));
    truth.packet(&found(10_970, 68_500, false));
    let ended = truth.packet(&found(50_000, 0, false)).unwrap();
    assert_eq!((ended.start_ps, ended.end_ps, ended.marks), (1_000_000, 11_000_000, 1));
    // Above for 20 µs without a mark.
    truth.packet(&found(60_000, 70_000, false));
    truth.packet(&found(79_940, 70_000, false));
    assert_eq!(truth.finish().unwrap().length_ps(), 20_000_000);
    let counts: Vec<truth::Counts> = truth.counts().map(|(_, counts)| counts).collect();
    assert_eq!((counts[0].true_marks, counts[0].premature_marks, counts[0].congested, counts[0].missed), (1, 1, 2, 1));
    assert_eq!((counts[1].true_marks, counts[1].premature_marks, counts[1].congested, counts[1].missed), (0, 2, 1, 1));
    assert_eq!((counts[0].congested_ps, counts[1].congested_ps), (30_000_000, 20_000_000));
    assert_eq!(counts[1].premature_share(), Some(1.0));
    assert_eq!(truth::Counts::default().premature_share(), None);
}

#[test]
fn marks_of_a_time_that_is_not_over_are_true_as_soon_as_it_is_long_enough() {
    let mut truth = Truth::new(400.0, 8_000, &[1.0]);
    truth.packet(&found(0, 100_000, true));
    truth.packet(&found(7_000, 100_000, true));
    assert_eq!(truth.counts().next().unwrap().1, truth::Counts::default());
    truth.packet(&found(8_000, 100_000, false));
    assert_eq!(truth.counts().next().unwrap().1.true_marks, 2);
    assert_eq!(truth.open().unwrap().marks, 2);
}

#[test]
fn parameters_outside_their_range_are_refused_with_a_sentence() {
    let wrong = |change: fn(&mut Params)| {
        let mut params = Params::example();
        change(&mut params);
        params.check().unwrap_err().to_string()
    };
    assert_eq!(wrong(|params| params.senders = 0), "the number of senders is 0; it must be 1 to 4096");
    assert_eq!(wrong(|params| params.red.kmin_bytes = 300_000), "Kmin must not be above Kmax");
    assert!(wrong(|params| params.rate_gbps = f64::NAN).contains("the rate"));
    assert!(wrong(|params| params.workload = Workload::Bursts { bytes: 1, load: 17.0 }).contains("the load is 17"));
    assert!(wrong(|params| params.duration_ns = 1 << 60).contains("seconds to simulate"));
    assert!(wrong(|params| params.control.cnp_interval_ns = u64::MAX).contains("between CNPs"));
    assert!(wrong(|params| params.faults.cnp_loss = -0.1).contains("lost CNPs"));
    assert_eq!(Params::example().check(), Ok(()));
}
