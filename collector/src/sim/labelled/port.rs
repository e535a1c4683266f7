//! One port behind one queue: what it counts, what its QPs measure, and what was true.

use super::LABEL_NS;
use super::scene::Scene;
use crate::observation::{
    self, Body, CounterSource, Histogram, Nanos, Observation, Pairs, QpStats, Truth as TruthLine,
};
use crate::sim::packet::truth::Counts;
use crate::sim::packet::{Cnp, Ecn, Message, Observer, PS_PER_NS, Packet, Params, Simulation, Truth, Workload};
use crate::source::Emit;

/// The L of the labels.
const L: f64 = 2.0;
/// QPN of the QP with small messages; those with large ones follow.
const SMALL_QPN: u32 = 100;
/// A second in which `ecn.premature` is right: least share of premature marks and of marked packets, and the share of the
/// rate that must not be carried, for the rule does not speak of a busy link.
const PREMATURE: Clear = Clear { marks: 0.6, m: 1e-4, u: 0.48 };
/// A second with more than all of this, and not right, is neither right nor wrong: about as many marks are true as are
/// not, or hardly enough are marked, or the link is busy and the marks are premature.
const UNCLEAR: Clear = Clear { marks: 0.4, m: 5e-5, u: f64::INFINITY };
/// Least share of the second in congestion, and most marked packets, of a second in which `ecn.missed` is right.
const MISSED: (f64, f64) = (0.05, 1e-5);

/// One port, of a device of its own.
pub(super) struct LabelledPort {
    rail: u32,
    device: String,
    simulation: Simulation,
    seen: Seen,
    /// The fault is on.
    on: bool,
    /// The job's phase: it is silent.
    silent: bool,
    /// The trace's time.
    at: Nanos,
    before: Before,
    labels: Vec<(&'static str, bool)>,
}

/// Bounds of a second's share of premature marks, share of marked packets, and share of the rate carried.
struct Clear {
    marks: f64,
    m: f64,
    u: f64,
}

/// What had been counted when the last second was judged.
#[derive(Default)]
struct Before {
    counts: Counts,
    packets: u64,
    bytes: u64,
    ce: u64,
}

/// What was true in a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    /// Share of packets marked.
    pub(super) m: f64,
    /// Most marks were premature, and there were enough, at a low load.
    pub(super) premature: bool,
    /// That can be said neither way.
    pub(super) unclear: bool,
    /// There was congestion and no mark.
    pub(super) missed: bool,
    /// The fault is on.
    pub(super) fault: bool,
}

/// What the port and its QPs counted.
struct Seen {
    truth: Truth,
    bytes: u64,
    packets: u64,
    ce: u64,
    cnp_sent: u64,
    cnp_handled: u64,
    cnp_ignored: u64,
    silent_ps: u64,
    silent_since: Option<u64>,
    small: Numbers,
    large: Vec<Numbers>,
}

/// A QP's statistics.
#[derive(Default, Clone)]
struct Numbers {
    n: u64,
    bytes: u64,
    sizes: Vec<u64>,
    latency: Vec<u64>,
}

impl Numbers {
    fn count(&mut self, bytes: u64, ns: u64) {
        self.n += 1;
        self.bytes += bytes;
        self.sizes.resize(32, 0);
        self.latency.resize(64, 0);
        self.sizes[bytes.max(1).ilog2().min(31) as usize] += 1;
        self.latency[ns.max(1).ilog2() as usize] += 1;
    }
}

impl Observer for Seen {
    fn packet(&mut self, packet: &Packet) {
        self.truth.packet(packet);
        self.bytes += u64::from(packet.bytes);
        self.packets += 1;
        self.ce += u64::from(packet.ecn == Ecn::Ce);
    }

    fn cnp_sent(&mut self, _: &Cnp) {
        self.cnp_sent += 1;
    }

    fn cnp_arrived(&mut self, _: &Cnp, handled: bool) {
        if handled {
            self.cnp_handled += 1;
        } else {
            self.cnp_ignored += 1;
        }
    }

    fn message(&mut self, message: &Message) {
        let ns = (message.end_ps - message.start_ps) / PS_PER_NS;
        match self.large.get_mut(message.flow as usize).filter(|_| !message.probe) {
            Some(large) => large.count(message.bytes, ns),
            None => self.small.count(message.bytes, ns),
        }
    }

    fn pause(&mut self, t_ps: u64, silent: bool) {
        if silent {
            self.silent_since = Some(t_ps);
        } else if let Some(since) = self.silent_since.take() {
            self.silent_ps += t_ps - since;
        }
    }
}

impl Seen {
    fn pause_us(&self, t: Nanos, scene: &Scene) -> u64 {
        let now = t * PS_PER_NS / scene.thin;
        (self.silent_ps + self.silent_since.map_or(0, |since| now.saturating_sub(since))) * scene.thin / 1_000_000
    }
}

impl LabelledPort {
    pub(super) fn new(rail: u32, scene: &Scene) -> Self {
        let params = Params { seed: scene.params.seed.wrapping_add(u64::from(rail) << 40), ..scene.params.clone() };
        let truth = Truth::new(params.rate_gbps, params.rtt_ns, &[L]);
        Self {
            rail,
            device: format!("mlx5_{rail}"),
            simulation: Simulation::new(&params),
            seen: Seen {
                truth,
                bytes: 0,
                packets: 0,
                ce: 0,
                cnp_sent: 0,
                cnp_handled: 0,
                cnp_ignored: 0,
                silent_ps: 0,
                silent_since: None,
                small: Numbers::default(),
                large: vec![Numbers::default(); params.senders as usize],
            },
            on: false,
            silent: false,
            at: 0,
            before: Before::default(),
            labels: Vec::new(),
        }
    }

    pub(super) fn device(&self) -> &str {
        &self.device
    }

    pub(super) fn guid(&self) -> String {
        format!("0000:00ff:fe00:{:04x}", self.rail + 1)
    }

    pub(super) fn pci(&self) -> String {
        format!("0000:{:02x}:00.0", 0x10 + self.rail)
    }

    pub(super) fn netdev(&self) -> String {
        format!("eth{}", self.rail)
    }

    /// The rail with the trouble is the last.
    fn troubled(&self, scene: &Scene) -> bool {
        self.rail + 1 == scene.rails
    }

    /// Moves the queue on to `t`.
    pub(super) fn advance(&mut self, t: Nanos, scene: &Scene) {
        let mut at = self.at;
        self.at = t;
        while at < t {
            let mut until = t;
            if self.troubled(scene) && !self.on {
                if at >= scene.onset_ns {
                    self.on = true;
                    self.simulation.set_red(scene.red);
                    self.simulation.set_faults(scene.faults);
                } else {
                    until = until.min(scene.onset_ns);
                }
            }
            if let Some(phase) = scene.phase {
                let busy = share(phase.period_ns, phase.duty);
                let into = at % phase.period_ns;
                let silent = into >= busy;
                if silent != self.silent {
                    self.silent = silent;
                    let workload = if silent {
                        Workload::Paced { load: 0.001, message_bytes: 4_096 }
                    } else {
                        scene.params.workload
                    };
                    self.simulation.set_workload(&Params { workload, ..scene.params.clone() });
                }
                let edge = at - into + if silent { phase.period_ns } else { busy };
                until = until.min(edge.max(at + 1));
            }
            self.simulation.advance(until * PS_PER_NS / scene.thin, &mut self.seen);
            at = until;
        }
    }

    /// What the node's sources observe at `t`.
    pub(super) fn emit(&self, t: Nanos, scene: &Scene, per_qp: bool, emit: &mut Emit<'_>) {
        let seen = &self.seen;
        let n = scene.thin;
        let pause_us = seen.pause_us(t, scene);
        // A tick of xmit_wait is taken to be 10 ns here; the rules must not care.
        let wait = pause_us * 100;
        self.counters(
            t,
            CounterSource::Counters,
            &[
                ("port_rcv_data", seen.bytes / 4 * n),
                ("port_rcv_packets", seen.packets * n),
                ("port_xmit_data", seen.bytes / 4 * n),
                ("port_xmit_packets", seen.packets * n),
                ("port_xmit_wait", wait),
            ],
            emit,
        );
        self.counters(
            t,
            CounterSource::HwCounters,
            &[
                ("np_ecn_marked_roce_packets", seen.ce * n),
                ("np_cnp_sent", seen.cnp_sent * n),
                ("rp_cnp_handled", seen.cnp_handled * n),
                ("rp_cnp_ignored", seen.cnp_ignored * n),
                ("out_of_sequence", 0),
                ("packet_seq_err", 0),
                ("roce_slow_restart_cnps", 0),
            ],
            emit,
        );
        if t / LABEL_NS > t.saturating_sub(scene.period_ns) / LABEL_NS || t == 0 {
            let ethtool = [
                ("rx_prio3_bytes", seen.bytes * n),
                ("tx_prio3_bytes", seen.bytes * n),
                ("rx_prio3_pause_duration", pause_us),
                ("tx_prio3_pause_duration", 0),
            ];
            self.counters(t, CounterSource::Ethtool, &ethtool, emit);
        }
        if per_qp {
            self.qp(t, SMALL_QPN, "SEND", &seen.small, n, emit);
            for (qpn, large) in (SMALL_QPN + 1..).zip(&seen.large) {
                self.qp(t, qpn, "RDMA_READ", large, n, emit);
            }
        }
    }

    fn counters(&self, t: Nanos, source: CounterSource, list: &[(&'static str, u64)], emit: &mut Emit<'_>) {
        let mut values = Pairs::with_capacity(list.len());
        for (name, value) in list {
            values.push(*name, *value);
        }
        let netdev = (source == CounterSource::Ethtool).then(|| self.netdev().into());
        let body = observation::Counters {
            device: self.device.as_str().into(),
            port: Some(1),
            netdev,
            source,
            values,
            ..observation::Counters::default()
        };
        emit(&Observation { t, body: Body::Counters(body) });
    }

    fn qp(&self, t: Nanos, qpn: u32, opcode: &'static str, numbers: &Numbers, times: u64, emit: &mut Emit<'_>) {
        if numbers.n == 0 {
            return;
        }
        let mut opcodes = Pairs::with_capacity(1);
        opcodes.push(opcode, numbers.n * times);
        let body = QpStats {
            device: self.device.as_str().into(),
            qpn,
            posts: numbers.n * times,
            wrs: numbers.n * times,
            bytes: numbers.bytes * times,
            signaled: Some(numbers.n * times),
            size_log2: Some(scaled(&numbers.sizes, times)),
            opcodes,
            completions: Some(numbers.n * times),
            latency_log2_ns: Some(scaled(&numbers.latency, times)),
            ..QpStats::default()
        };
        emit(&Observation { t, body: Body::QpStats(body) });
    }

    /// What was true of the queue in the second that is over: share of packets marked, whether the marks were premature,
    /// and whether congestion was missed.
    pub(super) fn judge(&mut self, scene: &Scene) -> Judged {
        let seen = &self.seen;
        let counts = seen.truth.counts().next().map(|(_, counts)| counts).unwrap_or_default();
        let before = std::mem::replace(
            &mut self.before,
            Before { counts, packets: seen.packets, bytes: seen.bytes, ce: seen.ce },
        );
        let premature = counts.premature_marks - before.counts.premature_marks;
        let marks = premature + counts.true_marks - before.counts.true_marks;
        let m = (seen.ce - before.ce) as f64 / (seen.packets - before.packets).max(1) as f64;
        let sent = (seen.bytes - before.bytes) as f64 * scene.thin as f64;
        let u = sent * 8.0 / (scene.params.rate_gbps * LABEL_NS as f64);
        let within = |clear: &Clear| m > clear.m && premature as f64 >= clear.marks * marks as f64 && u < clear.u;
        let label_ps = (LABEL_NS * PS_PER_NS / scene.thin) as f64;
        let congested = (counts.congested_ps - before.counts.congested_ps) as f64 / label_ps;
        Judged {
            m,
            premature: within(&PREMATURE),
            unclear: within(&UNCLEAR) && !within(&PREMATURE),
            missed: congested > MISSED.0 && m < MISSED.1,
            fault: self.troubled(scene) && self.on,
        }
    }

    /// Says from when on a rule's finding would be right or wrong, where that has changed.
    pub(super) fn label(&mut self, t: Nanos, rule: &'static str, active: bool, emit: &mut Emit<'_>) {
        let known = self.labels.iter_mut().find(|(name, _)| *name == rule);
        match known {
            Some((_, before)) if *before == active => return,
            Some((_, before)) => *before = active,
            None => self.labels.push((rule, active)),
        }
        let body = TruthLine { device: self.device.as_str().into(), port: 1, class: rule.into(), active };
        emit(&Observation { t, body: Body::Truth(body) });
    }
}

fn scaled(counts: &[u64], times: u64) -> Histogram {
    Histogram(counts.iter().map(|n| n * times).collect())
}

fn share(ns: Nanos, of: f64) -> Nanos {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a period")]
    let part = (ns as f64 * of) as Nanos;
    part
}
