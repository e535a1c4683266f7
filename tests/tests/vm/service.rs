//! The package's unit under a real systemd: what each capability is for, and what the service sees with them.

use std::collections::BTreeSet;

use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

/// The bits of `/proc/PID/status` (`include/uapi/linux/capability.h`).
const CAPABILITIES: [(&str, u32); 4] =
    [("CAP_DAC_READ_SEARCH", 2), ("CAP_SYS_ADMIN", 21), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// Names of the probes that `doctor` attached, or not, in one situation.
fn probes(results: &Results, situation: &str, attached: bool) -> BTreeSet<String> {
    let report = results.json(&format!("{situation}.json"));
    let probes = report["probes"].as_array().unwrap_or_else(|| panic!("{situation}: no probes: {report}"));
    let chosen = probes.iter().filter(|probe| probe["attached"] == attached);
    chosen.filter_map(|probe| probe["name"].as_str().map(str::to_owned)).collect()
}

fn status<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap_or_default().trim()
}

#[test]
fn each_capability_of_the_unit_is_there_for_probes_that_do_not_attach_without_it() {
    on_each_kernel("service", |results| {
        let at = &results.kernel;
        let one = |name: &str| BTreeSet::from([name.to_owned()]);
        assert_eq!(probes(results, "all", false), BTreeSet::new(), "on {at}");
        assert_eq!(probes(results, "no_dac_read_search", false), one("ras:aer_event"), "on {at}");
        // Debian's level 3 of perf_event_paranoid leaves perf events to CAP_SYS_ADMIN; at the level of other kernels only
        // functions in files need it.
        assert_eq!(results.text("paranoid").trim(), "3", "on {at}");
        assert_eq!(probes(results, "no_sys_admin", true), BTreeSet::new(), "on {at}");
        let in_files = ["learn", "poll_cq", "post_recv", "post_send"].map(str::to_owned);
        assert_eq!(probes(results, "no_sys_admin_at_2", false), BTreeSet::from(in_files), "on {at}");
        // CAP_SYS_ADMIN stands for the other two; without it each is needed.
        assert_eq!(probes(results, "no_bpf_at_2", true), BTreeSet::new(), "on {at}");
        assert_eq!(probes(results, "no_perfmon_at_2", true), BTreeSet::new(), "on {at}");
    });
}

#[test]
fn with_the_examples_of_drop_ins_it_does_without_probes_or_looks_at_packets() {
    on_each_kernel("service", |results| {
        let at = &results.kernel;
        let least = results.json("least.json");
        assert_eq!(least["kernel"]["capabilities"], Value::Array(Vec::new()), "on {at}");
        assert_eq!(probes(results, "least", true), BTreeSet::new(), "on {at}");
        let state = |report: &Value, name: &str| {
            let sources = report["sources"].as_array().expect("doctor lists sources");
            sources.iter().find(|source| source["name"] == name).map(|source| source["state"].clone())
        };
        let all = results.json("all.json");
        for counters in ["sysfs", "nldev", "pcie", "ethtool"] {
            assert_eq!(state(&least, counters), state(&all, counters), "{counters} on {at}");
        }
        let loopback = results.json("loopback.json");
        assert_ne!(state(&loopback, "loopback"), Some("off".into()), "on {at}: {}", loopback["sources"]);
        assert_eq!(state(&all, "loopback"), Some("off".into()), "on {at}");
        assert_eq!(state(&all, "packets"), Some("off".into()), "on {at}");
        let packets = results.json("packets.json");
        assert_eq!(state(&packets, "packets"), Some("ok".into()), "on {at}: {}", packets["sources"]);
        assert_eq!(probes(results, "packets", false), BTreeSet::new(), "on {at}");
    });
}

#[test]
fn the_service_runs_as_its_own_user_with_the_listed_capabilities_and_no_other() {
    on_each_kernel("service", |results| {
        let text = results.text("status");
        let bits = CAPABILITIES.iter().fold(0_u64, |bits, (_, bit)| bits | 1 << bit);
        for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
            assert_eq!(u64::from_str_radix(status(&text, set), 16), Ok(bits), "{set} on {}", results.kernel);
        }
        let properties = results.text("properties");
        for (capability, _) in CAPABILITIES {
            let name = capability.to_lowercase();
            for key in ["AmbientCapabilities=", "CapabilityBoundingSet="] {
                let listed = properties.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
                assert!(listed.split(' ').any(|listed| listed == name), "{key}{listed} on {}", results.kernel);
            }
        }
        assert!(!status(&text, "Uid").starts_with('0'), "on {}: {text}", results.kernel);
        assert_eq!(status(&text, "NoNewPrivs"), "1", "on {}", results.kernel);
        assert_eq!(status(&text, "Seccomp"), "2", "on {}: no filter of system calls", results.kernel);
        assert_eq!((results.text("verify.rc").trim(), results.text("verify.txt").as_str()), ("0", ""));
    });
}

#[test]
fn under_the_unit_it_sees_every_probe_counters_posts_and_a_pcie_error_and_tells_the_group_of_it() {
    on_each_kernel("service", |results| {
        let at = &results.kernel;
        let seen = results.json_lines("node.jsonl");
        let of = |kind: &str| seen.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
        let attached = of("probes").last().map(|line| (line["attached"].clone(), line["failed"].clone()));
        assert_eq!(attached, Some((12.into(), Value::Array(Vec::new()))), "on {at}");
        assert!(of("counters").len() > 10, "on {at}: {} lines of counters", of("counters").len());
        assert!(!of("qp_stats").is_empty(), "on {at}: no posts");
        let aer = of("aer");
        assert_eq!(aer.len(), 1, "on {at}: {aer:?}");
        assert_eq!((&aer[0]["severity"], &aer[0]["names"][0]), (&"nonfatal".into(), &"CmpltTO".into()), "on {at}");

        let told = results.json_lines("told.jsonl");
        assert_eq!(told[0]["hello"], "rdmascope", "on {at}");
        let finding = told.iter().find(|line| line["rule"] == "pcie.aer_fatal").expect("it was waited for");
        assert_eq!(finding["subject"]["device"], "rxec", "on {at}: {finding}");
        // Who is not in the group is not let in.
        assert!(results.text("stranger.jsonl").contains("Permission denied"), "on {at}");
        let modes = results.text("modes");
        let modes: Vec<_> = modes.lines().collect();
        let own = "rdmascope rdmascope";
        let wanted = [format!("755 {own}"), format!("660 {own}"), format!("750 {own}"), "600 root root".to_owned()];
        assert_eq!(modes, wanted, "on {at}");
    });
}

#[test]
fn systemd_hears_that_it_is_ready_alive_and_what_it_watches_and_the_ring_saves_the_incident() {
    on_each_kernel("service", |results| {
        let at = &results.kernel;
        let alive = results.text("alive");
        let value = |key: &str| alive.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        let time = |key: &str| value(key).parse::<u64>().unwrap_or_else(|_| panic!("{key} on {at}: {alive}"));
        let fed = time("WatchdogTimestampMonotonic=") - time("ExecMainStartTimestampMonotonic=");
        assert!(fed > 5_000_000, "on {at}: last {fed} us after its start");
        assert!(value("StatusText=").contains("raised"), "on {at}: {alive}");
        let ring = results.text("ring");
        assert!(ring.contains("-pcie.aer_fatal.jsonl"), "on {at}: {ring}");
    });
}

#[test]
fn systemd_stops_it_cleanly_and_nothing_of_it_stays_in_run() {
    on_each_kernel("service", |results| {
        let end = results.text("end");
        assert!(end.contains("Result=success") && end.contains("ExecMainStatus=0"), "on {}: {end}", results.kernel);
        assert!(results.text("runtime_after").contains("No such file"), "on {}", results.kernel);
        let actions = results.json_lines("actions");
        let time = |name: &str| actions.iter().find(|line| line["action"] == name).and_then(|line| line["t"].as_u64());
        let took = time("stopped").zip(time("stop")).map(|(stopped, stop)| stopped - stop);
        // Two seconds are promised; the rest is what systemd and an emulated guest take.
        assert!(took.is_some_and(|took| took < 6_000_000_000), "on {}: {took:?} ns", results.kernel);
    });
}
