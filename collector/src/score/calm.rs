//! Hours in which nothing is wrong: whatever is told is a false alarm.

use super::event::MODEL;
use super::tally::Calm;
use super::watch::Watch;
use crate::rule::Settings;
use crate::sim::{Simulator, Size};

/// The scenario.
pub(super) const SCENARIO: &str = "healthy";
/// QPs of a port: few, for speed.
const QPS: u32 = 8;

pub(super) fn judge(seed: u64, hours: u64, settings: &Settings) -> Option<Calm> {
    let mut simulator = Simulator::with_size(SCENARIO, seed, Size { qps_per_port: QPS })?;
    let mut watch = Watch::new(&simulator.header(), settings);
    simulator.advance(hours * 3_600_000_000_000, &mut |observation| watch.take(observation));
    let outcome = watch.finish();
    let mut calm = Calm { hours: hours as f64, nodes: 1, ..Calm::default() };
    for (at, told) in outcome.told.iter().enumerate() {
        for finding in told.iter().filter(|finding| !finding.consequence) {
            calm.alarms.entry((finding.rule, finding.severity.name())).or_default()[at] += 1;
            let sentence =
                || format!("node {seed} at {} s, {MODEL}: {}", finding.raised / 1_000_000_000, finding.sentence);
            calm.sentences.entry(finding.rule).or_insert_with(sentence);
        }
    }
    Some(calm)
}
