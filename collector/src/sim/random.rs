//! The simulator's random numbers: the same seed gives the same node on every machine.

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `-1` to below 1, zero on average.
    pub(super) fn swing(&mut self) -> f64 {
        self.unit() * 2.0 - 1.0
    }

    /// From 0 to below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// An index into a list of so many.
    pub(super) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }

    /// A whole number that is `mean` on average.
    pub(super) fn count(&mut self, mean: f64) -> u64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "means are small and positive")]
        let n = (mean.max(0.0) + self.unit()) as u64;
        n
    }

    /// Between two positive numbers, evenly on a logarithmic scale.
    pub(super) fn log_between(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    /// Between two numbers.
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// The number of events in a time in which `mean` are expected.
    pub(super) fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 30.0 {
            // The sum of twelve is close enough to a normal distribution.
            let normal = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
            return self.count(mean + mean.sqrt() * normal - 0.5);
        }
        let (mut n, mut product, limit) = (0, self.unit(), (-mean.max(0.0)).exp());
        while product > limit {
            product *= self.unit();
            n += 1;
        }
        n
    }
}
