//! One incident: which QPs ended when and how, and what it comes to.

use std::collections::{BTreeMap, BTreeSet};

use super::{Failover, Floor, Mark, Moment, Qps, Replacement, floor_ns};
use crate::inventory::{By, PortKey, QpRecord, QpRef, World};
use crate::observation::{LinkLayer, Nanos, QpState};
use crate::rule::FailoverSettings;

/// The call that asked for a QP's error state may be told this long after the state was found, ns.
const LATE_CALL_NS: Nanos = 1_000_000_000;
/// The kernel tells a lost carrier up to a second late (`net/core/link_watch.c` runs once a second, and a carrier that is
/// lost is not urgent to it), and some more until it is told on; QPs may know earlier. ns.
const LATE_CARRIER_NS: Nanos = 1_200_000_000;
/// Up to this many QPs of an incident are judged one by one as they end, more of them at the end of the window.
const FEW_QPS: usize = 8;
/// QPs that are told apart in one incident.
const MAX_QPS: usize = 4096;
/// QPs beyond those that are counted: as many as an adapter has.
const MAX_BEYOND: usize = 1 << 18;

/// One incident under way.
#[derive(Debug)]
pub(super) struct Incident {
    pub(super) failover: Failover,
    pub(super) qps: BTreeMap<QpRef, Ended>,
    /// QPs that ended beyond those.
    pub(super) beyond: BTreeSet<QpRef>,
    /// Processes whose QPs ended: their operations on another path end the incident.
    pub(super) owners: BTreeSet<u32>,
    /// First operations on other paths by process, also of those that are not known to have lost a QP yet: the list of
    /// QPs is read later than their statistics.
    pub(super) operations: BTreeMap<u32, (Mark, Replacement)>,
    /// QPs on other paths that have posted, and whose completion shows whether the path carries anything.
    pub(super) awaited: BTreeSet<QpRef>,
    /// Processes by whether their completions are not seen although completions are watched.
    pub(super) unseen: BTreeMap<u32, bool>,
    /// When something of it last happened.
    pub(super) newest: Nanos,
    /// The outage is known to have lasted for so long, ns.
    pub(super) stood_ns: Option<Nanos>,
    /// Something may have taken over since, unseen: it is not known to have lasted longer.
    pub(super) overlooked: bool,
    /// Processes whose QPs on other paths had posted at a time nobody knows when they were first seen, as at the beginning of
    /// a recording: what else they do is not known to be their first operation.
    pub(super) unsure: BTreeSet<u32>,
    /// What was told of it last.
    pub(super) told: Option<Failover>,
}

/// How one QP ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) at: Moment,
    /// Its process moved it; otherwise it died.
    pub(super) asked: bool,
    /// An event told that it died: a call afterwards only follows.
    pub(super) told: bool,
    pub(super) what: String,
    pub(super) timers: Option<(u8, u8)>,
}

impl Incident {
    /// That the process of a QP posts is all there is to see of its operations, though completions may be watched: it polls
    /// on a path that is not seen, for nothing has completed of what it posted to other QPs than those it may have made in
    /// the incident, after `from`. One that posted nothing before is taken to be seen where completions are `attached`.
    pub(super) fn is_unseen(
        &mut self,
        world: &World,
        (qp, pid): (&QpRecord, u32),
        from: Nanos,
        attached: bool,
    ) -> bool {
        let (key, awaited) = (self.failover.key, &self.awaited);
        *self.unseen.entry(pid).or_insert_with(|| {
            let failing = |qp: &QpRecord| qp.device == key.device && qp.port.is_none_or(|n| u32::from(n) == key.port);
            let old = |qp: &QpRecord| failing(qp) || !qp.created || qp.since <= from;
            let others = |other: &&QpRecord| {
                other.pid == Some(pid) && other.id != qp.id && !awaited.contains(&other.id) && old(other)
            };
            let mut posted = false;
            for detail in world.qps.iter().chain(world.qps.gone()).filter(others).filter_map(|qp| qp.detail.as_ref()) {
                if detail.completions.is_some() {
                    return false;
                }
                posted |= detail.signaled.is_some_and(|n| n > 0);
            }
            posted || !attached
        })
    }

    /// QPs of the port that ended after `from`.
    pub(super) fn look_back(&mut self, world: &World, from: Nanos) {
        let key = self.failover.key;
        for (t, failure) in world.qp_failures.since(from) {
            let here = failure.device == key.device && failure.port == Some(key.port) && !failure.asked;
            if here && let Some(qp) = world.qps.get(failure.id) {
                let at = Moment::between(failure.last_good.unwrap_or(from).max(from), *t);
                self.end(qp, died(qp, at, failure.told, format!("QP {} in the error state", qp.qpn)));
            }
        }
        let only = world.ports_of(key.device).nth(1).is_none();
        let here = |qp: &&QpRecord| qp.device == key.device && qp.port.map_or(only, |port| u32::from(port) == key.port);
        for qp in world.qps.iter().chain(world.qps.gone()).filter(here).filter(|qp| !qp.is_own()) {
            let Some(detail) = &qp.detail else { continue };
            for (t, change) in detail.changes.since(from).filter(|(_, change)| change.by == By::Modify) {
                if let Some(to @ (QpState::Sqd | QpState::Err)) = change.to.filter(|_| change.errno.is_none()) {
                    self.end(qp, asked(qp, *t, to));
                }
            }
        }
    }

    /// Something of it happened; true when it is to be told at once.
    pub(super) fn touch(&mut self, t: Nanos) -> bool {
        self.newest = self.newest.max(t);
        // In a storm of QPs the numbers can wait for the end of the window.
        self.qps.len() <= FEW_QPS || self.told.as_ref().is_none_or(|told| told.first_qp.is_none())
    }

    /// A QP ended. What ended it first counts, but for a call that was told late.
    pub(super) fn end(&mut self, qp: &QpRecord, ended: Ended) {
        self.owners.extend(qp.pid);
        let room = self.qps.len() < MAX_QPS;
        match self.qps.get_mut(&qp.id) {
            Some(before) => {
                let late_call = ended.asked
                    && !before.asked
                    && !before.told
                    && ended.at.t <= before.at.t.saturating_add(LATE_CALL_NS)
                    && ended.at.t >= before.at.not_before.saturating_sub(LATE_CALL_NS);
                let sooner = ended.asked == before.asked && ended.at.t < before.at.t;
                let surer = !ended.asked && !before.asked && ended.told && !before.told;
                if late_call || sooner || surer {
                    *before = ended;
                }
            }
            // They end by a state and by each status of their completions, and are one QP each.
            None if !room => {
                if self.beyond.len() < MAX_BEYOND {
                    self.beyond.insert(qp.id);
                }
            }
            None => {
                self.qps.insert(qp.id, ended);
            }
        }
    }

    /// No QP ended in it and nothing took over.
    pub(super) fn nothing_ended(&self) -> bool {
        let failover = &self.failover;
        self.qps.is_empty()
            && self.beyond.is_empty()
            && failover.bond_switch.is_none()
            && failover.first_operation.is_none()
    }

    /// There was no first operation until `now`. Where none can have been overlooked, for all that the processes post is seen
    /// and they have no QP on another path, the outage lasts: a budget that is over is missed.
    pub(super) fn stands_still(&mut self, world: &World, settings: &FailoverSettings, now: Nanos) {
        let failover = &self.failover;
        if self.overlooked || self.owners.is_empty() {
            return;
        }
        let Some(began) = failover.began().filter(|_| failover.first_operation.is_none() && failover.port_up.is_none())
        else {
            return;
        };
        let watched =
            world.probes.as_ref().is_some_and(|probes| probes.data_path() && probes.posts_watched_ns.is_none());
        let unseen = |pid: &u32| world.processes.contains_key(pid);
        self.overlooked = !watched || !self.beyond.is_empty() || self.owners.iter().any(unseen);
        if self.overlooked {
            return;
        }
        let elsewhere = |qp: &QpRecord| {
            qp.pid.is_some_and(|pid| self.owners.contains(&pid)) && !self.qps.contains_key(&qp.id) && !qp.is_own()
        };
        // Of a QP without a known owner nobody can say whose it is.
        self.overlooked =
            world.qps.iter().any(|qp| elsewhere(qp) || (qp.pid.is_none() && qp.since >= began.not_before));
        if self.overlooked {
            return;
        }
        self.stood_ns = Some(now.saturating_sub(began.t));
        self.last(settings);
    }

    /// What is known of how long it has lasted, to the verdicts.
    fn last(&mut self, settings: &FailoverSettings) {
        let over = self.failover.first_operation.is_some() || self.failover.port_up.is_some();
        if let Some(ns) = self.stood_ns.filter(|_| !over) {
            self.failover.lasts(ns, &settings.budgets_ms);
        }
    }

    pub(super) fn refresh(&mut self, world: &World, settings: &FailoverSettings) {
        let failover = &mut self.failover;
        let down = failover.port_down.as_ref().map(|mark| mark.at);
        let late_ns = late_carrier_ns(world, failover.key);
        let mut qps = Qps { uncounted: u32::try_from(self.beyond.len()).unwrap_or(u32::MAX), ..Qps::default() };
        let mut first: Option<(Moment, &str)> = None;
        for ended in self.qps.values() {
            let mut at = ended.at;
            if ended.asked {
                match down {
                    None => qps.drained += 1,
                    Some(down) if at.t <= down.not_before => qps.drained += 1,
                    Some(down) if at.t >= down.t => qps.late += 1,
                    Some(_) => qps.unsure += 1,
                }
            } else {
                qps.died += 1;
                // What is found dead after its port went down is taken to have died of it.
                if let Some(down) = down.filter(|down| down.not_before <= at.t) {
                    at.not_before = at.not_before.max(down.not_before.saturating_sub(late_ns));
                }
            }
            if first.is_none_or(|(first, _)| (at.t, at.not_before) < (first.t, first.not_before)) {
                first = Some((at, &ended.what));
            }
        }
        failover.qps = qps;
        failover.first_qp = first.map(|(at, what)| Mark { at, what: what.to_owned() });
        if failover.first_operation.is_none() && self.owners.is_disjoint(&self.unsure) {
            let of_owner = |(pid, _): &(&u32, &(Mark, Replacement))| self.owners.contains(*pid);
            let first = self.operations.iter().filter(of_owner).min_by_key(|(_, (mark, _))| mark.at.t);
            if let Some((_, (mark, path))) = first {
                (failover.first_operation, failover.replacement) = (Some(mark.clone()), Some(path.clone()));
            }
        }
        failover.floor = floor(self.qps.values().filter_map(|ended| ended.timers), is_rxe(world, failover.key));
        failover.judge(&settings.budgets_ms);
        self.last(settings);
    }
}

/// How late the kernel may be in telling that a port is down. An InfiniBand adapter tells it itself.
pub(super) fn late_carrier_ns(world: &World, key: PortKey) -> Nanos {
    let infiniband = world.port(key).is_some_and(|port| port.link_layer == LinkLayer::InfiniBand);
    if infiniband { 0 } else { LATE_CARRIER_NS }
}

fn timers(qp: &QpRecord) -> Option<(u8, u8)> {
    qp.timeout.zip(qp.retry_cnt)
}

pub(super) fn asked(qp: &QpRecord, t: Nanos, to: QpState) -> Ended {
    let what = format!("QP {} moved to {}", qp.qpn, to.name());
    Ended { at: Moment::at(t), asked: true, told: false, what, timers: timers(qp) }
}

pub(super) fn died(qp: &QpRecord, at: Moment, told: bool, what: String) -> Ended {
    Ended { at, asked: false, told, what, timers: timers(qp) }
}

/// The software driver, which takes `retry_cnt` 7 as without end (`drivers/infiniband/sw/rxe/rxe_comp.c`). It has no PCI
/// function, and its GUID is made of its network device's address, so its name is all there is to know it by.
fn is_rxe(world: &World, key: PortKey) -> bool {
    let device = world.device(key.device);
    device.pci.is_none() && (device.name.starts_with("rxe") || device.driver.as_deref() == Some("rdma_rxe"))
}

fn floor(timers: impl Iterator<Item = (u8, u8)>, seven_is_endless: bool) -> Option<Floor> {
    let mut floor: Option<Floor> = None;
    for (timeout, retry_cnt) in timers {
        let ns = floor_ns(timeout, retry_cnt, seven_is_endless);
        let all = floor.get_or_insert(Floor { min_ns: ns, max_ns: ns, endless: 0, timeout, retry_cnt });
        all.endless += u32::from(ns.is_none());
        all.min_ns = match (all.min_ns, ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let later = all.max_ns.is_some_and(|max| ns.is_none_or(|ns| ns > max));
        if later {
            (all.max_ns, all.timeout, all.retry_cnt) = (ns, timeout, retry_cnt);
        }
    }
    floor
}
