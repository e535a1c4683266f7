//! A process that can post where no probe sees it, and how.

use serde::{Deserialize, Serialize};

use super::Text;

/// A process that posts, or may post, where no probe sees it: everything that is known of it now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Process<'a> {
    /// Process id, in the node's own pid namespace.
    pub pid: u32,
    /// Its name.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<Text<'a>>,
    /// The ways it has; none: it has none any more, or is gone.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<Unseen<'a>>,
}

/// A way to post that no probe sees.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Unseen<'a> {
    /// Which.
    pub way: Way,
    /// The file that the process maps and that is the evidence. That it is mapped does not say that it is used.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", rename = "library")]
    pub file: Option<Text<'a>>,
    /// What was found, in words, where there is no such file.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'a>>,
}

/// How a process can post where no probe sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The GPU writes work requests and rings the doorbell.
    Gpu,
    /// UCX's accelerated transports write work requests themselves.
    UcxMlx5,
    /// DPDK writes work requests itself.
    Dpdk,
    /// DOCA's libraries write work requests themselves.
    Doca,
    /// Queues are made as DEVX objects, which the kernel's list of QPs does not have.
    Devx,
    /// The program asks the provider where its queues lie, to write work requests itself.
    DirectVerbs,
    /// The process's provider is not attached to: where its functions lie is not known.
    UnknownProvider,
    /// The kernel posts for itself: its functions are not watched. Never recorded: the QP's owner tells.
    Kernel,
    /// One this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl Way {
    /// The name in the recording and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::UcxMlx5 => "ucx_mlx5",
            Self::Dpdk => "dpdk",
            Self::Doca => "doca",
            Self::Devx => "devx",
            Self::DirectVerbs => "direct_verbs",
            Self::UnknownProvider => "unknown_provider",
            Self::Kernel => "kernel",
            Self::Other => "other",
        }
    }

    /// What it is, in a few words that follow `posts through`.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Gpu => "the GPU",
            Self::UcxMlx5 => "UCX's accelerated transports",
            Self::Dpdk => "DPDK",
            Self::Doca => "DOCA",
            Self::Devx => "DEVX objects",
            Self::DirectVerbs => "direct access to its queues",
            Self::UnknownProvider => "a provider that is not attached to",
            Self::Kernel => "the kernel's own functions",
            Self::Other => "a way this version does not know",
        }
    }
}
