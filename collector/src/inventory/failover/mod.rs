//! Failovers: what happened between the first sign of a fault on a port and the first operation on another path, when,
//! and how sure each time is (docs/failover.md).
//!
//! [`stopwatch`] follows the incidents while they are under way; [`Failover`] is one of them as it is told.

mod first_sign;
mod incident;
pub(crate) mod stopwatch;

use std::sync::Arc;

use serde::Serialize;

use super::PortKey;
use crate::observation::Nanos;

/// When something happened: at `t` when `not_before` is the same (an event told it), otherwise after `not_before` and at
/// `t` the latest (a reading showed it). `CLOCK_MONOTONIC` ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// When it was seen.
    pub t: Nanos,
    /// It was not so yet.
    pub not_before: Nanos,
}

impl Moment {
    /// An event told it.
    #[must_use]
    pub fn at(t: Nanos) -> Self {
        Self { t, not_before: t }
    }

    /// A reading showed it that was not so at `not_before`.
    #[must_use]
    pub fn between(not_before: Nanos, t: Nanos) -> Self {
        Self { t, not_before: not_before.min(t) }
    }

    /// The time from here to `to`, as certain as the two are. Never less than zero.
    #[must_use]
    pub fn until(self, to: Self) -> Span {
        Span { min_ns: to.not_before.saturating_sub(self.t), max_ns: to.t.saturating_sub(self.not_before) }
    }
}

/// A time between two moments, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    /// At least.
    pub min_ns: u64,
    /// At most.
    pub max_ns: u64,
}

/// A moment, and what was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// When.
    #[serde(flatten)]
    pub at: Moment,
    /// What, for people.
    pub what: String,
}

/// How the port's QPs ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// No QP is known to have ended.
    None,
    /// All were moved by their process while the port was still up.
    Graceful,
    /// All died, or were moved when the port was down already.
    Abrupt,
    /// Some the one, some the other, or it cannot be told.
    Mixed,
}

impl Ending {
    /// The word in JSON and in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Graceful => "graceful",
            Self::Abrupt => "abrupt",
            Self::Mixed => "mixed",
        }
    }
}

/// The QPs of the port that ended in the incident.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Qps {
    /// Moved to SQD or ERR by their process before the port was down.
    pub drained: u32,
    /// Went to the error state, or had error completions, before anybody asked for it.
    pub died: u32,
    /// Moved by their process when the port was down already.
    pub late: u32,
    /// Moved by their process at a time that may have been before or after the port was down.
    pub unsure: u32,
    /// Not looked at: too many.
    pub uncounted: u32,
}

impl Qps {
    /// How many ended how, in words; `None` where there was none.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let parts = [
            (self.drained, "drained"),
            (self.died, "died"),
            (self.late, "moved late"),
            (self.unsure, "unsure"),
            (self.uncounted, "not looked at"),
        ];
        let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The least time after which an unanswered request ends the QP: 4.096 µs · 2^timeout · (`retry_cnt` + 1) (InfiniBand
/// Architecture Specification 1.4, 9.7.6.1.3 and 11.2.5.3; devices may take up to four times as long).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Floor {
    /// Of the QP that gives up first, ns; null when none ever does.
    pub min_ns: Option<u64>,
    /// Of the QP that gives up last, ns; null when one never does.
    pub max_ns: Option<u64>,
    /// QPs that never give up: timeout 0, or `retry_cnt` 7 on a device that takes it as without end (rxe).
    pub endless: u32,
    /// Timers of the last one: ACK timeout exponent and retries.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
}

/// The floor of one QP's timers, ns; `None` is without end.
#[must_use]
pub(crate) fn floor_ns(timeout: u8, retry_cnt: u8, seven_is_endless: bool) -> Option<u64> {
    if timeout == 0 || (retry_cnt >= 7 && seven_is_endless) {
        return None;
    }
    Some((4096u64 << timeout.min(31)).saturating_mul(u64::from(retry_cnt) + 1))
}

/// Whether an outage kept within a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It did, whatever the uncertainty.
    Met,
    /// It did not, whatever the uncertainty.
    Missed,
    /// The times are not exact enough to tell, or the first operation is not known and may have been overlooked.
    Undecided,
}

impl Verdict {
    /// The word in JSON and in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
        }
    }
}

/// A budget and its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Budget {
    /// The budget, ms.
    pub ms: f64,
    /// The verdict.
    pub verdict: Verdict,
}

/// A path that took over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replacement {
    /// Device name.
    pub device: Arc<str>,
    /// Port, where known.
    pub port: Option<u32>,
    /// QP number.
    pub qpn: u32,
}

/// One incident on a port; its JSON form is a promise (docs/json.md).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failover {
    /// Counts the incidents since the start, from 1.
    pub id: u32,
    /// Device name.
    pub device: Arc<str>,
    /// Port number.
    pub port: u32,
    /// t0: the first sign, before anything ended.
    pub first_sign: Option<Mark>,
    /// t1: the port left ACTIVE.
    pub port_down: Option<Mark>,
    /// t2: the first QP died or was moved.
    pub first_qp: Option<Mark>,
    /// t3: the bond chose another active member.
    pub bond_switch: Option<Mark>,
    /// t4: the first completed operation, or what was posted first, on another path.
    pub first_operation: Option<Mark>,
    /// The port was ACTIVE again.
    pub port_up: Option<Mark>,
    /// How the QPs ended.
    pub ending: Ending,
    /// How many of them in which way.
    pub qps: Qps,
    /// What their timers allow at best.
    pub floor: Option<Floor>,
    /// The path that took over.
    pub replacement: Option<Replacement>,
    /// From the first sign to the outage's begin: the time there was to drain.
    pub warning: Option<Span>,
    /// From the outage's begin (the earlier of port down and first QP) to the first QP.
    pub reaction: Option<Span>,
    /// From the first QP to the first operation.
    pub recovery: Option<Span>,
    /// From the outage's begin to the first operation.
    pub outage: Option<Span>,
    /// Verdicts on the outage.
    pub budgets: Vec<Budget>,
    /// Nothing more is expected; `None` while it is under way.
    pub closed_t: Option<Nanos>,
    /// The port's identity.
    #[serde(skip)]
    pub key: PortKey,
}

impl Failover {
    fn new(id: u32, key: PortKey, device: Arc<str>) -> Self {
        Self {
            id,
            device,
            port: key.port,
            first_sign: None,
            port_down: None,
            first_qp: None,
            bond_switch: None,
            first_operation: None,
            port_up: None,
            ending: Ending::None,
            qps: Qps::default(),
            floor: None,
            replacement: None,
            warning: None,
            reaction: None,
            recovery: None,
            outage: None,
            budgets: Vec::new(),
            closed_t: None,
            key,
        }
    }

    /// When the path stopped carrying data: the port was down, a QP died or was moved, or the bond switched, whichever
    /// came first. Which one it was may not be certain.
    #[must_use]
    pub fn began(&self) -> Option<Moment> {
        let marks = [&self.port_down, &self.first_qp, &self.bond_switch];
        let marks = || marks.into_iter().flatten().map(|mark| mark.at);
        Some(Moment::between(marks().map(|at| at.not_before).min()?, marks().map(|at| at.t).min()?))
    }

    /// The five times in their order, each with its name and what is known of it.
    #[must_use]
    pub fn lanes(&self) -> [(&'static str, &'static str, Option<&Mark>); 5] {
        [
            ("t0", "first sign", self.first_sign.as_ref()),
            ("t1", "port down", self.port_down.as_ref()),
            ("t2", if self.ending == Ending::Graceful { "drain begins" } else { "first QP" }, self.first_qp.as_ref()),
            ("t3", "bond switches", self.bond_switch.as_ref()),
            ("t4", "first operation", self.first_operation.as_ref()),
        ]
    }

    /// The outage is not over and has lasted for so long: budgets that are shorter are missed.
    fn lasts(&mut self, at_least_ns: u64, budgets_ms: &[f64]) {
        let over = |ms: &f64| if at_least_ns as f64 / 1e6 > *ms { Verdict::Missed } else { Verdict::Undecided };
        self.budgets = budgets_ms.iter().map(|ms| Budget { ms: *ms, verdict: over(ms) }).collect();
    }

    /// What became of it, for people: `over` alone would say of a port that is down that all is well. It is told from what the
    /// incident saw: the port's state of today is that of a later one.
    #[must_use]
    pub fn standing(&self) -> &'static str {
        match (&self.first_operation, &self.port_up, &self.bond_switch) {
            (Some(_), ..) => "taken over",
            (None, Some(_), _) => "port is back",
            (None, None, Some(_)) => "bond has switched",
            _ if self.closed_t.is_none() => "under way",
            _ => "no takeover seen",
        }
    }

    /// The phases and verdicts anew from the marks.
    fn judge(&mut self, budgets_ms: &[f64]) {
        let began = self.began();
        let to = |mark: &Option<Mark>| mark.as_ref().map(|mark| mark.at);
        let span = |from: Option<Moment>, to: Option<Moment>| Some(from?.until(to?));
        self.warning = span(to(&self.first_sign), began);
        self.reaction = span(began, to(&self.first_qp));
        self.recovery = span(to(&self.first_qp), to(&self.first_operation));
        self.outage = span(began, to(&self.first_operation));
        self.budgets = budgets_ms.iter().map(|ms| Budget { ms: *ms, verdict: verdict(self.outage, *ms) }).collect();
        let Qps { drained, died, late, unsure, uncounted } = self.qps;
        // How those ended that were not looked at is not known.
        self.ending = match (drained, died + late, unsure.saturating_add(uncounted)) {
            (0, 0, 0) => Ending::None,
            (_, 0, 0) => Ending::Graceful,
            (0, _, 0) => Ending::Abrupt,
            _ => Ending::Mixed,
        };
    }
}

fn verdict(outage: Option<Span>, budget_ms: f64) -> Verdict {
    let ms = |ns: u64| ns as f64 / 1e6;
    match outage {
        Some(span) if ms(span.max_ns) <= budget_ms => Verdict::Met,
        Some(span) if ms(span.min_ns) > budget_ms => Verdict::Missed,
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_timers_product_and_endless_where_nobody_gives_up() {
        assert_eq!(floor_ns(14, 3, true), Some(268_435_456));
        assert_eq!(floor_ns(14, 7, false), Some(536_870_912));
        assert_eq!((floor_ns(14, 7, true), floor_ns(0, 3, false)), (None, None));
        assert_eq!(floor_ns(31, 7, false), Some(4096 * (1 << 31) * 8));
    }

    #[test]
    fn qps_that_were_not_looked_at_leave_the_ending_open() {
        let ending = |qps| {
            let key = PortKey { device: crate::inventory::DeviceId(0), port: 1 };
            let mut failover = Failover { qps, ..Failover::new(1, key, "d".into()) };
            failover.judge(&[]);
            failover.ending
        };
        for (drained, died, alone) in [(2, 0, Ending::Graceful), (0, 2, Ending::Abrupt)] {
            assert_eq!(ending(Qps { drained, died, ..Qps::default() }), alone);
            assert_eq!(ending(Qps { drained, died, uncounted: 1, ..Qps::default() }), Ending::Mixed);
        }
    }

    #[test]
    fn a_verdict_needs_both_ends_of_the_uncertainty() {
        let span = |min: u64, max: u64| Some(Span { min_ns: min * 1_000_000, max_ns: max * 1_000_000 });
        assert_eq!(verdict(span(10, 40), 50.0), Verdict::Met);
        assert_eq!(verdict(span(60, 400), 50.0), Verdict::Missed);
        assert_eq!(verdict(span(10, 400), 50.0), Verdict::Undecided);
        assert_eq!(verdict(None, 50.0), Verdict::Undecided);
    }

    #[test]
    fn a_span_is_as_uncertain_as_both_of_its_ends() {
        let span = Moment::between(10, 20).until(Moment::between(15, 50));
        assert_eq!((span.min_ns, span.max_ns), (0, 40));
        let span = Moment::at(10).until(Moment::at(35));
        assert_eq!((span.min_ns, span.max_ns), (25, 25));
    }
}
