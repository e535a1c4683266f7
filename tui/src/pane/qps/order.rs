//! Which QPs the table shows, in which order. Of a quarter of a million rows somebody sees the first few: only those are
//! sorted until more are wanted.

use std::collections::HashMap;

use collector::inventory::{QpRef, World};

use super::columns::{Of, TEXTS, value};
use crate::filter::{Filter, Value};

/// A key that is sorted last whichever way round: the value is not known.
const LAST: u64 = u64::MAX;

/// The QPs that pass the filter, the first `first` of them in order, the others behind them in any. Keys are numbers (texts
/// are replaced by their rank), so that comparing them costs little.
pub(super) fn rows(world: &World, by: Of, ascending: bool, filter: &Filter<Of>, first: usize) -> Vec<QpRef> {
    let passing = world.qps.iter().filter(|qp| filter.is_empty() || filter.matches(&TEXTS, |of| value(world, qp, of)));
    let mut keyed: Vec<(u64, u32, QpRef)> = Vec::with_capacity(if filter.is_empty() { world.qps.len() } else { 0 });
    let mut texts: HashMap<&str, u64> = HashMap::new();
    for qp in passing {
        let key = match value(world, qp, by) {
            Value::Unknown => LAST,
            // The bits of a number that is not negative are in its order.
            Value::Number(n) => n.max(0.0).to_bits(),
            Value::Text(text) => {
                let next = texts.len() as u64;
                *texts.entry(text).or_insert(next)
            }
        };
        keyed.push((key, qp.qpn, qp.id));
    }
    let ranks = ranks(&texts);
    for (key, _, _) in keyed.iter_mut().filter(|(key, _, _)| *key != LAST) {
        if let Some(rank) = usize::try_from(*key).ok().and_then(|key| ranks.get(key)) {
            *key = *rank;
        }
        if !ascending {
            *key = LAST - 1 - *key;
        }
    }
    let order = |(key, qpn, id): &(u64, u32, QpRef)| (*key, *qpn, *id);
    if first < keyed.len() {
        keyed.select_nth_unstable_by_key(first, order);
        keyed[..first].sort_unstable_by_key(order);
    } else {
        keyed.sort_unstable_by_key(order);
    }
    keyed.into_iter().map(|(_, _, id)| id).collect()
}

/// The alphabetical rank of each text, by the number it was given; empty when no text was seen.
fn ranks(texts: &HashMap<&str, u64>) -> Vec<u64> {
    let mut sorted: Vec<(&str, u64)> = texts.iter().map(|(text, given)| (*text, *given)).collect();
    sorted.sort_unstable();
    let mut ranks = vec![0; sorted.len()];
    for (rank, (_, given)) in (0u64..).zip(sorted) {
        if let Some(slot) = usize::try_from(given).ok().and_then(|given| ranks.get_mut(given)) {
            *slot = rank;
        }
    }
    ranks
}
