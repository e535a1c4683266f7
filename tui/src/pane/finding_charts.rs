//! The small charts of what a finding rests on, with a cursor that reads them.

use collector::finding::{Finding, FindingState};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::Scene;
use super::findings::fitted;
use super::history::histories;
use crate::lane::{self, Axis, SPANS};
use crate::number;

/// Windows of the charts, at least.
const WINDOWS: usize = 120;

/// Windows that are looked at one by one for the highest.
const SINGLE: usize = 3_600;

/// How the charts are laid out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charts {
    /// Cells left of them.
    pub(super) lead: usize,
    /// Their cells.
    pub(super) cells: u16,
    /// Rows of each.
    pub(super) rows: usize,
    /// Cells the cursor stands left of now.
    pub(super) cursor: u16,
}

/// Adds the charts, each with its name, its value now or at the cursor, and its highest; ▼ marks where the finding began, ◆
/// the cursor.
pub(super) fn charts(scene: Scene<'_>, finding: &Finding, look: Charts, lines: &mut Vec<Line<'_>>) {
    let (world, theme) = (&**scene.world, scene.theme);
    let Charts { lead, cells, rows, cursor } = look;
    // As far back as it began: the chart of an incident without the incident is none.
    let age = world.now.saturating_sub(finding.first_t);
    let reaches = |windows: &usize| world.window_ns.saturating_mul(*windows as u64) > age.saturating_add(age / 8);
    let windows = SPANS.into_iter().filter(|windows| *windows >= WINDOWS).find(reaches);
    let axis = Axis::new(world.now, windows.unwrap_or(SPANS[SPANS.len() - 1]), world.window_ns, cells);
    let histories = histories(world, finding, &axis);
    if histories.is_empty() {
        return;
    }
    // A cell is the mean of its windows; the highest is that of one window, as in the evidence.
    let by_window = Axis { width: u16::try_from(axis.windows).unwrap_or(u16::MAX), ..axis };
    let unsummed = if axis.windows > usize::from(cells) && axis.windows <= SINGLE {
        super::history::histories(world, finding, &by_window)
    } else {
        Vec::new()
    };
    let at = cells.saturating_sub(1).saturating_sub(cursor);
    let began = axis.cell(finding.first_t);
    let mut rule: Vec<char> = format!("{} ago ", number::span(axis.span_ns())).chars().collect();
    let (from, cells) = (rule.len(), usize::from(cells));
    rule.resize(cells.max(from), '─');
    // The time where the charts begin is dearer than a mark in the same place, but for the cursor.
    for (cell, mark, always) in [(began, '▼', false), (Some(at).filter(|_| cursor > 0), '◆', true)] {
        if let Some(place) = cell.and_then(|cell| rule.get_mut(usize::from(cell)))
            && (always || cell.is_some_and(|cell| usize::from(cell) >= from))
        {
            *place = mark;
        }
    }
    let what = if cursor == 0 { "until" } else { "at" };
    let time = number::moment(world, if cursor == 0 { world.now } else { axis.time(at) }, false);
    let left = format!(" {:<wide$}", format!("{what:<5} {time}"), wide = lead - 1);
    let left_style = if cursor == 0 { theme.dim } else { theme.strong };
    lines.push(Line::from(vec![
        Span::styled(left, left_style),
        Span::styled(rule.into_iter().collect::<String>(), theme.rule),
    ]));
    let style = if finding.state == FindingState::Cleared { theme.dim } else { theme.severity(finding.severity) };
    for history in histories {
        let most = history.values.iter().flatten().copied().fold(0.0, f64::max);
        let value = history.values.get(usize::from(at)).copied().flatten();
        let single = unsummed.iter().filter(|single| single.name == history.name).flat_map(|single| &single.values);
        let highest = single.flatten().copied().fold(most, f64::max);
        let (value, most_text) = (history.write.text(value), history.write.text(Some(highest)));
        let labels = if rows > 1 {
            [history.name, format!("{value}  max {most_text}")]
        } else {
            let name = fitted(&history.name, (lead - 3).saturating_sub(value.chars().count()));
            [format!("{name} {value}"), String::new()]
        };
        for (row, bars) in lane::rows(&history.values, most, rows).into_iter().enumerate() {
            let wide = lead - 2;
            let label: String = labels.get(row).map_or_else(String::new, |label| fitted(label, wide));
            let look = if row == 0 && rows > 1 { theme.strong } else { theme.dim };
            let mut spans = vec![Span::styled(format!(" {label:<wide$} "), look)];
            if cursor == 0 {
                spans.push(Span::styled(bars, style));
            } else {
                let part = |from: usize, n: usize| bars.chars().skip(from).take(n).collect::<String>();
                let at = usize::from(at);
                spans.push(Span::styled(part(0, at), style));
                spans.push(Span::styled(part(at, 1), style.add_modifier(Modifier::REVERSED)));
                spans.push(Span::styled(part(at + 1, cells), style));
            }
            lines.push(Line::from(spans));
        }
    }
}
