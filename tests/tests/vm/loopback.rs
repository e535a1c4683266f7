//! What the loopback probe measured, left alone and left behind on real kernels.

use std::collections::BTreeSet;

use collector::observation::recording::Reader;
use collector::observation::{Body, Nanos, Observation};
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

/// The program's name, as the kernel has it.
const PROGRAM: &str = "rdmascope-verbs";

/// Calls `check` on every kernel on which the product recorded.
fn on_each_recording(check: impl Fn(&Results)) {
    on_each_kernel("loopback", |results| {
        if results.has_product() {
            check(results);
        }
    });
}

fn each(results: &Results, mut look: impl FnMut(&Observation<'_>)) {
    let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    while reader.next(|observation| look(observation)).expect("the recording can be read").is_some() {}
}

/// Times of the measurements of a device.
fn measured(results: &Results, device: &str) -> Vec<Nanos> {
    let mut times = Vec::new();
    each(results, |observation| match &observation.body {
        Body::Loopback(loopback) if loopback.device == device => times.push(observation.t),
        _ => {}
    });
    times
}

fn action(results: &Results, name: &str) -> Nanos {
    let actions = results.json_lines("actions");
    let action = actions.iter().find(|line| line["action"] == name);
    action.and_then(|line| line["t"].as_u64()).unwrap_or_else(|| panic!("no action {name}"))
}

/// The probe's QPs in a list of the kernel's: device, and the process as the kernel names it.
fn own_qps(results: &Results, list: &str) -> Vec<(String, u64)> {
    let list = results.json(list);
    let own = list.as_array().expect("rdma prints a list").iter().filter(|qp| qp["comm"] == PROGRAM);
    own.map(|qp| (qp["ifname"].as_str().unwrap_or_default().to_owned(), qp["pid"].as_u64().unwrap_or(0))).collect()
}

fn loopback(report: &Value) -> &Value {
    let sources = report["sources"].as_array().expect("doctor lists sources");
    sources.iter().find(|source| source["name"] == "loopback").expect("the probe is one of them")
}

#[test]
fn each_port_that_is_wanted_is_measured_and_one_that_is_excluded_never() {
    on_each_recording(|results| {
        let mut devices = BTreeSet::new();
        each(results, |observation| {
            if let Body::Loopback(seen) = &observation.body {
                let ordered = 0 < seen.p50_ns && seen.p50_ns <= seen.p99_ns && seen.p99_ns <= seen.max_ns;
                assert!(ordered && seen.n == 32 && seen.port == 1, "on {}: {seen:?}", results.kernel);
                devices.insert(seen.device.to_string());
            }
        });
        assert_eq!(devices, ["rxea", "rxeb"].map(str::to_owned).into(), "on {}", results.kernel);
        // Not even opened.
        let uverbs = results.text("uverbs");
        let file = |device: &str| {
            let line = uverbs.lines().find_map(|line| line.strip_prefix(&format!("{device} ")).map(str::to_owned));
            line.unwrap_or_else(|| panic!("no {device} in {uverbs}"))
        };
        let open: BTreeSet<_> = ["rxea", "rxeb", "rxec"]
            .into_iter()
            .filter(|device| results.text("descriptors").contains(&format!("/{}\n", file(device))))
            .collect();
        assert_eq!(open, ["rxea", "rxeb"].into(), "on {}", results.kernel);
    });
}

#[test]
fn its_queue_pairs_carry_its_name_one_for_each_port() {
    on_each_recording(|results| {
        let mut devices: Vec<_> = own_qps(results, "measuring.json").into_iter().map(|(device, _)| device).collect();
        devices.sort_unstable();
        assert_eq!(devices, ["rxea", "rxeb"], "on {}", results.kernel);
        // So they do in the product's own table: its operations are nobody else's.
        let table = results.json("qps.json");
        let rows = table["qps"].as_array().expect("a list");
        let posting: Vec<_> = rows.iter().filter(|qp| qp["posts"].as_u64() > Some(0)).collect();
        assert!(!posting.is_empty(), "on {}: its writes are counted: {table}", results.kernel);
        for qp in posting {
            assert_eq!(qp["comm"], PROGRAM, "on {}: {qp}", results.kernel);
        }
    });
}

#[test]
fn a_port_that_is_down_or_gone_is_not_measured_until_it_is_back() {
    on_each_recording(|results| {
        // A round that had begun may end a moment later.
        let second = 1_000_000_000;
        for (device, from, to) in [("rxea", "is_down", "up"), ("rxeb", "deleted", "added")] {
            let (from, to) = (action(results, from) + second, action(results, to));
            let times = measured(results, device);
            let meanwhile: Vec<_> = times.iter().filter(|t| (from..to).contains(*t)).collect();
            assert!(meanwhile.is_empty(), "{device} on {}: {from}–{to} {meanwhile:?}", results.kernel);
            assert!(times.iter().any(|t| *t > to), "{device} on {} is measured again", results.kernel);
        }
    });
}

#[test]
fn the_removal_of_a_device_does_not_wait_for_the_probe_longer_than_it_takes_to_notice() {
    on_each_recording(|results| {
        let took = action(results, "deleted") - action(results, "delete");
        println!("on {}: {} ms", results.kernel, took / 1_000_000);
        assert!(took < 20_000_000_000, "on {}: {took} ns", results.kernel);
    });
}

#[test]
fn a_probe_that_crashed_is_told_with_its_signal_and_is_started_again() {
    on_each_recording(|results| {
        let (crash, mut told) = (action(results, "crash"), Vec::new());
        each(results, |observation| match &observation.body {
            Body::Source(source) if source.source == "loopback" && observation.t > crash => {
                told.push(source.reason.as_deref().unwrap_or("").to_owned());
            }
            _ => {}
        });
        assert!(told.iter().any(|reason| reason.contains("killed by signal 6")), "on {}: {told:?}", results.kernel);
        let again = action(results, "again");
        assert!(measured(results, "rxea").iter().any(|t| *t > again), "on {}", results.kernel);
    });
}

#[test]
fn nothing_of_it_is_left_when_the_program_ends_or_is_killed() {
    on_each_recording(|results| {
        assert!(!own_qps(results, "alive.json").is_empty(), "on {}: it had QPs before", results.kernel);
        for list in ["stopped.json", "killed.json", "after.json"] {
            assert_eq!(own_qps(results, list), [], "{list} on {}", results.kernel);
        }
    });
}

#[test]
fn doctor_says_that_it_is_off_what_it_measures_and_what_to_do_where_it_cannot() {
    on_each_recording(|results| {
        let report = results.json("off.json");
        assert_eq!(loopback(&report)["state"], "off", "on {}", results.kernel);
        assert_eq!(loopback(&report)["missing"][0]["fix"], "--loopback", "on {}", results.kernel);
        let report = results.json("on.json");
        let on = loopback(&report);
        assert_ne!(on["state"], "off", "on {}: {on}", results.kernel);
        let sees = on["sees"].as_str().unwrap_or_default();
        assert!(sees.contains("32 writes of 64 bytes"), "on {}: {on}", results.kernel);
        let report = results.json("missing.json");
        let missing = &loopback(&report)["missing"][0];
        assert!(missing["fix"].as_str().is_some_and(|fix| fix.contains("--verbs-program")), "{missing}");
    });
}

#[test]
fn the_functions_of_the_extended_interface_lie_in_the_provider_and_are_told_only_when_changes_are_allowed() {
    on_each_recording(|results| {
        assert_eq!(results.text("refused.rc").trim(), "2", "on {}", results.kernel);
        assert!(results.text("refused.txt").contains("--allow-changes"), "on {}", results.kernel);
        let answer = results.json("operations.json");
        let made = answer["found"]["devices"].as_array().expect("a list");
        let rc = made.iter().find(|found| found["device"] == "rxea" && found["made"] == "qp rc").expect("an RC QP");
        for name in ["wr_start", "wr_complete", "wr_abort", "wr_send", "wr_rdma_write", "wr_set_sge"] {
            let place = &rc["places"][name];
            let path = place["path"].as_str().unwrap_or_default();
            assert!(path.contains("librxe"), "{name} on {}: {rc}", results.kernel);
            assert!(place["offset"].as_u64() > Some(0), "{name} on {}: {rc}", results.kernel);
        }
        let places: BTreeSet<_> =
            ["wr_start", "wr_complete", "wr_send"].iter().map(|name| rc["places"][name]["offset"].as_u64()).collect();
        assert_eq!(places.len(), 3, "on {}: {rc}", results.kernel);
    });
}
