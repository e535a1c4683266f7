//! What a rule says of a subject in one window, before it is known whether that is news.

use serde::Serialize;

use super::{Grade, Severity, Subject, SubjectKey};
use crate::observation::Nanos;

/// One number a finding rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evidence {
    /// The series or event, by the driver's own name where it has one.
    pub series: String,
    /// The window the value was taken over, seconds; null for an event or a state.
    pub window_s: Option<f64>,
    /// The value; null when it is not known.
    pub value: Option<f64>,
    /// The threshold it was compared with.
    pub threshold: Option<f64>,
    /// Unit of value and threshold.
    pub unit: String,
}

impl Evidence {
    /// An evidence row.
    #[must_use]
    pub fn new(
        series: impl Into<String>,
        window_s: Option<f64>,
        value: impl Into<Option<f64>>,
        threshold: impl Into<Option<f64>>,
        unit: impl Into<String>,
    ) -> Self {
        Self { series: series.into(), window_s, value: value.into(), threshold: threshold.into(), unit: unit.into() }
    }
}

/// What a rule says of one subject at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// The subject's identity.
    pub key: SubjectKey,
    /// The subject's names.
    pub subject: Subject,
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub grade: Grade,
    /// One sentence with the numbers that matter.
    pub summary: String,
    /// The numbers it rests on.
    pub evidence: Vec<Evidence>,
    /// What to do.
    pub advice: String,
    /// What would raise the grade; empty when it is confirmed.
    pub would_raise: String,
    /// The finding this one is a consequence of: rule and subject.
    pub part_of: Option<(&'static str, SubjectKey)>,
    /// When the first sign was observed; the finding's start.
    pub since: Nanos,
    /// Changes when the finding should be told again (a higher count, a further QP), besides severity and grade.
    pub revision: u64,
}

/// A rule's verdict on one subject.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The condition holds.
    Holds(Box<Conclusion>),
    /// Neither the condition nor the clear condition holds: a raised finding stays, nothing new is raised.
    Keep(SubjectKey),
    /// Nothing can be observed of the subject now: a raised finding stays with the numbers it has, as a part of this root,
    /// and where there is one with this sentence, which says that they are of the past.
    Stays(SubjectKey, Option<(&'static str, SubjectKey)>, Option<String>),
}
