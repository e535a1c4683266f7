//! The sinks: each takes what the engine was given and what it concluded, and none is more equal than the others. A sink
//! that fails says so in its status and costs nobody else anything.

pub mod findings;
pub mod hook;
pub mod otlp;
pub mod prometheus;
pub mod recording;
pub mod ring;
pub mod socket;

use std::sync::Arc;

use crate::engine::Engine;
use crate::feed::OwnCost;
use crate::finding::Finding;
use crate::inventory::{Failover, World};
use crate::observation::Observation;

/// Where a sink says in a line what happened to it: a reader that was dropped, a hook that failed.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// One consumer of the engine's input and output.
pub trait Sink: Send {
    /// An observation, just before the engine takes it.
    fn observation(&mut self, _observation: &Observation<'_>, _world: &World) {}

    /// Findings that were raised, updated or cleared.
    fn findings(&mut self, _findings: &[Arc<Finding>], _world: &World) {}

    /// Failovers that began, went on or ended.
    fn failovers(&mut self, _failovers: &[Arc<Failover>], _world: &World) {}

    /// About once a second: bring out what is buffered. `own` is what the program itself uses.
    fn tick(&mut self, _world: &World, _own: &OwnCost) {}

    /// The last look at the world, right before [`Self::ending`].
    fn last(&mut self, world: &World, own: &OwnCost) {
        self.tick(world, own);
    }

    /// The end is near: whoever needs time for it may begin. All are told before the first has to [`Sink::finish`], so that
    /// their times run side by side.
    fn ending(&mut self) {}

    /// The end: bring out everything.
    fn finish(&mut self) {}
}

/// Tells the sinks what the engine has concluded since the last time; true when there was something.
pub(crate) fn hand_on(engine: &mut Engine, sinks: &mut [Box<dyn Sink>]) -> bool {
    let findings = engine.drain();
    for sink in sinks.iter_mut().filter(|_| !findings.is_empty()) {
        sink.findings(&findings, engine.world());
    }
    let failovers = engine.drain_failovers();
    for sink in sinks.iter_mut().filter(|_| !failovers.is_empty()) {
        sink.failovers(&failovers, engine.world());
    }
    !findings.is_empty() || !failovers.is_empty()
}
