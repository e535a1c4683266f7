//! Ports: what is known of each, and what it keeps from window to window.
//!
//! `state` is the history of its state, `meaning` what its counters say together, `throughput` what flows now, and `window`
//! what is noted when a window ends.

mod meaning;
mod state;
mod throughput;
mod window;

use std::sync::Arc;

pub use meaning::MeaningReading;
pub(super) use meaning::{Group, Place};
pub use state::StateChange;
pub use throughput::Throughput;

use super::totals::{Bases, FailoverTotals, PostTotals};
use super::{BoundSets, CounterSet, DeviceId, Latencies, Posting, Slices};
use crate::observation::{self, LinkLayer, Nanos, PortState};
use crate::timeline::counter_table::Meaning;
use crate::timeline::{ByMeaning, Events, Ring, Series};

/// State changes and events kept per port.
const MAX_EVENTS: usize = 256;
/// Changes of the GID table kept per port.
const MAX_GID_CHANGES: usize = 16;
/// Loopback measurements kept per port: an hour of one a second.
const MAX_LOOPBACKS: usize = 3600;

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
    pub rates: ByMeaning<Ring>,
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
    /// The most of those at once in a window since it was last ACTIVE: somebody used it, also when they are gone.
    pub were_connected_qps: u32,
    /// What its QPs posted since the beginning.
    pub posted: PostTotals,
    /// Its failovers since the beginning.
    pub failovers: FailoverTotals,
    pub(crate) traced_bytes: u64,
    /// In the open window a QP told its first numbers, which say nothing of what it posted since it began.
    pub(crate) traced_in_part: bool,
    pub(super) bases: Bases,
    groups: Arc<ByMeaning<Vec<Group>>>,
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
            rates: ByMeaning::default(),
            traced: Ring::default(),
            loopbacks: Arc::new(Events::new(MAX_LOOPBACKS)),
            congestion: None,
            posting: Posting::default(),
            slices: Slices::default(),
            latencies: Latencies::default(),
            qps: 0,
            connected_qps: 0,
            were_connected_qps: 0,
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
}
