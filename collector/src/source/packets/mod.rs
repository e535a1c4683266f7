//! The packet source: RoCEv2 packets as they pass a network device. Off unless asked for.
//!
//! ```text
//! places   which ports there are, which network devices are looked at
//! ring     the kernel's ring of frames, one per network device    filter  what the kernel puts into it
//! block    the frames of a block of the ring                      frame   what the headers of one say
//! roll     which port and QP a packet is counted for              tally   what is counted, by its names
//! transit  time on the way between two devices of this node       round_trip  time from request to answer
//! budget   how many packets are looked at in a second
//! ```
//!
//! Packets of an adapter do not pass the kernel, so this sees software devices and mirror ports only. It changes
//! nothing: a packet socket takes copies, and only a device named as a mirror port is made promiscuous, as long as it is
//! looked at. Of a frame the first 128 bytes are copied, and no data of it is kept.
//!
//! Numbers are cumulative since the source started. Blocks are handed over after 100 ms, so the newest packets are in the
//! next reading.

mod block;
mod budget;
mod filter;
mod frame;
#[cfg(test)]
mod frames;
mod places;
mod ring;
mod roll;
mod round_trip;
mod tally;
#[cfg(test)]
mod tests;
mod transit;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use places::{Named, Watch};

use self::block::Captured;
use self::budget::Budget;
use self::places::{RocePort, Tap};
use self::ring::Ring;
use self::roll::Roll;
use self::tally::Way;
use super::files::Files;
use super::nldev::peers::Peers;
use super::sysfs::DeviceQuestion;
use super::{Availability, Emit, Missing, Source};
use crate::clock;
use crate::observation::{Body, CounterSource, Counters, Lost, Nanos, Observation, Pairs, Seeing};

/// The source's name.
pub const NAME: &str = "packets";

const SECOND: Nanos = 1_000_000_000;
/// Between two looks for network devices and addresses, ns; one second when a packet of an unknown address was seen.
const SCAN_PERIOD_NS: Nanos = 10 * SECOND;
/// Between two lists of QPs while there are packets of unknown ones, and otherwise, ns.
const LIST_PERIOD_NS: Nanos = SECOND;
const SLOW_LIST_PERIOD_NS: Nanos = 10 * SECOND;

/// What may be looked at in a second unless the operator says otherwise.
pub const DEFAULT_BUDGET: u32 = 100_000;

/// How the source is started.
pub struct PacketOptions {
    /// Which network devices.
    pub watch: Watch,
    /// Packets looked at in a second; what comes beyond is lost, and counted.
    pub per_second: u32,
    /// The `/sys` of this node.
    pub files: Arc<dyn Files>,
    /// The RDMA devices wanted.
    pub wanted: DeviceQuestion,
    /// Between two readings, ns.
    pub period_ns: Nanos,
}

/// A network device under watch.
struct Watched {
    tap: Tap,
    ring: Ring,
}

/// The packet source.
pub struct Packets {
    options: PacketOptions,
    watched: Vec<Watched>,
    /// Network devices that could not be opened, and why.
    refused: Vec<(Tap, Missing)>,
    missing: Vec<Missing>,
    count: Count,
    peers: Peers,
    budget: Budget,
    lost: u64,
    lost_ever: u64,
    due: Nanos,
    scan_due: Nanos,
    list_due: Nanos,
    slow_list_due: Nanos,
}

/// Everything counted, and what it takes to count it.
#[derive(Default)]
struct Count {
    /// Every port ever seen; its position is its number in the roll.
    ports: Vec<RocePort>,
    /// Which ports have a ring of their own, by position.
    tapped: Vec<bool>,
    /// Packets were looked for at this port, by position: what is told of it is not "unknown".
    told: Vec<bool>,
    addresses: HashMap<IpAddr, usize>,
    roll: Roll,
    packets: u64,
    /// Packets of no address of this node.
    foreign: u64,
    new_foreign: bool,
}

impl Packets {
    /// Opens what there is. Never fails: what cannot be seen is in [`Source::availability`].
    #[must_use]
    pub fn start(options: PacketOptions) -> Self {
        let mut packets = Self {
            budget: Budget::new(options.per_second),
            options,
            watched: Vec::new(),
            refused: Vec::new(),
            missing: Vec::new(),
            count: Count::default(),
            peers: Peers::open(),
            lost: 0,
            lost_ever: 0,
            due: 0,
            scan_due: 0,
            list_due: 0,
            slow_list_due: 0,
        };
        packets.scan();
        packets
    }

    /// Looks for ports and network devices; opens what is new, closes what is gone.
    fn scan(&mut self) {
        let (files, wanted) = (&*self.options.files, &*self.options.wanted);
        let ports = places::ports(files, wanted);
        let (mut taps, missing) = places::taps(files, &ports, &self.options.watch);
        let numbers = self.count.know(ports);
        for tap in &mut taps {
            tap.port = tap.port.map(|port| numbers[port]);
        }
        let lost = &mut self.lost;
        self.watched.retain(|watched| {
            let stays = taps.contains(&watched.tap);
            if !stays {
                *lost += watched.ring.take_drops();
            }
            stays
        });
        self.refused.clear();
        for tap in taps {
            if self.watched.iter().any(|watched| watched.tap == tap) {
                continue;
            }
            match Ring::open(tap.ifindex, tap.mirror) {
                Ok(ring) => self.watched.push(Watched { tap, ring }),
                Err(error) => {
                    let missing = refusal(&tap.netdev, &error);
                    self.refused.push((tap, missing));
                }
            }
        }
        self.missing = missing;
        self.count.tap(self.watched.iter().map(|watched| &watched.tap));
    }

    /// Takes what the rings hold, as far as the budget goes.
    fn drain(&mut self, now: Nanos) {
        let (count, budget) = (&mut self.count, &mut self.budget);
        for Watched { tap, ring } in &mut self.watched {
            // A device that was set down and up again goes on by itself.
            ring.take_error();
            while budget.allows(now) {
                let before = count.packets;
                if !ring.read_block(|captured| count.take(tap, &captured)) {
                    break;
                }
                budget.spend(count.packets - before);
            }
        }
    }

    /// Asks which QPs talk to which, where packets go out that nobody is known to have sent.
    fn list(&mut self, now: Nanos) {
        if now < self.list_due {
            return;
        }
        let all = now >= self.slow_list_due;
        for (number, port) in self.count.ports.iter().enumerate() {
            // Never an adapter's: there every QP of the list costs its firmware a command.
            if !port.software || !self.count.told[number] || !(all || self.count.roll.wants_list(number)) {
                continue;
            }
            self.list_due = now + LIST_PERIOD_NS;
            if let Some(list) = self.peers.of(&port.device) {
                self.count.roll.know(number, &list);
            }
        }
        if all {
            self.slow_list_due = now + SLOW_LIST_PERIOD_NS;
        }
    }

    fn tell(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let now_ns = clock::unix_ns();
        self.count.roll.settle(now_ns.saturating_sub(transit::HOLD_NS));
        self.count.tell(now, now_ns, emit);
        let lost = &mut self.lost;
        *lost += self.watched.iter().map(|watched| watched.ring.take_drops()).sum::<u64>();
        if *lost > 0 {
            self.lost_ever = self.lost_ever.saturating_add(*lost);
            emit(&Observation { t: now, body: Body::Lost(Lost { source: NAME.into(), n: std::mem::take(lost) }) });
        }
    }
}

impl Count {
    /// Takes the ports as they are now; returns the number of each.
    fn know(&mut self, ports: Vec<RocePort>) -> Vec<usize> {
        for port in &mut self.ports {
            port.addresses.clear();
        }
        let numbers = ports
            .into_iter()
            .map(|port| {
                let known = self.ports.iter().position(|old| old.device == port.device && old.port == port.port);
                let number = known.unwrap_or(self.ports.len());
                if number == self.ports.len() {
                    self.ports.push(port);
                } else {
                    self.ports[number] = port;
                }
                number
            })
            .collect();
        self.addresses = self
            .ports
            .iter()
            .enumerate()
            .flat_map(|(number, port)| port.addresses.iter().map(move |address| (*address, number)))
            .collect();
        self.roll.grow(self.ports.len());
        self.told.resize(self.ports.len(), false);
        numbers
    }

    /// These are the network devices looked at.
    fn tap<'t>(&mut self, taps: impl Iterator<Item = &'t Tap>) {
        self.tapped = vec![false; self.ports.len()];
        for tap in taps {
            match tap.port {
                Some(port) => (self.tapped[port], self.told[port]) = (true, true),
                // A mirror port may show any of them.
                None => self.told.fill(true),
            }
        }
    }

    /// Counts one frame.
    fn take(&mut self, tap: &Tap, captured: &Captured<'_>) {
        self.packets += 1;
        let Some(packet) = frame::parse(captured.frame) else { return };
        let of = |address: &IpAddr| self.addresses.get(address).copied();
        let (src, dst) = (of(&packet.src), of(&packet.dst));
        let at_ns = captured.at_ns;
        let mut mine = false;
        match tap.port {
            Some(port) => {
                let (way, own, other) = if captured.outgoing { (Way::Tx, src, dst) } else { (Way::Rx, dst, src) };
                // A datagram to a group has no address of this port.
                if own == Some(port) || (way == Way::Rx && packet.dst.is_multicast()) {
                    let both_ends = other.is_some_and(|other| self.tapped[other]);
                    self.roll.take(port, way, &packet, at_ns, both_ends);
                    mine = true;
                }
            }
            // Seen at one point only, so nothing is measured between two ends.
            None => {
                for (port, way) in [(src, Way::Tx), (dst, Way::Rx)] {
                    if let Some(port) = port.filter(|port| !self.tapped[*port]) {
                        self.roll.take(port, way, &packet, at_ns, false);
                        mine = true;
                    }
                }
            }
        }
        if !mine {
            self.foreign += 1;
            self.new_foreign = true;
        }
    }

    /// Emits the numbers of every port looked at and of its QPs.
    fn tell(&self, now: Nanos, now_ns: u64, emit: &mut Emit<'_>) {
        for (number, port) in self.ports.iter().enumerate().filter(|(number, _)| self.told[*number]) {
            let set = |qpn: Option<u32>, values: Pairs<'static, u64>| Counters {
                device: port.device.as_str().into(),
                port: Some(port.port),
                source: CounterSource::Packets,
                qpn,
                values,
                ..Counters::default()
            };
            if port.addresses.is_empty() {
                // The device is gone, or has no address any more.
                continue;
            }
            if let Some(tally) = self.roll.port(number) {
                emit(&Observation { t: now, body: Body::Counters(set(None, tally.values_with_classes())) });
            }
            for (qpn, tally) in self.roll.qps_of(number, now_ns) {
                emit(&Observation { t: now, body: Body::Counters(set(Some(qpn), tally.values())) });
            }
        }
    }
}

/// Why a network device could not be looked at, and what to do.
fn refusal(netdev: &str, error: &io::Error) -> Missing {
    let (reason, fix) = match error.raw_os_error() {
        Some(libc::EPERM) => {
            ("packet sockets need CAP_NET_RAW".to_owned(), Some("run it as root, or with CAP_NET_RAW"))
        }
        Some(libc::EAFNOSUPPORT) => ("the kernel has no packet sockets (CONFIG_PACKET)".to_owned(), None),
        _ => (error.to_string(), None),
    };
    places::unseen(netdev, reason, fix)
}

impl Source for Packets {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        let mut missing = self.missing.clone();
        missing.extend(self.refused.iter().map(|(_, missing)| missing.clone()));
        let mut gap = |what: &str, reason: String, fix: Option<&str>| {
            missing.push(Missing { what: what.to_owned(), reason, fix: fix.map(str::to_owned) });
        };
        // No number that grows: a reason is told anew whenever it changes.
        if self.lost_ever > 0 && self.budget.was_exceeded() {
            let reason = format!("there were more than {} in a second", self.options.per_second);
            gap("some packets", reason, Some("a higher --packet-budget"));
        } else if self.lost_ever > 0 {
            gap("some packets", "they came faster than they were read".to_owned(), None);
        }
        if self.count.roll.unfollowed() > 0 {
            let reason = "too many of them, or their peer is not in the kernel's list: only their port counts them";
            gap("packets of some QPs", reason.to_owned(), None);
        }
        let netdevs: Vec<&str> = self.watched.iter().map(|watched| watched.tap.netdev.as_str()).collect();
        let state = match (netdevs.is_empty(), missing.is_empty()) {
            (true, _) => Seeing::Off,
            (false, true) => Seeing::Ok,
            (false, false) => Seeing::Partial,
        };
        if netdevs.is_empty() && missing.is_empty() {
            let reason = "there is no software RDMA device with RoCE".to_owned();
            missing.push(Missing { what: "everything".to_owned(), reason, fix: None });
        }
        let mut sees = match netdevs.as_slice() {
            [] => "nothing".to_owned(),
            netdevs => {
                let (on, qps, packets) = (netdevs.join(", "), self.count.roll.qps(), self.count.packets);
                format!("RoCE packets on {on}: {packets} seen, {qps} QPs")
            }
        };
        for (n, what) in [(self.lost_ever, "lost"), (self.count.foreign, "of no address of this node")] {
            if n > 0 {
                sees.push_str(&format!(", {n} {what}"));
            }
        }
        Availability { name: NAME, state, sees, missing }
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn set_interval(&mut self, interval_ns: u64) {
        self.options.period_ns = interval_ns;
        self.due = 0;
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.drain(now);
        if now < self.due {
            return;
        }
        let hurry = std::mem::take(&mut self.count.new_foreign);
        if now >= self.scan_due || (hurry && now + SCAN_PERIOD_NS >= self.scan_due + SECOND) {
            self.scan_due = now + SCAN_PERIOD_NS;
            self.scan();
        }
        self.list(now);
        self.tell(now, emit);
        let period = self.options.period_ns.max(1);
        self.due = if self.due + period > now { self.due + period } else { now + period };
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        // With nothing left of the budget a full ring would wake it for ever.
        if self.budget.is_spent() && clock::monotonic_ns() < self.budget.renewed_at() {
            return Vec::new();
        }
        self.watched.iter().map(|watched| watched.ring.fd()).collect()
    }
}
