//! The simulator: a scripted node that produces what the sources of a real one would, at any speed, the same for the
//! same seed. `demo` shows it, tests feed on it.
//!
//! [`node`] is what there is, [`traffic`] moves it on by a second, [`emission`] says what its sources would observe,
//! [`fault`] what can happen to it, [`scenario`] what does. The traffic is drawn from simple distributions; [`packet`] is
//! a model by itself, of one queue and its senders' congestion control.

mod emission;
mod fault;
pub mod labelled;
mod node;
pub mod packet;
mod random;
mod scenario;
#[cfg(test)]
mod tests;
mod traffic;

use std::collections::VecDeque;

use node::Node;
use random::Random;
use scenario::Step;

use crate::observation::recording::Header;
use crate::observation::{Nanos, Seeing};
use crate::source::{Availability, Emit, Source};

pub use node::Size;
pub use scenario::{ScenarioInfo, scenarios};

/// Period of the simulated polls, ns.
const TICK_NS: u64 = 1_000_000_000;
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
}

impl Simulator {
    /// A node of the usual size in a scenario, starting at time 0; `None` when there is no scenario of that name.
    #[must_use]
    pub fn new(scenario: &str, seed: u64) -> Option<Self> {
        Self::with_size(scenario, seed, Size::default())
    }

    /// The same with a node of another size.
    #[must_use]
    pub fn with_size(scenario: &str, seed: u64, size: Size) -> Option<Self> {
        let scenario = scenario::find(scenario)?;
        let node = Node::new(seed, size);
        let mut steps = (scenario.plan)(&node, &mut Random::new(seed ^ 0x5ce0_a210));
        steps.sort_by_key(|step| step.at);
        Some(Self { info: scenario.info, node, steps: steps.into(), base: None, unix_ns: START_UNIX_NS, tick: 0 })
    }

    /// Starts at the given `CLOCK_MONOTONIC` and wall-clock time instead, for a simulation in real time.
    #[must_use]
    pub fn starting_at(mut self, mono_ns: Nanos, unix_ns: u64) -> Self {
        self.base = Some(mono_ns);
        self.unix_ns = unix_ns;
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
            let t = base + self.tick;
            if self.tick == 0 {
                self.node.introduce(t, emit);
            } else {
                self.node.second();
            }
            self.node.poll(t, emit);
            self.tick += TICK_NS;
        }
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
