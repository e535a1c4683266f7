//! docs/accuracy.md, and the same figures as a table for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::tally::{Case, Tally};
use super::{Accuracy, Plan, targets};
use crate::finding::Grade;

/// By rule and model over all traces: seeing QPs, and from counters only.
pub(super) fn by_rule(accuracy: &Accuracy) -> BTreeMap<(&'static str, &'static str), [Tally; 2]> {
    let mut rules: BTreeMap<(&'static str, &'static str), [Tally; 2]> = BTreeMap::new();
    for case in &accuracy.cases {
        for (rule, tallies) in &case.rules {
            for (sum, tally) in rules.entry((rule, case.model)).or_default().iter_mut().zip(tallies) {
                sum.add(tally);
            }
        }
    }
    rules
}

pub(super) fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
}

fn delay(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1} s"))
}

/// Columns of the terminal's table.
const WIDTHS: [usize; 7] = [6, 7, 9, 9, 7, 9, 9];

/// The figures of a rule in the order in which every table has them: what was there, recall, precision and delay seeing QPs,
/// and the latter three from counters only.
fn figures([qps, counters]: &[Tally; 2]) -> Vec<String> {
    let three = |tally: &Tally| [share(tally.recall()), share(tally.precision()), delay(tally.median_delay_s())];
    let [seeing, alone] = [qps, counters].map(three);
    std::iter::once(qps.there.to_string()).chain(seeing).chain(alone).collect()
}

/// A table for a terminal.
#[must_use]
pub fn table(accuracy: &Accuracy) -> String {
    let mut out = format!(
        "{:<24} {:<8} {:>6} {:>7} {:>9} {:>9} | {:>7} {:>9} {:>9}\n",
        "rule", "model", "there", "recall", "precision", "delay", "recall", "precision", "delay"
    );
    for ((rule, model), tallies) in by_rule(accuracy) {
        let _ = write!(out, "{rule:<24} {model:<8}");
        for (at, figure) in figures(&tallies).iter().enumerate() {
            let (bar, width) = ([" ", " | "][usize::from(at == 4)], WIDTHS[at]);
            let _ = write!(out, "{bar}{figure:>width$}");
        }
        out.push('\n');
    }
    let [qps, counters] = accuracy.calm.per_day();
    let _ = writeln!(
        out,
        "false warnings a node-day over {:.0} h: {qps:.2} seeing QPs, {counters:.2} from counters only",
        accuracy.calm.hours
    );
    for sentence in accuracy.calm.sentences.values() {
        let _ = writeln!(out, "  {sentence}");
    }
    for case in &accuracy.cases {
        for (at, sees) in [(0, "seeing QPs"), (1, "from counters only")] {
            let wrong = wrong(case, at);
            if wrong != "none" {
                let _ = writeln!(out, "  wrong in {} ({}) {sees}: {wrong}", case.name, case.model);
            }
        }
    }
    out
}

/// The page.
#[must_use]
pub fn page(accuracy: &Accuracy, plan: &Plan, command: &str) -> String {
    let mut out = String::from(
        "# How accurate the rules are\n\n\
         Measured on simulated traces of which the truth is known, because no public collection of labelled incidents \
         exists.\n**A simulator is not a data centre**: these figures say that the rules do what they are meant to on the \
         physics they are\nmade for. They do not say how often your fabric does something that nobody modelled.\n\n",
    );
    let _ = writeln!(
        out,
        "This page is written by `{command}`; do not edit it. Seeds count from {}; {}.\n{} traces of {}; {} nodes of {} hours \
         in which nothing is wrong.\n",
        plan.first_seed,
        if plan.first_seed >= super::FIRST_SEED {
            "the rules were tuned on smaller ones"
        } else {
            "**the rules were tuned on such seeds**, so these figures are too good"
        },
        plan.traces,
        if plan.only.is_empty() { "each kind".to_owned() } else { plan.only.join(", ") },
        plan.nodes,
        plan.hours
    );
    definitions(&mut out);
    targets::write(&mut out, accuracy);
    rules(&mut out, accuracy);
    grades(&mut out, accuracy);
    cases(&mut out, accuracy);
    falls(&mut out, accuracy);
    calm(&mut out, accuracy);
    out
}

fn definitions(out: &mut String) {
    let _ = writeln!(
        out,
        "## Definitions\n\n\
         - **Models.** *windows*: the simulated node of eight rails, whose congestion is looked up in a table made from the \
         packet model\n  (`cargo xtask bench sim` prints how far it is from it). *packets*: one queue and its senders, packet by \
         packet\n  (docs/whatif.md). Every trace is seen twice: with QP statistics, and with counters only.\n\
         - **Faults, by event.** A trouble is found when its rule speaks of its device between its beginning and its end, \
         or 2 s later.\n  A finding is right when such a trouble was there, wrong otherwise. One that the engine itself told as a \
         consequence of\n  another finding, or that the fault's script lists as a by-product, is neither; nor is a note (severity info) that \
         no script asked\n  for, of which the tables below tell the number.\n\
         - **ECN, by second.** The queue says for every second whether the class's finding is right: `ecn.premature` while at \
         least six in\n  ten marks are premature (K* = 0.17·C·RTT, L = 2), more than one packet in 10,000 is marked, and less \
         than 0.48 of the rate is\n  carried (the rule does not speak of busy links); where it is four to six in ten, or the link is busier, or \
         half as many\n  are marked, the second counts neither way; `ecn.missed` while the queue is congested for more than 5 % of the \
         second and\n  less than one packet in 100,000 is marked; the rest while the fault is on. A second without the finding counts as missed once the trouble has lasted {} s; a \
         second with it\n  counts as wrong once the trouble has been over for {} s. Only `ecn.*` is judged there.\n\
         - **Low thresholds** in *windows* (kmin-low, rail-kmin-low): the traffic is drawn so that they mark more than 1.5 packets \
         in 10,000;\n  with fewer nobody is slowed down.\n\
         - **Recall**: found / there. **Precision**: right / (right + wrong). **Delay**: median seconds from the beginning of \
         the trouble\n  to the finding. A dash: there was nothing to divide by.\n",
        super::window::SETTLE_S,
        super::window::SETTLE_S
    );
}

pub(super) fn join(list: &[String]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

fn rules(out: &mut String, accuracy: &Accuracy) {
    out.push_str(
        "## By rule\n\n\
         | rule | model | there | recall | precision | delay | counters only: recall | precision | delay |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for ((rule, model), tallies) in by_rule(accuracy) {
        let _ = writeln!(out, "| `{rule}` | {model} | {} |", figures(&tallies).join(" | "));
    }
    out.push('\n');
}

fn grades(out: &mut String, accuracy: &Accuracy) {
    out.push_str(
        "## By grade\n\nPrecision by the highest grade a finding reached, and (right + wrong) in brackets.\n\n\
         | rule | model | sees | suspected | probable | confirmed |\n|---|---|---|---|---|---|\n",
    );
    for ((rule, model), tallies) in by_rule(accuracy) {
        for (tally, sees) in tallies.iter().zip(["QPs", "counters"]) {
            let cell = |at: usize, grade| {
                let (right, wrong) = tally.by_grade[at];
                if right + wrong == 0 {
                    "–".to_owned()
                } else {
                    format!("{} ({})", share(tally.precision_at(grade)), right + wrong)
                }
            };
            if tally.right + tally.wrong > 0 {
                let (a, b, c) = (cell(0, Grade::Suspected), cell(1, Grade::Probable), cell(2, Grade::Confirmed));
                let _ = writeln!(out, "| `{rule}` | {model} | {sees} | {a} | {b} | {c} |");
            }
        }
    }
    out.push('\n');
}

fn cases(out: &mut String, accuracy: &Accuracy) {
    out.push_str(
        "## By kind of trace\n\nWhat was found seeing QPs, and which rules were wrong: the confusion between classes.\n\n\
         | trace | model | traces | recall | wrong findings | wrong from counters only |\n|---|---|---|---|---|---|\n",
    );
    for case in &accuracy.cases {
        let (found, [qps, counters]) = (found(case), [0, 1].map(|at| wrong(case, at)));
        let _ = writeln!(out, "| {} | {} | {} | {found} | {qps} | {counters} |", case.name, case.model, case.traces);
    }
    out.push('\n');
}

fn found(case: &Case) -> String {
    let found: Vec<String> = case
        .rules
        .iter()
        .filter(|(_, tallies)| tallies[0].there > 0)
        .map(|(rule, tallies)| format!("`{rule}` {}", share(tallies[0].recall())))
        .collect();
    if found.is_empty() { "(nothing is there)".to_owned() } else { found.join(", ") }
}

/// What was wrong: seeing QPs (0), or from counters only (1).
fn wrong(case: &Case, at: usize) -> String {
    let wrong = case.rules.iter().filter(|(_, tallies)| tallies[at].wrong > 0);
    let notes = case.rules.iter().filter(|(_, tallies)| tallies[at].notes > 0);
    let all: Vec<String> = wrong
        .map(|(rule, tallies)| format!("`{rule}` {}", tallies[at].wrong))
        .chain(notes.map(|(rule, tallies)| format!("note `{rule}` {}", tallies[at].notes)))
        .collect();
    join(&all)
}

fn falls(out: &mut String, accuracy: &Accuracy) {
    let falls: Vec<&Case> = accuracy.cases.iter().filter(|case| case.falls > 0).collect();
    if falls.is_empty() {
        return;
    }
    out.push_str(
        "## Before a port falls\n\nFrom counters and PCIe events alone; the lead is that of the scripts, which are guesses: \
         nobody has published how long real\noptics and links take to die.\n\n\
         | trace | falls | with a right finding before | median lead |\n|---|---|---|---|\n",
    );
    for case in falls {
        let mut leads = case.leads_s.clone();
        leads.sort_by(f64::total_cmp);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            case.name,
            case.falls,
            case.warned,
            delay(leads.get(leads.len() / 2).copied())
        );
    }
    out.push('\n');
}

fn calm(out: &mut String, accuracy: &Accuracy) {
    let calm = &accuracy.calm;
    let _ = writeln!(
        out,
        "## Where nothing is wrong\n\n{:.0} simulated hours of {} nodes (model: windows): training of many patterns, idle times, \
         checkpoints, restarts of jobs with their\nQPs, congestion with marks and pauses, single receiver errors on PCIe, lost \
         symbols within a second, driver reloads between\njobs, polls that are left out.\n",
        calm.hours, calm.nodes
    );
    if calm.alarms.is_empty() {
        out.push_str("Nothing was told.\n");
        return;
    }
    out.push_str("| rule | severity | seeing QPs | counters only | for example |\n|---|---|---|---|---|\n");
    for ((rule, severity), [qps, counters]) in &calm.alarms {
        let sentence = calm.sentences.get(rule).map_or("", String::as_str);
        let _ = writeln!(out, "| `{rule}` | {severity} | {qps} | {counters} | {sentence} |");
    }
}
