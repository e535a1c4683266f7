//! Signals: SIGTERM and SIGINT end a command properly. SIGHUP ends it too, unless it is a service: then it has the
//! configuration read again (docs/collect.md).
//!
//! A thread waits for them, so that the collector need not look whether one came.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use collector::remote::{Command, Remote};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::journal;

/// What hangs (a file system, a driver) holds the end of a service no longer than this. Hooks and readers of the socket have
/// shorter times of their own.
const LONGEST_END: Duration = Duration::from_secs(5);

/// What is run for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Somebody waits for its answer.
    Command,
    /// Nobody looks at it: it reads its configuration again, and ends in time whatever hangs.
    Service,
}

/// The signals are obeyed from now on.
pub(crate) struct Signals {
    reload: Arc<Mutex<Reload>>,
}

/// What a hang-up does.
enum Reload {
    /// It ends the program, as any other signal does.
    Never,
    /// The service is not ready for it yet; true: it came.
    NotYet(bool),
    Ask(SyncSender<()>),
}

/// Obeys signals from now on.
pub(crate) fn signals(remote: Remote, role: Role) -> anyhow::Result<Signals> {
    let reloads = role == Role::Service && !has_terminal();
    let reload = Arc::new(Mutex::new(if reloads { Reload::NotYet(false) } else { Reload::Never }));
    let mut wanted = vec![SIGTERM, SIGINT];
    // Who starts it with nohup wants no hang-up to reach it.
    wanted.extend((!hangup_is_ignored()).then_some(SIGHUP));
    let mut signals = signal_hook::iterator::Signals::new(wanted).context("cannot catch signals")?;
    let hangup = reload.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut ending = false;
            for signal in signals.forever() {
                if signal == SIGHUP && hangup.lock().unwrap_or_else(PoisonError::into_inner).ask() {
                    continue;
                }
                remote.send(Command::Stop);
                if role == Role::Service && !std::mem::replace(&mut ending, true) {
                    end_in_time();
                }
            }
        })
        .context("cannot catch signals")?;
    Ok(Signals { reload })
}

impl Signals {
    /// What a hang-up has done from now on, in a thread of its own: a file may take long to read. One that came before is
    /// obeyed now.
    pub(crate) fn reload_with(&self, mut reload: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
        let mut state = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let Reload::NotYet(came) = *state else { return Ok(()) };
        // One request may wait while another is obeyed: it reads what is newest then.
        let (ask, asked) = sync_channel(1);
        std::thread::Builder::new()
            .name("reload".to_owned())
            .spawn(move || asked.iter().for_each(|()| reload()))
            .context("cannot start the thread that reads the configuration again")?;
        *state = Reload::Ask(ask);
        if came {
            state.ask();
        }
        Ok(())
    }
}

impl Reload {
    /// A hang-up came; false: it ends the program.
    fn ask(&mut self) -> bool {
        match self {
            Self::Never => return false,
            Self::NotYet(came) => *came = true,
            Self::Ask(reload) => drop(reload.try_send(())),
        }
        true
    }
}

/// Ends the process when its end takes too long.
fn end_in_time() {
    let waiting = std::thread::Builder::new().name("end".to_owned()).spawn(|| {
        std::thread::sleep(LONGEST_END);
        journal::complain(&format!("ended after {} s although something hangs", LONGEST_END.as_secs()));
        journal::finish();
        std::process::exit(2)
    });
    // Without it the end is only not bounded.
    drop(waiting);
}

/// This process has a controlling terminal (field 7 of `/proc/PID/stat`, proc(5); 0: none). It is asked at the start: a
/// terminal that has hung up is gone.
fn has_terminal() -> bool {
    // The name of the program in it may be anything.
    let stat = std::fs::read("/proc/self/stat").unwrap_or_default();
    terminal_of(&String::from_utf8_lossy(&stat)).is_some_and(|number| number != 0)
}

/// Behind the name in parentheses, in which anything may be: state, parent, group, session, terminal.
fn terminal_of(stat: &str) -> Option<i64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(4)?.parse().ok()
}

/// Whoever started this ignores SIGHUP (bit 0 of `SigIgn` in `/proc/PID/status`, proc(5)).
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status).is_some_and(|mask| mask & 1 == 1)
}

fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_is_found_behind_any_name() {
        assert_eq!(terminal_of("7 (a) b) (c) S 1 7 7 34816 7 0"), Some(34_816));
        assert_eq!(terminal_of("7 (rdmascope) S 1 7 7 0 -1 0"), Some(0));
        assert_eq!(terminal_of(""), None);
    }

    #[test]
    fn an_ignored_hangup_is_the_lowest_bit() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\n"), Some(0x1001));
        assert_eq!(ignored("Name:\tx\n"), None);
    }
}
