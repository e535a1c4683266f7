//! The engine: observation in, world updated, rules asked. It reads no clock, does no I/O and draws no random number,
//! so the same observations give the same findings, live or replayed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::finding::{Book, Finding};
use crate::incident;
use crate::inventory::failover::stopwatch::Stopwatch;
use crate::inventory::{
    DeviceId, Failover, PcieRecord, ProbeGroupRecord, ProbeRecord, ProcessRecord, SourceRecord, Traced, UnseenWay,
    World,
};
use crate::observation::recording::Header;
use crate::observation::{self, Body, Nanos, Observation};
use crate::rule::{self, Settings, Trigger, View};

mod devices;
mod failover;
mod ports;
mod qps;

/// Of a gap of more windows than this (a recording of two moments far apart) only so many are closed, one by one: nothing was
/// observed in them, and by then no ring and no finding remembers what was before.
const MAX_GAP_WINDOWS: u64 = 10_000;
/// QP failures come in storms; the rules are asked once per storm of this length, ns.
const QP_STORM_NS: u64 = 10_000_000;
/// Distinct texts (comm, GID, container) that are shared; beyond that they are stored one by one.
const MAX_SHARED_TEXTS: usize = 100_000;
/// Time for which posts have to be watched in a sweep for the sweep to count, ns: at the edge of a window a QP that is busy
/// may post nothing for less.
const LEAST_WATCHED_NS: u64 = 10_000_000;

/// Turns observations into a world and findings.
pub struct Engine {
    world: World,
    book: Book,
    settings: Settings,
    names: HashMap<Arc<str>, DeviceId, FixedState>,
    /// Names that devices had and lost, by a rename or a removal: whose each was last.
    former: HashMap<Arc<str>, DeviceId, FixedState>,
    texts: HashSet<Arc<str>>,
    window_ns: u64,
    window_end: Option<Nanos>,
    changes: Vec<Arc<Finding>>,
    /// QP failures the rules have not been asked about yet: since when.
    qp_pending: Option<Nanos>,
    stopwatch: Stopwatch,
    failover_changes: Vec<Arc<Failover>>,
    /// QP failures up to here are in the devices' totals.
    failures_counted: Nanos,
    /// What the sweeps of the open window cover of which posts were watched for long enough, ns.
    swept_ns: Nanos,
}

impl Engine {
    /// An engine for one node.
    #[must_use]
    pub fn new(header: Header, settings: Settings) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0.1–3600 s")]
        let window_ns = (settings.window_s.clamp(0.1, 3600.0) * 1e9) as u64;
        let mut world = World::new(header);
        world.window_ns = window_ns;
        world.settings = Arc::new(settings.clone());
        Self {
            world,
            book: Book::default(),
            settings,
            names: HashMap::default(),
            former: HashMap::default(),
            texts: HashSet::new(),
            window_ns,
            window_end: None,
            changes: Vec::new(),
            qp_pending: None,
            stopwatch: Stopwatch::default(),
            failover_changes: Vec::new(),
            failures_counted: 0,
            swept_ns: 0,
        }
    }

    /// The world as known now.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The rules' thresholds.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Asks the rules with other thresholds from now on. What is known and what is raised stays; each rule judges it anew
    /// when it is asked next. The length of a window stays too: histories are kept by windows. False: nothing differs.
    pub fn set_settings(&mut self, settings: Settings) -> bool {
        let settings = Settings { window_s: self.settings.window_s, ..settings };
        let differs = settings != self.settings;
        self.world.settings = Arc::new(settings.clone());
        self.settings = settings;
        differs
    }

    /// The world as known now, to be kept: later observations do not change it.
    #[must_use]
    pub fn snapshot(&self) -> Arc<World> {
        Arc::new(self.world.clone())
    }

    /// What a rule sees now.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View { world: &self.world, now: self.world.now, settings: &self.settings, book: &self.book }
    }

    /// The findings that were raised, updated or cleared since the last call, in order.
    pub fn drain(&mut self) -> Vec<Arc<Finding>> {
        std::mem::take(&mut self.changes)
    }

    /// Takes one observation.
    pub fn take(&mut self, observation: &Observation<'_>) {
        let t = observation.t;
        self.advance(t);
        if self.world.counted_since.is_none() && matches!(observation.body, Body::Counters(_) | Body::QpStats(_)) {
            self.world.counted_since = Some(t);
        }
        match &observation.body {
            Body::Device(device) => self.device(t, device),
            Body::Port(port) => self.port(t, port),
            Body::Counters(counters) => self.counters(t, counters),
            Body::Bond(bond) => self.bond(t, bond),
            Body::Pcie(pcie) => self.pcie(t, pcie),
            Body::Aer(aer) => self.aer(t, aer),
            Body::Async(event) => self.async_event(t, event),
            Body::Qp(qp) => self.qp(t, qp),
            Body::QpStats(stats) => self.qp_stats(t, stats),
            Body::Source(source) => self.source(t, source),
            Body::Probes(probes) => self.probes(t, probes),
            Body::Process(process) => self.process(t, process),
            Body::Health(health) => self.health(t, health),
            Body::Lost(lost) => {
                let n = self.world.lost.entry(lost.source.as_ref().into()).or_default();
                *n = n.saturating_add(lost.n);
            }
            Body::FanOut(seen) => {
                if let Some(device) = self.device_id(t, &seen.device) {
                    self.device_mut(device).fan_out.take(t, seen);
                }
            }
            Body::Loopback(loopback) => self.loopback(t, loopback),
            Body::CongestionConfig(config) => self.congestion_config(t, config),
            // For scoring only.
            Body::Truth(_) => {}
            Body::Note(note) => {
                let note = self.text(&format!("{}: {}", note.source, note.text));
                Arc::make_mut(&mut self.world.notes).push(t, note);
            }
        }
        self.follow_failovers(false);
    }

    /// The stream has ended: judges the window that is still open.
    pub fn finish(&mut self) {
        // Also when all was observed at one moment, as in an imported tree.
        if self.window_end.take().is_some() {
            // What was traced in a part of a window is no rate of the window.
            self.swept_ns = 0;
            self.world.ended = true;
            self.close_window(self.world.now, Traced::No);
        }
    }

    fn advance(&mut self, t: Nanos) {
        let end = match self.window_end {
            Some(end) => end,
            None => {
                if self.world.windows == 0 {
                    self.world.started = t;
                }
                *self.window_end.insert(t + self.window_ns)
            }
        };
        if t >= end {
            let windows = (t - end) / self.window_ns + 1;
            for i in 0..windows.min(MAX_GAP_WINDOWS) {
                let at = end + i * self.window_ns;
                self.world.now = self.world.now.max(at);
                let traced = self.traced(at);
                self.close_window(at, traced);
            }
            self.window_end = Some(end + windows * self.window_ns);
        } else if self.qp_pending.is_some_and(|since| t >= since + QP_STORM_NS) {
            self.ask(Trigger::Qp);
        }
        self.world.now = self.world.now.max(t);
    }

    fn close_window(&mut self, at: Nanos, traced: Traced) {
        self.world.windows += 1;
        self.count_failures(at);
        self.close_qps(at, traced.ns(self.window_ns).is_some());
        for port in &mut self.world.ports {
            Arc::make_mut(port).close_window(at, self.window_ns, traced);
        }
        for device in self.world.devices.iter_mut().filter(|device| !device.sets.is_empty()) {
            Arc::make_mut(device).sets.iter_mut().flat_map(|set| &mut set.series).for_each(|series| series.expire(at));
        }
        for rule in rule::all() {
            self.ask_rule(*rule);
        }
        self.qp_pending = None;
        self.publish_findings();
        self.close_failovers(at);
    }

    /// How posts were watched in the window that ends: all the time where the data path was swept within the last three
    /// seconds, and before that: from the first sweep on numbers can grow. Once they are paused now and then, only a sweep in which they were watched says anything: that nothing was
    /// counted in a pause does not say that nothing was posted.
    fn traced(&mut self, now: Nanos) -> Traced {
        let swept_ns = std::mem::take(&mut self.swept_ns);
        let probes = self.world.probes.as_ref();
        if probes.is_some_and(|probes| probes.posts_watched_ns.is_some()) {
            return Traced::Swept(swept_ns);
        }
        let [newest, earlier] = self.world.qps.sweeps;
        let recent = earlier.is_some() && newest.is_some_and(|sweep| now.saturating_sub(sweep) < 3_000_000_000);
        if recent && probes.is_none_or(|probes| probes.data_path()) { Traced::All } else { Traced::No }
    }

    fn ask(&mut self, trigger: Trigger) {
        if trigger == Trigger::Qp {
            self.qp_pending = None;
        }
        for rule in rule::all() {
            if rule.trigger() == trigger {
                self.ask_rule(*rule);
            }
        }
        self.publish_findings();
    }

    fn ask_rule(&mut self, rule: &'static dyn rule::Rule) {
        let disabled = self.settings.disabled.iter().any(|id| id == rule.id());
        let verdicts = if disabled { Vec::new() } else { rule.judge(&self.view()) };
        self.book.enter(rule.id(), self.world.now, verdicts, &mut self.changes);
    }

    fn publish_findings(&mut self) {
        let mut findings: Vec<Arc<Finding>> = self.book.all_raised().cloned().collect();
        findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(b.first_t.cmp(&a.first_t)).then(a.rule.cmp(b.rule)));
        let related = findings.iter().any(|finding| finding.part_of.is_some());
        self.world.findings = if related { incident::arranged(&findings) } else { findings };
        self.world.findings_dropped = self.book.overflow;
        self.world.cleared = self.book.cleared().iter().rev().cloned().collect();
    }

    fn function(&mut self, pci: &str) -> &mut PcieRecord {
        let key: Arc<str> = pci.into();
        Arc::make_mut(self.world.pcie.entry(key).or_insert_with(|| Arc::new(PcieRecord::new(pci))))
    }

    fn pcie(&mut self, t: Nanos, seen: &observation::Pcie<'_>) {
        let record = self.function(&seen.pci);
        let link = record.link;
        let grew = record.update(t, seen);
        if grew || record.link != link {
            self.ask(Trigger::Pcie);
        }
    }

    fn aer(&mut self, t: Nanos, seen: &observation::Aer<'_>) {
        let event = crate::inventory::AerEvent {
            severity: seen.severity,
            status: seen.status,
            names: seen.names.iter().map(|name| name.as_ref().into()).collect(),
        };
        self.function(&seen.pci).report(t, event);
        self.ask(Trigger::Pcie);
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        shared(&mut self.texts, text)
    }

    fn source(&mut self, t: Nanos, seen: &observation::SourceState<'_>) {
        let record = SourceRecord { state: seen.state, reason: seen.reason.as_deref().map(Into::into), t };
        self.world.sources.insert(seen.source.as_ref().into(), record);
    }

    fn process(&mut self, t: Nanos, seen: &observation::Process<'_>) {
        if seen.unseen.is_empty() {
            self.world.processes.remove(&seen.pid);
            return;
        }
        let comm = seen.comm.as_deref().map(|comm| self.text(comm));
        let ways = seen
            .unseen
            .iter()
            .map(|unseen| UnseenWay {
                way: unseen.way,
                file: unseen.file.as_deref().map(|file| self.text(file)),
                reason: unseen.reason.as_deref().map(|reason| self.text(reason)),
            })
            .collect();
        self.world.processes.insert(seen.pid, Arc::new(ProcessRecord { t, comm, ways }));
    }

    fn probes(&mut self, t: Nanos, seen: &observation::Probes<'_>) {
        // A sweep in which posts were hardly watched says nothing of what was posted, and of that with the first pause nobody
        // says for how long they were: QPs keep what they are known for.
        if let Some(now) = seen.posts_watched_ns {
            let before = self.world.probes.as_ref().and_then(|before| Some((before.t, before.posts_watched_ns?)));
            if let Some((since, _)) = before.filter(|(_, before)| now.saturating_sub(*before) >= LEAST_WATCHED_NS) {
                self.world.qps.swept(t);
                self.swept_ns = self.swept_ns.saturating_add(t.saturating_sub(since));
            }
        } else {
            self.world.qps.swept(t);
        }
        let mut record = ProbeRecord {
            t,
            posts_watched_ns: seen.posts_watched_ns,
            completions_watched_ns: seen.completions_watched_ns,
            wanted: seen.wanted,
            attached: seen.attached,
            failed: seen.failed.iter().map(|f| (f.name.as_ref().into(), f.reason.as_ref().into())).collect(),
            hits: seen.hits,
            hits_per_s: None,
            cost_share: None,
            cost_ns: seen.cost_ns,
            budget_share: seen.budget_share,
            window: seen.window_ns.zip(seen.period_ns),
            groups: seen.groups.iter().map(probe_group).collect(),
        };
        if let Some(before) = self.world.probes.as_ref().filter(|before| before.t < t) {
            let dt = (t - before.t) as f64;
            let rise = |now: Option<u64>, then: Option<u64>| Some(now?.checked_sub(then?)? as f64);
            record.hits_per_s = rise(seen.hits, before.hits).map(|hits| hits * 1e9 / dt);
            record.cost_share = rise(seen.cost_ns, before.cost_ns).map(|ns| ns / dt);
            for group in &mut record.groups {
                let then = before.groups.iter().find(|then| then.group == group.group).map(|then| then.hits);
                group.hits_per_s = rise(Some(group.hits), then).map(|hits| hits * 1e9 / dt);
            }
        }
        self.world.probes = Some(Arc::new(record));
    }
}

/// The text as it is shared by all who have it.
fn shared(texts: &mut HashSet<Arc<str>>, text: &str) -> Arc<str> {
    if let Some(shared) = texts.get(text) {
        return shared.clone();
    }
    let shared: Arc<str> = text.into();
    if texts.len() < MAX_SHARED_TEXTS {
        texts.insert(shared.clone());
    }
    shared
}

fn probe_group(seen: &observation::ProbeGroup<'_>) -> ProbeGroupRecord {
    ProbeGroupRecord {
        group: seen.group.as_ref().into(),
        hits: seen.hits,
        hits_per_s: None,
        hit_ns: seen.hit_ns,
        measured: seen.measured,
        paused: seen.paused,
        window: seen.window_ns.zip(seen.period_ns),
    }
}

#[cfg(test)]
mod tests;
