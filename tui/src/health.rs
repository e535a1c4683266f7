//! The health word of a port, and which findings concern a port.

use std::sync::Arc;

use collector::finding::{Finding, Grade, Severity, SubjectKey};
use collector::inventory::{DeviceRecord, PortRecord, World};
use collector::observation::PortState;

use crate::number;

/// A port's health in a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Health {
    /// The word.
    pub(crate) word: String,
    /// How bad; `None` when nothing is wrong or nothing is known.
    pub(crate) severity: Option<Severity>,
    /// The port is known to be well; false for "nobody knows".
    pub(crate) well: bool,
}

/// A finding about a port, or about what the port depends on or carries.
pub(crate) fn concerns(world: &World, port: &PortRecord, finding: &Finding) -> bool {
    match &finding.key {
        SubjectKey::Node => false,
        SubjectKey::Device(device) => *device == port.key.device,
        SubjectKey::Port(device, number) => *device == port.key.device && *number == port.key.port,
        SubjectKey::Qp(id) => world.qps.get(*id).is_some_and(|qp| {
            qp.device == port.key.device
                && qp.port.map_or_else(|| world.ports_of(qp.device).count() == 1, |p| u32::from(p) == port.key.port)
        }),
        SubjectKey::Pci(pci) => world.function_of(port).is_some_and(|function| {
            function == pci || world.pcie.get(function).is_some_and(|record| record.path.contains(pci))
        }),
    }
}

/// The port a finding is about, or whose way to the host or QP it is about.
pub(crate) fn port_of<'w>(world: &'w World, finding: &Finding) -> Option<&'w PortRecord> {
    world.present_ports().map(|(_, port)| port).find(|port| concerns(world, port, finding))
}

/// The worst finding that concerns a port; of equals the newest.
pub(crate) fn worst<'w>(world: &'w World, port: &PortRecord) -> Option<&'w Arc<Finding>> {
    // The world lists the worst first.
    world.findings.iter().find(|finding| concerns(world, port, finding))
}

/// A port's health in a word.
pub(crate) fn of(world: &World, device: &DeviceRecord, port: &PortRecord) -> Health {
    // Of several reasons the one that says since when it is down is the one to know first.
    let down = || world.findings.iter().find(|finding| finding.rule == "link.down" && concerns(world, port, finding));
    let first = if port.state == PortState::Down { down().or_else(|| worst(world, port)) } else { worst(world, port) };
    if let Some(finding) = first
        && finding.severity > Severity::Info
    {
        return Health { word: word(world, finding), severity: Some(finding.severity), well: false };
    }
    let unwell = |word: &str, severity| Health { word: word.to_owned(), severity, well: false };
    match port.state {
        _ if device.unreadable.is_some() => unwell("unreadable", Some(Severity::Warning)),
        // No rule has judged anything yet.
        PortState::Active if world.windows == 0 => unwell("measuring", None),
        PortState::Active => {
            let said = if first.is_some() { "ok, note" } else { "ok" };
            Health { word: said.to_owned(), severity: None, well: true }
        }
        PortState::Down if port.phys_state.as_deref() == Some("Disabled") => unwell("disabled", None),
        // No rule called it broken: it was never up while anybody watched.
        PortState::Down => unwell("down", None),
        PortState::Init => unwell("init: no SM?", Some(Severity::Warning)),
        PortState::Armed => unwell("armed", None),
        PortState::Unknown => unwell(number::UNKNOWN, None),
    }
}

/// The word of a finding; `?` where it is only suspected.
pub(crate) fn word(world: &World, finding: &Finding) -> String {
    let age = || number::age(world.now.saturating_sub(finding.first_t));
    let critical = finding.severity == Severity::Critical;
    let said = match finding.rule {
        "link.down" => format!("down {}", age()),
        "link.flap" => "FLAPPING".to_owned(),
        "pcie.aer_storm" => "AER storm".to_owned(),
        "pcie.aer_fatal" if collector::rule::was_fatal(finding) => "AER FATAL".to_owned(),
        "pcie.aer_fatal" => "AER nonfatal".to_owned(),
        "pcie.downgrade" => "PCIe slow".to_owned(),
        "loopback.high" => "slow".to_owned(),
        // Words that fit into the narrowest column.
        "phy.pre_fec_trend" if !critical => "phy pre-FEC".to_owned(),
        "ecn.rail_asymmetry" => "ECN rail".to_owned(),
        "ecn.wrong_class" => "ECN class".to_owned(),
        "ecn.host_marking" => "ECN by host".to_owned(),
        "ecn.cnp_ignored" => "CNP ignored".to_owned(),
        "ecn.cnp_lost" => "CNP lost".to_owned(),
        "ecn.cnp_without_ce" => "CNP, no CE".to_owned(),
        "qp.cache_pressure" => "QP cache".to_owned(),
        "qp.error_state" => "QP error".to_owned(),
        "qp.retry_exceeded" => "QP retries".to_owned(),
        "qp.small_messages" => "QP small msgs".to_owned(),
        "qp.software_error" => "QP software".to_owned(),
        "port.unstable_bandwidth" => "unstable".to_owned(),
        "pcie.bandwidth_bound" => "PCIe bound".to_owned(),
        rule => match rule.split_once('.') {
            Some(("phy" | "nic", _)) if critical => "FAILING".to_owned(),
            Some(("phy", what)) => format!("phy {}", words(what)),
            Some(("nic", what)) => format!("NIC {}", words(what)),
            Some(("ecn", what)) => format!("ECN {}", words(what)),
            Some(("qp", what)) => format!("QP {}", words(what)),
            Some((_, what)) => words(what),
            None => words(rule),
        },
    };
    if finding.grade == Grade::Suspected { format!("{said}?") } else { said }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_port_is_not_well_before_the_first_window_was_judged() {
        let mut world = (*sample::healthy()).clone();
        let health = |world: &World| {
            let (_, port) =
                world.present_ports().find(|(_, port)| port.state == PortState::Active).expect("a port is up");
            of(world, world.device(port.key.device), port)
        };
        assert!(health(&world).well);
        world.windows = 0;
        let unjudged = health(&world);
        assert_eq!((unjudged.word.as_str(), unjudged.well), ("measuring", false));
    }

    #[test]
    fn the_word_of_every_rule_fits_into_the_narrowest_column() {
        let world = sample::faulty();
        for rule in collector::rule::all().iter().filter(|rule| rule.id() != "link.down") {
            for severity in [Severity::Info, Severity::Warning, Severity::Critical] {
                let mut suspected = (*world.findings[0]).clone();
                (suspected.rule, suspected.severity, suspected.grade) = (rule.id(), severity, Grade::Suspected);
                let said = word(&world, &suspected);
                assert!(said.chars().count() <= 14, "{said}");
            }
        }
    }
}
