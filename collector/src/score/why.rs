//! Why a target is not met, and what was done about the grade: for each rule that may miss one, what the page says beside the
//! figures.

/// Why a rule misses a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Why {
    rule: &'static str,
    /// What its figures lack, and by what nature.
    pub(super) reason: &'static str,
    /// What its findings say of themselves for that.
    pub(super) grade: &'static str,
}

const WHY: &[Why] = &[
    Why {
        rule: "ecn.premature",
        reason: "Marks of short bursts and marks of nothing differ in the small operations that they delay, and histograms by powers \
                 of two show that only where a queue takes the latency over the next power. Counters alone do not show it.",
        grade: "Without QPs it is suspected at most, and silent unless nearly every mark makes a CNP and few packets are marked.",
    },
    Why {
        rule: "ecn.rail_asymmetry",
        reason: "A rail is compared over four windows, twelve where marks are few, with rails of a like load: where congestion \
                 control slows it down by more than a fifth, or the usual thresholds mark the others nearly as often, it does \
                 not stand out.",
        grade: "It is silent there.",
    },
    Why {
        rule: "ecn.missed",
        reason: "Pause and loss without a mark show it, and they are counted for the whole port. Latencies confirm that its own \
                 operations meet the queue only where they can be set against an empty one: in an incast, or with a fault that \
                 is there from the start, the queue is never empty and no quiet level is known. Where queues are long but stop or \
                 lose next to nothing, only latency tells of them, and a busy host's own send queues raise latency just so.",
        grade: "Without that comparison it is suspected; without pause or loss it is silent.",
    },
    Why {
        rule: "ecn.not_ect",
        reason: "From counters it is a part of `ecn.missed` and needs the same pause or loss; only packets show the bits.",
        grade: "It is suspected at most unless a packet source sees them.",
    },
    Why {
        rule: "qp.cache_pressure",
        reason: "Where the QPs themselves fill more than four fifths of the link, a queue there explains a longer latency as well as \
                 missing contexts do; and contexts whose fetching makes operations less than half as long again do not show in \
                 latencies by powers of two. Where no window had fewer QPs and a like number of requests, the load explains the \
                 latency too.",
        grade: "Then it is suspected. On a busy link it is a note, suspected, by the number of QPs alone; without a longer latency it is silent.",
    },
    Why {
        rule: "nic.stuck",
        reason: "Reads of one source that do not come back may be that source's own trouble.",
        grade: "It is probable once a second one stops too.",
    },
];

/// Why a rule may miss a target.
pub(super) fn why(rule: &str) -> Option<&'static Why> {
    WHY.iter().find(|why| why.rule == rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_of_a_rule_there_is_and_ends_as_a_sentence() {
        for why in WHY {
            assert!(crate::rule::find(why.rule).is_some(), "{why:?}");
            assert!(why.reason.ends_with('.') && why.grade.ends_with('.'), "{why:?}");
        }
    }
}
