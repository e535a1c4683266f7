//! `check`: a one-shot health check for scripts and prologs, with the exit codes monitoring plugins use.

use serde::Serialize;

use super::ports::Port;
use super::table::{line, or_dash};
use super::{findings, notes};
use crate::finding::{Finding, Severity};
use crate::incident;
use crate::inventory::{DeviceId, DeviceRecord, Role, World};
use crate::observation::PortState;
use crate::rule::{self, View};
use crate::source::sysfs::{STATE_READS, UNLISTED};

/// The verdict on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing is wrong as far as can be seen.
    Ok,
    /// A warning is raised, or some of the devices could not be read: `reason` says so.
    Warning,
    /// A critical finding is raised.
    Critical,
    /// No port could be read: no RDMA here, or devices that cannot be read; `reason` says which.
    Unknown,
}

impl Verdict {
    /// The exit code: 0 ok, 1 warning, 2 critical, 3 unknown.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => 3,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// `check --json`; stable.
#[derive(Debug, Serialize)]
pub struct CheckReport<'w> {
    /// The verdict on the node.
    pub verdict: Verdict,
    /// Why not every port could be judged; null when all were.
    pub reason: Option<String>,
    /// The ports as in `ports`.
    pub ports: Vec<Port>,
    /// Raised findings, worst first, each followed by what follows from it.
    pub findings: Vec<&'w Finding>,
    /// Rules that could not be judged in the time given, or only in part.
    pub not_judged: Vec<NotJudged>,
    /// What to know before believing the verdict.
    pub notes: Vec<String>,
}

/// A rule that could not be judged, or only in part.
#[derive(Debug, Serialize)]
pub struct NotJudged {
    /// Its id.
    pub rule: &'static str,
    /// Why, or what is missing.
    pub reason: String,
    /// Of a rule that was judged in part: how far.
    #[serde(flatten)]
    pub part: Option<InPart>,
}

/// How far a rule was judged.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct InPart {
    /// Subjects (ports, devices, PCI functions) it was judged of.
    pub judged: usize,
    /// Subjects there are. All of them were judged where the reason is a reservation.
    pub of: usize,
}

impl NotJudged {
    fn of(rule: &'static dyn rule::Rule, view: &View<'_>) -> Option<Self> {
        let id = rule.id();
        if let Some(reason) = rule::not_judged(rule, view) {
            return Some(Self { rule: id, reason, part: None });
        }
        let rule::Part { judged, of, reason, .. } = rule::judged_in_part(rule, view)?;
        Some(Self { rule: id, reason, part: Some(InPart { judged, of }) })
    }
}

/// Builds the report.
#[must_use]
pub fn report<'w>(view: &View<'w>) -> CheckReport<'w> {
    let world: &'w World = view.world;
    let ports = super::ports::report(world);
    let findings: Vec<&Finding> = world.findings.iter().map(|finding| &**finding).collect();
    let readable = world.present_ports().any(|(_, port)| port.state != PortState::Unknown);
    let silent = |(id, device): (DeviceId, &DeviceRecord)| {
        let data = world.role(id) != Some(Role::Management);
        let stateless = world.ports_of(id).any(|port| port.state == PortState::Unknown);
        (data && (device.unreadable.is_some() || stateless)).then_some(())
    };
    let unreadable = world.present().filter_map(silent).count();
    let sources = world.sources.values().filter_map(|source| source.reason.as_deref());
    let unlisted = sources.filter_map(|reason| reason.split_once(UNLISTED)).map(|(_, why)| why).next();
    // What follows from something else is no further reason.
    let incidents = incident::incidents(&world.findings);
    let verdict = match incidents.iter().map(|incident| incident.root.severity).max() {
        Some(Severity::Critical) => Verdict::Critical,
        // No device, or none that can be read: which of the two, `reason` says.
        _ if !readable => Verdict::Unknown,
        Some(Severity::Warning) => Verdict::Warning,
        // What cannot be read cannot be called well.
        _ if unreadable > 0 || unlisted.is_some() => Verdict::Warning,
        Some(Severity::Info) | None => Verdict::Ok,
    };
    let not_judged = rule::all().iter().filter_map(|rule| NotJudged::of(*rule, view)).collect();
    let mut notes = ports.notes;
    // A state that was read and is none is not one that could not be read.
    let odd = world.present_ports().filter(|(_, port)| port.state == PortState::Unknown).find_map(|(_, port)| {
        let note = port.notes.iter().find(|note| note.starts_with(STATE_READS))?;
        Some(format!("{}/{}: {note}", world.device(port.key.device).name, port.key.port))
    });
    let why = odd.as_ref().map_or_else(String::new, |odd| format!(", or say no state of a port that is known ({odd})"));
    let partly = format!("{unreadable} of {} RDMA devices could not be read{why}", world.present().count());
    let reason = (!readable).then(|| match notes::why_no_port(world) {
        Some(reason) => {
            notes.retain(|note| *note != reason);
            reason
        }
        None => odd.map_or_else(
            || "no RDMA port could be read".to_owned(),
            |odd| format!("no RDMA port says a state that is known ({odd})"),
        ),
    });
    let reason = reason.or_else(|| unlisted.map(|why| format!("the RDMA devices could not all be listed: {why}")));
    let reason = reason.or_else(|| (unreadable > 0).then_some(partly));
    CheckReport { verdict, reason, ports: ports.ports, findings, not_judged, notes }
}

impl CheckReport<'_> {
    /// One line per port, then the findings, then what could not be judged.
    #[must_use]
    pub fn text(&self, world: &World) -> String {
        let mut text = String::new();
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let seen = || format!("{}, {}", count(self.ports.len(), "port"), count(self.findings.len(), "finding"));
        // What the verdict rests on comes first: what could not be read is its reason only where nothing was found.
        let found = self.findings.iter().any(|finding| finding.severity > Severity::Info);
        let why = match &self.reason {
            Some(reason) if found => format!("{}; {reason}", seen()),
            Some(reason) => reason.clone(),
            None => seen(),
        };
        line(&mut text, &format!("{}: {why}", self.verdict.word()));
        let folded = |port: &&Port| port.role != Some(Role::Management) || port.parent.is_none();
        for port in self.ports.iter().filter(folded) {
            let rate = port.rate_gbps.filter(|_| port.state == Some("ACTIVE"));
            let one = format!(
                "{}/{} {} {} {} Gb/s{}",
                port.device,
                port.port,
                or_dash(port.state),
                or_dash(port.phys_state.as_deref()),
                or_dash(rate),
                if port.findings.is_empty() { String::new() } else { format!(" {}", port.findings.join(" ")) }
            );
            line(&mut text, &one);
        }
        if !self.findings.is_empty() {
            text.push_str(&findings::text(world, &self.findings));
        }
        for missed in &self.not_judged {
            let how = match missed.part {
                None => "not judged".to_owned(),
                Some(part) if part.judged == part.of => "judged in part".to_owned(),
                Some(part) => format!("judged on {} of {}", part.judged, part.of),
            };
            line(&mut text, &format!("{how}: {}: {}", missed.rule, missed.reason));
        }
        for note in &self.notes {
            line(&mut text, &format!("note: {note}"));
        }
        text
    }
}
