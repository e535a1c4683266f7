//! What `rdmascope doctor` says on a node where something is missing, and that the rest goes on.

use collector::observation::Body;
use collector::observation::recording::Reader;
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

/// The sources that need no privilege.
const COUNTERS: [&str; 3] = ["sysfs", "nldev", "pcie"];

/// What `doctor --json` said in one situation.
struct Doctor {
    /// For messages: the situation and the kernel.
    at: String,
    report: Value,
    exit: String,
}

impl Doctor {
    fn read(results: &Results, situation: &str) -> Self {
        Self {
            at: format!("{situation} on {}", results.kernel),
            report: results.json(&format!("{situation}.json")),
            exit: results.text(&format!("{situation}.rc")).trim().to_owned(),
        }
    }

    fn source(&self, name: &str) -> &Value {
        let sources = self.report["sources"].as_array().unwrap_or_else(|| panic!("{}: no sources", self.at));
        sources.iter().find(|source| source["name"] == name).unwrap_or_else(|| panic!("{}: no source {name}", self.at))
    }

    /// The reasons and what to do, of a source, in one text.
    fn missing(&self, name: &str) -> String {
        self.source(name)["missing"].to_string()
    }

    /// The names of the probes that are attached, or that are not.
    fn probes(&self, attached: bool) -> Vec<&str> {
        let probes = self.report["probes"].as_array().unwrap_or_else(|| panic!("{}: no probes", self.at));
        probes.iter().filter(|probe| probe["attached"] == attached).filter_map(|probe| probe["name"].as_str()).collect()
    }

    fn assert_probes(&self, attached: usize, missing: usize) {
        let counts = (self.probes(true).len(), self.probes(false).len());
        assert_eq!(counts, (attached, missing), "{}: {}", self.at, self.report["probes"]);
    }

    /// Every probe called `names`, or every one that is not attached, says `reason` and what to do about it.
    fn assert_reason(&self, names: &[&str], reason: &str) {
        let probes = self.report["probes"].as_array().expect("there are probes");
        let failed = probes.iter().filter(|probe| probe["attached"] == false);
        let chosen: Vec<_> =
            failed.filter(|probe| names.is_empty() || names.iter().any(|name| probe["name"] == *name)).collect();
        assert!(!chosen.is_empty(), "{}: {:?} are attached", self.at, names);
        for probe in chosen {
            let said = probe["reason"].as_str().unwrap_or_default();
            assert!(said.contains(reason), "{}: {probe}", self.at);
            assert!(probe["fix"].is_string(), "{}: no way out: {probe}", self.at);
        }
        let missing = self.source("probes")["missing"].as_array().expect("a list");
        let told = |one: &&Value| one["reason"].as_str().is_some_and(|said| said.contains(reason));
        assert!(missing.iter().find(told).is_some_and(|one| one["fix"].is_string()), "{}: {missing:?}", self.at);
    }

    /// Counters, QPs and PCIe are seen as on a node where nothing is missing.
    fn assert_counters_go_on(&self, well: &Self) {
        assert_eq!(self.exit, "0", "{}", self.at);
        for name in COUNTERS {
            assert_eq!(self.source(name), well.source(name), "{}", self.at);
        }
    }
}

fn lines(results: &Results, file: &str) -> Vec<String> {
    results.text(file).lines().map(str::to_owned).collect()
}

#[test]
fn a_node_without_rdma_is_told_so_by_every_source_and_no_module_is_loaded() {
    on_each_kernel("bare", |results| {
        for situation in ["bare", "core"] {
            let doctor = Doctor::read(results, situation);
            for (source, reason) in [("sysfs", "RDMA subsystem"), ("pcie", "no RDMA device here")] {
                assert_eq!(doctor.source(source)["state"], "off", "{}", doctor.at);
                assert!(doctor.missing(source).contains(reason), "{}: {}", doctor.at, doctor.missing(source));
            }
            doctor.assert_reason(&["post_send"], "no RDMA device here");
            let modules = lines(results, &format!("{situation}.before"));
            assert!(modules.len() > 3, "{}: {modules:?}", doctor.at);
            assert_eq!(lines(results, &format!("{situation}.after")), modules, "{}", doctor.at);
        }
        let bare = Doctor::read(results, "bare");
        assert!(bare.missing("nldev").contains("ib_core is not loaded"), "{}", bare.missing("nldev"));
        bare.assert_reason(&["ib_create_qp_user", "ib_dispatch_event"], "ib_core is not loaded");
        assert_eq!(lines(results, "bare.after_screen"), lines(results, "bare.before"), "on {}", results.kernel);
        let screen = results.text("bare_screen");
        let told = screen.lines().next().is_some_and(|line| {
            line.contains("no RDMA subsystem (class/infiniband missing)") && line.contains("not this node")
        });
        assert!(told, "on {}:\n{screen}", results.kernel);
    });
}

#[test]
fn a_probe_whose_module_was_unloaded_is_told_as_lost_and_is_attached_again_when_it_is_back() {
    on_each_kernel("bare", |results| {
        let mut told: Vec<Vec<(String, String)>> = Vec::new();
        let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
        while reader
            .next(|observation| {
                if let Body::Probes(probes) = &observation.body {
                    let failed = probes.failed.iter().filter(|probe| probe.name != "post_send");
                    told.push(failed.map(|probe| (probe.name.to_string(), probe.reason.to_string())).collect());
                }
            })
            .expect("the recording can be read")
            .is_some()
        {}
        told.dedup();
        let lost = || vec![("ib_uverbs_qp_event_handler".to_owned(), "the module ib_uverbs is not loaded".to_owned())];
        // At the end the module goes once more, perhaps unseen.
        assert_eq!(told.get(..3), Some(&[vec![], lost(), vec![]][..]), "on {}: {told:?}", results.kernel);
    });
}

#[test]
fn with_all_it_needs_everything_is_seen() {
    on_each_kernel("doctor", |results| {
        let doctor = Doctor::read(results, "well");
        assert_eq!(doctor.exit, "0", "{}", doctor.at);
        doctor.assert_probes(12, 0);
        for name in ["sysfs", "nldev", "probes"] {
            let source = doctor.source(name);
            assert_ne!(source["state"], "off", "{}: {source}", doctor.at);
        }
        assert_eq!(doctor.source("probes")["state"], "ok", "{}: {}", doctor.at, doctor.source("probes"));
        assert_eq!(doctor.source("sysfs")["sees"].as_str().map(|sees| sees.starts_with("3 devices")), Some(true));
    });
}

#[test]
fn an_ordinary_user_sees_the_counters_and_is_told_what_the_probes_need() {
    on_each_kernel("doctor", |results| {
        let doctor = Doctor::read(results, "user");
        doctor.assert_counters_go_on(&Doctor::read(results, "well"));
        assert_eq!(doctor.report["kernel"]["root"], false);
        assert_eq!(doctor.report["kernel"]["capabilities"].as_array().map(Vec::len), Some(0));
        doctor.assert_probes(0, 9);
        doctor.assert_reason(&[], "not root: loading BPF programs needs CAP_BPF and CAP_PERFMON");
        let screen = results.text("user_self");
        assert!(screen.contains("0 of 9 probes attached"), "on {}:\n{screen}", results.kernel);
        assert!(screen.contains("not root: loading BPF programs needs"), "on {}:\n{screen}", results.kernel);
    });
}

#[test]
fn a_user_with_three_capabilities_has_all_probes_but_those_of_tracefs() {
    on_each_kernel("doctor", |results| {
        let doctor = Doctor::read(results, "capable");
        doctor.assert_counters_go_on(&Doctor::read(results, "well"));
        assert_eq!(doctor.report["kernel"]["root"], false);
        assert_eq!(doctor.probes(false), ["ras:aer_event"], "{}: {}", doctor.at, doctor.report["probes"]);
        doctor.assert_reason(&["ras:aer_event"], "may not be read by this user");
    });
}

#[test]
fn without_type_information_posts_are_still_seen() {
    on_each_kernel("doctor", |results| {
        let doctor = Doctor::read(results, "no_btf");
        doctor.assert_counters_go_on(&Doctor::read(results, "well"));
        assert_eq!(doctor.report["kernel"]["btf"], false);
        let seen = ["ras:aer_event", "poll_cq", "post_send", "post_recv", "learn"];
        assert_eq!(doctor.probes(true), seen, "{}", doctor.at);
        doctor.assert_reason(&[], "the kernel has no type information");
    });
}

#[test]
fn without_tracefs_only_pcie_errors_as_they_happen_are_missing() {
    on_each_kernel("doctor", |results| {
        let doctor = Doctor::read(results, "no_tracefs");
        doctor.assert_counters_go_on(&Doctor::read(results, "well"));
        assert_eq!(doctor.probes(false), ["ras:aer_event"], "{}: {}", doctor.at, doctor.report["probes"]);
        doctor.assert_reason(&[], "tracefs is not mounted");
    });
}

#[test]
fn without_libibverbs_or_a_provider_only_posts_are_missing() {
    on_each_kernel("doctor", |results| {
        for (situation, reason) in
            [("no_libibverbs", "libibverbs.so.1 is not installed"), ("no_provider", "libibverbs has no provider")]
        {
            let doctor = Doctor::read(results, situation);
            doctor.assert_counters_go_on(&Doctor::read(results, "well"));
            assert_eq!(doctor.probes(false), ["post_send"], "{}: {}", doctor.at, doctor.report["probes"]);
            doctor.assert_reason(&[], reason);
        }
    });
}

#[test]
fn lockdown_for_integrity_costs_nothing_and_for_confidentiality_the_probes_only() {
    on_each_kernel("doctor", |results| {
        if results.path("lockdown.absent").exists() {
            println!("skipped: {}", results.text("lockdown.absent").trim());
            return;
        }
        let well = Doctor::read(results, "well");
        let integrity = Doctor::read(results, "integrity");
        integrity.assert_counters_go_on(&well);
        integrity.assert_probes(12, 0);
        assert_eq!(integrity.report["kernel"]["lockdown"], "integrity");

        let confidentiality = Doctor::read(results, "confidentiality");
        confidentiality.assert_counters_go_on(&well);
        assert_eq!(confidentiality.report["kernel"]["lockdown"], "confidentiality");
        confidentiality.assert_probes(0, 9);
        confidentiality.assert_reason(&[], "locked down (confidentiality)");

        // Where the kernel does not say that it is locked down, its refusals still lead there.
        let untold = Doctor::read(results, "confidentiality_untold");
        untold.assert_counters_go_on(&well);
        assert_eq!(untold.report["kernel"]["lockdown"], Value::Null);
        untold.assert_probes(0, 12);
        untold.assert_reason(
            &["ib_create_qp_user", "ib_dispatch_event", "ras:aer_event", "post_send"],
            "locked down (confidentiality)",
        );
        for probe in untold.report["probes"].as_array().expect("there are probes") {
            assert!(probe["reason"].as_str().is_some_and(|reason| reason.contains("lock")), "{}: {probe}", untold.at);
        }

        let screen = results.text("confidentiality_self");
        assert!(screen.contains("0 of 9 probes attached"), "on {}:\n{screen}", results.kernel);
        assert!(screen.contains("the kernel is locked down (confidentiality)"), "on {}:\n{screen}", results.kernel);
    });
}
