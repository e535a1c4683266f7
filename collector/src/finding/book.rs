//! The book that keeps conclusions from one window to the next: what is raised, what changed, what is over.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Conclusion, Finding, FindingState, SubjectKey, Verdict};
use crate::observation::Nanos;

/// Raised findings of one rule beyond this number are only counted: a storm of subjects must not drown the rest.
const MAX_RAISED_PER_RULE: usize = 256;
/// Cleared findings that are remembered for the screen.
const MAX_CLEARED: usize = 256;

/// A raised finding.
#[derive(Debug, Clone)]
struct Raised {
    /// As it was told last.
    told: Arc<Finding>,
    /// The same with the newest numbers: a condition that holds for long is not told again and again, and is not shown with
    /// what was measured when it began.
    shown: Arc<Finding>,
}

impl Raised {
    fn new(finding: Arc<Finding>) -> Self {
        Self { told: finding.clone(), shown: finding }
    }
}

/// Raised and recently cleared findings.
#[derive(Debug, Clone, Default)]
pub struct Book {
    raised: BTreeMap<(&'static str, SubjectKey), Raised>,
    cleared: Vec<Arc<Finding>>,
    /// Subjects that could not be raised because the rule had too many already.
    pub overflow: u64,
}

impl Book {
    /// The raised finding of a rule about a subject, with its newest numbers.
    #[must_use]
    pub fn raised(&self, rule: &'static str, key: &SubjectKey) -> Option<&Arc<Finding>> {
        self.raised.get(&(rule, key.clone())).map(|raised| &raised.shown)
    }

    /// All raised findings with their newest numbers, by rule and subject.
    pub fn all_raised(&self) -> impl Iterator<Item = &Arc<Finding>> {
        self.raised.values().map(|raised| &raised.shown)
    }

    /// Recently cleared findings, oldest first.
    #[must_use]
    pub fn cleared(&self) -> &[Arc<Finding>] {
        &self.cleared
    }

    /// Takes a rule's verdicts on all its subjects at `now` and appends what changed to `changes`. A raised finding
    /// about a subject the rule said nothing of is cleared.
    pub fn enter(&mut self, rule: &'static str, now: Nanos, verdicts: Vec<Verdict>, changes: &mut Vec<Arc<Finding>>) {
        let mut said: Vec<SubjectKey> = Vec::with_capacity(verdicts.len());
        for verdict in verdicts {
            match verdict {
                Verdict::Keep(key) => said.push(key),
                Verdict::Stays(key, part_of, summary) => {
                    said.push(key.clone());
                    self.stay((rule, key), now, (part_of, summary), changes);
                }
                Verdict::Holds(conclusion) => {
                    said.push(conclusion.key.clone());
                    self.hold(rule, now, *conclusion, changes);
                }
            }
        }
        said.sort_unstable();
        let over: Vec<SubjectKey> = self
            .raised
            .range((rule, SubjectKey::Node)..)
            .take_while(|((id, _), _)| *id == rule)
            .map(|((_, key), _)| key)
            .filter(|key| said.binary_search(key).is_err())
            .cloned()
            .collect();
        for key in over {
            if let Some(raised) = self.raised.remove(&(rule, key)) {
                let mut finding = Arc::unwrap_or_clone(raised.told);
                finding.t = now;
                finding.state = FindingState::Cleared;
                let finding = Arc::new(finding);
                changes.push(finding.clone());
                if self.cleared.len() == MAX_CLEARED {
                    self.cleared.remove(0);
                }
                self.cleared.push(finding);
            }
        }
    }

    /// The finding was there before the root it is a part of, and that is over: a sign stands for itself again.
    fn led_to_what_is_over(&self, finding: &Finding) -> bool {
        let Some(root) = &finding.part_of else { return false };
        let over = self.cleared.iter().rev().find(|cleared| cleared.id() == *root);
        over.is_some_and(|over| finding.first_t < over.first_t)
    }

    /// The id of the root a finding is a part of now. What followed from a root stays its consequence when the root is over
    /// first.
    fn root(&self, old: Option<&Finding>, part_of: Option<(&'static str, SubjectKey)>) -> Option<String> {
        let root = part_of.and_then(|root| self.raised.get(&root)).map(|root| root.told.id());
        root.or_else(|| {
            let old = old.filter(|old| !self.led_to_what_is_over(old))?;
            old.part_of.clone()
        })
    }

    fn stay(
        &mut self,
        slot: (&'static str, SubjectKey),
        now: Nanos,
        (part_of, summary): (Option<(&'static str, SubjectKey)>, Option<String>),
        changes: &mut Vec<Arc<Finding>>,
    ) {
        let Some(raised) = self.raised.get_mut(&slot) else { return };
        if let Some(summary) = summary {
            Arc::make_mut(&mut raised.shown).summary = summary;
        }
        let shown = raised.shown.clone();
        let part_of = self.root(Some(&shown), part_of);
        if shown.part_of == part_of {
            return;
        }
        let finding =
            Arc::new(Finding { t: now, state: FindingState::Updated, part_of, ..Arc::unwrap_or_clone(shown) });
        changes.push(finding.clone());
        self.raised.insert(slot, Raised::new(finding));
    }

    fn hold(&mut self, rule: &'static str, now: Nanos, new: Conclusion, changes: &mut Vec<Arc<Finding>>) {
        let slot = (rule, new.key.clone());
        let old = self.raised.get(&slot).map(|raised| &raised.told);
        let part_of = self.root(old.map(|old| &**old), new.part_of.clone());
        let state = match old {
            None => {
                let siblings = self.raised.range((rule, SubjectKey::Node)..).take_while(|((id, _), _)| *id == rule);
                if siblings.count() >= MAX_RAISED_PER_RULE {
                    self.overflow += 1;
                    return;
                }
                FindingState::Raised
            }
            Some(old) => {
                let same = old.severity == new.severity
                    && old.grade == new.grade
                    && old.revision == new.revision
                    && old.part_of == part_of;
                if same {
                    if let Some(raised) = self.raised.get_mut(&slot) {
                        refresh(&mut raised.shown, now, new);
                    }
                    return;
                }
                FindingState::Updated
            }
        };
        // What was over began anew after that, whatever the windows reach back to.
        let over =
            || self.cleared.iter().rev().find(|over| (over.rule, &over.key) == (rule, &new.key)).map(|over| over.t);
        let first_t = old.map_or_else(|| new.since.max(over().unwrap_or(0)), |old| old.first_t);
        let finding = Arc::new(Finding {
            t: now,
            rule,
            subject: new.subject,
            severity: new.severity,
            grade: new.grade,
            state,
            summary: new.summary,
            evidence: new.evidence,
            advice: new.advice,
            would_raise: new.would_raise,
            part_of,
            first_t,
            measured_t: now,
            key: new.key,
            revision: new.revision,
        });
        changes.push(finding.clone());
        self.raised.insert(slot, Raised::new(finding));
    }
}

/// The condition holds still: the newest numbers of it.
fn refresh(shown: &mut Arc<Finding>, now: Nanos, new: Conclusion) {
    let says = shown.says(&new);
    let shown = Arc::make_mut(shown);
    shown.measured_t = now;
    if !says {
        (shown.summary, shown.evidence) = (new.summary, new.evidence);
        (shown.advice, shown.would_raise) = (new.advice, new.would_raise);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_that_comes_again_does_not_begin_before_it_was_over() {
        let mut book = Book::default();
        let mut changes = Vec::new();
        for (now, verdicts) in
            [(5, vec![conclusion(1, 0)]), (9, Vec::new()), (12, vec![conclusion(1, 0), conclusion(2, 0)])]
        {
            book.enter("x", now, verdicts, &mut changes);
        }
        let began: Vec<_> = changes.iter().map(|finding| (finding.subject.port, finding.first_t)).collect();
        assert_eq!(began, [(Some(1), 1), (Some(1), 1), (Some(1), 9), (Some(2), 1)]);
    }
    use crate::finding::{Grade, Severity, Subject};
    use crate::inventory::DeviceId;

    fn conclusion(port: u32, revision: u64) -> Verdict {
        Verdict::Holds(Box::new(Conclusion {
            key: SubjectKey::Port(DeviceId(0), port),
            subject: Subject { device: Some("d".into()), port: Some(port), ..Subject::default() },
            severity: Severity::Warning,
            grade: Grade::Suspected,
            summary: String::new(),
            evidence: Vec::new(),
            advice: String::new(),
            would_raise: String::new(),
            part_of: None,
            since: 1,
            revision,
        }))
    }

    fn states(changes: &[Arc<Finding>]) -> Vec<(u32, FindingState)> {
        changes.iter().map(|f| (f.subject.port.unwrap(), f.state)).collect()
    }

    #[test]
    fn a_finding_is_raised_once_updated_on_change_kept_in_the_band_and_cleared_when_nothing_is_said() {
        let mut book = Book::default();
        let mut changes = Vec::new();
        book.enter("a", 1, vec![conclusion(1, 0), conclusion(2, 0)], &mut changes);
        book.enter("a", 2, vec![conclusion(1, 0), Verdict::Keep(SubjectKey::Port(DeviceId(0), 2))], &mut changes);
        book.enter("a", 3, vec![conclusion(1, 7)], &mut changes);
        assert_eq!(
            states(&changes),
            [
                (1, FindingState::Raised),
                (2, FindingState::Raised),
                (1, FindingState::Updated),
                (2, FindingState::Cleared)
            ]
        );
    }

    #[test]
    fn a_condition_that_holds_is_shown_with_its_newest_numbers_and_told_only_when_it_changes() {
        let mut book = Book::default();
        let mut changes = Vec::new();
        let with = |summary: &str| {
            let Verdict::Holds(mut conclusion) = conclusion(1, 0) else { unreachable!("it holds") };
            conclusion.summary = summary.to_owned();
            vec![Verdict::Holds(conclusion)]
        };
        let key = SubjectKey::Port(DeviceId(0), 1);
        book.enter("a", 1, with("paused for 14 %"), &mut changes);
        book.enter("a", 5, with("paused for 42 %"), &mut changes);
        let shown = book.raised("a", &key).unwrap().clone();
        assert_eq!((&*shown.summary, shown.t, shown.measured_t), ("paused for 42 %", 1, 5));
        assert_eq!(states(&changes), [(1, FindingState::Raised)]);
        // Nothing is measured of it any more: the numbers and their time stay.
        book.enter("a", 8, vec![Verdict::Keep(key.clone())], &mut changes);
        book.enter("a", 9, vec![shown.again(None)], &mut changes);
        assert_eq!(book.raised("a", &key).unwrap().measured_t, 5);
        // What is over ends with what was told.
        book.enter("a", 10, vec![], &mut changes);
        assert_eq!((&*changes[1].summary, changes[1].t, changes[1].measured_t), ("paused for 14 %", 10, 1));
    }

    #[test]
    fn rules_do_not_clear_each_others_findings() {
        let mut book = Book::default();
        let mut changes = Vec::new();
        book.enter("a", 1, vec![conclusion(1, 0)], &mut changes);
        book.enter("b", 1, vec![conclusion(1, 0)], &mut changes);
        book.enter("a", 2, vec![], &mut changes);
        assert_eq!(book.all_raised().map(|f| f.rule).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_consequence_names_its_root_and_stays_one_when_the_root_is_over() {
        let mut book = Book::default();
        let mut changes = Vec::new();
        let follows = |revision| {
            let Verdict::Holds(mut conclusion) = conclusion(2, revision) else { unreachable!("it holds") };
            conclusion.part_of = Some(("a", SubjectKey::Port(DeviceId(0), 1)));
            Verdict::Holds(conclusion)
        };
        book.enter("a", 1, vec![conclusion(1, 0)], &mut changes);
        book.enter("b", 1, vec![follows(0)], &mut changes);
        book.enter("a", 2, vec![], &mut changes);
        book.enter("b", 2, vec![follows(1)], &mut changes);
        let of_b: Vec<_> = changes.iter().filter(|f| f.rule == "b").map(|f| f.part_of.as_deref()).collect();
        assert_eq!(of_b, [Some("a:d/1"), Some("a:d/1")]);
    }

    #[test]
    fn a_sign_that_led_to_a_root_stands_for_itself_again_when_that_is_over() {
        let mut book = Book::default();
        let mut changes = Vec::new();
        let at = |port: u32, since: Nanos, part_of| {
            let Verdict::Holds(mut conclusion) = conclusion(port, 0) else { unreachable!("it holds") };
            (conclusion.since, conclusion.part_of) = (since, part_of);
            Verdict::Holds(conclusion)
        };
        let root = Some(("a", SubjectKey::Port(DeviceId(0), 1)));
        book.enter("b", 1, vec![at(2, 1, None)], &mut changes);
        book.enter("a", 5, vec![at(1, 5, None)], &mut changes);
        book.enter("b", 6, vec![at(2, 1, root.clone())], &mut changes);
        book.enter("a", 7, vec![], &mut changes);
        book.enter("b", 8, vec![at(2, 1, None)], &mut changes);
        let of_b: Vec<_> = changes.iter().filter(|f| f.rule == "b").map(|f| f.part_of.as_deref()).collect();
        assert_eq!(of_b, [None, Some("a:d/1"), None]);
    }

    #[test]
    fn a_keep_alone_raises_nothing() {
        let mut book = Book::default();
        let mut changes = Vec::new();
        book.enter("a", 1, vec![Verdict::Keep(SubjectKey::Node)], &mut changes);
        assert!(changes.is_empty());
    }

    #[test]
    fn a_storm_of_subjects_is_bounded_and_counted() {
        let mut book = Book::default();
        let mut changes = Vec::new();
        book.enter("a", 1, (0..300).map(|port| conclusion(port, 0)).collect(), &mut changes);
        assert_eq!(changes.len(), MAX_RAISED_PER_RULE);
        assert_eq!(book.overflow, 300 - MAX_RAISED_PER_RULE as u64);
    }
}
