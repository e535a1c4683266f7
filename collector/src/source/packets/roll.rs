//! The roll of ports and QPs, and which of them a packet is counted for.
//!
//! A packet names the QP it goes to. That is this node's QP for a packet that comes in; for one that goes out it is the
//! peer's, and which of this node's QPs talks to that one the kernel's list of QPs tells (a datagram names its sender).
//! What went out before the list told is kept and added then.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::frame::{Ecn, Packet};
use super::round_trip::RoundTrips;
use super::tally::{Direction, Tally, Way};
use super::transit::{Measured, Transit};
use crate::source::nldev::peers::Connected;

/// QPs followed at once. Each costs some 1.2 KiB here and a set of counters in the engine.
const MOST_QPS: usize = 128;
/// A QP without a packet for this long makes room for another, ns.
const IDLE_NS: u64 = 60_000_000_000;
/// A QP is told of for so long after its last packet, ns: its rates fall to 0 instead of becoming unknown at once.
const TOLD_NS: u64 = 5_000_000_000;
/// Peers whose QP here is not known yet.
const MOST_UNKNOWN: usize = 256;
/// QPs that made room. Their counts are gone, so they are not followed again: they would begin at 0.
const MOST_FORMER: usize = 1 << 16;

/// A QP of a port, by the port's number in the roll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) port: usize,
    pub(super) qpn: u32,
}

/// How a delay was measured. A port's sums hold one kind: the first it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Transit,
    RoundTrip,
}

#[derive(Debug, Default)]
struct Port {
    tally: Tally,
    kind: Option<Kind>,
    /// Which QP here talks to a QP number elsewhere; `None` where several do.
    peers: HashMap<u32, Option<u32>>,
    /// What went to QPs whose peer here is not known.
    unknown: HashMap<u32, Direction>,
    /// There is one that the newest list could tell of.
    unlisted: bool,
}

#[derive(Debug, Default)]
struct Qp {
    tally: Tally,
    marked: bool,
    last_ns: u64,
    trips: RoundTrips,
}

/// Everything counted.
#[derive(Debug, Default)]
pub(super) struct Roll {
    ports: Vec<Port>,
    qps: BTreeMap<Place, Qp>,
    former: HashSet<Place>,
    transit: Transit,
    /// The newest time of a packet, ns.
    newest_ns: u64,
    /// Packets of QPs that are not followed.
    unfollowed: u64,
}

impl Roll {
    /// There are at least so many ports.
    pub(super) fn grow(&mut self, ports: usize) {
        self.ports.resize_with(ports.max(self.ports.len()), Port::default);
    }

    /// QPs followed now.
    pub(super) fn qps(&self) -> usize {
        self.qps.len()
    }

    /// Packets of QPs that are not followed; they are in their port's numbers.
    pub(super) fn unfollowed(&self) -> u64 {
        self.unfollowed
    }

    /// Counts a packet of a port. `both_ends`: its other end is on this node too, and seen.
    pub(super) fn take(&mut self, port: usize, way: Way, packet: &Packet, at_ns: u64, both_ends: bool) {
        let Some(record) = self.ports.get_mut(port) else { return };
        self.newest_ns = self.newest_ns.max(at_ns);
        record.tally.add(way, packet);
        match way {
            Way::Rx => self.arrived(Place { port, qpn: packet.dest_qpn }, packet, at_ns, both_ends),
            Way::Tx => self.sent(port, packet, at_ns, both_ends),
        }
    }

    fn arrived(&mut self, place: Place, packet: &Packet, at_ns: u64, both_ends: bool) {
        let ce = packet.ecn == Ecn::Ce;
        if both_ends && !packet.is_cnp() {
            self.transit.arrived(at_ns, packet, place, ce);
        }
        let Some(qp) = self.follow(place, at_ns) else { return };
        qp.tally.add(Way::Rx, packet);
        if packet.is_cnp() {
            qp.trips.notified(at_ns);
            return;
        }
        let after_ce = std::mem::replace(&mut qp.marked, ce);
        let waited = if packet.acknowledges() && !both_ends { qp.trips.answered(packet.psn, at_ns, ce) } else { None };
        if ce {
            let of_port = self.ports.get_mut(place.port).map(|port| &mut port.tally);
            let of_qp = self.qps.get_mut(&place).map(|qp| &mut qp.tally);
            for tally in of_port.into_iter().chain(of_qp) {
                if after_ce { tally.ce_after_ce += 1 } else { tally.ce_runs += 1 }
            }
        }
        if let Some((ce, delay_ns)) = waited {
            self.add_delay(Kind::RoundTrip, Measured { place, ce, delay_ns });
        }
    }

    fn sent(&mut self, port: usize, packet: &Packet, at_ns: u64, both_ends: bool) {
        if both_ends && !packet.is_cnp() {
            self.transit.sent(at_ns, packet);
        }
        let record = &mut self.ports[port];
        let known = match packet.src_qpn {
            Some(qpn) => Some(Some(qpn)),
            None => record.peers.get(&packet.dest_qpn).copied(),
        };
        match known {
            Some(Some(qpn)) => {
                let Some(qp) = self.follow(Place { port, qpn }, at_ns) else { return };
                qp.tally.add(Way::Tx, packet);
                if packet.is_request() && !both_ends {
                    qp.trips.sent(packet.psn, at_ns, packet.wants_response());
                }
            }
            Some(None) => self.unfollowed += 1,
            None => {
                record.unlisted = true;
                if record.unknown.len() < MOST_UNKNOWN || record.unknown.contains_key(&packet.dest_qpn) {
                    record.unknown.entry(packet.dest_qpn).or_default().add(packet);
                } else {
                    self.unfollowed += 1;
                }
            }
        }
    }

    /// The QP's record, made now if there is room.
    fn follow(&mut self, place: Place, at_ns: u64) -> Option<&mut Qp> {
        if !self.qps.contains_key(&place) && !self.make_room(place, at_ns) {
            self.unfollowed += 1;
            return None;
        }
        let qp = self.qps.entry(place).or_default();
        qp.last_ns = qp.last_ns.max(at_ns);
        Some(qp)
    }

    fn make_room(&mut self, place: Place, at_ns: u64) -> bool {
        if self.former.contains(&place) {
            return false;
        }
        if self.qps.len() < MOST_QPS {
            return true;
        }
        let idle = self.qps.iter().min_by_key(|(_, qp)| qp.last_ns).map(|(place, qp)| (*place, qp.last_ns));
        let Some((idle, _)) = idle.filter(|(_, last_ns)| at_ns.saturating_sub(*last_ns) >= IDLE_NS) else {
            return false;
        };
        if self.former.len() >= MOST_FORMER {
            return false;
        }
        self.qps.remove(&idle);
        self.former.insert(idle)
    }

    /// The port has sent to QPs that the list of its QPs has not told of.
    pub(super) fn wants_list(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(|port| port.unlisted)
    }

    /// What the list of a port's QPs says now.
    pub(super) fn know(&mut self, port: usize, list: &[Connected]) {
        let Some(record) = self.ports.get_mut(port) else { return };
        record.unlisted = false;
        record.peers.clear();
        for connected in list {
            record
                .peers
                .entry(connected.remote_qpn)
                .and_modify(|known| *known = known.filter(|qpn| *qpn == connected.qpn))
                .or_insert(Some(connected.qpn));
        }
        let peers = &record.peers;
        let told: Vec<(Option<u32>, Direction)> = record
            .unknown
            .extract_if(|remote, _| peers.contains_key(remote))
            .map(|(remote, direction)| (peers.get(&remote).copied().flatten(), direction))
            .collect();
        let newest_ns = self.newest_ns;
        for (qpn, direction) in told {
            if let Some(qpn) = qpn
                && let Some(qp) = self.follow(Place { port, qpn }, newest_ns)
            {
                qp.tally.tx.merge(&direction);
            }
        }
    }

    /// Measures what can be measured of the packets seen before `until_ns`.
    pub(super) fn settle(&mut self, until_ns: u64) {
        let mut all = Vec::new();
        self.transit.settle(until_ns, |measured| all.push(measured));
        for measured in all {
            self.add_delay(Kind::Transit, measured);
        }
    }

    fn add_delay(&mut self, kind: Kind, measured: Measured) {
        let Measured { place, ce, delay_ns } = measured;
        if let Some(qp) = self.qps.get_mut(&place) {
            qp.tally.delays.add(ce, delay_ns);
        }
        if let Some(port) = self.ports.get_mut(place.port)
            && *port.kind.get_or_insert(kind) == kind
        {
            port.tally.delays.add(ce, delay_ns);
        }
    }

    /// The numbers of a port.
    pub(super) fn port(&self, port: usize) -> Option<&Tally> {
        self.ports.get(port).map(|port| &port.tally)
    }

    /// The numbers of a port's QPs that had packets lately.
    pub(super) fn qps_of(&self, port: usize, now_ns: u64) -> impl Iterator<Item = (u32, &Tally)> {
        let places = Place { port, qpn: 0 }..=Place { port, qpn: u32::MAX };
        let lately = move |qp: &Qp| now_ns.saturating_sub(qp.last_ns) < TOLD_NS;
        self.qps.range(places).filter(move |(_, qp)| lately(qp)).map(|(place, qp)| (place.qpn, &qp.tally))
    }
}
