//! Marking thresholds that were made for a slower link: the switch marks packets that met no congestion. On all rails, or
//! on one.

use super::{Fault, Scenario, ScenarioInfo, Stage, Step};
use crate::sim::condition::Condition;
use crate::sim::congestion::{Conditions, Control, Marking};
use crate::sim::job::{JobKind, Pattern};
use crate::sim::node::{Node, RAILS, Shape};
use crate::sim::random::Random;

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "ecn-kmin-low",
        summary: "every switch marks from 5 KB of queue on: flows slow down although nothing is congested",
    },
    shape: Shape::TRAINING,
    plan: |node, _| {
        node.job.pattern = LIGHT;
        (0..RAILS).flat_map(|port| low_from(0.0, port, &["ecn.premature"])).collect()
    },
};

pub(super) const ASYMMETRY_SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "rail-asymmetry",
        summary: "one switch of eight, that of mlx5_6, marks far too early from 15 s on",
    },
    shape: Shape::TRAINING,
    plan: |node, _| {
        node.job.pattern = Pattern { load: 0.6, ..LIGHT };
        low_from(15.0, 6, &["ecn.rail_asymmetry"])
    },
};

pub(super) const FAULT: Fault = Fault {
    name: "kmin-low",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 240.0,
    also: &["ecn.inversion"],
    play: |node, stage, random| {
        node.job.pattern = light(random);
        (0..RAILS).flat_map(|port| low_from(stage.onset_s, port, &["ecn.premature"])).collect()
    },
};

pub(super) const ASYMMETRY_FAULT: Fault = Fault {
    name: "rail-kmin-low",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 240.0,
    also: &["ecn.premature", "ecn.inversion"],
    play: |node, Stage { port, onset_s, .. }, random| {
        node.job.pattern = light(random);
        low_from(onset_s, port, &["ecn.rail_asymmetry"])
    },
};

/// Short bursts at less than half the rate.
const LIGHT: Pattern = Pattern { step_s: 9.0, communicating: 1.0, load: 0.4, burst_bytes: 48e3, senders: 6.0 };

/// Share of packets that low thresholds must mark of the traffic that is drawn: with fewer there is no trouble to find.
const LEAST_MARKED: f64 = 1.5e-4;
/// Patterns drawn before the usual one is taken.
const DRAWS: usize = 64;

fn light(random: &mut Random) -> Pattern {
    let draw = |_| Pattern {
        load: random.between(0.2, 0.45),
        burst_bytes: random.log_between(20e3, 64e3),
        senders: random.log_between(4.0, 16.0),
        ..LIGHT
    };
    (0..DRAWS).map(draw).find(|pattern| marked(pattern) > LEAST_MARKED).unwrap_or(LIGHT)
}

/// Share of packets that low thresholds mark.
fn marked(pattern: &Pattern) -> f64 {
    let Pattern { load, burst_bytes, senders, .. } = *pattern;
    let marking = Some(Marking::LOW);
    Conditions { load, burst_bytes, senders, marking, control: Control::Nic }.congestion().mark_share
}

fn low_from(s: f64, port: usize, classes: &'static [&'static str]) -> Vec<Step> {
    let mut steps: Vec<Step> = classes.iter().map(|class| Step::truth(s, port, class, true)).collect();
    steps.push(Step::at_s(s, move |node: &mut Node, _, _| {
        node.ports[port].condition = Condition { marking: Some(Marking::LOW), ..node.ports[port].condition.clone() };
    }));
    steps
}
