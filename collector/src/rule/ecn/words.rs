//! What every finding about marks says besides its numbers: K* and L, the confounders, the lines to check by hand.

use super::control::{Control, cnp_interval_us};
use super::span::Span;
use super::{View, lag};
use crate::finding::Finding;
use crate::inventory::PortRecord;
use crate::rule::link::{names, port_of};

/// K* in bytes: 0.17·C·RTT, the queue above which DCQCN's own control loop needs to be told.
pub(super) fn k_star_bytes(rate_gbps: f64, rtt_us: f64) -> f64 {
    0.17 * rate_gbps * 1e9 / 8.0 * rtt_us / 1e6
}

/// The definition the finding rests on, with its numbers.
pub(super) fn definition(view: &View<'_>, port: &PortRecord) -> String {
    let ecn = &view.settings.ecn;
    let rate = port.rate_gbps.unwrap_or(0.0);
    let kb = k_star_bytes(rate, ecn.rtt_us) / 1e3;
    format!(
        "Here L = {}, K* = {kb:.0} KB (0.17·{rate:.0} Gb/s·{} µs, the RTT as configured); the switch's queue is not seen",
        ecn.l, ecn.rtt_us
    )
}

/// What else the numbers could come from, each with its number.
pub(super) fn confounders(view: &View<'_>, port: &PortRecord, span: &Span<'_>) -> Vec<String> {
    let mut list = Vec::new();
    let us = cnp_interval_us(port)
        .map_or("4 µs on NICs by default, 50 µs in the paper".to_owned(), |us| format!("{us} µs"));
    if let Some(c) = span.sums().cnp_per_mark() {
        list.push(format!("CNPs are sent at most once in {us}: {c:.2} for each mark"));
    }
    if let Some(bond) = lag(view, port) {
        list.push(format!("marks and CNPs are summed over the links of {bond}"));
    }
    let ms = span.slice_s() * 1e3;
    list.push(format!("readings are {ms:.0} ms apart: bursts of 100 µs cannot be seen in them"));
    let note = Control::of(port).note();
    if !note.is_empty() {
        list.push(note.to_owned());
    }
    list
}

/// The lines that show a port's marks, CNPs and pauses.
pub(super) fn hand_check(view: &View<'_>, finding: &Finding) -> Vec<String> {
    let Some((device, number)) = names(finding) else { return Vec::new() };
    let mut lines = vec![
        format!("rdma -p statistic show link {device}/{number} | grep -E 'ecn|cnp|out_of_seq'"),
        format!(
            "grep . /sys/class/infiniband/{device}/ports/{number}/counters/port_{{rcv,xmit}}_{{data,packets,wait}}"
        ),
    ];
    let netdev = port_of(view.world, finding).and_then(|port| port.netdevs.first().cloned());
    if let Some(netdev) = netdev {
        lines.push(format!("ethtool -S {netdev} | grep -E 'prio[0-7]_(bytes|pause|marked)|pause_duration|discard'"));
        lines.push(format!(
            "cat /sys/class/net/{netdev}/ecn/roce_{{np,rp}}/enable/*   # where the vendor's driver has it"
        ));
    }
    lines
}

/// A share that may be small in percent, with two digits: `0.031 %`; a tiny one as a power: `3.1e-5`.
pub(super) fn share(value: f64) -> String {
    match value * 100.0 {
        0.0 => "0".to_owned(),
        p if p < 0.01 => format!("{value:.1e}"),
        p if p < 0.1 => format!("{p:.3} %"),
        p if p < 1.0 => format!("{p:.2} %"),
        p if p < 10.0 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// A share of time or rate in percent.
pub(super) fn percent(value: f64) -> String {
    if value > 0.0 && value < 0.001 { "< 0.1 %".to_owned() } else { format!("{:.1} %", value * 100.0) }
}

/// Nanoseconds as microseconds.
pub(super) fn us(ns: f64) -> String {
    format!("{:.1} µs", ns / 1e3)
}

/// Sentences joined.
pub(super) fn joined(parts: &[String]) -> String {
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent_unless_they_are_tiny() {
        let said = [0.0, 3.1e-5, 1e-4, 0.0025, 0.01, 0.42, 1.0].map(share);
        assert_eq!(said, ["0", "3.1e-5", "0.010 %", "0.25 %", "1.0 %", "42 %", "100 %"]);
    }
}
