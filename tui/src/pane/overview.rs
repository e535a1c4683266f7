//! 1 Overview: all ports in one table, the newest findings below.

use std::collections::BTreeSet;

use collector::finding::Severity;
use collector::incident;
use collector::inventory::{DeviceId, Role, World};
use collector::rule;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::digest::{Digest, digest, wanted};
use super::finding_row::{Entry, draw_finding};
use super::judged::{Judged, nowhere};
use super::looked::Looked;
use super::port_row::{columns, fold_cells, port_cells};
use super::{Pane, PaneId, Reaction, Scene, Target, below, heading, put, row};
use crate::health;
use crate::key::Action;
use crate::number;
use crate::selection::Selection;
use crate::table;

/// More parts of one device than this are folded into one row.
const MAX_PARTS: usize = 2;

/// One row of the table.
#[derive(Debug, Clone, PartialEq)]
enum Row {
    /// A port by its place in the world's list.
    Port { port: usize, part: bool },
    /// A device without a port.
    Bare(DeviceId),
    /// Parts of a device, folded.
    Fold { parent: Option<DeviceId>, ports: Vec<usize> },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Ports,
    Findings,
}

/// The pane.
#[derive(Default)]
pub(crate) struct Overview {
    rows: Vec<Row>,
    /// The generation and unfolding the rows were made for, and whether all of them fit.
    made_for: Option<(u64, usize, bool)>,
    /// The last screen had fewer rows than there are ports: those that need a look come first.
    short: bool,
    judged: Judged,
    looked: Looked,
    /// Rules that cannot be judged anywhere, and those that are judged in part only.
    unjudged: (usize, usize),
    unfolded: BTreeSet<Option<DeviceId>>,
    ports: Selection,
    findings: Selection,
    part: Part,
    /// Nothing was selected by hand yet: what is worst is selected, so that Enter opens it.
    chosen: bool,
    sideways: table::Sideways,
    /// First screen row of the ports and of the findings, from the top of the pane.
    places: (u16, u16),
    /// What was told of the findings when last drawn, and which of them stands in each row.
    digest: Digest,
    finding_rows: Vec<usize>,
}

impl Overview {
    fn make_rows(&mut self, scene: Scene<'_>) {
        let key = Some((scene.generation, self.unfolded.len(), self.short));
        if self.made_for != key {
            let selected = self.rows.get(self.ports.row).cloned();
            self.rows = rows(scene.world, &self.unfolded);
            if self.short {
                self.rows = worst_first(scene.world, std::mem::take(&mut self.rows));
            }
            // Rows move when others get worse; what is selected stays selected.
            let at = selected.and_then(|selected| self.rows.iter().position(|row| *row == selected));
            self.ports.row = at.filter(|_| self.chosen).unwrap_or(self.ports.row);
            self.made_for = key;
        }
    }

    /// Draws the digest of the findings; says how many of its lines are not in sight.
    fn draw_findings(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        self.digest = digest(scene.world, area.width, area.height);
        let told = &self.digest.told;
        // The first one may be taller: as many fewer fit.
        let tall = told.first().map_or(0, |first| usize::from(first.rows).saturating_sub(1));
        let whole = told.iter().map(|told| usize::from(told.rows)).sum::<usize>() <= usize::from(area.height);
        let fits = if whole { told.len() } else { usize::from(area.height).saturating_sub(tall) };
        self.findings.fit(told.len(), fits);
        self.finding_rows.clear();
        let mut y = 0;
        for (index, told) in told.iter().enumerate().skip(self.findings.top) {
            let (Some(finding), true) = (scene.world.findings.get(told.finding), y < area.height) else { break };
            let height = told.rows.min(area.height - y);
            let selected = self.part == Part::Findings && index == self.findings.row;
            let first = scene.world.findings.get(told.first).unwrap_or(finding);
            let entry = Entry { finding, place: told.place, others: told.others, first };
            draw_finding(scene, Rect { height, ..row(area, y) }, buf, entry, selected);
            self.finding_rows.extend((0..height).map(|_| index));
            y += height;
            if index == 0 {
                for line in &self.digest.advice {
                    let place = Rect { x: area.x + 6, width: area.width.saturating_sub(7), ..row(area, y) };
                    put(buf, place, 0, &Line::styled(line.clone(), scene.theme.info));
                    self.finding_rows.push(index);
                    y += 1;
                }
            }
        }
    }

    /// How many findings there are, and how many of them are not in sight; before it, how many ports are not.
    fn findings_title(&self, world: &World) -> String {
        let findings = self.findings_told(world);
        let (all, height) = (self.rows.len(), self.ports.height);
        if all > height { format!("{height} of {all} ports in sight, {findings}") } else { findings }
    }

    /// Since when somebody looks, and which rules cannot; the same in fewer words, and what of it matters most.
    fn watch(&self, world: &World) -> [String; 3] {
        let all = rule::all().len();
        let since = number::moment(world, world.watched_since(), false);
        let (n, how) = match self.unjudged {
            (0, part) => (part, "judged in part"),
            (nowhere, _) => (nowhere, "not judged"),
        };
        match n {
            0 => [format!("; watched since {since}"), format!("; since {since}"), String::new()],
            n => [
                format!("; {n} of {all} rules {how} [9]; watched since {since}"),
                format!("; {n}/{all} rules {how} [9]; since {since}"),
                format!("; {n}/{all} rules {how} [9]"),
            ],
        }
    }

    fn findings_told(&self, world: &World) -> String {
        let title = match incident::count(&world.findings) {
            0 => return "findings: none".to_owned(),
            1 => "1 finding".to_owned(),
            n => format!("{n} findings"),
        };
        let seen = self.finding_rows.last().map_or(0, |last| last + 1 - self.findings.top);
        let told: usize = self.digest.told.iter().map(|told| told.others + 1).sum();
        let hidden = self.digest.told.len().saturating_sub(seen);
        let folded = world.findings.len().saturating_sub(told);
        match (hidden, folded) {
            (0, 0) => title,
            (0, folded) => format!("{title}, {folded} more with them [5]"),
            (hidden, _) => format!("{title}, {hidden} not in sight [5]"),
        }
    }

    /// The finding of the selected line.
    fn selected_finding<'w>(&self, world: &'w World) -> Option<&'w std::sync::Arc<collector::finding::Finding>> {
        world.findings.get(self.digest.told.get(self.findings.row)?.finding)
    }

    fn open(&mut self, scene: Scene<'_>) -> Reaction {
        if self.part == Part::Findings {
            return self
                .selected_finding(scene.world)
                .map_or(Reaction::Done, |f| Reaction::Open(Target::Finding(f.rule, f.key.clone())));
        }
        match self.rows.get(self.ports.row) {
            Some(Row::Port { port, .. }) => {
                scene.world.ports.get(*port).map_or(Reaction::Done, |port| Reaction::Open(Target::Port(port.key)))
            }
            Some(Row::Fold { parent, .. }) => {
                self.unfolded.insert(*parent);
                Reaction::Done
            }
            Some(Row::Bare(_)) | None => Reaction::Done,
        }
    }
}

impl Pane for Overview {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        self.make_rows(scene);
        if scene.world.findings.is_empty() {
            self.part = Part::Ports;
        } else if !self.chosen {
            (self.part, self.findings.row) = (Part::Findings, 0);
        }
        if self.rows.is_empty() {
            draw_nothing(scene, area, buf);
            return;
        }
        self.looked.look(scene.world, scene.generation);
        let columns = columns(scene.world);
        let placed = self.sideways.fit(&columns, area.width.saturating_sub(1));
        let for_findings = wanted(scene.world, area.width).max(1).min((area.height / 3).max(3)) + 1;
        let rows = u16::try_from(self.rows.len()).unwrap_or(u16::MAX);
        let for_ports = (rows + 1).min(area.height.saturating_sub(for_findings));
        self.short = rows + 1 > for_ports;
        self.make_rows(scene);

        let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
        table::draw_titles(buf, row(inner, 0), &columns, &placed, scene.theme.title, None);
        self.ports.fit(self.rows.len(), usize::from(for_ports.saturating_sub(1)));
        let visible = self.rows.iter().enumerate().skip(self.ports.top).take(self.ports.height);
        for (line, (index, entry)) in (1u16..).zip(visible) {
            let cells = cells(scene, entry, &self.looked);
            let place = row(inner, line);
            if self.part == Part::Ports && index == self.ports.row {
                buf.set_style(row(area, line), scene.theme.selected);
                put(buf, area, line, &Line::raw("►"));
            }
            table::draw_row(buf, place, &columns, &placed, &cells);
        }

        let list = below(area, for_ports);
        self.places = (1, for_ports + 1);
        self.draw_findings(scene, below(list, 1), buf);
        let missing = self.judged.missing(scene.world);
        self.unjudged = (nowhere(&missing), missing.len() - nowhere(&missing));
        let mut title = self.findings_title(scene.world);
        let room = usize::from(list.width).saturating_sub(title.chars().count());
        // The rule before the title and a piece of it behind.
        let more = self.watch(scene.world).into_iter().find(|more| more.chars().count() + 5 <= room);
        title += &more.unwrap_or_default();
        heading(buf, list, 0, &title, scene.theme);
        let used = u16::try_from(self.finding_rows.len()).unwrap_or(u16::MAX);
        draw_unseen(scene, below(list, used.saturating_add(2)), buf);
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        self.make_rows(scene);
        let findings = self.digest.told.len();
        let moves = [Action::Up, Action::Down, Action::PageUp, Action::PageDown, Action::Top, Action::Bottom];
        self.chosen |= moves.contains(&action);
        match (action, self.part) {
            (Action::Enter, _) => return self.open(scene),
            (Action::Left | Action::Right, _) => _ = self.sideways.act(action, &columns(scene.world)),
            (Action::Leave, _) if !self.unfolded.is_empty() => self.unfolded.clear(),
            (Action::Down, Part::Ports) if self.ports.row + 1 >= self.rows.len() && findings > 0 => {
                self.part = Part::Findings;
            }
            (Action::Up, Part::Findings) if self.findings.row == 0 => self.part = Part::Ports,
            (Action::Top, _) => {
                self.part = Part::Ports;
                self.ports.act(action, self.rows.len());
            }
            (Action::Bottom, _) if findings > 0 => {
                self.part = Part::Findings;
                self.findings.act(action, findings);
            }
            (_, Part::Ports) if self.ports.act(action, self.rows.len()) => {}
            (_, Part::Findings) if self.findings.act(action, findings) => {}
            _ => return Reaction::Ignored,
        }
        Reaction::Done
    }

    fn points_at(&self, pane: PaneId, scene: Scene<'_>) -> Option<Target> {
        let world = scene.world;
        let port = match self.part {
            Part::Findings => health::port_of(world, self.selected_finding(world)?)?,
            Part::Ports => match self.rows.get(self.ports.row)? {
                Row::Port { port, .. } => world.ports.get(*port)?,
                Row::Bare(_) | Row::Fold { .. } => return None,
            },
        };
        match pane {
            PaneId::Port => Some(Target::Port(port.key)),
            PaneId::Qp => super::qp::telling(world, port).map(Target::Qp),
            _ => None,
        }
    }

    fn note(&self) -> Option<String> {
        self.sideways.hint()
    }

    fn click(&mut self, _column: u16, at: u16, scene: Scene<'_>) -> Reaction {
        let (ports, findings) = self.places;
        let (part, index, selection, len) = if at >= findings {
            let index = self.finding_rows.get(usize::from(at - findings)).copied().unwrap_or(usize::MAX);
            (Part::Findings, index, &mut self.findings, self.digest.told.len())
        } else if at >= ports {
            let index = self.ports.top + usize::from(at - ports);
            (Part::Ports, index, &mut self.ports, self.rows.len())
        } else {
            return Reaction::Ignored;
        };
        if index >= len {
            return Reaction::Ignored;
        }
        let again = self.part == part && selection.row == index;
        selection.row = index;
        self.part = part;
        self.chosen = true;
        if again { self.open(scene) } else { Reaction::Done }
    }
}

/// What is not seen here, where there is room for it.
fn draw_unseen(scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
    let theme = scene.theme;
    let mut unseen: Vec<String> = Vec::new();
    for source in &scene.status.sources {
        let lacks =
            |missing: &collector::source::Missing| format!("{}: {} ({})", source.name, missing.what, missing.reason);
        unseen.extend(source.missing.iter().map(lacks));
    }
    if scene.status.sources.is_empty() {
        let lacks = scene
            .world
            .sources
            .iter()
            .filter_map(|(name, source)| Some(format!("{name}: {}", source.reason.as_ref()?)));
        unseen.extend(lacks);
    }
    if unseen.is_empty() || area.height < 2 {
        return;
    }
    let from = area.height.saturating_sub(u16::try_from(unseen.len()).unwrap_or(u16::MAX).saturating_add(1));
    let area = below(area, from);
    put(buf, area, 0, &Line::styled(" not seen (9 says what to do):", theme.dim));
    for (at, text) in (1u16..).zip(unseen) {
        put(buf, area, at, &Line::styled(format!("   {text}"), theme.dim));
    }
}

/// The rows with those first that need a look; of equals, and of what belongs to one device, the order stays.
fn worst_first(world: &World, rows: Vec<Row>) -> Vec<Row> {
    let severity = |row: &Row| match row {
        Row::Port { port, .. } => {
            let port = &world.ports[*port];
            health::of(world, world.device(port.key.device), port).severity
        }
        Row::Bare(_) => Some(Severity::Warning),
        Row::Fold { .. } => None,
    };
    let mut devices: Vec<Vec<Row>> = Vec::new();
    for row in rows {
        let part = matches!(row, Row::Port { part: true, .. } | Row::Fold { .. });
        match devices.last_mut().filter(|_| part) {
            Some(device) => device.push(row),
            None => devices.push(vec![row]),
        }
    }
    devices.sort_by_key(|rows| std::cmp::Reverse(rows.iter().filter_map(severity).max()));
    devices.into_iter().flatten().collect()
}

/// The rows in the order of the devices, every device's parts below it.
fn rows(world: &World, unfolded: &BTreeSet<Option<DeviceId>>) -> Vec<Row> {
    let mut own = Vec::new();
    let mut parts: Vec<(Option<DeviceId>, usize)> = Vec::new();
    for (id, _) in world.present() {
        let part = matches!(world.role(id), Some(Role::Vf | Role::Management));
        let parent = if part { world.parent(id) } else { None };
        let mut its = world.ports.iter().enumerate().filter(|(_, port)| port.key.device == id).peekable();
        if its.peek().is_none() {
            own.push((id, Row::Bare(id)));
        }
        for (port, _) in its {
            if part {
                parts.push((parent, port));
            } else {
                own.push((id, Row::Port { port, part: false }));
            }
        }
    }
    let mut rows = Vec::new();
    let mut take = |parent: Option<DeviceId>, rows: &mut Vec<Row>| {
        let mut found: Vec<usize> = parts.extract_if(.., |(of, _)| *of == parent).map(|(_, port)| port).collect();
        if found.len() > MAX_PARTS && !unfolded.contains(&parent) {
            // What needs a look is never folded away.
            let loud = |port: &usize| {
                let port = &world.ports[*port];
                health::worst(world, port).is_some_and(|finding| finding.severity > Severity::Info)
            };
            let shown: Vec<usize> = found.extract_if(.., |port| loud(port)).collect();
            rows.extend(shown.into_iter().map(|port| Row::Port { port, part: true }));
            if !found.is_empty() {
                rows.push(Row::Fold { parent, ports: found });
            }
        } else {
            rows.extend(found.into_iter().map(|port| Row::Port { port, part: true }));
        }
    };
    for (at, (id, row)) in own.iter().enumerate() {
        rows.push(row.clone());
        if own.get(at + 1).is_none_or(|(next, _)| next != id) {
            take(Some(*id), &mut rows);
        }
    }
    take(None, &mut rows);
    rows
}

fn cells<'a>(scene: Scene<'a>, entry: &Row, looked: &Looked) -> Vec<Line<'a>> {
    match entry {
        Row::Port { port, part } => {
            let port = &scene.world.ports[*port];
            let device = scene.world.device(port.key.device);
            let health = looked.limit(port.key, health::of(scene.world, device, port));
            port_cells(scene, device, port, &health, *part)
        }
        Row::Bare(id) => {
            let device = scene.world.device(*id);
            let mut cells = vec![Line::raw(""); 19];
            cells[0] = Line::styled(device.name.to_string(), scene.theme.strong);
            let why = device.unreadable.as_deref().map_or("no port".to_owned(), |why| format!("unreadable: {why}"));
            cells[18] = Line::styled(why, scene.theme.warning);
            cells
        }
        Row::Fold { parent, ports } => fold_cells(scene, *parent, ports),
    }
}

/// Instead of an empty table: why there is nothing.
fn draw_nothing(scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
    let theme = scene.theme;
    let mut lines = vec![Line::raw("")];
    let width = usize::from(area.width).saturating_sub(6).max(10);
    if scene.generation == 0 {
        lines.push(Line::styled("  Waiting for the first data…", theme.strong));
    } else {
        lines.push(Line::styled("  No RDMA port is seen here.", theme.strong));
    }
    let mut reason = |lead: &str, text: &str| {
        for (at, part) in super::wrap(text, width).into_iter().enumerate() {
            lines.push(Line::from(vec![
                Span::raw(if at == 0 { lead.to_owned() } else { "    ".to_owned() }),
                Span::raw(part),
            ]));
        }
    };
    for text in scene.status.banner.iter().chain(&scene.world.header.note) {
        reason("  ● ", text);
    }
    for source in &scene.status.sources {
        for missing in &source.missing {
            let fix = missing.fix.as_ref().map_or(String::new(), |fix| format!(" → {fix}"));
            reason("  ● ", &format!("{}: {}: {}{fix}", source.name, missing.what, missing.reason));
        }
    }
    if scene.status.sources.is_empty() {
        for (name, source) in &scene.world.sources {
            if let Some(why) = &source.reason {
                reason("  ● ", &format!("{name}: {why}"));
            }
        }
    }
    lines.push(Line::raw(""));
    lines.push(Line::styled(
        "  9 shows every source; `rdmascope doctor` says what to do; `rdmascope demo` shows the screen.",
        theme.dim,
    ));
    for (at, line) in (0u16..).zip(&lines) {
        put(buf, area, at, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::theme::{Theme, ThemeName};
    use collector::feed::Mode;

    fn drawn(pane: &mut Overview, (width, height): (u16, u16)) -> String {
        let world = sample::faulty();
        let (status, theme) = (sample::Node::status(Mode::Live), Theme::new(ThemeName::Dark, true));
        let coverage = world.coverage();
        let scene = Scene { world: &world, status: &status, coverage: &coverage, generation: 1, theme: &theme };
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        pane.draw(scene, area, &mut buf);
        let line =
            |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>() + "\n";
        buf.content.chunks(usize::from(width)).map(line).collect()
    }

    #[test]
    fn where_not_all_ports_have_a_row_the_broken_one_has_and_the_rest_is_announced() {
        let mut pane = Overview::default();
        let all = drawn(&mut pane, (80, 20));
        assert!(all.lines().nth(1).unwrap().contains("mlx5_0") && !all.contains("in sight"), "{all}");
        let few = drawn(&mut pane, (80, 8));
        assert!(few.lines().nth(1).unwrap().contains("mlx5_4"), "{few}");
        assert!(few.contains("of 6 ports in sight, 3 findings"), "{few}");
        // Back where all fit the order is that of the devices.
        assert_eq!(drawn(&mut pane, (80, 20)), all);
    }

    #[test]
    fn rules_that_are_judged_in_part_are_not_told_as_judged_nowhere() {
        let told = |unjudged| Overview { unjudged, ..Overview::default() }.watch(&sample::healthy());
        let all = rule::all().len();
        assert_eq!(told((0, 0)), ["; watched since 14:13:21", "; since 14:13:21", ""]);
        assert_eq!(told((0, 4))[0], format!("; 4 of {all} rules judged in part [9]; watched since 14:13:21"));
        assert_eq!(told((9, 4))[1], format!("; 9/{all} rules not judged [9]; since 14:13:21"));
        // The page of sources counts the same.
        let world = sample::healthy();
        assert!(world.findings.is_empty());
        let (status, theme) = (sample::Node::status(Mode::Live), Theme::new(ThemeName::Dark, true));
        let coverage = world.coverage();
        let scene = Scene { world: &world, status: &status, coverage: &coverage, generation: 1, theme: &theme };
        let mut pane = Overview::default();
        let area = Rect::new(0, 0, 120, 40);
        pane.draw(scene, area, &mut Buffer::empty(area));
        let missing = Judged::default().missing(&world);
        assert!(missing.iter().any(|(_, _, in_part)| *in_part), "{missing:?}");
        assert_eq!(pane.unjudged.0, nowhere(&missing));
    }

    #[test]
    fn parts_stay_below_their_device_when_the_worst_come_first() {
        let world = sample::faulty();
        let rows = worst_first(&world, rows(&world, &BTreeSet::new()));
        let name = |row: &Row| match row {
            Row::Port { port, .. } => world.device(world.ports[*port].key.device).name.to_string(),
            Row::Fold { .. } => "parts".to_owned(),
            Row::Bare(_) => String::new(),
        };
        let names: Vec<String> = rows.iter().map(name).collect();
        assert_eq!(names, ["mlx5_4", "mlx5_1", "mlx5_3", "mlx5_0", "parts", "mlx5_2"]);
    }

    #[test]
    fn a_column_that_says_something_outlives_those_that_are_nothing_but_zeros() {
        let at = |world: &World, title: &str| {
            let columns = columns(world);
            let index = columns.iter().position(|column| column.title == title).unwrap();
            table::fit(&columns, 79, 0).iter().any(|place| place.index == index)
        };
        let world = sample::healthy();
        assert!(!at(&world, "PAUSE") && at(&world, "ERR"));
        let mut paused = (*world).clone();
        let ring = &mut std::sync::Arc::make_mut(&mut paused.ports[2]).rates;
        ring.or_default(collector::timeline::counter_table::Meaning::RxPauseDuration).push(Some(400_000.0));
        assert!(at(&paused, "PAUSE") && at(&paused, "RX NOW"));
    }
}
