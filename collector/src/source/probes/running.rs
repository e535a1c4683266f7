//! The programs once they are loaded: their events are read, their slots swept, and what both say is told.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;

use aya::maps::{MapData, RingBuf};
use collector_ebpf::event::{has, kind};
use collector_ebpf::slot::Totals;

use super::attach::Attached;
use super::budget::{Budget, Governor};
use super::calibrate::{self, Costs};
use super::discovery::Addresses;
use super::events::{self, Events};
use super::pids::own_pids;
use super::qps::Qps;
use super::reason::{self, Why};
use super::store::{Maps, Store as _};
use super::{NAME, ProbeOptions, REAP_SWEEPS, learned};
use crate::clock;
use crate::observation::{Body, FanOut, Histogram, Lost, Nanos, Observation, Text};
use crate::source::Emit;

/// Events that are read before they are told of.
const BATCH: usize = 4096;

/// Batches of one poll: the ring buffer holds less than this; what comes meanwhile is for the next poll.
const MOST_BATCHES: usize = 4;

/// Of so many signalled work requests of a QP one is timed, where cost is limited.
const TIMED_ONE_IN: u64 = 8;

/// What there is once the object is loaded.
pub(super) struct Running {
    pub(super) ring: RingBuf<MapData>,
    pub(super) maps: Maps,
    pub(super) qps: Qps,
    pub(super) governor: Governor,
    pub(super) costs: Costs,
    /// [`Attached::changes`] at the last change of what the programs are told.
    pub(super) told_changes: Option<u64>,
    pub(super) totals: Totals,
    pub(super) lost: u64,
    told_lost: u64,
    pub(super) last_t: Nanos,
    pub(super) sweeps: u64,
    /// What was last told of each device's fan-out, in one number.
    fans: HashMap<u64, u64>,
    /// What processes told of their providers' operations.
    pub(super) learned: Addresses,
    /// Devices that a QP was created on: a new one may have a provider that is not attached yet.
    devices: HashSet<String>,
    /// Processes that created or changed a QP since the last look: theirs may be another build of the provider.
    pub(super) users: BTreeSet<u32>,
}

impl Running {
    /// Takes the maps of what was loaded, and measures what a hit costs; `None` where nothing was loaded.
    pub(super) fn new(attached: &mut Attached, options: &ProbeOptions) -> Result<Option<Self>, Why> {
        let sizes = attached.sizes;
        let Some(ebpf) = attached.ebpf() else { return Ok(None) };
        let ring = ebpf.take_map("EVENTS").ok_or("the BPF map EVENTS is not in the object")?;
        let ring = RingBuf::try_from(ring).map_err(|error| reason::explain(&error))?;
        let mut maps = Maps::take(ebpf, sizes)?;
        maps.follow(attached.follows_qps());
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
    pub(super) fn drain(&mut self, emit: &mut Emit<'_>) -> bool {
        let mut new_device = false;
        let mut batch = Vec::new();
        for _ in 0..MOST_BATCHES {
            let mut read = 0;
            while read < BATCH
                && let Some(record) = self.ring.next()
            {
                read += 1;
                match (learned::read(&record), events::read(&record)) {
                    (Some(learned), _) => {
                        self.lost += u64::from(!self.learned.add(learned.tgid, learned::addresses(&learned)));
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
    pub(super) fn tell(&self, [posts, completions]: [bool; 2]) {
        let every = if self.governor.is_limited() { TIMED_ONE_IN } else { 1 };
        self.maps.begin_epoch(clock::monotonic_ns(), posts, completions, every);
    }

    /// Emits the statistics and what was lost.
    pub(super) fn sweep(&mut self, now: Nanos, destroy_seen: bool, emit: &mut Emit<'_>) {
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
