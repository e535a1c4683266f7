//! Signals that end the screen: they set a flag and wake the loop, which ends as it does for `q`. A change of the terminal's
//! size only wakes it.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;

/// Signals that end the screen.
const ENDING: [i32; 3] = [SIGTERM, SIGHUP, SIGINT];

/// Signals that somebody waits for; dropped, they are waited for no more.
struct Registered(Vec<SigId>);

impl Registered {
    /// Each of the signals writes into `sent`.
    fn writing(&mut self, signals: impl IntoIterator<Item = i32>, sent: &UnixStream) -> io::Result<()> {
        for signal in signals {
            self.0.push(pipe::register(signal, sent.try_clone()?)?);
        }
        Ok(())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Watches for signals that end the screen, until it is dropped.
pub(crate) struct Signals {
    flag: Arc<AtomicBool>,
    wake: UnixStream,
    _registered: Registered,
}

impl Signals {
    /// Starts watching.
    pub(crate) fn watch() -> io::Result<Self> {
        let (wake, sent) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let (flag, mut registered) = (Arc::<AtomicBool>::default(), Registered(Vec::new()));
        for signal in ENDING {
            // First the flag: whoever is woken finds it set.
            registered.0.push(signal_hook::flag::register(signal, flag.clone())?);
        }
        registered.writing(ENDING.into_iter().chain([SIGWINCH]), &sent)?;
        Ok(Self { flag, wake, _registered: registered })
    }

    /// One of the signals came.
    pub(crate) fn came(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Readable from a signal, or a change of size, until [`Signals::seen`].
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Forgets what made it readable.
    pub(crate) fn seen(&self) {
        while (&self.wake).read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
    }
}

/// A line on which each signal that ends the screen sends a byte, for a thread that does nothing but wait.
pub(crate) struct Line {
    sent: UnixStream,
    _registered: Registered,
}

impl Line {
    /// The line, and its other end.
    pub(crate) fn open() -> io::Result<(Self, UnixStream)> {
        let (read, sent) = UnixStream::pair()?;
        let mut registered = Registered(Vec::new());
        registered.writing(ENDING, &sent)?;
        Ok((Self { sent, _registered: registered }, read))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Whoever reads finds the end. It cannot fail while both ends are there.
        let _ = self.sent.shutdown(Shutdown::Both);
    }
}
