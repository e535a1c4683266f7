//! What the sources that speak netlink share.
//!
//! ```text
//! attribute     a message's attributes           conversation  one request and its whole answer
//! transport     kernel socket or stored dialogue generic       families of generic netlink and their groups
//! ```

pub(in crate::source) mod attribute;
pub(in crate::source) mod conversation;
pub(in crate::source) mod generic;
#[cfg(test)]
pub(in crate::source) mod scene;
#[cfg(test)]
pub(in crate::source) mod stored;
pub(in crate::source) mod transport;
