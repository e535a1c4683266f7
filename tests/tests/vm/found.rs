//! Which processes are traced: those that were there before, in other mount namespaces, and those that came later.

use std::collections::BTreeMap;

use collector::observation::Body;
use collector::observation::recording::Reader;
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// What was first and last recorded of a QP: when, how many posts, the time of the last one.
#[derive(Debug, Clone, Copy)]
struct Seen {
    first_t: u64,
    posts: u64,
    last_post_t: u64,
}

/// By device and number; numbers are not given out again while this payload runs.
fn statistics(results: &Results) -> BTreeMap<(String, u64), Seen> {
    let mut seen: BTreeMap<(String, u64), Seen> = BTreeMap::new();
    let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    let look = |observation: &collector::observation::Observation<'_>, seen: &mut BTreeMap<(String, u64), Seen>| {
        if let Body::QpStats(stats) = &observation.body {
            let key = (stats.device.to_string(), u64::from(stats.qpn));
            let new = Seen { first_t: observation.t, posts: 0, last_post_t: 0 };
            let of = seen.entry(key).or_insert(new);
            (of.posts, of.last_post_t) = (stats.posts, stats.last_post_t.unwrap_or(0));
        }
    };
    while reader.next(|observation| look(observation, &mut seen)).expect("the recording can be read").is_some() {}
    seen
}

/// The account of a connection at its end.
fn account(results: &Results, name: &str) -> Value {
    let told = results.json_lines(&format!("{name}.jsonl"));
    told.into_iter().find(|line| line["what"] == "end").unwrap_or_else(|| panic!("{name} did not end"))
}

fn seen_of(results: &Results, account: &Value) -> Seen {
    let key = (account["device"].as_str().expect("a name").to_owned(), number(&account["qpn"]));
    *statistics(results).get(&key).unwrap_or_else(|| panic!("{account} on {}: nothing was recorded", results.kernel))
}

#[test]
fn processes_that_were_there_before_are_traced_also_with_another_build_of_the_provider() {
    on_each_kernel("found", |results| {
        for name in ["before", "namespace"] {
            let account = account(results, name);
            let at = format!("{name} on {}: {account}", results.kernel);
            let seen = seen_of(results, &account);
            assert!(seen.posts > 0 && seen.posts < number(&account["posts"]), "{at}: {seen:?}");
            // The last post comes before the end by what it takes to complete.
            let before_end_ns = number(&account["t"]) - seen.last_post_t;
            assert!(before_end_ns < 1_000_000_000, "{at}: the last post seen is {before_end_ns} ns before the end");
            println!("{at}: {} of {} posts seen, first at {}", seen.posts, account["posts"], seen.first_t);
        }
    });
}

#[test]
fn a_process_that_came_later_is_traced_from_its_first_post() {
    on_each_kernel("found", |results| {
        let account = account(results, "after");
        let seen = seen_of(results, &account);
        assert_eq!(seen.posts, number(&account["posts"]), "on {}: {account}, {seen:?}", results.kernel);
    });
}

#[test]
fn a_process_in_which_no_context_is_found_is_named_with_the_reason() {
    on_each_kernel("found", |results| {
        let pid = results.text("contextless.pid");
        let report = results.json("doctor.json");
        let sources = report["sources"].as_array().expect("a list of sources");
        let probes = sources.iter().find(|source| source["name"] == "probes").expect("the probes are a source");
        let named = format!("contextless ({})", pid.trim());
        let of = |missing: &&Value| missing["what"].as_str().is_some_and(|what| what.contains(&named));
        let missing = probes["missing"].as_array().expect("a list").iter().find(of);
        let missing = missing.unwrap_or_else(|| panic!("{named} on {}: {probes}", results.kernel));
        let reason = missing["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("started before us, unknown provider build"), "on {}: {missing}", results.kernel);
    });
}
