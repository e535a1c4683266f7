//! The adapter as a whole: the cross-check of several signs that hooks and failover subscribe to.

use std::collections::BTreeSet;

use super::clock::{lasting, ns, when};
use super::fall::{Cause, fall, state_at, switched_off};
use super::judged::{Judged, Part};
use super::link::{names, port_of};
use super::loopback::slowest;
use super::settings::Preset;
use super::span::in_use;
use super::{Rule, Trigger, View, root};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::observation::{Nanos, PortState};
use crate::timeline::counter_table::Meaning;

/// Windows in which, and out of which, errors must show (preset `default`).
const ERROR_WINDOWS: (u64, u64) = (2, 3);
/// A counter read more rarely than this, ns, is judged as if it were read so often: what was read minutes apart says
/// nothing of now.
const LONGEST_STEP_NS: Nanos = 60_000_000_000;
/// Windows looked back over at most (`cross_check`).
const MAX_WINDOWS: usize = 3600;

/// `nic.composite`.
pub(super) struct Composite;

impl Rule for Composite {
    fn id(&self) -> &'static str {
        "nic.composite"
    }

    /// The port's fall is acted on at its edge.
    fn trigger(&self) -> Trigger {
        Trigger::Port
    }

    fn meaning(&self) -> &'static str {
        "The adapter's port is failing or about to: the sign that hooks and failover act on. Preset default: the port is \
         down, or counters of errors that FEC could not correct or of bad CRCs grew in 2 of 3 windows (of 3 readings, \
         where they are read more rarely). Preset cross_check: down, or \
         symbol errors together with CRC errors, or symbol errors together with a slow loopback, in several checks in a \
         row. It is no finding that a port was never up or was switched off."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some((device, port)) = names(finding) else { return Vec::new() };
        let mut lines = vec![
            format!("rdma link show {device}/{port}"),
            format!("grep . /sys/class/infiniband/{device}/ports/{port}/counters/symbol_error"),
            format!("rdma statistic show link {device}/{port}"),
        ];
        for netdev in port_of(view.world, finding).into_iter().flat_map(|port| &port.netdevs) {
            lines.push(format!("ethtool -S {netdev} | grep -E 'symbol_err|crc_err|corrected|icrc'"));
            lines.push(format!("ethtool -I --show-fec {netdev}"));
        }
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let preset = view.settings.nic_composite.preset;
        let ports = view.world.ports.iter();
        ports
            .filter_map(|port| match preset {
                Preset::Default => by_default(view, port),
                Preset::CrossCheck => by_cross_check(view, port),
            })
            .collect()
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
        let unseen = |port: &&PortRecord| error_meanings(view).iter().all(|meaning| port.reading(*meaning).is_none());
        let blind: Vec<&PortRecord> = all.iter().copied().filter(unseen).collect();
        let names: Vec<String> = blind.iter().map(|port| view.port_subject(port).1.to_string()).collect();
        if blind.is_empty() {
            return Judged::All;
        }
        let reason = format!("no symbol, FEC or CRC errors counted on {}: judged by state alone", names.join(", "));
        Judged::with(all.len(), reason)
    })
}

fn error_meanings(view: &View<'_>) -> &'static [Meaning] {
    match view.settings.nic_composite.preset {
        Preset::Default => &[Meaning::PostFecErrors, Meaning::CrcErrors, Meaning::IcrcErrors],
        Preset::CrossCheck => &[Meaning::SymbolError, Meaning::PostFecErrors, Meaning::CrcErrors, Meaning::IcrcErrors],
    }
}

/// What one check covers, ns: a window, or the time between two readings of the meaning's counters where that is more.
fn step(view: &View<'_>, port: &PortRecord, meanings: &[Meaning]) -> Nanos {
    let series = meanings.iter().flat_map(|meaning| port.series_of(*meaning));
    let interval = series.map(|series| series.interval().min(LONGEST_STEP_NS)).max().unwrap_or(0);
    interval.max(ns(view.settings.window_s))
}

/// Errors per second of a meaning in the last `n` closed windows, newest first; `None` is unknown.
fn recent(port: &PortRecord, meaning: Meaning, n: usize) -> Vec<Option<f64>> {
    let mut all: Vec<Option<f64>> =
        port.rates.get(&meaning).map(|ring| ring.newest_first().take(n).collect()).unwrap_or_default();
    all.resize(n, None);
    all
}

/// Growth after `from` of the counters of a meaning while the link was in use: its sum, and the windows in which a reading
/// showed it. One growth is one window, whenever the reading before was.
fn bad_windows(view: &View<'_>, port: &PortRecord, meaning: Meaning, from: Nanos) -> (u64, u64) {
    let window_ns = ns(view.settings.window_s).max(1);
    let mut windows = BTreeSet::new();
    let mut sum = 0u64;
    for (t, n) in port.series_of(meaning).flat_map(|series| series.changes_since(from)) {
        if let Some(n) = n.filter(|n| *n > 0 && in_use(port, t)) {
            windows.insert(t.saturating_sub(view.world.started) / window_ns);
            sum = sum.saturating_add(n);
        }
    }
    (windows.len() as u64, sum)
}

/// The port fell while watched, for a reason that is no order.
fn fell(view: &View<'_>, port: &PortRecord) -> Option<Nanos> {
    fall(view, port).filter(|fall| fall.cause != Cause::FoundDown && !switched_off(port)).map(|fall| fall.t)
}

fn by_default(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let (least, of) = ERROR_WINDOWS;
    let mut evidence = Vec::new();
    let mut signs = Vec::new();
    let mut any = false;
    let mut counted_since = view.now;
    for (meaning, what) in [
        (Meaning::PostFecErrors, "errors FEC could not correct"),
        (Meaning::CrcErrors, "bad CRCs"),
        (Meaning::IcrcErrors, "bad ICRCs"),
    ] {
        let span = step(view, port, &[meaning]).saturating_mul(of);
        // A reading at the very end of a window belongs to the next one.
        let from = view.now.saturating_sub(span.saturating_add(1));
        let (failed, sum) = bad_windows(view, port, meaning, from);
        any |= failed > 0;
        if failed >= least {
            let over = lasting(span);
            signs.push(format!("{sum} {what} in {failed} readings of the last {over}"));
            let name = port.series_of(meaning).next().map_or(meaning.name(), |series| &*series.name);
            evidence.push(Evidence::new(name, Some(span as f64 / 1e9), sum as f64, 0.0, "errors"));
            counted_since = counted_since.min(from.max(view.world.started));
        }
    }
    let down = fell(view, port);
    let (key, _) = view.port_subject(port);
    if down.is_none() && signs.is_empty() {
        let raised = any && view.raised("nic.composite", &key).is_some();
        return raised.then_some(Verdict::Keep(key));
    }
    if let Some(t) = down {
        // It may stand since the errors before the fall.
        signs.insert(0, format!("port down since {}", when(view, t)));
        evidence.insert(0, Evidence::new(format!("state {}", port.state.name()), None, None, None, "ACTIVE expected"));
    }
    let revision = u64::from(down.is_some()) | (signs.len() as u64) << 1;
    let since = down.unwrap_or(counted_since);
    Some(conclude(view, port, &signs.join(", "), evidence, since, (down.is_some(), revision)))
}

fn by_cross_check(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.nic_composite;
    let threshold = settings.failure_threshold.clamp(1, 3600);
    let n = threshold as usize;
    let window_ns = ns(view.settings.window_s).max(1);
    // A window in which nothing was read is no check; as many are passed over as lie between two readings.
    let per_check = step(view, port, error_meanings(view)).div_ceil(window_ns);
    let windows = n.saturating_mul(usize::try_from(per_check).unwrap_or(1)).min(MAX_WINDOWS);
    let rates = |meaning| recent(port, meaning, windows);
    let (symbol, post_fec) = (rates(Meaning::SymbolError), rates(Meaning::PostFecErrors));
    let (crc, icrc) = (rates(Meaning::CrcErrors), rates(Meaning::IcrcErrors));
    let down = fell(view, port);
    // The end of the newest closed window; checks are made at window ends.
    let closed = view.now.saturating_sub(view.world.started) / window_ns;
    let (mut downs, mut newest) = (0, None);
    let loopback_ns = settings.loopback_us * 1000.0;
    let checks = (0..windows).filter_map(|i| {
        let end = closed.checked_sub(i as u64).filter(|end| *end > 0)?;
        let end = view.world.started + end * window_ns;
        let is_down =
            down.is_some_and(|t| t <= end) && state_at(port, end).is_some_and(|state| state != PortState::Active);
        let read = [&symbol, &post_fec, &crc, &icrc].iter().any(|rates| rates[i].is_some());
        // An unknown part makes its clause unknown, never true.
        let over = |rates: &[Option<f64>], limit: f64| rates[i].is_some_and(|rate| rate > limit);
        let symbols = over(&symbol, settings.symbol_per_s) || over(&post_fec, settings.symbol_per_s);
        let slow = slowest(port, end.saturating_sub(window_ns), end).is_some_and(|p50| p50 as f64 > loopback_ns);
        // As in the middle of the window: errors of the link's training are none of the link in use.
        let symbols = symbols && in_use(port, end.saturating_sub(window_ns / 2));
        let failed = is_down || (symbols && (over(&crc, 0.0) || over(&icrc, 0.0) || slow));
        (is_down || read).then_some((i, is_down, failed))
    });
    let failed = checks.take(n).take_while(|(_, _, failed)| *failed).inspect(|(i, is_down, _)| {
        newest.get_or_insert(*i);
        downs += usize::from(*is_down);
    });
    if failed.count() < n {
        return None;
    }
    let newest = newest.unwrap_or(0);
    let mut evidence =
        vec![Evidence::new("failed checks in a row", Some(view.settings.window_s), n as f64, n as f64, "checks")];
    let sign = if downs > 0 {
        evidence.push(Evidence::new(format!("state {}", port.state.name()), None, None, None, "ACTIVE expected"));
        format!("port down in {threshold} checks in a row")
    } else {
        let most = |a: &[Option<f64>], b: &[Option<f64>]| a[newest].unwrap_or(0.0).max(b[newest].unwrap_or(0.0));
        let (symbols, crcs) = (most(&symbol, &post_fec), most(&crc, &icrc));
        let window = Some(view.settings.window_s);
        evidence.push(Evidence::new("symbol errors", window, symbols, settings.symbol_per_s, "1/s"));
        evidence.push(Evidence::new("CRC errors", window, crcs, 0.0, "1/s"));
        let end = view.world.started + closed.saturating_sub(newest as u64) * window_ns;
        let slow = slowest(port, end.saturating_sub(window_ns), end).map(|p50| p50 as f64 / 1000.0);
        if let Some(slow) = slow {
            evidence.push(Evidence::new("loopback latency, median", window, slow, settings.loopback_us, "µs"));
        }
        let with = match (crcs > 0.0, slow.is_some_and(|slow| slow > settings.loopback_us)) {
            (true, true) => "CRC errors and a slow loopback",
            (false, true) => "a slow loopback",
            _ => "CRC errors",
        };
        format!("symbol errors with {with} in {threshold} checks in a row")
    };
    let since = down.unwrap_or_else(|| view.since(view.settings.window_s * n as f64));
    Some(conclude(view, port, &sign, evidence, since, (downs > 0, u64::from(downs > 0))))
}

fn conclude(
    view: &View<'_>,
    port: &PortRecord,
    signs: &str,
    evidence: Vec<Evidence>,
    since: Nanos,
    (down, revision): (bool, u64),
) -> Verdict {
    let (key, subject) = view.port_subject(port);
    // It is a sum of other signs: where one of them is raised by itself, that one says more.
    let roots = ["link.down", "nic.stuck", "pcie.aer_fatal", "nic.health", "phy.post_fec", "phy.crc", "link.flap"];
    Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Critical,
        // Counters alone do not show that the port fails its traffic.
        grade: if down { Grade::Confirmed } else { Grade::Suspected },
        summary: format!("port is failing: {signs}"),
        evidence,
        advice: "Move the work to another port; then look at the findings about this port for the cause.".to_owned(),
        would_raise: if down { String::new() } else { "the port leaving ACTIVE".to_owned() },
        part_of: root::of_port(view, port, &roots, since, root::ANY),
        since: since.min(view.now),
        revision,
    }))
}
