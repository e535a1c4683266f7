//! What is asked of the kernel, and the two requests that change something: the only ones in the whole program.

use thiserror::Error;

use crate::source::nldev::availability::{Closed, Opener};
use crate::source::nldev::conversation::{Conversation, Fault};
use crate::source::nldev::reply::{self, CounterMode, DeviceInfo};
use crate::source::nldev::sets::{self, Listed};
use crate::source::nldev::uapi::{COUNTER_MODE_AUTO, attr, change, command};

pub(super) const EPERM: i32 = 1;

/// What changing something takes.
pub(super) const NEEDED: &str = "root, or CAP_NET_ADMIN";

/// Why something could not be asked or done.
#[derive(Debug, Error)]
pub(super) enum Trouble {
    /// There is no way to the kernel.
    #[error("{}", .0.reason)]
    Closed(Closed),
    /// The kernel refused, or its answer is not whole.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The answer does not hold what was asked for.
    #[error("the kernel's answer has no mode in it")]
    NoMode,
}

impl Trouble {
    /// The kernel refused with this errno.
    pub(super) fn errno(&self) -> Option<i32> {
        match self {
            Self::Fault(Fault::Refused(errno)) => Some(*errno),
            _ => None,
        }
    }

    /// What helps against it.
    pub(super) fn fix(&self) -> Option<String> {
        match self {
            Self::Closed(closed) => closed.fix.clone(),
            _ => (self.errno() == Some(EPERM)).then(|| NEEDED.to_owned()),
        }
    }

    /// There is no RDMA device, and with it nothing of what was changed.
    pub(super) fn no_rdma(&self) -> bool {
        matches!(self, Self::Closed(closed) if closed.no_rdma)
    }
}

/// A set of counters and the QPs in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MadeSet {
    pub(super) id: u32,
    pub(super) qpns: Vec<u32>,
}

/// A way to the kernel that is opened when it is needed.
pub(super) struct Kernel {
    open: Opener,
    conversation: Option<Conversation>,
}

impl Kernel {
    pub(super) fn new(open: Opener) -> Self {
        Self { open, conversation: None }
    }

    fn conversation(&mut self) -> Result<&mut Conversation, Trouble> {
        let conversation = match self.conversation.take() {
            Some(conversation) => conversation,
            None => (self.open)().map_err(Trouble::Closed)?,
        };
        Ok(self.conversation.insert(conversation))
    }

    /// Every device.
    pub(super) fn devices(&mut self) -> Result<Vec<DeviceInfo>, Trouble> {
        let mut devices = Vec::new();
        self.conversation()?.dump(command::GET, &[], |message| devices.extend(DeviceInfo::read(message)))?;
        Ok(devices)
    }

    /// The counter mode of a port.
    pub(super) fn mode(&mut self, index: u32, port: u32) -> Result<CounterMode, Trouble> {
        sets::mode(self.conversation()?, index, port)?.ok_or(Trouble::NoMode)
    }

    /// How many QPs a device has; costs no query of the driver. `None` when the kernel does not tell.
    pub(super) fn qps(&mut self, index: u32) -> Option<u64> {
        let mut count = None;
        let asked = self.conversation().ok()?.get(command::RES_GET, &[(attr::DEV_INDEX, index)], |message| {
            count = reply::qp_count(message);
        });
        asked.ok().and(count)
    }

    /// The sets the kernel made on a port in the automatic mode; `None` when one is too long to be listed.
    pub(super) fn automatic_sets(&mut self, index: u32, port: u32) -> Result<Option<Vec<MadeSet>>, Trouble> {
        let mut made = Vec::new();
        let listed = sets::list(self.conversation()?, index, port, |set| {
            if set.automatic {
                made.push(MadeSet { id: set.id, qpns: set.qpns().collect() });
            }
        });
        match listed {
            Ok(Listed::Whole { .. }) => Ok(Some(made)),
            Ok(Listed::Stalled) => {
                self.conversation = None;
                Ok(None)
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// CHANGES THE PORT: from now on the kernel binds each QP that gets the port to a set, by the mask; a mask of 0 ends that
    /// and leaves the QPs that are bound where they are (`rdma_counter_set_auto_mode`, drivers/infiniband/core/counters.c).
    pub(super) fn set_automatic(&mut self, index: u32, port: u32, mask: u32) -> Result<(), Trouble> {
        let request = [
            (attr::DEV_INDEX, index),
            (attr::PORT_INDEX, port),
            (attr::STAT_MODE, COUNTER_MODE_AUTO),
            (attr::STAT_RES, u32::from(attr::RES_QP)),
            (attr::STAT_AUTO_MODE_MASK, mask),
        ];
        self.conversation()?.get(change::STAT_SET, &request, |_| {})?;
        Ok(())
    }

    /// CHANGES A QP: takes it out of a set, so that it counts as every QP does that was never bound. The kernel allows it only
    /// when the port has left the automatic mode (`rdma_counter_unbind_qpn`).
    pub(super) fn release(&mut self, index: u32, port: u32, set: u32, qpn: u32) -> Result<(), Trouble> {
        let request = [
            (attr::DEV_INDEX, index),
            (attr::PORT_INDEX, port),
            (attr::STAT_RES, u32::from(attr::RES_QP)),
            (attr::STAT_COUNTER_ID, set),
            (attr::RES_LQPN, qpn),
        ];
        self.conversation()?.get(change::STAT_DEL, &request, |_| {})?;
        Ok(())
    }
}
