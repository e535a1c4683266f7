//! Small expressions that read a value out of a JSON document, for tables of expectations.
//!
//! A path is keys with dots: `ports.node.devices`. `[]` takes every element of a list, `[device=mlx5_*,port=1]` those
//! whose fields match (a pattern with `*`, `?`; a field of a field is `subject.device`; `null` is a field that is null or
//! not there), `[#1]` the second of those selected so far, counted from 0. So a path selects any number of
//! values; an expression makes one of them:
//!
//! | expression | gives |
//! |---|---|
//! | `PATH` | the value, if all selected are the same; null if none is selected |
//! | `all PATH` | the list of the selected values that are not null |
//! | `count PATH` | how many are selected |
//! | `any PATH` | whether one is selected |
//! | `sum PATH …` | the sum; a path with `-` before it is subtracted; null where one is not known |
//! | `text TEMPLATE` | the template with each `{PATH}` or `{PATH:DECIMALS}` replaced by the value |
//! | `same PATH = JSON` | whether the value is this |

use serde_json::{Number, Value, json};

/// Evaluates an expression.
///
/// # Errors
/// What is wrong with the expression, or that values differ where there must be one.
pub fn read(document: &Value, expression: &str) -> Result<Value, String> {
    let (operator, rest) = expression.split_once(' ').unwrap_or(("", expression));
    let known = |path: &str| -> Result<Vec<Value>, String> {
        Ok(select(document, path)?.into_iter().filter(|value| !value.is_null()).cloned().collect())
    };
    match operator {
        "" => one(document, expression),
        "all" => Ok(Value::Array(known(rest)?)),
        "count" => Ok(json!(known(rest)?.len())),
        "any" => Ok(json!(!known(rest)?.is_empty())),
        "sum" => sum(document, rest),
        "text" => text(document, rest),
        "same" => {
            let (path, expected) = rest.split_once(" = ").ok_or("same needs PATH = JSON")?;
            let expected: Value = serde_json::from_str(expected).map_err(|error| error.to_string())?;
            Ok(json!(alike(&one(document, path)?, &expected)))
        }
        _ => Err(format!("{operator:?} is no operator")),
    }
}

/// Equal, numbers as numbers to twelve digits.
#[must_use]
pub fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * a.abs().max(b.abs()),
            _ => a == b,
        },
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        _ => a == b,
    }
}

fn one(document: &Value, path: &str) -> Result<Value, String> {
    let selected = select(document, path)?;
    let Some(first) = selected.first() else { return Ok(Value::Null) };
    match selected.iter().find(|value| !alike(value, first)) {
        Some(other) => Err(format!("{path} selects {first} and {other}")),
        None => Ok((*first).clone()),
    }
}

fn sum(document: &Value, terms: &str) -> Result<Value, String> {
    let mut sum = 0.0;
    for term in terms.split_whitespace() {
        let (sign, path) = term.strip_prefix('-').map_or((1.0, term), |path| (-1.0, path));
        let selected = select(document, path)?;
        if selected.is_empty() {
            return Ok(Value::Null);
        }
        for value in selected {
            let Some(number) = value.as_f64() else { return Ok(Value::Null) };
            sum += sign * number;
        }
    }
    Ok(Number::from_f64(sum).map_or(Value::Null, Value::Number))
}

fn text(document: &Value, template: &str) -> Result<Value, String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (hole, after) = after.split_once('}').ok_or("a { without its }")?;
        let (hole, decimals) = hole.split_once(':').map_or((hole, None), |(hole, n)| (hole, n.parse::<usize>().ok()));
        let counted = hole.strip_prefix("count ");
        let value = counted.map_or_else(|| one(document, hole), |_| read(document, hole))?;
        let value = match (&value, decimals) {
            (Value::Null, _) => return Ok(Value::Null),
            (Value::String(text), _) => text.clone(),
            (value, Some(n)) => format!("{:.n$}", value.as_f64().ok_or("decimals of no number")?),
            (value, None) => value.to_string(),
        };
        text.push_str(before);
        text.push_str(&value);
        rest = after;
    }
    Ok(Value::String(text + rest))
}

/// The values a path leads to.
///
/// # Errors
/// A bracket or a condition is incomplete.
pub fn select<'v>(document: &'v Value, path: &str) -> Result<Vec<&'v Value>, String> {
    let mut selected = vec![document];
    let mut rest = path;
    while !rest.is_empty() {
        let key_end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (key, after) = rest.split_at(key_end);
        if !key.is_empty() {
            selected = selected.into_iter().filter_map(|value| value.get(key)).collect();
        }
        rest = after;
        if let Some(inside) = rest.strip_prefix('[') {
            let (conditions, after) = inside.split_once(']').ok_or_else(|| format!("{path}: a [ without its ]"))?;
            if let Some(index) = conditions.strip_prefix('#') {
                let index: usize = index.parse().map_err(|_| format!("{path}: {conditions} is no index"))?;
                selected = selected.into_iter().nth(index).into_iter().collect();
                rest = after.strip_prefix('.').unwrap_or(after);
                continue;
            }
            let conditions: Vec<(&str, &str)> = conditions
                .split(',')
                .filter(|condition| !condition.is_empty())
                .map(|condition| condition.split_once('=').ok_or_else(|| format!("{path}: {condition} has no =")))
                .collect::<Result<_, _>>()?;
            let elements = selected.into_iter().filter_map(Value::as_array).flatten();
            selected =
                elements.filter(|element| conditions.iter().all(|(k, p)| field_matches(element, k, p))).collect();
            rest = after;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    Ok(selected)
}

fn field_matches(element: &Value, key: &str, pattern: &str) -> bool {
    let field = key.split('.').try_fold(element, |value, key| value.get(key));
    match field {
        None | Some(Value::Null) => pattern == "null",
        Some(Value::String(text)) => matches(pattern.as_bytes(), text.as_bytes()),
        Some(other) => matches(pattern.as_bytes(), other.to_string().as_bytes()),
    }
}

/// A pattern with `*` and `?`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=text.len()).any(|n| matches(rest, &text[n..])),
        (Some((b'?', pattern)), Some((_, text))) => matches(pattern, text),
        (Some((p, pattern)), Some((t, text))) if p == t => matches(pattern, text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_reads_what_its_path_selects() {
        let document = json!({"ports": [
            {"device": "a0", "port": 1, "rate": 100.0, "tx": null, "s": {"x": "Y"}},
            {"device": "a1", "port": 1, "rate": 100.0, "tx": 5, "s": {"x": "Z"}},
        ]});
        for (expression, expected) in [
            ("ports[].rate", json!(100.0)),
            ("ports[device=a0].tx", Value::Null),
            ("ports[device=b*].rate", Value::Null),
            ("ports[device=a?,s.x=Z].tx", json!(5)),
            ("all ports[].tx", json!([5])),
            ("count ports[port=1]", json!(2)),
            ("any ports[port=2]", json!(false)),
            ("sum ports[].rate -ports[device=a1].tx", json!(195.0)),
            ("sum ports[].tx", Value::Null),
            ("text {ports[device=a1].s.x}/{ports[].rate:0} of {count ports[]}", json!("Z/100 of 2")),
            ("same ports[device=a1].tx = 5", json!(true)),
            ("ports[tx=null].device", json!("a0")),
            ("count ports[device=a?,nothing=null]", json!(2)),
            ("ports[port=1][#1].device", json!("a1")),
            ("ports[][#7].device", Value::Null),
        ] {
            assert!(alike(&read(&document, expression).unwrap(), &expected), "{expression}");
        }
        assert!(read(&document, "ports[].s.x").is_err(), "two values where one must be");
        assert!(read(&document, "ports[device").is_err());
    }
}
