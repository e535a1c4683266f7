//! A failing module: ever more bits corrected on one lane, then errors that FEC cannot correct, broken packets, a link that
//! flaps, and at last none.

use super::fall::fall;
use super::{Fault, Scenario, ScenarioInfo, Stage, Step};
use crate::sim::job::JobKind;
use crate::sim::node::{Node, Shape};
use crate::sim::random::Random;

pub(super) const SCENARIO: Scenario = Scenario {
    info: ScenarioInfo {
        name: "dying-optic",
        summary: "an optical module fails on mlx5_5: pre-FEC errors, post-FEC errors, CRC errors, flaps, no link at 3 min",
    },
    shape: Shape::TRAINING,
    plan: |node, random| {
        let Some(port) = node.port_named("mlx5_5") else { return Vec::new() };
        play(node, Stage { port, onset_s: 20.0, pace: 0.3 }, random)
    },
};

pub(super) const FAULT: Fault = Fault {
    name: "dying-optic",
    shape: Shape { job: JobKind::Training, ..Shape::TRAINING },
    lasts_s: 740.0,
    also: &[],
    play,
};

/// Bit error ratio at which it begins, and at which FEC no longer corrects everything.
const START: f64 = 1e-8;
const END: f64 = 1e-4;
/// Ten times the usual ratio: from here on the trend is one.
const TREND: f64 = 10.0 * START;

fn play(node: &mut Node, stage: Stage, random: &mut Random) -> Vec<Step> {
    let Stage { port, onset_s, pace } = stage;
    let trend_s = pace * random.between(120.0, 300.0);
    let post_fec_s = pace * random.between(50.0, 150.0);
    let crc_s = pace * random.between(50.0, 120.0);
    let lane = random.index(4);
    let mut steps = Vec::new();
    // The ratio rises all the time; it is set anew every second.
    let ratio = move |s: f64| (START * (END / START).powf(s / trend_s)).min(3e-4);
    let end_s = trend_s + post_fec_s + crc_s;
    let mut s = 0.0;
    while s < end_s {
        let bit_errors = ratio(s);
        steps.push(Step::at_s(onset_s + s, move |node, _, _| {
            node.ports[port].condition.bit_errors = bit_errors;
            node.ports[port].condition.bad_lane = Some(lane);
        }));
        s += 1.0;
    }
    let trend = onset_s + trend_s * (TREND / START).ln() / (END / START).ln();
    let post_fec = onset_s + trend_s;
    let crc = post_fec + post_fec_s;
    let worst = random.log_between(2.0, 50.0);
    steps.push(Step::truth(trend, port, "phy.pre_fec_trend", true));
    steps.push(Step::truth(post_fec, port, "phy.post_fec", true));
    steps.push(Step::truth(post_fec, port, "nic.composite", true));
    steps.push(Step::at_s(post_fec, move |node, _, _| node.ports[port].condition.post_fec_per_s = worst));
    steps.push(Step::truth(crc, port, "phy.crc", true));
    steps.push(Step::at_s(crc, move |node, _, _| {
        node.ports[port].condition.post_fec_per_s = worst * 5.0;
        node.ports[port].condition.crc_per_s = worst * 0.5;
    }));
    // Short enough for QPs to survive.
    let mut at = crc + crc_s;
    for flap in 0..2 {
        let back = at + random.between(0.06, 0.17);
        steps.push(Step::truth(at, port, "link.down", true));
        steps.push(Step::at_s(at, move |node, t, emit| node.port_down(t, port, emit)));
        steps.push(Step::at_s(back, move |node, t, emit| node.port_up(t, port, emit)));
        steps.push(Step::truth(back, port, "link.down", false));
        if flap == 1 {
            steps.push(Step::truth(back, port, "link.flap", true));
        }
        at = back + pace * random.between(15.0, 40.0);
    }
    steps.extend(fall(node, port, at));
    steps
}
