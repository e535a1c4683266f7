//! What the program reports of itself besides what is in the world: its cost, its outputs, what they lost.

use crate::feed::OwnCost;
use crate::sink::socket::SocketStatus;

/// What the program reports of itself. A part that is not there (no socket, no hooks) is `None` or empty and has no
/// points.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SelfReport {
    /// CPU and memory.
    pub own: OwnCost,
    /// Observations taken so far; `None` when nobody counts.
    pub observations: Option<u64>,
    /// The exporters, one entry for each signal.
    pub exporters: Vec<ExporterReport>,
    /// The hooks together.
    pub hooks: Option<HooksReport>,
    /// The local socket.
    pub socket: Option<SocketStatus>,
    /// The recording.
    pub recording: Option<RecordingReport>,
}

/// One signal of one exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExporterReport {
    /// `otlp` or `prometheus`.
    pub exporter: &'static str,
    /// `metrics`, `logs` or `traces`.
    pub signal: &'static str,
    /// Items that wait; `None` for an exporter that is asked instead of sending.
    pub queued: Option<u64>,
    /// Items that went out.
    pub sent: u64,
    /// Items that did not and will not.
    pub dropped: u64,
    /// Attempts that failed; what they carried may have gone out later.
    pub failed: u64,
}

/// All hooks together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HooksReport {
    /// Processes started.
    pub run: u64,
    /// Could not be started, failed, or were killed.
    pub failed: u64,
    /// Findings no hook was told of, those that a newer one about the same replaced not counted.
    pub untold: u64,
}

/// The recording being written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordingReport {
    /// Bytes before compression.
    pub bytes: u64,
    /// It has stopped for an error.
    pub stopped: bool,
}
