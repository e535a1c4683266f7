//! A note of what one process changes, in the form it has on disk.

use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::source::nldev::reply::CounterMode;

/// The form of a note. One of another form is left alone.
const VERSION: u32 = 1;
const EXTENSION: &str = ".json";

/// Bytes of a note at most, read or written. A port takes 300 bytes.
pub(super) const MOST_BYTES: usize = 1 << 18;

/// Bytes of a device's name, at most (`IB_DEVICE_NAME_MAX`, with the zero at its end).
const NAME_BYTES: usize = 64;

/// What one process changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) version: u32,
    pub(super) process: Process,
    pub(super) ports: Vec<Changed>,
}

/// A port whose counter mode is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Changed {
    pub(super) device: String,
    /// The RDMA device index: the kernel gives it to no other device.
    pub(super) index: u32,
    pub(super) node_guid: Option<String>,
    pub(super) port: u32,
    /// The mode it had.
    pub(super) before: CounterMode,
    /// The mask of the automatic mode it is given.
    pub(super) mask: u32,
    /// It is being undone: the automatic mode may be off already, and QPs may still be bound.
    #[serde(default)]
    pub(super) undoing: bool,
}

impl Changed {
    /// The port in words.
    pub(super) fn name(&self) -> String {
        format!("{} port {}", self.device, self.port)
    }

    /// Somebody may copy the device's name into a shell.
    fn is_plain(&self) -> bool {
        let device = self.device.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
        device.len() < NAME_BYTES && device.first().is_some_and(u8::is_ascii_alphanumeric) && device.iter().all(plain)
    }
}

impl Note {
    pub(super) fn new(process: Process) -> Self {
        Self { version: VERSION, process, ports: Vec::new() }
    }

    /// The start is in the name as well: a process of the same number may have left one.
    pub(super) fn file_name(&self) -> String {
        format!("{}-{}{EXTENSION}", self.process.pid, self.process.start_ticks)
    }

    /// A file of this name is taken for a note: `PID-TICKS.json`.
    pub(super) fn is_name(name: &str) -> bool {
        Self::writer(name).is_some()
    }

    /// The number of the process that a note of this name is of, and its start.
    pub(super) fn writer(name: &str) -> Option<(u32, u64)> {
        let (pid, ticks) = name.strip_suffix(EXTENSION)?.split_once('-')?;
        Some((pid.parse().ok()?, ticks.parse().ok()?))
    }

    /// Its devices are named as devices are.
    pub(super) fn is_plain(&self) -> bool {
        self.ports.iter().all(Changed::is_plain)
    }

    /// The note that a file of this name holds.
    ///
    /// # Errors
    /// Why it is none, in words.
    pub(super) fn read(name: &str, text: &str) -> Result<Self, String> {
        let note: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if note.version != VERSION {
            return Err(format!("a note of form {}", note.version));
        }
        if name != note.file_name() {
            return Err("it is of another process than its name says".to_owned());
        }
        Ok(note)
    }

    /// The note as a file holds it.
    ///
    /// # Errors
    /// It is longer than what is read of one.
    pub(super) fn text(&self) -> Result<String, String> {
        let mut text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        text.push('\n');
        if text.len() > MOST_BYTES {
            return Err(format!("{} ports take more than the {MOST_BYTES} bytes that are read", self.ports.len()));
        }
        Ok(text)
    }
}
