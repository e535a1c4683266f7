//! Families as text (Prometheus, "Exposition formats", text format 0.0.4).

use std::fmt::Write as _;

use crate::metric::{Buckets, Family, Kind, Metric, Point, Value, label_name};

/// Classes of sizes that end a bucket: below 128 bytes up to below 128 MiB, in steps of four.
const SIZES: (usize, usize) = (6, 26);
/// Classes of times that end a bucket: below 2 µs up to below 550 s, in steps of four.
const TIMES: (usize, usize) = (10, 38);

/// Writes a family: its help, its type and a line (a histogram: some) for each point.
pub(super) fn write(page: &mut String, family: &Family) {
    let name = family.metric.prometheus_name();
    head(page, &name, family.metric.description, type_word(family.metric));
    for point in &family.points {
        match &point.value {
            Value::Int(value) => line(page, &name, "", &labels(point), &value.to_string()),
            Value::Float(value) => line(page, &name, "", &labels(point), &number(*value)),
            Value::Buckets(buckets) => histogram(page, &name, point, buckets),
        }
    }
}

/// Help and type.
pub(super) fn head(page: &mut String, name: &str, help: &str, kind: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// A label and its value.
pub(super) fn label(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let _ = write!(out, "{name}=\"{value}\"");
}

/// One line.
pub(super) fn line(page: &mut String, name: &str, suffix: &str, labels: &str, value: &str) {
    page.push_str(name);
    page.push_str(suffix);
    if !labels.is_empty() {
        let _ = write!(page, "{{{labels}}}");
    }
    let _ = writeln!(page, " {value}");
}

fn type_word(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::Counter => "counter",
        Kind::UpDownCounter | Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

fn labels(point: &Point) -> String {
    let mut out = String::with_capacity(128);
    point.attributes.iter().for_each(|(key, value)| label(&mut out, &label_name(key), value));
    out
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else {
        value.to_string()
    }
}

/// Classic buckets. Class n holds what is below 2^(n+1), and the values are whole numbers: the bucket that ends with it
/// holds what is at most 2^(n+1) - 1, so its `le` is exact. The buckets are the same at all times, on every node.
fn histogram(page: &mut String, name: &str, point: &Point, buckets: &Buckets) {
    let labels = labels(point);
    let (first, last) = if buckets.unit < 1.0 { TIMES } else { SIZES };
    let all = buckets.counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    for class in (first..=last).step_by(2) {
        let below = buckets.counts.iter().take(class + 1).fold(0u64, |sum, n| sum.saturating_add(*n));
        let end = ((1u64 << (class + 1)) - 1) as f64;
        // Divided, not multiplied: so the nearest number to the decimal one is written.
        let end = if buckets.unit < 1.0 { end / buckets.unit.recip().round() } else { end * buckets.unit };
        let mut with = labels.clone();
        label(&mut with, "le", &number(end));
        line(page, name, "_bucket", &with, &below.to_string());
    }
    let mut with = labels.clone();
    label(&mut with, "le", "+Inf");
    line(page, name, "_bucket", &with, &all.to_string());
    if let Some(sum) = buckets.sum {
        line(page, name, "_sum", &labels, &number(sum));
    }
    line(page, name, "_count", &labels, &all.to_string());
}
