//! The commands without a screen: each builds a report from a [`World`](crate::inventory::World) and prints it as aligned
//! text or as JSON (docs/json.md).

pub mod check;
pub mod doctor;
pub mod findings;
pub mod notes;
pub mod ports;
pub mod qps;
pub mod table;

pub use table::Table;
