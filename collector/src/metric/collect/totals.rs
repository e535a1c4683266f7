//! Which meaning of a port's counters is which metric.

use super::{Gather, PortPoints};
use crate::inventory::PortRecord;
use crate::metric::declared::{
    CAUSE, CNP_HANDLED, CNP_IGNORED, CNP_RECEIVED, CNP_SENT, COMPLETION_ERRORS, DIRECTION, DISORDER, DROPPED,
    ECN_MARKED, ERROR_TYPE, ERRORS, FEC_CORRECTED, FLUSHED, LANE, LANE_ERRORS, NETWORK_IO, NETWORK_PACKETS, OPERATION,
    OPERATION_ERRORS, PAUSE_FRAMES, PAUSE_TIME, PCIE_RECOVERIES, PCIE_STALL_TIME, PRIORITY, PRIORITY_IO,
    RETRANSMISSIONS, RETRANSMITTED_IO, RETRANSMITTED_PACKETS, SIDE, TRANSMIT_WAIT, WIRE_IO, WIRE_PACKETS,
};
use crate::metric::node_names::has_node_name;
use crate::metric::{Metric, Options, Value};
use crate::timeline::counter_table::Meaning;

/// Attributes a row adds.
type More = &'static [(&'static str, &'static str)];

const TX: (&str, &str) = (DIRECTION, "transmit");
const RX: (&str, &str) = (DIRECTION, "receive");

/// Meanings that are one total of a port.
static TOTALS: &[(&Metric, &[(Meaning, More)])] = &[
    (&NETWORK_IO, &[(Meaning::TxBytes, &[TX]), (Meaning::RxBytes, &[RX])]),
    (&NETWORK_PACKETS, &[(Meaning::TxPackets, &[TX]), (Meaning::RxPackets, &[RX])]),
    (&WIRE_IO, &[(Meaning::WireTxBytes, &[TX]), (Meaning::WireRxBytes, &[RX])]),
    (&WIRE_PACKETS, &[(Meaning::WireTxPackets, &[TX]), (Meaning::WireRxPackets, &[RX])]),
    (
        &ERRORS,
        &[
            (Meaning::SymbolError, &[(ERROR_TYPE, "symbol"), RX]),
            (Meaning::LinkErrorRecovery, &[(ERROR_TYPE, "link_recovery")]),
            (Meaning::LinkDowned, &[(ERROR_TYPE, "link_downed")]),
            (Meaning::LocalLinkIntegrity, &[(ERROR_TYPE, "link_integrity"), RX]),
            (Meaning::BufferOverrun, &[(ERROR_TYPE, "buffer_overrun"), RX]),
            (Meaning::RcvErrors, &[(ERROR_TYPE, "packet"), RX]),
            (Meaning::RemotePhysicalErrors, &[(ERROR_TYPE, "remote_physical"), RX]),
            (Meaning::ConstraintErrors, &[(ERROR_TYPE, "constraint")]),
            (Meaning::CrcErrors, &[(ERROR_TYPE, "crc"), RX]),
            (Meaning::IcrcErrors, &[(ERROR_TYPE, "icrc"), RX]),
            (Meaning::PostFecErrors, &[(ERROR_TYPE, "fec_uncorrected"), RX]),
            (Meaning::ModuleFaults, &[(ERROR_TYPE, "module")]),
            (Meaning::PauseStorms, &[(ERROR_TYPE, "pause_storm"), TX]),
            (Meaning::CommandErrors, &[(ERROR_TYPE, "command")]),
            (Meaning::PcieErrors, &[(ERROR_TYPE, "bus")]),
        ],
    ),
    (&ECN_MARKED, &[(Meaning::EcnMarkedRx, &[])]),
    (&CNP_SENT, &[(Meaning::CnpSent, &[])]),
    (&CNP_HANDLED, &[(Meaning::CnpHandled, &[])]),
    (&CNP_IGNORED, &[(Meaning::CnpIgnored, &[])]),
    (&CNP_RECEIVED, &[(Meaning::CnpReceived, &[])]),
    (&TRANSMIT_WAIT, &[(Meaning::TxWait, &[])]),
    (
        &DROPPED,
        &[
            (Meaning::TxDiscards, &[TX, (CAUSE, "discarded")]),
            (Meaning::RxDrops, &[RX, (CAUSE, "discarded")]),
            (Meaning::TxDrops, &[TX, (CAUSE, "limited")]),
            (Meaning::OutOfBuffer, &[RX, (CAUSE, "no_receive")]),
            (Meaning::PcieOverflow, &[RX, (CAUSE, "pcie")]),
            (Meaning::Vl15Dropped, &[RX, (CAUSE, "vl15")]),
        ],
    ),
    (
        &RETRANSMISSIONS,
        &[
            (Meaning::AckTimeout, &[(CAUSE, "ack_timeout")]),
            (Meaning::SequenceNak, &[(CAUSE, "sequence_nak")]),
            (Meaning::ImpliedNak, &[(CAUSE, "implied_nak")]),
            (Meaning::RnrNak, &[(CAUSE, "rnr_nak")]),
            (Meaning::AdaptiveRetransmissions, &[(CAUSE, "adaptive")]),
        ],
    ),
    (&RETRANSMITTED_PACKETS, &[(Meaning::Retransmissions, &[])]),
    (&RETRANSMITTED_IO, &[(Meaning::RetransmittedBytes, &[])]),
    (
        &DISORDER,
        &[
            (Meaning::OutOfSequence, &[(CAUSE, "out_of_sequence")]),
            (Meaning::DuplicateRequest, &[(CAUSE, "duplicate")]),
        ],
    ),
    (
        &OPERATION_ERRORS,
        &[
            (Meaning::RetryExceeded, &[(ERROR_TYPE, "retry_exceeded")]),
            (Meaning::RnrRetryExceeded, &[(ERROR_TYPE, "rnr_retry_exceeded")]),
            (Meaning::AccessErrors, &[(ERROR_TYPE, "access")]),
            (Meaning::InvalidRequests, &[(ERROR_TYPE, "invalid_request")]),
            (Meaning::LengthErrors, &[(ERROR_TYPE, "length")]),
            (Meaning::ProtectionErrors, &[(ERROR_TYPE, "protection")]),
            (Meaning::OperationErrors, &[(ERROR_TYPE, "operation")]),
            (Meaning::RemoteUnresponsive, &[(ERROR_TYPE, "remote_unresponsive")]),
        ],
    ),
    (
        &COMPLETION_ERRORS,
        &[(Meaning::ReqCqeError, &[(SIDE, "requester")]), (Meaning::RespCqeError, &[(SIDE, "responder")])],
    ),
    (&FLUSHED, &[(Meaning::FlushErrors, &[])]),
    (&FEC_CORRECTED, &[(Meaning::PreFecCorrectedBits, &[])]),
    (
        &PCIE_STALL_TIME,
        &[
            (Meaning::PcieStallReadSeconds, &[(OPERATION, "read")]),
            (Meaning::PcieStallWriteSeconds, &[(OPERATION, "write")]),
        ],
    ),
    (&PCIE_RECOVERIES, &[(Meaning::PcieSignalIntegrity, &[])]),
];

/// Meanings of which each counter is a point of its own: by the number in its name, and how many of the
/// counter's units are one of the metric's (`None`: whole numbers).
type Numbered = (&'static Metric, &'static str, Option<f64>, &'static [(Meaning, More)]);

static NUMBERED: &[Numbered] = &[
    (&PRIORITY_IO, PRIORITY, None, &[(Meaning::PriorityTxBytes, &[TX]), (Meaning::PriorityRxBytes, &[RX])]),
    // Microseconds in the counter table.
    (&PAUSE_TIME, PRIORITY, Some(1e6), &[(Meaning::TxPauseDuration, &[TX]), (Meaning::RxPauseDuration, &[RX])]),
    (&PAUSE_FRAMES, PRIORITY, None, &[(Meaning::TxPauseFrames, &[TX]), (Meaning::RxPauseFrames, &[RX])]),
    (&LANE_ERRORS, LANE, None, &[(Meaning::LaneErrors, &[])]),
];

/// The totals of all ports.
pub(super) fn gather(gather: &mut Gather<'_>, ports: &[PortPoints<'_>], options: Options) {
    let now = gather.now();
    for port in ports {
        for (metric, rows) in TOTALS {
            for (meaning, more) in *rows {
                if options.beside_node_names && is_elsewhere(port.record, *meaning) {
                    continue;
                }
                let Some(total) = port.record.total(*meaning, now) else { continue };
                let mut attributes = Vec::with_capacity(port.attributes(metric).len() + more.len());
                attributes.extend_from_slice(port.attributes(metric));
                attributes.extend(more.iter().map(|(key, word)| (*key, gather.words.of(word))));
                gather.total(metric, attributes, total);
            }
        }
        for (metric, key, divisor, rows) in NUMBERED {
            for (meaning, more) in *rows {
                for (number, total) in port.record.totals_by_number(*meaning, now) {
                    let mut attributes = port.attributes(metric).clone();
                    attributes.extend(more.iter().map(|(key, word)| (*key, gather.words.of(word))));
                    attributes.extend(number.map(|number| (*key, number.to_string().into())));
                    let value =
                        divisor.map_or(Value::Int(total.value), |divisor| Value::Float(total.value as f64 / divisor));
                    gather.counted(metric, attributes, (total.start, total.t), value);
                }
            }
        }
    }
}

/// Every counter of the meaning is exported under a name of `node_exporter`.
fn is_elsewhere(port: &PortRecord, meaning: Meaning) -> bool {
    port.series_of(meaning).all(has_node_name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_rows_use_only_attributes_their_metric_declares_in_its_order() {
        let rows = TOTALS.iter().flat_map(|(metric, rows)| rows.iter().map(move |(_, more)| (*metric, *more, None)));
        let numbered = NUMBERED
            .iter()
            .flat_map(|(metric, key, _, rows)| rows.iter().map(move |(_, more)| (*metric, *more, Some(*key))));
        for (metric, more, last) in rows.chain(numbered) {
            let keys = more.iter().map(|(key, _)| *key).chain(last);
            let places: Vec<_> = keys.map(|key| metric.attributes.iter().position(|known| *known == key)).collect();
            assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}: {places:?}", metric.name);
        }
    }

    #[test]
    fn no_meaning_is_in_two_metrics() {
        let mut seen = HashSet::new();
        let all = TOTALS.iter().flat_map(|(_, rows)| *rows).chain(NUMBERED.iter().flat_map(|(_, _, _, rows)| *rows));
        for (meaning, _) in all {
            assert!(seen.insert(meaning), "{}", meaning.name());
        }
    }
}
