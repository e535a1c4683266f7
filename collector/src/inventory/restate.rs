//! The world as observations: what a recording must begin with when it begins in the middle.

use std::borrow::Cow;
use std::sync::Arc;

use super::{AerTotal, DeviceRecord, PcieRecord, PortRecord, World};
use crate::observation::{
    AerSeverity, AerTotals, Body, Bond, CongestionConfig, Counters, Device, FailedProbe, Gid, Observation, Pcie, Port,
    PortState, ProbeGroup, Probes, Process, Qp, QpEvent, QpStats, Slave, SourceState, Text, Unseen,
};
use crate::source::Emit;

mod past;

pub use past::restate_past;

fn lend(text: &Arc<str>) -> Text<'_> {
    Cow::Borrowed(text)
}

fn lend_option(text: Option<&Arc<str>>) -> Option<Text<'_>> {
    text.map(lend)
}

/// Says everything that is known now: devices, ports, congestion parameters, bonds, PCIe functions, counters, QPs, processes, sources, probes.
///
/// Counters come with their last readings, so that the next ones have something to be compared with. Histories and
/// raised findings are not restated: who reads on from here sees them build up again. What rests on single events of the last
/// hour is said by [`restate_past`].
pub fn restate(world: &World, emit: &mut Emit<'_>) {
    let t = world.now;
    let mut say = |body: Body<'_>| emit(&Observation { t, body });
    say_devices(world, &mut say);
    say_congestion(world, &mut say);
    say_bonds(world, &mut say);
    say_functions(world, &mut say);
    say_counters(world, &mut say);
    say_bound(world, &mut say);
    say_qps(world, &mut say);
    say_processes(world, &mut say);
    say_sources(world, &mut say);
}

/// Where one restated body goes.
type Say<'s> = dyn FnMut(Body<'_>) + 's;

fn say_devices(world: &World, say: &mut Say<'_>) {
    world.present().for_each(|(_, device)| say_device(device, say));
    for (device, port) in world.present_ports() {
        say(Body::Port(port_line(device, port, port.state, port.phys_state.as_ref())));
    }
}

fn say_device(device: &DeviceRecord, say: &mut Say<'_>) {
    say(Body::Device(Device {
        device: lend(&device.name),
        index: device.index,
        driver: lend_option(device.driver.as_ref()),
        node_guid: lend_option(device.node_guid.as_ref()),
        fw: lend_option(device.fw.as_ref()),
        pci: lend_option(device.pci.as_ref()),
        physfn: lend_option(device.physfn.as_ref()),
        vf: device.vf.then_some(true),
        model: lend_option(device.model.as_ref()),
        removed: None,
        unreadable: lend_option(device.unreadable.as_ref()),
    }));
}

/// A port as it is known, in this state.
fn port_line<'w>(
    device: &'w DeviceRecord,
    port: &'w PortRecord,
    state: PortState,
    phys_state: Option<&'w Arc<str>>,
) -> Port<'w> {
    Port {
        device: lend(&device.name),
        port: port.key.port,
        link_layer: port.link_layer,
        state,
        phys_state: lend_option(phys_state),
        rate_gbps: port.rate_gbps,
        lanes: port.lanes,
        lid: port.lid,
        netdevs: port.netdevs.iter().map(lend).collect(),
        netdev_pci: lend_option(port.netdev_pci.as_ref()),
        bond: lend_option(port.bond.as_ref()),
        lifespan_ms: port.lifespan_ms,
        gids: port
            .gids
            .iter()
            .map(|(index, gid, kind)| Gid {
                index: *index,
                gid: lend(gid),
                kind: lend_option(kind.as_ref()),
                netdev: None,
            })
            .collect(),
        notes: port.notes.iter().map(lend).collect(),
        left_active_t: past::left_active(port, state),
    }
}

fn say_congestion(world: &World, say: &mut Say<'_>) {
    for (device, port) in world.present_ports() {
        let Some(config) = &port.congestion else { continue };
        say(Body::CongestionConfig(CongestionConfig {
            device: lend(&device.name),
            port: port.key.port,
            np: config.np.clone(),
            rp: config.rp.clone(),
            pfc_enabled: config.pfc_enabled,
            trust: lend_option(config.trust.as_ref()),
            cnp_dscp: config.cnp_dscp,
            cc_algorithm: lend_option(config.cc_algorithm.as_ref()),
        }));
    }
}

fn say_bonds(world: &World, say: &mut Say<'_>) {
    for (name, bond) in &world.bonds {
        say(Body::Bond(Bond {
            bond: lend(name),
            mode: lend(&bond.mode),
            active: lend_option(bond.active.as_ref()),
            slaves: bond.slaves.iter().map(|(netdev, up)| Slave { netdev: lend(netdev), up: *up }).collect(),
            // What is known is no news.
            event: None,
        }));
    }
}

fn say_functions(world: &World, say: &mut Say<'_>) {
    for record in world.pcie.values() {
        say(Body::Pcie(function_line(record, record.aer.as_deref())));
    }
}

/// A function as it is known, with these totals.
fn function_line<'w>(record: &'w PcieRecord, totals: Option<&[AerTotal]>) -> Pcie<'w> {
    Pcie {
        pci: lend(&record.pci),
        class: lend_option(record.class.as_ref()),
        path: record.path.iter().map(lend).collect(),
        speed_gts: record.link.speed_gts,
        width: record.link.width,
        max_speed_gts: record.link.max_speed_gts,
        max_width: record.link.max_width,
        mps: record.mps,
        aer_owned: record.aer_owned,
        aer: totals.map(|totals| {
            let mut aer = AerTotals::default();
            for total in totals {
                let pairs = match total.severity {
                    AerSeverity::Corrected => &mut aer.correctable,
                    AerSeverity::Nonfatal => &mut aer.nonfatal,
                    AerSeverity::Fatal => &mut aer.fatal,
                };
                // The names live on: the totals may be those of another moment.
                pairs.push(total.name.to_string(), total.value);
            }
            aer
        }),
    }
}

fn say_counters(world: &World, say: &mut Say<'_>) {
    for (device, port, set) in world
        .present_ports()
        .flat_map(|(device, port)| port.sets.iter().map(move |set| (device, Some(port.key.port), set)))
        .chain(world.present().flat_map(|(_, device)| device.sets.iter().map(move |set| (device, None, set))))
        .filter(|(_, _, set)| set.bound.is_none())
    {
        let values = set.series.iter().filter_map(|s| s.value().map(|value| (lend(&s.name), value)));
        say(Body::Counters(Counters {
            device: lend(&device.name),
            port,
            netdev: lend_option(set.netdev.as_ref()),
            source: set.source,
            values: values.collect(),
            unavailable: set.unavailable.iter().map(|r| ("*".into(), r.as_str().into())).collect(),
            ..Counters::default()
        }));
    }
}

/// Sets bound to QPs, under their numbers and with the QPs they count.
fn say_bound(world: &World, say: &mut Say<'_>) {
    for (device, port) in world.present_ports() {
        for set in port.bound.iter() {
            let values = set.counters.series.iter().filter_map(|s| s.value().map(|value| (lend(&s.name), value)));
            say(Body::Counters(Counters {
                device: lend(&device.name),
                port: Some(port.key.port),
                source: set.counters.source,
                qpn: set.by.qpn,
                qp_type: lend_option(set.by.qp_type.as_ref()),
                pid: set.by.pid,
                set: Some(set.id),
                qpns: Some(set.qpns.to_vec()),
                values: values.collect(),
                ..Counters::default()
            }));
        }
    }
}

fn say_qps(world: &World, say: &mut Say<'_>) {
    for qp in world.qps.iter() {
        say(Body::Qp(Qp {
            device: lend(&world.device(qp.device).name),
            qpn: qp.qpn,
            port: qp.port.map(u32::from),
            event: QpEvent::Seen,
            qp_type: lend_option(qp.qp_type.as_ref()),
            to: Some(qp.state),
            pid: qp.pid,
            comm: lend_option(qp.comm.as_ref()),
            container: lend_option(qp.container.as_ref()),
            remote_qpn: qp.remote_qpn,
            remote_gid: lend_option(qp.remote_gid.as_ref()),
            timeout: qp.timeout,
            retry_cnt: qp.retry_cnt,
            rnr_retry: qp.rnr_retry,
            path_mtu: qp.path_mtu_bytes.map(u32::from),
            ..Qp::default()
        }));
        // What was counted until now, so that the next numbers have something to be compared with.
        if qp.stats_t.is_some() {
            let detail = qp.detail.as_deref();
            say(Body::QpStats(QpStats {
                device: lend(&world.device(qp.device).name),
                qpn: qp.qpn,
                posts: qp.posts,
                wrs: qp.wrs,
                bytes: qp.bytes,
                signaled: detail.and_then(|detail| detail.signaled),
                completions: detail.and_then(|detail| detail.completions),
                sent: detail.and_then(|detail| detail.sent),
                recv_wrs: detail.and_then(|detail| detail.recv_wrs),
                sampled_ns: detail.and_then(|detail| detail.sampled_ns),
                completions_sampled_ns: detail.and_then(|detail| detail.completions_sampled_ns),
                completions_missed: detail.is_some_and(|detail| detail.completions_missed),
                vendor_err: detail.and_then(|detail| detail.vendor_err),
                switches: detail.and_then(|detail| detail.switches),
                size_log2: detail.and_then(|detail| detail.size_log2.clone()),
                latency_log2_ns: detail.and_then(|detail| detail.latency_log2_ns.clone()),
                truncated: detail.map(|detail| detail.truncated).filter(|n| *n > 0),
                opcodes: detail.iter().flat_map(|d| &d.opcodes).map(|(name, n)| (lend(name), *n)).collect(),
                errors: detail.iter().flat_map(|d| &d.errors).map(|(name, n)| (lend(name), *n)).collect(),
                ..QpStats::default()
            }));
        }
    }
}

fn say_processes(world: &World, say: &mut Say<'_>) {
    for (pid, process) in &world.processes {
        let unseen = process.ways.iter().map(|unseen| Unseen {
            way: unseen.way,
            file: lend_option(unseen.file.as_ref()),
            reason: lend_option(unseen.reason.as_ref()),
        });
        say(Body::Process(Process { pid: *pid, comm: lend_option(process.comm.as_ref()), unseen: unseen.collect() }));
    }
}

fn say_sources(world: &World, say: &mut Say<'_>) {
    for (name, source) in &world.sources {
        say(Body::Source(SourceState {
            source: lend(name),
            state: source.state,
            reason: lend_option(source.reason.as_ref()),
        }));
    }
    if let Some(probes) = &world.probes {
        say(Body::Probes(Probes {
            wanted: probes.wanted,
            attached: probes.attached,
            failed: probes
                .failed
                .iter()
                .map(|(name, reason)| FailedProbe { name: lend(name), reason: lend(reason) })
                .collect(),
            window_ns: probes.window.map(|(window, _)| window),
            period_ns: probes.window.map(|(_, period)| period),
            posts_watched_ns: probes.posts_watched_ns,
            completions_watched_ns: probes.completions_watched_ns,
            hits: probes.hits,
            cost_ns: probes.cost_ns,
            budget_share: probes.budget_share,
            groups: probes
                .groups
                .iter()
                .map(|group| ProbeGroup {
                    group: lend(&group.group),
                    hits: group.hits,
                    hit_ns: group.hit_ns,
                    measured: group.measured,
                    paused: group.paused,
                    window_ns: group.window.map(|(window, _)| window),
                    period_ns: group.window.map(|(_, period)| period),
                })
                .collect(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::observation::recording::Header;
    use crate::observation::{Histogram, Pairs, QpState};
    use crate::rule::Settings;

    #[test]
    fn what_is_known_of_a_qp_is_restated() {
        let seen = Qp {
            device: "d".into(),
            qpn: 17,
            port: Some(1),
            event: QpEvent::Seen,
            qp_type: Some("RC".into()),
            to: Some(QpState::Rts),
            pid: Some(4),
            comm: Some("c".into()),
            container: Some("box".into()),
            remote_qpn: Some(18),
            remote_gid: Some("fe80::1".into()),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(6),
            path_mtu: Some(4096),
            ..Qp::default()
        };
        let mut engine = Engine::new(Header::new(), Settings::default());
        engine.take(&Observation { t: 5, body: Body::Qp(seen.clone()) });
        let mut said = Vec::new();
        restate(engine.world(), &mut |observation| {
            if let Body::Qp(again) = &observation.body {
                assert_eq!(*again, seen);
                said.push(observation.t);
            }
        });
        assert_eq!(said, [5]);
    }

    #[test]
    fn the_statistics_of_a_qp_are_restated_with_every_number_that_is_compared_with_the_next() {
        let pairs = |name: &'static str, n: u64| {
            let mut pairs = Pairs::default();
            pairs.push(name, n);
            pairs
        };
        let stats = QpStats {
            device: "d".into(),
            qpn: 17,
            posts: 9,
            wrs: 10,
            bytes: 11,
            signaled: Some(8),
            size_log2: Some(Histogram(vec![0, 10])),
            opcodes: pairs("SEND", 10),
            sampled_ns: Some(12),
            recv_wrs: Some(13),
            sent: Some(5),
            completions: Some(7),
            completions_sampled_ns: Some(14),
            completions_missed: true,
            errors: pairs("RETRY_EXC_ERR", 2),
            vendor_err: Some(129),
            latency_log2_ns: Some(Histogram(vec![0, 0, 5])),
            switches: Some(3),
            truncated: Some(4),
            // Of a moment, and nothing is compared with it.
            last_post_t: None,
        };
        let mut engine = Engine::new(Header::new(), Settings::default());
        engine.take(&Observation { t: 5, body: Body::QpStats(stats.clone()) });
        let mut said = Vec::new();
        restate(engine.world(), &mut |observation| {
            if let Body::QpStats(again) = &observation.body {
                assert_eq!(*again, stats);
                said.push(observation.t);
            }
        });
        assert_eq!(said, [5]);
    }
}
