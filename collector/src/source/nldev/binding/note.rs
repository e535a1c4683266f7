//! The notes of what was changed: one file for each process that changes something, written before it does, removed when it
//! has undone it. What a process that was killed left is undone by the next one from its note.
//!
//! The directory may belong to the service's user, and root looks into it as well: so nothing in it is followed, waited for
//! or written over, and what is read there is believed only when root or this user wrote it.

use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, fchown, flock, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::source::nldev::reply::CounterMode;

/// The form of a note. One of another form is left alone.
const VERSION: u32 = 1;
const EXTENSION: &str = ".json";

/// Bytes of a note, and notes that are looked at, at most. A port takes 300 bytes.
const MOST_BYTES: u64 = 1 << 18;
const MOST_NOTES: usize = 256;

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
        format!("{}-{}{EXTENSION}", self.process.pid, self.process.start_ticks)
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

    /// The directory itself, not what a link leads to.
    fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(CWD, &self.directory, flags, Mode::empty())?))
    }

    /// Makes the directory and takes the lock on it, which is held until the file is dropped. `None`: another process has it.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        DirBuilder::new().recursive(true).mode(0o750).create(&self.directory)?;
        let lock = self.open()?;
        self.give_to_owner_of_parent(&lock);
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What root makes in the service's directory is the service's, so that it can remove the notes in it: one it can only
    /// read is never done with.
    fn give_to_owner_of_parent(&self, directory: &File) {
        let owner = |facts: io::Result<fs::Metadata>| facts.map(|facts| (facts.uid(), facts.gid()));
        let parent = self.directory.parent().map(fs::metadata);
        let (Ok((0, _)), Some(Ok((uid, gid)))) = (owner(directory.metadata()), parent.map(owner)) else { return };
        if uid != 0 && geteuid().is_root() {
            // Where it is refused, the service says that it cannot write there.
            let _ = fchown(directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        }
    }

    /// Every note, in the order of the names; of one that cannot be read its path and why.
    pub(super) fn all(&self) -> Vec<Result<Note, String>> {
        let at = |error: &dyn std::fmt::Display| Err(format!("{}: {error}", self.directory.display()));
        let directory = match self.open() {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => return vec![at(&error)],
        };
        let mut names = match names(&directory) {
            Ok(names) => names,
            Err(error) => return vec![at(&error)],
        };
        names.sort_unstable();
        let beyond = names.split_off(names.len().min(MOST_NOTES)).len();
        let one = |name: &CString| {
            read(&directory, name)
                .map_err(|why| format!("{}/{}: {why}", self.directory.display(), name.to_string_lossy()))
        };
        let too_many = (beyond > 0).then(|| at(&format!("{beyond} notes more than are looked at")));
        names.iter().map(one).chain(too_many).collect()
    }

    /// Puts a note in place of the process's last one: whole or not at all, also when the power goes. One without a port is
    /// removed.
    pub(super) fn put(&self, note: &Note) -> io::Result<()> {
        let name = note.file_name();
        if note.ports.is_empty() {
            return self.remove(&name);
        }
        let directory = self.open()?;
        // Nobody can have put something there for us to write to.
        let part = format!("{name}.{:016x}.part", RandomState::new().build_hasher().finish());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&directory, &part, flags, Mode::from_raw_mode(0o640))?);
        let put = write(file, note).and_then(|()| Ok(renameat(&directory, &part, &directory, &name)?));
        if put.is_err() {
            let _ = unlinkat(&directory, &part, AtFlags::empty());
        }
        put?;
        directory.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let directory = match self.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        match unlinkat(&directory, name, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => return Err(error.into()),
            _ => directory.sync_all()?,
        }
        // It stays when there are notes of others in it, and nothing depends on it.
        let _ = fs::remove_dir(&self.directory);
        Ok(())
    }
}

fn write(mut file: File, note: &Note) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut file, note)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// What is called as a note is: `PID-TICKS.json`.
fn names(directory: &File) -> io::Result<Vec<CString>> {
    let is_note = |name: &CStr| {
        let numbers = name.to_str().ok().and_then(|name| name.strip_suffix(EXTENSION)?.split_once('-'));
        numbers.is_some_and(|(pid, ticks)| pid.parse::<u32>().is_ok() && ticks.parse::<u64>().is_ok())
    };
    let entries = Dir::read_from(directory)?.filter_map(Result::ok);
    Ok(entries.map(|entry| entry.file_name().to_owned()).filter(|name| is_note(name)).collect())
}

fn read(directory: &File, name: &CStr) -> Result<Note, String> {
    // A pipe would be waited for, a link leads elsewhere.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty()).map_err(|error| error.to_string())?);
    let facts = file.metadata().map_err(|error| error.to_string())?;
    if !facts.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if ![0, geteuid().as_raw()].contains(&facts.uid()) {
        return Err(format!("it is of user {}; only root's notes and one's own are believed", facts.uid()));
    }
    if facts.len() > MOST_BYTES {
        return Err(format!("it is longer than {MOST_BYTES} bytes"));
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let note: Note = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if note.version != VERSION {
        return Err(format!("a note of form {}", note.version));
    }
    if name.to_bytes() != note.file_name().as_bytes() {
        return Err("it is of another process than its name says".to_owned());
    }
    Ok(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(pid: u32) -> Note {
        let process = Process {
            pid,
            start_ticks: 5,
            boot_id: "b".to_owned(),
            pid_namespace: "pid:[1]".to_owned(),
            net_namespace: None,
        };
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
        fs::write(directory.path().join("4-5.json"), serde_json::to_string(&note(9)).unwrap()).unwrap();
        let told: Vec<String> = notes.all().into_iter().map(Result::unwrap_err).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("1-1.json") && told[1].contains("form 2"), "{told:?}");
        assert!(told[2].contains("another process"), "{told:?}");
    }

    #[test]
    fn what_somebody_put_among_the_notes_is_neither_waited_for_nor_followed_nor_believed() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::at(&directory.path().join("changes"));
        drop(notes.lock().unwrap());
        let at = |name: &str| notes.directory().join(name);
        let pipe = std::process::Command::new("mkfifo").arg(at("1-5.json")).status().expect("coreutils");
        assert!(pipe.success());
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, serde_json::to_string(&note(2)).unwrap()).unwrap();
        std::os::unix::fs::symlink(&elsewhere, at("2-5.json")).unwrap();
        fs::write(at("3-5.json"), vec![b' '; usize::try_from(MOST_BYTES).unwrap() + 1]).unwrap();
        let told: Vec<String> = notes.all().into_iter().map(Result::unwrap_err).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("no regular file") && told[1].contains("symbolic link"), "{told:?}");
        assert!(told[2].contains("longer than"), "{told:?}");
        if !geteuid().is_root() {
            return println!("skipped: only root can make a file of another user");
        }
        notes.put(&note(4)).unwrap();
        assert!(notes.all()[3].is_ok());
        std::os::unix::fs::chown(at("4-5.json"), Some(65_534), None).unwrap();
        assert!(notes.all()[3].as_ref().unwrap_err().contains("it is of user 65534"));
    }

    #[test]
    fn nothing_is_written_through_what_lies_where_the_note_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::at(directory.path());
        let target = directory.path().join("target");
        fs::write(&target, "precious").unwrap();
        for name in ["9-5.part", "9-5.json"] {
            std::os::unix::fs::symlink(&target, directory.path().join(name)).unwrap();
        }
        notes.put(&note(9)).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert_eq!(notes.all(), [Ok(note(9))]);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        assert!(Notes::at(&link).lock().is_err() && Notes::at(&link).put(&note(9)).is_err());
    }

    #[test]
    fn what_root_makes_in_the_service_s_directory_is_the_service_s() {
        if !geteuid().is_root() {
            return println!("skipped: only root can give a directory away");
        }
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(directory.path(), Some(65_534), Some(65_534)).unwrap();
        let notes = Notes::at(&directory.path().join("changes"));
        drop(notes.lock().unwrap());
        let facts = fs::metadata(notes.directory()).unwrap();
        assert_eq!((facts.uid(), facts.gid()), (65_534, 65_534));
    }
}
