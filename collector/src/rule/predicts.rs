//! Which rules predict a failure: applications that drain, and fail over, act on these.

/// Rules whose raised finding says that a port is about to fail, or is failing: uncorrected PCIe errors or a storm of
/// corrected ones, errors that FEC could not correct, the cross-check of several signs.
const PREDICTING: [&str; 4] = ["nic.composite", "pcie.aer_fatal", "pcie.aer_storm", "phy.post_fec"];

/// Rules whose findings can announce that a port will go down: `link.down` names those that were there before.
pub(super) const FALL_SIGNS: [&str; 10] = [
    "phy.pre_fec_trend",
    "phy.post_fec",
    "phy.crc",
    "phy.symbol",
    "link.flap",
    "pcie.aer_storm",
    "pcie.aer_fatal",
    "nic.health",
    "nic.stuck",
    "loopback.high",
];

/// A finding of this rule is a sign of the fall that comes after it.
#[must_use]
pub(crate) fn announces_fall(rule: &str) -> bool {
    FALL_SIGNS.contains(&rule)
}

/// A raised finding of this rule is a `predicted_failure`.
#[must_use]
pub fn predicts_failure(rule: &str) -> bool {
    PREDICTING.contains(&rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_the_way_to_the_host_predict_and_a_link_that_is_down_does_not() {
        assert!(predicts_failure("pcie.aer_fatal") && predicts_failure("nic.composite"));
        assert!(!predicts_failure("link.down") && !predicts_failure("qp.error_state"));
    }
}
