//! The scenarios: each is a file with a name, a sentence and the steps of what happens. A new one is one file and one
//! line in [`SCENARIOS`], and one in [`FAULTS`] when it is a fault that scoring may put anywhere.

mod aer_then_down;
mod dying_optic;
mod ecn_off;
mod fall;
mod healthy;
mod kmin_low;
mod pcie_downgrade;
mod pfc_storm;
mod qp_storm;
mod rnr;
mod shared_pcie;
mod small_messages;
mod stuck_firmware;

use super::node::{Node, RAILS, Shape};
use super::random::Random;
use crate::observation::Nanos;
use crate::source::Emit;

/// All scenarios, in the order they are listed.
const SCENARIOS: &[Scenario] = &[
    healthy::SCENARIO,
    kmin_low::SCENARIO,
    pfc_storm::SCENARIO,
    dying_optic::SCENARIO,
    aer_then_down::SCENARIO,
    qp_storm::SCENARIO,
    shared_pcie::SCENARIO,
    small_messages::SCENARIO,
    kmin_low::ASYMMETRY_SCENARIO,
];

/// All faults that can be put anywhere.
const FAULTS: &[Fault] = &[
    dying_optic::FAULT,
    aer_then_down::FAULT,
    aer_then_down::STORM_FAULT,
    pcie_downgrade::FAULT,
    stuck_firmware::FAULT,
    rnr::FAULT,
    qp_storm::FAULT,
    shared_pcie::FAULT,
    small_messages::FAULT,
    kmin_low::FAULT,
    kmin_low::ASYMMETRY_FAULT,
    pfc_storm::FAULT,
    ecn_off::MARKING_OFF,
    ecn_off::NOT_ECT,
    ecn_off::NP_OFF,
    ecn_off::RP_OFF,
    ecn_off::WRONG_CLASS,
    ecn_off::HOST_MARKING,
];

/// One scenario.
pub(super) struct Scenario {
    pub(super) info: ScenarioInfo,
    pub(super) shape: Shape,
    /// What happens when.
    pub(super) plan: fn(&mut Node, &mut Random) -> Vec<Step>,
}

/// A scenario's name and what it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioInfo {
    /// Name, for `--scenario`.
    pub name: &'static str,
    /// What it shows, in one line.
    pub summary: &'static str,
}

/// One fault.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// Time after its onset by which everything has happened that is going to, s.
    pub(super) lasts_s: f64,
    /// Rules that may rightly speak besides those the truth names.
    pub(super) also: &'static [&'static str],
    pub(super) play: fn(&mut Node, Stage, &mut Random) -> Vec<Step>,
}

/// What scoring needs to know of a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultInfo {
    /// Its name.
    pub name: &'static str,
    /// Simulated time after which everything has happened, s.
    pub until_s: f64,
    /// Rules that may rightly speak besides those the truth names.
    pub also: &'static [&'static str],
}

/// Where and when a fault happens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stage {
    /// The port, one of the rails.
    pub(super) port: usize,
    /// When it begins, s since the start.
    pub(super) onset_s: f64,
    /// Its pace: 1 as scoring wants it, less for a demonstration that must not take long.
    pub(super) pace: f64,
}

/// Faults begin between these times, s: rules that know a port's own usual values need some first.
const ONSET_S: (f64, f64) = (90.0, 180.0);

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

    /// The truth about a port changes.
    pub(super) fn truth(s: f64, port: usize, class: &'static str, active: bool) -> Self {
        Self::at_s(s, move |node, t, emit| node.truth(t, port, class, active, emit))
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

/// All faults.
#[must_use]
pub fn faults() -> Vec<FaultInfo> {
    FAULTS.iter().map(|f| FaultInfo { name: f.name, until_s: ONSET_S.1 + f.lasts_s, also: f.also }).collect()
}

pub(super) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.info.name == name)
}

pub(super) fn find_fault(name: &str) -> Option<&'static Fault> {
    FAULTS.iter().find(|fault| fault.name == name)
}

/// The steps of a fault at a random place and time.
pub(super) fn play(fault: &Fault, node: &mut Node, random: &mut Random) -> Vec<Step> {
    let port = random.index(RAILS);
    let stage = Stage { port, onset_s: random.between(ONSET_S.0, ONSET_S.1), pace: 1.0 };
    (fault.play)(node, stage, random)
}
