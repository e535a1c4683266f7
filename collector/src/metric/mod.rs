//! What is exported as numbers. Every metric is declared once, with its name, unit, description and attributes; the
//! exporters ([`crate::sink`]) and docs/metrics.md are made from the declarations.
//!
//! A [`Family`] is a metric and its points at one moment. What is unknown has no point: there is no zero that nobody
//! counted.

//!
//! ```text
//! declared          the table
//! prometheus_name   what each is called in Prometheus
//! collect           the world as points
//! node_names        names of node_exporter
//! own, reports      what the program reports of itself
//! page              docs/metrics.md
//! ```

mod collect;
pub mod declared;
pub mod node_names;
mod own;
pub mod page;
mod prometheus_name;
mod reports;

use std::sync::Arc;

pub use collect::collect;
pub use own::{ExporterReport, HooksReport, RecordingReport, SelfReport};
pub use prometheus_name::label_name;
pub use reports::Reports;

use crate::observation::Nanos;

/// What is exported beyond the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// By process.
    pub processes: bool,
    /// So many of the busiest QPs.
    pub qps: usize,
    /// Without the totals whose counters are exported under their [`node_names`].
    pub beside_node_names: bool,
}

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Grows only; cumulative since [`Point::start`], which moves at a reset.
    Counter,
    /// A sum that goes both ways.
    UpDownCounter,
    /// A value of now.
    Gauge,
    /// Counts by size, cumulative since [`Point::start`].
    Histogram,
}

/// Who asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Always exported.
    Default,
    /// By process: only when asked for, since processes come and go.
    Process,
    /// By QP: only when asked for, and only of the busiest.
    Qp,
}

/// A declaration.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Dotted name, as in OpenTelemetry's semantic conventions: `hw.network.io`, `rdma.ecn.marked`.
    pub name: &'static str,
    /// UCUM unit: `By`, `s`, `1`, `{packet}`.
    pub unit: &'static str,
    /// One sentence, no full stop.
    pub description: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Attributes its points may have.
    pub attributes: &'static [&'static str],
    /// Who asked for it.
    pub detail: Detail,
}

/// A value with its attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Sorted as the declaration has them.
    pub attributes: Arc<[(&'static str, Arc<str>)]>,
    /// Since when it was counted, `CLOCK_MONOTONIC` ns; of a gauge the same as `t`.
    pub start: Nanos,
    /// When it was observed, `CLOCK_MONOTONIC` ns. Not when it is exported.
    pub t: Nanos,
    /// The value.
    pub value: Value,
}

/// The value of a point.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Int(u64),
    /// Any other.
    Float(f64),
    /// A histogram.
    Buckets(Buckets),
}

/// Counts in classes that double, as the probes count them: class n holds what is at least 2^n and below 2^(n+1), in the
/// metric's unit times `unit`; class 0 also what is below 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    /// Counts by class.
    pub counts: Vec<u64>,
    /// What one step of the classes is, in the metric's unit: 1 for bytes, 1e-9 for nanoseconds exported as seconds.
    pub unit: f64,
    /// Sum of all values in the metric's unit, where it is known.
    pub sum: Option<f64>,
}

/// A metric at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// The declaration.
    pub metric: &'static Metric,
    /// Its points; none when nothing of it is known.
    pub points: Vec<Point>,
}
