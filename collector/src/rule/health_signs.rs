//! What is measured of a device's health: its reporters' counts, failed commands, temperatures, its modules' trouble.

use super::View;
use super::clock::{plural, when};
use super::health::{KEEP_S, Sign};
use super::phy::digits;
use crate::finding::{Evidence, Grade, Severity};
use crate::inventory::{CounterSet, DeviceId, DeviceRecord};
use crate::observation::{CounterSource, Nanos};
use crate::timeline::Series;
use crate::timeline::counter_table::Meaning;

/// A gauge that was read longer ago than this, or than five times its interval, says nothing of now, ns.
const FRESH_NS: Nanos = 60_000_000_000;
/// No sensor of an adapter that works shows more, 10⁻³ °C.
const HOTTEST: u64 = 200_000;

/// All signs of a device.
pub(super) fn signs(view: &View<'_>, id: DeviceId, device: &DeviceRecord) -> Vec<Sign> {
    let mut all = Vec::new();
    let of_ports = view.world.ports_of(id).flat_map(|port| &port.sets);
    for set in device.sets.iter().chain(of_ports).filter(|set| set.bound.is_none()) {
        match set.source {
            CounterSource::Devlink => reporters(view, set, &mut all),
            CounterSource::Hwmon => temperatures(view, set, &mut all),
            _ => {
                for series in &set.series {
                    match series.def.meaning {
                        Some(Meaning::CommandErrors) => all.extend(commands(view, series)),
                        Some(Meaning::ModuleFaults) => all.extend(module(view, set, series)),
                        _ => {}
                    }
                }
            }
        }
    }
    all
}

/// What a counter grew by while a report would be kept, and when first and last.
fn grown(view: &View<'_>, series: &Series) -> Option<(u64, Nanos, Nanos)> {
    let mut found: Option<(u64, Nanos, Nanos)> = None;
    for (t, n) in series.changes_since(view.ago(KEEP_S)) {
        let Some(n) = n.filter(|n| *n > 0) else { continue };
        let (sum, first, last) = found.get_or_insert((0, t, t));
        *sum = sum.saturating_add(n);
        *first = (*first).min(t);
        *last = (*last).max(t);
    }
    found
}

fn fresh(view: &View<'_>, series: &Series) -> bool {
    view.now.saturating_sub(series.t) <= FRESH_NS.max(series.interval().saturating_mul(5))
}

/// `devlink health`: `fw.state` (0 healthy, 1 error) and `fw.error_count`, by reporter.
fn reporters(view: &View<'_>, set: &CounterSet, all: &mut Vec<Sign>) {
    for series in &set.series {
        let Some((reporter, what)) = series.name.rsplit_once('.') else { continue };
        // Reporters of the device itself; those of Ethernet queues recover by themselves.
        let severity = if reporter.starts_with("fw") || reporter.starts_with("hw") {
            Severity::Critical
        } else {
            Severity::Warning
        };
        let sign = match what {
            "state" if fresh(view, series) && series.value().is_some_and(|state| state != 0) => {
                Some((format!("health reporter {reporter} is in error"), 1, series.t, 0.0, None, "state (0: healthy)"))
            }
            "error_count" => grown(view, series).map(|(n, first, last)| {
                let errors = plural(n, "error");
                let at = when(view, last);
                (format!("{errors} of health reporter {reporter}, last at {at}"), n, first, 0.0, Some(KEEP_S), "errors")
            }),
            _ => None,
        };
        let Some((text, n, since, threshold, window, unit)) = sign else { continue };
        all.push(Sign {
            text,
            evidence: vec![Evidence::new(&*series.name, window, n as f64, threshold, unit)],
            since,
            severity,
            grade: Grade::Confirmed,
            revision: digits(n),
            between: false,
        });
    }
}

/// Commands to the firmware that failed. Some drivers count what a process asked for in vain as well, so a few are none.
fn commands(view: &View<'_>, series: &Series) -> Option<Sign> {
    let least = view.settings.nic_health.command_errors.max(1);
    let (n, first, _) = grown(view, series).filter(|(n, _, _)| *n >= least)?;
    Some(Sign {
        text: format!("{} ({}) since {}", plural(n, "failed firmware command"), series.name, when(view, first)),
        evidence: vec![Evidence::new(&*series.name, Some(KEEP_S), n as f64, least as f64, "commands")],
        since: first,
        severity: Severity::Warning,
        grade: Grade::Suspected,
        revision: digits(n),
        between: false,
    })
}

/// A module that is too hot, shorted, or whose bus is stuck. One that was pulled out was pulled out by somebody.
fn module(view: &View<'_>, set: &CounterSet, series: &Series) -> Option<Sign> {
    let what = match &*series.name {
        "module_high_temp" => "is too hot",
        "module_bus_stuck" => "does not answer on its bus",
        "module_bad_shorted" => "is shorted or bad",
        _ => return None,
    };
    let (n, first, last) = grown(view, series)?;
    let of = set.netdev.as_deref().map(|netdev| format!(" of {netdev}")).unwrap_or_default();
    let times = if n > 1 { format!(", {n} times since {}", when(view, first)) } else { String::new() };
    Some(Sign {
        text: format!("the module{of} {what}, told at {}{times}", when(view, last)),
        evidence: vec![Evidence::new(&*series.name, Some(KEEP_S), n as f64, 0.0, "events")],
        since: first,
        severity: Severity::Warning,
        grade: Grade::Confirmed,
        revision: digits(n),
        between: false,
    })
}

/// Sensors at or over a limit of their own (`temp1_input` against `temp1_crit`, else `temp1_max`).
fn temperatures(view: &View<'_>, set: &CounterSet, all: &mut Vec<Sign>) {
    let margin = view.settings.nic_health.temperature_margin_c.max(0.0) * 1000.0;
    for series in &set.series {
        let Some(sensor) = series.name.strip_suffix("_input").filter(|sensor| sensor.contains("temp")) else {
            continue;
        };
        let Some(now) = series.value().filter(|now| *now < HOTTEST && fresh(view, series)) else { continue };
        let limit = |name: &str| {
            let limit = set.get(&format!("{sensor}_{name}"))?.value()?;
            (limit > 0 && limit < HOTTEST).then_some(limit)
        };
        let limits = [("crit", Severity::Critical), ("emergency", Severity::Critical), ("max", Severity::Warning)];
        let known: Vec<(&str, Severity, u64)> =
            limits.into_iter().filter_map(|(name, severity)| Some((name, severity, limit(name)?))).collect();
        let over = known.iter().find(|(_, _, limit)| now >= *limit);
        let near = known.iter().any(|(_, _, limit)| now as f64 + margin >= *limit as f64);
        let celsius = |milli: u64| milli as f64 / 1000.0;
        if let Some((name, severity, limit)) = over {
            all.push(Sign {
                text: format!("{sensor} at {:.0} °C, {name} limit {:.0} °C", celsius(now), celsius(*limit)),
                evidence: vec![Evidence::new(&*series.name, None, celsius(now), celsius(*limit), "°C")],
                since: series.t,
                severity: *severity,
                grade: Grade::Confirmed,
                revision: now / 5_000,
                between: false,
            });
        } else if near {
            all.push(Sign {
                text: String::new(),
                evidence: Vec::new(),
                since: series.t,
                severity: Severity::Info,
                grade: Grade::Suspected,
                revision: 0,
                between: true,
            });
        }
    }
}
