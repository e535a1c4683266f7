//! Datagrams as the kernel builds them, for tests of what no recorded dialogue shows.

pub(in crate::source) const MULTI: u16 = netlink_packet_core::NLM_F_MULTIPART;

use super::conversation::Request;
use super::stored::{Datagram, Exchange};

pub(in crate::source) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(value.len() + 4).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub(in crate::source) fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

pub(in crate::source) fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, format!("{value}\0").as_bytes())
}

pub(in crate::source) fn raw(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len() + 16).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The end of a dump: 0, or a negative errno.
pub(in crate::source) fn done(code: i32) -> Vec<u8> {
    raw(netlink_packet_core::NLMSG_DONE, MULTI, 1, &code.to_ne_bytes())
}

/// A refusal with a negative errno; it quotes the header it refuses.
pub(in crate::source) fn refusal(code: i32) -> Vec<u8> {
    raw(netlink_packet_core::NLMSG_ERROR, 0, 1, &[&code.to_ne_bytes()[..], &[0; 16]].concat())
}

/// A question and the datagrams that answer it.
pub(in crate::source) fn exchange(kind: u16, flags: u16, payload: &[u8], replies: Vec<Vec<u8>>) -> Exchange {
    let replies = replies.into_iter().map(Datagram).collect();
    Exchange { request: Request { kind, payload }.bytes(flags, 0), replies }
}

/// The number this module's dialogues give the family they are about.
pub(in crate::source) const FAMILY: u16 = 0x1d;

/// The list of families: the controller and one more, with one group of number 9.
pub(in crate::source) fn families(name: &str, group: &str) -> Exchange {
    let family = |name: &str, id: u16, groups: &[u8]| {
        let id = attribute(1, &id.to_ne_bytes());
        raw(16, MULTI, 1, &[&[1, 2, 0, 0], &text(2, name)[..], &id, groups].concat())
    };
    let group = attribute(0x8001, &[text(1, group), number(2, 9)].concat());
    let list = [family("nlctrl", 16, &[]), family(name, FAMILY, &attribute(0x8007, &group))].concat();
    exchange(16, netlink_packet_core::NLM_F_DUMP, &[3, 1, 0, 0], vec![list, done(0)])
}
