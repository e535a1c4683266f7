//! 5 Findings: the list by severity and age, those that are over dimmed below; the selected one in full.

use std::sync::Arc;

use collector::finding::{Book, Evidence, Finding, FindingState, Grade, SubjectKey};
use collector::incident::{self, Place};
use collector::inventory::World;
use collector::observation::Nanos;
use collector::rule::{self, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::about::About;
use super::beginning::from_the_start;
use super::finding_charts::{Charts, charts};
use super::finding_row::{Entry, draw_finding};
use super::judged::{Judged, NotJudged, nowhere};
use super::{Pane, PaneId, Reaction, Scene, Target, below, heading, more_below, put, row, wrap, wrap_command};
use crate::health;
use crate::key::Action;
use crate::number;
use crate::selection::Selection;

/// Evidence that is older than the usual window of a rule is not of now, ns.
const FRESH_NS: u64 = 10_000_000_000;

/// A finding that was chosen: one of a rule and a subject, and of several of them that have been the one that began then.
type Chosen = (&'static str, SubjectKey, Option<Nanos>);

/// The pane.
#[derive(Default)]
pub(crate) struct Findings {
    list: Selection,
    /// The chosen finding stays chosen when the list moves.
    chosen: Option<Chosen>,
    /// The detail has the whole pane.
    whole: bool,
    /// It was opened from elsewhere: out of it leads back there.
    direct: bool,
    judged: Judged,
    /// There was none when last drawn.
    empty: bool,
    text: Selection,
    lines: usize,
    /// Cells the cursor of the charts stands left of now.
    cursor: u16,
    /// Row of the pane where the list begins.
    list_at: u16,
}

impl Findings {
    /// Shows a finding, all of it.
    pub(crate) fn show(&mut self, rule: &'static str, key: SubjectKey) {
        *self = Self { chosen: Some((rule, key, None)), whole: true, direct: true, ..Self::default() };
    }

    fn follow(&mut self, findings: &[&Arc<Finding>]) {
        let Some((rule, key, began)) = &self.chosen else { return };
        let its = |f: &&Arc<Finding>| f.rule == *rule && f.key == *key;
        // One that is over keeps its beginning; where it is no longer remembered the newest takes its place.
        let then = |f: &&Arc<Finding>| its(f) && began.is_none_or(|began| f.first_t == began);
        let mut alike = (0..findings.len()).filter(|at| then(&findings[*at]));
        // Several that are over may have begun at the same time: the one at hand stays.
        let exactly = if began.is_some() { alike.min_by_key(|at| at.abs_diff(self.list.row)) } else { alike.next() };
        if let Some(at) = exactly.or_else(|| findings.iter().position(its)) {
            self.list.row = at;
        }
    }

    fn choose(&mut self, findings: &[&Arc<Finding>]) {
        self.chosen = findings.get(self.list.row).map(|f| (f.rule, f.key.clone(), Some(f.first_t)));
        self.text = Selection::default();
        self.cursor = 0;
    }
}

/// What the pane shows, since when, and what could not be judged.
fn about<'t>(scene: Scene<'t>, listed: usize, unseen: &str) -> About<'t> {
    let world = scene.world;
    let raised = world.findings.len();
    let what = match (incident::count(&world.findings), raised) {
        (0, _) => "nothing raised".to_owned(),
        (1, 1) => "1 finding".to_owned(),
        (roots, raised) if roots == raised => format!("{roots} findings"),
        (roots, raised) => format!("{roots} of their own, {} with them", raised - roots),
    };
    let over = match listed - raised {
        0 => String::new(),
        n => format!("{n} over"),
    };
    About::what(scene.theme, what)
        .asked(over)
        .since(format!("watched since {}", number::moment(world, world.watched_since(), false)))
        .unseen(unseen)
}

/// Rules that cannot be judged anywhere.
fn unseen(unjudged: usize) -> String {
    match unjudged {
        0 => String::new(),
        n => format!("{n} of {} rules cannot be judged [9]", rule::all().len()),
    }
}

/// Instead of an empty list: who has looked since when, and who could not.
fn draw_nothing(scene: Scene<'_>, area: Rect, buf: &mut Buffer, unjudged: &[NotJudged]) {
    let (world, theme) = (scene.world, scene.theme);
    let rules = rule::all().len();
    let since = number::moment(world, world.watched_since(), false);
    let span = number::age(world.now.saturating_sub(world.watched_since()));
    let judged = rules - nowhere(unjudged);
    put(buf, area, 0, &Line::styled(" Nothing found so far.", theme.good));
    let text = format!(" {judged} of {rules} rules have been watching since {since} ({span}).");
    put(buf, area, 1, &Line::styled(text, theme.text));
    if !unjudged.is_empty() {
        put(buf, area, 3, &Line::styled(" Not judged, or in part, and why:", theme.text));
    }
    let width = usize::from(area.width).saturating_sub(32).max(20);
    let mut y = 4;
    for (rule, reason, _) in unjudged {
        for (at, part) in wrap(reason, width).into_iter().enumerate() {
            let rule = if at == 0 { *rule } else { "" };
            let line = Line::from(vec![Span::styled(format!("   {rule:<26} "), theme.dim), Span::raw(part)]);
            put(buf, area, y, &line);
            y += 1;
        }
    }
}

/// Raised findings, worst and newest first, each followed by what follows from it; then those that are over.
fn all(world: &World) -> Vec<&Arc<Finding>> {
    world.findings.iter().chain(&world.cleared).collect()
}

impl Pane for Findings {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        let findings = all(scene.world);
        let unjudged = self.judged.missing(scene.world);
        self.empty = findings.is_empty();
        if self.empty {
            draw_nothing(scene, area, buf, &unjudged);
            return;
        }
        let blind = unseen(nowhere(&unjudged));
        let top = area.y;
        // The finding alone needs every row: its heading says what is not seen.
        let area = if self.whole { area } else { below(about(scene, findings.len(), &blind).draw(buf, area), 1) };
        self.list_at = area.y - top;
        self.follow(&findings);
        let wanted = u16::try_from(findings.len()).unwrap_or(u16::MAX);
        let rows = if self.whole { 0 } else { wanted.min((area.height / 3).max(3)) };
        self.list.fit(findings.len(), usize::from(rows));
        let places = incident::places(&scene.world.findings);
        // What is over stands for itself.
        let place = |index: usize| places.get(index).copied().unwrap_or(Place::Root(0));
        let shown = findings.iter().enumerate().skip(self.list.top).take(usize::from(rows));
        for (line, (index, finding)) in (0u16..).zip(shown) {
            let entry = Entry { finding, place: place(index), others: 0, first: finding };
            draw_finding(scene, row(area, line), buf, entry, index == self.list.row);
        }
        let Some(finding) = findings.get(self.list.row) else { return };
        let rest = below(area, rows);
        let raised = scene.world.findings.len();
        let place = match self.list.row.checked_sub(raised) {
            None => format!("{} of {raised}", self.list.row + 1),
            Some(over) => format!("{} of {} that are over", over + 1, findings.len() - raised),
        };
        let mut title = format!("{place}: {}", finding.id());
        let room = usize::from(rest.width)
            .saturating_sub(title.chars().count() + blind.chars().count() + "── ; not seen:  ─".len());
        if self.whole && !blind.is_empty() && room > 0 {
            title += &format!("; not seen: {blind}");
        }
        heading(buf, rest, 0, &title, scene.theme);
        let body = below(rest, 1);
        let page = Page::of(body);
        self.cursor = self.cursor.min(page.cells().saturating_sub(1));
        let lines = detail(scene, finding, Page { cursor: self.cursor, ..page });
        self.lines = lines.len();
        self.text.height = usize::from(body.height);
        self.text.top = self.text.top.min(lines.len().saturating_sub(self.text.height));
        for (at, line) in (0u16..).zip(lines.iter().skip(self.text.top).take(self.text.height)) {
            put(buf, body, at, line);
        }
        let left = self.text.top + self.text.height < self.lines;
        more_below(buf, body, left, if self.whole { "" } else { " [Enter, then scroll]" }, scene.theme);
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        let findings = all(scene.world);
        self.follow(&findings);
        match action {
            Action::Enter => (self.whole, self.direct) = (!self.whole, false),
            Action::Left => self.cursor = self.cursor.saturating_add(1),
            Action::Right => self.cursor = self.cursor.saturating_sub(1),
            Action::Leave if self.cursor > 0 => self.cursor = 0,
            Action::Leave if self.whole && self.direct => {
                (self.whole, self.direct) = (false, false);
                return Reaction::Ignored;
            }
            Action::Leave if self.whole => self.whole = false,
            Action::Next | Action::Previous => {
                let last = findings.len().saturating_sub(1);
                let (row, next) = (self.list.row, action == Action::Next);
                self.list.row = if next { (row + 1).min(last) } else { row.saturating_sub(1) };
                self.choose(&findings);
            }
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
            (PaneId::Qp, _) => {
                let port = health::port_of(scene.world, finding)?;
                super::qp::telling(scene.world, port).map(Target::Qp)
            }
            _ => None,
        }
    }

    fn opens(&self) -> bool {
        !self.empty
    }

    fn click(&mut self, _column: u16, at: u16, scene: Scene<'_>) -> Reaction {
        let findings = all(scene.world);
        let Some(at) = at.checked_sub(self.list_at) else { return Reaction::Ignored };
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
    for line in detail(scene, finding, Page { width: usize::MAX, chart_rows: 1, cursor: 0 }) {
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

/// How the detail is laid out.
#[derive(Debug, Clone, Copy)]
struct Page {
    width: usize,
    /// Rows of a chart.
    chart_rows: usize,
    /// Cells the cursor of the charts stands left of now.
    cursor: u16,
}

impl Page {
    fn of(area: Rect) -> Self {
        Self { width: usize::from(area.width), chart_rows: if area.height >= 28 { 2 } else { 1 }, cursor: 0 }
    }

    /// Cells of the titles on the left: narrow screens have better use for them.
    fn lead(self) -> usize {
        if self.width < 100 { 11 } else { 16 }
    }

    /// Cells left of the charts.
    fn chart_lead(self) -> usize {
        if self.width < 100 { 25 } else { 30 }
    }

    /// Cells of the charts. Text that is copied has no width of its own.
    fn cells(self) -> u16 {
        let most = if self.width > 1_000 { 60 } else { 240 };
        let cells = self.width.saturating_sub(self.chart_lead() + 1).clamp(20, most);
        u16::try_from(cells).unwrap_or(60)
    }
}

/// Everything that is known of a finding, in lines: what it is, what to do, what it rests on, how to check it, what it
/// means. What is needed first stands first, for there may be no room for the rest.
fn detail<'a>(scene: Scene<'a>, finding: &Finding, page: Page) -> Vec<Line<'a>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let mut lines: Vec<Line<'a>> = Vec::new();
    let lead = page.lead();
    let section = |title: &str, text: &str, style: Style, lines: &mut Vec<Line<'a>>| {
        if text.is_empty() {
            return;
        }
        for (at, part) in wrap(text, page.width.saturating_sub(lead + 1).max(20)).into_iter().enumerate() {
            let title = if at == 0 { title } else { "" };
            let title = format!(" {title:<wide$}", wide = lead - 1);
            lines.push(Line::from(vec![Span::styled(title, theme.dim), Span::styled(part, style)]));
        }
    };
    let over = finding.state == FindingState::Cleared;
    let since = number::moment(world, finding.first_t, true);
    let when = if over {
        let end = number::moment(world, finding.t, true);
        format!("since {since}, over at {end} ({})", number::age(finding.t.saturating_sub(finding.first_t)))
    } else if from_the_start(world, finding) {
        let least = number::age(world.now.saturating_sub(finding.first_t));
        format!("since {since} or earlier, when nobody watched: for at least {least}")
    } else {
        format!("since {since}, for {}", number::age(world.now.saturating_sub(finding.first_t)))
    };
    let head = format!("{} {}: {}", finding.severity.name().to_uppercase(), finding.subject, finding.summary);
    section("what", &head, if over { theme.dim } else { theme.severity(finding.severity) }, &mut lines);
    section("when", &when, theme.text, &mut lines);
    let sure = if finding.grade == Grade::Confirmed || finding.would_raise.is_empty() {
        finding.grade.name().to_owned()
    } else {
        format!("{}; would be surer with: {}", finding.grade.name(), finding.would_raise)
    };
    section("how sure", &sure, theme.text, &mut lines);
    section("part of", finding.part_of.as_deref().unwrap_or(""), theme.text, &mut lines);
    let names = |before: bool| {
        let its = followers(world, finding).filter(|other| (other.first_t < finding.first_t) == before);
        its.map(|other| other.rule).collect::<Vec<_>>().join(", ")
    };
    section("before it", &names(true), theme.text, &mut lines);
    section("led to", &names(false), theme.text, &mut lines);
    // What was to be done before the port fell is no advice any more.
    let before = if fallen_since(world, finding) {
        "the port has fallen since, and link.down says what to do now. Before: "
    } else {
        ""
    };
    section("do", &format!("{before}{}", finding.advice), theme.strong, &mut lines);
    evidence(finding, scene, page, &mut lines);
    let look = Charts { lead: page.chart_lead(), cells: page.cells(), rows: page.chart_rows, cursor: page.cursor };
    charts(scene, finding, look, &mut lines);
    let rule = rule::find(finding.rule);
    if let Some(rule) = rule {
        let book = Book::default();
        let view = View { world, now: world.now, settings: &world.settings, book: &book };
        for (at, command) in rule.hand_check(&view, finding).iter().enumerate() {
            let room = page.width.saturating_sub(lead + 1).max(20);
            for (part, text) in wrap_command(&format!("$ {command}"), room).into_iter().enumerate() {
                let title = if at == 0 && part == 0 { "by hand" } else { "" };
                let title = format!(" {title:<wide$}", wide = lead - 1);
                lines.push(Line::from(vec![Span::styled(title, theme.dim), Span::styled(text, theme.info)]));
            }
        }
    }
    section("meaning", rule.map_or("", |rule| rule.meaning()), theme.text, &mut lines);
    lines
}

/// The port is down by now, and was not when the finding began.
fn fallen_since(world: &World, finding: &Finding) -> bool {
    let Some(root) = finding.part_of.as_deref().filter(|root| root.starts_with("link.down:")) else { return false };
    world.findings.iter().any(|other| other.first_t > finding.first_t && other.id() == root)
}

/// What follows from a finding, as long as it stands.
fn followers<'w>(world: &'w World, finding: &Finding) -> impl Iterator<Item = &'w Arc<Finding>> {
    let id = finding.id();
    world.findings.iter().filter(move |other| other.part_of.as_deref() == Some(&*id))
}

/// A value with its unit as people write it: a time in the prefix that suits it.
fn valued(row: &Evidence, value: Option<f64>) -> (String, &str) {
    match (&*row.unit, value) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time is not negative")]
        ("ns", Some(ns)) if ns >= 0.0 => (number::short_time(ns.round() as u64), ""),
        (unit, value) => (number::plain(value).into_owned(), unit),
    }
}

fn evidence(finding: &Finding, scene: Scene<'_>, page: Page, lines: &mut Vec<Line<'_>>) {
    let rows = &finding.evidence;
    if rows.is_empty() {
        return;
    }
    let theme = scene.theme;
    // Numbers that are not of now say so.
    let old = scene.world.now.saturating_sub(finding.measured_t);
    if old > FRESH_NS {
        let at = number::moment(scene.world, finding.measured_t, false);
        let text = format!(" {:<wide$}measured {at}, {} ago", "", number::age(old), wide = page.lead() - 1);
        lines.push(Line::styled(text, theme.dim));
    }
    let lead = page.lead();
    let unit = rows.iter().map(|row| row.unit.chars().count()).max().unwrap_or(0).max(4);
    // Window, value and limit with the gaps between, besides the unit.
    let room = page.width.saturating_sub(lead + 7 + 8 + 8 + 5 + unit).max(20);
    let wide = rows.iter().map(|row| row.series.chars().count()).max().unwrap_or(0).clamp(20, room);
    let head = format!(
        " {:<left$}{:<wide$} {:>7} {:>8} {:>8}  {}",
        "evidence",
        "SERIES",
        "WINDOW",
        "VALUE",
        "LIMIT",
        "UNIT",
        left = lead - 1
    );
    lines.push(Line::styled(head, theme.title));
    for row in rows {
        let window = row.window_s.map_or_else(|| "event".to_owned(), |s| format!("{} s", number::plain(Some(s))));
        let limit = row.threshold.map_or_else(String::new, |limit| valued(row, Some(limit)).0);
        let (value, unit) = valued(row, row.value);
        let over = row.value.zip(row.threshold).is_some_and(|(value, limit)| value > limit);
        let style = if over { theme.warning } else { theme.text };
        // A window or a value told in words may be long: it is cut at the end, not at its unit.
        let name = fitted(&row.series, wide);
        lines.push(Line::from(vec![
            Span::raw(format!(" {:<left$}{name:<wide$} {window:>7} ", "", left = lead - 1)),
            Span::styled(format!("{value:>8}"), style),
            Span::raw(format!(" {limit:>8}  {unit}")),
        ]));
    }
}

/// A text cut to a width. Of a driver's name the end says more than the beginning, of words it is the other way round.
pub(super) fn fitted(text: &str, wide: usize) -> String {
    let long = text.chars().count();
    let kept = wide.saturating_sub(1);
    if long <= wide {
        text.to_owned()
    } else if text.contains(' ') {
        text.chars().take(kept).chain(['…']).collect()
    } else {
        std::iter::once('…').chain(text.chars().skip(long - kept)).collect()
    }
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
        let coverage = collector::inventory::Coverage::default();
        let scene = Scene { world: &world, status: &status, coverage: &coverage, generation: 1, theme: &theme };
        let text = as_text(scene, &world.findings[0]);
        assert!(text.starts_with("link.down:mlx5_4/1 on gpu-node-17\n"), "{text}");
        let finding = &world.findings[0];
        let rule = rule::find(finding.rule).unwrap();
        let book = Book::default();
        let view = View { world: &world, now: world.now, settings: &world.settings, book: &book };
        for command in rule.hand_check(&view, finding) {
            assert!(text.lines().any(|line| line.ends_with(&format!("$ {command}"))), "{command}\n{text}");
        }
        assert!(text.contains(&finding.summary) && text.contains(&finding.advice), "{text}");
    }

    fn text_of(world: &Arc<World>, finding: &Finding) -> String {
        let (status, theme) = (Status::new(Mode::Live), Theme::new(ThemeName::Dark, true));
        let coverage = collector::inventory::Coverage::default();
        as_text(Scene { world, status: &status, coverage: &coverage, generation: 1, theme: &theme }, finding)
    }

    #[test]
    fn each_of_several_that_are_over_can_be_opened_though_one_like_it_is_raised() {
        let mut world = (*sample::faulty()).clone();
        let first = world.findings[0].clone();
        for back in [10, 20, 30] {
            let mut over = (*first).clone();
            (over.state, over.first_t) = (FindingState::Cleared, first.first_t - back);
            world.cleared.push(Arc::new(over));
        }
        let world = Arc::new(world);
        let (status, theme) = (Status::new(Mode::Live), Theme::new(ThemeName::Dark, true));
        let coverage = collector::inventory::Coverage::default();
        let scene = Scene { world: &world, status: &status, coverage: &coverage, generation: 1, theme: &theme };
        let mut pane = Findings::default();
        let mut seen = Vec::new();
        for _ in 0..world.findings.len() + world.cleared.len() {
            let area = Rect::new(0, 0, 120, 40);
            let mut buf = Buffer::empty(area);
            pane.draw(scene, area, &mut buf);
            seen.push(pane.list.row);
            pane.act(Action::Down, scene);
        }
        assert_eq!(seen, (0..world.findings.len() + world.cleared.len()).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_there_before_it_did_not_follow_from_it() {
        let mut world = (*sample::faulty()).clone();
        let id = world.findings[0].id();
        let part = world.findings.iter().position(|f| f.part_of.as_deref() == Some(&*id)).unwrap();
        let first_t = world.findings[0].first_t;
        let told = |world: &World| text_of(&Arc::new(world.clone()), &world.findings[0]);
        assert!(told(&world).contains(" led to         nic.composite"), "{}", told(&world));
        Arc::make_mut(&mut world.findings[part]).first_t = first_t - 1;
        assert!(told(&world).contains(" before it      nic.composite"), "{}", told(&world));
        // What was so when the watching began may have been so before.
        Arc::make_mut(&mut world.findings[0]).first_t = world.started;
        assert!(told(&world).contains(" or earlier, when nobody watched: for at least "), "{}", told(&world));
    }

    #[test]
    fn of_several_that_are_over_and_began_at_the_same_time_each_can_be_reached() {
        let mut world = (*sample::faulty()).clone();
        let mut over = (*world.findings[0]).clone();
        (over.state, over.first_t) = (FindingState::Cleared, over.first_t - 10);
        world.cleared.extend(std::iter::repeat_n(Arc::new(over), 3));
        let world = Arc::new(world);
        let (status, theme) = (Status::new(Mode::Live), Theme::new(ThemeName::Dark, true));
        let coverage = collector::inventory::Coverage::default();
        let scene = Scene { world: &world, status: &status, coverage: &coverage, generation: 1, theme: &theme };
        let mut pane = Findings::default();
        let last = world.findings.len() + world.cleared.len() - 1;
        let area = Rect::new(0, 0, 120, 40);
        for wanted in (1..=last).chain((0..last).rev()) {
            pane.act(if wanted > pane.list.row { Action::Down } else { Action::Up }, scene);
            pane.draw(scene, area, &mut Buffer::empty(area));
            assert_eq!(pane.list.row, wanted);
        }
    }

    #[test]
    fn that_the_port_fell_since_is_said_only_of_what_came_before_and_while_it_is_down() {
        let mut world = (*sample::faulty()).clone();
        let fallen = "the port has fallen since";
        let (id, fell) = (world.findings[0].id(), world.findings[0].first_t);
        assert!(id.starts_with("link.down:"), "{id}");
        let part = world.findings.iter().position(|f| f.part_of.as_deref() == Some(&*id)).unwrap();
        let told = |world: &World, first_t| {
            let mut finding = (*world.findings[part]).clone();
            finding.first_t = first_t;
            text_of(&Arc::new(world.clone()), &finding)
        };
        assert!(told(&world, fell - 1).contains(fallen));
        // It came with the fall or after it.
        for first_t in [fell, fell + 1] {
            assert!(!told(&world, first_t).contains(fallen), "{}", told(&world, first_t));
        }
        // The port is up again.
        let mut up = world.clone();
        let mut over = (*up.findings[0]).clone();
        over.state = FindingState::Cleared;
        up.cleared.push(Arc::new(over));
        let other = Arc::make_mut(&mut world.findings[0]);
        other.rule = "phy.post_fec";
        up.findings[0] = world.findings[0].clone();
        assert!(!told(&up, fell - 1).contains(fallen), "{}", told(&up, fell - 1));
    }

    #[test]
    fn evidence_that_is_not_of_now_says_of_when_it_is_and_times_have_their_prefix() {
        let mut world = (*sample::faulty()).clone();
        let now = world.now;
        let finding = Arc::make_mut(&mut world.findings[0]);
        // Raised long ago, and measured again and again since.
        (finding.t, finding.measured_t) = (now - 900_000_000_000, now - 1_000_000_000);
        (finding.evidence[0].unit, finding.evidence[0].value) = ("ns".into(), Some(7_630.0));
        let text = text_of(&Arc::new(world.clone()), &world.findings[0]);
        assert!(!text.contains(" measured ") && text.contains("7.63 µs"), "{text}");
        let finding = Arc::make_mut(&mut world.findings[0]);
        finding.measured_t = now - 90_000_000_000;
        // Over or not: when it ended is not when it was measured.
        for (state, t) in [(FindingState::Raised, now - 900_000_000_000), (FindingState::Cleared, now - 1_000_000_000)]
        {
            let finding = Arc::make_mut(&mut world.findings[0]);
            (finding.state, finding.t) = (state, t);
            let text = text_of(&Arc::new(world.clone()), &world.findings[0]);
            assert!(text.contains(", 01:30 ago"), "{text}");
        }
    }
}
