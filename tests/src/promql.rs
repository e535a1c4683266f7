//! The names in a `PromQL` expression. No parser: `promtool` says whether an expression is one.

use std::collections::BTreeSet;

/// Words that are neither metric nor function.
const WORDS: [&str; 14] = [
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
    "atan2",
    "inf",
    "nan",
];

/// Words that labels follow in parentheses.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// A metric and the labels it is chosen by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// Its name; empty where it is chosen by labels alone.
    pub metric: String,
    /// Names of the labels in braces.
    pub labels: BTreeSet<String>,
}

/// What an expression names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Metrics.
    pub selectors: Vec<Selector>,
    /// Labels to group and match by.
    pub grouping: BTreeSet<String>,
    /// Functions and aggregations.
    pub functions: BTreeSet<String>,
    /// What stands in brackets: `5m`, `$__rate_interval`.
    pub windows: BTreeSet<String>,
}

/// The names in an expression.
#[must_use]
pub fn names(expression: &str) -> Names {
    let mut names = Names::default();
    let tokens = tokens(expression);
    let mut at = 0;
    while at < tokens.len() {
        let next = tokens.get(at + 1).map(String::as_str);
        let token = tokens[at].as_str();
        if BEFORE_LABELS.contains(&token) && next == Some("(") {
            let labels = tokens[at + 2..].iter().take_while(|token| *token != ")");
            names.grouping.extend(labels.filter(|token| is_name(token)).cloned());
            at = end(&tokens, at, ")");
        } else if let Some(window) = token.strip_prefix('[') {
            names.windows.insert(window.to_owned());
        } else if is_name(token) && !WORDS.contains(&token) {
            if next == Some("(") || next.is_some_and(|next| BEFORE_LABELS.contains(&next)) && is_aggregation(token) {
                names.functions.insert(token.to_owned());
            } else {
                let chosen = next == Some("{");
                let labels = if chosen { braces(&tokens[at + 2..]) } else { BTreeSet::new() };
                names.selectors.push(Selector { metric: token.to_owned(), labels });
                if chosen {
                    at = end(&tokens, at, "}");
                }
            }
        } else if token == "{" {
            names.selectors.push(Selector { metric: String::new(), labels: braces(&tokens[at + 1..]) });
            at = end(&tokens, at, "}");
        }
        at += 1;
    }
    names
}

/// Where the next closing sign is.
fn end(tokens: &[String], from: usize, closing: &str) -> usize {
    from + tokens[from..].iter().take_while(|token| *token != closing).count()
}

fn is_aggregation(name: &str) -> bool {
    ["sum", "avg", "min", "max", "count", "group", "quantile", "topk", "bottomk", "stddev"].contains(&name)
}

fn braces(tokens: &[String]) -> BTreeSet<String> {
    tokens.iter().take_while(|token| *token != "}").filter(|token| is_name(token)).cloned().collect()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Names, numbers, brackets with what is in them, single signs; texts are left out.
fn tokens(expression: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' | '`' => {
                rest = rest[1..].split_once(first).map_or("", |(_, after)| after);
                continue;
            }
            '[' => {
                let (window, after) = rest[1..].split_once(']').unwrap_or((&rest[1..], ""));
                tokens.push(format!("[{window}"));
                rest = after;
                continue;
            }
            c if c.is_alphanumeric() || c == '_' => {
                rest.find(|c: char| !(c.is_alphanumeric() || "_:.".contains(c))).unwrap_or(rest.len())
            }
            c => c.len_utf8(),
        };
        if !first.is_whitespace() {
            tokens.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn metrics_labels_functions_and_windows_are_told_apart() {
        let text = r#"max by (instance, hw_id) (rate(a_total{x="b{c}", y!~"d"}[5m])) * 1e-4
            / on (instance) group_left (rail) (port:b:ratio5m > bool 0) or quantile without (z) (0.5, c{} offset 1h) and {__name__=~"q"}"#;
        let names = names(text);
        let metrics: Vec<&str> = names.selectors.iter().map(|selector| selector.metric.as_str()).collect();
        assert_eq!(metrics, ["a_total", "port:b:ratio5m", "c", ""]);
        assert_eq!(names.selectors[0].labels, set(&["x", "y"]));
        assert_eq!(names.selectors[3].labels, set(&["__name__"]));
        assert_eq!(names.grouping, set(&["instance", "hw_id", "rail", "z"]));
        assert_eq!(names.functions, set(&["max", "rate", "quantile"]));
        assert_eq!(names.windows, set(&["5m"]));
    }

    #[test]
    fn an_aggregation_may_say_its_labels_last() {
        let names = names("sum(a) by (x) / count(b)");
        assert_eq!(names.functions, set(&["sum", "count"]));
        assert_eq!(names.grouping, set(&["x"]));
        assert_eq!(names.selectors.len(), 2);
    }
}
