//! On how much of the node a rule is judged: everywhere, on some of its subjects, or nowhere.

use crate::finding::SubjectKey;

/// A rule that is judged, but not of every subject it has or not as far as it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Subjects it is judged of.
    pub judged: usize,
    /// Subjects it has.
    pub of: usize,
    /// Subjects it is not judged of: silence about them says nothing.
    pub blind: Vec<SubjectKey>,
    /// What is missing.
    pub reason: String,
}

/// How far a rule is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judged {
    /// In full.
    All,
    /// In part.
    Part(Part),
    /// Nowhere, and why.
    Not(String),
}

impl Judged {
    /// Of `of` subjects those in `blind` cannot be judged for this reason.
    pub(super) fn without(blind: Vec<SubjectKey>, of: usize, reason: impl Into<String>) -> Self {
        match of.saturating_sub(blind.len()) {
            _ if blind.is_empty() => Self::All,
            0 => Self::Not(reason.into()),
            judged => Self::Part(Part { judged, of, blind, reason: reason.into() }),
        }
    }

    /// All of `of` subjects are judged, with this reservation.
    pub(super) fn with(of: usize, reason: impl Into<String>) -> Self {
        Self::Part(Part { judged: of, of, blind: Vec::new(), reason: reason.into() })
    }

    /// Where it is judged in full: what else is to be said.
    pub(super) fn or(self, further: impl FnOnce() -> Self) -> Self {
        if self == Self::All { further() } else { self }
    }

    /// Why it is judged nowhere.
    pub(super) fn nowhere(self) -> Option<String> {
        if let Self::Not(reason) = self { Some(reason) } else { None }
    }

    /// What of it is judged.
    pub(super) fn in_part(self) -> Option<Part> {
        if let Self::Part(part) = self { Some(part) } else { None }
    }
}
