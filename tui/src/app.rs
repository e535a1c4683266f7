//! What is open and what is shown; where keys and clicks go.
//!
//! - [`time`]: where in time the screen stands, and how fast it goes on
//! - [`ways`]: from pane to pane and back

mod time;
mod ways;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use collector::clock;
use collector::feed::{Command, Feed, Mode, Published, Status};
use collector::inventory::Coverage;
use collector::observation::Nanos;
use crossterm::event::{Event, KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;

use self::time::MINUTE_NS;
use crate::help::Help;
use crate::key::{self, Action, Time};
use crate::moments::Moments;
use crate::pane::ecn::Ecn;
use crate::pane::failover::FailoverPane;
use crate::pane::findings::Findings;
use crate::pane::overview::Overview;
use crate::pane::own::Own;
use crate::pane::pcie::PciePane;
use crate::pane::port::PortPane;
use crate::pane::qp::QpPane;
use crate::pane::qps::Qps;
use crate::pane::{Pane, PaneId, Reaction, Scene, below, row, wrap};
use crate::screen::ScreenOptions;
use crate::theme::{Theme, ThemeName};
use crate::{ascii, frame, number};

/// The smallest screen that is drawn.
const SMALLEST: (u16, u16) = (60, 16);
/// How long a message stands in the footer, ns.
const MESSAGE_NS: u64 = 6_000_000_000;
/// What comes in is not drawn later than this, ns.
const TOGETHER_NS: u64 = 1_000_000_000;
/// A world of more QPs is not freed by the screen's thread: a frame would wait for it.
const MANY_QPS: usize = 4_096;
/// Rows a banner takes at most.
const MOST_BANNER: usize = 3;
/// Rows a turn of the wheel moves.
const WHEEL: usize = 3;

/// The whole screen.
pub(crate) struct App {
    feed: Feed,
    /// What is shown: the newest publication, or an older one while frozen.
    shown: Arc<Published>,
    /// The newest state of the producer.
    latest: Arc<Published>,
    frozen: bool,
    /// What a frozen screen can be led back to.
    moments: Moments,
    coverage: (u64, Coverage),
    theme_name: ThemeName,
    colour: bool,
    theme: Theme,
    ascii: bool,
    record_prefix: PathBuf,
    open: PaneId,
    /// Where Esc leads back to.
    trail: Vec<PaneId>,
    panes: Panes,
    help: Option<Help>,
    message: Option<(String, Nanos)>,
    copied: Option<String>,
    quit: bool,
    suspend: bool,
    /// Something changed since the last frame.
    dirty: bool,
    /// There is a newer world than the one of the last frame, which nobody needs to see at once.
    newer: bool,
    /// When the last frame was drawn.
    drawn_at: Nanos,
    /// The clock field of the last frame.
    clock: Option<u64>,
    tabs: Vec<(Range<u16>, PaneId)>,
    tabs_at: u16,
    body: Rect,
}

#[derive(Default)]
struct Panes {
    overview: Overview,
    port: PortPane,
    qps: Qps,
    qp: QpPane,
    findings: Findings,
    ecn: Ecn,
    pcie: PciePane,
    failover: FailoverPane,
    own: Own,
}

impl Panes {
    fn get(&mut self, id: PaneId) -> &mut dyn Pane {
        match id {
            PaneId::Overview => &mut self.overview,
            PaneId::Port => &mut self.port,
            PaneId::Qps => &mut self.qps,
            PaneId::Qp => &mut self.qp,
            PaneId::Findings => &mut self.findings,
            PaneId::Ecn => &mut self.ecn,
            PaneId::Pcie => &mut self.pcie,
            PaneId::Failover => &mut self.failover,
            PaneId::Own => &mut self.own,
        }
    }
}

impl App {
    pub(crate) fn new(feed: Feed, options: ScreenOptions, colour: bool) -> Self {
        let latest = feed.latest();
        Self {
            feed,
            shown: latest.clone(),
            latest,
            frozen: false,
            moments: Moments::default(),
            coverage: (u64::MAX, Coverage::default()),
            theme_name: options.theme,
            colour,
            theme: Theme::new(options.theme, colour),
            ascii: options.ascii,
            record_prefix: options.record_prefix,
            open: options.first,
            trail: Vec::new(),
            panes: Panes::default(),
            help: None,
            message: None,
            copied: None,
            quit: false,
            suspend: false,
            dirty: true,
            newer: false,
            drawn_at: 0,
            clock: None,
            tabs: Vec::new(),
            tabs_at: 0,
            body: Rect::ZERO,
        }
    }

    /// Where worlds come from.
    pub(crate) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// The open pane waits for something of its own, which does not wake the loop.
    pub(crate) fn waits(&mut self) -> bool {
        self.panes.get(self.open).waits()
    }

    /// The person wants to end, or the shell for a while.
    pub(crate) fn leaves(&self) -> bool {
        self.quit || self.suspend
    }

    /// The person wants the shell; asked for once.
    pub(crate) fn suspends(&mut self) -> bool {
        std::mem::take(&mut self.suspend)
    }

    /// What is on the terminal is not what was drawn.
    pub(crate) fn redraw(&mut self) {
        self.dirty = true;
    }

    /// Text to hand to the clipboard.
    pub(crate) fn copied(&mut self) -> Option<String> {
        self.copied.take()
    }

    /// Says something in the footer for a while.
    pub(crate) fn say(&mut self, text: &str, now: Nanos) {
        self.message = Some((text.to_owned(), now.saturating_add(MESSAGE_NS)));
        self.dirty = true;
    }

    /// Looks for a newer publication.
    pub(crate) fn look(&mut self) {
        let latest = self.feed.latest();
        if latest.generation != self.latest.generation {
            // A frozen screen too says how far behind it is.
            self.newer = true;
            self.dirty |= urgent(&self.latest, &latest);
            let newest = latest.status.notices.get(self.latest.status.notices.len()..).and_then(<[String]>::last);
            if let Some(told) = ended(&self.latest.status, &latest.status).or_else(|| newest.cloned()) {
                self.say(&told, clock::monotonic_ns());
            }
            let mut before = vec![std::mem::replace(&mut self.latest, latest)];
            if !self.frozen {
                before.push(std::mem::replace(&mut self.shown, self.latest.clone()));
                // A replay is led back by playing it again.
                if !self.replay() {
                    self.moments.keep(&self.latest);
                }
            }
            before.append(&mut self.moments.dropped());
            if self.latest.world.qps.len() > MANY_QPS {
                self.feed.done(before);
            }
        }
    }

    /// A new frame would look different: something changed, or a field that shows the clock did.
    pub(crate) fn changed(&mut self, now: Nanos) -> bool {
        if self.message.as_ref().is_some_and(|(_, until)| now >= *until) {
            self.message = None;
            self.dirty = true;
        }
        // Sources have their say at different moments of a second: what they say of one is drawn together. Where the files are
        // read less often, others go on each second.
        let together = (self.latest.status.interval_ns / 10 * 9).min(TOGETHER_NS);
        self.dirty |= self.newer && now.saturating_sub(self.drawn_at) >= together;
        let clock = frame::stale_for(&self.latest.status, now).map(|age| age / 1_000_000_000);
        self.dirty |= clock != self.clock || self.panes.get(self.open).news();
        self.dirty
    }

    fn replay(&self) -> bool {
        self.latest.status.mode == Mode::Replay
    }

    fn time(&self) -> Time {
        match self.latest.status.mode {
            Mode::Replay => Time::Replay,
            Mode::Live | Mode::Demo if self.frozen => Time::Frozen,
            Mode::Live | Mode::Demo => Time::Running,
        }
    }

    /// Draws everything.
    pub(crate) fn draw(&mut self, area: Rect, buf: &mut Buffer, now: Nanos) {
        (self.dirty, self.newer, self.drawn_at) = (false, false, now);
        self.clock = frame::stale_for(&self.latest.status, now).map(|age| age / 1_000_000_000);
        if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
            let text = format!("rdmascope needs {}×{}, this is {}×{}", SMALLEST.0, SMALLEST.1, area.width, area.height);
            crate::pane::put(buf, area, 0, &Line::raw(text));
        } else {
            self.draw_all(area, buf, now);
        }
        if self.ascii {
            ascii::flatten(buf);
        }
    }

    fn draw_all(&mut self, area: Rect, buf: &mut Buffer, now: Nanos) {
        let shown = self.shown.clone();
        if self.coverage.0 != shown.generation {
            self.coverage = (shown.generation, shown.world.coverage());
        }
        // The world may be frozen, the producer's state is always the newest.
        let status = &self.latest.status;
        let (world, generation) = (&shown.world, shown.generation);
        let scene = Scene { world, status, coverage: &self.coverage.1, generation, theme: &self.theme };
        let mut rest = area;
        if let Some(banner) = &status.banner {
            // Its end is as important as its beginning: it may say that this is not this node.
            for part in wrap(banner, usize::from(rest.width).saturating_sub(2).max(20)).into_iter().take(MOST_BANNER) {
                let at = row(rest, 0);
                buf.set_style(at, self.theme.selected);
                crate::pane::put(buf, at, 0, &Line::styled(format!(" {part}"), self.theme.warning));
                rest = below(rest, 1);
            }
        }
        let behind = self.frozen.then(|| self.latest.world.now.saturating_sub(shown.world.now));
        frame::header(buf, row(rest, 0), scene, &self.coverage.1, behind, now);
        self.tabs = frame::tabs(buf, row(rest, 1), scene, self.open);
        self.tabs_at = rest.y + 1;
        let body = below(rest, 2);
        self.body = Rect { height: body.height.saturating_sub(1), ..body };
        self.panes.get(self.open).draw(scene, self.body, buf);
        let time = self.time();
        if let Some(help) = &mut self.help {
            help.draw(buf, self.body, self.open, time, &self.theme);
        }
        let span = shown.world.now.saturating_sub(shown.world.started);
        let opens = self.panes.get(self.open).opens();
        // What is out of sight is worth more than the keys in the middle.
        let note = match self.panes.get(self.open).note() {
            Some(text) => frame::Note { text, stays: true, opens },
            None => frame::Note { text: format!("{} of history", number::age(span)), stays: false, opens },
        };
        let message = self.message.as_ref().map(|(text, _)| text.as_str());
        frame::footer(buf, row(below(rest, 2), self.body.height), self.open, time, message, &note, &self.theme);
    }

    /// Takes a key, a click, a resize.
    pub(crate) fn take(&mut self, event: &Event, now: Nanos) {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(*key, now),
            Event::Mouse(mouse) => self.mouse(*mouse, now),
            Event::Resize(..) => self.dirty = true,
            _ => {}
        }
    }

    fn key(&mut self, key: KeyEvent, now: Nanos) {
        self.dirty = true;
        let time = self.time();
        let quit = key::action(key, self.open, time) == Some(Action::Quit);
        // Ctrl-C ends even then, Ctrl-Z stops; the letter of any other key is a letter.
        let suspends = key::action(key, self.open, time) == Some(Action::Suspend);
        let ends = suspends || quit && !key.modifiers.is_empty();
        if !ends && self.panes.get(self.open).typing() {
            self.panes.get(self.open).type_key(key);
            return;
        }
        if let Some(help) = &mut self.help
            && !ends
            && !quit
        {
            let action = key::action(key, self.open, time);
            let scrolled = action.is_some_and(|action| help.scroll(action));
            self.help = self.help.filter(|_| scrolled);
            // Who asks for a pane from here wants more than the help to go.
            if scrolled || !matches!(action, Some(Action::Open(_) | Action::NextTab | Action::PreviousTab)) {
                return;
            }
        }
        if let Some(action) = key::action(key, self.open, time) {
            self.act(action, now);
        }
    }

    fn mouse(&mut self, mouse: MouseEvent, now: Nanos) {
        let wheel = match mouse.kind {
            MouseEventKind::ScrollDown => Action::Down,
            MouseEventKind::ScrollUp => Action::Up,
            MouseEventKind::Down(MouseButton::Left) => return self.click(mouse.column, mouse.row),
            _ => return,
        };
        self.dirty = true;
        for _ in 0..WHEEL {
            match &mut self.help {
                Some(help) => _ = help.scroll(wheel),
                None => self.act(wheel, now),
            }
        }
    }

    fn click(&mut self, column: u16, at: u16) {
        self.dirty = true;
        self.help = None;
        if at == self.tabs_at {
            if let Some((_, pane)) = self.tabs.iter().find(|(place, _)| place.contains(&column)) {
                self.go_to_selected(*pane);
            }
        } else if self.body.contains(Position::new(column, at)) {
            let (x, y) = (column - self.body.x, at - self.body.y);
            let reaction = self.ask(|pane, scene| pane.click(x, y, scene));
            self.react(reaction, 0);
        }
    }

    fn ask(&mut self, what: impl FnOnce(&mut dyn Pane, Scene<'_>) -> Reaction) -> Reaction {
        let shown = self.shown.clone();
        let status = &self.latest.status;
        let (world, generation) = (&shown.world, shown.generation);
        let scene = Scene { world, status, coverage: &self.coverage.1, generation, theme: &self.theme };
        what(self.panes.get(self.open), scene)
    }

    fn act(&mut self, action: Action, now: Nanos) {
        match action {
            Action::Quit => self.quit = true,
            Action::Suspend => self.suspend = true,
            Action::Help => self.help = Some(Help::default()),
            Action::Open(pane) => self.go_to_selected(pane),
            Action::NextTab => self.turn(1),
            Action::PreviousTab => self.turn(PaneId::ALL.len() - 1),
            Action::Theme => {
                self.theme_name = self.theme_name.next();
                self.theme = Theme::new(self.theme_name, self.colour);
                self.say(&format!("theme {}", self.theme_name.name()), now);
            }
            Action::Pause => self.pause(),
            Action::Back | Action::Forward if self.frozen => self.look_back(action == Action::Forward, now),
            Action::Back | Action::Forward => self.step(action == Action::Forward, None),
            Action::MinuteBack | Action::MinuteForward if self.frozen => {
                self.look_far(action == Action::MinuteForward, now);
            }
            Action::MinuteBack | Action::MinuteForward => self.step(action == Action::MinuteForward, Some(MINUTE_NS)),
            Action::ToStart => self.feed.send(Command::Seek(self.latest.world.started)),
            Action::ToEnd => self.feed.send(Command::Seek(Nanos::MAX)),
            // On the way to a time there is something to stop first.
            Action::Leave if self.latest.status.seeking.is_some() => self.feed.send(Command::Pause),
            Action::Slower | Action::Faster => self.pace(action == Action::Faster, now),
            Action::Record => self.record(now),
            _ => {
                let reaction = self.ask(|pane, scene| pane.act(action, scene));
                let reaction = match (reaction, action) {
                    (Reaction::Ignored, Action::Leave) => {
                        let back = self.trail.pop().unwrap_or(PaneId::Overview);
                        self.arrive(back);
                        Reaction::Done
                    }
                    (Reaction::Ignored, Action::Copy) => Reaction::Copy(self.picture(), "what is in sight"),
                    (reaction, _) => reaction,
                };
                self.react(reaction, now);
            }
        }
    }

    /// The open pane as text, as it is drawn.
    fn picture(&mut self) -> String {
        let area = Rect { x: 0, y: 0, ..self.body };
        let mut buf = Buffer::empty(area);
        self.ask(|pane, scene| {
            pane.draw(scene, area, &mut buf);
            Reaction::Done
        });
        let host = self.shown.world.header.host.as_deref().unwrap_or(number::UNKNOWN);
        let at = number::moment(&self.shown.world, self.shown.world.now, true);
        let mut text = format!("{} on {host} at {at}\n", self.open.title());
        for row in buf.content.chunks(usize::from(area.width.max(1))) {
            let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn record(&mut self, now: Nanos) {
        if self.latest.status.recording.as_ref().is_some_and(|recording| recording.stopped.is_none()) {
            self.feed.send(Command::StopRecording);
            self.say("asked to end the recording", now);
            return;
        }
        let mut path = self.record_prefix.clone().into_os_string();
        path.push(format!("-{}.jsonl.zst", number::file_time(clock::unix_ns())));
        let path = PathBuf::from(path);
        self.say(&format!("asked to record to {} (● REC when it runs; r ends it)", path.display()), now);
        self.feed.send(Command::Record(path));
    }
}

/// Somebody wants to see this at once, and not only with the rest of its second: other findings, a port in another state,
/// anything but readings of a live node.
fn urgent(before: &Published, after: &Published) -> bool {
    let states = |published: &Published| published.world.ports.iter().map(|port| port.state).collect::<Vec<_>>();
    let findings = |published: &Published| {
        published
            .world
            .findings
            .iter()
            .map(|finding| (finding.rule, finding.key.clone(), finding.severity, finding.state))
            .collect::<Vec<_>>()
    };
    after.status.mode != Mode::Live
        || before.generation == 0
        || after.status.interval_ns != before.status.interval_ns
        || after.status.notices.len() != before.status.notices.len()
        || after.status.done.len() != before.status.done.len()
        || states(before) != states(after)
        || findings(before) != findings(after)
}

/// What to say of a recording that ended in between: where it is and what is in it.
fn ended(before: &Status, now: &Status) -> Option<String> {
    before.recording.as_ref().filter(|recording| recording.stopped.is_none())?;
    let recording = now.recording.as_ref().or(before.recording.as_ref())?;
    let going_on = now.recording.as_ref().is_some_and(|recording| recording.stopped.is_none());
    (!going_on).then(|| {
        let observations = number::grouped(recording.observations);
        let why = recording.stopped.as_ref().map_or(String::new(), |why| format!("; {why}"));
        let plural = if recording.observations == 1 { "" } else { "s" };
        format!("recorded to {}: {observations} observation{plural}{why}", recording.path.display())
    })
}

#[cfg(test)]
mod tests;
