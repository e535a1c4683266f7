//! What `rdmascope record` saw on real kernels, compared with what the programs did and what the kernel itself said.

use std::collections::BTreeMap;

use collector::command::qps;
use collector::engine::Engine;
use collector::observation::recording::Reader;
use collector::observation::{Body, CounterSource, Observation};
use collector::rule::Settings;
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

/// Hands every observation of the payload's recording to `look`.
fn each(results: &Results, mut look: impl FnMut(&Observation<'_>)) {
    let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    while reader.next(|observation| look(observation)).expect("the recording can be read").is_some() {}
    assert_eq!(reader.notices().lines(), Vec::<String>::new(), "on {}", results.kernel);
}

/// The engine after everything observed up to `t`.
fn engine_at(results: &Results, t: u64) -> Engine {
    let reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    let mut engine = Engine::new(reader.header().clone(), Settings::default());
    each(results, |observation| {
        if observation.t <= t {
            engine.take(observation);
        }
    });
    engine
}

/// One QP from its creation to its end, as the recording tells it.
#[derive(Debug, Default, Clone)]
struct Life {
    device: String,
    qpn: u32,
    pid: Option<u32>,
    comm: Option<String>,
    states: Vec<String>,
    posts: u64,
    wrs: u64,
    bytes: u64,
    destroyed: bool,
}

/// Every QP that was created while the recording ran, in the order of creation.
fn lives(results: &Results) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    let mut open: BTreeMap<(String, u32), usize> = BTreeMap::new();
    each(results, |observation| match &observation.body {
        Body::Qp(qp) => {
            let key = (qp.device.to_string(), qp.qpn);
            let event = format!("{:?}", qp.event);
            if event == "Create" {
                open.insert(key.clone(), lives.len());
                lives.push(Life {
                    device: key.0,
                    qpn: key.1,
                    pid: qp.pid,
                    comm: qp.comm.as_deref().map(str::to_owned),
                    ..Life::default()
                });
                return;
            }
            let Some(life) = open.get(&key).map(|at| &mut lives[*at]) else { return };
            if let Some(to) = qp.to.filter(|_| event == "Modify" && qp.errno.is_none()) {
                life.states.push(to.name().to_owned());
            }
            if event == "Destroy" {
                life.destroyed = true;
                open.remove(&key);
            }
        }
        Body::QpStats(stats) => {
            if let Some(at) = open.get(&(stats.device.to_string(), stats.qpn)) {
                let life = &mut lives[*at];
                (life.posts, life.wrs, life.bytes) = (stats.posts, stats.wrs, stats.bytes);
            }
        }
        _ => {}
    });
    lives
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn posts_and_bytes_of_every_perftest_qp_are_exactly_what_it_was_asked_for() {
    on_each_kernel("traffic", |results| {
        if !results.has_product() {
            return;
        }
        let lives = lives(results);
        let mut by_process: BTreeMap<(u32, String), Vec<&Life>> = BTreeMap::new();
        for life in lives.iter().filter(|life| life.device == "rxea") {
            if let (Some(pid), Some(comm)) = (life.pid, &life.comm) {
                by_process.entry((pid, comm.clone())).or_default().push(life);
            }
        }
        // Processes come in the order of their pids, as the runs did.
        let mut processes = by_process.iter();
        for run in results.json_lines("runs.jsonl") {
            let program = run["program"].as_str().unwrap();
            let (_, qps) = processes
                .by_ref()
                .find(|((_, comm), _)| comm == program)
                .unwrap_or_else(|| panic!("{run} left no QP on {}", results.kernel));
            let posting: Vec<_> = qps.iter().filter(|life| life.posts > 0).collect();
            assert_eq!(posting.len() as u64, number(&run["qps"]), "{run} on {}: {qps:?}", results.kernel);
            for life in posting {
                let iterations = number(&run["iterations"]);
                assert_eq!(life.wrs, iterations, "{run} on {}: {life:?}", results.kernel);
                assert_eq!(life.bytes, iterations * number(&run["size"]), "{run} on {}: {life:?}", results.kernel);
                assert_eq!(life.states, ["INIT", "RTR", "RTS"], "{run} on {}", results.kernel);
                assert!(life.destroyed, "{run} on {}: {life:?}", results.kernel);
            }
        }
    });
}

#[test]
fn two_threads_on_one_qp_are_counted_exactly_while_other_qps_come_and_go() {
    on_each_kernel("traffic", |results| {
        if !results.has_product() {
            return;
        }
        let lives = lives(results);
        for account in results.json_lines("threads.jsonl") {
            let of_process: Vec<_> =
                lives.iter().filter(|life| life.pid.map(u64::from) == account["pid"].as_u64()).collect();
            let main = of_process
                .iter()
                .find(|life| life.device == account["device"] && life.qpn == account["qpn"])
                .unwrap_or_else(|| panic!("no QP of {account} on {}", results.kernel));
            assert_eq!(main.posts, number(&account["posts"]), "{account} on {}: {main:?}", results.kernel);
            assert_eq!(main.wrs, number(&account["wrs"]), "{account} on {}: {main:?}", results.kernel);
            assert_eq!(main.bytes, number(&account["bytes"]), "{account} on {}: {main:?}", results.kernel);
            // The program counts the QPs of its device, the main one included.
            let on_device = of_process.iter().filter(|life| life.device == account["device"]).count();
            assert_eq!(on_device as u64, number(&account["created"]), "on {}", results.kernel);
            assert!(of_process.iter().all(|life| life.destroyed), "on {}", results.kernel);
        }
    });
}

#[test]
fn qps_of_the_same_number_on_two_devices_are_kept_apart() {
    on_each_kernel("traffic", |results| {
        if !results.has_product() {
            return;
        }
        let told = results.json_lines("same_qpn.jsonl");
        let account = told.iter().find(|line| line["what"] == "end").expect("the pair ended");
        let of_pair: Vec<_> = lives(results)
            .into_iter()
            .filter(|life| life.pid.map(u64::from) == account["pid"].as_u64())
            .filter(|life| life.qpn == account["qpn"])
            .collect();
        let device = |name: &str| of_pair.iter().find(|life| life.device == name).expect("both devices have one");
        assert_eq!(device("rxea").wrs, number(&account["wrs"]), "on {}", results.kernel);
        assert_eq!(device("rxea").bytes, number(&account["bytes"]), "on {}", results.kernel);
        assert_eq!(device("rxeb").posts, 0, "on {}", results.kernel);
    });
}

#[test]
fn every_qp_of_the_kernels_own_list_is_known_with_owner_type_state_and_peer() {
    on_each_kernel("traffic", |results| {
        if !results.has_product() {
            return;
        }
        for moment in ["start", "same_qpn", "end"] {
            let t = number(&results.json(&format!("{moment}/time"))["t"]);
            // What netlink lists it lists every few seconds; the probes tell the rest at once.
            let engine = engine_at(results, t);
            let report = serde_json::to_value(qps::report(engine.world())).unwrap();
            let known = report["qps"].as_array().unwrap();
            let kernel = results.json(&format!("{moment}/qp.json"));
            let kernel = kernel.as_array().unwrap();
            for listed in kernel {
                let same = |qp: &&Value| {
                    qp["device"] == listed["ifname"] && qp["qpn"] == listed["lqpn"] && qp["port"] == listed["port"]
                };
                let at = format!("{moment} on {}", results.kernel);
                let qp = known.iter().find(same).unwrap_or_else(|| panic!("{at}: {listed} is unknown"));
                assert_eq!(qp["type"], listed["type"], "{at}");
                assert_eq!(qp["state"], listed["state"], "{at}: {listed}");
                assert_eq!(qp["comm"], listed["comm"], "{at}");
                assert_eq!(qp["pid"], listed["pid"], "{at}");
                if !listed["rqpn"].is_null() {
                    assert_eq!(qp["remote_qpn"], listed["rqpn"], "{at}");
                }
            }
            assert_eq!(known.len(), kernel.len(), "{moment} on {}: {known:?}", results.kernel);
        }
    });
}

#[test]
fn port_counters_equal_sysfs_at_both_ends() {
    on_each_kernel("traffic", |results| {
        if !results.has_product() {
            return;
        }
        for device in ["rxea", "rxeb", "rxec"] {
            let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
            each(results, |observation| {
                if let Body::Counters(counters) = &observation.body
                    && counters.device == device
                    && matches!(counters.source, CounterSource::Nldev | CounterSource::HwCounters)
                {
                    last = counters.values.iter().map(|(name, value)| (name.to_string(), *value)).collect();
                    if first.is_empty() {
                        first.clone_from(&last);
                    }
                }
            });
            for (moment, seen) in [("start", first), ("end", last)] {
                let mut sysfs = BTreeMap::new();
                for line in results.text(&format!("{moment}/{device}.hw_counters")).lines() {
                    let (path, value) = line.rsplit_once(':').unwrap();
                    let name = path.rsplit('/').next().unwrap();
                    if name != "lifespan" {
                        sysfs.insert(name.to_owned(), value.parse::<u64>().unwrap());
                    }
                }
                assert_eq!(seen, sysfs, "{device} at the {moment} on {}", results.kernel);
            }
        }
    });
}

#[test]
fn coverage_is_stated_and_bytes_are_unknown_where_the_device_counts_none() {
    on_each_kernel("traffic", |results| {
        if !results.has_product() {
            return;
        }
        let t = number(&results.json("same_qpn/time")["t"]);
        let coverage = qps::coverage(engine_at(results, t + 1_000_000_000).world());
        assert_eq!(coverage.bytes_ratio, None, "on {}", results.kernel);
        assert!(coverage.qps_kernel.is_some_and(|qps| qps >= 5), "on {}: {coverage:?}", results.kernel);
        assert!(coverage.qps_seen >= 1, "on {}: {coverage:?}", results.kernel);
    });
}

#[test]
fn a_healthy_run_raises_nothing() {
    on_each_kernel("traffic", |results| {
        if results.has_product() {
            assert_eq!(results.text("findings.jsonl"), "", "on {}", results.kernel);
        }
    });
}

#[test]
fn replaying_gives_the_findings_of_the_live_run_byte_for_byte() {
    for payload in ["traffic", "marks", "faults"] {
        on_each_kernel(payload, |results| {
            if !results.has_product() {
                return;
            }
            let mut replayed = Vec::new();
            collector::replay::judge(&results.path("recording.jsonl"), Settings::default(), |findings, _| {
                replayed.extend(findings.iter().map(|finding| collector::sink::findings::line(finding)));
            })
            .unwrap();
            let live = results.text("findings.jsonl");
            for (live, replayed) in live.lines().zip(&replayed) {
                assert_eq!(live, replayed, "{payload} on {}", results.kernel);
            }
            assert_eq!(live.lines().count(), replayed.len(), "{payload} on {}", results.kernel);
        });
    }
}

#[test]
fn injected_pcie_errors_are_observed_and_name_the_device_behind_the_function() {
    on_each_kernel("faults", |results| {
        if !results.has_product() {
            return;
        }
        let actions = results.json_lines("actions");
        let injected: Vec<_> = actions.iter().filter(|action| action["action"] == "aer").collect();
        let mut seen = Vec::new();
        each(results, |observation| {
            if let Body::Aer(aer) = &observation.body {
                let names: Vec<String> = aer.names.iter().map(ToString::to_string).collect();
                seen.push((observation.t, aer.pci.to_string(), format!("{:?}", aer.severity), names));
            }
        });
        assert_eq!(seen.len(), injected.len(), "on {}: {seen:?}", results.kernel);
        for ((t, pci, severity, names), action) in seen.iter().zip(&injected) {
            let expected = match action["status"].as_str().unwrap() {
                "0x100" => ("Corrected", "Rollover"),
                "0x40" => ("Corrected", "BadTLP"),
                "0x4000" => ("Nonfatal", "CmpltTO"),
                other => panic!("unexpected status {other}"),
            };
            assert_eq!(action["pci"], **pci, "on {}", results.kernel);
            assert_eq!((severity.as_str(), names[0].as_str()), expected, "on {}", results.kernel);
            let delay = i128::from(*t) - i128::from(number(&action["t"]));
            assert!(delay.abs() < 2_000_000_000, "{action} was seen {delay} ns later on {}", results.kernel);
        }
        let findings = results.json_lines("findings.jsonl");
        for rule in ["pcie.aer_storm", "pcie.aer_fatal"] {
            let raised = findings.iter().find(|f| f["rule"] == rule && f["state"] == "raised");
            let subject = &raised.unwrap_or_else(|| panic!("no {rule} on {}", results.kernel))["subject"];
            assert_eq!(subject["device"], "rxec", "on {}", results.kernel);
            assert_eq!(subject["pci"], injected[0]["pci"], "on {}", results.kernel);
        }
    });
}

#[test]
fn a_cut_link_raises_link_down_and_then_the_failed_qp_with_their_times() {
    on_each_kernel("faults", |results| {
        if !results.has_product() {
            return;
        }
        let actions = results.json_lines("actions");
        let cut = actions.iter().find(|action| action["action"] == "carrier_down").expect("the link was cut");
        let cut_t = number(&cut["t"]);
        let findings = results.json_lines("findings.jsonl");
        let raised = |rule: &str| {
            let first = findings.iter().find(|f| {
                f["rule"] == rule
                    && f["state"] == "raised"
                    && f["subject"]["device"] == "rxea"
                    && number(&f["t"]) > cut_t
            });
            first.unwrap_or_else(|| panic!("no {rule} about rxea after the cut on {}", results.kernel))
        };
        let (down, failed) = (raised("link.down"), raised("qp.error_state"));
        let told = results.json_lines("carrier.jsonl");
        let connected = told.iter().find(|line| line["what"] == "connected").unwrap();
        let error_t = number(&told.iter().find(|line| line["what"] == "error").unwrap()["t"]);
        let on = &results.kernel;
        let after_cut_ns = number(&down["first_t"]).saturating_sub(cut_t);
        assert!(after_cut_ns < 2_000_000_000, "link.down {after_cut_ns} ns after the cut on {on}");
        assert_eq!(failed["subject"]["qpn"], connected["qpn"], "on {on}: {failed}");
        assert!(number(&down["t"]) < number(&failed["t"]), "on {on}");
        assert!(number(&failed["t"]) > error_t, "the finding came before the error on {on}");
        // The finding about the port names the QP's end too, once that is known.
        let updated = findings.iter().any(|f| {
            f["rule"] == "link.down"
                && f["state"] == "updated"
                && f["summary"].as_str().is_some_and(|s| s.contains("QP"))
        });
        assert!(updated, "link.down never told of the QP on {on}");
    });
}

#[test]
fn the_screen_shows_ports_qps_rates_and_the_faults_of_the_run() {
    on_each_kernel("tui", |results| {
        let on = &results.kernel;
        let shows = |file: &str, words: &[&str]| {
            let screen = results.text(file);
            for word in words {
                assert!(screen.contains(word), "{file} on {on} does not show {word:?}:\n{screen}");
            }
        };
        shows("120x40/start", &["LIVE", "rxea", "rxeb", "rxec", "ACTIVE", "probes 12/12"]);
        shows("120x40/pane3", &["rxea", "pair", "RTS", "RC"]);
        shows("120x40/pane9", &["nldev", "sysfs", "pcie", "probes"]);
        shows("120x40/fault1", &["link.down", "pcie.aer_storm", "rxea", "rxec", "DOWN"]);
        shows("120x40/fault5", &["link.down", "confirmed"]);
        shows("80x24/start", &["rxea", "ACTIVE"]);
    });
}
