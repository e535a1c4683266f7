//! Generic netlink: families by name, and requests to one of them.
//!
//! A family is looked up in the list of all of them. Asked for by name, a family that is not there would make the kernel
//! load a module for it (`ctrl_getfamily` in net/netlink/genetlink.c), and watching must change nothing.

use netlink_sys::protocols::NETLINK_GENERIC;

use super::attribute::Attributes;
use super::conversation::{Answer, Conversation, Fault, Request};
use super::transport::{KernelSocket, Transport};

/// `GENL_ID_CTRL`, the family that lists the families (include/uapi/linux/genetlink.h).
const CONTROLLER: u16 = 16;
/// `CTRL_CMD_GETFAMILY`.
const GET_FAMILY: u8 = 3;

/// `CTRL_ATTR_*`.
mod attr {
    pub(super) const FAMILY_ID: u16 = 1;
    pub(super) const FAMILY_NAME: u16 = 2;
    pub(super) const GROUPS: u16 = 7;
    pub(super) const GROUP_NAME: u16 = 1;
    pub(super) const GROUP_ID: u16 = 2;
}

/// Length of a family's header: command, version, two reserved bytes.
const HEADER_BYTES: usize = 4;

/// A family as this kernel numbers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::source) struct Family {
    id: u16,
    groups: Vec<(String, u32)>,
}

impl Family {
    /// The number of a multicast group.
    pub(in crate::source) fn group(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|(group, _)| group == name).map(|(_, id)| *id)
    }

    /// A socket that hears one of the family's groups. Joining devlink's needs no privilege.
    pub(in crate::source) fn listen(&self, group: &str) -> std::io::Result<KernelSocket> {
        let group = self.group(group).ok_or(std::io::ErrorKind::NotFound)?;
        KernelSocket::listen(NETLINK_GENERIC, &[group])
    }

    /// The command and the attributes of a message of this family; `None` for one of another.
    pub(in crate::source) fn message(&self, kind: u16, payload: &[u8]) -> Option<(u8, usize)> {
        (kind == self.id && payload.len() >= HEADER_BYTES).then(|| (payload[0], HEADER_BYTES))
    }
}

/// Requests to one family.
pub(in crate::source) struct Generic {
    conversation: Conversation,
    family: Family,
    version: u8,
}

impl Generic {
    /// Opens a socket and finds the family; `Ok(None)` where this kernel has none of this name.
    pub(in crate::source) fn open(name: &str, version: u8) -> Result<Option<Self>, Fault> {
        let socket = KernelSocket::open(NETLINK_GENERIC).map_err(Fault::Io)?;
        Self::over(Box::new(socket), name, version)
    }

    /// The same over another transport.
    pub(in crate::source) fn over(
        transport: Box<dyn Transport>,
        name: &str,
        version: u8,
    ) -> Result<Option<Self>, Fault> {
        let mut conversation = Conversation::new(transport);
        let mut family = None;
        let payload = header(GET_FAMILY, 1);
        conversation.dump(&Request { kind: CONTROLLER, payload: &payload }, |payload| {
            let attributes = Attributes(payload.get(HEADER_BYTES..).unwrap_or_default());
            if attributes.text(attr::FAMILY_NAME) != Some(name) {
                return;
            }
            let Some(id) = attributes.u16(attr::FAMILY_ID) else { return };
            let groups = attributes.nest(attr::GROUPS).iter().filter_map(|(_, group)| {
                let group = Attributes(group);
                Some((group.text(attr::GROUP_NAME)?.to_owned(), group.u32(attr::GROUP_ID)?))
            });
            family = Some(Family { id, groups: groups.collect() });
        })?;
        Ok(family.map(|family| Self { conversation, family, version }))
    }

    /// The family.
    pub(in crate::source) fn family(&self) -> &Family {
        &self.family
    }

    /// Asks for one object and hands its attributes to `each`.
    pub(in crate::source) fn get(
        &mut self,
        command: u8,
        attributes: &[u8],
        mut each: impl FnMut(Attributes<'_>),
    ) -> Result<Answer, Fault> {
        let payload = [&header(command, self.version)[..], attributes].concat();
        let request = Request { kind: self.family.id, payload: &payload };
        self.conversation.get(&request, |payload| each(Attributes(payload.get(HEADER_BYTES..).unwrap_or_default())))
    }

    /// Asks for all objects and hands each one's attributes to `each`.
    pub(in crate::source) fn dump(
        &mut self,
        command: u8,
        attributes: &[u8],
        mut each: impl FnMut(Attributes<'_>),
    ) -> Result<Answer, Fault> {
        let payload = [&header(command, self.version)[..], attributes].concat();
        let request = Request { kind: self.family.id, payload: &payload };
        self.conversation.dump(&request, |payload| each(Attributes(payload.get(HEADER_BYTES..).unwrap_or_default())))
    }
}

fn header(command: u8, version: u8) -> [u8; HEADER_BYTES] {
    [command, version, 0, 0]
}
