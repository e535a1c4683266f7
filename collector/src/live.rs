//! The collector's loop: polls the sources when they are due, hands every observation to the sinks and the engine, and
//! publishes the world. It runs in a thread of its own; a screen reads the [`Feed`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::clock;
use crate::engine::Engine;
use crate::feed::{Command, Feed, Mode, RecordingStatus, Status};
use crate::inventory::{PortKey, World};
use crate::observation::recording::Header;
use crate::observation::{Body, Nanos, Note, Observation, QpState, QpStats, Seeing, SourceState};
use crate::own_cost::Own;
use crate::remote::Remote;
use crate::rule::Settings;
use crate::sink::recording::{Recording, RecordingOptions};
use crate::sink::{self, Sink};
use crate::source::{Availability, Missing, Source};

/// Sinks may bring out what is buffered so often, ns.
const TICK_NS: u64 = 1_000_000_000;
/// A source that always has something more to say is interrupted after so many rounds to publish.
const PUBLISH_EVERY_NS: u64 = 100_000_000;

/// When nothing was observed for so long, ns, the state of one source is said again. Time is in the observations: it would
/// stand still on a node without a device.
const SILENCE_NS: u64 = 3_000_000_000;

/// What a recording says where the thresholds changed.
pub(crate) const SETTINGS_CHANGED: &str = "the rules' settings were changed: what follows was judged by others";

/// The collector's loop and what it needs.
pub struct Live {
    sources: Vec<Slot>,
    sinks: Vec<Box<dyn Sink>>,
    engine: Engine,
    feed: Feed,
    status: Status,
    recording: Option<(Recording, Arc<Mutex<RecordingStatus>>)>,
    header: Header,
    own: Own,
    last_tick: Nanos,
    last_publish: Nanos,
    /// When something was observed last.
    last_observed: Nanos,
    until: Option<Nanos>,
}

struct Slot {
    source: Box<dyn Source>,
    said: Option<(Seeing, Option<String>)>,
    /// It was polled since it was last asked what it sees.
    polled: bool,
    /// The source panicked: it is not asked again.
    broken: Option<String>,
}

impl Live {
    /// A loop over `sources`, not running yet.
    #[must_use]
    pub fn new(mode: Mode, header: Header, settings: Settings, sources: Vec<Box<dyn Source>>) -> Self {
        let engine = Engine::new(header.clone(), settings);
        let status = Status::new(mode);
        Self {
            feed: Feed::new(engine.snapshot(), status.clone()),
            engine,
            sources: sources
                .into_iter()
                .map(|source| Slot { source, said: None, polled: true, broken: None })
                .collect(),
            sinks: Vec::new(),
            status,
            recording: None,
            header,
            own: Own::new(),
            last_tick: 0,
            last_publish: 0,
            last_observed: 0,
            until: None,
        }
    }

    /// Adds a sink.
    #[must_use]
    pub fn sink(mut self, sink: Box<dyn Sink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Shows a line above everything else.
    #[must_use]
    pub fn banner(mut self, banner: Option<String>) -> Self {
        self.status.banner = banner;
        self
    }

    /// Says a notice.
    #[must_use]
    pub fn notice(mut self, notice: Option<String>) -> Self {
        self.status.notices.extend(notice);
        self
    }

    /// Sets the interval that is shown.
    #[must_use]
    pub fn interval(mut self, interval_ns: u64) -> Self {
        self.status.interval_ns = interval_ns;
        self
    }

    /// Takes commands from here, for example [`Command::Stop`] of whoever catches signals.
    #[must_use]
    pub fn obeying(mut self, remote: Remote) -> Self {
        self.feed.obey(remote);
        self
    }

    /// Ends by itself at this moment, `CLOCK_MONOTONIC` ns.
    #[must_use]
    pub fn until(mut self, at: Option<Nanos>) -> Self {
        self.until = at;
        self
    }

    /// What a screen reads.
    #[must_use]
    pub fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Runs in a thread of its own until [`Command::Stop`].
    pub fn spawn(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("collector".to_owned()).spawn(move || self.run())
    }

    /// Runs until [`Command::Stop`] or until its time is over, and ends everything properly.
    pub fn run(mut self) {
        self.run_on();
        self.finish();
    }

    /// Runs until [`Command::Stop`] or until its time is over.
    pub fn run_on(&mut self) {
        while !self.commands() {
            let now = clock::monotonic_ns();
            if self.until.is_some_and(|until| now >= until) {
                return;
            }
            self.poll_sources(now);
            self.break_silence(now);
            if now >= self.last_tick.saturating_add(TICK_NS) {
                // In step with the sources, which keep to their times: one that follows its own lateness drifts away from
                // them, and every second has two wakings.
                let late = now - self.last_tick >= 2 * TICK_NS;
                self.last_tick = if late { now } else { self.last_tick + TICK_NS };
                self.own.measure(now);
                let own = self.own.cost();
                self.each_sink(|sink, world| sink.tick(world, &own));
            }
            self.publish(now, false);
            self.wait();
        }
    }

    /// One round over every source whatever its time is, for commands that print once.
    pub fn poll_once(&mut self) {
        let now = clock::monotonic_ns();
        for index in 0..self.sources.len() {
            self.poll_source(index, now);
        }
        self.say_sources(now);
    }

    /// Judges what is open and gives the engine back.
    #[must_use]
    pub fn into_engine(mut self) -> (Engine, Status) {
        self.finish();
        self.status.sources = self.sources.iter().map(Slot::availability).collect();
        (self.engine, self.status)
    }

    /// What each source sees, and the probes.
    #[must_use]
    pub fn availability(&self) -> (Vec<Availability>, Vec<crate::source::ProbeReport>) {
        (
            self.sources.iter().map(Slot::availability).collect(),
            self.sources.iter().flat_map(|slot| slot.source.probes()).collect(),
        )
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Lets the sources undo what they changed, and tell of it.
    fn end_sources(&mut self) {
        let now = clock::monotonic_ns();
        for index in 0..self.sources.len() {
            let (engine, sinks, recording) = (&mut self.engine, &mut self.sinks, &mut self.recording);
            let mut emit = |observation: &Observation<'_>| {
                for sink in sinks.iter_mut() {
                    sink.observation(observation, engine.world());
                }
                if let Some((recording, _)) = recording.as_mut() {
                    recording.observation(observation, engine.world());
                }
                engine.take(observation);
            };
            let source = &mut self.sources[index].source;
            if catch_unwind(AssertUnwindSafe(|| source.end(now, &mut emit))).is_err() {
                let name = self.sources[index].source.name();
                self.status.notices.push(format!("internal error in source {name} at its end; please report it"));
            }
        }
    }

    fn finish(&mut self) {
        self.end_sources();
        self.engine.finish();
        self.hand_on_findings();
        let own = self.own.cost();
        self.each_sink(|sink, world| {
            sink.last(world, &own);
            sink.ending();
        });
        self.each_sink(|sink, _| sink.finish());
        self.publish(clock::monotonic_ns(), true);
    }

    fn each_sink(&mut self, mut act: impl FnMut(&mut dyn Sink, &World)) {
        let world = self.engine.world();
        for sink in &mut self.sinks {
            act(&mut **sink, world);
        }
        if let Some((recording, _)) = &mut self.recording {
            act(recording, world);
        }
    }

    /// Obeys what readers asked; true when the loop is to end.
    fn commands(&mut self) -> bool {
        while let Some(command) = self.feed.command() {
            match command {
                Command::Stop => return true,
                Command::Interval(ns) => {
                    self.status.interval_ns = ns;
                    for slot in &mut self.sources {
                        slot.source.set_interval(ns);
                    }
                }
                Command::Record(path) => self.record(path),
                Command::StopRecording => {
                    if let Some((mut recording, status)) = self.recording.take() {
                        recording.finish();
                        let status = status.lock().unwrap_or_else(PoisonError::into_inner).clone();
                        self.status.done.push(format!("recorded {}", status.path.display()));
                    }
                }
                Command::Settings(settings) => self.change_settings(*settings),
                // A live node cannot be rewound.
                Command::Pause | Command::Resume | Command::Step | Command::Seek(_) | Command::Speed(_) => {}
            }
        }
        false
    }

    /// A recording is to show that what follows was judged otherwise.
    fn change_settings(&mut self, settings: Settings) {
        if !self.engine.set_settings(settings) {
            return;
        }
        let note = Note { source: "configuration".into(), text: SETTINGS_CHANGED.into() };
        self.tell_all(&Observation { t: clock::monotonic_ns(), body: Body::Note(note) });
        self.hand_on_findings();
    }

    /// Hands an observation of the loop's own to sinks, recording and engine.
    fn tell_all(&mut self, observation: &Observation<'_>) {
        self.each_sink(|sink, world| sink.observation(observation, world));
        self.engine.take(observation);
        self.last_observed = self.last_observed.max(observation.t);
    }

    fn record(&mut self, path: PathBuf) {
        let ended =
            |status: &Mutex<RecordingStatus>| status.lock().unwrap_or_else(PoisonError::into_inner).stopped.is_some();
        if self.recording.as_ref().is_some_and(|(_, status)| !ended(status)) {
            return;
        }
        let options = RecordingOptions { path, force: false, max_bytes: None };
        match Recording::start(options, self.header.clone()) {
            Ok(mut recording) => {
                let world = self.engine.world();
                let mut write = |observation: &Observation<'_>| recording.observation(observation, world);
                crate::inventory::restate_past(world, &mut write);
                crate::inventory::restate(world, &mut write);
                let status = recording.status();
                self.recording = Some((recording, status));
            }
            Err(error) => self.status.notices.push(error.to_string()),
        }
    }

    fn poll_sources(&mut self, now: Nanos) {
        let mut nudged = self.poll_woken(now);
        for index in 0..self.sources.len() {
            let slot = &self.sources[index];
            if slot.broken.is_none() && slot.source.due() <= now {
                nudged |= self.poll_source(index, now);
                // An event is not to wait behind a whole round of counters.
                nudged |= self.poll_woken(now);
            }
        }
        if nudged {
            for slot in &mut self.sources {
                slot.source.nudge(now);
            }
        }
        self.say_sources(now);
    }

    /// Polls the sources that have something to say, due or not.
    fn poll_woken(&mut self, now: Nanos) -> bool {
        let mut nudged = false;
        for index in self.woken() {
            nudged |= self.poll_source(index, now);
        }
        nudged
    }

    /// The sources that have something to say, asked of the kernel at once.
    fn woken(&self) -> Vec<usize> {
        let (mut owners, mut fds) = (Vec::new(), Vec::new());
        for (index, slot) in self.sources.iter().enumerate().filter(|(_, slot)| slot.broken.is_none()) {
            for fd in slot.source.wake_fds() {
                owners.push(index);
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if fds.is_empty() || !poll(&mut fds, Some(&at_once)).is_ok_and(|n| n > 0) {
            return Vec::new();
        }
        let readable = owners.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        let mut woken: Vec<usize> = readable.map(|(owner, _)| owner).collect();
        woken.dedup();
        woken
    }

    /// Polls one source; true when it saw something that makes a fresh look of the others worth it.
    fn poll_source(&mut self, index: usize, now: Nanos) -> bool {
        let (mut nudge, mut concluded) = (false, false);
        let known_state = |engine: &Engine, port: &crate::observation::Port<'_>| {
            let (id, _) = engine.world().device_named(&port.device)?;
            engine.world().port(PortKey { device: id, port: port.port }).map(|known| known.state)
        };
        let (engine, sinks, recording) = (&mut self.engine, &mut self.sinks, &mut self.recording);
        let slot = &mut self.sources[index];
        slot.polled = true;
        let last_observed = &mut self.last_observed;
        let mut emit = |observation: &Observation<'_>| {
            *last_observed = now;
            nudge |= match &observation.body {
                // A port that is said again as it was is no news.
                Body::Port(port) => known_state(engine, port).is_some_and(|known| known != port.state),
                // An error ends most QPs, and nobody tells of their states.
                Body::QpStats(stats) => new_errors(engine, stats),
                _ => calls_for_a_look(observation),
            };
            for sink in sinks.iter_mut() {
                sink.observation(observation, engine.world());
            }
            if let Some((recording, _)) = recording.as_mut() {
                recording.observation(observation, engine.world());
            }
            engine.take(observation);
            // At once: what acts on a finding must not wait for the rest of what this source has to say.
            concluded |= sink::hand_on(engine, sinks);
        };
        // A fault in one source must not take the others, the screen or the recording with it.
        let polled = catch_unwind(AssertUnwindSafe(|| slot.source.poll(now, &mut emit)));
        if polled.is_err() {
            let name = slot.source.name();
            slot.broken = Some(format!("internal error in source {name}: it is switched off; please report it"));
            self.status.notices.extend(slot.broken.clone());
        }
        if concluded {
            self.last_publish = 0;
        }
        nudge
    }

    /// Tells the recording and the engine when a source sees more or less than before. Only what was polled can.
    fn say_sources(&mut self, now: Nanos) {
        for index in 0..self.sources.len() {
            let slot = &mut self.sources[index];
            if !std::mem::take(&mut slot.polled) {
                continue;
            }
            let availability = slot.availability();
            let says = (availability.state, availability.reason());
            if slot.said.as_ref() == Some(&says) {
                continue;
            }
            slot.said = Some(says);
            self.say_source(index, now);
        }
        self.hand_on_findings();
    }

    /// Says what is known of a source.
    fn say_source(&mut self, index: usize, now: Nanos) {
        let slot = &self.sources[index];
        let Some((state, reason)) = slot.said.clone() else { return };
        let source = SourceState { source: slot.source.name().into(), state, reason: reason.map(Into::into) };
        self.tell_all(&Observation { t: now, body: Body::Source(source) });
    }

    /// Lets time pass for the engine, the sinks and a recording when there is nothing to observe.
    fn break_silence(&mut self, now: Nanos) {
        if now < self.last_observed.saturating_add(SILENCE_NS) {
            return;
        }
        if let Some(index) = self.sources.iter().position(|slot| slot.said.is_some()) {
            self.say_source(index, now);
            self.hand_on_findings();
        }
    }

    fn hand_on_findings(&mut self) {
        if sink::hand_on(&mut self.engine, &mut self.sinks) {
            self.last_publish = 0;
        }
    }

    fn publish(&mut self, now: Nanos, at_once: bool) {
        if !at_once && (now < self.last_publish + PUBLISH_EVERY_NS || !self.has_news()) {
            return;
        }
        self.last_publish = now;
        self.status.own = self.own.cost();
        self.status.published_at = now;
        self.status.recording =
            self.recording.as_ref().map(|(_, status)| status.lock().unwrap_or_else(PoisonError::into_inner).clone());
        (self.status.sources, self.status.probes) = self.availability();
        self.feed.publish(self.engine.snapshot(), self.status.clone());
    }

    /// There is something to publish, and somebody to read it.
    fn has_news(&self) -> bool {
        if !self.feed.is_read() {
            return false;
        }
        let newest = self.feed.latest();
        newest.generation == 0
            || newest.world.now != self.engine.world().now
            || newest.status.notices.len() != self.status.notices.len()
            || newest.status.done.len() != self.status.done.len()
            || newest.status.interval_ns != self.status.interval_ns
            || newest.status.recording.is_some() != self.recording.is_some()
    }

    /// Waits until a source is due or has something to say, sinks are to be told that time passes, or a command comes.
    fn wait(&self) {
        let now = clock::monotonic_ns();
        let live = || self.sources.iter().filter(|slot| slot.broken.is_none());
        let due = live().map(|slot| slot.source.due()).min().unwrap_or(Nanos::MAX);
        let publish = if self.has_news() { self.last_publish.saturating_add(PUBLISH_EVERY_NS) } else { Nanos::MAX };
        let next = due.min(self.last_tick.saturating_add(TICK_NS)).min(publish).min(self.until.unwrap_or(Nanos::MAX));
        let fds = live()
            .flat_map(|slot| slot.source.wake_fds())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        self.feed.remote().wait_beside(fds, Duration::from_nanos(next.saturating_sub(now)));
    }
}

impl Slot {
    fn availability(&self) -> Availability {
        match &self.broken {
            None => self.source.availability(),
            Some(reason) => Availability {
                name: self.source.name(),
                state: Seeing::Off,
                sees: String::new(),
                missing: vec![Missing { what: "everything".to_owned(), reason: reason.clone(), fix: None }],
            },
        }
    }
}

/// The statistics of a QP tell of more failed completions than before.
fn new_errors(engine: &Engine, stats: &QpStats<'_>) -> bool {
    let failed = stats.errors.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
    let known = || {
        let (device, _) = engine.world().device_named(&stats.device)?;
        engine.world().qps.find(device, stats.qpn)?.errors
    };
    failed > 0 && known().is_none_or(|known| failed > known)
}

/// Something happened that the other sources should look at now, not at their next period.
fn calls_for_a_look(observation: &Observation<'_>) -> bool {
    match &observation.body {
        // A bond that moved the traffic elsewhere, a device in trouble: both are said only when they change.
        Body::Async(_) | Body::Bond(_) | Body::Health(_) => true,
        Body::Aer(aer) => aer.severity != crate::observation::AerSeverity::Corrected,
        Body::Qp(qp) => qp.to == Some(QpState::Err),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::feed::OwnCost;

    /// A source that never has anything, and counts how often the loop looks at it.
    struct Quiet(Arc<AtomicUsize>);

    impl Source for Quiet {
        fn name(&self) -> &'static str {
            "quiet"
        }

        fn availability(&self) -> Availability {
            Availability { name: "quiet", state: Seeing::Ok, sees: String::new(), missing: Vec::new() }
        }

        fn due(&self) -> Nanos {
            self.0.fetch_add(1, Ordering::Relaxed);
            Nanos::MAX
        }

        fn poll(&mut self, _: Nanos, _: &mut crate::source::Emit<'_>) {}
    }

    /// Ends the loop at its third tick.
    struct Three(Remote, usize);

    impl Sink for Three {
        fn tick(&mut self, _: &World, _: &OwnCost) {
            self.1 += 1;
            if self.1 == 3 {
                self.0.send(Command::Stop);
            }
        }
    }

    #[test]
    fn a_loop_with_nothing_to_do_wakes_only_to_tell_its_sinks_that_time_passes() {
        let (remote, rounds) = (Remote::default(), Arc::new(AtomicUsize::new(0)));
        let live = Live::new(Mode::Live, Header::new(), Settings::default(), vec![Box::new(Quiet(rounds.clone()))]);
        live.obeying(remote.clone()).sink(Box::new(Three(remote, 0))).run();
        // Each round asks twice. A round for each tick, one that is woken a moment too early, and the last publication.
        let rounds = rounds.load(Ordering::Relaxed) / 2;
        assert!((3..=8).contains(&rounds), "{rounds}");
    }

    #[test]
    fn where_nothing_is_observed_a_source_is_said_again_and_time_goes_on() {
        struct Told(Arc<Mutex<Vec<(Nanos, String)>>>);
        impl Sink for Told {
            fn observation(&mut self, observation: &Observation<'_>, _: &World) {
                if let Body::Source(source) = &observation.body {
                    self.0.lock().unwrap().push((observation.t / TICK_NS, source.source.to_string()));
                }
            }
        }
        /// Its only port is down, and goes with its device at the third poll.
        struct Leaving(u32);
        impl Source for Leaving {
            fn name(&self) -> &'static str {
                "leaving"
            }
            fn availability(&self) -> Availability {
                Availability { name: "leaving", state: Seeing::Ok, sees: String::new(), missing: Vec::new() }
            }
            fn due(&self) -> Nanos {
                0
            }
            fn poll(&mut self, now: Nanos, emit: &mut crate::source::Emit<'_>) {
                use crate::observation::{Device, Port, PortState};
                self.0 += 1;
                let state = if self.0 == 1 { PortState::Active } else { PortState::Down };
                let device = Device { device: "mlx5_0".into(), pci: Some("0000:3b:00.0".into()), ..Device::default() };
                match self.0 {
                    1 | 2 => {
                        emit(&Observation { t: now, body: Body::Device(device) });
                        let port = Port { device: "mlx5_0".into(), port: 1, state, ..Port::default() };
                        emit(&Observation { t: now, body: Body::Port(port) });
                    }
                    3 => {
                        let device = Device { removed: Some(true), ..device };
                        emit(&Observation { t: now, body: Body::Device(device) });
                    }
                    _ => {}
                }
            }
        }
        let told = Arc::default();
        let mut live = Live::new(Mode::Live, Header::new(), Settings::default(), vec![Box::new(Leaving(0))])
            .sink(Box::new(Told(Arc::clone(&told))));
        let mut most = 0;
        for s in 100..400 {
            live.poll_sources(s * TICK_NS);
            live.break_silence(s * TICK_NS);
            most = most.max(live.engine().world().findings.len());
        }
        assert!(most > 0, "a port that goes down is a finding");
        assert_eq!(live.engine().world().findings, [], "which ends some time after its device went");
        let told: Vec<u64> = told.lock().unwrap().iter().map(|(s, _)| *s).collect();
        assert_eq!(told[..4], [100, 105, 108, 111]);
        assert_eq!(live.engine().world().now / TICK_NS, 399);
    }

    #[test]
    fn failed_completions_call_for_a_look_at_the_states_of_qps_once() {
        let stats = |n: u64| QpStats {
            device: "mlx5_0".into(),
            qpn: 17,
            errors: [("RETRY_EXC_ERR".into(), n)].into_iter().filter(|_| n > 0).collect(),
            ..QpStats::default()
        };
        let mut engine = Engine::new(Header::new(), Settings::default());
        let mut calls = |n| {
            let calls = new_errors(&engine, &stats(n));
            engine.take(&Observation { t: 1, body: Body::QpStats(stats(n)) });
            calls
        };
        assert_eq!([0, 1, 1, 2, 2].map(&mut calls), [false, true, false, true, false]);
    }

    #[test]
    fn a_command_wakes_a_loop_that_would_sleep_for_ever() {
        let live = Live::new(Mode::Live, Header::new(), Settings::default(), Vec::new());
        let feed = live.feed();
        let running = live.spawn().unwrap();
        feed.send(Command::Interval(7));
        while feed.latest().status.interval_ns != 7 {
            std::thread::yield_now();
        }
        feed.send(Command::Stop);
        running.join().unwrap();
    }

    #[test]
    fn changed_settings_are_in_force_and_in_the_recording_and_the_window_stays() {
        struct Told(Arc<Mutex<Vec<String>>>);
        impl Sink for Told {
            fn observation(&mut self, observation: &Observation<'_>, _: &World) {
                if let Body::Note(note) = &observation.body {
                    self.0.lock().unwrap().push(note.text.to_string());
                }
            }
        }
        let (remote, told) = (Remote::default(), Arc::default());
        let mut live = Live::new(Mode::Live, Header::new(), Settings::default(), Vec::new())
            .obeying(remote.clone())
            .sink(Box::new(Told(Arc::clone(&told))));
        let disabled = vec!["link.flap".to_owned()];
        remote.send(Command::Settings(Box::new(Settings {
            window_s: 9.0,
            disabled: disabled.clone(),
            ..Settings::default()
        })));
        remote.send(Command::Stop);
        live.run_on();
        assert_eq!(live.engine().settings(), &Settings { disabled, ..Settings::default() });
        assert_eq!(*told.lock().unwrap(), [SETTINGS_CHANGED]);
    }
}
