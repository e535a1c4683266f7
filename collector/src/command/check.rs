//! `check`: a one-shot health check for scripts and prologs, with the exit codes monitoring plugins use.

use serde::Serialize;

use super::findings;
use super::ports::Port;
use super::table::or_dash;
use crate::finding::{Finding, Severity};
use crate::inventory::World;
use crate::observation::PortState;
use crate::rule::{self, View};

/// The verdict on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing is wrong as far as can be seen.
    Ok,
    /// A warning is raised.
    Warning,
    /// A critical finding is raised.
    Critical,
    /// No port could be read.
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
    /// The ports as in `ports`.
    pub ports: Vec<Port>,
    /// Raised findings, worst first.
    pub findings: Vec<&'w Finding>,
    /// Rules that could not be judged in the time given.
    pub not_judged: Vec<NotJudged>,
    /// Why, where the verdict is unknown; notes otherwise.
    pub notes: Vec<String>,
}

/// A rule that could not be judged.
#[derive(Debug, Serialize)]
pub struct NotJudged {
    /// Its id.
    pub rule: &'static str,
    /// Why.
    pub reason: String,
}

/// Builds the report.
#[must_use]
pub fn report<'w>(view: &View<'w>) -> CheckReport<'w> {
    let world: &'w World = view.world;
    let ports = super::ports::report(world);
    let findings: Vec<&Finding> = world.findings.iter().map(|finding| &**finding).collect();
    let readable = world.present_ports().any(|(_, port)| port.state != PortState::Unknown);
    let verdict = match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Critical) => Verdict::Critical,
        _ if !readable => Verdict::Unknown,
        Some(Severity::Warning) => Verdict::Warning,
        Some(Severity::Info) | None => Verdict::Ok,
    };
    let not_judged = rule::all()
        .iter()
        .filter_map(|rule| rule.not_judged(view).map(|reason| NotJudged { rule: rule.id(), reason }))
        .collect();
    CheckReport { verdict, ports: ports.ports, findings, not_judged, notes: ports.notes }
}

impl CheckReport<'_> {
    /// One line per port, then the findings, then what could not be judged.
    #[must_use]
    pub fn text(&self, world: &World) -> String {
        let mut text = format!("{}: ", self.verdict.word());
        text.push_str(&match self.verdict {
            Verdict::Unknown => "no RDMA port could be read".to_owned(),
            _ => format!("{} ports, {} findings", self.ports.len(), self.findings.len()),
        });
        text.push('\n');
        for port in &self.ports {
            let rate = port.rate_gbps.filter(|_| port.state == Some("ACTIVE"));
            text.push_str(&format!(
                "{}/{} {} {} {} Gb/s{}\n",
                port.device,
                port.port,
                or_dash(port.state),
                or_dash(port.phys_state.as_deref()),
                or_dash(rate),
                if port.findings.is_empty() { String::new() } else { format!(" {}", port.findings.join(" ")) }
            ));
        }
        if !self.findings.is_empty() {
            text.push_str(&findings::text(world, &self.findings));
        }
        for missed in &self.not_judged {
            text.push_str(&format!("not judged: {}: {}\n", missed.rule, missed.reason));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }
}
