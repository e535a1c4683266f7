//! The programs, by what they watch.
//!
//! [`control`] watches QPs come, change and go and asynchronous events, [`aer`] PCIe error reports: rare, one record
//! each through the ring buffer. [`data`] counts what is posted: hot, aggregated in the kernel. [`slots`] gives out and
//! retires the QPs' slots, [`maps`] declares what all of them share.

mod aer;
mod control;
mod data;
mod maps;
mod slots;
