//! 5 Findings: the list by severity and age, those that are over dimmed below; the selected one in full.

use std::sync::Arc;

use collector::finding::{Book, Evidence, Finding, FindingState, Grade, SubjectKey};
use collector::incident::{self, Place};
use collector::inventory::{PortRecord, World};
use collector::rule::{self, Settings, View};
use collector::timeline::Ring;
use collector::timeline::counter_table::Meaning;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::finding_row::draw_finding;
use super::port::{LABEL, axis_line, lane_area};
use super::{Pane, PaneId, Reaction, Scene, Target, below, heading, put, row, wrap};
use crate::health;
use crate::key::Action;
use crate::lane::{self, Axis};
use crate::number;
use crate::selection::Selection;

/// Windows of the small charts.
const CHART_WINDOWS: usize = 120;
/// Small charts of one finding.
const MAX_CHARTS: usize = 3;

/// The pane.
#[derive(Default)]
pub(crate) struct Findings {
    list: Selection,
    /// The chosen finding stays chosen when the list moves.
    chosen: Option<(&'static str, SubjectKey)>,
    /// The detail has the whole pane.
    whole: bool,
    text: Selection,
    lines: usize,
}

impl Findings {
    /// Shows a finding.
    pub(crate) fn show(&mut self, rule: &'static str, key: SubjectKey) {
        *self = Self { chosen: Some((rule, key)), ..Self::default() };
    }

    fn follow(&mut self, findings: &[&Arc<Finding>]) {
        if let Some((rule, key)) = &self.chosen
            && let Some(at) = findings.iter().position(|f| f.rule == *rule && f.key == *key)
        {
            self.list.row = at;
        }
    }

    fn choose(&mut self, findings: &[&Arc<Finding>]) {
        self.chosen = findings.get(self.list.row).map(|f| (f.rule, f.key.clone()));
        self.text = Selection::default();
    }
}

/// Raised findings, worst and newest first, each followed by what follows from it; then those that are over.
fn all(world: &World) -> Vec<&Arc<Finding>> {
    world.findings.iter().chain(&world.cleared).collect()
}

impl Pane for Findings {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        let findings = all(scene.world);
        if findings.is_empty() {
            put(buf, area, 1, &Line::styled(" Nothing found so far.", scene.theme.good));
            let judged = rule::all().len();
            put(buf, area, 2, &Line::styled(format!(" {judged} rules are watching."), scene.theme.dim));
            return;
        }
        self.follow(&findings);
        let wanted = u16::try_from(findings.len()).unwrap_or(u16::MAX);
        let rows = if self.whole { 0 } else { wanted.min((area.height / 3).max(3)) };
        self.list.fit(findings.len(), usize::from(rows));
        let places = incident::places(&scene.world.findings);
        // What is over stands for itself.
        let place = |index: usize| places.get(index).copied().unwrap_or(Place::Root(0));
        let shown = findings.iter().enumerate().skip(self.list.top).take(usize::from(rows));
        for (line, (index, finding)) in (0u16..).zip(shown) {
            draw_finding(scene, row(area, line), buf, (*finding, place(index)), index == self.list.row);
        }
        let Some(finding) = findings.get(self.list.row) else { return };
        let rest = below(area, rows);
        heading(buf, rest, 0, &format!("{} of {}: {}", self.list.row + 1, findings.len(), finding.id()), scene.theme);
        let body = below(rest, 1);
        let charts = draw_charts(scene, body, buf, finding);
        let body = below(body, charts);
        let lines = detail(scene, finding, usize::from(body.width));
        self.lines = lines.len();
        self.text.height = usize::from(body.height);
        self.text.top = self.text.top.min(lines.len().saturating_sub(self.text.height));
        for (at, line) in (0u16..).zip(lines.iter().skip(self.text.top).take(self.text.height)) {
            put(buf, body, at, line);
        }
        if self.text.top + self.text.height < self.lines {
            let more = Line::styled(" ↓ more: Enter, then scroll ", scene.theme.info);
            let wide = u16::try_from(more.width()).unwrap_or(0).min(body.width);
            if body.height > 0 {
                buf.set_line(body.right() - wide, body.bottom() - 1, &more, wide);
            }
        }
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        let findings = all(scene.world);
        self.follow(&findings);
        match action {
            Action::Enter => self.whole = !self.whole,
            Action::Leave if self.whole => self.whole = false,
            Action::Copy => {
                let Some(finding) = findings.get(self.list.row) else { return Reaction::Done };
                return Reaction::Copy(as_text(scene, finding), "finding");
            }
            _ if self.whole && self.text.scroll(action, self.lines) => {}
            _ if !self.whole && self.list.act(action, findings.len()) => self.choose(&findings),
            _ => return Reaction::Ignored,
        }
        Reaction::Done
    }

    fn points_at(&self, pane: PaneId, scene: Scene<'_>) -> Option<Target> {
        let finding = *all(scene.world).get(self.list.row)?;
        match (pane, &finding.key) {
            (PaneId::Qp, SubjectKey::Qp(id)) => Some(Target::Qp(*id)),
            (PaneId::Port, _) => health::port_of(scene.world, finding).map(|port| Target::Port(port.key)),
            _ => None,
        }
    }

    fn click(&mut self, _column: u16, at: u16, scene: Scene<'_>) -> Reaction {
        let findings = all(scene.world);
        let index = self.list.top + usize::from(at);
        if self.whole || usize::from(at) >= self.list.height || index >= findings.len() {
            return Reaction::Ignored;
        }
        if index == self.list.row {
            self.whole = true;
        }
        self.list.row = index;
        self.choose(&findings);
        Reaction::Done
    }
}

/// The finding as plain text, for a ticket.
fn as_text(scene: Scene<'_>, finding: &Finding) -> String {
    let node = scene.world.header.host.as_deref().unwrap_or(number::UNKNOWN);
    let mut text = format!("{} on {node}\n", finding.id());
    // Not wrapped: commands are there to be pasted.
    for line in detail(scene, finding, usize::MAX) {
        for span in &line.spans {
            text.push_str(&span.content);
        }
        while text.ends_with(' ') {
            text.pop();
        }
        text.push('\n');
    }
    text
}

/// Everything that is known of a finding, in lines.
fn detail<'a>(scene: Scene<'_>, finding: &Finding, width: usize) -> Vec<Line<'a>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let mut lines: Vec<Line<'a>> = Vec::new();
    let section = |title: &str, text: &str, style: Style, lines: &mut Vec<Line<'a>>| {
        if text.is_empty() {
            return;
        }
        for (at, part) in wrap(text, width.saturating_sub(16).max(20)).into_iter().enumerate() {
            let lead = if at == 0 { title } else { "" };
            lines.push(Line::from(vec![Span::styled(format!(" {lead:<13} "), theme.dim), Span::styled(part, style)]));
        }
    };
    let over = finding.state == FindingState::Cleared;
    let since = number::moment(world, finding.first_t, true);
    let when = if over {
        let end = number::moment(world, finding.t, true);
        format!("since {since}, over at {end} ({})", number::age(finding.t.saturating_sub(finding.first_t)))
    } else {
        format!("since {since}, for {}", number::age(world.now.saturating_sub(finding.first_t)))
    };
    let head = format!("{} {}: {}", finding.severity.name().to_uppercase(), finding.subject, finding.summary);
    section("what", &head, if over { theme.dim } else { theme.severity(finding.severity) }, &mut lines);
    section("when", &when, theme.text, &mut lines);
    section("part of", finding.part_of.as_deref().unwrap_or(""), theme.text, &mut lines);
    let sure = if finding.grade == Grade::Confirmed || finding.would_raise.is_empty() {
        finding.grade.name().to_owned()
    } else {
        format!("{}; would be surer with: {}", finding.grade.name(), finding.would_raise)
    };
    section("how sure", &sure, theme.text, &mut lines);
    let rule = rule::find(finding.rule);
    section("meaning", rule.map_or("", |rule| rule.meaning()), theme.text, &mut lines);
    evidence(&finding.evidence, scene, &mut lines);
    section("do", &finding.advice, theme.strong, &mut lines);
    if let Some(rule) = rule {
        let (settings, book) = (Settings::default(), Book::default());
        let view = View { world, now: world.now, settings: &settings, book: &book };
        for command in rule.hand_check(&view, finding) {
            section("check by hand", &format!("$ {command}"), theme.info, &mut lines);
        }
    }
    lines
}

fn evidence(rows: &[Evidence], scene: Scene<'_>, lines: &mut Vec<Line<'_>>) {
    if rows.is_empty() {
        return;
    }
    let theme = scene.theme;
    let wide = rows.iter().map(|row| row.series.chars().count()).max().unwrap_or(0).clamp(20, 48);
    let head =
        format!(" {:<13} {:<wide$} {:>8} {:>10} {:>10}  {}", "evidence", "SERIES", "WINDOW", "VALUE", "LIMIT", "UNIT");
    lines.push(Line::styled(head, theme.title));
    for row in rows {
        let window = row.window_s.map_or_else(|| "event".to_owned(), |s| format!("{} s", number::plain(Some(s))));
        let limit = row.threshold.map_or_else(String::new, |limit| number::plain(Some(limit)).into_owned());
        let over = row.value.zip(row.threshold).is_some_and(|(value, limit)| value > limit);
        let style = if over { theme.warning } else { theme.text };
        lines.push(Line::from(vec![
            Span::raw(format!(" {:<13} {:<wide$} {window:>8} ", "", row.series)),
            Span::styled(format!("{:>10}", number::plain(row.value)), style),
            Span::raw(format!(" {limit:>10}  {}", row.unit)),
        ]));
    }
}

/// The histories a finding's evidence was taken from: the driver's name, its history, whether it is bytes.
fn histories<'w>(world: &'w World, finding: &Finding) -> Vec<(String, &'w Ring, bool)> {
    let Some(port) = health::port_of(world, finding) else { return Vec::new() };
    let mut found: Vec<(String, &Ring, bool)> = Vec::new();
    for row in &finding.evidence {
        if let Some((ring, bytes)) = history(port, &row.series)
            && !found.iter().any(|(name, _, _)| *name == row.series)
        {
            found.push((row.series.clone(), ring, bytes));
        }
    }
    // What the port carried meanwhile belongs under every chart.
    if found.len() < MAX_CHARTS
        && let Some(ring) = port.rates.get(&Meaning::RxBytes)
    {
        found.push(("RX".to_owned(), ring, true));
    }
    found.truncate(MAX_CHARTS);
    found
}

fn history<'w>(port: &'w PortRecord, name: &str) -> Option<(&'w Ring, bool)> {
    let series = port.counter(name)?;
    let ring = port.rates.get(&series.def.meaning?)?;
    Some((ring, series.def.unit.bytes_factor().is_some()))
}

/// Draws the small charts; says how many rows they took.
fn draw_charts(scene: Scene<'_>, area: Rect, buf: &mut Buffer, finding: &Finding) -> u16 {
    let (world, theme) = (&**scene.world, scene.theme);
    let histories = histories(world, finding);
    if histories.is_empty() || area.height < 12 {
        return 0;
    }
    let width = area.width.saturating_sub(LABEL + 1);
    let axis = Axis::new(world.now, CHART_WINDOWS, world.window_ns, width);
    axis_line(buf, row(area, 0), scene, &axis, 0);
    let mut y = 1;
    for (name, ring, bytes) in histories {
        let place = Rect { height: 2.min(area.height - y), ..row(area, y) };
        let values = axis.values(ring);
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        let text = |value| if bytes { number::bits(value) } else { number::per_second(value) };
        let label = Rect { width: LABEL - 1, ..place };
        let name = if name.chars().count() + 2 > usize::from(LABEL) {
            // The end of a driver's name says more than its beginning.
            let tail: String = name.chars().rev().take(usize::from(LABEL) - 4).collect();
            format!("…{}", tail.chars().rev().collect::<String>())
        } else {
            name
        };
        put(buf, label, 0, &Line::styled(format!(" {name}"), theme.strong));
        let unit = if bytes { "b/s" } else { "/s" };
        let values_line = format!(" {}{unit}  max {}{unit}", text(ring.last()), text(Some(most)));
        put(buf, label, 1, &Line::styled(values_line, theme.dim));
        lane::bars(buf, lane_area(place, &axis), &values, most, theme.severity(finding.severity), theme.dim);
        y += 2;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::theme::{Theme, ThemeName};
    use collector::feed::{Mode, Status};

    #[test]
    fn a_copied_finding_says_what_the_screen_says_and_its_commands_are_whole() {
        let (world, status) = (sample::faulty(), Status::new(Mode::Live));
        let theme = Theme::new(ThemeName::Dark, true);
        let scene = Scene { world: &world, status: &status, generation: 1, theme: &theme };
        let text = as_text(scene, &world.findings[0]);
        assert!(text.starts_with("link.down:mlx5_4/1 on gpu-node-17\n"), "{text}");
        let finding = &world.findings[0];
        let rule = rule::find(finding.rule).unwrap();
        let (settings, book) = (Settings::default(), Book::default());
        let view = View { world: &world, now: world.now, settings: &settings, book: &book };
        for command in rule.hand_check(&view, finding) {
            assert!(text.lines().any(|line| line.ends_with(&format!("$ {command}"))), "{command}\n{text}");
        }
        assert!(text.contains(&finding.summary) && text.contains(&finding.advice), "{text}");
    }
}
