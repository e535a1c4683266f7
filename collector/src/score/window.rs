//! ECN traces of the packet model, judged by second: a finding is right in a second in which the queue says so.
//!
//! A rule needs time to be sure and time to let go. A second of trouble counts as missed only when the trouble has lasted
//! for [`SETTLE_S`] without the finding; a second of a finding counts as wrong only when there was no trouble for as long.
//! Only `ecn.*` is judged on these traces.

use super::tally::{Case, Tally};
use super::watch::{Seen, Told, Trouble, Watch};
use crate::finding::Grade;
use crate::observation::Nanos;
use crate::rule::Settings;
use crate::sim::labelled::{CLASSES, Options, UNCLEAR_PREMATURE, trace};

/// The model that makes these traces.
pub(super) const MODEL: &str = "packets";
/// Time a rule may take to be sure, and to let go, s.
pub(super) const SETTLE_S: u64 = 4;
const SECOND_NS: Nanos = 1_000_000_000;

/// The classes of traces there are.
pub(super) fn classes() -> Vec<&'static str> {
    CLASSES.iter().map(|class| class.name).collect()
}

pub(super) fn judge(class: &str, seed: u64, settings: &Settings) -> Option<Case> {
    let options = Options::default();
    let mut trace = trace(class, seed, &options)?;
    let mut watch = Watch::new(&trace.header(), settings);
    while trace.step(&mut |observation| watch.take(observation)) {}
    Some(count(class, options.duration_ns / SECOND_NS, &watch.finish()))
}

fn count(class: &str, seconds: u64, seen: &Seen) -> Case {
    let mut case = Case { name: class.to_owned(), model: MODEL, traces: 1, ..Case::default() };
    let mut subjects: Vec<(&str, Option<&str>)> =
        seen.troubles.iter().map(|trouble| (trouble.class.as_str(), Some(trouble.device.as_str()))).collect();
    subjects.extend(seen.told.iter().flatten().map(|told| (told.rule, told.device.as_deref())));
    subjects.retain(|(rule, _)| rule.starts_with("ecn."));
    subjects.sort_unstable();
    subjects.dedup();
    for (rule, device) in subjects {
        let Some(rule) = crate::rule::find(rule) else { continue };
        let of_subject = |trouble: &&Trouble| trouble.class == rule.id() && device.is_none_or(|d| d == trouble.device);
        let troubles: Vec<&Trouble> = seen.troubles.iter().filter(of_subject).collect();
        let unclear: Vec<&Trouble> = seen
            .troubles
            .iter()
            .filter(|t| t.class == UNCLEAR_PREMATURE && rule.id() == "ecn.premature")
            .filter(|t| device.is_none_or(|d| d == t.device))
            .collect();
        for (at, told) in seen.told.iter().enumerate() {
            let told: Vec<&Told> =
                told.iter().filter(|told| told.rule == rule.id() && told.device.as_deref() == device).collect();
            by_second(seconds, &troubles, &unclear, &told, &mut case.rules.entry(rule.id()).or_default()[at]);
        }
    }
    case
}

fn by_second(seconds: u64, troubles: &[&Trouble], unclear: &[&Trouble], told: &[&Told], tally: &mut Tally) {
    let holds = |list: &[&Trouble], s: u64| list.iter().any(|t| t.from <= s * SECOND_NS && s * SECOND_NS < t.to);
    let trouble = |s: u64| holds(troubles, s);
    for s in 0..seconds {
        let end = (s + 1) * SECOND_NS;
        let up = told.iter().find(|told| told.raised <= end && end < told.cleared);
        let lately = s.saturating_sub(SETTLE_S)..=s;
        let right = lately.clone().any(trouble);
        // Where the truth was unclear lately, a finding is right or not counted.
        let counted = right || !lately.clone().any(|s| holds(unclear, s));
        if let Some(up) = up.filter(|up| !up.consequence && counted) {
            tally.tell(right, up.severity, up.grade);
        }
        if s >= SETTLE_S && lately.clone().all(trouble) {
            tally.there += 1;
            tally.found += u64::from(up.is_some());
            tally.found_sure += u64::from(up.is_some_and(|up| up.grade >= Grade::Probable));
        }
    }
    for trouble in troubles.iter().filter(|t| t.to.saturating_sub(t.from) > SETTLE_S * SECOND_NS) {
        let first =
            told.iter().filter(|told| told.cleared > trouble.from && told.raised < trouble.to).map(|t| t.raised);
        tally.delays_s.extend(first.min().map(|raised| raised.saturating_sub(trouble.from) as f64 / 1e9));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn told(raised: u64, cleared: u64) -> Told {
        Told {
            rule: "ecn.premature",
            device: None,
            id: String::new(),
            raised: raised * SECOND_NS,
            cleared: cleared * SECOND_NS,
            grade: Grade::Probable,
            severity: Severity::Warning,
            consequence: false,
            sentence: String::new(),
        }
    }

    fn counted(from: u64, to: u64, told: &[&Told]) -> Tally {
        let trouble = Trouble {
            class: "ecn.premature".to_owned(),
            device: "d".to_owned(),
            from: from * SECOND_NS,
            to: to * SECOND_NS,
        };
        let mut tally = Tally::default();
        by_second(20, &[&trouble], &[], told, &mut tally);
        tally
    }

    #[test]
    fn a_rule_may_take_its_time_to_be_sure_and_to_let_go() {
        let tally = counted(5, 12, &[&told(9, 16)]);
        assert_eq!((tally.there, tally.found, tally.wrong), (3, 3, 0));
        assert_eq!((tally.right, tally.delays_s), (7, vec![4.0]));
    }

    #[test]
    fn what_comes_too_late_or_stays_too_long_counts() {
        let late = counted(5, 15, &[&told(13, 15)]);
        assert_eq!((late.there, late.found), (6, 2));
        let long = counted(5, 10, &[&told(8, 20)]);
        assert_eq!((long.right, long.wrong), (7, 5));
    }

    #[test]
    fn a_second_that_is_unclear_is_neither_right_nor_wrong() {
        let span = |from: u64, to: u64| Trouble {
            class: UNCLEAR_PREMATURE.to_owned(),
            device: "d".to_owned(),
            from: from * SECOND_NS,
            to: to * SECOND_NS,
        };
        let mut tally = Tally::default();
        by_second(20, &[], &[&span(5, 10)], &[&told(0, 20)], &mut tally);
        // Seconds 5 to 13 had it lately.
        assert_eq!((tally.there, tally.right, tally.wrong), (0, 0, 10));
    }

    #[test]
    fn silence_where_something_is_is_no_precision_and_no_recall() {
        let tally = counted(0, 20, &[]);
        assert_eq!((tally.recall(), tally.precision()), (Some(0.0), None));
    }
}
