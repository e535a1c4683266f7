//! What the node's sources would observe.

use super::node::{AerCounts, Counters, Node, RATE_GBPS, SimFunction, SimPort, SimQp};
use super::traffic::HIT_NS;
use crate::observation::{
    self, AerTotals, Body, CounterSource, Gid, LinkLayer, Nanos, Observation, Pairs, PortState, Probes, QpEvent,
    QpState, QpStats, Seeing, SourceState, Text,
};
use crate::source::Emit;

/// The probes the node has attached.
const PROBES: u32 = 9;

impl Node {
    /// What is there when watching begins.
    pub(super) fn introduce(&self, t: Nanos, emit: &mut Emit<'_>) {
        for source in ["sysfs", "netlink", "ethtool", "pcie", "probes"] {
            let body = SourceState { source: source.into(), state: Seeing::Ok, reason: None };
            emit(&Observation { t, body: Body::Source(body) });
        }
        for (index, port) in self.ports.iter().enumerate() {
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
        for port in &self.ports {
            for qp in &port.qps {
                qp.emit_event(t, port, QpEvent::Seen, QpState::Rts, emit);
            }
        }
    }

    /// What is polled every second.
    pub(super) fn poll(&mut self, t: Nanos, emit: &mut Emit<'_>) {
        for port in &self.ports {
            port.emit_state(t, emit);
            port.emit_counters(t, CounterSource::Counters, &port.pma, emit);
            port.emit_counters(t, CounterSource::Nldev, &port.hw, emit);
            port.emit_counters(t, CounterSource::Ethtool, &port.ethtool, emit);
        }
        for function in &self.functions {
            function.emit(t, emit);
        }
        for port in &mut self.ports {
            for at in 0..port.qps.len() {
                if std::mem::take(&mut port.qps[at].changed) {
                    port.qps[at].emit_stats(t, &port.device, emit);
                }
            }
        }
        let body = Probes {
            wanted: PROBES,
            attached: PROBES,
            hits: Some(self.hits),
            cost_ns: Some(self.hits * HIT_NS),
            ..Probes::default()
        };
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
        let mut values = Pairs::with_capacity(counters.names.len());
        for (name, value) in counters.names.iter().zip(&counters.values) {
            values.push(*name, *value);
        }
        let body = observation::Counters {
            device: self.device.as_str().into(),
            port: Some(1),
            netdev: (source == CounterSource::Ethtool).then(|| self.netdev.as_str().into()),
            source,
            values,
            ..observation::Counters::default()
        };
        emit(&Observation { t, body: Body::Counters(body) });
    }
}

impl SimQp {
    pub(super) fn emit_event(&self, t: Nanos, port: &SimPort, event: QpEvent, to: QpState, emit: &mut Emit<'_>) {
        let body = observation::Qp {
            device: port.device.as_str().into(),
            qpn: self.qpn,
            port: Some(1),
            event,
            qp_type: Some("RC".into()),
            to: Some(to),
            pid: self.pid,
            comm: Some(self.comm.into()),
            remote_qpn: Some(self.remote_qpn),
            remote_gid: Some(self.remote_gid.as_str().into()),
            timeout: Some(self.timeout),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            path_mtu: Some(4096),
            ..observation::Qp::default()
        };
        emit(&Observation { t, body: Body::Qp(body) });
    }

    fn emit_stats(&self, t: Nanos, device: &str, emit: &mut Emit<'_>) {
        let mut opcodes = Pairs::with_capacity(2);
        opcodes.push("RDMA_WRITE", self.size.0[19] + self.size.0[20] + self.size.0[12]);
        opcodes.push("SEND", self.size.0[6]);
        let mut errors = Pairs::default();
        if self.retry_exceeded > 0 {
            errors.push("RETRY_EXC_ERR", self.retry_exceeded);
            errors.push("WR_FLUSH_ERR", self.flushed);
        }
        let body = QpStats {
            device: device.into(),
            qpn: self.qpn,
            posts: self.posts,
            wrs: self.wrs,
            bytes: self.bytes,
            signaled: Some(self.completions),
            size_log2: Some(self.size.clone()),
            opcodes,
            completions: Some(self.completions + self.retry_exceeded + self.flushed),
            errors,
            latency_log2_ns: Some(self.latency.clone()),
            switches: Some(self.switches),
            last_post_t: self.alive.then_some(t),
            ..QpStats::default()
        };
        emit(&Observation { t, body: Body::QpStats(body) });
    }
}

impl SimFunction {
    fn emit(&self, t: Nanos, emit: &mut Emit<'_>) {
        let body = observation::Pcie {
            pci: self.pci.as_str().into(),
            class: Some(self.class.into()),
            path: self.path.iter().map(|bdf| Text::from(bdf.as_str())).collect(),
            speed_gts: Some(32.0),
            width: Some(16),
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
                ("BadDLLP", 0),
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
