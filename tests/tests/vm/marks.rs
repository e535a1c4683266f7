//! ECN marks on real packets: what the packet source counted at both ends, against the router's own counts.

use std::collections::BTreeMap;

use collector::observation::recording::Reader;
use collector::observation::{Body, CounterSource};
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

const PHASES: [&str; 3] = ["clean", "random", "queue"];

type Values = BTreeMap<String, u64>;

/// The packet counters of one phase of the payload.
struct Phase {
    name: &'static str,
    /// What a port counted in it, by device.
    ports: BTreeMap<String, Values>,
    /// The QPs that had data in it, by device: what they counted since they came.
    qps: BTreeMap<String, Vec<Values>>,
    /// What the router counted in it, by counter.
    router: BTreeMap<String, u64>,
    /// Packets that the source says it has not seen.
    lost: u64,
}

impl Phase {
    fn port(&self, device: &str, name: &str) -> u64 {
        self.ports[device].get(name).copied().unwrap_or_else(|| panic!("{device} has no {name} in {}", self.name))
    }

    /// The mean delay of the packets with or without a mark at rxeb, ns.
    fn mean_delay_ns(&self, kind: &str) -> u64 {
        self.port("rxeb", &format!("delay_{kind}_sum_ns")) / self.port("rxeb", &format!("delay_{kind}_n"))
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The last packet counters told up to `t`, by device and QP.
fn counters_at(results: &Results, t: u64) -> BTreeMap<(String, Option<u32>), Values> {
    let mut seen = BTreeMap::new();
    let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    let mut look = |observation: &collector::observation::Observation<'_>| {
        let Body::Counters(set) = &observation.body else { return };
        if set.source == CounterSource::Packets && observation.t <= t {
            let values = set.values.iter().map(|(name, value)| (name.to_string(), *value)).collect();
            seen.insert((set.device.to_string(), set.qpn), values);
        }
    };
    while reader.next(&mut look).expect("the recording can be read").is_some() {}
    seen
}

/// Packets lost in a time.
fn lost_in(results: &Results, time: std::ops::Range<u64>) -> u64 {
    let mut lost = 0;
    let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    let mut look = |observation: &collector::observation::Observation<'_>| match &observation.body {
        Body::Lost(more) if more.source == "packets" && time.contains(&observation.t) => lost += more.n,
        _ => {}
    };
    while reader.next(&mut look).expect("the recording can be read").is_some() {}
    lost
}

fn phases(results: &Results) -> Vec<Phase> {
    let actions = results.json_lines("actions");
    let time = |action: &str, phase: &str| {
        let found = actions.iter().find(|line| line["action"] == action && line["phase"] == phase);
        number(&found.unwrap_or_else(|| panic!("no {action} of {phase} on {}", results.kernel))["t"])
    };
    let phase = |name: &'static str| {
        let (begin, end) = (time("begin", name), time("end", name));
        let (before, after) = (counters_at(results, begin), counters_at(results, end));
        let (mut ports, mut qps) = (BTreeMap::new(), BTreeMap::<String, Vec<Values>>::new());
        for ((device, qpn), values) in after {
            let old = before.get(&(device.clone(), qpn));
            let grown: Values = values
                .into_iter()
                .map(|(name, value)| {
                    let before = old.and_then(|old| old.get(&name)).copied().unwrap_or(0);
                    // The least delay is no sum.
                    if name == "delay_min_ns" { (name, value) } else { (name, value - before) }
                })
                .collect();
            if qpn.is_none() {
                ports.insert(device, grown);
            } else if grown["rx_data"] + grown["tx_data"] > 0 {
                qps.entry(device).or_default().push(grown);
            }
        }
        let counters = results.json(&format!("{name}/counters.json"));
        let router = counters["nftables"].as_array().expect("nft lists objects");
        let router = router.iter().filter_map(|object| object.get("counter"));
        let router = router.map(|one| (one["name"].to_string().replace('"', ""), number(&one["packets"]))).collect();
        Phase { name, ports, qps, router, lost: lost_in(results, begin..end) }
    };
    PHASES.map(phase).into()
}

/// The sum of a field over the router's queues towards vb.
fn queues(results: &Results, phase: &str, kind: &str, field: &str) -> u64 {
    let queues = results.json(&format!("{phase}/qdisc.json"));
    let queues = queues.as_array().expect("tc lists queues");
    queues.iter().filter(|queue| queue["kind"] == kind).map(|queue| number(&queue[field])).sum()
}

#[test]
fn marks_and_packets_equal_the_routers_own_counts_by_port_and_by_qp() {
    on_each_kernel("marks", |results| {
        if !results.has_product() {
            return;
        }
        for phase in phases(results) {
            let at = format!("{} on {}", phase.name, results.kernel);
            let router = |name: &str| phase.router[name];
            // Each packet passes two network devices. What was not seen there was counted as lost.
            let seen: u64 =
                ["rxea", "rxeb"].map(|at| phase.port(at, "rx_data") + phase.port(at, "tx_data")).iter().sum();
            let passed = 2 * (router("ab_all") + router("ba_all"));
            assert_eq!(seen + phase.lost, passed, "{at}: {} lost", phase.lost);
            assert!(phase.lost * 100 < passed, "{at}: {} of {passed} lost", phase.lost);
            if phase.lost > 0 {
                println!("{at}: {} of {passed} were lost on the way into the recording", phase.lost);
                continue;
            }
            // What the queue marks it marks behind the place where the router counts.
            let queue_ce = queues(results, phase.name, "fq_codel", "ce_mark");
            assert_eq!(queues(results, phase.name, "fq_codel", "ecn_mark"), 0, "{at}: marked for another reason");
            assert!(phase.name != "queue" || queue_ce > 1000, "{at}: {queue_ce} marks");
            assert!(router("ab_all") > 1000, "{at}: {:?}", phase.router);
            assert_eq!(phase.port("rxea", "tx_data"), router("ab_all"), "{at}");
            assert_eq!(phase.port("rxea", "tx_ect0"), router("ab_all"), "{at}: ECT(0) leaves");
            assert_eq!(phase.port("rxeb", "rx_data"), router("ab_all"), "{at}");
            assert_eq!(phase.port("rxeb", "rx_ce"), router("ab_ce") + queue_ce, "{at}");
            assert_eq!(phase.port("rxeb", "rx_ect0"), router("ab_ect0") - queue_ce, "{at}");
            assert_eq!(phase.port("rxeb", "rx_not_ect"), router("ab_not_ect"), "{at}");
            assert_eq!(phase.port("rxeb", "tx_data"), router("ba_all"), "{at}");
            assert_eq!(phase.port("rxea", "rx_data"), router("ba_all"), "{at}");
            assert_eq!(phase.port("rxea", "rx_ce"), router("ba_ce"), "{at}");
            let runs = phase.port("rxeb", "rx_ce_runs") + phase.port("rxeb", "rx_ce_after_ce");
            assert_eq!(phase.port("rxeb", "rx_ce"), runs, "{at}");
            // Software RDMA answers no mark.
            assert_eq!(phase.port("rxeb", "tx_cnp"), 0, "{at}");
            assert_eq!(phase.port("rxea", "tx_dscp_26"), router("ab_all"), "{at}");
            for device in ["rxea", "rxeb"] {
                let [qp] = &phase.qps[device][..] else { panic!("{at}: {:?}", phase.qps[device]) };
                let port = &phase.ports[device];
                for name in ["rx_data", "rx_ce", "rx_ect0", "tx_data", "tx_ect0", "rx_bytes", "tx_bytes"] {
                    assert_eq!(qp[name], port[name], "{at}: {name} of the QP and of {device}");
                }
            }
        }
        let random = phases(results).remove(1);
        let share = random.port("rxeb", "rx_ce") as f64 / random.port("rxeb", "rx_data") as f64;
        assert!((0.2..0.3).contains(&share), "a quarter is marked, not {share} on {}", results.kernel);
    });
}

#[test]
fn every_packet_is_timed_and_marks_of_a_real_queue_are_late_while_random_ones_are_not() {
    on_each_kernel("marks", |results| {
        if !results.has_product() {
            return;
        }
        let [clean, random, queue] = &phases(results)[..] else { panic!("three phases") };
        for phase in [clean, random, queue] {
            let timed = phase.port("rxeb", "delay_ce_n") + phase.port("rxeb", "delay_plain_n");
            let data = phase.port("rxeb", "rx_data");
            // One sent again cannot always be told from its first.
            assert!(timed <= data && timed * 100 >= data * 98, "{timed} of {data} in {}", phase.name);
            assert!(phase.port("rxeb", "delay_min_ns") > 0);
        }
        let on = &results.kernel;
        let (ce, plain) = (random.mean_delay_ns("ce"), random.mean_delay_ns("plain"));
        assert!(ce < 2 * plain, "random marks: {ce} ns with, {plain} ns without on {on}");
        let (ce, plain) = (queue.mean_delay_ns("ce"), queue.mean_delay_ns("plain"));
        assert!(ce > 1_000_000 && ce > 2 * plain, "marks of the queue: {ce} ns with, {plain} ns without on {on}");
    });
}

#[test]
fn random_marks_are_called_premature_and_confirmed_and_those_of_a_queue_are_not() {
    on_each_kernel("marks", |results| {
        if !results.has_product() {
            return;
        }
        let on = &results.kernel;
        let actions = results.json_lines("actions");
        let time = |action: &str, phase: &str| {
            let found = actions.iter().find(|line| line["action"] == action && line["phase"] == phase);
            number(&found.unwrap_or_else(|| panic!("no {action} of {phase} on {on}"))["t"])
        };
        let findings = results.json_lines("findings.jsonl");
        let ecn = |finding: &&Value| finding["rule"].as_str().is_some_and(|rule| rule.starts_with("ecn."));
        let early = findings.iter().filter(ecn).find(|finding| number(&finding["t"]) < time("begin", "random"));
        assert_eq!(early, None, "without a mark on {on}");

        let premature: Vec<_> = findings.iter().filter(|finding| finding["rule"] == "ecn.premature").collect();
        let random = time("begin", "random")..time("end", "random");
        let raised = premature
            .iter()
            .find(|finding| finding["state"] == "raised" && random.contains(&number(&finding["t"])))
            .unwrap_or_else(|| panic!("random marks are not called premature on {on}: {premature:?}"));
        assert_eq!(raised["grade"], "confirmed", "on {on}: {raised}");
        assert_eq!(raised["subject"]["device"], "rxeb", "the receiver's port on {on}: {raised}");
        let during_queue =
            |finding: &&&Value| finding["state"] != "cleared" && number(&finding["t"]) >= time("begin", "queue");
        assert_eq!(premature.iter().find(during_queue), None, "marks of a real queue on {on}");
        assert_eq!(premature.last().map(|finding| &finding["state"]), Some(&"cleared".into()), "on {on}");

        // What software RDMA does is a fault in a real NIC: it marks nothing back.
        let silent = findings.iter().find(|finding| finding["rule"] == "ecn.no_cnp" && finding["state"] == "raised");
        assert_eq!(silent.map(|finding| &finding["subject"]["device"]), Some(&"rxeb".into()), "on {on}");
    });
}
