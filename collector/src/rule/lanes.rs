//! Counters of the lanes of one port: whether one lane stands out.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::inventory::PortRecord;
use crate::observation::Nanos;
use crate::timeline::Series;

/// A lane far above the others.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lane {
    /// Its number.
    pub(super) number: u32,
    /// The driver's name of its counter.
    pub(super) counter: String,
    /// What it counted.
    pub(super) n: u64,
    /// What the lane in the middle of the others counted.
    pub(super) others: u64,
    /// Its share of what all lanes counted, percent.
    pub(super) percent: f64,
    /// The counter's unit.
    pub(super) unit: &'static str,
    /// It counts what arrives wrong, before correction; otherwise what is left after it.
    pub(super) before_fec: bool,
}

/// One lane's number, its counter and its growth.
type Counted<'s> = (u32, &'s Series, u64);

/// The lane that has counted more than `factor` times what the middle one of the others has, after `from`.
///
/// Lanes are counters of one family that differ by a number behind `lane` (`rx_err_lane_2_phy`,
/// `corrected_bits_lane_2`). Of several families the one that speaks of errors FEC could not correct goes first.
pub(super) fn standing_out(port: &PortRecord, from: Nanos, factor: f64) -> Option<Lane> {
    let mut families: BTreeMap<(bool, &str, &str), Vec<Counted<'_>>> = BTreeMap::new();
    for series in port.sets.iter().filter(|set| set.bound.is_none()).flat_map(|set| &set.series) {
        if let Some((before, lane, after)) = numbered(&series.name)
            && let Some(growth) = series.growth_since(from)
        {
            let corrected = !before.contains("uncorrect");
            families.entry((corrected, before, after)).or_default().push((lane, series, growth.sum));
        }
    }
    families.into_iter().find_map(|((before_fec, ..), lanes)| {
        let (lane, series, n) = lanes.iter().copied().max_by_key(|(_, _, n)| *n)?;
        let mut others: Vec<u64> = lanes.iter().filter(|(other, _, _)| *other != lane).map(|(_, _, n)| *n).collect();
        others.sort_unstable();
        let middle = *others.get(others.len() / 2)?;
        let sum: f64 = lanes.iter().map(|(_, _, n)| *n as f64).sum();
        (n > 0 && n as f64 > factor * middle as f64).then(|| Lane {
            number: lane,
            counter: series.name.to_string(),
            n,
            others: middle,
            percent: n as f64 / sum * 100.0,
            unit: series.def.unit.name(),
            before_fec,
        })
    })
}

/// The lane that a finding of the link names, by its evidence.
pub(super) fn named(finding: &Finding) -> Option<u32> {
    finding.evidence.iter().find_map(|row| numbered(&row.series)).map(|(_, lane, _)| lane)
}

/// The number behind `lane` in a counter's name, with what stands before and after it.
fn numbered(name: &str) -> Option<(&str, u32, &str)> {
    let at = name.find("lane")? + 4;
    let start = at + usize::from(name[at..].starts_with('_'));
    let digits = name[start..].bytes().take_while(u8::is_ascii_digit).count();
    let lane = name[start..start + digits].parse().ok()?;
    Some((&name[..start], lane, &name[start + digits..]))
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = if self.before_fec { "the errors before FEC" } else { "them" };
        write!(f, "lane {} has {:.0} % of {of}", self.number, self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_the_number_behind_the_word() {
        assert_eq!(numbered("rx_err_lane_3_phy"), Some(("rx_err_lane_", 3, "_phy")));
        assert_eq!(numbered("corrected_bits_lane_0"), Some(("corrected_bits_lane_", 0, "")));
        assert_eq!(numbered("lane12"), Some(("lane", 12, "")));
        assert_eq!(numbered("rx_prio3_bytes"), None);
        assert_eq!(numbered("lanes_in_use"), None);
    }
}
