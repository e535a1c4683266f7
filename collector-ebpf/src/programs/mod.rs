//! The programs, by what they watch.
//!
//! [`control`] watches QPs come, change and go and asynchronous events, [`aer`] PCIe error reports: rare, one record
//! each through the ring buffer. [`learn`] tells at which addresses a process posts and polls. Hot, and aggregated in the
//! kernel: [`posts`] counts what is posted as lists, [`extended`] what is posted call by call, [`polls`] what completes.
//! [`slots`] gives out and retires the QPs' slots, [`maps`] declares what all of them share; [`nothing`] is what they are
//! measured beside.

mod aer;
mod control;
mod extended;
mod learn;
mod maps;
mod nothing;
mod polls;
mod posts;
mod slots;
