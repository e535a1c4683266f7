//! Points of QPs: how many in which state, what became of them; by process and one by one where that is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Attributes, Gather};
use crate::inventory::{DeviceId, QpRecord};
use crate::metric::declared::{
    CAUSE, COMM, CONTAINER, COVERAGE_QPS, COVERAGE_RATIO, ERROR_TYPE, FINDINGS, PID, PROCESS_IO, PROCESS_QPS,
    PROCESS_RATE, QP_COUNT, QP_ERRORS, QP_FAILURES, QP_IO, QP_RATE, QP_REQUESTS, QP_STATE, QP_TYPE, QPN, RULE,
    SEVERITY, TRACED,
};
use crate::metric::{Options, Value};
use crate::observation::{QpState, Seeing};

/// The points of QPs and findings.
pub(super) fn gather(gather: &mut Gather<'_>, options: Options) {
    let seen = seen(gather);
    if seen {
        counts(gather);
    }
    became(gather);
    findings(gather);
    if seen && options.processes {
        processes(gather);
    }
    if seen && options.qps > 0 {
        busiest(gather, options.qps);
    }
}

/// Somebody who knows of QPs that come and go still sees; where nobody says so, whoever told of them does.
fn seen(gather: &Gather<'_>) -> bool {
    let sources = &gather.world.sources;
    let states = ["nldev", "probes"].map(|name| sources.get(name).map(|source| source.state));
    states.contains(&Some(Seeing::Ok)) || states.contains(&Some(Seeing::Partial)) || states == [None, None]
}

/// QPs of a device that have type and state in common.
struct Alike<'w> {
    device: DeviceId,
    qp_type: Option<&'w Arc<str>>,
    state: QpState,
    n: u64,
}

impl Alike<'_> {
    fn holds(&self, qp: &QpRecord) -> bool {
        let same_type = match (self.qp_type, &qp.qp_type) {
            // Texts are shared, mostly.
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
            (None, None) => true,
            _ => false,
        };
        self.device == qp.device && self.state == qp.state && same_type
    }
}

fn counts(gather: &mut Gather<'_>) {
    let (world, now) = (gather.world, gather.now());
    let mut counts: Vec<Alike<'_>> = Vec::new();
    let (mut traced, mut all, mut last) = (0u64, 0u64, 0);
    for qp in world.qps.iter() {
        all += 1;
        traced += u64::from(qp.stats_t.is_some());
        // Neighbours are mostly alike, and there are few kinds.
        if !counts.get(last).is_some_and(|alike| alike.holds(qp)) {
            last = counts.iter().position(|alike| alike.holds(qp)).unwrap_or(counts.len());
        }
        match counts.get_mut(last) {
            Some(alike) => alike.n += 1,
            None => counts.push(Alike { device: qp.device, qp_type: qp.qp_type.as_ref(), state: qp.state, n: 1 }),
        }
    }
    for alike in counts {
        let mut attributes = gather.device(alike.device);
        attributes.extend(alike.qp_type.map(|qp_type| (QP_TYPE, qp_type.clone())));
        if alike.state != QpState::Unknown {
            attributes.push((QP_STATE, gather.words.of(alike.state.name())));
        }
        gather.gauge(&QP_COUNT, attributes, now, Value::Int(alike.n));
    }
    if let Some(share) = world.traced_share() {
        gather.gauge(&COVERAGE_RATIO, Vec::new(), now, Value::Float(share));
    }
    // Whether there are QPs is not known where nobody lists them.
    if all > 0 {
        for (word, n) in [("true", traced), ("false", all - traced)] {
            let attributes = vec![(TRACED, gather.words.of(word))];
            gather.gauge(&COVERAGE_QPS, attributes, now, Value::Int(n));
        }
    }
}

fn became(gather: &mut Gather<'_>) {
    for (id, device) in gather.world.present() {
        let attributes = gather.device(id);
        for (status, n) in &device.qps.errors {
            let mut attributes = attributes.clone();
            attributes.push((ERROR_TYPE, status.to_ascii_lowercase().into()));
            gather.sum(&QP_ERRORS, attributes, *n);
        }
        let totals = &device.qps;
        if !gather.world.qps.is_empty() || totals.asked > 0 || totals.unasked > 0 {
            for (word, n) in [("asked", totals.asked), ("unasked", totals.unasked)] {
                let attributes = gather.with(&attributes, CAUSE, word);
                gather.sum(&QP_FAILURES, attributes, n);
            }
        }
    }
}

fn findings(gather: &mut Gather<'_>) {
    let mut counts: BTreeMap<(&'static str, &'static str), u64> = BTreeMap::new();
    for finding in &gather.world.findings {
        *counts.entry((finding.rule, finding.severity.name())).or_default() += 1;
    }
    let now = gather.now();
    for ((rule, severity), n) in counts {
        let attributes = vec![(RULE, gather.words.of(rule)), (SEVERITY, gather.words.of(severity))];
        gather.gauge(&FINDINGS, attributes, now, Value::Int(n));
    }
}

/// What names a process.
type Owner = (Option<u32>, Option<Arc<str>>, Option<Arc<str>>);

#[derive(Default)]
struct OfProcess {
    qps: u64,
    /// Known when at least one of its QPs is traced.
    bytes: Option<u64>,
    rate: Option<f64>,
}

fn processes(gather: &mut Gather<'_>) {
    let (world, now) = (gather.world, gather.now());
    let mut all: BTreeMap<Owner, OfProcess> = BTreeMap::new();
    for qp in world.qps.iter() {
        let owner = (qp.pid, qp.comm.clone(), qp.container.clone());
        let process = all.entry(owner).or_default();
        process.qps += 1;
        if qp.stats_t.is_some() {
            process.bytes = Some(process.bytes.unwrap_or(0).saturating_add(qp.bytes));
        }
        if let Some(rate) = world.qps.rate_now(qp, world.now) {
            process.rate = Some(process.rate.unwrap_or(0.0) + rate);
        }
    }
    for ((pid, comm, container), process) in all {
        let mut attributes: Attributes = Vec::with_capacity(3);
        attributes.extend(pid.map(|pid| (PID, pid.to_string().into())));
        attributes.extend(comm.map(|comm| (COMM, comm)));
        attributes.extend(container.map(|container| (CONTAINER, container)));
        if let Some(bytes) = process.bytes {
            gather.gauge(&PROCESS_IO, attributes.clone(), now, Value::Int(bytes));
        }
        if let Some(rate) = process.rate {
            gather.gauge(&PROCESS_RATE, attributes.clone(), now, Value::Float(rate));
        }
        gather.gauge(&PROCESS_QPS, attributes, now, Value::Int(process.qps));
    }
}

fn busiest(gather: &mut Gather<'_>, n: usize) {
    let world = gather.world;
    let mut traced: Vec<(f64, &QpRecord)> = world
        .qps
        .iter()
        .filter_map(|qp| qp.stats_t.map(|_| (world.qps.rate_now(qp, world.now).unwrap_or(0.0), qp)))
        .collect();
    // Of QPs that are equally busy those that moved more, then those that were told first.
    let order = |a: &(f64, &QpRecord), b: &(f64, &QpRecord)| {
        b.0.total_cmp(&a.0).then(b.1.bytes.cmp(&a.1.bytes)).then(a.1.id.cmp(&b.1.id))
    };
    if traced.len() > n {
        traced.select_nth_unstable_by(n, order);
        traced.truncate(n);
    }
    traced.sort_unstable_by(order);
    for (_, qp) in traced {
        let mut attributes = gather.device(qp.device);
        attributes.push((QPN, qp.qpn.to_string().into()));
        attributes.extend(qp.pid.map(|pid| (PID, pid.to_string().into())));
        attributes.extend(qp.comm.as_ref().map(|comm| (COMM, comm.clone())));
        let counted = (qp.since, qp.stats_t.unwrap_or(world.now));
        gather.counted(&QP_IO, attributes.clone(), counted, Value::Int(qp.bytes));
        gather.counted(&QP_REQUESTS, attributes.clone(), counted, Value::Int(qp.wrs));
        if let Some(rate) = world.qps.rate_now(qp, world.now) {
            gather.gauge(&QP_RATE, attributes, world.now, Value::Float(rate));
        }
    }
}
