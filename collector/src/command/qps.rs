//! `qps`: every QP with its owner, state and traffic.

use std::sync::Arc;

use serde::Serialize;

use super::table::{Align, Table, counted, line, or_dash};
use crate::inventory::{QpRecord, UnseenProcess, World};
use crate::observation::{Histogram, QpState, Seeing};

/// `qps --json`; stable.
#[derive(Debug, Serialize)]
pub struct QpsReport {
    /// One entry per QP, by device and number.
    pub qps: Vec<Qp>,
    /// How much of the node's QPs and bytes is seen.
    pub coverage: Coverage,
}

/// One QP.
#[derive(Debug, Serialize)]
pub struct Qp {
    /// Device name.
    pub device: Arc<str>,
    /// QP number.
    pub qpn: u32,
    /// Port.
    pub port: Option<u32>,
    /// Type.
    #[serde(rename = "type")]
    pub qp_type: Option<Arc<str>>,
    /// State.
    pub state: Option<&'static str>,
    /// Owner; null for the kernel's own.
    pub pid: Option<u32>,
    /// Its comm, or the kernel module.
    pub comm: Option<Arc<str>>,
    /// Its container.
    pub container: Option<Arc<str>>,
    /// Peer's number.
    pub remote_qpn: Option<u32>,
    /// Peer's GID.
    pub remote_gid: Option<Arc<str>>,
    /// Posts seen; null when the QP is not traced.
    pub posts: Option<u64>,
    /// Bytes of their work requests.
    pub bytes: Option<u64>,
    /// Rate over the last sweep.
    pub rate_gbps: Option<f64>,
    /// Upper bound of the median message size class.
    pub msg_p50_bytes: Option<u64>,
    /// Upper bound of the median latency class.
    pub latency_p50_ns: Option<u64>,
    /// Upper bound of the 99th percentile's latency class.
    pub latency_p99_ns: Option<u64>,
    /// Error completions; null when completions are not traced, and when none was seen but not all were.
    pub errors: Option<u64>,
    /// The numbers of posts or of completions are of a part of them only.
    pub sampled: bool,
    /// Since when it is known, seconds since the first observation.
    pub since_t: f64,
}

/// How much of the node's QPs and bytes is seen.
#[derive(Debug, Clone, Serialize)]
pub struct Coverage {
    /// QPs whose posts are traced.
    pub qps_seen: usize,
    /// QPs in the kernel's list, with those created since it was read; null when there is no list.
    pub qps_kernel: Option<usize>,
    /// Traced bytes / RDMA bytes sent over the last ten seconds, over the ports that count bytes; null when none does.
    pub bytes_ratio: Option<f64>,
    /// Posts are watched in windows only, so the traced bytes are scaled.
    pub bytes_sampled: bool,
    /// Bytes per second that ports send and nothing that was seen explains; null when it is known of no port.
    pub unexplained_bytes_per_s: Option<f64>,
    /// Who posts, or may post, where no probe sees it; the likely first.
    pub unseen: Vec<Unseen>,
    /// What is not seen, and why.
    pub blind: Vec<String>,
}

/// Somebody who posts, or may post, where no probe sees it.
#[derive(Debug, Clone, Serialize)]
pub struct Unseen {
    /// Process; null for the kernel.
    pub pid: Option<u32>,
    /// Its name, or the kernel module's.
    pub comm: Option<Arc<str>>,
    /// `possible` or `likely`.
    pub likelihood: &'static str,
    /// How, with what tells of it; empty where bytes alone do.
    pub ways: Vec<Way>,
    /// QPs in state RTS for ten seconds or more.
    pub qps_rts: usize,
    /// Those of them of which no post was seen.
    pub qps_silent: usize,
    /// What the ports of those send and nothing explains, bytes per second; null where it is not known.
    pub unexplained_bytes_per_s: Option<f64>,
    /// All of it in words.
    #[serde(skip)]
    pub line: String,
}

/// A way to post unseen.
#[derive(Debug, Clone, Serialize)]
pub struct Way {
    /// Its name.
    pub way: &'static str,
    /// The file the process maps.
    #[serde(rename = "library")]
    pub file: Option<Arc<str>>,
    /// What was found where there is no such file.
    pub reason: Option<Arc<str>>,
}

impl From<UnseenProcess> for Unseen {
    fn from(process: UnseenProcess) -> Self {
        let line = format!("{} {}", process.who(), process.text(|bytes| format!("{:.3} Gb/s", bytes * 8.0 / 1e9)));
        let ways = process.ways.into_iter();
        Self {
            pid: process.pid,
            comm: process.comm,
            likelihood: process.likelihood.name(),
            ways: ways.map(|way| Way { way: way.way.name(), file: way.file, reason: way.reason }).collect(),
            qps_rts: process.qps,
            qps_silent: process.silent,
            unexplained_bytes_per_s: process.unexplained,
            line,
        }
    }
}

/// Who posts, or may post, where no probe sees it.
#[must_use]
pub fn unseen(world: &World) -> Vec<Unseen> {
    world.unseen().into_iter().map(Unseen::from).collect()
}

/// Coverage of a world.
#[must_use]
pub fn coverage(world: &World) -> Coverage {
    let listing = world.sources.get("nldev").is_some_and(|source| source.state != Seeing::Off);
    let seen = world.coverage();
    let mut blind = Vec::new();
    for (name, source) in &world.sources {
        if let (Seeing::Off | Seeing::Partial, Some(reason)) = (source.state, &source.reason) {
            blind.push(format!("{name}: {reason}"));
        }
    }
    if let Some(probes) = &world.probes {
        for (name, reason) in &probes.failed {
            blind.push(format!("probe {name}: {reason}"));
        }
    }
    if world.qps.details_dropped > 0 {
        blind.push(format!("{} QPs lost their history to make room", world.qps.details_dropped));
    }
    for (source, n) in &world.lost {
        blind.push(format!("{} of {source} lost", counted(*n, "observation")));
    }
    Coverage {
        qps_seen: seen.qps_traced,
        qps_kernel: listing.then_some(seen.qps),
        bytes_ratio: seen.bytes_ratio,
        bytes_sampled: seen.sampled,
        unexplained_bytes_per_s: seen.unexplained,
        unseen: unseen(world),
        blind,
    }
}

/// Builds the report.
#[must_use]
pub fn report(world: &World) -> QpsReport {
    let mut qps: Vec<Qp> = world.qps.iter().map(|qp| one(world, qp)).collect();
    qps.sort_by(|a, b| (&a.device, a.qpn).cmp(&(&b.device, b.qpn)));
    QpsReport { qps, coverage: coverage(world) }
}

fn one(world: &World, qp: &QpRecord) -> Qp {
    let detail = qp.detail.as_deref();
    let traced = qp.stats_t.is_some();
    let quantile = |histogram: Option<&Histogram>, q| histogram.and_then(|h| h.quantile_bound(q));
    let latency = detail.and_then(|detail| detail.latency_log2_ns.as_ref());
    Qp {
        device: world.device(qp.device).name.clone(),
        qpn: qp.qpn,
        port: qp.port.map(u32::from),
        qp_type: qp.qp_type.clone(),
        state: Some(qp.state).filter(|state| *state != QpState::Unknown).map(QpState::name),
        pid: qp.pid,
        comm: qp.comm.clone(),
        container: qp.container.clone(),
        remote_qpn: qp.remote_qpn,
        remote_gid: qp.remote_gid.clone(),
        posts: traced.then_some(qp.posts),
        bytes: traced.then_some(qp.bytes),
        rate_gbps: world.qps.rate_now(qp, world.now).map(|bytes| bytes * 8.0 / 1e9),
        msg_p50_bytes: quantile(detail.and_then(|detail| detail.size_log2.as_ref()), 0.5),
        latency_p50_ns: quantile(latency, 0.5),
        latency_p99_ns: quantile(latency, 0.99),
        errors: qp.errors,
        sampled: detail.is_some_and(|detail| !detail.all_seen()),
        since_t: qp.since.saturating_sub(world.started) as f64 / 1e9,
    }
}

impl QpsReport {
    /// The report as an aligned table, coverage below.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = Table::new(&[
            ("DEVICE", Align::Left),
            ("QPN", Align::Right),
            ("PORT", Align::Right),
            ("TYPE", Align::Left),
            ("STATE", Align::Left),
            ("PID", Align::Right),
            ("COMM", Align::Left),
            ("PEER QPN", Align::Right),
            ("POSTS", Align::Right),
            ("BYTES", Align::Right),
            ("Gb/s", Align::Right),
            ("ERRORS", Align::Right),
        ]);
        for qp in &self.qps {
            table.row(vec![
                qp.device.to_string(),
                qp.qpn.to_string(),
                or_dash(qp.port),
                or_dash(qp.qp_type.as_deref()),
                or_dash(qp.state),
                or_dash(qp.pid),
                or_dash(qp.comm.as_deref()),
                or_dash(qp.remote_qpn),
                or_dash(qp.posts),
                or_dash(qp.bytes),
                or_dash(qp.rate_gbps.map(|gbps| format!("{gbps:.3}"))),
                or_dash(qp.errors),
            ]);
        }
        let mut text = if table.is_empty() { "no QP\n".to_owned() } else { table.to_string() };
        text.push_str(&format!("{}\n", self.coverage.line()));
        for unseen in &self.coverage.unseen {
            line(&mut text, &format!("not seen ({}): {}", unseen.likelihood, unseen.line));
        }
        for blind in &self.coverage.blind {
            line(&mut text, &format!("not seen: {blind}"));
        }
        text
    }
}

impl Coverage {
    /// Coverage in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let bytes = or_dash(self.bytes_ratio.map(|ratio| format!("{:.0}%", ratio * 100.0)));
        let windows = if self.bytes_sampled && self.bytes_ratio.is_some() { " (estimated from windows)" } else { "" };
        let rest = self.unexplained_bytes_per_s.filter(|bytes| *bytes > 0.0);
        let rest = rest.map_or_else(String::new, |bytes| {
            format!(", {:.3} Gb/s sent that nothing seen explains", bytes * 8.0 / 1e9)
        });
        format!("seen: {bytes} of bytes{windows}, {}/{} QPs{rest}", self.qps_seen, or_dash(self.qps_kernel))
    }
}
