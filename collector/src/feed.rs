//! What a screen reads: the newest published world and the state of whatever produces it. A reader never waits for the
//! producer, the producer never waits for a reader.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::inventory::World;
use crate::observation::Nanos;
pub use crate::remote::Command;
use crate::remote::Remote;
use crate::source::{Availability, ProbeReport};

/// Who produces the worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// This node's sources.
    Live,
    /// A recording.
    Replay,
    /// The simulator.
    Demo,
}

/// The state of the producer.
#[derive(Debug, Clone)]
pub struct Status {
    /// Who produces.
    pub mode: Mode,
    /// Polling interval of a live producer, ns.
    pub interval_ns: u64,
    /// Replay: simulated seconds per second; infinite for "as fast as possible".
    pub speed: f64,
    /// Replay: standing still.
    pub paused: bool,
    /// Replay: the end of the recording was reached.
    pub ended: bool,
    /// Replay: the share of the recording's file that was read, 0–1; `None` when its size is not known.
    pub read_share: Option<f64>,
    /// Replay: the time it is on its way to, as fast as it goes; `None` when it is not. [`Command::Pause`] stops it there.
    pub seeking: Option<Nanos>,
    /// What is shown in one line above everything else, for example why the demo was opened.
    pub banner: Option<String>,
    /// Notices of the producer (a truncated recording, a source that failed), oldest first: each wants a look.
    pub notices: Vec<String>,
    /// What it has done (a recording that is finished), oldest first: nothing is wrong.
    pub done: Vec<String>,
    /// The recording being written.
    pub recording: Option<RecordingStatus>,
    /// What the program itself uses.
    pub own: OwnCost,
    /// What each source sees.
    pub sources: Vec<Availability>,
    /// The probes.
    pub probes: Vec<ProbeReport>,
    /// `CLOCK_MONOTONIC` of this machine when this was published, for STALE.
    pub published_at: Nanos,
}

impl Status {
    /// The state of a producer that has not produced yet.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            interval_ns: 1_000_000_000,
            speed: 1.0,
            paused: false,
            ended: false,
            read_share: None,
            seeking: None,
            banner: None,
            notices: Vec::new(),
            done: Vec::new(),
            recording: None,
            own: OwnCost::default(),
            sources: Vec::new(),
            probes: Vec::new(),
            published_at: 0,
        }
    }
}

/// A recording being written, or the reason it no longer is.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordingStatus {
    /// The file.
    pub path: PathBuf,
    /// Bytes written, before compression.
    pub bytes: u64,
    /// Observations written.
    pub observations: u64,
    /// Why it stopped; `None` while it runs.
    pub stopped: Option<String>,
}

/// What the program itself uses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OwnCost {
    /// Share of one core over the last second or more; `None` before that.
    pub cpu_share: Option<f64>,
    /// Resident memory, bytes.
    pub resident_bytes: Option<u64>,
}

/// What became of the requests to read the configuration again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadStatus {
    /// Requests since the start.
    pub asked: u64,
    /// Of those, refused because the configuration was wrong: everything stayed as it was.
    pub refused: u64,
    /// Wall clock of the last one, ns since 1970; `None` before the first.
    pub unix_ns: Option<u64>,
    /// Why the last one was refused; `None` when it was not.
    pub error: Option<String>,
}

/// One published world.
#[derive(Debug, Clone)]
pub struct Published {
    /// Grows by one with every publication; 0 before the first.
    pub generation: u64,
    /// The world.
    pub world: Arc<World>,
    /// The state of the producer.
    pub status: Status,
}

/// Both ends of the feed; clones share it.
#[derive(Clone)]
pub struct Feed {
    shared: Arc<Shared>,
    remote: Remote,
}

struct Shared {
    latest: Mutex<Arc<Published>>,
    changed: Condvar,
    /// Made when a reader asks for it.
    wake: OnceLock<OwnedFd>,
    /// What a reader has done with, for the producer to free.
    done: Mutex<Vec<Arc<Published>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the mutexes guard is replaced as a whole, so it is good even after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feed {
    /// A feed with nothing published.
    #[must_use]
    pub fn new(world: Arc<World>, status: Status) -> Self {
        let first = Arc::new(Published { generation: 0, world, status });
        let shared = Shared {
            latest: Mutex::new(first),
            changed: Condvar::new(),
            wake: OnceLock::new(),
            done: Mutex::default(),
        };
        Self { shared: Arc::new(shared), remote: Remote::default() }
    }

    /// The producer's side, before anybody reads: takes commands from here too.
    pub(crate) fn obey(&mut self, remote: Remote) {
        self.remote = remote;
    }

    /// The producer's side: where its commands come from.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The producer's side: somebody else has this feed.
    pub(crate) fn is_read(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// The newest publication.
    #[must_use]
    pub fn latest(&self) -> Arc<Published> {
        lock(&self.shared.latest).clone()
    }

    /// Waits until there is a publication newer than `generation`, or the time is up.
    #[must_use]
    pub fn newer_than(&self, generation: u64, timeout: Duration) -> Option<Arc<Published>> {
        let deadline = Instant::now() + timeout;
        let mut latest = lock(&self.shared.latest);
        while latest.generation <= generation {
            let left = deadline.checked_duration_since(Instant::now())?;
            latest = self.shared.changed.wait_timeout(latest, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(latest.clone())
    }

    /// A descriptor that becomes readable with a publication and stays so until [`Feed::seen`], for the one reader that
    /// waits for something else too. `None` when the process may have no more of them.
    #[must_use]
    pub fn wake(&self) -> Option<BorrowedFd<'_>> {
        if self.shared.wake.get().is_none() {
            let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            // Somebody else may have been quicker: theirs is the one.
            let _ = self.shared.wake.set(made);
        }
        self.shared.wake.get().map(AsFd::as_fd)
    }

    /// Forgets the publications so far; [`Feed::latest`] is asked after this.
    pub fn seen(&self) {
        if let Some(wake) = self.shared.wake.get() {
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
        }
    }

    /// Gives back what is no longer looked at: freeing what one world of a quarter of a million QPs does not share with the
    /// next takes longer than a frame may, so the producer does it.
    pub fn done(&self, mut published: Vec<Arc<Published>>) {
        lock(&self.shared.done).append(&mut published);
        self.remote.wake_up();
    }

    /// Asks something of the producer.
    pub fn send(&self, command: Command) {
        self.remote.send(command);
    }

    /// The producer's side: publishes a world.
    pub fn publish(&self, world: Arc<World>, status: Status) {
        let mut latest = lock(&self.shared.latest);
        *latest = Arc::new(Published { generation: latest.generation + 1, world, status });
        drop(latest);
        self.shared.changed.notify_all();
        if let Some(wake) = self.shared.wake.get() {
            // The counter of an eventfd is full only when the other end has not looked for 2^64 times.
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    /// The producer's side: the next command, if there is one.
    #[must_use]
    pub fn command(&self) -> Option<Command> {
        // Not while the lock is held.
        drop(std::mem::take(&mut *lock(&self.shared.done)));
        self.remote.command()
    }

    /// The producer's side: the next command, waiting for it up to `timeout`.
    #[must_use]
    pub fn command_within(&self, timeout: Duration) -> Option<Command> {
        self.command().or_else(|| {
            self.remote.wait(timeout);
            self.command()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::recording::Header;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn the_descriptor_is_readable_from_a_publication_until_it_is_seen() {
        let feed = Feed::new(Arc::new(World::new(Header::new())), Status::new(Mode::Live));
        let readable = || {
            let mut fds = [PollFd::from_borrowed_fd(feed.wake().unwrap(), PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
        };
        assert!(!readable());
        for _ in 0..2 {
            feed.publish(feed.latest().world.clone(), Status::new(Mode::Live));
        }
        assert!(readable() && readable());
        feed.seen();
        assert!(!readable());
        feed.publish(feed.latest().world.clone(), Status::new(Mode::Live));
        assert!(readable());
    }

    #[test]
    fn what_a_reader_gives_back_is_freed_by_the_producer() {
        let feed = Feed::new(Arc::new(World::new(Header::new())), Status::new(Mode::Live));
        let seen = feed.latest();
        let world = Arc::downgrade(&seen.world);
        feed.publish(Arc::new(World::new(Header::new())), Status::new(Mode::Live));
        feed.done(vec![seen]);
        assert!(world.upgrade().is_some());
        feed.remote().wait(Duration::MAX);
        assert_eq!(feed.command(), None, "it was woken, though there is no command");
        assert!(world.upgrade().is_none());
    }
}
