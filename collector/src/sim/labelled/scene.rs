//! What a class of traces is made of: link, traffic, marking and fault, drawn by seed.

use super::{Class, Options};
use crate::observation::Nanos;
use crate::sim::packet::{Control, Faults, Params, Pfc, Probe, Red, Workload};
use crate::sim::random::Random;

/// Everything that was drawn for one trace.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    /// The class.
    pub(super) class: &'static Class,
    /// The queue before the fault, with the fault's seed for each rail added by the port.
    pub(super) params: Params,
    /// What changes at `onset_ns`.
    pub(super) faults: Faults,
    /// The marking from `onset_ns` on, of the rail that has the trouble.
    pub(super) red: Red,
    /// When the trouble begins, ns; 0 from the start.
    pub(super) onset_ns: Nanos,
    /// Rails, each a port behind a queue of its own; the last has the trouble.
    pub(super) rails: u32,
    /// Period of the counters, ns.
    pub(super) period_ns: Nanos,
    /// The `cc_algorithm` the node tells.
    pub(super) cc_algorithm: Option<&'static str>,
    /// Each simulated stretch of time stands for so many: the queue's time is the trace's divided by this, and what it
    /// counted is multiplied by it.
    pub(super) thin: u64,
    /// The job's own rhythm: sends for the first part of this period and is silent for the rest; `None` sends always.
    pub(super) phase: Option<Phase>,
}

/// A job that computes, then sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phase {
    /// Length of both together, ns.
    pub(super) period_ns: Nanos,
    /// Share of it in which it sends, 0–1.
    pub(super) duty: f64,
}

/// Packets a trace may cost: a packet is a step of the model.
const PACKETS: f64 = 4e6;

/// One of several.
fn one<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[usize::try_from(random.below(of.len() as u64)).unwrap_or(0)]
}

fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low) * random.unit()
}

fn bytes(value: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of a scene, small and positive")]
    let bytes = value.max(0.0) as u64;
    bytes
}

impl Scene {
    /// Draws the scene of a class.
    pub(super) fn draw(class: &'static Class, seed: u64, options: &Options) -> Self {
        let mut random = Random::new(seed ^ 0x1abe_11ed);
        // Most rates are low: a packet is a step of the model, and the physics is the same.
        let rate_gbps = one(&mut random, &[25.0, 50.0, 100.0, 100.0, 200.0, 400.0]);
        let rtt_ns = one(&mut random, &[4_000, 6_000, 8_000, 8_000, 12_000, 16_000]);
        let bdp = rate_gbps / 8.0 * rtt_ns as f64;
        let control = if random.unit() < 0.5 { Control::paper(rate_gbps) } else { Control::nic(rate_gbps) };
        let packet_bytes = one(&mut random, &[1_082, 2_130, 4_178, 4_178]);
        let senders = one(&mut random, &[4, 8, 16, 16, 32]);
        let probe = Probe { bytes: one(&mut random, &[64, 256, 1_024]), gap_ns: 20_000 };
        let usual = Red { kmin_bytes: bytes(bdp * 0.4), kmax_bytes: bytes(bdp * 1.6), pmax: 0.05 };
        let mut scene = Self {
            class,
            params: Params {
                rate_gbps,
                rtt_ns,
                packet_bytes,
                senders,
                workload: Workload::Bursts { bytes: 64_000, load: 0.4 },
                red: usual,
                control,
                pfc: None,
                probe: Some(probe),
                faults: Faults::default(),
                seed,
                duration_ns: options.duration_ns,
                warm_up_ns: 0,
            },
            faults: Faults::default(),
            red: usual,
            onset_ns: 0,
            rails: 1,
            period_ns: options.period_ns.unwrap_or_else(|| {
                one(&mut random, &[10_000_000, 50_000_000, 100_000_000, 250_000_000, 1_000_000_000])
            }),
            cc_algorithm: None,
            thin: 1,
            phase: None,
        };
        scene.cast(&mut random, bdp, options.duration_ns);
        scene.thin = scene.thinning(options.duration_ns);
        scene
    }

    /// What the class adds.
    fn cast(&mut self, random: &mut Random, bdp: f64, duration_ns: Nanos) {
        // A burst of one BDP is what a window of one round trip sends; 400 KB at 400 Gb/s and 8 µs.
        let burst = |random: &mut Random, low: f64, high: f64| bytes(bdp * between(random, low, high));
        let late = |random: &mut Random| {
            if random.unit() < 0.5 { 0 } else { bytes(duration_ns as f64 * between(random, 0.2, 0.5)) }
        };
        let pfc = Pfc { xoff_bytes: bytes(bdp * 3.0), xon_bytes: bytes(bdp * 2.5), delay_ns: self.params.rtt_ns / 4 };
        let low = Red {
            kmin_bytes: bytes(bdp * between(random, 0.005, 0.03)),
            kmax_bytes: bytes(bdp * between(random, 0.3, 2.5)),
            pmax: one(random, &[0.01, 0.05, 0.2]),
        };
        match self.class.name {
            "premature" => {
                self.red = low;
                let load = between(random, 0.1, 0.48);
                self.params.workload = if random.unit() < 0.3 {
                    Workload::Paced { load, message_bytes: burst(random, 0.1, 1.0) }
                } else {
                    Workload::Bursts { bytes: burst(random, 0.05, 0.2), load }
                };
                self.onset_ns = late(random);
            }
            "true-bursts" => {
                self.params.red = if random.unit() < 0.5 { low } else { self.red };
                self.red = self.params.red;
                let load = between(random, 0.15, 0.48);
                if random.unit() < 0.5 {
                    self.params.workload = Workload::Bursts { bytes: burst(random, 0.6, 6.0), load };
                } else {
                    self.params.workload = Workload::Bursts { bytes: burst(random, 0.3, 2.0), load: 0.8 };
                    let period_ns = one(random, &[2_000_000, 20_000_000, 100_000_000, 500_000_000]);
                    self.phase = Some(Phase { period_ns, duty: load / 0.8 });
                }
                self.params.pfc = (random.unit() < 0.5).then_some(pfc);
            }
            "marking-off" | "not-ect" => {
                self.params.workload = match random.below(3) {
                    0 => Workload::Incast { message_bytes: burst(random, 0.5, 4.0) },
                    _ => Workload::Bursts { bytes: burst(random, 0.5, 4.0), load: between(random, 0.7, 1.2) },
                };
                self.params.pfc = Some(pfc);
                self.onset_ns = if self.class.name == "not-ect" { 0 } else { late(random) };
                self.faults.marking_off = self.class.name == "marking-off";
                self.faults.not_ect_share = if self.class.name == "not-ect" { 1.0 } else { 0.0 };
            }
            "np-off" | "rp-off" => {
                self.params.workload = match random.below(3) {
                    0 => Workload::Incast { message_bytes: burst(random, 0.5, 4.0) },
                    _ => Workload::Bursts { bytes: burst(random, 0.5, 4.0), load: between(random, 0.4, 0.9) },
                };
                self.params.pfc = Some(pfc);
                self.onset_ns = late(random);
                self.faults.np_off = self.class.name == "np-off";
                self.faults.rp_off = self.class.name == "rp-off";
            }
            "low-rail" => {
                self.rails = one(random, &[4, 4, 8]);
                self.params.rate_gbps = self.params.rate_gbps.min(100.0);
                self.params.workload =
                    Workload::Bursts { bytes: burst(random, 0.1, 0.6), load: between(random, 0.3, 0.7) };
                self.red = low;
                self.onset_ns = late(random);
            }
            "rtt-cc" => {
                self.cc_algorithm = Some("rtt");
                self.params.red = low;
                self.red = low;
                self.params.faults.np_off = true;
                self.faults.np_off = true;
                let load = between(random, 0.2, 0.6);
                self.params.workload = Workload::Bursts { bytes: burst(random, 0.05, 0.5), load };
            }
            _ => {
                self.params.workload = match random.below(3) {
                    0 => Workload::Paced { load: between(random, 0.1, 0.9), message_bytes: burst(random, 0.5, 4.0) },
                    1 => Workload::Bursts { bytes: burst(random, 0.2, 2.0), load: between(random, 0.2, 0.8) },
                    _ => Workload::Incast { message_bytes: burst(random, 0.5, 4.0) },
                };
                self.params.pfc = (random.unit() < 0.5).then_some(pfc);
            }
        }
    }

    /// So much that a trace at line rate is about [`PACKETS`] for each rail, and no more than 50.
    fn thinning(&self, duration_ns: Nanos) -> u64 {
        let packets = self.params.rate_gbps / 8.0 * duration_ns as f64 / f64::from(self.params.packet_bytes);
        bytes(packets * f64::from(self.rails) / PACKETS).clamp(1, 50)
    }

    /// What was drawn, in one line.
    pub(super) fn description(&self) -> String {
        let p = &self.params;
        format!(
            "{} Gb/s, RTT {} ns, {} B packets, {} senders, {:?}, {} CC, {:?} then {:?} at {} ms, {:?}, period {} ms",
            p.rate_gbps,
            p.rtt_ns,
            p.packet_bytes,
            p.senders,
            p.workload,
            p.control.name,
            p.red,
            self.red,
            self.onset_ns / 1_000_000,
            self.phase,
            self.period_ns / 1_000_000,
        )
    }
}
