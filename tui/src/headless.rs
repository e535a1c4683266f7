//! The screen without a terminal: the same loop and the same frames, drawn into any writer, with keys from a [`Keyboard`]. For
//! measuring what frames cost and how long a key takes (`cargo xtask bench tui`).

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use collector::clock;
use collector::feed::Feed;
use collector::observation::Nanos;
use crossterm::event::Event;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

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

    /// Turns the loop until the person quits or leaves.
    pub fn run(&mut self, keyboard: &Keyboard) -> anyhow::Result<()> {
        let mut keys = At { keyboard, feed: self.app.feed() };
        turn(&mut self.app, &mut self.terminal, &mut keys, || false)
    }
}

/// Where keys are pressed, from any thread.
pub struct Keyboard {
    pressed: Mutex<VecDeque<Event>>,
    taken: AtomicUsize,
    wake: OwnedFd,
}

impl Keyboard {
    /// A keyboard nobody has touched.
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { pressed: Mutex::default(), taken: AtomicUsize::new(0), wake })
    }

    /// Presses a key.
    pub fn press(&self, event: Event) {
        self.pressed().push_back(event);
        // The counter of an eventfd is full only when the other end has not looked for 2^64 times.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// How many keys the loop has taken: what is flushed afterwards is a frame that knows of them.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    fn pressed(&self) -> MutexGuard<'_, VecDeque<Event>> {
        // A queue is good after every statement, so also after a panic elsewhere.
        self.pressed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The loop's side of a keyboard.
struct At<'k> {
    keyboard: &'k Keyboard,
    feed: Feed,
}

impl Keys for At<'_> {
    fn wait(&mut self, wait: Duration) -> io::Result<Input> {
        let fds = [Some(self.keyboard.wake.as_fd()), self.feed.wake()].into_iter().flatten();
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        poll(&mut fds, Some(&timeout))?;
        self.feed.seen();
        let _ = rustix::io::read(&self.keyboard.wake, &mut [0u8; 8]);
        Ok(if self.more()? { Input::Waiting } else { Input::Nothing })
    }

    fn signalled(&mut self) -> bool {
        false
    }

    fn read(&mut self) -> io::Result<Event> {
        let event = self.keyboard.pressed().pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        self.keyboard.taken.fetch_add(1, Ordering::SeqCst);
        Ok(event)
    }

    fn more(&mut self) -> io::Result<bool> {
        Ok(!self.keyboard.pressed().is_empty())
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
    fn keys_are_taken_and_counted_and_end_the_loop() {
        let (feed, bytes) = (sample::feed(sample::healthy(), Mode::Live), Bytes::default());
        let mut screen = Headless::new(feed, ScreenOptions::default(), 120, 40, bytes.clone()).unwrap();
        let keyboard = Keyboard::new().unwrap();
        for key in ['3', 'q'] {
            keyboard.press(Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
        }
        screen.run(&keyboard).unwrap();
        assert_eq!(keyboard.taken(), 2, "and the loop ended by the second");
        assert!(bytes.0.get() > 0);
    }
}
