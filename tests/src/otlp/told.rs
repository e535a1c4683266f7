//! What a receiver got, flat: one entry for each data point and each log record.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value as Json, json};

use super::{Message, Receiver};

/// A data point's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Number {
    /// Of a cumulative sum; monotonic or not.
    Sum(f64, bool),
    /// Of a gauge.
    Gauge(f64),
    /// Of a histogram: count, and counts by class.
    Histogram(u64, Vec<u64>),
}

/// One data point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The metric.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Attributes of the point.
    pub attributes: BTreeMap<String, String>,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
    /// Since when, ns since 1970; 0 for a gauge.
    pub start: u64,
    /// When, ns since 1970.
    pub time: u64,
    /// The value.
    pub value: Number,
}

/// One log record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its event name.
    pub event: String,
    /// When it happened, ns since 1970.
    pub time: u64,
    /// OpenTelemetry's severity.
    pub severity: i32,
    /// The sentence.
    pub body: Json,
    /// Its attributes.
    pub attributes: BTreeMap<String, Json>,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
}

impl Receiver {
    /// The data points, in the order in which they came.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for taken in self.taken() {
            let Message::Metrics(request) = taken.message else { continue };
            for all in request.resource_metrics {
                let resource = resource(all.resource.as_ref());
                for metric in all.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
                    let mut add = |attributes: &[KeyValue], start, time, value| {
                        points.push(Point {
                            name: metric.name.clone(),
                            unit: metric.unit.clone(),
                            attributes: texts(attributes),
                            resource: resource.clone(),
                            start,
                            time,
                            value,
                        });
                    };
                    match metric.data.as_ref().expect("a metric has data") {
                        Data::Sum(sum) => {
                            assert_eq!(sum.aggregation_temporality, 2, "cumulative");
                            for p in &sum.data_points {
                                let value = Number::Sum(number(p.value), sum.is_monotonic);
                                add(&p.attributes, p.start_time_unix_nano, p.time_unix_nano, value);
                            }
                        }
                        Data::Gauge(gauge) => {
                            for p in &gauge.data_points {
                                let value = Number::Gauge(number(p.value));
                                add(&p.attributes, p.start_time_unix_nano, p.time_unix_nano, value);
                            }
                        }
                        Data::ExponentialHistogram(histogram) => {
                            for p in &histogram.data_points {
                                let counts = p.positive.clone().unwrap_or_default().bucket_counts;
                                let value = Number::Histogram(p.count, counts);
                                add(&p.attributes, p.start_time_unix_nano, p.time_unix_nano, value);
                            }
                        }
                        Data::Histogram(histogram) => {
                            for p in &histogram.data_points {
                                let value = Number::Histogram(p.count, p.bucket_counts.clone());
                                add(&p.attributes, p.start_time_unix_nano, p.time_unix_nano, value);
                            }
                        }
                        Data::Summary(_) => panic!("nobody sends a summary"),
                    }
                }
            }
        }
        points
    }

    /// The log records, in the order in which they came.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for taken in self.taken() {
            let Message::Logs(request) = taken.message else { continue };
            for all in request.resource_logs {
                let resource = resource(all.resource.as_ref());
                for record in all.scope_logs.into_iter().flat_map(|scope| scope.log_records) {
                    records.push(Record {
                        event: record.event_name,
                        time: record.time_unix_nano,
                        severity: record.severity_number,
                        body: record.body.as_ref().map_or(Json::Null, any),
                        attributes: values(&record.attributes),
                        resource: resource.clone(),
                    });
                }
            }
        }
        records
    }

    /// The spans, in the order in which they came.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for taken in self.taken() {
            let Message::Traces(request) = taken.message else { continue };
            let scopes = request.resource_spans.into_iter().flat_map(|all| all.scope_spans);
            spans.extend(scopes.flat_map(|scope| scope.spans));
        }
        spans
    }
}

fn number(value: Option<Value>) -> f64 {
    match value.expect("a point has a value") {
        Value::AsDouble(value) => value,
        #[allow(clippy::cast_precision_loss, reason = "the tests' numbers are small")]
        Value::AsInt(value) => value as f64,
    }
}

fn resource(resource: Option<&Resource>) -> BTreeMap<String, String> {
    resource.map(|resource| texts(&resource.attributes)).unwrap_or_default()
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    values(attributes).into_iter().map(|(key, value)| (key, text(value))).collect()
}

fn values(attributes: &[KeyValue]) -> BTreeMap<String, Json> {
    attributes.iter().map(|a| (a.key.clone(), a.value.as_ref().map_or(Json::Null, any))).collect()
}

/// A value of an attribute as JSON.
fn any(value: &AnyValue) -> Json {
    match &value.value {
        None => Json::Null,
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::BoolValue(truth)) => json!(truth),
        Some(Any::IntValue(number)) => json!(number),
        Some(Any::DoubleValue(number)) => json!(number),
        Some(Any::ArrayValue(list)) => list.values.iter().map(any).collect(),
        Some(Any::KvlistValue(list)) => values(&list.values).into_iter().collect(),
        Some(other) => json!(format!("{other:?}")),
    }
}
