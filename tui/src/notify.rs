//! What systemd is told of the service (`sd_notify(3)`): that it is ready, what it does, that its loop goes on, that it ends.
//!
//! The words come from the collector's loop and from nowhere else, so a loop that hangs is not kept alive. Only their
//! sending is left to a thread: a service manager that does not read must not hold up the collection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use collector::feed::{OwnCost, ReloadStatus};
use collector::finding::Severity;
use collector::inventory::World;
use collector::sink::Sink;
use sd_notify::NotifyState;

use crate::journal;

/// Words that may wait to be sent.
const WAITING: usize = 16;
/// How long the end waits for the last of them.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The loop's pulse is a second: a shorter watchdog than this would bite a healthy one.
const SHORTEST_WATCHDOG: Duration = Duration::from_secs(3);

enum Word {
    Ready,
    Status(String),
    Alive,
    Reloading,
    Stopping,
    /// Everything before has been sent.
    Mark(SyncSender<()>),
}

/// The service manager, when there is one.
#[derive(Clone)]
pub(crate) struct Manager {
    words: Option<SyncSender<Word>>,
    ready: Arc<AtomicBool>,
}

impl Manager {
    /// Looks who started this.
    pub(crate) fn find() -> Self {
        let ready = Arc::default();
        if std::env::var_os("NOTIFY_SOCKET").is_none_or(|path| path.is_empty()) {
            return Self { words: None, ready };
        }
        if let Some(watchdog) = sd_notify::watchdog_enabled().filter(|time| *time < SHORTEST_WATCHDOG) {
            let (is, least) = (watchdog.as_secs_f64(), SHORTEST_WATCHDOG.as_secs());
            journal::say(&format!(
                "the watchdog's time of {is} s is too short: the loop's pulse is 1 s; give it {least} s or more"
            ));
        }
        let (words, waiting) = sync_channel(WAITING);
        // Without the thread the manager hears nothing, and says so itself.
        let _ = std::thread::Builder::new().name("notify".to_owned()).spawn(move || send(&waiting));
        Self { words: Some(words), ready }
    }

    fn say(&self, word: Word) {
        // A manager that does not read misses words; the next come soon.
        let _ = self.words.as_ref().map(|words| words.try_send(word));
    }

    /// The configuration is being read again; [`Manager::ready`] follows.
    pub(crate) fn reloading(&self) {
        // Before the first readiness this would be the word for it.
        if self.ready.load(Ordering::Relaxed) {
            self.say(Word::Reloading);
        }
    }

    /// It was.
    pub(crate) fn reloaded(&self) {
        if self.ready.load(Ordering::Relaxed) {
            self.say(Word::Ready);
        }
    }

    /// What tells the manager from the collector's loop; none where there is no manager.
    pub(crate) fn pulse(&self, reload: Arc<Mutex<ReloadStatus>>) -> Option<Pulse> {
        self.words.as_ref()?;
        Some(Pulse { manager: self.clone(), reload, status: String::new() })
    }
}

fn send(words: &Receiver<Word>) {
    let mut said = false;
    for word in words {
        let sent = match word {
            Word::Ready => sd_notify::notify(&[NotifyState::Ready]),
            Word::Status(text) => sd_notify::notify(&[NotifyState::Status(&text)]),
            Word::Alive => sd_notify::notify(&[NotifyState::Watchdog]),
            Word::Reloading => {
                NotifyState::monotonic_usec_now().and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now]))
            }
            Word::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
            Word::Mark(mark) => {
                let _ = mark.send(());
                Ok(())
            }
        };
        if let Err(error) = sent
            && !std::mem::replace(&mut said, true)
        {
            journal::say(&format!("the service manager cannot be told: NOTIFY_SOCKET: {error} (said once)"));
        }
    }
}

/// The loop's own words.
pub(crate) struct Pulse {
    manager: Manager,
    reload: Arc<Mutex<ReloadStatus>>,
    status: String,
}

impl Pulse {
    fn status(&mut self, text: String) {
        if self.status != text {
            self.status.clone_from(&text);
            self.manager.say(Word::Status(text));
        }
    }
}

impl Sink for Pulse {
    fn tick(&mut self, world: &World, _: &OwnCost) {
        let refused = self.reload.lock().unwrap_or_else(PoisonError::into_inner).error.is_some();
        self.status(summary(world, refused));
        // The first comes after a round of all sources.
        if !self.manager.ready.swap(true, Ordering::Relaxed) {
            self.manager.say(Word::Ready);
        }
        self.manager.say(Word::Alive);
    }

    fn ending(&mut self) {
        self.manager.say(Word::Stopping);
        self.status("ending".to_owned());
    }

    fn finish(&mut self) {
        let (mark, sent) = sync_channel(1);
        self.manager.say(Word::Mark(mark));
        let _ = sent.recv_timeout(LAST_WORDS);
    }
}

/// What `systemctl status` shows: `9 devices, 9 ports; 2 findings raised, 1 critical`.
fn summary(world: &World, refused: bool) -> String {
    let counted = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let (devices, ports) = (world.present().count(), world.present_ports().count());
    let mut text = format!("{}, {}", counted(devices, "device"), counted(ports, "port"));
    let critical = world.findings.iter().filter(|finding| finding.severity == Severity::Critical).count();
    text += &match (world.findings.len(), critical) {
        (0, _) => "; no finding raised".to_owned(),
        (raised, 0) => format!("; {} raised", counted(raised, "finding")),
        (raised, critical) => format!("; {} raised, {critical} critical", counted(raised, "finding")),
    };
    if refused {
        text += "; the configuration read last is wrong, the one before is in force";
    }
    text
}
