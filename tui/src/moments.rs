//! Worlds of the last minutes, whole, so that a frozen screen can be led back through them: every pane shows what it would
//! have shown then.
//!
//! A world shares with the next one what did not change, but what changes all the time is there once for each. So of older
//! moments fewer are kept, as many as [`MOST`] and [`BUDGET`] allow: with hundreds of thousands of busy QPs that is a few. Nothing is
//! kept while the screen is frozen, so that what one looks back at stays.

use std::collections::VecDeque;
use std::sync::Arc;

use collector::feed::Published;
use collector::observation::Nanos;

/// The memory kept worlds may take together, bytes, by [`collector::inventory::World::apart_from`].
const BUDGET: usize = 64 << 20;
/// Moments are at least so far apart, ns.
const APART_NS: Nanos = 1_000_000_000;
/// Moments that are kept at most.
const MOST: usize = 64;
/// None is kept for longer, ns.
const LONGEST_NS: Nanos = 600_000_000_000;

/// The kept worlds, oldest first.
#[derive(Default)]
pub(crate) struct Moments {
    kept: VecDeque<Moment>,
    /// No longer kept, not yet asked for.
    dropped: Vec<Arc<Published>>,
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
        let now = published.world.now;
        while self.kept.front().is_some_and(|first| first.t().saturating_add(LONGEST_NS) < now) {
            let first = self.kept.pop_front();
            self.dropped.extend(first.map(|moment| moment.published));
        }
        while self.kept.len() > MOST || self.kept.iter().map(|moment| moment.bytes).sum::<usize>() > BUDGET {
            self.drop_one(now);
        }
    }

    /// Those that are no longer kept. To free them is the caller's: it may take long.
    pub(crate) fn dropped(&mut self) -> Vec<Arc<Published>> {
        std::mem::take(&mut self.dropped)
    }

    /// The moment before or after one.
    pub(crate) fn beside(&self, shown: &Published, forward: bool) -> Option<Arc<Published>> {
        let at = self.kept.iter().position(|moment| moment.published.generation == shown.generation)?;
        let beside = if forward { at + 1 } else { at.checked_sub(1)? };
        self.kept.get(beside).map(|moment| moment.published.clone())
    }

    /// Drops the moment that is missed least: of which the two beside it are closest together for its age. The first and the
    /// last stay, unless there are no others.
    fn drop_one(&mut self, now: Nanos) {
        let gap = |at: usize| {
            let (before, own, after) = (self.kept[at - 1].t(), self.kept[at].t(), self.kept[at + 1].t());
            after.saturating_sub(before) as f64 / now.saturating_sub(own).max(1) as f64
        };
        let least = (1..self.kept.len().saturating_sub(1)).min_by(|a, b| gap(*a).total_cmp(&gap(*b)));
        let missed_least = self.kept.remove(least.unwrap_or(0));
        self.dropped.extend(missed_least.map(|moment| moment.published));
        if let Some(at) = least {
            self.weigh(at - 1);
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

    impl std::fmt::Display for Moments {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let ends = self.kept.front().zip(self.kept.back());
            let span = ends.map_or(0, |(first, last)| (last.t() - first.t()) / SECOND);
            let bytes: usize = self.kept.iter().map(|moment| moment.bytes).sum();
            write!(f, "{} moments over {span} s, {} MiB by estimate", self.kept.len(), bytes >> 20)
        }
    }

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
        let moments = run(2_000);
        let times = times(&moments);
        assert_eq!(times.len(), MOST);
        assert_eq!(times[MOST - 5..], [19_951, 19_961, 19_971, 19_981, 19_991]);
        for pair in times.windows(2) {
            let (apart, age) = (pair[1] - pair[0], 20_000 - pair[0]);
            assert!(apart <= 20.max(age / 4), "{pair:?} of {times:?}");
        }
        assert!((14_000..15_500).contains(&times[0]), "{times:?}");
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
        let (first, n) = (moments.kept.front().unwrap().t(), moments.kept.len());
        assert!(bytes > BUDGET / 2 && (10..MOST).contains(&n), "{bytes}, {n}");
        assert!(first <= 2 * SECOND, "those that are kept reach as far back as they would without the bound: {first}");
    }
}
