//! The budget of the data-path probes: what their hits may cost, and when they have to pause.
//!
//! Two groups of probes, posts and completions, each have an account in ns of CPU. It grows with time by the group's share
//! of the budget and shrinks by hits × cost per hit, whoever made them, and by what long lists and full queues took on top
//! (a *step* is a work request, an element or a completion beyond the first of a hit). A group whose account is overdrawn is detached until
//! it can pay for a window again; so the mean cost keeps to the budget by arithmetic, whatever the load does, and what one
//! window costs too much is paid back before the next. What one group does not use the other may. A group that costs less
//! than its share is never detached.

use crate::observation::Nanos;
use crate::source::verbs::Group;

/// How much of one core the data-path probes may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// No limit.
    Off,
    /// This share of one core, 0–1; with 0 no data-path probe is attached at all.
    Share(f64),
}

impl Default for Budget {
    fn default() -> Self {
        Self::Share(0.01)
    }
}

/// Seconds' worth of its share that a group saves up before it is attached again, and at most keeps.
const SAVED_S: f64 = 5.0;

/// Seconds' worth of its share that a group starts with.
const FIRST_S: f64 = 1.0;

/// The shortest time between two looks, and the longest while there are hits and while there are none, ns. A load that
/// sets in costs what it costs until the next look; that is paid back afterwards.
const SOONEST_NS: f64 = 20e6;
const LATEST_NS: f64 = 100e6;
const IDLE_NS: f64 = 1e9;

/// The groups, in the order of the arrays here.
pub(super) const GROUPS: [Group; 2] = [Group::Posts, Group::Completions];

/// What one hit costs, ns of the process that is traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HitCosts(pub(super) [f64; 2]);

/// What a hit costs, and a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Price {
    pub(super) hit: HitCosts,
    pub(super) step: HitCosts,
}

/// Hits and steps so far, by group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) hits: [u64; 2],
    pub(super) steps: [u64; 2],
}

/// What to do with a group.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Turn {
    /// Attach it again.
    On(Group),
    /// Detach it, for this reason.
    Off(Group, String),
}

/// How a group stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Standing {
    /// Hits so far.
    pub(super) hits: u64,
    /// What one has cost in the mean, ns; before the first, what it will at least.
    pub(super) hit_ns: f64,
    /// It is detached for the budget's sake.
    pub(super) paused: bool,
    /// Length of its last window, and of its period, ns.
    pub(super) window: Option<(Nanos, Nanos)>,
}

/// One group's account.
#[derive(Debug, Clone, Default)]
struct Account {
    /// CPU it may still use, ns.
    credit: f64,
    hits: u64,
    steps: u64,
    /// What it has cost, ns.
    spent: f64,
    /// Cost and hits per ns, as last seen while it was attached; unknown when it has just been.
    burn: Option<(f64, f64)>,
    off: bool,
    /// Since when it has been attached or detached.
    since: Nanos,
    /// How long it was attached before, ns.
    watched: Nanos,
    was_off: bool,
    /// Length of the last window, and the time from its beginning to that of the next, ns.
    window: Option<(Nanos, Nanos)>,
    began: Nanos,
}

/// Watches the cost.
#[derive(Debug)]
pub(super) struct Governor {
    share: Option<f64>,
    price: Price,
    accounts: [Account; 2],
    then: Option<Nanos>,
}

impl Governor {
    pub(super) fn new(budget: Budget, price: Price) -> Self {
        let share = match budget {
            Budget::Off => None,
            Budget::Share(share) => Some(share),
        };
        Self { share, price, accounts: Default::default(), then: None }
    }

    /// One hit costs something else than was thought: probes were attached at other instructions.
    pub(super) fn set_price(&mut self, price: Price) {
        self.price = price;
    }

    /// There is a limit.
    pub(super) fn is_limited(&self) -> bool {
        self.share.is_some()
    }

    /// CPU used by hits since the start, ns: an estimate.
    pub(super) fn spent_ns(&self) -> f64 {
        self.accounts.iter().map(|account| account.spent).sum()
    }

    /// Takes the work so far of both groups; says what has to change.
    pub(super) fn step(&mut self, now: Nanos, work: Work) -> Vec<Turn> {
        let Some(then) = self.then.replace(now) else {
            for (i, account) in self.accounts.iter_mut().enumerate() {
                account.credit = self.share.unwrap_or(0.0) / 2.0 * FIRST_S * 1e9;
                (account.hits, account.steps) = (work.hits[i], work.steps[i]);
                (account.since, account.began) = (now, now);
            }
            return Vec::new();
        };
        let elapsed = now.saturating_sub(then) as f64;
        let mut cost = [0.0; 2];
        for (i, account) in self.accounts.iter_mut().enumerate() {
            let hits = work.hits[i].saturating_sub(account.hits) as f64;
            let steps = work.steps[i].saturating_sub(account.steps) as f64;
            cost[i] = hits * self.price.hit.0[i] + steps * self.price.step.0[i];
            (account.hits, account.steps) = (work.hits[i], work.steps[i]);
            account.spent += cost[i];
            if !account.off && elapsed > 0.0 {
                account.burn = Some((cost[i] / elapsed, hits / elapsed));
            }
        }
        let Some(share) = self.share else { return Vec::new() };
        self.pay(share, elapsed, cost);
        let mut turns = Vec::new();
        for (i, group) in GROUPS.into_iter().enumerate() {
            let full = share / 2.0 * SAVED_S * 1e9;
            let (burn, rate) = self.accounts[i].burn.unwrap_or_default();
            let (per_s, hit_ns) = (rate * 1e9, burn / rate);
            let account = &mut self.accounts[i];
            if !account.off && account.credit < 0.0 {
                let reason = format!(
                    "paused: {per_s:.0} hits/s × {:.0} ns are more than the budget of {} % of one core",
                    hit_ns,
                    (share * 1e4).round() / 1e2
                );
                account.switch(now, true);
                turns.push(Turn::Off(group, reason));
            } else if account.off && account.credit >= full {
                account.switch(now, false);
                turns.push(Turn::On(group));
            }
        }
        turns
    }

    /// Books income and cost. What one group does not use the other may: what is above what it may keep, and what the
    /// other lacks.
    fn pay(&mut self, share: f64, elapsed: f64, cost: [f64; 2]) {
        let full = share / 2.0 * SAVED_S * 1e9;
        for (account, cost) in self.accounts.iter_mut().zip(cost) {
            account.credit += share / 2.0 * elapsed - cost;
        }
        for (from, to) in [(0, 1), (1, 0)] {
            let above = (self.accounts[from].credit - full).max(0.0);
            let lacking = if self.accounts[to].off { 0.0 } else { -self.accounts[to].credit };
            let lent = lacking.clamp(0.0, self.accounts[from].credit.max(0.0)).max(above);
            self.accounts[from].credit -= lent;
            self.accounts[to].credit += lent;
        }
        for account in &mut self.accounts {
            account.credit = account.credit.min(full);
        }
    }

    /// When to look again.
    pub(super) fn next_look(&self, now: Nanos) -> Option<Nanos> {
        let share = self.share? / 2.0;
        let wait = |account: &Account| {
            let wait = match account.burn {
                _ if account.off => {
                    return ((share * SAVED_S * 1e9 - account.credit) / share).clamp(SOONEST_NS, IDLE_NS);
                }
                None => SOONEST_NS,
                Some((0.0, _)) => return IDLE_NS,
                Some((burn, _)) if burn <= share => LATEST_NS,
                Some((burn, _)) => account.credit / (burn - share),
            };
            wait.clamp(SOONEST_NS, LATEST_NS)
        };
        let soonest = self.accounts.iter().map(wait).fold(IDLE_NS, f64::min);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 20 ms and 1 s")]
        Some(now + soonest as Nanos)
    }

    /// For how long a group was attached since the start, ns, if not all the time.
    pub(super) fn watched_ns(&self, group: Group, now: Nanos) -> Option<Nanos> {
        let account = self.account(group);
        let present = if account.off { 0 } else { now.saturating_sub(account.since) };
        account.was_off.then_some(account.watched + present)
    }

    /// Length of the last window of the group that is paused most, and of its period, ns.
    pub(super) fn window(&self) -> Option<(Nanos, Nanos)> {
        let windows = self.accounts.iter().filter_map(|account| account.window);
        windows.min_by(|a, b| (a.0 as f64 / a.1 as f64).total_cmp(&(b.0 as f64 / b.1 as f64)))
    }

    /// How the group stands.
    pub(super) fn standing(&self, group: Group) -> Standing {
        let at = usize::from(group != GROUPS[0]);
        let Account { hits, spent, off, window, .. } = self.accounts[at];
        let hit_ns = if spent > 0.0 { spent / hits as f64 } else { self.price.hit.0[at] };
        Standing { hits, hit_ns, paused: off, window }
    }

    /// The share of one core the hits may cost, if there is a limit.
    pub(super) fn share(&self) -> Option<f64> {
        self.share
    }

    fn account(&self, group: Group) -> &Account {
        &self.accounts[usize::from(group != GROUPS[0])]
    }
}

impl Account {
    fn switch(&mut self, now: Nanos, off: bool) {
        if off {
            self.watched += now.saturating_sub(self.since);
            self.was_off = true;
        } else {
            self.window = Some((self.since.saturating_sub(self.began), now.saturating_sub(self.began)));
            self.began = now;
            self.burn = None;
        }
        (self.off, self.since) = (off, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;
    const PRICE: Price = Price { hit: HitCosts([1000.0, 500.0]), step: HitCosts([300.0, 200.0]) };

    fn hits(hits: [u64; 2]) -> Work {
        Work { hits, steps: [0; 2] }
    }

    /// A load of so many hits per second while attached, for so many seconds.
    struct Run {
        governor: Governor,
        hits: [u64; 2],
        attached: [Nanos; 2],
        turns: Vec<Turn>,
        /// Cost in each second, ns.
        seconds: Vec<f64>,
    }

    fn run(budget: Budget, load: impl Fn(u64) -> [u64; 2], seconds: u64) -> Run {
        let mut run = Run {
            governor: Governor::new(budget, PRICE),
            hits: [0; 2],
            attached: [0; 2],
            turns: Vec::new(),
            seconds: Vec::new(),
        };
        let (mut on, mut now, mut before) = ([true; 2], 0, 0.0);
        run.governor.step(0, Work::default());
        while now < seconds * SECOND {
            let next = run.governor.next_look(now).unwrap_or(now + SECOND);
            let per_s = load(now / SECOND);
            for i in 0..2 {
                if on[i] {
                    run.hits[i] += per_s[i] * (next - now) / SECOND;
                    run.attached[i] += next - now;
                }
            }
            if next / SECOND != now / SECOND {
                run.seconds.push(run.governor.spent_ns() - before);
                before = run.governor.spent_ns();
            }
            now = next;
            for turn in run.governor.step(now, hits(run.hits)) {
                match &turn {
                    Turn::On(group) => on[usize::from(*group == Group::Completions)] = true,
                    Turn::Off(group, _) => on[usize::from(*group == Group::Completions)] = false,
                }
                run.turns.push(turn);
            }
        }
        run
    }

    fn mean(run: &Run) -> f64 {
        run.governor.spent_ns() / run.governor.then.expect("it ran") as f64
    }

    #[test]
    fn probes_inside_their_budget_are_never_paused() {
        // 4,000 × 1 µs + 11,000 × 0.5 µs = 0.95 % of a core.
        let run = run(Budget::Share(0.01), |_| [4_000, 11_000], 600);
        assert_eq!(run.turns, []);
        assert_eq!(run.governor.watched_ns(Group::Posts, 600 * SECOND), None);
        assert_eq!(run.governor.window(), None);
    }

    #[test]
    fn whatever_the_load_the_mean_cost_keeps_to_the_budget() {
        for (posts, polls) in [(0, 2_000_000), (900_000, 0), (500_000, 1_900_000), (30_000, 30_000)] {
            let run = run(Budget::Share(0.01), |_| [posts, polls], 600);
            let mean = mean(&run);
            assert!(mean < 0.0105, "{posts} {polls}: {mean}");
            assert!(mean > 0.008, "{posts} {polls}: {mean} leaves the budget unused");
        }
    }

    #[test]
    fn no_ten_seconds_cost_more_than_one_window_above_the_budget() {
        // Little for a minute, then everything at once: 180 % of a core while both groups are attached.
        let run = run(Budget::Share(0.01), |s| if s < 60 { [100, 100] } else { [800_000, 2_000_000] }, 120);
        let ten = run.seconds.windows(10).map(|ten| ten.iter().sum::<f64>()).fold(0.0, f64::max);
        // Both accounts are full, so 5 s of the share beyond 10 s of it, and what a look comes too late.
        assert!(ten <= 0.01 * 15.0 * 1e9 + 1.8 * (LATEST_NS + SOONEST_NS), "{ten}");
    }

    #[test]
    fn a_group_that_costs_little_lends_its_share_and_is_not_paused_for_the_other() {
        let run = run(Budget::Share(0.01), |_| [1_000, 2_000_000], 600);
        assert!(run.turns.iter().all(|turn| !matches!(turn, Turn::Off(Group::Posts, _))));
        let polls = run.hits[1] as f64 * 500.0 / (600.0 * 1e9);
        assert!(polls > 0.008, "{polls}: what posts leave is used");
    }

    #[test]
    fn the_time_watched_is_the_time_attached() {
        let run = run(Budget::Share(0.01), |_| [500_000, 1_000_000], 300);
        let now = run.governor.then.expect("it ran");
        for (i, group) in GROUPS.into_iter().enumerate() {
            assert_eq!(run.governor.watched_ns(group, now), Some(run.attached[i]));
        }
        let (window, period) = run.governor.window().expect("it was paused");
        assert!(window < period && period > SECOND, "{window} of {period}");
    }

    #[test]
    fn a_pause_says_its_numbers() {
        let run = run(Budget::Share(0.01), |_| [1_000_000, 0], 1);
        let Some(Turn::Off(Group::Posts, reason)) = run.turns.first() else { panic!("{:?}", run.turns) };
        assert_eq!(reason, "paused: 1000000 hits/s × 1000 ns are more than the budget of 1 % of one core");
    }

    #[test]
    fn long_lists_and_full_queues_are_paid_for() {
        let mut governor = Governor::new(Budget::Share(0.01), PRICE);
        governor.step(0, Work::default());
        // 100 polls that find 256 completions each: 1.3 % of a core by their number alone would be 0.005 %.
        let work = Work { hits: [0, 200], steps: [0, 25_500] };
        governor.step(SECOND, work);
        let spent = governor.spent_ns() - (200.0 * 500.0 + 25_500.0 * 200.0);
        assert!(spent.abs() < 1.0, "{spent}");
        let standing = governor.standing(Group::Completions);
        assert!(standing.hits == 200 && (standing.hit_ns - governor.spent_ns() / 200.0).abs() < 1.0, "{standing:?}");
        let turns = governor.step(2 * SECOND, Work { hits: [0, 400], steps: [0, 255_000] });
        let Some(Turn::Off(Group::Completions, reason)) = turns.first() else { panic!("{turns:?}") };
        assert_eq!(reason, "paused: 200 hits/s × 230000 ns are more than the budget of 1 % of one core");
    }

    #[test]
    fn without_a_limit_nothing_is_paused() {
        let mut governor = Governor::new(Budget::Off, PRICE);
        assert!((0..10).all(|second| governor.step(second * SECOND, hits([second * 10_000_000; 2])).is_empty()));
        assert_eq!(governor.next_look(SECOND), None);
        assert_eq!(governor.watched_ns(Group::Posts, SECOND), None);
    }
}
