//! The rule files as data. Not every YAML: the form they are written in.

use crate::{packaging, text};

/// A recording or alert rule.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    /// The series it records, or the alert's name.
    pub(crate) name: String,
    /// It is an alert.
    pub(crate) alert: bool,
    /// Its expression.
    pub(crate) expr: String,
    /// Every other key, also those of labels and annotations, with its value.
    pub(crate) keys: Vec<(String, String)>,
}

impl Rule {
    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

/// The recording rules, then the alerts.
pub(crate) fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for file in ["prometheus/recording.rules.yaml", "prometheus/alerts.rules.yaml"] {
        read(&text(packaging(file)), &mut rules);
    }
    rules
}

fn read(text: &str, rules: &mut Vec<Rule>) {
    // Lines deeper than this belong to the key before them.
    let mut block = None;
    for line in text.lines() {
        let content = line.trim_start();
        let depth = line.len() - content.len();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if block.is_some_and(|key| depth > key) {
            let rule: &mut Rule = rules.last_mut().expect("a block belongs to a rule");
            let into = if rule.keys.last().is_some_and(|(key, _)| key == "expr") {
                &mut rule.expr
            } else {
                &mut rule.keys.last_mut().expect("a block belongs to a key").1
            };
            into.push_str(content);
            into.push('\n');
            continue;
        }
        let (key, value) = content.split_once(':').unwrap_or_else(|| panic!("no key: {line}"));
        let value = value.trim();
        block = ["|", ">-"].contains(&value).then_some(depth);
        match key.strip_prefix("- ") {
            Some(kind @ ("record" | "alert")) => {
                rules.push(Rule { name: value.to_owned(), alert: kind == "alert", ..Rule::default() });
            }
            Some(_) => {}
            None => {
                if let Some(rule) = rules.last_mut() {
                    rule.keys.push((key.to_owned(), value.to_owned()));
                }
            }
        }
    }
}
