//! End-to-end tests.

pub mod binary;
pub mod desk;
pub mod fixture;
pub mod http;
pub mod reading;
pub mod vm;
