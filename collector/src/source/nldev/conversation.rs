//! Requests of the device interface: its message types, and attributes of 32 bits, which are all that reading needs.

#[cfg(test)]
use netlink_packet_core::{NLM_F_REQUEST, NLMSG_DONE, NetlinkBuffer};

use super::attribute::{self, Attributes};
use super::transport::Transport;
use super::uapi::message_type;
use crate::source::netlink::conversation::{self, Request};

#[cfg(test)]
pub(super) use conversation::FOREIGN_DATAGRAMS;
pub(super) use conversation::{Answer, ENOBUFS, Fault};

/// A socket on which NLDEV's questions are asked. Its messages have no family header: the attributes begin right behind
/// the netlink header. Almost everything NLDEV cannot do comes back as EINVAL.
pub(super) struct Conversation(conversation::Conversation);

impl Conversation {
    pub(super) fn new(transport: Box<dyn Transport>) -> Self {
        Self(conversation::Conversation::new(transport))
    }

    /// Asks for one object and hands its attributes to `each`.
    pub(super) fn get(
        &mut self,
        command: u16,
        attributes: &[(u16, u32)],
        mut each: impl FnMut(Attributes<'_>),
    ) -> Result<Answer, Fault> {
        let request = Request { kind: message_type(command), payload: &payload(attributes) };
        self.0.get(&request, |payload| each(Attributes(payload)))
    }

    /// Asks for all objects and hands each one's attributes to `each`, also those that came before a fault.
    pub(super) fn dump(
        &mut self,
        command: u16,
        attributes: &[(u16, u32)],
        mut each: impl FnMut(Attributes<'_>),
    ) -> Result<Answer, Fault> {
        let request = Request { kind: message_type(command), payload: &payload(attributes) };
        self.0.dump(&request, |payload| each(Attributes(payload)))
    }

    /// Asks for all objects; [`Conversation::part`] takes the answer.
    pub(super) fn begin_dump(&mut self, command: u16, attributes: &[(u16, u32)]) -> Result<(), Fault> {
        self.0.begin_dump(&Request { kind: message_type(command), payload: &payload(attributes) })
    }

    /// Takes the next datagram of the answer. `Some` when it was the last.
    pub(super) fn part(&mut self, mut each: impl FnMut(Attributes<'_>)) -> Result<Option<Answer>, Fault> {
        self.0.part(|payload| each(Attributes(payload)))
    }

    /// Reads away what is left of an answer.
    pub(super) fn abandon(&mut self) {
        self.0.abandon();
    }
}

fn payload(attributes: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(attributes.len() * 8);
    for (kind, value) in attributes {
        attribute::push(&mut payload, *kind, &value.to_ne_bytes());
    }
    payload
}

#[cfg(test)]
pub(super) fn request(command: u16, flags: u16, sequence: u32, attributes: &[(u16, u32)]) -> Vec<u8> {
    Request { kind: message_type(command), payload: &payload(attributes) }.bytes(flags, sequence)
}

#[cfg(test)]
mod tests;
