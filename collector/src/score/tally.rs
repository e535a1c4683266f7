//! The counts of scoring.

use std::collections::BTreeMap;

use crate::finding::{Grade, Severity};

/// Counts of one rule under one way of seeing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Troubles (or seconds of them) that were there.
    pub there: u64,
    /// Those that were found.
    pub found: u64,
    /// Those that were found at grade probable or better.
    pub found_sure: u64,
    /// Findings (or seconds of them) that were right, and that were wrong.
    pub right: u64,
    /// See `right`.
    pub wrong: u64,
    /// Findings of severity info that no truth asked for: notes are neither right nor wrong.
    pub notes: u64,
    /// Right and wrong ones by the highest grade the finding reached: suspected, probable, confirmed.
    pub by_grade: [(u64, u64); 3],
    /// Seconds from the beginning of the trouble to the finding, of those found.
    pub delays_s: Vec<f64>,
}

impl Tally {
    /// Share of what was there that was found; `None` when nothing was.
    #[must_use]
    pub fn recall(&self) -> Option<f64> {
        (self.there > 0).then(|| self.found as f64 / self.there as f64)
    }

    /// The same at grade probable or better.
    #[must_use]
    pub fn recall_sure(&self) -> Option<f64> {
        (self.there > 0).then(|| self.found_sure as f64 / self.there as f64)
    }

    /// Share of what was told at grade probable or better that was right; `None` when nothing was.
    #[must_use]
    pub fn precision_sure(&self) -> Option<f64> {
        let [_, (right, wrong), (sure_right, sure_wrong)] = self.by_grade;
        share(right + sure_right, wrong + sure_wrong)
    }

    /// Share of what was told that was right; `None` when nothing was told.
    #[must_use]
    pub fn precision(&self) -> Option<f64> {
        share(self.right, self.wrong)
    }

    /// The same for one grade.
    #[must_use]
    pub fn precision_at(&self, grade: Grade) -> Option<f64> {
        let (right, wrong) = self.by_grade[index(grade)];
        share(right, wrong)
    }

    /// Median time to detect, s.
    #[must_use]
    pub fn median_delay_s(&self) -> Option<f64> {
        let mut sorted = self.delays_s.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    pub(super) fn tell(&mut self, right: bool, severity: Severity, grade: Grade) {
        let by = &mut self.by_grade[index(grade)];
        if right {
            self.right += 1;
            by.0 += 1;
        } else if severity > Severity::Info {
            self.wrong += 1;
            by.1 += 1;
        } else {
            self.notes += 1;
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.there += other.there;
        self.found += other.found;
        self.found_sure += other.found_sure;
        self.right += other.right;
        self.wrong += other.wrong;
        self.notes += other.notes;
        for (sum, (right, wrong)) in self.by_grade.iter_mut().zip(other.by_grade) {
            sum.0 += right;
            sum.1 += wrong;
        }
        self.delays_s.extend_from_slice(&other.delays_s);
    }
}

fn share(right: u64, wrong: u64) -> Option<f64> {
    (right + wrong > 0).then(|| right as f64 / (right + wrong) as f64)
}

fn index(grade: Grade) -> usize {
    match grade {
        Grade::Suspected => 0,
        Grade::Probable => 1,
        Grade::Confirmed => 2,
    }
}

/// Everything of one kind of trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Case {
    /// The fault or class.
    pub name: String,
    /// The model that made the traces.
    pub model: &'static str,
    /// Traces.
    pub traces: u64,
    /// By rule: seeing QPs, and from counters only.
    pub rules: BTreeMap<&'static str, [Tally; 2]>,
    /// Traces with a fall of a port, those in which something was told before it, and how long before, s.
    pub falls: u64,
    /// See `falls`.
    pub warned: u64,
    /// See `falls`.
    pub leads_s: Vec<f64>,
}

impl Case {
    pub(super) fn add(&mut self, other: Self) {
        self.traces += other.traces;
        self.falls += other.falls;
        self.warned += other.warned;
        self.leads_s.extend(other.leads_s);
        for (rule, tallies) in other.rules {
            let have = self.rules.entry(rule).or_default();
            for (sum, tally) in have.iter_mut().zip(&tallies) {
                sum.add(tally);
            }
        }
    }
}

/// Hours in which nothing was wrong.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calm {
    /// Simulated hours.
    pub hours: f64,
    /// Nodes.
    pub nodes: u64,
    /// Findings by rule and severity word: seeing QPs, and from counters only.
    pub alarms: BTreeMap<(&'static str, &'static str), [u64; 2]>,
    /// One sentence of each rule that was wrong, to look into.
    pub sentences: BTreeMap<&'static str, String>,
}

impl Calm {
    pub(super) fn add(&mut self, other: &Self) {
        self.hours += other.hours;
        self.nodes += other.nodes;
        for (key, counts) in &other.alarms {
            let have = self.alarms.entry(*key).or_default();
            for (sum, n) in have.iter_mut().zip(counts) {
                *sum += n;
            }
        }
        for (rule, sentence) in &other.sentences {
            self.sentences.entry(rule).or_insert_with(|| sentence.clone());
        }
    }

    /// Warnings and critical findings in a day: seeing QPs, and from counters only.
    #[must_use]
    pub fn per_day(&self) -> [f64; 2] {
        let mut sums = [0; 2];
        for (_, counts) in self.alarms.iter().filter(|((_, severity), _)| *severity != "info") {
            sums[0] += counts[0];
            sums[1] += counts[1];
        }
        sums.map(|n| if self.hours > 0.0 { n as f64 * 24.0 / self.hours } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_nothing_are_unknown_and_not_zero() {
        let mut tally = Tally::default();
        assert_eq!((tally.recall(), tally.precision(), tally.median_delay_s()), (None, None, None));
        tally.there = 4;
        tally.found = 3;
        tally.tell(true, Severity::Info, Grade::Probable);
        tally.tell(false, Severity::Warning, Grade::Suspected);
        tally.tell(false, Severity::Info, Grade::Probable);
        assert_eq!((tally.recall(), tally.precision()), (Some(0.75), Some(0.5)));
        assert_eq!(tally.precision_at(Grade::Probable), Some(1.0));
        assert_eq!(tally.precision_at(Grade::Confirmed), None);
    }
}
