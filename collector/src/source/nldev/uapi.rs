//! The numbers of the RDMA netlink interface, from the kernel's `include/uapi/rdma/rdma_netlink.h` (an ABI: values are
//! only ever added) and `include/uapi/linux/netlink.h`. The two commands that change something are in a module of their own,
//! which only `binding` uses.

/// `RDMA_NL_NLDEV`: the client number of the device interface.
const CLIENT: u16 = 5;

/// The netlink message type of a command: `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op)`.
pub(super) const fn message_type(command: u16) -> u16 {
    (CLIENT << 10) | command
}

/// A message type belongs to the device interface.
pub(super) const fn is_nldev(message_type: u16) -> bool {
    message_type >> 10 == CLIENT
}

/// The command of a message type (`RDMA_NL_GET_OP`).
pub(super) const fn command_of(message_type: u16) -> u16 {
    message_type & 0x3ff
}

/// `RDMA_NL_GROUP_NOTIFY`: the multicast group of `rdma monitor` (Linux 6.12 and later).
pub(super) const GROUP_NOTIFY: u32 = 4;

/// `enum rdma_nldev_command`.
pub(super) mod command {
    pub(in super::super) const GET: u16 = 1;
    pub(in super::super) const PORT_GET: u16 = 5;
    pub(in super::super) const SYS_GET: u16 = 6;
    pub(in super::super) const RES_GET: u16 = 9;
    pub(in super::super) const RES_QP_GET: u16 = 10;
    pub(in super::super) const STAT_GET: u16 = 17;
    pub(in super::super) const MONITOR: u16 = 28;
}

/// The commands of `enum rdma_nldev_command` that change something; the kernel asks for `CAP_NET_ADMIN`.
pub(super) mod change {
    /// Sets a port's counter mode, or binds one QP (which is never asked for here).
    pub(in super::super) const STAT_SET: u16 = 16;
    /// Takes one QP out of a counter set.
    pub(in super::super) const STAT_DEL: u16 = 18;
}

/// `enum rdma_nldev_attr`.
pub(super) mod attr {
    pub(in super::super) const DEV_INDEX: u16 = 1;
    pub(in super::super) const DEV_NAME: u16 = 2;
    pub(in super::super) const PORT_INDEX: u16 = 3;
    pub(in super::super) const FW_VERSION: u16 = 5;
    pub(in super::super) const NODE_GUID: u16 = 6;
    pub(in super::super) const LID: u16 = 9;
    pub(in super::super) const PORT_STATE: u16 = 12;
    pub(in super::super) const PORT_PHYS_STATE: u16 = 13;
    pub(in super::super) const RES_SUMMARY: u16 = 15;
    pub(in super::super) const RES_SUMMARY_ENTRY: u16 = 16;
    pub(in super::super) const RES_SUMMARY_ENTRY_NAME: u16 = 17;
    pub(in super::super) const RES_SUMMARY_ENTRY_CURR: u16 = 18;
    pub(in super::super) const RES_QP: u16 = 19;
    pub(in super::super) const RES_QP_ENTRY: u16 = 20;
    pub(in super::super) const RES_LQPN: u16 = 21;
    pub(in super::super) const RES_RQPN: u16 = 22;
    pub(in super::super) const RES_TYPE: u16 = 26;
    pub(in super::super) const RES_STATE: u16 = 27;
    pub(in super::super) const RES_PID: u16 = 28;
    pub(in super::super) const RES_KERN_NAME: u16 = 29;
    pub(in super::super) const NDEV_NAME: u16 = 51;
    pub(in super::super) const SYS_NETNS_MODE: u16 = 66;
    pub(in super::super) const STAT_MODE: u16 = 74;
    pub(in super::super) const STAT_RES: u16 = 75;
    pub(in super::super) const STAT_AUTO_MODE_MASK: u16 = 76;
    pub(in super::super) const STAT_COUNTER: u16 = 77;
    pub(in super::super) const STAT_COUNTER_ENTRY: u16 = 78;
    pub(in super::super) const STAT_COUNTER_ID: u16 = 79;
    pub(in super::super) const STAT_HWCOUNTERS: u16 = 80;
    pub(in super::super) const STAT_HWCOUNTER_ENTRY: u16 = 81;
    pub(in super::super) const STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
    pub(in super::super) const STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
    pub(in super::super) const DEV_TYPE: u16 = 99;
    pub(in super::super) const PARENT_NAME: u16 = 100;
    pub(in super::super) const SYS_MONITOR_MODE: u16 = 103;
}

/// `RDMA_COUNTER_MODE_NONE`: no counter is bound to any QP of the port.
pub(super) const COUNTER_MODE_NONE: u32 = 0;
/// `RDMA_COUNTER_MODE_AUTO`: the kernel binds each QP that gets the port from now on, by the mask.
pub(super) const COUNTER_MODE_AUTO: u32 = 1;
/// `RDMA_COUNTER_MODE_MANUAL`: QPs were bound one by one, or are left from the automatic mode.
pub(super) const COUNTER_MODE_MANUAL: u32 = 2;

/// `RDMA_COUNTER_MASK_QP_TYPE`: a set for each QP type.
pub(super) const COUNTER_MASK_QP_TYPE: u32 = 1;
/// `RDMA_COUNTER_MASK_PID`: a set for each process.
pub(super) const COUNTER_MASK_PID: u32 = 2;

/// `RDMA_DEVICE_TYPE_SMI`: a sub-device that only carries subnet management.
pub(super) const DEVICE_TYPE_SMI: u8 = 1;

/// The name `rdma` of iproute2 prints for an `enum ib_qp_type` value (`include/rdma/ib_verbs.h`); `None` for a value
/// that has none.
pub(super) fn qp_type_name(qp_type: u8) -> Option<&'static str> {
    Some(match qp_type {
        0 => "SMI",
        1 => "GSI",
        2 => "RC",
        3 => "UC",
        4 => "UD",
        5 => "RAW_IPV6",
        6 => "RAW_ETHERTYPE",
        8 => "RAW_PACKET",
        9 => "XRC_INI",
        10 => "XRC_TGT",
        0xff => "DRIVER",
        _ => return None,
    })
}

/// QPs whose number is the same on every port (`IB_QPT_SMI`, `IB_QPT_GSI`).
pub(super) fn is_per_port(qp_type: u8) -> bool {
    qp_type <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_type_is_client_five_and_the_command() {
        assert_eq!(message_type(command::RES_QP_GET), 0x140a);
        assert!(is_nldev(0x140a) && !is_nldev(0x100a) && !is_nldev(3));
        assert_eq!(command_of(0x141c), command::MONITOR);
    }
}
