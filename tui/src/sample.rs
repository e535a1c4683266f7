//! A made-up node for tests and for looking at the screens: five ports, virtual functions, 320 QPs; with a fault, a link
//! that goes down and takes its QPs along, a port with AER errors and marks at low load on another.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use collector::engine::Engine;
use collector::feed::{Feed, Mode, OwnCost, Status};
use collector::finding::{Book, Conclusion, Evidence, Grade, Severity, Subject, SubjectKey, Verdict};
use collector::inventory::{DeviceId, World};
use collector::observation::recording::Header;
use collector::observation::{
    AerTotals, Async, Body, CounterSource, Counters, Device, FailedProbe, Gid, Histogram, LinkLayer, Lost, Observation,
    Pairs, Pcie, Port, PortState, ProbeGroup, Probes, Qp, QpEvent, QpState, QpStats, Seeing, SourceState,
};
use collector::rule::Settings;
use collector::source::{Availability, Missing, ProbeReport};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_000 * SECOND;
/// The second in which the link goes down.
const FAULT_AT: u64 = 82;
/// QPs of each port.
const QPS: u32 = 64;
const HOST: &str = "gpu-node-17";

/// The node, second by second.
pub(crate) struct Node {
    engine: Engine,
    second: u64,
    fault: bool,
}

struct Line<'a> {
    name: &'a str,
    rx_gbps: f64,
    tx_gbps: f64,
    ce: f64,
}

const PORTS: [Line<'static>; 5] = [
    Line { name: "mlx5_0", rx_gbps: 312.0, tx_gbps: 309.0, ce: 0.0 },
    Line { name: "mlx5_1", rx_gbps: 310.0, tx_gbps: 311.0, ce: 3.0 },
    Line { name: "mlx5_2", rx_gbps: 310.0, tx_gbps: 312.0, ce: 2.0 },
    Line { name: "mlx5_3", rx_gbps: 308.0, tx_gbps: 305.0, ce: 0.0 },
    Line { name: "mlx5_4", rx_gbps: 196.0, tx_gbps: 201.0, ce: 0.0 },
];

fn pci(at: usize) -> String {
    format!("0000:{:02x}:00.0", 0x3b + at * 0x10)
}

impl Node {
    /// The node before its first second.
    pub(crate) fn new(fault: bool) -> Self {
        let header = Header {
            host: Some(HOST.to_owned()),
            kernel: Some("6.1.0-57".to_owned()),
            unix_ns: Some(1_790_000_000 * SECOND),
            mono_ns: Some(START),
            ..Header::new()
        };
        let mut node = Self { engine: Engine::new(header, Settings::default()), second: 0, fault };
        node.begin();
        node
    }

    fn take(&mut self, ms: u64, body: Body<'_>) {
        self.engine.take(&Observation { t: START + self.second * SECOND + ms * 1_000_000, body });
    }

    fn begin(&mut self) {
        for (name, state, reason) in [
            ("sysfs", Seeing::Ok, None),
            ("nldev", Seeing::Ok, None),
            ("ethtool", Seeing::Partial, Some("ib0: no such statistics")),
            ("pcie", Seeing::Ok, None),
            ("loopback", Seeing::Off, Some("everything: off unless asked for")),
        ] {
            let body = SourceState { source: name.into(), state, reason: reason.map(Cow::from) };
            self.take(0, Body::Source(body));
        }
        for (at, port) in PORTS.iter().enumerate() {
            let own = pci(at);
            let device = Device {
                device: port.name.into(),
                driver: Some("mlx5_core".into()),
                node_guid: Some(format!("b83f:d203:0000:{at:04x}").into()),
                fw: Some("28.39.2048".into()),
                pci: Some(own.into()),
                model: Some("MT_0000000838".into()),
                ..Device::default()
            };
            self.take(0, Body::Device(device));
            self.port(at, PortState::Active);
        }
        for at in 0..4u32 {
            let name = format!("mlx5_{}", at + 5);
            let device = Device {
                device: name.as_str().into(),
                driver: Some("mlx5_core".into()),
                node_guid: Some(format!("0000:0000:0001:{at:04x}").into()),
                pci: Some(format!("0000:3b:00.{}", at + 1).into()),
                physfn: Some(pci(0).into()),
                vf: Some(true),
                ..Device::default()
            };
            self.take(0, Body::Device(device));
            let port = Port {
                device: name.as_str().into(),
                port: 1,
                link_layer: LinkLayer::Ethernet,
                state: PortState::Active,
                rate_gbps: Some(400.0),
                ..Port::default()
            };
            self.take(0, Body::Port(port));
        }
        for at in 0..PORTS.len() {
            self.create_qps(at);
        }
    }

    fn port(&mut self, at: usize, state: PortState) {
        let infiniband = at == 4;
        let gids = if infiniband {
            Vec::new()
        } else {
            vec![Gid { index: 3, gid: "::ffff:10.0.0.1".into(), kind: Some("RoCE v2".into()), netdev: None }]
        };
        let port = Port {
            device: PORTS[at].name.into(),
            port: 1,
            link_layer: if infiniband { LinkLayer::InfiniBand } else { LinkLayer::Ethernet },
            state,
            phys_state: Some(if state == PortState::Active { "LinkUp" } else { "Polling" }.into()),
            rate_gbps: Some(400.0),
            lanes: Some(4),
            netdevs: vec![if infiniband { "ib0".to_owned() } else { format!("eth{at}") }.into()],
            gids,
            ..Port::default()
        };
        let ms = if state == PortState::Active { 0 } else { 118 };
        self.take(ms, Body::Port(port));
    }

    fn create_qps(&mut self, at: usize) {
        for n in 0..QPS {
            let base = Qp {
                device: PORTS[at].name.into(),
                qpn: 100 + n,
                port: Some(1),
                qp_type: Some("RC".into()),
                pid: Some(4_000 + n / 8),
                comm: Some(if n % 8 == 0 { "ncclProxy" } else { "python3" }.into()),
                remote_qpn: Some(200 + n),
                remote_gid: Some(format!("::ffff:10.0.{at}.{}", n % 16 + 2).into()),
                ..Qp::default()
            };
            let mut from = QpState::Reset;
            self.take(1, Body::Qp(Qp { event: QpEvent::Create, to: Some(from), ..base.clone() }));
            for (ms, to) in [(2, QpState::Init), (4, QpState::Rtr), (5, QpState::Rts)] {
                let moved = Qp {
                    event: QpEvent::Modify,
                    from: Some(from),
                    to: Some(to),
                    timeout: Some(14),
                    retry_cnt: Some(7),
                    rnr_retry: Some(7),
                    path_mtu: Some(4_096),
                    ..base.clone()
                };
                self.take(ms, Body::Qp(moved));
                from = to;
            }
        }
    }

    /// One second passes.
    pub(crate) fn second(&mut self) {
        self.second += 1;
        let broken = self.fault && self.second >= FAULT_AT;
        if self.fault && self.second == FAULT_AT {
            self.break_link();
        }
        for at in 0..PORTS.len() {
            self.counters(at, broken);
            self.statistics(at, broken && at == 4);
            self.pcie(at);
        }
        let probes = Probes {
            wanted: 9,
            attached: if self.fault { 8 } else { 9 },
            failed: if self.fault {
                vec![FailedProbe { name: "mlx5_fw".into(), reason: "no such tracepoint on this kernel".into() }]
            } else {
                Vec::new()
            },
            hits: Some(self.second * 41_000),
            cost_ns: Some(self.second * 2_100_000),
            budget_share: Some(0.01),
            groups: vec![
                ProbeGroup {
                    group: "posts".into(),
                    hits: self.second * 1_000,
                    hit_ns: 1_100,
                    measured: true,
                    ..ProbeGroup::default()
                },
                ProbeGroup {
                    group: "completions".into(),
                    hits: self.second * 40_000,
                    hit_ns: 1_300,
                    measured: true,
                    paused: self.fault,
                    window_ns: Some(180_000_000),
                    period_ns: Some(5_200_000_000),
                },
            ],
            ..Probes::default()
        };
        self.take(200, Body::Probes(probes));
        if self.fault && self.second == 90 {
            self.take(310, Body::Lost(Lost { source: "probes".into(), n: 17 }));
        }
    }

    fn break_link(&mut self) {
        self.port(4, PortState::Down);
        self.take(
            119,
            Body::Async(Async { device: "mlx5_4".into(), port: Some(1), qpn: None, event: "PORT_ERR".into() }),
        );
        for n in 0..QPS {
            let failed = Qp {
                device: "mlx5_4".into(),
                qpn: 100 + n,
                port: Some(1),
                event: QpEvent::Seen,
                to: Some(QpState::Err),
                ..Qp::default()
            };
            self.take(350 + u64::from(n) / 2, Body::Qp(failed));
        }
    }

    fn counters(&mut self, at: usize, broken: bool) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        fn sum(per_second: impl Fn(u64) -> f64, seconds: u64) -> u64 {
            (0..=seconds).map(|s| per_second(s) as u64).sum()
        }
        let line = &PORTS[at];
        let down = broken && at == 4;
        let last = if down { FAULT_AT - 1 } else { self.second };
        let fault = self.fault;
        let words = |gbps: f64| sum(|s| load(at, s, fault) * gbps * 1e9 / 32.0, last);
        let (rx, tx) = (words(line.rx_gbps), words(line.tx_gbps));
        let marked = |s: u64| if at == 1 && self.fault && s > 60 { 41_200.0 } else { line.ce };
        let ce = sum(marked, self.second);
        let mut values = Pairs::default();
        for (name, value) in [
            ("port_rcv_data", rx),
            ("port_xmit_data", tx),
            ("port_rcv_packets", rx / 1024),
            ("port_xmit_packets", tx / 1024),
            ("symbol_error", 0),
            ("link_downed", u64::from(down)),
            ("local_link_integrity_errors", if at == 3 && self.fault { 15 } else { 0 }),
            ("port_rcv_errors", 0),
            ("port_xmit_wait", 12_000 + self.second * 3),
        ] {
            values.push(name, value);
        }
        let set = |source, values, unavailable| Counters {
            device: line.name.into(),
            port: Some(1),
            source,
            values,
            unavailable,
            ..Counters::default()
        };
        let pma = set(CounterSource::Counters, values, Pairs::default());
        self.take(100, Body::Counters(pma));
        let mut values = Pairs::default();
        for (name, value) in [
            ("np_ecn_marked_roce_packets", ce),
            ("np_cnp_sent", ce * 3 / 10),
            ("rp_cnp_handled", ce / 50),
            ("rp_cnp_ignored", 0),
            ("packet_seq_err", u64::from(at == 3) * self.second / 9),
            ("local_ack_timeout_err", 0),
            ("out_of_sequence", 0),
            ("req_transport_retries_exceeded", if down { 64 } else { 0 }),
        ] {
            values.push(name, value);
        }
        let mut unavailable = Pairs::default();
        unavailable.push("roce_adp_retrans", Cow::from("EACCES: permission denied"));
        self.take(110, Body::Counters(set(CounterSource::HwCounters, values, unavailable)));
        if at != 4 {
            let mut values = Pairs::default();
            values.push("rx_prio3_pause_duration", if at == 0 { self.second * 1_000 } else { 0 });
            values.push("rx_prio3_pause", if at == 0 { self.second * 40 } else { 0 });
            values.push("rx_pcs_symbol_err_phy", if at == 3 && self.fault && self.second > 100 { 7 } else { 0 });
            let ethtool = Counters {
                netdev: Some(format!("eth{at}").into()),
                ..set(CounterSource::Ethtool, values, Pairs::default())
            };
            self.take(120, Body::Counters(ethtool));
        }
    }

    fn statistics(&mut self, at: usize, down: bool) {
        if down {
            return;
        }
        for n in 0..QPS {
            let second = self.second;
            let wrs = second * (3_000 + u64::from(n) * 17);
            let mut sizes = vec![0; 32];
            sizes[6] = wrs / 10;
            sizes[12] = wrs / 5;
            sizes[20] = wrs - wrs / 10 - wrs / 5;
            let mut latency = vec![0; 64];
            for (bucket, part) in [(14, 2), (15, 6), (16, 1), (19, 1)] {
                latency[bucket] = wrs * part / 10;
            }
            let mut opcodes = Pairs::default();
            opcodes.push("RDMA_WRITE", wrs - wrs / 10);
            opcodes.push("SEND", wrs / 10);
            let stats = QpStats {
                device: PORTS[at].name.into(),
                qpn: 100 + n,
                posts: wrs,
                wrs,
                bytes: second * 580_000_000 + u64::from(n) * second * 10_000,
                signaled: Some(wrs / 8),
                size_log2: Some(Histogram(sizes)),
                opcodes,
                completions: Some(wrs / 8),
                latency_log2_ns: Some(Histogram(latency)),
                ..QpStats::default()
            };
            self.take(200, Body::QpStats(stats));
        }
    }

    fn pcie(&mut self, at: usize) {
        let mut correctable = Pairs::default();
        let aer = if at == 3 && self.fault { self.second.saturating_sub(70) / 2 } else { 0 };
        correctable.push("Rollover", aer);
        correctable.push("TOTAL_ERR_COR", aer);
        let root = format!("0000:{:02x}:01.0", 0x3a + at * 0x10);
        let seen = Pcie {
            pci: pci(at).into(),
            path: vec![root.into(), pci(at).into()],
            speed_gts: Some(32.0),
            width: Some(16),
            max_speed_gts: Some(32.0),
            max_width: Some(16),
            aer: Some(AerTotals { correctable, ..AerTotals::default() }),
            ..Pcie::default()
        };
        self.take(130, Body::Pcie(seen));
    }

    /// The world now, with the findings a fault gives.
    pub(crate) fn world(&self) -> Arc<World> {
        let mut world = self.engine.world().clone();
        let (findings, cleared) = self.findings();
        (world.findings, world.cleared) = (findings, cleared);
        Arc::new(world)
    }

    fn findings(&self) -> (Vec<Arc<collector::finding::Finding>>, Vec<Arc<collector::finding::Finding>>) {
        let mut book = Book::default();
        let now = START + self.second * SECOND;
        let mut changes = Vec::new();
        let conclude =
            |at: u32, severity, grade, since: u64, summary: &str, evidence, advice: &str, would_raise: &str| {
                Verdict::Holds(Box::new(Conclusion {
                    key: SubjectKey::Port(DeviceId(at), 1),
                    subject: Subject { device: Some(format!("mlx5_{at}").into()), port: Some(1), ..Subject::default() },
                    severity,
                    grade,
                    summary: summary.to_owned(),
                    evidence,
                    advice: advice.to_owned(),
                    would_raise: would_raise.to_owned(),
                    part_of: None,
                    since,
                    revision: 0,
                }))
            };
        if self.fault && self.second >= FAULT_AT {
            let since = START + FAULT_AT * SECOND + 118_000_000;
            let down = conclude(
                4,
                Severity::Critical,
                Grade::Confirmed,
                since,
                "port left ACTIVE; 64 QPs in error 232–264 ms later; no drain",
                vec![
                    Evidence::new("port state", None, None, None, "DOWN"),
                    Evidence::new("link_downed", Some(60.0), 1.0, 0.0, "events"),
                ],
                "Check cable and switch port; move the job to another rail.",
                "",
            );
            book.enter("link.down", now, vec![down], &mut changes);
            let mut failing = conclude(
                4,
                Severity::Critical,
                Grade::Confirmed,
                since,
                "port is failing: port down",
                vec![Evidence::new("state DOWN", None, None, None, "ACTIVE expected")],
                "Move the work to another port; then look at the findings about this port for the cause.",
                "",
            );
            if let Verdict::Holds(conclusion) = &mut failing {
                conclusion.part_of = Some(("link.down", SubjectKey::Port(DeviceId(4), 1)));
            }
            book.enter("nic.composite", now, vec![failing], &mut changes);
        }
        if self.fault && self.second > 75 {
            let since = START + 72 * SECOND;
            let mut storm = conclude(
                3,
                Severity::Warning,
                Grade::Probable,
                since,
                "30 corrected PCIe errors per minute (Rollover) on 0000:6b:00.0",
                vec![Evidence::new("aer_dev_correctable Rollover", Some(60.0), 30.0, 10.0, "errors/min")],
                "Reseat the card or the riser; watch for a link downgrade.",
                "a non-fatal error on the same path",
            );
            if let Verdict::Holds(conclusion) = &mut storm {
                conclusion.key = SubjectKey::Pci("0000:6b:00.0".into());
                (conclusion.subject.port, conclusion.subject.pci) = (None, Some("0000:6b:00.0".into()));
            }
            book.enter("pcie.aer_storm", now, vec![storm], &mut changes);
            let since = START + 63 * SECOND;
            let premature = conclude(
                1,
                Severity::Warning,
                Grade::Suspected,
                since,
                "41.2k CE/s at 43 % load, no pause: marked before the queue is long (Kmin too low at the switch?)",
                vec![
                    Evidence::new("np_ecn_marked_roce_packets", Some(1.0), 41_200.0, 1_000.0, "packets/s"),
                    Evidence::new("received share of the rate", Some(1.0), 0.43, 0.5, "share"),
                ],
                "Compare Kmin and Kmax at the switch with 2·BDP; `rdmascope whatif` shows what a larger Kmin gives.",
                "small-message latency at its baseline in the same windows",
            );
            book.enter("ecn.premature", now, vec![premature], &mut changes);
            let flap = conclude(
                2,
                Severity::Warning,
                Grade::Confirmed,
                START,
                "2 flaps in 1 h",
                vec![],
                "Check the cable.",
                "",
            );
            book.enter("link.flap", START + 70 * SECOND, vec![flap], &mut changes);
            book.enter("link.flap", START + 80 * SECOND, vec![], &mut changes);
        }
        let mut findings: Vec<_> = book.all_raised().cloned().collect();
        findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(b.first_t.cmp(&a.first_t)));
        (collector::incident::arranged(&findings), book.cleared().iter().rev().cloned().collect())
    }

    /// The state of a producer of this node.
    pub(crate) fn status(mode: Mode) -> Status {
        let missing = |what: &str, reason: &str, fix: &str| Missing {
            what: what.to_owned(),
            reason: reason.to_owned(),
            fix: Some(fix.to_owned()),
        };
        let unmeasured = missing("everything", "off unless asked for", "--loopback");
        let source = |name, state, sees: &str, missing| Availability { name, state, sees: sees.to_owned(), missing };
        Status {
            own: OwnCost { cpu_share: Some(0.004), resident_bytes: Some(61 << 20) },
            sources: vec![
                source("sysfs", Seeing::Ok, "9 devices, 9 ports, 153 counters", vec![]),
                source("nldev", Seeing::Ok, "320 QPs", vec![]),
                source(
                    "ethtool",
                    Seeing::Partial,
                    "4 netdevs, 12 counters",
                    vec![missing("ib0", "no such statistics", "nothing: IPoIB has none")],
                ),
                source("loopback", Seeing::Off, "", vec![unmeasured]),
            ],
            probes: vec![ProbeReport {
                name: "ib_modify_qp".to_owned(),
                wanted: true,
                attached: true,
                at: Some("kprobe ib_modify_qp_with_udata".to_owned()),
                reason: None,
                fix: None,
            }],
            published_at: START,
            ..Status::new(mode)
        }
    }
}

/// How much a port moves in a second: it wavers a little, the same every time.
fn load(at: usize, second: u64, fault: bool) -> f64 {
    let phase = (second + at as u64 * 7) % 20;
    let slow = at == 1 && fault && second > 60;
    (1.0 - phase as f64 / 200.0) * if slow { 0.55 } else { 1.0 }
}

/// Two minutes of a healthy node.
pub(crate) fn healthy() -> Arc<World> {
    static MADE: OnceLock<Arc<World>> = OnceLock::new();
    MADE.get_or_init(|| after(false, 120)).clone()
}

/// Two minutes of a node whose link went down 38 s ago.
pub(crate) fn faulty() -> Arc<World> {
    static MADE: OnceLock<Arc<World>> = OnceLock::new();
    MADE.get_or_init(|| after(true, 120)).clone()
}

fn after(fault: bool, seconds: u64) -> Arc<World> {
    let mut node = Node::new(fault);
    for _ in 0..seconds {
        node.second();
    }
    node.world()
}

/// A feed that has published one world.
pub(crate) fn feed(world: Arc<World>, mode: Mode) -> Feed {
    let feed = Feed::new(world.clone(), Status::new(mode));
    feed.publish(world, Node::status(mode));
    feed
}
