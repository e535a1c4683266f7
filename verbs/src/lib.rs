//! What opens verbs devices and makes QPs: the process `rdmascope-verbs` and the example `drain_on_warning`.
//!
//! Only here is libibverbs linked: nothing of this is in the program `rdmascope`. The types own what they make and destroy it
//! in the order the library asks for.
//!
//! ```text
//! device    an opened device and its ports       endpoint  one end of a reliable connection
//! extended  where the functions of extended QPs and CQs lie
//! ```

mod device;
mod endpoint;
mod extended;

use std::io;

pub use device::{Context, Port, names};
pub use endpoint::{Address, Endpoint, Remote, State, Timers};
pub use extended::{Functions, QpKind, cq_functions, qp_functions};

/// Why a device cannot be used as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call failed.
    #[error("{what}: {error}")]
    Call {
        /// The call.
        what: &'static str,
        /// What the library or the kernel said.
        error: io::Error,
    },
    /// There is no device of this name.
    #[error("there is no device {0} that processes can open")]
    NoDevice(String),
    /// The table of GIDs is empty: the network device has no address and is not up.
    #[error("the port has no GID: its network device has no address, or is down")]
    NoGid,
    /// The device or its provider has no such function.
    #[error("the provider has no {0}")]
    NoFunction(&'static str),
    /// More was asked for than the interface has bits for.
    #[error("{0} is too large")]
    TooLarge(&'static str),
}

impl Error {
    /// The error of a call that returns no more than a null pointer or -1.
    fn last(what: &'static str) -> Self {
        Self::Call { what, error: io::Error::last_os_error() }
    }

    /// The result of a call that returns an errno, or 0.
    fn of(what: &'static str, errno: i32) -> Result<(), Self> {
        // Some providers return it negative, some -1 and set it.
        match errno {
            0 => Ok(()),
            -1 => Err(Self::last(what)),
            errno => Err(Self::Call { what, error: io::Error::from_raw_os_error(errno.saturating_abs()) }),
        }
    }

    /// The errno, where a call had one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call { error, .. } => error.raw_os_error(),
            _ => None,
        }
    }
}
