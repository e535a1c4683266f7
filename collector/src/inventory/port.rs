//! Ports: state and its history, counters, and the meanings computed from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::totals::{Bases, FailoverTotals, PostTotals};
use super::{BoundSets, Calm, CounterSet, DeviceId, Latencies, Posting, Slices, Traced};
use crate::observation::{self, LinkLayer, Nanos, PortState};
use crate::timeline::counter_table::{How, Meaning};
use crate::timeline::{Events, Growth, Ring, Series};

/// State changes and events kept per port.
const MAX_EVENTS: usize = 256;
/// Changes of the GID table kept per port.
const MAX_GID_CHANGES: usize = 16;
/// Loopback measurements kept per port: an hour of one a second.
const MAX_LOOPBACKS: usize = 3600;
/// A port that carries less than this share of its rate is quiet, unless it is paused.
const QUIET_LOAD: f64 = 0.5;
/// And one of whose received packets more than this share is marked is not: what operations take then may be the queue itself.
const QUIET_MARKS: f64 = 1e-5;
/// And paused is one that is told to stop for more than this, µs a second.
const QUIET_PAUSE_US: f64 = 1_000.0;
/// Windows after which what cannot be read any more is taken for not counted.
const COUNTED_WINDOWS: usize = 60;

/// A port's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    /// Its device.
    pub device: DeviceId,
    /// Its number, from 1.
    pub port: u32,
}

/// One change of a port's table of addresses (GIDs), between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidChange {
    /// An address was taken, or replaced.
    Lost,
    /// Addresses were added, and all others are still there.
    Added,
}

/// One change of a port's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    /// Before.
    pub from: PortState,
    /// After.
    pub to: PortState,
    /// Physical state after.
    pub phys_state: Option<Arc<str>>,
}

/// What happened to a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortEvent {
    /// An asynchronous event by its `IBV_EVENT_*` name without the prefix.
    Async(Arc<str>),
    /// Its counters were reset: so many fell together.
    Reset(u32),
    /// Its device vanished.
    Removed,
    /// Its device came back.
    Returned,
}

/// One measurement of the loopback probe, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopbackSample {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Operations measured.
    pub n: u64,
}

/// The congestion control parameters a port was last seen with; an absent key is unknown.
#[derive(Debug, Clone, PartialEq)]
pub struct CongestionRecord {
    /// When they were read.
    pub t: Nanos,
    /// Notification point (receiver), by the driver's own names.
    pub np: serde_json::Map<String, serde_json::Value>,
    /// Reaction point (sender), by the driver's own names.
    pub rp: serde_json::Map<String, serde_json::Value>,
    /// PFC by priority.
    pub pfc_enabled: Option<[bool; 8]>,
    /// What the port trusts: `pcp` or `dscp`.
    pub trust: Option<Arc<str>>,
    /// DSCP of CNPs.
    pub cnp_dscp: Option<u8>,
    /// `dcqcn`, `rtt` or `none`.
    pub cc_algorithm: Option<Arc<str>>,
}

/// Throughput of the last interval, Gb/s; `None` is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Throughput {
    /// Sent.
    pub tx_gbps: Option<f64>,
    /// Received.
    pub rx_gbps: Option<f64>,
}

/// The counters that give one meaning now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeaningReading {
    /// Combined total in the meaning's unit (bytes where the counters count bytes or words).
    pub total: Option<u64>,
    /// Combined growth per second of the last interval, in the same unit.
    pub rate: Option<f64>,
    /// The counters' names.
    pub counters: Vec<Arc<str>>,
    /// A counter stands at its ceiling: the total is a lower bound.
    pub saturated: bool,
}

/// One counter's place: set and series.
pub(super) type Place = (u16, u16);

/// A counter that could give a meaning: rank, source, network device, how it combines, place.
type Candidate = (u8, observation::CounterSource, Option<Arc<str>>, How, Place);

/// Counters of one meaning, best rank first; those of one rank from one source are combined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) places: Arc<[Place]>,
    pub(super) how: Option<How>,
}

/// One port.
#[derive(Debug, Clone)]
pub struct PortRecord {
    /// Identity.
    pub key: PortKey,
    /// Link layer.
    pub link_layer: LinkLayer,
    /// State.
    pub state: PortState,
    /// Physical state.
    pub phys_state: Option<Arc<str>>,
    /// Signalling rate, Gb/s.
    pub rate_gbps: Option<f64>,
    /// Lanes in use.
    pub lanes: Option<u32>,
    /// LID.
    pub lid: Option<u32>,
    /// Network devices.
    pub netdevs: Vec<Arc<str>>,
    /// PCI function behind the network device of a software device.
    pub netdev_pci: Option<Arc<str>>,
    /// Bond.
    pub bond: Option<Arc<str>>,
    /// Cache lifetime of `hw_counters`, ms.
    pub lifespan_ms: Option<u32>,
    /// GID table entries in use: index, GID, kind.
    pub gids: Vec<(u32, Arc<str>, Option<Arc<str>>)>,
    /// When they were seen to have changed.
    pub gids_changed: Events<GidChange>,
    /// Notes of the source.
    pub notes: Vec<Arc<str>>,
    /// When it was first seen, and in which state.
    pub first_seen: (Nanos, PortState),
    /// When its state was last observed.
    pub t: Nanos,
    /// Time of the newest word about the state: an older one, told later by another source, does not undo it.
    state_t: Nanos,
    /// State changes.
    pub states: Events<StateChange>,
    /// Other events.
    pub events: Events<PortEvent>,
    /// Counter sets.
    pub sets: Vec<CounterSet>,
    /// Counter sets bound to its QPs. The kernel has them in the port's own counters already.
    pub bound: BoundSets,
    /// Rates per window by meaning, in the meaning's unit per second.
    pub rates: BTreeMap<Meaning, Ring>,
    /// Bytes per second that traced work requests send (not those they fetch), by window; empty when nothing was traced. A
    /// window in which nobody watched, or of which not all is known, has none.
    pub traced: Ring,
    /// Measurements of the loopback probe.
    pub loopbacks: Arc<Events<LoopbackSample>>,
    /// Congestion control parameters.
    pub congestion: Option<Arc<CongestionRecord>>,
    /// What its QPs posted, by window.
    pub posting: Posting,
    /// Marks, CNPs, pauses and bytes side by side, at the sources' own period.
    pub slices: Slices,
    /// How long operations took, by window and size class.
    pub latencies: Latencies,
    /// QPs on the port now.
    pub qps: u32,
    /// Those of them that a process has connected to a peer, also when they have failed since.
    pub connected_qps: u32,
    /// What its QPs posted since the beginning.
    pub posted: PostTotals,
    /// Its failovers since the beginning.
    pub failovers: FailoverTotals,
    pub(crate) traced_bytes: u64,
    /// In the open window a QP told its first numbers, which say nothing of what it posted since it began.
    pub(crate) traced_in_part: bool,
    pub(super) bases: Bases,
    groups: Arc<BTreeMap<Meaning, Vec<Group>>>,
}

/// What flows: bytes and packets that arrive all the time, unlike errors and marks.
fn is_traffic(meaning: Meaning) -> bool {
    use Meaning::{LoopbackBytes, PriorityRxBytes, PriorityRxPackets, PriorityTxBytes, PriorityTxPackets, RxBytes};
    use Meaning::{RxMulticastPackets, RxPackets, RxUnicastPackets, TxBytes, TxMulticastPackets, TxPackets};
    use Meaning::{TxUnicastPackets, WireRxBytes, WireRxPackets, WireTxBytes, WireTxPackets};
    matches!(
        meaning,
        TxBytes
            | RxBytes
            | TxPackets
            | RxPackets
            | TxUnicastPackets
            | RxUnicastPackets
            | TxMulticastPackets
            | RxMulticastPackets
            | WireTxBytes
            | WireRxBytes
            | WireTxPackets
            | WireRxPackets
            | LoopbackBytes
            | PriorityTxBytes
            | PriorityRxBytes
            | PriorityTxPackets
            | PriorityRxPackets
    )
}

impl PortRecord {
    pub(crate) fn new(key: PortKey, t: Nanos, state: PortState) -> Self {
        Self {
            key,
            link_layer: LinkLayer::Unspecified,
            state,
            phys_state: None,
            rate_gbps: None,
            lanes: None,
            lid: None,
            netdevs: Vec::new(),
            netdev_pci: None,
            bond: None,
            lifespan_ms: None,
            gids: Vec::new(),
            gids_changed: Events::new(MAX_GID_CHANGES),
            notes: Vec::new(),
            first_seen: (t, state),
            t,
            state_t: 0,
            states: Events::new(MAX_EVENTS),
            events: Events::new(MAX_EVENTS),
            sets: Vec::new(),
            bound: BoundSets::default(),
            rates: BTreeMap::new(),
            traced: Ring::default(),
            loopbacks: Arc::new(Events::new(MAX_LOOPBACKS)),
            congestion: None,
            posting: Posting::default(),
            slices: Slices::default(),
            latencies: Latencies::default(),
            qps: 0,
            connected_qps: 0,
            posted: PostTotals::default(),
            failovers: FailoverTotals::default(),
            traced_bytes: 0,
            traced_in_part: false,
            bases: Bases::default(),
            groups: Arc::default(),
        }
    }

    /// Takes an observation; says whether the state changed.
    pub(crate) fn update(&mut self, t: Nanos, seen: &observation::Port<'_>) -> bool {
        let text = |text: &Option<observation::Text<'_>>| text.as_deref().map(Arc::from);
        self.link_layer = seen.link_layer;
        self.phys_state = text(&seen.phys_state);
        self.rate_gbps = seen.rate_gbps;
        self.lanes = seen.lanes;
        self.lid = seen.lid;
        self.netdevs = seen.netdevs.iter().map(|n| n.as_ref().into()).collect();
        self.netdev_pci = text(&seen.netdev_pci);
        self.bond = text(&seen.bond);
        self.lifespan_ms = seen.lifespan_ms;
        let gids: Vec<_> = seen.gids.iter().map(|g| (g.index, g.gid.as_ref().into(), text(&g.kind))).collect();
        // None are told also where nobody looked.
        if gids != self.gids && !gids.is_empty() && !self.gids.is_empty() {
            let lost = self.gids.iter().any(|gid| !gids.contains(gid));
            self.gids_changed.push(t, if lost { GidChange::Lost } else { GidChange::Added });
        }
        self.gids = gids;
        self.notes = seen.notes.iter().map(|n| n.as_ref().into()).collect();
        self.t = t;
        self.change_state(t, seen.state)
    }

    /// It is told of for the first time, and that it left ACTIVE for this state at `left`.
    pub(crate) fn fell_before(&mut self, left: Nanos, state: PortState) {
        if !matches!(state, PortState::Active | PortState::Unknown) {
            (self.state, self.first_seen) = (PortState::Active, (left, PortState::Active));
            self.change_state(left, state);
        }
    }

    /// The device is gone, and the state is not known any more, whatever another source said last.
    pub(crate) fn lose_device(&mut self, t: Nanos) {
        self.change_state(t.max(self.state_t), PortState::Unknown);
        self.bound.clear();
    }

    /// Notes a state; says whether it is a change between two known states.
    pub(crate) fn change_state(&mut self, t: Nanos, state: PortState) -> bool {
        if t < self.state_t {
            return false;
        }
        self.state_t = t;
        let from = std::mem::replace(&mut self.state, state);
        if from == state {
            return false;
        }
        // The order in which changes were told is the chain of states; a late one is not put before what it follows.
        let t = self.states.last().map_or(t, |(newest, _)| t.max(*newest));
        self.states.push(t, StateChange { from, to: state, phys_state: self.phys_state.clone() });
        true
    }

    /// When the port left ACTIVE for a state that is known, if it has not been ACTIVE since.
    #[must_use]
    pub fn left_active(&self) -> Option<Nanos> {
        let mut t = None;
        for (at, change) in self.states.iter().rev() {
            if change.to == PortState::Active {
                return None;
            }
            if change.to != PortState::Unknown {
                t = Some(*at);
            }
            if change.from == PortState::Active {
                return t;
            }
        }
        None
    }

    /// The set a `counters` observation belongs to.
    #[must_use]
    pub fn set(&self, source: observation::CounterSource) -> Option<&CounterSet> {
        self.sets.iter().find(|set| set.source == source && set.bound.is_none())
    }

    /// A counter of the port by the driver's name, in whichever set has it readable.
    #[must_use]
    pub fn counter(&self, name: &str) -> Option<&Series> {
        let mut found = self.sets.iter().filter_map(|set| set.get(name));
        let first = found.next()?;
        if first.value().is_some() { Some(first) } else { found.find(|s| s.value().is_some()).or(Some(first)) }
    }

    /// Rebuilds the meanings' groups after a set got a new counter.
    pub(crate) fn regroup(&mut self) {
        let mut all: BTreeMap<Meaning, Vec<Candidate>> = BTreeMap::new();
        for (s, set) in self.sets.iter().enumerate().filter(|(_, set)| set.bound.is_none()) {
            for (c, series) in set.series.iter().enumerate() {
                if let (Some(meaning), Some(combine)) = (series.def.meaning, series.def.combine)
                    && let (Ok(s), Ok(c)) = (u16::try_from(s), u16::try_from(c))
                {
                    let entry = (combine.rank, set.source, set.netdev.clone(), combine.how, (s, c));
                    all.entry(meaning).or_default().push(entry);
                }
            }
        }
        let groups = all.into_iter().map(|(meaning, mut places)| {
            places.sort_by(|a, b| (a.0, a.1, &a.2, a.4).cmp(&(b.0, b.1, &b.2, b.4)));
            let mut groups: Vec<(How, Vec<Place>)> = Vec::new();
            let mut last = None;
            for (rank, source, netdev, how, place) in places {
                let id = Some((rank, source, netdev));
                if last != id || groups.is_empty() {
                    groups.push((how, Vec::new()));
                    last = id;
                }
                // One counter is preferred to others of its rank; parts of a whole and overlapping times are combined.
                if let Some((_, places)) = groups.last_mut()
                    && (how != How::Prefer || places.is_empty())
                {
                    places.push(place);
                }
            }
            let groups =
                groups.into_iter().map(|(how, places)| Group { places: places.into(), how: Some(how) }).collect();
            (meaning, groups)
        });
        self.groups = Arc::new(groups.collect());
        self.follow();
    }

    /// The counters of both give the same meanings, in the same places.
    pub(crate) fn has_groups_of(&self, other: &Self) -> bool {
        !self.groups.is_empty() && self.groups == other.groups
    }

    /// Keeps what both ports have of groups once.
    pub(crate) fn share_groups(&mut self, twin: &Self) {
        self.groups = Arc::clone(&twin.groups);
    }

    #[cfg(test)]
    pub(crate) fn shares_groups_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.groups, &other.groups)
    }

    /// Lets the slices follow the counters that give each meaning now.
    fn follow(&mut self) {
        let mut slices = std::mem::take(&mut self.slices);
        slices.follow(self.sets.len(), |meaning| {
            let group = self.group(meaning).or_else(|| self.groups.get(&meaning)?.first())?;
            Some((group.how?, &group.places[..]))
        });
        self.slices = slices;
    }

    /// A set was read: its growth belongs to a slice.
    pub(crate) fn slice(&mut self, at: usize) {
        if let Some(set) = self.sets.get(at) {
            self.slices.take(at, set);
        }
    }

    /// The group that gives a meaning now: the best rank of which every counter can be read.
    pub(super) fn group(&self, meaning: Meaning) -> Option<&Group> {
        self.readable(self.groups.get(&meaning)?)
    }

    /// The first of the groups, which are sorted by rank, of which every counter can be read.
    fn readable<'g>(&self, groups: &'g [Group]) -> Option<&'g Group> {
        groups.iter().find(|group| group.places.iter().all(|place| self.at(*place).value().is_some()))
    }

    /// Every meaning the port has counters for, with the group that gives it now.
    pub(super) fn groups_now(&self) -> impl Iterator<Item = (Meaning, &Group)> {
        self.groups.iter().filter_map(|(meaning, groups)| Some((*meaning, self.readable(groups)?)))
    }

    pub(super) fn at(&self, (set, series): Place) -> &Series {
        &self.sets[usize::from(set)].series[usize::from(series)]
    }

    /// Meanings the port has counters for.
    pub fn meanings(&self) -> impl Iterator<Item = Meaning> + '_ {
        self.groups.keys().copied()
    }

    /// The counters behind a meaning, those in use now or else the first group.
    pub fn series_of(&self, meaning: Meaning) -> impl Iterator<Item = &Series> {
        let group = self.group(meaning).or_else(|| self.groups.get(&meaning).and_then(|groups| groups.first()));
        group.into_iter().flat_map(|group| group.places.iter().map(|place| self.at(*place)))
    }

    /// What the port's counters say of a meaning; `None` when none of them can be read.
    #[must_use]
    pub fn reading(&self, meaning: Meaning) -> Option<MeaningReading> {
        let group = self.group(meaning)?;
        let series = || group.places.iter().map(|place| self.at(*place));
        let max = matches!(group.how, Some(How::Max));
        let total = series().try_fold(0u64, |sum, series| {
            let total = series.value()?.checked_mul(series.def.unit.bytes_factor().unwrap_or(1))?;
            if max { Some(sum.max(total)) } else { sum.checked_add(total) }
        });
        Some(MeaningReading {
            total,
            rate: self.rate_of(group),
            counters: series().map(|series| series.name.clone()).collect(),
            saturated: series().any(Series::saturated),
        })
    }

    /// The rate of [`Self::reading`] alone, for whoever asks in every window.
    #[must_use]
    pub fn rate(&self, meaning: Meaning) -> Option<f64> {
        self.rate_of(self.group(meaning)?)
    }

    fn rate_of(&self, group: &Group) -> Option<f64> {
        let max = matches!(group.how, Some(How::Max));
        group.places.iter().try_fold(0.0f64, |sum, place| {
            let series = self.at(*place);
            let rate = series.rate? * series.def.unit.bytes_factor().unwrap_or(1) as f64;
            Some(if max { sum.max(rate) } else { sum + rate })
        })
    }

    /// Growth of a meaning after `from`; `None` when it cannot be told.
    #[must_use]
    pub fn growth(&self, meaning: Meaning, from: Nanos) -> Option<Growth> {
        let group = self.group(meaning)?;
        let max = matches!(group.how, Some(How::Max));
        let mut all = Growth { sum: 0, broken: false };
        for place in &*group.places {
            let series = self.at(*place);
            let growth = series.growth_since(from)?;
            let sum = growth.sum.saturating_mul(series.def.unit.bytes_factor().unwrap_or(1));
            all.sum = if max { all.sum.max(sum) } else { all.sum.saturating_add(sum) };
            all.broken |= growth.broken;
        }
        Some(all)
    }

    /// Sent and received bits per second of the last interval, Gb/s.
    #[must_use]
    pub fn throughput(&self) -> Throughput {
        let gbps = |meaning| self.rate(meaning).map(|bytes| bytes * 8.0 / 1e9);
        Throughput { tx_gbps: gbps(Meaning::TxBytes), rx_gbps: gbps(Meaning::RxBytes) }
    }

    /// The busier direction's share of the signalling rate, 0–1; `None` when throughput or rate is unknown, or the port
    /// is down (its rate is then no negotiated one).
    #[must_use]
    pub fn utilisation(&self) -> Option<f64> {
        let rate = self.rate_gbps.filter(|rate| *rate > 0.0 && self.state == PortState::Active)?;
        let now = self.throughput();
        let busier = match (now.tx_gbps, now.rx_gbps) {
            (Some(tx), Some(rx)) => tx.max(rx),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return None,
        };
        Some(busier / rate)
    }

    /// Its error counters in the port table of the InfiniBand specification (`symbol_error`, `link_error_recovery`,
    /// `local_link_integrity_errors`) say something of its link: on RoCE they are often listed and never filled, and what they
    /// count where they are is not known.
    #[must_use]
    pub fn pma_counts_errors(&self) -> bool {
        self.link_layer == LinkLayer::InfiniBand
    }

    /// What the counters of a meaning count here is known: not of those on RoCE that
    /// [`pma_counts_errors`](Self::pma_counts_errors) names. Where nobody says what the link is, they are taken for errors.
    #[must_use]
    pub fn is_understood(&self, meaning: Meaning) -> bool {
        let of_infiniband = [Meaning::SymbolError, Meaning::LinkErrorRecovery, Meaning::LocalLinkIntegrity];
        !of_infiniband.contains(&meaning) || self.link_layer != LinkLayer::Ethernet
    }

    /// What the port did in the window that was closed. Pause and marks that are not counted are not held against it; of a
    /// window without a reading of a pause that is counted nothing is known; a load that is not known is not called quiet.
    fn calm(&self) -> Calm {
        let newest = |meaning| self.rates.get(&meaning).and_then(Ring::last);
        // µs of pause a second.
        match newest(Meaning::RxPauseDuration) {
            Some(us) if us > QUIET_PAUSE_US => return Calm::Paused,
            None if self.is_counted(Meaning::RxPauseDuration) => return Calm::Unknown,
            _ => {}
        }
        let load = [newest(Meaning::RxBytes), newest(Meaning::TxBytes)].into_iter().flatten().reduce(f64::max);
        let rate = self.rate_gbps.filter(|rate| *rate > 0.0);
        let marked = newest(Meaning::EcnMarkedRx).zip(newest(Meaning::RxPackets));
        let marked = marked.is_some_and(|(marks, packets)| marks > QUIET_MARKS * packets);
        let quiet = !marked && load.zip(rate).is_some_and(|(bytes, rate)| bytes * 8.0 / 1e9 < QUIET_LOAD * rate);
        if quiet { Calm::Quiet } else { Calm::Busy }
    }

    /// A meaning has counters that can be read, or could a short while ago.
    fn is_counted(&self, meaning: Meaning) -> bool {
        let was_read = |ring: &Ring| ring.newest_first().take(COUNTED_WINDOWS).flatten().next().is_some();
        self.group(meaning).is_some() || self.rates.get(&meaning).is_some_and(was_read)
    }

    /// Closes the window of this length: pushes each meaning's rate, and the traced bytes where posts were watched.
    pub(crate) fn close_window(&mut self, now: Nanos, window_ns: Nanos, seen: Traced) {
        // The rates of all sets one after another, and where each set begins.
        let mut rates: Vec<Option<f64>> = Vec::with_capacity(self.sets.iter().map(|set| set.series.len()).sum());
        let mut begins = Vec::with_capacity(self.sets.len());
        for set in &mut self.sets {
            begins.push(rates.len());
            for series in &mut set.series {
                let rate = series.close_window();
                series.expire(now);
                // A window without a reading shows the last rate for as long as the reading is fresh, but for what
                // comes in single events: one error is no error in every window until the next reading.
                let held = series.rate.filter(|_| series.def.meaning.is_some_and(is_traffic));
                rates.push(rate.or(held));
            }
        }
        let mut histories = std::mem::take(&mut self.rates);
        for (meaning, groups) in &*self.groups {
            let value = self.readable(groups).and_then(|group| {
                let max = matches!(group.how, Some(How::Max));
                group.places.iter().try_fold(0.0f64, |sum, place| {
                    let factor = self.at(*place).def.unit.bytes_factor().unwrap_or(1) as f64;
                    let rate = rates[begins[usize::from(place.0)] + usize::from(place.1)]? * factor;
                    Some(if max { sum.max(rate) } else { sum + rate })
                })
            });
            histories.entry(*meaning).or_default().push(value);
        }
        self.rates = histories;
        self.rebase(now);
        self.posting.close_window(now, window_ns, seen);
        self.follow();
        self.latencies.close_window(now, self.calm());
        let traced = std::mem::take(&mut self.traced_bytes);
        let in_part = std::mem::take(&mut self.traced_in_part);
        let ns = seen.ns(window_ns).filter(|_| !in_part);
        if ns.is_some() || !self.traced.is_empty() {
            self.traced.push(ns.map(|ns| traced as f64 * 1e9 / ns as f64));
        }
    }
}
