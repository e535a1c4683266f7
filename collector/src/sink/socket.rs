//! The local socket: findings and failovers as JSON lines, for programs of this node that act on them (docs/socket.md).
//!
//! The engine's thread only puts lines into a queue; a thread of the socket's own writes them to the readers, none of
//! which it ever waits for. Nothing readers send is read.

mod bind;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use serde::Serialize;

use self::bind::{Bound, Name, bind};
pub use self::bind::{SocketError, group_id};
use super::findings::Told;
use super::{Log, Sink};
use crate::finding::Finding;
use crate::inventory::{Failover, World};
use crate::observation::recording::Header;

/// Readers at the same time.
const MAX_READERS: usize = 64;
/// What may wait for one reader, bytes; one that is further behind is dropped.
const MAX_BEHIND: usize = 1 << 20;
/// Lines that may wait for the socket's thread; it never waits for anything, so there are never many.
const MAX_QUEUED: usize = 65_536;
/// Nobody is accepted this long after the kernel had no descriptor or no memory for a reader. The listener stays readable
/// meanwhile, so to go on asking it would keep a processor busy.
const REST: Duration = Duration::from_secs(1);
/// At the end readers get this long to take what is left.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Where the socket is, and whose.
#[derive(Debug, Clone)]
pub struct SocketOptions {
    /// The socket's path. Its directory is made when only that is missing.
    pub path: PathBuf,
    /// The group that may read, besides the owner: a group id.
    pub group: Option<u32>,
}

/// What became of the socket's readers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketStatus {
    /// Readers now.
    pub readers: usize,
    /// Readers since the start.
    pub connected: u64,
    /// Readers that were dropped because they were too slow.
    pub dropped: u64,
    /// Readers that were sent away because there were too many.
    pub refused: u64,
    /// Lines that were lost for all readers.
    pub lost: u64,
}

/// The socket as a sink.
pub struct Socket {
    shared: Arc<Shared>,
    name: Name,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: OwnedFd,
    status: Mutex<SocketStatus>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Arc<str>>,
    /// The raised findings after `lines`.
    raised: Vec<Arc<Finding>>,
    ended: bool,
}

/// The first line.
#[derive(Serialize)]
struct Greeting<'h> {
    hello: &'static str,
    version: u32,
    tool: &'static str,
    host: Option<&'h str>,
    /// The wall clock and `CLOCK_MONOTONIC` of the same moment, ns.
    unix_ns: Option<u64>,
    mono_ns: Option<u64>,
    /// So many lines of findings that are raised now follow.
    raised: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the mutexes guard is good after every statement, so also after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it has only string keys and finite numbers or null")
}

impl Socket {
    /// Makes the socket and serves it in a thread of its own. A socket that a killed process left is replaced, one that
    /// is served is not.
    pub fn start(options: &SocketOptions, header: Header, log: Log) -> Result<Self, SocketError> {
        let bound = bind(options)?;
        let name = bound.name.clone();
        let failed = |error| SocketError::Io(options.path.clone(), error);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
        let shared = Arc::new(Shared { queue: Mutex::default(), wake, status: Mutex::new(SocketStatus::default()) });
        let server = Server {
            shared: shared.clone(),
            header,
            log,
            raised: Vec::new(),
            readers: Vec::new(),
            rest: None,
            said: Said::default(),
        };
        let thread =
            std::thread::Builder::new().name("socket".to_owned()).spawn(move || server.run(&bound)).map_err(failed)?;
        Ok(Self { shared, name, thread: Some(thread) })
    }

    /// What became of the readers, also later.
    pub fn status(&self) -> impl Fn() -> SocketStatus + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || *lock(&shared.status)
    }

    /// What gives the socket to another group; `None`: the collector's own.
    pub fn regroup(&self) -> impl Fn(Option<u32>) -> Result<(), SocketError> + Send + 'static {
        let name = self.name.clone();
        move |group| name.give(group)
    }

    fn tell(&self, lines: impl Iterator<Item = String>, world: &World) {
        let mut queue = lock(&self.shared.queue);
        for line in lines {
            if queue.lines.len() < MAX_QUEUED {
                queue.lines.push_back(line.into());
            } else {
                lock(&self.shared.status).lost += 1;
            }
        }
        queue.raised.clone_from(&world.findings);
        drop(queue);
        self.shared.wake();
    }
}

impl Shared {
    fn wake(&self) {
        // The counter of an eventfd is full only when the other end has not looked for 2^64 times.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Sink for Socket {
    fn findings(&mut self, findings: &[Arc<Finding>], world: &World) {
        self.tell(findings.iter().map(|finding| json(&Told::new(finding)) + "\n"), world);
    }

    fn failovers(&mut self, failovers: &[Arc<Failover>], world: &World) {
        let line = |failover: &Arc<Failover>| json(&serde_json::json!({ "failover": failover })) + "\n";
        self.tell(failovers.iter().map(line), world);
    }

    fn ending(&mut self) {
        lock(&self.shared.queue).ended = true;
        self.shared.wake();
    }

    fn finish(&mut self) {
        self.ending();
        if let Some(thread) = self.thread.take() {
            // It ends within LAST_WORDS.
            let _ = thread.join();
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The socket's thread.
struct Server {
    shared: Arc<Shared>,
    header: Header,
    log: Log,
    /// What a reader that comes now is told: the raised findings after every line that was handed on.
    raised: Vec<Arc<Finding>>,
    readers: Vec<Reader>,
    /// The listener is left alone until then.
    rest: Option<Instant>,
    said: Said,
}

/// What was said already; it is said once.
#[derive(Debug, Default, Clone, Copy)]
struct Said {
    rest: bool,
    refused: bool,
    lost: bool,
}

struct Reader {
    stream: UnixStream,
    waiting: VecDeque<u8>,
}

impl Server {
    fn run(mut self, bound: &Bound) {
        loop {
            let ended = self.hand_on();
            if ended {
                break;
            }
            self.accept(|| bound.listener.accept().map(|(stream, _)| stream));
            self.write();
            self.wait(Some(&bound.listener), None);
        }
        bound.name.remove();
        let deadline = Instant::now() + LAST_WORDS;
        self.write();
        while self.readers.iter().any(|reader| !reader.waiting.is_empty()) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break };
            self.wait(None, Some(left));
            self.write();
        }
    }

    /// Gives every reader what is new; true at the end.
    fn hand_on(&mut self) -> bool {
        // Emptied before the queue is looked at: what comes later wakes again.
        let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
        let (lines, ended) = {
            let mut queue = lock(&self.shared.queue);
            self.raised.clone_from(&queue.raised);
            (std::mem::take(&mut queue.lines), queue.ended)
        };
        if !self.said.lost && lock(&self.shared.status).lost > 0 {
            (self.log)("socket: lines lost for all readers: too many at once (said once; all are counted)");
            self.said.lost = true;
        }
        for line in &lines {
            for reader in &mut self.readers {
                reader.waiting.extend(line.as_bytes());
            }
        }
        ended
    }

    /// Greets everybody who is waiting.
    fn accept(&mut self, mut next: impl FnMut() -> io::Result<UnixStream>) {
        loop {
            let stream = match next() {
                Ok(stream) => stream,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // No descriptor or no memory left: EMFILE, ENFILE, ENOMEM, ENOBUFS.
                Err(error) => return self.rest(&error),
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut status = lock(&self.shared.status);
            if self.readers.len() >= MAX_READERS {
                status.refused += 1;
                if !std::mem::replace(&mut self.said.refused, true) {
                    drop(status);
                    (self.log)(&format!(
                        "socket: a reader refused: {MAX_READERS} read already (said once; all are counted)"
                    ));
                }
                continue;
            }
            status.connected += 1;
            drop(status);
            let mut reader = Reader { stream, waiting: VecDeque::new() };
            let greeting = Greeting {
                hello: "rdmascope",
                version: 1,
                tool: concat!("rdmascope ", env!("CARGO_PKG_VERSION")),
                host: self.header.host.as_deref(),
                unix_ns: self.header.unix_ns,
                mono_ns: self.header.mono_ns,
                raised: self.raised.len(),
            };
            let lines =
                std::iter::once(json(&greeting)).chain(self.raised.iter().map(|finding| json(&Told::new(finding))));
            for line in lines {
                reader.waiting.extend(line.as_bytes());
                reader.waiting.push_back(b'\n');
            }
            self.readers.push(reader);
        }
    }

    fn rest(&mut self, error: &io::Error) {
        self.rest = Some(Instant::now() + REST);
        if !self.said.rest {
            (self.log)(&format!("socket: cannot accept a reader: {error}; readers wait until it can (said once)"));
            self.said.rest = true;
        }
    }

    /// How long nobody is to be accepted yet.
    fn resting(&self) -> Option<Duration> {
        self.rest?.checked_duration_since(Instant::now())
    }

    fn write(&mut self) {
        let (before, mut slow) = (self.readers.len(), 0);
        self.readers.retain_mut(|reader| {
            let there = reader.write().is_ok();
            let behind = reader.waiting.len() > MAX_BEHIND;
            slow += u64::from(there && behind);
            there && !behind
        });
        let mut status = lock(&self.shared.status);
        status.readers = self.readers.len();
        status.dropped += slow;
        drop(status);
        if slow > 0 {
            (self.log)(&format!("socket: {slow} of {before} readers dropped: too slow"));
        }
    }

    /// Waits for something to do; `left` bounds it.
    fn wait(&mut self, listener: Option<&UnixListener>, left: Option<Duration>) {
        let rest = listener.and_then(|_| self.resting());
        let listener = listener.filter(|_| rest.is_none());
        let left = left.into_iter().chain(rest).min();
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        fds.extend(listener.map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)));
        let others = fds.len();
        for reader in &self.readers {
            // Without interest in what it sends; that it is gone is told anyway.
            let interest = if reader.waiting.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::from_borrowed_fd(reader.stream.as_fd(), interest));
        }
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return;
        }
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let mut there: Vec<bool> = fds[others..].iter().map(|fd| !fd.revents().intersects(gone)).collect();
        there.reverse();
        self.readers.retain(|_| there.pop().unwrap_or(true));
    }
}

impl Reader {
    /// Writes what the kernel takes; an error: the reader is gone.
    fn write(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.stream.write(self.waiting.as_slices().0) {
                Ok(n) => drop(self.waiting.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
