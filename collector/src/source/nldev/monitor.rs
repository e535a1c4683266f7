//! `rdma monitor`'s events (`RDMA_NL_GROUP_NOTIFY`, seen on Linux 6.12): a device was registered or unregistered, a
//! network device was attached to a port or detached. Renames are told by later kernels only.
//!
//! The event itself is only the bell: what changed is asked afterwards, so a lost event costs nothing but time.

use std::io;
use std::os::fd::BorrowedFd;

use netlink_packet_core::NetlinkBuffer;

use super::conversation::ENOBUFS;
use super::transport::{self, Transport};
use super::uapi::{command, command_of, is_nldev};

/// Datagrams taken in one poll: a storm of events ends in one look at the devices either way.
const DATAGRAMS_PER_POLL: u32 = 256;

/// The ear at the monitor's group.
#[derive(Default)]
pub(super) struct Monitor {
    transport: Option<Box<dyn Transport>>,
    datagram: Vec<u8>,
    events: u64,
    missing: Option<String>,
}

/// What was heard since the last poll.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) events: u64,
    /// Times that events were lost because they were not taken in time.
    pub(super) overruns: u64,
}

impl Heard {
    pub(super) fn any(self) -> bool {
        self != Self::default()
    }
}

impl Monitor {
    #[cfg(test)]
    pub(super) fn over(transport: Box<dyn Transport>) -> Self {
        Self { transport: Some(transport), ..Self::default() }
    }

    /// Joins the group if the kernel `has` one.
    pub(super) fn join(&mut self, has: bool) {
        if self.transport.is_some() {
            return;
        }
        self.missing = if has {
            match transport::monitor() {
                Ok(socket) => {
                    self.transport = Some(Box::new(socket));
                    None
                }
                Err(error) => Some(format!("the monitor cannot be joined: {error}")),
            }
        } else {
            Some("the kernel has no RDMA monitor (Linux 6.12 and later have one)".to_owned())
        };
    }

    /// Events heard so far.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Why no events are heard; `None` when they are.
    pub(super) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.transport.as_ref()?.fd()
    }

    /// Takes what has arrived, without waiting.
    pub(super) fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        let Some(transport) = &mut self.transport else { return heard };
        for _ in 0..DATAGRAMS_PER_POLL {
            match transport.receive(&mut self.datagram) {
                Ok(()) => heard.events += u64::from(is_event(&self.datagram)),
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => heard.overruns += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    // A socket that fails stays readable: keeping it would wake the collector without end.
                    self.missing = Some(format!("the monitor's socket failed: {error}"));
                    self.transport = None;
                    break;
                }
            }
        }
        self.events += heard.events;
        heard
    }
}

fn is_event(datagram: &[u8]) -> bool {
    NetlinkBuffer::new_checked(datagram)
        .is_ok_and(|message| is_nldev(message.message_type()) && command_of(message.message_type()) == command::MONITOR)
}
