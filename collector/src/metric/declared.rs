//! Every metric, declared once. The exporters, docs/metrics.md, the dashboards and the alert rules follow from here.
//!
//! `hw.*` are the semantic conventions for hardware of OpenTelemetry (1.44.0, status "development"), which say what is
//! exported, its unit and its instrument; what they leave open is decided in the descriptions. Two additions of our own:
//! `rdma.port` names the port of a device, since a component of the conventions is the device; and `hw.status` of a
//! network adapter has `predicted_failure` besides the three states its text lists, which the attribute's own text allows.
//! Everything else is `rdma.*`.

use super::Detail::{Default, Process, Qp};
use super::Kind::{Counter, Gauge, Histogram, UpDownCounter};
use super::Metric;

/// Identity of a device that survives a rename: its PCI function, else its node GUID, else its name.
pub const HW_ID: &str = "hw.id";
/// The device's name now.
pub const HW_NAME: &str = "hw.name";
/// Kind of hardware: `network` or `temperature`.
pub const HW_TYPE: &str = "hw.type";
/// State of a component: `ok`, `degraded`, `failed`, `predicted_failure`.
pub const HW_STATE: &str = "hw.state";
/// Identity of the device another one is a part of.
pub const HW_PARENT: &str = "hw.parent";
/// Board or HCA type.
pub const HW_MODEL: &str = "hw.model";
/// Firmware version.
pub const HW_FIRMWARE: &str = "hw.firmware_version";
/// Name of a sensor.
pub const HW_SENSOR: &str = "hw.sensor_location";
/// What a limit is: `high.critical`.
pub const HW_LIMIT: &str = "hw.limit_type";
/// Number of a port, from 1.
pub const PORT: &str = "rdma.port";
/// `transmit` or `receive`, seen from this node.
pub const DIRECTION: &str = "network.io.direction";
/// Kind of an error.
pub const ERROR_TYPE: &str = "error.type";
/// Why, of what has several causes.
pub const CAUSE: &str = "rdma.cause";
/// `requester` or `responder`.
pub const SIDE: &str = "rdma.side";
/// Priority (traffic class), 0–7; absent where the device counts all of them in one.
pub const PRIORITY: &str = "rdma.priority";
/// Lane of a link, from 0.
pub const LANE: &str = "rdma.lane";
/// Type of a QP: `RC`, `UD`.
pub const QP_TYPE: &str = "rdma.qp.type";
/// State of a QP: `RESET` to `ERR`.
pub const QP_STATE: &str = "rdma.qp.state";
/// Number of a QP.
pub const QPN: &str = "rdma.qp.number";
/// Process id of a QP's owner.
pub const PID: &str = "process.pid";
/// `comm` of a QP's owner.
pub const COMM: &str = "process.command";
/// Container of a QP's owner.
pub const CONTAINER: &str = "container.id";
/// PCI function, `0000:3b:00.0`.
pub const FUNCTION: &str = "rdma.pcie.function";
/// `correctable`, `nonfatal`, `fatal`.
pub const AER_SEVERITY: &str = "rdma.pcie.severity";
/// `read` or `write`.
pub const OPERATION: &str = "rdma.pcie.operation";
/// Part of a failover: `warning`, `reaction`, `recovery`, `outage`.
pub const PHASE: &str = "rdma.failover.phase";
/// How the QPs ended: `none`, `graceful`, `abrupt`, `mixed`.
pub const ENDING: &str = "rdma.failover.ending";
/// Share of measurements below: `0.5`, `0.99`, `1`.
pub const QUANTILE: &str = "rdma.quantile";
/// Id of a rule: `link.down`.
pub const RULE: &str = "rdma.rule";
/// `info`, `warning`, `critical`.
pub const SEVERITY: &str = "rdma.severity";
/// Health reporter of a device: `fw_fatal`.
pub const REPORTER: &str = "rdma.reporter";
/// Source of observations: `sysfs`, `probes`.
pub const SOURCE: &str = "rdma.source";
/// Data-path probes that are attached and detached together: `posts`, `completions`.
pub const PROBE_GROUP: &str = "rdma.probe.group";
/// How much a source sees: `ok`, `partial`, `off`.
pub const SEEING: &str = "rdma.source.state";
/// `true` or `false`: the probes see the QP's data path.
pub const TRACED: &str = "rdma.traced";
/// How posts escape the probes: `ucx_mlx5`, `gpu`, … ([`crate::observation::Way`]); `bytes` where bytes alone tell.
pub const WAY: &str = "rdma.unseen.way";
/// `possible` or `likely`.
pub const LIKELIHOOD: &str = "rdma.unseen.likelihood";
/// Exporter: `otlp`, `prometheus`.
pub const EXPORTER: &str = "rdma.exporter";
/// What an exporter sends: `metrics`, `logs`, `traces`.
pub const SIGNAL: &str = "rdma.signal";
/// Network device of a port.
pub const NETDEV: &str = "network.interface.name";
/// Link layer of a port.
pub const LINK_LAYER: &str = "rdma.link_layer";
/// Bond of a port.
pub const BOND: &str = "rdma.bond";
/// Kernel driver of a device.
pub const DRIVER: &str = "rdma.driver";
/// Version of this program.
pub const VERSION: &str = "service.version";

macro_rules! metrics {
    ($($group:ident = $title:literal { $($ident:ident $name:literal $unit:literal $kind:ident $detail:ident [$($attribute:expr),*] $description:literal;)* })*) => {
        $($(
            #[doc = concat!("`", $name, "`: ", $description, ".")]
            pub static $ident: Metric = Metric {
                name: $name,
                unit: $unit,
                description: $description,
                kind: $kind,
                attributes: &[$($attribute),*],
                detail: $detail,
            };
        )*)*

        /// Every metric by chapter, in the order of docs/metrics.md.
        pub static CHAPTERS: &[(&str, &[&Metric])] = &[$(($title, &[$(&$ident),*])),*];
    };
}

metrics! {
    HARDWARE = "Ports as hardware" {
        NETWORK_IO "hw.network.io" "By" Counter Default [HW_ID, HW_NAME, HW_TYPE, PORT, DIRECTION]
            "RDMA bytes of the port, whatever unit the driver counts in; other traffic of the same adapter is in rdma.wire.io";
        NETWORK_PACKETS "hw.network.packets" "{packet}" Counter Default [HW_ID, HW_NAME, HW_TYPE, PORT, DIRECTION]
            "RDMA packets of the port";
        BANDWIDTH_LIMIT "hw.network.bandwidth.limit" "By/s" UpDownCounter Default [HW_ID, HW_NAME, HW_TYPE, PORT]
            "Signalling rate of the port; no point while the port is down, since the rate is then no negotiated one";
        BANDWIDTH_UTILIZATION "hw.network.bandwidth.utilization" "1" Gauge Default [HW_ID, HW_NAME, HW_TYPE, PORT]
            "Share of the signalling rate the busier direction used between the last two readings, 0 to 1";
        NETWORK_UP "hw.network.up" "1" UpDownCounter Default [HW_ID, HW_NAME, HW_TYPE, PORT]
            "1 when the port is ACTIVE, 0 when it is in another known state";
        STATUS "hw.status" "1" UpDownCounter Default [HW_ID, HW_NAME, HW_TYPE, PORT, HW_STATE]
            "1 for the state the port is in and 0 for the others: failed when it is down, else predicted_failure when a finding says that it is failing or about to, else failed when a finding about it is critical, else degraded when one is a warning or the port is neither up nor down, else ok; findings about its QPs do not count";
        ERRORS "hw.errors" "{error}" Counter Default [HW_ID, HW_NAME, HW_TYPE, PORT, ERROR_TYPE, DIRECTION]
            "Errors of link, module and device; a kind of error the driver does not count has no point";
        TEMPERATURE "hw.temperature" "Cel" Gauge Default [HW_ID, HW_NAME, HW_SENSOR]
            "Temperature of a sensor of the adapter";
        TEMPERATURE_LIMIT "hw.temperature.limit" "Cel" Gauge Default [HW_ID, HW_NAME, HW_SENSOR, HW_LIMIT]
            "Temperature the adapter calls critical";
        DEVICE_INFO "rdma.device.info" "" Gauge Default [HW_ID, HW_NAME, HW_PARENT, HW_MODEL, HW_FIRMWARE, DRIVER]
            "Always 1: what is known of the device";
        PORT_INFO "rdma.port.info" "" Gauge Default [HW_ID, HW_NAME, PORT, LINK_LAYER, NETDEV, BOND]
            "Always 1: what is known of the port";
    }

    TRAFFIC = "Traffic and congestion" {
        WIRE_IO "rdma.wire.io" "By" Counter Default [HW_ID, HW_NAME, PORT, DIRECTION]
            "All bytes of the physical port, of every function and protocol";
        WIRE_PACKETS "rdma.wire.packets" "{packet}" Counter Default [HW_ID, HW_NAME, PORT, DIRECTION]
            "All packets of the physical port, of every function and protocol";
        PRIORITY_IO "rdma.priority.io" "By" Counter Default [HW_ID, HW_NAME, PORT, DIRECTION, PRIORITY]
            "Bytes of the physical port by priority";
        ECN_MARKED "rdma.ecn.marked" "{packet}" Counter Default [HW_ID, HW_NAME, PORT]
            "RoCE packets received with the congestion mark (CE)";
        CNP_SENT "rdma.cnp.sent" "{packet}" Counter Default [HW_ID, HW_NAME, PORT]
            "Congestion notifications sent";
        CNP_HANDLED "rdma.cnp.handled" "{packet}" Counter Default [HW_ID, HW_NAME, PORT]
            "Congestion notifications received that slowed a sender of this node; all received where the driver counts no more than that";
        CNP_IGNORED "rdma.cnp.ignored" "{packet}" Counter Default [HW_ID, HW_NAME, PORT]
            "Congestion notifications received that changed nothing";
        CNP_RECEIVED "rdma.cnp.received" "{packet}" Counter Default [HW_ID, HW_NAME, PORT]
            "Congestion notifications received, where they are counted beside those handled";
        PAUSE_TIME "rdma.pause.time" "s" Counter Default [HW_ID, HW_NAME, PORT, DIRECTION, PRIORITY]
            "Time spent paused: receive is time this port was stopped, transmit time it stopped its peer; times of several priorities overlap, so take the longest and never add them";
        PAUSE_FRAMES "rdma.pause.frames" "{frame}" Counter Default [HW_ID, HW_NAME, PORT, DIRECTION, PRIORITY]
            "Pause frames: receive told this port to stop, transmit told its peer";
        TRANSMIT_WAIT "rdma.transmit.wait" "{tick}" Counter Default [HW_ID, HW_NAME, PORT]
            "Ticks with something to send and nothing sent; the length of a tick is the device's own, so compare it only with itself";
        DROPPED "rdma.packets.dropped" "{packet}" Counter Default [HW_ID, HW_NAME, PORT, DIRECTION, CAUSE]
            "Packets dropped: discarded for want of room or by a link that is down, limited by a limiter, no_receive for want of a posted receive, pcie because the bus could not take them, vl15 management packets";
        RETRANSMISSIONS "rdma.retransmissions" "{event}" Counter Default [HW_ID, HW_NAME, PORT, CAUSE]
            "Times this side had to send again, by what made it; of adapters that do not tell causes see rdma.retransmitted.packets";
        RETRANSMITTED_PACKETS "rdma.retransmitted.packets" "{packet}" Counter Default [HW_ID, HW_NAME, PORT]
            "Packets sent again, where the device counts them";
        RETRANSMITTED_IO "rdma.retransmitted.io" "By" Counter Default [HW_ID, HW_NAME, PORT]
            "Bytes sent again, where the device counts them";
        DISORDER "rdma.receive.disorder" "{packet}" Counter Default [HW_ID, HW_NAME, PORT, CAUSE]
            "Requests received out of sequence, or twice because the peer sent again";
        OPERATION_ERRORS "rdma.operation.errors" "{error}" Counter Default [HW_ID, HW_NAME, PORT, ERROR_TYPE]
            "Operations that failed, as the port's counters tell: the transport's and the application's errors";
        COMPLETION_ERRORS "rdma.completion.errors" "{error}" Counter Default [HW_ID, HW_NAME, PORT, SIDE]
            "Completions with error as the port counts them, whatever the kind of error";
        FLUSHED "rdma.completion.flushed" "{error}" Counter Default [HW_ID, HW_NAME, PORT]
            "Completions flushed when their QP ended: a consequence, never a cause, and ordinary at the end of a process";
    }

    LINK = "Link quality and the bus" {
        FEC_CORRECTED "rdma.fec.corrected" "{bit}" Counter Default [HW_ID, HW_NAME, PORT]
            "Bits that forward error correction put right: never zero on a PAM4 link";
        FEC_RATIO "rdma.fec.ber" "1" Gauge Default [HW_ID, HW_NAME, PORT]
            "Bit error ratio before correction, between the last two readings";
        LANE_ERRORS "rdma.lane.errors" "{error}" Counter Default [HW_ID, HW_NAME, PORT, LANE]
            "Raw errors of one lane, before correction";
        PCIE_BANDWIDTH "rdma.pcie.bandwidth" "By/s" Gauge Default [HW_ID, HW_NAME, FUNCTION]
            "What the device's bus link carries in one direction now, after line coding";
        PCIE_BANDWIDTH_LIMIT "rdma.pcie.bandwidth.limit" "By/s" Gauge Default [HW_ID, HW_NAME, FUNCTION]
            "What the device's bus link would carry at the highest speed and width of the device";
        PCIE_WIDTH "rdma.pcie.width" "{lane}" Gauge Default [HW_ID, HW_NAME, FUNCTION]
            "Lanes of the device's bus link in use now";
        AER_ERRORS "rdma.pcie.errors" "{error}" Counter Default [FUNCTION, AER_SEVERITY]
            "Bus errors (AER) a function on the way from a root port to an RDMA device counted for itself; no point where firmware keeps them";
        PCIE_STALL "rdma.pcie.stall.ratio" "1" Gauge Default [HW_ID, HW_NAME, PORT, OPERATION]
            "Share of the last second in which reads or writes of the adapter waited for the bus";
        PCIE_STALL_TIME "rdma.pcie.stall.time" "s" Counter Default [HW_ID, HW_NAME, PORT, OPERATION]
            "Seconds in which reads or writes of the adapter were stalled by the bus for more than 30 %";
        PCIE_RECOVERIES "rdma.pcie.recoveries" "{event}" Counter Default [HW_ID, HW_NAME, PORT]
            "Times the bus link had to recover";
        HEALTH_STATE "rdma.health.state" "1" UpDownCounter Default [HW_ID, HW_NAME, REPORTER]
            "1 when a health reporter of the device is in error, 0 when it is healthy";
        HEALTH_ERRORS "rdma.health.errors" "{error}" Counter Default [HW_ID, HW_NAME, REPORTER]
            "Errors a health reporter of the device told";
        LOOPBACK "rdma.loopback.latency" "s" Gauge Default [HW_ID, HW_NAME, PORT, QUANTILE]
            "Latency of the last loopback measurement";
    }

    QPS = "QPs and operations" {
        QP_COUNT "rdma.qp.count" "{qp}" UpDownCounter Default [HW_ID, HW_NAME, QP_TYPE, QP_STATE]
            "QPs that are there; a combination that does not occur has no point";
        QP_ERRORS "rdma.qp.errors" "{error}" Counter Default [HW_ID, HW_NAME, ERROR_TYPE]
            "Error completions the probes saw, by completion status";
        QP_FAILURES "rdma.qp.failures" "{qp}" Counter Default [HW_ID, HW_NAME, CAUSE]
            "QPs that went into the error state: asked by a call of their process, or found there (unasked)";
        MESSAGE_SIZE "rdma.message.size" "By" Histogram Default [HW_ID, HW_NAME, PORT]
            "Sizes of the work requests the probes saw posted";
        OPERATION_LATENCY "rdma.operation.latency" "s" Histogram Default [HW_ID, HW_NAME, PORT]
            "Time from post to poll of sampled work requests";
        TRACED_REQUESTS "rdma.traced.requests" "{request}" Counter Default [HW_ID, HW_NAME, PORT]
            "Work requests the probes saw posted";
        TRACED_IO "rdma.traced.io" "By" Counter Default [HW_ID, HW_NAME, PORT]
            "Bytes the work requests the probes saw asked to move";
        COVERAGE_RATIO "rdma.coverage.ratio" "1" Gauge Default []
            "Share of the bytes sent, as the ports count them, that traced work requests sent over the last ten windows: an estimate, which headers and answers to READs keep below 1";
        COVERAGE_QPS "rdma.coverage.qps" "{qp}" UpDownCounter Default [TRACED]
            "QPs whose data path the probes saw, and those it did not see";
        COVERAGE_UNEXPLAINED "rdma.coverage.unexplained" "By/s" Gauge Default [HW_ID, HW_NAME, PORT]
            "Bytes per second a port sends that neither traced work requests nor headers explain, over the last ten windows; answers to READs are among them";
        COVERAGE_PROCESSES "rdma.coverage.processes" "{process}" UpDownCounter Default [WAY, LIKELIHOOD]
            "Processes (and kernel modules) that post, or may post, where no probe sees it, by the most telling way each has (bytes: none but what its ports send)";
        FAILOVER_DURATION "rdma.failover.duration" "s" Histogram Default [HW_ID, HW_NAME, PORT, PHASE]
            "Longest time the phases of ended failovers can have taken";
        FAILOVERS "rdma.failovers" "{failover}" Counter Default [HW_ID, HW_NAME, PORT, ENDING]
            "Failovers that ended, by how the port's QPs did";
        FINDINGS "rdma.findings" "{finding}" UpDownCounter Default [RULE, SEVERITY]
            "Findings raised now; one that is a part of another counts too. A rule without a raised finding has no point";
    }

    OPTED = "Only when asked for" {
        PROCESS_QPS "rdma.process.qps" "{qp}" UpDownCounter Process [PID, COMM, CONTAINER]
            "QPs of a process";
        PROCESS_IO "rdma.process.io" "By" Gauge Process [PID, COMM, CONTAINER]
            "Bytes the work requests of a process's present QPs asked to move since each QP was first traced: it falls when a QP ends";
        PROCESS_RATE "rdma.process.rate" "By/s" Gauge Process [PID, COMM, CONTAINER]
            "Bytes per second a process's QPs asked to move in the last sweep";
        QP_IO "rdma.qp.io" "By" Counter Qp [HW_ID, HW_NAME, QPN, PID, COMM]
            "Bytes the work requests of one of the busiest QPs asked to move";
        QP_REQUESTS "rdma.qp.requests" "{request}" Counter Qp [HW_ID, HW_NAME, QPN, PID, COMM]
            "Work requests of one of the busiest QPs";
        QP_RATE "rdma.qp.rate" "By/s" Gauge Qp [HW_ID, HW_NAME, QPN, PID, COMM]
            "Bytes per second one of the busiest QPs asked to move in the last sweep";
    }

    OWN = "The program itself" {
        SELF_INFO "rdma.self.info" "" Gauge Default [VERSION]
            "Always 1: the version of the program";
        SELF_CPU "rdma.self.cpu.utilization" "1" Gauge Default []
            "Share of one core the program used over the last second";
        SELF_MEMORY "rdma.self.memory.usage" "By" UpDownCounter Default []
            "Resident memory of the program";
        SELF_OBSERVATIONS "rdma.self.observations" "{observation}" Counter Default []
            "Observations taken";
        SELF_LOST "rdma.self.observations.lost" "{observation}" Counter Default [SOURCE]
            "Observations a source lost";
        SELF_SOURCE "rdma.self.source" "1" UpDownCounter Default [SOURCE, SEEING]
            "1 for how much a source sees now, 0 for the other states";
        SELF_PROBES_WANTED "rdma.self.probes.wanted" "{probe}" UpDownCounter Default []
            "Probes that are wanted";
        SELF_PROBES_ATTACHED "rdma.self.probes.attached" "{probe}" UpDownCounter Default []
            "Probes that are attached";
        SELF_PROBE_HITS "rdma.self.probes.hits" "{hit}" Counter Default []
            "Times a data-path probe ran";
        SELF_PROBE_COST "rdma.self.probes.utilization" "1" Gauge Default []
            "Share of one core the data-path probes are estimated to cost";
        SELF_PROBE_BUDGET "rdma.self.probes.budget" "1" Gauge Default []
            "Share of one core the data-path probes may cost; absent without a limit";
        SELF_PROBE_HIT "rdma.self.probes.hit.duration" "s" Gauge Default [PROBE_GROUP]
            "CPU time one hit of a group of data-path probes costs, as measured at start or assumed";
        SELF_PROBE_PAUSED "rdma.self.probes.paused" "1" UpDownCounter Default [PROBE_GROUP]
            "1 while a group of data-path probes is detached for the budget's sake, else 0";
        SELF_PROBE_WINDOW "rdma.self.probes.window.duration" "s" Gauge Default [PROBE_GROUP]
            "Length of the last window in which a group that was paused was attached";
        SELF_PROBE_PERIOD "rdma.self.probes.period.duration" "s" Gauge Default [PROBE_GROUP]
            "Time from the beginning of that window to that of the next";
        SELF_FINDINGS_DROPPED "rdma.self.findings.dropped" "{finding}" Counter Default []
            "Times a rule had so many raised findings that a further one was only counted";
        SELF_FAILOVERS_DROPPED "rdma.self.failovers.dropped" "{failover}" Counter Default []
            "Older failovers that are no longer remembered";
        SELF_HISTORIES_DROPPED "rdma.self.qp.histories.dropped" "{qp}" Counter Default []
            "QP histories given up for want of room";
        SELF_COUNTERS_DROPPED "rdma.self.counters.dropped" "{counter}" Counter Default []
            "Times a counter was not stored because its set has too many";
        SELF_EXPORT_QUEUE "rdma.self.export.queue" "{item}" UpDownCounter Default [EXPORTER, SIGNAL]
            "Items that wait to be exported";
        SELF_EXPORT_SENT "rdma.self.export.sent" "{item}" Counter Default [EXPORTER, SIGNAL]
            "Items exported: points, log records, spans; pages of Prometheus";
        SELF_EXPORT_DROPPED "rdma.self.export.dropped" "{item}" Counter Default [EXPORTER, SIGNAL]
            "Items that were not exported: no room, given up, or refused by the other side";
        SELF_EXPORT_FAILED "rdma.self.export.failed" "{attempt}" Counter Default [EXPORTER, SIGNAL]
            "Attempts to export that failed";
        SELF_HOOKS_RUN "rdma.self.hooks.run" "{process}" Counter Default []
            "Hook processes started";
        SELF_HOOKS_FAILED "rdma.self.hooks.failed" "{process}" Counter Default []
            "Hook processes that could not be started, failed or were killed";
        SELF_HOOKS_UNTOLD "rdma.self.hooks.untold" "{finding}" Counter Default []
            "Findings no hook was told of: too many at once, or the end came first";
        SELF_SOCKET_READERS "rdma.self.socket.readers" "{reader}" UpDownCounter Default []
            "Readers of the local socket";
        SELF_SOCKET_DROPPED "rdma.self.socket.dropped" "{reader}" Counter Default []
            "Readers of the local socket that were dropped or turned away";
        SELF_SOCKET_LOST "rdma.self.socket.lost" "{line}" Counter Default []
            "Lines lost for all readers of the local socket";
        SELF_RECORDING_SIZE "rdma.self.recording.size" "By" Counter Default []
            "Bytes recorded, before compression";
        SELF_RECORDING_STOPPED "rdma.self.recording.stopped" "1" UpDownCounter Default []
            "1 when the recording has stopped for an error, 0 while it runs";
    }
}

/// Every metric.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    CHAPTERS.iter().flat_map(|(_, metrics)| metrics.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_is_declared_once_and_has_only_parts_of_lower_case_letters() {
        let mut seen = HashSet::new();
        for metric in all() {
            assert!(seen.insert(metric.name), "{} twice", metric.name);
            let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(metric.name.split('.').all(part), "{}", metric.name);
            assert!(!metric.description.ends_with('.') && !metric.description.is_empty(), "{}", metric.name);
            let attributes: HashSet<_> = metric.attributes.iter().collect();
            assert_eq!(attributes.len(), metric.attributes.len(), "{}", metric.name);
        }
    }

    #[test]
    fn no_default_metric_tells_qps_or_processes_apart() {
        for metric in all().filter(|metric| metric.detail == Default) {
            for attribute in [QPN, PID, COMM, CONTAINER] {
                assert!(!metric.attributes.contains(&attribute), "{} has {attribute}", metric.name);
            }
        }
    }
}
