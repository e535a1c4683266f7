//! `findings`: what is raised now, and what was cleared recently.

use serde::Serialize;

use super::table::{Align, Table};
use crate::finding::{Finding, FindingState};
use crate::inventory::World;

/// `findings --json`; stable.
#[derive(Debug, Serialize)]
pub struct FindingsReport<'w> {
    /// Raised findings, worst first, then those cleared, newest first.
    pub findings: Vec<&'w Finding>,
}

/// Builds the report.
#[must_use]
pub fn report(world: &World) -> FindingsReport<'_> {
    FindingsReport { findings: world.findings.iter().chain(&world.cleared).map(|finding| &**finding).collect() }
}

/// Raised findings as a table; used by `check` too.
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
    for finding in findings {
        let age_s = world.now.saturating_sub(finding.first_t) / 1_000_000_000;
        let cleared = finding.state == FindingState::Cleared;
        table.row(vec![
            if cleared { format!("({})", finding.severity.name()) } else { finding.severity.name().to_owned() },
            format!("{}:{:02}", age_s / 60, age_s % 60),
            finding.subject.to_string(),
            finding.rule.to_owned(),
            finding.grade.name().to_owned(),
            if cleared { format!("cleared: {}", finding.summary) } else { finding.summary.clone() },
        ]);
    }
    if table.is_empty() { "no finding\n".to_owned() } else { table.to_string() }
}
