//! Which raised finding another one belongs to: one cause is one entry of the list, with what follows from it below.
//!
//! A port that is down is the head of everything that led to it and came of it: whoever looks wants to read that first.
//! Above all the others stands what is nearer to the cause: a device that does not answer, a lost PCIe transaction,
//! errors that FEC could not correct.

use super::View;
use crate::finding::{Finding, SubjectKey};
use crate::inventory::PortRecord;
use crate::observation::Nanos;

/// Roots of what happens to a port or its function, the one that is taken first. A rule follows from those before it.
const ORDER: [&str; 10] = [
    "link.down",
    "nic.stuck",
    "pcie.aer_fatal",
    "nic.health",
    "phy.post_fec",
    "phy.crc",
    "link.flap",
    "qp.retry_exceeded",
    "qp.rnr",
    "qp.software_error",
];

/// A root by rule and subject.
pub(super) type Root = Option<(&'static str, SubjectKey)>;

/// The raised finding among `roots` that something about `port` follows from: the first in [`ORDER`].
///
/// `since` is when the first sign was seen; a sign seen more than `slack` before the root follows from something else.
pub(super) fn of_port(view: &View<'_>, port: &PortRecord, roots: &[&'static str], since: Nanos, slack: Nanos) -> Root {
    raised_of(view, port, roots)
        .into_iter()
        .find(|(_, first)| since.saturating_add(slack) >= *first)
        .map(|(root, _)| root)
}

/// A link that is down for less is one that flaps, ns.
const LASTING_NS: Nanos = 5_000_000_000;

/// The same for a sign of the link itself, which may have been there long before: it belongs to a fall that lasts.
pub(super) fn of_link(view: &View<'_>, port: &PortRecord, roots: &[&'static str]) -> Root {
    let lasting = |(id, _): &(&'static str, SubjectKey), first: Nanos| {
        *id != "link.down" || view.now.saturating_sub(first) >= LASTING_NS
    };
    raised_of(view, port, roots).into_iter().find(|(root, first)| lasting(root, *first)).map(|(root, _)| root)
}

/// The raised findings among `roots` that concern a port, in [`ORDER`], each with when its first sign was seen.
pub(super) fn raised_of(
    view: &View<'_>,
    port: &PortRecord,
    roots: &[&'static str],
) -> Vec<((&'static str, SubjectKey), Nanos)> {
    let mut all = Vec::new();
    let order = |id: &&'static str| ORDER.iter().position(|other| other == id).unwrap_or(ORDER.len());
    let mut ids = roots.to_vec();
    ids.sort_by_key(order);
    for id in ids {
        for key in keys(view, id, port) {
            if let Some(root) = view.raised(id, &key) {
                all.push(((id, key), root.first_t));
            }
        }
    }
    all
}

/// The findings among `rules` that concern a port and were raised at `t`, whether they are over by now or not.
pub(super) fn told_of<'v>(
    view: &View<'v>,
    port: &'v PortRecord,
    rules: &'v [&'static str],
    t: Nanos,
) -> impl Iterator<Item = &'v Finding> {
    let view = *view;
    let all = view.book.all_raised().chain(view.book.cleared().iter().rev().filter(move |over| over.t >= t));
    all.map(|finding| &**finding).filter(move |finding| {
        finding.first_t <= t && rules.contains(&finding.rule) && keys(&view, finding.rule, port).contains(&finding.key)
    })
}

/// The findings among `rules` that concern a port and were raised at `t`, whether they are over by now or not, each with when
/// its first sign was seen.
pub(super) fn seen_of(
    view: &View<'_>,
    port: &PortRecord,
    rules: &[&'static str],
    t: Nanos,
) -> Vec<(&'static str, Nanos)> {
    let raised = raised_of(view, port, rules).into_iter().map(|((rule, _), first)| (rule, first));
    let over = view.book.cleared().iter().filter(|over| over.first_t <= t && over.t >= t && rules.contains(&over.rule));
    let over = over.filter(|over| keys(view, over.rule, port).contains(&over.key));
    raised.chain(over.map(|over| (over.rule, over.first_t))).collect()
}

/// The same for a PCI function: it belongs to a port that is down where it serves that port alone, and to an uncorrected
/// error of its own.
pub(super) fn of_function(view: &View<'_>, pci: &str, roots: &[&str]) -> Root {
    let served: Vec<&PortRecord> = view
        .world
        .ports
        .iter()
        .filter(|port| view.world.function_of(port).is_some_and(|function| on_path(view, function, pci)))
        .map(|port| &**port)
        .collect();
    if roots.contains(&"link.down")
        && let [port] = served[..]
    {
        let key = SubjectKey::Port(port.key.device, port.key.port);
        if view.raised("link.down", &key).is_some() {
            return Some(("link.down", key));
        }
    }
    if !roots.contains(&"pcie.aer_fatal") {
        return None;
    }
    view.book.all_raised().filter(|finding| finding.rule == "pcie.aer_fatal").find_map(|finding| match &finding.key {
        SubjectKey::Pci(other) if on_path(view, other, pci) || on_path(view, pci, other) => {
            Some(("pcie.aer_fatal", finding.key.clone()))
        }
        _ => None,
    })
}

fn on_path(view: &View<'_>, function: &str, pci: &str) -> bool {
    function == pci || view.world.pcie.get(function).is_some_and(|record| record.path.iter().any(|bdf| **bdf == *pci))
}

/// The subjects a root's finding can have so that it concerns the port.
fn keys(view: &View<'_>, root: &str, port: &PortRecord) -> Vec<SubjectKey> {
    match root {
        "nic.stuck" | "nic.health" => vec![SubjectKey::Device(port.key.device)],
        "pcie.aer_fatal" | "pcie.aer_storm" => {
            let Some(function) = view.world.function_of(port) else { return Vec::new() };
            let path = view.world.pcie.get(function).into_iter().flat_map(|record| record.path.iter().rev());
            // The nearest first.
            std::iter::once(function).chain(path).map(|pci| SubjectKey::Pci(pci.clone())).collect()
        }
        _ => vec![SubjectKey::Port(port.key.device, port.key.port)],
    }
}

/// Any time before: the sign led to the root.
pub(super) const ANY: Nanos = Nanos::MAX;
