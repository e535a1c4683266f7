//! Times in a finding's sentence.

use super::View;
use crate::observation::Nanos;

/// Wall-clock time of day (`14:02:49.118 UTC`) where the recording's header ties the clocks, else seconds since the
/// first observation (`+12.118 s`).
pub(super) fn when(view: &View<'_>, t: Nanos) -> String {
    if let Some(unix_ns) = view.world.unix_ns(t) {
        let ms = unix_ns / 1_000_000 % 86_400_000;
        let (s, ms) = (ms / 1000, ms % 1000);
        return format!("{:02}:{:02}:{:02}.{ms:03} UTC", s / 3600, s / 60 % 60, s % 60);
    }
    let ms = t.saturating_sub(view.world.started) / 1_000_000;
    format!("+{}.{:03} s", ms / 1000, ms % 1000)
}

/// A duration as a person would say it: `250 ms`, `12.1 s`, `6 min`, `5 h 20 min`, `3 d 4 h`.
pub(super) fn lasting(ns: Nanos) -> String {
    match ns / 1_000_000 {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..120_000 => format!("{}.{} s", ms / 1000, ms / 100 % 10),
        ms @ 120_000..7_200_000 => format!("{} min", ms / 60_000),
        ms @ 7_200_000..172_800_000 => parts((ms / 3_600_000, "h"), (ms / 60_000 % 60, "min")),
        ms => parts((ms / 86_400_000, "d"), (ms / 3_600_000 % 24, "h")),
    }
}

/// `5 h`, `5 h 20 min`.
fn parts((whole, unit): (u64, &str), (rest, smaller): (u64, &str)) -> String {
    if rest == 0 { format!("{whole} {unit}") } else { format!("{whole} {unit} {rest} {smaller}") }
}

/// Seconds as nanoseconds.
pub(crate) fn ns(seconds: f64) -> Nanos {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "settings are seconds to a day")]
    let ns = (seconds.clamp(0.0, 1e7) * 1e9) as u64;
    ns
}

/// `1 QP`, `2 QPs`.
pub(super) fn plural(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// Words before a number of events of which not all are remembered.
pub(super) fn at_least(in_part: bool) -> &'static str {
    if in_part { "at least " } else { "" }
}

/// The name of a number of such events in the evidence.
pub(super) fn least(series: &str, in_part: bool) -> String {
    if in_part { format!("{series}, at least") } else { series.to_owned() }
}
