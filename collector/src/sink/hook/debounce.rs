//! How often a hook is told of one rule, subject and state: at once, and then not again for a while. What comes in that
//! while is not lost: the newest of it is told when the while is over, unless it has been overtaken by then.

use std::collections::BTreeMap;

use super::Job;
use crate::finding::{FindingState, SubjectKey};
use crate::observation::Nanos;

/// Subjects that are remembered at once; beyond it they are not debounced.
const MAX_KEYS: usize = 16_384;

type Key = (&'static str, SubjectKey, u8);

/// The memory of one hook.
#[derive(Debug, Default)]
pub(super) struct Debounce {
    every_ns: Nanos,
    keys: BTreeMap<Key, Quiet>,
}

#[derive(Debug)]
struct Quiet {
    until: Nanos,
    held: Option<Job>,
    suppressed: u64,
}

fn key(job: &Job, state: FindingState) -> Key {
    (job.finding.rule, job.finding.key.clone(), state as u8)
}

impl Debounce {
    pub(super) fn new(every_ns: Nanos) -> Self {
        Self { every_ns, keys: BTreeMap::new() }
    }

    /// A finding the hook wants: it comes back when it is to be told at once. Adds what is lost to `suppressed`.
    pub(super) fn offer(&mut self, now: Nanos, job: Job, suppressed: &mut u64) -> Option<Job> {
        self.overtake(&job, suppressed);
        if self.every_ns == 0 {
            return Some(job);
        }
        let key = key(&job, job.finding.state);
        if let Some(quiet) = self.keys.get_mut(&key).filter(|quiet| quiet.until > now) {
            let before = quiet.held.replace(job);
            if before.is_some() {
                *suppressed += 1;
                quiet.suppressed += 1;
            }
            return None;
        }
        let before = self.keys.remove(&key).map_or(0, |quiet| quiet.suppressed);
        if self.keys.len() < MAX_KEYS {
            self.keys.insert(key, Quiet { until: now.saturating_add(self.every_ns), held: None, suppressed: 0 });
        }
        Some(Job { suppressed: before, ..job })
    }

    /// A finding has changed: what is held of it in another state is no longer true.
    pub(super) fn overtake(&mut self, job: &Job, suppressed: &mut u64) {
        let now = job.finding.state;
        for state in [FindingState::Raised, FindingState::Updated, FindingState::Cleared] {
            // Raised, then updated: both still hold.
            let over = (now == FindingState::Cleared) != (state == FindingState::Cleared);
            if over
                && let Some(quiet) = self.keys.get_mut(&key(job, state))
                && quiet.held.take().is_some()
            {
                *suppressed += 1;
                quiet.suppressed += 1;
            }
        }
    }

    /// What is to be told now that its while is over.
    pub(super) fn due(&mut self, now: Nanos) -> Vec<Job> {
        let mut jobs = Vec::new();
        let every_ns = self.every_ns;
        self.keys.retain(|_, quiet| {
            if quiet.until > now {
                return true;
            }
            let Some(held) = quiet.held.take() else { return false };
            jobs.push(Job { suppressed: std::mem::take(&mut quiet.suppressed), ..held });
            quiet.until = now.saturating_add(every_ns);
            true
        });
        jobs
    }

    /// Forgets what is held; how many those were.
    pub(super) fn forget(&mut self) -> usize {
        std::mem::take(&mut self.keys).into_values().filter(|quiet| quiet.held.is_some()).count()
    }

    /// When the next while is over.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.keys.values().filter(|quiet| quiet.held.is_some()).map(|quiet| quiet.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::job;
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn told(debounce: &mut Debounce, now: Nanos, state: FindingState, summary: &str) -> Option<String> {
        let offered = debounce.offer(now, job("link.down", 1, state, summary), &mut 0);
        offered.map(|job| job.finding.summary.clone())
    }

    fn due(debounce: &mut Debounce, now: Nanos) -> Vec<String> {
        debounce.due(now).iter().map(|job| format!("{} -{}", job.finding.summary, job.suppressed)).collect()
    }

    #[test]
    fn the_first_is_told_at_once_and_the_newest_of_the_rest_when_the_while_is_over() {
        let mut debounce = Debounce::new(30 * S);
        assert_eq!(told(&mut debounce, 0, FindingState::Updated, "a").as_deref(), Some("a"));
        assert_eq!(told(&mut debounce, S, FindingState::Updated, "b"), None);
        assert_eq!(told(&mut debounce, 2 * S, FindingState::Updated, "c"), None);
        assert_eq!(debounce.next(), Some(30 * S));
        assert_eq!(due(&mut debounce, 29 * S), Vec::<String>::new());
        assert_eq!(due(&mut debounce, 30 * S), ["c -1"]);
        assert_eq!(told(&mut debounce, 59 * S, FindingState::Updated, "d"), None, "a new while has begun");
        assert_eq!(due(&mut debounce, 60 * S), ["d -0"]);
        assert_eq!(due(&mut debounce, 90 * S), Vec::<String>::new());
        assert_eq!(told(&mut debounce, 91 * S, FindingState::Updated, "e").as_deref(), Some("e"));
    }

    #[test]
    fn other_subjects_and_states_are_told_at_once() {
        let mut debounce = Debounce::new(30 * S);
        assert!(told(&mut debounce, 0, FindingState::Raised, "a").is_some());
        assert!(told(&mut debounce, 1, FindingState::Cleared, "b").is_some());
        assert!(debounce.offer(2, job("link.down", 2, FindingState::Raised, "c"), &mut 0).is_some());
        assert!(debounce.offer(3, job("link.flap", 1, FindingState::Raised, "d"), &mut 0).is_some());
    }

    #[test]
    fn what_is_over_when_its_turn_comes_is_not_told() {
        let mut debounce = Debounce::new(30 * S);
        let mut suppressed = 0;
        assert!(told(&mut debounce, 0, FindingState::Raised, "a").is_some());
        debounce.overtake(&job("link.down", 1, FindingState::Cleared, "b"), &mut suppressed);
        assert_eq!(told(&mut debounce, 2, FindingState::Raised, "c"), None);
        debounce.overtake(&job("link.down", 1, FindingState::Cleared, "d"), &mut suppressed);
        assert_eq!((due(&mut debounce, 30 * S), suppressed), (Vec::new(), 1));
        assert_eq!(told(&mut debounce, 31 * S, FindingState::Raised, "e").as_deref(), Some("e"));
    }

    #[test]
    fn without_a_while_everything_is_told() {
        let mut debounce = Debounce::new(0);
        for summary in ["a", "b", "c"] {
            assert_eq!(told(&mut debounce, 0, FindingState::Updated, summary).as_deref(), Some(summary));
        }
    }
}
