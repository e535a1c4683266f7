//! End-to-end tests.

pub mod vm;
