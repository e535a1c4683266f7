//! How long a packet was on its way, where both its ends are devices of this node.
//!
//! The rings of two devices hand over their blocks at different moments, so that a packet may be seen coming in before it
//! is seen going out. What was seen is therefore kept for [`HOLD_NS`] and looked at in the order of the kernel's times.
//!
//! A packet sent again has the number of the first one. Over IPv4 the identification tells the two apart; where it does
//! not, neither is measured: a time from the first sending to the second arrival would be no time on the way.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::frame::Packet;
use super::roll::Place;

/// How long a sighting is kept before it is looked at, ns: several times the ring's hand-over time.
pub(super) const HOLD_NS: u64 = 400_000_000;
/// A packet that has not arrived after this time is lost, ns.
const LOST_AFTER_NS: u64 = 2_000_000_000;
/// Sightings kept at once; beyond that they are left out.
const MOST_SIGHTINGS: usize = 1 << 18;
/// Packets on their way at once; beyond that the oldest are left out.
const MOST_ON_THE_WAY: usize = 1 << 16;

/// What makes a packet the same at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    dest_qpn: u32,
    psn: u32,
    opcode: u8,
    ip_id: u16,
}

impl Key {
    fn of(packet: &Packet) -> Self {
        Self {
            src: packet.src,
            dst: packet.dst,
            dest_qpn: packet.dest_qpn,
            psn: packet.psn,
            opcode: packet.opcode,
            ip_id: packet.ip_id,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Seen {
    Sent,
    Arrived { place: Place, ce: bool },
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    at_ns: u64,
    key: Key,
    seen: Seen,
}

/// A measured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    /// Where it arrived.
    pub(super) place: Place,
    /// It arrived with a mark.
    pub(super) ce: bool,
    pub(super) delay_ns: u64,
}

/// The packets between the devices of this node.
#[derive(Debug, Default)]
pub(super) struct Transit {
    sightings: Vec<Sighting>,
    /// When it was sent; `None` where several were sent that cannot be told apart.
    on_the_way: HashMap<Key, Option<u64>>,
    order: VecDeque<(u64, Key)>,
}

impl Transit {
    /// A packet went out.
    pub(super) fn sent(&mut self, at_ns: u64, packet: &Packet) {
        self.push(Sighting { at_ns, key: Key::of(packet), seen: Seen::Sent });
    }

    /// A packet came in.
    pub(super) fn arrived(&mut self, at_ns: u64, packet: &Packet, place: Place, ce: bool) {
        self.push(Sighting { at_ns, key: Key::of(packet), seen: Seen::Arrived { place, ce } });
    }

    fn push(&mut self, sighting: Sighting) {
        if self.sightings.len() < MOST_SIGHTINGS {
            self.sightings.push(sighting);
        }
    }

    /// Looks at everything seen before `until_ns`, in order.
    pub(super) fn settle(&mut self, until_ns: u64, mut measured: impl FnMut(Measured)) {
        let mut ready: Vec<Sighting> = self.sightings.extract_if(.., |seen| seen.at_ns < until_ns).collect();
        // A packet that went out and came in within one tick of the clock went out first.
        ready.sort_by_key(|sighting| (sighting.at_ns, matches!(sighting.seen, Seen::Arrived { .. })));
        for Sighting { at_ns, key, seen } in ready {
            self.forget(at_ns);
            match seen {
                Seen::Sent => {
                    let sent = self.on_the_way.contains_key(&key);
                    self.on_the_way.insert(key, if sent { None } else { Some(at_ns) });
                    self.order.push_back((at_ns, key));
                }
                Seen::Arrived { place, ce } => {
                    // One that cannot be told from another stays until it is old: its twin may still come.
                    if let Some(Some(sent_ns)) = self.on_the_way.get(&key).copied() {
                        self.on_the_way.remove(&key);
                        measured(Measured { place, ce, delay_ns: at_ns - sent_ns });
                    }
                }
            }
        }
    }

    /// Forgets what was sent too long ago.
    fn forget(&mut self, now_ns: u64) {
        while let Some((at_ns, key)) = self.order.front().copied() {
            if now_ns.saturating_sub(at_ns) < LOST_AFTER_NS && self.order.len() <= MOST_ON_THE_WAY {
                break;
            }
            self.order.pop_front();
            // Unless the key has been used again since.
            if self.on_the_way.get(&key).is_some_and(|sent| sent.is_none_or(|sent_ns| sent_ns == at_ns)) {
                self.on_the_way.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::packets::frame::parse;
    use crate::source::packets::frames::Frame;

    const AT: Place = Place { port: 1, qpn: 17 };

    fn packet(psn: u32, id: u16) -> Packet {
        parse(&Frame { id, psn, ..Frame::default() }.bytes()).unwrap()
    }

    fn settle(transit: &mut Transit) -> Vec<(bool, u64)> {
        let mut seen = Vec::new();
        transit.settle(u64::MAX, |measured| seen.push((measured.ce, measured.delay_ns)));
        seen
    }

    #[test]
    fn the_time_on_the_way_is_measured_in_whatever_order_the_rings_are_read() {
        let mut transit = Transit::default();
        for psn in [1, 2] {
            transit.arrived(u64::from(psn) * 1000 + 700, &packet(psn, 0), AT, psn == 2);
        }
        for psn in [1, 2] {
            transit.sent(u64::from(psn) * 1000, &packet(psn, 0));
        }
        assert_eq!(settle(&mut transit), [(false, 700), (true, 700)]);
        assert!(transit.on_the_way.is_empty());
    }

    #[test]
    fn what_came_lately_is_kept_until_the_other_ring_was_read_too() {
        let mut transit = Transit::default();
        transit.arrived(900, &packet(1, 0), AT, false);
        transit.settle(500, |_| panic!("nothing is old enough"));
        transit.sent(400, &packet(1, 0));
        assert_eq!(settle(&mut transit), [(false, 500)]);
    }

    #[test]
    fn a_packet_sent_again_is_told_apart_by_its_identification() {
        let mut transit = Transit::default();
        transit.sent(0, &packet(1, 40));
        transit.sent(1_000_000, &packet(1, 41));
        transit.arrived(1_000_300, &packet(1, 41), AT, false);
        assert_eq!(settle(&mut transit), [(false, 300)]);
    }

    #[test]
    fn packets_that_cannot_be_told_apart_are_not_measured() {
        let mut transit = Transit::default();
        transit.sent(0, &packet(1, 0));
        transit.sent(1_000_000, &packet(1, 0));
        transit.arrived(1_000_300, &packet(1, 0), AT, false);
        transit.arrived(1_000_400, &packet(1, 0), AT, false);
        assert_eq!(settle(&mut transit), []);
        // After both are old the number is as good as new: it comes around.
        transit.sent(5_000_000_000, &packet(1, 0));
        transit.arrived(5_000_000_200, &packet(1, 0), AT, true);
        assert_eq!(settle(&mut transit), [(true, 200)]);
    }

    #[test]
    fn a_packet_that_was_lost_is_forgotten_and_its_number_free_again() {
        let mut transit = Transit::default();
        transit.sent(0, &packet(1, 0));
        transit.sent(3_000_000_000, &packet(1, 0));
        transit.arrived(3_000_000_900, &packet(1, 0), AT, false);
        assert_eq!(settle(&mut transit), [(false, 900)]);
        assert!(transit.on_the_way.is_empty());
    }
}
