//! Nothing is wrong.

use super::{Scenario, ScenarioInfo};

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo { name: "healthy", summary: "a training job on eight rails, nothing wrong" },
    plan: |_, _| Vec::new(),
};
