//! The files of the ring: names by which they are known again, the marker in them, and the directory they are in.
//!
//! A file is the ring's own when its name is one the ring gives and its header says so. Nothing else is ever removed.
//! Each is four or more zstd frames: the header, what had happened before, everything known at its beginning, and what was
//! observed; so an incident is put together from them without packing anything anew.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::inventory::{World, restate, restate_past};
use crate::observation::Nanos;
use crate::observation::recording::{Header, INCIDENT, RING, Reader, write_header, write_observation};
use crate::source::Emit;

/// What the names of segments begin and end with; between them are the start's seconds since 1970 and a number.
const SEGMENT: &str = "ring-";
const INCIDENTS: &str = "incident-";
pub(super) const EXTENSION: &str = ".jsonl.zst";
/// An incident that is not whole yet.
pub(super) const PART: &str = ".part";
/// What is recorded names processes and peers: it is for the owner and the group.
const MODE: u32 = 0o640;
const DIRECTORY_MODE: u32 = 0o750;
/// As recordings are packed.
const LEVEL: i32 = 3;

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Another collector writes there.
    #[error("ring {}: another rdmascope collect has it; give this one another --ring", .0.display())]
    Taken(PathBuf),
    /// The directory cannot be made or opened.
    #[error("cannot use the ring's directory {}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

/// The directory, which is this collector's as long as it is open.
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
    file: (u64, u64),
}

impl Directory {
    pub(super) fn open(path: &Path) -> Result<Self, RingError> {
        let failed = |error: io::Error| RingError::Io(path.to_owned(), error);
        if let Err(error) = DirBuilder::new().mode(DIRECTORY_MODE).create(path)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(failed(error));
        }
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let lock = File::open(path).map_err(failed)?;
        // On a file system without locks nothing tells two collectors apart; the names of their files do not collide.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::AGAIN) {
            return Err(RingError::Taken(path.to_owned()));
        }
        let metadata = lock.metadata().map_err(failed)?;
        Ok(Self { path: path.to_owned(), _lock: lock, file: (metadata.dev(), metadata.ino()) })
    }

    /// The path still leads to it.
    pub(super) fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.file)
    }

    /// The files in it whose names are of this kind, in the order of their names.
    fn named(&self, kind: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(|name| kind(name)).collect();
        names.sort_unstable();
        names.into_iter().map(|name| self.path.join(name)).collect()
    }

    /// What earlier collectors left of their rings.
    pub(super) fn segments(&self) -> Vec<Segment> {
        let left = self.named(is_segment).into_iter().filter(|path| is_marked(path, RING));
        left.filter_map(|path| {
            let metadata = fs::symlink_metadata(&path).ok()?;
            let modified = u64::try_from(metadata.mtime()).unwrap_or(0).saturating_mul(1_000_000_000);
            Some(Segment { path, bytes: metadata.len(), own: None, modified_unix_ns: modified })
        })
        .collect()
    }

    /// The incidents in it, oldest first, with their sizes in bytes.
    pub(super) fn incidents(&self) -> Vec<(PathBuf, u64)> {
        let whole = self.named(|name| is_incident(name, "")).into_iter().filter(|path| is_marked(path, INCIDENT));
        whole.filter_map(|path| fs::symlink_metadata(&path).ok().map(|metadata| (path, metadata.len()))).collect()
    }

    /// Incidents that a collector which was killed did not finish.
    pub(super) fn unfinished(&self) -> Vec<PathBuf> {
        self.named(|name| is_incident(name, PART)).into_iter().filter(|path| is_marked(path, INCIDENT)).collect()
    }

    /// Makes a file that is not there yet.
    pub(super) fn create(&self, name: &str) -> io::Result<(PathBuf, File)> {
        let path = self.path.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path)?;
        Ok((path, file))
    }
}

/// `ring-1790000000-000001.jsonl.zst`
pub(super) fn segment_name(unix_ns: u64, number: u64) -> String {
    format!("{SEGMENT}{:010}-{number:06}{EXTENSION}", unix_ns / 1_000_000_000)
}

fn is_segment(name: &str) -> bool {
    let middle = name.strip_prefix(SEGMENT).and_then(|rest| rest.strip_suffix(EXTENSION));
    let number = |text: &str, least: usize| text.len() >= least && text.bytes().all(|byte| byte.is_ascii_digit());
    middle.and_then(|middle| middle.split_once('-')).is_some_and(|(start, n)| number(start, 10) && number(n, 6))
}

/// `incident-20260101T020304Z-link.down.jsonl.zst`
pub(super) fn incident_name(unix_ns: u64, rule: &str, again: u32) -> String {
    let again = if again > 0 { format!("-{again}") } else { String::new() };
    format!("{INCIDENTS}{}-{rule}{again}{EXTENSION}", utc(unix_ns))
}

fn is_incident(name: &str, suffix: &str) -> bool {
    let middle = name
        .strip_suffix(suffix)
        .and_then(|name| name.strip_prefix(INCIDENTS))
        .and_then(|rest| rest.strip_suffix(EXTENSION));
    let Some((moment, _)) = middle.and_then(|middle| middle.split_once('-')) else { return false };
    moment.len() == 16
        && moment.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
}

/// The moment in UTC as ISO 8601's basic form, which sorts and needs no quoting.
fn utc(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(day);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The date of a day since 1970 in the Gregorian calendar, year by year: there are few.
fn date(mut day: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, day + 1)
}

/// The file's header says that it is of this kind.
fn is_marked(path: &Path, part: &str) -> bool {
    // Nothing is followed elsewhere, and nothing is waited for that is no file.
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
        && Reader::open(path).is_ok_and(|reader| reader.header().part.as_deref() == Some(part))
}

/// Removes a file of this kind; false, and it stays, when its marker says that it is something else now.
pub(super) fn remove(path: &Path, part: &str) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        // Somebody has done it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
        Ok(_) if !is_marked(path, part) => return Ok(false),
        Ok(_) => {}
    }
    fs::remove_file(path).map(|()| true)
}

/// A segment on disk.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Of this collector's own ring; `None`: of an earlier one, which only takes room until its time is over.
    pub(super) own: Option<Own>,
    /// When an earlier collector wrote it last.
    pub(super) modified_unix_ns: u64,
}

/// What is known of a segment this collector wrote.
#[derive(Clone, Copy)]
pub(super) struct Own {
    /// The newest observation.
    pub(super) end: Nanos,
    /// Where what had happened before it begins, what was known at its beginning, and what was observed, bytes.
    pub(super) past_at: u64,
    pub(super) known_at: u64,
    pub(super) observed_at: u64,
    /// Nothing is missing between the segment before and this one.
    pub(super) continues: bool,
}

/// A file that counts what was written to it.
pub(super) struct Counted {
    pub(super) file: File,
    pub(super) bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A file of zstd frames; one is open.
pub(super) type Frames = zstd::Encoder<'static, Counted>;

/// Begins a frame.
pub(super) fn frame(file: Counted) -> io::Result<Frames> {
    crate::observation::recording::frame(file, LEVEL)
}

/// Begins a file with a frame that is only its header.
pub(super) fn begin(file: File, header: &Header, part: &str) -> io::Result<Counted> {
    let header = Header { part: Some(part.to_owned()), ..header.clone() };
    let mut line = Vec::new();
    write_header(&header, &mut line)?;
    line.push(b'\n');
    let mut frame = frame(Counted { file, bytes: 0 })?;
    frame.write_all(&line)?;
    frame.finish()
}

/// A frame of what happened before.
pub(super) fn past(file: Counted, world: &World) -> io::Result<Counted> {
    said(file, |emit| restate_past(world, emit))
}

/// A frame of everything known.
pub(super) fn known(file: Counted, world: &World) -> io::Result<Counted> {
    said(file, |emit| restate(world, emit))
}

fn said(file: Counted, say: impl FnOnce(&mut Emit<'_>)) -> io::Result<Counted> {
    let (mut frame, mut line) = (frame(file)?, Vec::new());
    let mut failed = Ok(());
    say(&mut |observation| {
        if failed.is_ok() {
            line.clear();
            failed = write_observation(observation, &mut line).and_then(|()| {
                line.push(b'\n');
                frame.write_all(&line)
            });
        }
    });
    failed?;
    frame.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_utc() {
        for (unix_s, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_790_000_000, "20260921T141320Z"),
            (4_107_542_399, "21000228T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(utc(unix_s * 1_000_000_000), text);
        }
    }

    #[test]
    fn only_names_the_ring_gives_are_its_own() {
        assert!(is_segment(&segment_name(1_790_000_000_000_000_000, 7)));
        for other in [
            "ring-.jsonl.zst",
            "ring-1790000000-000001.jsonl",
            "ring-179000000x-000001.jsonl.zst",
            "ring-1790000000.jsonl.zst",
        ] {
            assert!(!is_segment(other), "{other}");
        }
        let name = incident_name(1_790_000_000_000_000_000, "link.down", 0);
        assert_eq!(name, "incident-20260921T141320Z-link.down.jsonl.zst");
        assert!(is_incident(&name, "") && !is_incident(&name, PART));
        assert!(is_incident(&format!("{name}{PART}"), PART));
        assert!(is_incident(&incident_name(0, "link.down", 2), ""));
        for other in ["incident-yesterday-link.down.jsonl.zst", "incident-20260921T141320Z.jsonl.zst"] {
            assert!(!is_incident(other, ""), "{other}");
        }
    }
}
