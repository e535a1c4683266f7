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
    let mut groups: Vec<(String, String, Vec<(String, Option<u32>)>)> = Vec::new();
    for (device, port, reason, names) in places {
        let what = list(&names);
        match groups.iter_mut().find(|group| group.0 == what && group.1 == reason) {
            Some(group) => group.2.push((device, port)),
            None => groups.push((what, reason, vec![(device, port)])),
        }
    }
    let line = |(what, reason, places): (String, String, Vec<(String, Option<u32>)>)| Missing {
        what: format!("{} {what}", ranges(&places)).trim_end().to_owned(),
        fix: remedy(&reason).map(str::to_owned),
        reason,
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
fn ranges(places: &[(String, Option<u32>)]) -> String {
    let mut out: Vec<(String, Option<(u64, u64)>, Option<u32>)> = Vec::new();
    for (device, port) in places {
        let text = device.trim_end_matches(|c: char| c.is_ascii_digit());
        // A number with a leading zero would not come back as it was written.
        let digits = &device[text.len()..];
        let number = digits.parse::<u64>().ok().filter(|n| n.to_string() == digits);
        match (out.last_mut(), number) {
            (Some((t, Some((_, last)), p)), Some(n)) if t == text && p == port && n.checked_sub(1) == Some(*last) => {
                *last = n;
            }
            (_, Some(n)) => out.push((text.to_owned(), Some((n, n)), *port)),
            (_, None) => out.push((device.clone(), None, *port)),
        }
    }
    let shown = out.into_iter().map(|(text, range, port)| {
        let range = match range {
            None => String::new(),
            Some((first, last)) if first == last => first.to_string(),
            Some((first, last)) => format!("{first}..{last}"),
        };
        port.map_or_else(|| format!("{text}{range}"), |port| format!("{text}{range}/{port}"))
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn remedy(reason: &str) -> Option<&'static str> {
    match reason {
        DANGLING => Some(DANGLING_FIX),
        "EACCES" | "EPERM" => Some("run with the right to read it, or leave it unknown"),
        "EMFILE" => Some("raise the limit of open files (ulimit -n)"),
        "N/A (no PMA)" => Some("nothing: the driver has no port counters on this kernel"),
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
            [
                ("mlx5_0/1 port_xmit_wait", "EACCES"),
                ("mlx5_12..14/1, mlx5_16/1, rdmap0s07/1 counters", "EINVAL"),
            ]
        );
    }

    #[test]
    fn many_counters_of_one_port_are_counted() {
        let gaps = (0..7).map(|n| gap("a", 1, &format!("c{n}"), "EIO")).collect();
        assert_eq!(fold(gaps)[0].what, "a/1 c0, c1, c2, c3 and 3 more");
    }
}
