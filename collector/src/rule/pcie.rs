//! Errors on the way to the host, as PCIe's Advanced Error Reporting tells them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::clock::{plural, when};
use super::judged::{Judged, Part};
use super::{Rule, Trigger, View, root};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, SubjectKey, Verdict};
use crate::inventory::{AerClass, AerCount, AerTally, PcieRecord, SKEW_NS, is_replay};
use crate::observation::{AerSeverity, Nanos};

/// Series of the evidence of `pcie.aer_fatal`, of a function's own errors.
const NONFATAL: &str = "uncorrected errors, non-fatal";
const FATAL: &str = "uncorrected errors, fatal";
const ROOT_FATAL: &str = "aer_rootport_total_err_fatal, of unknown origin";

const MINUTE_NS: u64 = 60_000_000_000;

/// Functions that carry RDMA traffic, or did until their device vanished: those of devices (also of one whose ports nobody
/// told of), and those behind software devices' network devices.
fn functions(view: &View<'_>) -> BTreeSet<Arc<str>> {
    let of_ports = view.world.ports.iter().filter_map(|port| view.world.function_of(port).cloned());
    of_ports.chain(view.world.devices.iter().filter_map(|device| device.pci.clone())).collect()
}

/// Every function on the way from a root port to an RDMA function, that one included.
fn on_the_way<'w>(view: &View<'w>) -> Vec<&'w PcieRecord> {
    let mut all = BTreeSet::new();
    for function in functions(view) {
        if let Some(record) = view.world.pcie.get(&function) {
            all.extend(record.path.iter().cloned());
        }
        all.insert(function);
    }
    all.iter().filter_map(|pci| view.world.pcie.get(pci)).map(|record| &**record).collect()
}

/// Those of them that had any AER error while watched.
fn with_errors<'w>(view: &View<'w>) -> Vec<&'w PcieRecord> {
    // On a healthy node there are none, and this is asked every window.
    if !view.world.pcie.values().any(|record| record.had_errors()) {
        return Vec::new();
    }
    on_the_way(view).into_iter().filter(|record| record.had_errors()).collect()
}

/// Messages a root port counted that no function below it (nor itself) accounts for: their origin is not known, and it
/// may be a function that has nothing to do with RDMA. They are judged when what explains them had time to come.
fn unexplained(view: &View<'_>, root: &PcieRecord, severity: AerSeverity, from: Nanos) -> AerCount {
    let below = view.world.pcie.values().filter(|f| f.pci == root.pci || f.path.first() == Some(&root.pci));
    let span = (from.saturating_sub(SKEW_NS), view.now.saturating_sub(SKEW_NS));
    root.uncorrected.unexplained(below.map(|f| &f.uncorrected), severity, span)
}

/// Kinds of errors seen from `first` on, by name, for the sentence.
fn kinds(record: &PcieRecord, severities: &[AerSeverity], first: Nanos, wanted: fn(&str) -> bool) -> String {
    let from = first.saturating_sub(1);
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (_, event) in record.events.since(from).filter(|(_, e)| severities.contains(&e.severity)) {
        names.extend(event.names.iter().map(|name| &**name));
    }
    for (_, (severity, name, _)) in record.growth.since(from) {
        if severities.contains(severity) && !name.starts_with("TOTAL_") && !name.contains("total_err") {
            names.insert(name);
        }
    }
    let names: Vec<&str> = names.into_iter().filter(|name| wanted(name)).take(4).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// The place of a function: the NIC itself, its link partner, or a bridge further up.
fn place(view: &View<'_>, record: &PcieRecord) -> &'static str {
    let functions = functions(view);
    if functions.contains(&record.pci) {
        return "";
    }
    let partner = functions.iter().filter_map(|f| view.world.pcie.get(f)).any(|f| f.partner() == Some(&record.pci));
    if partner { ", the NIC's link partner" } else { ", a bridge on the NIC's path" }
}

/// How often a finding about a growing count is told again: every time the count has doubled.
fn doublings(n: u64) -> u64 {
    u64::from(u64::BITS - n.leading_zeros())
}

fn aer_check(view: &View<'_>, finding: &Finding) -> Vec<String> {
    let Some(pci) = finding.subject.pci.as_deref() else { return Vec::new() };
    let mut lines = vec![
        format!("grep . /sys/bus/pci/devices/{pci}/aer_dev_*"),
        format!("sudo lspci -vvv -s {pci} | grep -E 'LnkCap|LnkSta|DevSta|CESta|UESta'"),
        format!("dmesg -T | grep -E 'AER|{pci}' | tail -n 40"),
    ];
    if let Some(root) = view.world.pcie.get(pci).and_then(|record| record.path.first()).filter(|root| ***root != *pci) {
        lines.push(format!("grep . /sys/bus/pci/devices/{root}/aer_rootport_total_err_*"));
    }
    lines
}

/// How far errors of the way to the host can be seen.
fn aer_extent(view: &View<'_>) -> Judged {
    let all = on_the_way(view);
    if all.is_empty() {
        return Judged::Not("no PCIe function of an RDMA device is visible".to_owned());
    }
    if all.iter().all(|f| f.aer.is_none() && !f.had_errors()) {
        return Judged::Not(if all.iter().any(|f| f.aer_owned == Some(false)) {
            "firmware owns AER: the counts stay at 0 whatever happens".to_owned()
        } else {
            "no function on the way shows AER counts".to_owned()
        });
    }
    let unowned: Vec<&str> = all.iter().filter(|f| f.aer_owned == Some(false)).map(|f| &*f.pci).collect();
    let reason = format!("firmware owns AER on {}", unowned.join(", "));
    Judged::without(unowned.iter().map(|pci| SubjectKey::Pci((*pci).into())).collect(), all.len(), reason)
}

/// `pcie.aer_storm`.
pub(super) struct AerStorm;

impl Rule for AerStorm {
    fn id(&self) -> &'static str {
        "pcie.aer_storm"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Pcie
    }

    fn meaning(&self) -> &'static str {
        "The PCIe link of the NIC corrects errors all the time, or had to replay transactions until its counter rolled \
         over or its timer ran out. Corrected errors cost bandwidth and latency and are a sign of a bad slot, riser or \
         retimer; a few of them a day are normal. They say nothing about the cable or the switch."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        aer_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        with_errors(view).into_iter().filter_map(|record| storm(view, record)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        storm_extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        storm_extent(view).in_part()
    }
}

fn storm_extent(view: &View<'_>) -> Judged {
    aer_extent(view).or(|| {
        let minutes = view.settings.pcie_aer_storm.minutes.clamp(1, 60);
        let watched_s = view.watched_s();
        if watched_minutes(view, u64::from(minutes)).is_some() {
            return Judged::All;
        }
        let reason = format!(
            "watched for {watched_s:.0} s of the {minutes} minutes a storm takes; replay errors are judged at once"
        );
        Judged::with(on_the_way(view).len(), reason)
    })
}

/// The begin of the last minutes a storm takes; `None` while they were not all watched from their begin to their end.
fn watched_minutes(view: &View<'_>, minutes: u64) -> Option<Nanos> {
    let start = AerTally::edge(view.now).checked_sub(minutes * MINUTE_NS)?;
    (start >= view.world.started).then_some(start)
}

/// From when on errors are counted for what is told: the time looked back over, and from the finding's begin where that is
/// longer. What an incident came to does not become less while it grows old.
fn counted_from(view: &View<'_>, raised: Option<&Finding>, look_back_s: f64) -> Nanos {
    let from = view.ago(look_back_s);
    raised.map_or(from, |finding| from.min(finding.first_t))
}

/// What a rule says of errors that are over: they stay a sign of the port's fall for as long as the port is down.
fn sign_of_a_fall(view: &View<'_>, raised: Option<&Finding>, pci: &str) -> Option<Verdict> {
    let finding = raised?;
    let root = root::of_function(view, pci, &["link.down"])?;
    let before = view.raised(root.0, &root.1).is_some_and(|down| finding.first_t <= down.first_t);
    before.then(|| finding.again(Some(root)))
}

/// The time between the first and the last of them, s; `None` where they came at one moment, as an event does.
fn spread_s(count: &AerCount) -> Option<f64> {
    let ns = count.last?.saturating_sub(count.first?);
    (ns > 0).then(|| ns as f64 / 1e9)
}

fn storm(view: &View<'_>, record: &PcieRecord) -> Option<Verdict> {
    let settings = &view.settings.pcie_aer_storm;
    let (key, subject) = view.pci_subject(&record.pci);
    let raised = view.raised("pcie.aer_storm", &key);
    let newest_replay = record.tally.count(AerClass::Replay, view.ago(settings.clear_s), view.now);
    let minutes = u64::from(settings.minutes.clamp(1, 60));
    let start = watched_minutes(view, minutes);
    let least = start.map(|start| {
        let minute = |i: u64| (start + i * MINUTE_NS, start + (i + 1) * MINUTE_NS - 1);
        let counts = (0..minutes).map(minute).map(|(from, to)| record.tally.count(AerClass::Corrected, from, to).n);
        counts.min().unwrap_or(0)
    });
    let storming = least.is_some_and(|least| least > settings.per_minute);
    if !storming && newest_replay.n == 0 {
        // Over when the last minute is quiet.
        let newest = record.tally.count(AerClass::Corrected, view.now.saturating_sub(MINUTE_NS), view.now);
        if raised.is_some() && newest.n > settings.per_minute {
            return Some(Verdict::Keep(key));
        }
        return sign_of_a_fall(view, raised, &record.pci);
    }
    let replay = record.tally.count(AerClass::Replay, counted_from(view, raised, settings.clear_s), view.now);
    let from = counted_from(view, raised, settings.clear_s.max(minutes as f64 * 60.0));
    let corrected = record.tally.count(AerClass::Corrected, from, view.now);
    let mut evidence = Vec::new();
    if replay.n > 0 {
        evidence.push(Evidence::new("Rollover + Timeout", spread_s(&replay), replay.n as f64, 0.0, "errors"));
    }
    if let Some(least) = least.filter(|_| storming) {
        let window_s = minutes as f64 * 60.0;
        evidence.push(Evidence::new(
            "corrected errors, quietest minute",
            Some(window_s),
            least as f64,
            settings.per_minute as f64,
            "errors/min",
        ));
    }
    evidence.push(Evidence::new("corrected errors", spread_s(&corrected), corrected.n as f64, None, "errors"));
    let first = if replay.n > 0 { replay.first } else { corrected.first };
    let since = first.unwrap_or(view.now);
    let place = place(view, record);
    // A count begins no later than what is in it, and names nothing else: the other errors have a begin of their own.
    let others_since = corrected.first.unwrap_or(since);
    let summary = if replay.n > 0 {
        let others = match corrected.n.saturating_sub(replay.n) {
            0 => String::new(),
            n => format!(
                "; {}{} since {}",
                plural(n, "other corrected error"),
                kinds(record, &[AerSeverity::Corrected], others_since, |name| !is_replay(name)),
                when(view, others_since)
            ),
        };
        let what = kinds(record, &[AerSeverity::Corrected], since, is_replay);
        format!("{}{what} since {}{others}{place}", plural(replay.n, "replay error"), when(view, since))
    } else {
        let least = least.unwrap_or(0);
        let what = kinds(record, &[AerSeverity::Corrected], since, |_| true);
        format!("at least {least} corrected errors{what} in each of the last {minutes} minutes{place}")
    };
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade: Grade::Confirmed,
        summary,
        evidence,
        advice: "The PCIe link is marginal. Plan to drain the node; reseat the adapter, then try another slot, riser or \
                 cable. Compare with the other functions under the same switch: errors on one link are its own, errors on \
                 all point at the uplink."
            .to_owned(),
        would_raise: String::new(),
        part_of: root::of_function(view, &record.pci, &["link.down", "pcie.aer_fatal"]),
        since,
        revision: doublings(replay.n.max(corrected.n)) << 8 | doublings(replay.n),
    })))
}

/// A raised `pcie.aer_fatal` rests on fatal errors, or messages of such: the rule's name alone does not say so.
#[must_use]
pub fn was_fatal(finding: &Finding) -> bool {
    finding.evidence.iter().any(|row| row.series == FATAL || row.series == ROOT_FATAL)
}

/// `pcie.aer_fatal`.
pub(super) struct AerFatal;

impl Rule for AerFatal {
    fn id(&self) -> &'static str {
        "pcie.aer_fatal"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Pcie
    }

    fn meaning(&self) -> &'static str {
        "An uncorrected PCIe error on the way between the host and a NIC: a transaction was lost (non-fatal) or the link \
         is no longer reliable (fatal). Expect the driver to reset the adapter, or the port to go down. Errors of \
         functions that carry no RDMA traffic are not told."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        aer_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        with_errors(view).into_iter().filter_map(|record| fatal(view, record)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        aer_extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        aer_extent(view).in_part()
    }
}

fn fatal(view: &View<'_>, record: &PcieRecord) -> Option<Verdict> {
    let clear_s = view.settings.pcie_aer_fatal.clear_s;
    let (key, subject) = view.pci_subject(&record.pci);
    let raised = view.raised("pcie.aer_fatal", &key);
    let recent = |class| record.tally.count(class, view.ago(clear_s), view.now).n;
    let reported = |severity| unexplained(view, record, severity, view.ago(clear_s)).n;
    if recent(AerClass::Nonfatal) == 0
        && recent(AerClass::Fatal) == 0
        && reported(AerSeverity::Nonfatal) == 0
        && reported(AerSeverity::Fatal) == 0
    {
        return sign_of_a_fall(view, raised, &record.pci);
    }
    let from = counted_from(view, raised, clear_s);
    let nonfatal = record.tally.count(AerClass::Nonfatal, from, view.now);
    let fatal = record.tally.count(AerClass::Fatal, from, view.now);
    let own = nonfatal.n.saturating_add(fatal.n);
    let root_nonfatal = unexplained(view, record, AerSeverity::Nonfatal, from);
    let root_fatal = unexplained(view, record, AerSeverity::Fatal, from);
    let messages = root_nonfatal.n.saturating_add(root_fatal.n);
    let mut evidence = Vec::new();
    let mut add = |series: &str, count: AerCount, unit: &str| {
        if count.n > 0 {
            evidence.push(Evidence::new(series, spread_s(&count), count.n as f64, 0.0, unit));
        }
    };
    add(NONFATAL, nonfatal, "errors");
    add(FATAL, fatal, "errors");
    add("aer_rootport_total_err_nonfatal, of unknown origin", root_nonfatal, "messages");
    add(ROOT_FATAL, root_fatal, "messages");
    let counts = if own > 0 { [nonfatal, fatal] } else { [root_nonfatal, root_fatal] };
    let told = counts.iter().filter(|count| count.n > 0);
    let since = told.filter_map(|count| count.first).min().unwrap_or(view.now);
    let severe = match (counts[0].n, counts[1].n) {
        (n, 0) => plural(n, "uncorrected (non-fatal) error"),
        (0, n) => plural(n, "uncorrected (fatal) error"),
        (nonfatal, fatal) => {
            format!("{nonfatal} uncorrected (non-fatal) and {}", plural(fatal, "uncorrected (fatal) error"))
        }
    };
    let at = when(view, since);
    let (grade, summary, would_raise) = if own > 0 {
        let what = kinds(record, &[AerSeverity::Nonfatal, AerSeverity::Fatal], since, |_| true);
        (Grade::Confirmed, format!("{severe}{what} since {at}{}", place(view, record)), String::new())
    } else {
        (
            Grade::Suspected,
            format!("{severe} reported to the root port by a function below it since {at}"),
            "an AER event or count of the function that reported".to_owned(),
        )
    };
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Critical,
        grade,
        summary,
        evidence,
        advice:
            "Move the work off this adapter now: the port may go down at any moment. Then look in the kernel log for \
                 the driver's reaction, reseat the adapter, and replace it or its slot if the error comes back."
                .to_owned(),
        would_raise,
        part_of: root::of_function(view, &record.pci, &["link.down"]),
        since,
        revision: doublings(own) << 8 | doublings(messages),
    })))
}
