//! What `rdmascope collect` did on real kernels: how soon hooks ran after a PCIe error, and what it says of an application
//! that drained on its warning and of one that did not.

use std::collections::BTreeMap;

use collector::observation::Body;
use collector::observation::recording::Reader;
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn said(lines: &[Value], key: &str, name: &str) -> Value {
    let line = lines.iter().find(|line| line[key] == name);
    line.unwrap_or_else(|| panic!("no {name} in {lines:?}")).clone()
}

/// The last word on the failover of a device's port.
fn failover(results: &Results, device: &str) -> Value {
    let all = results.json("failovers.json");
    let all = all["failovers"].as_array().expect("a list");
    let of: Vec<_> = all.iter().filter(|failover| failover["device"] == device).collect();
    assert_eq!(of.len(), 1, "on {}: {all:?}", results.kernel);
    of[0].clone()
}

/// The least number that `share` of them do not exceed.
fn quantile(sorted: &[u64], share: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of a short list")]
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted[at.clamp(1, sorted.len()) - 1]
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[test]
fn every_pcie_error_starts_a_hook_that_is_told_of_it() {
    on_each_kernel("failover", |results| {
        let on = &results.kernel;
        let injected: Vec<u64> = results.json_lines("injected.jsonl").iter().map(|line| number(&line["t"])).collect();
        assert_eq!(injected.len(), 60, "on {on}");
        let (mut events, mut counted) = (Vec::new(), BTreeMap::new());
        let mut reader = Reader::open(&results.path("hooks.jsonl")).expect("the payload left a recording");
        while reader
            .next(|observation| {
                match &observation.body {
                    Body::Aer(_) => events.push(observation.t),
                    // A function's own count may be read in the moment before its report is taken up: then it tells first.
                    Body::Pcie(pcie) => {
                        let errors = pcie.aer.iter().flat_map(|aer| aer.nonfatal.iter().chain(aer.fatal.iter()));
                        let errors: u64 = errors.map(|(_, n)| *n).sum();
                        if counted.insert(pcie.pci.to_string(), errors).is_some_and(|before| errors > before) {
                            events.push(observation.t);
                        }
                    }
                    _ => {}
                }
            })
            .expect("the recording can be read")
            .is_some()
        {}
        let mut hooked = results.json_lines("hooked.jsonl");
        hooked.sort_by_key(|line| number(&line["t"]));
        let (mut from_error, mut from_event, mut spawn) = (Vec::new(), Vec::new(), Vec::new());
        for (n, error) in injected.iter().enumerate() {
            let next = injected.get(n + 1).copied().unwrap_or(u64::MAX);
            let first = hooked.iter().find(|line| (*error..next).contains(&number(&line["t_event"])));
            let Some(hook) = first else { continue };
            let (began, event) = (number(&hook["t"]), number(&hook["t_event"]));
            assert!(events.contains(&event), "{hook} on {on}: no event at that time was observed");
            assert_eq!(hook["input"]["finding"]["rule"], "pcie.aer_fatal", "on {on}");
            assert_eq!(hook["input"]["finding"]["subject"]["device"], "rxec", "on {on}");
            assert_eq!(hook["input"]["t_event"], hook["t_event"], "on {on}");
            from_error.push(began - error);
            from_event.push(began - event);
            spawn.push(number(&hook["t_spawn"]) - event);
        }
        for (what, times) in [
            ("error injected → hook runs", &mut from_error),
            ("kernel event → hook runs", &mut from_event),
            ("kernel event → hook is being started", &mut spawn),
        ] {
            times.sort_unstable();
            println!(
                "on {on}: {what}: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms of {}",
                ms(quantile(times, 0.5)),
                ms(quantile(times, 0.99)),
                ms(quantile(times, 1.0)),
                times.len()
            );
        }
        assert!(from_event.len() >= 50, "on {on}: {} of 60 errors started a hook", from_event.len());
    });
}

#[test]
fn an_application_that_drains_on_the_warning_is_done_before_its_link_is_cut_and_told_graceful() {
    on_each_kernel("failover", |results| {
        let on = &results.kernel;
        let drained = results.json_lines("drained.jsonl");
        let actions = results.json_lines("actions");
        let cut = number(&said(&actions, "action", "card_down")["t"]);
        let aer = number(&said(&actions, "action", "aer")["t"]);
        let warning = said(&drained, "what", "warning");
        assert_eq!(warning["rule"], "pcie.aer_fatal", "on {on}");
        let err = said(&drained, "what", "err");
        assert_eq!(err["errno"], Value::Null, "on {on}");
        assert!(number(&warning["t"]) > aer && number(&err["t"]) < cut, "on {on}: {err}, cut at {cut}");
        assert_eq!(said(&drained, "what", "reaped")["flushed"], 0, "on {on}: nothing was outstanding");
        println!(
            "on {on}: error injected → warning {:.1} ms → ERR {:.1} ms → first operation {:.1} ms",
            ms(number(&warning["t"]) - aer),
            ms(number(&err["t"]) - aer),
            ms(number(&said(&drained, "what", "resumed")["t"]) - aer)
        );

        let failover = failover(results, "rxec");
        assert_eq!(failover["ending"], "graceful", "on {on}: {failover}");
        assert!(number(&failover["qps"]["drained"]) >= 1, "on {on}: {failover}");
        assert_eq!(failover["qps"]["died"], 0, "on {on}: {failover}");
        let (sign, down) = (number(&failover["first_sign"]["t"]), number(&failover["port_down"]["t"]));
        let drain = number(&failover["first_qp"]["t"]);
        assert!(sign < drain && drain < down, "on {on}: {failover}");
        assert!(drain <= number(&err["t"]) && number(&failover["port_down"]["t"]) > cut, "on {on}: {failover}");
        assert_eq!(failover["replacement"]["device"], "rxea", "on {on}: {failover}");
        let resumed = number(&said(&drained, "what", "reconnected")["t"]);
        assert!(number(&failover["first_operation"]["t"]) >= drain, "on {on}: {failover}, reconnected at {resumed}");
    });
}

#[test]
fn an_application_that_does_not_listen_loses_its_qp_after_the_floor_of_its_timers() {
    on_each_kernel("failover", |results| {
        let on = &results.kernel;
        let abrupt = results.json_lines("abrupt.jsonl");
        let actions = results.json_lines("actions");
        let cut = number(&said(&actions, "action", "carrier_down")["t"]);
        let broken = said(&abrupt, "what", "error");
        let (alive, error) = (number(&broken["alive_t"]), number(&broken["t"]));
        println!("on {on}: link cut → error {:.1} ms", ms(error - cut));

        let failover = failover(results, "rxea");
        assert_eq!(failover["ending"], "abrupt", "on {on}: {failover}");
        assert_eq!(failover["qps"]["drained"], 0, "on {on}: {failover}");
        assert_eq!(failover["first_sign"], Value::Null, "on {on}: a carrier that is cut has no first sign: {failover}");
        // 4.096 µs · 2^14 · (3 + 1), the application's own timers.
        assert_eq!(failover["floor"]["max_ns"], 268_435_456, "on {on}: {failover}");
        let qp = &failover["first_qp"];
        // It died after the application's last look that found nothing, and before the one that did had returned.
        assert!(
            number(&qp["not_before"]) <= error && alive.max(cut) <= number(&qp["t"]),
            "on {on}: {failover}, alive at {alive}, error at {error}"
        );
        assert_eq!(failover["replacement"]["device"], "rxec", "on {on}: {failover}");
        let operation = &failover["first_operation"];
        let resumed = number(&said(&abrupt, "what", "resumed")["t"]);
        assert!(number(&operation["not_before"]) <= resumed, "on {on}: {failover}, resumed at {resumed}");
        let verdicts: Vec<_> = failover["budgets"].as_array().expect("a list").iter().map(|b| &b["verdict"]).collect();
        assert!(verdicts.iter().all(|verdict| *verdict != "met"), "on {on}: {failover}");
    });
}

#[test]
fn the_socket_tells_the_warning_and_the_failovers_and_the_service_ends_in_time() {
    on_each_kernel("failover", |results| {
        let on = &results.kernel;
        let told = results.json_lines("told.jsonl");
        assert_eq!(told[0]["hello"], "rdmascope", "on {on}");
        let fatal = |line: &&Value| line["rule"] == "pcie.aer_fatal" && line["subject"]["device"] == "rxec";
        assert_eq!(told.iter().find(fatal).expect("the warning")["predicted_failure"], true, "on {on}");
        for device in ["rxec", "rxea"] {
            assert!(told.iter().any(|line| line["failover"]["device"] == device), "{device} on {on}");
        }
        let actions = results.json_lines("actions");
        for collector in ["hooks", "failovers"] {
            let t = |action: &str| {
                let of = |line: &&Value| line["action"] == action && line["collector"] == collector;
                number(&actions.iter().find(of).expect("noted")["t"])
            };
            let took = t("stopped") - t("stop");
            println!("on {on}: {collector} ended {:.0} ms after SIGTERM", ms(took));
        }
    });
}
