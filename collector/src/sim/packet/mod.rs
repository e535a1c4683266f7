//! One bottleneck queue, packet by packet: what ECN settings and DCQCN parameters do to each other.
//!
//! A set of senders shares one output queue of a switch. Each packet is a step of the simulation; a departure is none,
//! because a queue that serves at a fixed rate is described by the time at which it will be empty.
//!
//! - [`params`]: what can be asked: link, senders, workload, marking, congestion control, pause, faults
//! - [`dcqcn`]: the sender's rate machine and its parameter sets
//! - [`traffic`]: what each sender has to send, and when
//! - [`bottleneck`]: the queue, and RED marking at its tail
//! - [`pfc`]: the queue tells its senders to stop, and they hear it a little later
//! - [`schedule`]: whose turn is next
//! - [`simulation`]: the loop, and the observer that sees what happens
//! - [`truth`]: which marks were right: only the queue knows
//! - [`measure`]: the figures of a run, with percentiles from [`spread`]
//!
//! What is left out: headers are part of a fixed packet size, ACKs and CNPs travel without waiting, a queue without PFC
//! never drops, and all senders are equally far away.

pub mod bottleneck;
pub mod dcqcn;
pub mod measure;
pub mod params;
pub mod pfc;
mod schedule;
pub mod simulation;
mod spread;
#[cfg(test)]
mod tests;
pub mod traffic;
pub mod truth;

pub use dcqcn::Control;
pub use measure::{Figures, Measure};
pub use params::{Faults, Params, ParamsError, Pfc, Probe, Red, Workload};
pub use simulation::{Cnp, Ecn, Message, Observer, Packet, Simulation, run};
pub use truth::{Interval, Truth};

/// A time in picoseconds since the start of a run. At 400 Gb/s a bit takes 2.5 ps, so rates of whole Gb/s that matter
/// keep whole packets exact.
pub type Picos = u64;

/// Picoseconds of a nanosecond.
pub const PS_PER_NS: u64 = 1_000;

/// Time that so many bytes take at a rate, ps.
fn serialization_ps(bytes: u64, rate_bps: f64) -> Picos {
    whole(bytes as f64 * 8e12 / rate_bps)
}

/// A non-negative number, rounded.
fn whole(value: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "negative and NaN become 0, too large the maximum"
    )]
    let whole = (value + 0.5) as u64;
    whole
}
