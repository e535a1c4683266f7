//! A finding in one line of a list, or in as many as its summary takes.

use std::sync::Arc;

use collector::finding::{Finding, FindingState, Severity};
use collector::incident::Place;
use collector::inventory::World;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::{Scene, put, row, wrap};
use crate::number;
use crate::table::{self, Column};
use crate::theme::severity_word;

/// The columns of a list of findings; the rule goes first, then the grade.
fn finding_columns(world: &World) -> [Column; 6] {
    let subject = |finding: &Arc<Finding>| finding.subject.to_string().chars().count();
    let widest = world.findings.iter().chain(&world.cleared).map(subject).max().unwrap_or(0).clamp(10, 20);
    [
        table::text("", 4, 255),
        table::number("", 7, 200),
        table::text("", u16::try_from(widest).unwrap_or(20), 210),
        table::text("", 18, 20),
        table::text("", 24, 255).growing(),
        table::text("", 9, 30),
    ]
}

/// The place of the summary among them.
const SUMMARY: usize = 4;

/// A finding's summary in the lines it takes in a list of this width.
pub(crate) fn summary(world: &World, finding: &Finding, width: u16) -> Vec<String> {
    let placed = table::fit(&finding_columns(world), width.saturating_sub(1), 0);
    let wide = placed.iter().find(|place| place.index == SUMMARY).map_or(24, |place| place.width);
    wrap(&finding.summary, usize::from(wide))
}

/// One finding, marked when it follows from the one above, or with how many follow from it; what of the summary does not fit into one line goes on below, if the area has a row for it.
pub(crate) fn draw_finding(
    scene: Scene<'_>,
    area: Rect,
    buf: &mut Buffer,
    (finding, place): (&Arc<Finding>, Place),
    selected: bool,
) {
    let (world, theme) = (scene.world, scene.theme);
    let cleared = finding.state == FindingState::Cleared;
    let severity = if cleared { "over" } else { severity_word(finding.severity) };
    let style = |style: Style| if cleared { theme.dim } else { style };
    let lasted = if cleared { finding.t } else { world.now };
    let loud = style(if finding.severity == Severity::Critical { theme.critical } else { theme.text });
    let mut lines =
        if area.height > 1 { summary(scene.world, finding, area.width) } else { vec![finding.summary.clone()] };
    let first = if lines.is_empty() { String::new() } else { lines.remove(0) };
    let rule = match place {
        Place::Root(0) => finding.rule.to_owned(),
        Place::Root(parts) => format!("{} +{parts}", finding.rule),
        Place::Part => format!("└ {}", finding.rule),
    };
    let cells = [
        Line::styled(severity, style(theme.severity_word(finding.severity))),
        Line::styled(number::age(lasted.saturating_sub(finding.first_t)), style(theme.text)),
        Line::styled(finding.subject.to_string(), style(theme.strong)),
        Line::styled(rule, style(theme.dim)),
        Line::styled(first, loud),
        Line::styled(finding.grade.name(), style(theme.dim)),
    ];
    if selected {
        buf.set_style(area, theme.selected);
        put(buf, area, 0, &Line::raw("►"));
    }
    let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
    let columns = finding_columns(world);
    let placed = table::fit(&columns, inner.width, 0);
    table::draw_row(buf, inner, &columns, &placed, &cells);
    for (at, line) in (1u16..).zip(lines) {
        let mut cells = vec![Line::raw(""); columns.len()];
        cells[SUMMARY] = Line::styled(line, loud);
        table::draw_row(buf, row(inner, at), &columns, &placed, &cells);
    }
}
