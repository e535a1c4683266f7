//! Waiting for a key without hanging on a terminal that is gone.
//!
//! Crossterm reads a hung-up terminal over and over and never returns. So the terminal is asked first whether it is still
//! there; and where it goes away in between, a watchdog ends the process after a signal.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::clipboard::CopyToClipboard;
use crossterm::event::{self, Event};
use crossterm::execute;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

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
    /// Waits for an event for at most `wait`.
    fn wait(&mut self, wait: Duration) -> io::Result<Input>;

    /// The next event, when there is one.
    fn read(&mut self) -> io::Result<Event>;

    /// Another event can be read at once.
    fn more(&mut self) -> io::Result<bool>;

    /// Hands text to the clipboard of whoever sits there. It may be ignored, so the text's fate is not known.
    fn copy(&mut self, text: &str) -> io::Result<()>;
}

/// The terminal's input, the same that crossterm reads: standard input, or `/dev/tty` where that is no terminal.
pub(crate) struct Terminal {
    tty: Option<File>,
}

impl Terminal {
    /// Opens it.
    pub(crate) fn open() -> io::Result<Self> {
        let tty = if io::stdin().is_terminal() { None } else { Some(File::open("/dev/tty")?) };
        Ok(Self { tty })
    }

    /// Waits for an event for at most `wait`.
    fn wait_for(&self, wait: Duration) -> io::Result<Input> {
        if self.gone(Duration::ZERO)? {
            return Ok(Input::Gone);
        }
        // What crossterm has read already, and changes of the size, do not make the terminal readable.
        if event::poll(Duration::ZERO)? {
            return Ok(Input::Waiting);
        }
        if self.gone(wait)? {
            return Ok(Input::Gone);
        }
        Ok(if event::poll(Duration::ZERO)? { Input::Waiting } else { Input::Nothing })
    }

    /// Waits until there is something to read or the time is up; true when the terminal is gone.
    fn gone(&self, wait: Duration) -> io::Result<bool> {
        let stdin = io::stdin();
        let fd: BorrowedFd<'_> = self.tty.as_ref().map_or_else(|| stdin.as_fd(), AsFd::as_fd);
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
    }
}

impl Keys for Terminal {
    fn wait(&mut self, wait: Duration) -> io::Result<Input> {
        self.wait_for(wait)
    }

    fn read(&mut self) -> io::Result<Event> {
        event::read()
    }

    fn more(&mut self) -> io::Result<bool> {
        event::poll(Duration::ZERO)
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
}

impl Watchdog {
    /// Starts watching; `came` says whether a signal came.
    pub(crate) fn start(came: impl Fn() -> bool + Send + 'static) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let loop_ended = ended.clone();
        let watch = move || {
            let nap = Duration::from_millis(200);
            while !loop_ended.load(Ordering::Relaxed) {
                std::thread::sleep(nap);
                if came() {
                    std::thread::sleep(Duration::from_secs(2));
                    if !loop_ended.load(Ordering::Relaxed) {
                        std::process::exit(1);
                    }
                }
            }
        };
        // Without a thread there is no watchdog; the loop works all the same.
        let _ = std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch);
        Self { ended }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
