//! The link: down, and going up and down.

use super::clock::{at_least, lasting, least, ns, plural, when};
use super::fall::{Cause, Fall, active_sibling, fall, switched_off};
use super::judged::{Judged, Part};
use super::predicts::FALL_SIGNS;
use super::{Rule, Trigger, View, lanes, root};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Subject, SubjectKey, Verdict};
use crate::inventory::{PortRecord, Role, World};
use crate::observation::{Nanos, PortState, QpState};
use crate::timeline::Series;
use crate::timeline::counter_table::Meaning;

/// Signs of a fall that are errors of the link itself.
const OF_LINK: [&str; 4] = ["phy.pre_fec_trend", "phy.post_fec", "phy.crc", "phy.symbol"];

/// `link.down`.
pub(super) struct LinkDown;

impl Rule for LinkDown {
    fn id(&self) -> &'static str {
        "link.down"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Port
    }

    fn meaning(&self) -> &'static str {
        "The port does not carry data: it left ACTIVE, its device vanished, or it was down when watching began although \
         the configuration, its sibling ports or the QPs that were connected on it say it should be up. It is no finding that an uncabled or switched-off \
         port is down, that a virtual function is down together with its physical one, or that a management \
         sub-device waits in INIT."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some((device, port)) = names(finding) else { return Vec::new() };
        let mut lines = vec![
            format!("rdma link show {device}/{port}"),
            format!(
                "cat /sys/class/infiniband/{device}/ports/{port}/state /sys/class/infiniband/{device}/ports/{port}/phys_state"
            ),
        ];
        if let Some(record) = port_of(view.world, finding) {
            if record.link_layer == crate::observation::LinkLayer::InfiniBand {
                lines.push(format!("ibstat {device} {port}"));
            }
            for netdev in &record.netdevs {
                lines.push(format!("ip -d link show {netdev}"));
                lines.push(format!("ethtool {netdev}; ethtool -m {netdev}"));
            }
            if let Some(pci) = view.world.function_of(record) {
                lines.push(format!("dmesg -T | grep -E '{device}|{pci}' | tail -n 40"));
            }
        }
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let ports = view.world.ports.iter();
        ports.filter_map(|port| fall(view, port).map(|fall| down(view, port, fall))).chain(absent(view)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        let known = view.world.present_ports().any(|(_, port)| port.state != PortState::Unknown);
        (!known).then(|| "the state of no port can be read".to_owned())
    }
}

/// Ports that the configuration names and that were not there from the beginning: an adapter that fell off the bus before.
fn absent(view: &View<'_>) -> Option<Verdict> {
    let world = view.world;
    // A driver that is being loaded gets the time of one that is reloaded. Where no device is seen, nothing is known of any.
    let early = view.now < world.started.saturating_add(ns(view.settings.link_down.vanished_s)) && !world.ended;
    if early || world.present().next().is_none() {
        return None;
    }
    let there = |(device, number): &(&str, u32)| {
        world.ports.iter().any(|port| port.key.port == *number && *world.device(port.key.device).name == **device)
    };
    let absent: Vec<(&str, u32)> =
        view.settings.link_down.expected.named().filter(|expected| !there(expected)).collect();
    let (device, port) = *absent.first()?;
    let names: Vec<String> = absent.iter().map(|(device, port)| format!("{device}/{port}")).collect();
    let (names, are) = (names.join(", "), if absent.len() == 1 { "is" } else { "are" });
    Some(Verdict::Holds(Box::new(Conclusion {
        key: SubjectKey::Node,
        subject: Subject { device: Some(device.into()), port: Some(port), ..Subject::default() },
        severity: Severity::Critical,
        grade: Grade::Confirmed,
        summary: format!(
            "{names} {are} not there; the configuration expects {}",
            if absent.len() == 1 { "it up" } else { "them up" }
        ),
        evidence: vec![Evidence::new("expected ports that are not there", None, absent.len() as f64, 0.0, "ports")],
        advice:
            "See whether the adapter is on the bus (lspci) and its driver loaded, and what the kernel log says of it; \
                 or mend the name in the configuration."
                .to_owned(),
        would_raise: String::new(),
        part_of: None,
        since: world.started,
        revision: absent.len() as u64,
    })))
}

fn down(view: &View<'_>, port: &PortRecord, fall: Fall) -> Verdict {
    let (key, subject) = view.port_subject(port);
    let expected = view.settings.link_down.expected.matches(subject.device.as_deref().unwrap_or(""), port.key.port);
    let at = when(view, fall.t);
    // The event comes before the physical state is read again.
    let phys = port.phys_state.as_deref().filter(|phys| port.state != PortState::Down || !phys.contains("LinkUp"));
    let state = phys.map_or(port.state.name().to_owned(), |phys| format!("{} / {phys}", port.state.name()));
    let mut evidence = vec![Evidence::new(format!("state {state}"), None, None, None, "ACTIVE expected")];
    let mut revision = 0;
    let mut signs = Vec::new();
    let (severity, summary) = match fall.cause {
        Cause::Left => {
            let toll = Toll::of(view, port, fall.t);
            evidence.extend(toll.evidence());
            revision = toll.died.saturating_add(toll.ordered);
            signs = signs_before(view, port, fall.t);
            for (rule, ns) in &signs {
                evidence.push(Evidence::new(format!("{rule} before"), None, *ns as f64 / 1e9, None, "s"));
            }
            let signs: Vec<String> = signs.iter().map(|(rule, ns)| format!("{rule} {} before", lasting(*ns))).collect();
            let signs = if signs.is_empty() { String::new() } else { format!("; signs: {}", signs.join(", ")) };
            if switched_off(port) && !expected {
                (Severity::Info, format!("port was switched off at {at}{toll}{signs}"))
            } else {
                (Severity::Critical, format!("port left ACTIVE at {at}{toll}{signs}"))
            }
        }
        Cause::Vanished => {
            let software = view.world.device(port.key.device).pci.is_none();
            let severity = if software { Severity::Warning } else { Severity::Critical };
            (severity, format!("device vanished while ACTIVE at {at}"))
        }
        Cause::FoundDown => {
            let sibling = active_sibling(view, port).map(|sibling| {
                let (_, subject) = view.port_subject(sibling);
                subject.to_string()
            });
            let (severity, why) = match (expected, sibling) {
                (true, _) => (Severity::Critical, "; the configuration expects it up".to_owned()),
                (false, _) if switched_off(port) => (Severity::Info, "; somebody switched it off".to_owned()),
                (false, Some(sibling)) => (Severity::Critical, format!("; its sibling {sibling} is ACTIVE")),
                (false, None) => (Severity::Warning, String::new()),
            };
            let used = match port.were_connected_qps {
                0 => String::new(),
                1 => "; 1 QP was connected on it".to_owned(),
                n => format!("; {n} QPs were connected on it"),
            };
            if port.were_connected_qps > 0 {
                evidence.push(Evidence::new(
                    "QPs that were connected on it",
                    None,
                    f64::from(port.were_connected_qps),
                    0.0,
                    "QPs",
                ));
            }
            (severity, format!("{} since before watching{why}{used}", port.state.name()))
        }
    };
    let advice = advice(view, port, fall, &signs);
    Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity,
        grade: Grade::Confirmed,
        summary,
        evidence,
        advice,
        would_raise: String::new(),
        part_of: None,
        since: fall.t,
        // The severity may change with the physical state that is read after the event; it counts as a change by itself.
        revision,
    }))
}

/// What to do first: what came before the fall tells where to look.
fn advice(view: &View<'_>, port: &PortRecord, fall: Fall, signs: &[(&'static str, Nanos)]) -> String {
    const QPS: &str = "Jobs with QPs on this port need to be restarted or moved.";
    let any = |of: &[&str]| signs.iter().any(|(rule, _)| of.contains(rule));
    match fall.cause {
        Cause::Vanished => {
            "Look in the kernel log for a surprise removal, a driver unload or a PCIe error of this function; drain \
                            what used it and reseat or replace the adapter if nobody removed it."
                .to_owned()
        }
        Cause::Left if any(&["pcie.aer_fatal", "pcie.aer_storm"]) => format!(
            "PCIe errors came first: look in the kernel log for the driver's reaction, then reseat the adapter, and replace \
             it, its slot or riser if the errors come back. Cable and switch come after that. {QPS}"
        ),
        Cause::Left if any(&["nic.stuck", "nic.health"]) => format!(
            "The adapter was in trouble first: look in the kernel log and at devlink health for its firmware's and driver's \
             reports, reset or replace it if they come back. Cable and switch come after that. {QPS}"
        ),
        Cause::Left if any(&OF_LINK) => {
            let (lane, points) = match root::told_of(view, port, &OF_LINK, fall.t).find_map(lanes::named) {
                Some(lane) => {
                    (format!(" (lane {lane} had most of them)"), " One bad lane points at a module or its connector.")
                }
                None => (String::new(), ""),
            };
            format!(
                "Errors of the link came first{lane}: clean and reseat module and cable at both ends, then replace them.{points} \
                 The switch port comes after that; compare with its counters. {QPS}"
            )
        }
        Cause::Left | Cause::FoundDown => format!(
            "Check cable, module and the switch port at the other end; compare with the switch's log at this time. {QPS}"
        ),
    }
}

/// Signs of trouble that were raised about the port or its function as it fell, and how long before, the earliest first:
/// also those that are over by now.
fn signs_before(view: &View<'_>, port: &PortRecord, fall: Nanos) -> Vec<(&'static str, Nanos)> {
    let mut signs: Vec<(&'static str, Nanos)> = root::seen_of(view, port, &FALL_SIGNS, fall)
        .into_iter()
        .filter(|(_, first)| *first < fall)
        .map(|(rule, first)| (rule, fall - first))
        .collect();
    signs.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let mut told = Vec::new();
    signs.retain(|(rule, _)| {
        !told.contains(rule) && {
            told.push(*rule);
            true
        }
    });
    signs
}

/// What the fall of a port did to its QPs.
struct Toll {
    died: u64,
    ordered: u64,
    drained: u64,
    /// There may have been more.
    in_part: bool,
    first: Nanos,
    last: Nanos,
}

impl Toll {
    fn of(view: &View<'_>, port: &PortRecord, t: Nanos) -> Self {
        let in_part = view.world.qp_failures.in_part(t.saturating_sub(1));
        let mut toll = Self { died: 0, ordered: 0, drained: 0, in_part, first: Nanos::MAX, last: 0 };
        let after = view.world.qp_failures.since(t.saturating_sub(1));
        for (at, failure) in after.filter(|(_, f)| f.device == port.key.device && f.port == Some(port.key.port)) {
            if failure.asked {
                toll.ordered += 1;
            } else {
                toll.died += 1;
                toll.first = toll.first.min(at.saturating_sub(t));
                toll.last = toll.last.max(at.saturating_sub(t));
            }
            toll.drained += u64::from(failure.from == QpState::Sqd);
        }
        toll
    }

    fn evidence(&self) -> Option<Evidence> {
        (self.died > 0).then(|| {
            let window_s = self.last as f64 / 1e9;
            let series = least("QPs in error after the port left ACTIVE", self.in_part);
            Evidence::new(series, Some(window_s), self.died as f64, 0.0, "QPs")
        })
    }
}

impl std::fmt::Display for Toll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.died > 0 {
            let (first, last) = (self.first / 1_000_000, self.last / 1_000_000);
            let range = if first == last { lasting(self.last) } else { format!("{first}–{last} ms") };
            write!(f, "; {}{} in error {range} later", at_least(self.in_part), plural(self.died, "QP"))?;
        }
        if self.ordered > 0 {
            write!(f, "; {} torn down by their application", plural(self.ordered, "QP"))?;
        }
        match (self.died + self.ordered, self.drained) {
            (0, _) => Ok(()),
            (_, 0) => f.write_str("; no drain"),
            (_, drained) => write!(f, "; {} drained before", plural(drained, "QP")),
        }
    }
}

/// `link.flap`.
pub(super) struct LinkFlap;

impl Rule for LinkFlap {
    fn id(&self) -> &'static str {
        "link.flap"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Port
    }

    fn meaning(&self) -> &'static str {
        "The link went down and came back more than once within an hour. Short outages that no poll of the state sees \
         are counted by the link-down counters. One long outage is no flap, and neither is a device that was removed \
         and came back."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some((device, port)) = names(finding) else { return Vec::new() };
        let mut lines = vec![format!("cat /sys/class/infiniband/{device}/ports/{port}/counters/link_downed")];
        for netdev in port_of(view.world, finding).into_iter().flat_map(|port| &port.netdevs) {
            lines.push(format!("cat /sys/class/net/{netdev}/carrier_down_count"));
            lines.push(format!("ethtool -S {netdev} | grep link_down_events_phy; ethtool -m {netdev}"));
            lines.push(format!("dmesg -T | grep -E '{netdev}.*[Ll]ink' | tail -n 40"));
        }
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present_ports().filter_map(|(_, port)| flap(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        flap_extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        flap_extent(view).in_part()
    }
}

fn flap_extent(view: &View<'_>) -> Judged {
    let window_s = view.settings.link_flap.window_s;
    if !view.world.present_ports().any(|(_, port)| port.state != PortState::Unknown) {
        return Judged::Not("the state of no port can be read".to_owned());
    }
    let watched_s = view.watched_s();
    if watched_s >= window_s {
        return Judged::All;
    }
    let reason = format!("watched for {watched_s:.0} s of the {window_s:.0} s it looks back over");
    Judged::with(view.world.present_ports().count(), reason)
}

fn flap(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.link_flap;
    let from = view.ago(settings.window_s);
    let (seen, first_seen) = cycles(port, from);
    // The counter of the same flap may be read before the state has changed back.
    let still_down = u64::from(port.state == PortState::Down);
    let counter = counted(port, from);
    let by_counter = counter.map_or(0, |(_, downs)| downs.saturating_sub(still_down));
    let n = seen.max(by_counter);
    if n == 0 {
        return None;
    }
    let role = view.world.role(port.key.device);
    let follows = role == Some(Role::Vf) && view.world.parent(port.key.device).is_some();
    if follows || role == Some(Role::Management) {
        return None;
    }
    let (key, subject) = view.port_subject(port);
    if n < settings.warning {
        // Once raised it stays until the hour is clean but for the last flap.
        return view.raised("link.flap", &key).is_some().then_some(Verdict::Keep(key));
    }
    let severity = if n >= settings.critical { Severity::Critical } else { Severity::Warning };
    let window_s = settings.window_s.min(view.watched_s());
    let mut evidence = vec![Evidence::new(
        "state changes DOWN → ACTIVE",
        Some(window_s),
        seen as f64,
        settings.warning as f64,
        "times",
    )];
    if let Some((series, downs)) = counter {
        evidence.push(Evidence::new(&*series.name, Some(window_s), downs as f64, settings.warning as f64, "times"));
    }
    let counter_first = counter.and_then(|(series, _)| {
        series.changes_since(from).filter(|(_, n)| n.is_some_and(|n| n > 0)).last().map(|(t, _)| t)
    });
    let since = first_seen.into_iter().chain(counter_first).min().unwrap_or(view.now);
    let seen_too = seen >= settings.warning;
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity,
        grade: if seen_too { Grade::Confirmed } else { Grade::Probable },
        summary: format!("link went down and came back {n} times in the last {}", lasting(ns(window_s))),
        evidence,
        advice:
            "Clean or reseat cable and module at both ends, then replace them; look at the switch port's counters. \
                 Until then keep jobs off this port: every flap costs its QPs a retransmission timeout or their life."
                .to_owned(),
        would_raise: if seen_too { String::new() } else { "state changes seen by events or a finer poll".to_owned() },
        part_of: root::of_link(view, port, &["link.down", "nic.stuck", "pcie.aer_fatal", "phy.post_fec", "phy.crc"]),
        since,
        revision: n,
    })))
}

/// Full cycles (left ACTIVE, came back) after `from` as the state shows them, and when the first began.
fn cycles(port: &PortRecord, from: Nanos) -> (u64, Option<Nanos>) {
    let (mut n, mut first) = (0, None);
    let (mut left, mut was_active) = (None, port.first_seen.1 == PortState::Active);
    for (t, change) in port.states.iter() {
        match change.to {
            PortState::Active => {
                if let Some(left) = left.take()
                    && *t > from
                {
                    n += 1;
                    first.get_or_insert(left);
                }
                was_active = true;
            }
            // A device that was away (or could not be read) and comes back down has not fallen.
            PortState::Unknown => was_active = false,
            _ => {
                if was_active {
                    left.get_or_insert(*t);
                }
            }
        }
    }
    (n, first)
}

/// Link-downs after `from` as the counters have them: the one that shows most, for they count the same thing.
fn counted(port: &PortRecord, from: Nanos) -> Option<(&Series, u64)> {
    let series = port.sets.iter().filter(|set| set.bound.is_none()).flat_map(|set| &set.series);
    let grown = series.filter(|series| series.def.meaning == Some(Meaning::LinkDowned));
    let mut most: Option<(&Series, u64)> = None;
    for series in grown {
        if let Some(growth) = series.growth_since(from)
            && most.is_none_or(|(_, n)| growth.sum > n)
        {
            most = Some((series, growth.sum));
        }
    }
    most
}

/// Device and port name of a finding about a port.
pub(super) fn names(finding: &Finding) -> Option<(&str, u32)> {
    Some((finding.subject.device.as_deref()?, finding.subject.port?))
}

/// The port a finding is about.
pub(super) fn port_of<'w>(world: &'w World, finding: &Finding) -> Option<&'w PortRecord> {
    let SubjectKey::Port(device, port) = finding.key else { return None };
    world.port(crate::inventory::PortKey { device, port })
}
