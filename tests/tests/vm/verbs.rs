//! What processes posted and got back, and how long it took, as `rdmascope record` saw it without a budget: exactly what
//! the programs say themselves.

use std::collections::BTreeMap;

use collector::observation::recording::Reader;
use collector::observation::{Body, Observation};
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::{Value, json};

/// `enum ibv_wr_opcode`, by its numbers.
const OPCODES: [&str; 7] = [
    "RDMA_WRITE",
    "RDMA_WRITE_WITH_IMM",
    "SEND",
    "SEND_WITH_IMM",
    "RDMA_READ",
    "ATOMIC_CMP_AND_SWP",
    "ATOMIC_FETCH_AND_ADD",
];

/// `enum ibv_wc_status`, by its numbers, as far as it occurs here.
const STATUSES: [&str; 12] = [
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "MW_BIND_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
];

fn each(results: &Results, mut look: impl FnMut(&Observation<'_>)) {
    let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    while reader.next(|observation| look(observation)).expect("the recording can be read").is_some() {}
}

/// The last statistics of each QP that was created while the recording ran, by process, device and number.
fn last_statistics(results: &Results) -> BTreeMap<(u64, String, u64), Value> {
    let mut owner: BTreeMap<(String, u32), u64> = BTreeMap::new();
    let mut last = BTreeMap::new();
    each(results, |observation| match &observation.body {
        Body::Qp(qp) if format!("{:?}", qp.event) == "Create" => {
            owner.insert((qp.device.to_string(), qp.qpn), qp.pid.map_or(0, u64::from));
        }
        Body::QpStats(stats) => {
            if let Some(pid) = owner.get(&(stats.device.to_string(), stats.qpn)) {
                let key = (*pid, stats.device.to_string(), u64::from(stats.qpn));
                last.insert(key, serde_json::to_value(stats).expect("an observation has a JSON form"));
            }
        }
        _ => {}
    });
    last
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// A histogram without the zeros at its end.
fn histogram(value: &Value) -> Vec<u64> {
    let mut counts: Vec<u64> = value.as_array().into_iter().flatten().map(number).collect();
    while counts.last() == Some(&0) {
        counts.pop();
    }
    counts
}

/// Counts by number as an object by name, without the zeros.
fn named(counts: &Value, names: &[&str]) -> Value {
    let counts = counts.as_array().expect("a list of counts").iter().enumerate().filter(|(_, n)| number(n) != 0);
    Value::Object(counts.map(|(i, n)| (names[i].to_owned(), n.clone())).collect())
}

/// Counts of errors by name, without success.
fn errors(counts: &Value) -> Value {
    named(counts, &STATUSES)
}

/// An object that is left out when it is empty.
fn object(value: &Value) -> Value {
    if value.is_null() { json!({}) } else { value.clone() }
}

/// What the program says of one QP, and what was recorded of it.
struct Pair {
    at: String,
    told: Value,
    seen: Value,
}

/// Of every QP of the program `verbs`.
fn pairs(results: &Results) -> Vec<Pair> {
    let statistics = last_statistics(results);
    let told = results.json_lines("verbs.jsonl");
    assert!(told.len() > 60, "{} QPs on {}", told.len(), results.kernel);
    let pairs = told.into_iter().map(|told| {
        let at = format!("{} ({}, QP {}) on {}", told["scenario"], told["end"], told["qpn"], results.kernel);
        let key = (
            number(&told["pid"]),
            told["device"].as_str().expect("it names its device").to_owned(),
            number(&told["qpn"]),
        );
        // A QP that neither posted nor got anything has no statistics.
        let seen = statistics.get(&key).cloned().unwrap_or(Value::Null);
        Pair { at, told, seen }
    });
    pairs.collect()
}

/// The same, without those that did nothing.
fn used(results: &Results) -> Vec<Pair> {
    let idle = |pair: &Pair| ["posts", "recv_wrs", "completions"].iter().all(|key| pair.told[*key] == 0);
    let mut pairs = pairs(results);
    for pair in pairs.iter().filter(|pair| idle(pair)) {
        assert!(pair.seen.is_null(), "{}: {}", pair.at, pair.seen);
    }
    pairs.retain(|pair| !idle(pair));
    for Pair { at, seen, .. } in &pairs {
        assert!(seen.is_object(), "{at}: nothing was recorded");
    }
    pairs
}

#[test]
fn posts_requests_bytes_sizes_and_opcodes_of_every_kind_of_post_are_exact() {
    on_each_kernel("verbs", |results| {
        for Pair { at, told, seen } in used(results) {
            for key in ["posts", "wrs", "bytes", "signaled", "recv_wrs"] {
                assert_eq!(seen[key], told[key], "{key} of {at}: {seen}");
            }
            assert_eq!(object(&seen["opcodes"]), named(&told["opcodes"], &OPCODES), "{at}");
            assert_eq!(histogram(&seen["size_log2"]), histogram(&told["size_log2"]), "{at}");
            assert!(seen["truncated"].is_null() && seen["sampled_ns"].is_null(), "{at}: {seen}");
        }
    });
}

#[test]
fn completions_and_errors_by_status_are_exact() {
    on_each_kernel("verbs", |results| {
        let mut failed = 0;
        for Pair { at, told, seen } in used(results) {
            assert_eq!(seen["completions"], told["completions"], "{at}: {seen}");
            assert_eq!(object(&seen["errors"]), errors(&told["errors"]), "{at}");
            assert!(seen["completions_sampled_ns"].is_null(), "{at}: {seen}");
            let causes = &told["errors"][10];
            failed += number(causes);
            // The new queues tell the provider's code by a call of their own, which is not watched.
            if number(causes) != 0 && told["scenario"] != "new_bad_rkey" {
                assert_eq!(seen["vendor_err"], told["vendor_err"], "{at}: {seen}");
            }
        }
        assert_eq!(failed, 3, "on {}: each of the three with a bad key fails one request by it", results.kernel);
    });
}

#[test]
fn latency_is_that_of_the_program_within_one_bucket() {
    on_each_kernel("verbs", |results| {
        let (mut timed, mut interrupted) = (0, 0);
        for Pair { at, told, seen } in used(results).into_iter().filter(|pair| pair.told["end"] == "near") {
            // After an error order pairs nothing any more, and what is in the histogram by then may be less.
            if number(&told["errors"][10]) != 0 {
                continue;
            }
            let (own, ours) = (histogram(&told["latency_log2_ns"]), histogram(&seen["latency_log2_ns"]));
            assert_eq!(ours.iter().sum::<u64>(), own.iter().sum::<u64>(), "{at}: {seen}");
            timed += own.iter().sum::<u64>();
            // The program looks at the clock before the probe of the post and after that of the poll: what it measures is
            // never shorter. What is built call by call begins for the program with the last call and for the probe, in a
            // long batch, with an earlier one: that may be a bucket longer.
            let earlier = usize::from(told["scenario"].as_str().is_some_and(|name| name.starts_with("new_")));
            // It is longer by more than a bucket only where the processor was taken away between look and probe, by the
            // scheduler or from the whole machine.
            let up_to = |counts: &[u64], bucket: usize| counts.iter().take(bucket).sum::<u64>();
            let mut apart = 0;
            for bucket in 0..40 {
                let longest = up_to(&ours, bucket + earlier);
                assert!(up_to(&own, bucket) <= longest, "bucket {bucket} of {at}: {own:?}, {ours:?}");
                apart = apart.max(up_to(&ours, bucket).saturating_sub(up_to(&own, bucket + 1)));
            }
            interrupted += apart;
        }
        println!("{timed} requests timed on {}, {interrupted} of them interrupted", results.kernel);
        assert!(timed > 1500, "only {timed} on {}", results.kernel);
    });
}

/// The statistics of the QPs of a program's processes that posted.
fn of_program(results: &Results, comm: &str) -> Vec<Value> {
    let mut processes = Vec::new();
    each(results, |observation| {
        if let Body::Qp(qp) = &observation.body
            && qp.comm.as_deref() == Some(comm)
            && let Some(pid) = qp.pid
            && !processes.contains(&u64::from(pid))
        {
            processes.push(u64::from(pid));
        }
    });
    let statistics = last_statistics(results);
    let of_them = statistics.into_iter().filter(|((pid, ..), seen)| processes.contains(pid) && seen["wrs"] != 0);
    of_them.map(|(_, seen)| seen).collect()
}

#[test]
fn posts_and_completions_of_perftest_are_exact() {
    on_each_kernel("verbs", |results| {
        let on = &results.kernel;
        for run in results.json_lines("runs.jsonl") {
            let seen = of_program(results, run["program"].as_str().expect("a name"));
            let (n, size) = (number(&run["iterations"]), number(&run["size"]));
            let both_ends = run["program"] == "ib_send_lat";
            assert_eq!(seen.len(), if both_ends { 2 } else { 1 }, "{run} on {on}: {seen:?}");
            for seen in seen {
                assert_eq!((number(&seen["wrs"]), number(&seen["bytes"])), (n, n * size), "{run} on {on}: {seen}");
                assert_eq!(object(&seen["errors"]), json!({}), "{run} on {on}: {seen}");
                let receives = if both_ends { n } else { 0 };
                assert_eq!(number(&seen["completions"]), number(&seen["signaled"]) + receives, "{run} on {on}: {seen}");
            }
        }
    });
}

#[test]
fn ping_pongs_by_lists_and_by_the_new_calls_are_counted_alike() {
    on_each_kernel("verbs", |results| {
        let seen = of_program(results, "ibv_rc_pingpong");
        assert_eq!(seen.len(), 4, "two ends, plain and new, on {}: {seen:?}", results.kernel);
        for seen in seen {
            let counts = ["posts", "wrs", "bytes", "signaled", "completions"].map(|key| number(&seen[key]));
            assert_eq!(counts, [200, 200, 200 * 1024, 200, 400], "on {}: {seen}", results.kernel);
            assert_eq!(seen["opcodes"], json!({ "SEND": 200 }), "on {}", results.kernel);
        }
    });
}
