//! Families as text (Prometheus, "Exposition formats", text format 0.0.4).

use std::fmt::{Display, Write as _};

use crate::metric::{Buckets, Family, Kind, Metric, Point, Value};

/// Classes of sizes that end a bucket: below 128 bytes up to below 128 MiB, in steps of four.
const SIZES: (usize, usize) = (6, 26);
/// Classes of times that end a bucket: below 2 µs up to below 550 s, in steps of four.
const TIMES: (usize, usize) = (10, 38);

/// Writes a family: its help, its type and a line (a histogram: some) for each point.
pub(super) fn write(page: &mut String, family: &Family) {
    let name = family.metric.prometheus_name();
    head(page, &name, family.metric.description, type_word(family.metric));
    // One text for the labels of all points, one after another.
    let mut with = String::with_capacity(256);
    for point in &family.points {
        labels(&mut with, point);
        match &point.value {
            Value::Int(value) => line(page, &name, "", &with, value),
            Value::Float(value) => line(page, &name, "", &with, &number(*value)),
            Value::Buckets(buckets) => histogram(page, &name, &with, buckets),
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
    // Dots are no part of a label's name.
    let mut parts = name.split('.');
    out.extend(parts.next());
    for part in parts {
        out.push('_');
        out.push_str(part);
    }
    out.push_str("=\"");
    for part in value.split_inclusive(['\\', '"', '\n']) {
        let plain = part.strip_suffix(['\\', '"', '\n']).unwrap_or(part);
        out.push_str(plain);
        match &part[plain.len()..] {
            "" => {}
            "\n" => out.push_str("\\n"),
            special => {
                out.push('\\');
                out.push_str(special);
            }
        }
    }
    out.push('"');
}

/// One line.
pub(super) fn line(page: &mut String, name: &str, suffix: &str, labels: &str, value: &(impl Display + ?Sized)) {
    page.push_str(name);
    page.push_str(suffix);
    if !labels.is_empty() {
        page.push('{');
        page.push_str(labels);
        page.push('}');
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

fn labels(out: &mut String, point: &Point) {
    out.clear();
    point.attributes.iter().for_each(|(key, value)| label(out, key, value));
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
fn histogram(page: &mut String, name: &str, labels: &str, buckets: &Buckets) {
    let (first, last) = if buckets.unit < 1.0 { TIMES } else { SIZES };
    let all = buckets.counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    for class in (first..=last).step_by(2) {
        let below = buckets.counts.iter().take(class + 1).fold(0u64, |sum, n| sum.saturating_add(*n));
        let end = ((1u64 << (class + 1)) - 1) as f64;
        // Divided, not multiplied: so the nearest number to the decimal one is written.
        let end = if buckets.unit < 1.0 { end / buckets.unit.recip().round() } else { end * buckets.unit };
        let mut with = labels.to_owned();
        label(&mut with, "le", &number(end));
        line(page, name, "_bucket", &with, &below);
    }
    let mut with = labels.to_owned();
    label(&mut with, "le", "+Inf");
    line(page, name, "_bucket", &with, &all);
    if let Some(sum) = buckets.sum {
        line(page, name, "_sum", labels, &number(sum));
    }
    line(page, name, "_count", labels, &all);
}
