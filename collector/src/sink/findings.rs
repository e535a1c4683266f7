//! Findings as JSON lines (`replay --json`, `demo --json`, `record --json`); the shape is docs/json.md's.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use super::Sink;
use crate::finding::{Finding, FindingState};
use crate::inventory::World;
use crate::rule::predicts_failure;

/// One line of JSON.
#[must_use]
pub fn line(finding: &Finding) -> String {
    serde_json::to_string(finding).expect("a finding has only string keys and finite numbers or null")
}

/// A finding as programs that act on it are told: with the word whether it predicts a failure.
#[derive(Debug, Serialize)]
pub(super) struct Told<'f> {
    #[serde(flatten)]
    finding: &'f Finding,
    /// The port is about to fail, or failing: drain it now. False once the finding is cleared.
    pub(super) predicted_failure: bool,
}

impl<'f> Told<'f> {
    pub(super) fn new(finding: &'f Finding) -> Self {
        let predicted_failure = finding.state != FindingState::Cleared && predicts_failure(finding.rule);
        Self { finding, predicted_failure }
    }
}

/// Writes findings to an output as they change.
pub struct FindingLines<W: Write + Send> {
    output: W,
    /// The first error of writing; nothing is written after it.
    pub failed: Option<io::Error>,
}

impl<W: Write + Send> FindingLines<W> {
    /// Writes to `output`.
    pub fn new(output: W) -> Self {
        Self { output, failed: None }
    }
}

impl<W: Write + Send> Sink for FindingLines<W> {
    fn findings(&mut self, findings: &[Arc<Finding>], _: &World) {
        if self.failed.is_some() {
            return;
        }
        let mut text = String::new();
        for finding in findings {
            text.push_str(&line(finding));
            text.push('\n');
        }
        if let Err(error) = self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush()) {
            self.failed = Some(error);
        }
    }
}
