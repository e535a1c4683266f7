//! What the node's sources would observe.

use super::counters::Counters;
use super::node::{AerCounts, Node, RATE_GBPS, SimFunction, SimPort};
use super::qp::{SimQp, Stats};
use crate::observation::{
    self, AerTotals, Body, CounterSource, Gid, Histogram, LinkLayer, Nanos, Observation, Pairs, PortState, Probes,
    QpEvent, QpState, QpStats, Seeing, SourceState, Text,
};
use crate::source::Emit;

/// The probes the node has attached.
const PROBES: u32 = 9;
/// One poll in so many finds a port busy and is left out: the next one has the growth of both.
const LEFT_OUT: u64 = 4_000;
/// An unreadable register, as a device that does not answer any more gives it.
const ALL_ONES: u64 = u64::MAX;

/// What a poll looks at besides the counters.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Due {
    /// States, `ethtool`, PCIe, QP statistics.
    pub(super) second: bool,
    /// Temperatures and health reporters.
    pub(super) ten_seconds: bool,
    /// Congestion control parameters.
    pub(super) minute: bool,
}

impl Node {
    /// What is there when watching begins.
    pub(super) fn introduce(&self, t: Nanos, emit: &mut Emit<'_>) {
        for source in ["sysfs", "netlink", "ethtool", "pcie", "probes"] {
            let (state, reason) = if source == "probes" && !self.per_qp {
                (Seeing::Off, Some("not permitted here".into()))
            } else {
                (Seeing::Ok, None)
            };
            emit(&Observation { t, body: Body::Source(SourceState { source: source.into(), state, reason }) });
        }
        if self.per_qp {
            let text = "the simulated node has no probe budget, as with --probe-budget off: its probes are attached all the \
                        time, and what they would cost is not simulated";
            let note = observation::Note { source: "simulator".into(), text: text.into() };
            emit(&Observation { t, body: Body::Note(note) });
        }
        for index in 0..self.ports.len() {
            self.introduce_port(t, index, emit);
        }
        for port in self.ports.iter().filter(|_| self.per_qp) {
            for at in 0..port.qps.len() {
                port.emit_qp(t, at, QpEvent::Seen, None, QpState::Rts, emit);
            }
        }
    }

    /// A device and its port appear.
    pub(super) fn introduce_port(&self, t: Nanos, index: usize, emit: &mut Emit<'_>) {
        let port = &self.ports[index];
        let body = observation::Device {
            device: port.device.as_str().into(),
            index: u32::try_from(index).ok(),
            driver: Some("mlx5_core".into()),
            node_guid: Some(port.guid.as_str().into()),
            fw: Some("28.39.1002".into()),
            pci: Some(self.functions[port.function].pci.as_str().into()),
            model: Some("MT4129".into()),
            ..observation::Device::default()
        };
        emit(&Observation { t, body: Body::Device(body) });
        port.emit_state(t, emit);
    }

    /// What is polled.
    pub(super) fn poll(&mut self, t: Nanos, due: Due, emit: &mut Emit<'_>) {
        for port in self.ports.iter().filter(|port| !port.gone) {
            if due.second {
                port.emit_state(t, emit);
            }
            if port.condition.silent || self.random.below(LEFT_OUT) == 0 {
                continue;
            }
            port.emit_counters(t, CounterSource::Counters, &port.pma, emit);
            port.emit_counters(t, CounterSource::Nldev, &port.hw, emit);
            if due.second {
                port.emit_counters(t, CounterSource::Ethtool, &port.ethtool, emit);
            }
            if due.ten_seconds {
                port.emit_counters(t, CounterSource::Devlink, &port.devlink, emit);
                port.emit_counters(t, CounterSource::Hwmon, &port.hwmon, emit);
            }
            if due.minute && !port.infiniband {
                port.emit_congestion_config(t, emit);
            }
        }
        if !due.second {
            return;
        }
        for function in &self.functions {
            function.emit(t, emit);
        }
        if self.per_qp {
            self.sweep(t, emit);
        }
    }

    /// The probes' map is read.
    fn sweep(&mut self, t: Nanos, emit: &mut Emit<'_>) {
        for port in &mut self.ports {
            for qp in &mut port.qps {
                if std::mem::take(&mut qp.changed)
                    && let Some(stats) = &qp.stats
                {
                    qp.emit_stats(stats, t, &port.device, emit);
                }
            }
        }
        let body = Probes { wanted: PROBES, attached: PROBES, hits: Some(self.hits), ..Probes::default() };
        emit(&Observation { t, body: Body::Probes(body) });
    }
}

impl SimPort {
    pub(super) fn emit_state(&self, t: Nanos, emit: &mut Emit<'_>) {
        let (state, phys) = match (self.up, self.infiniband) {
            (true, _) => (PortState::Active, "LinkUp"),
            // mlx5 says so for every RoCE port without carrier.
            (false, false) => (PortState::Down, "Disabled"),
            (false, true) => (PortState::Down, "Polling"),
        };
        let kind = if self.infiniband { "IB/RoCE v1" } else { "RoCE v2" };
        let gid = Gid {
            index: if self.infiniband { 0 } else { 3 },
            gid: self.gid.as_str().into(),
            kind: Some(kind.into()),
            netdev: (!self.infiniband).then(|| self.netdev.as_str().into()),
        };
        let body = observation::Port {
            device: self.device.as_str().into(),
            port: 1,
            link_layer: if self.infiniband { LinkLayer::InfiniBand } else { LinkLayer::Ethernet },
            state,
            phys_state: Some(phys.into()),
            rate_gbps: Some(RATE_GBPS),
            lanes: Some(4),
            lid: self.infiniband.then_some(17),
            netdevs: vec![self.netdev.as_str().into()],
            gids: vec![gid],
            ..observation::Port::default()
        };
        emit(&Observation { t, body: Body::Port(body) });
    }

    fn emit_counters(&self, t: Nanos, source: CounterSource, counters: &Counters, emit: &mut Emit<'_>) {
        if counters.names.is_empty() {
            return;
        }
        let ones = self.condition.all_ones && source != CounterSource::Hwmon && source != CounterSource::Devlink;
        let mut values = Pairs::with_capacity(counters.names.len());
        for (name, value) in counters.names.iter().zip(&counters.values) {
            values.push(*name, if ones { ALL_ONES } else { *value });
        }
        let body = observation::Counters {
            device: self.device.as_str().into(),
            port: (!matches!(source, CounterSource::Devlink | CounterSource::Hwmon)).then_some(1),
            netdev: (source == CounterSource::Ethtool).then(|| self.netdev.as_str().into()),
            source,
            values,
            ..observation::Counters::default()
        };
        emit(&Observation { t, body: Body::Counters(body) });
    }

    /// The parameters as mlx5 names them, priority 3 in use.
    pub(super) fn emit_congestion_config(&self, t: Nanos, emit: &mut Emit<'_>) {
        let condition = &self.condition;
        let enabled = |on: bool| serde_json::json!([true, true, true, on, true, true, true, true]);
        let map = |pairs: &[(&str, u64)], enable: serde_json::Value| {
            let mut map: serde_json::Map<String, serde_json::Value> =
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
            map.insert("enable".to_owned(), enable);
            map
        };
        let np = [("min_time_between_cnps", 4), ("cnp_dscp", 48), ("cnp_802p_prio", 6)];
        let rp = [
            ("rpg_time_reset", 300),
            ("rpg_byte_reset", 32_767),
            ("rpg_threshold", 1),
            ("rpg_ai_rate", 5),
            ("rpg_hai_rate", 50),
            ("rpg_gd", 11),
            ("rpg_min_dec_fac", 50),
            ("rpg_min_rate", 1),
            ("dce_tcp_g", 1_019),
            ("dce_tcp_rtt", 1),
            ("rate_reduce_monitor_period", 4),
            ("initial_alpha_value", 1_023),
            ("clamp_tgt_rate", 0),
        ];
        let body = observation::CongestionConfig {
            device: self.device.as_str().into(),
            port: 1,
            np: map(&np, enabled(!(condition.np_off && condition.shown))),
            rp: map(&rp, enabled(!(condition.rp_off && condition.shown))),
            pfc_enabled: Some([false, false, false, true, false, false, false, false]),
            trust: Some("dscp".into()),
            cnp_dscp: Some(48),
            cc_algorithm: Some("dcqcn".into()),
        };
        emit(&Observation { t, body: Body::CongestionConfig(body) });
    }

    pub(super) fn emit_qp(
        &self,
        t: Nanos,
        at: usize,
        event: QpEvent,
        from: Option<QpState>,
        to: QpState,
        emit: &mut Emit<'_>,
    ) {
        let qp = &self.qps[at];
        let body = observation::Qp {
            device: self.device.as_str().into(),
            qpn: qp.qpn,
            port: Some(1),
            event,
            qp_type: Some("RC".into()),
            from,
            to: Some(to),
            pid: self.pid,
            comm: Some(self.comm.into()),
            remote_qpn: Some(qp.remote_qpn),
            remote_gid: Some(self.peer_gid(qp.peer, at).into()),
            timeout: Some(13),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            path_mtu: Some(4096),
            ..observation::Qp::default()
        };
        emit(&Observation { t, body: Body::Qp(body) });
    }
}

impl SimQp {
    fn emit_stats(&self, stats: &Stats, t: Nanos, device: &str, emit: &mut Emit<'_>) {
        let mut opcodes = Pairs::with_capacity(2);
        opcodes.push("RDMA_WRITE", stats.wrs - stats.sends);
        opcodes.push("SEND", stats.sends);
        let mut errors = Pairs::default();
        for (name, n) in [
            ("RETRY_EXC_ERR", stats.retry_exceeded),
            ("RNR_RETRY_EXC_ERR", stats.rnr_exceeded),
            ("WR_FLUSH_ERR", stats.flushed),
        ] {
            if n > 0 {
                errors.push(name, u64::from(n));
            }
        }
        let failed = stats.retry_exceeded + stats.rnr_exceeded + stats.flushed;
        let body = QpStats {
            device: device.into(),
            qpn: self.qpn,
            posts: stats.posts,
            wrs: stats.wrs,
            bytes: stats.bytes,
            signaled: Some(stats.completions),
            size_log2: Some(histogram(&stats.size, 32)),
            opcodes,
            completions: Some(stats.completions + u64::from(failed)),
            errors,
            latency_log2_ns: Some(histogram(&stats.latency, 64)),
            switches: Some(stats.switches),
            last_post_t: self.alive.then_some(t),
            ..QpStats::default()
        };
        emit(&Observation { t, body: Body::QpStats(body) });
    }
}

fn histogram(counts: &[u32], classes: usize) -> Histogram {
    let mut all = Vec::with_capacity(classes);
    all.extend(counts.iter().map(|n| u64::from(*n)));
    all.resize(classes, 0);
    Histogram(all)
}

impl SimFunction {
    pub(super) fn emit(&self, t: Nanos, emit: &mut Emit<'_>) {
        let body = observation::Pcie {
            pci: self.pci.as_str().into(),
            class: Some(self.class.into()),
            path: self.path.iter().map(|bdf| Text::from(bdf.as_str())).collect(),
            speed_gts: Some(self.speed_gts),
            width: Some(self.width),
            max_speed_gts: Some(32.0),
            max_width: Some(16),
            mps: Some(256),
            aer_owned: Some(true),
            aer: Some(self.aer.totals(self.root)),
        };
        emit(&Observation { t, body: Body::Pcie(body) });
    }
}

impl AerCounts {
    fn totals(&self, root: bool) -> AerTotals<'static> {
        let pairs = |list: &[(&'static str, u64)]| {
            let mut pairs = Pairs::with_capacity(list.len() + 1);
            for (name, value) in list {
                pairs.push(*name, *value);
            }
            pairs
        };
        let mut totals = AerTotals {
            correctable: pairs(&[
                ("RxErr", self.rx_err),
                ("BadTLP", self.bad_tlp),
                ("BadDLLP", self.bad_dllp),
                ("Rollover", self.rollover),
                ("Timeout", 0),
                ("NonFatalErr", 0),
                ("TOTAL_ERR_COR", self.corrected),
            ]),
            nonfatal: pairs(&[
                ("DLP", 0),
                ("CmpltTO", self.cmplt_to),
                ("UnsupReq", 0),
                ("TOTAL_ERR_NONFATAL", self.nonfatal),
            ]),
            fatal: pairs(&[("DLP", 0), ("SDES", 0), ("TOTAL_ERR_FATAL", self.fatal)]),
        };
        if root {
            totals.correctable.push("aer_rootport_total_err_cor", self.root_corrected);
            totals.nonfatal.push("aer_rootport_total_err_nonfatal", self.root_nonfatal);
        }
        totals
    }
}
