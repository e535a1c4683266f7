//! The first sign of trouble before a port went down: what a warning could have been based on.

use super::stopwatch::Rounds;
use super::{Mark, Moment};
use crate::inventory::{PortKey, World};
use crate::observation::AerSeverity;
use crate::rule::{FailoverSettings, clock, predicts_failure};
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
    // A finding may be older than what is looked back over.
    for finding in world.findings_about(key.device, port).filter(|finding| predicts_failure(finding.rule)) {
        signs.push((Moment::at(finding.first_t), finding.rule.to_owned()));
    }
    let sign = signs.into_iter().filter(|(at, _)| at.t < began.t).min_by_key(|(at, _)| (at.t, at.not_before))?;
    Some(Mark { at: sign.0, what: sign.1 })
}
