//! What a finding is: a rule's conclusion about a subject, with its life from raised to cleared.
//!
//! A rule gives a verdict on each of its subjects (`conclusion`, `subject`); the book (`book`) makes findings of them, and
//! says which are news.

mod book;
mod conclusion;
mod subject;

use serde::Serialize;

pub use book::Book;
pub use conclusion::{Conclusion, Evidence, Verdict};
pub use subject::{Subject, SubjectKey};

use crate::observation::Nanos;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Look at it soon.
    Warning,
    /// Something is broken, or will be in a moment.
    Critical,
}

impl Severity {
    /// The word in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// How sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// From counters only.
    Suspected,
    /// From counters and per-QP data.
    Probable,
    /// From packets, or an unambiguous event.
    Confirmed,
}

impl Grade {
    /// The word in JSON and on the screen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Suspected => "suspected",
            Self::Probable => "probable",
            Self::Confirmed => "confirmed",
        }
    }
}

/// Where a finding is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// New.
    Raised,
    /// Severity, grade or numbers changed.
    Updated,
    /// Over.
    Cleared,
}

impl FindingState {
    /// The word in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Updated => "updated",
            Self::Cleared => "cleared",
        }
    }
}

/// A finding at one moment of its life; its JSON form is a promise (docs/json.md).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// When this state was reached, `CLOCK_MONOTONIC` ns.
    pub t: Nanos,
    /// The rule's id.
    pub rule: &'static str,
    /// What it is about.
    pub subject: Subject,
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub grade: Grade,
    /// Where it is in its life.
    pub state: FindingState,
    /// One sentence with the numbers that matter.
    pub summary: String,
    /// The numbers it rests on.
    pub evidence: Vec<Evidence>,
    /// What to do.
    pub advice: String,
    /// What would raise the grade; absent when it is confirmed, and where the finding it is a part of is the surer one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub would_raise: String,
    /// The id of the finding this one is a consequence of; absent for a finding of its own. Hooks, the health check and
    /// the screen's list tell the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// When the first sign was observed, `CLOCK_MONOTONIC` ns.
    pub first_t: Nanos,
    /// When sentence and numbers were measured, `CLOCK_MONOTONIC` ns. In a finding that is shown while it is raised they are
    /// the newest; one that is told of, or that is over, has those it was told with last.
    pub measured_t: Nanos,
    /// The identity of the subject.
    #[serde(skip)]
    pub key: SubjectKey,
    #[serde(skip)]
    revision: u64,
}

impl Finding {
    /// It stays as it is, as a part of another finding: for a subject about which nothing can be observed now.
    #[must_use]
    pub fn again(&self, part_of: Option<(&'static str, SubjectKey)>) -> Verdict {
        Verdict::Stays(self.key.clone(), part_of, None)
    }

    /// The same, of what is over as far as can be observed: `summary` is its sentence in the past.
    #[must_use]
    pub fn ended(&self, part_of: Option<(&'static str, SubjectKey)>, summary: String) -> Verdict {
        Verdict::Stays(self.key.clone(), part_of, Some(summary))
    }

    /// Whether the same is said with the same numbers.
    fn says(&self, new: &Conclusion) -> bool {
        self.summary == new.summary
            && self.evidence == new.evidence
            && self.advice == new.advice
            && self.would_raise == new.would_raise
    }

    /// The revision of the conclusion that was told last.
    #[must_use]
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Names the finding on this node, for example `link.down:mlx5_0/1`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}:{}", self.rule, self.subject)
    }
}
