//! The collector's loop: polls the sources when they are due, hands every observation to the sinks and the engine, and
//! publishes the world. It runs in a thread of its own; a screen reads the [`Feed`].
//!
//! Here is the loop itself, from beginning to end. `poll` is a round over the sources, `nudge` what makes one of them call
//! for the others, `slot` what is said of how much each sees, `obey` what readers ask, `publish` what they get.

mod nudge;
mod obey;
mod poll;
mod publish;
mod slot;

use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

pub(crate) use obey::SETTINGS_CHANGED;

use self::slot::Slot;
use crate::clock;
use crate::engine::Engine;
use crate::feed::{Feed, Mode, Status};
use crate::inventory::World;
use crate::observation::recording::Header;
use crate::observation::{Nanos, Observation};
use crate::own_cost::Own;
use crate::remote::Remote;
use crate::rule::Settings;
use crate::sink::recording::Recording;
use crate::sink::{self, Sink};
use crate::source::{Availability, ProbeReport, Source};

/// Sinks may bring out what is buffered so often, ns.
const TICK_NS: u64 = 1_000_000_000;

/// The collector's loop and what it needs.
pub struct Live {
    sources: Vec<Slot>,
    sinks: Vec<Box<dyn Sink>>,
    engine: Engine,
    feed: Feed,
    status: Status,
    recording: Option<Recording>,
    header: Header,
    own: Own,
    last_tick: Nanos,
    last_publish: Nanos,
    /// When something was observed last.
    last_observed: Nanos,
    until: Option<Nanos>,
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
            sources: sources.into_iter().map(Slot::new).collect(),
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

    /// Takes commands from here, for example [`Command::Stop`](crate::feed::Command::Stop) of whoever catches signals.
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

    /// Runs in a thread of its own until [`Command::Stop`](crate::feed::Command::Stop).
    pub fn spawn(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("collector".to_owned()).spawn(move || self.run())
    }

    /// Runs until [`Command::Stop`](crate::feed::Command::Stop) or until its time is over, and ends everything properly.
    pub fn run(mut self) {
        self.run_on();
        self.finish();
    }

    /// Runs until [`Command::Stop`](crate::feed::Command::Stop) or until its time is over.
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
    pub fn availability(&self) -> (Vec<Availability>, Vec<ProbeReport>) {
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
        if let Some(recording) = &mut self.recording {
            act(recording, world);
        }
    }

    /// Hands an observation of the loop's own to sinks, recording and engine.
    fn tell_all(&mut self, observation: &Observation<'_>) {
        hand(observation, &mut self.engine, &mut self.sinks, &mut self.recording);
        self.last_observed = self.last_observed.max(observation.t);
    }

    fn hand_on_findings(&mut self) {
        if sink::hand_on(&mut self.engine, &mut self.sinks) {
            self.last_publish = 0;
        }
    }

    /// Waits until a source is due or has something to say, sinks are to be told that time passes, or a command comes.
    fn wait(&self) {
        let now = clock::monotonic_ns();
        let live = || self.sources.iter().filter(|slot| slot.broken.is_none());
        let due = live().map(|slot| slot.source.due()).min().unwrap_or(Nanos::MAX);
        let next = due.min(self.last_tick.saturating_add(TICK_NS)).min(self.publishes_at());
        let next = next.min(self.until.unwrap_or(Nanos::MAX));
        let fds = live()
            .flat_map(|slot| slot.source.wake_fds())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        self.feed.remote().wait_beside(fds, Duration::from_nanos(next.saturating_sub(now)));
    }
}

/// Hands an observation to the sinks, the recording and the engine. All but the engine see the world as it was before.
fn hand(
    observation: &Observation<'_>,
    engine: &mut Engine,
    sinks: &mut [Box<dyn Sink>],
    recording: &mut Option<Recording>,
) {
    for sink in sinks {
        sink.observation(observation, engine.world());
    }
    if let Some(recording) = recording {
        recording.observation(observation, engine.world());
    }
    engine.take(observation);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::feed::{Command, OwnCost};
    use crate::observation::Seeing;

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
}
