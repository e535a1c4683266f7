//! The simulator: a scripted node that produces what the sources of a real one would, at any speed, the same for the
//! same seed. `demo` shows it, tests feed on it, `cargo xtask score` measures the rules with it.
//!
//! Two models. [`packet`] is one queue and its senders' congestion control, packet by packet. The node is a model of
//! windows, hours of which take seconds: its congestion is looked up in a table made from the packet model.
//!
//! - [`node`]: what there is; [`names`] and [`counters`] of it, [`qp`]s, and each port's [`condition`]
//! - [`job`]: what the node is used for
//! - [`congestion`]: what a load does to marks, pauses and latencies
//! - [`traffic`]: moves it all on by a tick
//! - [`emission`]: what its sources observe
//! - [`labelled`]: ECN traces of the packet model alone
//! - [`fault`]: what can happen to it; [`scenario`]: what does

mod condition;
pub mod congestion;
mod counters;
mod emission;
mod fault;
mod job;
pub mod labelled;
mod names;
mod node;
pub mod packet;
mod qp;
mod random;
mod scenario;
#[cfg(test)]
mod tests;
mod traffic;

use std::collections::VecDeque;

use emission::Due;
use node::{Node, Shape};
use random::Random;
use scenario::Step;

use crate::observation::recording::Header;
use crate::observation::{Nanos, Seeing};
use crate::source::{Availability, Emit, Source};

pub use node::Size;
pub use scenario::{FaultInfo, ScenarioInfo, faults, scenarios};

const SECOND_NS: u64 = 1_000_000_000;
/// Shortest and longest period of the simulated polls, ns.
const PERIODS_NS: (u64, u64) = (10_000_000, SECOND_NS);
/// The simulated start, unless another one is given: 2026-01-15 14:02:09 UTC.
const START_UNIX_NS: u64 = 1_768_485_729_000_000_000;

/// A simulated node.
pub struct Simulator {
    info: ScenarioInfo,
    node: Node,
    steps: VecDeque<Step>,
    /// `CLOCK_MONOTONIC` of the simulated start; `None` before the first observation of a live simulation.
    base: Option<Nanos>,
    unix_ns: u64,
    /// The next poll, ns since the start.
    tick: Nanos,
    period_ns: u64,
}

impl Simulator {
    /// A node of the usual size in a scenario, starting at time 0; `None` when there is no scenario of that name.
    #[must_use]
    pub fn new(scenario: &str, seed: u64) -> Option<Self> {
        let scenario = scenario::find(scenario)?;
        Some(Self::in_scenario(scenario, seed, scenario.shape))
    }

    /// The same with a node of another size.
    #[must_use]
    pub fn with_size(scenario: &str, seed: u64, size: Size) -> Option<Self> {
        let scenario = scenario::find(scenario)?;
        Some(Self::in_scenario(scenario, seed, Shape { qps_per_port: size.qps_per_port, ..scenario.shape }))
    }

    /// A node that has one of the [`faults`], at a time, on a port and in a form that the seed decides; `None` when
    /// there is no fault of that name.
    #[must_use]
    pub fn with_fault(fault: &str, seed: u64, size: Size) -> Option<Self> {
        let fault = scenario::find_fault(fault)?;
        let shape = Shape { qps_per_port: size.qps_per_port, ..fault.shape };
        let mut node = Node::new(seed, shape);
        let steps = scenario::play(fault, &mut node, &mut Random::new(seed ^ 0x5ce0_a210));
        let info = ScenarioInfo { name: fault.name, summary: "" };
        Some(Self::with_steps(info, node, steps))
    }

    fn in_scenario(scenario: &scenario::Scenario, seed: u64, shape: Shape) -> Self {
        let mut node = Node::new(seed, shape);
        let steps = (scenario.plan)(&mut node, &mut Random::new(seed ^ 0x5ce0_a210));
        Self::with_steps(scenario.info, node, steps)
    }

    fn with_steps(info: ScenarioInfo, node: Node, mut steps: Vec<Step>) -> Self {
        steps.sort_by_key(|step| step.at);
        let (steps, unix_ns) = (steps.into(), START_UNIX_NS);
        Self { info, node, steps, base: None, unix_ns, tick: 0, period_ns: SECOND_NS }
    }

    /// Starts at the given `CLOCK_MONOTONIC` and wall-clock time instead, for a simulation in real time.
    #[must_use]
    pub fn starting_at(mut self, mono_ns: Nanos, unix_ns: u64) -> Self {
        self.base = Some(mono_ns);
        self.unix_ns = unix_ns;
        self
    }

    /// Polls counters so often instead of every second: 10 ms to 1 s, rounded to a part of a second. What is read more
    /// rarely on a real node (`ethtool`, PCIe, QP statistics, …) stays as it is.
    #[must_use]
    pub fn polling_every(mut self, period_ns: u64) -> Self {
        let period = period_ns.clamp(PERIODS_NS.0, PERIODS_NS.1);
        self.period_ns = SECOND_NS / (SECOND_NS / period);
        self
    }

    /// Without probes: QPs are not seen.
    #[must_use]
    pub fn without_qps(mut self) -> Self {
        self.node.per_qp = false;
        self
    }

    /// The scenario.
    #[must_use]
    pub fn scenario(&self) -> ScenarioInfo {
        self.info
    }

    /// The header of a recording of this node.
    #[must_use]
    pub fn header(&self) -> Header {
        Header {
            host: Some("gpu-node-17".to_owned()),
            kernel: Some("6.1.0-57-amd64".to_owned()),
            unix_ns: Some(self.unix_ns),
            mono_ns: Some(self.base.unwrap_or(0)),
            ..Header::new()
        }
    }

    /// Emits everything that is observed up to `until` (included): `CLOCK_MONOTONIC` ns, which begins at 0 unless
    /// [`Simulator::starting_at`] said otherwise.
    pub fn advance(&mut self, until: Nanos, emit: &mut Emit<'_>) {
        let base = *self.base.get_or_insert(0);
        let Some(until) = until.checked_sub(base) else { return };
        loop {
            let step = self.steps.front().map_or(Nanos::MAX, |step| step.at);
            if step.min(self.tick) > until {
                return;
            }
            if step < self.tick {
                if let Some(mut step) = self.steps.pop_front() {
                    (step.act)(&mut self.node, base + step.at, emit);
                }
                continue;
            }
            self.poll_at(self.tick, base, emit);
            self.tick += self.period_ns;
        }
    }

    fn poll_at(&mut self, tick: Nanos, base: Nanos, emit: &mut Emit<'_>) {
        let t = base + tick;
        if tick == 0 {
            self.node.introduce(t, emit);
        } else {
            self.node.tick(self.period_ns as f64 / 1e9);
            self.node.turn(t, emit);
        }
        // The last period of a second may be a few nanoseconds short of it.
        let into = tick % SECOND_NS;
        let second = into < self.period_ns;
        let seconds = tick / SECOND_NS;
        let due = Due {
            second,
            ten_seconds: second && seconds.is_multiple_of(10),
            minute: second && seconds.is_multiple_of(60),
        };
        self.node.poll(t, due, emit);
    }
}

impl Source for Simulator {
    fn name(&self) -> &'static str {
        "simulator"
    }

    fn availability(&self) -> Availability {
        let ports = self.node.ports.len();
        let qps: usize = self.node.ports.iter().map(|port| port.qps.len()).sum();
        Availability {
            name: "simulator",
            state: Seeing::Ok,
            sees: format!("scenario {}: {ports} ports, {qps} QPs", self.info.name),
            missing: Vec::new(),
        }
    }

    fn due(&self) -> Nanos {
        let next = self.steps.front().map_or(self.tick, |step| step.at.min(self.tick));
        self.base.map_or(0, |base| base + next)
    }

    /// In real time; the simulation starts with the first poll unless [`Simulator::starting_at`] was called.
    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.base.get_or_insert(now);
        self.advance(now, emit);
    }
}
