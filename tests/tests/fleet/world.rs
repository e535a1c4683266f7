//! A small fleet that exports every metric there is, as series for `promtool test rules`: two nodes with a port that
//! moves and one that stands still, and a third that has fallen silent.

use std::fmt::Write as _;

use collector::metric::{Kind, Metric, declared, label_name};

/// What the labels of Prometheus itself and of the target may be.
pub(crate) const TARGET_LABELS: [&str; 4] = ["cluster", "rack", "instance", "job"];

const NODES: [&str; 2] = ["n1", "n2"];

/// The input series, in the form of a test file.
pub(crate) fn series() -> String {
    let mut out = String::new();
    for node in NODES {
        let target = format!("cluster=\"c\", rack=\"r\", instance=\"{node}\", job=\"rdmascope\"");
        line(&mut out, "up", &target, "1x60");
        for metric in declared::all() {
            for labels in combinations(metric) {
                write(&mut out, metric, &format!("{target}{labels}"), moves(&labels));
            }
        }
    }
    line(&mut out, "rdma_self_info", "cluster=\"c\", rack=\"r\", instance=\"n3\"", "1x10");
    out
}

fn moves(labels: &str) -> bool {
    !labels.contains("mlx5_1")
}

fn write(out: &mut String, metric: &Metric, labels: &str, moves: bool) {
    let name = metric.prometheus_name();
    match metric.kind {
        Kind::Histogram => {
            for le in ["0.01", "1", "+Inf"] {
                line(out, &format!("{name}_bucket"), &format!("{labels}, le=\"{le}\""), "0+60x60");
            }
        }
        Kind::Counter if moves => line(out, &name, labels, "1000+60x60"),
        Kind::Counter => line(out, &name, labels, "1000x60"),
        // The second node's port that stands still is down; the first node's is up, or nothing could stand still on it.
        Kind::UpDownCounter if name == "hw_network_up" && !moves && labels.contains("n2") => {
            line(out, &name, labels, "0x60");
        }
        _ => line(out, &name, labels, "1x60"),
    }
}

fn line(out: &mut String, name: &str, labels: &str, values: &str) {
    let _ = writeln!(out, "      - {{series: '{name}{{{labels}}}', values: '{values}'}}");
}

/// Every combination of the values its attributes can have here.
fn combinations(metric: &Metric) -> Vec<String> {
    let devices: &[usize] = if metric.attributes.contains(&declared::HW_NAME) { &[0, 1] } else { &[0] };
    let mut all = Vec::new();
    for device in devices {
        let mut some = vec![String::new()];
        for attribute in metric.attributes {
            let label = label_name(attribute);
            some = some
                .iter()
                .flat_map(|labels| {
                    values(attribute, *device).into_iter().map({
                        let label = &label;
                        move |value| format!("{labels}, {label}=\"{value}\"")
                    })
                })
                .collect();
        }
        all.extend(some);
    }
    all
}

fn values(attribute: &str, device: usize) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    match attribute {
        declared::HW_ID => vec![format!("0000:0{device}:00.0")],
        declared::HW_NAME => vec![format!("mlx5_{device}")],
        declared::PORT => words(&["1"]),
        declared::DIRECTION => words(&["transmit", "receive"]),
        declared::HW_STATE => words(&["ok", "degraded", "failed", "predicted_failure"]),
        declared::SEVERITY => words(&["info", "warning", "critical"]),
        declared::SEEING => words(&["ok", "partial", "off"]),
        _ => words(&["x"]),
    }
}
