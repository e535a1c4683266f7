//! `findings`: what is raised now, and what was cleared recently.

use std::sync::Arc;

use serde::Serialize;

use super::notes::why_no_port;
use super::table::{Align, Table, age};
use crate::finding::{Finding, FindingState};
use crate::incident::{self, Place};
use crate::inventory::World;

/// `findings --json`; stable.
#[derive(Debug, Serialize)]
pub struct FindingsReport<'w> {
    /// Raised findings, worst first, each followed by what follows from it; then those cleared, newest first.
    pub findings: Vec<&'w Finding>,
}

/// Builds the report.
#[must_use]
pub fn report(world: &World) -> FindingsReport<'_> {
    FindingsReport { findings: world.findings.iter().chain(&world.cleared).map(|finding| &**finding).collect() }
}

/// Findings of the world as a table, what follows from another one marked below it; used by `check` too.
#[must_use]
pub fn text(world: &World, findings: &[&Finding]) -> String {
    let mut table = Table::new(&[
        ("SEVERITY", Align::Left),
        ("AGE", Align::Right),
        ("SUBJECT", Align::Left),
        ("RULE", Align::Left),
        ("GRADE", Align::Left),
        ("WHAT", Align::Left),
    ]);
    let places = incident::places(&world.findings);
    for finding in findings {
        let place =
            world.findings.iter().position(|other| std::ptr::eq(Arc::as_ptr(other), *finding)).map(|at| places[at]);
        let rule = match place {
            Some(Place::Part) => format!("└ {}", finding.rule),
            Some(Place::Root(parts)) if parts > 0 => format!("{} +{parts}", finding.rule),
            _ => finding.rule.to_owned(),
        };
        let age_s = world.now.saturating_sub(finding.first_t) / 1_000_000_000;
        let cleared = finding.state == FindingState::Cleared;
        table.row(vec![
            if cleared { format!("({})", finding.severity.name()) } else { finding.severity.name().to_owned() },
            age(age_s),
            finding.subject.to_string(),
            rule,
            finding.grade.name().to_owned(),
            if cleared { format!("cleared: {}", finding.summary) } else { finding.summary.clone() },
        ]);
    }
    match why_no_port(world) {
        _ if !table.is_empty() => table.to_string(),
        None => "no finding\n".to_owned(),
        // Where nothing is seen, that nothing was found says nothing.
        Some(why) => format!("no finding: {why}\n"),
    }
}
