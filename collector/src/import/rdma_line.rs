//! What all output of the `rdma` tool has in common: one entry a line (`link mlx5_0/1 …`, `dev mlx5_0 …`), which mail
//! programs wrap over several, or one JSON object an entry.

use serde_json::Value;

use super::section::{Claim, Format, Section};

/// Whose a line is: the words behind the port tell what was asked.
pub(super) fn claim(line: &str) -> Claim {
    let mut words = line.split_whitespace();
    let format = match (words.next(), words.next()) {
        (Some("link"), Some(place)) if place.contains('/') => {
            let has = |word: &str| line.split_whitespace().any(|w| w == word);
            if ["cntn", "qp-type", "optional-counters"].into_iter().any(has) {
                Format::RdmaStatistic
            } else if ["lqpn", "cm-idn", "cqn", "mrn"].into_iter().any(has) {
                Format::RdmaResource
            } else if has("physical_state") || has("state") {
                Format::RdmaLink
            } else {
                Format::RdmaStatistic
            }
        }
        (Some("dev"), Some(_)) if line.contains(" srqn ") || line.contains(" cqn ") || line.contains(" pdn ") => {
            Format::RdmaResource
        }
        (Some(index), Some(name)) if name.ends_with(':') && is_index(index) => match words.next() {
            Some("node_type" | "fw" | "node_guid") => Format::RdmaLink,
            Some("pd" | "cq" | "qp" | "cm_id" | "mr" | "ctx" | "srq") => Format::RdmaResource,
            _ => return Claim::No,
        },
        _ => return Claim::No,
    };
    Claim::Begins(format)
}

/// `2:` before a device's name.
fn is_index(word: &str) -> bool {
    word.strip_suffix(':').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// The rest of an entry that was wrapped: names and numbers, no prose.
pub(super) fn continues(line: &str) -> bool {
    if line.trim_start().starts_with("LQPN:") {
        return true;
    }
    let words = || line.split_whitespace();
    let plain = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-[]<>,/".contains(&b));
    let number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
    let name = |word: &str| word.contains(['_', '-']) || number(word);
    words().all(plain) && words().any(number) && words().filter(|w| name(w)).count() * 2 > words().count()
}

/// One entry: its device, its port, and the words behind them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// The device.
    pub(super) device: String,
    /// The port; absent where the entry is of the whole device, or of no port (`mlx5_0/-`).
    pub(super) port: Option<u32>,
    /// Names and values in turn where the tool wrote JSON; all words where it wrote text.
    pub(super) words: Vec<String>,
    /// The words are names and values in turn, whatever spaces are in them.
    pub(super) paired: bool,
}

impl Entry {
    /// The word behind a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let step = if self.paired { 2 } else { 1 };
        let at = self.words.iter().step_by(step).position(|word| word == name)? * step;
        self.words.get(at + 1).map(String::as_str)
    }

    /// The number behind a name.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }
}

/// The entries of a section.
pub(super) fn entries(section: &Section<'_>) -> Vec<Entry> {
    if let Some(Value::Array(list)) = &section.json {
        return list.iter().filter_map(from_json).collect();
    }
    let mut entries: Vec<Entry> = Vec::new();
    for line in &section.lines {
        match head(line) {
            Some(entry) => entries.push(entry),
            None => {
                if let Some(open) = entries.last_mut() {
                    open.words.extend(line.split_whitespace().map(str::to_owned));
                }
            }
        }
    }
    entries
}

fn head(line: &str) -> Option<Entry> {
    let mut words = line.split_whitespace();
    let (device, port) = match (words.next()?, words.next()?) {
        ("link", place) => {
            let (device, port) = place.split_once('/')?;
            (device, port.parse().ok())
        }
        ("dev", device) => (device, None),
        (index, name) if is_index(index) => (name.strip_suffix(':')?, None),
        _ => return None,
    };
    let words = words.map(str::to_owned).collect();
    Some(Entry { device: device.to_owned(), port, words, paired: false })
}

fn from_json(value: &Value) -> Option<Entry> {
    let object = value.as_object()?;
    let device = object.get("ifname")?.as_str()?.to_owned();
    let port = object.get("port").and_then(|port| {
        let text = port.as_str().and_then(|text| text.parse().ok());
        port.as_u64().and_then(|port| u32::try_from(port).ok()).or(text)
    });
    let mut words = Vec::new();
    for (name, value) in object.iter().filter(|(name, _)| !["ifindex", "ifname", "port"].contains(&name.as_str())) {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Array(list) => {
                let parts = list.iter().map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned));
                parts.collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        words.push(name.clone());
        words.push(text);
    }
    Some(Entry { device, port, words, paired: true })
}

/// The numbers of a list such as `<813,816>`, `126-128,130-140`: at most `most`, and how many were left out.
pub(super) fn numbers(list: &str, most: usize) -> (Vec<u32>, u64) {
    let (mut numbers, mut left) = (Vec::new(), 0);
    for part in list.trim_matches(['<', '>', '[', ']']).split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (Ok(from), Ok(to)) = (from.trim().parse::<u32>(), to.trim().parse::<u32>()) else { continue };
        if to < from {
            continue;
        }
        let fit = most.saturating_sub(numbers.len()) as u64;
        let n = u64::from(to - from) + 1;
        numbers.extend((from..=to).take(usize::try_from(fit.min(n)).unwrap_or(0)));
        left += n.saturating_sub(fit);
    }
    (numbers, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_known_by_what_follows_the_port() {
        for (line, format) in [
            ("link mlx5_0/1 lqpn 5 type RC state RTS path-mig-state MIGRATED", Format::RdmaResource),
            ("dev ibp8s0f0 srqn 4 type BASIC lqpn 126-128 pdn 9 pid 3581 comm x", Format::RdmaResource),
            ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0", Format::RdmaLink),
            ("2: mlx5_0: node_type ca fw 16.0 node_guid 0002:c903", Format::RdmaLink),
            ("0: mlx5_0: pd 3 cq 5 qp 4 cm_id 0 mr 0 ctx 0", Format::RdmaResource),
            ("link mlx5_0/1 cntn 4 qp-type RC rx_write_requests 0", Format::RdmaStatistic),
            ("link mlx5_0/1 rx_write_requests 0", Format::RdmaStatistic),
        ] {
            assert_eq!(claim(line), Claim::Begins(format), "{line}");
        }
        assert_eq!(claim("link to the page: http://x/1"), Claim::No);
        assert!(continues("out_of_sequence 0 duplicate_request 0") && continues("    LQPN: <1,2>"));
        assert!(!continues("we have 5 nodes, all of them slow.") && !continues(""));
    }

    #[test]
    fn lists_of_numbers_have_ranges_and_an_end() {
        assert_eq!(numbers("126-128,130-140", 99).0.len(), 14);
        assert_eq!(numbers("<813,816>", 99), (vec![813, 816], 0));
        assert_eq!(numbers("1-4000000000", 3), (vec![1, 2, 3], 3_999_999_997));
        assert_eq!(numbers("9-3,x,7", 9), (vec![7], 0));
    }
}
