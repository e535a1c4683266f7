//! The event loop: waits for keys a little, looks for a newer world, draws when something changed. Input never waits on
//! data, data never waits on input.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use collector::clock;
use collector::feed::Feed;
use collector::observation::Nanos;
#[cfg(debug_assertions)]
use crossterm::event::{Event, KeyCode};
use ratatui::Terminal;
use ratatui::backend::Backend;

use crate::app::App;
use crate::input::{self, Input, Keys, SHORT, Watchdog};
use crate::pane::PaneId;
use crate::signals::Signals;
use crate::terminal::{Screen, panics_elsewhere};
use crate::theme::ThemeName;

/// How long the loop waits for a key or a newer world before it looks whether the clock changed the picture: how old data
/// is, that a message has stood long enough.
const WAIT: Duration = Duration::from_millis(500);
/// Keys and clicks taken before the next frame, so that a flood of them cannot keep the screen from changing.
const MAX_EVENTS: usize = 256;

/// When to use colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// Unless `NO_COLOR` is set to something, or the terminal is `dumb`.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never: bold, dim and reversed text only.
    Never,
}

impl ColorChoice {
    fn colour(self) -> bool {
        let set = |name: &str, means: fn(&str) -> bool| std::env::var(name).is_ok_and(|value| means(&value));
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => !set("NO_COLOR", |value| !value.is_empty()) && !set("TERM", |value| value == "dumb"),
        }
    }
}

/// How the screen starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenOptions {
    /// The theme.
    pub theme: ThemeName,
    /// Draw with ASCII only.
    pub ascii: bool,
    /// When to use colour.
    pub color: ColorChoice,
    /// The pane to open.
    pub first: PaneId,
    /// `r` writes to this path with `-<UTC time>.jsonl.zst` appended.
    pub record_prefix: PathBuf,
}

impl Default for ScreenOptions {
    fn default() -> Self {
        Self {
            theme: ThemeName::default(),
            ascii: false,
            color: ColorChoice::default(),
            first: PaneId::default(),
            record_prefix: PathBuf::from("rdmascope"),
        }
    }
}

/// Shows the feed until the person quits or a signal (SIGTERM, SIGHUP, SIGINT) ends it. The terminal is given back in
/// any case, also when this returns an error or panics. The producer is not ended: that is the caller's. SIGQUIT ends the
/// process with a core, when the terminal has been given back; SIGTSTP and Ctrl-Z stop it until SIGCONT.
pub fn run(feed: Feed, options: ScreenOptions) -> anyhow::Result<()> {
    let signals = Signals::watch().context("cannot watch for signals")?;
    let colour = options.color.colour();
    let mut app = App::new(feed, options, colour);
    let mut screen = Screen::take().context("cannot take the terminal")?;
    let watchdog = Watchdog::start();
    let outcome = drive(&mut app, &mut screen, &signals);
    drop(screen);
    drop(watchdog);
    signals.dump_if_asked();
    // A terminal that went away together with a signal is no error.
    if signals.came() { Ok(()) } else { outcome }
}

fn drive(app: &mut App, screen: &mut Screen, signals: &Signals) -> anyhow::Result<()> {
    let mut input = input::Terminal::open(app.feed(), signals).context("cannot open the terminal")?;
    loop {
        turn(app, &mut screen.terminal, &mut input, || signals.came() || signals.stops())?;
        let asked = app.suspends() || signals.stops();
        if signals.came() || !asked {
            return Ok(());
        }
        let stopped = screen.lend(|| signals.stop()).context("cannot take the terminal again")?;
        app.redraw();
        if !stopped {
            app.say("there is no shell here that could continue a stopped program", clock::monotonic_ns());
        }
    }
}

/// The loop itself, on any terminal and with any input, until the person quits or wants the shell, `over` says so or nobody
/// is there.
pub(crate) fn turn<B: Backend<Error = io::Error>>(
    app: &mut App,
    terminal: &mut Terminal<B>,
    input: &mut impl Keys,
    over: impl Fn() -> bool,
) -> anyhow::Result<()> {
    while !over() && !app.leaves() {
        for panic in panics_elsewhere() {
            app.say(&panic, clock::monotonic_ns());
        }
        frame(app, terminal, clock::monotonic_ns()).context("cannot draw on the terminal")?;
        let wait = if app.waits() { SHORT } else { WAIT };
        let came = input.wait(wait).context("cannot read from the terminal")?;
        if input.signalled() {
            // A frame asks for the size itself.
            app.redraw();
        }
        match came {
            Input::Waiting => {}
            Input::Nothing => continue,
            // Nobody is there to be told.
            Input::Gone => return Ok(()),
        }
        for _ in 0..MAX_EVENTS {
            let event = input.read().context("cannot read from the terminal")?;
            #[cfg(debug_assertions)]
            fail_if_asked(&event);
            app.take(&event, clock::monotonic_ns());
            if let Some(text) = app.copied() {
                input.copy(&text).context("cannot write to the terminal")?;
            }
            if app.leaves() || !input.more().context("cannot read from the terminal")? {
                break;
            }
        }
    }
    Ok(())
}

/// Panics on F12 where a test asks for that by a variable, to see what becomes of the terminal. No release has it.
#[cfg(debug_assertions)]
fn fail_if_asked(event: &Event) {
    let pressed = event.as_key_press_event().is_some_and(|key| key.code == KeyCode::F(12));
    assert!(!pressed || std::env::var_os("SCREEN_FAILS_ON_F12").is_none(), "a test asked for it");
}

/// Looks for a newer world and draws a frame if it would be another one than the last; says whether it did.
pub(crate) fn frame<B: Backend>(app: &mut App, terminal: &mut Terminal<B>, now: Nanos) -> Result<bool, B::Error> {
    app.look();
    let changed = app.changed(now);
    if changed {
        terminal.draw(|frame| {
            let area = frame.area();
            app.draw(area, frame.buffer_mut(), now);
        })?;
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use collector::feed::Mode;
    use crossterm::event::Event;
    use ratatui::backend::CrosstermBackend;
    use ratatui::layout::Rect;
    use ratatui::{TerminalOptions, Viewport};
    use std::cell::Cell;

    /// Nobody presses a key; a signal comes or not.
    struct Silent<'t> {
        waits: &'t Cell<u32>,
        signal: bool,
    }

    impl Keys for Silent<'_> {
        fn wait(&mut self, _wait: Duration) -> io::Result<Input> {
            self.waits.set(self.waits.get() + 1);
            Ok(Input::Nothing)
        }

        fn signalled(&mut self) -> bool {
            std::mem::take(&mut self.signal)
        }

        fn read(&mut self) -> io::Result<Event> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn more(&mut self) -> io::Result<bool> {
            Ok(false)
        }

        fn copy(&mut self, _text: &str) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_change_of_size_that_no_event_tells_of_yet_is_drawn() {
        for signal in [false, true] {
            // A recording that stands still: nothing else asks for a frame.
            let mut app = App::new(sample::feed(sample::healthy(), Mode::Replay), ScreenOptions::default(), true);
            let viewport = Viewport::Fixed(Rect::new(0, 0, 80, 24));
            let backend = CrosstermBackend::new(Vec::new());
            let mut terminal = Terminal::with_options(backend, TerminalOptions { viewport }).unwrap();
            let waits = Cell::new(0);
            let mut input = Silent { waits: &waits, signal };
            turn(&mut app, &mut terminal, &mut input, || waits.get() == 1).unwrap();
            assert_eq!(frame(&mut app, &mut terminal, clock::monotonic_ns()).unwrap(), signal);
        }
    }
}
