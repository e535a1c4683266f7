//! The steps of a long run: each has a name, and its seconds are printed when it ends.

use std::time::Instant;

use anyhow::{Context, Result};

/// Runs one step, and prints how long it took.
pub(crate) fn stage<T>(name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("== {name}");
    let start = Instant::now();
    let result = step();
    let outcome = if result.is_ok() { "done" } else { "FAILED" };
    println!("== {name}: {outcome} in {:.1} s", start.elapsed().as_secs_f64());
    result.with_context(|| name.to_owned())
}
