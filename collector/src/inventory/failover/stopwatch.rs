//! Follows incidents while they are under way: the engine tells it what happened, it knows what that means for whom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Failover, Floor, Mark, Moment, Qps, Replacement, floor_ns};
use crate::inventory::{By, PortKey, PortRecord, QpChange, QpRecord, QpRef, World};
use crate::observation::{AerSeverity, LinkLayer, Nanos, PortState, QpState};
use crate::rule::{FailoverSettings, clock, predicts_failure};
use crate::timeline::counter_table::Meaning;

/// What ended this long before the port was seen down belongs to the incident, ns: a reading may be that late.
const BEFORE_NS: Nanos = 5_000_000_000;
/// The call that asked for a QP's error state may be told this long after the state was found, ns.
const LATE_CALL_NS: Nanos = 1_000_000_000;
/// The kernel tells a lost carrier up to a second late (`net/core/link_watch.c` runs once a second, and a carrier that is
/// lost is not urgent to it), and some more until it is told on; QPs may know earlier. ns.
const LATE_CARRIER_NS: Nanos = 1_200_000_000;
/// A QP that posted nothing for this long was idle, ns.
const IDLE_NS: Nanos = 2_000_000_000;
/// QPs that are told apart in one incident.
const MAX_QPS: usize = 4096;
/// Up to this many QPs of an incident are judged one by one as they end, more of them at the end of the window.
const FEW_QPS: usize = 8;
/// Processes whose first operation elsewhere is remembered in one incident.
const MAX_PROCESSES: usize = 1024;
/// Incidents under way at once: one for each port is usual.
const MAX_OPEN: usize = 64;
/// Before two readings are known their distance is taken to be this, ns.
const USUAL_ROUND_NS: Nanos = 1_000_000_000;
/// Errors of the physical layer that are a first sign.
const PHYSICAL: [Meaning; 4] = [Meaning::PostFecErrors, Meaning::CrcErrors, Meaning::IcrcErrors, Meaning::SymbolError];

/// All incidents under way.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    open: Vec<Incident>,
    ids: u32,
    rounds: Rounds,
    /// The last active member of each bond.
    bonds: BTreeMap<Arc<str>, Arc<str>>,
    /// Ports whose device vanished while they were ACTIVE: a rename brings it back in a moment.
    vanished: Vec<(PortKey, Nanos)>,
    changed: Vec<Arc<Failover>>,
    /// Something happened that is to be told at once.
    dirty: bool,
}

/// How far apart the readings of the kernel's files are: what they show happened within one such distance.
#[derive(Debug, Default)]
struct Rounds {
    newest: Nanos,
    distances: [Nanos; 8],
    next: usize,
}

/// One incident under way.
#[derive(Debug)]
struct Incident {
    failover: Failover,
    qps: BTreeMap<QpRef, Ended>,
    uncounted: u32,
    /// Processes whose QPs ended: their operations on another path end the incident.
    owners: BTreeSet<u32>,
    /// First operations on other paths by process, also of those that are not known to have lost a QP yet: the list of
    /// QPs is read later than their statistics.
    operations: BTreeMap<u32, (Mark, Replacement)>,
    /// When something of it last happened.
    newest: Nanos,
    /// What was told of it last.
    told: Option<Failover>,
}

/// How one QP ended.
#[derive(Debug, Clone)]
struct Ended {
    at: Moment,
    /// Its process moved it; otherwise it died.
    asked: bool,
    /// An event told that it died: a call afterwards only follows.
    told: bool,
    what: String,
    timers: Option<(u8, u8)>,
}

/// What a QP's statistics say that is new.
pub(crate) struct Moved {
    /// When they were read.
    pub(crate) t: Nanos,
    /// When they were read before.
    pub(crate) before: Option<Nanos>,
    /// When the QP had moved last, before this.
    pub(crate) active_before: Option<Nanos>,
    /// When it posted last.
    pub(crate) last_post_t: Option<Nanos>,
    /// It has had completions.
    pub(crate) completed: bool,
}

impl Rounds {
    fn round(&mut self, t: Nanos) {
        if self.newest == 0 {
            self.newest = t;
        } else if t > self.newest {
            self.distances[self.next] = t - self.newest;
            self.next = (self.next + 1) % self.distances.len();
            self.newest = t;
        }
    }

    /// A reading at `t` showed what the one before did not.
    fn moment(&self, t: Nanos, known_before: Nanos) -> Moment {
        let longest = self.distances.iter().copied().max().filter(|ns| *ns > 0).unwrap_or(USUAL_ROUND_NS);
        // A tenth more: readings are not exactly as far apart as the last ones were.
        let earliest = t.saturating_sub(longest.saturating_add(longest / 10));
        Moment::between(earliest.max(known_before), t)
    }
}

impl Stopwatch {
    /// What is new since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<Arc<Failover>> {
        std::mem::take(&mut self.changed)
    }

    /// Counters were read.
    pub(crate) fn round(&mut self, t: Nanos) {
        self.rounds.round(t);
    }

    /// When a state that a reading showed at `t` may have begun; it was not so at `known_before`.
    pub(crate) fn read(&self, t: Nanos, known_before: Nanos) -> Moment {
        self.rounds.moment(t, known_before)
    }

    /// A port changed between two known states, or an event told it again more exactly.
    pub(crate) fn port(
        &mut self,
        world: &World,
        settings: &FailoverSettings,
        key: PortKey,
        (at, from, to): (Moment, PortState, PortState),
        what: String,
    ) {
        let index = self.find(key);
        if to == PortState::Active {
            let Some(index) = index else { return };
            let incident = &mut self.open[index];
            if incident.failover.port_down.is_some() && incident.failover.port_up.is_none() {
                incident.failover.port_up = Some(Mark { at, what });
                self.touch(index, at.t);
            }
            return;
        }
        let index = match index {
            Some(index) => index,
            None if from == PortState::Active && to != PortState::Unknown => {
                let Some(index) = self.begin(world, settings, key, at) else { return };
                index
            }
            None => return,
        };
        let down = &mut self.open[index].failover.port_down;
        // An event is more exact than the reading that came first.
        let better = down.as_ref().is_none_or(|down| {
            at.not_before >= down.at.not_before && at.t <= down.at.t && at.not_before > down.at.not_before
        });
        if better && self.open[index].failover.port_up.is_none() {
            self.open[index].failover.port_down = Some(Mark { at, what });
            self.touch(index, at.t);
        }
    }

    /// The device of a port that was ACTIVE is gone.
    pub(crate) fn vanished(&mut self, key: PortKey, t: Nanos) {
        if self.vanished.len() < MAX_OPEN {
            self.vanished.push((key, t));
        }
    }

    /// A bond was told or read; had its active member changed, it did so at `at`.
    pub(crate) fn bond(
        &mut self,
        world: &World,
        settings: &FailoverSettings,
        (bond, active): (&Arc<str>, Option<&Arc<str>>),
        at: Moment,
    ) {
        let Some(active) = active else { return };
        let Some(before) = self.bonds.insert(bond.clone(), active.clone()) else { return };
        if before == *active {
            return;
        }
        let what = format!("{bond}: {before} → {active}");
        let of = |port: &&Arc<PortRecord>| port.netdevs.iter().any(|n| *n == before || n == bond);
        let keys: Vec<PortKey> = world.ports.iter().filter(of).map(|port| port.key).collect();
        for key in keys {
            let Some(index) = self.find(key).or_else(|| self.begin(world, settings, key, at)) else { continue };
            let switch = &mut self.open[index].failover.bond_switch;
            if switch.is_none() {
                *switch = Some(Mark { at, what: what.clone() });
                self.touch(index, at.t);
            }
        }
    }

    /// A process moved a QP to SQD or ERR.
    pub(crate) fn qp_asked(
        &mut self,
        world: &World,
        settings: &FailoverSettings,
        (key, qp): (PortKey, &QpRecord),
        (t, to): (Nanos, QpState),
    ) {
        let Some(index) = self.concerned(world, settings, key, Moment::at(t)) else { return };
        let ended = asked(qp, t, to);
        self.open[index].end(qp, ended);
        self.touch(index, t);
    }

    /// A QP went to the error state, or had error completions, that nobody asked for.
    pub(crate) fn qp_died(
        &mut self,
        world: &World,
        settings: &FailoverSettings,
        (key, qp): (PortKey, &QpRecord),
        (at, told): (Moment, bool),
        what: String,
    ) {
        let Some(index) = self.concerned(world, settings, key, at) else { return };
        self.open[index].end(qp, died(qp, at, told, what));
        self.touch(index, at.t);
    }

    /// A QP's numbers grew.
    pub(crate) fn qp_moved(&mut self, world: &World, (key, qp): (Option<PortKey>, &QpRecord), moved: &Moved) {
        for index in 0..self.open.len() {
            let incident = &self.open[index];
            let Some(began) = incident.failover.began() else { continue };
            let Some(pid) = qp.pid else { continue };
            let known = incident.operations.contains_key(&pid) || incident.operations.len() >= MAX_PROCESSES;
            if incident.failover.first_operation.is_some() || known || incident.qps.contains_key(&qp.id) {
                continue;
            }
            let other = key != Some(incident.failover.key);
            // What happened before a lost carrier was told may have happened after it was lost. A drain that came first
            // has its exact time.
            let drain = incident.failover.first_qp.as_ref().map(|mark| mark.at).filter(|at| at.t == at.not_before);
            let exact = drain.is_some_and(|drain| drain.t <= began.t);
            let late_ns = if exact { 0 } else { late_carrier_ns(world, incident.failover.key) };
            let from = began.not_before.saturating_sub(late_ns);
            let new = qp.created && qp.since > from;
            let idle = moved.active_before.is_none_or(|before| before.saturating_add(IDLE_NS) < from);
            let completed = moved.completed && new;
            let same_again = incident.failover.bond_switch.is_some() || incident.failover.port_up.is_some();
            let last_post = moved.last_post_t.filter(|last| *last <= moved.t);
            let t = if completed { moved.t } else { last_post.unwrap_or(moved.t) };
            if !((other && (new || idle)) || (new && same_again)) || t < from {
                continue;
            }
            let ready = qp.detail.as_ref().and_then(|detail| {
                let ready = |change: &QpChange| change.to == Some(QpState::Rts) && change.errno.is_none();
                detail.changes.iter().rev().find(|(_, change)| ready(change)).map(|(t, _)| *t)
            });
            let earliest = [moved.before, ready.filter(|ready| *ready <= t), Some(from)];
            let earliest = earliest.into_iter().flatten().max().unwrap_or(0);
            let device = world.device(qp.device).name.clone();
            let how = if completed { "completed" } else { "posted; completions are not seen" };
            let what = format!("QP {} of {device}: {how}", qp.qpn);
            let path = Replacement { device, port: key.map(|key| key.port), qpn: qp.qpn };
            let incident = &mut self.open[index];
            incident.operations.insert(pid, (Mark { at: Moment::between(earliest, t), what }, path));
            if incident.owners.contains(&pid) {
                self.touch(index, moved.t);
            }
        }
    }

    /// A window has closed: incidents that have been quiet are over.
    pub(crate) fn window(&mut self, world: &World, settings: &FailoverSettings, vanished_ns: Nanos, now: Nanos) {
        let ripe = |(_, t): &(PortKey, Nanos)| now >= t.saturating_add(vanished_ns);
        let (gone, wait) = std::mem::take(&mut self.vanished).into_iter().partition(ripe);
        self.vanished = wait;
        for (key, t) in Vec::<(PortKey, Nanos)>::into_iter(gone) {
            if world.device(key.device).removed {
                let change = (Moment::at(t), PortState::Active, PortState::Down);
                self.port(world, settings, key, change, "the device vanished".to_owned());
            }
        }
        let quiet_ns = clock::ns(settings.settle_s);
        for mut incident in std::mem::take(&mut self.open) {
            if now < incident.newest.saturating_add(quiet_ns) {
                self.open.push(incident);
                continue;
            }
            incident.refresh(world, settings);
            incident.failover.closed_t = Some(now);
            self.changed.push(Arc::new(incident.failover));
        }
    }

    /// Brings what is told of every incident up to date; true when there is something new.
    pub(crate) fn refresh(&mut self, world: &World, settings: &FailoverSettings, at_window: bool) -> bool {
        if !self.dirty && !at_window {
            return false;
        }
        self.dirty = false;
        for incident in &mut self.open {
            incident.refresh(world, settings);
            let marks = |failover: &Failover| {
                (failover.lanes().map(|(_, _, mark)| mark.map(|mark| mark.at)), failover.port_up.is_some())
            };
            if incident.told.as_ref().map(marks) != Some(marks(&incident.failover)) {
                incident.told = Some(incident.failover.clone());
                self.changed.push(Arc::new(incident.failover.clone()));
            }
        }
        !self.changed.is_empty()
    }

    /// There is an incident under way.
    pub(crate) fn is_running(&self) -> bool {
        !self.open.is_empty()
    }

    fn find(&self, key: PortKey) -> Option<usize> {
        self.open.iter().position(|incident| incident.failover.key == key)
    }

    fn touch(&mut self, index: usize, t: Nanos) {
        let incident = &mut self.open[index];
        incident.newest = incident.newest.max(t);
        // In a storm of QPs the numbers can wait for the end of the window.
        if incident.qps.len() <= FEW_QPS || incident.told.as_ref().is_none_or(|told| told.first_qp.is_none()) {
            self.dirty = true;
        }
    }

    /// The incident a QP's end belongs to: the one under way, or a new one when the port is ACTIVE and was predicted to
    /// fail. On a port nothing is known against, a QP that ends is no failover.
    fn concerned(&mut self, world: &World, settings: &FailoverSettings, key: PortKey, at: Moment) -> Option<usize> {
        self.find(key).or_else(|| {
            let port = world.port(key)?;
            let mut findings = world.findings_about(key.device, port);
            let predicted = port.state == PortState::Active && findings.any(|finding| predicts_failure(finding.rule));
            if predicted { self.begin(world, settings, key, at) } else { None }
        })
    }

    /// Begins an incident, with what was observed of it before it was known to be one.
    fn begin(&mut self, world: &World, settings: &FailoverSettings, key: PortKey, at: Moment) -> Option<usize> {
        if self.open.len() >= MAX_OPEN {
            return None;
        }
        self.ids += 1;
        let mut failover = Failover::new(self.ids, key, world.device(key.device).name.clone());
        failover.first_sign = first_sign(world, settings, key, at, &self.rounds);
        let mut incident = Incident {
            failover,
            qps: BTreeMap::new(),
            uncounted: 0,
            owners: BTreeSet::new(),
            operations: BTreeMap::new(),
            newest: at.t,
            told: None,
        };
        incident.look_back(world, at.t.saturating_sub(BEFORE_NS));
        self.open.push(incident);
        Some(self.open.len() - 1)
    }
}

impl Incident {
    /// QPs of the port that ended after `from`.
    fn look_back(&mut self, world: &World, from: Nanos) {
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
        for qp in world.qps.iter().chain(world.qps.gone()).filter(here) {
            let Some(detail) = &qp.detail else { continue };
            for (t, change) in detail.changes.since(from).filter(|(_, change)| change.by == By::Modify) {
                if let Some(to @ (QpState::Sqd | QpState::Err)) = change.to.filter(|_| change.errno.is_none()) {
                    self.end(qp, asked(qp, *t, to));
                }
            }
        }
    }

    /// A QP ended. What ended it first counts, but for a call that was told late.
    fn end(&mut self, qp: &QpRecord, ended: Ended) {
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
            None if !room => self.uncounted = self.uncounted.saturating_add(1),
            None => {
                self.qps.insert(qp.id, ended);
            }
        }
    }

    fn refresh(&mut self, world: &World, settings: &FailoverSettings) {
        let failover = &mut self.failover;
        let down = failover.port_down.as_ref().map(|mark| mark.at);
        let late_ns = late_carrier_ns(world, failover.key);
        let mut qps = Qps { uncounted: self.uncounted, ..Qps::default() };
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
        if failover.first_operation.is_none() {
            let of_owner = |(pid, _): &(&u32, &(Mark, Replacement))| self.owners.contains(*pid);
            let first = self.operations.iter().filter(of_owner).min_by_key(|(_, (mark, _))| mark.at.t);
            if let Some((_, (mark, path))) = first {
                (failover.first_operation, failover.replacement) = (Some(mark.clone()), Some(path.clone()));
            }
        }
        failover.floor = floor(self.qps.values().filter_map(|ended| ended.timers), is_rxe(world, failover.key));
        failover.judge(&settings.budgets_ms);
    }
}

/// How late the kernel may be in telling that a port is down. An InfiniBand adapter tells it itself.
fn late_carrier_ns(world: &World, key: PortKey) -> Nanos {
    let infiniband = world.port(key).is_some_and(|port| port.link_layer == LinkLayer::InfiniBand);
    if infiniband { 0 } else { LATE_CARRIER_NS }
}

fn timers(qp: &QpRecord) -> Option<(u8, u8)> {
    qp.timeout.zip(qp.retry_cnt)
}

fn asked(qp: &QpRecord, t: Nanos, to: QpState) -> Ended {
    let what = format!("QP {} moved to {}", qp.qpn, to.name());
    Ended { at: Moment::at(t), asked: true, told: false, what, timers: timers(qp) }
}

fn died(qp: &QpRecord, at: Moment, told: bool, what: String) -> Ended {
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

/// The first sign of trouble on a port or its way to the host before `began`.
fn first_sign(
    world: &World,
    settings: &FailoverSettings,
    key: PortKey,
    began: Moment,
    rounds: &Rounds,
) -> Option<Mark> {
    let port = world.port(key)?;
    let from = began.t.saturating_sub(clock::ns(settings.lookback_s));
    let mut signs: Vec<(Moment, String)> = Vec::new();
    if let Some(function) = world.function_of(port) {
        let path = world.pcie.get(function).map(|record| &record.path[..]).unwrap_or_default();
        for record in path.iter().chain([function]).filter_map(|pci| world.pcie.get(pci)) {
            for (t, event) in record.events.since(from) {
                let severity = match event.severity {
                    AerSeverity::Corrected => "corrected",
                    AerSeverity::Nonfatal => "non-fatal",
                    AerSeverity::Fatal => "fatal",
                };
                let names: Vec<&str> = event.names.iter().map(|name| &**name).collect();
                signs.push((Moment::at(*t), format!("{severity} PCIe error {} of {}", names.join(" "), record.pci)));
            }
            for (t, (_, name, _)) in record.growth.since(from) {
                signs.push((rounds.moment(*t, 0), format!("PCIe error count {name} of {}", record.pci)));
            }
        }
    }
    for meaning in PHYSICAL {
        for series in port.series_of(meaning) {
            for (t, _) in series.changes_since(from).filter(|(_, n)| n.is_some_and(|n| n > 0)) {
                let before = t.saturating_sub(series.interval());
                signs.push((Moment::between(before, t), format!("{} grew", series.name)));
            }
        }
    }
    for (t, report) in world.device(key.device).reports.since(from) {
        signs.push((Moment::at(*t), report.to_string()));
    }
    // A finding may be older than what is looked back over.
    for finding in world.findings_about(key.device, port).filter(|finding| predicts_failure(finding.rule)) {
        signs.push((Moment::at(finding.first_t), finding.rule.to_owned()));
    }
    let sign = signs.into_iter().filter(|(at, _)| at.t < began.t).min_by_key(|(at, _)| (at.t, at.not_before))?;
    Some(Mark { at: sign.0, what: sign.1 })
}
