//! Which rules cannot be judged on this node or not yet, or only in part, and why. Asking all of them walks much of the world, and the
//! answer changes slowly: it is kept for a while.

use std::sync::Arc;

use collector::finding::Book;
use collector::inventory::World;
use collector::observation::Nanos;
use collector::rule::{self, View};

/// How long an answer is kept, ns.
const KEPT_NS: Nanos = 5_000_000_000;

/// A rule that cannot be judged anywhere, or only in part (`true`), and why.
pub(crate) type NotJudged = (&'static str, String, bool);

/// How many of them cannot be judged anywhere.
pub(crate) fn nowhere(unjudged: &[NotJudged]) -> usize {
    unjudged.iter().filter(|(_, _, in_part)| !in_part).count()
}

/// The last answer.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    last: Option<(Nanos, Arc<Vec<NotJudged>>)>,
}

impl Judged {
    /// The rules that cannot be judged, and those that are in part.
    pub(crate) fn missing(&mut self, world: &World) -> Arc<Vec<NotJudged>> {
        match &self.last {
            Some((t, rules)) if (*t..t.saturating_add(KEPT_NS)).contains(&world.now) => rules.clone(),
            _ => {
                let book = Book::default();
                let view = View { world, now: world.now, settings: &world.settings, book: &book };
                let missing = |rule: &&dyn rule::Rule| Some((rule.id(), rule::not_judged(*rule, &view)?, false));
                let in_part = |rule: &&dyn rule::Rule| {
                    let rule::Part { judged, of, reason, .. } = rule::judged_in_part(*rule, &view)?;
                    let how = if judged == of { "in part".to_owned() } else { format!("on {judged} of {of}") };
                    Some((rule.id(), format!("judged {how}: {reason}"), true))
                };
                let all = || rule::all().iter();
                let rules = Arc::new(all().filter_map(missing).chain(all().filter_map(in_part)).collect::<Vec<_>>());
                self.last = Some((world.now, rules.clone()));
                rules
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn an_answer_is_kept_for_a_while_and_never_for_an_earlier_time() {
        let mut judged = Judged::default();
        let mut world = (*sample::healthy()).clone();
        let first = judged.missing(&world);
        world.now += KEPT_NS - 1;
        assert!(Arc::ptr_eq(&judged.missing(&world), &first));
        world.now += 1;
        let second = judged.missing(&world);
        assert!(!Arc::ptr_eq(&second, &first));
        world.now -= 1;
        assert!(!Arc::ptr_eq(&judged.missing(&world), &second));
    }

    #[test]
    fn a_rule_that_is_switched_off_is_not_judged_for_that_reason() {
        let mut world = (*sample::healthy()).clone();
        let why = |world: &World| {
            let missing = Judged::default().missing(world);
            missing.iter().find(|(rule, _, _)| *rule == "link.down").map(|(_, why, _)| why.clone())
        };
        assert_eq!(why(&world), None);
        let disabled = vec!["link.down".to_owned()];
        world.settings = Arc::new(rule::Settings { disabled, ..rule::Settings::default() });
        assert_eq!(why(&world).as_deref(), Some("switched off by the configuration"));
    }
}
