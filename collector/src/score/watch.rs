//! Two engines look at one trace: one sees all of it, the other no QPs. What they told, and what was true.

use crate::engine::Engine;
use crate::finding::{Finding, FindingState, Grade, Severity};
use crate::observation::recording::Header;
use crate::observation::{Body, Nanos, Observation};
use crate::rule::Settings;

/// One finding from the moment it was raised to the end of the trace, or until it was cleared.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    pub(super) rule: &'static str,
    pub(super) device: Option<String>,
    pub(super) id: String,
    /// When the engine said so, ns.
    pub(super) raised: Nanos,
    pub(super) cleared: Nanos,
    /// The highest it reached.
    pub(super) grade: Grade,
    pub(super) severity: Severity,
    pub(super) consequence: bool,
    pub(super) sentence: String,
}

/// One trouble, as the trace's own labels say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) class: String,
    pub(super) device: String,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
}

impl Trouble {
    /// The time falls into it, or follows it by no more than `after`.
    pub(super) fn covers(&self, t: Nanos, after: Nanos) -> bool {
        t >= self.from && t <= self.to.saturating_add(after)
    }
}

/// A trace under observation.
pub(super) struct Watch {
    /// Seeing QPs; counters only.
    engines: [Engine; 2],
    told: [Vec<Told>; 2],
    troubles: Vec<Trouble>,
}

/// What a watched trace came to.
pub(super) struct Seen {
    pub(super) told: [Vec<Told>; 2],
    pub(super) troubles: Vec<Trouble>,
}

impl Watch {
    pub(super) fn new(header: &Header, settings: &Settings) -> Self {
        let engine = || Engine::new(header.clone(), settings.clone());
        Self { engines: [engine(), engine()], told: [Vec::new(), Vec::new()], troubles: Vec::new() }
    }

    pub(super) fn take(&mut self, observation: &Observation<'_>) {
        if let Body::Truth(truth) = &observation.body {
            let open = self.troubles.iter_mut().rfind(|trouble| {
                trouble.to == Nanos::MAX && *trouble.class == *truth.class && *trouble.device == *truth.device
            });
            match (open, truth.active) {
                (Some(open), false) => open.to = observation.t,
                (None, true) => self.troubles.push(Trouble {
                    class: truth.class.to_string(),
                    device: truth.device.to_string(),
                    from: observation.t,
                    to: Nanos::MAX,
                }),
                _ => {}
            }
            return;
        }
        let of_qps = matches!(observation.body, Body::Qp(_) | Body::QpStats(_) | Body::Probes(_));
        for at in 0..2 {
            if at == 0 || !of_qps {
                self.engines[at].take(observation);
                self.listen(at);
            }
        }
    }

    fn listen(&mut self, at: usize) {
        for finding in self.engines[at].drain() {
            note(&mut self.told[at], &finding);
        }
    }

    pub(super) fn finish(mut self) -> Seen {
        for at in 0..2 {
            self.engines[at].finish();
            self.listen(at);
        }
        Seen { told: self.told, troubles: self.troubles }
    }
}

fn note(told: &mut Vec<Told>, finding: &Finding) {
    let id = finding.id();
    match finding.state {
        FindingState::Raised => told.push(Told {
            rule: finding.rule,
            device: finding.subject.device.as_deref().map(str::to_owned),
            id,
            raised: finding.t,
            cleared: Nanos::MAX,
            grade: finding.grade,
            severity: finding.severity,
            consequence: finding.part_of.is_some(),
            sentence: format!("{} ({:?}): {}", finding.subject, finding.grade, finding.summary),
        }),
        FindingState::Updated | FindingState::Cleared => {
            let open = told.iter_mut().rfind(|told| told.cleared == Nanos::MAX && told.id == id);
            if let Some(open) = open {
                open.grade = open.grade.max(finding.grade);
                open.severity = open.severity.max(finding.severity);
                open.consequence |= finding.part_of.is_some();
                if finding.state == FindingState::Cleared {
                    open.cleared = finding.t;
                }
            }
        }
    }
}
