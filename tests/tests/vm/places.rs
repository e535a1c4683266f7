//! Builds of a provider that only some processes have: found, attached to, and let go.

use std::collections::BTreeMap;

use collector::observation::Body;
use collector::observation::recording::Reader;
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

/// A line that a connection's process said of it.
fn told(results: &Results, name: &str, what: &str) -> Value {
    let told = results.json_lines(&format!("{name}.jsonl"));
    told.into_iter().find(|line| line["what"] == what).unwrap_or_else(|| panic!("{name} told no {what}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
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
            let (connected, end) = (told(results, name, "connected"), told(results, name, "end"));
            let (posted, lasted_ns) = (number(&end["wrs"]), number(&end["t"]) - number(&connected["t"]));
            let seen = counted.get(&("rxea".to_owned(), number(&end["qpn"]))).copied().unwrap_or(0);
            let missed_ns = lasted_ns * posted.saturating_sub(seen) / posted;
            let at = format!("{name} on {}: {seen} of {posted}, {missed_ns} ns missed", results.kernel);
            println!("{at}");
            match name {
                // Attached to before the process was there.
                "after_host" => assert_eq!(seen, posted, "{at}"),
                // Attached to within a second of its first QP.
                "after_own" => assert!(seen <= posted && missed_ns < 1_000_000_000, "{at}"),
                // What was posted before the recording is not seen, and told as nothing that was.
                _ => assert!(0 < seen && seen < posted, "{at}"),
            }
        }
    });
}

#[test]
fn a_process_in_which_no_context_is_found_is_named_with_the_reason() {
    on_each_kernel("places", |results| {
        if !results.has_product() {
            return;
        }
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

#[test]
fn processes_that_may_post_unseen_are_told_with_what_tells_it_until_they_end() {
    on_each_kernel("places", |results| {
        if !results.has_product() {
            return;
        }
        let accelerated = number(&told(results, "accelerated", "connected")["pid"]);
        let contextless: u64 = results.text("contextless.pid").trim().parse().expect("a process id");
        let unseen = results.json("doctor.json")["unseen"].clone();
        let way = |pid: u64| unseen.as_array()?.iter().find(|process| process["pid"] == pid)?["ways"].get(0).cloned();
        let way = |pid: u64| way(pid).unwrap_or_else(|| panic!("{pid} on {}: {unseen}", results.kernel));
        assert_eq!(way(accelerated)["way"], "ucx_mlx5", "on {}: {unseen}", results.kernel);
        assert_eq!(way(accelerated)["library"], "libuct_ib_mlx5.so.0", "on {}: {unseen}", results.kernel);
        assert_eq!(way(contextless)["way"], "unknown_provider", "on {}: {unseen}", results.kernel);
        let mut ways: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
        let mut take = |body: &Body<'_>| {
            if let Body::Process(process) = body {
                ways.entry(u64::from(process.pid)).or_default().push(process.unseen.len());
            }
        };
        while reader.next(|observation| take(&observation.body)).expect("the recording can be read").is_some() {}
        let both: BTreeMap<u64, Vec<usize>> = [accelerated, contextless].map(|pid| (pid, vec![1, 0])).into();
        assert_eq!(ways, both, "on {}", results.kernel);
    });
}

#[test]
fn doctor_says_in_one_line_what_is_attached_in_one_file() {
    on_each_kernel("places", |results| {
        if !results.has_product() {
            return;
        }
        let text = results.text("doctor.txt");
        let posts: Vec<&str> = text.lines().filter(|line| line.contains("post_send +0x")).collect();
        assert_eq!(posts.len(), 3, "on {}: {text}", results.kernel);
        assert!(posts.iter().all(|line| line.starts_with("probe attached /") && line.contains("post_recv")), "{text}");
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
