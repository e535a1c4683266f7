//! The findings as the overview tells them: the worst in full, the same on several ports once, what follows from
//! something below it or, where there is no room, only counted.
//!
//! When the rows are short there go, in this order: what follows from something, the last first; the summaries of all but
//! the worst; what to do about the worst but for its first line; the end of its summary; that first line; the findings at
//! the end of the list.

use std::collections::BTreeMap;

use collector::finding::{Finding, Severity};
use collector::incident::{self, Place};
use collector::inventory::World;

use super::finding_row::rows;
use super::wrap;

/// Rows the worst has at least before what to do about it goes: its first line and two of its summary.
const LEAST_ROWS: usize = 3;

/// A finding of the digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// Which of the world's findings.
    pub(crate) finding: usize,
    /// Its place among them.
    pub(crate) place: Place,
    /// Further findings of the same rule and severity that it stands for.
    pub(crate) others: usize,
    /// Which of them began first.
    pub(crate) first: usize,
    /// Its rows on the screen.
    pub(crate) rows: u16,
}

impl Told {
    /// Gives up to so many rows, but keeps `least`.
    fn shorten(&mut self, by: usize, least: usize) {
        let rows = usize::from(self.rows);
        let left = rows.saturating_sub(by).max(least.min(rows));
        self.rows = u16::try_from(left).unwrap_or(u16::MAX);
    }
}

/// What is shown, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    /// The findings.
    pub(crate) told: Vec<Told>,
    /// What to do about the first one, in lines; empty where there is no room.
    pub(crate) advice: Vec<String>,
}

impl Digest {
    fn rows(&self) -> usize {
        self.told.iter().map(|told| usize::from(told.rows)).sum::<usize>() + self.advice.len()
    }
}

/// The rows the whole digest would take at this width.
pub(crate) fn wanted(world: &World, width: u16) -> u16 {
    u16::try_from(whole(world, width).rows()).unwrap_or(u16::MAX)
}

/// Makes the digest for so many rows.
pub(crate) fn digest(world: &World, width: u16, height: u16) -> Digest {
    let height = usize::from(height);
    let mut digest = whole(world, width);
    let mut over = digest.rows().saturating_sub(height);
    for at in (0..digest.told.len()).rev() {
        if over > 0 && digest.told[at].place == Place::Part {
            over = over.saturating_sub(usize::from(digest.told[at].rows));
            digest.told.remove(at);
        }
    }
    for at in (1..digest.told.len()).rev() {
        let over = digest.rows().saturating_sub(height);
        digest.told[at].shorten(over, 1);
    }
    let over = digest.rows().saturating_sub(height);
    if over > 0 && digest.advice.len() > 1 {
        digest.advice.truncate(digest.advice.len().saturating_sub(over + 1).max(1));
        if let Some(last) = digest.advice.last_mut() {
            last.push_str(" …");
        }
    }
    let over = digest.rows().saturating_sub(height);
    if let Some(first) = digest.told.first_mut() {
        first.shorten(over, LEAST_ROWS);
    }
    if digest.rows() > height {
        digest.advice.clear();
    }
    let rest = digest.told.len().saturating_sub(1);
    if let Some(first) = digest.told.first_mut() {
        // One line of the summary stays whatever else there is.
        let most = height.saturating_sub(rest).max(2).min(height.max(1));
        first.rows = first.rows.min(u16::try_from(most).unwrap_or(u16::MAX));
    }
    digest
}

/// Everything in full.
fn whole(world: &World, width: u16) -> Digest {
    let findings = &world.findings;
    let places = incident::places(findings);
    let root = |at: usize| matches!(places.get(at), Some(Place::Root(_)));
    // How many of a kind there are, and which of them is the first.
    let mut kinds: BTreeMap<(&str, Severity), (usize, usize)> = BTreeMap::new();
    for (at, finding) in findings.iter().enumerate().filter(|(at, _)| root(*at)) {
        kinds.entry((finding.rule, finding.severity)).or_insert((at, 0)).1 += 1;
    }
    let mut told = Vec::new();
    for (at, finding) in findings.iter().enumerate().filter(|(at, _)| root(*at)) {
        let others = match kinds.get(&(finding.rule, finding.severity)) {
            Some((first, n)) if *first == at => n - 1,
            _ => continue,
        };
        let alike = |other: &Finding| (other.rule, other.severity) == (finding.rule, finding.severity);
        let kind = findings.iter().enumerate().filter(|(at, other)| root(*at) && alike(other));
        let first = kind.min_by_key(|(_, other)| other.first_t).map_or(at, |(first, _)| first);
        told.push(Told { finding: at, place: places[at], others, first, rows: rows(world, finding, width) });
        // Of several incidents of a kind the consequences are many and alike.
        if others == 0 {
            let parts = (at + 1..findings.len()).take_while(|part| !root(*part));
            let part = |part: usize| Told { finding: part, place: Place::Part, others: 0, first: part, rows: 1 };
            told.extend(parts.map(part));
        }
    }
    let advice = told.first().map(|first| &findings[first.finding]).filter(|first| !first.advice.is_empty());
    let advice = advice.map_or_else(Vec::new, |first| {
        let text = format!("→ {}", first.advice);
        wrap(&text, usize::from(width.saturating_sub(8)).max(20))
    });
    Digest { told, advice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn what_goes_first_when_rows_are_short_goes_first() {
        let world = sample::faulty();
        let whole = digest(&world, 80, 60);
        assert!(whole.told.iter().any(|told| told.place == Place::Part) && !whole.advice.is_empty());
        let mut before = whole.rows();
        for height in (1..u16::try_from(before).unwrap()).rev() {
            let less = digest(&world, 80, height);
            assert!(less.rows() <= before, "{height}");
            before = less.rows();
            assert_eq!(less.told[0].finding, whole.told[0].finding);
            // The worst keeps a line of its summary as long as there are two.
            assert!(less.told[0].rows >= height.min(2), "{height}: {less:?}");
        }
    }

    #[test]
    fn the_first_line_of_what_to_do_outlives_what_follows_and_the_other_summaries() {
        let mut world = (*sample::faulty()).clone();
        let mut worst = (*world.findings[0]).clone();
        worst.advice = "Check the cable, the module and the switch port at the other end. ".repeat(4);
        worst.summary = "one word after the other until there is no room for it any more. ".repeat(8);
        world.findings[0] = std::sync::Arc::new(worst);
        let whole = digest(&world, 80, 60);
        // However long it is: where there is room nothing is cut.
        assert!(whole.told[0].rows > 7 && whole.advice.len() > 2 && !whole.advice.concat().contains('…'), "{whole:?}");
        let roots = whole.told.iter().filter(|told| told.place != Place::Part).count();
        for height in LEAST_ROWS + roots..whole.rows() {
            let digest = digest(&world, 80, u16::try_from(height).unwrap());
            assert!(digest.advice[0].starts_with("→ Check the cable"), "{height}: {digest:?}");
            assert!(usize::from(digest.told[0].rows) >= LEAST_ROWS && digest.rows() <= height, "{height}: {digest:?}");
            let cut = digest.advice.len() < whole.advice.len();
            assert_eq!(digest.advice.last().unwrap().ends_with('…'), cut, "{height}: {digest:?}");
        }
    }

    #[test]
    fn the_same_on_several_ports_is_told_once() {
        let mut world = (*sample::faulty()).clone();
        let link = world.findings.iter().find(|finding| finding.rule == "link.down").unwrap().clone();
        let parts = digest(&world, 80, 60).told.iter().filter(|told| told.place == Place::Part).count();
        assert_eq!(parts, 1);
        let mut second = (*link).clone();
        second.subject.device = Some("mlx5_9".into());
        second.first_t = link.first_t - 17;
        world.findings.push(std::sync::Arc::new(second));
        let told = digest(&world, 80, 60).told;
        assert_eq!(told.iter().filter(|told| told.place == Place::Part).count(), 0);
        assert_eq!(told[0].others, 1);
        let first = world.findings[told[0].first].first_t;
        assert_eq!(first, link.first_t - 17, "the group is as old as its oldest");
    }
}
