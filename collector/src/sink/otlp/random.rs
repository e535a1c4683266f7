//! Random numbers for waits and for the ids of spans. A sink may be random; the engine is not.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 64 random bits, never all zero: the standard library's hasher is keyed at random.
pub(super) fn bits() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(0);
    hasher.finish().max(1)
}

/// Between 0 and 1.
pub(super) fn share() -> f64 {
    (bits() >> 11) as f64 / (1u64 << 53) as f64
}
