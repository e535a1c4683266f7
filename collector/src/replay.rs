//! A recording as the producer of worlds: at a chosen speed, standing still, step by step, or from another moment on.

mod progress;
mod stream;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::clock;
use crate::engine::Engine;
use crate::feed::{Command, Feed, Mode, Status};
use crate::finding::Finding;
use crate::inventory::World;
use crate::observation::Nanos;
use crate::observation::recording::{Notices, Reader, RecordingError};
use crate::rule::Settings;

use self::progress::{Counted, Progress};
pub use self::stream::Stream;

/// Screens are given a new world at most this often.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);
/// The slowest replay, simulated seconds per second.
pub const MIN_SPEED: f64 = 0.01;
/// A gap that would be waited for longer than this is skipped, with a notice.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Observations between two looks at the clock and the commands.
const BATCH: u32 = 256;

/// Runs a whole recording through an engine, handing on findings as they change. What was read before an error counts.
///
/// Errors: the file cannot be opened, is no recording, or has too many bad lines in a row.
pub fn judge(
    path: &Path,
    settings: Settings,
    mut findings: impl FnMut(&[Arc<Finding>], &World),
) -> Result<(Engine, Notices), RecordingError> {
    let mut reader = Reader::open(path)?;
    let mut engine = Engine::new(reader.header().clone(), settings);
    let ended = loop {
        match reader.next(|observation| engine.take(observation)) {
            Ok(Some(())) => {}
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        let changed = engine.drain();
        if !changed.is_empty() {
            findings(&changed, engine.world());
        }
    };
    engine.finish();
    let changed = engine.drain();
    if !changed.is_empty() {
        findings(&changed, engine.world());
    }
    ended.map(|()| (engine, reader.notices().clone()))
}

/// Gaps that were not waited for.
struct Skipped {
    n: u64,
    seconds: u64,
    /// When the first was, seconds after the beginning.
    first_s: u64,
    /// What was said of them.
    line: String,
}

/// Plays a recording to a [`Feed`].
pub struct Player {
    path: PathBuf,
    settings: Settings,
    reader: Reader<Counted>,
    progress: Progress,
    engine: Engine,
    feed: Feed,
    status: Status,
    /// Where simulated and real time met last.
    anchor: Option<(Nanos, Instant)>,
    /// Stand still once this time is reached.
    until: Option<Nanos>,
    published: Option<Instant>,
    skipped: Option<Skipped>,
}

impl Player {
    /// Opens a recording. `speed` is simulated seconds per second; infinite plays as fast as possible.
    pub fn open(path: &Path, settings: Settings, speed: f64) -> Result<Self, RecordingError> {
        let (reader, progress) = progress::open(path)?;
        let engine = Engine::new(reader.header().clone(), settings.clone());
        let status = Status { speed: speed.max(MIN_SPEED), ..Status::new(Mode::Replay) };
        Ok(Self {
            path: path.to_owned(),
            settings,
            reader,
            progress,
            feed: Feed::new(engine.snapshot(), status.clone()),
            engine,
            status,
            anchor: None,
            until: None,
            published: None,
            skipped: None,
        })
    }

    /// What a screen reads.
    #[must_use]
    pub fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Plays in a thread of its own until [`Command::Stop`].
    pub fn spawn(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("replay".to_owned()).spawn(move || self.run())
    }

    fn run(mut self) {
        loop {
            let still = (self.status.paused && self.until.is_none()) || self.status.ended;
            let command = if still {
                self.publish(true);
                self.feed.command_within(Duration::from_millis(500))
            } else {
                self.feed.command()
            };
            match command {
                Some(Command::Stop) => return,
                Some(command) => self.obey(&command),
                None if still => {}
                None => self.play(),
            }
        }
    }

    fn obey(&mut self, command: &Command) {
        self.anchor = None;
        match command {
            Command::Pause => {
                self.status.paused = true;
                self.until = None;
            }
            Command::Resume => {
                self.status.paused = false;
                self.until = None;
            }
            Command::Step => {
                self.status.paused = true;
                let world = self.engine.world();
                // Nothing comes after the end.
                self.until = (!self.status.ended).then(|| world.now.saturating_add(world.window_ns));
            }
            Command::Seek(t) => self.seek(*t),
            Command::Speed(speed) => self.status.speed = if speed.is_nan() { 1.0 } else { speed.max(MIN_SPEED) },
            // There is nothing to poll and nothing new to record.
            Command::Interval(_)
            | Command::Record(_)
            | Command::StopRecording
            | Command::Settings(_)
            | Command::Stop => {}
        }
        self.publish(true);
    }

    /// To another moment. Backwards means from the start: the world is a function of everything before it.
    fn seek(&mut self, t: Nanos) {
        self.status.paused = true;
        if t < self.engine.world().now {
            match progress::open(&self.path) {
                Ok((reader, progress)) => {
                    self.progress = progress;
                    self.engine = Engine::new(reader.header().clone(), self.settings.clone());
                    self.reader = reader;
                    self.status.ended = false;
                }
                Err(error) => {
                    self.notice(format!("{}: {error}", self.path.display()));
                    return;
                }
            }
        }
        self.until = (!self.status.ended).then_some(t);
    }

    /// Plays one batch of observations.
    fn play(&mut self) {
        for _ in 0..BATCH {
            if self.until.is_none()
                && let Some(next) = self.reader.next_time()
                && self.ahead(next)
            {
                break;
            }
            let ended = match self.reader.next(|observation| self.engine.take(observation)) {
                Ok(Some(())) => false,
                Ok(None) => true,
                Err(error) => {
                    self.notice(error.to_string());
                    true
                }
            };
            self.engine.drain();
            if ended {
                self.engine.finish();
                self.engine.drain();
                self.status.ended = true;
                self.until = None;
                for line in self.reader.notices().lines() {
                    self.notice(line);
                }
                self.publish(true);
                return;
            }
            if self.until.is_some_and(|until| self.engine.world().now >= until) {
                self.until = None;
                self.publish(true);
                return;
            }
        }
        self.publish(false);
    }

    /// What has been played is ahead of real time: takes a nap, short enough that a key is obeyed at once.
    fn ahead(&mut self, now: Nanos) -> bool {
        if !self.status.speed.is_finite() || now == 0 {
            return false;
        }
        let (from, at) = *self.anchor.get_or_insert((now, Instant::now()));
        let seconds = now.saturating_sub(from) as f64 / 1e9 / self.status.speed;
        let due = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let ahead = due.saturating_sub(at.elapsed());
        if ahead < Duration::from_millis(2) {
            return false;
        }
        if ahead > LONGEST_WAIT {
            // Nothing was observed for long, or the machine that recorded slept: nobody wants to wait for it.
            let gap = now.saturating_sub(self.engine.world().now) / 1_000_000_000;
            self.skip(gap);
            self.anchor = Some((now, Instant::now()));
            return false;
        }
        self.publish(false);
        std::thread::sleep(ahead.min(Duration::from_millis(20)));
        true
    }

    /// Says that so many seconds were skipped: in one line, however many gaps there are. One that is skipped again after a
    /// way back counts again.
    fn skip(&mut self, gap_s: u64) {
        let world = self.engine.world();
        let at_s = world.now.saturating_sub(world.started) / 1_000_000_000;
        let skipped =
            self.skipped.get_or_insert_with(|| Skipped { n: 0, seconds: 0, first_s: at_s, line: String::new() });
        skipped.n += 1;
        skipped.seconds = skipped.seconds.saturating_add(gap_s);
        let line = if skipped.n == 1 {
            format!("{gap_s} s without an observation were skipped")
        } else {
            format!(
                "{} s without an observation were skipped in {} gaps, the first {} s and the last {at_s} s after the beginning",
                skipped.seconds, skipped.n, skipped.first_s
            )
        };
        match self.status.done.iter_mut().find(|done| **done == skipped.line) {
            Some(done) => done.clone_from(&line),
            None => self.status.done.push(line.clone()),
        }
        skipped.line = line;
    }

    fn notice(&mut self, line: String) {
        if self.status.notices.last() != Some(&line) {
            self.status.notices.push(line);
        }
    }

    fn publish(&mut self, at_once: bool) {
        if !at_once && self.published.is_some_and(|at| at.elapsed() < PUBLISH_EVERY) {
            return;
        }
        let newest = self.feed.latest();
        let same = newest.generation > 0
            && newest.world.now == self.engine.world().now
            && newest.status.paused == self.status.paused
            && newest.status.ended == self.status.ended
            && newest.status.seeking == self.until
            && newest.status.speed.to_bits() == self.status.speed.to_bits()
            && newest.status.notices.len() == self.status.notices.len();
        if same {
            return;
        }
        self.published = Some(Instant::now());
        self.status.seeking = self.until;
        self.status.read_share = self.progress.share();
        self.status.published_at = clock::monotonic_ns();
        self.feed.publish(self.engine.snapshot(), self.status.clone());
    }
}
