//! One frame: what its Ethernet, IP, UDP and base transport headers say.
//!
//! Layouts: IEEE 802.1Q tags, RFC 791, RFC 8200, RFC 768; the base transport header (BTH) and the opcodes are those of
//! the InfiniBand Architecture 9.2 and 9.4, carried over UDP port 4791 by RoCEv2 (its Annex A17). A fragment that is not
//! the first has no UDP header and is no packet here; extension headers of IPv6 are not followed: RoCEv2 uses none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The UDP destination port of RoCEv2.
pub(super) const ROCE_PORT: u16 = 4791;
/// Bytes of a frame that are looked at: Ethernet with two tags, the longest IPv4 header, UDP, BTH and 8 bytes more.
pub(super) const SNAP_BYTES: u32 = 128;

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const TAGS: [u16; 2] = [0x8100, 0x88a8];
pub(super) const ETHERNET_BYTES: usize = 14;
pub(super) const IPV6_BYTES: usize = 40;
const TAG_BYTES: usize = 4;
const UDP_BYTES: usize = 8;
const BTH_BYTES: usize = 12;
pub(super) const UDP: u8 = 17;

/// The congestion notification packet (RoCEv2, Annex A17.9.3).
pub(super) const CNP: u8 = 0x81;
/// The two opcodes of the reliable connection that are nothing but an acknowledgement.
const ACKNOWLEDGE: u8 = 0x11;
const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
/// Read responses, first to only.
const READ_RESPONSES: std::ops::RangeInclusive<u8> = 0x0d..=0x10;

/// The ECN field of the IP header (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ecn {
    /// 00: the sender does not take part.
    NotEct,
    /// 01.
    Ect1,
    /// 10.
    Ect0,
    /// 11: a queue on the way marked it.
    Ce,
}

/// What is kept of one RoCEv2 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    /// Length of the IP packet with its header, bytes.
    pub(super) ip_bytes: u32,
    /// Identification of IPv4; 0 for IPv6.
    pub(super) ip_id: u16,
    /// 0–63.
    pub(super) dscp: u8,
    pub(super) ecn: Ecn,
    pub(super) opcode: u8,
    /// 24 bits.
    pub(super) dest_qpn: u32,
    /// 24 bits.
    pub(super) psn: u32,
    /// The sender wants an acknowledgement of this packet.
    pub(super) ack_request: bool,
    pub(super) fecn: bool,
    pub(super) becn: bool,
    /// The sending QP, which only datagrams name.
    pub(super) src_qpn: Option<u32>,
    /// Syndrome of the acknowledgement, for responses of a reliable connection that carry one.
    pub(super) syndrome: Option<u8>,
}

impl Packet {
    /// A congestion notification packet; everything else counts as data here, acknowledgements too.
    pub(super) fn is_cnp(&self) -> bool {
        self.opcode == CNP
    }

    /// Nothing but an acknowledgement.
    pub(super) fn is_ack(&self) -> bool {
        matches!(self.opcode, ACKNOWLEDGE | ATOMIC_ACKNOWLEDGE)
    }

    /// A response of a reliable connection: it travels from the responder back to the requester.
    pub(super) fn is_response(&self) -> bool {
        self.is_ack() || READ_RESPONSES.contains(&self.opcode)
    }

    /// A positive acknowledgement or response: syndrome 000xxxxx (IBA table 45), or none as in a read's middle.
    pub(super) fn acknowledges(&self) -> bool {
        self.is_response() && self.syndrome.is_none_or(|syndrome| syndrome >> 5 == 0)
    }

    /// A request of a reliable connection that is answered by a packet of the same number: one that asks for an
    /// acknowledgement, a read (0x0c) or an atomic operation (0x13, 0x14).
    pub(super) fn wants_response(&self) -> bool {
        matches!(self.opcode, 0x0c | 0x13 | 0x14) || (self.opcode < 0x20 && !self.is_response() && self.ack_request)
    }

    /// A request of a reliable connection, which has a place in the order of its sender's packets.
    pub(super) fn is_request(&self) -> bool {
        self.opcode < 0x20 && !self.is_response()
    }
}

/// The RoCEv2 packet in an Ethernet frame, or in the first [`SNAP_BYTES`] of one; `None` when it holds none.
pub(super) fn parse(frame: &[u8]) -> Option<Packet> {
    let mut at = ETHERNET_BYTES;
    let mut kind = be16(frame, at - 2)?;
    for _ in 0..2 {
        if !TAGS.contains(&kind) {
            break;
        }
        kind = be16(frame, at + 2)?;
        at += TAG_BYTES;
    }
    let ip = frame.get(at..)?;
    match kind {
        IPV4 => ipv4(ip),
        IPV6 => ipv6(ip),
        _ => None,
    }
}

fn ipv4(ip: &[u8]) -> Option<Packet> {
    let header = usize::from(ip.first()? & 0xf) * 4;
    let fragment = be16(ip, 6)? & 0x1fff;
    if ip[0] >> 4 != 4 || header < 20 || fragment != 0 || *ip.get(9)? != UDP {
        return None;
    }
    let address = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?)));
    let packet = transport(ip.get(header..)?)?;
    let (dscp, ecn) = class(*ip.get(1)?);
    let ip_bytes = u32::from(be16(ip, 2)?);
    Some(Packet { src: address(12)?, dst: address(16)?, ip_bytes, ip_id: be16(ip, 4)?, dscp, ecn, ..packet })
}

fn ipv6(ip: &[u8]) -> Option<Packet> {
    if ip.first()? >> 4 != 6 || *ip.get(6)? != UDP {
        return None;
    }
    let address = |at: usize| Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?)));
    let packet = transport(ip.get(IPV6_BYTES..)?)?;
    let traffic_class = be16(ip, 0)? >> 4 & 0xff;
    let (dscp, ecn) = class(traffic_class.to_be_bytes()[1]);
    let ip_bytes = u32::from(be16(ip, 4)?) + u32::try_from(IPV6_BYTES).unwrap_or(0);
    Some(Packet { src: address(8)?, dst: address(24)?, ip_bytes, dscp, ecn, ..packet })
}

/// DSCP and ECN of the second byte of IPv4, or the traffic class of IPv6.
fn class(byte: u8) -> (u8, Ecn) {
    let ecn = match byte & 3 {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    };
    (byte >> 2, ecn)
}

/// UDP and BTH; the fields of IP are filled in by the caller.
fn transport(udp: &[u8]) -> Option<Packet> {
    if be16(udp, 2)? != ROCE_PORT {
        return None;
    }
    let bth = udp.get(UDP_BYTES..)?;
    let opcode = *bth.first()?;
    let congestion = *bth.get(4)?;
    let after = bth.get(BTH_BYTES..)?;
    let is_datagram = opcode >> 5 == 3;
    let has_aeth = matches!(opcode, 0x0d | 0x0f | 0x10 | ACKNOWLEDGE | ATOMIC_ACKNOWLEDGE);
    Some(Packet {
        src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ip_bytes: 0,
        ip_id: 0,
        dscp: 0,
        ecn: Ecn::NotEct,
        opcode,
        dest_qpn: be24(bth, 5)?,
        psn: be24(bth, 9)?,
        ack_request: bth.get(8)? & 0x80 != 0,
        fecn: congestion & 0x80 != 0,
        becn: congestion & 0x40 != 0,
        src_qpn: if is_datagram { be24(after, 5) } else { None },
        syndrome: if has_aeth { after.first().copied() } else { None },
    })
}

pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be24(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 3)?;
    Some(u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::packets::frames::{Frame, TX_OF_RXE};

    #[test]
    fn a_frame_of_the_software_driver_is_read_field_by_field() {
        let packet = parse(TX_OF_RXE).expect("a RoCEv2 packet");
        assert_eq!(packet.src, IpAddr::from([10, 0, 1, 1]));
        assert_eq!(packet.dst, IpAddr::from([10, 0, 2, 1]));
        assert_eq!((packet.dscp, packet.ecn, packet.ip_id), (26, Ecn::Ect0, 0x1c46));
        assert_eq!((packet.opcode, packet.dest_qpn, packet.psn), (0x0a, 17, 0xf123));
        assert_eq!((packet.ip_bytes, packet.ack_request), (1084, true));
        assert!(packet.is_request() && packet.wants_response() && !packet.is_cnp() && !packet.fecn && !packet.becn);
    }

    #[test]
    fn tags_options_and_the_newer_protocol_change_the_place_not_the_content() {
        let plain = Frame::default();
        let expected = parse(&plain.bytes()).expect("a packet");
        for frame in [
            Frame { tags: 1, ..plain.clone() },
            Frame { tags: 2, ..plain.clone() },
            Frame { options: 10, ..plain.clone() },
        ] {
            let packet = parse(&frame.bytes()).expect("a packet");
            assert_eq!(Packet { ip_bytes: expected.ip_bytes, ..packet }, expected, "{frame:?}");
        }
        let frame = Frame { v6: true, ..plain };
        let packet = parse(&frame.bytes()).expect("a packet");
        assert!(packet.src.is_ipv6());
        assert_eq!((packet.dscp, packet.ecn, packet.psn), (expected.dscp, expected.ecn, expected.psn));
        assert_eq!(packet.ip_bytes, expected.ip_bytes + 20);
    }

    #[test]
    fn what_is_no_first_fragment_of_udp_to_the_port_is_no_packet() {
        let plain = Frame::default();
        assert!(parse(&Frame { port: 53, ..plain.clone() }.bytes()).is_none());
        assert!(parse(&Frame { fragment: 185, ..plain.clone() }.bytes()).is_none());
        assert!(parse(&Frame { protocol: 6, ..plain.clone() }.bytes()).is_none());
        assert!(parse(&Frame { tags: 3, ..plain.clone() }.bytes()).is_none());
        let bytes = plain.bytes();
        assert!((0..54).all(|cut| parse(&bytes[..cut]).is_none()), "a frame that ends inside the BTH");
    }

    #[test]
    fn a_datagram_names_its_sender_and_a_response_its_syndrome() {
        let datagram =
            parse(&Frame { opcode: 0x64, after: [0x80, 1, 0, 0, 0, 0, 0x12, 0x34], ..Frame::default() }.bytes());
        assert_eq!(datagram.and_then(|packet| packet.src_qpn), Some(0x1234));
        let ack = |syndrome: u8| {
            parse(&Frame { opcode: 0x11, after: [syndrome, 0, 0, 1, 0, 0, 0, 0], ..Frame::default() }.bytes()).unwrap()
        };
        assert!(ack(0x1f).acknowledges() && !ack(0x20).acknowledges() && !ack(0x60).acknowledges());
        let cnp = parse(&Frame { opcode: CNP, becn: true, ..Frame::default() }.bytes()).unwrap();
        assert!(cnp.is_cnp() && cnp.becn && !cnp.is_request());
    }

    proptest! {
        #[test]
        fn no_frame_panics(frame in prop::collection::vec(any::<u8>(), 0..160)) {
            let _ = parse(&frame);
        }

        #[test]
        fn no_damaged_packet_panics(at in 0usize..120, byte: u8, cut in 0usize..140, v6: bool, tags in 0u8..3) {
            let mut bytes = Frame { v6, tags, ..Frame::default() }.bytes();
            bytes.truncate(cut);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            let _ = parse(&bytes);
        }
    }
}
