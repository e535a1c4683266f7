//! 7 PCIe: the tree from root ports over switches to adapters and their neighbours, with each link's speed and width, its
//! errors, and what goes over it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use collector::finding::{Finding, SubjectKey};
use collector::inventory::{AerClass, LinkState, PcieRecord, Role, World};
use collector::observation::{AerSeverity, Nanos};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::about::About;
use super::{Pane, PaneId, Reaction, Scene, Target, as_text, below, heading, put, row, wrap};
use crate::key::Action;
use crate::lane;
use crate::number::{self, UNKNOWN};
use crate::selection::Selection;
use crate::table::{self, Column};

/// Errors are counted over this time, ns.
const HOUR_NS: Nanos = 3_600_000_000_000;
/// Cells of the bar of a link's load.
const BAR: u16 = 6;

/// When the width is short there go: the maximum, the bar, the link's capacity, what goes over it, the link.
const COLUMNS: [Column; 10] = [
    table::text("FUNCTION", 14, 255),
    table::text("WHAT", 16, 230).growing(),
    table::text("LINK NOW", 12, 100),
    table::text("OF", 12, 20),
    table::number("CAN", 6, 50),
    table::number("RDMA", 6, 90),
    table::text("", BAR, 40),
    table::number("CORR", 5, 235),
    table::number("UNCORR", 6, 240),
    table::text("HEALTH", 14, 255),
];

/// A function or bridge of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    pci: Arc<str>,
    depth: usize,
    /// Virtual functions below it that have no row of their own.
    vfs: usize,
}

/// The pane.
#[derive(Default)]
pub(crate) struct PciePane {
    nodes: Vec<Node>,
    made_for: Option<u64>,
    list: Selection,
    sideways: table::Sideways,
    /// The chosen function stays chosen when the tree changes.
    chosen: Option<Arc<str>>,
    text: Selection,
    lines: usize,
    /// Rows that what the pane shows takes beside the first.
    shift: u16,
}

impl PciePane {
    fn make(&mut self, scene: Scene<'_>) {
        if self.made_for != Some(scene.generation) {
            self.nodes = tree(scene.world);
            self.made_for = Some(scene.generation);
        }
        let at = self.chosen.as_ref().and_then(|pci| self.nodes.iter().position(|node| node.pci == *pci));
        let worst = || self.nodes.iter().position(|node| worst(scene.world, &node.pci).is_some());
        self.list.row = at.or_else(worst).unwrap_or(0);
    }

    fn choose(&mut self) {
        self.chosen = self.nodes.get(self.list.row).map(|node| node.pci.clone());
        self.text = Selection::default();
    }
}

impl Pane for PciePane {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        self.make(scene);
        let whole = area;
        let area = about(scene, self.nodes.len()).draw(buf, area);
        self.shift = area.y - whole.y;
        if self.nodes.is_empty() {
            let why =
                "no PCIe function of an RDMA device is seen: software devices have none, and a container may hide them";
            for (at, line) in (2u16..).zip(wrap(why, usize::from(area.width).saturating_sub(4).max(20))) {
                put(buf, area, at, &Line::styled(format!("  {line}"), scene.theme.dim));
            }
            return;
        }
        let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
        let placed = self.sideways.fit(&COLUMNS, inner.width);
        table::draw_titles(buf, row(inner, 1), &COLUMNS, &placed, scene.theme.title, None);
        let wanted = u16::try_from(self.nodes.len()).unwrap_or(u16::MAX);
        // The detail keeps a third, as long as there is something to say.
        let rows = wanted.min(area.height.saturating_sub(2 + (area.height / 3).max(4)));
        self.list.fit(self.nodes.len(), usize::from(rows));
        let shown = self.nodes.iter().enumerate().skip(self.list.top).take(self.list.height);
        for (line, (index, node)) in (2u16..).zip(shown) {
            if index == self.list.row {
                buf.set_style(row(area, line), scene.theme.selected);
                put(buf, area, line, &Line::raw("►"));
            }
            table::draw_row(buf, row(inner, line), &COLUMNS, &placed, &cells(scene, node));
        }
        let Some(node) = self.nodes.get(self.list.row) else { return };
        let rest = below(area, 2 + rows);
        heading(buf, rest, 0, &format!("{} {}", node.pci, what(scene.world, node)), scene.theme);
        let body = below(rest, 1);
        let lines = detail(scene, node, usize::from(body.width));
        self.lines = lines.len();
        self.text.height = usize::from(body.height);
        self.text.top = self.text.top.min(lines.len().saturating_sub(self.text.height));
        for (at, line) in (0u16..).zip(lines.iter().skip(self.text.top)) {
            put(buf, body, at, line);
        }
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        self.make(scene);
        match action {
            Action::Copy => {
                let mut text = String::new();
                for node in &self.nodes {
                    let cells: Vec<String> = cells(scene, node).iter().map(ToString::to_string).collect();
                    text += cells.join("  ").trim_end();
                    text.push('\n');
                }
                if let Some(node) = self.nodes.get(self.list.row) {
                    text += format!("\n{} {}", node.pci, what(scene.world, node)).trim_end();
                    text.push('\n');
                    text += &as_text(&detail(scene, node, 100));
                }
                return Reaction::Copy(text, "tree");
            }
            Action::Enter => {
                let Some(node) = self.nodes.get(self.list.row) else { return Reaction::Done };
                if let Some(finding) = worst(scene.world, &node.pci) {
                    return Reaction::Open(Target::Finding(finding.rule, finding.key.clone()));
                }
                return self.points_at(PaneId::Port, scene).map_or(Reaction::Done, Reaction::Open);
            }
            Action::PageDown | Action::PageUp if self.text.scroll(action, self.lines) => {}
            _ if self.sideways.act(action, &COLUMNS) => {}
            _ if self.list.act(action, self.nodes.len()) => self.choose(),
            _ => return Reaction::Ignored,
        }
        Reaction::Done
    }

    fn note(&self) -> Option<String> {
        self.sideways.hint()
    }

    fn click(&mut self, _column: u16, at: u16, _scene: Scene<'_>) -> Reaction {
        let Some(line) = at.checked_sub(2 + self.shift).map(usize::from) else { return Reaction::Ignored };
        if line >= self.list.height || self.list.top + line >= self.nodes.len() {
            return Reaction::Ignored;
        }
        self.list.row = self.list.top + line;
        self.choose();
        Reaction::Done
    }

    fn points_at(&self, pane: PaneId, scene: Scene<'_>) -> Option<Target> {
        let pci = &self.nodes.get(self.list.row)?.pci;
        let world = scene.world;
        let port = world.present_ports().map(|(_, port)| port).find(|port| world.function_of(port) == Some(pci))?;
        (pane == PaneId::Port).then_some(Target::Port(port.key))
    }
}

/// The functions that carry RDMA, the bridges above them and their neighbours, parents first.
fn tree(world: &World) -> Vec<Node> {
    let mut virtual_functions: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let mut folded: Vec<&Arc<str>> = Vec::new();
    for (id, device) in world.present() {
        if world.role(id) != Some(Role::Vf) {
            continue;
        }
        if let (Some(pci), Some(parent)) = (&device.pci, world.parent(id).and_then(|id| world.device(id).pci.clone())) {
            *virtual_functions.entry(parent).or_default() += 1;
            folded.push(pci);
        }
    }
    // Each function by its way from the root: sorting puts children behind their parents.
    let mut ways: BTreeSet<Vec<Arc<str>>> = BTreeSet::new();
    for record in world.pcie.values().filter(|record| !folded.contains(&&record.pci)) {
        let mut way = record.path.clone();
        if way.last() != Some(&record.pci) {
            way.push(record.pci.clone());
        }
        for end in 1..=way.len() {
            ways.insert(way[..end].to_vec());
        }
    }
    // A bridge that was also told without its way is in the tree already.
    let inner: Vec<Arc<str>> = ways.iter().filter(|way| way.len() > 1).filter_map(|way| way.last().cloned()).collect();
    let nodes = ways.into_iter().filter_map(|way| {
        let pci = way.last()?.clone();
        let twice = way.len() == 1 && inner.contains(&pci);
        let vfs = virtual_functions.get(&pci).copied().unwrap_or(0);
        (!twice).then(|| Node { depth: way.len() - 1, pci, vfs })
    });
    nodes.collect()
}

/// The worst finding about the function itself.
fn worst<'w>(world: &'w World, pci: &Arc<str>) -> Option<&'w Arc<Finding>> {
    world.findings.iter().find(|finding| matches!(&finding.key, SubjectKey::Pci(its) if its == pci))
}

/// What it is: by its class, and by the RDMA devices that are on it.
fn what(world: &World, node: &Node) -> String {
    let record = world.pcie.get(&node.pci);
    let mut names: Vec<String> = Vec::new();
    for (device, port) in world.present_ports().filter(|(_, port)| world.function_of(port) == Some(&node.pci)) {
        names.push(device.name.to_string());
        names.extend(port.netdevs.iter().map(ToString::to_string));
    }
    names.dedup();
    // The first four digits of the class code are base class and subclass (PCI Code and ID Assignment Specification).
    let class = record.and_then(|record| record.class.as_deref()).map(|class| class.trim_start_matches("0x"));
    let kind = match class.and_then(|class| class.get(..4)) {
        Some("0604") if node.depth == 0 => "root port",
        Some("0604") => "switch port",
        Some("0200" | "0207" | "0280") => "NIC",
        Some("0300" | "0302" | "0380" | "1200") => "GPU",
        Some("0108") => "NVMe",
        Some(_) => "function",
        None if !names.is_empty() => "NIC",
        None => "not read",
    };
    let vfs = if node.vfs > 0 { format!(" +{} VF", node.vfs) } else { String::new() };
    format!("{kind} {}{vfs}", names.join(" ")).trim().to_owned()
}

fn link(link: LinkState, max: bool) -> String {
    let (speed, width) = if max { (link.max_speed_gts, link.max_width) } else { (link.speed_gts, link.width) };
    match (speed, width) {
        (None, None) => UNKNOWN.to_owned(),
        (speed, width) => format!("{} GT/s ×{}", number::plain(speed), number::plain(width.map(f64::from))),
    }
}

/// The link is slower or narrower than it could be. What is not known is not slow.
fn slow(link: LinkState) -> bool {
    let less = |now: Option<f64>, max: Option<f64>| now.zip(max).is_some_and(|(now, max)| now > 0.0 && now < max);
    less(link.speed_gts, link.max_speed_gts) || less(link.width.map(f64::from), link.max_width.map(f64::from))
}

/// RDMA bits per second of the ports whose way leads over a function, the busier direction, Gb/s.
fn carried(world: &World, pci: &Arc<str>) -> Option<f64> {
    let (mut tx, mut rx) = (None, None);
    let add = |sum: &mut Option<f64>, one: Option<f64>| *sum = one.map(|one| sum.unwrap_or(0.0) + one).or(*sum);
    for (_, port) in world.present_ports() {
        let Some(function) = world.function_of(port) else { continue };
        let over = function == pci || world.pcie.get(function).is_some_and(|record| record.path.contains(pci));
        if over {
            let now = port.throughput();
            add(&mut tx, now.tx_gbps);
            add(&mut rx, now.rx_gbps);
        }
    }
    match (tx, rx) {
        (Some(tx), Some(rx)) => Some(tx.max(rx)),
        (one, other) => one.or(other),
    }
}

/// Errors of a class in the last hour; `None` where nobody counts them.
fn errors(record: Option<&Arc<PcieRecord>>, class: AerClass, now: Nanos) -> Option<u64> {
    let record = record?;
    let n = record.tally.count(class, now.saturating_sub(HOUR_NS), now).n;
    (n > 0 || record.counts().is_some()).then_some(n)
}

fn cells(scene: Scene<'_>, node: &Node) -> Vec<Line<'static>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let record = world.pcie.get(&node.pci);
    let state = record.map(|record| record.link).unwrap_or_default();
    let is_slow = slow(state);
    let indent = "  ".repeat(node.depth.min(4));
    // The domain is the same everywhere and needs no room.
    let address = node.pci.strip_prefix("0000:").unwrap_or(&node.pci);
    let load = carried(world, &node.pci);
    let share = load.zip(state.gbps().filter(|can| *can > 0.0)).map(|(load, can)| load / can);
    let count = |n: Option<u64>, style: Style| {
        let style = if n.unwrap_or(0) > 0 { style } else { theme.dim };
        Line::styled(number::known_count(n), style)
    };
    let of = |class| errors(record, class, world.now);
    let uncorrected =
        of(AerClass::Nonfatal).zip(of(AerClass::Fatal)).map(|(nonfatal, fatal)| nonfatal.saturating_add(fatal));
    let finding = worst(world, &node.pci);
    let (health, look) = match finding {
        Some(finding) => (crate::health::word(world, finding), theme.severity_word(finding.severity)),
        None if is_slow => ("slow link".to_owned(), theme.info),
        None if record.is_none() => (UNKNOWN.to_owned(), theme.dim),
        None => ("ok".to_owned(), theme.good),
    };
    vec![
        Line::styled(format!("{indent}{address}"), theme.strong),
        Line::styled(what(world, node), theme.text),
        Line::styled(link(state, false), if is_slow { theme.warning } else { theme.text }),
        Line::styled(link(state, true), theme.dim),
        Line::styled(state.gbps().map_or_else(|| UNKNOWN.to_owned(), number::bits_of_gbps), theme.dim),
        Line::styled(load.map_or_else(|| UNKNOWN.to_owned(), number::bits_of_gbps), theme.text),
        Line::styled(share.map_or_else(String::new, |share| lane::bar(share, usize::from(BAR))), theme.send),
        count(of(AerClass::Corrected), theme.warning),
        count(uncorrected, theme.critical),
        Line::styled(health, look),
    ]
}

/// What the pane shows, since when, and what of it cannot be seen here.
fn about(scene: Scene<'_>, n: usize) -> About<'_> {
    let world = &**scene.world;
    let since = number::moment(world, world.started.max(world.now.saturating_sub(HOUR_NS)), false);
    let silent = world.pcie.values().filter(|record| record.aer.is_none()).count();
    let foreign = world.pcie.values().filter(|record| record.aer_owned == Some(false)).count();
    let unseen = match (foreign, silent) {
        (0, 0) => String::new(),
        (0, silent) => format!("errors of {silent} that count none"),
        (foreign, _) => format!("errors of {foreign} whose firmware keeps AER to itself"),
    };
    // Where the firmware keeps AER the kernel's counts stand still.
    let counted = world.pcie.values().any(|record| record.counts().is_some());
    let (since, sure) = if counted {
        (format!("errors since {since}"), "links as read, errors counted")
    } else {
        (String::new(), "links as read")
    };
    About::what(scene.theme, format!("{n} PCIe functions"))
        .since(since)
        .sure(sure)
        .unseen(unseen)
        .beyond("data between neighbours")
        .hint("RDMA: of the ports below")
}

fn detail(scene: Scene<'_>, node: &Node, width: usize) -> Vec<Line<'static>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let mut lines = Vec::new();
    let mut entry = |name: &str, text: &str, style: Style| {
        for (at, part) in wrap(text, width.saturating_sub(12).max(20)).into_iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            lines.push(Line::from(vec![Span::styled(format!(" {name:<10} "), theme.dim), Span::styled(part, style)]));
        }
    };
    let Some(record) = world.pcie.get(&node.pci) else {
        entry("link", "not read: it is known only as a part of others' way", theme.dim);
        return lines;
    };
    let about = world.findings.iter().filter(|f| matches!(&f.key, SubjectKey::Pci(its) if *its == node.pci));
    for finding in about {
        let text = format!("{}: {} ({})", finding.rule, finding.summary, finding.grade.name());
        entry("finding", &text, theme.severity(finding.severity));
    }
    let since = record.link_since.map_or_else(|| UNKNOWN.to_owned(), |t| number::moment(world, t, false));
    let text = format!("{} since {since}, at most {}", link(record.link, false), link(record.link, true));
    entry("link", &text, if slow(record.link) { theme.warning } else { theme.text });
    let owned = match record.aer_owned {
        Some(true) => "the operating system has it",
        Some(false) => "the firmware keeps it: errors are not told to the operating system",
        None => "not known who has it",
    };
    let payload = record.mps.map(|mps| format!("; payload at most {}", number::known_bytes(Some(u64::from(mps)))));
    let payload = payload.unwrap_or_default();
    entry("AER", &format!("{owned}{payload}; read {} ago", ago(world, record.t)), theme.text);
    match &record.aer {
        None => entry("totals", "the function shows none", theme.dim),
        Some(totals) => {
            let shown: Vec<String> = totals
                .iter()
                .filter(|total| total.value > 0)
                .map(|total| {
                    format!("{} {} {}", severity_name(total.severity), total.name, number::grouped(total.value))
                })
                .collect();
            let text = match (shown.is_empty(), record.counts()) {
                (_, None) => "all zero, whatever happens".to_owned(),
                (true, _) => "all zero".to_owned(),
                (false, _) => shown.join(", "),
            };
            entry("totals", &format!("{text} (lifetime)"), theme.text);
        }
    }
    for (t, event) in record.events.iter().rev().take(20) {
        let names: Vec<&str> = event.names.iter().map(|name| &**name).collect();
        let style = if event.severity == AerSeverity::Corrected { theme.warning } else { theme.critical };
        let text = format!("{} {} {}", number::moment(world, *t, true), severity_name(event.severity), names.join(" "));
        entry("event", &text, style);
    }
    let neighbours: Vec<&str> = record.path.iter().map(|pci| &**pci).collect();
    if !neighbours.is_empty() {
        entry("way", &neighbours.join(" → "), theme.dim);
    }
    lines
}

fn ago(world: &World, t: Nanos) -> String {
    number::age(world.now.saturating_sub(t))
}

fn severity_name(severity: AerSeverity) -> &'static str {
    match severity {
        AerSeverity::Corrected => "corrected",
        AerSeverity::Nonfatal => "non-fatal",
        AerSeverity::Fatal => "fatal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_said_to_be_counted_only_where_somebody_counts_them() {
        let mut world = (*crate::sample::healthy()).clone();
        let status = collector::feed::Status::new(collector::feed::Mode::Live);
        let theme = crate::theme::Theme::new(crate::theme::ThemeName::Dark, true);
        let coverage = collector::inventory::Coverage::default();
        let said = |world: &World| {
            let world = Arc::new(world.clone());
            let scene = Scene { world: &world, status: &status, coverage: &coverage, generation: 1, theme: &theme };
            let area = Rect::new(0, 0, 200, 1);
            let mut buf = Buffer::empty(area);
            about(scene, 5).draw(&mut buf, area);
            buf.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>()
        };
        assert!(said(&world).contains("errors since") && said(&world).contains("errors counted"), "{}", said(&world));
        for record in world.pcie.values_mut() {
            Arc::make_mut(record).aer_owned = Some(false);
        }
        assert!(!said(&world).contains("errors since") && !said(&world).contains("errors counted"), "{}", said(&world));
    }

    #[test]
    fn an_unknown_link_is_not_slow_and_a_narrow_one_is() {
        let whole =
            LinkState { speed_gts: Some(32.0), width: Some(16), max_speed_gts: Some(32.0), max_width: Some(16) };
        assert!(!slow(whole) && !slow(LinkState::default()));
        assert!(slow(LinkState { width: Some(8), ..whole }) && slow(LinkState { speed_gts: Some(16.0), ..whole }));
        assert!(!slow(LinkState { max_width: None, width: Some(8), ..whole }));
    }
}
