//! What the kernel's answers mean (drivers/infiniband/core/nldev.c writes them).

use super::attribute::Attributes;
use super::uapi::{COUNTER_MODE_AUTO, DEVICE_TYPE_SMI, attr};

/// One RDMA device (`RDMA_NLDEV_CMD_GET`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    /// Stays the same through a rename; never used again for another device while the kernel runs.
    pub(super) index: u32,
    pub(super) name: String,
    /// The highest port number.
    pub(super) ports: u32,
    pub(super) fw: Option<String>,
    /// As sysfs prints it, `0011:2233:4455:6677`; absent when all zero.
    pub(super) node_guid: Option<String>,
    /// The device a sub-device was made from (newer kernels).
    pub(super) parent: Option<String>,
    /// A sub-device that only carries subnet management.
    pub(super) smi: bool,
}

impl DeviceInfo {
    /// `None` without an index or a name.
    pub(super) fn read(attributes: Attributes<'_>) -> Option<Self> {
        let text = |kind| attributes.text(kind).map(str::to_owned);
        Some(Self {
            index: attributes.u32(attr::DEV_INDEX)?,
            name: text(attr::DEV_NAME)?,
            ports: attributes.u32(attr::PORT_INDEX).unwrap_or(0),
            fw: text(attr::FW_VERSION),
            node_guid: attributes.u64(attr::NODE_GUID).and_then(guid),
            parent: text(attr::PARENT_NAME),
            smi: attributes.u8(attr::DEV_TYPE) == Some(DEVICE_TYPE_SMI),
        })
    }
}

/// The kernel hands the GUID out as a number in host order; its most significant 16 bits come first in sysfs.
fn guid(value: u64) -> Option<String> {
    let part = |shift: u32| value >> shift & 0xffff;
    (value != 0).then(|| format!("{:04x}:{:04x}:{:04x}:{:04x}", part(48), part(32), part(16), part(0)))
}

/// One port as the kernel describes it now (`RDMA_NLDEV_CMD_PORT_GET`). Numbers are those of `enum ib_port_state` and
/// `enum ib_port_phys_state` (`include/rdma/ib_verbs.h`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Device name.
    pub device: String,
    /// Port number, from 1.
    pub port: u32,
    /// 1 down, 2 init, 3 armed, 4 active, 5 active-defer; 0 when the driver says nothing.
    pub state: Option<u8>,
    /// 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery, 7 PHY test.
    pub phys_state: Option<u8>,
    /// Local identifier; only InfiniBand ports have one.
    pub lid: Option<u32>,
    /// The port's network device, when it is in this network namespace.
    pub netdev: Option<String>,
}

impl PortInfo {
    pub(super) fn read(attributes: Attributes<'_>) -> Option<Self> {
        Some(Self {
            device: attributes.text(attr::DEV_NAME)?.to_owned(),
            port: attributes.u32(attr::PORT_INDEX)?,
            state: attributes.u8(attr::PORT_STATE),
            phys_state: attributes.u8(attr::PORT_PHYS_STATE),
            lid: attributes.u32(attr::LID),
            netdev: attributes.text(attr::NDEV_NAME).map(str::to_owned),
        })
    }
}

/// One QP of the kernel's list (`RDMA_NLDEV_CMD_RES_QP_GET`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QpInfo<'a> {
    pub(super) qpn: u32,
    /// Absent until the QP is given one (RESET).
    pub(super) port: Option<u32>,
    pub(super) qp_type: u8,
    pub(super) state: u8,
    /// Only RC and UC have a peer; 0 until they are connected.
    pub(super) remote_qpn: Option<u32>,
    /// In this process's PID namespace; absent for the kernel's own QPs and for owners that have exited.
    pub(super) pid: Option<u32>,
    /// The kernel module that owns the QP.
    pub(super) kernel_name: Option<&'a str>,
}

impl<'a> QpInfo<'a> {
    fn read(entry: Attributes<'a>) -> Option<Self> {
        Some(Self {
            qpn: entry.u32(attr::RES_LQPN)?,
            port: entry.u32(attr::PORT_INDEX),
            qp_type: entry.u8(attr::RES_TYPE)?,
            state: entry.u8(attr::RES_STATE)?,
            remote_qpn: entry.u32(attr::RES_RQPN).filter(|qpn| *qpn != 0),
            pid: entry.u32(attr::RES_PID).filter(|pid| *pid != 0),
            kernel_name: entry.text(attr::RES_KERN_NAME),
        })
    }
}

/// The QPs of one message, and how many entries could not be read.
pub(super) fn qps<'a>(message: Attributes<'a>, mut each: impl FnMut(QpInfo<'a>)) -> u64 {
    let mut odd = 0;
    for entry in message.nest(attr::RES_QP).entries(attr::RES_QP_ENTRY) {
        match QpInfo::read(entry) {
            Some(qp) => each(qp),
            None => odd += 1,
        }
    }
    odd + u64::from(message.nest(attr::RES_QP).damaged())
}

/// The number of QPs from a device's summary (`RDMA_NLDEV_CMD_RES_GET`), which queries none of them.
pub(super) fn qp_count(message: Attributes<'_>) -> Option<u64> {
    message
        .nest(attr::RES_SUMMARY)
        .entries(attr::RES_SUMMARY_ENTRY)
        .find(|entry| entry.text(attr::RES_SUMMARY_ENTRY_NAME) == Some("qp"))
        .and_then(|entry| entry.u64(attr::RES_SUMMARY_ENTRY_CURR))
}

/// The hardware counters of a port (`RDMA_NLDEV_CMD_STAT_GET` without a resource), or of one bound set.
pub(super) fn counters(message: Attributes<'_>) -> impl Iterator<Item = (&str, u64)> {
    message.nest(attr::STAT_HWCOUNTERS).entries(attr::STAT_HWCOUNTER_ENTRY).filter_map(|entry| {
        Some((entry.text(attr::STAT_HWCOUNTER_ENTRY_NAME)?, entry.u64(attr::STAT_HWCOUNTER_ENTRY_VALUE)?))
    })
}

/// The counter mode of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct CounterMode {
    /// `RDMA_COUNTER_MODE_*`.
    pub(super) mode: u32,
    /// By what QPs are bound in the automatic mode, `RDMA_COUNTER_MASK_*`; 0 in the others.
    pub(super) mask: u32,
}

impl CounterMode {
    pub(super) fn read(message: Attributes<'_>) -> Option<Self> {
        Some(Self { mode: message.u32(attr::STAT_MODE)?, mask: message.u32(attr::STAT_AUTO_MODE_MASK).unwrap_or(0) })
    }
}

/// One counter set bound to QPs, an entry of a `RDMA_NLDEV_CMD_STAT_GET` dump (`fill_res_counter_entry`).
#[derive(Debug, Clone, Copy)]
pub(super) struct SetInfo<'a> {
    /// Unique to the device while the set lives.
    pub(super) id: u32,
    /// Absent only from what is no kernel's answer.
    pub(super) port: Option<u32>,
    /// The kernel made it in the automatic mode. It keeps that mark when the port leaves the mode.
    pub(super) automatic: bool,
    /// The type of its QPs, where it was made by type.
    pub(super) qp_type: Option<u8>,
    /// The process of its QPs, where it was made by process; in this process's PID namespace.
    pub(super) pid: Option<u32>,
    entry: Attributes<'a>,
}

impl<'a> SetInfo<'a> {
    fn read(entry: Attributes<'a>) -> Option<Self> {
        Some(Self {
            id: entry.u32(attr::STAT_COUNTER_ID)?,
            port: entry.u32(attr::PORT_INDEX),
            automatic: entry.u32(attr::STAT_MODE) == Some(COUNTER_MODE_AUTO),
            qp_type: entry.u8(attr::RES_TYPE),
            pid: entry.u32(attr::RES_PID).filter(|pid| *pid != 0),
            entry,
        })
    }

    /// The QPs it counts together.
    pub(super) fn qpns(&self) -> impl Iterator<Item = u32> + use<'a> {
        let entries = self.entry.nest(attr::RES_QP).entries(attr::RES_QP_ENTRY);
        entries.filter_map(|entry| entry.u32(attr::RES_LQPN))
    }

    /// Its counters.
    pub(super) fn counters(&self) -> impl Iterator<Item = (&'a str, u64)> + use<'a> {
        counters(self.entry)
    }
}

/// The counter sets bound to QPs in one message, and how many entries could not be read.
pub(super) fn sets<'a>(message: Attributes<'a>, mut each: impl FnMut(SetInfo<'a>)) -> u64 {
    let mut odd = 0;
    for entry in message.nest(attr::STAT_COUNTER).entries(attr::STAT_COUNTER_ENTRY) {
        match SetInfo::read(entry) {
            Some(set) => each(set),
            None => odd += 1,
        }
    }
    odd + u64::from(message.nest(attr::STAT_COUNTER).damaged())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_has_the_form_of_sysfs_and_zero_is_none() {
        assert_eq!(guid(0x0011_2233_4455_6677).as_deref(), Some("0011:2233:4455:6677"));
        assert_eq!(guid(0xa), Some("0000:0000:0000:000a".to_owned()));
        assert_eq!(guid(0), None);
    }
}
