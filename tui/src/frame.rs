//! What stands around a pane: banner, header, tabs, footer.

use std::ops::Range;

use collector::feed::{Mode, Status};
use collector::finding::Severity;
use collector::inventory::{Coverage, World};
use collector::observation::Nanos;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::key::{Action, BINDINGS, Time};
use crate::number::{self, UNKNOWN};
use crate::pane::{PaneId, Scene, put};
use crate::theme::Theme;

/// A live world older than this many intervals, and than [`STALE_NS`], is called stale.
const STALE_INTERVALS: u64 = 3;
/// A live world is not called stale before this age, ns.
const STALE_NS: u64 = 3_000_000_000;

/// A live world is not called behind before this, ns: where nothing is observed, time is told every three seconds.
const BEHIND_NS: u64 = 5_000_000_000;
/// A share of one core above which the cost is no small matter, whatever was allowed.
const DEAR: f64 = 0.25;

/// Keys at the end of the footer that never go: help and quit.
const LAST_KEYS: usize = 2;

/// A piece of the header and how dear it is: the cheapest goes first when the width is short.
struct Piece {
    keep: u8,
    spans: Vec<Span<'static>>,
}

impl Piece {
    fn new(keep: u8, text: String, style: Style) -> Self {
        Self { keep, spans: vec![Span::styled(text, style)] }
    }

    fn width(&self) -> usize {
        self.spans.iter().map(Span::width).sum()
    }
}

/// How long nothing new has come, when that is too long.
pub(crate) fn stale_for(status: &Status, monotonic_now: Nanos) -> Option<u64> {
    let limit = status.interval_ns.saturating_mul(STALE_INTERVALS).max(STALE_NS);
    let age = monotonic_now.saturating_sub(status.published_at);
    (status.mode == Mode::Live && status.published_at > 0 && age > limit).then_some(age)
}

/// How much older than its publication what is shown is, when that is too long: the collector does not keep up.
fn behind_by(status: &Status, world: &World) -> Option<u64> {
    let limit = status.interval_ns.saturating_mul(STALE_INTERVALS).max(BEHIND_NS);
    Some(status.published_at.saturating_sub(world.now)).filter(|behind| *behind > limit)
}

/// Draws the header line; `behind` is how much older than the newest the world shown is, while it is frozen, ns.
pub(crate) fn header(
    buf: &mut Buffer,
    area: Rect,
    scene: Scene<'_>,
    coverage: &Coverage,
    behind: Option<u64>,
    monotonic_now: Nanos,
) {
    let (world, status, theme) = (scene.world, scene.status, scene.theme);
    let mut pieces = vec![
        Piece::new(20, "rdmascope".to_owned(), theme.strong),
        Piece::new(90, world.header.host.clone().unwrap_or_else(|| UNKNOWN.to_owned()), theme.strong),
        Piece::new(10, world.header.kernel.clone().unwrap_or_else(|| UNKNOWN.to_owned()), theme.dim),
        Piece::new(80, number::moment(world, world.now, false), theme.text),
        mode(scene, behind, monotonic_now),
    ];
    if let Some(recording) = &status.recording {
        pieces.push(match &recording.stopped {
            None => Piece::new(70, format!("● REC {} unpacked", number::bytes(recording.bytes)), theme.warning),
            Some(_) => Piece::new(70, "REC ended".to_owned(), theme.dim),
        });
    }
    let lost: u64 = world.lost.values().fold(0, |sum, n| sum.saturating_add(*n));
    if lost > 0 {
        pieces.push(Piece::new(75, format!("LOST {}", number::count(lost)), theme.warning));
    }
    // A recording that ends in the middle of a line, a source that failed, a file that could not be written.
    match status.notices.len() {
        0 => {}
        1 => pieces.push(Piece::new(76, "1 notice [9]".to_owned(), theme.warning)),
        n => pieces.push(Piece::new(76, format!("{n} notices [9]"), theme.warning)),
    }
    pieces.push(probes(world, theme));
    pieces.extend(seen(world, coverage, theme));
    pieces.push(cost(world, status, theme));
    let gap = 3;
    let width = usize::from(area.width).saturating_sub(1);
    while pieces.iter().map(|piece| piece.width() + gap).sum::<usize>().saturating_sub(gap) > width {
        let Some(cheapest) = pieces.iter().enumerate().min_by_key(|(_, piece)| piece.keep).map(|(at, _)| at) else {
            break;
        };
        pieces.remove(cheapest);
    }
    let mut line = vec![Span::raw(" ")];
    for piece in pieces {
        line.extend(piece.spans);
        line.push(Span::raw("   "));
    }
    put(buf, area, 0, &Line::from(line));
}

/// Whether what is seen is now, and why not.
fn mode(scene: Scene<'_>, behind: Option<u64>, monotonic_now: Nanos) -> Piece {
    let (world, status, theme) = (scene.world, scene.status, scene.theme);
    let speed = if status.speed.is_finite() { format!("×{}", status.speed) } else { "as fast as it goes".to_owned() };
    // Of a recording that is played rather than searched it says little: what is read ahead counts.
    let read = status.read_share.filter(|_| status.seeking.is_some());
    let read = read.map_or_else(String::new, |share| format!(" {:.0}%", (share * 100.0).floor()));
    let (text, style) = match (status.mode, behind) {
        (mode, Some(behind)) => {
            let demo = if mode == Mode::Demo { "DEMO " } else { "" };
            let behind = if behind == 0 { String::new() } else { format!(" {} behind", number::age(behind)) };
            (format!("{demo}PAUSED{behind} (space goes on)"), theme.warning)
        }
        (Mode::Replay, _) => match status.seeking {
            Some(Nanos::MAX) => (format!("REPLAY to the end{read} (Esc stops)"), theme.warning),
            Some(t) => (format!("REPLAY to {}{read} (Esc stops)", number::moment(world, t, false)), theme.warning),
            None if status.ended => ("REPLAY at its end".to_owned(), theme.strong),
            None if status.paused => (format!("REPLAY PAUSED{read} (space goes on)"), theme.warning),
            None => (format!("REPLAY {speed}{read}"), theme.strong),
        },
        (Mode::Demo, _) if status.paused => ("DEMO PAUSED".to_owned(), theme.warning),
        (Mode::Demo, _) => match behind_by(status, world) {
            Some(behind) => (format!("DEMO {} BEHIND", number::age(behind)), theme.warning),
            // The usual interval goes without saying.
            None if status.interval_ns == 1_000_000_000 => ("DEMO".to_owned(), theme.strong),
            None => (format!("DEMO {}", number::span(status.interval_ns)), theme.strong),
        },
        (Mode::Live, _) => match stale_for(status, monotonic_now) {
            Some(age) => {
                let since = number::moment(world, world.now, false);
                (format!("STALE {}: no data since {since}", number::age(age)), theme.alarm)
            }
            None => match behind_by(status, world) {
                Some(behind) => (format!("LIVE {} BEHIND", number::age(behind)), theme.warning),
                None => (format!("LIVE {}", number::span(status.interval_ns)), theme.good),
            },
        },
    };
    Piece::new(95, text, style)
}

/// What this program and its probes together take of one core, and its memory. Above what the probes may cost, or a
/// quarter of a core, it is worth more room than most.
fn cost(world: &World, status: &Status, theme: &Theme) -> Piece {
    let probes = world.probes.as_ref();
    let share = probes.and_then(|probes| probes.cost_share);
    let over = share.zip(probes.and_then(|probes| probes.budget_share)).is_some_and(|(share, budget)| share > budget);
    let sum = match (status.own.cpu_share, share) {
        (Some(own), Some(probes)) => Some(own + probes),
        (one, other) => one.or(other),
    };
    let loud = over || sum.is_some_and(|sum| sum > DEAR);
    let memory = number::known_bytes(status.own.resident_bytes);
    let text = format!("cost {} cpu {memory}", number::percent(sum));
    Piece::new(if loud { 78 } else { 30 }, text, if loud { theme.warning } else { theme.dim })
}

fn probes(world: &World, theme: &Theme) -> Piece {
    match &world.probes {
        None => Piece::new(40, "no probes".to_owned(), theme.dim),
        Some(probes) => {
            let style = if probes.attached < probes.wanted { theme.warning } else { theme.text };
            Piece::new(40, format!("probes {}/{}", probes.attached, probes.wanted), style)
        }
    }
}

fn seen(world: &World, coverage: &Coverage, theme: &Theme) -> Vec<Piece> {
    if world.probes.is_none() && coverage.qps_traced == 0 {
        return vec![Piece::new(50, "seen: counters only".to_owned(), theme.dim)];
    }
    let about = if coverage.sampled { "~" } else { "" };
    let bytes = coverage.bytes_ratio.map(|ratio| format!("{about}{}% of bytes", (ratio * 100.0).round()));
    let bytes = bytes.unwrap_or_else(|| format!("{UNKNOWN} of bytes"));
    // Small messages are mostly headers: a low ratio says something only where headers do not explain it.
    let low = match coverage.unexplained {
        Some(bytes) => bytes > 0.0,
        None => coverage.bytes_ratio.is_some_and(|ratio| ratio < 0.9),
    };
    if low {
        // What is not seen is worth more room than what seeing costs; in few words, so that both have it.
        let qps = Piece::new(25, format!("{}/{} QPs", coverage.qps_traced, coverage.qps), theme.text);
        return vec![Piece::new(79, format!("seen {bytes}"), theme.warning), qps];
    }
    vec![Piece::new(50, format!("seen {bytes}, {}/{} QPs", coverage.qps_traced, coverage.qps), theme.text)]
}

/// How much room the tabs take: the first that fits is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tabs {
    /// Names and a rule between them.
    Full,
    /// Names, one space between them.
    Close,
    /// Short names but for the open one.
    Short,
    /// Numbers but for the open one.
    Numbers,
}

impl Tabs {
    const ALL: [Self; 4] = [Self::Full, Self::Close, Self::Short, Self::Numbers];

    fn text(self, pane: PaneId, open: bool) -> String {
        let (number, title) = (pane.number(), pane.title());
        match self {
            Self::Full => format!(" {number} {title} "),
            Self::Close => format!("{number} {title} "),
            _ if open => format!("{number} {title} "),
            Self::Short => format!("{number}{} ", pane.short()),
            Self::Numbers => format!("{number} "),
        }
    }

    fn gap(self) -> u16 {
        u16::from(self == Self::Full)
    }
}

/// Draws the tabs; says which columns belong to which. When the width is short the rules between them go first, then the
/// long names, then the names of all but the open one.
pub(crate) fn tabs(buf: &mut Buffer, area: Rect, scene: Scene<'_>, open: PaneId) -> Vec<(Range<u16>, PaneId)> {
    let theme = scene.theme;
    let rest = "─".repeat(usize::from(area.width));
    put(buf, area, 0, &Line::styled(rest, theme.rule));
    let line = |look: Tabs, pane: PaneId| {
        let style = if pane == open { theme.open_tab } else { theme.text };
        let mut spans = vec![Span::styled(look.text(pane, pane == open), style)];
        if pane == PaneId::Findings && !scene.world.findings.is_empty() {
            let worst = scene.world.findings.iter().map(|f| f.severity).max().unwrap_or(Severity::Info);
            let text = format!("●{} ", collector::incident::count(&scene.world.findings));
            spans.push(Span::styled(text, theme.severity(worst)));
        }
        Line::from(spans)
    };
    let wide = |look: Tabs| -> usize {
        PaneId::ALL.iter().map(|pane| line(look, *pane).width() + usize::from(look.gap())).sum()
    };
    let look = Tabs::ALL.into_iter().find(|look| wide(*look) < usize::from(area.width)).unwrap_or(Tabs::Numbers);
    let mut x = area.x + 1;
    let mut places = Vec::new();
    for pane in PaneId::ALL {
        let line = line(look, pane);
        let wide = u16::try_from(line.width()).unwrap_or(0);
        if x + wide > area.right() {
            break;
        }
        if area.height > 0 {
            buf.set_line(x, area.y, &line, wide);
        }
        places.push((x..x + wide, pane));
        x += wide + look.gap();
    }
    places
}

/// What stands right of the keys.
pub(crate) struct Note {
    /// The words.
    pub(crate) text: String,
    /// Keys go so that it stays.
    pub(crate) stays: bool,
    /// There is something that Enter opens.
    pub(crate) opens: bool,
}

/// Draws the footer: keys on the left, a message or a note on the right.
pub(crate) fn footer(
    buf: &mut Buffer,
    area: Rect,
    pane: PaneId,
    time: Time,
    message: Option<&str>,
    note: &Note,
    theme: &Theme,
) {
    if let Some(message) = message {
        put(buf, area, 0, &Line::styled(format!(" {message}"), theme.strong));
        return;
    }
    let mut words: Vec<(&str, &str)> = BINDINGS
        .iter()
        .filter(|binding| binding.holds(pane, time) && (note.opens || binding.action != Action::Enter))
        .filter_map(|binding| Some((binding.shown, binding.footer?)))
        .collect();
    let long = |words: &[(&str, &str)]| {
        words.iter().map(|(key, word)| key.chars().count() + word.chars().count() + 3).sum::<usize>()
    };
    // Help and quit stand last and stay; the keys before them go from the right.
    let kept = if note.stays { note.text.chars().count() + 2 } else { 0 };
    while words.len() > LAST_KEYS && long(&words) + kept > usize::from(area.width) {
        words.remove(words.len() - 1 - LAST_KEYS);
    }
    let mut spans = vec![Span::raw(" ")];
    for (key, word) in words {
        spans.push(Span::styled(key, theme.strong));
        spans.push(Span::styled(format!(" {word}  "), theme.dim));
    }
    let keys = Line::from(spans);
    put(buf, area, 0, &keys);
    let note = Line::styled(note.text.clone(), theme.dim);
    let wide = u16::try_from(note.width()).unwrap_or(u16::MAX);
    let used = u16::try_from(keys.width()).unwrap_or(u16::MAX);
    if area.height > 0 && area.width > used.saturating_add(wide) {
        buf.set_line(area.right() - wide - 1, area.y, &note, wide);
    }
}
