//! 1 Overview: all ports in one table, the newest findings below.

use std::collections::BTreeSet;

use collector::finding::{Finding, Severity};
use collector::incident::{self, Place};
use collector::inventory::{DeviceId, Role, World};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::finding_row::{draw_finding, summary};
use super::port_row::{columns, fold_cells, port_cells};
use super::{Pane, PaneId, Reaction, Scene, Target, below, heading, put, row};
use crate::health;
use crate::key::Action;
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
    /// The generation and unfolding the rows were made for.
    made_for: Option<(u64, usize)>,
    unfolded: BTreeSet<Option<DeviceId>>,
    ports: Selection,
    findings: Selection,
    part: Part,
    skip: usize,
    /// Columns that were not in sight when last drawn.
    pub(crate) hidden: usize,
    /// First screen row of the ports and of the findings, from the top of the pane.
    places: (u16, u16),
    /// The finding in each row of their list when last drawn.
    finding_rows: Vec<usize>,
}

impl Overview {
    fn make_rows(&mut self, scene: Scene<'_>) {
        let key = Some((scene.generation, self.unfolded.len()));
        if self.made_for != key {
            self.rows = rows(scene.world, &self.unfolded);
            self.made_for = key;
        }
    }

    /// Draws the findings: in one line each, or with the whole summary when there is room for all of them.
    fn draw_findings(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        let findings = &scene.world.findings;
        self.findings.fit(findings.len(), usize::from(area.height));
        let tall = |finding: &Finding| u16::try_from(summary(scene.world, finding, area.width).len()).unwrap_or(1);
        let room = findings.len() <= self.findings.height
            && findings.iter().map(|finding| usize::from(tall(finding))).sum::<usize>() <= self.findings.height;
        self.finding_rows.clear();
        let places = incident::places(findings);
        let mut y = 0;
        for (index, finding) in findings.iter().enumerate().skip(self.findings.top).take(self.findings.height) {
            let height = if room { tall(finding) } else { 1 };
            let selected = self.part == Part::Findings && index == self.findings.row;
            let place = places.get(index).copied().unwrap_or(Place::Root(0));
            draw_finding(scene, Rect { height, ..row(area, y) }, buf, (finding, place), selected);
            self.finding_rows.extend((0..height).map(|_| index));
            y += height;
        }
    }

    fn open(&mut self, scene: Scene<'_>) -> Reaction {
        if self.part == Part::Findings {
            return scene
                .world
                .findings
                .get(self.findings.row)
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
        if self.rows.is_empty() {
            draw_nothing(scene, area, buf);
            return;
        }
        let columns = columns(scene.world);
        let placed = table::fit(&columns, area.width.saturating_sub(1), self.skip);
        self.hidden = table::hidden(&columns, &placed);
        let wanted = u16::try_from(scene.world.findings.len().max(1)).unwrap_or(u16::MAX);
        let for_findings = wanted.min((area.height / 3).max(2)) + 1;
        let rows = u16::try_from(self.rows.len()).unwrap_or(u16::MAX);
        let for_ports = (rows + 1).min(area.height.saturating_sub(for_findings));

        let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
        table::draw_titles(buf, row(inner, 0), &columns, &placed, scene.theme.title, None);
        self.ports.fit(self.rows.len(), usize::from(for_ports.saturating_sub(1)));
        let visible = self.rows.iter().enumerate().skip(self.ports.top).take(self.ports.height);
        for (line, (index, entry)) in (1u16..).zip(visible) {
            let cells = cells(scene, entry);
            let place = row(inner, line);
            if self.part == Part::Ports && index == self.ports.row {
                buf.set_style(row(area, line), scene.theme.selected);
                put(buf, area, line, &Line::raw("►"));
            }
            table::draw_row(buf, place, &columns, &placed, &cells);
        }

        let list = below(area, for_ports);
        let title = match incident::count(&scene.world.findings) {
            0 => "findings: none".to_owned(),
            n => format!("findings {n}"),
        };
        heading(buf, list, 0, &title, scene.theme);
        let list = below(list, 1);
        self.places = (1, for_ports + 1);
        if self.part == Part::Findings && scene.world.findings.is_empty() {
            self.part = Part::Ports;
        }
        self.draw_findings(scene, list, buf);
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        self.make_rows(scene);
        let findings = scene.world.findings.len();
        match (action, self.part) {
            (Action::Enter, _) => return self.open(scene),
            (Action::Left, _) => self.skip = self.skip.saturating_sub(1),
            (Action::Right, _) => self.skip += usize::from(self.hidden > 0),
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
            Part::Findings => health::port_of(world, world.findings.get(self.findings.row)?)?,
            Part::Ports => match self.rows.get(self.ports.row)? {
                Row::Port { port, .. } => world.ports.get(*port)?,
                Row::Bare(_) | Row::Fold { .. } => return None,
            },
        };
        (pane == PaneId::Port).then_some(Target::Port(port.key))
    }

    fn click(&mut self, _column: u16, at: u16, scene: Scene<'_>) -> Reaction {
        let (ports, findings) = self.places;
        let (part, index, selection, len) = if at >= findings {
            let index = self.finding_rows.get(usize::from(at - findings)).copied().unwrap_or(usize::MAX);
            (Part::Findings, index, &mut self.findings, scene.world.findings.len())
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
        if again { self.open(scene) } else { Reaction::Done }
    }
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

fn cells<'a>(scene: Scene<'a>, entry: &Row) -> Vec<Line<'a>> {
    match entry {
        Row::Port { port, part } => {
            let port = &scene.world.ports[*port];
            port_cells(scene, scene.world.device(port.key.device), port, *part)
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
