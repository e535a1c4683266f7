//! Something in the chain from mark to slower sender is missing: the mark, the codepoint, the notification, the reaction,
//! the right class, or the switch as its cause.

use super::{Fault, Stage, Step};
use crate::sim::condition::Condition;
use crate::sim::job::{JobKind, Pattern};
use crate::sim::node::Shape;
use crate::sim::random::Random;

const SHAPE: Shape = Shape { job: JobKind::Training, ..Shape::TRAINING };
const LASTS_S: f64 = 240.0;

/// The switch of one rail marks nothing.
pub(super) const MARKING_OFF: Fault = Fault {
    name: "marking-off",
    shape: SHAPE,
    lasts_s: LASTS_S,
    also: &["ecn.not_ect"],
    play: |node, stage, random| {
        node.job.pattern = heavy(random);
        from(stage, &["ecn.missed"], |condition| condition.marking = None)
    },
};

/// The job sends Not-ECT: the switch may not mark.
pub(super) const NOT_ECT: Fault = Fault {
    name: "not-ect",
    shape: SHAPE,
    lasts_s: LASTS_S,
    also: &["ecn.missed"],
    play: |node, stage, random| {
        node.job.pattern = heavy(random);
        // Counters were never anything else: it begins with the job.
        let stage = Stage { onset_s: 0.0, ..stage };
        from(stage, &["ecn.not_ect"], |condition| condition.marking = None)
    },
};

/// The receiver sends no CNP.
pub(super) const NP_OFF: Fault = Fault {
    name: "np-off",
    shape: SHAPE,
    lasts_s: LASTS_S,
    also: &[],
    play: |node, stage, random| {
        node.job.pattern = heavy(random);
        let shown = random.below(2) == 0;
        from(stage, &["ecn.no_cnp"], move |condition| {
            condition.np_off = true;
            condition.shown = shown;
        })
    },
};

/// The sender ignores CNPs.
pub(super) const RP_OFF: Fault = Fault {
    name: "rp-off",
    shape: SHAPE,
    lasts_s: LASTS_S,
    also: &[],
    play: |node, stage, random| {
        node.job.pattern = heavy(random);
        let shown = random.below(2) == 0;
        from(stage, &["ecn.cnp_ignored"], move |condition| {
            condition.rp_off = true;
            condition.shown = shown;
        })
    },
};

/// RDMA rides priority 0.
pub(super) const WRONG_CLASS: Fault = Fault {
    name: "wrong-class",
    shape: SHAPE,
    lasts_s: LASTS_S,
    also: &["ecn.not_ect", "ecn.missed"],
    play: |node, stage, random| {
        node.job.pattern = heavy(random);
        from(stage, &["ecn.wrong_class"], |condition| condition.wrong_class = true)
    },
};

/// The NIC marks, because the host does not take the data.
pub(super) const HOST_MARKING: Fault = Fault {
    name: "host-marking",
    shape: SHAPE,
    lasts_s: LASTS_S,
    also: &[],
    play: |node, stage, random| {
        node.job.pattern = heavy(random);
        let (share, stalled) = (random.log_between(1e-4, 1e-2), 35 + random.below(50));
        from(stage, &["ecn.host_marking"], move |condition| {
            condition.host_marking = share;
            condition.pci_stalled = stalled;
        })
    },
};

/// Traffic that congests: bursts of many senders at high load.
fn heavy(random: &mut Random) -> Pattern {
    Pattern {
        step_s: random.log_between(0.5, 6.0),
        communicating: random.between(0.6, 1.0),
        load: random.between(0.7, 0.9),
        burst_bytes: random.log_between(256e3, 1_024e3),
        senders: random.log_between(6.0, 16.0),
    }
}

/// From its onset on the fault holds on one port.
fn from(
    stage: Stage,
    classes: &'static [&'static str],
    mut change: impl FnMut(&mut Condition) + Send + 'static,
) -> Vec<Step> {
    let Stage { port, onset_s, .. } = stage;
    let mut steps: Vec<Step> = classes.iter().map(|class| Step::truth(onset_s, port, class, true)).collect();
    steps.push(Step::at_s(onset_s, move |node, _, _| {
        let mut condition = node.ports[port].condition.clone();
        change(&mut condition);
        node.ports[port].condition = condition;
    }));
    steps
}
