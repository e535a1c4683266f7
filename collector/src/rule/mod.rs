//! The rules: each is a pure function of the world that says, for every subject it has, whether its condition holds.
//!
//! One file per rule family. A new rule is one type in its family's file and one line in [`all`]. Hysteresis needs no
//! state in a rule: it may ask whether its finding is raised and answer `Keep` in the band between condition and clear
//! condition; the [`crate::finding::Book`] does the rest.

mod bus;
mod bus_bound;
pub(crate) mod clock;
mod counter;
mod ecn;
mod fall;
mod health;
mod health_signs;
mod judged;
mod lanes;
mod link;
mod loopback;
mod nic;
mod pcie;
mod pcie_link;
mod phy;
mod phy_symbol;
mod phy_trend;
mod predicts;
mod qp;
mod qp_end;
mod qp_error;
mod qp_pressure;
mod qp_rnr;
mod qp_small;
mod qp_software;
mod qp_stuck;
mod root;
mod settings;
mod span;
mod stuck;
#[cfg(test)]
mod tests;
mod unstable;

use judged::Judged;

use crate::finding::{Book, Finding, Subject, SubjectKey, Verdict};
use crate::inventory::{PcieRecord, PortRecord, World};
use crate::observation::Nanos;

pub use judged::Part;
pub use pcie::was_fatal;
pub(crate) use predicts::announces_fall;
pub use predicts::predicts_failure;
pub use settings::{Failover as FailoverSettings, Settings};

/// What makes the engine ask a rule, besides the end of every window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// Nothing: the end of a window is soon enough.
    Window,
    /// A change of a port's state, or an asynchronous event.
    Port,
    /// An AER event, a grown AER total, a changed PCIe link.
    Pcie,
    /// A QP went into the error state, or its statistics show errors.
    Qp,
}

/// One rule.
pub trait Rule: Sync {
    /// Its id, for example `link.down`.
    fn id(&self) -> &'static str;

    /// What makes the engine ask it, besides the end of every window.
    fn trigger(&self) -> Trigger {
        Trigger::Window
    }

    /// What the finding means and what it is not, for the detail pane and the docs.
    fn meaning(&self) -> &'static str;

    /// The very commands to check it by hand.
    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String>;

    /// Its verdicts on all its subjects now. A subject it does not mention is clear.
    fn judge(&self, view: &View<'_>) -> Vec<Verdict>;

    /// Why it cannot be judged anywhere on this node or not yet (too short a time, no such counter); `None` when it can.
    fn not_judged(&self, view: &View<'_>) -> Option<String>;

    /// What of it is judged, where that is not everything: of some of the ports, or with a reservation.
    fn judged_in_part(&self, _view: &View<'_>) -> Option<Part> {
        None
    }
}

/// All rules, in the order they are asked.
#[must_use]
pub fn all() -> &'static [&'static dyn Rule] {
    &[
        &link::LinkDown,
        &link::LinkFlap,
        &pcie::AerStorm,
        &pcie::AerFatal,
        &pcie_link::Downgrade,
        &stuck::Stuck,
        &health::Health,
        &phy::PostFec,
        &phy::Crc,
        &phy_trend::PreFecTrend,
        &phy_symbol::Symbol,
        &loopback::High,
        &nic::Composite,
        &qp::RetryExceeded,
        &qp_rnr::Rnr,
        &qp_software::SoftwareError,
        &qp_error::ErrorState,
        &qp_stuck::Stuck,
        &ecn::Missed,
        &ecn::NotEct,
        &ecn::Premature,
        &ecn::WrongClass,
        &ecn::NoCnp,
        &ecn::CnpIgnored,
        &ecn::CnpWithoutCe,
        &ecn::CnpLost,
        &ecn::HostMarking,
        &ecn::RailAsymmetry,
        &ecn::Inversion,
        &qp_pressure::CachePressure,
        &qp_small::Small,
        &bus_bound::Bound,
        &bus_bound::SharedUplink,
        &unstable::Unstable,
        &counter::Saturated,
    ]
}

/// The rule with an id.
#[must_use]
pub fn find(id: &str) -> Option<&'static dyn Rule> {
    all().iter().copied().find(|rule| rule.id() == id)
}

/// What the link of a function carries of data in one direction by calculation, Gb/s, as `pcie.bandwidth_bound` and
/// `pcie.shared_uplink` take it; `None` when speed or width is not known.
#[must_use]
pub fn pcie_carries_gbps(record: &PcieRecord) -> Option<f64> {
    bus::usable(record, record.mps).map(|usable| usable.gbps)
}

/// Why a rule is not judged: it is switched off, or as it says itself.
#[must_use]
pub fn not_judged(rule: &dyn Rule, view: &View<'_>) -> Option<String> {
    let off = view.settings.disabled.iter().any(|id| id == rule.id());
    if off { Some("switched off by the configuration".to_owned()) } else { rule.not_judged(view) }
}

/// What of a rule is judged, where that is not everything and the rule is not switched off.
#[must_use]
pub fn judged_in_part(rule: &dyn Rule, view: &View<'_>) -> Option<Part> {
    let off = view.settings.disabled.iter().any(|id| id == rule.id());
    if off { None } else { rule.judged_in_part(view) }
}

/// What a rule sees.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The world.
    pub world: &'a World,
    /// Time of the newest observation.
    pub now: Nanos,
    /// Thresholds.
    pub settings: &'a Settings,
    /// Findings so far.
    pub book: &'a Book,
}

impl View<'_> {
    /// The finding of a rule about a subject, when it is raised.
    #[must_use]
    pub fn raised(&self, rule: &'static str, key: &SubjectKey) -> Option<&Finding> {
        self.book.raised(rule, key).map(|finding| &**finding)
    }

    /// Seconds since the first observation.
    #[must_use]
    pub fn watched_s(&self) -> f64 {
        self.now.saturating_sub(self.world.started) as f64 / 1e9
    }

    /// The time `seconds` ago.
    #[must_use]
    pub fn ago(&self, seconds: f64) -> Nanos {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "windows are seconds to hours")]
        let ns = (seconds.max(0.0) * 1e9) as u64;
        self.now.saturating_sub(ns)
    }

    /// The beginning of the last `seconds`, or of the watch where that is shorter: a finding begins with nothing that was
    /// not observed.
    #[must_use]
    pub fn since(&self, seconds: f64) -> Nanos {
        self.ago(seconds).max(self.world.started)
    }

    /// How far a rule of ports is judged, which says so of all that are there: not at all where there is none.
    fn of_ports(&self, extent: impl FnOnce(&[&PortRecord]) -> Judged) -> Judged {
        let all: Vec<&PortRecord> = self.world.present_ports().map(|(_, port)| port).collect();
        if all.is_empty() { Judged::Not("there is no port".to_owned()) } else { extent(&all) }
    }

    /// How far a rule of ports is judged that cannot judge these, which are all that say this of themselves.
    fn without(&self, blind: &[&PortRecord], of: usize, reason: impl FnOnce(&str) -> String) -> Judged {
        if blind.is_empty() {
            return Judged::All;
        }
        let names: Vec<String> = blind.iter().map(|port| self.port_subject(port).1.to_string()).collect();
        let keys = blind.iter().map(|port| self.port_subject(port).0).collect();
        Judged::without(keys, of, reason(&names.join(", ")))
    }

    /// A port as a subject.
    #[must_use]
    pub fn port_subject(&self, port: &PortRecord) -> (SubjectKey, Subject) {
        let device = self.world.device(port.key.device).name.clone();
        (
            SubjectKey::Port(port.key.device, port.key.port),
            Subject { device: Some(device), port: Some(port.key.port), ..Subject::default() },
        )
    }

    /// A PCI function as a subject, with the RDMA device behind it where there is one.
    #[must_use]
    pub fn pci_subject(&self, pci: &str) -> (SubjectKey, Subject) {
        let behind = self.world.ports.iter().find(|port| {
            self.world.function_of(port).is_some_and(|function| {
                **function == *pci
                    || self.world.pcie.get(function).is_some_and(|record| record.path.iter().any(|b| **b == *pci))
            })
        });
        let subject = Subject {
            device: behind.map(|port| self.world.device(port.key.device).name.clone()),
            pci: Some(pci.into()),
            ..Subject::default()
        };
        (SubjectKey::Pci(pci.into()), subject)
    }
}
