//! What is asked of a producer, from any thread: the command wakes it at once, so it need not look for one now and then.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;

use crate::observation::Nanos;
use crate::rule::Settings;

/// How long at most is waited at once where there is no descriptor that would wake (the process has no more of them).
const WITHOUT_WAKE: Duration = Duration::from_millis(50);

/// What a reader asks of the producer.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Replay: stand still.
    Pause,
    /// Replay: go on.
    Resume,
    /// Replay: one window on, and stand still.
    Step,
    /// Replay: to this time (backwards too), and stand still.
    Seek(Nanos),
    /// Replay: simulated seconds per second.
    Speed(f64),
    /// Live: poll every so many ns.
    Interval(u64),
    /// Live: write a recording.
    Record(PathBuf),
    /// Live: end the recording.
    StopRecording,
    /// Live and streamed: ask the rules with other thresholds from now on. The length of a window stays.
    Settings(Box<Settings>),
    /// End.
    Stop,
}

/// Asks something of a producer; clones ask the same one.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

struct Shared {
    commands: Mutex<VecDeque<Command>>,
    wake: Option<OwnedFd>,
}

impl Default for Remote {
    fn default() -> Self {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Self { shared: Arc::new(Shared { commands: Mutex::default(), wake }) }
    }
}

impl Remote {
    /// Asks something of the producer, and wakes it.
    pub fn send(&self, command: Command) {
        self.commands().push_back(command);
        self.wake_up();
    }

    /// Wakes the producer, which looks whether there is something to do.
    pub(crate) fn wake_up(&self) {
        if let Some(wake) = &self.shared.wake {
            // The counter of an eventfd is full only when the other end has not looked for 2^64 times.
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    /// The next command, if there is one.
    pub(crate) fn command(&self) -> Option<Command> {
        let mut commands = self.commands();
        if commands.len() < 2
            && let Some(wake) = &self.shared.wake
        {
            // Nothing is left to wake for; whoever sends next does so after this, for the lock is held.
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
        }
        commands.pop_front()
    }

    /// Readable while there is a command.
    pub(crate) fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.shared.wake.as_ref().map(AsFd::as_fd)
    }

    /// Waits for a command, or until the time is up; it may also end early.
    pub(crate) fn wait(&self, timeout: Duration) {
        self.wait_beside(Vec::new(), timeout);
    }

    /// The same, and one of `fds` ends it too.
    pub(crate) fn wait_beside<'f>(&'f self, mut fds: Vec<PollFd<'f>>, timeout: Duration) {
        let timeout = match self.wake() {
            Some(wake) => {
                fds.push(PollFd::from_borrowed_fd(wake, PollFlags::IN));
                timeout
            }
            None => timeout.min(WITHOUT_WAKE),
        };
        // A time beyond what the kernel takes is no time at all. Interrupted by a signal: everything is looked at anyway.
        let _ = poll(&mut fds, Timespec::try_from(timeout).ok().as_ref());
    }

    fn commands(&self) -> MutexGuard<'_, VecDeque<Command>> {
        // A queue is good after every statement, so also after a panic elsewhere.
        self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(remote: &Remote) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(remote.wake().unwrap(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn the_descriptor_is_readable_as_long_as_there_is_a_command() {
        let remote = Remote::default();
        assert!(!readable(&remote));
        remote.send(Command::Pause);
        remote.send(Command::Stop);
        assert!(readable(&remote));
        assert_eq!(remote.command(), Some(Command::Pause));
        assert!(readable(&remote), "there is another");
        assert_eq!(remote.command(), Some(Command::Stop));
        assert!(!readable(&remote));
        assert_eq!(remote.command(), None);
    }

    #[test]
    fn a_command_ends_the_wait() {
        let remote = Remote::default();
        let waiting = remote.clone();
        let waiter = std::thread::spawn(move || {
            loop {
                if let Some(command) = waiting.command() {
                    return command;
                }
                waiting.wait(Duration::MAX);
            }
        });
        remote.send(Command::Step);
        assert_eq!(waiter.join().unwrap(), Command::Step);
    }
}
