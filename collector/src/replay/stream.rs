//! A recording in the place of this node: its observations and what the engine concludes of them go to sinks, as they do
//! live.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{LONGEST_WAIT, MIN_SPEED};
use crate::clock;
use crate::engine::Engine;
use crate::inventory::World;
use crate::live::SETTINGS_CHANGED;
use crate::observation::Nanos;
use crate::observation::recording::{Header, Notices, Reader, RecordingError};
use crate::observation::{Body, Note, Observation};
use crate::own_cost::Own;
use crate::remote::{Command, Remote};
use crate::rule::Settings;
use crate::sink::{self, Sink};

/// How often sinks may bring out what is buffered.
const TICK: Duration = Duration::from_secs(1);
/// Streams a recording to sinks.
pub struct Stream {
    reader: Reader<File>,
    engine: Engine,
    sinks: Vec<Box<dyn Sink>>,
    speed: f64,
    stay: bool,
    ticked: Instant,
    own: Own,
    remote: Remote,
    until: Option<Nanos>,
}

impl Stream {
    /// Opens a recording. `speed` is recorded seconds per second; infinite streams as fast as possible. `stay`: go on
    /// serving the sinks after its end.
    pub fn open(path: &Path, settings: Settings, speed: f64, stay: bool) -> Result<Self, RecordingError> {
        let reader = Reader::open(path)?;
        let engine = Engine::new(reader.header().clone(), settings);
        let speed = speed.max(MIN_SPEED);
        Ok(Self {
            reader,
            engine,
            sinks: Vec::new(),
            speed,
            stay,
            ticked: Instant::now(),
            own: Own::new(),
            remote: Remote::default(),
            until: None,
        })
    }

    /// Takes commands from here: [`Command::Stop`], [`Command::Settings`].
    #[must_use]
    pub fn obeying(mut self, remote: Remote) -> Self {
        self.remote = remote;
        self
    }

    /// Ends by itself at this moment of this machine, `CLOCK_MONOTONIC` ns.
    #[must_use]
    pub fn until(mut self, at: Option<Nanos>) -> Self {
        self.until = at;
        self
    }

    /// What the recording says of its node.
    #[must_use]
    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    /// Adds a sink.
    pub fn sink(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    /// Streams to the end, until [`Command::Stop`] or until its time is over, and ends every sink properly. What was read
    /// before an error counts.
    pub fn run(mut self) -> Result<Notices, RecordingError> {
        // Where recorded and real time met last.
        let mut anchor: Option<(Nanos, Instant)> = None;
        let outcome = loop {
            if self.ended() {
                break Ok(());
            }
            self.tick();
            if let Some(next) = self.reader.next_time()
                && self.ahead(next, &mut anchor)
            {
                continue;
            }
            let (engine, sinks) = (&mut self.engine, &mut self.sinks);
            let next = self.reader.next(|observation| take(engine, sinks, observation));
            match next {
                Ok(Some(())) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.engine.finish();
        sink::hand_on(&mut self.engine, &mut self.sinks);
        while self.stay && outcome.is_ok() && !self.ended() {
            self.tick();
            self.nap(Duration::MAX);
        }
        for sink in &mut self.sinks {
            sink.last(self.engine.world(), &self.own.cost());
            sink.ending();
        }
        self.sinks.iter_mut().for_each(|sink| sink.finish());
        outcome.map(|()| self.reader.notices().clone())
    }

    /// Obeys what was asked; true when it is to end.
    fn ended(&mut self) -> bool {
        while let Some(command) = self.remote.command() {
            match command {
                Command::Stop => return true,
                Command::Settings(settings) => {
                    if !self.engine.set_settings(*settings) {
                        continue;
                    }
                    let note = Note { source: "configuration".into(), text: SETTINGS_CHANGED.into() };
                    let observation = Observation { t: self.engine.world().now, body: Body::Note(note) };
                    take(&mut self.engine, &mut self.sinks, &observation);
                }
                // What is recorded is neither polled nor rewound here.
                _ => {}
            }
        }
        self.until.is_some_and(|until| clock::monotonic_ns() >= until)
    }

    /// The world at the end of what was read.
    #[must_use]
    pub fn world(&self) -> &World {
        self.engine.world()
    }

    fn tick(&mut self) {
        if self.ticked.elapsed() >= TICK {
            self.ticked = Instant::now();
            self.own.measure(clock::monotonic_ns());
            let (world, own) = (self.engine.world(), self.own.cost());
            self.sinks.iter_mut().for_each(|sink| sink.tick(world, &own));
        }
    }

    /// The next observation is still to come: takes a nap. A gap nobody would wait for is skipped.
    fn ahead(&self, next: Nanos, anchor: &mut Option<(Nanos, Instant)>) -> bool {
        if self.speed.is_infinite() {
            return false;
        }
        let (from, at) = *anchor.get_or_insert_with(|| (next, Instant::now()));
        let wait = Duration::from_secs_f64(next.saturating_sub(from) as f64 / 1e9 / self.speed);
        let left = wait.saturating_sub(at.elapsed());
        if left > LONGEST_WAIT {
            *anchor = Some((next, Instant::now()));
            return false;
        }
        if left.is_zero() {
            return false;
        }
        self.nap(left);
        true
    }

    /// Waits so long, and no longer than until the sinks are to be told that time passes or a command comes.
    fn nap(&self, longest: Duration) {
        let tick = TICK.saturating_sub(self.ticked.elapsed());
        let until =
            self.until.map_or(Duration::MAX, |until| Duration::from_nanos(until.saturating_sub(clock::monotonic_ns())));
        self.remote.wait(longest.min(tick).min(until));
    }
}

/// One observation goes the way it goes live.
fn take(engine: &mut Engine, sinks: &mut [Box<dyn Sink>], observation: &Observation<'_>) {
    for sink in sinks.iter_mut() {
        sink.observation(observation, engine.world());
    }
    engine.take(observation);
    sink::hand_on(engine, sinks);
}
