//! The rules, fed through the engine with hand-written observations. Every log is judged twice, as observed and as read
//! back from a recording of it, and both must say the same.

mod bottleneck;
mod counter;
mod dying;
mod ecn;
mod failover;
mod health;
mod link;
mod nic;
mod pcie;
mod phy;
mod qp;
mod qp_signs;
mod qp_stuck;
mod sampled;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Settings, all};
use crate::engine::Engine;
use crate::finding::{Finding, FindingState};
use crate::observation::recording::{Header, Reader, Writer};

/// A log of observations, in the recording's own words.
struct Log {
    lines: Vec<String>,
    settings: Settings,
}

/// What a log led to.
struct Outcome {
    changes: Vec<Arc<Finding>>,
    engine: Engine,
}

impl Log {
    fn new() -> Self {
        Self { lines: Vec::new(), settings: Settings::default() }
    }

    fn with(settings: &str) -> Self {
        Self { lines: Vec::new(), settings: toml::from_str(settings).unwrap() }
    }

    fn add(&mut self, s: f64, kind: &str, mut fields: Value) -> &mut Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a test")]
        let t = 1_000_000_000 + (s * 1e9).round() as u64;
        fields["t"] = t.into();
        fields["type"] = kind.into();
        self.lines.push(fields.to_string());
        self
    }

    fn device(&mut self, s: f64, name: &str, driver: &str, pci: &str) -> &mut Self {
        let guid = format!("0000:0000:0000:{}", &pci[pci.len() - 4..].replace(['.', ':'], "0"));
        self.add(s, "device", json!({"device": name, "driver": driver, "pci": pci, "node_guid": guid}))
    }

    fn port(&mut self, s: f64, name: &str, state: &str, phys: &str) -> &mut Self {
        let fields = json!({"device": name, "port": 1, "link_layer": "Ethernet", "state": state, "phys_state": phys,
            "rate_gbps": 400.0, "netdevs": [format!("e{name}")]});
        self.add(s, "port", fields)
    }

    fn counters(&mut self, s: f64, name: &str, source: &str, values: impl Into<Value>) -> &mut Self {
        let values: Value = values.into();
        self.add(s, "counters", json!({"device": name, "port": 1, "source": source, "values": values}))
    }

    fn event(&mut self, s: f64, name: &str, event: &str) -> &mut Self {
        self.add(s, "async", json!({"device": name, "port": 1, "event": event}))
    }

    fn qp(&mut self, s: f64, name: &str, qpn: u32, event: &str, to: Option<&str>) -> &mut Self {
        let mut fields = json!({"device": name, "port": 1, "qpn": qpn, "event": event, "qp_type": "RC",
            "pid": 700, "comm": "python3"});
        if let Some(to) = to {
            fields["to"] = to.into();
        }
        self.add(s, "qp", fields)
    }

    fn probes(&mut self, s: f64) -> &mut Self {
        self.add(s, "probes", json!({"wanted": 9, "attached": 9, "failed": []}))
    }

    /// Nothing happens until then: only time passes.
    fn until(&mut self, from: u32, to: u32) -> &mut Self {
        for s in from..=to {
            self.add(f64::from(s), "source", json!({"source": "sysfs", "state": "ok"}));
        }
        self
    }

    fn run(&self) -> Outcome {
        let header = Header { unix_ns: Some(1_790_000_000_000_000_000), mono_ns: Some(1_000_000_000), ..Header::new() };
        let mut text = b"{\"type\":\"header\",\"format\":\"rdmascope-recording\",\"version\":1}\n".to_vec();
        for line in &self.lines {
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        }
        let mut live = Engine::new(header.clone(), self.settings.clone());
        let mut writer = Writer::new(Vec::new(), true, &header).unwrap();
        let mut reader = Reader::new(&text[..]).unwrap();
        let mut changes = Vec::new();
        while reader
            .next(|observation| {
                live.take(observation);
                changes.extend(live.drain());
                writer.write(observation).unwrap();
            })
            .unwrap()
            .is_some()
        {}
        assert_eq!(reader.notices().lines(), Vec::<String>::new(), "a bad line in a test's log");
        live.finish();
        changes.extend(live.drain());

        let recording = writer.finish().unwrap();
        let mut reader = Reader::new(&recording[..]).unwrap();
        let mut replay = Engine::new(reader.header().clone(), self.settings.clone());
        while reader.next(|observation| replay.take(observation)).unwrap().is_some() {}
        replay.finish();
        assert_eq!(json(&changes), json(&replay.drain()), "the replay must say what was said live");
        assert_eq!(live.world().failovers, replay.world().failovers, "and show the failovers that were shown live");
        Outcome { changes, engine: live }
    }
}

fn json(findings: &[Arc<Finding>]) -> String {
    let lines: Vec<String> = findings.iter().map(|finding| serde_json::to_string(finding).unwrap()).collect();
    lines.join("\n")
}

impl Outcome {
    /// What happened to findings of a rule: `+4.118 link.down d/1 raised critical confirmed`.
    fn of(&self, rule: &str) -> Vec<String> {
        let line = |f: &Arc<Finding>| {
            #[allow(clippy::cast_precision_loss, reason = "seconds of a test")]
            let s = f.t as f64 / 1e9 - 1.0;
            let state = match f.state {
                FindingState::Raised => "raised",
                FindingState::Updated => "updated",
                FindingState::Cleared => "cleared",
            };
            format!("{s} {} {state} {} {}", f.subject, f.severity.name(), f.grade.name())
        };
        self.changes.iter().filter(|f| f.rule == rule).map(line).collect()
    }

    fn last(&self, rule: &str) -> &Finding {
        self.changes.iter().rfind(|f| f.rule == rule).unwrap_or_else(|| panic!("{rule} said nothing"))
    }

    fn nothing(&self) {
        assert_eq!(json(&self.changes), "");
    }
}

#[test]
fn every_rule_explains_itself_and_has_its_own_id() {
    let mut ids: Vec<&str> = all().iter().map(|rule| rule.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all().len());
    for rule in all() {
        assert!(rule.meaning().len() > 80, "{}", rule.id());
    }
}

#[test]
fn on_a_node_without_anything_every_rule_says_why_it_does_not_judge() {
    let engine = Engine::new(Header::new(), Settings::default());
    for rule in all() {
        assert!(rule.not_judged(&engine.view()).is_some(), "{}", rule.id());
    }
}

#[test]
fn a_disabled_rule_says_nothing() {
    let mut log = Log::with("disabled = [\"link.down\", \"nic.composite\"]");
    log.device(0.0, "d", "mlx5_core", "0000:01:00.0").port(0.0, "d", "ACTIVE", "LinkUp");
    log.port(2.0, "d", "DOWN", "Disabled").until(3, 5);
    log.run().nothing();
}
