//! One process of a hook, which nothing here ever waits for.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};
use serde::Serialize;

use super::Job;
use super::settings::Hook;
use crate::clock;
use crate::observation::Nanos;
use crate::sink::findings::Told;

/// What is kept of the first line on standard error, bytes.
const MAX_LINE: usize = 256;
/// Where a hook's own commands are looked for: not the search path of whoever started the collector.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a hook reads on standard input; docs/hooks.md.
#[derive(Serialize)]
struct Input<'j> {
    rdmascope: &'static str,
    host: Option<&'j str>,
    finding: Told<'j>,
    /// `CLOCK_MONOTONIC` ns: the observation that led to it, and now.
    t_event: Nanos,
    t_spawn: Nanos,
    /// Wall clock of the observation, ns since 1970.
    unix_ns: Option<u64>,
    /// Findings about the same that were not told since the last one.
    suppressed: u64,
}

/// How a process ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Exit code 0.
    Success,
    /// Anything else, in words.
    Failure(String),
    /// It, or what it had started, was killed because its time was over.
    TimedOut(String),
}

/// A running process, with what it has started: it ends with the last of its group.
pub(super) struct Process {
    child: Child,
    /// How the program itself ended, once it has.
    exited: Option<ExitStatus>,
    input: Option<ChildStdin>,
    unwritten: VecDeque<u8>,
    errors: Option<ChildStderr>,
    /// The first line on standard error, up to its end.
    line: Vec<u8>,
    line_over: bool,
    deadline: Nanos,
    killed: bool,
}

impl Process {
    /// Starts the hook's program for a finding, in a process group of its own.
    pub(super) fn start(hook: &Hook, job: &Job, host: Option<&str>) -> io::Result<Self> {
        let finding = &*job.finding;
        let mut command = Command::new(hook.program());
        command.args(hook.arguments()).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("PATH", PATH).env("LANG", "C.UTF-8");
        let told = Told::new(finding);
        let subject = &finding.subject;
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let t_spawn = clock::monotonic_ns();
        for (name, value) in [
            ("RULE", Some(finding.rule.to_owned())),
            ("STATE", Some(finding.state.name().to_owned())),
            ("SEVERITY", Some(finding.severity.name().to_owned())),
            ("GRADE", Some(finding.grade.name().to_owned())),
            ("SUBJECT", Some(subject.to_string())),
            ("DEVICE", subject.device.as_deref().map(str::to_owned)),
            ("PORT", number(subject.port)),
            ("QPN", number(subject.qpn)),
            ("PCI", subject.pci.as_deref().map(str::to_owned)),
            ("PREDICTED_FAILURE", Some(u8::from(told.predicted_failure).to_string())),
            ("T_EVENT", Some(job.t_event.to_string())),
            ("T_SPAWN", Some(t_spawn.to_string())),
        ] {
            // A name with a zero byte cannot be a variable; no kernel gives one.
            if let Some(value) = value.filter(|value| !value.contains('\0')) {
                command.env(format!("RDMASCOPE_{name}"), value);
            }
        }
        let input = Input {
            rdmascope: env!("CARGO_PKG_VERSION"),
            host,
            finding: told,
            t_event: job.t_event,
            t_spawn,
            unix_ns: job.unix_ns,
            suppressed: job.suppressed,
        };
        let mut text = serde_json::to_vec(&input).map_err(io::Error::other)?;
        text.push(b'\n');
        let mut child = command.spawn()?;
        let (input, errors) = (child.stdin.take(), child.stderr.take());
        let deadline = t_spawn.saturating_add(u64::try_from(hook.settings().timeout.as_nanos()).unwrap_or(u64::MAX));
        let mut process = Self {
            child,
            exited: None,
            input,
            unwritten: text.into(),
            errors,
            line: Vec::new(),
            line_over: false,
            deadline,
            killed: false,
        };
        process.never_wait();
        process.feed();
        Ok(process)
    }

    /// Our ends of its pipes answer at once.
    fn never_wait(&mut self) {
        if self.input.as_ref().is_some_and(|pipe| fcntl_setfl(pipe, OFlags::NONBLOCK).is_err()) {
            self.input = None;
        }
        if self.errors.as_ref().is_some_and(|pipe| fcntl_setfl(pipe, OFlags::NONBLOCK).is_err()) {
            self.errors = None;
        }
    }

    /// Writes what the pipe takes, and closes it after the last byte. A hook need not read.
    fn feed(&mut self) {
        while let Some(input) = &mut self.input {
            if self.unwritten.is_empty() {
                self.input = None;
                return;
            }
            match input.write(self.unwritten.as_slices().0) {
                Ok(n) => drop(self.unwritten.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.input = None,
            }
        }
    }

    /// Keeps the first line of what it says; the rest is read so that it can go on.
    fn listen(&mut self) {
        let mut bytes = [0; 4096];
        while let Some(errors) = &mut self.errors {
            match errors.read(&mut bytes) {
                Ok(0) => self.errors = None,
                Ok(n) => {
                    let said = &bytes[..n];
                    let end = said.iter().position(|byte| *byte == b'\n');
                    if !self.line_over {
                        let line = &said[..end.unwrap_or(n)];
                        self.line.extend(&line[..line.len().min(MAX_LINE.saturating_sub(self.line.len()))]);
                        self.line_over = end.is_some();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.errors = None,
            }
        }
    }

    /// What to wait for.
    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let input = self.input.as_ref().map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT));
        let errors = self.errors.as_ref().map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
        input.into_iter().chain(errors)
    }

    pub(super) fn deadline(&self) -> Nanos {
        self.deadline
    }

    fn group(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Ends the process and everything in its group.
    pub(super) fn kill(&mut self) {
        if let Some(group) = self.group() {
            // Its leader is not reaped yet, or others were in it just now: the number is still its own.
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.killed = true;
    }

    /// Whether anything of the group is left after its leader was reaped. The kernel gives the number to nobody else as
    /// long as there is.
    fn leaves_something(&self) -> bool {
        let Some(group) = self.group() else { return false };
        // Orphans come to the collector where it is the first process of a container.
        while let Ok(Some(_)) = waitpgid(group, WaitOptions::NOHANG) {}
        test_kill_process_group(group) != Err(Errno::SRCH)
    }

    /// Goes on with it; says how it ended once it has.
    pub(super) fn go_on(&mut self, now: Nanos) -> Option<Ending> {
        self.feed();
        self.listen();
        // Before its leader is reaped, so that the group can still be told from a later one of the same number.
        if now >= self.deadline && !self.killed && (self.exited.is_none() || self.leaves_something()) {
            self.kill();
        }
        if self.exited.is_none() {
            match self.child.try_wait() {
                Ok(status) => self.exited = status,
                Err(error) => return Some(Ending::Failure(format!("cannot be waited for: {error}"))),
            }
        }
        let status = self.exited?;
        // What was killed is not waited for: it may be a zombie for as long as whoever adopted it likes.
        if !self.killed && self.leaves_something() {
            return None;
        }
        self.listen();
        let line = String::from_utf8_lossy(&self.line).trim().to_owned();
        let says = |what: String| if line.is_empty() { what } else { format!("{what}: {line}") };
        Some(match (status.code(), status.signal()) {
            (None, _) if self.killed => Ending::TimedOut(says("killed, its time was over".to_owned())),
            (Some(code), _) if self.killed => Ending::TimedOut(says(format!(
                "exit code {code}, but what it left running was killed, its time was over"
            ))),
            (Some(0), _) => Ending::Success,
            (Some(code), _) => Ending::Failure(says(format!("exit code {code}"))),
            (None, signal) => Ending::Failure(says(format!("killed by signal {}", signal.unwrap_or(0)))),
        })
    }
}
