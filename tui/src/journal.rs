//! Lines on standard error that never hold up who writes them: a reader that has stalled, a full disk or a closed pipe
//! costs the lines, not the collection. Where standard error is systemd's journal each line carries its priority.

use std::fmt::Arguments;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use clap::ValueEnum;
use collector::command::table::plain;

/// Lines that wait to be written; further ones are dropped, and how many is said with the next that is written.
const WAITING: usize = 256;
/// How long the end waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(500);

/// How much is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Level {
    /// Only what it cannot do: a recording that stopped, a configuration that was refused.
    Error,
    /// Also what went wrong elsewhere: a hook that failed, a reader that was dropped.
    Warn,
    /// Also its start, its end, and a configuration that was read again.
    #[default]
    Info,
    /// Also every finding that is raised or cleared, and every source that sees more or less than before.
    Debug,
}

impl Level {
    /// The prefix journald reads: a priority of syslog(3) (sd-daemon(3)).
    fn priority(self) -> &'static str {
        match self {
            Self::Error => "<3>",
            Self::Warn => "<4>",
            Self::Info => "<6>",
            Self::Debug => "<7>",
        }
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Says no more than this from now on.
pub(crate) fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Lines of this level are written.
pub(crate) fn says(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

enum Entry {
    Line(String),
    /// Everything before has been written.
    Mark(SyncSender<()>),
}

/// What it cannot do.
pub(crate) fn complain(line: &str) {
    put(Level::Error, line);
}

/// What went wrong, when standard error takes it.
pub(crate) fn say(line: &str) {
    put(Level::Warn, line);
}

/// What is as it should be, and rare.
pub(crate) fn inform(line: &str) {
    put(Level::Info, line);
}

/// What helps to understand the rest.
pub(crate) fn detail(line: &str) {
    put(Level::Debug, line);
}

fn put(level: Level, line: &str) {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    if !says(level) {
        return;
    }
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    let start = |level| if to_journald() { Level::priority(level) } else { "rdmascope: " };
    let before = if dropped > 0 {
        format!("{}{dropped} lines could not be written here\n", start(Level::Warn))
    } else {
        String::new()
    };
    let text = format!("{before}{}{}\n", start(level), plain(line));
    if let Err(TrySendError::Full(_)) = journal().try_send(Entry::Line(text)) {
        DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
    }
}

/// Waits a moment for what was said to be written.
pub(crate) fn finish() {
    let (mark, written) = sync_channel(1);
    if journal().try_send(Entry::Mark(mark)).is_ok() {
        let _ = written.recv_timeout(LAST_LINES);
    }
}

fn journal() -> &'static SyncSender<Entry> {
    static JOURNAL: OnceLock<SyncSender<Entry>> = OnceLock::new();
    JOURNAL.get_or_init(|| {
        let (sender, entries) = sync_channel(WAITING);
        // It is not joined: standard error may never take its line. Without the thread the lines are dropped.
        let _ = std::thread::Builder::new().name("journal".to_owned()).spawn(move || write(&entries));
        sender
    })
}

fn write(entries: &Receiver<Entry>) {
    for entry in entries {
        match entry {
            // Nobody is left to be told that standard error is gone.
            Entry::Line(line) => drop(std::io::stderr().write_all(line.as_bytes())),
            Entry::Mark(mark) => drop(mark.send(())),
        }
    }
}

/// Standard error is the journal's: it is the file `JOURNAL_STREAM` names (systemd.exec(5)). The journal knows the
/// program's name and wants a priority.
fn to_journald() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
        rustix::fs::fstat(std::io::stderr()).is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
    })
}

/// Writes a line of a command that has nothing else to do; that standard error is closed or full is no reason to end.
pub(crate) fn tell(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The line with which the program gives up.
pub(crate) fn fail(line: &str) {
    let start = if to_journald() { Level::Error.priority() } else { "rdmascope: " };
    tell(format_args!("{start}{line}"));
}
