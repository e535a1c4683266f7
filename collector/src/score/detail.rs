//! One trace: what it is made of, what was true in it, and what was told. To look into what a rule misses.

use std::fmt::Write as _;

use super::watch::{Seen, Watch};
use super::{Plan, window};
use crate::observation::Nanos;
use crate::rule::Settings;
use crate::sim::labelled::{Options, trace};
use crate::sim::{Simulator, faults};

/// Every trace of the plan with what was true and told, and what it counted towards.
pub fn details(plan: &Plan, settings: &Settings, out: &mut dyn FnMut(&str)) {
    for seed in (0..plan.traces).map(|n| plan.first_seed + n) {
        for name in &plan.only {
            if let Some(text) = packets(name, seed, settings).or_else(|| windows(name, seed, settings)) {
                out(&text);
            }
        }
    }
}

fn packets(name: &str, seed: u64, settings: &Settings) -> Option<String> {
    let mut trace = trace(name, seed, &Options::default())?;
    let mut text = format!("{name} {seed} ({}): {}\n", window::MODEL, trace.description());
    let mut watch = Watch::new(&trace.header(), settings);
    while trace.step(&mut |observation| watch.take(observation)) {}
    say(&mut text, &watch.finish());
    Some(text)
}

fn windows(name: &str, seed: u64, settings: &Settings) -> Option<String> {
    let info = faults().into_iter().find(|info| info.name == name)?;
    let mut simulator = Simulator::with_fault(name, seed, super::event::SIZE)?;
    let mut text = format!("{name} {seed} ({})\n", super::event::MODEL);
    let mut watch = Watch::new(&simulator.header(), settings);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "minutes of a trace")]
    let until = (info.until_s * 1e9) as Nanos;
    simulator.advance(until, &mut |observation| watch.take(observation));
    say(&mut text, &watch.finish());
    Some(text)
}

fn say(text: &mut String, seen: &Seen) {
    let s = |t: Nanos| if t == Nanos::MAX { "end".to_owned() } else { format!("{:.1} s", t as f64 / 1e9) };
    for trouble in &seen.troubles {
        let _ =
            writeln!(text, "  true {} {} from {} to {}", trouble.class, trouble.device, s(trouble.from), s(trouble.to));
    }
    for (told, sees) in seen.told.iter().zip(["QPs", "counters"]) {
        for told in told {
            let _ = writeln!(
                text,
                "  told seeing {sees}: {} from {} to {}{}: {}",
                told.rule,
                s(told.raised),
                s(told.cleared),
                if told.consequence { " (consequence)" } else { "" },
                told.sentence
            );
        }
    }
}
