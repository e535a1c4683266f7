//! Where in time the screen stands: frozen, led back, or at a place of a replay; and how fast it goes on.

use std::ops::Range;

use collector::feed::{Command, Mode};
use collector::observation::Nanos;

use super::App;
use crate::number;

/// Polling intervals that can be asked for, ns.
const INTERVALS: Range<u64> = 100_000_000..60_000_000_001;
/// How far `←` and `→` go in a running replay, ns.
const LEAP_NS: u64 = 10_000_000_000;
/// What `{` and `}` lead over.
pub(super) const MINUTE_NS: u64 = 60_000_000_000;

impl App {
    pub(super) fn pause(&mut self) {
        if self.replay() {
            self.feed.send(if self.latest.status.paused { Command::Resume } else { Command::Pause });
        } else {
            self.frozen = !self.frozen;
            if self.frozen {
                self.moments.hold(&self.shown);
            } else {
                self.shown = self.latest.clone();
            }
        }
    }

    /// To the kept moment before or after the one shown.
    pub(super) fn look_back(&mut self, forward: bool, now: Nanos) {
        if let Some(moment) = self.moments.beside(&self.shown, forward) {
            self.shown = moment;
        } else if forward {
            self.say("here the screen was frozen; space goes on", now);
        } else {
            self.say("no older moment is kept whole; the charts reach further back: 2, then h l", now);
        }
    }

    /// To the kept moment a minute before or after the one shown, or as far as they reach.
    pub(super) fn look_far(&mut self, forward: bool, now: Nanos) {
        let from = self.shown.world.now;
        let is_far = |at: Nanos| at.abs_diff(from) >= MINUTE_NS;
        let mut moved = false;
        while !is_far(self.shown.world.now)
            && let Some(moment) = self.moments.beside(&self.shown, forward)
        {
            (self.shown, moved) = (moment, true);
        }
        if !moved {
            self.look_back(forward, now);
        }
    }

    /// One step of a replay: `by` ns, or what the arrows do.
    pub(super) fn step(&mut self, forward: bool, by: Option<u64>) {
        let (world, status) = (&self.latest.world, &self.latest.status);
        let paused = (status.paused || status.ended) && by.is_none();
        let by = by.unwrap_or(if paused { world.window_ns } else { LEAP_NS });
        // On the way to a time a further step counts from there, not from where the replay happens to be.
        let from = status.seeking.filter(|t| *t != Nanos::MAX);
        self.feed.send(match (forward, paused, from) {
            (true, true, None) => Command::Step,
            (true, ..) => Command::Seek(from.unwrap_or(world.now).saturating_add(by)),
            (false, ..) => Command::Seek(from.unwrap_or(world.now).saturating_sub(by).max(world.started)),
        });
    }

    pub(super) fn pace(&mut self, faster: bool, now: Nanos) {
        let status = &self.latest.status;
        if status.mode == Mode::Replay {
            let speed = if status.speed.is_finite() { status.speed } else { 64.0 };
            let wanted = (if faster { speed * 2.0 } else { speed / 2.0 }).clamp(0.125, 1024.0);
            self.feed.send(Command::Speed(wanted));
            self.say(&format!("asked for ×{wanted}"), now);
        } else {
            let wanted = if faster { status.interval_ns / 2 } else { status.interval_ns.saturating_mul(2) };
            let wanted = wanted.clamp(INTERVALS.start, INTERVALS.end - 1);
            self.feed.send(Command::Interval(wanted));
            self.say(&format!("asked for a look every {}", number::span(wanted)), now);
        }
    }
}
