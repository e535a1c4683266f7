//! The recording ring: the last minutes on disk in segments, and an incident file when a critical finding is raised
//! (docs/ring.md).
//!
//! ```text
//! segment    one file of the ring: its name, its marker, its frames; the directory and its lock
//! incident   one file that is being saved, and how many of them there may be
//! store      the thread that writes both, and what it does when it cannot
//! ```
//!
//! The engine's thread only puts lines into a queue. Whatever the disk does, it costs the ring's lines and nothing else.

mod incident;
mod segment;
mod store;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::segment::Directory;
pub use self::segment::RingError;
use self::store::Store;
use super::{Log, Sink};
use crate::clock;
use crate::feed::OwnCost;
use crate::finding::{Finding, FindingState, Severity};
use crate::inventory::World;
use crate::observation::recording::{Header, write_observation};
use crate::observation::{Body, Lost, Nanos, Observation};

/// Lines are handed over in batches of about this size, bytes, and at every tick.
const BATCH_BYTES: usize = 1 << 16;
/// What may wait for the ring's thread, bytes; further lines are lost, and counted.
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// So many jobs wait only for a disk that hangs.
const MAX_QUEUED_JOBS: usize = 4096;
/// At the end the ring's thread gets this long.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where the ring is, and how much it keeps.
#[derive(Debug, Clone)]
pub struct RingOptions {
    /// The directory. It is made when only itself is missing, and belongs to one collector at a time.
    pub directory: PathBuf,
    /// What is kept of the past.
    pub keep: Duration,
    /// What the segments may take on disk, bytes.
    pub max_bytes: u64,
    /// What follows a critical finding and is saved with it.
    pub after: Duration,
    /// Incidents that are kept.
    pub max_incidents: usize,
    /// What incidents may take on disk together, bytes.
    pub max_incident_bytes: u64,
    /// Make room for a new incident by removing the oldest; otherwise it is not saved.
    pub remove_oldest: bool,
}

impl RingOptions {
    /// A ring with the defaults of the configuration.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            keep: Duration::from_secs(600),
            max_bytes: 256 << 20,
            after: Duration::from_secs(60),
            max_incidents: 20,
            max_incident_bytes: 1 << 30,
            remove_oldest: false,
        }
    }
}

/// What became of the ring.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RingStatus {
    /// Bytes of its segments on disk.
    pub bytes: u64,
    /// Segments on disk.
    pub segments: usize,
    /// Observations that are in no segment: the disk was full, gone or too slow.
    pub lost: u64,
    /// Why nothing is written now; it is tried again.
    pub stopped: Option<String>,
    /// An incident is being saved.
    pub saving: bool,
    /// Incidents saved since the start.
    pub incidents: u64,
    /// Critical findings whose incident was not saved: too many are kept already, or it could not be written.
    pub not_saved: u64,
    /// The newest incident.
    pub last_incident: Option<PathBuf>,
}

/// The ring as a sink.
pub struct Ring {
    shared: Arc<Shared>,
    /// The length of a segment, ns.
    segment_ns: Nanos,
    /// When the next one begins.
    segment_end: Nanos,
    batch: Vec<u8>,
    batched: u64,
    /// The critical findings raised now, by their ids.
    critical: BTreeSet<String>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    status: Mutex<RingStatus>,
    /// The thread wants a new segment to begin, with the world at that moment.
    wanted: AtomicBool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// Lines that found no room, and are still to be told of in the recording.
    lost: u64,
    ended: bool,
    /// The thread has taken jobs and is at them.
    busy: bool,
    done: bool,
}

/// What the ring's thread is asked.
enum Job {
    /// Begin a segment with everything that is known.
    Segment { t: Nanos, world: Box<World> },
    /// Lines, the newest observed at `t`.
    Lines { t: Nanos, n: u64, text: Vec<u8> },
    /// A critical finding was raised.
    Critical { t: Nanos, unix_ns: u64, rule: &'static str },
    /// Time passes.
    Tick { t: Nanos },
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the mutexes guard is good after every statement, so also after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ring {
    /// Takes the directory, with what an earlier collector left there, and starts the thread that writes. That the disk
    /// is full is no error here either: the ring begins when it can.
    pub fn start(options: &RingOptions, header: Header, log: Log) -> Result<Self, RingError> {
        let directory = Directory::open(&options.directory)?;
        // Ten to a ring, so that what is dropped at a time is a tenth; a world is restated in each.
        let segment = (options.keep / 10).clamp(Duration::from_secs(1), Duration::from_secs(60));
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            status: Mutex::default(),
            wanted: AtomicBool::new(true),
        });
        let failed = |error: io::Error| RingError::Io(options.directory.clone(), error);
        let store = Store::new(shared.clone(), options.clone(), header, log, directory);
        std::thread::Builder::new().name("ring".to_owned()).spawn(move || store.run()).map_err(failed)?;
        Ok(Self {
            shared,
            segment_ns: u64::try_from(segment.as_nanos()).unwrap_or(Nanos::MAX),
            segment_end: 0,
            batch: Vec::new(),
            batched: 0,
            critical: BTreeSet::new(),
        })
    }

    /// What became of the ring, also later.
    pub fn status(&self) -> impl Fn() -> RingStatus + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || lock(&shared.status).clone()
    }

    /// Begins the next segment when it is time, or the thread wants one.
    fn turn(&mut self, t: Nanos, world: &World) {
        let wanted = self.shared.wanted.swap(false, Ordering::Relaxed);
        if !wanted && t < self.segment_end {
            return;
        }
        self.hand_over(t);
        self.segment_end = t.saturating_add(self.segment_ns);
        if !self.shared.push(Job::Segment { t, world: Box::new(world.clone()) }) {
            self.shared.wanted.store(true, Ordering::Relaxed);
        }
    }

    fn hand_over(&mut self, t: Nanos) {
        if self.batched > 0 {
            let (text, n) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.batched));
            self.shared.push(Job::Lines { t, n, text });
        }
    }

    /// Whether a critical finding that was not one before is among these.
    fn newly_critical(&mut self, findings: &[Arc<Finding>]) -> Option<&'static str> {
        let mut first = None;
        for finding in findings {
            if finding.state == FindingState::Cleared || finding.severity < Severity::Critical {
                self.critical.remove(&finding.id());
            } else if self.critical.insert(finding.id()) {
                first = first.or(Some(finding.rule));
            }
        }
        first
    }
}

impl Shared {
    /// False when there is no room.
    fn push(&self, job: Job) -> bool {
        let mut queue = lock(&self.queue);
        if queue.jobs.len() >= MAX_QUEUED_JOBS || queue.bytes >= MAX_QUEUED_BYTES {
            if let Job::Lines { n, .. } = job {
                queue.lost += n;
                lock(&self.status).lost += n;
            }
            return false;
        }
        if let Job::Lines { t, text, .. } = &job {
            let (t, lost) = (*t, std::mem::take(&mut queue.lost));
            queue.bytes += text.len();
            if lost > 0 {
                // Nothing is lost silently: the recording says where something is missing.
                queue.jobs.push_back(Job::Lines { t, n: 0, text: lost_line(t, lost) });
            }
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.changed.notify_all();
        true
    }
}

fn lost_line(t: Nanos, n: u64) -> Vec<u8> {
    let mut line = Vec::new();
    let observation = Observation { t, body: Body::Lost(Lost { source: "ring".into(), n }) };
    if write_observation(&observation, &mut line).is_err() {
        return Vec::new();
    }
    line.push(b'\n');
    line
}

impl Sink for Ring {
    fn observation(&mut self, observation: &Observation<'_>, world: &World) {
        // Before the observation: the world knows everything that is in the segment that ends, and nothing of this one.
        self.turn(observation.t, world);
        let before = self.batch.len();
        if write_observation(observation, &mut self.batch).is_err() {
            self.batch.truncate(before);
            return;
        }
        self.batch.push(b'\n');
        self.batched += 1;
        if self.batch.len() >= BATCH_BYTES {
            self.hand_over(observation.t);
        }
    }

    fn findings(&mut self, findings: &[Arc<Finding>], world: &World) {
        if let Some(rule) = self.newly_critical(findings) {
            let t = world.now;
            self.hand_over(t);
            let unix_ns = world.unix_ns(t).unwrap_or_else(clock::unix_ns);
            if !self.shared.push(Job::Critical { t, unix_ns, rule }) {
                lock(&self.shared.status).not_saved += 1;
            }
        }
    }

    fn tick(&mut self, world: &World, _: &OwnCost) {
        self.turn(world.now, world);
        self.hand_over(world.now);
        self.shared.push(Job::Tick { t: world.now });
    }

    fn ending(&mut self) {
        lock(&self.shared.queue).ended = true;
        self.shared.changed.notify_all();
    }

    fn finish(&mut self) {
        self.ending();
        // A disk that hangs holds its thread, not the end.
        let queue = lock(&self.shared.queue);
        let _ = self.shared.changed.wait_timeout_while(queue, LAST_WORDS, |queue| !queue.done);
    }
}

#[cfg(test)]
mod tests;
