//! The counters themselves.

use super::link::{names, port_of};
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::timeline::Series;

/// `counter.saturated`.
pub(super) struct Saturated;

impl Rule for Saturated {
    fn id(&self) -> &'static str {
        "counter.saturated"
    }

    fn meaning(&self) -> &'static str {
        "A counter that stops at its limit (4, 8, 16 or 32 bits, as InfiniBand's port counters do) has reached it: the \
         true count is this or more, and further errors cannot be seen. It says nothing about when they happened."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some((device, port)) = names(finding) else { return Vec::new() };
        let Some(record) = port_of(view.world, finding) else { return Vec::new() };
        let mut lines: Vec<String> = full(record)
            .map(|series| format!("cat /sys/class/infiniband/{device}/ports/{port}/counters/{}", series.name))
            .collect();
        lines.push(format!("sudo perfquery -C {device} -P {port}"));
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present_ports().filter_map(|(_, port)| saturated(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        let sticky = view.world.present_ports().any(|(_, port)| {
            let mut series = port.sets.iter().flat_map(|set| &set.series);
            series.any(|s| s.def.overflow == crate::timeline::counter_table::Overflow::Sticks && s.value().is_some())
        });
        (!sticky).then(|| "no port has counters that stop at their limit".to_owned())
    }
}

/// Counters at their limit that somebody would look at.
fn full(port: &PortRecord) -> impl Iterator<Item = &Series> {
    let series = port.sets.iter().filter(|set| set.bound.is_none()).flat_map(|set| &set.series);
    series.filter(|series| series.def.meaning.is_some() && series.saturated())
}

fn saturated(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let full: Vec<&Series> = full(port).collect();
    let first = full.iter().map(|series| series.t).min()?;
    let (key, subject) = view.port_subject(port);
    let row = |series: &&Series| {
        let ceiling = series.def.width.ceiling() as f64;
        Evidence::new(&*series.name, None, series.value().map(|v| v as f64), ceiling, series.def.unit.name())
    };
    let evidence = full.iter().map(row).collect();
    let names: Vec<String> = full.iter().take(4).map(|s| format!("{} ≥ {}", s.name, s.value().unwrap_or(0))).collect();
    let more = full.len().saturating_sub(4);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    // Which counters they are decides whether it is told again (FNV-1a).
    let revision = full
        .iter()
        .flat_map(|series| series.name.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Info,
        grade: Grade::Confirmed,
        summary: format!("at the limit, more cannot be seen: {}{more}", names.join(", ")),
        evidence,
        advice:
            "Clear the counters when it suits (as root: perfquery -R, which changes the device), so that new errors \
                 can be seen again."
                .to_owned(),
        would_raise: String::new(),
        part_of: None,
        since: first,
        revision,
    })))
}
