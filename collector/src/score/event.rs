//! Faults of the simulated node, judged by event: a fault is found when its rule speaks of its device between the
//! beginning of the trouble and its end; a finding is right when there was such a trouble then.

use super::tally::Case;
use super::watch::{Seen, Told, Trouble, Watch};
use crate::finding::Grade;
use crate::observation::Nanos;
use crate::rule::Settings;
use crate::sim::{FaultInfo, Simulator, Size, faults};

/// The model that makes these traces.
pub(super) const MODEL: &str = "windows";
/// QPs of a port: few, for speed.
pub(super) const SIZE: Size = Size { qps_per_port: 8 };
/// A finding may come so long after a trouble that is over: the window in which it was is still to be closed, ns.
const AFTER_NS: Nanos = 2_000_000_000;
/// Rules of which nothing can be said without QPs.
const NEED_QPS: &[&str] = &["qp.error_state", "qp.cache_pressure", "qp.small_messages", "qp.stuck"];

pub(super) fn judge(fault: &str, seed: u64, settings: &Settings) -> Option<Case> {
    let info = faults().into_iter().find(|info| info.name == fault)?;
    let mut simulator = Simulator::with_fault(fault, seed, SIZE)?;
    let mut watch = Watch::new(&simulator.header(), settings);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "minutes of a trace")]
    let until = (info.until_s * 1e9) as Nanos;
    simulator.advance(until, &mut |observation| watch.take(observation));
    Some(count(&info, &watch.finish()))
}

fn count(info: &FaultInfo, seen: &Seen) -> Case {
    let mut case = Case { name: info.name.to_owned(), model: MODEL, traces: 1, ..Case::default() };
    for (at, told) in seen.told.iter().enumerate() {
        // One trouble may be told of several devices: of the four ports behind an uplink, for example.
        let mut counted: Vec<(&str, Nanos)> = Vec::new();
        for trouble in &seen.troubles {
            let class = trouble.class.as_str();
            if counted.contains(&(class, trouble.from)) || at == 1 && NEED_QPS.contains(&class) {
                continue;
            }
            counted.push((class, trouble.from));
            let Some(rule) = crate::rule::find(class) else { continue };
            let same: Vec<&Trouble> =
                seen.troubles.iter().filter(|other| other.class == class && other.from == trouble.from).collect();
            let found = told
                .iter()
                .filter(|t| t.rule == class && same.iter().any(|trouble| meets(t, trouble)))
                .min_by_key(|t| t.raised);
            let tally = &mut case.rules.entry(rule.id()).or_default()[at];
            tally.there += 1;
            if let Some(finding) = found {
                tally.found += 1;
                tally.found_sure += u64::from(finding.grade >= Grade::Probable);
                tally.delays_s.push(finding.raised.saturating_sub(trouble.from) as f64 / 1e9);
            }
        }
        for finding in told {
            let right = seen.troubles.iter().any(|trouble| {
                trouble.class == finding.rule && of_device(finding, trouble) && trouble.covers(finding.raised, AFTER_NS)
            });
            if right || !(finding.consequence || info.also.contains(&finding.rule)) {
                case.rules.entry(finding.rule).or_default()[at].tell(right, finding.severity, finding.grade);
            }
        }
    }
    lead(&mut case, seen);
    case
}

/// The finding was up at some time of the trouble, or came right after it.
fn meets(finding: &Told, trouble: &Trouble) -> bool {
    of_device(finding, trouble)
        && finding.cleared > trouble.from
        && finding.raised <= trouble.to.saturating_add(AFTER_NS)
}

fn of_device(finding: &Told, trouble: &Trouble) -> bool {
    finding.device.as_deref().is_none_or(|device| device == trouble.device)
}

/// Whether something was told of a port before it fell for good.
fn lead(case: &mut Case, seen: &Seen) {
    let fall = seen.troubles.iter().rfind(|trouble| trouble.class == "link.down" && trouble.to == Nanos::MAX);
    let Some(fall) = fall else { return };
    case.falls = 1;
    let warned = seen.told[1]
        .iter()
        .filter(|told| told.rule != "link.down" && told.raised < fall.from && of_device(told, fall))
        .filter(|told| seen.troubles.iter().any(|t| t.class == told.rule && t.covers(told.raised, AFTER_NS)))
        .map(|told| told.raised)
        .min();
    if let Some(raised) = warned {
        case.warned = 1;
        case.leads_s.push((fall.from - raised) as f64 / 1e9);
    }
}
