//! The list of network devices and the events about them (`RTNLGRP_LINK`). Joining the group needs no privilege.
//!
//! Each event carries the whole state of its network device, so the events alone keep the list right. It is asked for
//! again where one was lost.

use std::io;
use std::os::fd::BorrowedFd;

use netlink_packet_core::NetlinkBuffer;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::link::{self, DEL_LINK, EXT_MASK, GET_LINK, GROUP_LINK, HEADER_BYTES, Link, Links, NEW_LINK, Said};
use crate::observation::Nanos;
use crate::source::netlink::attribute::push;
use crate::source::netlink::conversation::{Conversation, ENOBUFS, Request};
use crate::source::netlink::transport::{KernelSocket, Transport};

/// Events taken in one poll; the rest wakes the collector again.
const EVENTS_PER_POLL: u32 = 1024;
/// A list that failed is asked for again after this long, ns.
const RETRY: Nanos = 10_000_000_000;

/// The ear at the group, and the list.
pub(super) struct Monitor {
    questions: Option<Conversation>,
    events: Option<Box<dyn Transport>>,
    missing: Option<String>,
    links: Links,
    datagram: Vec<u8>,
    /// When the list is to be asked for; `None` while the events keep it right.
    list_due: Option<Nanos>,
    lost: u64,
}

/// How the state of the list is known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Heard<'a> {
    /// The kernel told a change just now; of this network device, unless it is gone.
    Event(Option<&'a Link>),
    /// It was asked for, or is as it was.
    List,
}

/// Called after each change of the list.
type Changed<'c> = dyn FnMut(&Links, Heard<'_>) + 'c;

impl Monitor {
    pub(super) fn open() -> Self {
        let open = || {
            // The group first: what happens between the two is in the list, or told, or both.
            let events = KernelSocket::listen(NETLINK_ROUTE, &[GROUP_LINK])?;
            Ok((KernelSocket::open(NETLINK_ROUTE)?, events))
        };
        match open() {
            Ok((questions, events)) => Self::over(Box::new(questions), Box::new(events)),
            Err(error) => Self::without(&error),
        }
    }

    fn without(error: &io::Error) -> Self {
        Self { missing: Some(format!("rtnetlink cannot be used: {error}")), ..Self::empty() }
    }

    fn empty() -> Self {
        Self {
            questions: None,
            events: None,
            missing: None,
            links: Links::default(),
            datagram: Vec::new(),
            list_due: Some(0),
            lost: 0,
        }
    }

    pub(super) fn over(questions: Box<dyn Transport>, events: Box<dyn Transport>) -> Self {
        Self { questions: Some(Conversation::new(questions)), events: Some(events), ..Self::empty() }
    }

    /// From here on these events arrive.
    #[cfg(test)]
    pub(super) fn hear_instead(&mut self, events: Box<dyn Transport>) {
        self.events = Some(events);
    }

    /// Why no events are heard; `None` when they are.
    pub(super) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref()?.fd()
    }

    /// Times since the last call that events were lost.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Takes what arrived, without waiting, and asks for the list where that is due.
    pub(super) fn hear(&mut self, now: Nanos, changed: &mut Changed<'_>) {
        for _ in 0..EVENTS_PER_POLL {
            let Some(events) = &mut self.events else { return };
            match events.receive(&mut self.datagram) {
                // Before the list is known its state is newer than what is still waiting to be heard.
                Ok(()) if self.list_due.is_some() => {}
                Ok(()) => self.take_datagram(changed),
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                    self.lost += 1;
                    self.list_due = Some(now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    // A socket that fails stays readable: keeping it would wake the collector without end.
                    self.missing = Some(format!("the socket of link events failed: {error}"));
                    (self.events, self.questions) = (None, None);
                    return;
                }
            }
        }
        if self.list_due.is_some_and(|due| now >= due) {
            self.list(now);
        }
        changed(&self.links, Heard::List);
    }

    fn take_datagram(&mut self, changed: &mut Changed<'_>) {
        let mut rest = &self.datagram[..];
        while let Ok(message) = NetlinkBuffer::new_checked(rest) {
            let (kind, length) = (message.message_type(), message.length() as usize);
            if matches!(kind, NEW_LINK | DEL_LINK)
                && let Some(said) = link::read(kind, message.payload())
            {
                let link = if let Said::Is(_, link) = &said { Some(link.clone()) } else { None };
                self.links.take(said);
                changed(&self.links, Heard::Event(link.as_ref()));
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    fn list(&mut self, now: Nanos) {
        let Some(questions) = &mut self.questions else { return };
        let mut payload = vec![0; HEADER_BYTES];
        push(&mut payload, EXT_MASK.0, &EXT_MASK.1.to_ne_bytes());
        let mut links = Links::default();
        let answer = questions.dump(&Request { kind: GET_LINK, payload: &payload }, |payload| {
            if let Some(said) = link::read(NEW_LINK, payload) {
                links.take(said);
            }
        });
        match answer {
            Ok(answer) => {
                self.links = links;
                self.missing = None;
                // A list that changed while it was told may lack one.
                self.list_due = answer.interrupted.then_some(now);
            }
            Err(fault) => {
                self.missing = Some(format!("the list of network devices failed: {fault}"));
                self.list_due = Some(now.saturating_add(RETRY));
            }
        }
    }
}
