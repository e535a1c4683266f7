//! The name a metric has in Prometheus: OpenTelemetry's rules for it (specification, "Prometheus and `OpenMetrics`
//! compatibility"), with the two exceptions `promtool check metrics` asks for.

use super::{Kind, Metric};

impl Metric {
    /// The metric's name in Prometheus: dots become underscores, the unit is written out at the end, a counter ends with
    /// `_total`. A name in `.count` becomes a plural (`rdma.qp.count`: `rdma_qps`), since `_count` is a histogram's; a
    /// metric without a unit (`rdma.device.info`) has no suffix.
    #[must_use]
    pub fn prometheus_name(&self) -> String {
        let mut name = self.name.replace('.', "_");
        if let Some(counted) = name.strip_suffix("_count") {
            name = format!("{counted}s");
        }
        let unit = match (self.unit, self.kind) {
            ("By", _) => "bytes",
            ("By/s", _) => "bytes_per_second",
            ("s", _) => "seconds",
            ("Cel", _) => "celsius",
            // Only a gauge: a sum of unit 1 counts something that has no name.
            ("1", Kind::Gauge) => "ratio",
            _ => "",
        };
        if !unit.is_empty() && !name.ends_with(unit) {
            name = format!("{name}_{unit}");
        }
        if self.kind == Kind::Counter {
            name.push_str("_total");
        }
        name
    }
}

/// The name of an attribute as a label.
#[must_use]
pub fn label_name(attribute: &str) -> String {
    attribute.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::metric::declared;

    #[test]
    fn names_follow_opentelemetry_and_no_two_metrics_share_one() {
        let of = |metric: &'static crate::metric::Metric| metric.prometheus_name();
        assert_eq!(of(&declared::NETWORK_IO), "hw_network_io_bytes_total");
        assert_eq!(of(&declared::NETWORK_PACKETS), "hw_network_packets_total");
        assert_eq!(of(&declared::BANDWIDTH_LIMIT), "hw_network_bandwidth_limit_bytes_per_second");
        assert_eq!(of(&declared::BANDWIDTH_UTILIZATION), "hw_network_bandwidth_utilization_ratio");
        assert_eq!(of(&declared::NETWORK_UP), "hw_network_up");
        assert_eq!(of(&declared::PAUSE_TIME), "rdma_pause_time_seconds_total");
        assert_eq!(of(&declared::QP_COUNT), "rdma_qps");
        assert_eq!(of(&declared::COVERAGE_RATIO), "rdma_coverage_ratio");
        assert_eq!(of(&declared::DEVICE_INFO), "rdma_device_info");
        assert_eq!(of(&declared::OPERATION_LATENCY), "rdma_operation_latency_seconds");
        let names: HashSet<String> = declared::all().map(of).collect();
        assert_eq!(names.len(), declared::all().count());
    }
}
