//! Folds what is unavailable into few lines: `mlx5_12..15/1 counters: EINVAL` instead of 84 of them.

use super::device::{DANGLING, DANGLING_FIX};
use crate::source::Missing;

/// One thing that cannot be read: on which device and port, what, and why.
pub(super) struct Gap {
    pub(super) device: String,
    pub(super) port: Option<u32>,
    pub(super) what: String,
    pub(super) reason: String,
}

/// A device and, where the gap is one of a port, the port.
type Place = (String, Option<u32>);

/// Places that share a text, with a run of numbers: `mlx5_`, 12 to 15.
struct Run {
    text: String,
    numbers: Option<(u64, u64)>,
    port: Option<u32>,
}

/// Gaps of one name and one reason.
struct Group {
    what: String,
    reason: String,
    places: Vec<Place>,
}

/// Counters named one by one before the rest is only counted.
const MOST_NAMES: usize = 4;

/// The gaps in as few lines as say them all; in the order they were found.
pub(super) fn fold(gaps: Vec<Gap>) -> Vec<Missing> {
    // First the names of one place and reason, then the places of the same names and reason.
    let mut places: Vec<(String, Option<u32>, String, Vec<String>)> = Vec::new();
    for gap in gaps {
        let same = places.iter_mut().find(|p| p.0 == gap.device && p.1 == gap.port && p.2 == gap.reason);
        match same {
            Some(place) => place.3.push(gap.what),
            None => places.push((gap.device, gap.port, gap.reason, vec![gap.what])),
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    for (device, port, reason, names) in places {
        let what = list(&names);
        match groups.iter_mut().find(|group| group.what == what && group.reason == reason) {
            Some(group) => group.places.push((device, port)),
            None => groups.push(Group { what, reason, places: vec![(device, port)] }),
        }
    }
    let line = |group: Group| Missing {
        what: format!("{} {}", ranges(&group.places), group.what).trim_end().to_owned(),
        fix: remedy(&group.reason).map(str::to_owned),
        reason: group.reason,
    };
    groups.into_iter().map(line).collect()
}

fn list(names: &[String]) -> String {
    let shown = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `mlx5_12`, `mlx5_13`, `mlx5_14` with the same port as `mlx5_12..14/1`.
fn ranges(places: &[Place]) -> String {
    let mut runs: Vec<Run> = Vec::new();
    for (device, port) in places {
        let text = device.trim_end_matches(|c: char| c.is_ascii_digit());
        // A number with a leading zero would not come back as it was written.
        let digits = &device[text.len()..];
        let Some(number) = digits.parse::<u64>().ok().filter(|number| number.to_string() == digits) else {
            runs.push(Run { text: device.clone(), numbers: None, port: *port });
            continue;
        };
        let open = runs.last_mut().filter(|run| run.text == text && run.port == *port);
        match open.and_then(|run| run.numbers.as_mut()).filter(|(_, last)| number.checked_sub(1) == Some(*last)) {
            Some((_, last)) => *last = number,
            None => runs.push(Run { text: text.to_owned(), numbers: Some((number, number)), port: *port }),
        }
    }
    let shown = runs.into_iter().map(|Run { text, numbers, port }| {
        let numbers = match numbers {
            None => String::new(),
            Some((first, last)) if first == last => first.to_string(),
            Some((first, last)) => format!("{first}..{last}"),
        };
        port.map_or_else(|| format!("{text}{numbers}"), |port| format!("{text}{numbers}/{port}"))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// What the operator can do about a reason; `None` where that is not known.
#[must_use]
pub fn remedy(reason: &str) -> Option<&'static str> {
    match reason {
        DANGLING => Some(DANGLING_FIX),
        "EACCES" | "EPERM" => Some("run with the right to read it, or leave it unknown"),
        "EMFILE" => Some("raise the limit of open files (ulimit -n)"),
        "N/A (no PMA)" => Some("nothing: the driver has no port counters on this kernel"),
        "ENOENT" => Some("nothing: the driver does not offer it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Gap, fold};

    fn gap(device: &str, port: u32, what: &str, reason: &str) -> Gap {
        Gap { device: device.into(), port: Some(port), what: what.into(), reason: reason.into() }
    }

    #[test]
    fn the_same_gap_of_neighbours_is_one_line() {
        let missing = fold(vec![
            gap("mlx5_0", 1, "port_xmit_wait", "EACCES"),
            gap("mlx5_12", 1, "counters", "EINVAL"),
            gap("mlx5_13", 1, "counters", "EINVAL"),
            gap("mlx5_14", 1, "counters", "EINVAL"),
            gap("mlx5_16", 1, "counters", "EINVAL"),
            gap("rdmap0s07", 1, "counters", "EINVAL"),
        ]);
        let what: Vec<_> = missing.iter().map(|m| (m.what.as_str(), m.reason.as_str())).collect();
        assert_eq!(
            what,
            [("mlx5_0/1 port_xmit_wait", "EACCES"), ("mlx5_12..14/1, mlx5_16/1, rdmap0s07/1 counters", "EINVAL"),]
        );
    }

    #[test]
    fn many_counters_of_one_port_are_counted() {
        let gaps = (0..7).map(|n| gap("a", 1, &format!("c{n}"), "EIO")).collect();
        assert_eq!(fold(gaps)[0].what, "a/1 c0, c1, c2, c3 and 3 more");
    }
}
