//! The range of a setting, as its check and as words.

use std::fmt;

/// The values a setting may have. All are finite.
#[derive(Debug, Clone, Copy)]
pub(super) enum Range {
    Between(f64, f64),
    AtLeast(f64),
    Above(f64),
}

pub(super) const fn between(least: f64, most: f64) -> Range {
    Range::Between(least, most)
}

pub(super) const fn at_least(least: f64) -> Range {
    Range::AtLeast(least)
}

pub(super) const fn above(bound: f64) -> Range {
    Range::Above(bound)
}

impl Range {
    fn holds(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Self::Between(least, most) => (least..=most).contains(&value),
                Self::AtLeast(least) => value >= least,
                Self::Above(bound) => value > bound,
            }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Between(least, most) => write!(f, "{least} to {most}"),
            Self::AtLeast(least) => write!(f, "{least} or more"),
            Self::Above(bound) => write!(f, "above {bound}"),
        }
    }
}

/// One number or several.
pub(super) trait Numbers {
    fn numbers(&self) -> impl Iterator<Item = f64>;
}

macro_rules! one_number {
    ($($type:ty),*) => {
        $(impl Numbers for $type {
            fn numbers(&self) -> impl Iterator<Item = f64> {
                std::iter::once(*self as f64)
            }
        })*
    };
}

one_number!(u64, usize);

impl Numbers for f64 {
    fn numbers(&self) -> impl Iterator<Item = f64> {
        std::iter::once(*self)
    }
}

impl Numbers for u32 {
    fn numbers(&self) -> impl Iterator<Item = f64> {
        std::iter::once(f64::from(*self))
    }
}

impl Numbers for Vec<f64> {
    fn numbers(&self) -> impl Iterator<Item = f64> {
        self.iter().copied()
    }
}

/// A value of a key is in its range, or a line that says it is not.
pub(super) fn check(key: &str, value: &impl Numbers, range: Range) -> Result<(), String> {
    match value.numbers().find(|number| !range.holds(*number)) {
        None => Ok(()),
        Some(number) => {
            let within = if matches!(range, Range::Between(..)) { "within " } else { "" };
            Err(format!("{key}: {number} is not {within}{range}"))
        }
    }
}
