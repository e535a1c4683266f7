//! The devlink source: what an RDMA device's own health reporters say (firmware, queues), as counters every ten seconds
//! and as a `health` observation at the moment a reporter goes into error.
//!
//! ```text
//! reporter   one reporter as devlink tells it
//! ```
//!
//! Asking makes the kernel tell what it knows already: neither the driver nor the firmware is asked, and nothing is
//! diagnosed, dumped or recovered. A device is recognised by its bus and name, so that also a software device counts on
//! the reporters of the adapter below its network device.

mod reporter;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netlink_packet_core::NetlinkBuffer;

use self::reporter::{REPORTER_CHANGED, REPORTER_GET, Reporter, handle};
use super::files::{Files, base_name};
use super::netlink::attribute::Attributes;
use super::netlink::conversation::ENOBUFS;
use super::netlink::generic::Generic;
use super::netlink::transport::Transport;
use super::ports::{PortMap, RdmaPort};
use super::{Availability, Emit, Missing, Source};
use crate::observation::{Body, CounterSource, Counters, Health, Lost, Nanos, Observation, Pairs, Seeing};

/// The source's name.
pub const NAME: &str = "devlink";

/// Between two lists, ns: what changes in between is told by events.
const PERIOD: Nanos = 10_000_000_000;
/// Events taken in one poll; the rest wakes the collector again.
const EVENTS_PER_POLL: u32 = 1024;

/// The way to the kernel.
struct Way {
    questions: Generic,
    events: Option<Box<dyn Transport>>,
    /// Why no events are heard.
    deaf: Option<String>,
}

/// One RDMA device and its reporters, in the order devlink tells them.
#[derive(Debug)]
struct Watched {
    device: String,
    pci: Option<String>,
    reporters: Vec<Reporter>,
}

/// Reads health reporters.
pub struct Devlink {
    files: Arc<dyn Files>,
    ports: PortMap,
    known: Arc<[RdmaPort]>,
    way: Result<Way, String>,
    /// RDMA devices by the name devlink has for what they are made of.
    devices: BTreeMap<String, Vec<Watched>>,
    fault: Option<String>,
    datagram: Vec<u8>,
    lost: u64,
    due: Nanos,
}

impl Devlink {
    /// A source for these ports' devices. It never fails: what cannot work is in its availability.
    #[must_use]
    pub fn start(files: Arc<dyn Files>, ports: PortMap) -> Self {
        let way = match Generic::open("devlink", 1) {
            Ok(Some(questions)) => {
                let (events, deaf) = match questions.family().listen("config") {
                    Ok(socket) => (Some(Box::new(socket) as Box<dyn Transport>), None),
                    Err(error) => (None, Some(format!("the group of changes cannot be joined: {error}"))),
                };
                Ok(Way { questions, events, deaf })
            }
            Ok(None) => Err("the kernel has no devlink".to_owned()),
            Err(fault) => Err(format!("devlink cannot be used: {fault}")),
        };
        Self::over(files, ports, way)
    }

    fn over(files: Arc<dyn Files>, ports: PortMap, way: Result<Way, String>) -> Self {
        Self {
            files,
            ports,
            known: Arc::default(),
            way,
            devices: BTreeMap::new(),
            fault: None,
            datagram: Vec::new(),
            lost: 0,
            due: 0,
        }
    }

    /// Follows the ports: which devlink names are whose.
    fn follow(&mut self) {
        let ports = self.ports.now();
        if Arc::ptr_eq(&ports, &self.known) {
            return;
        }
        let before = std::mem::take(&mut self.devices);
        let mut before: Vec<Watched> = before.into_values().flatten().collect();
        for port in &*ports {
            let Some(handle) = handle_of(&*self.files, port) else { continue };
            let here = self.devices.entry(handle).or_default();
            if here.iter().any(|watched| watched.device == port.device) {
                continue;
            }
            let same = before.iter().position(|watched| watched.device == port.device && watched.pci == port.pci);
            here.push(same.map_or_else(
                || Watched { device: port.device.clone(), pci: port.pci.clone(), reporters: Vec::new() },
                |at| before.swap_remove(at),
            ));
        }
        self.known = ports;
        self.due = 0;
    }

    fn list(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let Ok(way) = &mut self.way else { return };
        let mut told: BTreeMap<String, Vec<Reporter>> = BTreeMap::new();
        let devices = &self.devices;
        let answer = way.questions.dump(REPORTER_GET, &[], |attributes| {
            let ours = handle(attributes).filter(|handle| devices.contains_key(handle));
            if let Some((handle, reporter)) = ours.zip(Reporter::read(attributes)) {
                told.entry(handle).or_default().push(reporter);
            }
        });
        self.fault = answer.err().map(|fault| fault.to_string());
        if self.fault.is_some() {
            return;
        }
        for (handle, watched) in &mut self.devices {
            let reporters = told.remove(handle).unwrap_or_default();
            for watched in watched {
                for reporter in &reporters {
                    watched.tell(reporter, now, emit);
                }
                watched.reporters.clone_from(&reporters);
                watched.say(now, emit);
            }
        }
    }

    fn hear(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let Ok(way) = &mut self.way else { return };
        for _ in 0..EVENTS_PER_POLL {
            let Some(events) = &mut way.events else { return };
            match events.receive(&mut self.datagram) {
                Ok(()) => {
                    let mut rest = &self.datagram[..];
                    while let Ok(message) = NetlinkBuffer::new_checked(rest) {
                        let (kind, payload) = (message.message_type(), message.payload());
                        if let Some((REPORTER_CHANGED | REPORTER_GET, at)) =
                            way.questions.family().message(kind, payload)
                        {
                            changed(&mut self.devices, Attributes(&payload[at..]), now, emit);
                        }
                        rest = rest.get((message.length() as usize).next_multiple_of(4)..).unwrap_or_default();
                    }
                }
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                    self.lost += 1;
                    self.due = now;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // A socket that fails stays readable: keeping it would wake the collector without end.
                    way.deaf = Some(format!("the socket of changes failed: {error}"));
                    way.events = None;
                }
            }
        }
    }
}

/// A reporter told of itself.
fn changed(devices: &mut BTreeMap<String, Vec<Watched>>, attributes: Attributes<'_>, now: Nanos, emit: &mut Emit<'_>) {
    let watched = handle(attributes).and_then(|handle| devices.get_mut(&handle));
    let Some((watched, reporter)) = watched.zip(Reporter::read(attributes)) else { return };
    for watched in watched {
        watched.tell(&reporter, now, emit);
        match watched.reporters.iter_mut().find(|known| known.name == reporter.name) {
            Some(known) if *known == reporter => continue,
            Some(known) => *known = reporter.clone(),
            None => watched.reporters.push(reporter.clone()),
        }
        watched.say(now, emit);
    }
}

impl Watched {
    /// Says that a reporter went into error, if it did since it was last heard of.
    fn tell(&self, reporter: &Reporter, now: Nanos, emit: &mut Emit<'_>) {
        let before = self.reporters.iter().find(|known| known.name == reporter.name);
        if !reporter.is_worse_than(before) {
            return;
        }
        let health = Health {
            device: Some(self.device.as_str().into()),
            pci: self.pci.as_deref().map(Into::into),
            reporter: reporter.name.as_str().into(),
            message: reporter.message().into(),
        };
        emit(&Observation { t: now, body: Body::Health(health) });
    }

    /// Says the reporters' numbers.
    fn say(&self, now: Nanos, emit: &mut Emit<'_>) {
        let mut values = Pairs::with_capacity(4 * self.reporters.len());
        for (name, value) in self.reporters.iter().flat_map(Reporter::values) {
            values.push(name, value);
        }
        if values.is_empty() {
            return;
        }
        let device = self.device.as_str().into();
        let set = Counters { device, source: CounterSource::Devlink, values, ..Counters::default() };
        emit(&Observation { t: now, body: Body::Counters(set) });
    }
}

/// Bus and name of what the port's device is made of: its own function, or that of its network device.
fn handle_of(files: &dyn Files, port: &RdmaPort) -> Option<String> {
    let own = format!("class/infiniband/{}/device", port.device);
    let netdevs = port.netdevs.iter().map(|netdev| format!("class/net/{netdev}/device"));
    let path = std::iter::once(own).chain(netdevs).find_map(|path| files.resolve(&path).ok())?;
    let bus = files.resolve(&format!("{path}/subsystem")).ok()?;
    Some(format!("{}/{}", base_name(&bus), base_name(&path)))
}

impl Source for Devlink {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        let mut missing = Vec::new();
        let mut lack = |what: &str, reason: &str| {
            missing.push(Missing { what: what.to_owned(), reason: reason.to_owned(), fix: None });
        };
        let reporters: usize = self.devices.values().flatten().map(|watched| watched.reporters.len()).sum();
        if self.known.is_empty() {
            lack("health reporters", "no RDMA device here");
        } else {
            match (&self.way, &self.fault) {
                (Err(reason), _) => lack("health reporters", reason),
                (_, Some(fault)) => lack("health reporters", &format!("the list failed: {fault}")),
                (Ok(_), None) if reporters == 0 => lack("health reporters", "no RDMA device's driver here has any"),
                (Ok(way), None) => {
                    if let Some(reason) = &way.deaf {
                        lack("changes at once", &format!("{reason}; they are seen every 10 s"));
                    }
                }
            }
        }
        let state = match (reporters, missing.is_empty()) {
            (0, _) => Seeing::Off,
            (_, true) => Seeing::Ok,
            (_, false) => Seeing::Partial,
        };
        Availability { name: NAME, state, sees: format!("{reporters} health reporters"), missing }
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn nudge(&mut self, now: Nanos) {
        self.due = self.due.min(now);
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.follow();
        self.hear(now, emit);
        if now >= self.due {
            self.list(now, emit);
            self.due = now.saturating_add(PERIOD);
        }
        let n = std::mem::take(&mut self.lost);
        if n > 0 {
            emit(&Observation { t: now, body: Body::Lost(Lost { source: NAME.into(), n }) });
        }
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.way.iter().filter_map(|way| way.events.as_ref()?.fd()).collect()
    }
}
