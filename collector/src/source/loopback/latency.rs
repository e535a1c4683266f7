//! From the times of single operations to what is told of them.

use crate::observation::Loopback;

/// The measurement of a port from the time each operation took, ns; `None` of no operation.
///
/// Percentiles are by nearest rank: of 100 operations or fewer the 99th is the greatest.
#[must_use]
pub fn measurement<'a>(device: &'a str, port: u32, took_ns: &mut [u64]) -> Option<Loopback<'a>> {
    took_ns.sort_unstable();
    let rank = |percent: usize| took_ns.get((took_ns.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    Some(Loopback {
        device: device.into(),
        port,
        p50_ns: rank(50)?,
        p99_ns: rank(99)?,
        max_ns: *took_ns.last()?,
        n: took_ns.len() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mut took_ns: Vec<u64>) -> (u64, u64, u64, u64) {
        let told = measurement("a", 1, &mut took_ns).expect("there are operations");
        (told.p50_ns, told.p99_ns, told.max_ns, told.n)
    }

    #[test]
    fn percentiles_are_by_nearest_rank_whatever_the_order() {
        assert_eq!(of((1..=200).rev().collect()), (100, 198, 200, 200));
        assert_eq!(of(vec![5, 1, 9]), (5, 9, 9, 3));
        assert_eq!(of(vec![7]), (7, 7, 7, 1));
        assert_eq!(measurement("a", 1, &mut []), None);
    }
}
