//! What the engine remembers of a counter, and how it computes with it.
//!
//! [`counter_table`] says what a counter is (unit, width, what it does at its limit, what it means), [`arithmetic`]
//! what two readings of it say.

pub mod arithmetic;
pub mod counter_columns;
pub mod counter_table;
