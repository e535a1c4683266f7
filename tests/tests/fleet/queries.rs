//! Every query of dashboards and rules: its names, and what it makes of a full and of an empty Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use collector::metric::{Kind, declared, label_name};
use end_to_end::promql::names;

use crate::dashboard::{Query, dashboards};
use crate::packaging;
use crate::promtool::likes;
use crate::rule_file::rules;
use crate::world::{TARGET_LABELS, series};

/// The name an OpenTelemetry Collector gives to `rdma.qp.count`. All other names it makes are those of the page for
/// Prometheus.
const BY_COLLECTOR: (&str, &str) = ("rdma_qp_count", "rdma_qps");

fn of_dashboards() -> Vec<Query> {
    dashboards().iter().flat_map(|dashboard| [dashboard.queries(), dashboard.variable_queries()].concat()).collect()
}

fn of_rules() -> Vec<Query> {
    rules().into_iter().map(|rule| Query { at: rule.name, expr: rule.expr }).collect()
}

/// Each metric that a query may name, with its labels; of `None` the labels are not checked.
fn known() -> BTreeMap<String, Option<BTreeSet<String>>> {
    let mut known = BTreeMap::new();
    for metric in declared::all() {
        let name = metric.prometheus_name();
        let attributes = metric.attributes.iter().map(|attribute| label_name(attribute));
        let mut labels: BTreeSet<String> = attributes.chain(TARGET_LABELS.map(str::to_owned)).collect();
        if name == BY_COLLECTOR.1 {
            known.insert(BY_COLLECTOR.0.to_owned(), Some(labels.clone()));
        }
        known.insert(name.clone(), Some(labels.clone()));
        if metric.kind == Kind::Histogram {
            labels.insert("le".to_owned());
            known.insert(format!("{name}_bucket"), Some(labels));
        }
    }
    for name in ["up", "ALERTS"] {
        known.insert(name.to_owned(), None);
    }
    for rule in rules().into_iter().filter(|rule| !rule.alert) {
        known.insert(rule.name, None);
    }
    known
}

#[test]
fn queries_name_only_exported_metrics_with_labels_they_have() {
    let known = known();
    let every: BTreeSet<&String> = known.values().flatten().flatten().collect();
    for query in [of_dashboards(), of_rules()].concat() {
        let names = names(&query.expr);
        assert!(!names.selectors.is_empty(), "{query:?}");
        for selector in names.selectors {
            let labels = known.get(&selector.metric).unwrap_or_else(|| panic!("{}: {:?}", selector.metric, query));
            let unknown = labels.iter().flat_map(|labels| selector.labels.difference(labels)).next();
            assert_eq!(unknown, None, "no label of {}: {query:?}", selector.metric);
        }
        for label in names.grouping.iter().filter(|label| !every.contains(label)) {
            assert_eq!(label, "rail", "{query:?}");
        }
    }
}

#[test]
fn no_query_makes_a_number_of_what_is_unknown() {
    for query in [of_dashboards(), of_rules()].concat() {
        let names = names(&query.expr);
        for function in ["vector", "absent", "absent_over_time", "scalar", "clamp_min"] {
            assert!(!names.functions.contains(function), "{function}: {query:?}");
        }
    }
}

#[test]
fn windows_of_rates_are_four_of_the_longest_periods() {
    for query in of_dashboards() {
        for window in names(&query.expr).windows {
            assert!(["$__rate_interval", "$__range"].contains(&window.as_str()), "{query:?}");
        }
    }
    for query in of_rules() {
        for window in names(&query.expr).windows {
            assert!(["5m", "15m", "1h", "3h", "6h"].contains(&window.as_str()), "{query:?}");
        }
    }
}

/// A test file that asks each query of the dashboards whether it has an answer.
fn ask(series: &str, answer: &str) -> String {
    let paths = ["recording", "alerts"].map(|name| packaging(&format!("prometheus/{name}.rules.yaml")));
    let [recording, alerts] = paths.map(|path| path.display().to_string());
    let mut file = format!(
        "rule_files: ['{recording}', '{alerts}']\nevaluation_interval: 1m\n\
         group_eval_order: [rdmascope-ports, rdmascope-rails, rdmascope-clusters]\n\
         tests:\n  - interval: 1m\n    input_series:\n{series}    promql_expr_test:\n"
    );
    for query in of_dashboards() {
        let mut expr = query.expr.replace("$__rate_interval", "5m").replace("$__range", "30m");
        for variable in ["$cluster", "$node", "$device", "$rail", "$rule", "$severity"] {
            expr = expr.replace(variable, ".*");
        }
        assert!(!expr.contains('$'), "{query:?}");
        let _ = write!(file, "      - eval_time: 40m\n        expr: |\n          # {}\n          count(\n", query.at);
        for line in expr.lines() {
            let _ = writeln!(file, "            {line}");
        }
        let _ = write!(file, "          ) > bool 0\n{answer}");
    }
    file
}

fn check(file: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("queries.yaml");
    std::fs::write(&path, file).expect("it can be written");
    likes(&["test", "rules"], [path.as_path()]);
}

#[test]
fn each_panel_shows_something_where_every_metric_is_exported() {
    check(&ask(&series(), "        exp_samples:\n          - {labels: '{}', value: 1}\n"));
}

#[test]
fn no_panel_shows_anything_where_nothing_is_exported() {
    check(&ask("", ""));
}
