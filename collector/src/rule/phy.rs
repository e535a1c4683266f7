//! The physical layer: errors FEC could not correct, bad CRCs.

use super::clock::{lasting, ns, plural, when};
use super::judged::{Judged, Part};
use super::lanes;
use super::link::{names, port_of};
use super::root;
use super::settings::ErrorWindows;
use super::span::{Errors, errors};
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::observation::{Nanos, PortState};
use crate::timeline::Series;
use crate::timeline::counter_table::Meaning;

/// A lane with this many times the errors of the middle one of the others is named.
const LANE_FACTOR: f64 = 10.0;

/// `phy.post_fec`.
pub(super) struct PostFec;

impl Rule for PostFec {
    fn id(&self) -> &'static str {
        "phy.post_fec"
    }

    fn meaning(&self) -> &'static str {
        "The link receives symbols or blocks that forward error correction could not repair: data is lost now. It is the \
         most useful single sign of a dying module, cable or connector. Bits that were corrected are not meant: those \
         are normal. Errors counted while the link trains, or as the cable is pulled, are no finding."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        phy_check(view, finding, "symbol_err|corrected_bits|err_lane")
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present_ports().filter_map(|(_, port)| post_fec(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        post_fec_extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        post_fec_extent(view).in_part()
    }
}

fn post_fec_extent(view: &View<'_>) -> Judged {
    let counted = counted_by(view, &[Meaning::PostFecErrors], "errors after FEC");
    counted.or(|| long_enough(view, &view.settings.phy_post_fec))
}

fn post_fec(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.phy_post_fec;
    let (key, subject) = view.port_subject(port);
    if let Some(silent) = silent(view, port, "phy.post_fec", &["link.down"]) {
        return Some(silent);
    }
    let (found, once) = match over(view, port, Meaning::PostFecErrors, settings) {
        Standing::Holds(found) => (found, false),
        Standing::Once(found) => (found, true),
        Standing::Between => return Some(Verdict::Keep(key)),
        Standing::Clear => return None,
    };
    let mut evidence = vec![row(&found, 0.0), windows_row(&found, settings)];
    let from = view.now.saturating_sub(found.span_ns);
    let lane = lanes::standing_out(port, from, LANE_FACTOR);
    if let Some(lane) = &lane {
        evidence.push(Evidence::new(
            &*lane.counter,
            Some(found.span_ns as f64 / 1e9),
            lane.n as f64,
            LANE_FACTOR * lane.others as f64,
            lane.unit,
        ));
    }
    let crc = errors(view, port, Meaning::CrcErrors, settings.window_s, settings.of);
    if let Some(crc) = &crc {
        evidence.push(row(crc, 0.0));
    }
    let summary = format!(
        "{} FEC could not correct in {}{}{}{}",
        counted(&found, "error"),
        over_windows(&found),
        if once { ALL_THERE_IS } else { "" },
        lane.as_ref().map(|lane| format!("; {lane}")).unwrap_or_default(),
        crc.as_ref().map(|crc| format!("; {} with a bad CRC", counted(crc, "frame"))).unwrap_or_default(),
    );
    // Two counters of different layers that see the same loss leave no doubt.
    let sure = crc.is_some() && !once;
    let raised = view.raised("phy.post_fec", &key);
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: severity(once),
        grade: grade(sure, once),
        summary,
        evidence,
        advice:
            "Move the work off this port. Clean and reseat module and cable at both ends, then replace them; a single \
                 bad lane points at the module or its connector. Compare with the switch port's own counters: errors \
                 counted here were made on the way here."
                .to_owned(),
        would_raise: match (sure, once) {
            (true, _) => String::new(),
            (false, true) => "a further reading of the counters".to_owned(),
            (false, false) => "frames with a bad CRC at the same time".to_owned(),
        },
        part_of: root::of_link(view, port, &["link.down"]),
        since: found.first,
        revision: most_digits(raised, 8, found.n) << 8 | lane.map_or(0, |lane| u64::from(lane.number) + 1),
    })))
}

/// `phy.crc`.
pub(super) struct Crc;

impl Rule for Crc {
    fn id(&self) -> &'static str {
        "phy.crc"
    }

    fn meaning(&self) -> &'static str {
        "Frames arrive damaged: a bad frame check sequence (CRC), or a bad invariant CRC of RDMA (ICRC), which no link \
         check saw. A bad CRC was made on this link or passed on by a cut-through switch from another one; a bad ICRC was \
         made inside a device on the way. One damaged frame in a day is no finding."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let mut lines = phy_check(view, finding, "crc_errors|icrc|fcs");
        if let Some((device, port)) = names(finding) {
            lines.push(format!("rdma statistic show link {device}/{port}"));
        }
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present_ports().filter_map(|(_, port)| crc(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        crc_extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        crc_extent(view).in_part()
    }
}

fn crc_extent(view: &View<'_>) -> Judged {
    let counted = counted_by(view, &[Meaning::CrcErrors, Meaning::IcrcErrors], "CRC or ICRC errors");
    counted.or(|| long_enough(view, &view.settings.phy_crc))
}

fn crc(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.phy_crc;
    let (key, subject) = view.port_subject(port);
    if let Some(silent) = silent(view, port, "phy.crc", &["link.down", "phy.post_fec"]) {
        return Some(silent);
    }
    let (mut between, mut once) = (false, true);
    let mut told: Vec<(Errors, &str)> = Vec::new();
    for (meaning, what) in
        [(Meaning::CrcErrors, "frame with a bad CRC"), (Meaning::IcrcErrors, "packet with a bad ICRC")]
    {
        match over(view, port, meaning, settings) {
            Standing::Holds(found) => {
                told.push((found, what));
                once = false;
            }
            Standing::Once(found) => told.push((found, what)),
            Standing::Between => between = true,
            Standing::Clear => {}
        }
    }
    let Some((first, _)) = told.first() else { return between.then_some(Verdict::Keep(key)) };
    let since = told.iter().map(|(found, _)| found.first).min().unwrap_or(first.first);
    let post_fec = errors(view, port, Meaning::PostFecErrors, settings.window_s, settings.of);
    let rows = |(found, _): &(Errors, &str)| [row(found, 0.0), windows_row(found, settings)];
    let mut evidence: Vec<Evidence> = told.iter().flat_map(rows).collect();
    if let Some(post_fec) = &post_fec {
        evidence.push(row(post_fec, 0.0));
    } else if port.reading(Meaning::PostFecErrors).is_some() {
        evidence.push(Evidence::new("errors after FEC", Some(first.span_ns as f64 / 1e9), 0.0, 0.0, "errors"));
    }
    let here = match (&post_fec, port.reading(Meaning::PostFecErrors)) {
        (Some(_), _) => "; FEC could not correct errors of this link either: they were made here",
        (None, Some(_)) => "; FEC corrected everything on this link: they may have been made before the switch",
        (None, None) => "; whether they were made on this link is not counted",
    };
    let parts: Vec<String> = told.iter().map(|(found, what)| plural_of(found, what)).collect();
    let all = if once { ALL_THERE_IS } else { "" };
    let summary = format!("{} in {}{all}{here}", parts.join(" and "), over_windows(first));
    let n = told.iter().fold(0u64, |n, (found, _)| n.saturating_add(found.n));
    let sure = post_fec.is_some() && !once;
    let raised = view.raised("phy.crc", &key);
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: severity(once),
        grade: grade(sure, once),
        summary,
        evidence,
        advice:
            "Look which links on the way count errors: the first one, seen from the sender, is the bad one. If it is \
                 this one, clean or replace module and cable; if no link counts them, a switch or adapter damages data."
                .to_owned(),
        would_raise: match (sure, once) {
            (true, _) => String::new(),
            (false, true) => "a further reading of the counters".to_owned(),
            (false, false) => "errors after FEC of the same port at the same time".to_owned(),
        },
        part_of: root::of_link(view, port, &["link.down", "phy.post_fec"]),
        since,
        revision: most_digits(raised, 2, n) << 2 | u64::from(sure) << 1 | u64::from(told.len() > 1),
    })))
}

/// Where errors in windows stand.
enum Standing {
    /// Enough windows of the last ones had some.
    Holds(Errors),
    /// The observation has ended, the counters were read twice in all, and they had grown.
    Once(Errors),
    /// One window had some, or nothing can be said now.
    Between,
    /// None had any.
    Clear,
}

/// What is said of errors between the only two readings there are.
const ALL_THERE_IS: &str = ", between the only two readings";

fn severity(once: bool) -> Severity {
    if once { Severity::Warning } else { Severity::Critical }
}

fn grade(sure: bool, once: bool) -> Grade {
    match (sure, once) {
        (_, true) => Grade::Suspected,
        (true, false) => Grade::Confirmed,
        (false, false) => Grade::Probable,
    }
}

fn over(view: &View<'_>, port: &PortRecord, meaning: Meaning, settings: &ErrorWindows) -> Standing {
    match errors(view, port, meaning, settings.window_s, settings.of) {
        Some(found) if found.windows >= settings.windows.max(1) => Standing::Holds(found),
        Some(found) if view.world.ended => {
            let intervals: Option<Vec<Nanos>> = port.series_of(meaning).map(Series::only_interval).collect();
            match intervals.and_then(|all| all.into_iter().max()) {
                Some(span_ns) => Standing::Once(Errors { span_ns, ..found }),
                None => Standing::Between,
            }
        }
        Some(_) => Standing::Between,
        None => Standing::Clear,
    }
}

/// What a rule says of a port that is not ACTIVE and was told of before: it receives nothing that could be wrong, so what
/// was raised stays, with what was measured until then, and belongs to what heads it now.
pub(super) fn silent(
    view: &View<'_>,
    port: &PortRecord,
    rule: &'static str,
    roots: &[&'static str],
) -> Option<Verdict> {
    if matches!(port.state, PortState::Active | PortState::Unknown) {
        return None;
    }
    let (key, _) = view.port_subject(port);
    let finding = view.raised(rule, &key)?;
    let root = root::of_link(view, port, roots);
    Some(match port.left_active().filter(|_| !finding.summary.contains(UNTIL)) {
        Some(fell) => finding.ended(root, until(&finding.summary, &when(view, fell))),
        None => finding.again(root),
    })
}

/// Words by which a sentence says that it is of the time before a fall.
const UNTIL: &str = "until the port went down at";

/// A sentence about a link that is in use, once it is not any more.
fn until(summary: &str, fell: &str) -> String {
    let past = summary.replace("FEC corrects ", "FEC corrected ");
    let past = past.replace(" has ", " had ");
    match past.split_once(" in the last ") {
        Some((what, rest)) => {
            let (length, rest) = rest.split_at(rest.find(';').unwrap_or(rest.len()));
            format!("{what} in the {length} {UNTIL} {fell}{rest}")
        }
        None => format!("{past}; measured {UNTIL} {fell}"),
    }
}

/// `the last 24.0 s`: what the numbers cover. The newest window is still open.
fn over_windows(found: &Errors) -> String {
    format!("the last {}", lasting(found.span_ns))
}

/// In how many of the windows there were errors, which is what is judged.
fn windows_row(found: &Errors, settings: &ErrorWindows) -> Evidence {
    let length = lasting(ns(settings.window_s).max(found.span_ns / settings.of.max(1)));
    let name = format!("windows of {length} with errors, of {}", settings.of);
    Evidence::new(name, None, found.windows as f64, settings.windows as f64, "windows")
}

fn counted(found: &Errors, one: &str) -> String {
    let at_least = if found.at_least { "at least " } else { "" };
    format!("{at_least}{}", plural(found.n, one))
}

/// `3 frames with a bad CRC`.
fn plural_of(found: &Errors, what: &str) -> String {
    let (one, rest) = what.split_once(' ').unwrap_or((what, ""));
    format!("{} {rest}", counted(found, one))
}

/// The evidence of errors in windows.
pub(super) fn row(found: &Errors, threshold: f64) -> Evidence {
    let (name, unit) = &found.counter;
    Evidence::new(&**name, Some(found.span_ns as f64 / 1e9), found.n as f64, threshold, *unit)
}

/// The digits of a count that a finding is told again for: no fewer than it was told with, which are in the revision from
/// bit `shift` on. A sum over the last windows falls and rises again while nothing is new.
pub(super) fn most_digits(raised: Option<&Finding>, shift: u32, n: u64) -> u64 {
    raised.map_or(0, |finding| finding.revision() >> shift).max(digits(n))
}

/// How often a finding about a count is told again: every time it has more digits.
pub(super) fn digits(n: u64) -> u64 {
    u64::from(n.checked_ilog10().map_or(0, |log| log + 1))
}

/// Where to look at a port's physical layer.
pub(super) fn phy_check(view: &View<'_>, finding: &Finding, pattern: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for netdev in port_of(view.world, finding).into_iter().flat_map(|port| &port.netdevs) {
        lines.push(format!("ethtool -S {netdev} | grep -E '{pattern}'"));
        lines.push(format!("ethtool -I --show-fec {netdev}"));
        lines.push(format!("ethtool -m {netdev}"));
    }
    if let Some((device, port)) = names(finding) {
        lines.push(format!("sudo mlxlink -d {device} -p {port} -c"));
    }
    lines
}

/// How far a rule is judged that wants errors in several windows: of an observation that ended before those were there, with
/// that reservation.
fn long_enough(view: &View<'_>, settings: &ErrorWindows) -> Judged {
    let (windows, window) = (settings.windows.max(1), ns(settings.window_s));
    let watched = view.now.saturating_sub(view.world.watched_since());
    if !view.world.ended || watched >= window.saturating_mul(windows) {
        return Judged::All;
    }
    let (window, watched) = (lasting(window), lasting(watched));
    let reason =
        format!("errors are told that show in {windows} windows of {window}, and it was watched for {watched}");
    Judged::with(view.world.present_ports().count(), reason)
}

/// How far a rule is judged that cannot judge ports without a counter of these meanings.
pub(super) fn counted_by(view: &View<'_>, meanings: &[Meaning], what: &str) -> Judged {
    view.of_ports(|all| {
        let blind = |port: &&PortRecord| meanings.iter().all(|meaning| port.reading(*meaning).is_none());
        let blind: Vec<&PortRecord> = all.iter().copied().filter(blind).collect();
        view.without(&blind, all.len(), |ports| format!("no {what} counted on {ports}"))
    })
}
