//! The targets of docs/accuracy.md: against which each rule is judged with each model, and whether it is met; where not, what
//! is, why, and what was done about the grade.

use std::fmt::Write as _;

use super::Accuracy;
use super::report::{by_rule, join, share};
use super::tally::Tally;
use super::why::why;

/// Precision and recall seeing QPs, precision from counters only, false warnings a node-day.
const QPS: (f64, f64) = (0.95, 0.90);
const COUNTERS: f64 = 0.90;
const PER_DAY: f64 = 1.0;

/// A rule's figures against its targets, with one model.
struct Judged {
    rule: &'static str,
    model: &'static str,
    /// It said probable or better at least once: then only what it said so surely counts.
    sure: bool,
    /// At that grade.
    precision: Option<f64>,
    recall: Option<f64>,
    /// At any.
    any: (Option<f64>, Option<f64>),
    counters: Option<f64>,
    /// No trace has such a trouble: there is nothing to find, and whatever is told is wrong.
    nothing_there: bool,
    wrong: u64,
}

impl Judged {
    fn of((rule, model): (&'static str, &'static str), [qps, counters]: &[Tally; 2]) -> Self {
        let sure = qps.found_sure > 0;
        Self {
            rule,
            model,
            sure,
            precision: if sure { qps.precision_sure() } else { qps.precision() },
            recall: if sure { qps.recall_sure() } else { qps.recall() },
            any: (qps.precision(), qps.recall()),
            counters: counters.precision(),
            nothing_there: qps.there + counters.there == 0,
            wrong: qps.wrong + counters.wrong,
        }
    }

    fn grade(&self) -> &'static str {
        if self.sure { "probable" } else { "suspected" }
    }

    /// Which targets are missed, with the figures.
    fn short(&self) -> Vec<String> {
        let (grade, mut short) = (self.grade(), Vec::new());
        let mut least = |what: String, figure: Option<f64>, target: f64, any: Option<f64>| {
            if let Some(figure) = figure.filter(|figure| *figure < target) {
                let any = any.filter(|any| any - figure >= 0.0005).map(|any| format!(" (at any grade {any:.3})"));
                short.push(format!("{what} {figure:.3} < {target:.2}{}", any.unwrap_or_default()));
            }
        };
        least(format!("precision at {grade}"), self.precision, QPS.0, None);
        least(format!("recall at {grade}"), self.recall, QPS.1, self.any.1);
        least("precision from counters only".to_owned(), self.counters, COUNTERS, None);
        if self.nothing_there && self.wrong > 0 {
            short.push("spoke where it had no business".to_owned());
        }
        short
    }

    fn row(&self) -> String {
        let cell = |figure: Option<f64>, target: f64| match figure {
            Some(figure) if figure < target => format!("**{figure:.3}**"),
            figure => share(figure),
        };
        format!(
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            self.rule,
            self.model,
            self.grade(),
            cell(self.precision, QPS.0),
            cell(self.recall, QPS.1),
            cell(self.counters, COUNTERS),
            word(self.short().is_empty()).to_lowercase()
        )
    }
}

fn word(met: bool) -> &'static str {
    if met { "Met" } else { "**Not met**" }
}

/// Writes the section.
pub(super) fn write(out: &mut String, accuracy: &Accuracy) {
    let _ = writeln!(
        out,
        "## Targets\n\nSeeing QPs: precision ≥ {:.2} and recall ≥ {:.2}, of what is told at grade `probable` or better where the rule reaches \
         that grade, of all it\ntells where it is made to say no more than `suspected`. From counters only: precision ≥ {COUNTERS:.2}. At most {PER_DAY:.0} false \
         warning a node-day, and\nsomething told before a port falls.\n",
        QPS.0, QPS.1
    );
    let rules = by_rule(accuracy);
    let judged: Vec<Judged> = rules.iter().map(|(key, tallies)| Judged::of(*key, tallies)).collect();
    out.push_str(
        "| rule | model | judged at | precision | recall | precision, counters only | |\n|---|---|---|---|---|---|---|\n",
    );
    for judged in judged.iter().filter(|judged| !judged.nothing_there || judged.wrong > 0) {
        let _ = writeln!(out, "{}", judged.row());
    }
    out.push('\n');
    for judged in judged.iter().filter(|judged| !judged.short().is_empty()) {
        let _ = write!(out, "- **Not met**: `{}` ({}): {}.", judged.rule, judged.model, judged.short().join(", "));
        let _ = match why(judged.rule) {
            Some(why) => writeln!(out, " {} {}", why.reason, why.grade),
            None => writeln!(out),
        };
    }
    let notes = |(key, [qps, _]): (&(&str, &str), &[Tally; 2])| {
        (qps.notes > 0).then(|| format!("`{}` ({}) {}", key.0, key.1, qps.notes))
    };
    let notes: Vec<String> = rules.iter().filter_map(notes).collect();
    let _ = writeln!(out, "- Notes (severity info) where no script has anything of the kind: {}.", join(&notes));
    let unmeasured: Vec<String> = crate::rule::all()
        .iter()
        .filter(|rule| rules.iter().all(|((id, _), [qps, _])| *id != rule.id() || qps.there == 0))
        .map(|rule| format!("`{}`", rule.id()))
        .collect();
    let _ = writeln!(out, "- Not measured, since no simulated trace has such a trouble: {}.", join(&unmeasured));
    let [qps, counters] = accuracy.calm.per_day();
    let _ = writeln!(
        out,
        "- {}: {qps:.2} false warnings a node-day seeing QPs, {counters:.2} from counters only, over {:.0} h.",
        word(qps.max(counters) <= PER_DAY),
        accuracy.calm.hours
    );
    let (falls, warned) = accuracy.cases.iter().fold((0, 0), |(f, w), case| (f + case.falls, w + case.warned));
    if falls > 0 {
        let met = word(warned == falls);
        let _ = writeln!(out, "- {met}: of {falls} ports that fell, {warned} had a right finding before.");
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Grade, Severity};

    /// Twenty troubles, of which so many are found, and so many at grade probable.
    fn judged(found: u64, sure: u64) -> Judged {
        let mut tally = Tally { there: 20, found, found_sure: sure, ..Tally::default() };
        for at in 0..found {
            let grade = if at < sure { Grade::Probable } else { Grade::Suspected };
            tally.tell(true, Severity::Warning, grade);
        }
        Judged::of(("ecn.missed", "packets"), &[tally, Tally::default()])
    }

    #[test]
    fn a_rule_that_reaches_probable_is_judged_by_what_it_says_so_and_another_by_all_it_says() {
        assert_eq!(judged(20, 0).short(), Vec::<String>::new());
        assert_eq!(judged(20, 19).short(), Vec::<String>::new());
        assert_eq!(judged(20, 5).short(), ["recall at probable 0.250 < 0.90 (at any grade 1.000)"]);
        assert_eq!(judged(5, 0).short(), ["recall at suspected 0.250 < 0.90"]);
    }

    #[test]
    fn the_row_says_at_which_grade_it_is_judged_and_marks_what_is_short() {
        assert_eq!(judged(20, 5).row(), "| `ecn.missed` | packets | probable | 1.000 | **0.250** | – | **not met** |");
        assert_eq!(judged(20, 0).row(), "| `ecn.missed` | packets | suspected | 1.000 | 1.000 | – | met |");
    }

    #[test]
    fn a_target_that_is_not_met_has_its_reason_and_what_became_of_the_grade() {
        use crate::score::{Case, why::why};
        let mut case = Case { name: "c".to_owned(), model: "packets", traces: 1, ..Case::default() };
        let tally = Tally { there: 20, found: 20, found_sure: 5, ..Tally::default() };
        case.rules.insert("ecn.missed", [tally, Tally::default()]);
        let mut page = String::new();
        write(&mut page, &Accuracy { cases: vec![case], ..Accuracy::default() });
        let why = why("ecn.missed").unwrap();
        assert!(page.contains(why.reason) && page.contains(why.grade), "{page}");
    }
}
