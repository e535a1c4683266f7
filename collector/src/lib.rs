//! rdmascope's library.
//!
//! ```text
//! sources ──observations──▶ engine (inventory → timelines → rules) ──snapshots, findings──▶ sinks
//! ```
//!
//! Everything right of the sources is a deterministic function of the observation stream: the engine reads no clock,
//! does no I/O and draws no random number. A recording replayed gives the findings of the live run, byte for byte.

pub mod clock;
pub mod command;
pub mod dcqcn;
pub mod engine;
pub mod feed;
pub mod finding;
pub mod import;
pub mod incident;
pub mod inventory;
pub mod live;
pub mod metric;
pub mod node;
pub mod observation;
mod own_cost;
pub mod remote;
pub mod replay;
pub mod rule;
pub mod score;
pub mod sim;
pub mod sink;
pub mod source;
pub mod timeline;
