//! What the difference between two settings is, which part of it carries it, and what it costs: in sentences.

use super::text::{bytes, percent};
use super::{Knob, KnobRow, Question, ResultRow, Setting};

/// Smaller differences of the utilisation are none, whatever the scatter.
const SAME: f64 = 0.01;
/// A part that alone gives this share of the gain carries it.
const CARRIES: f64 = 0.6;

/// The advice.
pub(super) fn advice(question: &Question, knobs: &[Knob], results: &[ResultRow], alone: &[KnobRow]) -> String {
    let [given, against] = [&results[0], &results[1]];
    let gain = against.utilisation - given.utilisation;
    let noise = noise(given).max(noise(against));
    let mut sentences = vec![if gain.abs() <= noise {
        format!(
            "Both settings carry the same: utilisation {:.3} and {:.3}, which is within the scatter between seeds.",
            given.utilisation, against.utilisation
        )
    } else {
        format!(
            "The second setting carries {:.0} % {} than the first: utilisation {:.3} → {:.3}.",
            gain.abs() / given.utilisation.max(1e-9) * 100.0,
            if gain > 0.0 { "more" } else { "less" },
            given.utilisation,
            against.utilisation
        )
    }];
    if gain.abs() > noise {
        sentences.extend(carrier(knobs, given, gain, noise, alone));
    }
    sentences.extend(price(given, against));
    sentences.extend(notes(question, results));
    sentences.join(" ")
}

/// What two runs of the same setting may differ by: two standard errors of the mean.
fn noise(result: &ResultRow) -> f64 {
    result.utilisation_scatter.map_or(SAME, |scatter| (2.0 * scatter).max(SAME))
}

/// Which difference carries the gain.
fn carrier(knobs: &[Knob], given: &ResultRow, gain: f64, noise: f64, alone: &[KnobRow]) -> Option<String> {
    if let [knob] = knobs {
        return Some(format!("Only {} differs.", name(knob.key())));
    }
    let share = |row: &KnobRow| (row.result.utilisation - given.utilisation) / gain;
    let best = alone.iter().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let of = |row: &KnobRow| format!("{} alone ({}) gives {:.3}", name(row.changed), row.to, row.result.utilisation);
    let others: Vec<String> = alone.iter().filter(|row| row.changed != best.changed).map(of).collect();
    // What another part does alone is nothing if it is within the scatter.
    let idle =
        |row: &KnobRow| (row.result.utilisation - given.utilisation).abs() <= noise.max(gain.abs() * (1.0 - CARRIES));
    let only = alone.iter().filter(|row| row.changed != best.changed).all(idle);
    Some(if share(best) >= CARRIES && only {
        format!("{} carries it: {}; {}.", name(best.changed), of(best), others.join(", "))
    } else if share(best) >= CARRIES {
        format!("More than one part does it: {}, {}.", of(best), others.join(", "))
    } else {
        format!("The parts do it only together: {}, {}.", of(best), others.join(", "))
    })
}

/// What changes beside the utilisation.
fn price(given: &ResultRow, against: &ResultRow) -> Option<String> {
    let mut parts = Vec::new();
    if let Some((before, after)) = given.queue_p99_bytes.zip(against.queue_p99_bytes) {
        let ratio = after as f64 / before.max(1) as f64;
        if !(0.8..=1.25).contains(&ratio) {
            parts.push(format!("p99 queue {} → {} ({ratio:.1} ×)", bytes(before), bytes(after)));
        }
    }
    let moved = |before: Option<f64>, after: Option<f64>, by: f64| {
        before.zip(after).filter(|(before, after)| (before - after).abs() > by)
    };
    if let Some((before, after)) = moved(given.missed_share, against.missed_share, 0.05) {
        let (before, after) = (percent(Some(before)), percent(Some(after)));
        parts.push(format!("congested intervals without a mark {before} → {after} (L = {})", given.l));
    }
    if let Some((before, after)) = moved(given.premature_share, against.premature_share, 0.05) {
        let (before, after) = (percent(Some(before)), percent(Some(after)));
        parts.push(format!("premature marks {before} → {after} (L = {})", given.l));
    }
    if let Some((before, after)) = moved(given.pause_share, against.pause_share, 0.005) {
        parts.push(format!("paused {} → {} of the time", percent(Some(before)), percent(Some(after))));
    }
    (!parts.is_empty()).then(|| format!("With it: {}.", parts.join(", ")))
}

/// What is odd about the settings themselves.
fn notes(question: &Question, results: &[ResultRow]) -> Vec<String> {
    let mut notes = Vec::new();
    let params = &question.params;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes in flight")]
    let bdp = (params.rate_gbps / 8.0 * params.rtt_ns as f64) as u64;
    let settings = [question.given(), question.against];
    let which = |odd: &dyn Fn(&Setting, &ResultRow) -> bool| match [0, 1].map(|at| odd(&settings[at], &results[at])) {
        [true, true] => Some("both settings"),
        [true, false] => Some("the first setting"),
        [false, true] => Some("the second setting"),
        [false, false] => None,
    };
    if let Some(which) = which(&|setting, _| setting.red.kmax_bytes < 2 * bdp) {
        notes.push(format!(
            "In {which} Kmax is below two bandwidth-delay products ({}): a burst fills the queue beyond it, and from there on \
             every packet is marked, before the senders can have heard of the first mark.",
            bytes(2 * bdp)
        ));
    }
    if let Some(which) = which(&|setting, _| setting.pfc.is_some_and(|pfc| pfc.xoff_bytes < setting.red.kmax_bytes)) {
        notes.push(format!("In {which} XOFF is below Kmax: pause comes before marking is certain."));
    }
    // Some ten megabytes are what one port of a switch can have of a shared buffer.
    let endless = |setting: &Setting, result: &ResultRow| {
        setting.pfc.is_none() && result.queue_p99_bytes.is_some_and(|bytes| bytes > 16 << 20)
    };
    if let Some(which) = which(&endless) {
        notes.push(format!(
            "In {which} the queue grows beyond what a switch has: without PFC this model never drops; try --xoff 2M."
        ));
    }
    notes
}

fn name(key: &str) -> &str {
    match key {
        "kmin" => "Kmin",
        "kmax" => "Kmax",
        "pmax" => "Pmax",
        "cc" => "the DCQCN parameter set",
        "pfc" => "PFC",
        other => other,
    }
}
