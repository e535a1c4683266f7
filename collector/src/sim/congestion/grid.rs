//! The points at which the table holds figures, and what lies between them.

use super::Control;

/// Offered load as a share of the rate.
pub(super) const LOADS: &[f64] = &[0.1, 0.3, 0.5, 0.7, 0.9];
/// Burst sizes, bytes.
pub(super) const BURSTS: &[f64] = &[16e3, 64e3, 256e3, 1_024e3];
/// Senders that share the queue.
pub(super) const SENDERS: &[f64] = &[4.0, 16.0];
/// Kmin, bytes.
pub(super) const KMINS: &[f64] = &[5e3, 64e3, 256e3, 1_024e3];
/// Kmax, bytes; a point below Kmin is taken with Kmax = Kmin.
pub(super) const KMAXES: &[f64] = &[200e3, 1_024e3, 4_096e3];
/// Pmax.
pub(super) const PMAXES: &[f64] = &[0.01, 0.2];
/// Parameter sets of congestion control.
pub(super) const CONTROLS: &[Control] = &[Control::Nic, Control::Paper, Control::Off];

/// One point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) load: f64,
    pub(super) burst_bytes: f64,
    pub(super) senders: f64,
    /// Kmin, Kmax, Pmax; `None` marks nothing, and then congestion control has nothing to do.
    pub(super) marking: Option<(f64, f64, f64)>,
    pub(super) control: Control,
}

/// Points of one setting of marking and control.
pub(super) const TRAFFICS: usize = LOADS.len() * BURSTS.len() * SENDERS.len();
/// Settings of marking.
const MARKINGS: usize = KMINS.len() * KMAXES.len() * PMAXES.len();
/// All points; those without marking come last.
pub(super) const POINTS: usize = TRAFFICS * (CONTROLS.len() * MARKINGS + 1);

/// Every point, in the table's order.
pub(super) fn points() -> impl Iterator<Item = Point> {
    let marked = CONTROLS.iter().flat_map(|control| {
        KMINS.iter().flat_map(move |kmin| {
            KMAXES
                .iter()
                .flat_map(move |kmax| PMAXES.iter().map(move |pmax| (*control, Some((*kmin, kmax.max(*kmin), *pmax)))))
        })
    });
    marked.chain([(Control::Off, None)]).flat_map(|(control, marking)| {
        LOADS.iter().flat_map(move |load| {
            BURSTS.iter().flat_map(move |burst| {
                SENDERS.iter().map(move |senders| Point {
                    load: *load,
                    burst_bytes: *burst,
                    senders: *senders,
                    marking,
                    control,
                })
            })
        })
    })
}

/// A place between two values of an axis: the lower one's index, and how far it is to the next, 0–1.
type Place = (usize, f64);

fn place(axis: &[f64], value: f64, scale: fn(f64) -> f64) -> Place {
    let value = value.clamp(axis[0], axis[axis.len() - 1]);
    let low = axis.iter().rposition(|at| *at <= value).unwrap_or(0).min(axis.len().saturating_sub(2));
    if axis.len() < 2 {
        return (0, 0.0);
    }
    let (from, to) = (scale(axis[low]), scale(axis[low + 1]));
    (low, ((scale(value) - from) / (to - from)).clamp(0.0, 1.0))
}

/// The table's rows around a point, each with its weight; the weights add up to 1. Load is taken on a straight scale,
/// everything else on a logarithmic one.
pub(super) fn around(point: &Point, mut take: impl FnMut(usize, f64)) {
    let traffic = [
        place(LOADS, point.load, |v| v),
        place(BURSTS, point.burst_bytes, f64::ln),
        place(SENDERS, point.senders, f64::ln),
    ];
    let lengths = [LOADS.len(), BURSTS.len(), SENDERS.len()];
    let Some((kmin, kmax, pmax)) = point.marking else {
        corners(&traffic, &lengths, |row, weight| take(POINTS - TRAFFICS + row, weight));
        return;
    };
    let control = CONTROLS.iter().position(|control| *control == point.control).unwrap_or(0);
    let marking = [place(KMINS, kmin, f64::ln), place(KMAXES, kmax.max(kmin), f64::ln), place(PMAXES, pmax, f64::ln)];
    let settings = [KMINS.len(), KMAXES.len(), PMAXES.len()];
    corners(&marking, &settings, |setting, share| {
        let base = (control * MARKINGS + setting) * TRAFFICS;
        corners(&traffic, &lengths, |row, weight| take(base + row, share * weight));
    });
}

fn corners(places: &[Place; 3], lengths: &[usize; 3], mut take: impl FnMut(usize, f64)) {
    for corner in 0..8usize {
        let (mut index, mut weight) = (0, 1.0);
        for axis in 0..3 {
            let (low, share) = places[axis];
            let high = (corner >> axis) & 1;
            weight *= if high == 1 { share } else { 1.0 - share };
            index = index * lengths[axis] + (low + high).min(lengths[axis] - 1);
        }
        if weight > 0.0 {
            take(index, weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_of_the_table_is_found_at_its_own_row() {
        for (row, point) in points().enumerate() {
            // Where Kmax was raised to Kmin there is another row with the same setting, or none on the axis.
            if point.marking.is_some_and(|(_, kmax, _)| {
                !KMAXES.contains(&kmax) || kmax <= 1_024e3 && point.marking.is_some_and(|m| m.0 >= kmax)
            }) {
                continue;
            }
            let mut found = Vec::new();
            around(&point, |row, weight| found.push((row, weight)));
            let sum: f64 = found.iter().map(|(_, weight)| weight).sum();
            assert!((sum - 1.0).abs() < 1e-9);
            let own: f64 = found.iter().filter(|(at, _)| *at == row).map(|(_, weight)| weight).sum();
            assert!((own - 1.0).abs() < 1e-9, "{row} {point:?} {found:?}");
        }
        assert_eq!(points().count(), POINTS);
    }

    #[test]
    fn what_lies_outside_is_taken_at_the_edge() {
        let point = Point {
            load: 2.0,
            burst_bytes: 1.0,
            senders: 1_000.0,
            marking: Some((1.0, 1e9, 0.9)),
            control: Control::Paper,
        };
        let mut weights = 0.0;
        around(&point, |row, weight| {
            assert!(row < POINTS);
            weights += weight;
        });
        assert!((weights - 1.0f64).abs() < 1e-9);
    }
}
