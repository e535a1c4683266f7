//! The sources: each produces observations, and each says what it can see here and why not the rest.
//!
//! One file or folder per source; [`Source`] is all the collector knows of them. A new source is one new file and one
//! line where the collector's sources are listed.

pub mod congestion;
pub mod devlink;
pub mod ethtool;
pub mod files;
pub mod hwmon;
pub mod loopback;
pub mod netdev;
mod netlink;
pub mod nldev;
pub mod packets;
pub mod pcie;
pub mod ports;
pub mod probes;
pub(crate) mod proc;
pub mod starting;
pub mod sysfs;
pub mod verbs;

use std::os::fd::BorrowedFd;

use crate::observation::{Nanos, Observation, Seeing};

/// Where a source hands its observations. The observation borrows the source's own strings for the length of the call.
pub type Emit<'s> = dyn FnMut(&Observation<'_>) + 's;

/// One producer of observations.
pub trait Source: Send {
    /// The source's name, as in `doctor`, the Self pane and `source` observations.
    fn name(&self) -> &'static str;

    /// What the source can see here, and why not the rest. Cheap: it reports what the last poll or the start-up found.
    fn availability(&self) -> Availability;

    /// When the source wants to be polled next, in `CLOCK_MONOTONIC` ns.
    fn due(&self) -> Nanos;

    /// Reads what is there and emits it. `now` is `CLOCK_MONOTONIC` ns. Called at or after [`Source::due`], or when
    /// one of [`Source::wake_fds`] became readable. Never blocks on purpose.
    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>);

    /// Polls counters every `interval_ns` from now on. Sources with a period of their own ignore it.
    fn set_interval(&mut self, _interval_ns: u64) {}

    /// Something happened on the node (a port left ACTIVE, a QP failed) that makes a fresh look worth more than waiting
    /// for the next period. The source may bring its [`Source::due`] forward.
    fn nudge(&mut self, _now: Nanos) {}

    /// The last call, before the source is dropped: one that has changed something undoes it, and says so.
    fn end(&mut self, _now: Nanos, _emit: &mut Emit<'_>) {}

    /// File descriptors that become readable when the source has something before it is due.
    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// The probes the source wanted to attach, for `doctor`.
    fn probes(&self) -> Vec<ProbeReport> {
        Vec::new()
    }
}

/// What a source can see here, and why not the rest (`doctor`).
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Availability {
    /// The source's name.
    pub name: &'static str,
    /// How much it sees.
    pub state: Seeing,
    /// What it sees, in a few words, for example `2 devices, 2 ports, 36 counters`.
    pub sees: String,
    /// What it does not see.
    pub missing: Vec<Missing>,
}

impl Availability {
    /// The reasons in one line, for the `source` observation and the screen; `None` when nothing is missing. What has the
    /// same reason is named together.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for missing in &self.missing {
            match groups.iter_mut().find(|(reason, _)| *reason == missing.reason) {
                Some((_, whats)) => whats.push(&missing.what),
                None => groups.push((&missing.reason, vec![&missing.what])),
            }
        }
        let parts: Vec<String> =
            groups.iter().map(|(reason, whats)| format!("{}: {reason}", whats.join(", "))).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// One thing a source does not see.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Missing {
    /// What is not seen.
    pub what: String,
    /// Why.
    pub reason: String,
    /// What the operator can do about it; absent when nothing.
    pub fix: Option<String>,
}

/// One probe as `doctor` shows it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ProbeReport {
    /// The probe's name.
    pub name: String,
    /// It was wanted (a switched-off data path is not).
    pub wanted: bool,
    /// It is attached.
    pub attached: bool,
    /// The function, tracepoint or file and offset it is attached at.
    pub at: Option<String>,
    /// Why it is not attached, or why it is attached there.
    pub reason: Option<String>,
    /// What the operator can do about it; absent when nothing.
    pub fix: Option<String>,
}
