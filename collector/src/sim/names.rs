//! The counters of the simulated node, by the names its sources would give.

/// Counters of `ports/1/counters/`, in the kernel's order of names.
pub(super) const PMA: &[&str] = &[
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
];

/// mlx5's Q counters, then its congestion counters, which an InfiniBand port does not have.
pub(super) const HW: &[&str] = &[
    "rx_write_requests",
    "rx_read_requests",
    "rx_atomic_requests",
    "rx_dct_connect",
    "out_of_buffer",
    "out_of_sequence",
    "duplicate_request",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "resp_local_length_error",
    "resp_cqe_error",
    "req_cqe_error",
    "req_remote_invalid_request",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "resp_cqe_flush_error",
    "req_cqe_flush_error",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rx_icrc_encapsulated",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
];
/// Those of [`HW`] an InfiniBand port has.
pub(super) const HW_INFINIBAND: usize = 21;

/// Some of `ethtool -S` of a RoCE port, and what `ethtool -I --show-fec` adds. The priorities in use are 0 (everything
/// else), 3 (RDMA, with PFC) and 6 (CNPs).
pub(super) const ETHTOOL: &[&str] = &[
    "rx_packets_phy",
    "tx_packets_phy",
    "rx_bytes_phy",
    "tx_bytes_phy",
    "rx_crc_errors_phy",
    "rx_symbol_err_phy",
    "rx_discards_phy",
    "tx_discards_phy",
    "link_down_events_phy",
    "rx_pcs_symbol_err_phy",
    "rx_corrected_bits_phy",
    "rx_bits_phy",
    "rx_err_lane_0_phy",
    "rx_err_lane_1_phy",
    "rx_err_lane_2_phy",
    "rx_err_lane_3_phy",
    "module_high_temp",
    "module_bad_shorted",
    "rx_prio0_bytes",
    "rx_prio0_packets",
    "tx_prio0_bytes",
    "tx_prio0_packets",
    "rx_prio3_bytes",
    "rx_prio3_packets",
    "rx_prio3_discards",
    "rx_prio3_marked",
    "rx_prio3_pause",
    "rx_prio3_pause_duration",
    "rx_prio3_pause_transition",
    "tx_prio3_bytes",
    "tx_prio3_packets",
    "tx_prio3_pause",
    "tx_prio3_pause_duration",
    "rx_prio6_bytes",
    "rx_prio6_packets",
    "tx_prio6_bytes",
    "tx_prio6_packets",
    "outbound_pci_stalled_rd",
    "outbound_pci_stalled_wr",
    "corrected_blocks",
    "uncorrectable_blocks",
];

/// `devlink health` of one device.
pub(super) const DEVLINK: &[&str] =
    &["fw.state", "fw.error_count", "fw.recover_count", "fw_fatal.state", "fw_fatal.error_count", "fw_fatal.recover_count"];

/// `hwmon` of one device.
pub(super) const HWMON: &[&str] = &["temp1_input", "temp1_max", "temp1_crit"];
