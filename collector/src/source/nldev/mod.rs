//! The RDMA netlink source (`RDMA_NLDEV`): port counters without the driver's cache, the kernel's list of QPs with
//! their owners, and the notice that a device came, went or was renamed.
//!
//! ```text
//! uapi          the interface's numbers          conversation  one request and its whole answer
//! transport     the kernel's socket              reply         what an answer means
//! statistics    port counters
//! sets          counters bound to QPs, which make those dear
//! monitor       events without asking            listing       the list of QPs, a part at a time
//! qp_list       what changed in it               owner         whose a QP is
//! peers         who a QP is connected to
//! availability  what is not seen, and why
//! binding       a source of its own: has QPs bound to counters by type, where changes are allowed, and undoes it
//! ```
//!
//! But for `binding` it only asks: no command here sets, binds or resets anything, none needs a privilege, and the socket is not opened
//! where that would load `ib_core`. Devices are filtered by name before anything is asked about them. Devices and ports
//! as such are the sysfs source's subject; a `device` observation from here adds the index, the GUID and the firmware.

mod availability;
pub mod binding;
mod conversation;
mod listing;
mod monitor;
mod owner;
pub(crate) mod peers;
mod qp_list;
mod reply;
#[cfg(test)]
mod scene;
mod sets;
mod statistics;
#[cfg(test)]
mod stored;
#[cfg(test)]
mod tests;
mod transport;
mod uapi;

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::observation::{Body, Device, Lost, Nanos, Observation, Text};
use crate::source::{Availability, Emit, Source};

use super::netlink::attribute;
use conversation::{Answer, Conversation, Fault};
use listing::{Listing, QpGaps};
use monitor::Monitor;
use qp_list::QpList;
use reply::DeviceInfo;
use sets::BoundSets;
use statistics::Statistics;
use uapi::{attr, command};

pub use reply::PortInfo;
pub use statistics::Coverage;

const SECOND: Nanos = 1_000_000_000;

/// How long QPs are listed every second after something happened: transport retries of common timers end within it.
const HURRIED_FOR: Nanos = 10 * SECOND;

/// The source's name.
pub const NAME: &str = "nldev";

/// What to watch, and how often.
pub struct Options {
    /// The devices wanted. About any other device nothing is asked.
    pub wanted: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Where `/proc` is, for the owners of QPs.
    pub proc: PathBuf,
    /// Time between two reads of the counters, ns.
    pub statistics_period: Nanos,
    /// Time between two lists of the QPs and of the devices, ns.
    pub qp_period: Nanos,
    /// Listing costs one driver query a QP: no more than this many are made in a second, and the period grows with it.
    pub max_qp_queries_per_s: u64,
    /// Firmware commands in a second that counters bound to QPs may add; the counters' period grows with them.
    pub max_bound_queries_per_s: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wanted: Arc::new(|_| true),
            proc: PathBuf::from("/proc"),
            statistics_period: SECOND,
            qp_period: 5 * SECOND,
            max_qp_queries_per_s: 2_000,
            max_bound_queries_per_s: 1_000,
        }
    }
}

/// The way to the kernel.
enum Link {
    Open {
        questions: Conversation,
        /// A socket of its own for the list of QPs: it may be in the middle of one while questions are asked.
        lists: Conversation,
    },
    /// Why there is none, and when to look again.
    Closed { reason: availability::Closed, retry_at: Nanos },
}

/// The RDMA netlink source.
pub struct Nldev {
    /// Until then QPs are listed every second.
    hurried_until: Nanos,
    options: Options,
    link: Link,
    monitor: Monitor,
    /// `false` when the RDMA subsystem shows each network namespace its own devices only.
    netns_shared: Option<bool>,
    own_pid_namespace: bool,
    devices: Vec<DeviceInfo>,
    devices_fault: Option<String>,
    statistics: Statistics,
    sets: BoundSets,
    qps: QpList,
    listing: Option<Listing>,
    qp_gaps: QpGaps,
    devices_due: Nanos,
    statistics_due: Nanos,
    statistics_period: Nanos,
    bound_due: Nanos,
    qps_due: Nanos,
    qps_listed: Option<Nanos>,
    qp_period: Nanos,
    overruns: u64,
}

impl Nldev {
    /// Starts the source. It never fails: what cannot work is in [`Source::availability`].
    #[must_use]
    pub fn start(options: Options) -> Self {
        let link = availability::open(&options.proc);
        let sets = BoundSets::new(availability::opener(&options.proc));
        Self::over(link, sets, Monitor::default(), options)
    }

    fn over(link: Link, sets: BoundSets, monitor: Monitor, options: Options) -> Self {
        let mut source = Self {
            link,
            monitor,
            netns_shared: None,
            own_pid_namespace: availability::own_pid_namespace(&options.proc),
            devices: Vec::new(),
            devices_fault: None,
            statistics: Statistics::default(),
            sets,
            qps: QpList::default(),
            listing: None,
            qp_gaps: QpGaps::default(),
            devices_due: 0,
            statistics_due: 0,
            statistics_period: options.statistics_period,
            bound_due: 0,
            qps_due: 0,
            qps_listed: None,
            hurried_until: 0,
            qp_period: options.qp_period,
            overruns: 0,
            options,
        };
        source.ask_system();
        source
    }

    /// Devices whose every port gave its counters at the last read: their `hw_counters` need not be read from sysfs.
    #[must_use]
    pub fn covered_devices(&self) -> Vec<&str> {
        self.statistics.covered()
    }

    /// The same, for a source that asks while this one runs elsewhere.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        self.statistics.coverage()
    }

    /// Device events heard so far (0 where the kernel has no monitor). A number that grew says that devices, ports or
    /// their network devices are not what they were: worth looking before the next period.
    #[must_use]
    pub fn device_events(&self) -> u64 {
        self.monitor.events()
    }

    /// The ports of the watched devices as the kernel describes them now.
    pub fn ports(&mut self) -> Vec<PortInfo> {
        let Link::Open { questions: conversation, .. } = &mut self.link else { return Vec::new() };
        let mut ports = Vec::new();
        for device in &self.devices {
            let answer = conversation.dump(command::PORT_GET, &[(attr::DEV_INDEX, device.index)], |message| {
                ports.extend(PortInfo::read(message));
            });
            if let Err(fault) = answer {
                count_overrun(&mut self.overruns, &fault);
            }
        }
        ports
    }

    /// Asks what the RDMA subsystem can do, and joins the monitor where there is one.
    fn ask_system(&mut self) {
        let Link::Open { questions: conversation, .. } = &mut self.link else { return };
        let (mut netns_shared, mut monitored) = (None, false);
        let answer = conversation.get(command::SYS_GET, &[], |message| {
            netns_shared = message.u8(attr::SYS_NETNS_MODE).map(|mode| mode != 0);
            monitored = message.u8(attr::SYS_MONITOR_MODE) == Some(1);
        });
        if let Err(fault) = answer {
            count_overrun(&mut self.overruns, &fault);
        }
        self.netns_shared = netns_shared;
        // Without this question an old kernel would let us join a group in which nothing is ever said.
        self.monitor.join(monitored);
    }

    /// The period of the QP list: shorter for a while after something happened, for that is when QPs fail.
    fn usual_qp_period(&self, now: Nanos) -> Nanos {
        if now < self.hurried_until { self.options.qp_period.min(SECOND) } else { self.options.qp_period }
    }

    /// Looks for a kernel that has got RDMA netlink since the last look.
    fn reopen(&mut self, now: Nanos) {
        if matches!(self.link, Link::Closed { retry_at, .. } if now >= retry_at) {
            self.link = availability::open(&self.options.proc);
            if let Link::Closed { retry_at, .. } = &mut self.link {
                *retry_at = now.saturating_add(10 * SECOND);
            }
            self.ask_system();
        }
    }

    /// Lists the devices, emits those that are new or changed, and forgets those that are gone.
    fn list_devices(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let Link::Open { questions: conversation, .. } = &mut self.link else { return };
        let mut devices: Vec<DeviceInfo> = Vec::new();
        let answer = conversation.dump(command::GET, &[], |message| {
            devices.extend(DeviceInfo::read(message).filter(|device| (self.options.wanted)(&device.name)));
        });
        self.devices_due = now.saturating_add(self.options.qp_period);
        let complete = match &answer {
            Ok(Answer { interrupted, .. }) => !interrupted,
            Err(fault) => {
                count_overrun(&mut self.overruns, fault);
                false
            }
        };
        self.devices_fault = answer.err().map(|fault| fault.to_string());
        if !complete {
            // Nothing counts as gone: the devices that were not listed stay.
            let unlisted = self.devices.iter().filter(|old| !devices.iter().any(|new| new.index == old.index));
            let unlisted: Vec<DeviceInfo> = unlisted.cloned().collect();
            devices.extend(unlisted);
        }
        for device in &devices {
            if !self.devices.contains(device) {
                emit_device(device, now, emit);
            }
        }
        for old in &self.devices {
            if !devices.iter().any(|device| device.index == old.index) {
                self.qps.device_gone(old, now, emit);
            }
        }
        self.statistics.follow(&devices);
        self.devices = devices;
    }

    /// Reads the bound counters when it is time, and the ports' counters.
    fn read_statistics(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let Link::Open { questions: conversation, .. } = &mut self.link else { return };
        if now >= self.bound_due {
            for fault in self.sets.read(conversation, &mut self.statistics.ports, now, emit) {
                count_overrun(&mut self.overruns, &fault);
            }
            let spread =
                stretched(self.options.qp_period, self.statistics.bound(), self.options.max_bound_queries_per_s);
            self.bound_due = now.saturating_add(spread);
        }
        let (faults, lost_a_port) = self.statistics.read(conversation, now, self.options.qp_period, emit);
        for fault in faults {
            count_overrun(&mut self.overruns, &fault);
        }
        if lost_a_port {
            self.devices_due = now;
        }
        self.statistics_period = stretched(
            self.options.statistics_period,
            self.statistics.bound_queries(),
            self.options.max_bound_queries_per_s,
        );
        self.statistics_due = next(self.statistics_due, self.statistics_period, now);
    }

    /// Tells of what the kernel could not hand over.
    fn tell_losses(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let n = std::mem::take(&mut self.overruns);
        if n > 0 {
            emit(&Observation { t: now, body: Body::Lost(Lost { source: NAME.into(), n }) });
        }
    }
}

impl Source for Nldev {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        self.describe()
    }

    fn due(&self) -> Nanos {
        match &self.link {
            Link::Closed { retry_at, .. } => *retry_at,
            Link::Open { .. } => {
                let list = self.listing.as_ref().map_or(self.qps_due, Listing::due);
                self.devices_due.min(self.statistics_due).min(list)
            }
        }
    }

    fn set_interval(&mut self, interval_ns: u64) {
        self.options.statistics_period = interval_ns;
        self.statistics_due = 0;
    }

    fn nudge(&mut self, now: Nanos) {
        self.hurried_until = now.saturating_add(HURRIED_FOR);
        self.qps_due = self.qps_due.min(now);
        self.statistics_due = self.statistics_due.min(now);
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.reopen(now);
        let heard = self.monitor.hear();
        self.overruns += heard.overruns;
        if heard.any() || now >= self.devices_due {
            self.list_devices(now, emit);
        }
        if now >= self.statistics_due {
            self.read_statistics(now, emit);
        }
        self.list_qps(now, emit);
        self.tell_losses(now, emit);
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.monitor.fd().into_iter().collect()
    }
}

fn emit_device(device: &DeviceInfo, now: Nanos, emit: &mut Emit<'_>) {
    let body = Body::Device(Device {
        device: device.name.as_str().into(),
        index: Some(device.index),
        node_guid: device.node_guid.as_deref().map(Text::from),
        fw: device.fw.as_deref().map(Text::from),
        ..Device::default()
    });
    emit(&Observation { t: now, body });
}

fn count_overrun(overruns: &mut u64, fault: &Fault) {
    if matches!(fault, Fault::Overrun) {
        *overruns += 1;
    }
}

/// A period of at least `period`, in which `queries` are no more than `per_second`.
fn stretched(period: Nanos, queries: u64, per_second: u64) -> Nanos {
    let needed = u128::from(queries) * u128::from(SECOND) / u128::from(per_second.max(1));
    period.max(u64::try_from(needed).unwrap_or(u64::MAX))
}

/// The next time in step with `due`, or one period from `now` when that has passed as well.
fn next(due: Nanos, period: Nanos, now: Nanos) -> Nanos {
    let in_step = due.saturating_add(period);
    if in_step > now && due > 0 { in_step } else { now.saturating_add(period) }
}
