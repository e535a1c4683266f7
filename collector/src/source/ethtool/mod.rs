//! The ethtool source: statistics of the RDMA ports' network devices.
//!
//! ```text
//! driver     the driver's own names and values      ioctl  how they are asked for
//! standard   what the kernel defines (netlink)      uapi   the interface's numbers
//! watch      one network device between the polls
//! ```
//!
//! Phy, pause and FEC counters are here and nowhere else: RDMA's own sets say nothing of the cable. Both halves of a
//! network device go into one `counters` observation; where a driver has a name the kernel defines as well, the driver's
//! own stands.
//!
//! One reading is dozens of register reads or firmware commands under the network device's lock, which a user who
//! changes the link waits for as well: it is made once a second, also where other counters are read ten times a second.
//! A network device that belongs to no RDMA port is never asked anything.

mod driver;
mod ioctl;
mod standard;
#[cfg(test)]
mod tests;
mod uapi;
mod watch;

use std::sync::Arc;

use self::driver::Statistics;
use self::ioctl::Ioctl;
use self::standard::Standard;
use self::watch::Watch;
use super::netlink::generic::Generic;
use super::ports::{PortMap, RdmaPort};
use super::{Availability, Emit, Missing, Source};
use crate::observation::{Nanos, Seeing};

/// The source's name.
pub const NAME: &str = "ethtool";

/// Between two readings, ns, and the shortest period there is.
pub const PERIOD: Nanos = 1_000_000_000;

/// A way to the kernel, or why there is none.
type Way<T> = Result<T, String>;

/// Reads the statistics of network devices.
pub struct Ethtool {
    ports: PortMap,
    /// The list `watches` was made from.
    known: Arc<[RdmaPort]>,
    watches: Vec<Watch>,
    driver: Way<Box<dyn Statistics>>,
    standard: Way<Standard>,
    period: Nanos,
    due: Nanos,
}

impl Ethtool {
    /// A source for the network devices of these ports. It never fails: what cannot work is in its availability.
    #[must_use]
    pub fn start(ports: PortMap, period: Nanos) -> Self {
        let driver = Ioctl::open().map(|ioctl| Box::new(ioctl) as Box<dyn Statistics>);
        let standard = match Generic::open(uapi::FAMILY.0, uapi::FAMILY.1) {
            Ok(Some(generic)) => Ok(Standard::over(generic)),
            Ok(None) => Err("the kernel has no ethtool netlink (Linux 5.6 and later have it)".to_owned()),
            Err(fault) => Err(format!("ethtool netlink cannot be used: {fault}")),
        };
        Self::over(ports, driver.map_err(|error| format!("no socket: {error}")), standard, period)
    }

    fn over(ports: PortMap, driver: Way<Box<dyn Statistics>>, standard: Way<Standard>, period: Nanos) -> Self {
        let period = period.max(PERIOD);
        Self { ports, known: Arc::default(), watches: Vec::new(), driver, standard, period, due: 0 }
    }

    /// Follows the ports: their network devices in the ports' order, each once.
    fn follow(&mut self) {
        let ports = self.ports.now();
        if Arc::ptr_eq(&ports, &self.known) {
            return;
        }
        let mut before = std::mem::take(&mut self.watches);
        for port in &*ports {
            for netdev in &port.netdevs {
                if self.watches.iter().any(|watch| watch.netdev == *netdev) {
                    continue;
                }
                let same = before.iter().position(|watch| watch.is(netdev, port));
                let watch = same.map_or_else(|| Watch::new(netdev, port), |at| before.swap_remove(at));
                self.watches.push(watch);
            }
        }
        self.known = ports;
    }
}

impl Source for Ethtool {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        let counters: usize = self.watches.iter().map(Watch::counters).sum();
        let mut missing: Vec<Missing> = self.watches.iter().flat_map(Watch::missing).collect();
        let lack = |what: &str, reason: String| Missing { what: what.to_owned(), reason, fix: None };
        if self.known.is_empty() {
            missing.push(lack("statistics of network devices", "no RDMA device here".to_owned()));
        } else if self.watches.is_empty() {
            let reason = "no RDMA port has a network device here".to_owned();
            missing.push(lack("statistics of network devices", reason));
        } else {
            missing.extend(self.driver.as_ref().err().map(|why| lack("the drivers' own statistics", why.clone())));
            missing.extend(self.standard.as_ref().err().map(|why| lack("standard statistics", why.clone())));
            if counters == 0 && missing.is_empty() {
                let netdevs: Vec<&str> = self.watches.iter().map(|watch| &*watch.netdev).collect();
                let what = format!("statistics of {}", netdevs.join(", "));
                missing.push(lack(&what, "their drivers offer none".to_owned()));
            }
        }
        let state = match (counters, missing.is_empty()) {
            (0, _) => Seeing::Off,
            (_, true) => Seeing::Ok,
            (_, false) => Seeing::Partial,
        };
        let mut sees = format!("{} network devices, {counters} counters", self.watches.len());
        let of_queues: usize = self.watches.iter().map(Watch::of_queues).sum();
        if of_queues > 0 {
            sees.push_str(&format!(" ({of_queues} of single queues left out)"));
        }
        Availability { name: NAME, state, sees, missing }
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn set_interval(&mut self, interval_ns: u64) {
        self.period = interval_ns.max(PERIOD);
        self.due = 0;
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.follow();
        for watch in &mut self.watches {
            watch.poll(self.driver.as_mut().ok(), self.standard.as_mut().ok(), now, emit);
        }
        self.due = if self.due + self.period > now { self.due + self.period } else { now + self.period };
    }
}
