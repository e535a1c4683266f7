//! The eBPF probes: what processes post to their QPs, how QPs come, change and go, asynchronous events, PCIe errors.
//!
//! ```text
//! attach   loads the kept object with the running kernel's field offsets (offsets, tracefs), attaches each probe
//! uprobes  what is attached to functions of libraries (library), and where in them it is cheapest (prologue,
//!          instruction); elf and frames read the files,
//!          opened is what is known of a place then, refused what is not attached to
//! discovery which processes use which build of a provider
//! modules  which load of a module they are attached to
//! store    the maps, memory-mapped (mapped) where they are read every second
//! qps      which slot belongs to which QP; emits the statistics that changed (stats)
//! events   ring-buffer records to observations (names)
//! confined whether probes of returns leave processes alone that seccomp confines
//! budget   what the data-path probe may cost
//! ```
//!
//! Nothing is pinned and every link is a file descriptor: when the process ends, however it ends, nothing stays
//! attached.

#[cfg(test)]
mod accepted;
mod attach;
#[cfg(all(target_arch = "x86_64", any(test, feature = "bench")))]
#[doc(hidden)]
pub mod bench;
mod budget;
mod calibrate;
mod confined;
mod devices;
mod discovery;
mod elf;
mod events;
mod frames;
#[cfg(all(test, target_arch = "x86_64"))]
mod governed;
#[cfg(target_arch = "x86_64")]
mod instruction;
mod library;
mod mapped;
mod modules;
pub(crate) mod names;
mod offsets;
mod opened;
mod prologue;
mod qps;
mod reason;
mod refused;
mod stats;
mod store;
mod tracefs;
mod uprobes;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};
use collector_ebpf::event::{CONTEXT_OPERATIONS, CQ_EX_OPERATIONS, Learned, QP_EX_OPERATIONS, has, kind};
use collector_ebpf::slot::Totals;

pub use budget::Budget;
pub use confined::{CHILD_ARG as CONFINED_ARG, child_main as confined_main};

use self::attach::{AER, Attached, DESTROY, Modules};
use self::budget::{GROUPS, Governor, Standing, Turn, Work};
use self::calibrate::Costs;
use self::discovery::{Addresses, Discovery};
use self::events::Events;
use self::opened::{Known, Opened, Places};
use self::qps::Qps;
use self::reason::Why;
use self::stats::Watched;
use self::store::{Maps, Store as _};
use super::verbs::{self, Group, Making, Operation, Operations, Table};
use super::{Availability, Emit, Missing, ProbeReport, Source};
use crate::clock;
use crate::observation::{
    Body, FailedProbe, FanOut, Histogram, Lost, Nanos, Observation, ProbeGroup, Probes as ProbesBody, Seeing, Text,
};

/// Time between two sweeps of the statistics.
const PERIOD_NS: Nanos = 1_000_000_000;

/// Sweeps between two looks for processes that are gone.
const REAP_SWEEPS: u64 = 10;

/// How long the start waits for the look at all processes.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// Places of what processes use that are attached to in one poll: each takes a system call or two that looks at every process
/// which maps the file, and events are to be read meanwhile.
const MOST_AT_ONCE: usize = 32;

/// Events that are read before they are told of.
const BATCH: usize = 4096;

/// Batches of one poll: the ring buffer holds less than this; what comes meanwhile is for the next poll.
const MOST_BATCHES: usize = 4;

/// Of so many signalled work requests of a QP one is timed, where cost is limited.
const TIMED_ONE_IN: u64 = 8;

/// Until the first look after something was attached or detached.
const SOON_NS: Nanos = 20_000_000;

/// The source's name.
const NAME: &str = "probes";

/// How the probes are used.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeOptions {
    /// What the data-path probe may cost.
    pub budget: Budget,
    /// QPs whose statistics can be kept at once: 128 bytes each in the slot array and some 170 more in the indices,
    /// and 384 for the histograms of the first 32,768. The maps cannot grow later.
    pub max_qps: u32,
    /// Attach the data-path probe.
    pub data_path: bool,
    /// Have QPs and CQs made, for an instant, to learn their functions before a process makes its own: a change, so only
    /// where changes are allowed.
    pub making: Option<Making>,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self { budget: Budget::default(), max_qps: 16_384, data_path: true, making: None }
    }
}

/// The probes as a source.
pub struct Probes {
    attached: Attached,
    /// `None` when nothing could be loaded.
    running: Option<Running>,
    options: ProbeOptions,
    /// The data-path probe is wanted.
    data_path: bool,
    due: Nanos,
    /// When the governor looks again.
    look: Nanos,
    changed: bool,
    discovery: Discovery,
    /// Every process was looked at once.
    looked_at_all: bool,
    operations: Option<Receiver<Asked>>,
    /// Why the functions are not known that QPs and CQs would have that were made for it.
    not_made: Option<Missing>,
}

/// What was asked of the providers.
struct Asked {
    operations: Result<Operations, verbs::Error>,
    /// Why nothing was made for it; `None` where nothing is to be made.
    not_made: Option<Missing>,
    /// The places of both.
    places: Vec<Opened>,
}

impl Asked {
    /// Asks, and blocks until both have answered, [`verbs::TIMEOUT`] at most each, and their files were read.
    fn now(making: Option<&Making>) -> Self {
        let known = Known::default();
        let mut places = Places::default();
        let operations = verbs::operations(verbs::TIMEOUT);
        if let Ok(operations) = &operations {
            for (operation, place) in operations.devices.iter().flat_map(|device| &device.places) {
                places.add(Some(*operation), place.clone(), &known);
            }
            if let Some(place) = &operations.modify_qp {
                places.add(None, place.clone(), &known);
            }
        }
        // Who cannot open a device cannot make anything on it.
        let made = making.filter(|_| operations.is_ok()).map(|making| making.places(verbs::TIMEOUT));
        let not_made = made.and_then(|made| match made {
            Ok(made) => {
                for (operation, place) in made {
                    places.add(Some(operation), place, &known);
                }
                None
            }
            Err(missing) => Some(missing),
        });
        Self { operations, not_made, places: places.open(&known) }
    }
}

/// What there is once the object is loaded.
struct Running {
    ring: RingBuf<MapData>,
    maps: Maps,
    qps: Qps,
    governor: Governor,
    costs: Costs,
    /// [`Attached::changes`] at the last change of what the programs are told.
    told_changes: Option<u64>,
    totals: Totals,
    lost: u64,
    told_lost: u64,
    last_t: Nanos,
    sweeps: u64,
    /// What was last told of each device's fan-out, in one number.
    fans: HashMap<u64, u64>,
    /// What processes told of their providers' operations.
    learned: Addresses,
    /// Devices that a QP was created on: a new one may have a provider that is not attached yet.
    devices: HashSet<String>,
    /// Processes that created or changed a QP since the last look: theirs may be another build of the provider.
    users: BTreeSet<u32>,
}

impl Probes {
    /// Loads and attaches what can be. Never fails: what does not work is in [`Source::probes`] and
    /// [`Source::availability`]. Blocks until the child processes have told the providers' operations, [`verbs::TIMEOUT`]
    /// at most each, and all processes were looked at, [`FIRST_LOOK`] at most; what takes longer comes with a later poll.
    #[must_use]
    pub fn start(options: &ProbeOptions) -> Self {
        let mut probes = Self::load(options);
        if probes.data_path && probes.running.is_some() {
            probes.attach(Asked::now(probes.options.making.as_ref()));
            probes.discover();
            let begin = Instant::now();
            while probes.discovery.is_busy()
                && probes.discovery.wait(FIRST_LOOK.saturating_sub(begin.elapsed()))
                && begin.elapsed() < FIRST_LOOK
            {
                probes.discover();
            }
        }
        probes
    }

    /// Loads and attaches all but the data path, whose places are not known yet.
    fn load(options: &ProbeOptions) -> Self {
        let wanted = options.data_path && options.budget != Budget::Share(0.0);
        let mut attached = Attached::new(options.max_qps);
        let running = Running::new(&mut attached, options);
        let running = match running {
            Ok(running) => running,
            Err(why) => {
                attached.give_up_all(&why);
                None
            }
        };
        let options = options.clone();
        let mut probes = Self {
            attached,
            running,
            options,
            data_path: wanted,
            due: 0,
            look: 0,
            changed: true,
            discovery: Discovery::new(Path::new("/proc")),
            looked_at_all: false,
            operations: None,
            not_made: None,
        };
        if !wanted {
            let reason = if probes.options.data_path { "switched off by a probe budget of 0" } else { "switched off" };
            probes.attached.no_post_send(false, reason.into());
        } else if probes.running.is_none() {
            let why = probes
                .attached
                .reports()
                .find_map(|report| Some(Why { reason: report.reason.clone()?, fix: report.fix.clone() }));
            probes.attached.no_post_send(true, why.unwrap_or_else(|| "the programs could not be loaded".into()));
        } else {
            probes.attached.no_post_send(true, "the child process has not told the providers' operations yet".into());
        }
        probes
    }

    /// Modules that were loaded after the start bring what could not be attached before, and those that were unloaded
    /// take with them what was.
    fn catch_up(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let destroy_seen = self.attached.has(DESTROY);
        match self.attached.look_at_modules() {
            Modules::Same => {}
            Modules::Ended => self.changed = true,
            Modules::OtherOffsets => {
                // No QP outlives `ib_core`. What was seen of those before it ended is told first.
                if let Some(running) = &mut self.running {
                    running.drain(emit);
                    running.sweep(now, destroy_seen, emit);
                }
                let mut before = std::mem::replace(self, Self::load(&self.options));
                self.discovery.inherit(&mut before.discovery);
                return self.refresh();
            }
        }
        if self.attached.catch_up() {
            self.changed = true;
            self.refresh();
        }
    }

    /// Asks for the providers' operations again, in the background: call it when a device appears. What is new is
    /// attached at one of the next polls.
    pub fn refresh(&mut self) {
        if self.data_path && self.running.is_some() && self.operations.is_none() {
            let (sender, receiver) = mpsc::channel();
            let making = self.options.making.clone();
            thread::spawn(move || {
                // Nobody waits for the answer any more when the source is gone.
                let _ = sender.send(Asked::now(making.as_ref()));
            });
            self.operations = Some(receiver);
        }
    }

    fn attach(&mut self, asked: Asked) {
        let Asked { operations, not_made, places } = asked;
        self.changed = true;
        self.attached.retry_post_send();
        // The look itself begins when what the host has is attached: it needs none. Without libibverbs here, containers
        // may have theirs.
        if !self.looked_at_all {
            self.looked_at_all = true;
            self.discovery.look_at_all();
        }
        let devices = match operations {
            Ok(operations) => operations.devices,
            Err(error) => {
                let why = Why { reason: error.to_string(), fix: error.fix().map(str::to_owned) };
                return self.attached.no_post_send(true, why);
            }
        };
        self.not_made = not_made;
        for opened in places {
            self.discovery.keep(opened.place.file());
            self.attached.attach(opened);
        }
        let why = devices
            .iter()
            .find_map(|device| device.error.as_ref().map(|error| format!("{}: {error}", device.device).into()))
            .unwrap_or_else(|| {
                Why::with_fix("libibverbs has no provider for the devices here", verbs::INSTALL_PROVIDERS)
            });
        self.attached.no_post_send(true, why);
    }

    /// Finds the builds of providers that processes use and the host does not have, and attaches to some of their places.
    fn discover(&mut self) {
        let Some(running) = &mut self.running else { return };
        let users = std::mem::take(&mut running.users);
        if !self.data_path || !own_pids() {
            running.learned = Addresses::default();
            return;
        }
        for tgid in users {
            self.discovery.saw(tgid);
        }
        self.discovery.take();
        for opened in self.discovery.next(MOST_AT_ONCE) {
            self.changed |= self.attached.attach(opened);
        }
        let attached = &self.attached;
        self.discovery.work(&mut running.learned, &|| attached.known());
    }

    /// Lets go of files that no process maps any more, and of those that are not what they were, which are looked at anew.
    fn let_go(&mut self) {
        let overwritten = self.attached.detach_overwritten();
        if overwritten.any {
            self.changed = true;
            if let Some(running) = &mut self.running
                && !overwritten.missed.is_empty()
            {
                running.qps.miss(|pid| self.discovery.may_map(pid, &overwritten.missed));
            }
            self.refresh();
            self.discovery.look_at_all();
        }
        let attached = &self.attached;
        for file in self.discovery.unused(attached.files(), &|file| attached.below(file)) {
            self.changed |= self.attached.detach_file(file);
        }
    }

    /// Pauses what costs too much, brings back what can be paid for again, and tells the programs what is watched.
    fn govern(&mut self, now: Nanos, swept: bool) {
        let Some(running) = &mut self.running else { return };
        if swept || now >= self.look {
            running.governor.set_price(running.costs.of(GROUPS.map(|group| self.attached.is_stepped(group))));
            let work = running.maps.totals().map_or(Work::default(), |totals| Work {
                hits: [totals.hits, totals.poll_hits],
                steps: [totals.post_steps, totals.poll_steps],
            });
            for turn in running.governor.step(now, work) {
                match turn {
                    Turn::Off(group, reason) => {
                        // First told, then done: what still hits is counted as a hit and in no statistics.
                        let on = GROUPS.map(|other| other != group && self.attached.has_group(other));
                        running.tell(on);
                        self.attached.detach_group(group, &reason);
                    }
                    Turn::On(group) => self.attached.attach_group(group),
                }
            }
            self.look = running.governor.next_look(now).unwrap_or(Nanos::MAX);
        }
        if running.told_changes != Some(self.attached.changes()) {
            running.told_changes = Some(self.attached.changes());
            running.tell(GROUPS.map(|group| self.attached.has_group(group)));
            // What was quiet because nothing was attached need not stay so.
            if running.governor.is_limited() {
                self.look = self.look.min(now + SOON_NS);
            }
        }
    }

    /// What is and was watched.
    fn watched(&self, now: Nanos) -> Watched {
        let was = |operation| self.attached.was_attached(operation);
        let ns = |group| self.running.as_ref().and_then(|running| running.governor.watched_ns(group, now));
        let completions = was(Operation::PollCq) || was(Operation::StartPoll);
        Watched {
            posts_ns: ns(Group::Posts).filter(|_| was(Operation::PostSend)),
            receives: was(Operation::PostRecv),
            completions,
            missed: false,
            completions_ns: ns(Group::Completions).filter(|_| completions),
        }
    }

    fn body(&self, watched: &Watched) -> ProbesBody<'_> {
        let reports = || self.attached.reports();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let failed = reports().filter(|report| report.wanted && !report.attached);
        // A probe that was never attached has no hits, not zero of them.
        let counted = self.running.as_ref().filter(|_| self.attached.was_attached(Operation::PostSend));
        let windows = counted.and_then(|running| running.governor.window());
        ProbesBody {
            wanted: count(reports().filter(|report| report.wanted).count()),
            attached: count(reports().filter(|report| report.attached).count()),
            failed: failed
                .map(|report| FailedProbe {
                    name: Text::Borrowed(&report.name),
                    reason: Text::Borrowed(report.reason.as_deref().unwrap_or("unknown")),
                })
                .collect(),
            posts_watched_ns: watched.posts_ns,
            completions_watched_ns: watched.completions_ns,
            window_ns: windows.map(|(window, _)| window),
            period_ns: windows.map(|(_, period)| period),
            hits: counted.map(|running| running.totals.hits + running.totals.poll_hits),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "CPU time since the start")]
            cost_ns: counted.map(|running| running.governor.spent_ns() as Nanos),
            budget_share: counted.and_then(|running| running.governor.share()),
            groups: self.groups(),
        }
    }

    /// The groups that are or were attached.
    fn groups(&self) -> Vec<ProbeGroup<'static>> {
        let Some(running) = &self.running else { return Vec::new() };
        let was = |operation| self.attached.was_attached(operation);
        let all =
            [("posts", was(Operation::PostSend)), ("completions", was(Operation::PollCq) || was(Operation::StartPoll))];
        let seen = all.into_iter().zip(GROUPS).filter(|((_, was_attached), _)| *was_attached);
        let standing = |((name, _), group)| {
            let Standing { hits, hit_ns, paused, window } = running.governor.standing(group);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below a second")]
            ProbeGroup {
                group: Text::Borrowed(name),
                hits,
                hit_ns: hit_ns.round() as u64,
                measured: running.costs.measured,
                paused,
                window_ns: window.map(|(window, _)| window),
                period_ns: window.map(|(_, period)| period),
            }
        };
        seen.map(standing).collect()
    }
}

impl Running {
    fn new(attached: &mut Attached, options: &ProbeOptions) -> Result<Option<Self>, Why> {
        let sizes = attached.sizes;
        let Some(ebpf) = attached.ebpf() else { return Ok(None) };
        let ring = ebpf.take_map("EVENTS").ok_or("the BPF map EVENTS is not in the object")?;
        let ring = RingBuf::try_from(ring).map_err(|error| reason::explain(&error))?;
        let mut maps = Maps::take(ebpf, sizes)?;
        if options.data_path && options.budget != Budget::Share(0.0) {
            attached.try_returns();
        }
        let in_guest = calibrate::in_guest(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
        // What nobody pays for need not be known.
        let limited = options.data_path && matches!(options.budget, Budget::Share(share) if share > 0.0);
        let measured = if limited { calibrate::measure(attached, &mut maps) } else { None };
        let costs = measured.unwrap_or_else(|| Costs::assumed(in_guest));
        Ok(Some(Self {
            ring,
            maps,
            qps: Qps::new(sizes.slots),
            governor: Governor::new(options.budget, costs.of([true; 2])),
            costs,
            told_changes: None,
            totals: Totals::default(),
            lost: 0,
            told_lost: 0,
            last_t: 0,
            sweeps: 0,
            fans: HashMap::new(),
            learned: Addresses::default(),
            devices: HashSet::new(),
            users: BTreeSet::new(),
        }))
    }

    /// Reads the events, and the slots that changed. Returns whether a QP was created on a device not seen before.
    ///
    /// Events are taken in batches, and the slots are looked at between reading a batch and telling of it: what was
    /// posted to a QP before it was destroyed is then known when its end is told.
    fn drain(&mut self, emit: &mut Emit<'_>) -> bool {
        let mut new_device = false;
        let mut batch = Vec::new();
        for _ in 0..MOST_BATCHES {
            let mut read = 0;
            while read < BATCH
                && let Some(record) = self.ring.next()
            {
                read += 1;
                match (events::learned(&record), events::read(&record)) {
                    (Some(learned), _) => {
                        self.lost += u64::from(!self.learned.add(learned.tgid, addresses(&learned)));
                    }
                    (None, Some(event)) => batch.push(event),
                    (None, None) => self.lost += 1,
                }
            }
            self.qps.collect(&mut self.maps);
            if read == 0 {
                break;
            }
            for event in batch.drain(..) {
                // Two CPUs may hand over their events in the other order, microseconds apart.
                self.last_t = self.last_t.max(event.t);
                let mut events = Events { qps: &mut self.qps, store: &mut self.maps, lost: &mut self.lost };
                events.take(&event, self.last_t, emit);
                if matches!(event.kind, kind::CREATE | kind::MODIFY) && event.has & has::USER != 0 {
                    self.users.insert(event.tgid);
                }
                if event.kind == kind::CREATE {
                    let name = String::from_utf8_lossy(event.device.bytes()).into_owned();
                    new_device |= self.devices.insert(name);
                }
            }
        }
        new_device
    }

    /// Emits how many QPs of each device are in use at once, where something was posted since the last time.
    fn fan_out(&mut self, t: Nanos, emit: &mut Emit<'_>) {
        for (device, fan) in self.maps.fans() {
            let posted: u64 = fan.in_1ms.iter().chain(&fan.in_100ms).fold(fan.switches, |sum, n| sum.wrapping_add(*n));
            if self.fans.insert(device, posted) == Some(posted) {
                continue;
            }
            let Some(name) = self.maps.name(device) else { continue };
            let histogram = |counts: &[u64]| Histogram(counts.to_vec());
            let body = FanOut {
                device: String::from_utf8_lossy(name.bytes()),
                switches: fan.switches,
                in_1ms: histogram(&fan.in_1ms),
                in_100ms: histogram(&fan.in_100ms),
                reuse: histogram(&fan.reuse),
            };
            emit(&Observation { t, body: Body::FanOut(body) });
        }
    }

    /// Tells the programs which groups are watched from now on.
    fn tell(&self, [posts, completions]: [bool; 2]) {
        let every = if self.governor.is_limited() { TIMED_ONE_IN } else { 1 };
        self.maps.begin_epoch(clock::monotonic_ns(), posts, completions, every);
    }

    /// Emits the statistics and what was lost.
    fn sweep(&mut self, now: Nanos, destroy_seen: bool, emit: &mut Emit<'_>) {
        self.last_t = self.last_t.max(now);
        let t = self.last_t;
        // What cannot be read stays what it was.
        if let Some(totals) = self.maps.totals() {
            if totals.no_owner != self.totals.no_owner {
                self.qps.set_untold(self.maps.untold().collect());
            }
            self.totals = totals;
        }
        self.qps.sweep(&mut self.maps, t, emit);
        self.fan_out(t, emit);
        self.sweeps += 1;
        if self.sweeps.is_multiple_of(REAP_SWEEPS)
            && (!destroy_seen || self.sweeps.is_multiple_of(REAP_SWEEPS * 6))
            && own_pids()
        {
            self.qps.reap(&mut self.maps, t, &|pid| !Path::new("/proc").join(pid.to_string()).exists(), emit);
        }
        let lost = self.lost + self.totals.lost + self.totals.unreadable + self.totals.no_call;
        if lost > self.told_lost {
            let body = Lost { source: Text::Borrowed(NAME), n: lost - self.told_lost };
            emit(&Observation { t, body: Body::Lost(body) });
            self.told_lost = lost;
        }
    }
}

/// The operations a process was seen to use, with their addresses in it.
fn addresses(learned: &Learned) -> Vec<(Operation, u64)> {
    let table = |table: Table, first: usize, pointers: &[u64]| {
        let at = |operation: Operation| pointers.get(operation.offset().checked_sub(first)? / 8).copied();
        let all = Operation::ALL.iter().filter(|operation| operation.table() == table);
        all.filter_map(|operation| Some((*operation, at(*operation)?))).collect::<Vec<_>>()
    };
    let context =
        Operation::ALL.iter().filter(|operation| operation.table() == Table::Context).filter_map(|operation| {
            let at = CONTEXT_OPERATIONS.iter().position(|offset| *offset == operation.offset())?;
            Some((*operation, *learned.context.get(at)?))
        });
    let mut all: Vec<(Operation, u64)> = context.collect();
    all.append(&mut table(Table::QpEx, QP_EX_OPERATIONS, &learned.qp_ex));
    all.append(&mut table(Table::CqEx, CQ_EX_OPERATIONS, &learned.send_cq_ex));
    all.append(&mut table(Table::CqEx, CQ_EX_OPERATIONS, &learned.recv_cq_ex));
    all
}

/// The process ids the kernel gives the programs are those of this process's `/proc`: inode 4026531836 is the first pid
/// namespace (`include/linux/proc_ns.h`).
fn own_pids() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

impl Source for Probes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        let wanted = self.attached.reports().filter(|report| report.wanted).count();
        let attached = self.attached.reports().filter(|report| report.attached).count();
        let mut missing = not_attached(self.attached.reports());
        let mut sees = format!("{attached} of {wanted} probes attached");
        if let Some(running) = &self.running {
            sees = format!(
                "{sees}, {} QPs known; {} of {} slots were ever taken (to measure a probe's cost may take one)",
                running.qps.len(),
                running.maps.given().min(u64::from(self.attached.sizes.slots)),
                self.attached.sizes.slots
            );
            missing.extend(uncounted(running, self.attached.sizes.slots));
            missing.extend(self.not_made.clone());
            missing.extend(self.discovery.missing());
            if !own_pids() {
                missing.push(Missing {
                    what: "which processes are gone".to_owned(),
                    reason: "this process has a pid namespace of its own".to_owned(),
                    fix: Some("run it in the host's pid namespace (hostPID)".to_owned()),
                });
            }
        }
        let state = match attached {
            0 => Seeing::Off,
            _ if missing.is_empty() => Seeing::Ok,
            _ => Seeing::Partial,
        };
        Availability { name: NAME, state, sees, missing }
    }

    fn due(&self) -> Nanos {
        if self.discovery.has_next() { 0 } else { self.due.min(self.look) }
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        match self.operations.as_ref().map(Receiver::try_recv) {
            Some(Ok(operations)) => {
                self.operations = None;
                self.attach(operations);
            }
            Some(Err(TryRecvError::Disconnected)) => self.operations = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        if now >= self.due {
            self.catch_up(now, emit);
        }
        let destroy_seen = self.attached.has(DESTROY);
        let watched = self.watched(now);
        let mut new_device = false;
        if let Some(running) = &mut self.running {
            running.qps.watched = watched;
            new_device = running.drain(emit);
            if now >= self.due {
                running.sweep(now, destroy_seen, emit);
            }
        }
        if new_device {
            self.refresh();
        }
        self.discover();
        self.govern(now, now >= self.due);
        if now >= self.due && self.running.as_ref().is_some_and(|running| running.sweeps.is_multiple_of(REAP_SWEEPS)) {
            self.let_go();
        }
        let t = self.running.as_ref().map_or(now, |running| running.last_t);
        self.discovery.tell(&mut |process| emit(&Observation { t, body: Body::Process(process) }));
        if now >= self.due {
            self.due = now + PERIOD_NS;
            // Every sweep ends with this line, also when nothing moved: it tells an idle QP from one nobody looks at.
            let t = self.running.as_ref().map_or(now, |running| running.last_t);
            emit(&Observation { t, body: Body::Probes(self.body(&watched)) });
        }
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.running.iter().map(|running| running.ring.as_fd()).chain(self.discovery.wake_fd()).collect()
    }

    fn probes(&self) -> Vec<ProbeReport> {
        self.attached.reports().cloned().collect()
    }
}

/// What is not seen for want of a probe; what has the same reason is told together.
fn not_attached<'r>(reports: impl Iterator<Item = &'r ProbeReport>) -> Vec<Missing> {
    let mut all: Vec<Missing> = Vec::new();
    for report in reports.filter(|report| !report.attached) {
        let (what, reason) = (what_is_lost(&report.name), report.reason.as_deref().unwrap_or("unknown"));
        match all.iter_mut().find(|missing| missing.reason == reason && missing.fix == report.fix) {
            Some(missing) if missing.what.split(", ").any(|other| other == what) => {}
            Some(missing) => missing.what = format!("{}, {what}", missing.what),
            None => all.push(Missing { what: what.to_owned(), reason: reason.to_owned(), fix: report.fix.clone() }),
        }
    }
    all
}

/// What is not seen without a probe.
fn what_is_lost(probe: &str) -> &'static str {
    match probe {
        uprobes::LEARN => "which functions QPs and CQs have of their own",
        name if name.contains("poll") => "completions",
        name if name.starts_with("post_") || name.starts_with("wr_") => "what processes post to their QPs",
        AER => "PCIe errors as they happen",
        "ib_create_qp_user" => "QPs that processes create",
        "ib_create_qp_kernel" => "QPs that the kernel creates",
        "ib_modify_qp_with_udata" => "state changes of processes' QPs",
        "ib_modify_qp" => "state changes of the kernel's QPs",
        DESTROY => "QPs that are destroyed",
        "ib_uverbs_qp_event_handler" => "asynchronous events of processes' QPs",
        _ => "asynchronous events of ports and devices",
    }
}

/// What the programs could not count, each with its number.
fn uncounted(running: &Running, slots: u32) -> Vec<Missing> {
    let totals = &running.totals;
    let numbers = [
        (totals.no_slot, format!("no free slot among {slots}"), Some("raise --max-qps")),
        (totals.no_qp, "the QP could not be read from the process's memory".to_owned(), None),
        (running.qps.unread, "a list of work requests could not be read to its end".to_owned(), None),
        (totals.no_process, "the process's last QP is not kept, so switches are not counted".to_owned(), None),
        (running.qps.unresolved() as u64, "slots whose device's name could not be read".to_owned(), None),
        (totals.leaked + running.qps.leaked, "slots could not be given back".to_owned(), None),
        (totals.no_batch, "what is built call by call could not be kept track of".to_owned(), None),
    ];
    let gaps = running.qps.gaps();
    let gap = (gaps != 0).then(|| Missing {
        what: format!("some of what {gaps} QPs posted, and their completions from then on"),
        reason: "the library they use was written over, or its mode or owner changed, while it was attached to; what \
                 came until it was attached to again was not counted"
            .to_owned(),
        fix: None,
    });
    let completions = [
        (totals.no_owner, "no QP could be told: several use one extended queue, or no slot was free".to_owned(), None),
        (totals.no_completion, "they could not be read from the process's memory".to_owned(), None),
    ];
    let told = |what: &'static str| {
        move |(n, reason, fix): (u64, String, Option<&str>)| {
            (n != 0).then(|| Missing { what: format!("{n} {what}"), reason, fix: fix.map(str::to_owned) })
        }
    };
    let posts = numbers.into_iter().filter_map(told("posts or slots"));
    posts.chain(completions.into_iter().filter_map(told("completions"))).chain(gap).collect()
}
