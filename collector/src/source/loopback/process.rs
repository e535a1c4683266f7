//! The running program, of which nothing is ever waited for.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};

/// A longer line is none of the program's.
const MAX_LINE: usize = 4096;
/// No more is read at once: a program that never stops talking must not stop the collector.
const AT_ONCE: usize = 1 << 16;
/// How long the program has to end by itself once its standard input is closed.
const PATIENCE: Duration = Duration::from_millis(500);

/// The process and our ends of its pipes.
pub(super) struct Process {
    child: Child,
    /// Closed, it is the sign to end: it closes whatever becomes of this process.
    input: Option<ChildStdin>,
    output: ChildStdout,
    errors: Option<ChildStderr>,
    unfinished: Vec<u8>,
    unfinished_error: Vec<u8>,
    /// The last line on standard error.
    last_words: String,
}

impl Process {
    /// Starts the program.
    pub(super) fn start<A: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = A>) -> io::Result<Self> {
        let mut command = Command::new(program);
        // A group of its own: Ctrl-C is for rdmascope, which then ends it.
        command.args(arguments).current_dir("/").process_group(0);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_the_collectors(name)) {
            command.env_remove(name);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (input, errors) = (child.stdin.take(), child.stderr.take());
        let output = child.stdout.take().ok_or_else(|| io::Error::other("it has no standard output"))?;
        fcntl_setfl(&output, OFlags::NONBLOCK)?;
        if let Some(errors) = &errors {
            fcntl_setfl(errors, OFlags::NONBLOCK)?;
        }
        Ok(Self {
            child,
            input,
            output,
            errors,
            unfinished: Vec::new(),
            unfinished_error: Vec::new(),
            last_words: String::new(),
        })
    }

    /// Becomes readable when there is something to [`Process::read`].
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Hands over the lines that are complete; false when no more will come.
    pub(super) fn read(&mut self, mut line: impl FnMut(&[u8])) -> bool {
        self.listen();
        let goes_on = pour(&mut self.output, &mut self.unfinished, &mut line);
        if !goes_on {
            self.listen();
        }
        goes_on
    }

    fn listen(&mut self) {
        let Some(errors) = &mut self.errors else { return };
        let last_words = &mut self.last_words;
        let goes_on = pour(errors, &mut self.unfinished_error, &mut |line| {
            let line = String::from_utf8_lossy(line).trim().to_owned();
            if !line.is_empty() {
                *last_words = line;
            }
        });
        if !goes_on {
            self.errors = None;
        }
    }

    /// Asks the program to end.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// Ends it for sure; when, the kernel decides.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// How it ended, in words, once it has: `exit status: 1: the last line on standard error`.
    pub(super) fn ended(&mut self) -> Option<Ending> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => {
                self.listen();
                Some(Ending { status: Some(status), last_words: std::mem::take(&mut self.last_words) })
            }
            Err(error) => Some(Ending { status: None, last_words: error.to_string() }),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.close();
        let mut killed = false;
        let mut deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                // One that hangs in its driver dies when that lets go of it; nobody waits for that.
                if killed {
                    return;
                }
                self.kill();
                (killed, deadline) = (true, Instant::now() + PATIENCE);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A variable that is not for the collector's children: what a service manager tells it, and the exporters' secrets.
fn is_the_collectors(variable: &OsStr) -> bool {
    let name = variable.as_encoded_bytes();
    [&b"OTEL_"[..], b"RDMASCOPE_", b"NOTIFY_SOCKET", b"WATCHDOG_"].iter().any(|own| name.starts_with(own))
}

/// How the program ended.
#[derive(Debug)]
pub(super) struct Ending {
    /// `None` when it cannot be known.
    pub(super) status: Option<ExitStatus>,
    /// The last line on standard error.
    pub(super) last_words: String,
}

impl Ending {
    /// In words.
    pub(super) fn says(&self) -> String {
        let how = match self.status {
            None => "it cannot be waited for".to_owned(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("killed by signal {signal}"),
                (None, None) => status.to_string(),
            },
        };
        if self.last_words.is_empty() { how } else { format!("{how}: {}", self.last_words) }
    }
}

/// Reads what is there, up to [`AT_ONCE`] bytes; false at the end of the pipe.
fn pour(pipe: &mut impl Read, unfinished: &mut Vec<u8>, line: &mut impl FnMut(&[u8])) -> bool {
    let mut bytes = [0; 4096];
    for _ in 0..AT_ONCE / bytes.len() {
        match pipe.read(&mut bytes) {
            Ok(0) => {
                // Last words need no newline.
                if !unfinished.is_empty() {
                    line(&std::mem::take(unfinished));
                }
                return false;
            }
            Ok(n) => {
                for piece in bytes[..n].split_inclusive(|byte| *byte == b'\n') {
                    unfinished.extend(&piece[..piece.len().min(MAX_LINE.saturating_sub(unfinished.len()))]);
                    if piece.ends_with(b"\n") {
                        line(unfinished);
                        unfinished.clear();
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_what_the_service_manager_says_are_not_passed_on_and_the_providers_settings_are() {
        for own in ["OTEL_EXPORTER_OTLP_HEADERS", "RDMASCOPE_DEVICE", "NOTIFY_SOCKET", "WATCHDOG_USEC"] {
            assert!(is_the_collectors(OsStr::new(own)), "{own}");
        }
        for other in ["MLX5_SINGLE_THREADED", "PATH", "LD_LIBRARY_PATH", "HOTEL_"] {
            assert!(!is_the_collectors(OsStr::new(other)), "{other}");
        }
    }

    #[test]
    fn lines_come_whole_however_they_were_written_and_an_endless_one_is_cut() {
        let long = "x".repeat(3 * MAX_LINE);
        let text = format!("one\ntwo\n{long}\nlast words");
        let (mut unfinished, mut lines) = (Vec::new(), Vec::new());
        let goes_on = pour(&mut text.as_bytes(), &mut unfinished, &mut |line| {
            lines.push(String::from_utf8_lossy(line).trim().len());
        });
        assert!(!goes_on, "the end is an end");
        assert_eq!(lines, [3, 3, MAX_LINE, 10]);
    }
}
