//! Prometheus's own tool over the shipped files.

use std::path::Path;
use std::process::Command;

use crate::{files, packaging};

/// Fails unless `promtool` likes it; says so where there is no such tool.
pub(crate) fn likes<'a>(arguments: &[&str], files: impl IntoIterator<Item = &'a Path>) {
    let mut command = Command::new("promtool");
    let Ok(output) = command.args(arguments).args(files).output() else {
        println!("skipped: promtool is not installed (Debian package prometheus)");
        return;
    };
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{command:?}:\n{said}");
}

#[test]
fn promtool_finds_no_fault_in_the_rules() {
    let rules = ["prometheus/recording.rules.yaml", "prometheus/alerts.rules.yaml"].map(packaging);
    likes(&["check", "rules", "--lint-fatal"], rules.iter().map(AsRef::as_ref));
}

#[test]
fn each_alert_fires_on_its_series_and_not_on_others() {
    let tests = files("prometheus/test", ".yaml");
    likes(&["test", "rules"], tests.iter().map(AsRef::as_ref));
}

#[test]
fn promtool_finds_no_fault_in_the_example_of_a_scrape() {
    likes(&["check", "config"], [packaging("prometheus/prometheus.yaml").as_path()]);
}
