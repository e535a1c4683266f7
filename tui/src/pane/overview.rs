//! 1 Overview: all ports in one table, the newest findings below.

use std::collections::BTreeSet;
use std::sync::Arc;

use collector::finding::{Finding, Severity};
use collector::inventory::{DeviceId, DeviceRecord, PortRecord, Role, World};
use collector::observation::{LinkLayer, Nanos, PortState, Seeing};
use collector::timeline::counter_table::{Meaning, family};
use collector::timeline::{Growth, Ring};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Pane, PaneId, Reaction, Scene, Target, below, heading, put, row};
use crate::health::{self, Health};
use crate::key::Action;
use crate::lane;
use crate::number::{self, UNKNOWN};
use crate::selection::Selection;
use crate::table::{self, Column};

/// RETR, ERR and AER are counted over this time, ns.
const RECENT_NS: u64 = 60_000_000_000;
/// Windows of the sparkline.
const SPARK_WINDOWS: usize = 60;
/// Cells of the bars beside RX NOW and TX NOW.
const BAR: u16 = 5;
/// Cells of the sparkline.
const SPARK: u16 = 10;
/// More parts of one device than this are folded into one row.
const MAX_PARTS: usize = 2;

/// Counters that stand for something broken on the link or given up by the transport. Flushes (consequences) and the
/// application's own errors are not among them.
const ERRORS: [Meaning; 14] = [
    Meaning::SymbolError,
    Meaning::LinkErrorRecovery,
    Meaning::LocalLinkIntegrity,
    Meaning::BufferOverrun,
    Meaning::RcvErrors,
    Meaning::RemotePhysicalErrors,
    Meaning::CrcErrors,
    Meaning::IcrcErrors,
    Meaning::PostFecErrors,
    Meaning::ModuleFaults,
    Meaning::PcieErrors,
    Meaning::RetryExceeded,
    Meaning::RnrRetryExceeded,
    Meaning::OperationErrors,
];

/// Signs that something had to be sent again, for drivers without a counter of retransmissions.
const RESENT: [Meaning; 4] =
    [Meaning::SequenceNak, Meaning::ImpliedNak, Meaning::AckTimeout, Meaning::AdaptiveRetransmissions];

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
        let mut y = 0;
        for (index, finding) in findings.iter().enumerate().skip(self.findings.top).take(self.findings.height) {
            let height = if room { tall(finding) } else { 1 };
            let selected = self.part == Part::Findings && index == self.findings.row;
            draw_finding(scene, Rect { height, ..row(area, y) }, buf, finding, selected);
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
        let title = match scene.world.findings.len() {
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

/// The columns; the order in which they go is sparkline, P, RETR, PAUSE, NETDEV, bars, LINK, QP, CNP, RATE,
/// AER, CE, ERR.
fn columns(world: &World) -> Vec<Column> {
    let widest = |texts: &mut dyn Iterator<Item = usize>, least: usize, most: usize| {
        u16::try_from(texts.fold(least, usize::max).min(most)).unwrap_or(16)
    };
    let device = widest(&mut world.present().map(|(_, d)| d.name.chars().count() + 2), 8, 16);
    let netdev = widest(&mut world.ports.iter().map(|p| netdev(p).chars().count()), 6, 12);
    // Where a device has one port its number says nothing.
    let several = world.ports.iter().any(|port| port.key.port > 1);
    vec![
        table::text("DEVICE", device, 255),
        table::number("P", 1, if several { 235 } else { 15 }),
        table::text("NETDEV", netdev, 30),
        table::text("LINK", 6, 40),
        table::text("STATE", 6, 240),
        table::number("RATE", 4, 60),
        table::number("RX NOW", 6, 91),
        table::text("", BAR, 36),
        table::number("TX NOW", 6, 90),
        table::text("", BAR, 35),
        table::text("60 s", SPARK, 10),
        table::number("CE/s", 5, 70),
        table::number("CNP/s", 5, 55),
        table::number("PAUSE", 5, 25),
        table::number("RETR", 5, 20),
        table::number("ERR", 5, 80),
        table::number("AER", 5, 65),
        table::number("QP", 5, 50),
        table::text("HEALTH", 14, 255).growing(),
    ]
}

fn netdev(port: &PortRecord) -> String {
    let mut text: String = port.netdevs.iter().map(|n| &**n).collect::<Vec<_>>().join(",");
    if let Some(bond) = &port.bond {
        text = if text.is_empty() { bond.to_string() } else { format!("{text}@{bond}") };
    }
    if text.is_empty() { UNKNOWN.to_owned() } else { text }
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

fn fold_cells<'a>(scene: Scene<'a>, parent: Option<DeviceId>, ports: &[usize]) -> Vec<Line<'a>> {
    let theme = scene.theme;
    let active = ports.iter().filter(|port| scene.world.ports[**port].state == PortState::Active).count();
    let mut cells = vec![Line::raw(""); 19];
    let lead = if parent.is_some() { "└" } else { "" };
    cells[0] = Line::styled(format!("{lead}{} VF", ports.len()), theme.dim);
    let state = if active == ports.len() { "ACTIVE".to_owned() } else { format!("{active} up") };
    cells[4] = Line::styled(state, theme.dim);
    let qps: u32 = ports.iter().map(|port| scene.world.ports[*port].qps).sum();
    cells[17] = Line::styled(number::count(qps.into()), theme.dim);
    cells[18] = Line::styled("folded (Enter)", theme.dim);
    cells
}

fn port_cells<'a>(scene: Scene<'a>, device: &DeviceRecord, port: &PortRecord, inner: bool) -> Vec<Line<'a>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let health = health::of(world, device, port);
    // A broken port is a red line, not a red word at its end.
    let base = match health.severity {
        Some(Severity::Critical) => theme.critical,
        _ if inner => theme.dim,
        _ => theme.text,
    };
    let up = port.state == PortState::Active;
    let from = world.now.saturating_sub(RECENT_NS);
    let now = port.throughput();
    let bytes = |gbps: Option<f64>| gbps.map(|g| g * 1e9 / 8.0);
    let share = |gbps: Option<f64>| gbps.zip(port.rate_gbps.filter(|rate| up && *rate > 0.0)).map(|(g, rate)| g / rate);
    let bar = |gbps: Option<f64>| share(gbps).map_or(String::new(), |share| lane::bar(share, usize::from(BAR)));
    let rate = |meaning| port.reading(meaning).and_then(|reading| reading.rate);
    let cnp = added(rate(Meaning::CnpSent), rate(Meaning::CnpHandled));
    let pause = rate(Meaning::RxPauseDuration).map(|us_per_s| us_per_s / 1e6);
    let loud = |text: String, style: Style| {
        let quiet = text == "0" || text == UNKNOWN || text == "0.0%";
        Line::styled(text, if quiet { theme.dim } else { style })
    };
    let state_style = match port.state {
        PortState::Active => theme.good,
        PortState::Down => health.severity.map_or(theme.warning, |severity| theme.severity(severity)),
        _ => theme.warning,
    };
    let name = if inner { format!("└{}", device.name) } else { device.name.to_string() };
    let name_style = health.severity.map_or(base, |severity| theme.severity(severity));
    let link_rate = if up { number::link_rate(port.rate_gbps) } else { UNKNOWN.to_owned() };
    let qps = if qps_known(world) { number::count(port.qps.into()) } else { UNKNOWN.to_owned() };
    vec![
        Line::styled(name, name_style),
        Line::styled(port.key.port.to_string(), base),
        Line::styled(netdev(port), base),
        Line::styled(link(world, device, port), base),
        Line::styled(port.state.name(), state_style),
        Line::styled(link_rate, base),
        Line::styled(number::bits(bytes(now.rx_gbps)), base),
        Line::styled(bar(now.rx_gbps), theme.receive),
        Line::styled(number::bits(bytes(now.tx_gbps)), base),
        Line::styled(bar(now.tx_gbps), theme.send),
        Line::styled(spark(port), theme.dim),
        loud(number::per_second(rate(Meaning::EcnMarkedRx)), theme.strong),
        loud(number::per_second(cnp), theme.strong),
        loud(number::percent(pause), theme.strong),
        loud(number::growth(resent(port, from)), theme.strong),
        loud(errors_text(port, from), theme.critical),
        loud(number::known_count(aer(world, port, from)), theme.warning),
        Line::styled(qps, base),
        health_cell(scene, device, &health),
    ]
}

fn health_cell<'a>(scene: Scene<'a>, device: &DeviceRecord, health: &Health) -> Line<'a> {
    let theme = scene.theme;
    let style = match health.severity {
        Some(severity) => theme.severity_word(severity),
        None if health.well => theme.good,
        None => theme.dim,
    };
    let mark = if device.vf { " vf" } else { "" };
    Line::from(vec![Span::styled(health.word.clone(), style), Span::styled(mark, theme.dim)])
}

fn added(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

/// What carries RDMA here, in a word.
pub(crate) fn link(world: &World, device: &DeviceRecord, port: &PortRecord) -> String {
    if matches!(world.role(port.key.device), Some(Role::Management)) {
        return "mgmt".to_owned();
    }
    let driver = device.driver.as_deref().map_or("", family);
    match port.link_layer {
        LinkLayer::InfiniBand => {
            let lane = port.rate_gbps.zip(port.lanes).map(|(rate, lanes)| rate / f64::from(lanes.max(1)));
            // Rounded signalling rates per lane, as the InfiniBand Trade Association names them.
            let name = lane.and_then(|gbps| {
                [(150.0, "XDR"), (75.0, "NDR"), (40.0, "HDR"), (20.0, "EDR"), (13.0, "FDR"), (9.0, "QDR")]
                    .into_iter()
                    .find(|(least, _)| gbps >= *least)
            });
            name.map_or_else(|| "IB".to_owned(), |(_, name)| format!("IB {name}"))
        }
        LinkLayer::Ethernet => {
            let kinds = || port.gids.iter().filter_map(|(_, _, kind)| kind.as_deref());
            if matches!(driver, "siw" | "cxgb4" | "iw_cxgb4" | "qedr_iw") {
                "iWARP".to_owned()
            } else if kinds().any(|kind| kind.contains("v2")) {
                "RoCEv2".to_owned()
            } else if kinds().any(|kind| kind.contains("v1")) {
                "RoCEv1".to_owned()
            } else {
                "Eth".to_owned()
            }
        }
        LinkLayer::Unspecified if driver == "efa" => "EFA".to_owned(),
        LinkLayer::Unspecified => UNKNOWN.to_owned(),
    }
}

/// The busier direction over the last minute, the link's rate being full height.
fn spark(port: &PortRecord) -> String {
    let cells = usize::from(SPARK);
    let values = |meaning| port.rates.get(&meaning).map(|ring: &Ring| ring.resampled(SPARK_WINDOWS, cells));
    let merged = match (values(Meaning::RxBytes), values(Meaning::TxBytes)) {
        (Some(rx), Some(tx)) => {
            rx.into_iter().zip(tx).map(|(rx, tx)| rx.zip(tx).map(|(rx, tx)| rx.max(tx)).or(rx).or(tx)).collect()
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return UNKNOWN.to_owned(),
    };
    let top = port.rate_gbps.filter(|_| port.state == PortState::Active).map(|gbps| gbps * 1e9 / 8.0);
    let seen = merged.iter().flatten().copied().fold(0.0, f64::max);
    lane::sparkline(&merged, top.unwrap_or(seen).max(seen))
}

/// Growth of several meanings together; `None` when none of them can be told.
fn together(port: &PortRecord, meanings: &[Meaning], from: Nanos) -> Option<Growth> {
    meanings
        .iter()
        .filter_map(|meaning| port.growth(*meaning, from))
        .reduce(|a, b| Growth { sum: a.sum.saturating_add(b.sum), broken: a.broken || b.broken })
}

fn resent(port: &PortRecord, from: Nanos) -> Option<Growth> {
    port.growth(Meaning::Retransmissions, from).or_else(|| together(port, &RESENT, from))
}

fn errors_text(port: &PortRecord, from: Nanos) -> String {
    let saturated = ERRORS.iter().any(|meaning| port.reading(*meaning).is_some_and(|reading| reading.saturated));
    let growth = together(port, &ERRORS, from);
    number::growth(growth.map(|growth| Growth { broken: growth.broken || saturated, ..growth }))
}

/// AER errors after `from` on the port's function and the path above it; `None` when nobody counts them.
fn aer(world: &World, port: &PortRecord, from: Nanos) -> Option<u64> {
    let function = world.function_of(port)?;
    let own = world.pcie.get(function)?;
    let above = own.path.iter().filter(|pci| *pci != function).filter_map(|pci| world.pcie.get(pci));
    let mut known = false;
    let mut sum = 0u64;
    for record in std::iter::once(own).chain(above) {
        let single = |name: &str| !name.starts_with("TOTAL_") && !name.contains("total_err");
        let counted: u64 = record.growth.since(from).filter(|(_, g)| single(&g.1)).map(|(_, g)| g.2).sum();
        let reported = record.events.since(from).count() as u64;
        known |= record.aer.is_some() || reported > 0;
        // The same errors by two ways: never added.
        sum = sum.saturating_add(counted.max(reported));
    }
    known.then_some(sum)
}

/// Somebody looks for QPs here, so that none seen means none there.
fn qps_known(world: &World) -> bool {
    let looks = |name: &str| ["netlink", "nldev", "probe", "ebpf"].iter().any(|part| name.contains(part));
    !world.qps.is_empty()
        || world.qps.gone().next().is_some()
        || world.sources.iter().any(|(name, source)| looks(name) && source.state == Seeing::Ok)
}

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
fn summary(world: &World, finding: &Finding, width: u16) -> Vec<String> {
    let placed = table::fit(&finding_columns(world), width.saturating_sub(1), 0);
    let wide = placed.iter().find(|place| place.index == SUMMARY).map_or(24, |place| place.width);
    super::wrap(&finding.summary, usize::from(wide))
}

/// One finding; what of the summary does not fit into one line goes on below, if the area has a row for it.
pub(crate) fn draw_finding(scene: Scene<'_>, area: Rect, buf: &mut Buffer, finding: &Arc<Finding>, selected: bool) {
    let (world, theme) = (scene.world, scene.theme);
    let cleared = finding.state == collector::finding::FindingState::Cleared;
    let severity = if cleared { "over" } else { crate::theme::severity_word(finding.severity) };
    let style = |style: Style| if cleared { theme.dim } else { style };
    let lasted = if cleared { finding.t } else { world.now };
    let loud = style(if finding.severity == Severity::Critical { theme.critical } else { theme.text });
    let mut lines =
        if area.height > 1 { summary(scene.world, finding, area.width) } else { vec![finding.summary.clone()] };
    let first = if lines.is_empty() { String::new() } else { lines.remove(0) };
    let cells = [
        Line::styled(severity, style(theme.severity_word(finding.severity))),
        Line::styled(number::age(lasted.saturating_sub(finding.first_t)), style(theme.text)),
        Line::styled(finding.subject.to_string(), style(theme.strong)),
        Line::styled(finding.rule, style(theme.dim)),
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
