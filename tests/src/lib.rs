//! End-to-end tests.

pub mod binary;
pub mod fixture;
pub mod reading;
pub mod vm;
