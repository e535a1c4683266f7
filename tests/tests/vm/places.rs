//! Builds of a provider that only some processes have: found, attached to, and let go.

use std::collections::BTreeMap;

use collector::observation::Body;
use collector::observation::recording::Reader;
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

/// What a connection's process said of it at its end.
fn account(results: &Results, name: &str) -> Value {
    let told = results.json_lines(&format!("{name}.jsonl"));
    told.into_iter().find(|line| line["what"] == "end").unwrap_or_else(|| panic!("{name} did not end"))
}

/// The last number of work requests, by device and QP.
fn counted(results: &Results) -> BTreeMap<(String, u64), u64> {
    let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    let mut counted = BTreeMap::new();
    let mut take = |body: &Body<'_>| {
        if let Body::QpStats(stats) = body {
            counted.insert((stats.device.to_string(), u64::from(stats.qpn)), stats.wrs);
        }
    };
    while reader.next(|observation| take(&observation.body)).expect("the recording can be read").is_some() {}
    counted
}

#[test]
fn processes_with_a_provider_build_of_their_own_are_traced_whenever_they_started() {
    on_each_kernel("places", |results| {
        if !results.has_product() {
            return;
        }
        let counted = counted(results);
        for name in ["before_host", "before_own", "after_host", "after_own"] {
            let account = account(results, name);
            let key = ("rxea".to_owned(), account["qpn"].as_u64().expect("it has a number"));
            let seen = counted.get(&key).copied().unwrap_or(0);
            let posted = account["wrs"].as_u64().expect("it posted");
            let enough = match name {
                // Attached to before the process was there.
                "after_host" => posted,
                // Attached to within a second of its first QP, of forty.
                "after_own" => posted * 9 / 10,
                _ => 1,
            };
            assert!((enough..=posted).contains(&seen), "{name} on {}: {seen} of {posted}", results.kernel);
        }
    });
}

#[test]
fn doctor_names_each_build_with_the_place_in_it_and_why() {
    on_each_kernel("places", |results| {
        if !results.has_product() {
            return;
        }
        let doctor = results.json("doctor.json");
        let probes = doctor["probes"].as_array().expect("there are probes");
        let posts: Vec<_> = probes.iter().filter(|probe| probe["name"] == "post_send").collect();
        assert_eq!(posts.len(), 3, "on {}: {posts:?}", results.kernel);
        for probe in posts {
            assert_eq!(probe["attached"], true, "on {}: {probe}", results.kernel);
            let reason = probe["reason"].as_str().expect("it says why there");
            assert!(reason.ends_with("emulated") || reason.starts_with("entry: "), "on {}: {probe}", results.kernel);
        }
    });
}

#[test]
fn a_build_that_no_process_has_any_more_is_let_go() {
    on_each_kernel("places", |results| {
        if results.has_product() {
            let number = |name: &str| -> u64 {
                let text = results.text(name);
                text.trim().rsplit(':').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
            };
            assert!(number("attached.without") < number("attached.with"), "on {}", results.kernel);
        }
    });
}
