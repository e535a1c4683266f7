//! Which rules cannot be judged on this node or not yet, or only in part, and why. Asking all of them walks much of the world, and the
//! answer changes slowly: it is kept for a while, and each second a part of the rules is asked anew, so that no frame waits for
//! all of them.

use std::sync::Arc;

use collector::finding::Book;
use collector::inventory::World;
use collector::observation::Nanos;
use collector::rule::{self, View};

/// How long an answer is kept, ns.
const KEPT_NS: Nanos = 5_000_000_000;
/// In so many parts the rules are asked. Those of one family stand side by side and look at the same things, so a part has
/// every so many-th of them.
const PARTS: usize = 5;

/// A rule that cannot be judged anywhere, or only in part (`true`), and why.
pub(crate) type NotJudged = (&'static str, String, bool);

/// How many of them cannot be judged anywhere.
pub(crate) fn nowhere(unjudged: &[NotJudged]) -> usize {
    unjudged.iter().filter(|(_, _, in_part)| !in_part).count()
}

/// The last answers.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    /// When a part was asked last, and which comes next.
    t: Nanos,
    part: usize,
    settings: Arc<rule::Settings>,
    /// What each rule answered: that it cannot be judged, that it is in part.
    answers: Vec<[Option<NotJudged>; 2]>,
    told: Arc<Vec<NotJudged>>,
}

impl Judged {
    /// The rules that cannot be judged, and those that are in part.
    pub(crate) fn missing(&mut self, world: &World) -> Arc<Vec<NotJudged>> {
        let good = |last: &Last| {
            (last.t..last.t.saturating_add(KEPT_NS)).contains(&world.now)
                && Arc::ptr_eq(&last.settings, &world.settings)
        };
        match self.last.as_mut().filter(|last| good(last)) {
            None => {
                let answers: Vec<_> = rule::all().iter().map(|rule| ask(*rule, world)).collect();
                let told = told(&answers);
                let settings = world.settings.clone();
                self.last = Some(Last { t: world.now, part: 0, settings, answers, told: told.clone() });
                told
            }
            Some(last) => {
                if world.now >= last.t + KEPT_NS / PARTS as u64 {
                    let rules = rule::all().iter().zip(&mut last.answers);
                    for (rule, answer) in rules.skip(last.part).step_by(PARTS) {
                        *answer = ask(*rule, world);
                    }
                    (last.t, last.part, last.told) = (world.now, (last.part + 1) % PARTS, told(&last.answers));
                }
                last.told.clone()
            }
        }
    }
}

fn ask(rule: &dyn rule::Rule, world: &World) -> [Option<NotJudged>; 2] {
    let book = Book::default();
    let view = View { world, now: world.now, settings: &world.settings, book: &book };
    if let Some(why) = rule::not_judged(rule, &view) {
        // What it would lack besides is not the question.
        return [Some((rule.id(), why, false)), None];
    }
    let in_part = rule::judged_in_part(rule, &view).map(|rule::Part { judged, of, reason, .. }| {
        let how = if judged == of { "in part".to_owned() } else { format!("on {judged} of {of}") };
        (rule.id(), format!("judged {how}: {reason}"), true)
    });
    [None, in_part]
}

/// Those that cannot be judged first.
fn told(answers: &[[Option<NotJudged>; 2]]) -> Arc<Vec<NotJudged>> {
    let of = |which: usize| answers.iter().filter_map(move |answer| answer[which].clone());
    Arc::new(of(0).chain(of(1)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use collector::inventory::QpTable;
    use collector::timeline::arithmetic::Reading;

    #[test]
    fn an_answer_is_kept_for_a_while_and_never_for_an_earlier_time() {
        let mut judged = Judged::default();
        let mut world = (*sample::healthy()).clone();
        let first = judged.missing(&world);
        world.now += KEPT_NS / PARTS as u64 - 1;
        assert!(Arc::ptr_eq(&judged.missing(&world), &first));
        world.now += 1;
        let second = judged.missing(&world);
        assert!(!Arc::ptr_eq(&second, &first));
        world.now -= 1;
        assert!(!Arc::ptr_eq(&judged.missing(&world), &second));
    }

    #[test]
    fn every_rule_is_asked_anew_while_an_answer_is_kept() {
        let mut judged = Judged::default();
        let mut world = (*sample::healthy()).clone();
        let first = judged.missing(&world);
        // What the rules look at has changed.
        world.probes = None;
        world.qps = QpTable::default();
        for _ in 0..PARTS {
            world.now += KEPT_NS / PARTS as u64;
            judged.missing(&world);
        }
        // Some tell for how long they have been watching.
        let rules = |told: &[NotJudged]| told.iter().map(|(rule, ..)| *rule).collect::<Vec<_>>();
        assert_eq!(rules(&judged.missing(&world)), rules(&Judged::default().missing(&world)));
        assert_ne!(rules(&judged.missing(&world)), rules(&first));
    }

    #[test]
    fn a_rule_is_told_once() {
        let mut world = (*sample::healthy()).clone();
        // One port of all counts marks: it takes more, and the others could not be judged either.
        for port in &mut world.ports[1..] {
            let sets = Arc::make_mut(port).sets.iter_mut();
            for series in sets.flat_map(|set| &mut set.series).filter(|series| series.name.contains("ecn")) {
                series.reading = Reading::Unavailable("no such counter".into());
            }
        }
        let missing = Judged::default().missing(&world);
        let of_rails: Vec<_> = missing.iter().filter(|(rule, ..)| *rule == "ecn.rail_asymmetry").collect();
        assert!(matches!(of_rails[..], [(_, _, false)]), "{of_rails:?}");
        let mut rules: Vec<&str> = missing.iter().map(|(rule, ..)| *rule).collect();
        rules.sort_unstable();
        assert!(rules.windows(2).all(|pair| pair[0] != pair[1]), "{rules:?}");
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
