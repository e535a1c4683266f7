//! One request and its answer: framing, sequence numbers, the end of dumps, and what can go wrong.

use std::io;

use netlink_packet_core::{
    DoneBuffer, ErrorBuffer, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use thiserror::Error;

use super::transport::Transport;

/// A request is answered by its own answer, or by nothing: after this many foreign datagrams there is none.
pub(in crate::source) const FOREIGN_DATAGRAMS: u32 = 1024;

/// Why a request has no whole answer.
#[derive(Debug, Error)]
pub(in crate::source) enum Fault {
    /// The kernel refused, with this errno.
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
pub(in crate::source) const ENOBUFS: i32 = 105;

/// How a whole answer came.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::source) struct Answer {
    /// The kernel marked the dump as inconsistent (`NLM_F_DUMP_INTR`): something in it may be missing or doubled.
    pub(in crate::source) interrupted: bool,
    /// Datagrams with content. The kernel resumes a dump by position, so a listing of several parts may skip an entry
    /// when another one went away between two parts.
    pub(in crate::source) parts: u32,
}

/// A socket, its sequence number and the buffer its datagrams are read into.
pub(in crate::source) struct Conversation {
    transport: Box<dyn Transport>,
    sequence: u32,
    datagram: Vec<u8>,
    dump: bool,
    answer: Answer,
}

impl Conversation {
    pub(in crate::source) fn new(transport: Box<dyn Transport>) -> Self {
        Self { transport, sequence: 0, datagram: Vec::new(), dump: false, answer: Answer::default() }
    }

    /// Asks for one object and hands the payload of each message of the answer to `each`.
    pub(in crate::source) fn get(&mut self, request: &Request<'_>, each: impl FnMut(&[u8])) -> Result<Answer, Fault> {
        self.ask(request, 0)?;
        self.whole(each)
    }

    /// Asks for all objects and hands each one's payload to `each`, also those that came before a fault.
    pub(in crate::source) fn dump(&mut self, request: &Request<'_>, each: impl FnMut(&[u8])) -> Result<Answer, Fault> {
        self.begin_dump(request)?;
        self.whole(each)
    }

    /// Asks for all objects; [`Conversation::part`] takes the answer.
    pub(in crate::source) fn begin_dump(&mut self, request: &Request<'_>) -> Result<(), Fault> {
        self.ask(request, NLM_F_DUMP)
    }

    /// Takes the next datagram of the answer. `Some` when it was the last. The kernel goes on with a dump only as far
    /// as it is read: who stops reading stops the queries as well.
    pub(in crate::source) fn part(&mut self, mut each: impl FnMut(&[u8])) -> Result<Option<Answer>, Fault> {
        let progress = self.next_datagram(&mut each);
        if progress.as_ref().is_err_and(|fault| !matches!(fault, Fault::Refused(_))) {
            self.abandon();
        }
        progress.map(|finished| finished.then_some(self.answer))
    }

    fn ask(&mut self, request: &Request<'_>, flags: u16) -> Result<(), Fault> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.dump = flags == NLM_F_DUMP;
        self.answer = Answer::default();
        self.transport.send(&request.bytes(flags, self.sequence)).map_err(|error| {
            self.abandon();
            error.into()
        })
    }

    fn whole(&mut self, mut each: impl FnMut(&[u8])) -> Result<Answer, Fault> {
        loop {
            if let Some(answer) = self.part(&mut each)? {
                return Ok(answer);
            }
        }
    }

    fn next_datagram(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
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
    pub(in crate::source) fn abandon(&mut self) {
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
    each: &mut dyn FnMut(&[u8]),
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
            _ => {
                if !content {
                    answer.parts += 1;
                    content = true;
                }
                each(message.payload());
                if !dump && message.flags() & NLM_F_MULTIPART == 0 {
                    return Ok(Progress::Finished);
                }
            }
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

/// A request: its message type and what follows the netlink header.
#[derive(Debug, Clone, Copy)]
pub(in crate::source) struct Request<'a> {
    /// The netlink message type.
    pub(in crate::source) kind: u16,
    /// The family's header and the attributes.
    pub(in crate::source) payload: &'a [u8],
}

impl Request<'_> {
    /// The whole message.
    pub(in crate::source) fn bytes(&self, flags: u16, sequence: u32) -> Vec<u8> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(*self));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }
}

impl NetlinkSerializable for Request<'_> {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.payload.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        // The crate offers exactly `buffer_len` bytes.
        for (to, from) in buffer.iter_mut().zip(self.payload) {
            *to = *from;
        }
    }
}
