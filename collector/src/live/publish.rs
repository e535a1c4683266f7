//! The world is published where there is news and somebody to read it.

use super::Live;
use super::obey::status;
use crate::observation::Nanos;

/// The world is published no more often than this, ns: also where a source always has something more to say.
const PUBLISH_EVERY_NS: u64 = 100_000_000;

impl Live {
    /// Publishes what is known now, if it is time for it.
    pub(super) fn publish(&mut self, now: Nanos, at_once: bool) {
        if !at_once && (now < self.last_publish + PUBLISH_EVERY_NS || !self.has_news()) {
            return;
        }
        self.last_publish = now;
        self.status.own = self.own.cost();
        self.status.published_at = now;
        self.status.recording = self.recording.as_ref().map(status);
        (self.status.sources, self.status.probes) = self.availability();
        self.feed.publish(self.engine.snapshot(), self.status.clone());
    }

    /// There is something to publish, and somebody to read it.
    fn has_news(&self) -> bool {
        if !self.feed.is_read() {
            return false;
        }
        let newest = self.feed.latest();
        newest.generation == 0
            || newest.world.now != self.engine.world().now
            || newest.status.notices.len() != self.status.notices.len()
            || newest.status.done.len() != self.status.done.len()
            || newest.status.interval_ns != self.status.interval_ns
            || newest.status.recording.is_some() != self.recording.is_some()
    }

    /// When the next publication is due.
    pub(super) fn publishes_at(&self) -> Nanos {
        if self.has_news() { self.last_publish.saturating_add(PUBLISH_EVERY_NS) } else { Nanos::MAX }
    }
}
