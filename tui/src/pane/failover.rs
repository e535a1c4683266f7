//! 8 Failover: every incident with its stopwatch, t0 first sign to t4 first operation elsewhere, and how the outage stands
//! to its budgets.

use std::sync::Arc;

use collector::finding::{Finding, FindingState, SubjectKey};
use collector::inventory::{Ending, Failover, Moment, Span as TimeSpan, Verdict, World};
use collector::observation::PortState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::about::About;
use super::{Pane, PaneId, Reaction, Scene, Target, as_text, below, heading, more_below, put, row, wrap};
use crate::key::Action;
use crate::number::{self, UNKNOWN};
use crate::selection::Selection;
use crate::table::{self, Column};
use crate::theme::Theme;

/// Cells of a lane's label, and of the time right of it.
const LABEL: usize = 21;
const TIME: usize = 20;

/// When the width is short there go: floor, QPs, warning, ending.
const COLUMNS: [Column; 9] = [
    table::number("ID", 3, 255),
    table::text("PORT", 12, 255),
    table::text("BEGAN", 14, 240),
    table::text("ENDING", 8, 100),
    table::text("QPS", 20, 40).growing(),
    table::number("WARNING", 12, 60),
    table::number("OUTAGE", 16, 250),
    table::number("FLOOR", 9, 30),
    table::text("BUDGETS", 30, 245),
];

/// The pane.
#[derive(Default)]
pub(crate) struct FailoverPane {
    list: Selection,
    sideways: table::Sideways,
    /// The chosen incident stays chosen when new ones come.
    chosen: Option<u32>,
    text: Selection,
    lines: usize,
    list_at: u16,
    /// There was none when last drawn.
    empty: bool,
}

impl FailoverPane {
    fn follow(&mut self, incidents: &[&Arc<Failover>]) {
        let at = self.chosen.and_then(|id| incidents.iter().position(|incident| incident.id == id));
        self.list.row = at.unwrap_or(0);
    }

    fn choose(&mut self, incidents: &[&Arc<Failover>]) {
        self.chosen = incidents.get(self.list.row).map(|incident| incident.id);
        self.text = Selection::default();
    }
}

/// The newest first.
fn newest_first(world: &World) -> Vec<&Arc<Failover>> {
    world.failovers.iter().rev().collect()
}

impl Pane for FailoverPane {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        let incidents = newest_first(scene.world);
        let whole = area;
        let area = about(scene, incidents.len()).draw(buf, area);
        self.list_at = 2 + area.y - whole.y;
        self.empty = incidents.is_empty();
        if self.empty {
            draw_nothing(scene, below(area, 1), buf);
            return;
        }
        self.follow(&incidents);
        let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
        let placed = self.sideways.fit(&COLUMNS, inner.width);
        table::draw_titles(buf, row(inner, 1), &COLUMNS, &placed, scene.theme.title, None);
        let wanted = u16::try_from(incidents.len()).unwrap_or(u16::MAX);
        let rows = wanted.min((area.height / 3).max(2));
        self.list.fit(incidents.len(), usize::from(rows));
        let shown = incidents.iter().enumerate().skip(self.list.top).take(self.list.height);
        for (line, (index, incident)) in (2u16..).zip(shown) {
            if index == self.list.row {
                buf.set_style(row(area, line), scene.theme.selected);
                put(buf, area, line, &Line::raw("►"));
            }
            table::draw_row(buf, row(inner, line), &COLUMNS, &placed, &cells(scene, incident));
        }
        let Some(incident) = incidents.get(self.list.row) else { return };
        let rest = below(area, 2 + rows);
        let (stands, fell) = (incident.standing(), how_sure(scene.world, incident));
        heading(
            buf,
            rest,
            0,
            &format!("{}: {}/{}, {stands}; {fell}", incident.id, incident.device, incident.port),
            scene.theme,
        );
        let body = below(rest, 1);
        let lines = detail(scene, incident, usize::from(body.width));
        self.lines = lines.len();
        self.text.height = usize::from(body.height);
        self.text.top = self.text.top.min(lines.len().saturating_sub(self.text.height));
        for (at, line) in (0u16..).zip(lines.iter().skip(self.text.top)) {
            put(buf, body, at, line);
        }
        more_below(buf, body, self.text.top + self.text.height < self.lines, " [PgDn]", scene.theme);
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        let incidents = newest_first(scene.world);
        self.follow(&incidents);
        match action {
            Action::Copy => {
                let Some(incident) = incidents.get(self.list.row) else { return Reaction::Done };
                let node = scene.world.header.host.as_deref().unwrap_or(UNKNOWN);
                let head = format!("failover {} of {}/{} on {node}\n", incident.id, incident.device, incident.port);
                return Reaction::Copy(head + &as_text(&detail(scene, incident, 100)), "failover");
            }
            Action::Enter => {
                let key = incidents.get(self.list.row).map(|incident| incident.key);
                return key.map_or(Reaction::Done, |key| Reaction::Open(Target::Port(key)));
            }
            Action::PageDown | Action::PageUp if self.text.scroll(action, self.lines) => {}
            _ if self.sideways.act(action, &COLUMNS) => {}
            _ if self.list.act(action, incidents.len()) => self.choose(&incidents),
            _ => return Reaction::Ignored,
        }
        Reaction::Done
    }

    fn opens(&self) -> bool {
        !self.empty
    }

    fn note(&self) -> Option<String> {
        self.sideways.hint()
    }

    fn click(&mut self, _column: u16, at: u16, scene: Scene<'_>) -> Reaction {
        let incidents = newest_first(scene.world);
        let Some(line) = at.checked_sub(self.list_at).map(usize::from) else { return Reaction::Ignored };
        let index = self.list.top + line;
        if line >= self.list.height || index >= incidents.len() {
            return Reaction::Ignored;
        }
        self.list.row = index;
        self.choose(&incidents);
        Reaction::Done
    }

    fn points_at(&self, pane: PaneId, scene: Scene<'_>) -> Option<Target> {
        let incidents = newest_first(scene.world);
        let incident = incidents.get(self.list.row)?;
        (pane == PaneId::Port).then_some(Target::Port(incident.key))
    }
}

/// What the pane shows, since when, and what of it cannot be seen here.
fn about(scene: Scene<'_>, n: usize) -> About<'_> {
    let world = scene.world;
    let seen = match n {
        0 => "no incident".to_owned(),
        1 => "1 incident".to_owned(),
        n => format!("{n} incidents"),
    };
    let about =
        About::what(scene.theme, seen).since(format!("since {}", number::moment(world, world.watched_since(), false)));
    let about = match &world.probes {
        None => about.unseen("who moved a QP, its timers, posts (no probes)"),
        Some(probes) if !probes.sees_modify(false) => about.unseen("who moved a QP (its probe is not attached)"),
        Some(_) => about.sure("t4: by posts where completions are not seen").beyond("the peers' side"),
    };
    match world.failovers_dropped {
        0 => about,
        n => about.hint(format!("{} older ones forgotten", number::grouped(n))),
    }
}

/// How sure it is that the port fell.
fn how_sure(world: &World, incident: &Failover) -> String {
    let Some(down) = &incident.port_down else { return "no fall of the port was seen".to_owned() };
    let key = SubjectKey::Port(incident.key.device, incident.key.port);
    // A rule may take the window's begin or end for the time of the fall.
    let (latest, earliest) = (down.at.t.saturating_add(world.window_ns), down.at.not_before);
    let of_it = |finding: &&Arc<Finding>| {
        let lasted = finding.state != FindingState::Cleared || finding.t >= earliest;
        finding.rule == "link.down" && finding.key == key && finding.first_t <= latest && lasted
    };
    let told = world.findings.iter().chain(&world.cleared);
    match told.filter(of_it).max_by_key(|finding| finding.first_t) {
        Some(finding) => format!("the fall is {}", finding.grade.name()),
        None => "no rule speaks of this fall".to_owned(),
    }
}

fn draw_nothing(scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
    let width = usize::from(area.width).saturating_sub(4).max(20);
    let text = "An incident begins when a port leaves ACTIVE, when its bond switches to another member, or when a QP ends on \
                a port that a finding predicts to fail. Falls less than half a minute apart that no QP ended in are one, timed from the last \
                (link.flap counts them). Then this page times it: t0 first sign, t1 port down, t2 first QP \
                drained or dead, t3 bond switches, t4 first operation on another path. QPs that end on a port nothing is \
                known against are no failover: that is how programs end.";
    for (at, line) in (1u16..).zip(wrap(text, width)) {
        put(buf, area, at, &Line::styled(format!("  {line}"), scene.theme.dim));
    }
}

fn cells(scene: Scene<'_>, incident: &Failover) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let began = incident.began().map_or_else(|| UNKNOWN.to_owned(), |at| number::moment(scene.world, at.t, true));
    let ending = match incident.ending {
        Ending::Abrupt => theme.critical,
        Ending::Mixed => theme.warning,
        Ending::Graceful => theme.good,
        Ending::None => theme.dim,
    };
    let floor = incident.floor.map_or_else(
        || UNKNOWN.to_owned(),
        |floor| floor.max_ns.map_or_else(|| "no end".to_owned(), number::short_time),
    );
    vec![
        Line::raw(incident.id.to_string()),
        Line::styled(format!("{}/{}", incident.device, incident.port), theme.strong),
        Line::raw(began),
        Line::styled(incident.ending.name(), ending),
        Line::raw(qps(incident)),
        Line::raw(spanned(incident.warning)),
        Line::styled(outage(scene.world, incident), theme.strong),
        Line::raw(floor),
        budgets(scene.world, incident, theme),
    ]
}

/// How long it has lasted, or did until the timing ended, without an end that was seen. That the port came back is one:
/// its own QPs may work.
fn endless(world: &World, incident: &Failover) -> Option<u64> {
    let began = incident.began().filter(|_| incident.outage.is_none() && incident.port_up.is_none())?;
    Some(incident.closed_t.unwrap_or(world.now).saturating_sub(began.t))
}

/// How long nothing went, or that nothing goes yet.
fn outage(world: &World, incident: &Failover) -> String {
    match (incident.outage, incident.closed_t) {
        // Nothing was seen to go on elsewhere, and it need not: its own QPs may work.
        (None, _) if incident.port_up.is_some() => "port up again".to_owned(),
        (None, None) if incident.began().is_some() => {
            format!("goes on, {}", number::age(endless(world, incident).unwrap_or(0)))
        }
        // It is over, and nothing was seen to go on elsewhere.
        (None, Some(_)) => "no end seen".to_owned(),
        (span, _) => spanned(span),
    }
}

/// How many QPs ended how; while the incident goes on, so far.
fn qps(incident: &Failover) -> String {
    let Some(text) = incident.qps.text() else { return UNKNOWN.to_owned() };
    if incident.closed_t.is_some() { text } else { format!("{text} so far") }
}

/// Each budget with its verdict as a word; `?` where it is undecided. One that is used up without an end in sight is
/// missed, unless work went on where nobody looks.
fn budgets(world: &World, incident: &Failover, theme: &Theme) -> Line<'static> {
    let lasted = endless(world, incident);
    let mut spans = Vec::new();
    for budget in &incident.budgets {
        let used_up = lasted.is_some_and(|ns| ns as f64 / 1e6 > budget.ms);
        let (verdict, style) = match budget.verdict {
            Verdict::Undecided if used_up => ("missed?", theme.warning),
            Verdict::Undecided => ("?", theme.dim),
            Verdict::Met => (Verdict::Met.name(), theme.good),
            Verdict::Missed => (Verdict::Missed.name(), theme.critical),
        };
        let gap = if spans.is_empty() { "" } else { ", " };
        spans.push(Span::styled(format!("{gap}{} ms {verdict}", budget.ms), style));
    }
    Line::from(spans)
}

/// `268 ms`, or between what bounds it lies.
fn spanned(span: Option<TimeSpan>) -> String {
    let Some(TimeSpan { min_ns, max_ns }) = span else { return UNKNOWN.to_owned() };
    let close = max_ns - min_ns <= max_ns / 100;
    if close { number::short_time(max_ns) } else { format!("{}–{}", short(min_ns), short(max_ns)) }
}

/// Without the space, where two times stand together.
fn short(ns: u64) -> String {
    if ns == 0 { "0".to_owned() } else { number::short_time(ns).replace(' ', "") }
}

fn detail(scene: Scene<'_>, incident: &Failover, width: usize) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let mut lines = lanes(incident, width, theme);
    lines.push(Line::raw(""));
    let mut entry = |name: &str, text: &str, style: Style| {
        for (at, part) in wrap(text, width.saturating_sub(14).max(20)).into_iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            lines.push(Line::from(vec![Span::styled(format!(" {name:<12} "), theme.dim), Span::styled(part, style)]));
        }
    };
    entry(
        "warning",
        &format!(
            "{}: from t0, which alone need not be reason enough to drain, to the outage",
            spanned(incident.warning)
        ),
        theme.text,
    );
    let outage = outage(scene.world, incident);
    entry("outage", &format!("{outage}: from the first of t1, t2, t3 to t4"), theme.strong);
    let text = format!(
        "reaction {} to t2, recovery {} to t4 (a lost carrier is told up to 1.2 s late)",
        spanned(incident.reaction),
        spanned(incident.recovery)
    );
    entry("of it", &text, theme.text);
    let judged = budgets(scene.world, incident, theme).to_string();
    let unless = if judged.contains("missed?") { ", unless work went on where nobody looks" } else { "" };
    entry("budgets", &format!("{judged}{unless}"), theme.text);
    let ending = match incident.ending {
        Ending::Graceful => "all QPs were drained by their process while the port was up",
        Ending::Abrupt => "no QP was drained: they died, or were moved when the port was down already",
        Ending::Mixed => "some drained and some not, or it cannot be told",
        Ending::None => "no QP is known to have ended",
    };
    let goes_on = if incident.closed_t.is_none() { "; it goes on" } else { "" };
    let ended = format!("{}: {ending} ({}{goes_on})", incident.ending.name(), qps(incident));
    entry("ending", &ended, theme.text);
    entry("floor", &floor(incident), theme.text);
    let to = incident.replacement.as_ref().map_or_else(
        || "no operation on another path was seen".to_owned(),
        |to| {
            let port = to.port.map_or_else(String::new, |port| format!("/{port}"));
            format!("{}{port} QP {}", to.device, to.qpn)
        },
    );
    entry("taken over", &to, theme.text);
    let up = incident.port_up.as_ref().map_or_else(
        || "not seen".to_owned(),
        |mark| {
            let port = scene.world.port(incident.key);
            let again = port
                .and_then(|port| port.states.last())
                .filter(|(t, change)| change.to == PortState::Down && *t > mark.at.t);
            let again = again
                .map_or(String::new(), |(t, _)| format!("; down again at {}", number::moment(scene.world, *t, true)));
            format!("{} ({}){again}", number::moment(scene.world, mark.at.t, true), mark.what)
        },
    );
    entry("port up", &up, theme.text);
    lines
}

/// What the QPs' own timers allow at best.
fn floor(incident: &Failover) -> String {
    let Some(floor) = incident.floor else {
        let of = &incident.qps;
        if [of.died, of.drained, of.late, of.unsure, of.uncounted].iter().all(|n| *n == 0) {
            return format!("{UNKNOWN}: it is that of the QPs that ended, and none has");
        }
        return format!("{UNKNOWN}: the timers of the QPs are not known (the probes did not see their way to RTS)");
    };
    let least = floor.max_ns.map_or_else(|| "no end".to_owned(), number::short_time);
    let endless = match floor.endless {
        0 => String::new(),
        n => format!("; {n} of the QPs never give up"),
    };
    format!(
        "{least}: no QP dies sooner after its first unanswered packet (timeout {}, retry_cnt {}{endless})",
        floor.timeout, floor.retry_cnt
    )
}

/// The five times on one axis; `─` is where a time may lie that a reading showed.
fn lanes(incident: &Failover, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let (Some(began), Some(axis)) = (incident.began(), axis(incident)) else {
        return vec![Line::styled(" nothing of it was timed yet", theme.dim)];
    };
    let cells = (width.saturating_sub(LABEL + TIME + 2) / if width < 120 { 1 } else { 2 }).clamp(10, 100);
    let mut lines = Vec::new();
    for (id, name, mark) in incident.lanes() {
        let label = format!(" {id} {name:<wide$}", wide = LABEL - 4);
        let lane = mark.map_or_else(|| "·".repeat(cells), |mark| lane(mark.at, axis, cells));
        let time = mark.map_or_else(|| UNKNOWN.to_owned(), |mark| offset(mark.at, began));
        let known = if mark.is_some() { theme.critical } else { theme.dim };
        lines.push(Line::from(vec![
            Span::styled(label, if mark.is_some() { theme.strong } else { theme.dim }),
            Span::styled(lane, known),
            Span::styled(format!(" {time:>wide$}", wide = TIME - 1), theme.text),
        ]));
        if let Some(mark) = mark.filter(|_| width < 120) {
            let what: String = mark.what.chars().take(width.saturating_sub(8)).collect();
            lines.push(Line::styled(format!("      {what}"), theme.dim));
        } else if let (Some(mark), Some(line)) = (mark, lines.last_mut()) {
            line.push_span(Span::styled(format!("  {}", mark.what), theme.dim));
        }
    }
    lines
}

/// The stretch of time that is drawn. A sign long before the rest is not given the room that the outage needs.
fn axis(incident: &Failover) -> Option<(u64, u64)> {
    let marks = || incident.lanes().into_iter().filter_map(|(_, _, mark)| mark);
    let later = || incident.lanes().into_iter().skip(1).filter_map(|(_, _, mark)| mark);
    let to = marks().map(|mark| mark.at.t).max()?;
    let from = marks().map(|mark| mark.at.not_before).min()?;
    let rest = later().map(|mark| mark.at.not_before).min().unwrap_or(from);
    let span = to.saturating_sub(rest);
    let far = span > 0 && rest.saturating_sub(from) > span.saturating_mul(3);
    Some((if far { rest.saturating_sub(span / 8) } else { from }, to))
}

fn lane(at: Moment, (from, to): (u64, u64), cells: usize) -> String {
    let whole = u128::from((to - from).max(1));
    let place = |t: u64| {
        let share = u128::from(t.saturating_sub(from)) * (cells as u128 - 1) / whole;
        usize::try_from(share).unwrap_or(0).min(cells - 1)
    };
    let (first, last) = (place(at.not_before), place(at.t));
    let before = at.t < from;
    let symbol = |cell: usize| match cell {
        // It lies before the stretch that is drawn.
        0 if before => '◄',
        _ if before => '·',
        _ if cell == last => '●',
        _ if cell >= first && cell < last => '─',
        _ => '·',
    };
    (0..cells).map(symbol).collect()
}

/// The time after the outage's begin; `≤` where it may have been earlier.
fn offset(at: Moment, began: Moment) -> String {
    let bound = if at.t == at.not_before { "" } else { "≤ " };
    match at.t.checked_sub(began.t) {
        Some(0) => format!("{bound}0"),
        Some(after) => format!("{bound}+{}", number::short_time(after)),
        None => format!("{bound}-{}", number::short_time(began.t - at.t)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_shows_where_a_moment_may_lie() {
        assert_eq!(lane(Moment::between(50, 100), (0, 100), 5), "··──●");
        assert_eq!(lane(Moment::at(0), (0, 100), 5), "●····");
        assert_eq!(lane(Moment::at(7), (7, 7), 5), "●····");
        assert_eq!(lane(Moment::at(7), (50, 100), 5), "◄····");
    }

    #[test]
    fn a_time_is_told_with_its_uncertainty() {
        let span = |min_ns, max_ns| Some(TimeSpan { min_ns, max_ns });
        assert_eq!(spanned(span(268_000_000, 268_000_000)), "268 ms");
        assert_eq!(spanned(span(200_000_000, 1_300_000_000)), "200ms–1.30s");
        assert_eq!(spanned(None), UNKNOWN);
        assert_eq!(offset(Moment::at(5), Moment::at(5)), "0");
        assert_eq!(offset(Moment::between(1, 2_005), Moment::at(5)), "≤ +2.00 µs");
    }

    /// What the pane says of the first incident: its standing, its outage and how that stands to the budgets.
    fn told(world: &World) -> Option<(&'static str, String, String)> {
        let incident = world.failovers.first()?;
        let budgets = budgets(world, incident, &Theme::new(crate::theme::ThemeName::Dark, true)).to_string();
        Some((incident.standing(), outage(world, incident), budgets))
    }

    #[test]
    fn an_outage_after_which_the_port_came_back_does_not_go_on_nor_misses_a_budget() {
        use collector::observation::{Async, Body, Observation, Port, PortState};
        let mut engine = collector::engine::Engine::new(
            collector::observation::recording::Header::new(),
            collector::rule::Settings::default(),
        );
        let mut take = |ms: u64, body: Body<'_>| {
            engine.take(&Observation { t: ms * 1_000_000, body });
            told(engine.world())
        };
        let event = |event: &'static str| {
            Body::Async(Async { device: "d".into(), port: Some(1), event: event.into(), ..Async::default() })
        };
        let open = "50 ms ?, 200 ms ?";
        let is = |standing, outage: &str, budgets: &str| Some((standing, outage.to_owned(), budgets.to_owned()));
        take(1, Body::Port(Port { device: "d".into(), port: 1, state: PortState::Active, ..Port::default() }));
        assert_eq!(take(2000, event("PORT_ERR")), is("under way", "goes on, 00:00", open));
        assert_eq!(take(2300, event("PORT_ACTIVE")), is("port is back", "port up again", open));
        assert_eq!(take(9000, event("LID_CHANGE")), is("port is back", "port up again", open));
        // Over after a quiet time.
        assert_eq!(take(300_000, event("LID_CHANGE")), is("port is back", "port up again", open));
        // What the port does today is another incident.
        assert_eq!(take(420_000, event("PORT_ERR")), is("port is back", "port up again", open));
        assert_eq!(engine.world().failovers.len(), 2);
    }

    #[test]
    fn how_sure_a_fall_is_says_the_finding_of_that_fall() {
        let mut world = (*crate::sample::faulty()).clone();
        let mut incident = (*world.failovers[0]).clone();
        let down = incident.port_down.clone().unwrap().at;
        assert_eq!(how_sure(&world, &incident), "the fall is confirmed");
        // It fell before, and that was over.
        let mut earlier = (*world.findings[0]).clone();
        assert_eq!(earlier.rule, "link.down");
        (earlier.state, earlier.first_t) = (FindingState::Cleared, down.not_before - 60_000_000_000);
        earlier.t = down.not_before - 30_000_000_000;
        world.cleared.push(Arc::new(earlier));
        assert_eq!(how_sure(&world, &incident), "the fall is confirmed");
        // It fell again later.
        Arc::make_mut(&mut world.findings[0]).first_t = down.t + 60_000_000_000;
        assert_eq!(how_sure(&world, &incident), "no rule speaks of this fall");
        incident.port_down = None;
        assert_eq!(how_sure(&world, &incident), "no fall of the port was seen");
    }

    #[test]
    fn a_budget_used_up_without_an_end_in_sight_is_taken_for_missed() {
        let world = crate::sample::faulty();
        let theme = Theme::new(crate::theme::ThemeName::Dark, true);
        let mut incident = (*world.failovers[0]).clone();
        assert_eq!(incident.outage, None);
        incident.closed_t = None;
        assert_eq!(outage(&world, &incident), "goes on, 00:38");
        assert_eq!(budgets(&world, &incident, &theme).to_string(), "50 ms missed?, 200 ms missed?");
        assert_eq!(incident.standing(), "under way");
        incident.closed_t = Some(incident.began().unwrap().t + 100_000_000);
        assert_eq!(budgets(&world, &incident, &theme).to_string(), "50 ms missed?, 200 ms ?");
        assert_eq!(incident.standing(), "no takeover seen");
    }
}
