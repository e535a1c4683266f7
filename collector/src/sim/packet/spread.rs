//! How numbers are spread: a histogram from which percentiles are read.

/// Classes of an octave: a class is at most 1/32 of its numbers wide.
const STEPS: u64 = 32;

/// Numbers from 0 to [`u64::MAX`] in classes that widen with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spread {
    classes: Vec<u64>,
    n: u64,
}

impl Spread {
    pub(super) fn new() -> Self {
        Self { classes: vec![0; class(u64::MAX) + 1], n: 0 }
    }

    pub(super) fn add(&mut self, number: u64) {
        self.classes[class(number)] += 1;
        self.n += 1;
    }

    /// The smallest number of the class in which this share (0–1) of the numbers is reached; `None` without a number.
    pub(super) fn percentile(&self, share: f64) -> Option<u64> {
        let rank = super::whole(self.n as f64 * share).clamp(1, self.n.max(1));
        let mut seen = 0;
        self.classes
            .iter()
            .position(|n| {
                seen += n;
                seen >= rank
            })
            .map(least)
    }
}

fn class(number: u64) -> usize {
    let octave = number.max(STEPS).ilog2() - STEPS.ilog2();
    let step = number >> octave;
    usize::try_from(u64::from(octave) * STEPS + step).unwrap_or(usize::MAX)
}

fn least(class: usize) -> u64 {
    let class = class as u64;
    let octave = (class / STEPS).saturating_sub(1);
    (class - octave * STEPS) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_begins_at_its_smallest_number_and_is_narrow() {
        for number in [0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 1_000, 123_456_789, u64::MAX] {
            let from = least(class(number));
            assert!(from <= number && number - from <= number / STEPS, "{number}: {from}");
            assert_eq!(class(from), class(number));
        }
    }

    #[test]
    fn percentiles_are_those_of_the_numbers() {
        let mut spread = Spread::new();
        assert_eq!(spread.percentile(0.5), None);
        for number in 1..=1_000 {
            spread.add(number);
        }
        let (half, tail) = (spread.percentile(0.5).unwrap(), spread.percentile(0.99).unwrap());
        assert!((485..=500).contains(&half) && (960..=990).contains(&tail), "{half} {tail}");
    }
}
