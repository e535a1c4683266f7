//! docs/metrics.md, made from the declarations; a test compares, and writes it anew with `UPDATE=1`.

use std::fmt::Write as _;

use super::declared::CHAPTERS;
use super::{Detail, Kind, Metric};

/// The page. `series` is the number of series of the node that [`super::collect`]'s test measures.
#[must_use]
pub fn page(series: usize) -> String {
    let mut page = INTRODUCTION.replace("SERIES", &series.to_string());
    for (title, metrics) in CHAPTERS {
        let _ =
            write!(page, "\n## {title}\n\n| metric | Prometheus | kind | unit | attributes |\n|---|---|---|---|---|\n");
        for metric in *metrics {
            row(&mut page, metric);
        }
        page.push('\n');
        for metric in *metrics {
            let _ = writeln!(page, "- `{}`: {}.", metric.name, metric.description);
        }
    }
    page
}

fn row(page: &mut String, metric: &Metric) {
    let attributes: Vec<String> = metric.attributes.iter().map(|attribute| format!("`{attribute}`")).collect();
    let kind = match (metric.kind, metric.detail) {
        (kind, Detail::Default) => word(kind).to_owned(),
        (kind, Detail::Process) => format!("{}, `--export-processes`", word(kind)),
        (kind, Detail::Qp) => format!("{}, `--export-qps`", word(kind)),
    };
    let unit = if metric.unit.is_empty() { "–".to_owned() } else { format!("`{}`", metric.unit) };
    let _ = writeln!(
        page,
        "| `{}` | `{}` | {kind} | {unit} | {} |",
        metric.name,
        metric.prometheus_name(),
        attributes.join(", "),
    );
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::UpDownCounter => "up-down counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

const INTRODUCTION: &str = r"# Metrics

What `rdmascope collect` exports as numbers, by OTLP and as a page for Prometheus. This page is generated from the
declarations in `collector/src/metric/declared.rs`; a test compares them.

- **Unknown is never zero.** What cannot be read, or has not been read for three periods, has no point. A device that is
  gone has no points.
- **Totals are the driver's own,** in the unit below: bytes also where the driver counts words of four. The first point of a
  total may hold what was counted before rdmascope began. Where a 32-bit counter that is known to wrap does so, counting
  goes on.
- **A reset moves the start.** A counter that was set back begins anew: its start time in OTLP is the reading before the
  fall. After a gap, or a fall nobody can explain, it is the first reading after it. A total of several counters, one of
  which was set back alone, begins at zero, and so does one whose counters are no longer the same.
- **No point while a counter stands at its ceiling** (the PMA's counters of 4, 8, 16 and 32 bits stop there until somebody
  clears them): the total is then a lower bound and its rate, 0, would be wrong. The finding `counter.saturated` says so.
- **Few series.** QP numbers and process ids are in no metric unless asked for with `--export-qps N` (the N busiest) and
  `--export-processes`. A node with 8 NICs, 10,000 QPs and 200 processes has SERIES series by default.

The names follow the [semantic conventions for hardware](https://opentelemetry.io/docs/specs/semconv/hardware/network/)
(1.44.0, status: development) where they say something. `hw.status` has the state `predicted_failure` besides the three they
list for network adapters.

In Prometheus dots become underscores, also in labels (`network_io_direction`).
";
