//! Attributes of OTLP's messages.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};

/// A list of attributes in the making. What is not known is left out.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<KeyValue>);

pub(super) fn text(text: impl Into<String>) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(text.into())) }
}

impl Attributes {
    pub(super) fn text(mut self, name: &str, value: impl Into<String>) -> Self {
        self.push(name, Value::StringValue(value.into()));
        self
    }

    pub(super) fn some_text(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self,
        }
    }

    pub(super) fn int(mut self, name: &str, value: Option<u64>) -> Self {
        if let Some(value) = value {
            // OTLP's integers are signed; what does not fit is still told.
            self.push(name, i64::try_from(value).map_or(Value::DoubleValue(value as f64), Value::IntValue));
        }
        self
    }

    pub(super) fn double(mut self, name: &str, value: Option<f64>) -> Self {
        if let Some(value) = value {
            self.push(name, Value::DoubleValue(value));
        }
        self
    }

    pub(super) fn truth(mut self, name: &str, value: bool) -> Self {
        self.push(name, Value::BoolValue(value));
        self
    }

    pub(super) fn texts<'t>(mut self, name: &str, values: impl Iterator<Item = &'t str>) -> Self {
        let values: Vec<AnyValue> = values.map(text).collect();
        if !values.is_empty() {
            self.push(name, Value::ArrayValue(ArrayValue { values }));
        }
        self
    }

    /// A list of attribute lists.
    pub(super) fn tables(mut self, name: &str, rows: impl Iterator<Item = Self>) -> Self {
        let row = |row: Self| AnyValue { value: Some(Value::KvlistValue(KeyValueList { values: row.0 })) };
        let values: Vec<AnyValue> = rows.map(row).collect();
        if !values.is_empty() {
            self.push(name, Value::ArrayValue(ArrayValue { values }));
        }
        self
    }

    pub(super) fn done(self) -> Vec<KeyValue> {
        self.0
    }

    fn push(&mut self, name: &str, value: Value) {
        let value = Some(AnyValue { value: Some(value) });
        self.0.push(KeyValue { key: name.to_owned(), value, ..KeyValue::default() });
    }
}
