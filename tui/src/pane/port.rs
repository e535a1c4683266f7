//! 2 Port: charts on one time axis, and every counter with its rate, total, unit, meaning or the reason for `–`.

mod counters;

use collector::inventory::{DeviceRecord, PortEvent, PortKey, PortRecord, World};
use collector::observation::{LinkLayer, Nanos, PortState};
use collector::timeline::counter_table::Meaning;
use collector::timeline::{Ring, Series};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use self::counters::{COUNTERS, SIGNS_NS, counter, names, sign};
use super::about::About;
use super::looked::Looked;
use super::{LOW, Pane, PaneId, Reaction, Scene, Target, below, heading, port_row, put, row};
use crate::health;
use crate::key::Action;
use crate::lane::{self, Axis, SPANS};
use crate::number::{self, UNKNOWN};
use crate::selection::Selection;
use crate::table;
use crate::theme::Theme;

/// Cells of a lane's label.
pub(crate) const LABEL: u16 = 25;

/// A loopback is measured once a second: one that is older says nothing of now, ns.
const LOOPBACK_NS: Nanos = 5_000_000_000;

/// How a lane's values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Bits,
    PerSecond,
    Share,
}

/// The lanes: label, what they add up, how they are written.
const LANES: [(&str, &[Meaning], Write); 6] = [
    ("RX", &[Meaning::RxBytes], Write::Bits),
    ("TX", &[Meaning::TxBytes], Write::Bits),
    ("CE/s", &[Meaning::EcnMarkedRx], Write::PerSecond),
    ("CNP/s", &[Meaning::CnpSent, Meaning::CnpHandled], Write::PerSecond),
    ("PAUSE", &[Meaning::RxPauseDuration], Write::Share),
    ("ERR/s", &port_row::ERRORS, Write::PerSecond),
];

/// The pane.
#[derive(Default)]
pub(crate) struct PortPane {
    key: Option<PortKey>,
    span: usize,
    /// Cells the cursor stands left of now.
    cursor: u16,
    counters: Selection,
    rows: usize,
    /// What the footer says of columns there was no room for when last drawn.
    out_of_sight: Option<String>,
    /// Counters as their sources list them, instead of those first that say something.
    listed: bool,
    /// Words a counter's name or explanation must have.
    filter: String,
    /// The filter is being typed.
    typing: bool,
    looked: Looked,
}

impl PortPane {
    /// Shows a port.
    pub(crate) fn show(&mut self, key: PortKey) {
        if self.key != Some(key) {
            let (span, listed, filter) = (self.span, self.listed, std::mem::take(&mut self.filter));
            *self = Self { key: Some(key), span, listed, filter, ..Self::default() };
        }
    }

    /// The port to show: the chosen one, else the one with the worst finding, else the first.
    fn port<'w>(&self, world: &'w World) -> Option<&'w PortRecord> {
        let chosen = self.key.and_then(|key| world.port(key));
        let worst = || world.findings.iter().find_map(|finding| health::port_of(world, finding));
        chosen.or_else(worst).or_else(|| world.present_ports().map(|(_, port)| port).next())
    }

    fn turn(&mut self, world: &World, forward: bool) {
        let keys: Vec<PortKey> = world.present_ports().map(|(_, port)| port.key).collect();
        let at = self.port(world).and_then(|port| keys.iter().position(|key| *key == port.key));
        if let Some(at) = at {
            let next = if forward { at + 1 } else { at + keys.len() - 1 } % keys.len();
            self.show(keys[next]);
        }
    }
}

impl Pane for PortPane {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        let (world, theme) = (&**scene.world, scene.theme);
        let Some(port) = self.port(world) else {
            put(buf, area, 1, &Line::styled(" No port is seen here; 1 says why.", theme.dim));
            return;
        };
        self.key = Some(port.key);
        let device = world.device(port.key.device);
        self.looked.look(scene.world, scene.generation);
        put(buf, area, 0, &title(scene, device, port, &self.looked));
        put(buf, area, 1, &details(scene, device, port));
        // The lowest panes have no row for it.
        let head = below(area, 2);
        let head = if area.height < LOW { head } else { below(about(scene, port, &self.looked).draw(buf, head), 1) };
        let loopback = loopback(scene, port);
        if let Some(line) = &loopback {
            put(buf, head, 0, line);
        }
        let charts = below(head, u16::from(loopback.is_some()));
        let axis = Axis::new(
            world.now,
            SPANS[self.span.min(SPANS.len() - 1)],
            world.window_ns,
            charts.width.saturating_sub(LABEL + 1),
        );
        self.cursor = self.cursor.min(axis.width.saturating_sub(1));
        let used = draw_lanes(scene, charts, buf, port, &axis, self.cursor);
        let list = below(charts, used);
        let mut rows: Vec<(&Series, &str)> = Vec::new();
        let bound = port.bound.iter().map(|set| &set.counters);
        for set in port.sets.iter().chain(&device.sets).chain(bound) {
            let place = set.bound.as_deref().unwrap_or_else(|| set.source.name());
            rows.extend(set.series.iter().filter(|s| !s.def.is_setting()).map(|series| (series, place)));
        }
        let all = rows.len();
        let words: Vec<String> = self.filter.split_whitespace().map(str::to_ascii_lowercase).collect();
        rows.retain(|(series, _)| words.iter().all(|word| names(series, word)));
        if !self.listed {
            let from = world.now.saturating_sub(SIGNS_NS);
            rows.sort_by_cached_key(|(series, _)| sign(series, from));
        }
        self.rows = rows.len();
        let unknown = rows.iter().filter(|(series, _)| series.value().is_none()).count();
        let reasons = if list.width < 100 { "" } else { ", each with its reason" };
        let unknown = if unknown > 0 { format!("; {unknown} unknown{reasons}") } else { String::new() };
        let order = if self.listed { "as listed" } else { "errors that grew first" };
        let text = match (self.typing, self.filter.is_empty()) {
            (true, _) => format!("/ {}▏ (Enter keeps, Esc clears)", self.filter),
            (false, false) => format!("{} of {all} counters   / {}", rows.len(), self.filter),
            (false, true) => format!("{all} counters, {order}; totals are the driver's{unknown}"),
        };
        heading(buf, list, 0, &text, theme);
        let inner = Rect { x: list.x + 1, width: list.width.saturating_sub(1), ..below(list, 1) };
        let placed = table::fit(&COUNTERS, inner.width, 0);
        self.out_of_sight = table::hint_of_width(&COUNTERS, &placed);
        table::draw_titles(buf, row(inner, 0), &COUNTERS, &placed, theme.title, None);
        let lines = below(inner, 1);
        self.counters.height = usize::from(lines.height);
        self.counters.top = self.counters.top.min(rows.len().saturating_sub(self.counters.height));
        let shown = rows.into_iter().skip(self.counters.top).take(self.counters.height);
        for (at, (series, place)) in (0u16..).zip(shown) {
            table::draw_row(buf, row(lines, at), &COUNTERS, &placed, &counter(series, place, theme));
        }
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        match action {
            Action::Next | Action::Previous => self.turn(scene.world, action == Action::Next),
            Action::Longer => self.span = (self.span + 1).min(SPANS.len() - 1),
            Action::Shorter => self.span = self.span.saturating_sub(1),
            Action::Left => self.cursor = self.cursor.saturating_add(1),
            Action::Right => self.cursor = self.cursor.saturating_sub(1),
            Action::Leave if self.cursor > 0 => self.cursor = 0,
            Action::Leave if !self.filter.is_empty() => self.filter.clear(),
            Action::Filter => self.typing = true,
            Action::Sort => self.listed = !self.listed,
            _ if self.counters.scroll(action, self.rows) => {}
            _ => return Reaction::Ignored,
        }
        Reaction::Done
    }

    fn points_at(&self, pane: PaneId, scene: Scene<'_>) -> Option<Target> {
        let port = self.port(scene.world)?;
        (pane == PaneId::Qp).then(|| super::qp::telling(scene.world, port).map(Target::Qp))?
    }

    fn note(&self) -> Option<String> {
        self.out_of_sight.clone()
    }

    fn typing(&self) -> bool {
        self.typing
    }

    fn type_key(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Enter => self.typing = false,
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char('u') if control => self.filter.clear(),
            KeyCode::Char(c) if !control => self.filter.push(c),
            _ => {}
        }
    }
}

fn title<'a>(scene: Scene<'a>, device: &'a DeviceRecord, port: &'a PortRecord, looked: &Looked) -> Line<'a> {
    let (world, theme) = (&**scene.world, scene.theme);
    let health = looked.limit(port.key, health::of(world, device, port));
    let style = match health.severity {
        Some(severity) => theme.severity_word(severity),
        None if health.well => theme.good,
        None => theme.dim,
    };
    let mut spans = vec![
        Span::styled(format!(" {}/{}  ", device.name, port.key.port), theme.strong),
        Span::styled(format!(" {} ", health.word), style),
    ];
    let lacking = looked.lacking(port.key);
    if let Some(finding) = health::worst(world, port) {
        spans.push(Span::styled(
            format!("  {} ({}): {}", finding.rule, finding.grade.name(), finding.summary),
            theme.text,
        ));
    } else if !health.well && !lacking.is_empty() {
        spans.push(Span::styled(format!("  no rule can look here for {} [9]", lacking.join(", ")), theme.dim));
    }
    Line::from(spans)
}

/// Since when the port is watched, what rules look at here, and what is not seen of it.
fn about<'t>(scene: Scene<'t>, port: &PortRecord, looked: &Looked) -> About<'t> {
    let world = scene.world;
    let since = number::moment(world, port.first_seen.0.max(world.watched_since()), false);
    let lacking = looked.lacking(port.key);
    let mut unseen = unseen_lanes(port);
    unseen.extend(lacking);
    let judged = looked.at(port.key);
    let found = health::worst(world, port).is_some();
    let judged = match (judged.is_empty(), found) {
        (true, _) => String::new(),
        (false, true) => format!("rules look at {}", judged.join(", ")),
        (false, false) => format!("no finding in {}", judged.join(", ")),
    };
    let beyond = if unseen.is_empty() { "the other end of the link" } else { "" };
    // What rules look at is long: in two rows it stands in the second.
    About::what(scene.theme, format!("watched since {since}")).unseen(unseen.join(", ")).beyond(beyond).sure(judged)
}

/// Lanes of which nothing is seen though it may be there: marks, CNPs and pause are of Ethernet alone.
fn unseen_lanes(port: &PortRecord) -> Vec<&'static str> {
    let there = |label: &str| port.link_layer == LinkLayer::Ethernet || !matches!(label, "CE/s" | "CNP/s" | "PAUSE");
    let lanes = LANES.iter().filter(|(label, meanings, _)| there(label) && newest(port, meanings).is_none());
    lanes.map(|(label, ..)| label.trim_end_matches("/s")).collect()
}

fn details<'a>(scene: Scene<'a>, device: &'a DeviceRecord, port: &'a PortRecord) -> Line<'a> {
    let theme = scene.theme;
    let phys = port.phys_state.as_deref().unwrap_or(UNKNOWN);
    let mut text = format!(
        " {} {} ({phys}) {}",
        port_row::link(scene.world, device, port),
        port.state.name(),
        if port.state == PortState::Active { number::link_rate(port.rate_gbps) } else { UNKNOWN.to_owned() },
    );
    for (label, value) in [
        ("", port.netdevs.first().map(|netdev| &**netdev)),
        ("bond ", port.bond.as_deref()),
        ("", device.driver.as_deref()),
        ("fw ", device.fw.as_deref()),
        ("", scene.world.function_of(port).map(|pci| &**pci)),
        ("", device.model.as_deref()),
    ] {
        if let Some(value) = value {
            text.extend(["  ", label, value]);
        }
    }
    for note in &port.notes {
        text.extend(["  (", &**note, ")"]);
    }
    Line::styled(text, theme.dim)
}

/// The newest loopback measurement, and since when there are any; nothing where none was made.
fn loopback<'a>(scene: Scene<'a>, port: &PortRecord) -> Option<Line<'a>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let (t, newest) = port.loopbacks.last()?;
    let (since, _) = port.loopbacks.iter().next()?;
    let ago = world.now.saturating_sub(*t);
    let text = format!(
        " loopback {} median, {} p99, {} max of {} writes; since {}",
        number::short_time(newest.p50_ns),
        number::short_time(newest.p99_ns),
        number::short_time(newest.max_ns),
        number::count(newest.n),
        number::moment(world, *since, false),
    );
    Some(if ago > LOOPBACK_NS {
        Line::styled(format!("{text}, the last one {} ago", number::age(ago)), theme.warning)
    } else {
        Line::styled(text, theme.text)
    })
}

/// Draws the charts; says how many rows they took.
fn draw_lanes(scene: Scene<'_>, area: Rect, buf: &mut Buffer, port: &PortRecord, axis: &Axis, cursor: u16) -> u16 {
    let theme = scene.theme;
    let at = axis.width.saturating_sub(1).saturating_sub(cursor);
    axis_line(buf, row(area, 0), scene, axis, cursor);
    // Throughput gets the height that is left when every other lane has a row and the counters have half of the pane.
    let small = 4 + 2;
    let tall = ((area.height / 2).saturating_sub(small + 1) / 2).clamp(1, 4);
    let mut y = 1;
    for (label, meanings, write) in LANES {
        let height = if write == Write::Bits { tall } else { 1 };
        let place = Rect { height: height.min(area.height.saturating_sub(y)), ..row(area, y) };
        let values = added(port, meanings, axis);
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        let full = match write {
            Write::Bits if port.state == PortState::Active => port.rate_gbps.map(|gbps| gbps * 1e9 / 8.0),
            Write::Share => Some(1e6),
            _ => None,
        };
        // The last cell is a mean of its windows, and need not have a reading: now is the newest there is.
        let now = if cursor == 0 { newest(port, meanings) } else { values.get(usize::from(at)).copied().flatten() };
        let style = match label {
            "RX" => theme.receive,
            "TX" => theme.send,
            "ERR/s" => theme.critical,
            _ => theme.warning,
        };
        let known = values.iter().any(Option::is_some);
        let text = |value: Option<f64>| match write {
            Write::Bits => number::bits(value),
            Write::PerSecond => number::per_second(value),
            Write::Share => number::percent(value.map(|us| us / 1e6)),
        };
        // Not that of the cells: they are means, and the further out the lower.
        let max = if known { text(Some(peak(port, meanings, axis).max(most))) } else { UNKNOWN.to_owned() };
        draw_lane(buf, place, label, &text(now), &format!("max {max}"), theme);
        let chart = Rect { x: place.x + LABEL, width: axis.width, ..place };
        lane::bars(buf, chart, &values, full.unwrap_or(most).max(most), style, theme.dim);
        y += height;
    }
    let state = if cursor == 0 { Some(port.state) } else { state_at(port, axis.time(at)) };
    draw_lane(buf, row(area, y), "state", state.map_or(UNKNOWN, PortState::name), "", theme);
    state_lane(buf, lane_area(row(area, y), axis), port, axis, theme);
    y += 1;
    draw_lane(buf, row(area, y), "events", "", "A aer Q qp", theme);
    event_lane(buf, lane_area(row(area, y), axis), scene.world, port, axis, theme);
    y + 1
}

/// The part of a lane's row right of its label.
pub(crate) fn lane_area(place: Rect, axis: &Axis) -> Rect {
    Rect { x: place.x + LABEL, width: axis.width.min(place.width.saturating_sub(LABEL)), ..place }
}

/// Draws a lane's label: name, value, and something more where there is a second row or room.
pub(crate) fn draw_lane(buf: &mut Buffer, place: Rect, label: &str, value: &str, more: &str, theme: &Theme) {
    let label_area = Rect { width: LABEL.saturating_sub(1).min(place.width), ..place };
    let first = Line::from(vec![
        Span::styled(format!(" {label:<6}"), theme.strong),
        Span::styled(format!("{value:>6}"), theme.text),
        Span::styled(if place.height > 1 { String::new() } else { format!(" {more:>10}") }, theme.dim),
    ]);
    put(buf, label_area, 0, &first);
    if place.height > 1 {
        put(buf, label_area, 1, &Line::styled(format!("       {more}"), theme.dim));
    }
}

/// The line above the lanes: what time the edges are, and where the cursor stands.
pub(crate) fn axis_line(buf: &mut Buffer, place: Rect, scene: Scene<'_>, axis: &Axis, cursor: u16) {
    let theme = scene.theme;
    let at = axis.width.saturating_sub(1).saturating_sub(cursor);
    let time = number::moment(scene.world, axis.time(at), false);
    // Of a frozen screen or a recording the right edge is not now.
    let what = if cursor == 0 { "until" } else { "at" };
    put(buf, place, 0, &Line::from(vec![Span::styled(format!(" {what:<5} {time}"), theme.dim)]));
    let lane = lane_area(place, axis);
    put(buf, lane, 0, &Line::styled("─".repeat(usize::from(lane.width)), theme.rule));
    put(buf, lane, 0, &Line::styled(format!("{} ago ", number::span(axis.span_ns())), theme.dim));
    if lane.height > 0 && at < lane.width {
        buf.set_string(lane.x + at, lane.y, "▼", theme.strong);
    }
}

/// The sum of several meanings as last read, a window or more ago; unknown where none of them is known.
fn newest(port: &PortRecord, meanings: &[Meaning]) -> Option<f64> {
    port_row::understood(port, meanings).filter_map(|meaning| port.rate(meaning)).reduce(|a, b| a + b)
}

/// The sum of several meanings' histories, cell by cell; unknown where none of them is known.
fn added(port: &PortRecord, meanings: &[Meaning], axis: &Axis) -> Vec<Option<f64>> {
    let mut sum: Vec<Option<f64>> = vec![None; usize::from(axis.width)];
    for ring in port_row::understood(port, meanings).filter_map(|meaning| port.rates.get(&meaning)) {
        for (sum, value) in sum.iter_mut().zip(axis.values(ring)) {
            *sum = match (*sum, value) {
                (Some(a), Some(b)) => Some(a + b),
                (one, other) => one.or(other),
            };
        }
    }
    sum
}

/// The highest sum in a single window of the time shown, as far back as windows are kept one by one.
fn peak(port: &PortRecord, meanings: &[Meaning], axis: &Axis) -> f64 {
    let mut rings: Vec<_> = port_row::understood(port, meanings)
        .filter_map(|meaning| port.rates.get(&meaning))
        .map(Ring::newest_first)
        .collect();
    let mut most = 0.0f64;
    for _ in 0..axis.windows {
        let mut any = false;
        let mut sum = 0.0;
        for value in rings.iter_mut().filter_map(Iterator::next) {
            any = true;
            sum += value.unwrap_or(0.0);
        }
        if !any {
            break;
        }
        most = most.max(sum);
    }
    most
}

/// The port's state over time.
pub(crate) fn state_lane(buf: &mut Buffer, area: Rect, port: &PortRecord, axis: &Axis, theme: &Theme) {
    if area.height == 0 {
        return;
    }
    for cell in 0..area.width {
        let Some(state) = state_at(port, axis.time(cell)) else { continue };
        let (symbol, style) = look(state, theme);
        buf.set_string(area.x + cell, area.y, symbol, style);
    }
    // A fall that was over before the next cell is one.
    for (t, change) in port.states.since(axis.from()) {
        let worse = if change.to == PortState::Active { change.from } else { change.to };
        if let Some(cell) = axis.cell(*t).filter(|cell| *cell < area.width) {
            let (symbol, style) = look(worse, theme);
            buf.set_string(area.x + cell, area.y, symbol, style);
        }
    }
}

fn look(state: PortState, theme: &Theme) -> (&'static str, Style) {
    match state {
        PortState::Active => ("━", theme.good),
        PortState::Down => ("█", theme.critical),
        PortState::Init | PortState::Armed => ("▒", theme.warning),
        PortState::Unknown => ("·", theme.dim),
    }
}

pub(crate) fn state_at(port: &PortRecord, t: Nanos) -> Option<PortState> {
    let mut before = port.states.iter().rev().skip_while(|(at, _)| *at > t);
    match before.next() {
        Some((_, change)) => Some(change.to),
        None if port.first_seen.0 <= t => port.states.iter().next().map_or(Some(port.state), |(_, c)| Some(c.from)),
        None => None,
    }
}

/// AER events, QP failures and events of the port over time, one letter each.
pub(crate) fn event_lane(buf: &mut Buffer, area: Rect, world: &World, port: &PortRecord, axis: &Axis, theme: &Theme) {
    if area.height == 0 {
        return;
    }
    let from = axis.from();
    let mut mark = |t: Nanos, symbol: &str, style: Style| {
        if let Some(cell) = axis.cell(t).filter(|cell| *cell < area.width) {
            buf.set_string(area.x + cell, area.y, symbol, style);
        }
    };
    for (t, event) in port.events.since(from) {
        match event {
            PortEvent::Reset(_) => mark(*t, "R", theme.info),
            PortEvent::Async(_) | PortEvent::Removed | PortEvent::Returned => mark(*t, "E", theme.warning),
        }
    }
    let failed = |failure: &collector::inventory::QpFailure| {
        failure.device == port.key.device && failure.port.is_none_or(|number| number == port.key.port)
    };
    for (t, _) in world.qp_failures.since(from).filter(|(_, failure)| failed(failure)) {
        mark(*t, "Q", theme.critical);
    }
    let function = world.function_of(port).and_then(|pci| world.pcie.get(pci));
    let path = function.into_iter().flat_map(|record| record.path.iter()).filter_map(|pci| world.pcie.get(pci));
    for record in function.into_iter().chain(path) {
        for (t, _) in record.events.since(from) {
            mark(*t, "A", theme.warning);
        }
        for (t, _) in record.growth.since(from) {
            mark(*t, "A", theme.warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ethernet_has_marks_cnps_and_pause_to_be_seen() {
        use collector::engine::Engine;
        use collector::observation::{Body, Observation, Port, recording::Header};
        let mut engine = Engine::new(Header::new(), collector::rule::Settings::default());
        let body = Body::Port(Port { device: "d".into(), port: 1, ..Port::default() });
        engine.take(&Observation { t: 1, body });
        let mut port = (*engine.snapshot().ports[0]).clone();
        port.link_layer = LinkLayer::Ethernet;
        assert_eq!(unseen_lanes(&port), ["RX", "TX", "CE", "CNP", "PAUSE", "ERR"]);
        port.link_layer = LinkLayer::InfiniBand;
        assert_eq!(unseen_lanes(&port), ["RX", "TX", "ERR"]);
    }

    #[test]
    fn the_highest_value_does_not_depend_on_how_much_time_a_cell_has() {
        let world = crate::sample::healthy();
        let mut port = (*world.ports[0]).clone();
        let ring = port.rates.or_default(Meaning::RxBytes);
        for n in 0..600 {
            ring.push(Some(if n == 300 { 9e11 } else { 1e9 }));
        }
        for windows in [600, 3_600, 86_400] {
            let axis = Axis::new(world.now, windows, world.window_ns, 60);
            assert!((peak(&port, &[Meaning::RxBytes], &axis) - 9e11).abs() < 1e6, "{windows}");
        }
    }
}
