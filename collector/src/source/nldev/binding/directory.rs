//! The notes on disk: one file for each process that changes something, written before it does, removed when it has undone
//! it. What a process that was killed left is undone by the next one of the same user from its note.
//!
//! Root's notes are in a directory of their own, that nobody else can put, move or give back a note in: the service has a
//! user, who must not have root change something. What other users noted is read, and only told of. Nothing there is
//! followed, waited for or written over.

use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, flock, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::note::{MOST_BYTES, Note};
use super::process::{Life, life};

/// Notes of a directory that are looked at, at most.
const MOST_NOTES: usize = 256;

/// How the name of a note ends while it is written.
const PART: &str = ".part";

/// Bits of a mode: others than the owner may write; only its owner may take a file away (inode(7)).
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A note that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) note: Note,
    pub(super) whose: Whose,
}

/// Who wrote a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// This user: what it tells may be undone.
    Own,
    /// Somebody else, or it cannot be told from theirs: it is only told.
    Other { uid: u32, path: PathBuf },
}

/// The directories the notes are in.
#[derive(Debug, Clone)]
pub(super) struct Notes {
    directory: PathBuf,
    /// Where others have theirs.
    others: Vec<PathBuf>,
}

impl Notes {
    pub(super) fn at(directory: &Path, others: &[PathBuf]) -> Self {
        Self { directory: directory.to_owned(), others: others.to_vec() }
    }

    /// Where this user has its own.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The own directory, to write there.
    fn open(&self) -> io::Result<File> {
        let directory = open(&self.directory)?;
        if is_ours_alone(&directory)? {
            return Ok(directory);
        }
        let why = "root's notes are only where nobody else can write, in it or above it";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Why nothing that is noted in the own directory is undone, where that is so.
    pub(super) fn refusal(&self) -> Option<String> {
        self.open().err().map(|error| error.to_string())
    }

    /// Makes the directory and takes the lock on it, which is held until the file is dropped. `None`: another process has it.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        DirBuilder::new().recursive(true).mode(modes().0).create(&self.directory)?;
        let lock = self.open()?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Every note, the own ones first, those of a directory in the order of their names; of one that cannot be read its path
    /// and why.
    pub(super) fn all(&self) -> Vec<Result<Found, String>> {
        let mut all = of(&self.directory, true);
        all.extend(self.others.iter().flat_map(|directory| of(directory, false)));
        all
    }

    /// Puts a note in place of the process's last one: whole or not at all, also when the power goes. One without a port is
    /// removed.
    pub(super) fn put(&self, note: &Note) -> io::Result<()> {
        if note.ports.is_empty() {
            return self.remove(&note.file_name());
        }
        // Nobody can have put something there for us to write to.
        let random = RandomState::new().build_hasher().finish();
        self.put_by(note, &format!("{}.{random:016x}{PART}", note.file_name()))
    }

    /// Puts a note by way of a file of this name, which must not be there.
    fn put_by(&self, note: &Note, part: &str) -> io::Result<()> {
        let text = note.text().map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        let directory = self.open()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&directory, part, flags, Mode::from_raw_mode(modes().1))?);
        let put = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(&directory, part, &directory, note.file_name())?));
        if put.is_err() {
            let _ = unlinkat(&directory, part, AtFlags::empty());
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

/// Removes what processes left that were killed while they wrote a note, from the directory that is the `lock`. One of another
/// PID namespace, which may still write, finds that its note could not be written.
pub(super) fn clear(lock: &File, proc: &Path) {
    let ended = |name: &CStr| {
        let note = name.to_str().ok()?.strip_suffix(PART)?.rsplit_once('.')?.0;
        let (pid, started) = Note::writer(note)?;
        Some(life(proc, pid, started) == Life::Ended)
    };
    let Ok(entries) = Dir::read_from(lock) else { return };
    for entry in entries.filter_map(Result::ok).filter(|entry| ended(entry.file_name()) == Some(true)) {
        // What stays is no note, and costs nothing but its place.
        let _ = unlinkat(lock, entry.file_name(), AtFlags::empty());
    }
}

/// The directory itself, not what a link leads to.
fn open(directory: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(CWD, directory, flags, Mode::empty())?))
}

/// The modes of a directory and of a file that are made. What root makes the others may read, who tell of it: there is
/// nothing in it that they could not find out.
fn modes() -> (u32, u32) {
    if geteuid().is_root() { (0o755, 0o644) } else { (0o750, 0o640) }
}

/// For root: nobody else can put something into the directory, or into one above it where another could then be in its place.
fn is_ours_alone(directory: &File) -> io::Result<bool> {
    if !geteuid().is_root() {
        return Ok(true);
    }
    let mut facts = directory.metadata()?;
    if facts.uid() != 0 || facts.mode() & OTHERS_WRITE != 0 {
        return Ok(false);
    }
    let mut at = directory.try_clone()?;
    loop {
        let above = File::from(openat(&at, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?);
        let before = (facts.dev(), facts.ino());
        facts = above.metadata()?;
        if (facts.dev(), facts.ino()) == before {
            return Ok(true);
        }
        if facts.uid() != 0 || (facts.mode() & OTHERS_WRITE != 0 && facts.mode() & STICKY == 0) {
            return Ok(false);
        }
        at = above;
    }
}

/// The notes of one directory: the own one, or another user's, which need not let itself be read.
fn of(path: &Path, own: bool) -> Vec<Result<Found, String>> {
    let at = |error: &dyn std::fmt::Display| Err(format!("{}: {error}", path.display()));
    let known = || -> io::Result<_> {
        let directory = open(path)?;
        let own = own && is_ours_alone(&directory)?;
        Ok((names(&directory)?, directory, own))
    };
    let (mut names, directory, own) = match known() {
        Ok(known) => known,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !own => return Vec::new(),
        Err(error) => return vec![at(&error)],
    };
    names.sort_unstable();
    let beyond = names.split_off(names.len().min(MOST_NOTES)).len();
    let one = |name: &CString| {
        let path = path.join(name.to_string_lossy().as_ref());
        match read(&directory, name, own, &path) {
            Ok(found) => found.map(Ok),
            Err(why) => Some(Err(format!("{}: {why}", path.display()))),
        }
    };
    let too_many = (beyond > 0).then(|| at(&format!("{beyond} notes more than are looked at")));
    names.iter().filter_map(one).chain(too_many).collect()
}

/// What is called as a note is.
fn names(directory: &File) -> io::Result<Vec<CString>> {
    let is_note = |name: &CStr| name.to_str().is_ok_and(Note::is_name);
    let entries = Dir::read_from(directory)?.filter_map(Result::ok);
    Ok(entries.map(|entry| entry.file_name().to_owned()).filter(|name| is_note(name)).collect())
}

/// `None`: another user's, who lets nobody read it; or it was removed meanwhile.
fn read(directory: &File, name: &CStr, own: bool, path: &Path) -> Result<Option<Found>, String> {
    // A pipe would be waited for, a link leads elsewhere.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ACCESS) if !own => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let facts = file.metadata().map_err(|error| error.to_string())?;
    if !facts.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if facts.len() > MOST_BYTES as u64 {
        return Err(format!("it is longer than {MOST_BYTES} bytes"));
    }
    let mut text = String::new();
    file.take(MOST_BYTES as u64).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let note = Note::read(&name.to_string_lossy(), &text)?;
    if own && facts.uid() == geteuid().as_raw() {
        return Ok(Some(Found { note, whose: Whose::Own }));
    }
    if !note.is_plain() {
        return Err("it has names in it that no device has".to_owned());
    }
    Ok(Some(Found { note, whose: Whose::Other { uid: facts.uid(), path: path.to_owned() } }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::super::note::Changed;
    use super::super::process::Process;
    use super::*;
    use crate::source::nldev::reply::CounterMode;

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

    fn notes(directory: &Path) -> Notes {
        Notes::at(directory, &[])
    }

    fn own(note: Note) -> Found {
        Found { note, whose: Whose::Own }
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_leaves_no_directory_when_it_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let notes = notes(&directory.path().join("state/changes"));
        assert!(notes.all().is_empty());
        let lock = notes.lock().unwrap().expect("nobody else has it");
        assert!(notes.lock().unwrap().is_none(), "it is taken");
        drop(lock);
        let mut note = note(9);
        notes.put(&note).unwrap();
        note.ports[0].undoing = true;
        notes.put(&note).unwrap();
        assert_eq!(notes.all(), [Ok(own(note.clone()))]);
        note.ports.clear();
        notes.put(&note).unwrap();
        assert!(!notes.directory().exists());
    }

    #[test]
    fn what_is_no_note_of_this_form_is_told_and_not_taken_for_one() {
        let directory = tempfile::tempdir().unwrap();
        let notes = notes(directory.path());
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
    fn what_somebody_put_among_the_notes_is_neither_waited_for_nor_followed() {
        let directory = tempfile::tempdir().unwrap();
        let notes = notes(&directory.path().join("changes"));
        drop(notes.lock().unwrap());
        let at = |name: &str| notes.directory().join(name);
        let pipe = std::process::Command::new("mkfifo").arg(at("1-5.json")).status().expect("coreutils");
        assert!(pipe.success());
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, serde_json::to_string(&note(2)).unwrap()).unwrap();
        symlink(&elsewhere, at("2-5.json")).unwrap();
        fs::write(at("3-5.json"), vec![b' '; MOST_BYTES + 1]).unwrap();
        let told: Vec<String> = notes.all().into_iter().map(Result::unwrap_err).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("no regular file") && told[1].contains("symbolic link"), "{told:?}");
        assert!(told[2].contains("longer than"), "{told:?}");
    }

    #[test]
    fn what_another_user_noted_is_read_as_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let (mine, theirs) = (directory.path().join("mine"), directory.path().join("theirs"));
        let put = Notes::at(&theirs, &[]);
        drop(put.lock().unwrap());
        put.put(&note(4)).unwrap();
        let uid = geteuid().as_raw();
        let other = |uid| Ok(Found { note: note(4), whose: Whose::Other { uid, path: theirs.join("4-5.json") } });
        let notes = Notes::at(&mine, std::slice::from_ref(&theirs));
        assert_eq!(notes.all(), [other(uid)], "where others have theirs nothing is one's own");
        let odd = Note { ports: vec![Changed { device: "a;halt".to_owned(), ..note(5).ports.remove(0) }], ..note(5) };
        put.put(&odd).unwrap();
        let told = notes.all()[1].clone().unwrap_err();
        assert!(told.contains("names in it that no device has"), "{told}");
        if !geteuid().is_root() {
            return println!("skipped: only root can make a file of another user");
        }
        chown(theirs.join("4-5.json"), Some(65_534), None).unwrap();
        assert_eq!(put.all()[0], other(65_534), "nor is every file in one's own directory");
    }

    /// The service's user could take root's note away and bring it back later.
    #[test]
    fn root_keeps_no_note_where_somebody_else_can_write() {
        if !geteuid().is_root() {
            return println!("skipped: only root can give a directory away");
        }
        let state = tempfile::tempdir().unwrap();
        let below = state.path().join("service");
        let notes = notes(&below.join("changes"));
        drop(notes.lock().unwrap());
        notes.put(&note(4)).unwrap();
        assert_eq!(notes.all(), [Ok(own(note(4)))]);
        let refuses = || {
            let error = notes.put(&note(4)).unwrap_err();
            error.kind() == io::ErrorKind::PermissionDenied && notes.lock().is_err()
        };
        let theirs = || matches!(&notes.all()[..], [Ok(Found { whose: Whose::Other { uid: 0, .. }, .. })]);
        for given in [notes.directory(), &*below] {
            chown(given, Some(65_534), Some(65_534)).unwrap();
            assert!(refuses() && theirs(), "{} is another user's", given.display());
            chown(given, Some(0), Some(0)).unwrap();
            fs::set_permissions(given, fs::Permissions::from_mode(0o777)).unwrap();
            assert!(refuses() && theirs(), "all may write to {}", given.display());
            fs::set_permissions(given, fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(notes.all(), [Ok(own(note(4)))]);
    }

    #[test]
    fn nothing_is_written_through_what_lies_where_the_note_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let notes = notes(directory.path());
        let target = directory.path().join("target");
        fs::write(&target, "precious").unwrap();
        for name in ["9-5.json", "part"] {
            symlink(&target, directory.path().join(name)).unwrap();
        }
        let error = notes.put_by(&note(9), "part").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(directory.path().join("part").is_symlink(), "it is not ours to remove");
        notes.put(&note(9)).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert_eq!(notes.all(), [Ok(own(note(9)))]);
        let link = directory.path().join("link");
        symlink(directory.path(), &link).unwrap();
        let linked = Notes::at(&link, &[]);
        assert!(linked.lock().is_err() && linked.put(&note(9)).is_err());
    }

    #[test]
    fn what_a_killed_process_left_half_written_is_removed_and_what_another_writes_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let notes = notes(&directory.path().join("changes"));
        let lock = notes.lock().unwrap().expect("nobody else has it");
        let own = Process::own("/proc".as_ref()).unwrap();
        let part = |started: u64| format!("{}-{started}.json.0123456789abcdef.part", own.pid);
        let (mine, killed) = (part(own.start_ticks), part(own.start_ticks - 1));
        let others = ["7.part", "notes.json.1.part", "4294967295-5.json"];
        for name in others.into_iter().chain([&*mine, &*killed]) {
            fs::write(notes.directory().join(name), "half").unwrap();
        }
        clear(&lock, "/proc".as_ref());
        let left = |name: &&str| notes.directory().join(name).exists();
        assert!(others.iter().all(left) && left(&&*mine) && !left(&&*killed));
    }

    #[test]
    fn a_note_is_not_written_longer_than_it_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let notes = notes(directory.path());
        let mut note = note(9);
        let port = note.ports[0].clone();
        while note.text().is_ok() {
            notes.put(&note).unwrap();
            note.ports.extend(vec![port.clone(); 50]);
        }
        assert!(notes.put(&note).unwrap_err().to_string().contains("ports take more than"));
        note.ports.truncate(note.ports.len() - 50);
        assert!(note.ports.len() > 500);
        assert_eq!(notes.all(), [Ok(own(note))], "the last one is whole");
    }
}
