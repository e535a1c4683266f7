//! Why a target is not met: a sentence for each rule that may miss one, which the page gives beside the figures.

/// A rule, and the reason.
const WHY: &[(&str, &str)] = &[
    (
        "ecn.premature",
        "Marks of short bursts and marks of nothing differ in the small operations that they delay, and histograms by powers \
         of two show that only where a queue takes the latency over the next power; counters alone do not show it, so \
         without QPs the rule is silent unless nearly every mark makes a CNP.",
    ),
    (
        "ecn.rail_asymmetry",
        "A rail is compared over four windows, twelve where marks are few, with rails of a like load: where congestion control slows it down by more than \
         a fifth, or the usual thresholds mark the others nearly as often, it does not stand out.",
    ),
    (
        "ecn.missed",
        "Where queues are long but stop or lose next to nothing, only latency tells of them, and a busy host's own send \
         queues raise latency just so: the rule waits for pause or loss.",
    ),
    (
        "ecn.not_ect",
        "From counters it is a part of `ecn.missed` and needs the same pause or loss; only packets show the bits.",
    ),
    (
        "nic.stuck",
        "Reads of one source that do not come back may be that source's own trouble: it is probable once a second one stops \
         too.",
    ),
];

/// The reason for a rule.
pub(super) fn why(rule: &str) -> Option<&'static str> {
    WHY.iter().find(|(id, _)| *id == rule).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_of_a_rule_there_is_and_ends_as_a_sentence() {
        for (rule, why) in WHY {
            assert!(crate::rule::find(rule).is_some(), "{rule}");
            assert!(why.ends_with('.'), "{why}");
        }
    }
}
