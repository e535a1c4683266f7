//! Lines on standard error that never hold up who writes them: a reader that has stalled, a full disk or a closed pipe
//! costs the lines, not the collection.

use std::fmt::Arguments;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use collector::command::table::plain;

/// Lines that wait to be written; further ones are dropped, and how many is said with the next that is written.
const WAITING: usize = 256;
/// How long the end waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(500);

enum Entry {
    Line(String),
    /// Everything before has been written.
    Mark(SyncSender<()>),
}

/// Writes a line, with the program's name before it, when standard error takes it.
pub(crate) fn say(line: &str) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    let before =
        if dropped > 0 { format!("rdmascope: {dropped} lines could not be written here\n") } else { String::new() };
    if let Err(TrySendError::Full(_)) = journal().try_send(Entry::Line(format!("{before}rdmascope: {}\n", plain(line))))
    {
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

/// Writes a line of a command that has nothing else to do; that standard error is closed or full is no reason to end.
pub(crate) fn tell(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
