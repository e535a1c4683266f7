//! What may be changed, by what QPs are bound, and where it is noted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::source::nldev::uapi::{COUNTER_MASK_PID, COUNTER_MASK_QP_TYPE};

/// By what QPs are bound to counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BindBy {
    /// One set for each QP type of a port.
    #[default]
    Type,
    /// One for each type of each process: tells processes apart, and costs a set for each.
    TypeAndProcess,
}

impl BindBy {
    /// The kernel's mask, `RDMA_COUNTER_MASK_*`.
    pub(super) fn mask(self) -> u32 {
        match self {
            Self::Type => COUNTER_MASK_QP_TYPE,
            Self::TypeAndProcess => COUNTER_MASK_QP_TYPE | COUNTER_MASK_PID,
        }
    }
}

impl std::str::FromStr for BindBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "type" => Ok(Self::Type),
            "type,pid" => Ok(Self::TypeAndProcess),
            _ => Err(format!("{text:?} is none of type and type,pid")),
        }
    }
}

/// What may be changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Changes {
    /// Nothing. Not a request is sent.
    #[default]
    None,
    /// What a process that is gone has left is undone; nothing is bound. For commands that look once.
    Undo,
    /// QPs are bound, and let go at the end.
    Bind(BindBy),
}

/// What is asked of the source.
pub struct Options {
    /// What may be changed.
    pub changes: Changes,
    /// The devices wanted: no other is changed. What a note tells is undone on every device.
    pub wanted: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Where the notes are kept; made when it is needed.
    pub directory: PathBuf,
    /// Where other users keep theirs, which are read to be told of.
    pub others: Vec<PathBuf>,
    /// Where `/proc` is.
    pub proc: PathBuf,
}

impl Options {
    /// The options on this node, with the notes where this user keeps them.
    #[must_use]
    pub fn here(changes: Changes, wanted: Arc<dyn Fn(&str) -> bool + Send + Sync>) -> Self {
        let directory = default_directory();
        let others = [ROOT_S, SERVICE_S].map(PathBuf::from).into_iter().filter(|other| *other != directory).collect();
        Self { changes, wanted, directory, others, proc: Path::new("/proc").to_owned() }
    }
}

/// Root's notes. Not below the service's directory: its user could move and give back what root has written there.
pub(super) const ROOT_S: &str = "/var/lib/rdmascope-changes";
/// The notes of the packaged service, by its `STATE_DIRECTORY`.
pub(super) const SERVICE_S: &str = "/var/lib/rdmascope/changes";

/// Where a process of this user keeps its notes: below `$STATE_DIRECTORY` (systemd); else root in a directory that is root's
/// alone, others below `$XDG_STATE_HOME` or `~/.local/state`.
fn default_directory() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // systemd separates several by colons.
    let first =
        |path: PathBuf| path.to_str().and_then(|text| text.split(':').next()).map_or(path.clone(), PathBuf::from);
    let own = || variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    match variable("STATE_DIRECTORY").map(first) {
        Some(directory) => directory.join("changes"),
        None if rustix::process::geteuid().is_root() => ROOT_S.into(),
        None => own().map_or_else(|| SERVICE_S.into(), |own| own.join("rdmascope/changes")),
    }
}
