//! Follows incidents while they are under way: the engine tells it what happened, it knows what that means for whom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::first_sign::first_sign;
use super::incident::{Incident, asked, died, late_carrier_ns};
use super::{Failover, Mark, Moment, Replacement};
use crate::inventory::{PortKey, PortRecord, QpChange, QpRecord, World};
use crate::observation::{Nanos, PortState, QpState};
use crate::rule::{FailoverSettings, clock, predicts_failure};

/// What ended this long before the port was seen down belongs to the incident, ns: a reading may be that late.
const BEFORE_NS: Nanos = 5_000_000_000;
/// A QP that posted nothing for this long was idle, ns.
const IDLE_NS: Nanos = 2_000_000_000;
/// Processes whose first operation elsewhere is remembered in one incident.
const MAX_PROCESSES: usize = 1024;
/// Incidents under way at once: one for each port is usual.
const MAX_OPEN: usize = 64;
/// Before two readings are known their distance is taken to be this, ns.
const USUAL_ROUND_NS: Nanos = 1_000_000_000;
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
    /// Those of which only numbers changed: they are shown, nobody is told.
    counted: Vec<Arc<Failover>>,
    /// Something happened that is to be told at once.
    dirty: bool,
}

/// How far apart the readings of the kernel's files are: what they show happened within one such distance.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    newest: Nanos,
    distances: [Nanos; 8],
    next: usize,
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
    /// It has had completions without an error since it was read before; otherwise it has but posted.
    pub(crate) succeeded: bool,
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
    pub(super) fn moment(&self, t: Nanos, known_before: Nanos) -> Moment {
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

    /// Incidents under way of which only numbers have changed since the last call, such as how many QPs died.
    pub(crate) fn take_counted(&mut self) -> Vec<Arc<Failover>> {
        std::mem::take(&mut self.counted)
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
        // It came back with its QPs and falls again: that was a flap, and this is the outage.
        let incident = &mut self.open[index];
        if incident.failover.port_up.as_ref().is_some_and(|up| up.at.t < at.t) && incident.nothing_ended() {
            (incident.failover.port_down, incident.failover.port_up) = (None, None);
        }
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

    /// The first numbers of a QP say that it has posted, and nobody knows when.
    pub(crate) fn posted_sometime(&mut self, key: Option<PortKey>, qp: &QpRecord) {
        let Some(pid) = qp.pid else { return };
        for incident in &mut self.open {
            let other = key != Some(incident.failover.key);
            if other && incident.failover.first_operation.is_none() && incident.unsure.len() < MAX_PROCESSES {
                incident.unsure.insert(pid);
            }
        }
    }

    /// A QP's numbers grew. Where completions are seen, one without an error ends the outage: to post onto a path that is
    /// dead as well takes nothing. Where they are not, all there is to go by is the post.
    pub(crate) fn qp_moved(&mut self, world: &World, (key, qp): (Option<PortKey>, &QpRecord), moved: &Moved) {
        let paused = world.probes.as_ref().is_some_and(|probes| probes.completions_paused());
        let attached = world.probes.as_ref().is_some_and(|probes| probes.completions_attached());
        for incident in &mut self.open {
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
            let same_again = incident.failover.bond_switch.is_some() || incident.failover.port_up.is_some();
            let awaited = incident.awaited.contains(&qp.id);
            let last_post = moved.last_post_t.filter(|last| *last <= moved.t);
            let t = if moved.succeeded { moved.t } else { last_post.unwrap_or(moved.t) };
            if !(awaited || (other && (new || idle)) || (new && same_again)) || t < from {
                continue;
            }
            if !moved.succeeded && !paused && !incident.is_unseen(world, (qp, pid), from, attached) {
                if incident.awaited.len() < MAX_PROCESSES {
                    incident.awaited.insert(qp.id);
                }
                continue;
            }
            let ready = qp.detail.as_ref().and_then(|detail| {
                let ready = |change: &QpChange| change.to == Some(QpState::Rts) && change.errno.is_none();
                detail.changes.iter().rev().find(|(_, change)| ready(change)).map(|(t, _)| *t)
            });
            let earliest = [moved.before, ready.filter(|ready| *ready <= t), Some(from)];
            let earliest = earliest.into_iter().flatten().max().unwrap_or(0);
            let device = world.device(qp.device).name.clone();
            let how = if moved.succeeded { "completed" } else { "posted; completions are not seen" };
            let what = format!("QP {} of {device}: {how}", qp.qpn);
            let path = Replacement { device, port: key.map(|key| key.port), qpn: qp.qpn };
            incident.operations.insert(pid, (Mark { at: Moment::between(earliest, t), what }, path));
            if incident.owners.contains(&pid) {
                self.dirty |= incident.touch(moved.t);
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
            incident.stands_still(world, settings, now);
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
        // What was posted since the last sweep is not told yet.
        let told_until = world.qps.sweeps[0].filter(|_| at_window);
        for incident in &mut self.open {
            incident.refresh(world, settings);
            if let Some(until) = told_until {
                incident.stands_still(world, settings, until);
            }
            let marks = |failover: &Failover| {
                (failover.lanes().map(|(_, _, mark)| mark.map(|mark| mark.at)), failover.port_up.is_some())
            };
            if incident.told.as_ref().map(marks) != Some(marks(&incident.failover)) {
                incident.told = Some(incident.failover.clone());
                self.changed.push(Arc::new(incident.failover.clone()));
            } else if incident.told.as_ref() != Some(&incident.failover) {
                incident.told = Some(incident.failover.clone());
                self.counted.push(Arc::new(incident.failover.clone()));
            }
        }
        !self.changed.is_empty() || !self.counted.is_empty()
    }

    /// There is an incident under way.
    pub(crate) fn is_running(&self) -> bool {
        !self.open.is_empty()
    }

    fn find(&self, key: PortKey) -> Option<usize> {
        self.open.iter().position(|incident| incident.failover.key == key)
    }

    fn touch(&mut self, index: usize, t: Nanos) {
        self.dirty |= self.open[index].touch(t);
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
            beyond: BTreeSet::new(),
            owners: BTreeSet::new(),
            operations: BTreeMap::new(),
            awaited: BTreeSet::new(),
            unseen: BTreeMap::new(),
            newest: at.t,
            stood_ns: None,
            overlooked: false,
            unsure: BTreeSet::new(),
            told: None,
        };
        incident.look_back(world, at.t.saturating_sub(BEFORE_NS));
        self.open.push(incident);
        Some(self.open.len() - 1)
    }
}
