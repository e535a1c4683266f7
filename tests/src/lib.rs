//! End-to-end tests.

pub mod binary;
pub mod desk;
pub mod fixture;
pub mod http;
pub mod otlp;
pub mod promql;
pub mod reading;
pub mod tmux;
pub mod vm;
