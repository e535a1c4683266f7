//! 4 QP: one QP's life. Its states and who moved it, its port beside it, its rate, sizes, latency, timers, peer, owner.

mod life;
mod numbers;

use collector::inventory::{PortRecord, QpChange, QpRecord, QpRef, World};
use collector::observation::{Nanos, QpState};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::about::About;
use super::port::{LABEL, axis_line, draw_lane, event_lane, lane_area, state_lane};
use super::watched::{Seen, Watched};
use super::{LOW, Pane, PaneId, Reaction, Scene, Target, below, heading, more_below, put, row, watched, wrap};
use crate::key::Action;
use crate::lane::{self, Axis, SPANS};
use crate::number::{self, UNKNOWN};
use crate::selection::Selection;
use crate::theme::Theme;

/// The pane.
#[derive(Default)]
pub(crate) struct QpPane {
    id: Option<QpRef>,
    /// Nobody chose it: the QP that failed last takes its place.
    own_choice: bool,
    span: usize,
    /// Cells the cursor stands left of now.
    cursor: u16,
    text: Selection,
    lines: usize,
}

impl QpPane {
    /// Shows a QP.
    pub(crate) fn show(&mut self, id: QpRef) {
        (self.id, self.own_choice) = (Some(id), false);
        self.text = Selection::default();
    }

    /// The QP to show: the chosen one, else the one that failed last, else the busiest.
    fn qp<'w>(&self, world: &'w World) -> Option<&'w QpRecord> {
        let chosen = self.id.and_then(|id| world.qps.get(id));
        if self.id.is_some() && !self.own_choice {
            return chosen;
        }
        let failed = world.qp_failures.iter().rev().find_map(|(_, failure)| world.qps.get(failure.id));
        failed.or(chosen).or_else(|| world.qps.iter().max_by(|a, b| a.bytes.cmp(&b.bytes).then(b.qpn.cmp(&a.qpn))))
    }

    /// The next live QP of the same device, by number.
    fn turn(&mut self, world: &World, forward: bool) {
        let Some(now) = self.qp(world) else { return };
        let siblings = || world.qps.iter().filter(|qp| qp.device == now.device);
        let next = if forward {
            siblings().filter(|qp| qp.qpn > now.qpn).min_by_key(|qp| qp.qpn)
        } else {
            siblings().filter(|qp| qp.qpn < now.qpn).max_by_key(|qp| qp.qpn)
        };
        if let Some(next) = next {
            self.show(next.id);
        }
    }
}

/// The QP of a port that says most: the one that failed last, else one in the error state, else the busiest.
pub(crate) fn telling(world: &World, port: &PortRecord) -> Option<QpRef> {
    let its = |qp: &&QpRecord| port_of(world, qp).is_some_and(|of| of.key == port.key);
    let failed = world.qp_failures.iter().rev().filter_map(|(_, failure)| world.qps.get(failure.id)).find(its);
    let busiest = || {
        let dead = |qp: &QpRecord| matches!(qp.state, QpState::Err | QpState::Sqe);
        world.qps.iter().filter(its).max_by_key(|qp| (dead(qp), qp.bytes, std::cmp::Reverse(qp.qpn)))
    };
    failed.or_else(busiest).map(|qp| qp.id)
}

impl Pane for QpPane {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        let (world, theme) = (&**scene.world, scene.theme);
        let Some(qp) = self.qp(world) else {
            let why = if self.id.is_some() { "this QP is gone and no longer remembered" } else { "no QP is seen here" };
            put(buf, area, 1, &Line::styled(format!(" {why}; 3 lists those that are"), theme.dim));
            return;
        };
        self.own_choice |= self.id.is_none();
        self.id = Some(qp.id);
        for (at, line) in (0u16..).zip(title(scene, qp)) {
            put(buf, area, at, &line);
        }
        // The lowest panes have no row for it; what it says of the numbers stands beside them, too.
        let lanes =
            if area.height < LOW { below(area, 2) } else { below(about(scene, qp).draw(buf, below(area, 2)), 1) };
        let width = lanes.width.saturating_sub(LABEL + 1);
        let axis = Axis::new(world.now, SPANS[self.span.min(SPANS.len() - 1)], world.window_ns, width);
        self.cursor = self.cursor.min(axis.width.saturating_sub(1));
        let cell = axis.width.saturating_sub(1) - self.cursor;
        let at = if self.cursor == 0 { world.now } else { axis.time(cell) };
        axis_line(buf, row(lanes, 0), scene, &axis, self.cursor);
        let state = state_at(qp, at).map_or(UNKNOWN, QpState::name);
        draw_lane(buf, row(lanes, 1), "state", state, "", theme);
        qp_lane(buf, lane_area(row(lanes, 1), &axis), qp, &axis, theme);
        let port = port_of(world, qp);
        if let Some(port) = port {
            let state = super::port::state_at(port, at).map_or(UNKNOWN, collector::observation::PortState::name);
            draw_lane(buf, row(lanes, 2), "port", state, "", theme);
            state_lane(buf, lane_area(row(lanes, 2), &axis), port, &axis, theme);
            draw_lane(buf, row(lanes, 3), "events", "", "A aer Q qp", theme);
            event_lane(buf, lane_area(row(lanes, 3), &axis), world, port, &axis, theme);
        }
        let rate = Rect { height: 2.min(lanes.height.saturating_sub(4)), ..row(lanes, 4) };
        let values = qp.detail.as_ref().map_or_else(Vec::new, |detail| axis.values(&detail.rates));
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        let read = values.get(usize::from(cell)).copied().flatten();
        let present = world.qps.rate_now(qp, world.now);
        let now = if self.cursor == 0 { present } else { read };
        // Cells are means, and the present is in none of them yet.
        let max = number::bits(values.iter().flatten().copied().chain(present).reduce(f64::max));
        draw_lane(buf, rate, "b/s", &number::bits(now), &format!("max {max}"), theme);
        lane::bars(buf, lane_area(rate, &axis), &values, most, theme.send, theme.dim);

        let rest = below(lanes, 6);
        heading(buf, rest, 0, "changes, timers, sizes, latency", theme);
        let body = below(rest, 1);
        let wide = body.width >= 100;
        let half = if wide { body.width * 11 / 20 } else { body.width };
        let mut left = life::changes(scene, qp);
        left.push(Line::raw(""));
        left.extend(life::timers(qp, theme));
        left.extend(port.map(|port| numbers::bound(port, qp, theme)).unwrap_or_default());
        let width = usize::from(if wide { body.width - half } else { body.width });
        let right = numbers::histograms(world, qp, width, theme);
        if !wide {
            left.push(Line::raw(""));
            left.extend(right.iter().cloned());
        }
        self.lines = left.len().max(right.len());
        self.text.height = usize::from(body.height);
        self.text.top = self.text.top.min(self.lines.saturating_sub(self.text.height));
        let column = |buf: &mut Buffer, area: Rect, lines: &[Line<'_>]| {
            for (at, line) in (0u16..).zip(lines.iter().skip(self.text.top)) {
                put(buf, area, at, line);
            }
        };
        column(buf, Rect { width: half.saturating_sub(u16::from(wide)), ..body }, &left);
        if wide {
            column(buf, Rect { x: body.x + half, width: body.width - half, ..body }, &right);
        }
        more_below(buf, body, self.text.top + self.text.height < self.lines, "", theme);
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        match action {
            Action::Next | Action::Previous => self.turn(scene.world, action == Action::Next),
            Action::Longer => self.span = (self.span + 1).min(SPANS.len() - 1),
            Action::Shorter => self.span = self.span.saturating_sub(1),
            Action::Left => self.cursor = self.cursor.saturating_add(1),
            Action::Right => self.cursor = self.cursor.saturating_sub(1),
            Action::Leave if self.cursor > 0 => self.cursor = 0,
            _ if self.text.scroll(action, self.lines) => {}
            _ => return Reaction::Ignored,
        }
        Reaction::Done
    }

    fn points_at(&self, pane: PaneId, scene: Scene<'_>) -> Option<Target> {
        let port = port_of(scene.world, self.qp(scene.world)?)?;
        (pane == PaneId::Port).then_some(Target::Port(port.key))
    }
}

/// Since when the QP is known, how sure its numbers are, and what of it is not seen.
fn about<'t>(scene: Scene<'t>, qp: &QpRecord) -> About<'t> {
    let since = number::moment(scene.world, qp.since, false);
    let since = if qp.created { format!("created {since}") } else { format!("found {since}, older than that") };
    let detail = qp.detail.as_ref();
    let sure = match detail.filter(|_| qp.stats_t.is_some()) {
        None if qp.stats_t.is_some() => "posts counted, no more: too many QPs".to_owned(),
        None => String::new(),
        Some(detail) => watched::said(
            Watched::new(true, detail.sampled_ns.is_some()),
            Watched::new(
                detail.completions.is_some(),
                detail.completions_sampled_ns.is_some() || detail.completions_missed,
            ),
        ),
    };
    let unseen = unseen(scene.world, qp);
    let beyond = if unseen.is_empty() { "the peer's side" } else { "" };
    About::what(scene.theme, since).sure(sure).unseen(unseen).beyond(beyond)
}

/// What of a QP is not seen that is there, and why.
fn unseen(world: &World, qp: &QpRecord) -> String {
    let kind = qp.qp_type.as_deref();
    // Those that answer for loss have timers, those that have one peer a path MTU. One is told on the way to RTR, the others
    // on that to RTS (InfiniBand specification, modify QP).
    let connected = !qp.manages() && kind.is_none_or(|kind| matches!(kind, "RC" | "UC") || kind.starts_with("XRC"));
    let mtu = connected && !matches!(qp.state, QpState::Reset | QpState::Init);
    let not_yet = matches!(qp.state, QpState::Reset | QpState::Init | QpState::Rtr);
    let timers = connected && kind != Some("UC") && !not_yet;
    let sends = !qp.manages() && !not_yet && !Seen::new(world).all_posts(qp);
    let mut unseen = Vec::new();
    if sends && qp.stats_t.is_none() {
        unseen.push("what it sends");
    }
    let told = unseen.len();
    if timers && qp.timeout.is_none() {
        unseen.push("its timers");
    }
    if mtu && qp.path_mtu_bytes.is_none() {
        unseen.push("its path MTU");
    }
    let on_its_way = unseen.len() > told;
    let at_the_start = qp.since <= world.watched_since().saturating_add(world.window_ns.saturating_mul(2));
    let watched = world.probes.as_ref().is_some_and(|probes| probes.sees_modify(qp.pid.is_none()));
    let why = if on_its_way && watched && !qp.created && at_the_start { " (older than the watch)" } else { "" };
    if unseen.is_empty() { String::new() } else { format!("{}{why}", unseen.join(", ")) }
}

/// The port a QP is on; the device's only port where nobody said.
pub(crate) fn port_of<'w>(world: &'w World, qp: &QpRecord) -> Option<&'w PortRecord> {
    let number = qp.port.map(u32::from);
    let mut ports = world.ports_of(qp.device);
    match number {
        Some(number) => ports.find(|port| port.key.port == number),
        None => ports.next().filter(|_| world.ports_of(qp.device).count() == 1),
    }
}

fn state_style(state: QpState, theme: &Theme) -> Style {
    match state {
        QpState::Rts => theme.good,
        QpState::Err => theme.critical,
        QpState::Sqd | QpState::Sqe => theme.warning,
        _ => theme.dim,
    }
}

fn title<'a>(scene: Scene<'a>, qp: &'a QpRecord) -> [Line<'a>; 2] {
    let (world, theme) = (&**scene.world, scene.theme);
    let known = |text: Option<&str>| text.unwrap_or(UNKNOWN).to_owned();
    let number = |n: Option<u32>| n.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string());
    let gone = qp.destroyed.map_or(String::new(), |at| format!("  destroyed {}", number::moment(world, at, true)));
    let age = number::age(qp.destroyed.unwrap_or(world.now).saturating_sub(qp.since));
    let first = Line::from(vec![
        Span::styled(format!(" {} QP {}  ", world.device(qp.device).name, qp.qpn), theme.strong),
        Span::styled(format!(" {} ", qp.state.name()), state_style(qp.state, theme)),
        Span::styled(format!("  {}", known(qp.qp_type.as_deref())), theme.text),
        Span::styled(format!("  lives {}{age}", if qp.created { "" } else { ">" }), theme.text),
        Span::styled(gone, theme.warning),
    ]);
    let second = Line::styled(
        format!(
            " owner {} pid {}{}   peer {} QP {}",
            known(qp.comm.as_deref()),
            number(qp.pid),
            qp.container.as_deref().map_or(String::new(), |container| format!(" container {container}")),
            qp.remote_gid.as_deref().map_or_else(|| UNKNOWN.into(), number::gid),
            number(qp.remote_qpn),
        ),
        theme.dim,
    );
    [first, second]
}

/// The state at a time, from the changes seen.
fn state_at(qp: &QpRecord, t: Nanos) -> Option<QpState> {
    if t < qp.since || qp.destroyed.is_some_and(|at| t > at) {
        return None;
    }
    let Some(detail) = &qp.detail else { return Some(qp.state) };
    let moved = |change: &QpChange| change.errno.is_none();
    let before = detail.changes.iter().rev().find(|(at, change)| *at <= t && moved(change));
    match before {
        Some((_, change)) => change.to,
        None => match detail.changes.iter().find(|(_, change)| moved(change)) {
            Some((_, first)) => first.from,
            None => Some(qp.state),
        },
    }
}

/// The QP's state over time; the names of states stand where they begin.
fn qp_lane(buf: &mut Buffer, area: Rect, qp: &QpRecord, axis: &Axis, theme: &Theme) {
    if area.height == 0 {
        return;
    }
    for cell in 0..area.width {
        let Some(state) = state_at(qp, axis.time(cell)) else { continue };
        let symbol = match state {
            QpState::Rts => "━",
            QpState::Err | QpState::Sqe => "█",
            QpState::Unknown => "·",
            _ => "─",
        };
        buf.set_string(area.x + cell, area.y, symbol, state_style(state, theme));
    }
    let Some(detail) = &qp.detail else { return };
    for (t, change) in detail.changes.iter().filter(|(_, change)| change.errno.is_none()) {
        let (Some(to), Some(cell)) = (change.to, axis.cell(*t)) else { continue };
        let room = usize::from(area.width.saturating_sub(cell));
        if cell < area.width {
            buf.set_stringn(area.x + cell, area.y, to.name(), room, state_style(to, theme));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sample;

    #[test]
    fn only_what_a_qp_has_is_not_seen_and_only_what_is_older_is_older() {
        let mut world = (*sample::healthy()).clone();
        let mut qp = world.qps.iter().next().unwrap().clone();
        (qp.timeout, qp.path_mtu_bytes, qp.stats_t) = (None, None, None);
        (qp.state, qp.created, qp.since) = (QpState::Rts, false, world.started);
        let told = |world: &World, qp: &QpRecord, kind: &str| {
            let mut qp = qp.clone();
            qp.qp_type = Some(kind.into());
            unseen(world, &qp)
        };
        // All that its process posts is seen: it has sent nothing.
        assert_eq!(told(&world, &qp, "RC"), "its timers, its path MTU (older than the watch)");
        assert_eq!(told(&world, &qp, "XRC_INI"), "its timers, its path MTU (older than the watch)");
        assert_eq!(told(&world, &qp, "UC"), "its path MTU (older than the watch)");
        assert_eq!(told(&world, &qp, "UD"), "");
        assert_eq!(told(&world, &qp, "GSI"), "");
        // They are told on its way to RTS.
        qp.state = QpState::Init;
        assert_eq!(told(&world, &qp, "RC"), "");
        qp.state = QpState::Rtr;
        assert_eq!(told(&world, &qp, "RC"), "its path MTU (older than the watch)");
        qp.state = QpState::Rts;
        // It came when somebody watched.
        qp.since = world.started + 60_000_000_000;
        assert_eq!(told(&world, &qp, "RC"), "its timers, its path MTU");
        qp.since = world.started;
        Arc::make_mut(world.probes.as_mut().unwrap()).posts_watched_ns = Some(1);
        assert_eq!(told(&world, &qp, "UD"), "what it sends");
        qp.state = QpState::Init;
        assert_eq!(told(&world, &qp, "UD"), "");
        qp.state = QpState::Rts;
        // Its age is not why.
        world.probes = None;
        assert_eq!(told(&world, &qp, "RC"), "what it sends, its timers, its path MTU");
    }
}
