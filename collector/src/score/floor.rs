//! What a change must not fall below: figures of the subset, with room for a change that is worth it.

use super::Accuracy;

/// A rule, the model, and the least recall and precision of it in the subset, seeing QPs.
const FLOORS: &[(&str, &str, f64, f64)] = &[
    ("link.down", WINDOWS, 0.95, 0.95),
    ("link.flap", WINDOWS, 0.95, 0.95),
    ("nic.composite", WINDOWS, 0.95, 0.95),
    ("nic.health", WINDOWS, 0.95, 0.95),
    ("nic.stuck", WINDOWS, 0.95, 0.95),
    ("pcie.aer_fatal", WINDOWS, 0.95, 0.95),
    ("pcie.aer_storm", WINDOWS, 0.9, 0.95),
    ("pcie.downgrade", WINDOWS, 0.95, 0.95),
    ("pcie.shared_uplink", WINDOWS, 0.8, 0.95),
    ("phy.crc", WINDOWS, 0.95, 0.95),
    ("phy.post_fec", WINDOWS, 0.95, 0.95),
    ("phy.pre_fec_trend", WINDOWS, 0.95, 0.95),
    ("qp.cache_pressure", WINDOWS, 0.8, 0.95),
    ("qp.error_state", WINDOWS, 0.95, 0.95),
    ("qp.retry_exceeded", WINDOWS, 0.95, 0.95),
    ("qp.rnr", WINDOWS, 0.8, 0.95),
    ("qp.small_messages", WINDOWS, 0.8, 0.95),
    ("ecn.host_marking", WINDOWS, 0.8, 0.95),
    ("ecn.wrong_class", WINDOWS, 0.8, 0.95),
    ("ecn.no_cnp", PACKETS, 0.9, 0.95),
    ("ecn.cnp_ignored", PACKETS, 0.9, 0.95),
    ("ecn.missed", PACKETS, 0.9, 0.95),
    ("ecn.not_ect", PACKETS, 0.9, 0.9),
    ("ecn.premature", PACKETS, 0.75, 0.9),
    ("ecn.rail_asymmetry", PACKETS, 0.75, 0.9),
    ("ecn.premature", WINDOWS, 0.9, 0.95),
    ("ecn.rail_asymmetry", WINDOWS, 0.9, 0.95),
    ("ecn.missed", WINDOWS, 0.7, 0.95),
    ("ecn.not_ect", WINDOWS, 0.6, 0.95),
];
const WINDOWS: &str = super::event::MODEL;
const PACKETS: &str = super::window::MODEL;
/// False warnings a node-day in the subset.
const ALARMS_PER_DAY: f64 = 1.0;

/// What fell below its floor, one line each.
#[must_use]
pub fn below(accuracy: &Accuracy) -> Vec<String> {
    let mut low = Vec::new();
    let rules = super::report::by_rule(accuracy);
    for (rule, model, recall, precision) in FLOORS {
        let tally = rules.get(&(*rule, *model)).map(|tallies| &tallies[0]);
        let mut compare = |what: &str, figure: Option<f64>, floor: f64| {
            if let Some(figure) = figure.filter(|figure| *figure < floor) {
                low.push(format!("{rule} ({model}): {what} is {figure:.2}, its floor {floor:.2}"));
            }
        };
        // Nothing there to be found is below every floor; nothing told is told by the recall.
        compare("recall", Some(tally.and_then(super::Tally::recall).unwrap_or(0.0)), *recall);
        compare("precision", tally.and_then(super::Tally::precision), *precision);
    }
    let alarms = accuracy.calm.per_day();
    for (alarms, how) in alarms.iter().zip(["seeing QPs", "from counters only"]) {
        if *alarms > ALARMS_PER_DAY {
            low.push(format!("{alarms:.1} false warnings a node-day {how}, at most {ALARMS_PER_DAY:.1}"));
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Calm;

    #[test]
    fn every_floor_is_of_a_rule_there_is_and_nothing_measured_is_below() {
        for (rule, _, recall, precision) in FLOORS {
            assert!(crate::rule::find(rule).is_some(), "{rule}");
            assert!((0.0..=1.0).contains(recall) && (0.0..=1.0).contains(precision), "{rule}");
        }
        assert_eq!(below(&Accuracy::default()).len(), FLOORS.len());
    }

    #[test]
    fn false_warnings_are_told() {
        let mut calm = Calm { hours: 24.0, nodes: 1, ..Calm::default() };
        calm.alarms.insert(("link.down", "critical"), [2, 0]);
        calm.alarms.insert(("counter.saturated", "info"), [9, 9]);
        let low = below(&Accuracy { cases: Vec::new(), calm });
        assert_eq!(low.iter().filter(|line| line.contains("node-day")).count(), 1, "{low:?}");
    }
}
