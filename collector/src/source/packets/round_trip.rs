//! How long a request of one QP waits for its answer, where the other end is elsewhere.
//!
//! Measured is what was sent once and answered by its own number. A number sent again says nothing (which of the two was
//! answered?), nor does an answer to several requests at once for any but the last.

use std::collections::VecDeque;

/// Requests that wait at once; beyond that the oldest are left out.
const MOST_WAITING: usize = 256;
const PSN_MASK: u32 = 0x00ff_ffff;

/// The requests of one QP.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    /// The newest number sent.
    newest: Option<u32>,
    waiting: VecDeque<(u32, u64)>,
    last_cnp_ns: Option<u64>,
}

impl RoundTrips {
    /// A request was sent; `answered` when a packet of its own number answers it.
    pub(super) fn sent(&mut self, psn: u32, at_ns: u64, answered: bool) {
        if self.newest.is_some_and(|newest| !after(psn, newest)) {
            // Go back N: from here on everything is sent again.
            self.waiting.retain(|(waiting, _)| after(psn, *waiting));
            return;
        }
        self.newest = Some(psn);
        if answered {
            if self.waiting.len() == MOST_WAITING {
                self.waiting.pop_front();
            }
            self.waiting.push_back((psn, at_ns));
        }
    }

    /// A congestion notification arrived.
    pub(super) fn notified(&mut self, at_ns: u64) {
        self.last_cnp_ns = Some(at_ns);
    }

    /// A positive answer arrived; `ce`: with a mark. Returns the time the request waited, and whether it met a queue that
    /// marks: its answer was marked, or a notification came meanwhile.
    pub(super) fn answered(&mut self, psn: u32, at_ns: u64, ce: bool) -> Option<(bool, u64)> {
        let mut waited = None;
        while let Some((waiting, sent_ns)) = self.waiting.front().copied() {
            if after(waiting, psn) {
                break;
            }
            self.waiting.pop_front();
            if waiting == psn {
                let notified = self.last_cnp_ns.is_some_and(|cnp_ns| cnp_ns >= sent_ns);
                waited = at_ns.checked_sub(sent_ns).map(|ns| (ce || notified, ns));
            }
        }
        waited
    }
}

/// `a` comes after `b` in the circle of 24-bit numbers (IBA 9.7.1: a number is valid half a circle ahead).
fn after(a: u32, b: u32) -> bool {
    let ahead = a.wrapping_sub(b) & PSN_MASK;
    ahead != 0 && ahead < 0x0080_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_measured_by_the_answer_of_its_number_also_where_numbers_wrap() {
        let mut trips = RoundTrips::default();
        trips.sent(PSN_MASK, 100, true);
        trips.sent(0, 200, true);
        assert_eq!(trips.answered(PSN_MASK, 150, false), Some((false, 50)));
        assert_eq!(trips.answered(0, 900, true), Some((true, 700)));
        assert_eq!(trips.answered(0, 950, false), None, "a second answer");
    }

    #[test]
    fn an_answer_to_several_requests_measures_the_last_one() {
        let mut trips = RoundTrips::default();
        for psn in 1..=3 {
            trips.sent(psn, u64::from(psn), true);
        }
        assert_eq!(trips.answered(2, 10, false), Some((false, 8)));
        assert_eq!(trips.answered(3, 10, false), Some((false, 7)));
    }

    #[test]
    fn what_is_sent_again_and_all_after_it_is_not_measured() {
        let mut trips = RoundTrips::default();
        for psn in 1..=3 {
            trips.sent(psn, u64::from(psn), true);
        }
        trips.sent(2, 1000, true);
        trips.sent(3, 1001, true);
        assert_eq!(trips.answered(1, 1002, false), Some((false, 1001)));
        assert_eq!(trips.answered(2, 1003, false), None);
        assert_eq!(trips.answered(3, 1003, false), None);
        trips.sent(4, 1010, true);
        assert_eq!(trips.answered(4, 1020, false), Some((false, 10)));
    }

    #[test]
    fn a_notification_while_a_request_waits_says_that_it_met_a_queue() {
        let mut trips = RoundTrips::default();
        trips.sent(1, 100, true);
        trips.notified(150);
        trips.sent(2, 160, true);
        assert_eq!(trips.answered(1, 200, false), Some((true, 100)));
        assert_eq!(trips.answered(2, 200, false), Some((false, 40)));
    }
}
