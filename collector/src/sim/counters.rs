//! A set of counters of the simulated node.

/// Names, and a value for each.
pub(super) struct Counters {
    pub(super) names: &'static [&'static str],
    pub(super) values: Vec<u64>,
}

impl Counters {
    pub(super) fn new(names: &'static [&'static str]) -> Self {
        Self { names, values: vec![0; names.len()] }
    }

    fn at(&self, name: &str) -> usize {
        self.names.iter().position(|n| *n == name).expect("the simulator names counters of its own lists")
    }

    /// Adds to a counter; an empty set counts nothing.
    pub(super) fn add(&mut self, name: &str, n: u64) {
        if n > 0 && !self.names.is_empty() {
            let at = self.at(name);
            self.values[at] = self.values[at].wrapping_add(n);
        }
    }

    /// Adds to a counter of 32 bits, as mlx5's Q counters are.
    pub(super) fn add_32(&mut self, name: &str, n: u64) {
        self.add(name, n);
        if !self.names.is_empty() {
            let at = self.at(name);
            self.values[at] &= 0xffff_ffff;
        }
    }

    /// Adds to a counter that stops at its limit, as InfiniBand's error counters do.
    pub(super) fn add_to(&mut self, name: &str, n: u64, limit: u64) {
        if !self.names.is_empty() {
            let at = self.at(name);
            self.values[at] = self.values[at].saturating_add(n).min(limit);
        }
    }

    /// Sets a gauge, or a counter's past.
    pub(super) fn set(&mut self, name: &str, value: u64) {
        if !self.names.is_empty() {
            let at = self.at(name);
            self.values[at] = value;
        }
    }

    /// Everything counts from zero again, as after a driver's reload.
    pub(super) fn reset(&mut self) {
        self.values.fill(0);
    }
}
