//! Signals that end the screen or stop it for a while: they set a flag and wake the loop, which ends as it does for `q`, or
//! gives the terminal to the shell as for Ctrl-Z. A change of the terminal's size only wakes it.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::low_level::{emulate_default_handler, pipe};

/// Signals that end the screen.
const ENDING: [i32; 4] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT];

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
    /// Of those SIGQUIT: it asks for a core.
    dump: Arc<AtomicBool>,
    /// Somebody asked for the shell.
    stop: Arc<AtomicBool>,
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
        let (dump, stop) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        registered.0.push(signal_hook::flag::register(SIGQUIT, dump.clone())?);
        registered.0.push(signal_hook::flag::register(SIGTSTP, stop.clone())?);
        registered.writing(ENDING.into_iter().chain([SIGTSTP, SIGWINCH]), &sent)?;
        Ok(Self { flag, dump, stop, wake, _registered: registered })
    }

    /// Ends the process with a core if that was asked for. The terminal must have been given back.
    pub(crate) fn dump_if_asked(&self) {
        if self.dump.load(Ordering::Relaxed) {
            // It comes back only where that is not possible; then the process ends as for the other signals.
            let _ = emulate_default_handler(SIGQUIT);
        }
    }

    /// The shell was asked for, and has not been given the terminal yet.
    pub(crate) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Stops the process until somebody continues it. Not where there is no shell that would: the kernel too lets a
    /// process group without one run on. Says whether it was stopped.
    pub(crate) fn stop(&self) -> bool {
        let shell = rustix::process::getsid(None).is_ok_and(|session| session != rustix::process::getpgrp());
        let stopped = shell && emulate_default_handler(SIGTSTP).is_ok();
        self.stop.store(false, Ordering::Relaxed);
        stopped
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
