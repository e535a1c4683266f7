//! The link counters of the InfiniBand port table (PMA): symbols, integrity, recovery.

use super::clock::{lasting, ns, plural, when};
use super::judged::{Judged, Part};
use super::link::{names, port_of};
use super::phy::{digits, silent};
use super::root;
use super::span::mean_rate;
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::observation::{Nanos, PortState};
use crate::timeline::counter_table::Meaning;

/// A link that comes up counts recoveries of its own training, ns.
const TRAINING_NS: Nanos = 30_000_000_000;

/// `phy.symbol`.
pub(super) struct Symbol;

impl Rule for Symbol {
    fn id(&self) -> &'static str {
        "phy.symbol"
    }

    fn meaning(&self) -> &'static str {
        "The port table of the InfiniBand specification counts trouble of the link: symbol errors beyond what correction \
         mends, local link integrity, link recoveries. The error counters of that table of a RoCE port are often listed \
         and never filled: their zero says nothing of the link, and phy.post_fec looks at the counters that do."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some((device, port)) = names(finding) else { return Vec::new() };
        let counters = "symbol_error,local_link_integrity_errors,link_error_recovery";
        let mut lines = vec![format!("grep . /sys/class/infiniband/{device}/ports/{port}/counters/{{{counters}}}")];
        if port_of(view.world, finding).is_some_and(PortRecord::pma_counts_errors) {
            lines.push(format!("sudo perfquery -C {device} -P {port}"));
            lines.push(format!("sudo ibqueryerrors -C {device} -P {port}"));
        }
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present_ports().filter_map(|(_, port)| symbol(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        extent(view).in_part()
    }
}

fn extent(view: &View<'_>) -> Judged {
    view.of_ports(|all| {
        let (mut blind, mut silent, mut full) = (Vec::new(), Vec::new(), Vec::new());
        for port in all {
            match port.reading(Meaning::SymbolError) {
                None => blind.push(*port),
                Some(_) if !port.pma_counts_errors() => silent.push(*port),
                Some(reading) if reading.saturated => full.push(*port),
                Some(_) => {}
            }
        }
        let part = |ports: &[&PortRecord], why: &str| {
            let names: Vec<String> = ports.iter().map(|port| view.port_subject(port).1.to_string()).collect();
            (!ports.is_empty()).then(|| format!("{} {why}", names.join(", ")))
        };
        let parts: Vec<String> = [
            part(&blind, "counts no symbol errors"),
            part(&silent, "is no InfiniBand port: what its symbol_error counts is not known, its zero says nothing"),
            part(&full, "has its counter at the limit"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let unseen: Vec<&PortRecord> = [blind, silent, full].concat();
        view.without(&unseen, all.len(), |_| parts.join("; "))
    })
}

fn symbol(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.phy_symbol;
    let (key, subject) = view.port_subject(port);
    let roots = ["link.down", "phy.post_fec", "phy.crc"];
    let raised = view.raised("phy.symbol", &key).is_some();
    if !matches!(port.state, PortState::Active | PortState::Unknown) {
        return silent(view, port, "phy.symbol", &roots);
    }
    let symbols =
        port.pma_counts_errors().then(|| mean_rate(view, port, Meaning::SymbolError, settings.window_s)).flatten();
    let too_many = symbols.filter(|rate| *rate > settings.per_s);
    let from = view.ago(settings.clear_s);
    let integrity = events(port, Meaning::LocalLinkIntegrity, from);
    let recovery = events(port, Meaning::LinkErrorRecovery, from);
    let events: Vec<(&str, u64, Nanos)> = [("local link integrity error", integrity), ("link recovery", recovery)]
        .into_iter()
        .filter_map(|(what, found)| found.map(|(n, first)| (what, n, first)))
        .filter(|(_, n, _)| *n >= settings.recoveries.max(1))
        .collect();
    if too_many.is_none() && events.is_empty() {
        let between = symbols.is_some_and(|rate| rate > settings.per_s / 2.0);
        return (raised && between).then_some(Verdict::Keep(key));
    }
    let mut evidence = Vec::new();
    let mut parts = Vec::new();
    if let Some(rate) = too_many {
        evidence.push(Evidence::new("symbol_error", Some(settings.window_s), rate, settings.per_s, "1/s"));
        parts.push(format!("{rate:.0} symbol errors a second over {}", lasting(ns(settings.window_s))));
    }
    let mut since = view.since(settings.window_s);
    for (what, n, first) in &events {
        evidence.push(Evidence::new(*what, Some(settings.clear_s), *n as f64, settings.recoveries as f64, "events"));
        let many = match *what {
            "link recovery" if *n != 1 => format!("{n} link recoveries"),
            what => plural(*n, what),
        };
        parts.push(format!("{many} since {}", when(view, *first)));
        since = since.min(*first);
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate of counts")]
    let rate = too_many.map_or(0, |rate| digits(rate as u64));
    let n = events.iter().fold(0u64, |n, (_, more, _)| n.saturating_add(*more));
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade: Grade::Probable,
        summary: parts.join("; "),
        evidence,
        advice: "Clean or reseat the cable at both ends and compare with the counters of the switch port; replace the cable \
                 when they go on growing."
            .to_owned(),
        would_raise: "errors after FEC, bad CRCs, or the link going down".to_owned(),
        part_of: root::of_link(view, port, &roots),
        since,
        revision: rate << 16 | digits(n),
    })))
}

/// What a counter of single events grew by after `from`, and when first, without what belongs to the link coming up.
fn events(port: &PortRecord, meaning: Meaning, from: Nanos) -> Option<(u64, Nanos)> {
    let trained = |t: Nanos| {
        port.states.iter().any(|(at, _)| t.saturating_add(TRAINING_NS) >= *at && t <= at.saturating_add(TRAINING_NS))
    };
    let mut found: Option<(u64, Nanos)> = None;
    for (t, n) in port.series_of(meaning).flat_map(|series| series.changes_since(from)) {
        let Some(n) = n.filter(|n| *n > 0 && !trained(t)) else { continue };
        let (sum, first) = found.get_or_insert((0, t));
        *sum = sum.saturating_add(n);
        *first = (*first).min(t);
    }
    found
}
