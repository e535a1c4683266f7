//! Waiting for a key without hanging on a terminal that is gone.
//!
//! Crossterm reads a hung-up terminal over and over and never returns. So the terminal is asked first whether it is still
//! there; and where it goes away in between, a watchdog ends the process after a signal.

use std::fs::File;
use std::io::{self, IsTerminal, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use collector::feed::Feed;
use crossterm::clipboard::CopyToClipboard;
use crossterm::event::{self, Event};
use crossterm::execute;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::signals::{Line, Signals};

/// How long is waited at once where something has to be looked for now and then.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

/// What waiting for input came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// An event can be read.
    Waiting,
    /// Nothing came in the time given.
    Nothing,
    /// The terminal is gone.
    Gone,
}

/// Where keys come from.
pub(crate) trait Keys {
    /// Waits for an event, or a newer world, for at most `wait`.
    fn wait(&mut self, wait: Duration) -> io::Result<Input>;

    /// A signal came since this was last asked: the terminal may have another size, whether an event tells of it or not.
    fn signalled(&mut self) -> bool;

    /// The next event, when there is one.
    fn read(&mut self) -> io::Result<Event>;

    /// Another event can be read at once.
    fn more(&mut self) -> io::Result<bool>;

    /// Hands text to the clipboard of whoever sits there. It may be ignored, so the text's fate is not known.
    fn copy(&mut self, text: &str) -> io::Result<()>;
}

/// The terminal's input, the same that crossterm reads: standard input, or `/dev/tty` where that is no terminal.
pub(crate) struct Terminal<'s> {
    tty: Option<File>,
    feed: Feed,
    signals: &'s Signals,
    /// Crossterm may have read more than was taken.
    more: bool,
    /// A signal came that nobody asked about yet. Crossterm hears of a change of size by a handler of its own, which runs after
    /// ours and perhaps in another thread: it may know nothing of it yet.
    signalled: bool,
}

impl<'s> Terminal<'s> {
    /// Opens it. A publication of `feed`, and a signal, ends a wait.
    pub(crate) fn open(feed: Feed, signals: &'s Signals) -> io::Result<Self> {
        let tty = if io::stdin().is_terminal() { None } else { Some(File::open("/dev/tty")?) };
        // From its first look on, crossterm notices changes of the size.
        let more = event::poll(Duration::ZERO)?;
        Ok(Self { tty, feed, signals, more, signalled: false })
    }
}

impl Keys for Terminal<'_> {
    fn wait(&mut self, wait: Duration) -> io::Result<Input> {
        let stdin = io::stdin();
        let tty: BorrowedFd<'_> = self.tty.as_ref().map_or_else(|| stdin.as_fd(), AsFd::as_fd);
        let published = self.feed.wake();
        // Without a descriptor that tells of publications they are looked for.
        let wait = if published.is_some() { wait } else { wait.min(SHORT) };
        let wait = if self.more { Duration::ZERO } else { wait };
        let fds = [Some(tty), Some(self.signals.wake()), published].into_iter().flatten();
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let came: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        if came[0].intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(Input::Gone);
        }
        let signal = !came[1].is_empty();
        if signal {
            self.signals.seen();
            self.signalled = true;
        }
        self.feed.seen();
        // What crossterm has read already, and changes of the size, do not make the terminal readable.
        let look = self.more || signal || !came[0].is_empty();
        Ok(if look && event::poll(Duration::ZERO)? { Input::Waiting } else { Input::Nothing })
    }

    fn signalled(&mut self) -> bool {
        std::mem::take(&mut self.signalled)
    }

    fn read(&mut self) -> io::Result<Event> {
        event::read()
    }

    fn more(&mut self) -> io::Result<bool> {
        self.more = event::poll(Duration::ZERO)?;
        Ok(self.more)
    }

    /// By OSC 52.
    fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(io::stdout(), CopyToClipboard::to_clipboard_from(text))
    }
}

/// Ends the process when a signal asked for it and the screen's loop did not end in time, because the terminal went away
/// under a read. Dropped when the loop has ended.
pub(crate) struct Watchdog {
    ended: Arc<AtomicBool>,
    /// Hung up when the watchdog goes: its thread ends.
    _line: Option<Line>,
}

impl Watchdog {
    /// Starts watching for signals.
    pub(crate) fn start() -> Self {
        let ended = Arc::<AtomicBool>::default();
        // Without a line, or a thread, there is no watchdog; the loop works all the same.
        let line = Line::open().ok().map(|(line, mut asked)| {
            let loop_ended = ended.clone();
            let watch = move || {
                while asked.read_exact(&mut [0]).is_ok() {
                    std::thread::sleep(Duration::from_secs(2));
                    if !loop_ended.load(Ordering::Relaxed) {
                        std::process::exit(1);
                    }
                }
            };
            let _ = std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch);
            line
        });
        Self { ended, _line: line }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
