//! Labelled traces: what a node with a known ECN trouble (or none) would observe, with `truth` lines that say what was
//! the matter. Rules are tuned on them and scored by them; the engine ignores the labels.
//!
//! The traffic is the packet model's ([`super::packet`]); a port's counters and QP statistics are what a receiver behind
//! its queue would count. Traffic is taken to be symmetric, as in a collective: the port sends as much as it receives, to
//! queues like its own, so it handles as many CNPs as it sends and is paused as often as its senders are.
//!
//! A packet is a step of the model, and a second at 400 Gb/s has twelve millions of them. So a fast trace is thinned: each
//! simulated millisecond stands for several, and its counts are multiplied.
//!
//! - [`scene`]: what a class of traces is made of, drawn by seed
//! - [`port`]: one port behind one queue, and what it counts
//!
//! A truth line names a rule and says whether its finding would be right from here on. The queue decides, second by
//! second, with K* = 0.17·C·RTT and L = 2 ([`super::packet::truth`]): `ecn.premature` is right while at least six in ten
//! of the marks of the second are premature, more than one packet in 10 000 is marked, and less than 0.48 of the rate is
//! carried; `ecn.missed` while the queue is congested (above K* for L·RTT) for more than 5 % of the second and less than
//! one packet in 100 000 is marked. Both are told for every class. [`UNCLEAR_PREMATURE`] holds where the first can be said
//! neither way: four to six in ten, or premature marks on a busy link, or nearly none. The truth of the other classes is the fault that was switched on, while it shows: for
//! `ecn.rail_asymmetry` the rail is marked five times as often as the others' median.

mod port;
mod scene;

use crate::observation::recording::Header;
use crate::observation::{self, Body, CongestionConfig, LinkLayer, Nanos, Observation, PortState, Seeing, SourceState};
use crate::source::Emit;

use port::LabelledPort;
use scene::Scene;

/// Length of the stretches that get a label of their own, ns.
const LABEL_NS: Nanos = 1_000_000_000;

/// The class of a truth line that says that `ecn.premature` is neither right nor wrong.
pub const UNCLEAR_PREMATURE: &str = "unclear.ecn.premature";

/// Least multiple of the other rails' median, and least share of marked packets, of a rail that stands out.
const ASYMMETRY: (f64, f64) = (5.0, 1e-4);

/// A class of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// The rule whose finding is right while the trouble lasts; `None` for a class in which no finding is.
    pub rule: Option<&'static str>,
    /// What is the matter, in one line.
    pub summary: &'static str,
}

/// All classes.
pub const CLASSES: &[Class] = &[
    Class { name: "healthy", rule: None, summary: "marks where the queue stands, or none" },
    Class { name: "true-bursts", rule: None, summary: "low average load in bursts that fill the queue: true marks" },
    Class { name: "premature", rule: Some("ecn.premature"), summary: "a low Kmin marks what never queued (M1)" },
    Class { name: "marking-off", rule: Some("ecn.missed"), summary: "congestion, and the switch marks nothing (M2)" },
    Class { name: "not-ect", rule: Some("ecn.not_ect"), summary: "data is sent Not-ECT and cannot be marked (M3)" },
    Class { name: "np-off", rule: Some("ecn.no_cnp"), summary: "marks arrive and no CNP is sent (M6)" },
    Class { name: "rp-off", rule: Some("ecn.cnp_ignored"), summary: "CNPs arrive and are ignored (M7)" },
    Class { name: "low-rail", rule: Some("ecn.rail_asymmetry"), summary: "one rail of several has a low Kmin (M10)" },
    Class { name: "rtt-cc", rule: None, summary: "congestion control by round-trip time: no CNP is meant to be sent" },
];

/// What of a trace the class and the seed do not decide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Period of the counters, ns; `None` draws one between 10 ms and 1 s.
    pub period_ns: Option<Nanos>,
    /// QP statistics are observed: latency, by message size.
    pub per_qp: bool,
    /// Length, ns.
    pub duration_ns: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Self { period_ns: None, per_qp: true, duration_ns: 8_000_000_000 }
    }
}

/// One trace, made as it is read.
pub struct Trace {
    scene: Scene,
    ports: Vec<LabelledPort>,
    duration_ns: Nanos,
    per_qp: bool,
    /// The next poll, ns since the start.
    next: Nanos,
    begun: bool,
}

/// The trace of a class and a seed; `None` when there is no class of that name.
#[must_use]
pub fn trace(class: &str, seed: u64, options: &Options) -> Option<Trace> {
    let class = CLASSES.iter().find(|c| c.name == class)?;
    let scene = Scene::draw(class, seed, options);
    let ports = (0..scene.rails).map(|rail| LabelledPort::new(rail, &scene)).collect();
    Some(Trace { ports, duration_ns: options.duration_ns, per_qp: options.per_qp, next: 0, begun: false, scene })
}

impl Trace {
    /// The header of its recording.
    #[must_use]
    pub fn header(&self) -> Header {
        Header { host: Some("labelled".to_owned()), mono_ns: Some(0), unix_ns: Some(0), ..Header::new() }
    }

    /// Its length, ns.
    #[must_use]
    pub fn duration_ns(&self) -> Nanos {
        self.duration_ns
    }

    /// What was drawn for it, in one line.
    #[must_use]
    pub fn description(&self) -> String {
        self.scene.description()
    }

    /// Emits what is observed at the next poll; false when the trace is over.
    pub fn step(&mut self, emit: &mut Emit<'_>) -> bool {
        if !self.begun {
            self.begun = true;
            self.introduce(emit);
        }
        self.next += self.scene.period_ns;
        if self.next > self.duration_ns {
            return false;
        }
        let t = self.next;
        for port in &mut self.ports {
            port.advance(t, &self.scene);
            port.emit(t, &self.scene, self.per_qp, emit);
        }
        if t / LABEL_NS > (t - self.scene.period_ns) / LABEL_NS {
            self.label(t - LABEL_NS, emit);
        }
        true
    }

    /// Emits all of it.
    pub fn run(mut self, emit: &mut Emit<'_>) {
        while self.step(emit) {}
    }

    /// Labels the second that began at `t`.
    fn label(&mut self, t: Nanos, emit: &mut Emit<'_>) {
        let judged: Vec<_> = self.ports.iter_mut().map(|port| port.judge(&self.scene)).collect();
        for (at, port) in self.ports.iter_mut().enumerate() {
            let of = judged[at];
            let by_marks = self.scene.cc_algorithm.is_none();
            port.label(t, "ecn.premature", of.premature && by_marks, emit);
            port.label(t, UNCLEAR_PREMATURE, of.unclear && by_marks, emit);
            port.label(t, "ecn.missed", of.missed, emit);
            match self.scene.class.rule {
                None | Some("ecn.premature" | "ecn.missed") => {}
                Some(rule @ "ecn.rail_asymmetry") => {
                    let mut others: Vec<f64> =
                        judged.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other.m).collect();
                    others.sort_unstable_by(f64::total_cmp);
                    let median = others.get(others.len() / 2).copied().unwrap_or(0.0);
                    port.label(t, rule, of.fault && of.m > ASYMMETRY.0 * median && of.m > ASYMMETRY.1, emit);
                }
                Some(rule) => port.label(t, rule, of.fault && (of.m > 0.0 || rule == "ecn.not_ect"), emit),
            }
        }
    }

    fn introduce(&self, emit: &mut Emit<'_>) {
        let mut at_start = |body| emit(&Observation { t: 0, body });
        for source in ["sysfs", "netlink", "ethtool"] {
            let state = SourceState { source: source.into(), state: Seeing::Ok, reason: None };
            at_start(Body::Source(state));
        }
        for port in &self.ports {
            at_start(Body::Device(observation::Device {
                device: port.device().into(),
                driver: Some("mlx5_core".into()),
                node_guid: Some(port.guid().into()),
                pci: Some(port.pci().into()),
                ..observation::Device::default()
            }));
            at_start(Body::Port(observation::Port {
                device: port.device().into(),
                port: 1,
                link_layer: LinkLayer::Ethernet,
                state: PortState::Active,
                phys_state: Some("LinkUp".into()),
                rate_gbps: Some(self.scene.params.rate_gbps),
                netdevs: vec![port.netdev().into()],
                ..observation::Port::default()
            }));
            if let Some(algorithm) = self.scene.cc_algorithm {
                at_start(Body::CongestionConfig(CongestionConfig {
                    device: port.device().into(),
                    port: 1,
                    cc_algorithm: Some(algorithm.into()),
                    ..CongestionConfig::default()
                }));
            }
        }
        for port in &self.ports {
            port.emit(0, &self.scene, false, emit);
        }
    }
}
