//! One request and its answer: framing, sequence numbers, the end of dumps, and what can go wrong.

use std::io;

use netlink_packet_core::{
    DoneBuffer, ErrorBuffer, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use thiserror::Error;

use super::attribute::Attributes;
use super::transport::Transport;
use super::uapi::{is_nldev, message_type};

/// A request is answered by its own answer, or by nothing: after this many foreign datagrams there is none.
const FOREIGN_DATAGRAMS: u32 = 1024;

/// Why a request has no whole answer.
#[derive(Debug, Error)]
pub(super) enum Fault {
    /// The kernel refused; almost everything NLDEV cannot do comes back as EINVAL.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// The socket's buffer ran over (ENOBUFS) or the kernel said so: messages are gone.
    #[error("the socket's buffer ran over")]
    Overrun,
    /// The answer ended before its end was announced.
    #[error("the kernel did not answer")]
    NoAnswer,
    /// The answer does not parse as netlink.
    #[error("the answer is no netlink message: {0}")]
    Malformed(String),
    /// The socket failed.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::WouldBlock, _) => Self::NoAnswer,
            (_, Some(ENOBUFS)) => Self::Overrun,
            _ => Self::Io(error),
        }
    }
}

/// `ENOBUFS` (include/uapi/asm-generic/errno.h).
pub(super) const ENOBUFS: i32 = 105;

/// How a whole answer came.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// The kernel marked the dump as inconsistent (`NLM_F_DUMP_INTR`): something in it may be missing or doubled.
    pub(super) interrupted: bool,
    /// Datagrams with content. The kernel resumes a dump by position, so a listing of several parts may skip an entry
    /// when another one went away between two parts.
    pub(super) parts: u32,
}

/// A socket, its sequence number and the buffer its datagrams are read into.
pub(super) struct Conversation {
    transport: Box<dyn Transport>,
    sequence: u32,
    datagram: Vec<u8>,
    dump: bool,
    answer: Answer,
}

impl Conversation {
    pub(super) fn new(transport: Box<dyn Transport>) -> Self {
        Self { transport, sequence: 0, datagram: Vec::new(), dump: false, answer: Answer::default() }
    }

    /// Asks for one object and hands its attributes to `each`.
    pub(super) fn get(
        &mut self,
        command: u16,
        attributes: &[(u16, u32)],
        each: impl FnMut(Attributes<'_>),
    ) -> Result<Answer, Fault> {
        self.ask(command, 0, attributes)?;
        self.whole(each)
    }

    /// Asks for all objects and hands each one's attributes to `each`, also those that came before a fault.
    pub(super) fn dump(
        &mut self,
        command: u16,
        attributes: &[(u16, u32)],
        each: impl FnMut(Attributes<'_>),
    ) -> Result<Answer, Fault> {
        self.begin_dump(command, attributes)?;
        self.whole(each)
    }

    /// Asks for all objects; [`Conversation::part`] takes the answer.
    pub(super) fn begin_dump(&mut self, command: u16, attributes: &[(u16, u32)]) -> Result<(), Fault> {
        self.ask(command, NLM_F_DUMP, attributes)
    }

    /// Takes the next datagram of the answer. `Some` when it was the last. The kernel goes on with a dump only as far
    /// as it is read: who stops reading stops the queries as well.
    pub(super) fn part(&mut self, mut each: impl FnMut(Attributes<'_>)) -> Result<Option<Answer>, Fault> {
        let progress = self.next_datagram(&mut each);
        if progress.as_ref().is_err_and(|fault| !matches!(fault, Fault::Refused(_))) {
            self.abandon();
        }
        progress.map(|finished| finished.then_some(self.answer))
    }

    fn ask(&mut self, command: u16, flags: u16, attributes: &[(u16, u32)]) -> Result<(), Fault> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.dump = flags == NLM_F_DUMP;
        self.answer = Answer::default();
        self.transport.send(&request(command, flags, self.sequence, attributes)).map_err(|error| {
            self.abandon();
            error.into()
        })
    }

    fn whole(&mut self, mut each: impl FnMut(Attributes<'_>)) -> Result<Answer, Fault> {
        loop {
            if let Some(answer) = self.part(&mut each)? {
                return Ok(answer);
            }
        }
    }

    fn next_datagram(&mut self, each: &mut dyn FnMut(Attributes<'_>)) -> Result<bool, Fault> {
        for _ in 0..FOREIGN_DATAGRAMS {
            self.transport.receive(&mut self.datagram)?;
            match read_datagram(&self.datagram, self.sequence, self.dump, &mut self.answer, each)? {
                Progress::Finished => return Ok(true),
                Progress::More => return Ok(false),
                Progress::Foreign => {}
            }
        }
        Err(Fault::NoAnswer)
    }

    /// Reads away what is left of an answer: as long as a dump is unfinished the kernel refuses the next one.
    pub(super) fn abandon(&mut self) {
        for _ in 0..FOREIGN_DATAGRAMS {
            match self.transport.receive(&mut self.datagram) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
                Err(_) => return,
            }
        }
    }
}

/// What a datagram was for the answer that is waited for.
enum Progress {
    /// The answer's last part.
    Finished,
    /// A part of the answer.
    More,
    /// Nothing of this answer, for example the rest of an earlier one.
    Foreign,
}

fn read_datagram(
    mut rest: &[u8],
    sequence: u32,
    dump: bool,
    answer: &mut Answer,
    each: &mut dyn FnMut(Attributes<'_>),
) -> Result<Progress, Fault> {
    let mut progress = Progress::Foreign;
    let mut content = false;
    while !rest.is_empty() {
        let message = NetlinkBuffer::new_checked(rest).map_err(|error| Fault::Malformed(error.to_string()))?;
        let length = message.length() as usize;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if message.sequence_number() != sequence {
            continue;
        }
        progress = Progress::More;
        answer.interrupted |= message.flags() & NLM_F_DUMP_INTR != 0;
        match message.message_type() {
            NLMSG_NOOP => {}
            NLMSG_OVERRUN => return Err(Fault::Overrun),
            NLMSG_ERROR => return refused(message.payload()).map(|()| Progress::Finished),
            NLMSG_DONE => return done(message.payload()).map(|()| Progress::Finished),
            kind if is_nldev(kind) => {
                if !content {
                    answer.parts += 1;
                    content = true;
                }
                each(Attributes(message.payload()));
                if !dump && message.flags() & NLM_F_MULTIPART == 0 {
                    return Ok(Progress::Finished);
                }
            }
            _ => {}
        }
    }
    Ok(progress)
}

fn refused(payload: &[u8]) -> Result<(), Fault> {
    let error = ErrorBuffer::new_checked(payload).map_err(|error| Fault::Malformed(error.to_string()))?;
    match error.code() {
        None => Ok(()),
        Some(code) => Err(Fault::Refused(code.get().saturating_neg())),
    }
}

/// The end of a dump carries an errno when the dump could not be finished.
fn done(payload: &[u8]) -> Result<(), Fault> {
    match DoneBuffer::new_checked(payload).map_or(0, |done| done.code()) {
        code if code < 0 => Err(Fault::Refused(code.saturating_neg())),
        _ => Ok(()),
    }
}

/// The body of a request: 32-bit attributes are all that reading needs.
struct Request<'a> {
    command: u16,
    attributes: &'a [(u16, u32)],
}

impl NetlinkSerializable for Request<'_> {
    fn message_type(&self) -> u16 {
        message_type(self.command)
    }

    fn buffer_len(&self) -> usize {
        self.attributes.len() * 8
    }

    fn serialize(&self, buffer: &mut [u8]) {
        for (chunk, (kind, value)) in buffer.chunks_exact_mut(8).zip(self.attributes) {
            chunk[..2].copy_from_slice(&8u16.to_ne_bytes());
            chunk[2..4].copy_from_slice(&kind.to_ne_bytes());
            chunk[4..].copy_from_slice(&value.to_ne_bytes());
        }
    }
}

pub(super) fn request(command: u16, flags: u16, sequence: u32, attributes: &[(u16, u32)]) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(Request { command, attributes }));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
