//! The rows of a port's counters: which come first, and what stands in them.

use collector::observation::Nanos;
use collector::timeline::Series;
use collector::timeline::arithmetic::Reading;
use collector::timeline::counter_table::{Class, Kind};
use ratatui::text::Line;

use crate::number;
use crate::table::{self, Column};
use crate::theme::Theme;

/// A counter says something when it grew within this time, ns.
pub(super) const SIGNS_NS: Nanos = 60_000_000_000;

/// When the width is short there go: where it is read, the unit, what it is.
pub(super) const COUNTERS: [Column; 6] = [
    table::text("COUNTER", 32, 255),
    table::number("RATE", 11, 250),
    table::number("TOTAL", 16, 240),
    table::text("UNIT", 9, 40),
    table::text("WHERE", 11, 20),
    table::text("WHAT IT IS, OR WHY IT IS UNKNOWN", 20, 60).growing(),
];

/// The counter's name or explanation has the word, which is in lower case.
pub(super) fn names(series: &Series, word: &str) -> bool {
    series.name.to_ascii_lowercase().contains(word) || series.def.help.to_ascii_lowercase().contains(word)
}

/// How far down the list a counter belongs: errors that grew lately, signs of congestion and of what was sent again that did,
/// all of them where they grew since anybody watches, the rest.
pub(super) fn sign(series: &Series, lately: Nanos) -> u8 {
    let grew = |from| series.growth_since(from).is_some_and(|growth| growth.sum > 0);
    match series.def.class {
        Class::Error if series.saturated() || grew(lately) => 0,
        Class::Congestion | Class::Transport if grew(lately) => 1,
        Class::Error | Class::Congestion | Class::Transport if grew(0) => 2,
        _ => 3,
    }
}

/// The cells of a counter.
pub(super) fn counter<'a>(series: &'a Series, place: &'a str, theme: &Theme) -> Vec<Line<'a>> {
    let def = series.def;
    let moving = series.rate.is_some_and(|rate| rate > 0.0);
    let loud = moving && def.class == Class::Error;
    let style = if loud { theme.critical } else { theme.text };
    let rate = if def.kind == Kind::Gauge { "gauge".to_owned() } else { number::unit_rate(def.unit, series.rate) };
    let rate_style = if loud {
        theme.critical
    } else if moving {
        theme.strong
    } else {
        theme.dim
    };
    let what = match &series.reading {
        Reading::Unavailable(reason) => Line::styled(reason.to_string(), theme.warning),
        Reading::Value(_) if series.saturated() => {
            Line::styled(format!("at its ceiling: more cannot be seen. {}", def.help), theme.warning)
        }
        Reading::Value(_) => Line::styled(def.help, theme.dim),
    };
    vec![
        Line::styled(&*series.name, style),
        Line::styled(rate, rate_style),
        Line::styled(number::unit_total(def.unit, series.value(), series.saturated()), style),
        // The total is in bytes whatever the driver counts them in.
        Line::styled(def.unit.bytes_factor().map_or(def.unit.name(), |_| "bytes"), theme.dim),
        Line::styled(place, theme.dim),
        what,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use collector::observation::CounterSource;
    use collector::timeline::counter_table::lookup;

    #[test]
    fn what_grows_where_all_is_well_is_no_sign() {
        let class = |driver: &str, name: &str| lookup(Some(driver), CounterSource::HwCounters, name).class;
        for (driver, names) in [
            ("hns_roce", "cmds aeqe ceqe posted_mbx mbx_event cq_cqe cq_notify"),
            ("efa", "submitted_cmds completed_cmds keep_alive_rcvd"),
            ("rdma_rxe", "ack_deferred"),
            ("bnxt_re", "active_qps watermark_qps resize_cq_cnt"),
        ] {
            for name in names.split(' ') {
                assert_eq!(class(driver, name), Class::Work, "{driver} {name}");
            }
        }
        for (driver, name) in
            [("mlx5_core", "roce_adp_retrans_to"), ("efa", "retrans_pkts"), ("rdma_rxe", "rcvd_seq_err")]
        {
            assert_eq!(class(driver, name), Class::Transport, "{driver} {name}");
        }
    }
}
