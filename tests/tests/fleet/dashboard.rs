//! The dashboards as Grafana imports them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{files, text};

/// A dashboard.
pub(crate) struct Dashboard {
    /// Its file's name.
    pub(crate) name: String,
    json: Value,
}

/// One query of a panel.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    /// File and panel.
    pub(crate) at: String,
    /// The expression, with Grafana's variables in it.
    pub(crate) expr: String,
}

/// All of them.
pub(crate) fn dashboards() -> Vec<Dashboard> {
    let read = |path: std::path::PathBuf| {
        let json = serde_json::from_str(&text(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        Dashboard { name, json }
    };
    files("grafana", ".json").into_iter().map(read).collect()
}

impl Dashboard {
    /// Panels that draw something.
    fn panels(&self) -> impl Iterator<Item = &Value> {
        let panels = self.json["panels"].as_array().expect("a dashboard has panels");
        panels.iter().filter(|panel| panel["type"] != "row")
    }

    /// Every query of every panel.
    pub(crate) fn queries(&self) -> Vec<Query> {
        let of_panel = |panel: &Value| {
            let at = format!("{}, {}", self.name, panel["title"]);
            let targets = panel["targets"].as_array().expect("a panel has queries").clone();
            targets.into_iter().map(move |target| Query {
                at: at.clone(),
                expr: target["expr"].as_str().expect("a query is a text").to_owned(),
            })
        };
        self.panels().flat_map(of_panel).collect()
    }

    /// Queries that fill the variables: metric and labels of each `label_values`.
    pub(crate) fn variable_queries(&self) -> Vec<Query> {
        let variables = self.json["templating"]["list"].as_array().expect("a dashboard has variables");
        let queries = variables.iter().filter_map(|variable| variable["query"]["query"].as_str());
        let expression = |query: &str| {
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            inner.and_then(|inner| inner.rsplit_once(", ")).map(|(expr, label)| format!("count by ({label}) ({expr})"))
        };
        let query = |text| Query {
            at: format!("{}, a variable", self.name),
            expr: expression(text).unwrap_or_else(|| panic!("{}: {text}", self.name)),
        };
        queries.map(query).collect()
    }

    fn variables(&self) -> BTreeSet<String> {
        let variables = self.json["templating"]["list"].as_array().expect("a dashboard has variables");
        variables.iter().map(|variable| variable["name"].as_str().expect("it has a name").to_owned()).collect()
    }
}

#[test]
fn identifiers_are_stable_and_unique() {
    let dashboards = dashboards();
    let uids: Vec<&str> = dashboards.iter().filter_map(|dashboard| dashboard.json["uid"].as_str()).collect();
    assert_eq!(uids, ["rdmascope-findings", "rdmascope-node", "rdmascope-rails"]);
    for dashboard in &dashboards {
        assert!(dashboard.json["id"].is_null(), "{} has the number of one Grafana", dashboard.name);
        let ids: Vec<u64> =
            dashboard.json["panels"].as_array().unwrap().iter().filter_map(|p| p["id"].as_u64()).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{}", dashboard.name);
    }
}

#[test]
fn every_panel_says_what_it_means_and_takes_the_chosen_data_source() {
    for dashboard in dashboards() {
        assert!(dashboard.variables().contains("datasource"), "{}", dashboard.name);
        for panel in dashboard.panels() {
            let at = format!("{}, {}", dashboard.name, panel["title"]);
            assert!(panel["description"].as_str().is_some_and(|text| text.len() > 60), "{at} has no description");
            let targets = panel["targets"].as_array().unwrap().iter();
            for source in targets.map(|target| &target["datasource"]).chain([&panel["datasource"]]) {
                assert_eq!(source["uid"], "${datasource}", "{at}");
            }
        }
    }
}

#[test]
fn only_variables_that_are_there_are_used() {
    for dashboard in dashboards() {
        let known = dashboard.variables();
        let text = dashboard.json.to_string();
        for (at, _) in text.match_indices('$') {
            let name: String = text[at + 1..]
                .trim_start_matches('{')
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let builtin = ["__rate_interval", "__range", "__all"].contains(&name.as_str());
            assert!(builtin || known.contains(&name), "{}: ${name}", dashboard.name);
        }
    }
}

#[test]
fn panels_lie_side_by_side_within_the_width() {
    for dashboard in dashboards() {
        let mut taken = BTreeSet::new();
        for panel in dashboard.json["panels"].as_array().unwrap() {
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().expect("a place"));
            assert!(x + w <= 24, "{}, {}", dashboard.name, panel["title"]);
            for cell in (y..y + h).flat_map(|row| (x..x + w).map(move |column| (row, column))) {
                assert!(taken.insert(cell), "{}, {} lies on another", dashboard.name, panel["title"]);
            }
        }
    }
}

#[test]
fn rates_of_bytes_are_shown_in_bits_and_nothing_else_is() {
    for dashboard in dashboards() {
        for panel in dashboard.panels().filter(|panel| panel["fieldConfig"]["defaults"]["unit"] == "bps") {
            for target in panel["targets"].as_array().unwrap() {
                let expr = target["expr"].as_str().unwrap();
                assert!(expr.contains("_bytes") && expr.ends_with(" * 8"), "{}: {expr}", panel["title"]);
            }
        }
        for query in dashboard.queries().iter().filter(|query| query.expr.contains("* 8")) {
            let panel = dashboard.panels().find(|panel| query.at.ends_with(&panel["title"].to_string()));
            assert_eq!(panel.unwrap()["fieldConfig"]["defaults"]["unit"], "bps", "{}", query.at);
        }
    }
}

#[test]
fn rates_are_taken_over_at_least_four_sample_periods() {
    for dashboard in dashboards() {
        for target in dashboard.panels().flat_map(|panel| panel["targets"].as_array().unwrap()) {
            let expr = target["expr"].as_str().unwrap();
            if expr.contains("$__rate_interval") {
                assert_eq!(target["interval"], "$period", "{expr}");
            }
        }
    }
}

#[test]
fn gaps_stay_gaps_and_missing_numbers_are_not_drawn_as_zero() {
    for dashboard in dashboards() {
        for panel in dashboard.panels() {
            let defaults = &panel["fieldConfig"]["defaults"];
            let spans = &defaults["custom"]["spanNulls"];
            assert!(spans.is_null() || spans == false, "{}", panel["title"]);
            let instead = &defaults["noValue"];
            assert!(instead.is_null() || instead == "–", "{}", panel["title"]);
            assert!(!panel.to_string().contains("nullValueMode"), "{}", panel["title"]);
        }
    }
}
