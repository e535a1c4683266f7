//! The adapter as a whole: the cross-check of several signs that hooks and failover subscribe to.

use super::clock::ns;
use super::fall::{Cause, fall, state_at, switched_off};
use super::link::{names, port_of};
use super::settings::Preset;
use super::{Rule, Trigger, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::observation::{Nanos, PortState};
use crate::timeline::counter_table::Meaning;

/// Windows in which, and out of which, errors must show (preset `default`).
const ERROR_WINDOWS: (usize, usize) = (2, 3);

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
         down, or errors that FEC could not correct or bad CRCs appear in 2 of 3 windows. Preset cross_check: down, or \
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
        let mut ports = view.world.present_ports().map(|(_, port)| port).peekable();
        if ports.peek().is_none() {
            return Some("there is no port".to_owned());
        }
        let unseen = |port: &PortRecord| error_meanings(view).iter().all(|meaning| port.reading(*meaning).is_none());
        let blind: Vec<String> =
            ports.filter(|port| unseen(port)).map(|port| view.port_subject(port).1.to_string()).collect();
        (!blind.is_empty())
            .then(|| format!("no symbol, FEC or CRC errors counted on {}: judged by state alone", blind.join(", ")))
    }
}

fn error_meanings(view: &View<'_>) -> &'static [Meaning] {
    match view.settings.nic_composite.preset {
        Preset::Default => &[Meaning::PostFecErrors, Meaning::CrcErrors, Meaning::IcrcErrors],
        Preset::CrossCheck => &[Meaning::SymbolError, Meaning::PostFecErrors, Meaning::CrcErrors, Meaning::IcrcErrors],
    }
}

/// Errors per second of a meaning in the last `n` closed windows, newest first; `None` is unknown.
fn recent(port: &PortRecord, meaning: Meaning, n: usize) -> Vec<Option<f64>> {
    let mut all: Vec<Option<f64>> =
        port.rates.get(&meaning).map(|ring| ring.newest_first().take(n).collect()).unwrap_or_default();
    all.resize(n, None);
    all
}

/// The port fell while watched, for a reason that is no order.
fn fell(view: &View<'_>, port: &PortRecord) -> Option<Nanos> {
    fall(view, port).filter(|fall| fall.cause != Cause::FoundDown && !switched_off(port)).map(|fall| fall.t)
}

fn by_default(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let (least, of) = ERROR_WINDOWS;
    let window_s = view.settings.window_s;
    let mut evidence = Vec::new();
    let mut signs = Vec::new();
    let mut any = false;
    for (meaning, what) in [
        (Meaning::PostFecErrors, "errors FEC could not correct"),
        (Meaning::CrcErrors, "bad CRCs"),
        (Meaning::IcrcErrors, "bad ICRCs"),
    ] {
        let rates = recent(port, meaning, of);
        let failed = rates.iter().flatten().filter(|rate| **rate > 0.0).count();
        any |= failed > 0;
        if failed >= least {
            let n: f64 = rates.iter().flatten().map(|rate| rate * window_s).sum();
            signs.push(format!("{n:.0} {what} in {failed} of {of} windows"));
            let name = port.series_of(meaning).next().map_or(meaning.name(), |series| &*series.name);
            evidence.push(Evidence::new(name, Some(of as f64 * window_s), n, 0.0, "errors"));
        }
    }
    let down = fell(view, port);
    let (key, subject) = view.port_subject(port);
    if down.is_none() && signs.is_empty() {
        let raised = any && view.raised("nic.composite", &key).is_some();
        return raised.then_some(Verdict::Keep(key));
    }
    if down.is_some() {
        signs.insert(0, "port down".to_owned());
        evidence.insert(0, Evidence::new(format!("state {}", port.state.name()), None, None, None, "ACTIVE expected"));
    }
    let revision = u64::from(down.is_some()) | (signs.len() as u64) << 1;
    let since = down.unwrap_or_else(|| view.ago(window_s * of as f64));
    Some(conclude(view, (key, subject), &signs.join(", "), evidence, since, revision))
}

fn by_cross_check(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.nic_composite;
    let threshold = settings.failure_threshold.clamp(1, 3600);
    let n = threshold as usize;
    let rates = |meaning| recent(port, meaning, n);
    let (symbol, post_fec) = (rates(Meaning::SymbolError), rates(Meaning::PostFecErrors));
    let (crc, icrc) = (rates(Meaning::CrcErrors), rates(Meaning::IcrcErrors));
    let down = fell(view, port);
    let window_ns = ns(view.settings.window_s).max(1);
    // The end of the newest closed window; checks are made at window ends.
    let closed = (view.now - view.world.started) / window_ns;
    let mut downs = 0;
    let failed = (0..n).take_while(|i| {
        let Some(end) = closed.checked_sub(*i as u64).filter(|end| *end > 0) else { return false };
        let end = view.world.started + end * window_ns;
        let is_down =
            down.is_some_and(|t| t <= end) && state_at(port, end).is_some_and(|state| state != PortState::Active);
        downs += usize::from(is_down);
        // An unknown part makes its clause unknown, never true. Nothing measures the loopback yet, so the third clause
        // (symbol errors and a slow loopback) is unknown.
        let over = |rates: &[Option<f64>], limit: f64| rates[*i].is_some_and(|rate| rate > limit);
        let symbols = over(&symbol, settings.symbol_per_s) || over(&post_fec, settings.symbol_per_s);
        is_down || (symbols && (over(&crc, 0.0) || over(&icrc, 0.0)))
    });
    if failed.count() < n {
        return None;
    }
    let mut evidence =
        vec![Evidence::new("failed checks in a row", Some(view.settings.window_s), n as f64, n as f64, "checks")];
    let sign = if downs > 0 {
        evidence.push(Evidence::new(format!("state {}", port.state.name()), None, None, None, "ACTIVE expected"));
        format!("port down in {threshold} checks in a row")
    } else {
        let most = |a: &[Option<f64>], b: &[Option<f64>]| a[0].unwrap_or(0.0).max(b[0].unwrap_or(0.0));
        let (symbols, crcs) = (most(&symbol, &post_fec), most(&crc, &icrc));
        let window = Some(view.settings.window_s);
        evidence.push(Evidence::new("symbol errors", window, symbols, settings.symbol_per_s, "1/s"));
        evidence.push(Evidence::new("CRC errors", window, crcs, 0.0, "1/s"));
        format!("symbol and CRC errors in {threshold} checks in a row")
    };
    let subject = view.port_subject(port);
    let since = down.unwrap_or_else(|| view.ago(view.settings.window_s * n as f64));
    Some(conclude(view, subject, &sign, evidence, since, u64::from(downs > 0)))
}

fn conclude(
    view: &View<'_>,
    (key, subject): (crate::finding::SubjectKey, crate::finding::Subject),
    signs: &str,
    evidence: Vec<Evidence>,
    since: Nanos,
    revision: u64,
) -> Verdict {
    Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Critical,
        grade: Grade::Confirmed,
        summary: format!("port is failing: {signs}"),
        evidence,
        advice: "Move the work to another port; then look at the findings about this port for the cause.".to_owned(),
        would_raise: String::new(),
        since: since.min(view.now),
        revision,
    }))
}
