//! The performance counters of an InfiniBand port by the names the diagnostic tools print, as sysfs names them.
//!
//! Units are those of sysfs: data counters are words of four octets, `PortXmitWait` counts ticks of the device's own
//! length. The tools read extended counters where a port has them: a number above the width of the sysfs counter shows
//! that, and is no ceiling.

/// Names of `perfquery` and `ibqueryerrors`, today's and those of older versions, with sysfs's.
const NAMES: [(&str, &str); 47] = [
    ("PortXmitData", "port_xmit_data"),
    ("PortRcvData", "port_rcv_data"),
    ("PortXmitPkts", "port_xmit_packets"),
    ("PortRcvPkts", "port_rcv_packets"),
    ("PortUnicastXmitPkts", "unicast_xmit_packets"),
    ("PortUnicastRcvPkts", "unicast_rcv_packets"),
    ("PortMulticastXmitPkts", "multicast_xmit_packets"),
    ("PortMulticastRcvPkts", "multicast_rcv_packets"),
    ("SymbolErrorCounter", "symbol_error"),
    ("LinkErrorRecoveryCounter", "link_error_recovery"),
    ("LinkErrorRecovery", "link_error_recovery"),
    ("LinkDownedCounter", "link_downed"),
    ("PortRcvErrors", "port_rcv_errors"),
    ("PortRcvRemotePhysicalErrors", "port_rcv_remote_physical_errors"),
    ("PortRcvSwitchRelayErrors", "port_rcv_switch_relay_errors"),
    ("PortXmitDiscards", "port_xmit_discards"),
    ("PortXmitConstraintErrors", "port_xmit_constraint_errors"),
    ("PortRcvConstraintErrors", "port_rcv_constraint_errors"),
    ("LocalLinkIntegrityErrors", "local_link_integrity_errors"),
    ("ExcessiveBufferOverrunErrors", "excessive_buffer_overrun_errors"),
    ("VL15Dropped", "VL15_dropped"),
    ("PortXmitWait", "port_xmit_wait"),
    ("XmtData", "port_xmit_data"),
    ("RcvData", "port_rcv_data"),
    ("XmtPkts", "port_xmit_packets"),
    ("RcvPkts", "port_rcv_packets"),
    ("XmtBytes", "port_xmit_data"),
    ("RcvBytes", "port_rcv_data"),
    ("XmtUniPkts", "unicast_xmit_packets"),
    ("RcvUniPkts", "unicast_rcv_packets"),
    ("XmtMultiPkts", "multicast_xmit_packets"),
    ("RcvMultiPkts", "multicast_rcv_packets"),
    ("SymbolErrors", "symbol_error"),
    ("LinkRecovers", "link_error_recovery"),
    ("LinkDowned", "link_downed"),
    ("RcvErrors", "port_rcv_errors"),
    ("RcvRemotePhysErrors", "port_rcv_remote_physical_errors"),
    ("RcvSwRelayErrors", "port_rcv_switch_relay_errors"),
    ("XmtDiscards", "port_xmit_discards"),
    ("XmtConstraintErrors", "port_xmit_constraint_errors"),
    ("XmtConstraintErr", "port_xmit_constraint_errors"),
    ("RcvConstraintErrors", "port_rcv_constraint_errors"),
    ("RcvConstraintErr", "port_rcv_constraint_errors"),
    ("LinkIntegrityErrors", "local_link_integrity_errors"),
    ("ExcBufOverrunErrors", "excessive_buffer_overrun_errors"),
    ("ExcBufOverruns", "excessive_buffer_overrun_errors"),
    ("XmtWait", "port_xmit_wait"),
];

/// What the tools print beside counters: what was asked, not what was counted.
const SELECTORS: [&str; 3] = ["PortSelect", "CounterSelect", "CounterSelect2"];

/// The port number that stands for all ports of a node (`AllPortSelect` of the PMA).
pub(super) const ALL_PORTS: u32 = 255;

/// sysfs's name of a counter; its own where sysfs has none; `None` for what is no counter.
pub(super) fn sysfs_name(name: &str) -> Option<&str> {
    if SELECTORS.contains(&name) {
        return None;
    }
    Some(NAMES.iter().find(|(tool, _)| *tool == name).map_or(name, |(_, sysfs)| sysfs))
}
