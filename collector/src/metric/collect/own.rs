//! Points of the program itself.

use super::{Attributes, Gather};
use crate::metric::declared::{
    EXPORTER, PROBE_GROUP, SEEING, SELF_COUNTERS_DROPPED, SELF_CPU, SELF_EXPORT_DROPPED, SELF_EXPORT_FAILED,
    SELF_EXPORT_QUEUE, SELF_EXPORT_SENT, SELF_FAILOVERS_DROPPED, SELF_FINDINGS_DROPPED, SELF_HISTORIES_DROPPED,
    SELF_HOOKS_FAILED, SELF_HOOKS_RUN, SELF_HOOKS_UNTOLD, SELF_INFO, SELF_LOST, SELF_MEMORY, SELF_OBSERVATIONS,
    SELF_PROBE_BUDGET, SELF_PROBE_COST, SELF_PROBE_HIT, SELF_PROBE_HITS, SELF_PROBE_PAUSED, SELF_PROBE_PERIOD,
    SELF_PROBE_WINDOW, SELF_PROBES_ATTACHED, SELF_PROBES_WANTED, SELF_RECORDING_SIZE, SELF_RECORDING_STOPPED,
    SELF_SOCKET_DROPPED, SELF_SOCKET_LOST, SELF_SOCKET_READERS, SELF_SOURCE, SIGNAL, SOURCE, VERSION,
};
use crate::metric::{SelfReport, Value};
use crate::observation::Seeing;

/// The program's points.
pub(super) fn gather(gather: &mut Gather<'_>, own: &SelfReport) {
    let now = gather.now();
    let none: fn() -> Attributes = Vec::new;
    let version = vec![(VERSION, gather.words.of(env!("CARGO_PKG_VERSION")))];
    gather.gauge(&SELF_INFO, version, now, Value::Int(1));
    if let Some(share) = own.own.cpu_share {
        gather.gauge(&SELF_CPU, none(), now, Value::Float(share));
    }
    if let Some(bytes) = own.own.resident_bytes {
        gather.gauge(&SELF_MEMORY, none(), now, Value::Int(bytes));
    }
    if let Some(n) = own.observations {
        gather.sum(&SELF_OBSERVATIONS, none(), n);
    }
    sources(gather);
    kept(gather);
    for report in &own.exporters {
        let attributes = vec![(EXPORTER, gather.words.of(report.exporter)), (SIGNAL, gather.words.of(report.signal))];
        if let Some(queued) = report.queued {
            gather.gauge(&SELF_EXPORT_QUEUE, attributes.clone(), now, Value::Int(queued));
        }
        gather.sum(&SELF_EXPORT_SENT, attributes.clone(), report.sent);
        gather.sum(&SELF_EXPORT_DROPPED, attributes.clone(), report.dropped);
        gather.sum(&SELF_EXPORT_FAILED, attributes, report.failed);
    }
    if let Some(hooks) = own.hooks {
        gather.sum(&SELF_HOOKS_RUN, none(), hooks.run);
        gather.sum(&SELF_HOOKS_FAILED, none(), hooks.failed);
        gather.sum(&SELF_HOOKS_UNTOLD, none(), hooks.untold);
    }
    if let Some(socket) = own.socket {
        gather.gauge(&SELF_SOCKET_READERS, none(), now, Value::Int(socket.readers as u64));
        gather.sum(&SELF_SOCKET_DROPPED, none(), socket.dropped.saturating_add(socket.refused));
        gather.sum(&SELF_SOCKET_LOST, none(), socket.lost);
    }
    if let Some(recording) = own.recording {
        gather.sum(&SELF_RECORDING_SIZE, none(), recording.bytes);
        gather.gauge(&SELF_RECORDING_STOPPED, none(), now, Value::Int(u64::from(recording.stopped)));
    }
}

fn sources(gather: &mut Gather<'_>) {
    let (world, now) = (gather.world, gather.now());
    for (name, source) in &world.sources {
        for (seeing, word) in [(Seeing::Ok, "ok"), (Seeing::Partial, "partial"), (Seeing::Off, "off")] {
            let attributes = vec![(SOURCE, name.clone()), (SEEING, gather.words.of(word))];
            gather.gauge(&SELF_SOURCE, attributes, now, Value::Int(u64::from(source.state == seeing)));
        }
        if !world.lost.contains_key(name) {
            gather.sum(&SELF_LOST, vec![(SOURCE, name.clone())], 0);
        }
    }
    for (name, n) in &world.lost {
        gather.sum(&SELF_LOST, vec![(SOURCE, name.clone())], *n);
    }
    let Some(probes) = &world.probes else { return };
    gather.gauge(&SELF_PROBES_WANTED, Vec::new(), probes.t, Value::Int(u64::from(probes.wanted)));
    gather.gauge(&SELF_PROBES_ATTACHED, Vec::new(), probes.t, Value::Int(u64::from(probes.attached)));
    if let Some(hits) = probes.hits {
        gather.sum(&SELF_PROBE_HITS, Vec::new(), hits);
    }
    if let Some(share) = probes.cost_share {
        gather.gauge(&SELF_PROBE_COST, Vec::new(), probes.t, Value::Float(share));
    }
    if let Some(share) = probes.budget_share {
        gather.gauge(&SELF_PROBE_BUDGET, Vec::new(), probes.t, Value::Float(share));
    }
    let seconds = |ns: u64| Value::Float(ns as f64 / 1e9);
    for group in &probes.groups {
        let of = || vec![(PROBE_GROUP, group.group.clone())];
        gather.gauge(&SELF_PROBE_HIT, of(), probes.t, seconds(group.hit_ns));
        gather.gauge(&SELF_PROBE_PAUSED, of(), probes.t, Value::Int(u64::from(group.paused)));
        if let Some((window, period)) = group.window {
            gather.gauge(&SELF_PROBE_WINDOW, of(), probes.t, seconds(window));
            gather.gauge(&SELF_PROBE_PERIOD, of(), probes.t, seconds(period));
        }
    }
}

/// What was given up because it did not fit.
fn kept(gather: &mut Gather<'_>) {
    let world = gather.world;
    gather.sum(&SELF_FINDINGS_DROPPED, Vec::new(), world.findings_dropped);
    gather.sum(&SELF_FAILOVERS_DROPPED, Vec::new(), world.failovers_dropped);
    gather.sum(&SELF_HISTORIES_DROPPED, Vec::new(), world.qps.details_dropped);
    let of_ports = world.ports.iter().flat_map(|port| &port.sets);
    let sets = of_ports.chain(world.devices.iter().flat_map(|device| &device.sets));
    let dropped = sets.fold(0u64, |sum, set| sum.saturating_add(set.dropped));
    gather.sum(&SELF_COUNTERS_DROPPED, Vec::new(), dropped);
}
