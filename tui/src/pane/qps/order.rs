//! Which QPs the table shows, in which order. Of a quarter of a million rows somebody sees a few: only those about them are
//! put into order.

use std::collections::HashMap;
use std::ops::Range;

use collector::inventory::{QpRecord, QpRef, World};
use collector::observation::QpState;

use super::columns::{Of, TEXTS, value};
use crate::filter::{Filter, Value};

/// Rows in order before and after those somebody sees: more than a few turns of the wheel.
const MARGIN: usize = 1_000;
/// A key that is sorted last whichever way round: the value is not known.
const LAST: u64 = u64::MAX;

/// What a row is sorted by, then its QPN, then which it is: no two are equal.
type Key = (u64, u32, QpRef);

/// It died, or its send queue did.
fn dead(qp: &QpRecord) -> bool {
    matches!(qp.state, QpState::Err | QpState::Sqe)
}

/// A number for a state, the more it needs a look the larger; `None` when it is not known.
fn standing(qp: &QpRecord) -> Option<u64> {
    Some(match qp.state {
        QpState::Unknown => return None,
        QpState::Reset => 0,
        QpState::Init => 1,
        QpState::Rtr => 2,
        QpState::Rts => 3,
        QpState::Sqd => 4,
        QpState::Sqe => 5,
        QpState::Err => 6,
    })
}

/// The rows: those in [`Order::sorted`] are in order, those before them come before, those behind them behind.
#[derive(Default)]
pub(super) struct Order {
    keys: Vec<Key>,
    /// How many of them are in the state ERR, and in SQE.
    in_error: (usize, usize),
    sorted: Range<usize>,
}

impl Order {
    /// Finds the QPs that pass the filter; none of them is in order yet. Keys are numbers (texts are replaced by their rank),
    /// so that comparing them costs little.
    pub(super) fn find<'w>(&mut self, world: &'w World, by: Of, ascending: bool, filter: &Filter<Of>) {
        self.keys.clear();
        self.in_error = (0, 0);
        self.sorted = 0..0;
        let mut texts = Texts::default();
        let mut take = |qp: &'w QpRecord| {
            self.in_error.0 += usize::from(qp.state == QpState::Err);
            self.in_error.1 += usize::from(qp.state == QpState::Sqe);
            let key = match value(world, qp, by) {
                // By what a state means, not by its letters.
                _ if by == Of::State => match standing(qp) {
                    None => LAST,
                    Some(n) if ascending => n,
                    Some(n) => LAST - 1 - n,
                },
                // What died sends nothing: it would be where nobody looks.
                _ if by == Of::Rate && !ascending && dead(qp) => 0,
                Value::Unknown => LAST,
                // The bits of a number that is not negative are in its order.
                Value::Number(n) if ascending => n.max(0.0).to_bits(),
                Value::Number(n) => LAST - 1 - n.max(0.0).to_bits(),
                Value::Text(text) => texts.number(text),
            };
            self.keys.push((key, qp.qpn, qp.id));
        };
        if filter.is_empty() {
            world.qps.iter().for_each(&mut take);
        } else {
            let mut sieve = filter.sieve(&TEXTS);
            world.qps.iter().filter(|qp| sieve.passes(|of| value(world, qp, of))).for_each(&mut take);
        }
        let ranks = texts.ranks();
        if !ranks.is_empty() {
            // A column of texts has no numbers.
            for (key, _, _) in self.keys.iter_mut().filter(|(key, _, _)| *key != LAST) {
                let rank = usize::try_from(*key).ok().and_then(|key| ranks.get(key)).copied().unwrap_or(0);
                *key = if ascending { rank } else { LAST - 1 - rank };
            }
        }
    }

    /// Puts these rows and some about them into order, unless they are.
    pub(super) fn sort(&mut self, rows: Range<usize>) {
        let (from, to) = (rows.start.min(self.len()), rows.end.min(self.len()));
        if from >= self.sorted.start && to <= self.sorted.end {
            return;
        }
        let (from, to) = (from.saturating_sub(MARGIN), to.saturating_add(MARGIN).min(self.len()));
        let mut rows = &mut self.keys[..];
        if from > 0 {
            rows.select_nth_unstable(from);
            rows = &mut rows[from..];
        }
        let wanted = to - from;
        if wanted < rows.len() {
            rows.select_nth_unstable(wanted);
            rows = &mut rows[..wanted];
        }
        rows.sort_unstable();
        self.sorted = from..to;
    }

    /// In which row a QP is, whether that row is in order or not; `None` when it is none of them.
    pub(super) fn place_of(&self, id: QpRef) -> Option<usize> {
        let at = self.keys.iter().position(|(_, _, row)| *row == id)?;
        if self.sorted.contains(&at) {
            return Some(at);
        }
        let key = self.keys[at];
        Some(self.keys.iter().filter(|other| **other < key).count())
    }

    /// The rows, in the order they are in.
    pub(super) fn ids(&self) -> impl Iterator<Item = QpRef> {
        self.keys.iter().map(|(_, _, id)| *id)
    }

    /// The QP of a row.
    pub(super) fn get(&self, row: usize) -> Option<QpRef> {
        self.keys.get(row).map(|(_, _, id)| *id)
    }

    /// How many of the rows are in the state ERR, and in SQE.
    pub(super) fn in_error(&self) -> (usize, usize) {
        self.in_error
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

/// The texts of a column, each with a number in the order they were met.
#[derive(Default)]
struct Texts<'w> {
    numbers: HashMap<&'w str, u64>,
    /// Rows that follow one another often have the same.
    last: Option<(&'w str, u64)>,
}

impl<'w> Texts<'w> {
    fn number(&mut self, text: &'w str) -> u64 {
        if let Some((_, number)) = self.last.filter(|(last, _)| std::ptr::eq(*last, text)) {
            return number;
        }
        let next = self.numbers.len() as u64;
        let number = *self.numbers.entry(text).or_insert(next);
        self.last = Some((text, number));
        number
    }

    /// The alphabetical rank of each, by its number; empty when none was met.
    fn ranks(&self) -> Vec<u64> {
        let mut sorted: Vec<(&str, u64)> = self.numbers.iter().map(|(text, number)| (*text, *number)).collect();
        sorted.sort_unstable();
        let mut ranks = vec![0; sorted.len()];
        for (rank, (_, number)) in (0u64..).zip(sorted) {
            if let Some(slot) = usize::try_from(number).ok().and_then(|number| ranks.get_mut(number)) {
                *slot = rank;
            }
        }
        ranks
    }
}
