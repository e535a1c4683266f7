//! What is on the node as known now: devices, ports, PCIe functions, QPs, sources. [`World`] holds it all.
//!
//! The world is made of shared parts: a clone copies pointers, and the engine copies a part only when it changes while
//! somebody still looks at the clone. So a snapshot for the screen costs next to nothing, and rules and screens read
//! the very same thing.

mod aer_tally;
mod apart;
mod bound;
mod coverage;
mod device;
pub(crate) mod failover;
mod fan_out;
mod grown;
mod latency;
mod pcie;
mod port;
mod posting;
mod qp;
mod restate;
mod sets;
mod slices;
mod totals;
mod uncorrected;
mod unseen;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(crate) use aer_tally::is_replay;
pub use aer_tally::{AerClass, AerCount, AerTally};
pub(crate) use bound::bound_to;
pub use bound::{BoundBy, BoundSet, BoundSets};
pub use coverage::Coverage;
pub(crate) use device::real_guid;
pub use device::{DeviceId, DeviceRecord, Identity, Role};
pub use failover::{Budget, Ending, Failover, Floor, Mark, Moment, Qps as FailoverQps, Replacement, Span, Verdict};
pub use fan_out::{FanOutRecord, Levels, Spread};
pub(crate) use grown::Grown;
pub(crate) use latency::Calm;
pub use latency::{BUCKETS, Baseline, Latencies, LatencyWindow, SizeClass};
pub use pcie::{AerEvent, AerTotal, LinkState, PcieRecord, gbps};
pub use port::{
    CongestionRecord, GidChange, LoopbackSample, MeaningReading, PortEvent, PortKey, PortRecord, StateChange,
    Throughput,
};
pub(crate) use posting::Traced;
pub use posting::{Level, PostWindow, Posting};
pub use qp::{By, QpChange, QpDetail, QpRecord, QpRef, QpTable, number};
pub use restate::{restate, restate_past};
pub use sets::CounterSet;
pub use slices::{Signal, Slice, Slices};
pub use totals::{FailoverTotals, PHASES, PostTotals, QpTotals};
pub(crate) use uncorrected::SKEW_NS;
pub use uncorrected::Uncorrected;
pub(crate) use unseen::{LEAST_SHARE, OVERHEAD};
pub use unseen::{Likelihood, ProcessRecord, UnseenProcess, UnseenWay};

use crate::finding::{Finding, SubjectKey};
use crate::observation::recording::Header;
use crate::observation::{Nanos, QpState, Seeing};
use crate::rule::Settings;
use crate::timeline::Events;

/// Notes kept; older ones are dropped.
const MAX_NOTES: usize = 256;
/// QP failures kept for the rules; what falls out is counted.
const MAX_FAILURES: usize = 4096;

/// The name of the group of probes on completions.
const COMPLETIONS: &str = "completions";

/// A QP that went into the error state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QpFailure {
    /// Which.
    pub id: QpRef,
    /// Its device.
    pub device: DeviceId,
    /// Its port, where known.
    pub port: Option<u32>,
    /// Its number.
    pub qpn: u32,
    /// Its owner's comm.
    pub comm: Option<Arc<str>>,
    /// Its owner.
    pub pid: Option<u32>,
    /// A `modify_qp` call asked for it; otherwise nobody was seen asking.
    pub asked: bool,
    /// An asynchronous event told it: a call that asks for the same afterwards only follows.
    pub told: bool,
    /// The state before, where known.
    pub from: QpState,
    /// When it was last known to be in that state.
    pub last_good: Option<Nanos>,
}

/// Error completions a QP's statistics showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QpErrors {
    /// Which QP.
    pub id: QpRef,
    /// Its device.
    pub device: DeviceId,
    /// Its port, where known.
    pub port: Option<u32>,
    /// Its number.
    pub qpn: u32,
    /// `ibv_wc_status` name.
    pub status: Arc<str>,
    /// How many since the statistics before.
    pub n: u64,
}

/// Everything known at one moment.
#[derive(Debug, Clone)]
pub struct World {
    /// Time of the newest observation, `CLOCK_MONOTONIC` ns.
    pub now: Nanos,
    /// Time of the first observation. In a recording that tells what happened before it this lies before it.
    pub started: Nanos,
    /// Time of the first counters or statistics.
    pub counted_since: Option<Nanos>,
    /// Windows closed so far.
    pub windows: u64,
    /// Length of a window, ns: the step of every [`crate::timeline::Ring`].
    pub window_ns: u64,
    /// The recording's header: the node's name, its kernel, the wall clock.
    pub header: Arc<Header>,
    /// Devices, those that are gone included; a [`DeviceId`] is an index into this list.
    pub devices: Vec<Arc<DeviceRecord>>,
    /// Ports of all devices, in the order of first appearance.
    pub ports: Vec<Arc<PortRecord>>,
    /// Where ports and devices are found without a search.
    places: Arc<Places>,
    /// PCIe functions by address.
    pub pcie: BTreeMap<Arc<str>, Arc<PcieRecord>>,
    /// QPs.
    pub qps: QpTable,
    /// QPs that went into the error state, newest last.
    pub qp_failures: Arc<Events<QpFailure>>,
    /// Error completions of QPs, newest last.
    pub qp_errors: Arc<Events<QpErrors>>,
    /// Sources by name.
    pub sources: BTreeMap<Arc<str>, SourceRecord>,
    /// Probes.
    pub probes: Option<Arc<ProbeRecord>>,
    /// Processes that post, or may post, where no probe sees it.
    pub processes: BTreeMap<u32, Arc<ProcessRecord>>,
    /// Observations lost, by source.
    pub lost: BTreeMap<Arc<str>, u64>,
    /// Notes that are no part of a port or a source, oldest first.
    pub notes: Arc<Events<Arc<str>>>,
    /// Bonds by name.
    pub bonds: BTreeMap<Arc<str>, Arc<BondRecord>>,
    /// Raised findings: worst and newest first, each followed by what follows from it ([`crate::incident`]).
    pub findings: Vec<Arc<Finding>>,
    /// Findings cleared recently, newest first.
    pub cleared: Vec<Arc<Finding>>,
    /// Failovers, oldest first.
    pub failovers: Vec<Arc<Failover>>,
    /// Older failovers that are no longer remembered.
    pub failovers_dropped: u64,
    /// Times a rule had so many raised findings that a further one was only counted.
    pub findings_dropped: u64,
    /// What the rules are asked with.
    pub settings: Arc<Settings>,
    /// Nothing comes after this: what is judged is all there is.
    pub ended: bool,
}

/// Where the ports of a device and the devices of a function are: rules ask for them in every window.
#[derive(Debug, Clone, Default)]
struct Places {
    /// By device: places in [`World::ports`].
    ports: Vec<Vec<usize>>,
    /// By PCI function: devices that are, or once were, at it.
    functions: HashMap<Arc<str>, Vec<DeviceId>>,
}

/// A source as the world knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRecord {
    /// How much it sees.
    pub state: Seeing,
    /// Why not all.
    pub reason: Option<Arc<str>>,
    /// When it said so.
    pub t: Nanos,
}

/// The probes' last report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProbeRecord {
    /// When.
    pub t: Nanos,
    /// Probes wanted.
    pub wanted: u32,
    /// Probes attached.
    pub attached: u32,
    /// Those that are not, with the reason.
    pub failed: Vec<(Arc<str>, Arc<str>)>,
    /// Time for which posts were watched since the probes were attached, ns, if less than all.
    pub posts_watched_ns: Option<u64>,
    /// Time for which completions were, ns, if less than all.
    pub completions_watched_ns: Option<u64>,
    /// Data-path hits since the probes were attached.
    pub hits: Option<u64>,
    /// Data-path hits per second, from the last two reports.
    pub hits_per_s: Option<f64>,
    /// Share of one core the hits are estimated to cost, from the last two reports.
    pub cost_share: Option<f64>,
    /// Estimated cost since the probes were attached, ns of CPU.
    pub cost_ns: Option<u64>,
    /// Share of one core the hits may cost; `None` without a limit.
    pub budget_share: Option<f64>,
    /// Length of the last attach window and of its period, of the group that is paused most, ns.
    pub window: Option<(Nanos, Nanos)>,
    /// The groups that are or were attached.
    pub groups: Vec<ProbeGroupRecord>,
}

/// Data-path probes that are attached and detached together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProbeGroupRecord {
    /// `posts` or `completions`.
    pub group: Arc<str>,
    /// Hits since the start.
    pub hits: u64,
    /// Hits per second, from the last two reports.
    pub hits_per_s: Option<f64>,
    /// What one hit costs, ns of CPU.
    pub hit_ns: u64,
    /// That was measured, not assumed.
    pub measured: bool,
    /// It is detached now, for the budget's sake.
    pub paused: bool,
    /// Length of its last window and of its period, ns.
    pub window: Option<(Nanos, Nanos)>,
}

impl ProbeRecord {
    /// Completions are known not to be watched now: their probes are detached for the budget's sake.
    #[must_use]
    pub fn completions_paused(&self) -> bool {
        self.groups.iter().any(|group| &*group.group == COMPLETIONS && group.paused)
    }

    /// Completions are or were watched.
    #[must_use]
    pub fn completions_attached(&self) -> bool {
        self.groups.iter().any(|group| &*group.group == COMPLETIONS)
    }

    /// The data path is being watched: its probe is neither failed nor detached.
    #[must_use]
    pub fn data_path(&self) -> bool {
        self.attached > 0 && !self.failed.iter().any(|(name, _)| name.starts_with("post_send"))
    }
}

impl ProbeRecord {
    /// Calls that change the state of a process's QP (or of one of the kernel's own) are being watched.
    #[must_use]
    pub fn sees_modify(&self, of_kernel: bool) -> bool {
        let probe = if of_kernel { "ib_modify_qp" } else { "ib_modify_qp_with_udata" };
        self.attached > 0 && !self.failed.iter().any(|(name, _)| &**name == probe)
    }
}

/// A bond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BondRecord {
    /// Mode.
    pub mode: Arc<str>,
    /// Active member.
    pub active: Option<Arc<str>>,
    /// Members and whether their link is up.
    pub slaves: Vec<(Arc<str>, bool)>,
}

impl World {
    /// Since when somebody watches: what happened before is known by single events at most.
    #[must_use]
    pub fn watched_since(&self) -> Nanos {
        self.counted_since.unwrap_or(self.started)
    }

    /// An empty world.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self {
            now: 0,
            started: 0,
            counted_since: None,
            windows: 0,
            window_ns: 1_000_000_000,
            header: Arc::new(header),
            devices: Vec::new(),
            ports: Vec::new(),
            places: Arc::default(),
            pcie: BTreeMap::new(),
            qps: QpTable::default(),
            qp_failures: Arc::new(Events::new(MAX_FAILURES)),
            qp_errors: Arc::new(Events::new(MAX_FAILURES)),
            sources: BTreeMap::new(),
            probes: None,
            processes: BTreeMap::new(),
            lost: BTreeMap::new(),
            notes: Arc::new(Events::new(MAX_NOTES)),
            bonds: BTreeMap::new(),
            findings: Vec::new(),
            cleared: Vec::new(),
            failovers: Vec::new(),
            failovers_dropped: 0,
            findings_dropped: 0,
            settings: Arc::default(),
            ended: false,
        }
    }

    /// Adds a port; gives back its place in [`World::ports`].
    pub(crate) fn add_port(&mut self, port: PortRecord) -> usize {
        let (device, at) = (port.key.device.0 as usize, self.ports.len());
        self.ports.push(Arc::new(port));
        let places = Arc::make_mut(&mut self.places);
        if places.ports.len() <= device {
            places.ports.resize(device + 1, Vec::new());
        }
        places.ports[device].push(at);
        at
    }

    /// Remembers at which function a device is.
    pub(crate) fn place_device(&mut self, id: DeviceId) {
        let Some(pci) = self.device(id).pci.clone() else { return };
        if !self.places.functions.get(&pci).is_some_and(|ids| ids.contains(&id)) {
            Arc::make_mut(&mut self.places).functions.entry(pci).or_default().push(id);
        }
    }

    /// The place of a port in [`World::ports`].
    pub(crate) fn place_of(&self, key: PortKey) -> Option<usize> {
        let places = self.places.ports.get(key.device.0 as usize)?;
        places.iter().copied().find(|at| self.ports[*at].key == key)
    }

    /// Devices that are there and at a function.
    fn devices_at(&self, pci: &Arc<str>) -> impl Iterator<Item = (DeviceId, &DeviceRecord)> {
        let ids = self.places.functions.get(pci).into_iter().flatten();
        ids.map(|id| (*id, self.device(*id))).filter(move |(_, d)| !d.removed && d.pci.as_ref() == Some(pci))
    }

    /// A device by identity.
    #[must_use]
    pub fn device(&self, id: DeviceId) -> &DeviceRecord {
        &self.devices[id.0 as usize]
    }

    /// The device that has the name now.
    #[must_use]
    pub fn device_named(&self, name: &str) -> Option<(DeviceId, &DeviceRecord)> {
        self.devices.iter().enumerate().find_map(|(index, device)| {
            (!device.removed && &*device.name == name).then(|| (DeviceId::at(index), &**device))
        })
    }

    /// Devices that are there.
    pub fn present(&self) -> impl Iterator<Item = (DeviceId, &DeviceRecord)> {
        self.devices.iter().enumerate().filter(|(_, d)| !d.removed).map(|(i, d)| (DeviceId::at(i), &**d))
    }

    /// A port.
    #[must_use]
    pub fn port(&self, key: PortKey) -> Option<&PortRecord> {
        self.place_of(key).map(|at| &*self.ports[at])
    }

    /// The ports of a device.
    pub fn ports_of(&self, device: DeviceId) -> impl Iterator<Item = &PortRecord> {
        self.places.ports.get(device.0 as usize).into_iter().flatten().map(|at| &*self.ports[*at])
    }

    /// Ports whose device is there.
    pub fn present_ports(&self) -> impl Iterator<Item = (&DeviceRecord, &PortRecord)> + Clone {
        self.ports.iter().map(|port| (self.device(port.key.device), &**port)).filter(|(device, _)| !device.removed)
    }

    /// The PCI function a port's traffic goes through: its device's, or for a software device its netdev's.
    #[must_use]
    pub fn function_of<'w>(&'w self, port: &'w PortRecord) -> Option<&'w Arc<str>> {
        self.device(port.key.device).pci.as_ref().or(port.netdev_pci.as_ref())
    }

    /// What a device is for: a virtual function, a management sub-device, or an ordinary one.
    ///
    /// A management sub-device shares its PCI function with another device and has neither counters nor a network
    /// device of its own. It is one even when its driver does not say so.
    #[must_use]
    pub fn role(&self, id: DeviceId) -> Option<Role> {
        let device = self.device(id);
        if device.vf {
            return Some(Role::Vf);
        }
        let pci = device.pci.as_ref()?;
        let bare = |id: DeviceId| {
            self.ports_of(id).all(|port| port.netdevs.is_empty() && port.sets.iter().all(CounterSet::is_blank))
                && self.device(id).sets.iter().all(CounterSet::is_blank)
        };
        let sibling = self.devices_at(pci).any(|(other, _)| other != id && !bare(other));
        Some(if sibling && bare(id) { Role::Management } else { Role::Pf })
    }

    /// The device another one is a part of: the physical function of a virtual one, the device a management sub-device
    /// shares its function with. `None` also when a virtual function's physical one cannot be seen from here.
    #[must_use]
    pub fn parent(&self, id: DeviceId) -> Option<DeviceId> {
        let device = self.device(id);
        let wanted = match self.role(id)? {
            Role::Vf => device.physfn.as_ref()?,
            Role::Management => device.pci.as_ref()?,
            Role::Pf => return None,
        };
        self.devices_at(wanted)
            .find(|(other, _)| *other != id && self.role(*other) == Some(Role::Pf))
            .map(|(other, _)| other)
    }

    /// Raised findings about a port, its device, or a function of its PCIe path.
    pub fn findings_about<'w>(&'w self, id: DeviceId, port: &'w PortRecord) -> impl Iterator<Item = &'w Arc<Finding>> {
        let function = self.function_of(port);
        let path = function.and_then(|function| self.pcie.get(function)).map(|record| &record.path[..]);
        self.findings.iter().filter(move |finding| match &finding.key {
            SubjectKey::Port(device, number) => *device == id && *number == port.key.port,
            SubjectKey::Device(device) => *device == id,
            SubjectKey::Pci(pci) => function == Some(pci) || path.is_some_and(|path| path.contains(pci)),
            SubjectKey::Qp(qp) => self
                .qps
                .get(*qp)
                .is_some_and(|qp| qp.device == id && qp.port.is_none_or(|number| u32::from(number) == port.key.port)),
            SubjectKey::Node => false,
        })
    }

    /// Wall-clock time of a monotonic time, ns since 1970, where the header ties the two.
    #[must_use]
    pub fn unix_ns(&self, t: Nanos) -> Option<u64> {
        self.header.unix_ns_at(t)
    }
}
