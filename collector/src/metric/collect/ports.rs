//! A port's points that are no counter's total: state, health, rates, histograms.

use super::{Gather, PortPoints};
use crate::finding::{Severity, SubjectKey};
use crate::inventory::{PHASES, PortRecord, World};
use crate::metric::declared::{
    BANDWIDTH_LIMIT, BANDWIDTH_UTILIZATION, BOND, COVERAGE_UNEXPLAINED, ENDING, FAILOVER_DURATION, FAILOVERS,
    FEC_RATIO, HW_STATE, LINK_LAYER, LOOPBACK, MESSAGE_SIZE, NETDEV, NETWORK_UP, OPERATION, OPERATION_LATENCY,
    PCIE_STALL, PHASE, PORT_INFO, QUANTILE, STATUS, TRACED_IO, TRACED_REQUESTS,
};
use crate::metric::{Buckets, Value};
use crate::observation::{LinkLayer, Nanos, PortState};
use crate::rule::predicts_failure;
use crate::timeline::counter_table::Meaning;

/// A loopback measurement says something for so long, ns: it is made once a second.
const LOOPBACK_NS: Nanos = 5_000_000_000;
/// The states of `hw.status`.
const STATES: [&str; 4] = ["ok", "degraded", "predicted_failure", "failed"];

/// The points of all ports.
pub(super) fn gather(gather: &mut Gather<'_>, ports: &[PortPoints<'_>]) {
    let stateless = gather.blind("sysfs") && gather.blind("nldev");
    for port in ports {
        if !stateless {
            state(gather, port);
        }
        info(gather, port);
        rates(gather, port);
        seen_by_probes(gather, port);
        failovers(gather, port);
        loopback(gather, port);
    }
}

fn state(gather: &mut Gather<'_>, port: &PortPoints<'_>) {
    let (record, now) = (port.record, gather.now());
    if record.state != PortState::Unknown {
        let up = u64::from(record.state == PortState::Active);
        gather.gauge(&NETWORK_UP, port.hardware.clone(), now, Value::Int(up));
    }
    let negotiated = !matches!(record.state, PortState::Down | PortState::Unknown);
    if let Some(gbps) = record.rate_gbps.filter(|gbps| negotiated && *gbps > 0.0) {
        gather.gauge(&BANDWIDTH_LIMIT, port.hardware.clone(), now, Value::Int(bytes_per_second(gbps)));
    }
    let Some(status) = status(gather.world, port) else { return };
    for word in STATES {
        let attributes = gather.with(&port.hardware, HW_STATE, word);
        gather.gauge(&STATUS, attributes, now, Value::Int(u64::from(word == status)));
    }
}

/// The port's state in a word; `None` when nothing is known of it.
fn status(world: &World, port: &PortPoints<'_>) -> Option<&'static str> {
    if port.record.state == PortState::Down {
        return Some("failed");
    }
    let findings = || {
        let about = world.findings_about(port.device, port.record);
        about.filter(|finding| !matches!(finding.key, SubjectKey::Qp(_)))
    };
    if findings().any(|finding| predicts_failure(finding.rule)) {
        return Some("predicted_failure");
    }
    match (findings().map(|finding| finding.severity).max(), port.record.state) {
        (Some(Severity::Critical), _) => Some("failed"),
        (Some(Severity::Warning), _) | (_, PortState::Init | PortState::Armed) => Some("degraded"),
        (_, PortState::Active) => Some("ok"),
        (_, PortState::Down | PortState::Unknown) => None,
    }
}

/// Gb/s (10⁹ bit/s) as bytes per second.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate above 0 and far below 2^64")]
fn bytes_per_second(gbps: f64) -> u64 {
    (gbps * 1e9 / 8.0).round() as u64
}

fn info(gather: &mut Gather<'_>, port: &PortPoints<'_>) {
    let record = port.record;
    let mut attributes = port.attributes.clone();
    let layer = match record.link_layer {
        LinkLayer::InfiniBand => Some("InfiniBand"),
        LinkLayer::Ethernet => Some("Ethernet"),
        LinkLayer::Unspecified => None,
    };
    attributes.extend(layer.map(|layer| (LINK_LAYER, gather.words.of(layer))));
    attributes.extend(record.netdevs.first().map(|netdev| (NETDEV, netdev.clone())));
    attributes.extend(record.bond.as_ref().map(|bond| (BOND, bond.clone())));
    let now = gather.now();
    gather.gauge(&PORT_INFO, attributes, now, Value::Int(1));
}

fn rates(gather: &mut Gather<'_>, port: &PortPoints<'_>) {
    let (record, now) = (port.record, gather.now());
    if let Some(share) = record.utilisation() {
        let t = read_at(record, &[Meaning::TxBytes, Meaning::RxBytes]).unwrap_or(now);
        gather.gauge(&BANDWIDTH_UTILIZATION, port.hardware.clone(), t, Value::Float(share));
    }
    let rate = |meaning| record.rate(meaning);
    if let (Some(corrected), Some(bits)) = (rate(Meaning::PreFecCorrectedBits), rate(Meaning::RxBits))
        && bits > 0.0
    {
        let t = read_at(record, &[Meaning::PreFecCorrectedBits]).unwrap_or(now);
        gather.gauge(&FEC_RATIO, port.attributes.clone(), t, Value::Float(corrected / bits));
    }
    for (meaning, word) in [(Meaning::PcieStallRead, "read"), (Meaning::PcieStallWrite, "write")] {
        let series = record.series_of(meaning).find(|series| series.fresh(now));
        if let Some((series, percent)) = series.and_then(|series| Some((series, series.value()?))) {
            let attributes = gather.with(&port.attributes, OPERATION, word);
            gather.gauge(&PCIE_STALL, attributes, series.t, Value::Float(percent as f64 / 100.0));
        }
    }
}

/// When the counters of meanings were read last.
fn read_at(record: &PortRecord, meanings: &[Meaning]) -> Option<Nanos> {
    meanings.iter().flat_map(|meaning| record.series_of(*meaning)).map(|series| series.t).max()
}

fn seen_by_probes(gather: &mut Gather<'_>, port: &PortPoints<'_>) {
    if let Some(bytes) = gather.world.unexplained(port.record) {
        let now = gather.now();
        gather.gauge(&COVERAGE_UNEXPLAINED, port.attributes.clone(), now, Value::Float(bytes));
    }
    let posted = &port.record.posted;
    let counted = (gather.world.started, gather.world.now);
    if posted.requests > 0 || port.record.posting.newest_first().next().is_some() {
        gather.sum(&TRACED_REQUESTS, port.attributes.clone(), posted.requests);
        gather.sum(&TRACED_IO, port.attributes.clone(), posted.bytes);
    }
    if !posted.sizes.is_empty() {
        let sum = Some(posted.sized_bytes as f64);
        let buckets = Buckets { counts: posted.sizes.clone(), unit: 1.0, sum };
        gather.counted(&MESSAGE_SIZE, port.attributes.clone(), counted, Value::Buckets(buckets));
    }
    let latencies = port.record.latencies.total();
    if !latencies.is_empty() {
        let buckets = Buckets { counts: latencies, unit: 1e-9, sum: None };
        gather.counted(&OPERATION_LATENCY, port.attributes.clone(), counted, Value::Buckets(buckets));
    }
}

fn failovers(gather: &mut Gather<'_>, port: &PortPoints<'_>) {
    let counted = (gather.world.started, gather.world.now);
    let totals = &port.record.failovers;
    for (ending, n) in &totals.endings {
        let attributes = gather.with(&port.attributes, ENDING, ending.name());
        gather.sum(&FAILOVERS, attributes, *n);
    }
    for (at, phase) in PHASES.into_iter().enumerate().filter(|(at, _)| !totals.phases[*at].is_empty()) {
        let attributes = gather.with(&port.attributes, PHASE, phase);
        let sum = Some(totals.sums_ns[at] as f64 / 1e9);
        let buckets = Buckets { counts: totals.phases[at].clone(), unit: 1e-9, sum };
        gather.counted(&FAILOVER_DURATION, attributes, counted, Value::Buckets(buckets));
    }
}

fn loopback(gather: &mut Gather<'_>, port: &PortPoints<'_>) {
    let Some((t, sample)) = port.record.loopbacks.last() else { return };
    if gather.now().saturating_sub(*t) > LOOPBACK_NS {
        return;
    }
    for (quantile, ns) in [("0.5", sample.p50_ns), ("0.99", sample.p99_ns), ("1", sample.max_ns)] {
        let attributes = gather.with(&port.attributes, QUANTILE, quantile);
        gather.gauge(&LOOPBACK, attributes, *t, Value::Float(ns as f64 / 1e9));
    }
}
