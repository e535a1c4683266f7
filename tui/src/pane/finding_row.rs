//! A finding in a list: in one line, or with its whole summary below that line.

use std::sync::Arc;

use collector::finding::{Finding, FindingState, Severity};
use collector::incident::Place;
use collector::inventory::World;
use collector::observation::Nanos;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::beginning::from_the_start;
use super::{Scene, put, row, wrap};
use crate::number;
use crate::table::{self, Column};
use crate::theme::severity_word;

/// Cells a summary that stands below its line is moved in.
const INDENT: u16 = 6;

/// A finding with its place among others.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'f> {
    /// The finding.
    pub(crate) finding: &'f Arc<Finding>,
    /// It follows from the one above, or so many follow from it.
    pub(crate) place: Place,
    /// So many more of the same rule are told by this line.
    pub(crate) others: usize,
    /// That of them which began first.
    pub(crate) first: &'f Arc<Finding>,
}

fn subject(finding: &Finding, place: Place, others: usize) -> String {
    let mark = if place == Place::Part { "└" } else { "" };
    let more = if others > 0 { format!(" +{others}") } else { String::new() };
    format!("{mark}{}{more}", name(finding))
}

/// The subject without the PCI domain that nearly every node has only one of.
fn name(finding: &Finding) -> String {
    finding.subject.to_string().replace(" 0000:", " ")
}

/// For how long, at most seven characters; `>` where it began before anybody watched.
fn lasted(world: &World, finding: &Finding, to: Nanos) -> String {
    let ns = to.saturating_sub(finding.first_t);
    let age = number::age(ns);
    match ns / 1_000_000_000 {
        _ if !from_the_start(world, finding) => age,
        s @ 3_600..86_400 => format!(">{}h {:02}m", s / 3_600, s / 60 % 60),
        _ => format!(">{age}"),
    }
}

/// The columns of a list of findings; the rule goes first, then the grade.
fn columns(world: &World) -> [Column; 6] {
    // With the mark of a part, or with how many more there are.
    let wide = |finding: &Arc<Finding>| name(finding).chars().count() + 3;
    let widest = world.findings.iter().chain(&world.cleared).map(wide).max().unwrap_or(0).clamp(11, 20);
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

/// The line above a summary that stands below it.
fn lead_columns(world: &World) -> [Column; 5] {
    let [severity, age, subject, _, _, grade] = columns(world);
    [severity, age, subject, table::text("", 20, 255).growing(), grade]
}

/// The summary in the lines it takes below its line; none when it fits into the line.
fn summary(world: &World, finding: &Finding, width: u16) -> Vec<String> {
    let placed = table::fit(&columns(world), width.saturating_sub(1), 0);
    let wide = placed.iter().find(|place| place.index == SUMMARY).map_or(24, |place| place.width);
    if finding.summary.chars().count() <= usize::from(wide) {
        return Vec::new();
    }
    wrap(&finding.summary, usize::from(width.saturating_sub(INDENT + 1)).max(20))
}

/// The rows a finding takes with its whole summary, at this width.
pub(crate) fn rows(world: &World, finding: &Finding, width: u16) -> u16 {
    u16::try_from(summary(world, finding, width).len()).unwrap_or(u16::MAX - 1) + 1
}

/// One finding: in one line where the area has no more or the summary fits into it, else with the summary below.
pub(crate) fn draw_finding(scene: Scene<'_>, area: Rect, buf: &mut Buffer, entry: Entry<'_>, selected: bool) {
    let (world, theme, finding) = (scene.world, scene.theme, entry.finding);
    let cleared = finding.state == FindingState::Cleared;
    let severity = if cleared { "over" } else { severity_word(finding.severity) };
    let style = |style: Style| if cleared { theme.dim } else { style };
    let until = if cleared { finding.t } else { world.now };
    let loud = style(if finding.severity == Severity::Critical { theme.critical } else { theme.text });
    let rule = match entry.place {
        Place::Root(0) | Place::Part => finding.rule.to_owned(),
        Place::Root(parts) => format!("{} +{parts}", finding.rule),
    };
    let lead = [
        Line::styled(severity, style(theme.severity_word(finding.severity))),
        Line::styled(lasted(world, entry.first, until), style(theme.text)),
        Line::styled(subject(finding, entry.place, entry.others), style(theme.strong)),
    ];
    let grade = Line::styled(finding.grade.name(), style(theme.dim));
    if selected {
        buf.set_style(area, theme.selected);
        put(buf, area, 0, &Line::raw("►"));
    }
    let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
    let below = if area.height > 1 { summary(world, finding, area.width) } else { Vec::new() };
    if below.is_empty() {
        let [severity, age, subject] = lead;
        let cells = [
            severity,
            age,
            subject,
            Line::styled(rule, style(theme.dim)),
            Line::styled(&*finding.summary, loud),
            grade,
        ];
        let columns = columns(world);
        table::draw_row(buf, inner, &columns, &table::fit(&columns, inner.width, 0), &cells);
        return;
    }
    let [severity, age, subject] = lead;
    let follow = match entry.place {
        Place::Root(0) | Place::Part => String::new(),
        Place::Root(1) => "  1 finding belongs to it".to_owned(),
        Place::Root(parts) => format!("  {parts} findings belong to it"),
    };
    let named = Line::from(vec![Span::styled(finding.rule, style(theme.text)), Span::styled(follow, style(theme.dim))]);
    let cells = [severity, age, subject, named, grade];
    let columns = lead_columns(world);
    table::draw_row(buf, inner, &columns, &table::fit(&columns, inner.width, 0), &cells);
    let shown = usize::from(area.height) - 1;
    for (at, line) in (1u16..).zip(below.iter().take(shown)) {
        let cut = usize::from(at) == shown && below.len() > shown;
        let place = Rect { x: area.x + INDENT, width: area.width.saturating_sub(INDENT + 1), ..row(area, at) };
        let text = if cut { format!("{line} …") } else { line.clone() };
        put(buf, place, 0, &Line::styled(text, loud));
    }
}
