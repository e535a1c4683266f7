//! The event loop: waits for keys a little, looks for a newer world, draws when something changed. Input never waits on
//! data, data never waits on input.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use collector::clock;
use collector::feed::Feed;
use crossterm::event;
#[cfg(debug_assertions)]
use crossterm::event::Event;

use crate::app::App;
use crate::input::{self, Input, Watchdog};
use crate::pane::PaneId;
use crate::signals::Signals;
use crate::terminal::{Screen, panics_elsewhere};
use crate::theme::ThemeName;

/// How long the loop waits for a key before it looks for a newer world.
const WAIT: Duration = Duration::from_millis(50);
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
/// any case, also when this returns an error or panics. The producer is not ended: that is the caller's.
pub fn run(feed: Feed, options: ScreenOptions) -> anyhow::Result<()> {
    let signals = Signals::watch().context("cannot watch for signals")?;
    let colour = options.color.colour();
    let mut app = App::new(feed, options, colour);
    let mut screen = Screen::take().context("cannot take the terminal")?;
    let watchdog = Watchdog::start(signals.asker());
    let outcome = drive(&mut app, &mut screen, &signals);
    drop(screen);
    drop(watchdog);
    // A terminal that went away together with a signal is no error.
    if signals.came() { Ok(()) } else { outcome }
}

fn drive(app: &mut App, screen: &mut Screen, signals: &Signals) -> anyhow::Result<()> {
    let input = input::Terminal::open().context("cannot open the terminal")?;
    while !signals.came() && !app.quits() {
        for panic in panics_elsewhere() {
            app.say(&panic, clock::monotonic_ns());
        }
        app.look();
        let now = clock::monotonic_ns();
        if app.changed(now) {
            screen
                .terminal
                .draw(|frame| {
                    let area = frame.area();
                    app.draw(area, frame.buffer_mut(), now);
                })
                .context("cannot draw on the terminal")?;
        }
        match input.wait(WAIT).context("cannot read from the terminal")? {
            Input::Waiting => {}
            Input::Nothing => continue,
            // Nobody is there to be told.
            Input::Gone => return Ok(()),
        }
        for _ in 0..MAX_EVENTS {
            let event = event::read().context("cannot read from the terminal")?;
            #[cfg(debug_assertions)]
            fail_if_asked(&event);
            app.take(&event, clock::monotonic_ns());
            if let Some(text) = app.copied() {
                Screen::copy(&text).context("cannot write to the terminal")?;
            }
            if app.quits() || !event::poll(Duration::ZERO).context("cannot read from the terminal")? {
                break;
            }
        }
    }
    Ok(())
}

/// Panics on F12 where a test asks for that by a variable, to see what becomes of the terminal. No release has it.
#[cfg(debug_assertions)]
fn fail_if_asked(event: &Event) {
    let pressed = event.as_key_press_event().is_some_and(|key| key.code == event::KeyCode::F(12));
    assert!(!pressed || std::env::var_os("SCREEN_FAILS_ON_F12").is_none(), "a test asked for it");
}
