//! The report of `whatif`: its JSON shape.

use serde::Serialize;

use crate::dcqcn::ParameterRow;

/// `whatif --json`; stable.
#[derive(Debug, Serialize)]
pub struct WhatIfReport {
    /// The two settings: `given`, `against`.
    pub settings: Vec<SettingRow>,
    /// What each came to, in the same order.
    pub results: Vec<ResultRow>,
    /// How the shares depend on L.
    pub by_l: Vec<ByL>,
    /// The first setting with one difference of the second at a time; empty where there is only one.
    pub knobs: Vec<KnobRow>,
    /// What the difference is, which setting makes it, and what it costs.
    pub advice: String,
    /// What made the figures.
    pub model: Model,
    /// The port whose parameters the first setting has; null: of none.
    pub port: Option<PortParameters>,
}

/// A port's congestion control parameters beside known ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortParameters {
    /// `DEVICE/PORT`.
    pub port: String,
    /// Each known parameter.
    pub parameters: Vec<ParameterRow>,
    /// Parameters the model needs that were not read, and are the NIC's default instead.
    pub assumed: Vec<&'static str>,
}

/// A setting, with the workload it met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingRow {
    /// `given` or `against`.
    pub name: &'static str,
    /// Rate of the bottleneck and of each sender, Gb/s.
    pub rate_gbps: f64,
    /// Round trip without queueing, ns.
    pub rtt_ns: u64,
    /// Bytes of a packet on the wire.
    pub packet_bytes: u32,
    /// Senders.
    pub senders: u32,
    /// `bursts`, `paced` or `incast`.
    pub workload: &'static str,
    /// Bytes of a burst; null: no bursts.
    pub burst_bytes: Option<u64>,
    /// Load that is offered, 0–1; null: as much as goes.
    pub load: Option<f64>,
    /// Below this nothing is marked, bytes.
    pub kmin_bytes: u64,
    /// Above this everything is marked, bytes.
    pub kmax_bytes: u64,
    /// Share marked just below `kmax_bytes`, 0–1.
    pub pmax: f64,
    /// Parameter set of DCQCN: `paper`, `nic`, `device`.
    pub cc: &'static str,
    /// Queue that makes the switch pause its senders, bytes; null: no PFC.
    pub xoff_bytes: Option<u64>,
    /// Queue at which they may go on, bytes; null: no PFC.
    pub xon_bytes: Option<u64>,
}

/// What a setting came to, over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResultRow {
    /// Share of the time the bottleneck was sending, 0–1.
    pub utilisation: f64,
    /// Standard deviation of it between the seeds; null with one seed.
    pub utilisation_scatter: Option<f64>,
    /// Marks / packets, 0–1; null without a packet.
    pub mark_rate: Option<f64>,
    /// Premature marks / marks at `L`, 0–1; null without a mark.
    pub premature_share: Option<f64>,
    /// Round trips the queue must stay above K* to be congested.
    #[serde(rename = "L")]
    pub l: f64,
    /// K* = 0.17 · rate · RTT, bytes.
    pub k_star_bytes: u64,
    /// Congested intervals without a mark / congested intervals at `L`, 0–1; null without one.
    pub missed_share: Option<f64>,
    /// 99th percentile of the queue that packets found, bytes; null without a packet.
    pub queue_p99_bytes: Option<u64>,
    /// Share of the time the senders were paused, 0–1; null without PFC.
    pub pause_share: Option<f64>,
    /// 99th percentile of the time a message took, ns; null without a complete one.
    pub message_p99_ns: Option<u64>,
}

/// One L.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByL {
    /// Round trips.
    #[serde(rename = "L")]
    pub l: f64,
    /// Premature share of each setting; null without a mark.
    pub premature_share: [Option<f64>; 2],
    /// Missed share of each setting; null without a congested interval.
    pub missed_share: [Option<f64>; 2],
}

/// The first setting with one difference of the second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KnobRow {
    /// What was changed: `kmin`, `kmax`, `pmax`, `cc`, `pfc`.
    pub changed: &'static str,
    /// To what.
    pub to: String,
    /// What it came to.
    #[serde(flatten)]
    pub result: ResultRow,
}

/// What made the figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    /// In words.
    pub text: &'static str,
    /// The seeds, one run each.
    pub seeds: Vec<u64>,
    /// Simulated time of a run, s, the warm-up included.
    pub simulated_s: f64,
    /// Time at its start that is not counted, s.
    pub warm_up_s: f64,
    /// Packets of all runs together.
    pub packets: u64,
}
