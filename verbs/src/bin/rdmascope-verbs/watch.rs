//! One device in a thread of its own: opened, its active ports measured in turn, closed when it goes away.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use collector::clock;
use collector::source::loopback::latency::measurement;
use collector::source::loopback::line::Measured;
use verbs::Context;

use rustix::thread::set_current_timer_slack;

use crate::probe::Probe;
use crate::say::Say;
use crate::stop::Stop;

/// Between two tries of what failed: the first, and the longest.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) period: Duration,
    pub(crate) operations: u32,
    pub(crate) bytes: u32,
}

/// What the thread shows of itself, so that others see when it hangs.
#[derive(Default)]
pub(crate) struct Progress {
    /// `CLOCK_MONOTONIC` ns since when it has been at this step of a round; 0 between two rounds.
    busy_since: AtomicU64,
    /// It has tried every port once.
    tried: AtomicBool,
}

impl Progress {
    pub(crate) fn has_tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
    }

    /// A step of a round begins: the device, or one of its ports.
    fn step(&self) {
        self.busy_since.store(clock::monotonic_ns(), Ordering::Relaxed);
    }

    fn rests(&self) {
        self.busy_since.store(0, Ordering::Relaxed);
        self.tried.store(true, Ordering::Relaxed);
    }

    /// How long the step that goes on has taken by now, ns.
    pub(crate) fn busy_for(&self, now: u64) -> u64 {
        match self.busy_since.load(Ordering::Relaxed) {
            0 => 0,
            since => now.saturating_sub(since),
        }
    }
}

/// Watches the device until it is gone or the sign to end is given. The first round begins at `first`.
pub(crate) fn watch(name: &str, plan: Plan, first: Instant, progress: &Progress, say: &Say, stop: &Stop) {
    let mut device = Device { name, plan, context: None, ports: Vec::new(), rest: Rest::default() };
    let mut next = first;
    // The waits of a measurement are some tens of µs: the 50 µs by which the kernel may lengthen each (`timer_slack_ns` of
    // prctl(2)) would be measured as well. Where that is refused, they are.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    while !stop.wait_until(next) {
        progress.step();
        let there = device.round(progress, say);
        progress.rests();
        if !there {
            say.gone(name);
            return;
        }
        // What was missed is not made up for.
        while next <= Instant::now() {
            next += plan.period;
        }
    }
}

struct Device<'n> {
    name: &'n str,
    plan: Plan,
    /// Last of what is dropped with the ports, whose probes hold it too.
    context: Option<Context>,
    ports: Vec<PortProbe>,
    rest: Rest,
}

#[derive(Default)]
struct PortProbe {
    probe: Option<Probe>,
    /// The GID to use, by preference.
    nth: usize,
    rest: Rest,
}

impl Device<'_> {
    /// Measures every active port; false when the device is gone.
    fn round(&mut self, progress: &Progress, say: &Say) -> bool {
        if self.context.as_ref().is_some_and(|context| !context.is_there()) {
            // Some drivers wait for whoever has the device open before they let it go.
            self.close();
        }
        if !Path::new("/sys/class/infiniband").join(self.name).exists() {
            return false;
        }
        if self.context.is_none() && self.rest.is_over() {
            match self.open() {
                Ok(()) => self.rest = Rest::default(),
                Err(reason) => {
                    self.rest.again();
                    say.port(self.name, None, Measured::Failed(reason));
                }
            }
        }
        let Some(context) = &self.context else { return true };
        say.port(self.name, None, Measured::Gone);
        for (number, port) in (1..).zip(&mut self.ports) {
            progress.step();
            if let Some(state) = port.round(context, number, self.plan, say) {
                say.port(self.name, Some(u32::from(number)), state);
            }
        }
        true
    }

    fn open(&mut self) -> Result<(), String> {
        let context = Context::open(self.name).map_err(|error| error.to_string())?;
        if context.is_iwarp() {
            return Err("iWARP: its connections need a connection manager, which this probe has not".to_owned());
        }
        let ports = context.ports().map_err(|error| error.to_string())?;
        self.ports = (0..ports).map(|_| PortProbe::default()).collect();
        self.context = Some(context);
        Ok(())
    }

    fn close(&mut self) {
        self.ports.clear();
        self.context = None;
    }
}

impl PortProbe {
    /// Measures the port if it is active; says how it is with it, unless it is left alone for now.
    fn round(&mut self, context: &Context, number: u8, plan: Plan, say: &Say) -> Option<Measured> {
        let port = match context.port(number) {
            Ok(port) if port.active => port,
            Ok(_) => {
                *self = Self::default();
                return Some(Measured::Inactive);
            }
            Err(error) => {
                self.probe = None;
                return Some(Measured::Failed(error.to_string()));
            }
        };
        if self.probe.as_ref().is_some_and(|probe| !probe.is_current(port)) {
            self.probe = None;
        }
        if !self.rest.is_over() {
            return None;
        }
        let measured = (|| {
            let probe = match self.probe.take() {
                Some(probe) => probe,
                None => Probe::open(context, number, port, plan.bytes, self.nth).map_err(|error| {
                    // An address that the kernel finds no way to may have a neighbour in the table to which there is one.
                    self.nth += 1;
                    error.to_string()
                })?,
            };
            self.probe.insert(probe).measure(plan.operations)
        })();
        match measured {
            Ok(mut took_ns) => {
                self.rest = Rest::default();
                if let Some(loopback) = measurement(context.name(), u32::from(number), &mut took_ns) {
                    say.measured(clock::monotonic_ns(), loopback);
                }
                Some(Measured::Yes)
            }
            Err(reason) => {
                // Its queue pair is in error, or nobody knows what state it is in.
                self.probe = None;
                self.rest.again();
                Some(Measured::Failed(reason))
            }
        }
    }
}

/// The time to leave alone what failed: longer each time.
#[derive(Default)]
struct Rest {
    failures: u32,
    until: Option<Instant>,
}

impl Rest {
    fn is_over(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }

    fn again(&mut self) {
        let rest = FIRST_REST.saturating_mul(1 << self.failures.min(5)).min(LONGEST_REST);
        self.failures += 1;
        self.until = Some(Instant::now() + rest);
    }
}
