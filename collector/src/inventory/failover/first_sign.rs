//! The first sign of trouble before a port went down: what a warning could have been based on.

use super::stopwatch::Rounds;
use super::{Mark, Moment};
use crate::finding::{Finding, SubjectKey};
use crate::inventory::{PortKey, PortRecord, World};
use crate::observation::{AerSeverity, Nanos};
use crate::rule::{FailoverSettings, announces_fall, clock, predicts_failure};
use crate::timeline::counter_table::Meaning;

/// Errors of the physical layer that are a first sign.
const PHYSICAL: [Meaning; 4] = [Meaning::PostFecErrors, Meaning::CrcErrors, Meaning::IcrcErrors, Meaning::SymbolError];

/// The first sign of trouble on a port or its way to the host before `began`.
pub(super) fn first_sign(
    world: &World,
    settings: &FailoverSettings,
    key: PortKey,
    began: Moment,
    rounds: &Rounds,
) -> Option<Mark> {
    let port = world.port(key)?;
    let from = began.t.saturating_sub(clock::ns(settings.lookback_s));
    let mut signs: Vec<(Moment, String)> = Vec::new();
    if let Some(function) = world.function_of(port) {
        let path = world.pcie.get(function).map(|record| &record.path[..]).unwrap_or_default();
        for record in path.iter().chain([function]).filter_map(|pci| world.pcie.get(pci)) {
            for (t, event) in record.events.since(from) {
                let severity = match event.severity {
                    AerSeverity::Corrected => "corrected",
                    AerSeverity::Nonfatal => "non-fatal",
                    AerSeverity::Fatal => "fatal",
                };
                let names: Vec<&str> = event.names.iter().map(|name| &**name).collect();
                signs.push((Moment::at(*t), format!("{severity} PCIe error {} of {}", names.join(" "), record.pci)));
            }
            for (t, (_, name, _)) in record.growth.since(from) {
                signs.push((rounds.moment(*t, 0), format!("PCIe error count {name} of {}", record.pci)));
            }
        }
    }
    for meaning in PHYSICAL.into_iter().filter(|meaning| port.is_understood(*meaning)) {
        for series in port.series_of(meaning) {
            for (t, _) in series.changes_since(from).filter(|(_, n)| n.is_some_and(|n| n > 0)) {
                let before = t.saturating_sub(series.interval());
                signs.push((Moment::between(before, t), format!("{} grew", series.name)));
            }
        }
    }
    for (t, report) in world.device(key.device).reports.since(from) {
        signs.push((Moment::at(*t), report.to_string()));
    }
    // A finding may be older than what is looked back over: those that `link.down` names as well, so that both begin with the
    // same, and where there is none another that predicts.
    let told = || findings(world, key, port, began.t);
    let named = told().any(|finding| announces_fall(finding.rule));
    let tells = |finding: &&Finding| if named { announces_fall(finding.rule) } else { predicts_failure(finding.rule) };
    signs.extend(told().filter(tells).map(|finding| (Moment::at(finding.first_t), finding.rule.to_owned())));
    let sign = signs.into_iter().filter(|(at, _)| at.t < began.t).min_by_key(|(at, _)| (at.t, at.not_before))?;
    Some(Mark { at: sign.0, what: sign.1 })
}

/// What was raised about a port at `t`, whether it is over by now or not.
fn findings<'w>(world: &'w World, key: PortKey, port: &'w PortRecord, t: Nanos) -> impl Iterator<Item = &'w Finding> {
    let about = world.findings_about(key.device, port);
    let over = world.cleared.iter().filter(move |over| over.t >= t);
    let of_port = SubjectKey::Port(key.device, key.port);
    let function = world.function_of(port).cloned();
    let over = over.filter(move |over| match &over.key {
        SubjectKey::Port(..) => over.key == of_port,
        SubjectKey::Device(device) => *device == key.device,
        SubjectKey::Pci(pci) => function.as_ref() == Some(pci),
        SubjectKey::Qp(_) | SubjectKey::Node => false,
    });
    about.chain(over).map(|finding| &**finding).filter(move |finding| finding.first_t < t)
}
