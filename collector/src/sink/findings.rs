//! Findings as JSON lines (`replay --json`, `demo --json`, `record --json`); the shape is docs/json.md's.

use std::io::{self, Write};
use std::sync::Arc;

use super::Sink;
use crate::finding::Finding;
use crate::inventory::World;

/// One line of JSON.
#[must_use]
pub fn line(finding: &Finding) -> String {
    serde_json::to_string(finding).expect("a finding has only string keys and finite numbers or null")
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
