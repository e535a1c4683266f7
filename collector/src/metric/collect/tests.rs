//! What is exported of worlds made of hand-written observations, and of a simulated node.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value as Json, json};

use super::*;
use crate::engine::Engine;
use crate::metric::Kind;
use crate::metric::page::page;
use crate::observation::recording::{Header, Reader};
use crate::observation::{Body, Observation};
use crate::rule::Settings;
use crate::sim::{Simulator, Size};

const S: u64 = 1_000_000_000;

/// Observations in the recording's own words, in whole seconds.
#[derive(Default)]
struct Log(Vec<String>);

impl Log {
    fn add(&mut self, s: u64, kind: &str, mut fields: Json) -> &mut Self {
        (fields["t"], fields["type"]) = ((s * S).into(), kind.into());
        self.0.push(fields.to_string());
        self
    }

    fn device(&mut self, s: u64) -> &mut Self {
        self.add(s, "device", json!({"device": "mlx5_0", "driver": "mlx5_core", "pci": "0000:3b:00.0"}));
        let port =
            json!({"device": "mlx5_0", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE", "rate_gbps": 400.0});
        self.add(s, "port", port)
    }

    fn counters(&mut self, s: u64, source: &str, values: impl Into<Json>) -> &mut Self {
        self.add(s, "counters", json!({"device": "mlx5_0", "port": 1, "source": source, "values": values.into()}))
    }

    fn world(&self) -> World {
        let mut text = b"{\"type\":\"header\",\"format\":\"rdmascope-recording\",\"version\":1}\n".to_vec();
        text.extend(self.0.join("\n").bytes().chain([b'\n']));
        let mut reader = Reader::new(&text[..]).unwrap();
        let mut engine = Engine::new(Header::new(), Settings::default());
        while reader.next(|observation| engine.take(observation)).unwrap().is_some() {}
        assert_eq!(reader.notices().lines(), Vec::<String>::new(), "a bad line in a test's log");
        engine.world().clone()
    }
}

fn exported(world: &World) -> Vec<Family> {
    collect(world, &SelfReport::default(), Options::default())
}

/// Value and start (s) of a metric's points by their attributes, without those that name the device.
fn points(families: &[Family], name: &str) -> BTreeMap<String, (f64, u64)> {
    let points = families.iter().filter(|family| family.metric.name == name).flat_map(|family| &family.points);
    points
        .map(|point| {
            let named = ["hw.id", "hw.name", "hw.type", "rdma.port"];
            let attributes = point.attributes.iter().filter(|(key, _)| !named.contains(key));
            let words: Vec<&str> = attributes.map(|(_, value)| &**value).collect();
            let value = match &point.value {
                Value::Int(value) => *value as f64,
                Value::Float(value) => *value,
                Value::Buckets(buckets) => buckets.counts.iter().sum::<u64>() as f64,
            };
            (words.join(" "), (value, point.start / S))
        })
        .collect()
}

fn of(log: &Log, name: &str) -> BTreeMap<String, (f64, u64)> {
    points(&exported(&log.world()), name)
}

fn map<const N: usize>(rows: [(&str, f64, u64); N]) -> BTreeMap<String, (f64, u64)> {
    rows.into_iter().map(|(words, value, start)| (words.to_owned(), (value, start))).collect()
}

#[test]
fn bytes_are_bytes_whatever_the_driver_counts_in() {
    let mut log = Log::default();
    log.device(1).counters(1, "counters", json!({"port_xmit_data": 1000, "port_rcv_data": 3}));
    assert_eq!(of(&log, "hw.network.io"), map([("transmit", 4000.0, 1), ("receive", 12.0, 1)]));
}

#[test]
fn a_reset_of_the_set_moves_the_start_to_the_reading_before_it() {
    let mut log = Log::default();
    let values = |n: u64| json!({"np_cnp_sent": n, "rp_cnp_handled": 2 * n, "np_ecn_marked_roce_packets": 3 * n});
    log.device(1).counters(1, "hw_counters", values(500)).counters(2, "hw_counters", values(600));
    assert_eq!(of(&log, "rdma.cnp.sent"), map([("", 600.0, 1)]));
    log.counters(3, "hw_counters", values(7));
    assert_eq!(of(&log, "rdma.cnp.sent"), map([("", 7.0, 2)]));
    assert_eq!(of(&log, "rdma.ecn.marked"), map([("", 21.0, 2)]));
    log.counters(4, "hw_counters", values(9)).counters(5, "hw_counters", values(9));
    assert_eq!(of(&log, "rdma.cnp.sent"), map([("", 9.0, 2)]));
}

/// The sum falls by 100 when one part is cleared; who takes a fall for a reset would count the other part again.
#[test]
fn a_sum_of_which_one_part_was_set_back_begins_at_zero() {
    let mut log = Log::default();
    let values = |a: u64, b: u64| json!({"port_xmit_constraint_errors": a, "port_rcv_constraint_errors": b, "port_xmit_data": 9});
    log.device(1).counters(1, "counters", values(100, 5)).counters(2, "counters", values(100, 6));
    assert_eq!(of(&log, "hw.errors")["constraint"], (106.0, 1));
    log.counters(3, "counters", values(1, 6)).counters(4, "counters", values(1, 6));
    assert_eq!(of(&log, "hw.errors")["constraint"], (1.0, 2));
    log.counters(5, "counters", values(1, 8)).counters(6, "counters", values(2, 8));
    assert_eq!(of(&log, "hw.errors")["constraint"], (4.0, 2));
}

#[test]
fn unreadable_saturated_and_stale_counters_have_no_point() {
    let mut log = Log::default();
    log.device(1).counters(1, "counters", json!({"symbol_error": 65_535, "link_downed": 3, "port_rcv_errors": 2}));
    assert_eq!(of(&log, "hw.errors"), map([("link_downed", 3.0, 1), ("packet receive", 2.0, 1)]));
    let lost = json!({"device": "mlx5_0", "port": 1, "source": "counters", "values": {"link_downed": 4},
        "unavailable": {"port_rcv_errors": "EINVAL"}});
    log.add(2, "counters", lost);
    assert_eq!(of(&log, "hw.errors"), map([("link_downed", 4.0, 1)]));
    log.add(5, "source", json!({"source": "netdev", "state": "ok"}));
    assert_eq!(of(&log, "hw.errors").len(), 1, "three seconds old");
    log.add(6, "source", json!({"source": "netdev", "state": "ok"}));
    assert_eq!(of(&log, "hw.errors").len(), 0, "four seconds old");
}

#[test]
fn a_meaning_whose_counters_change_begins_at_zero() {
    let mut log = Log::default();
    let both = |s: u64, log: &mut Log, phy: Option<u64>| {
        let (values, lost) = match phy {
            Some(n) => (json!({"link_down_events_phy": n}), json!({})),
            None => (json!({}), json!({"link_down_events_phy": "EIO"})),
        };
        let ethtool = json!({"device": "mlx5_0", "port": 1, "netdev": "eth0", "source": "ethtool", "values": values,
            "unavailable": lost});
        log.counters(s, "counters", json!({"link_downed": 90 + s})).add(s, "counters", ethtool);
    };
    log.device(1);
    both(1, &mut log, Some(3));
    both(2, &mut log, Some(3));
    assert_eq!(of(&log, "hw.errors"), map([("link_downed", 3.0, 1)]));
    both(3, &mut log, None);
    assert_eq!(of(&log, "hw.errors"), map([]), "until the window ends");
    both(4, &mut log, None);
    both(5, &mut log, None);
    assert_eq!(of(&log, "hw.errors"), map([("link_downed", 2.0, 3)]), "not 95");
}

#[test]
fn a_device_that_is_gone_has_no_points_and_a_renamed_one_keeps_its_identity() {
    let mut log = Log::default();
    log.device(1).counters(1, "hw_counters", json!({"np_cnp_sent": 5}));
    let ids = |families: &[Family]| -> HashSet<String> {
        let attributes = families.iter().flat_map(|family| &family.points).flat_map(|point| point.attributes.iter());
        attributes.filter(|(key, _)| *key == declared::HW_ID).map(|(_, value)| value.to_string()).collect()
    };
    let before = ids(&exported(&log.world()));
    assert_eq!(before, HashSet::from(["0000:3b:00.0".to_owned()]));
    log.add(2, "device", json!({"device": "mlx5_0", "removed": true}));
    assert!(ids(&exported(&log.world())).is_empty());
    log.add(2, "device", json!({"device": "rdma0", "driver": "mlx5_core", "pci": "0000:3b:00.0"}));
    assert_eq!(ids(&exported(&log.world())), before);
}

#[test]
fn qps_are_not_counted_when_nobody_sees_them_come_and_go_any_more() {
    let mut log = Log::default();
    log.device(1).add(
        1,
        "qp",
        json!({"device": "mlx5_0", "qpn": 7, "event": "seen", "to": "RTS", "qp_type": "RC", "pid": 9}),
    );
    let says = |log: &mut Log, source: &str, state: &str| {
        log.add(2, "source", json!({"source": source, "state": state}));
    };
    let counted = |log: &Log| {
        let families = collect(&log.world(), &SelfReport::default(), Options { processes: true, ..Options::default() });
        (points(&families, "rdma.qp.count").len(), points(&families, "rdma.process.qps").len())
    };
    assert_eq!(counted(&log), (1, 1), "a recording that says nothing of its sources");
    says(&mut log, "nldev", "ok");
    says(&mut log, "probes", "off");
    assert_eq!(counted(&log), (1, 1));
    says(&mut log, "nldev", "off");
    assert_eq!(counted(&log), (0, 0));
    says(&mut log, "probes", "partial");
    assert_eq!(counted(&log), (1, 1));
}

#[test]
fn a_device_keeps_its_identity_when_the_other_one_at_its_function_goes_and_comes_back() {
    let mut log = Log::default();
    let device = |log: &mut Log, s: u64, name: &str, guid: &str| {
        log.add(s, "device", json!({"device": name, "pci": "0000:3b:00.0", "node_guid": guid}));
    };
    let gone = |log: &mut Log, s: u64, name: &str| {
        log.add(s, "device", json!({"device": name, "removed": true}));
    };
    let ids = |log: &Log| {
        let world = log.world();
        world.present().map(|(id, device)| format!("{} {}", device.name, identity(&world, id))).collect::<Vec<_>>()
    };
    let (first, second, third) = ("0001:0000:0000:0001", "0001:0000:0000:0002", "0001:0000:0000:0003");
    device(&mut log, 1, "mlx5_0", first);
    device(&mut log, 1, "mlx5_1", second);
    let both = ["mlx5_0 0000:3b:00.0", "mlx5_1 0000:3b:00.0/mlx5_1"];
    assert_eq!(ids(&log), both);
    gone(&mut log, 2, "mlx5_0");
    assert_eq!(ids(&log), both[1..]);
    device(&mut log, 3, "mlx5_0", first);
    assert_eq!(ids(&log), both);
    // All go (a reload), and come back in another order.
    gone(&mut log, 4, "mlx5_0");
    gone(&mut log, 4, "mlx5_1");
    device(&mut log, 5, "mlx5_1", second);
    device(&mut log, 6, "mlx5_0", first);
    assert_eq!(ids(&log), both);
    // Another card in the slot, or a virtual function that was given another GUID, is the first one there again.
    gone(&mut log, 7, "mlx5_0");
    device(&mut log, 8, "mlx5_0", third);
    assert_eq!(ids(&log), ["mlx5_1 0000:3b:00.0/mlx5_1", "mlx5_0 0000:3b:00.0"]);
}

#[test]
fn the_state_of_a_port_is_a_number_only_when_it_is_known() {
    let mut log = Log::default();
    log.device(1);
    let up = |log: &Log| of(log, "hw.network.up").into_values().next().map(|(value, _)| value);
    assert_eq!(up(&log), Some(1.0));
    assert_eq!(of(&log, "hw.network.bandwidth.limit"), map([("", 5e10, 1)]));
    assert_eq!(of(&log, "hw.status")["ok"], (1.0, 1));
    log.add(2, "port", json!({"device": "mlx5_0", "port": 1, "state": "DOWN", "rate_gbps": 10.0}));
    assert_eq!(up(&log), Some(0.0));
    assert!(of(&log, "hw.network.bandwidth.limit").is_empty());
    assert_eq!(of(&log, "hw.status").into_iter().filter(|(_, (value, _))| *value > 0.0).count(), 1);
    assert_eq!(of(&log, "hw.status")["failed"], (1.0, 2));
    log.add(3, "port", json!({"device": "mlx5_0", "port": 1, "rate_gbps": 10.0}));
    assert_eq!(up(&log), None);
}

#[test]
fn pauses_are_told_by_priority_in_seconds_and_the_bus_in_bytes() {
    let mut log = Log::default();
    let values = json!({"rx_prio3_pause": 8, "rx_prio3_pause_duration": 1_500_000, "tx_prio4_pause_duration": 20});
    let ethtool = json!({"device": "mlx5_0", "port": 1, "netdev": "eth0", "source": "ethtool", "values": values});
    let link = json!({"pci": "0000:3b:00.0", "path": ["0000:3a:00.0", "0000:3b:00.0"], "speed_gts": 16.0, "width": 16,
        "max_speed_gts": 32.0, "max_width": 16,
        "aer": {"correctable": {"RxErr": 3, "Rollover": 4, "TOTAL_ERR_COR": 6}, "nonfatal": {"MalfTLP": 1}}});
    log.device(1).add(1, "counters", ethtool).add(1, "pcie", link);
    assert_eq!(of(&log, "rdma.pause.time"), map([("receive 3", 1.5, 1), ("transmit 4", 2e-5, 1)]));
    assert_eq!(of(&log, "rdma.pause.frames"), map([("receive 3", 8.0, 1)]));
    let aer = map([("0000:3b:00.0 correctable", 6.0, 1), ("0000:3b:00.0 nonfatal", 1.0, 1)]);
    assert_eq!(of(&log, "rdma.pcie.errors"), aer);
    assert_eq!(of(&log, "rdma.pcie.width"), map([("0000:3b:00.0", 16.0, 1)]));
    let rate = of(&log, "rdma.pcie.bandwidth")["0000:3b:00.0"].0;
    assert!((rate - 31.5e9).abs() < 0.1e9, "{rate}");
    log.add(4, "pcie", json!({"pci": "0000:3b:00.0", "aer": {"correctable": {"TOTAL_ERR_COR": 2}}}));
    assert_eq!(of(&log, "rdma.pcie.errors")["0000:3b:00.0 correctable"], (2.0, 1), "the start is the reading before");
}

fn fed(mut simulator: Simulator, until: u64, mut change: impl FnMut(&mut Body<'_>)) -> Engine {
    let mut engine = Engine::new(simulator.header(), Settings::default());
    simulator.advance(until, &mut |observation: &Observation<'_>| {
        let mut observation = observation.clone();
        change(&mut observation.body);
        engine.take(&observation);
    });
    engine
}

fn series(families: &[Family]) -> usize {
    families.iter().map(|family| family.points.len()).sum()
}

/// Eight NICs, 10,000 QPs, 200 processes. With `UPDATE=1` in the environment the page is written anew.
#[test]
fn a_large_node_has_fewer_than_2000_series_and_the_page_says_how_many() {
    let simulator = Simulator::with_size("healthy", 7, Size { qps_per_port: 1_300 }).unwrap();
    let mut known: std::collections::HashMap<(String, u32), u32> = std::collections::HashMap::new();
    let engine = fed(simulator, 20 * S, |body| {
        if let Body::Qp(qp) = body {
            let next = u32::try_from(known.len()).unwrap();
            qp.comm = Some("python3".into());
            qp.pid = Some(4000 + *known.entry((qp.device.to_string(), qp.qpn)).or_insert(next) % 200);
        }
        // A real node knows what its probes cost.
        if let Body::Probes(probes) = body {
            probes.cost_ns = probes.hits;
        }
    });
    let world = engine.world();
    let processes: HashSet<_> = world.qps.iter().filter_map(|qp| qp.pid).collect();
    assert!(world.qps.len() >= 10_000, "{}", world.qps.len());
    assert_eq!(processes.len(), 200);
    assert!(world.present().count() >= 8);
    let own = SelfReport { observations: Some(1), ..SelfReport::default() };
    let families = collect(world, &own, Options::default());
    let n = series(&families);
    assert!((500..2000).contains(&n), "{n} series");
    let asked = collect(world, &own, Options { processes: true, qps: 16, ..Options::default() });
    let more = |name: &str| asked.iter().find(|family| family.metric.name == name).unwrap().points.len();
    assert_eq!((more("rdma.process.qps"), more("rdma.qp.io")), (200, 16));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, page(n)).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == page(n), "docs/metrics.md is stale: run this test with UPDATE=1");
}

#[test]
fn every_point_has_declared_attributes_in_order_a_kind_and_a_name_of_its_own() {
    for scenario in ["aer-then-down", "pfc-storm", "dying-optic", "small-messages"] {
        let engine = fed(Simulator::new(scenario, 3).unwrap(), 90 * S, |_| ());
        let own = SelfReport {
            observations: Some(1),
            socket: Some(crate::sink::socket::SocketStatus::default()),
            hooks: Some(crate::metric::HooksReport::default()),
            recording: Some(crate::metric::RecordingReport::default()),
            ..SelfReport::default()
        };
        let families = collect(engine.world(), &own, Options { processes: true, qps: 8, ..Options::default() });
        assert!(families.len() > 40, "{scenario}: {}", families.len());
        for Family { metric, points } in &families {
            let mut seen = HashSet::new();
            for point in points {
                let places: Vec<_> = (point.attributes.iter())
                    .map(|(key, _)| metric.attributes.iter().position(|known| known == key))
                    .collect();
                assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}: {point:?}", metric.name);
                assert!(seen.insert(point.attributes.clone()), "{scenario}: {}: twice {point:?}", metric.name);
                assert!(point.start <= point.t && point.t <= engine.world().now, "{}: {point:?}", metric.name);
                assert_eq!(matches!(point.value, Value::Buckets(_)), metric.kind == Kind::Histogram, "{}", metric.name);
            }
        }
    }
}

/// What a node counted in all is what its totals grew by: a port that goes down and comes back loses and invents nothing.
#[test]
fn totals_of_a_simulated_fault_never_fall_without_a_new_start() {
    let mut simulator = Simulator::new("aer-then-down", 5).unwrap();
    let mut engine = Engine::new(simulator.header(), Settings::default());
    let mut before: BTreeMap<(&str, Vec<String>), (u64, f64)> = BTreeMap::new();
    for s in 1..=90 {
        simulator.advance(s * S, &mut |observation: &Observation<'_>| engine.take(observation));
        for family in exported(engine.world()).iter().filter(|family| family.metric.kind == Kind::Counter) {
            for point in &family.points {
                let value = match &point.value {
                    Value::Int(value) => *value as f64,
                    Value::Float(value) => *value,
                    Value::Buckets(_) => continue,
                };
                let key = (family.metric.name, point.attributes.iter().map(|(_, value)| value.to_string()).collect());
                if let Some((start, old)) = before.insert(key, (point.start, value)) {
                    assert!(point.start > start || value >= old, "{}: {old} {value} {point:?}", family.metric.name);
                }
            }
        }
    }
    assert!(before.len() > 300, "{}", before.len());
}
