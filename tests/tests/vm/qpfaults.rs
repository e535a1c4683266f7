//! What becomes of a connection, fault by fault: the marks on its QP's timeline, and the finding that tells the fault.
//!
//! What the software driver was seen to do, which an adapter does otherwise:
//!
//! - It raises no event when a QP fails; the state is found in the kernel's list.
//! - A device that is set down keeps its QPs, and so does one whose address is removed or whose bond fails over. On 6.12
//!   what is posted next is flushed, without any completion that tells why. On 6.1 it fails with `LOC_QP_OP_ERR`, or waits
//!   for ever: no timer runs for what could not be sent.
//! - A carrier that is lost is the same on 6.12: a QP with patience for seconds dies of an outage of half a second. On 6.1
//!   it waits and goes on.
//! - A key that is none ends both ends; that of the responder flushes its receives without a word why.

use std::collections::BTreeMap;

use collector::engine::Engine;
use collector::inventory::{By, QpRecord, World};
use collector::observation::QpState;
use collector::observation::recording::Reader;
use collector::rule::Settings;
use end_to_end::vm::{Results, on_each_kernel};
use serde_json::Value;

const FLUSH: &str = "WR_FLUSH_ERR";
/// What is not touched.
const UNTOUCHED: [&str; 3] = ["untouched", "apart", "late"];
/// What a connection ends by where its request gets an answer, or none.
const OWN_ENDS: [(&str, &str); 3] =
    [("rkey", "REM_ACCESS_ERR"), ("rnr", "RNR_RETRY_EXC_ERR"), ("drop", "RETRY_EXC_ERR")];

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// A connection as its program told of it.
struct Connection {
    device: String,
    qpn: u64,
    peer_device: String,
    peer_qpn: u64,
    /// When the first failed completion was seen.
    error_t: Option<u64>,
    /// The account, where it ended.
    end: Option<Value>,
}

fn connection(results: &Results, name: &str) -> Connection {
    let lines = results.json_lines(&format!("{name}.jsonl"));
    let line = |what: &str| lines.iter().find(|line| line["what"] == what);
    let connected = line("connected").unwrap_or_else(|| panic!("{name} on {}", results.kernel));
    let text = |key: &str| connected[key].as_str().expect("a name").to_owned();
    let error = lines.iter().find(|line| line["what"] == "error" && line["end"] == "a");
    Connection {
        device: text("device"),
        qpn: number(&connected["qpn"]),
        peer_device: text("peer_device"),
        peer_qpn: number(&connected["peer_qpn"]),
        error_t: error.map(|line| number(&line["t"])),
        end: line("end").cloned(),
    }
}

/// The world at the end of the recording.
fn world(results: &Results) -> Engine {
    let mut reader = Reader::open(&results.path("recording.jsonl")).expect("the payload left a recording");
    let mut engine = Engine::new(reader.header().clone(), Settings::default());
    while reader.next(|observation| engine.take(observation)).expect("the recording can be read").is_some() {}
    engine
}

fn qp<'w>(world: &'w World, device: &str, qpn: u64) -> &'w QpRecord {
    let mut all = world.qps.gone().chain(world.qps.iter());
    let found = all.find(|qp| *world.device(qp.device).name == *device && u64::from(qp.qpn) == qpn && qp.created);
    found.unwrap_or_else(|| panic!("nothing is known of QP {qpn} of {device}"))
}

/// A QP's timeline: states by name, failed completions by status, with their numbers.
fn marks(world: &World, qp: &QpRecord) -> Vec<(u64, String, u64)> {
    let detail = qp.detail.as_ref().expect("its history is kept");
    let change = |(t, change): &(u64, collector::inventory::QpChange)| {
        let by = if change.by == By::Found { "found " } else { "" };
        (*t, format!("{by}{}", change.to.map_or("gone", QpState::name)), 1)
    };
    let mut marks: Vec<_> = detail.changes.iter().map(change).collect();
    let errors = world.qp_errors.iter().filter(|(_, errors)| errors.id == qp.id);
    marks.extend(errors.map(|(t, errors)| (*t, errors.status.to_string(), errors.n)));
    marks.sort_by_key(|(t, ..)| *t);
    marks
}

fn place(marks: &[(u64, String, u64)], name: &str) -> Option<usize> {
    marks.iter().position(|(_, mark, _)| mark == name)
}

fn count(marks: &[(u64, String, u64)], name: &str) -> u64 {
    marks.iter().filter(|(_, mark, _)| mark == name).map(|(.., n)| n).sum()
}

/// The timeline has the QP's way up, then its end, which nobody asked for, with all failed completions.
fn ends_unasked(results: &Results, world: &World, name: &str) -> Vec<(u64, String, u64)> {
    let connection = connection(results, name);
    let marks = marks(world, qp(world, &connection.device, connection.qpn));
    let at = format!("{name} on {}: {marks:?}", results.kernel);
    let end = connection.end.unwrap_or_else(|| panic!("{at}: the program does not end"));
    // But for what the kernel's list told: that has the time at which its reading began, and the QP may be made meanwhile.
    let told: Vec<_> =
        marks.iter().map(|(_, mark, _)| mark.as_str()).filter(|mark| !mark.starts_with("found ")).collect();
    assert_eq!(told[..4], ["RESET", "INIT", "RTR", "RTS"], "{at}");
    let found = place(&marks, "found ERR").unwrap_or_else(|| panic!("{at}: no error state"));
    assert!(place(&marks, "RTS").is_some_and(|ready| ready < found), "{at}");
    assert!(place(&marks, "ERR").is_none(), "{at}: nobody asked for it");
    assert_eq!(count(&marks, FLUSH), number(&end["flushed"]), "{at}: {end}");
    let failed: u64 = marks.iter().filter(|(_, mark, _)| mark.ends_with("_ERR")).map(|(.., n)| n).sum();
    assert_eq!(failed, number(&end["errors"]), "{at}: {end}");
    marks
}

/// The findings, by rule and subject, each with its states in order.
fn findings(results: &Results) -> BTreeMap<(String, String), Vec<Value>> {
    let mut all: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    for finding in results.json_lines("findings.jsonl") {
        let subject = &finding["subject"];
        let device = subject["device"].as_str().unwrap_or("node");
        let of = match (&subject["qpn"], &subject["port"]) {
            (Value::Number(qpn), _) => format!("{device} QP {qpn}"),
            (_, Value::Number(port)) => format!("{device}/{port}"),
            _ => device.to_owned(),
        };
        let rule = finding["rule"].as_str().expect("an id").to_owned();
        all.entry((rule, of)).or_default().push(finding);
    }
    all
}

/// The first and the last words of a finding while it was raised.
fn told<'f>(
    all: &'f BTreeMap<(String, String), Vec<Value>>,
    rule: &str,
    subject: &str,
    on: &str,
) -> (&'f Value, &'f Value) {
    let key = (rule.to_owned(), subject.to_owned());
    let states = all.get(&key).unwrap_or_else(|| panic!("no {rule} of {subject} on {on}: {:?}", all.keys()));
    let raised = states.iter().rfind(|finding| finding["state"] != "cleared").expect("it was raised");
    (&states[0], raised)
}

fn evidence(finding: &Value, series: &str) -> f64 {
    let rows = finding["evidence"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["series"].as_str().is_some_and(|name| name.starts_with(series)));
    row.map_or(0.0, |row| row["value"].as_f64().expect("a count"))
}

fn sentence(finding: &Value) -> &str {
    finding["summary"].as_str().expect("a sentence")
}

#[test]
fn a_qps_timeline_has_its_cause_then_its_flushes_and_an_error_state_nobody_asked_for() {
    on_each_kernel("qpfaults", |results| {
        let engine = world(results);
        for (name, status) in OWN_ENDS {
            let marks = ends_unasked(results, engine.world(), name);
            let (cause, flush) = (place(&marks, status), place(&marks, FLUSH));
            assert!(cause.is_some() && (flush.is_none() || flush > cause), "{name} on {}: {marks:?}", results.kernel);
            assert_eq!(count(&marks, status), 1, "{name} on {}: {marks:?}", results.kernel);
        }
    });
}

#[test]
fn the_end_that_refused_a_request_has_only_flushes_and_is_part_of_the_finding_about_it() {
    on_each_kernel("qpfaults", |results| {
        let engine = world(results);
        let told_of = connection(results, "rkey");
        let marks = marks(engine.world(), qp(engine.world(), &told_of.peer_device, told_of.peer_qpn));
        let flushed = number(&told_of.end.expect("it ended")["peer_flushed"]);
        assert!(flushed > 0 && count(&marks, FLUSH) == flushed, "on {}: {marks:?}", results.kernel);
        assert!(!marks.iter().any(|(_, mark, _)| mark.ends_with("_ERR") && mark != FLUSH), "{marks:?}");
        let peer = format!("{} QP {}", told_of.peer_device, told_of.peer_qpn);
        let all = findings(results);
        let (_, state) = told(&all, "qp.error_state", &peer, &results.kernel);
        assert_eq!(state["part_of"], "qp.software_error:rxea/1", "on {}: {state}", results.kernel);
    });
}

#[test]
fn each_fault_of_a_request_is_one_finding_that_names_its_qp_alone_with_its_flushes_and_heads_its_failure() {
    on_each_kernel("qpfaults", |results| {
        let on = &results.kernel;
        let all = findings(results);
        for (name, rule, head, severity, words) in [
            ("rkey", "qp.software_error", "rxea/1", "warning", "REM_ACCESS_ERR of QP "),
            ("rnr", "qp.rnr", "rxeb/1", "warning", "(QP "),
            ("drop", "qp.retry_exceeded", "rxea/1", "info", "1 QP in error ("),
        ] {
            let connection = connection(results, name);
            let flushed = number(&connection.end.as_ref().expect("it ended")["flushed"]);
            let (first, last) = told(&all, rule, head, on);
            // A counter may be read before the completions are swept; then the grade rises.
            assert_eq!((&last["grade"], &last["severity"]), (&"confirmed".into(), &"warning".into()), "{last} on {on}");
            assert_eq!(first["part_of"], Value::Null, "{first} on {on}");
            let (_, after) = sentence(last).split_once(words).unwrap_or_else(|| panic!("{name} on {on}: {last}"));
            let named: String = after.chars().take_while(|c| !matches!(c, ')' | ':' | ';')).collect();
            assert_eq!(named, connection.qpn.to_string(), "{name} on {on}: {last}");
            let (_, state) = told(&all, "qp.error_state", &format!("{} QP {}", connection.device, connection.qpn), on);
            assert_eq!(state["part_of"], format!("{rule}:{head}"), "{name} on {on}: {state}");
            assert_eq!(
                (&state["severity"], &state["grade"]),
                (&severity.into(), &"confirmed".into()),
                "{state} on {on}"
            );
            // What is flushed is counted with the finding when it has been told; the count may come in two parts.
            let all_flushed = flushed as f64;
            assert!((evidence(state, FLUSH) - all_flushed).abs() < 0.5, "{name} on {on}: {state}, not {flushed}");
            assert!(flushed == 0 || (1.0..=all_flushed).contains(&evidence(last, FLUSH)), "{name} on {on}: {last}");
            println!(
                "{name} on {on}: {rule} {:.1} ms after the program saw the error, {flushed} flushed",
                (number(&first["t"]) as f64 - connection.error_t.expect("it broke") as f64) / 1e6
            );
        }
    });
}

#[test]
fn a_port_that_goes_down_is_the_cause_of_what_its_qps_suffer() {
    on_each_kernel("qpfaults", |results| {
        let on = &results.kernel;
        let (all, engine) = (findings(results), world(results));
        for (device, connections) in [("rxeadmin", &["admin"][..]), ("rxeflap", &["flap", "patient"])] {
            let port = format!("{device}/1");
            let (down, _) = told(&all, "link.down", &port, on);
            assert_eq!(
                (&down["severity"], &down["grade"]),
                (&"critical".into(), &"confirmed".into()),
                "{down} on {on}"
            );
            for name in connections {
                let connection = connection(results, name);
                let subject = format!("{device} QP {}", connection.qpn);
                if results.path(&format!("{name}.stuck")).exists() {
                    println!("{name} on {on}: the driver left it waiting");
                    let (_, stuck) = told(&all, "qp.stuck", &subject, on);
                    assert_eq!(stuck["part_of"], format!("link.down:{port}"), "on {on}: {stuck}");
                    continue;
                }
                let Some(error_t) = connection.error_t else {
                    println!("{name} on {on}: it went on");
                    assert!(!all.contains_key(&("qp.error_state".to_owned(), subject)), "{name} on {on}");
                    continue;
                };
                ends_unasked(results, engine.world(), name);
                assert!(number(&down["first_t"]) < error_t, "{name} on {on}: {down}");
                let told = ended(&all, device, connection.qpn);
                assert_eq!(told["severity"], "info", "{name} on {on}: {told}");
                assert!(sentence(told).ends_with("the port was down: a consequence of that"), "{name} on {on}: {told}");
            }
            // One outage is no flapping link.
            assert!(!all.contains_key(&("link.flap".to_owned(), port)), "on {on}");
        }
    });
}

/// The finding about the end of a QP: its own, or that of its port that names it.
fn ended<'f>(all: &'f BTreeMap<(String, String), Vec<Value>>, device: &str, qpn: u64) -> &'f Value {
    let own = all.get(&("qp.error_state".to_owned(), format!("{device} QP {qpn}")));
    let ports = || all.get(&("qp.error_state".to_owned(), format!("{device}/1")));
    let told = own.or_else(ports).unwrap_or_else(|| panic!("no end of QP {qpn} of {device}: {:?}", all.keys()));
    let named = told.iter().rfind(|finding| sentence(finding).contains(&qpn.to_string()));
    named.unwrap_or_else(|| panic!("{qpn} is not named: {told:?}"))
}

#[test]
fn an_address_that_is_taken_and_a_bond_that_fails_over_are_told_as_what_ended_the_qp() {
    on_each_kernel("qpfaults", |results| {
        let on = &results.kernel;
        let (all, engine) = (findings(results), world(results));
        for (name, device, words) in [
            ("gone", "rxegone", "; the port's addresses (GIDs) had changed"),
            ("bond", "rxebond", "; its bond had changed over (bond1: s0 → s1)"),
        ] {
            let connection = connection(results, name);
            let subject = format!("{device} QP {}", connection.qpn);
            if results.path(&format!("{name}.stuck")).exists() {
                println!("{name} on {on}: the driver left it waiting");
                told(&all, "qp.stuck", &subject, on);
                continue;
            }
            ends_unasked(results, engine.world(), name);
            let (first, last) = told(&all, "qp.error_state", &subject, on);
            assert_eq!((&first["severity"], &first["part_of"]), (&"warning".into(), &Value::Null), "{first} on {on}");
            // The addresses may be read a moment after the first word of the QP.
            assert!(sentence(last).ends_with(words), "{last} on {on}");
            // Nobody asked for anything wrong.
            assert!(!all.contains_key(&("qp.software_error".to_owned(), format!("{device}/1"))), "{name} on {on}");
        }
    });
}

#[test]
fn nothing_else_is_told_and_all_of_it_is_over_after_the_recovery() {
    on_each_kernel("qpfaults", |results| {
        let on = &results.kernel;
        let all = findings(results);
        let of = |name: &str| {
            let connection = connection(results, name);
            [
                format!("{} QP {}", connection.device, connection.qpn),
                format!("{} QP {}", connection.peer_device, connection.peer_qpn),
            ]
        };
        let untouched: Vec<String> = UNTOUCHED.into_iter().flat_map(of).collect();
        for ((rule, subject), states) in &all {
            assert!(!untouched.contains(subject), "{rule} of {subject} on {on}: {states:?}");
            // Nothing befell the card, and its receiver was late by less than any finding is about.
            assert!(!subject.starts_with("rxec/") && subject != "rxec", "{rule} of {subject} on {on}: {states:?}");
            let expected = match rule.as_str() {
                "link.down" | "nic.composite" => ["rxeadmin/1", "rxeflap/1"].contains(&subject.as_str()),
                "qp.software_error" => subject == "rxea/1",
                "qp.rnr" => ["rxeb/1", "rxea/1"].contains(&subject.as_str()),
                "qp.retry_exceeded" => ["rxea/1", "rxeflap/1"].contains(&subject.as_str()),
                "qp.error_state" | "qp.stuck" => true,
                _ => false,
            };
            assert!(expected, "{rule} of {subject} on {on}: {states:?}");
            let last = states.last().expect("it was told");
            assert_eq!(last["state"], "cleared", "{rule} of {subject} on {on}: {last}");
        }
    });
}
