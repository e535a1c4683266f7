//! What the rule files promise a reader of an alert.

use std::collections::BTreeSet;

use crate::rule_file::{Rule, rules};
use crate::{files, packaging, text};

const PAGE: &str = "https://github.com/rdmascope/rdmascope/blob/main/docs/fleet.md#";

fn alerts() -> Vec<Rule> {
    let mut alerts = rules();
    alerts.retain(|rule| rule.alert);
    assert!(alerts.len() >= 15, "{alerts:?}");
    alerts
}

#[test]
fn each_alert_has_a_duration_a_severity_texts_and_a_section_in_the_docs() {
    let page = text(packaging("../docs/fleet.md"));
    let sections: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_lowercase).collect();
    for alert in alerts() {
        assert!(alert.get("for").is_some_and(|time| time.ends_with(['s', 'm'])), "{alert:?}");
        assert!(["critical", "warning", "info"].contains(&alert.get("severity").unwrap_or_default()), "{alert:?}");
        for key in ["summary", "description"] {
            assert!(alert.get(key).is_some_and(|text| text.len() > 20), "{key}: {alert:?}");
        }
        let anchor = alert.get("runbook_url").and_then(|url| url.strip_prefix(PAGE)).expect("it names a section");
        assert_eq!(anchor, alert.name.to_lowercase());
        assert!(sections.contains(anchor), "docs/fleet.md has no section {}", alert.name);
    }
    let names: BTreeSet<String> = alerts().iter().map(|alert| alert.name.to_lowercase()).collect();
    let of_alerts = sections.iter().filter(|section| section.starts_with("rdma"));
    for section in of_alerts {
        assert!(names.contains(section), "docs/fleet.md explains {section}, which is no alert");
    }
}

#[test]
fn each_alert_has_a_case_in_which_it_fires() {
    let tests: String = files("prometheus/test", ".yaml").iter().map(text).collect();
    for alert in alerts() {
        let fires = format!("- {{labels: '{{alertname=\"{}\"", alert.name);
        assert!(tests.contains(&fires), "{} never fires in packaging/prometheus/test", alert.name);
    }
}

#[test]
fn each_recorded_series_is_used_by_an_alert_or_a_dashboard() {
    let rules = rules();
    let dashboards: String = files("grafana", ".json").iter().map(text).collect();
    for record in rules.iter().filter(|rule| !rule.alert) {
        let used = rules.iter().any(|rule| rule.name != record.name && rule.expr.contains(&record.name));
        assert!(used || dashboards.contains(&record.name), "nobody reads {}", record.name);
    }
}
