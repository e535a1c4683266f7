//! The kernel side of rdmascope: what user space and the BPF programs share, and the plain computation of the programs.
//!
//! [`config`] is what user space tells the programs at load (field offsets, sizes), [`event`] what the programs report
//! through the ring buffer, [`slot`] the statistics of one QP in the memory-mapped arrays, [`walk`] the walk along a
//! list of work requests, [`batch`] work requests built call by call, [`outcome`] what became of them, [`pairing`] which
//! completion belongs to which post, [`fan`] how many QPs are in use at once. All of it compiles for the host, so `cargo test` covers it without a kernel; the programs
//! (`main.rs`, feature `bpf`) only fetch memory and call into it.

#![no_std]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics), allow(internal_features, reason = "see `atomic`"))]

pub mod atomic;
pub mod batch;
pub mod config;
pub mod event;
pub mod fan;
pub mod outcome;
pub mod pairing;
pub mod slot;
pub mod walk;

#[cfg(feature = "user")]
mod pod;
