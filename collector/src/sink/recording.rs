//! Recordings: the observations on disk, with rotation. A full disk stops the recording with a reason and nothing else.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::Sink;
use crate::feed::{OwnCost, RecordingStatus};
use crate::inventory::World;
use crate::observation::Observation;
use crate::observation::recording::{Header, Writer};

/// A recording has at most so many parts.
const MAX_PARTS: u32 = 1_000_000;

/// How a recording is written.
#[derive(Debug, Clone)]
pub struct RecordingOptions {
    /// The file; compressed when its name ends in `.zst`.
    pub path: PathBuf,
    /// Replace a file that exists.
    pub force: bool,
    /// Begin a new file when this many bytes (before compression) are written.
    pub max_bytes: Option<u64>,
}

/// Why a recording could not be begun.
#[derive(Debug, thiserror::Error)]
pub enum RecordingStartError {
    /// The file exists.
    #[error("{0} exists")]
    Exists(PathBuf),
    /// It could not be made.
    #[error("cannot write {0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Writes a recording.
pub struct Recording {
    options: RecordingOptions,
    header: Header,
    writer: Option<Writer<File>>,
    part: u32,
    part_bytes: u64,
    status: Arc<Mutex<RecordingStatus>>,
}

impl Recording {
    /// Makes the file and writes the header.
    pub fn start(options: RecordingOptions, header: Header) -> Result<Self, RecordingStartError> {
        let file = create(&options.path, options.force)?;
        let writer = Writer::new(file, compressed(&options.path), &header)
            .map_err(|error| RecordingStartError::Io(options.path.clone(), error))?;
        let status =
            RecordingStatus { path: options.path.clone(), bytes: writer.bytes(), observations: 0, stopped: None };
        Ok(Self { options, header, writer: Some(writer), part: 0, part_bytes: 0, status: Arc::new(Mutex::new(status)) })
    }

    /// The state of the recording, also after it has ended.
    #[must_use]
    pub fn status(&self) -> Arc<Mutex<RecordingStatus>> {
        self.status.clone()
    }

    fn stop(&mut self, error: &io::Error) {
        self.writer = None;
        let reason =
            if error.kind() == io::ErrorKind::StorageFull { "the disk is full".to_owned() } else { error.to_string() };
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.stopped = Some(format!("recording stopped: {}: {reason}", status.path.display()));
    }

    /// The next part's file. The number of a part that somebody left there is passed over.
    fn next_part(&mut self) -> io::Result<(PathBuf, File)> {
        loop {
            self.part += 1;
            let path = part_path(&self.options.path, self.part);
            match create(&path, self.options.force) {
                Ok(file) => return Ok((path, file)),
                Err(RecordingStartError::Exists(_)) if self.part < MAX_PARTS => {}
                Err(RecordingStartError::Io(_, error)) => return Err(error),
                Err(RecordingStartError::Exists(path)) => {
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists", path.display())));
                }
            }
        }
    }

    /// Begins the next file. It opens with everything known, so that it can be read alone.
    fn rotate(&mut self, world: &World) -> io::Result<()> {
        if let Some(writer) = self.writer.take() {
            writer.finish().and_then(|file| sync(&file))?;
        }
        let (path, file) = self.next_part()?;
        let mut writer = Writer::new(file, compressed(&path), &self.header)?;
        let mut failed = None;
        let mut write = |observation: &Observation<'_>| {
            if failed.is_none() {
                failed = writer.write(observation).err();
            }
        };
        crate::inventory::restate_past(world, &mut write);
        crate::inventory::restate(world, &mut write);
        if let Some(error) = failed {
            return Err(error);
        }
        self.status.lock().unwrap_or_else(PoisonError::into_inner).path = path;
        self.part_bytes = 0;
        self.writer = Some(writer);
        Ok(())
    }
}

/// The files there that a recording of this name could go on in.
#[must_use]
pub fn parts_there(path: &Path) -> Vec<PathBuf> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let number = |name: &OsString| -> Option<u32> {
        let (_, rest) = name.to_str()?.split_once('.')?;
        rest.split('.').next()?.parse::<u32>().ok()?.checked_sub(1)
    };
    let is_part =
        |name: &OsString| number(name).is_some_and(|part| part_path(path, part).file_name() == Some(name.as_os_str()));
    names.filter(is_part).map(|name| path.with_file_name(name)).collect()
}

/// `run.jsonl.zst` → `run.2.jsonl.zst` for the second part.
fn part_path(path: &Path, part: u32) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (stem, extensions) = name.split_once('.').map_or((name.as_str(), ""), |(stem, rest)| (stem, rest));
    let dot = if extensions.is_empty() { "" } else { "." };
    path.with_file_name(format!("{stem}.{}{dot}{extensions}", part + 1))
}

fn compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

fn create(path: &Path, force: bool) -> Result<File, RecordingStartError> {
    let mut options = OpenOptions::new();
    options.write(true);
    // A pipe or a terminal holds nothing that could be lost.
    let special = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    if force || special {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    options.open(path).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            RecordingStartError::Exists(path.to_owned())
        } else {
            RecordingStartError::Io(path.to_owned(), error)
        }
    })
}

/// Has the file written to its disk, where it has one: a pipe, a terminal and `/dev/null` have none, and say `EINVAL`.
fn sync(file: &File) -> io::Result<()> {
    match file.sync_data() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

impl Sink for Recording {
    fn observation(&mut self, observation: &Observation<'_>, world: &World) {
        // Before the observation: the world knows everything that is in the part that ends, and nothing of this one.
        if self.options.max_bytes.is_some_and(|max| self.part_bytes >= max)
            && let Err(error) = self.rotate(world)
        {
            self.stop(&error);
        }
        let Some(writer) = &mut self.writer else { return };
        let before = writer.bytes();
        if let Err(error) = writer.write(observation) {
            self.stop(&error);
            return;
        }
        let written = writer.bytes() - before;
        self.part_bytes += written;
        {
            let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
            status.bytes += written;
            status.observations += 1;
        }
    }

    fn tick(&mut self, _: &World, _: &OwnCost) {
        if let Some(Err(error)) = self.writer.as_mut().map(Writer::flush) {
            self.stop(&error);
        }
    }

    fn finish(&mut self) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.finish().and_then(|file| sync(&file))
        {
            self.stop(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::observation::recording::Reader;
    use crate::observation::{Body, Device, Lost};
    use crate::rule::Settings;

    fn lost(t: u64) -> Observation<'static> {
        Observation { t, body: Body::Lost(Lost { source: "sysfs".into(), n: 1 }) }
    }

    #[test]
    fn an_existing_file_is_refused_without_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "precious").unwrap();
        let options = |force| RecordingOptions { path: path.clone(), force, max_bytes: None };
        let error = Recording::start(options(false), Header::new()).err().expect("refused");
        assert!(error.to_string().ends_with("a.jsonl exists"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        assert!(Recording::start(options(true), Header::new()).is_ok());
    }

    #[test]
    fn a_full_disk_stops_the_recording_with_a_reason() {
        let options = RecordingOptions { path: "/dev/full".into(), force: true, max_bytes: None };
        let mut recording = Recording::start(options, Header::new()).unwrap();
        let status = recording.status();
        let world = World::new(Header::new());
        recording.observation(&lost(1), &world);
        recording.tick(&world, &OwnCost::default());
        recording.observation(&lost(2), &world);
        recording.finish();
        let stopped = status.lock().unwrap().stopped.clone().expect("stopped");
        assert!(stopped.contains("disk is full"), "{stopped}");
    }

    #[test]
    fn what_has_no_disk_is_written_without_a_complaint() {
        let options = RecordingOptions { path: "/dev/null".into(), force: false, max_bytes: None };
        let mut recording = Recording::start(options, Header::new()).unwrap();
        recording.observation(&lost(1), &World::new(Header::new()));
        recording.finish();
        assert_eq!(recording.status().lock().unwrap().stopped, None);
    }

    #[test]
    fn each_part_of_a_rotated_recording_can_be_read_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.jsonl.zst");
        let options = RecordingOptions { path: path.clone(), force: false, max_bytes: Some(200) };
        let mut recording = Recording::start(options, Header::new()).unwrap();
        let mut engine = Engine::new(Header::new(), Settings::default());
        let device = Device { device: "mlx5_0".into(), ..Device::default() };
        for observation in std::iter::once(Observation { t: 1, body: Body::Device(device) }).chain((2..20).map(lost)) {
            engine.take(&observation);
            recording.observation(&observation, engine.world());
        }
        recording.finish();
        let mut second = Reader::open(&dir.path().join("run.2.jsonl.zst")).unwrap();
        let first = second.next(|o| matches!(&o.body, Body::Device(d) if d.device == "mlx5_0")).unwrap();
        assert_eq!(first, Some(true));
    }

    #[test]
    fn nothing_is_missing_at_the_seam_between_two_parts() {
        let dir = tempfile::tempdir().unwrap();
        let options = RecordingOptions { path: dir.path().join("run.jsonl"), force: false, max_bytes: Some(1) };
        let mut recording = Recording::start(options, Header::new()).unwrap();
        let mut engine = Engine::new(Header::new(), Settings::default());
        let port = |t: u64, state| Observation {
            t,
            body: Body::Port(crate::observation::Port { device: "d".into(), port: 1, state, ..Default::default() }),
        };
        let states = [crate::observation::PortState::Active, crate::observation::PortState::Down];
        for observation in [port(1, states[0]), port(2, states[1]), lost(3), lost(4)] {
            recording.observation(&observation, engine.world());
            engine.take(&observation);
        }
        recording.finish();
        let mut last = Reader::open(&dir.path().join("run.4.jsonl")).unwrap();
        let mut alone = Engine::new(Header::new(), Settings::default());
        while last.next(|observation| alone.take(observation)).unwrap().is_some() {}
        assert_eq!(alone.world().ports[0].state, states[1]);
        assert_eq!(alone.world().devices.len(), 1);
    }

    #[test]
    fn the_parts_of_a_recording_are_told_from_other_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "run.jsonl",
            "run.2.jsonl",
            "run.02.jsonl",
            "run.1.json",
            "run.17.jsonl",
            "run.2.jsonl.zst",
            "runs.2.jsonl",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let mut there = parts_there(&dir.path().join("run.jsonl"));
        there.sort();
        assert_eq!(there, ["run.17.jsonl", "run.2.jsonl"].map(|name| dir.path().join(name)));
    }

    #[test]
    fn a_part_that_somebody_left_there_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("run.2.jsonl"), "precious").unwrap();
        let options = RecordingOptions { path: dir.path().join("run.jsonl"), force: false, max_bytes: Some(1) };
        let mut recording = Recording::start(options, Header::new()).unwrap();
        let world = World::new(Header::new());
        for t in 1..4 {
            recording.observation(&lost(t), &world);
        }
        recording.finish();
        assert_eq!(recording.status().lock().unwrap().stopped, None);
        assert_eq!(std::fs::read_to_string(dir.path().join("run.2.jsonl")).unwrap(), "precious");
        assert!(dir.path().join("run.3.jsonl").exists());
    }
}
