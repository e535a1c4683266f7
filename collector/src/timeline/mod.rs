//! What the engine remembers of a counter, and how it computes with it.
//!
//! [`counter_table`] says what a counter is (unit, width, what it does at its limit, what it means), [`arithmetic`]
//! what two readings of it say, [`Series`] is one counter over time, [`Ring`] a bounded history for charts, [`Events`]
//! a bounded list of what happened, [`ByMeaning`] a map from meanings.

pub mod arithmetic;
mod by_meaning;
mod counter_columns;
pub mod counter_table;
mod ring;
mod series;

pub use by_meaning::ByMeaning;
pub use ring::{Events, Ring};
pub use series::{Growth, Series, Total};
