//! Signals that end the screen: they set a flag, the loop ends as it does for `q`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Watches for signals that end the screen, until it is dropped.
pub(crate) struct Signals {
    flag: Arc<AtomicBool>,
    ids: Vec<SigId>,
}

impl Signals {
    /// Starts watching.
    pub(crate) fn watch() -> std::io::Result<Self> {
        let mut signals = Self { flag: Arc::default(), ids: Vec::new() };
        for signal in [SIGTERM, SIGHUP, SIGINT] {
            signals.ids.push(signal_hook::flag::register(signal, signals.flag.clone())?);
        }
        Ok(signals)
    }

    /// The same question for another thread.
    pub(crate) fn asker(&self) -> impl Fn() -> bool + Send + 'static {
        let flag = self.flag.clone();
        move || flag.load(Ordering::Relaxed)
    }

    /// One of the signals came.
    pub(crate) fn came(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
