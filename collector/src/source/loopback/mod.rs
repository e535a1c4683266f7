//! The loopback probe: how long a write from a port to itself takes. Off unless asked for, since it makes QPs.
//!
//! ```text
//! program   where rdmascope-verbs is       process   the running program and its pipes
//! line      what it prints                 gid       which GID the connection uses
//! latency   what is told of the times
//! ```
//!
//! The measuring is done by a process of its own, `rdmascope-verbs loopback`, the only program here that links
//! libibverbs: a provider that crashes or hangs takes it, not the collector, which starts it again, later each time it
//! fails. It has the collector's filter of devices and opens nothing of the others. It ends when its standard input does,
//! so also when the collector is killed; its QPs end with it.

pub mod gid;
pub mod latency;
pub mod line;
mod process;
mod program;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

pub use program::PROGRAM;
pub(in crate::source) use program::find as find_program;

use self::line::{Line, Measured};
use self::process::{Ending, Process};
use super::verbs::usable;
use super::{Availability, Emit, Missing, Source};
use crate::clock;
use crate::observation::{Body, Loopback as Measurement, Nanos, Observation, Seeing};

/// The source's name.
pub const NAME: &str = "loopback";
/// The program's command.
pub const COMMAND: &str = "loopback";

const SECOND: Nanos = 1_000_000_000;
/// The program says something every second; one that is silent for so long hangs, ns.
const SILENCE_NS: Nanos = 10 * SECOND;
/// How long [`Loopback::start`] waits for the first measurements where it is asked to, ns.
const FIRST_NS: Nanos = 5 * SECOND;
/// A program that has closed its output has so long to end by itself, ns.
const ENDING_NS: Nanos = 2 * SECOND;
/// Between two looks whether it has, ns.
const LOOK_NS: Nanos = SECOND / 20;
/// The rest after the first failure, and the longest, ns; it doubles with each.
const SHORTEST_REST_NS: Nanos = SECOND;
const LONGEST_REST_NS: Nanos = 60 * SECOND;
/// After so long a run its end is the first failure again, ns.
const GOOD_RUN_NS: Nanos = 60 * SECOND;
/// What the dynamic linker's exit code is.
const CANNOT_LINK: i32 = 127;

/// How the probe is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoopbackOptions {
    /// The program; `None`: the one beside this program, or on the search path.
    pub program: Option<PathBuf>,
    /// Patterns of the devices wanted; none: all.
    pub device: Vec<String>,
    /// Patterns of the devices left alone.
    pub exclude: Vec<String>,
}

/// The loopback probe.
pub struct Loopback {
    options: LoopbackOptions,
    classes: PathBuf,
    silence_ns: Nanos,
    shortest_rest_ns: Nanos,
    state: State,
    /// Failures in a row.
    failures: u32,
    /// What was measured and not yet told.
    pending: Vec<Line>,
}

enum State {
    /// Nothing runs until then.
    Resting {
        until: Nanos,
        missing: Missing,
    },
    Running(Box<Running>),
    /// It is over with it, but it has not ended. `why` it is; `None`: it ends by itself, and how it does will tell.
    Ending {
        process: Box<Process>,
        why: Option<Missing>,
        kill_at: Nanos,
        look_at: Nanos,
    },
}

struct Running {
    process: Process,
    since: Nanos,
    heard: Nanos,
    /// What each measurement is: operations, bytes of each, period in ns. Unknown until it has said so.
    asked: Option<(u32, u32, Nanos)>,
    /// Every port it has spoken of; a device without a port where it speaks of the whole.
    ports: BTreeMap<(String, Option<u32>), Measured>,
    /// When it last told its CPU time, and how much, ns.
    cpu: Option<(Nanos, u64)>,
    /// Share of one core it used between the last two.
    share: Option<f64>,
    lines_unknown: u64,
}

impl Loopback {
    /// Starts the program; where `wait` is set, waits up to five seconds until it has measured every port once. Never
    /// fails: what cannot be seen is in [`Source::availability`].
    #[must_use]
    pub fn start(options: LoopbackOptions, wait: bool) -> Self {
        let mut loopback = Self::new(options, PathBuf::from("/sys/class"));
        let now = clock::monotonic_ns();
        loopback.launch(now);
        if wait {
            loopback.wait_for_the_first(now + FIRST_NS);
        }
        loopback
    }

    fn new(options: LoopbackOptions, classes: PathBuf) -> Self {
        let missing = missing("not started yet".to_owned(), None);
        Self {
            options,
            classes,
            silence_ns: SILENCE_NS,
            shortest_rest_ns: SHORTEST_REST_NS,
            state: State::Resting { until: 0, missing },
            failures: 0,
            pending: Vec::new(),
        }
    }

    fn wait_for_the_first(&mut self, until: Nanos) {
        loop {
            let now = clock::monotonic_ns();
            let State::Running(running) = &self.state else { return };
            if running.cpu.is_some() || now >= until {
                return;
            }
            let rest = Timespec::try_from(std::time::Duration::from_nanos(until - now)).unwrap_or_default();
            let mut fds = [PollFd::from_borrowed_fd(running.process.fd(), PollFlags::IN)];
            let _ = poll(&mut fds, Some(&rest));
            self.listen(clock::monotonic_ns());
        }
    }

    fn launch(&mut self, now: Nanos) {
        // libibverbs asks the kernel by RDMA netlink, which would load modules that are missing.
        if let Err(error) = usable(&self.classes) {
            self.state = State::Resting {
                until: now + 10 * SECOND,
                missing: missing(error.to_string(), error.fix().map(str::to_owned)),
            };
            return;
        }
        let program = match program::find(self.options.program.as_deref()) {
            Ok(program) => program,
            Err(missing) => {
                self.state = State::Resting { until: now + LONGEST_REST_NS, missing };
                return;
            }
        };
        let mut arguments = vec![COMMAND.to_owned()];
        for (flag, patterns) in [("--device", &self.options.device), ("--exclude", &self.options.exclude)] {
            arguments.extend(patterns.iter().map(|pattern| format!("{flag}={pattern}")));
        }
        match Process::start(&program, arguments) {
            Ok(process) => {
                self.state = State::Running(Box::new(Running {
                    process,
                    since: now,
                    heard: now,
                    asked: None,
                    ports: BTreeMap::new(),
                    cpu: None,
                    share: None,
                    lines_unknown: 0,
                }));
            }
            Err(error) => self.rest(now, missing(format!("{} cannot be started: {error}", program.display()), None)),
        }
    }

    /// Rests after a failure, longer after each.
    fn rest(&mut self, now: Nanos, missing: Missing) {
        let rest = self.shortest_rest_ns << self.failures.min(6);
        self.failures += 1;
        self.state = State::Resting { until: now + rest.min(LONGEST_REST_NS), missing };
    }

    /// Ends the running program.
    fn end(&mut self, now: Nanos, why: Option<Missing>) {
        let resting = State::Resting { until: now, missing: missing("it has ended".to_owned(), None) };
        let State::Running(running) = std::mem::replace(&mut self.state, resting) else { return };
        if now.saturating_sub(running.since) >= GOOD_RUN_NS {
            self.failures = 0;
        }
        let mut process = running.process;
        process.close();
        let kill_at = if why.is_some() { now } else { now + ENDING_NS };
        self.state = State::Ending { process: Box::new(process), why, kill_at, look_at: now };
        self.bury(now);
    }

    /// Looks whether the program that is to end has.
    fn bury(&mut self, now: Nanos) {
        let State::Ending { process, why, kill_at, look_at } = &mut self.state else { return };
        *look_at = now + LOOK_NS;
        if now >= *kill_at {
            process.kill();
            *kill_at = Nanos::MAX;
        }
        if let Some(ending) = process.ended() {
            let missing = why.take().unwrap_or_else(|| ended(&ending));
            self.rest(now, missing);
        }
    }

    /// Takes what the program has said.
    fn listen(&mut self, now: Nanos) {
        let State::Running(running) = &mut self.state else { return };
        let Running { process, .. } = &mut **running;
        let (mut lines, mut unknown) = (Vec::new(), 0);
        let goes_on = process.read(|line| match serde_json::from_slice::<Line>(line) {
            Ok(line) => lines.push(line),
            // A provider may print what it likes.
            Err(_) => unknown += 1,
        });
        running.lines_unknown += unknown;
        if !lines.is_empty() {
            running.heard = now;
        }
        let mut other = None;
        for line in lines {
            match line {
                Line::Hello { version, operations, bytes, period_ns } => {
                    running.asked = Some((operations, bytes, period_ns));
                    other = (version != env!("CARGO_PKG_VERSION")).then_some(version);
                }
                Line::Port { device, port, state: Measured::Gone } => drop(running.ports.remove(&(device, port))),
                Line::Port { device, port, state } => drop(running.ports.insert((device, port), state)),
                Line::Alive { t, cpu_ns } => {
                    running.share = running.cpu.and_then(|(before, used)| {
                        let passed = t.checked_sub(before).filter(|passed| *passed > 0)?;
                        Some(cpu_ns.saturating_sub(used) as f64 / passed as f64)
                    });
                    running.cpu = Some((t, cpu_ns));
                }
                measured @ Line::Loopback { .. } => self.pending.push(measured),
            }
        }
        if let Some(version) = other {
            self.pending.clear();
            let reason = format!("{PROGRAM} is version {version}, and this is {}", env!("CARGO_PKG_VERSION"));
            self.end(now, Some(missing(reason, Some(format!("install the {PROGRAM} of this version")))));
        } else if !goes_on {
            self.end(now, None);
        } else if now.saturating_sub(running.heard) > self.silence_ns {
            let seconds = self.silence_ns / SECOND;
            let reason = format!("{PROGRAM} said nothing for {seconds} s and was killed: a provider or driver hangs");
            self.end(now, Some(missing(reason, None)));
        }
    }

    fn tell(&mut self, emit: &mut Emit<'_>) {
        // A round of all sources may have begun long before this: a measurement keeps the time it has of its own.
        let latest = clock::monotonic_ns();
        for line in self.pending.drain(..) {
            let Line::Loopback { t, device, port, p50_ns, p99_ns, max_ns, n } = line else { continue };
            let body = Body::Loopback(Measurement { device: device.into(), port, p50_ns, p99_ns, max_ns, n });
            emit(&Observation { t: t.min(latest), body });
        }
    }
}

fn missing(reason: String, fix: Option<String>) -> Missing {
    Missing { what: "everything".to_owned(), reason, fix }
}

/// What the end of a program that nobody ended says.
fn ended(ending: &Ending) -> Missing {
    let code = ending.status.and_then(|status| status.code());
    if code == Some(CANNOT_LINK) && ending.last_words.contains("libibverbs.so.1") {
        let fix = "install libibverbs (Debian: libibverbs1 and ibverbs-providers)".to_owned();
        return missing(format!("libibverbs.so.1 is not installed, so {PROGRAM} cannot start"), Some(fix));
    }
    missing(format!("{PROGRAM} ended: {}", ending.says()), None)
}

impl Running {
    fn availability(&self) -> Availability {
        let count = |wanted: fn(&Measured) -> bool| self.ports.values().filter(|state| wanted(state)).count();
        let measured = count(|state| *state == Measured::Yes);
        let inactive = count(|state| *state == Measured::Inactive);
        let mut sees = format!("{measured} port{}", if measured == 1 { "" } else { "s" });
        if let Some((operations, bytes, period_ns)) = self.asked {
            let period = period_ns as f64 / 1e9;
            sees += &format!(", {operations} writes of {bytes} bytes every {period} s each");
        }
        if inactive > 0 {
            sees += &format!(", {inactive} not active");
        }
        if let Some(share) = self.share {
            sees += &format!("; {PROGRAM} uses {:.1} % of a core", share * 100.0);
        }
        let mut missing: Vec<Missing> = self
            .ports
            .iter()
            .filter_map(|((device, port), state)| {
                let Measured::Failed(reason) = state else { return None };
                let what = port.map_or_else(|| device.clone(), |port| format!("{device}/{port}"));
                Some(Missing { what, reason: reason.clone(), fix: None })
            })
            .collect();
        if self.asked.is_none() {
            missing.push(self::missing("starting".to_owned(), None));
        }
        let state = match (missing.is_empty(), measured) {
            (true, _) => Seeing::Ok,
            (false, 0) => Seeing::Off,
            (false, _) => Seeing::Partial,
        };
        Availability { name: NAME, state, sees, missing }
    }
}

impl Source for Loopback {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        let missing = match &self.state {
            State::Running(running) => return running.availability(),
            State::Resting { missing, .. } => missing.clone(),
            State::Ending { why, .. } => why.clone().unwrap_or_else(|| missing("it is ending".to_owned(), None)),
        };
        Availability { name: NAME, state: Seeing::Off, sees: String::new(), missing: vec![missing] }
    }

    fn due(&self) -> Nanos {
        match &self.state {
            State::Resting { until, .. } => *until,
            State::Running(running) => running.heard.saturating_add(self.silence_ns + 1),
            State::Ending { look_at, .. } => *look_at,
        }
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.listen(now);
        self.bury(now);
        if let State::Resting { until, .. } = self.state
            && now >= until
        {
            self.launch(now);
        }
        self.tell(emit);
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        match &self.state {
            State::Running(running) => vec![running.process.fd()],
            State::Resting { .. } | State::Ending { .. } => Vec::new(),
        }
    }
}
