//! One incident that is being saved: what the ring holds, and what follows for a while.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::RingOptions;
use super::segment::{self, Counted, Directory, Frames, PART, Segment, incident_name};
use crate::observation::Nanos;
use crate::observation::recording::{Header, INCIDENT};

/// Incidents of the same second and rule that get names of their own.
const SAME_NAME: u32 = 1000;
/// Further critical findings make an incident longer, up to so many times what follows the first.
const LONGEST: u64 = 10;

/// An incident file that is not whole yet.
pub(super) struct Incident {
    file: Frames,
    /// The path while it is written.
    part: PathBuf,
    /// It is whole when something is observed at this time.
    until: Nanos,
    longest: Nanos,
    max_bytes: u64,
}

impl Incident {
    /// Saves what the ring holds.
    pub(super) fn begin(
        directory: &Directory,
        header: &Header,
        segments: &[&Segment],
        options: &RingOptions,
        (t, unix_ns, rule): (Nanos, u64, &str),
    ) -> io::Result<Self> {
        let (part, file) = create(directory, unix_ns, rule)?;
        let begun =
            segment::begin(file, header, INCIDENT).and_then(|file| copy(file, segments)).and_then(segment::frame);
        let after = u64::try_from(options.after.as_nanos()).unwrap_or(Nanos::MAX);
        match begun {
            Ok(file) => Ok(Self {
                file,
                part,
                until: t.saturating_add(after),
                longest: t.saturating_add(after.saturating_mul(LONGEST)),
                max_bytes: options.max_incident_bytes,
            }),
            Err(error) => {
                // It was made here a moment ago, and a part of an incident without what led to it is of no use.
                let _ = fs::remove_file(&part);
                Err(error)
            }
        }
    }

    /// Another critical finding belongs to it.
    pub(super) fn prolong(&mut self, t: Nanos, options: &RingOptions) {
        let after = u64::try_from(options.after.as_nanos()).unwrap_or(Nanos::MAX);
        self.until = self.until.max(t.saturating_add(after)).min(self.longest);
    }

    pub(super) fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text)
    }

    /// Brings out what is buffered; true when it is as long or as large as it may be.
    pub(super) fn tick(&mut self, t: Nanos) -> io::Result<bool> {
        self.file.flush()?;
        Ok(t >= self.until || self.file.get_ref().bytes >= self.max_bytes)
    }

    /// Gives it its name: it is whole, or as much as could be written.
    pub(super) fn end(self) -> io::Result<PathBuf> {
        let written = self.file.finish().and_then(|file| file.file.sync_data());
        let named = whole(&self.part);
        written.and(named)
    }
}

/// Removes the suffix of an incident's name that says it is not whole. What has that name already stays.
pub(super) fn whole(part: &Path) -> io::Result<PathBuf> {
    let name = part.to_string_lossy();
    let path = PathBuf::from(name.strip_suffix(PART).unwrap_or(&name));
    match renameat_with(CWD, part, CWD, &path, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(path),
        // A file system that cannot promise it.
        Err(Errno::INVAL | Errno::NOSYS) if !path.exists() => fs::rename(part, &path).map(|()| path),
        Err(error) => Err(error.into()),
    }
}

fn create(directory: &Directory, unix_ns: u64, rule: &str) -> io::Result<(PathBuf, File)> {
    let mut again = 0;
    loop {
        let name = incident_name(unix_ns, rule, again);
        match directory.create(&format!("{name}{PART}")) {
            Ok((part, file)) => {
                let path = part.with_file_name(&name);
                if !path.exists() {
                    return Ok((part, file));
                }
                // Its whole name is taken; the empty file made just now is not needed.
                fs::remove_file(&part)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && again < SAME_NAME => {}
            Err(error) => return Err(error),
        }
        again += 1;
        if again > SAME_NAME {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
    }
}

/// What was observed, from all segments one behind the other, after what had happened before the first and was known at its
/// beginning. What was known at the beginning of a later one is left out: it would be observed twice. Unless something is
/// missing before it; then what had happened is left out alone.
fn copy(mut file: Counted, segments: &[&Segment]) -> io::Result<Counted> {
    let (mut begun, mut missing) = (false, false);
    for segment in segments {
        let Some(own) = segment.own else { continue };
        let from = match (begun, missing || !own.continues) {
            (false, _) => own.past_at,
            (true, true) => own.known_at,
            (true, false) => own.observed_at,
        };
        let mut source = match File::open(&segment.path) {
            Ok(source) => source,
            // Somebody removed it: what follows begins anew.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                missing = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        source.seek(SeekFrom::Start(from))?;
        let copied = io::copy(&mut source.take(segment.bytes.saturating_sub(from)), &mut file.file)?;
        file.bytes += copied;
        (begun, missing) = (true, false);
    }
    Ok(file)
}
