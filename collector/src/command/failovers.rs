//! `failovers`: the incidents on ports that were observed, each with its five times, its phases and its verdicts
//! (docs/failover.md).

use serde::Serialize;

use super::table::{Align, Table, line};
use crate::inventory::{Failover, Mark, Moment, Span, World};

/// Columns of a lane.
const LANE: usize = 48;

/// `failovers --json`; stable.
#[derive(Debug, Serialize)]
pub struct FailoversReport<'w> {
    /// Oldest first.
    pub failovers: Vec<&'w Failover>,
    /// Older ones that are no longer remembered.
    pub dropped: u64,
}

/// Builds the report.
#[must_use]
pub fn report(world: &World) -> FailoversReport<'_> {
    FailoversReport {
        failovers: world.failovers.iter().map(|failover| &**failover).collect(),
        dropped: world.failovers_dropped,
    }
}

/// A table with a row for each, then the lanes of each.
#[must_use]
pub fn text(world: &World, report: &FailoversReport<'_>) -> String {
    if report.failovers.is_empty() {
        return "no failover\n".to_owned();
    }
    let mut table = Table::new(&[
        ("ID", Align::Right),
        ("PORT", Align::Left),
        ("BEGAN", Align::Left),
        ("ENDING", Align::Left),
        ("QPS", Align::Left),
        ("WARNING", Align::Right),
        ("OUTAGE", Align::Right),
        ("FLOOR", Align::Right),
        ("BUDGETS", Align::Left),
    ]);
    for failover in &report.failovers {
        table.row(vec![
            failover.id.to_string(),
            format!("{}/{}", failover.device, failover.port),
            failover.began().map_or_else(|| "–".to_owned(), |began| when(world, began)),
            failover.ending.name().to_owned(),
            failover.qps.text().unwrap_or_else(|| "–".to_owned()),
            spanned(failover.warning),
            spanned(failover.outage),
            floor(failover),
            budgets(failover),
        ]);
    }
    let mut out = table.to_string();
    if report.dropped > 0 {
        line(&mut out, &format!("{} older failovers are no longer remembered", report.dropped));
    }
    for failover in &report.failovers {
        lanes(&mut out, failover);
    }
    out
}

fn when(world: &World, moment: Moment) -> String {
    let Some(unix_ns) = world.unix_ns(moment.t) else {
        let ms = moment.t.saturating_sub(world.started) / 1_000_000;
        return format!("+{}.{:03} s", ms / 1000, ms % 1000);
    };
    let ms = unix_ns / 1_000_000 % 86_400_000;
    let (s, ms) = (ms / 1000, ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03} UTC", s / 3600, s / 60 % 60, s % 60)
}

/// `268 ms`, `0.2–1.3 s`, `–` when it is not known.
fn spanned(span: Option<Span>) -> String {
    let Some(Span { min_ns, max_ns }) = span else { return "–".to_owned() };
    if max_ns - min_ns <= max_ns / 100 {
        return duration(max_ns);
    }
    format!("{}–{}", duration(min_ns), duration(max_ns))
}

fn duration(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        1..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        1_000_000_000..120_000_000_000 => format!("{:.1} s", ns as f64 / 1e9),
        _ => format!("{} min", ns / 60_000_000_000),
    }
}

fn floor(failover: &Failover) -> String {
    match failover.floor {
        None => "–".to_owned(),
        Some(floor) => floor.max_ns.map_or_else(|| "endless".to_owned(), duration),
    }
}

fn budgets(failover: &Failover) -> String {
    let all: Vec<String> =
        failover.budgets.iter().map(|budget| format!("{} ms {}", budget.ms, budget.verdict.name())).collect();
    all.join(", ")
}

fn lanes(out: &mut String, failover: &Failover) {
    let marks: Vec<&Mark> = failover.lanes().into_iter().filter_map(|(_, _, mark)| mark).collect();
    let (Some(began), Some(from), Some(to)) =
        (failover.began(), marks.iter().map(|mark| mark.at.not_before).min(), marks.iter().map(|mark| mark.at.t).max())
    else {
        return;
    };
    out.push('\n');
    let state = if failover.closed_t.is_some() { "" } else { ", under way" };
    line(out, &format!("{}  {}/{}{state}", failover.id, failover.device, failover.port));
    for (id, name, mark) in failover.lanes() {
        let lane = mark.map_or_else(|| "·".repeat(LANE), |mark| lane(mark.at, from, to));
        let what = mark.map_or_else(|| ("–".to_owned(), ""), |mark| (offset(mark.at, began), &*mark.what));
        line(out, &format!("   {id} {name:<15} {lane} {:>18}  {}", what.0, what.1));
    }
    if let Some(floor) = failover.floor {
        let endless = match floor.endless {
            0 => String::new(),
            n => format!("; {n} of the QPs never give up (timeout 0, or retry_cnt 7 on rxe)"),
        };
        let timers = format!("timeout {}, retry_cnt {}", floor.timeout, floor.retry_cnt);
        let least = floor.max_ns.map_or_else(|| "no end".to_owned(), duration);
        line(out, &format!("   floor of the QPs' own timers: {least} ({timers}{endless})"));
    }
}

/// Where on the lane a moment lies; `─` is where it may lie.
fn lane(at: Moment, from: u64, to: u64) -> String {
    let whole = u128::from((to - from).max(1));
    let place = |t: u64| usize::try_from(u128::from(t - from) * (LANE as u128 - 1) / whole).unwrap_or(LANE - 1);
    let (first, last) = (place(at.not_before), place(at.t));
    (0..LANE)
        .map(|column| match column {
            _ if column == last => '●',
            _ if (first..last).contains(&column) => '─',
            _ => '·',
        })
        .collect()
}

/// The time after the outage's begin: `+268 ms`, `-1.2 s`; `≤` where it may have been earlier.
fn offset(at: Moment, began: Moment) -> String {
    let earlier = if at.t == at.not_before { "" } else { "≤ " };
    if at.t >= began.t {
        format!("{earlier}+{}", duration(at.t - began.t))
    } else {
        format!("{earlier}-{}", duration(began.t - at.t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_with_its_uncertainty_and_one_number_where_there_is_none() {
        let span = |min_ns, max_ns| Some(Span { min_ns, max_ns });
        assert_eq!(spanned(span(268_000_000, 268_000_000)), "268 ms");
        assert_eq!(spanned(span(200_000_000, 1_300_000_000)), "200 ms–1.3 s");
        assert_eq!((spanned(None), spanned(span(0, 0))), ("–".to_owned(), "0".to_owned()));
    }

    #[test]
    fn a_lane_shows_where_a_moment_may_lie() {
        let lane = lane(Moment::between(50, 100), 0, 100);
        assert_eq!(lane.chars().count(), LANE);
        assert!(lane.starts_with("·····") && lane.ends_with("──●"), "{lane}");
    }
}
