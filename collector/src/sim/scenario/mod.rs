//! The scenarios: each is a file with a name, a sentence and the steps of what happens. A new one is one file and one
//! line in [`SCENARIOS`].

mod aer_then_down;
mod healthy;

use super::node::Node;
use super::random::Random;
use crate::observation::Nanos;
use crate::source::Emit;

/// All scenarios, in the order they are listed.
const SCENARIOS: &[Scenario] = &[healthy::SCENARIO, aer_then_down::SCENARIO];

/// One scenario.
pub(super) struct Scenario {
    pub(super) info: ScenarioInfo,
    /// What happens when.
    pub(super) plan: fn(&Node, &mut Random) -> Vec<Step>,
}

/// A scenario's name and what it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioInfo {
    /// Name, for `--scenario`.
    pub name: &'static str,
    /// What it shows, in one line.
    pub summary: &'static str,
}

/// What a step does to the node at its time.
pub(super) type Act = Box<dyn FnMut(&mut Node, Nanos, &mut Emit<'_>) + Send>;

/// One thing that happens.
pub(super) struct Step {
    /// When, ns since the start.
    pub(super) at: Nanos,
    pub(super) act: Act,
}

impl Step {
    /// Something that happens so many seconds after the start.
    pub(super) fn at_s(s: f64, act: impl FnMut(&mut Node, Nanos, &mut Emit<'_>) + Send + 'static) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a script")]
        let at = (s.max(0.0) * 1e9) as u64;
        Self { at, act: Box::new(act) }
    }
}

/// All scenarios.
#[must_use]
pub fn scenarios() -> &'static [ScenarioInfo] {
    const INFOS: [ScenarioInfo; SCENARIOS.len()] = {
        let mut infos = [SCENARIOS[0].info; SCENARIOS.len()];
        let mut i = 0;
        while i < SCENARIOS.len() {
            infos[i] = SCENARIOS[i].info;
            i += 1;
        }
        infos
    };
    &INFOS
}

pub(super) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.info.name == name)
}
