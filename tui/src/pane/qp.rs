//! 4 QP: one QP's life. Its states and who moved it, its port beside it, its rate, sizes, latency, timers, peer, owner.

use collector::inventory::{By, PortRecord, QpChange, QpDetail, QpRecord, QpRef, UnseenWay, World};
use collector::observation::{Histogram, Nanos, QpState};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::about::About;
use super::port::{LABEL, axis_line, draw_lane, event_lane, lane_area, state_lane};
use super::{Pane, PaneId, Reaction, Scene, Target, below, heading, more_below, put, row, watched, wrap};
use crate::key::Action;
use crate::lane::{self, Axis, SPANS};
use crate::number::{self, UNKNOWN};
use crate::selection::Selection;
use crate::theme::Theme;

/// Unit of the ACK timeout: 4.096 µs · 2^timeout (IBA 9.7.6.1.3).
const TIMEOUT_UNIT_NS: u64 = 4_096;

/// Rows of a pane that has none to spare.
const LOW: u16 = 16;

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
        let mut left = changes(scene, qp);
        left.push(Line::raw(""));
        left.extend(timers(qp, theme));
        left.extend(port.map(|port| bound(port, qp, theme)).unwrap_or_default());
        let width = usize::from(if wide { body.width - half } else { body.width });
        let right = histograms(world, qp, width, theme);
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
        None => "",
        Some(detail) => watched::said(
            detail.sampled_ns.is_some(),
            detail.completions_sampled_ns.is_some() || detail.completions_missed,
        ),
    };
    let mut unseen = Vec::new();
    if qp.stats_t.is_none() {
        unseen.push("what it sends");
    }
    if qp.timeout.is_none() {
        unseen.push("its timers");
    }
    if qp.path_mtu_bytes.is_none() {
        unseen.push("its path MTU");
    }
    // Timers and MTU are told on its way to RTS.
    let late = !qp.created && (qp.timeout.is_none() || qp.path_mtu_bytes.is_none());
    let why = if late { " (older than the watch)" } else { "" };
    let unseen = if unseen.is_empty() { String::new() } else { format!("{}{why}", unseen.join(", ")) };
    let beyond = if unseen.is_empty() { "the peer's side" } else { "" };
    About::what(scene.theme, since).sure(sure).unseen(unseen).beyond(beyond)
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

fn changes<'a>(scene: Scene<'a>, qp: &'a QpRecord) -> Vec<Line<'a>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let Some(detail) = qp.detail.as_ref().filter(|detail| !detail.changes.is_empty()) else {
        return vec![Line::styled(" no change of state was seen", theme.dim)];
    };
    let mut lines = Vec::new();
    if detail.changes.dropped > 0 {
        lines.push(Line::styled(format!(" {} earlier changes forgotten", detail.changes.dropped), theme.dim));
    }
    let mut before: Option<Nanos> = None;
    for (t, change) in detail.changes.iter() {
        let name = |state: Option<QpState>| state.map_or(UNKNOWN, QpState::name);
        let to = if change.by == By::Destroy { "gone" } else { name(change.to) };
        let after = before.map_or(String::new(), |before| format!("+{}", number::short_time(t.saturating_sub(before))));
        let style = change.to.map_or(theme.dim, |to| state_style(to, theme));
        let who = match (change.by, change.to) {
            (By::Create, _) => "created by its process",
            (By::Modify, Some(QpState::Err)) => "the process asked for it",
            (By::Modify, Some(QpState::Sqd)) => "the process drains it",
            (By::Modify, _) => "modify_qp",
            (By::Destroy, _) => "destroyed",
            (By::Found, Some(QpState::Err)) => "nobody asked for it",
            (By::Found, _) => "found so",
        };
        let errno = change.errno.map_or(String::new(), |errno| format!(" FAILED errno {errno}"));
        lines.push(Line::from(vec![
            Span::styled(format!(" {} {after:>9}  ", number::moment(world, *t, true)), theme.dim),
            Span::styled(format!("{:>5} → {to:<5}", name(change.from)), style),
            Span::styled(format!("  {who}"), theme.text),
            Span::styled(errno, theme.warning),
        ]));
        before = Some(*t);
    }
    lines
}

/// The time after which a QP that gets no answer gives up, ns: every try waits for the timeout at least once, at most
/// four times (IBA 9.7.6.1.3). `None` when a timer is not known, or the timeout is 0, which means for ever.
fn retry_window(qp: &QpRecord) -> Option<(u64, u64)> {
    let exponent = u32::from(qp.timeout.filter(|timeout| (1..32).contains(timeout))?);
    let least = TIMEOUT_UNIT_NS.checked_shl(exponent)?.checked_mul(u64::from(qp.retry_cnt?) + 1)?;
    Some((least, least.saturating_mul(4)))
}

fn timers<'a>(qp: &QpRecord, theme: &Theme) -> Vec<Line<'a>> {
    let number = |n: Option<u8>| n.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string());
    let timeout = match qp.timeout {
        None => UNKNOWN.to_owned(),
        Some(0) => "0 (for ever)".to_owned(),
        Some(n) => format!("{n} = {}", number::short_time(TIMEOUT_UNIT_NS.checked_shl(n.into()).unwrap_or(u64::MAX))),
    };
    let rnr = if qp.rnr_retry == Some(7) { "7 (for ever)".to_owned() } else { number(qp.rnr_retry) };
    let survives = match (qp.timeout, retry_window(qp)) {
        (Some(0), _) => "never gives up on a silent path".to_owned(),
        (_, None) => format!("could survive {UNKNOWN} of silence (timers not known)"),
        (_, Some((least, most))) => format!(
            "could survive at least {} of silence, at most {}",
            number::short_time(least),
            number::short_time(most)
        ),
    };
    vec![
        Line::styled(format!(" timeout {timeout}   retries {}   RNR retries {rnr}", number(qp.retry_cnt)), theme.text),
        Line::styled(format!(" path MTU {}", number::known_bytes(qp.path_mtu_bytes.map(u64::from))), theme.text),
        Line::styled(format!(" {survives}"), theme.strong),
    ]
}

/// Hardware counters of the sets that count this QP: those that are not 0. What a set counts of several QPs is of no one, and
/// it counts on when one of them ends.
fn bound<'a>(port: &PortRecord, qp: &QpRecord, theme: &Theme) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for set in port.bound.counting(qp.qpn) {
        let whose = if set.by.qpn == Some(qp.qpn) {
            "of this QP alone".to_owned()
        } else {
            let n = set.qpns.len();
            format!("{} QP{} now; also of QPs that ended", number::grouped(n as u64), if n == 1 { "" } else { "s" })
        };
        lines.push(Line::raw(""));
        lines.push(Line::from(vec![
            Span::styled(" hardware counters", theme.strong),
            Span::styled(format!(" bound to {}: {whose}", set.of()), theme.text),
        ]));
        let counted = set.counters.series.iter().filter_map(|s| Some((s, s.value().filter(|value| *value > 0)?)));
        let before = lines.len();
        for (series, value) in counted {
            let rate = number::per_second(series.rate);
            lines.push(Line::styled(
                format!("   {:<32} {:>16} {rate:>9}/s", series.name, number::grouped(value)),
                theme.text,
            ));
        }
        if lines.len() == before {
            lines.push(Line::styled("   every counter that can be read is 0", theme.dim));
        }
    }
    lines
}

fn histograms<'a>(world: &World, qp: &QpRecord, width: usize, theme: &Theme) -> Vec<Line<'a>> {
    let traced = qp.stats_t.is_some();
    let mut lines = vec![Line::styled(
        if traced {
            format!(
                " {} posts, {} work requests, {}, {} errors",
                number::count(qp.posts),
                number::count(qp.wrs),
                number::bytes(qp.bytes),
                number::known_count(qp.errors)
            )
        } else {
            " not traced: no numbers (9 says why)".to_owned()
        },
        theme.text,
    )];
    lines.extend(unseen(world, qp, width, theme));
    let Some(detail) = &qp.detail else { return lines };
    for (name, n) in &detail.errors {
        lines.push(Line::styled(format!("   {name} {}", number::count(*n)), theme.critical));
    }
    let opcodes: Vec<String> = detail.opcodes.iter().map(|(name, n)| format!("{name} {}", number::count(*n))).collect();
    if !opcodes.is_empty() {
        lines.push(Line::styled(format!(" {}", opcodes.join("  ")), theme.dim));
    }
    blind(detail, &mut lines, theme);
    histogram("message size", detail.size_log2.as_ref(), number::bytes, width, theme, &mut lines);
    histogram("post-to-poll latency", detail.latency_log2_ns.as_ref(), number::short_time, width, theme, &mut lines);
    lines
}

/// Where else the QP's owner may post.
fn unseen<'a>(world: &World, qp: &QpRecord, width: usize, theme: &Theme) -> Vec<Line<'a>> {
    let said = match qp.pid {
        Some(pid) => world.processes.get(&pid).map(|process| {
            let ways: Vec<String> = process.ways.iter().map(UnseenWay::text).collect();
            format!(
                "its process may{} post through {}",
                if qp.stats_t.is_some() { " also" } else { "" },
                ways.join(", ")
            )
        }),
        None if qp.stats_t.is_none() && qp.comm.is_some() => {
            Some("the kernel's own: its posts are not watched".to_owned())
        }
        None => None,
    };
    let parts = said.map_or_else(Vec::new, |said| wrap(&said, width.saturating_sub(2).max(20)));
    parts.into_iter().map(|part| Line::styled(format!(" {part}"), theme.warning)).collect()
}

fn blind(detail: &QpDetail, lines: &mut Vec<Line<'_>>, theme: &Theme) {
    let watched = [("posts", detail.sampled_ns), ("completions", detail.completions_sampled_ns)];
    for (what, ns) in watched.into_iter().filter_map(|(what, ns)| Some((what, ns?))) {
        lines.push(Line::styled(format!(" {what} watched for {} in all", number::short_time(ns)), theme.dim));
    }
    if detail.completions_missed {
        let why = " completions not counted in full: several QPs use its extended queue";
        lines.push(Line::styled(why, theme.dim));
    }
    if detail.truncated > 0 {
        let n = number::count(detail.truncated);
        lines.push(Line::styled(format!(" {n} work requests more in lists too long to walk"), theme.warning));
    }
}

fn histogram(
    name: &str,
    histogram: Option<&Histogram>,
    write: fn(u64) -> String,
    width: usize,
    theme: &Theme,
    lines: &mut Vec<Line<'_>>,
) {
    let Some(histogram) = histogram else {
        lines.push(Line::styled(format!(" {name}: {UNKNOWN}"), theme.dim));
        return;
    };
    let bound = |q: f64| histogram.quantile_bound(q).map_or_else(|| UNKNOWN.to_owned(), |n| format!("<{}", write(n)));
    lines.push(Line::from(vec![
        Span::styled(format!(" {name}"), theme.strong),
        Span::styled(format!("  p50 {}  p99 {}", bound(0.5), bound(0.99)), theme.text),
    ]));
    let first = histogram.0.iter().position(|n| *n > 0).unwrap_or(0);
    let last = histogram.0.iter().rposition(|n| *n > 0).unwrap_or(0);
    let most = histogram.0.iter().copied().max().unwrap_or(0).max(1);
    for (bucket, n) in histogram.0.iter().enumerate().take(last + 1).skip(first) {
        let from = u32::try_from(bucket).ok().and_then(|bucket| 1u64.checked_shl(bucket)).unwrap_or(u64::MAX);
        let from = if bucket == 0 { 0 } else { from };
        let bar = lane::bar(*n as f64 / most as f64, width.saturating_sub(24).clamp(4, 40));
        lines.push(Line::from(vec![
            Span::styled(format!(" {:>9} ", write(from)), theme.dim),
            Span::styled(bar, theme.send),
            Span::styled(format!(" {:>6}", number::count(*n)), theme.text),
        ]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::theme::ThemeName;

    #[test]
    fn the_retry_window_is_what_the_timers_say() {
        let world = sample::healthy();
        let mut qp = world.qps.iter().next().unwrap().clone();
        (qp.timeout, qp.retry_cnt) = (Some(14), Some(7));
        assert_eq!(retry_window(&qp).unwrap().0, 536_870_912);
        qp.timeout = Some(0);
        assert_eq!(retry_window(&qp), None);
        qp.timeout = None;
        assert_eq!(retry_window(&qp), None);
    }

    /// What the pane says of bound counters for a QP, on a port with one set that counts `qpns`: of type RC, or of one `alone`.
    fn said(qpn: u32, qpns: &[u32], alone: Option<u32>) -> String {
        use collector::engine::Engine;
        use collector::observation::recording::Header;
        use collector::observation::{Body, CounterSource, Counters, Observation, Port, Qp, QpEvent};
        let mut engine = Engine::new(Header::new(), collector::rule::Settings::default());
        let mut take = |body| engine.take(&Observation { t: 1_000_000_000, body });
        take(Body::Port(Port { device: "mlx5_0".into(), port: 1, ..Port::default() }));
        take(Body::Qp(Qp { device: "mlx5_0".into(), qpn, port: Some(1), event: QpEvent::Seen, ..Qp::default() }));
        take(Body::Counters(Counters {
            device: "mlx5_0".into(),
            port: Some(1),
            source: CounterSource::Qp,
            qp_type: alone.is_none().then(|| "RC".into()),
            qpn: alone,
            set: Some(4),
            qpns: Some(qpns.to_vec()),
            values: [("out_of_sequence".into(), 1_234), ("packet_seq_err".into(), 0)].into_iter().collect(),
            ..Counters::default()
        }));
        let world = engine.world();
        let qp = world.qps.iter().next().unwrap();
        let theme = Theme::new(crate::theme::ThemeName::default(), false);
        let lines = bound(port_of(world, qp).unwrap(), qp, &theme);
        lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_a_set_counts_of_several_qps_is_said_to_be_of_all_of_them() {
        let text = said(17, &[17, 18, 19], None);
        assert!(text.contains("bound to type RC: 3 QPs now; also of QPs that ended"), "{text}");
        assert!(
            text.contains("out_of_sequence") && text.contains("1,234") && !text.contains("packet_seq_err"),
            "{text}"
        );
        assert!(said(17, &[17], None).contains("type RC: 1 QP now; also of QPs that ended"));
        assert!(said(17, &[17], Some(17)).contains("of this QP alone"));
        assert_eq!(said(17, &[18, 19], None), "", "a set that does not count it");
    }

    #[test]
    fn for_how_long_posts_and_completions_were_watched_is_said_apart() {
        let said = |detail: &QpDetail| {
            let mut lines = Vec::new();
            blind(detail, &mut lines, &Theme::new(ThemeName::Dark, true));
            lines.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(said(&QpDetail::default()), Vec::<String>::new());
        let detail = QpDetail {
            sampled_ns: Some(30_000_000_000),
            completions_sampled_ns: Some(600_000_000),
            completions_missed: true,
            ..QpDetail::default()
        };
        let said = said(&detail);
        assert_eq!(said[..2], [" posts watched for 30.0 s in all", " completions watched for 600 ms in all"]);
        assert!(said[2].starts_with(" completions not counted in full"), "{said:?}");
    }
}
