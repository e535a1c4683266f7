//! Findings as log records. Told are: that it was raised, that it became worse or surer, that it is over; not every change
//! of its numbers, which the metrics have anyway.

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use prost::Message;

use super::attribute::{Attributes, text};
use super::queue::{Item, Kind};
use super::wall::Wall;
use crate::clock;
use crate::finding::{Finding, FindingState, Grade, Severity, Subject};
use crate::observation::Nanos;

/// The event name of a finding.
const FINDING: &str = "rdma.finding";

/// What is remembered of what was told.
#[derive(Debug, Default)]
pub(super) struct Told(HashMap<String, (Severity, Grade)>);

impl Told {
    /// The word for what is to be told of a finding; `None` when nothing is.
    fn worth(&mut self, finding: &Finding) -> Option<&'static str> {
        let id = finding.id();
        if finding.state == FindingState::Cleared {
            self.0.remove(&id);
            return Some("cleared");
        }
        let now = (finding.severity, finding.grade);
        let Some(before) = self.0.insert(id.clone(), now) else { return Some("raised") };
        if now.0 > before.0 || now.1 > before.1 {
            return Some("escalated");
        }
        // Told again only when it is worse than at its worst.
        self.0.insert(id, (now.0.max(before.0), now.1.max(before.1)));
        None
    }

    /// The record of a finding, if it is worth one.
    pub(super) fn item(&mut self, finding: &Finding, wall: Wall) -> Option<Item> {
        let state = self.worth(finding)?;
        Some(encoded(Kind::Finding, &record(finding, state, wall)))
    }
}

/// OpenTelemetry's severity (logs data model, "Field: `SeverityNumber`").
fn number(severity: Severity) -> SeverityNumber {
    match severity {
        Severity::Info => SeverityNumber::Info,
        Severity::Warning => SeverityNumber::Warn,
        Severity::Critical => SeverityNumber::Error,
    }
}

fn record(finding: &Finding, state: &str, wall: Wall) -> LogRecord {
    // That something is over is no alarm.
    let severity = if finding.state == FindingState::Cleared { Severity::Info } else { finding.severity };
    let evidence = finding.evidence.iter().map(|row| {
        Attributes::default()
            .text("series", &row.series)
            .double("window_s", row.window_s)
            .double("value", row.value)
            .double("threshold", row.threshold)
            .text("unit", &row.unit)
    });
    let attributes = Attributes::default()
        .text("rdma.finding.id", finding.id())
        .text("rdma.finding.rule", finding.rule)
        .text("rdma.finding.state", state)
        .text("rdma.finding.severity", finding.severity.name())
        .text("rdma.finding.grade", finding.grade.name())
        .int("rdma.finding.first_time_unix_nano", Some(wall.unix_ns(finding.first_t)))
        .some_text("rdma.finding.part_of", finding.part_of.as_deref())
        .text("rdma.finding.advice", &finding.advice)
        .some_text("rdma.finding.would_raise", Some(&*finding.would_raise).filter(|text| !text.is_empty()));
    let attributes = subject(attributes, &finding.subject).tables("rdma.finding.evidence", evidence).done();
    let body = &finding.summary;
    LogRecord {
        severity_text: severity.name().to_owned(),
        ..new(FINDING, number(severity), finding.t, body, attributes, wall)
    }
}

/// Whom it is about.
fn subject(attributes: Attributes, subject: &Subject) -> Attributes {
    attributes
        .text("rdma.subject", subject.to_string())
        .some_text("rdma.subject.device", subject.device.as_deref())
        .int("rdma.subject.port", subject.port.map(u64::from))
        .int("rdma.subject.qpn", subject.qpn.map(u64::from))
        .some_text("rdma.subject.pci", subject.pci.as_deref())
}

/// A log record of what happened at `t`.
pub(super) fn new(
    event: &str,
    severity: SeverityNumber,
    t: Nanos,
    body: &str,
    attributes: Vec<KeyValue>,
    wall: Wall,
) -> LogRecord {
    LogRecord {
        time_unix_nano: wall.unix_ns(t),
        observed_time_unix_nano: clock::unix_ns(),
        severity_number: severity.into(),
        severity_text: severity.as_str_name().trim_start_matches("SEVERITY_NUMBER_").to_ascii_lowercase(),
        body: Some(text(body)),
        attributes,
        event_name: event.to_owned(),
        ..LogRecord::default()
    }
}

/// A record for the queue.
pub(super) fn encoded(kind: Kind, record: &LogRecord) -> Item {
    Item { kind, records: 1, bytes: record.encode_to_vec() }
}
