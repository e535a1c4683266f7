//! How much of a recording's file has been read: the only measure of progress there is before its end is known.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::observation::recording::{Reader, RecordingError};

/// A file that counts what is read of it.
pub(super) struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// How far the reading of a file has come.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    read: Arc<AtomicU64>,
    /// Size when it was opened, bytes; 0 for what has none, as a pipe.
    size: u64,
}

impl Progress {
    /// The share of the file that was read, 0–1. What is read ahead counts. `None` for what has no size.
    pub(super) fn share(&self) -> Option<f64> {
        (self.size > 0).then(|| (self.read.load(Ordering::Relaxed) as f64 / self.size as f64).min(1.0))
    }
}

/// Opens a recording.
pub(super) fn open(path: &Path) -> Result<(Reader<Counted>, Progress), RecordingError> {
    let file = File::open(path)?;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let read = Arc::new(AtomicU64::new(0));
    let reader = Reader::new(Counted { file, read: read.clone() })?;
    Ok((reader, Progress { read, size }))
}
