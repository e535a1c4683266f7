//! The netdev source: bonds at the moment they change, and the carrier counts of the RDMA ports' network devices.
//!
//! ```text
//! link      what rtnetlink says of a network device, and the bonds that follow
//! monitor   its list and its events
//! carrier   carrier counts, from sysfs
//! ```
//!
//! A bond that changes its active slave moves the traffic of an RDMA port to another cable; the kernel says it in an
//! event, and it is emitted then, not at the next look. Only bonds of RDMA ports are emitted: a bond that is a port's
//! network device, or has one as its slave. Carrier counts tell a flap that is over before anybody looks.

mod carrier;
mod link;
mod monitor;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::carrier::Carrier;
use self::monitor::{Heard, Monitor};
use super::files::Files;
use super::ports::{PortMap, RdmaPort};
use super::{Availability, Emit, Missing, Source};
use crate::observation::{Body, Bond, Lost, Nanos, Observation, Seeing};

/// The source's name.
pub const NAME: &str = "netdev";

/// The shortest period of the carrier counts, ns: what changes in between is told by events.
const PERIOD: Nanos = 1_000_000_000;

/// Reads bonds and carrier counts.
pub struct Netdev {
    files: Arc<dyn Files>,
    ports: PortMap,
    known: Arc<[RdmaPort]>,
    carriers: Vec<Carrier>,
    /// `None` for a tree that is not this node's.
    monitor: Option<Monitor>,
    /// Shared with the sysfs source, which says the bonds where this one does not.
    says_bonds: Arc<AtomicBool>,
    bonds: Vec<Bond<'static>>,
    period: Nanos,
    due: Nanos,
}

impl Netdev {
    /// A source for this node's network devices. It never fails: what cannot work is in its availability.
    #[must_use]
    pub fn start(files: Arc<dyn Files>, ports: PortMap, period: Nanos) -> Self {
        Self::over(files, ports, Some(Monitor::open()), period)
    }

    /// A source for a tree: the carrier counts alone. The bonds are the sysfs source's there.
    #[must_use]
    pub fn of_tree(files: Arc<dyn Files>, ports: PortMap, period: Nanos) -> Self {
        Self::over(files, ports, None, period)
    }

    fn over(files: Arc<dyn Files>, ports: PortMap, monitor: Option<Monitor>, period: Nanos) -> Self {
        let source = Self {
            files,
            ports,
            known: Arc::default(),
            carriers: Vec::new(),
            monitor,
            says_bonds: Arc::default(),
            bonds: Vec::new(),
            period: period.max(PERIOD),
            due: 0,
        };
        source.tell_sysfs();
        source
    }

    /// Whether the bonds are said here; for the sysfs source, which says them otherwise.
    #[must_use]
    pub fn says_bonds(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.says_bonds)
    }

    /// Goes on in another tree of the same machine, taken later.
    pub fn look_at(&mut self, files: Arc<dyn Files>) {
        self.files = files;
        self.known = Arc::default();
        self.carriers.clear();
        self.due = 0;
    }

    fn tell_sysfs(&self) {
        let works = self.monitor.as_ref().is_some_and(|monitor| monitor.missing().is_none());
        self.says_bonds.store(works, Ordering::Relaxed);
    }

    /// Follows the ports.
    fn follow(&mut self) {
        let ports = self.ports.now();
        if Arc::ptr_eq(&ports, &self.known) {
            return;
        }
        self.carriers.clear();
        for port in &*ports {
            for netdev in &port.netdevs {
                if !self.carriers.iter().any(|carrier| carrier.netdev == *netdev) {
                    self.carriers.push(Carrier::new(netdev, port));
                }
            }
        }
        self.known = ports;
    }

    /// Takes what the kernel said, each word by itself: a bond that changed twice is emitted twice.
    fn hear(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let Some(mut monitor) = self.monitor.take() else { return };
        monitor.hear(now, &mut |links, heard| {
            self.say_bonds(links, matches!(heard, Heard::Event(_)), now, emit);
            if let Heard::Event(Some(link)) = heard
                && let Some(carrier) = self.carriers.iter_mut().find(|carrier| carrier.netdev == link.name)
            {
                carrier.hear(&link.counts, now, emit);
            }
        });
        let lost = monitor.take_lost();
        self.monitor = Some(monitor);
        if lost > 0 {
            emit(&Observation { t: now, body: Body::Lost(Lost { source: NAME.into(), n: lost }) });
        }
        self.tell_sysfs();
    }

    /// Emits the bonds that are not as they were said last; `told` is whether an event says so.
    fn say_bonds(&mut self, links: &link::Links, told: bool, now: Nanos, emit: &mut Emit<'_>) {
        let known = &self.known;
        let concerns = |netdev: &str| {
            known
                .iter()
                .any(|port| port.bond.as_deref() == Some(netdev) || port.netdevs.iter().any(|known| known == netdev))
        };
        let bonds = links.bonds(&concerns);
        for bond in bonds.iter().filter(|bond| !self.bonds.contains(bond)) {
            // A bond that is new here may have been so for long: only now is it one of an RDMA port.
            let known = self.bonds.iter().any(|known| known.bond == bond.bond);
            let event = (told && known).then_some(true);
            emit(&Observation { t: now, body: Body::Bond(Bond { event, ..bond.clone() }) });
        }
        self.bonds = bonds;
    }
}

impl Source for Netdev {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        let mut missing = Vec::new();
        let mut lack = |what: &str, reason: &str| {
            missing.push(Missing { what: what.to_owned(), reason: reason.to_owned(), fix: None });
        };
        if self.known.is_empty() {
            lack("network devices", "no RDMA device here");
        } else if self.carriers.is_empty() {
            lack("network devices", "no RDMA port has a network device here");
        }
        for carrier in &self.carriers {
            if let Some(reason) = carrier.missing() {
                lack(&format!("carrier counts of {}", carrier.netdev), &reason);
            }
        }
        if let Some(reason) = self.monitor.as_ref().and_then(Monitor::missing) {
            lack("link events", &format!("{reason}; bonds are read from sysfs at each poll"));
        }
        let state = match (self.carriers.is_empty(), missing.is_empty()) {
            (true, _) => Seeing::Off,
            (false, true) => Seeing::Ok,
            (false, false) => Seeing::Partial,
        };
        let sees = format!("{} network devices, {} bonds", self.carriers.len(), self.bonds.len());
        Availability { name: NAME, state, sees, missing }
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn set_interval(&mut self, interval_ns: u64) {
        self.period = interval_ns.max(PERIOD);
        self.due = 0;
    }

    fn nudge(&mut self, now: Nanos) {
        self.due = self.due.min(now);
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.follow();
        self.hear(now, emit);
        if now < self.due {
            return;
        }
        for carrier in &mut self.carriers {
            carrier.read(&*self.files, now, emit);
        }
        self.due = if self.due + self.period > now { self.due + self.period } else { now + self.period };
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.monitor.as_ref().and_then(Monitor::fd).into_iter().collect()
    }
}
