//! What was posted to a QP and completed on it.

use serde::{Deserialize, Serialize};

use super::{Histogram, Nanos, Pairs, Text};

/// Cumulative statistics of one QP since it was first traced.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QpStats<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// QP number.
    pub qpn: u32,
    /// `post_send` calls.
    pub posts: u64,
    /// Work requests in those calls.
    pub wrs: u64,
    /// Bytes those work requests asked to move (sum of SGE lengths).
    pub bytes: u64,
    /// Work requests with `IBV_SEND_SIGNALED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signaled: Option<u64>,
    /// Work requests by size: bucket i counts sizes in [2^i, 2^(i+1)) bytes, bucket 0 also 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_log2: Option<Histogram>,
    /// Work requests by opcode name.
    #[serde(borrow, default, skip_serializing_if = "Pairs::is_empty")]
    pub opcodes: Pairs<'a, u64>,
    /// Time actually watched in ns, if less than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_ns: Option<u64>,
    /// Receive work requests posted to the QP's own receive queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recv_wrs: Option<u64>,
    /// Successful completions of sends among them; absent where some could not be told from receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Completions polled, of sends and receives. Absent where they are not watched, and where none was ever seen: the
    /// process may poll on a path that is not watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<u64>,
    /// Time for which completions were watched in ns, if less than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions_sampled_ns: Option<u64>,
    /// Completions of the QP may have gone uncounted although they were watched: several QPs use one extended queue, and
    /// nobody tells whose a completion is; or its library was written over, and not attached to until it was looked at anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completions_missed: bool,
    /// Error completions by `ibv_wc_status` name.
    #[serde(borrow, default, skip_serializing_if = "Pairs::is_empty")]
    pub errors: Pairs<'a, u64>,
    /// The provider's own code of the first error completion that is no flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_err: Option<u32>,
    /// Post-to-poll latency: bucket i counts [2^i, 2^(i+1)) ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_log2_ns: Option<Histogram>,
    /// Times the process posted to this QP right after another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<u64>,
    /// Time of the last post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_post_t: Option<Nanos>,
    /// Work requests that were in lists too long to be walked to the end: they are in none of the numbers above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<u64>,
}
