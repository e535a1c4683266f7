//! 6 ECN: marks, CNPs and pauses of every port side by side; of one port the marks against the load, and the parameters of
//! its congestion control beside known ones.

mod scatter;
mod whatif;

use collector::dcqcn;
use collector::inventory::{CongestionRecord, PortKey, PortRecord, SizeClass, World};
use collector::observation::{Nanos, PortState};
use collector::timeline::Ring;
use collector::timeline::counter_table::Meaning;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use self::scatter::draw_scatter;
use self::whatif::WhatIf;
use super::about::About;
use super::{Pane, PaneId, Reaction, Scene, Target, as_text, below, heading, more_below, put, row, wrap};
use crate::health;
use crate::key::Action;
use crate::number::{self, UNKNOWN};
use crate::selection::Selection;
use crate::table::{self, Column};

/// Latencies are of this last stretch of time, ns.
const LATENCY_NS: Nanos = 10_000_000_000;
/// What the numbers say where no rule speaks is of this last stretch of time, ns.
const READING_NS: Nanos = 60_000_000_000;
/// When the width is short there go: the quiet level, latency, ignored, pause sent, CNPs for each mark, handled, sent.
const COLUMNS: [Column; 13] = [
    table::text("PORT", 11, 255),
    table::number("LOAD", 5, 240),
    table::number("CE/s", 6, 250),
    table::number("MARKED", 7, 100),
    table::number("SENT", 6, 90),
    table::number("PER CE", 6, 50),
    table::number("HANDLED", 7, 60),
    table::number("IGNORED", 7, 30),
    table::number("PAUSED", 6, 110),
    table::number("PAUSES", 6, 40),
    table::number("p50", 8, 20),
    table::number("QUIET", 8, 15),
    table::text("ECN", 16, 255).growing(),
];

/// The pane.
#[derive(Default)]
pub(crate) struct Ecn {
    list: Selection,
    sideways: table::Sideways,
    /// The chosen port stays chosen when the list changes.
    chosen: Option<PortKey>,
    text: Selection,
    lines: usize,
    /// Rows that what the pane shows takes beside the first.
    shift: u16,
    what_if: WhatIf,
}

/// The ports that carry data.
fn ports(world: &World) -> Vec<&PortRecord> {
    let counted = |port: &&PortRecord| port.meanings().next().is_some() || port.congestion.is_some();
    world.present_ports().map(|(_, port)| port).filter(counted).collect()
}

fn verdict<'w>(world: &'w World, port: &PortRecord) -> Option<&'w std::sync::Arc<collector::finding::Finding>> {
    world.findings.iter().find(|finding| finding.rule.starts_with("ecn.") && health::concerns(world, port, finding))
}

impl Ecn {
    fn follow(&mut self, world: &World, ports: &[&PortRecord]) {
        let at = self.chosen.and_then(|key| ports.iter().position(|port| port.key == key));
        let worst = || {
            let first = world.findings.iter().find(|finding| finding.rule.starts_with("ecn."))?;
            ports.iter().position(|port| health::concerns(world, port, first))
        };
        let marked = || ports.iter().position(|port| port.rate(Meaning::EcnMarkedRx).is_some_and(|rate| rate > 0.0));
        self.list.row = at.or_else(worst).or_else(marked).unwrap_or(0);
    }

    fn choose(&mut self, ports: &[&PortRecord]) {
        let before = std::mem::replace(&mut self.chosen, ports.get(self.list.row).map(|port| port.key));
        if self.chosen != before {
            // The question was about another port.
            self.what_if.close();
        }
        self.text = Selection::default();
    }
}

impl Pane for Ecn {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        let (world, theme) = (&**scene.world, scene.theme);
        let ports = ports(world);
        let whole = area;
        let area = about(scene, &ports).draw(buf, area);
        self.shift = area.y - whole.y;
        if ports.is_empty() {
            put(buf, area, 2, &Line::styled("  no port with counters is seen; 1 says why", theme.dim));
            return;
        }
        self.follow(world, &ports);
        let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
        let placed = self.sideways.fit(&COLUMNS, inner.width);
        table::draw_titles(buf, row(inner, 1), &COLUMNS, &placed, theme.title, None);
        let wanted = u16::try_from(ports.len()).unwrap_or(u16::MAX);
        let rows = wanted.min((area.height / 2).saturating_sub(2).max(3));
        self.list.fit(ports.len(), usize::from(rows));
        for (line, (index, port)) in (2u16..).zip(ports.iter().enumerate().skip(self.list.top).take(self.list.height)) {
            if index == self.list.row {
                buf.set_style(row(area, line), theme.selected);
                put(buf, area, line, &Line::raw("►"));
            }
            table::draw_row(buf, row(inner, line), &COLUMNS, &placed, &cells(scene, port));
        }
        let Some(port) = ports.get(self.list.row) else { return };
        let rest = below(area, 2 + rows);
        let hidden = ports.len().saturating_sub(self.list.height);
        let hidden = match hidden {
            0 => String::new(),
            1 => "   1 port more [j k]".to_owned(),
            n => format!("   {n} ports more [j k]"),
        };
        heading(buf, rest, 0, &format!("{}: marks against load{hidden}", name(world, port)), theme);
        let body = below(rest, 1);
        if self.what_if.is_open() {
            self.what_if.draw(buf, rest, theme);
            return;
        }
        // The parameters need more room than the scatter.
        let half = if body.width >= 100 { body.width * 2 / 5 } else { body.width };
        let wide = half < body.width;
        // On a narrow screen the scatter and the parameters stand one below the other.
        let chart = if wide { body } else { Rect { height: body.height.min((body.height / 2).max(6)), ..body } };
        draw_scatter(scene, Rect { width: half, ..chart }, buf, port);
        let place = if wide {
            Rect { x: body.x + half + 1, width: body.width - half - 1, ..body }
        } else {
            below(body, chart.height)
        };
        let lines = detail(scene, port, usize::from(place.width));
        self.lines = lines.len();
        self.text.height = usize::from(place.height);
        self.text.top = self.text.top.min(lines.len().saturating_sub(self.text.height));
        for (at, line) in (0u16..).zip(lines.iter().skip(self.text.top)) {
            put(buf, place, at, line);
        }
        more_below(buf, place, self.text.top + self.text.height < self.lines, " [PgDn]", theme);
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        let ports = ports(scene.world);
        self.follow(scene.world, &ports);
        match action {
            Action::WhatIf => {
                // The question is about this port, whichever needs a look later.
                self.chosen = ports.get(self.list.row).map(|port| port.key);
                if let Some(port) = ports.get(self.list.row) {
                    self.what_if.ask(&name(scene.world, port), scene.world, port);
                }
            }
            Action::Leave if self.what_if.is_open() => self.what_if.close(),
            Action::PageDown | Action::PageUp if self.what_if.is_open() => _ = self.what_if.scroll(action),
            Action::Copy if self.what_if.is_open() => {
                return self.what_if.as_text().map_or(Reaction::Done, |text| Reaction::Copy(text, "what-if"));
            }
            Action::Copy => {
                let titles: Vec<&str> = COLUMNS.iter().map(|column| column.title).collect();
                let mut text = titles.join("  ") + "\n";
                for port in &ports {
                    let cells: Vec<String> = cells(scene, port).iter().map(ToString::to_string).collect();
                    text += &(cells.join("  ") + "\n");
                }
                if let Some(port) = ports.get(self.list.row) {
                    text += &format!("\n{}\n{}", name(scene.world, port), as_text(&detail(scene, port, 120)));
                }
                return Reaction::Copy(text, "table");
            }
            Action::Enter => {
                let Some(port) = ports.get(self.list.row) else { return Reaction::Done };
                return Reaction::Open(match verdict(scene.world, port) {
                    Some(finding) => Target::Finding(finding.rule, finding.key.clone()),
                    None => Target::Port(port.key),
                });
            }
            Action::PageDown | Action::PageUp if self.text.scroll(action, self.lines) => {}
            _ if self.sideways.act(action, &COLUMNS) => {}
            _ if self.list.act(action, ports.len()) => self.choose(&ports),
            _ => return Reaction::Ignored,
        }
        Reaction::Done
    }

    fn note(&self) -> Option<String> {
        self.sideways.hint()
    }

    fn click(&mut self, _column: u16, at: u16, scene: Scene<'_>) -> Reaction {
        let ports = ports(scene.world);
        let Some(line) = at.checked_sub(2 + self.shift).map(usize::from) else { return Reaction::Ignored };
        if line >= self.list.height || self.list.top + line >= ports.len() {
            return Reaction::Ignored;
        }
        self.list.row = self.list.top + line;
        self.choose(&ports);
        Reaction::Done
    }

    fn news(&self) -> bool {
        self.what_if.news()
    }

    fn waits(&self) -> bool {
        self.what_if.waits()
    }

    fn points_at(&self, pane: PaneId, scene: Scene<'_>) -> Option<Target> {
        let ports = ports(scene.world);
        let port = ports.get(self.list.row)?;
        (pane == PaneId::Port).then_some(Target::Port(port.key))
    }
}

fn name(world: &World, port: &PortRecord) -> String {
    format!("{}/{}", world.device(port.key.device).name, port.key.port)
}

/// What the pane shows, since when, and what of it cannot be seen here.
fn about<'t>(scene: Scene<'t>, ports: &[&PortRecord]) -> About<'t> {
    let (world, theme) = (&**scene.world, scene.theme);
    let counts = ports.iter().filter(|port| port.reading(Meaning::EcnMarkedRx).is_some()).count();
    let per_second = |meaning| {
        let mut rates = ports.iter().filter_map(|port| port.rate(meaning));
        number::per_second(rates.next().map(|first| rates.fold(first, |sum, one| sum + one)))
    };
    let text = format!(
        "node: {} CE/s, CNP/s {} sent, {} handled",
        per_second(Meaning::EcnMarkedRx),
        per_second(Meaning::CnpSent),
        per_second(Meaning::CnpHandled)
    );
    About::what(theme, text)
        .since(format!("since {}", number::moment(world, world.watched_since(), false)))
        .sure(format!("{counts} of {} ports count marks", ports.len()))
        .beyond("the switch's queue")
}

/// Marked packets of all received ones, now.
fn mark_share(port: &PortRecord) -> Option<f64> {
    let (marked, all) = (port.rate(Meaning::EcnMarkedRx)?, port.rate(Meaning::RxPackets)?);
    (all > 0.0).then(|| marked / all)
}

/// A share that may be small, in percent whatever its size: `0.07%`, `0.0003%`, `3e-5%`.
fn small_share(share: Option<f64>) -> String {
    match share {
        None => UNKNOWN.to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(share) if share < 1e-6 => format!("{:.0e}%", share * 100.0),
        Some(share) if share < 1e-5 => format!("{:.4}%", share * 100.0),
        Some(share) if share < 0.1 => format!("{:.3}%", share * 100.0),
        Some(share) => format!("{:.1}%", share * 100.0),
    }
}

fn cells(scene: Scene<'_>, port: &PortRecord) -> Vec<Line<'static>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let plain = |text: String| {
        let quiet = text == UNKNOWN || text == "0" || text == "0.0%";
        Line::styled(text, if quiet { theme.dim } else { theme.text })
    };
    let rate = |meaning| plain(number::per_second(port.rate(meaning)));
    let paused = |meaning| plain(number::percent(port.rate(meaning).map(|us| us / 1e6)));
    let rx = port.throughput().rx_gbps.zip(port.rate_gbps).map(|(rx, rate)| rx / rate);
    let per_mark = port.rate(Meaning::CnpSent).zip(port.rate(Meaning::EcnMarkedRx).filter(|marks| *marks > 0.0));
    let ns = |ns: Option<f64>, at_most: bool| {
        let bound = if at_most { "<" } else { "" };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a latency is not negative")]
        plain(ns.map_or_else(|| UNKNOWN.to_owned(), |ns| format!("{bound}{}", number::short_time(ns as u64))))
    };
    // What rules compare with: the quiet level, or what is no less than that.
    let quiet = port.latencies.reference(SizeClass::Small);
    let recent = port.latencies.sum(SizeClass::Small, world.now.saturating_sub(LATENCY_NS));
    let health = match verdict(world, port) {
        Some(finding) => Line::styled(crate::health::word(world, finding), theme.severity_word(finding.severity)),
        None if port.reading(Meaning::EcnMarkedRx).is_none() => Line::styled("not counted", theme.dim),
        // A port that carries nothing is judged by nobody.
        None if port.state != PortState::Active => Line::styled(UNKNOWN, theme.dim),
        None => Line::styled("ok", theme.good),
    };
    vec![
        Line::styled(name(world, port), theme.strong),
        plain(number::percent(rx)),
        rate(Meaning::EcnMarkedRx),
        plain(small_share(mark_share(port))),
        rate(Meaning::CnpSent),
        plain(per_mark.map_or_else(|| UNKNOWN.to_owned(), |(cnp, ce)| format!("{:.2}", cnp / ce))),
        rate(Meaning::CnpHandled),
        rate(Meaning::CnpIgnored),
        paused(Meaning::RxPauseDuration),
        paused(Meaning::TxPauseDuration),
        ns(recent.and_then(|window| window.quantile_ns(0.5)), false),
        ns(quiet.map(|level| level.median_ns), quiet.is_some_and(|level| !level.quiet)),
        health,
    ]
}

fn detail(scene: Scene<'_>, port: &PortRecord, width: usize) -> Vec<Line<'static>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let mut lines = Vec::new();
    let say = |text: &str, style: Style, lines: &mut Vec<Line<'static>>| {
        for part in wrap(text, width.saturating_sub(2).max(20)) {
            lines.push(Line::styled(format!(" {part}"), style));
        }
    };
    match verdict(world, port) {
        Some(finding) => {
            let text = format!("{} ({}): {}", finding.rule, finding.grade.name(), finding.summary);
            say(&text, theme.severity(finding.severity), &mut lines);
        }
        None => say(&reading(port, world.window_ns), theme.text, &mut lines),
    }
    lines.push(Line::raw(""));
    match &port.congestion {
        None => say("congestion control: its parameters were not read (9 says why)", theme.dim, &mut lines),
        Some(congestion) => {
            say(&class(world, congestion), theme.text, &mut lines);
            parameters(scene, port, congestion, width, &mut lines);
        }
    }
    let load = port.throughput().rx_gbps.zip(port.rate_gbps).map(|(rx, rate)| (rx / rate * 100.0).round());
    let flags = load.filter(|load| *load > 0.0).map_or_else(String::new, |load| format!(" --load {load}%"));
    let rate = port.rate_gbps.map_or_else(String::new, |rate| format!(" --rate {rate}"));
    lines.push(Line::raw(""));
    say("what another Kmin, Kmax or parameter would do: w, or with everything to choose", theme.dim, &mut lines);
    say(&format!("$ rdmascope whatif{rate}{flags}"), theme.info, &mut lines);
    lines
}

/// What the numbers say when no rule speaks: those of a minute, for bursts come and go.
fn reading(port: &PortRecord, window_ns: u64) -> String {
    let windows = usize::try_from(READING_NS / window_ns.max(1)).unwrap_or(1).max(1);
    let known = |meaning| {
        let rings = port.rates.get(&meaning).into_iter();
        rings.flat_map(Ring::newest_first).take(windows).flatten()
    };
    // A moment of pause is no sign, but it is no "no pause" either.
    let most = known(Meaning::RxPauseDuration).reduce(f64::max);
    let paused = most.is_some_and(|us| us > 1_000.0);
    let seen = known(Meaning::EcnMarkedRx).count() as u64;
    let lately = number::span(seen.saturating_mul(window_ns));
    match known(Meaning::EcnMarkedRx).reduce(f64::max) {
        None => "marks are not counted here: whether the network marks cannot be told from this port".to_owned(),
        Some(0.0) if paused => {
            format!("no marks in {lately}, and this port was told to stop: pause comes before marking on the way")
        }
        Some(0.0) => {
            format!(
                "no marks in {lately}: no queue was long enough, or nothing marks; this port alone cannot tell which"
            )
        }
        Some(_) if paused => format!("marks and pause in {lately}: queues fill faster than the senders slow down"),
        Some(_) => {
            let pause = match most {
                None => "pause is not counted here".to_owned(),
                Some(0.0) => "no pause".to_owned(),
                Some(us) => format!("next to no pause ({} at most)", number::percent(Some(us / 1e6)).trim()),
            };
            format!("marks in {lately}, {pause}: congestion control at work; no rule takes them for wrong")
        }
    }
}

/// Algorithm, class and priorities.
fn class(world: &World, congestion: &CongestionRecord) -> String {
    let known = |text: Option<&str>| text.unwrap_or(UNKNOWN).to_owned();
    let pfc = congestion.pfc_enabled.map_or_else(
        || UNKNOWN.to_owned(),
        |on| {
            let on: Vec<String> = (0..8).filter(|at| on[*at]).map(|at| at.to_string()).collect();
            if on.is_empty() { "none".to_owned() } else { on.join(",") }
        },
    );
    format!(
        "congestion control {}, trust {}, PFC on priority {pfc}, CNP DSCP {}; read {} ago",
        known(congestion.cc_algorithm.as_deref()),
        known(congestion.trust.as_deref()),
        congestion.cnp_dscp.map_or_else(|| UNKNOWN.to_owned(), |dscp| dscp.to_string()),
        number::age(world.now.saturating_sub(congestion.t)),
    )
}

/// The parameters that were read, beside the NIC's default and the paper's; what differs stands out.
fn parameters(
    scene: Scene<'_>,
    port: &PortRecord,
    congestion: &CongestionRecord,
    width: usize,
    lines: &mut Vec<Line<'static>>,
) {
    let theme = scene.theme;
    let rows = dcqcn::parameters(&congestion.np, &congestion.rp, port.rate_gbps);
    let read: Vec<_> = rows.iter().filter(|row| row.value.is_some()).collect();
    if read.is_empty() {
        lines.push(Line::styled(" none of the parameters was read", theme.dim));
        return;
    }
    // Where it is narrow the paper's value goes before the unit does.
    let (name, paper) = if width < 64 { (26, false) } else { (28, true) };
    let third = |text: String| if paper { format!(" {text:>8}") } else { String::new() };
    let head =
        format!(" {:<name$} {:>8} {:>8}{}  {}", "PARAMETER", "HERE", "DEFAULT", third("PAPER".to_owned()), "UNIT");
    lines.push(Line::styled(head, theme.title));
    for parameter in read {
        let differs = parameter.value.zip(parameter.nic_default).is_some_and(|(a, b)| (a - b).abs() > f64::EPSILON);
        let text = |n: Option<f64>| number::plain(n).into_owned();
        let mut spans = vec![
            Span::styled(format!(" {:<name$} ", parameter.parameter), theme.text),
            Span::styled(format!("{:>8}", text(parameter.value)), if differs { theme.warning } else { theme.text }),
            Span::styled(format!(" {:>8}{}", text(parameter.nic_default), third(text(parameter.paper))), theme.dim),
            Span::styled(format!("  {}", parameter.unit), theme.dim),
        ];
        let used: usize = spans.iter().map(Span::width).sum();
        let Some(note) = &parameter.note else {
            lines.push(Line::from(spans));
            continue;
        };
        if used + 3 + note.chars().count() <= width {
            spans.push(Span::styled(format!("  {note}"), theme.dim));
            lines.push(Line::from(spans));
        } else {
            lines.push(Line::from(spans));
            let below = wrap(note, width.saturating_sub(5).max(20));
            lines.extend(below.into_iter().map(|part| Line::styled(format!("    {part}"), theme.dim)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(world: &std::sync::Arc<World>, look: impl FnOnce(Scene<'_>)) {
        let status = collector::feed::Status::new(collector::feed::Mode::Live);
        let theme = crate::theme::Theme::new(crate::theme::ThemeName::Dark, true);
        let coverage = collector::inventory::Coverage::default();
        look(Scene { world, status: &status, coverage: &coverage, generation: 1, theme: &theme });
    }

    #[test]
    fn what_is_asked_of_a_port_goes_when_another_is_chosen_by_key_or_click() {
        on(&crate::sample::healthy(), |scene| {
            let mut pane = Ecn::default();
            let area = Rect::new(0, 0, 120, 40);
            pane.draw(scene, area, &mut Buffer::empty(area));
            let first = 2 + pane.shift + u16::try_from(pane.list.row - pane.list.top).unwrap();
            let other = if pane.list.row == 0 { first + 1 } else { first - 1 };
            pane.act(Action::WhatIf, scene);
            pane.click(3, first, scene);
            assert!(pane.what_if.is_open(), "the same port");
            pane.click(3, other, scene);
            assert!(!pane.what_if.is_open());
            pane.act(Action::WhatIf, scene);
            pane.act(if other < first { Action::Down } else { Action::Up }, scene);
            assert!(!pane.what_if.is_open());
        });
    }

    #[test]
    fn where_there_was_no_quiet_time_the_quiet_level_is_at_most_what_rules_compare_with() {
        let at = COLUMNS.iter().position(|column| column.title == "QUIET").unwrap();
        let feed = crate::scenarios::Play::new("pfc-storm").feed(60 * crate::scenarios::SECOND);
        on(&feed.latest().world, |scene| {
            let world = scene.world;
            let finding = world.findings.iter().find(|finding| finding.rule == "ecn.missed").unwrap();
            let port = health::port_of(world, finding).unwrap();
            let quiet = cells(scene, port)[at].to_string();
            let compared = quiet.strip_prefix('<').unwrap_or_else(|| panic!("{quiet}"));
            assert!(finding.summary.contains(&format!("{compared} at the least")), "{quiet}: {}", finding.summary);
        });
        on(&crate::sample::healthy(), |scene| {
            let quiet = cells(scene, &scene.world.ports[0])[at].to_string();
            assert!(!quiet.starts_with('<'), "{quiet}");
        });
    }

    #[test]
    fn a_small_share_is_never_shown_as_zero() {
        assert_eq!(small_share(Some(0.0)), "0");
        assert_eq!(small_share(Some(6e-6)), "0.0006%");
        assert_eq!(small_share(Some(2e-7)), "2e-5%");
        assert_eq!(small_share(Some(0.000_74)), "0.074%");
        assert_eq!(small_share(None), UNKNOWN);
    }
}
