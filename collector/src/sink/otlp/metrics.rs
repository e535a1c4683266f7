//! Metrics as OTLP's messages.
//!
//! Counters are cumulative sums whose start time moves at a reset. Classes of a histogram whose step is a power of two in
//! the metric's unit (bytes) are an exponential histogram of scale 0. Its buckets are (2^n, 2^(n+1)], the classes here
//! [2^n, 2^(n+1)): a value that is exactly a power of two is told one bucket higher than it belongs, and class 0 also has
//! what is below 1, zeros included. Any other step (nanoseconds told as seconds: 10⁻⁹ is no power of two, and the nearest
//! one would shift every bound by 7 %) is a histogram with explicit bounds, which are then exact.

use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets as ExponentialBuckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    Metric, NumberDataPoint, ScopeMetrics, Sum,
};
use prost::Message;

use super::attribute::Attributes;
use super::queue::{Item, Kind as ItemKind};
use super::wall::Wall;
use crate::metric::{Buckets, Family, Kind, Point, Value};

/// Data points in one item of the queue: some hundred bytes each, so that a request stays far below the 4 MiB receivers
/// take by default.
const MAX_POINTS: usize = 2000;

/// An export of everything that is known, in as many items as it takes.
pub(super) fn items(families: &[Family], wall: Wall) -> Vec<Item> {
    let mut items = Vec::new();
    let (mut metrics, mut points) = (Vec::new(), 0);
    for family in families {
        for part in family.points.chunks(MAX_POINTS) {
            if points + part.len() > MAX_POINTS {
                items.push(item(std::mem::take(&mut metrics), points));
                points = 0;
            }
            metrics.extend(messages(family, part, wall));
            points += part.len();
        }
    }
    if points > 0 {
        items.push(item(metrics, points));
    }
    items
}

fn item(metrics: Vec<Metric>, points: usize) -> Item {
    let bytes = ScopeMetrics { metrics, ..ScopeMetrics::default() }.encode_to_vec();
    Item { kind: ItemKind::Metrics, records: u64::try_from(points).unwrap_or(u64::MAX), bytes }
}

/// The messages of some points of a family: one, or two where histograms of both forms are among them.
fn messages(family: &Family, points: &[Point], wall: Wall) -> Vec<Metric> {
    let cumulative = AggregationTemporality::Cumulative.into();
    let mut data = Vec::new();
    if family.metric.kind == Kind::Histogram {
        let (mut exponential, mut explicit) = (Vec::new(), Vec::new());
        for point in points {
            let Value::Buckets(buckets) = &point.value else { continue };
            match power_of_two(buckets.unit) {
                Some(offset) => exponential.push(exponential_point(point, buckets, offset, wall)),
                None => explicit.push(explicit_point(point, buckets, wall)),
            }
        }
        if !exponential.is_empty() {
            data.push(Data::ExponentialHistogram(ExponentialHistogram {
                data_points: exponential,
                aggregation_temporality: cumulative,
            }));
        }
        if !explicit.is_empty() {
            data.push(Data::Histogram(Histogram { data_points: explicit, aggregation_temporality: cumulative }));
        }
    } else {
        let data_points: Vec<_> = points.iter().filter_map(|point| number(point, family.metric.kind, wall)).collect();
        if !data_points.is_empty() {
            data.push(match family.metric.kind {
                Kind::Gauge => Data::Gauge(Gauge { data_points }),
                kind => Data::Sum(Sum {
                    data_points,
                    aggregation_temporality: cumulative,
                    is_monotonic: kind == Kind::Counter,
                }),
            });
        }
    }
    let message = |data| Metric {
        name: family.metric.name.to_owned(),
        description: family.metric.description.to_owned(),
        unit: family.metric.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    };
    data.into_iter().map(message).collect()
}

fn attributes(point: &Point) -> Vec<opentelemetry_proto::tonic::common::v1::KeyValue> {
    let all = point.attributes.iter();
    all.fold(Attributes::default(), |attributes, (name, value)| attributes.text(name, &**value)).done()
}

/// `None` for what is no number: it is not known.
fn number(point: &Point, kind: Kind, wall: Wall) -> Option<NumberDataPoint> {
    let value = match point.value {
        // OTLP's integers are signed.
        Value::Int(value) => i64::try_from(value).map_or(Number::AsDouble(value as f64), Number::AsInt),
        Value::Float(value) if value.is_finite() => Number::AsDouble(value),
        Value::Float(_) | Value::Buckets(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: if kind == Kind::Gauge { 0 } else { wall.unix_ns(point.start) },
        time_unix_nano: wall.unix_ns(point.t),
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

/// The exponent of an exact power of two.
fn power_of_two(unit: f64) -> Option<i32> {
    #[allow(clippy::cast_possible_truncation, reason = "a finite double's exponent is a small number")]
    let exponent = unit.log2().round() as i32;
    #[allow(clippy::float_cmp, reason = "only an exact power of two will do")]
    (unit.is_normal() && unit > 0.0 && 2f64.powi(exponent) == unit).then_some(exponent)
}

fn count(buckets: &Buckets) -> u64 {
    buckets.counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n))
}

fn exponential_point(point: &Point, buckets: &Buckets, offset: i32, wall: Wall) -> ExponentialHistogramDataPoint {
    ExponentialHistogramDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: wall.unix_ns(point.start),
        time_unix_nano: wall.unix_ns(point.t),
        count: count(buckets),
        sum: buckets.sum,
        positive: Some(ExponentialBuckets { offset, bucket_counts: buckets.counts.clone() }),
        ..ExponentialHistogramDataPoint::default()
    }
}

fn explicit_point(point: &Point, buckets: &Buckets, wall: Wall) -> HistogramDataPoint {
    let bound = |class: i32| 2f64.powi(class + 1) * buckets.unit;
    let mut bucket_counts = buckets.counts.clone();
    // The last bucket of OTLP has no upper bound; nothing is beyond the last class.
    bucket_counts.push(0);
    HistogramDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: wall.unix_ns(point.start),
        time_unix_nano: wall.unix_ns(point.t),
        count: count(buckets),
        sum: buckets.sum,
        explicit_bounds: (0..).map(bound).take(buckets.counts.len()).collect(),
        bucket_counts,
        ..HistogramDataPoint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::World;
    use crate::metric::{Detail, Metric as Declaration};
    use crate::observation::recording::Header;

    const fn declaration(kind: Kind) -> Declaration {
        let attributes = &["hw.id"];
        Declaration { name: "rdma.x", unit: "By", description: "What x is", kind, attributes, detail: Detail::Default }
    }
    static COUNTER: Declaration = declaration(Kind::Counter);
    static GAUGE: Declaration = declaration(Kind::Gauge);
    static SUM: Declaration = declaration(Kind::UpDownCounter);
    static HISTOGRAM: Declaration = declaration(Kind::Histogram);

    fn wall() -> Wall {
        Wall::new(&World::new(Header { unix_ns: Some(1_000_000), mono_ns: Some(0), ..Header::new() }))
    }

    fn point(value: Value) -> Point {
        Point { attributes: [("hw.id", "mlx5_0/1".into())].into(), start: 5, t: 9, value }
    }

    fn told(metric: &'static Declaration, points: Vec<Point>) -> Vec<Metric> {
        let items = items(&[Family { metric, points }], wall());
        let metrics = |item: &Item| ScopeMetrics::decode(&*item.bytes).expect("a message").metrics;
        items.iter().flat_map(metrics).collect()
    }

    #[test]
    fn a_counter_is_a_cumulative_monotonic_sum_since_its_start() {
        let metrics = told(&COUNTER, vec![point(Value::Int(7)), point(Value::Int(u64::MAX))]);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{metrics:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        let first = &sum.data_points[0];
        assert_eq!((first.start_time_unix_nano, first.time_unix_nano), (1_000_005, 1_000_009));
        assert_eq!((first.value, first.attributes[0].key.as_str()), (Some(Number::AsInt(7)), "hw.id"));
        assert_eq!(sum.data_points[1].value, Some(Number::AsDouble(u64::MAX as f64)));
        assert_eq!((metrics[0].name.as_str(), metrics[0].unit.as_str()), ("rdma.x", "By"));
        let sums = told(&SUM, vec![point(Value::Int(7))]);
        assert!(matches!(&sums[0].data, Some(Data::Sum(sum)) if !sum.is_monotonic));
    }

    #[test]
    fn a_gauge_has_no_start_and_what_is_no_number_has_no_point() {
        let metrics = told(&GAUGE, vec![point(Value::Float(0.5)), point(Value::Float(f64::NAN))]);
        let Some(Data::Gauge(gauge)) = &metrics[0].data else { panic!("{metrics:?}") };
        assert_eq!(gauge.data_points.len(), 1);
        assert_eq!((gauge.data_points[0].start_time_unix_nano, gauge.data_points[0].time_unix_nano), (0, 1_000_009));
        assert!(told(&GAUGE, vec![]).is_empty(), "unknown is absent");
    }

    #[test]
    fn classes_of_bytes_are_an_exponential_histogram_of_scale_0() {
        let buckets = Buckets { counts: vec![1, 0, 4], unit: 1.0, sum: Some(20.0) };
        let metrics = told(&HISTOGRAM, vec![point(Value::Buckets(buckets))]);
        let Some(Data::ExponentialHistogram(histogram)) = &metrics[0].data else { panic!("{metrics:?}") };
        let point = &histogram.data_points[0];
        assert_eq!((point.scale, point.count, point.sum, point.zero_count), (0, 5, Some(20.0), 0));
        let positive = point.positive.as_ref().expect("buckets");
        assert_eq!((positive.offset, &positive.bucket_counts[..]), (0, &[1, 0, 4][..]));
        assert_eq!((power_of_two(0.25), power_of_two(1e-9), power_of_two(0.0)), (Some(-2), None, None));
    }

    #[test]
    fn classes_of_nanoseconds_have_exact_bounds_in_seconds() {
        let buckets = Buckets { counts: vec![0, 3, 4], unit: 1e-9, sum: None };
        let metrics = told(&HISTOGRAM, vec![point(Value::Buckets(buckets))]);
        let Some(Data::Histogram(histogram)) = &metrics[0].data else { panic!("{metrics:?}") };
        let point = &histogram.data_points[0];
        assert_eq!(point.bucket_counts, [0, 3, 4, 0]);
        assert_eq!(point.explicit_bounds, [2e-9, 4e-9, 8e-9]);
        assert_eq!((point.count, point.sum), (7, None));
    }

    #[test]
    fn many_points_are_told_in_several_items_and_none_is_lost() {
        let many = Family { metric: &COUNTER, points: (0..4500).map(|n| point(Value::Int(n))).collect() };
        let one = Family { metric: &GAUGE, points: vec![point(Value::Float(1.0))] };
        let items = items(&[one.clone(), many, one], wall());
        assert_eq!(items.iter().map(|item| item.records).sum::<u64>(), 4502);
        assert!(items.iter().all(|item| item.records <= 2000 && item.bytes.len() < 1 << 20));
    }
}
