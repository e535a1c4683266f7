//! Worlds of the last minutes, whole, so that a frozen screen can be led back through them: every pane shows what it would
//! have shown then.
//!
//! A world shares with the next one what did not change, but what changes all the time is there once for each. So fewer are
//! kept the older they are, and no more than [`BUDGET`] holds: minutes on most nodes, seconds where hundreds of thousands of
//! QPs are busy. Nothing is kept while the screen is frozen, so that what one looks back at stays.

use std::collections::VecDeque;
use std::sync::Arc;

use collector::feed::Published;
use collector::observation::Nanos;

/// The memory kept worlds may take together, bytes, by [`collector::inventory::World::apart_from`].
const BUDGET: usize = 64 << 20;
/// Moments are at least so far apart, ns.
const APART_NS: Nanos = 1_000_000_000;
/// Two moments of this age are further apart, namely by a share of their age.
const SHARE: Nanos = 6;
/// None is kept for longer, ns.
const LONGEST_NS: Nanos = 600_000_000_000;

/// The kept worlds, oldest first.
#[derive(Default)]
pub(crate) struct Moments {
    kept: VecDeque<Moment>,
}

struct Moment {
    published: Arc<Published>,
    /// What it takes beside the next one.
    bytes: usize,
}

impl Moment {
    fn t(&self) -> Nanos {
        self.published.world.now
    }
}

impl Moments {
    /// Keeps what was published, if the one before is old enough.
    pub(crate) fn keep(&mut self, published: &Arc<Published>) {
        let now = published.world.now;
        if self.kept.back().is_none_or(|last| now >= last.t().saturating_add(APART_NS)) {
            self.hold(published);
        }
    }

    /// Keeps what was published, for it is what one comes back to.
    pub(crate) fn hold(&mut self, published: &Arc<Published>) {
        if self.kept.back().is_some_and(|last| last.published.generation == published.generation) {
            return;
        }
        self.kept.push_back(Moment { published: published.clone(), bytes: 0 });
        self.weigh(self.kept.len().saturating_sub(2));
        self.thin(published.world.now);
        while self.kept.front().is_some_and(|first| first.t().saturating_add(LONGEST_NS) < published.world.now)
            || self.kept.iter().map(|moment| moment.bytes).sum::<usize>() > BUDGET
        {
            self.kept.pop_front();
        }
    }

    /// The moment before or after one.
    pub(crate) fn beside(&self, shown: &Published, forward: bool) -> Option<Arc<Published>> {
        let at = self.kept.iter().position(|moment| moment.published.generation == shown.generation)?;
        let beside = if forward { at + 1 } else { at.checked_sub(1)? };
        self.kept.get(beside).map(|moment| moment.published.clone())
    }

    /// Drops moments that stand closer together than their age needs.
    fn thin(&mut self, now: Nanos) {
        let mut at = 1;
        while at + 1 < self.kept.len() {
            let (before, own, after) = (self.kept[at - 1].t(), self.kept[at].t(), self.kept[at + 1].t());
            if after.saturating_sub(before) <= (now.saturating_sub(own) / SHARE).max(APART_NS) {
                self.kept.remove(at);
                self.weigh(at - 1);
            } else {
                at += 1;
            }
        }
    }

    /// Weighs a moment against the next one.
    fn weigh(&mut self, at: usize) {
        let Some(next) = self.kept.get(at + 1).map(|next| next.published.clone()) else { return };
        if let Some(moment) = self.kept.get_mut(at) {
            moment.bytes = moment.published.world.apart_from(&next.world);
        }
    }
}

#[cfg(test)]
mod tests {
    use collector::feed::{Mode, Status};
    use collector::inventory::World;
    use collector::observation::recording::Header;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn published(generation: u64, world: World) -> Arc<Published> {
        Arc::new(Published { generation, world: Arc::new(world), status: Status::new(Mode::Live) })
    }

    /// An empty world in each tenth of a second.
    fn run(seconds: u64) -> Moments {
        let mut moments = Moments::default();
        for tenth in 1..=seconds * 10 {
            let mut world = World::new(Header::new());
            world.now = tenth * SECOND / 10;
            moments.keep(&published(tenth, world));
        }
        moments
    }

    fn times(moments: &Moments) -> Vec<u64> {
        moments.kept.iter().map(|moment| moment.t() / (SECOND / 10)).collect()
    }

    #[test]
    fn the_last_seconds_are_kept_each_and_older_ones_further_apart_up_to_ten_minutes() {
        let moments = run(1_000);
        let times = times(&moments);
        assert_eq!(times[times.len() - 5..], [9_951, 9_961, 9_971, 9_981, 9_991]);
        for pair in times.windows(2) {
            let apart = pair[1] - pair[0];
            assert!(apart <= (10_000 - pair[0]) / SHARE + 10, "{pair:?} of {times:?}");
        }
        assert!((4_000..4_800).contains(&times[0]), "{times:?}");
        assert!(times.len() < 50, "{times:?}");
    }

    #[test]
    fn one_goes_back_and_forth_through_them_and_comes_back_to_where_one_was() {
        let mut moments = run(30);
        let mut world = World::new(Header::new());
        world.now = 30 * SECOND + SECOND / 20;
        let frozen = published(999, world);
        moments.hold(&frozen);
        let before = moments.beside(&frozen, false).unwrap();
        assert_eq!(before.world.now, 291 * SECOND / 10);
        assert_eq!(moments.beside(&before, true).unwrap().generation, 999);
        assert!(moments.beside(&frozen, true).is_none());
        let mut oldest = before;
        while let Some(older) = moments.beside(&oldest, false) {
            assert!(older.world.now < oldest.world.now);
            oldest = older;
        }
        assert_eq!(oldest.world.now, SECOND / 10);
    }

    #[test]
    fn worlds_that_take_much_are_fewer() {
        let mut play = crate::scenarios::Play::new("healthy");
        let mut moments = Moments::default();
        let mut bytes = 0;
        for second in 1..=60 {
            let latest = play.feed(second * SECOND).latest();
            moments.keep(&published(second, (*latest.world).clone()));
            bytes = moments.kept.iter().map(|moment| moment.bytes).sum();
            assert!(bytes <= BUDGET, "{bytes}");
        }
        let span = moments.kept.back().unwrap().t() - moments.kept.front().unwrap().t();
        assert!(bytes > BUDGET / 2 && moments.kept.len() > 10 && span >= 30 * SECOND, "{bytes}, {span}");
    }
}
