use std::sync::Arc;

use super::*;
use crate::engine::Engine;
use crate::finding::{Finding, FindingState, Severity};
use crate::observation::Body;
use crate::observation::recording::{Reader, Writer, write_observation};
use crate::rule::Settings;

const SMALL: Size = Size { qps_per_port: 4 };

fn judge(simulator: &mut Simulator, seconds: u64) -> (Engine, Vec<Arc<Finding>>) {
    let mut engine = Engine::new(simulator.header(), Settings::default());
    simulator.advance(seconds * SECOND_NS, &mut |observation| engine.take(observation));
    engine.finish();
    let changes = engine.drain();
    (engine, changes)
}

fn lines(scenario: &str, seed: u64, steps: &[u64]) -> Vec<u8> {
    let mut simulator = Simulator::with_size(scenario, seed, SMALL).unwrap();
    let mut out = Vec::new();
    for until in steps {
        simulator.advance(*until, &mut |observation| {
            write_observation(observation, &mut out).unwrap();
            out.push(b'\n');
        });
    }
    out
}

#[test]
fn a_healthy_node_raises_nothing_for_a_quarter_of_an_hour() {
    // Longer than a sign is kept (600 s) and than a baseline needs (300 s); hours are the job of `cargo xtask score`.
    let mut simulator = Simulator::with_size("healthy", 1, Size { qps_per_port: 1 }).unwrap();
    let (engine, changes) = judge(&mut simulator, 900);
    // Notes are no alarms: a job may well be limited by its own messages.
    let told: Vec<&str> = changes.iter().filter(|f| f.severity > Severity::Info).map(|f| &*f.summary).collect();
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(engine.world().ports.len(), 9);
}

#[test]
fn a_healthy_node_of_full_size_raises_nothing_whatever_the_seed() {
    for seed in 1..=3 {
        let (engine, changes) = judge(&mut Simulator::new("healthy", seed).unwrap(), 40);
        let told: Vec<&str> = changes.iter().map(|finding| &*finding.summary).collect();
        assert!(told.is_empty(), "seed {seed}: {told:?}");
        assert_eq!(engine.world().qps.len(), 8 * 64 + 16);
    }
}

#[test]
fn every_scenario_is_the_same_for_the_same_seed_however_it_is_advanced() {
    for info in scenarios() {
        let whole = lines(info.name, 7, &[45 * SECOND_NS]);
        let steps: Vec<u64> = (0..=450).map(|i| i * SECOND_NS / 10).collect();
        assert!(whole == lines(info.name, 7, &steps), "{}", info.name);
        assert!(whole != lines(info.name, 8, &[45 * SECOND_NS]), "{}", info.name);
    }
    assert!(Simulator::new("no such scenario", 1).is_none());
}

#[test]
fn observations_never_go_back_in_time() {
    let mut simulator = Simulator::with_size("aer-then-down", 1, SMALL).unwrap().starting_at(5_000, 9);
    let mut last = 5_000;
    simulator.advance(5_000 + 60 * SECOND_NS, &mut |observation| {
        assert!(observation.t >= last);
        last = observation.t;
    });
    assert_eq!(last, 5_000 + 60 * SECOND_NS);
}

#[test]
fn the_dying_port_is_told_before_it_dies_and_everything_else_stays_quiet() {
    let mut simulator = Simulator::new("aer-then-down", 1).unwrap();
    let (engine, changes) = judge(&mut simulator, 60);
    let raised = |rule: &str| {
        let mut found = changes.iter().filter(|f| f.rule == rule && f.state == FindingState::Raised);
        let first = found.next().unwrap_or_else(|| panic!("{rule} was not raised"));
        assert!(found.next().is_none(), "{rule} was raised twice");
        first
    };
    assert_eq!(raised("pcie.aer_storm").t, 20_210_000_000);
    assert_eq!(raised("pcie.aer_fatal").t, 39_610_000_000);
    let down = raised("link.down");
    assert_eq!((down.t, down.severity), (40_118_000_000, Severity::Critical));
    assert_eq!(raised("nic.composite").t, 40_118_000_000);
    assert_eq!(raised("qp.retry_exceeded").severity, Severity::Info);
    assert_eq!(raised("qp.error_state").severity, Severity::Info);
    let now = changes.iter().rfind(|f| f.rule == "link.down").unwrap();
    assert_eq!(
        now.summary,
        "port left ACTIVE at 14:02:49.118 UTC; 64 QPs in error 271–310 ms later; no drain; signs: pcie.aer_storm 19.9 s \
         before, pcie.aer_fatal 508 ms before"
    );
    assert!(changes.iter().all(|f| f.subject.device.as_deref() == Some("mlx5_3")));
    assert_eq!(engine.world().findings.len(), 6);
    assert_eq!(engine.world().ports[3].qps, 64);
}

#[test]
fn a_recording_of_the_simulation_gives_the_same_findings() {
    let mut simulator = Simulator::with_size("aer-then-down", 3, SMALL).unwrap();
    let header = simulator.header();
    let mut live = Engine::new(header.clone(), Settings::default());
    let mut writer = Writer::new(Vec::new(), true, &header).unwrap();
    simulator.advance(60 * SECOND_NS, &mut |observation| {
        live.take(observation);
        writer.write(observation).unwrap();
    });
    live.finish();
    let recording = writer.finish().unwrap();
    let mut reader = Reader::new(&recording[..]).unwrap();
    let mut replay = Engine::new(reader.header().clone(), Settings::default());
    while reader.next(|observation| replay.take(observation)).unwrap().is_some() {}
    replay.finish();
    assert!(reader.notices().lines().is_empty());
    let json = |findings: Vec<Arc<Finding>>| -> Vec<String> {
        findings.iter().map(|finding| serde_json::to_string(finding).unwrap()).collect()
    };
    let (live, replay) = (json(live.drain()), json(replay.drain()));
    assert!(live.len() > 6);
    assert_eq!(live, replay);
}

#[test]
fn as_a_source_it_follows_the_clock_it_is_polled_with() {
    let mut simulator = Simulator::with_size("aer-then-down", 1, SMALL).unwrap();
    let start = 1_000 * SECOND_NS;
    assert_eq!(simulator.due(), 0);
    let mut times = Vec::new();
    simulator.poll(start, &mut |observation| times.push(observation.t));
    assert!(times.iter().all(|t| *t == start) && !times.is_empty());
    assert_eq!(simulator.due(), start + SECOND_NS);
    simulator.poll(start + 8 * SECOND_NS, &mut |_| {});
    // The first PCIe error comes between two polls.
    assert_eq!(simulator.due(), start + 8_300_000_000);
}

#[test]
fn the_truth_names_what_the_script_does() {
    let mut simulator = Simulator::with_size("aer-then-down", 1, SMALL).unwrap();
    let mut truths = Vec::new();
    simulator.advance(60 * SECOND_NS, &mut |observation| {
        if let Body::Truth(truth) = &observation.body {
            truths.push((observation.t, truth.device.to_string(), truth.class.to_string()));
        }
    });
    let expected = [
        (20_200_000_000, "pcie.aer_storm"),
        (39_610_000_000, "pcie.aer_fatal"),
        (40_118_000_000, "link.down"),
        (40_118_000_000, "nic.composite"),
        (40_389_000_000, "qp.retry_exceeded"),
        (40_389_000_000, "qp.error_state"),
    ];
    assert_eq!(truths, expected.map(|(t, class)| (t, "mlx5_3".to_owned(), class.to_owned())));
}

#[test]
fn every_truth_is_the_id_of_a_rule_and_every_fault_has_one() {
    for fault in faults() {
        let mut simulator = Simulator::with_fault(fault.name, 3, SMALL).unwrap();
        let mut truths = 0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "minutes")]
        let until = fault.until_s as u64 * SECOND_NS;
        simulator.advance(until, &mut |observation| {
            if let Body::Truth(truth) = &observation.body {
                truths += 1;
                assert!(crate::rule::find(&truth.class).is_some(), "{}: {}", fault.name, truth.class);
            }
        });
        assert!(truths > 0, "{}", fault.name);
    }
}

#[test]
fn a_fault_is_at_another_place_and_time_for_another_seed() {
    let first = |seed| {
        let mut simulator = Simulator::with_fault("dying-optic", seed, SMALL).unwrap();
        let mut first = None;
        simulator.advance(600 * SECOND_NS, &mut |observation| {
            if let Body::Truth(truth) = &observation.body {
                first.get_or_insert((observation.t, truth.device.to_string()));
            }
        });
        first.unwrap()
    };
    assert_eq!(first(1), first(1));
    assert!((2..8).any(|seed| first(seed).1 != first(1).1));
    assert!(first(2).0 != first(1).0);
}

#[test]
fn faster_polls_read_the_same_counters_more_often_and_the_rest_as_rarely() {
    let sets = |period_ns| {
        let mut simulator = Simulator::with_size("healthy", 1, SMALL).unwrap().polling_every(period_ns);
        let mut counts = std::collections::BTreeMap::<&str, u64>::new();
        simulator.advance(20 * SECOND_NS - 1, &mut |observation| {
            if let Body::Counters(set) = &observation.body {
                *counts.entry(set.source.name()).or_default() += 1;
            }
        });
        counts
    };
    let (slow, fast) = (sets(SECOND_NS), sets(100_000_000));
    // A poll may be left out now and then.
    assert!(fast["nldev"] * 10 > slow["nldev"] * 99 && fast["nldev"] <= slow["nldev"] * 10, "{slow:?} {fast:?}");
    assert!(slow["ethtool"].abs_diff(fast["ethtool"]) <= 2 && slow["hwmon"].abs_diff(fast["hwmon"]) <= 2);
}

#[test]
fn without_probes_nothing_is_seen_of_qps() {
    let mut simulator = Simulator::with_size("healthy", 1, SMALL).unwrap().without_qps();
    simulator.advance(120 * SECOND_NS, &mut |observation| {
        assert!(!matches!(observation.body, Body::Qp(_) | Body::QpStats(_) | Body::Probes(_)));
    });
}

#[test]
fn a_recording_begun_while_the_port_is_down_says_what_befell_it_and_goes_on_with_the_live_run() {
    let mut simulator = Simulator::new("aer-then-down", 7).unwrap();
    let mut live = Engine::new(simulator.header(), Settings::default());
    simulator.advance(45 * SECOND_NS, &mut |observation| live.take(observation));
    let mut recorded = Engine::new(simulator.header(), Settings::default());
    let mut take = |observation: &crate::observation::Observation<'_>| recorded.take(observation);
    crate::inventory::restate_past(live.world(), &mut take);
    crate::inventory::restate(live.world(), &mut take);
    simulator.advance(70 * SECOND_NS, &mut |observation| {
        live.take(observation);
        recorded.take(observation);
    });
    let told = |engine: &Engine| -> Vec<(&'static str, Severity, String)> {
        let findings = engine.world().findings.iter();
        findings.map(|finding| (finding.rule, finding.severity, finding.summary.clone())).collect()
    };
    // What was counted before the recording is not in it: retries that ran out.
    let mut whole = told(&live);
    whole.retain(|(rule, ..)| *rule != "qp.retry_exceeded");
    assert_eq!(told(&recorded).iter().filter(|(rule, ..)| *rule == "link.down").count(), 1);
    for rule in ["link.down", "pcie.aer_fatal", "pcie.aer_storm", "nic.composite"] {
        let of = |told: &[(&'static str, Severity, String)]| told.iter().find(|(id, ..)| *id == rule).cloned();
        assert_eq!(of(&told(&recorded)), of(&whole), "{rule}");
    }
    let others: Vec<_> =
        told(&recorded).into_iter().filter(|(rule, ..)| !whole.iter().any(|(id, ..)| id == rule)).collect();
    assert!(others.is_empty(), "nothing that is not there live: {others:?}");
    let (again, before) = (&recorded.world().failovers[0], &live.world().failovers[0]);
    assert_eq!((again.first_operation.as_ref(), again.qps.died), (None, before.qps.died));
}
