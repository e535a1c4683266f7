//! The screen without a terminal: the same loop and the same frames, drawn into any writer, with keys from a channel. For
//! measuring what frames cost and how long a key takes (`cargo xtask bench tui`).

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use collector::clock;
use collector::feed::Feed;
use collector::observation::Nanos;
use crossterm::event::Event;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::app::App;
use crate::input::{Input, Keys};
use crate::screen::{ScreenOptions, frame, turn};

/// A screen of a fixed size that writes what a terminal would get into `W`. Each frame is flushed once.
pub struct Headless<W: Write> {
    app: App,
    terminal: Terminal<CrosstermBackend<W>>,
}

impl<W: Write> Headless<W> {
    /// A screen of so many columns and rows.
    pub fn new(feed: Feed, options: ScreenOptions, columns: u16, rows: u16, into: W) -> io::Result<Self> {
        let viewport = Viewport::Fixed(Rect::new(0, 0, columns, rows));
        let terminal = Terminal::with_options(CrosstermBackend::new(into), TerminalOptions { viewport })?;
        Ok(Self { app: App::new(feed, options, true), terminal })
    }

    /// One round of the loop without waiting: looks for a newer world and draws a frame if it would be another one than
    /// the last. Says whether it drew.
    pub fn frame(&mut self) -> io::Result<bool> {
        self.frame_at(clock::monotonic_ns())
    }

    fn frame_at(&mut self, now: Nanos) -> io::Result<bool> {
        frame(&mut self.app, &mut self.terminal, now)
    }

    /// Takes a key, a click.
    pub fn take(&mut self, event: &Event) {
        self.app.take(event, clock::monotonic_ns());
    }

    /// Turns the loop until the person quits or the sender is gone. `taken` counts the events the loop has taken: what is
    /// flushed afterwards is a frame that knows of them.
    pub fn run(&mut self, events: Receiver<Event>, taken: &AtomicUsize) -> anyhow::Result<()> {
        let mut keys = Channel { events, read: VecDeque::new(), taken };
        turn(&mut self.app, &mut self.terminal, &mut keys, || false)
    }
}

/// Keys from a channel.
struct Channel<'a> {
    taken: &'a AtomicUsize,
    events: Receiver<Event>,
    /// Taken from the channel, not read yet.
    read: VecDeque<Event>,
}

impl Keys for Channel<'_> {
    fn wait(&mut self, wait: Duration) -> io::Result<Input> {
        if self.more()? {
            return Ok(Input::Waiting);
        }
        match self.events.recv_timeout(wait) {
            Ok(event) => self.read.push_back(event),
            Err(RecvTimeoutError::Timeout) => return Ok(Input::Nothing),
            Err(RecvTimeoutError::Disconnected) => return Ok(Input::Gone),
        }
        Ok(Input::Waiting)
    }

    fn read(&mut self) -> io::Result<Event> {
        let event = self.read.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        self.taken.fetch_add(1, Ordering::SeqCst);
        Ok(event)
    }

    fn more(&mut self) -> io::Result<bool> {
        match self.events.try_recv() {
            Ok(event) => self.read.push_back(event),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        Ok(!self.read.is_empty())
    }

    fn copy(&mut self, _text: &str) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use collector::feed::Mode;
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::mpsc;

    #[derive(Clone, Default)]
    struct Bytes(Rc<Cell<usize>>);

    impl Write for Bytes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.set(self.0.get() + bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const SECOND: u64 = 1_000_000_000;
    /// The loop looks that often in a second.
    const ROUNDS: u64 = 20;

    /// Frames and bytes of 30 s in which `each_second` happens.
    fn half_a_minute(mode: Mode, key: Option<char>, each_second: impl Fn(&Feed)) -> (usize, usize) {
        let (feed, bytes) = (sample::feed(sample::faulty(), mode), Bytes::default());
        let began = feed.latest().status.published_at;
        let mut screen = Headless::new(feed.clone(), ScreenOptions::default(), 120, 40, bytes.clone()).unwrap();
        assert!(screen.frame_at(began).unwrap());
        if let Some(key) = key {
            screen.take(&Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
            assert!(screen.frame_at(began).unwrap());
        }
        let before = bytes.0.get();
        let mut frames = 0;
        for round in 0..30 * ROUNDS {
            if round % ROUNDS == 0 {
                each_second(&feed);
            }
            frames += usize::from(screen.frame_at(began + round * SECOND / ROUNDS).unwrap());
        }
        (frames, bytes.0.get() - before)
    }

    /// The node a second later, with nothing changed but the time.
    fn a_second_later(feed: &Feed) {
        let latest = feed.latest();
        let (mut world, mut status) = ((*latest.world).clone(), latest.status.clone());
        (world.now, status.published_at) = (world.now + SECOND, status.published_at + SECOND);
        feed.publish(Arc::new(world), status);
    }

    #[test]
    fn when_nothing_changes_nothing_is_drawn_and_no_byte_is_written() {
        assert_eq!(half_a_minute(Mode::Replay, None, |_| ()), (0, 0));
        assert_eq!(half_a_minute(Mode::Replay, Some('3'), |_| ()), (0, 0));
    }

    #[test]
    fn a_second_in_which_only_the_time_went_on_is_one_frame_of_the_cells_that_tell_it() {
        for key in [None, Some(' '), Some('9')] {
            let (frames, bytes) = half_a_minute(Mode::Live, key, a_second_later);
            assert!(frames <= 30 && bytes < 30 * 400, "{key:?}: {frames} frames, {bytes} bytes");
        }
    }

    #[test]
    fn keys_from_the_channel_are_taken_and_counted_and_end_the_loop() {
        let (feed, bytes) = (sample::feed(sample::healthy(), Mode::Live), Bytes::default());
        let mut screen = Headless::new(feed, ScreenOptions::default(), 120, 40, bytes.clone()).unwrap();
        let (sender, events) = mpsc::channel();
        for key in ['3', 'q'] {
            sender.send(Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))).unwrap();
        }
        let taken = AtomicUsize::new(0);
        screen.run(events, &taken).unwrap();
        assert_eq!(taken.load(Ordering::SeqCst), 2, "and the loop ended by the second");
        assert!(bytes.0.get() > 0);
    }
}
