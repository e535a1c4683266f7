//! The notes of what was changed: one file for each process that changes something, written before it does, removed when it
//! has undone it. What a process that was killed left is undone by the next one from its note.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::source::nldev::reply::CounterMode;

/// The form of a note. One of another form is left alone.
const VERSION: u32 = 1;
const EXTENSION: &str = "json";

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
}

impl Note {
    pub(super) fn new(process: Process) -> Self {
        Self { version: VERSION, process, ports: Vec::new() }
    }

    /// The start is in the name as well: a process of the same number may have left one.
    fn file_name(&self) -> String {
        format!("{}-{}.{EXTENSION}", self.process.pid, self.process.start_ticks)
    }
}

/// The directory the notes are in.
#[derive(Debug, Clone)]
pub(super) struct Notes {
    directory: PathBuf,
}

impl Notes {
    pub(super) fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory and takes the lock on it, which is held until the file is dropped. `None`: another process has it.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        DirBuilder::new().recursive(true).mode(0o750).create(&self.directory)?;
        let lock = File::open(&self.directory)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Every note, in the order of the names; of one that cannot be read its path and why.
    pub(super) fn all(&self) -> Vec<Result<Note, String>> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => return vec![Err(format!("{}: {error}", self.directory.display()))],
        };
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        paths.sort_unstable();
        paths.iter().map(|path| read(path).map_err(|error| format!("{}: {error}", path.display()))).collect()
    }

    /// Puts a note in place of the process's last one: whole or not at all, also when the power goes. One without a port is
    /// removed.
    pub(super) fn put(&self, note: &Note) -> io::Result<()> {
        let path = self.directory.join(note.file_name());
        if note.ports.is_empty() {
            return self.remove(&path);
        }
        let part = path.with_extension("part");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(&part)?;
        serde_json::to_writer_pretty(&mut file, note)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Ok(directory) = File::open(&self.directory) {
            directory.sync_all()?;
        }
        // It stays when there are notes of others in it, and nothing depends on it.
        let _ = fs::remove_dir(&self.directory);
        Ok(())
    }
}

fn read(path: &Path) -> Result<Note, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let note: Note = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if note.version == VERSION { Ok(note) } else { Err(format!("a note of form {}", note.version)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(pid: u32) -> Note {
        let process = Process { pid, start_ticks: 5, boot_id: "b".to_owned(), pid_namespace: "pid:[1]".to_owned() };
        let before = CounterMode { mode: 0, mask: 0 };
        let (device, node_guid) = ("mlx5_0".to_owned(), Some("0011:2233:4455:6677".to_owned()));
        let port = Changed { device, index: 3, node_guid, port: 1, before, mask: 1, undoing: false };
        Note { ports: vec![port], ..Note::new(process) }
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_leaves_no_directory_when_it_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::at(&directory.path().join("state/changes"));
        assert!(notes.all().is_empty());
        let lock = notes.lock().unwrap().expect("nobody else has it");
        assert!(notes.lock().unwrap().is_none(), "it is taken");
        drop(lock);
        let mut note = note(9);
        notes.put(&note).unwrap();
        note.ports[0].undoing = true;
        notes.put(&note).unwrap();
        assert_eq!(notes.all(), [Ok(note.clone())]);
        note.ports.clear();
        notes.put(&note).unwrap();
        assert!(!notes.directory().exists());
    }

    #[test]
    fn what_is_no_note_of_this_form_is_told_and_not_taken_for_one() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::at(directory.path());
        fs::write(directory.path().join("1-1.json"), "{").unwrap();
        let newer = serde_json::to_string(&Note { version: 2, ..note(2) }).unwrap();
        fs::write(directory.path().join("2-5.json"), newer).unwrap();
        fs::write(directory.path().join("3-5.part"), "half").unwrap();
        let told: Vec<String> = notes.all().into_iter().map(Result::unwrap_err).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("1-1.json") && told[1].contains("form 2"), "{told:?}");
    }
}
