//! The names that `node_exporter`'s `infiniband` collector has for the kernel's counters (`collector/infiniband_linux.go`
//! of `node_exporter` 1.12), for those who have dashboards on them.

use crate::timeline::Series;
use crate::timeline::counter_table::TableSource;

/// A counter file and its name there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeName {
    /// The directory: `counters` or `hw_counters`.
    pub source: TableSource,
    /// The kernel's name.
    pub file: &'static str,
    /// The metric's name without `node_infiniband_`.
    pub name: &'static str,
    /// What it is multiplied with.
    pub factor: u64,
}

const fn pma(file: &'static str, name: &'static str) -> NodeName {
    NodeName { source: TableSource::Counters, file, name, factor: 1 }
}

const fn words(file: &'static str, name: &'static str) -> NodeName {
    NodeName { source: TableSource::Counters, file, name, factor: 4 }
}

const fn hw(file: &'static str, name: &'static str) -> NodeName {
    NodeName { source: TableSource::Hw, file, name, factor: 1 }
}

/// Every counter it has, in the order of the names.
pub static NODE_NAMES: &[NodeName] = &[
    hw("duplicate_request", "duplicate_requests_packets_total"),
    pma("excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors_total"),
    hw("implied_nak_seq_err", "implied_nak_seq_errors_total"),
    words("port_rcv_data_64", "legacy_data_received_bytes_total"),
    words("port_xmit_data_64", "legacy_data_transmitted_bytes_total"),
    pma("port_multicast_rcv_packets", "legacy_multicast_packets_received_total"),
    pma("port_multicast_xmit_packets", "legacy_multicast_packets_transmitted_total"),
    pma("port_rcv_packets_64", "legacy_packets_received_total"),
    pma("port_xmit_packets_64", "legacy_packets_transmitted_total"),
    pma("port_unicast_rcv_packets", "legacy_unicast_packets_received_total"),
    pma("port_unicast_xmit_packets", "legacy_unicast_packets_transmitted_total"),
    pma("link_downed", "link_downed_total"),
    pma("link_error_recovery", "link_error_recovery_total"),
    hw("local_ack_timeout_err", "local_ack_timeout_errors_total"),
    pma("local_link_integrity_errors", "local_link_integrity_errors_total"),
    pma("multicast_rcv_packets", "multicast_packets_received_total"),
    pma("multicast_xmit_packets", "multicast_packets_transmitted_total"),
    hw("np_cnp_sent", "np_cnp_packets_sent_total"),
    hw("np_ecn_marked_roce_packets", "np_ecn_marked_roce_packets_received_total"),
    hw("out_of_buffer", "out_of_buffer_drops_total"),
    hw("out_of_sequence", "out_of_sequence_packets_received_total"),
    hw("packet_seq_err", "packet_sequence_errors_total"),
    pma("port_rcv_constraint_errors", "port_constraint_errors_received_total"),
    pma("port_xmit_constraint_errors", "port_constraint_errors_transmitted_total"),
    words("port_rcv_data", "port_data_received_bytes_total"),
    words("port_xmit_data", "port_data_transmitted_bytes_total"),
    pma("port_rcv_discards", "port_discards_received_total"),
    pma("port_xmit_discards", "port_discards_transmitted_total"),
    pma("port_rcv_errors", "port_errors_received_total"),
    pma("port_rcv_packets", "port_packets_received_total"),
    pma("port_xmit_packets", "port_packets_transmitted_total"),
    pma("port_rcv_remote_physical_errors", "port_receive_remote_physical_errors_total"),
    pma("port_rcv_switch_relay_errors", "port_receive_switch_relay_errors_total"),
    pma("port_xmit_wait", "port_transmit_wait_total"),
    hw("req_cqe_error", "req_cqes_errors_total"),
    hw("req_cqe_flush_error", "req_cqes_flush_errors_total"),
    hw("req_remote_access_errors", "req_remote_access_errors_total"),
    hw("req_remote_invalid_request", "req_remote_invalid_request_errors_total"),
    hw("resp_cqe_error", "resp_cqes_errors_total"),
    hw("resp_cqe_flush_error", "resp_cqes_flush_errors_total"),
    hw("resp_local_length_error", "resp_local_length_errors_total"),
    hw("resp_remote_access_errors", "resp_remote_access_errors_total"),
    hw("rnr_nak_retry_err", "rnr_nak_retry_packets_received_total"),
    hw("roce_adp_retrans", "roce_adp_retransmits_total"),
    hw("roce_adp_retrans_to", "roce_adp_retransmits_timeout_total"),
    hw("roce_slow_restart_cnps", "roce_slow_restart_cnps_total"),
    hw("roce_slow_restart_trans", "roce_slow_restart_total"),
    hw("roce_slow_restart", "roce_slow_restart_used_total"),
    hw("rp_cnp_handled", "rp_cnp_packets_handled_total"),
    hw("rp_cnp_ignored", "rp_cnp_ignored_packets_received_total"),
    hw("rx_atomic_requests", "rx_atomic_requests_total"),
    hw("rx_dct_connect", "rx_dct_connect_requests_total"),
    hw("rx_icrc_encapsulated", "rx_icrc_encapsulated_errors_total"),
    hw("rx_read_requests", "rx_read_requests_total"),
    hw("rx_write_requests", "rx_write_requests_total"),
    pma("symbol_error", "symbol_error_total"),
    pma("unicast_rcv_packets", "unicast_packets_received_total"),
    pma("unicast_xmit_packets", "unicast_packets_transmitted_total"),
    pma("VL15_dropped", "vl15_dropped_total"),
];

/// The counter has a name there.
#[must_use]
pub fn has_node_name(series: &Series) -> bool {
    NODE_NAMES.iter().any(|row| row.file == &*series.name && row.source == series.def.source)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::observation::CounterSource;
    use crate::timeline::counter_table::lookup;

    #[test]
    fn every_name_is_there_once_and_its_counter_is_in_the_table_with_the_same_factor_to_bytes() {
        let mut names = HashSet::new();
        for row in NODE_NAMES {
            assert!(names.insert(row.name) && row.name.ends_with("_total"), "{}", row.name);
            let source = match row.source {
                TableSource::Counters => CounterSource::Counters,
                _ => CounterSource::HwCounters,
            };
            let def = lookup(Some("mlx5_core"), source, row.file);
            assert!(def.known(), "{}", row.file);
            assert_eq!(def.unit.bytes_factor().unwrap_or(1), row.factor, "{}", row.file);
        }
    }
}
