//! A batch as the request it is sent in.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

use super::queue::Item;
use super::settings::Signal;

/// A request of one of the three services.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Request {
    /// `MetricsService`.
    Metrics(ExportMetricsServiceRequest),
    /// `LogsService`.
    Logs(ExportLogsServiceRequest),
    /// `TraceService`.
    Traces(ExportTraceServiceRequest),
}

/// Who says it: the program and its version.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "rdmascope".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

impl Request {
    /// Of what waited; an item that cannot be decoded was never encoded here.
    pub(super) fn new(signal: Signal, batch: &[Item], resource: &Resource) -> Self {
        let resource = Some(resource.clone());
        match signal {
            Signal::Metrics => {
                let scope_metrics = decoded::<ScopeMetrics>(batch)
                    .map(|metrics| ScopeMetrics { scope: Some(scope()), ..metrics })
                    .collect();
                let all = ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() };
                Self::Metrics(ExportMetricsServiceRequest { resource_metrics: vec![all] })
            }
            Signal::Logs => {
                let log_records = decoded::<LogRecord>(batch).collect();
                let scope_logs = vec![ScopeLogs { scope: Some(scope()), log_records, ..ScopeLogs::default() }];
                let all = ResourceLogs { resource, scope_logs, ..ResourceLogs::default() };
                Self::Logs(ExportLogsServiceRequest { resource_logs: vec![all] })
            }
            Signal::Traces => {
                let spans = decoded::<Span>(batch).collect();
                let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }];
                let all = ResourceSpans { resource, scope_spans, ..ResourceSpans::default() };
                Self::Traces(ExportTraceServiceRequest { resource_spans: vec![all] })
            }
        }
    }

    /// As protobuf.
    pub(super) fn protobuf(&self) -> Vec<u8> {
        match self {
            Self::Metrics(request) => request.encode_to_vec(),
            Self::Logs(request) => request.encode_to_vec(),
            Self::Traces(request) => request.encode_to_vec(),
        }
    }

    /// As JSON.
    pub(super) fn json(&self) -> Vec<u8> {
        let json = match self {
            Self::Metrics(request) => serde_json::to_vec(request),
            Self::Logs(request) => serde_json::to_vec(request),
            Self::Traces(request) => serde_json::to_vec(request),
        };
        json.expect("the messages have only string keys")
    }
}

fn decoded<M: Message + Default>(batch: &[Item]) -> impl Iterator<Item = M> + '_ {
    batch.iter().filter_map(|item| M::decode(&*item.bytes).ok())
}
