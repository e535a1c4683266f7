//! What the sources beside the RDMA ports saw, compared with what the kernel's own tools said at the same time.

use std::collections::{BTreeMap, BTreeSet};

use collector::observation::recording::Reader;
use collector::observation::{Body, CounterSource, Nanos, Observation};
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

/// A set's counters by name.
type Values = BTreeMap<String, u64>;

/// Calls `check` on every kernel on which the product recorded.
fn on_each_recording(check: impl Fn(&Results)) {
    on_each_kernel("sources", |results| {
        if results.has_product() {
            check(results);
        }
    });
}

fn each(results: &Results, mut look: impl FnMut(&Observation<'_>)) {
    let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    while reader.next(|observation| look(observation)).expect("the recording can be read").is_some() {}
}

/// The sets of a source, each with its time, device and network device.
fn sets(results: &Results, source: CounterSource) -> Vec<(Nanos, String, String, Values)> {
    let mut sets = Vec::new();
    each(results, |observation| {
        if let Body::Counters(set) = &observation.body
            && set.source == source
        {
            let values = set.values.iter().map(|(name, value)| (name.to_string(), *value)).collect();
            let netdev = set.netdev.as_deref().unwrap_or_default().to_owned();
            sets.push((observation.t, set.device.to_string(), netdev, values));
        }
    });
    sets
}

/// A time the payload noted with its program `mono`.
fn time(results: &Results, file: &str) -> Nanos {
    let lines = results.json_lines(file);
    lines.last().and_then(|line| line["t"].as_u64()).unwrap_or_else(|| panic!("{file} has no time"))
}

fn action(results: &Results, name: &str) -> Nanos {
    let actions = results.json_lines("actions");
    let action = actions.iter().find(|line| line["action"] == name);
    action.and_then(|line| line["t"].as_u64()).unwrap_or_else(|| panic!("no action {name}"))
}

/// The network devices ethtool was asked about.
fn netdevs(results: &Results) -> Vec<String> {
    let names = results.json("netdevs.json");
    ["card", "intel"]
        .iter()
        .map(|key| names[key].as_str().unwrap_or_else(|| panic!("no name of {key}")).to_owned())
        .collect()
}

/// Every counter ethtool printed about a network device, by the names the source has for them.
fn told(results: &Results, when: &str, netdev: &str) -> Values {
    let mut values = Values::new();
    for line in results.text(&format!("{when}/{netdev}.S")).lines() {
        if let Some((name, value)) = line.rsplit_once(':')
            && let Ok(value) = value.trim().parse()
        {
            values.entry(name.trim().to_owned()).or_insert(value);
        }
    }
    // A kernel or a driver that has no such answer leaves words or nothing.
    let json = |what: &str| -> Value {
        serde_json::from_str(&results.text(&format!("{when}/{netdev}.{what}.json"))).unwrap_or_default()
    };
    let groups = json("groups");
    for group in groups[0].as_object().into_iter().flat_map(serde_json::Map::values) {
        for (name, value) in group.as_object().into_iter().flatten() {
            values.extend(value.as_u64().map(|value| (name.clone(), value)));
        }
    }
    let pause = json("pause");
    for (name, value) in pause[0]["statistics"].as_object().into_iter().flatten() {
        values.extend(value.as_u64().map(|value| (name.clone(), value)));
    }
    let fec = json("fec");
    for (name, value) in fec[0]["statistics"].as_object().into_iter().flatten() {
        values.extend(value["total"].as_u64().map(|value| (name.clone(), value)));
        for (lane, value) in (0..).zip(value["lanes"].as_array().into_iter().flatten()) {
            values.extend(value.as_u64().map(|value| (format!("{name}_lane_{lane}"), value)));
        }
    }
    values
}

#[test]
fn statistics_of_network_devices_are_what_ethtool_says_before_and_after() {
    on_each_recording(|results| {
        let sets = sets(results, CounterSource::Ethtool);
        for netdev in netdevs(results) {
            let (before, after) = (told(results, "before", &netdev), told(results, "after", &netdev));
            let from = time(results, &format!("before/{netdev}.end"));
            let to = time(results, &format!("after/{netdev}.start"));
            let between: Vec<_> =
                sets.iter().filter(|(t, _, of, _)| *of == netdev && (from..=to).contains(t)).collect();
            assert!(!between.is_empty(), "nothing of {netdev} between {from} and {to} on {}", results.kernel);
            let names: BTreeSet<&String> = before.keys().collect();
            assert!(names.len() > 5, "ethtool says of {netdev} only {names:?} on {}", results.kernel);
            for (t, device, _, values) in between {
                let read: BTreeSet<&String> = values.keys().collect();
                // How often the link went down is told by no option of this ethtool.
                let unknown: Vec<_> = read.difference(&names).filter(|name| **name != "link_down_events").collect();
                let missed: Vec<_> = names.difference(&read).collect();
                let place = format!("{device} {netdev} at {t} on {}", results.kernel);
                assert!(unknown.is_empty() && missed.is_empty(), "{place}: unknown {unknown:?}, missed {missed:?}");
                for (name, low) in &before {
                    let high = after[name];
                    let value = values[name];
                    // What stands still is equal; what moves lies between.
                    assert!((*low..=high).contains(&value), "{place}: {name} is {value}, not {low} to {high}");
                }
            }
        }
    });
}

#[test]
fn only_network_devices_of_rdma_ports_were_read() {
    on_each_recording(|results| {
        let mut allowed: BTreeSet<String> = netdevs(results).into_iter().collect();
        allowed.extend(["va", "vb", "bond0"].map(str::to_owned));
        for source in [CounterSource::Ethtool, CounterSource::Netdev] {
            let seen: BTreeSet<String> = sets(results, source).into_iter().map(|(_, _, netdev, _)| netdev).collect();
            assert!(seen.is_subset(&allowed), "{seen:?} on {}", results.kernel);
            assert!(seen.len() >= 3, "{seen:?} on {}", results.kernel);
        }
    });
}

#[test]
fn a_change_of_the_active_slave_is_observed_within_50_ms_of_iproute2s_own_monitor() {
    on_each_recording(|results| {
        let mut bonds = Vec::new();
        each(results, |observation| {
            if let Body::Bond(bond) = &observation.body
                && bond.bond == "bond0"
            {
                let slaves = bond.slaves.iter().map(|slave| (slave.netdev.to_string(), slave.up)).collect::<Vec<_>>();
                assert_eq!(bond.mode, "active-backup", "on {}", results.kernel);
                bonds.push((observation.t, bond.active.as_deref().map(str::to_owned), slaves));
            }
        });
        let first = bonds.first().unwrap_or_else(|| panic!("no bond on {}", results.kernel));
        let both = vec![("b0".to_owned(), true), ("b1".to_owned(), true)];
        assert_eq!((first.1.as_deref(), &first.2), (Some("b0"), &both), "on {}", results.kernel);
        for (change, active) in [("to_b1", "b1"), ("to_b0", "b0")] {
            let since = action(results, change);
            let observed = bonds.iter().find(|(t, now, _)| *t >= since && now.as_deref() == Some(active));
            let (observed, ..) =
                observed.unwrap_or_else(|| panic!("{change} was not seen on {}: {bonds:?}", results.kernel));
            let monitor = results.json_lines("monitor.jsonl");
            let heard = monitor.iter().find_map(|line| {
                let t = line["t"].as_u64().filter(|t| *t >= since)?;
                let text = line["line"].as_str()?;
                (text.contains("bond0") && text.contains(&format!("active_slave {active} "))).then_some(t)
            });
            let heard = heard.unwrap_or_else(|| panic!("the monitor did not hear of {change} on {}", results.kernel));
            // Below 0 where the observation was first: the line of the monitor came through a pipe.
            let late_ms = (*observed as f64 - heard as f64) / 1e6;
            println!("{change} on {}: {late_ms:.1} ms after the monitor", results.kernel);
            assert!(late_ms <= 50.0, "{change} on {}: {late_ms} ms late", results.kernel);
        }
        // A carrier that is lost is lost for the slave as well.
        let last = bonds.last().expect("there is a first one");
        assert_eq!(last.2[1], ("b1".to_owned(), false), "on {}", results.kernel);
    });
}

#[test]
fn doctor_names_what_these_devices_do_not_have() {
    on_each_recording(|results| {
        let report = results.json("doctor.json");
        let source = |name: &str| {
            let sources = report["sources"].as_array().expect("doctor lists the sources");
            sources.iter().find(|source| source["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
        };
        assert_eq!(source("netdev")["state"], "ok", "on {}: {}", results.kernel, source("netdev"));
        assert_eq!(source("ethtool")["state"], "ok", "on {}: {}", results.kernel, source("ethtool"));
        for name in ["congestion", "devlink", "hwmon"] {
            assert_eq!(source(name)["state"], "off", "on {}: {}", results.kernel, source(name));
            assert!(source(name)["missing"][0]["reason"].is_string(), "on {}: {}", results.kernel, source(name));
        }
    });
}
