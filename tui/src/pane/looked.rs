//! Which ports no rule could look at for trouble of a kind: without a finding such a port is not well, only not known to be
//! ill.

use collector::finding::{Book, SubjectKey};
use collector::inventory::{PortKey, PortRecord, Role, World};
use collector::rule::{self, View};

use crate::health::Health;

/// Kinds of trouble that a port is to be looked at for, each with the rules of which one is enough. That of the port's state
/// is no matter: it is what makes a port `ok`.
const KINDS: [(&str, &[&str]); 4] = [
    ("link errors", &["phy.post_fec", "phy.crc", "phy.pre_fec_trend", "phy.symbol"]),
    ("PCIe", &["pcie.aer_fatal", "pcie.aer_storm", "pcie.downgrade"]),
    ("the adapter", &["nic.stuck", "nic.health"]),
    (QPS, &["qp.cache_pressure", "qp.small_messages"]),
];
/// That nobody watches what is posted is told in the header, of all ports; this is of one whose posts are seen too little of.
const QPS: &str = "what its QPs post";

/// What could not be looked at. It is small and soon made: none of these rules walks QPs.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    generation: Option<u64>,
    lacking: Vec<(PortKey, Vec<&'static str>)>,
    /// What is posted is watched on some port.
    posts: bool,
}

impl Looked {
    /// Asks the rules, once for a generation of worlds.
    pub(crate) fn look(&mut self, world: &World, generation: u64) {
        if self.generation.replace(generation) == Some(generation) {
            return;
        }
        let blind: Vec<Vec<Blind>> =
            KINDS.iter().map(|(_, rules)| rules.iter().map(|id| Blind::of(id, world)).collect()).collect();
        let traced = |port: &PortRecord| port.posting.newest_first().next().is_some();
        let of_qps = KINDS.iter().filter(|(kind, _)| *kind == QPS).flat_map(|(_, rules)| *rules);
        self.posts = of_qps.into_iter().any(|id| !world.settings.disabled.iter().any(|off| off == id))
            && world.present_ports().any(|(_, port)| traced(port));
        let watched = self.posts;
        let lacking = |port: &PortRecord| -> Vec<&'static str> {
            let kinds = KINDS.iter().zip(&blind);
            kinds
                .filter(|((kind, _), rules)| (watched || *kind != QPS) && rules.iter().all(|rule| rule.to(world, port)))
                .map(|((kind, _), _)| *kind)
                .collect()
        };
        let ports = world.present_ports().filter(|(_, port)| stands_for_itself(world, port));
        let ports = ports.map(|(_, port)| (port.key, lacking(port)));
        self.lacking = ports.filter(|(_, lacking)| !lacking.is_empty()).collect();
    }

    /// What this port is looked at for.
    pub(crate) fn at(&self, port: PortKey) -> Vec<&'static str> {
        let lacking = self.lacking(port);
        let kinds = KINDS.iter().map(|(kind, _)| *kind);
        kinds.filter(|kind| !lacking.contains(kind) && (self.posts || *kind != QPS)).collect()
    }

    /// Kinds of trouble that nobody could look at this port for.
    pub(crate) fn lacking(&self, port: PortKey) -> &[&'static str] {
        self.lacking.iter().find(|(key, _)| *key == port).map_or(&[], |(_, lacking)| lacking)
    }

    /// The health of a port as far as anybody could look.
    pub(crate) fn limit(&self, port: PortKey, health: Health) -> Health {
        if health.well && !self.lacking(port).is_empty() {
            return Health { word: "ok, in part".to_owned(), well: false, ..health };
        }
        health
    }
}

/// It has a cable and a slot of its own to look at. A software device has none, and of a part of an adapter the row of the
/// adapter tells, where that is seen.
fn stands_for_itself(world: &World, port: &PortRecord) -> bool {
    let device = port.key.device;
    match world.role(device) {
        None => false,
        Some(Role::Pf) => true,
        Some(Role::Vf | Role::Management) => world.parent(device).is_none(),
    }
}

/// Where one rule cannot look.
enum Blind {
    Everywhere,
    At(Vec<SubjectKey>),
}

impl Blind {
    fn of(id: &str, world: &World) -> Self {
        let Some(rule) = rule::find(id) else { return Self::Everywhere };
        let book = Book::default();
        let view = View { world, now: world.now, settings: &world.settings, book: &book };
        if rule::not_judged(rule, &view).is_some() {
            return Self::Everywhere;
        }
        Self::At(rule::judged_in_part(rule, &view).map_or_else(Vec::new, |part| part.blind))
    }

    fn to(&self, world: &World, port: &PortRecord) -> bool {
        let Self::At(keys) = self else { return true };
        keys.iter().any(|key| match key {
            SubjectKey::Port(device, number) => *device == port.key.device && *number == port.key.port,
            SubjectKey::Device(device) => *device == port.key.device,
            SubjectKey::Pci(pci) => world.function_of(port) == Some(pci),
            SubjectKey::Node | SubjectKey::Qp(_) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{health, sample};
    use collector::timeline::arithmetic::Reading;
    use std::sync::Arc;

    fn word(world: &World, at: usize) -> (String, Vec<&'static str>) {
        let mut looked = Looked::default();
        looked.look(world, 1);
        let port = &world.ports[at];
        let health = looked.limit(port.key, health::of(world, world.device(port.key.device), port));
        (health.word, looked.lacking(port.key).to_vec())
    }

    #[test]
    fn every_rule_that_is_asked_is_there() {
        for id in KINDS.iter().flat_map(|(_, rules)| *rules) {
            assert!(rule::find(id).is_some(), "{id}");
        }
    }

    #[test]
    fn a_port_whose_link_errors_nobody_counts_is_ok_in_part() {
        let mut world = (*sample::healthy()).clone();
        assert_eq!(word(&world, 0), ("ok".to_owned(), Vec::new()));
        for set in &mut Arc::make_mut(&mut world.ports[0]).sets {
            for series in &mut set.series {
                series.reading = Reading::Unavailable("not read here".into());
            }
        }
        assert_eq!(word(&world, 0), ("ok, in part".to_owned(), vec!["link errors"]));
        assert_eq!(word(&world, 1), ("ok".to_owned(), Vec::new()));
        // Nor is it where the rules are switched off.
        let disabled = KINDS[1].1.iter().map(|id| (*id).to_owned()).collect();
        world.settings = Arc::new(rule::Settings { disabled, ..rule::Settings::default() });
        assert_eq!(word(&world, 1), ("ok, in part".to_owned(), vec!["PCIe"]));
    }

    #[test]
    fn where_nobody_watches_posts_no_rule_is_said_to_look_at_them() {
        let mut world = (*sample::healthy()).clone();
        let at = |world: &World| {
            let mut looked = Looked::default();
            looked.look(world, 1);
            (looked.at(world.ports[1].key), looked.lacking(world.ports[1].key).to_vec())
        };
        assert_eq!(at(&world), (KINDS.map(|(kind, _)| kind).to_vec(), Vec::new()));
        let disabled = KINDS[3].1.iter().map(|id| (*id).to_owned()).collect();
        world.settings = Arc::new(rule::Settings { disabled, ..rule::Settings::default() });
        assert_eq!(at(&world), (KINDS[..3].iter().map(|(kind, _)| *kind).collect(), Vec::new()));
    }

    #[test]
    fn that_the_port_s_state_is_read_is_no_look_at_the_adapter() {
        let mut world = (*sample::healthy()).clone();
        let disabled = vec!["nic.health".to_owned(), "nic.stuck".to_owned()];
        world.settings = Arc::new(rule::Settings { disabled, ..rule::Settings::default() });
        assert_eq!(word(&world, 1), ("ok, in part".to_owned(), vec!["the adapter"]));
    }

    #[test]
    fn what_is_known_to_be_ill_is_told_whatever_could_not_be_looked_at() {
        let mut world = (*sample::faulty()).clone();
        let broken = world.ports.iter().position(|port| health::worst(&world, port).is_some()).unwrap();
        let before = word(&world, broken).0;
        let disabled = KINDS.iter().flat_map(|(_, rules)| *rules).map(|id| (*id).to_owned()).collect();
        world.settings = Arc::new(rule::Settings { disabled, ..rule::Settings::default() });
        assert_eq!(word(&world, broken), (before, KINDS[..3].iter().map(|(kind, _)| *kind).collect()));
    }
}
