//! The history of one QP: its states, its rates, and how far its completions have come.

use std::sync::Arc;

use crate::observation::{Histogram, Nanos, QpState, QpStats};
use crate::timeline::{Events, Ring};

/// Changes of state kept per QP.
const MAX_CHANGES: usize = 32;
/// So many completed sends of a QP that posted no signalled work request make it one that signals all of them. Fewer may be
/// those of signalled requests from before its posts were seen.
const SIGNALS_EACH: u64 = 32;

/// One change of a QP's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpChange {
    /// Before, where known.
    pub from: Option<QpState>,
    /// After; `None` for a destroy.
    pub to: Option<QpState>,
    /// Who changed it.
    pub by: By,
    /// The call's errno, when it failed.
    pub errno: Option<u32>,
}

/// Who changed a QP's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Created by its process.
    Create,
    /// A `modify_qp` call.
    Modify,
    /// Destroyed by its process, or by the kernel when the process ended.
    Destroy,
    /// Found in this state without a call having been seen: the hardware, or a path that is not traced.
    Found,
}

/// The history of one QP.
#[derive(Debug, Clone)]
pub struct QpDetail {
    /// Changes of state.
    pub changes: Events<QpChange>,
    /// Bytes per second by sweep window.
    pub rates: Ring,
    /// Work requests by size.
    pub size_log2: Option<Histogram>,
    /// Work requests by opcode.
    pub opcodes: Vec<(Arc<str>, u64)>,
    /// Signalled work requests.
    pub signaled: Option<u64>,
    /// Completions polled, of sends and receives.
    pub completions: Option<u64>,
    /// Successful completions of sends, where they are told apart.
    pub sent: Option<u64>,
    /// Receive work requests posted to its own receive queue.
    pub recv_wrs: Option<u64>,
    /// The provider's own code of the first error completion that is no flush.
    pub vendor_err: Option<u32>,
    /// Times its process posted to it right after another one.
    pub switches: Option<u64>,
    /// Signalled work requests that wait for a completion; `None` when that is not known.
    pub waiting: Option<u64>,
    /// Since when signalled work requests wait for a completion and none has come; `None` when none waits, or when not all
    /// completions are seen.
    pub waiting_since: Option<Nanos>,
    /// Error completions by status.
    pub errors: Vec<(Arc<str>, u64)>,
    /// Post-to-poll latency.
    pub latency_log2_ns: Option<Histogram>,
    /// Time for which its posts were watched, ns, if less than all.
    pub sampled_ns: Option<u64>,
    /// Time for which its completions were, ns, if less than all.
    pub completions_sampled_ns: Option<u64>,
    /// Some of its completions were not counted.
    pub completions_missed: bool,
    /// Work requests that were not walked.
    pub truncated: u64,
    /// When it was last known to be in order, for it completed something without an error after that.
    pub worked_t: Option<Nanos>,
    /// When something last happened.
    pub touched: Nanos,
}

impl Default for QpDetail {
    fn default() -> Self {
        Self {
            changes: Events::new(MAX_CHANGES),
            rates: Ring::default(),
            size_log2: None,
            opcodes: Vec::new(),
            signaled: None,
            completions: None,
            sent: None,
            recv_wrs: None,
            vendor_err: None,
            switches: None,
            waiting: None,
            waiting_since: None,
            errors: Vec::new(),
            latency_log2_ns: None,
            sampled_ns: None,
            completions_sampled_ns: None,
            completions_missed: false,
            truncated: 0,
            worked_t: None,
            touched: 0,
        }
    }
}

impl QpDetail {
    /// Notes how far completions have come. Signalled work requests beyond the completions of sends wait; a completion is
    /// progress. Where none was signalled and sends complete all the same, the QP signals each (`sq_sig_all`). Where sends
    /// and receives are not told apart, all completions are taken for those of sends: a QP that waits may then be taken for
    /// one that does not, never the other way.
    pub(crate) fn completed(&mut self, t: Nanos, seen: &QpStats<'_>) {
        let failed = !seen.errors.is_empty();
        // The same numbers as before, told for another reason (what it received, say), are no progress.
        let before = done(failed, self.sent.filter(|_| seen.sent.is_some()), self.completions);
        (self.signaled, self.completions, self.sent) = (seen.signaled, seen.completions, seen.sent);
        (self.sampled_ns, self.completions_sampled_ns) = (seen.sampled_ns, seen.completions_sampled_ns);
        self.completions_missed = seen.completions_missed;
        let done = done(failed, seen.sent, seen.completions);
        let each = seen.signaled == Some(0) && seen.sent.is_some_and(|sent| sent >= SIGNALS_EACH);
        let signaled = if each { Some(seen.wrs) } else { seen.signaled };
        let waiting = signaled.zip(done).map(|(signaled, done)| signaled.saturating_sub(done));
        self.waiting = waiting.filter(|_| self.all_seen());
        self.waiting_since = match self.waiting_since {
            _ if self.waiting.is_none_or(|n| n == 0) => None,
            Some(since) if done == before => Some(since),
            _ => Some(t),
        };
    }

    /// Its numbers are of all it posted and of all its completions.
    #[must_use]
    pub fn all_seen(&self) -> bool {
        self.sampled_ns.is_none() && self.completions_all_seen()
    }

    /// Its numbers are of all its completions.
    #[must_use]
    pub fn completions_all_seen(&self) -> bool {
        self.completions_sampled_ns.is_none() && !self.completions_missed
    }
}

/// Completions of sends; all of them where they are not told apart. Errors complete as well, and so do requests that are not
/// signalled then.
fn done(failed: bool, sent: Option<u64>, completions: Option<u64>) -> Option<u64> {
    if failed { completions } else { sent.or(completions) }
}
