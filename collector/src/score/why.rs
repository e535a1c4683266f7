//! Why a target is not met: a sentence for each rule that may miss one, which the page gives beside the figures.

/// A rule, the model (every one when empty), and the reason.
const WHY: &[(&str, &str, &str)] = &[(
    "ecn.premature",
    "",
    "Marks of short bursts and marks of nothing differ in the small operations that they delay, and histograms by powers \
         of two show that only where a queue more than doubles the latency; counters alone show it not at all, so without \
         QPs the rule is silent unless nearly every mark makes a CNP.",
)];

/// The reason for a rule and a model.
pub(super) fn why(rule: &str, model: &str) -> Option<&'static str> {
    let found = WHY.iter().find(|(id, of, _)| *id == rule && (of.is_empty() || *of == model));
    found.map(|(_, _, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_of_a_rule_there_is_and_ends_as_a_sentence() {
        for (rule, model, why) in WHY {
            assert!(crate::rule::find(rule).is_some(), "{rule}");
            assert!(["", super::super::event::MODEL, super::super::window::MODEL].contains(model), "{model}");
            assert!(why.ends_with('.'), "{why}");
        }
    }
}
