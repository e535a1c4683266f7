//! The ring's thread: writes the segments, removes the oldest, saves incidents. What it cannot write is counted and said
//! once, and tried again later.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::incident::{Incident, whole};
use super::segment::{self, Directory, Frames, Own, RingError, Segment, segment_name};
use super::{Job, RingOptions, Shared, lock};
use crate::clock;
use crate::inventory::World;
use crate::observation::Nanos;
use crate::observation::recording::{Header, INCIDENT, RING};
use crate::sink::Log;

/// How long nothing is written after it failed.
const REST: Duration = Duration::from_secs(5);
/// A segment that alone takes this part of the ring ends, though its time is not over.
const PARTS: u64 = 8;

pub(super) struct Store {
    shared: Arc<Shared>,
    options: RingOptions,
    header: Header,
    log: Log,
    directory: Option<Directory>,
    /// Those that are whole, oldest first.
    segments: VecDeque<Segment>,
    current: Option<Current>,
    number: u64,
    /// Nothing is missing since the last segment.
    continues: bool,
    /// It failed: not before then again.
    rest: Option<Instant>,
    incident: Option<Incident>,
    said: Said,
}

/// What was said already; it is said once, until it is over.
#[derive(Default)]
struct Said {
    stopped: bool,
    not_saved: bool,
    foreign: bool,
}

/// The segment that is written.
struct Current {
    file: Frames,
    segment: Segment,
    own: Own,
    unflushed: bool,
}

impl Store {
    pub(super) fn new(
        shared: Arc<Shared>,
        options: RingOptions,
        header: Header,
        log: Log,
        directory: Directory,
    ) -> Self {
        Self {
            shared,
            options,
            header,
            log,
            directory: Some(directory),
            segments: VecDeque::new(),
            current: None,
            number: 0,
            continues: false,
            rest: None,
            incident: None,
            said: Said::default(),
        }
    }

    pub(super) fn run(mut self) {
        self.take_up();
        loop {
            let (jobs, ended) = self.wait();
            for job in jobs {
                self.obey(job);
            }
            self.publish();
            if ended {
                break;
            }
        }
        self.end_incident();
        if let Some(current) = self.current.take()
            && let Err(error) = current.file.finish()
        {
            self.stop(&error);
        }
        self.publish();
        {
            let mut queue = lock(&self.shared.queue);
            (queue.busy, queue.done) = (false, true);
        }
        self.shared.changed.notify_all();
    }

    /// The jobs that wait; true at the end.
    fn wait(&self) -> (VecDeque<Job>, bool) {
        let mut queue = lock(&self.shared.queue);
        queue.busy = false;
        let idle = |queue: &mut super::Queue| queue.jobs.is_empty() && !queue.ended;
        let mut queue = self.shared.changed.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner);
        (queue.bytes, queue.busy) = (0, true);
        (std::mem::take(&mut queue.jobs), queue.ended)
    }

    fn obey(&mut self, job: Job) {
        match job {
            Job::Segment { t, world } => {
                if let Err(error) = self.begin_segment(t, &world) {
                    self.stop(&error);
                }
            }
            Job::Lines { t, n, text } => self.write(t, n, &text),
            Job::Critical { t, unix_ns, rule } => self.critical(t, unix_ns, rule),
            Job::Tick { t } => self.tick(t),
        }
    }

    /// What an earlier collector left is part of what the ring may take; an incident it did not finish gets its name.
    fn take_up(&mut self) {
        let Some(directory) = &self.directory else { return };
        for part in directory.unfinished() {
            match whole(&part) {
                Ok(path) => (self.log)(&format!(
                    "ring: incident {} was not finished by an earlier collector; it ends early",
                    path.display()
                )),
                Err(error) => (self.log)(&format!("ring: {}: {error}", part.display())),
            }
        }
        self.segments = directory.segments().into();
        self.publish();
    }

    fn begin_segment(&mut self, t: Nanos, world: &World) -> io::Result<()> {
        self.end_segment()?;
        if self.rest.is_some_and(|rest| Instant::now() < rest) {
            return Ok(());
        }
        self.find_directory()?;
        let Some(directory) = &self.directory else { return Ok(()) };
        let unix_ns = self.header.unix_ns_at(t).unwrap_or_else(clock::unix_ns);
        let (path, file) = loop {
            self.number += 1;
            match directory.create(&segment_name(unix_ns, self.number)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => break created?,
            }
        };
        let segment = Segment { path, bytes: 0, own: None, modified_unix_ns: clock::unix_ns() };
        let begun = (|| {
            let file = segment::begin(file, &self.header, RING)?;
            let past_at = file.bytes;
            let file = segment::past(file, world)?;
            let known_at = file.bytes;
            let file = segment::known(file, world)?;
            let observed_at = file.bytes;
            let own = Own { end: t, past_at, known_at, observed_at, continues: self.continues };
            Ok((segment::frame(file)?, own))
        })();
        match begun {
            Ok((file, own)) => {
                self.current = Some(Current { file, segment, own, unflushed: true });
                self.continues = true;
                self.write_again();
                Ok(())
            }
            Err(error) => {
                // It was made here a moment ago, and may not even have its marker.
                let _ = std::fs::remove_file(&segment.path);
                Err(error)
            }
        }
    }

    /// The directory that was removed is made again, when only itself is missing.
    fn find_directory(&mut self) -> io::Result<()> {
        if self.directory.as_ref().is_some_and(Directory::is_there) {
            return Ok(());
        }
        self.directory = None;
        match Directory::open(&self.options.directory) {
            Ok(directory) => {
                self.segments = directory.segments().into();
                self.directory = Some(directory);
                Ok(())
            }
            Err(RingError::Io(_, error)) => Err(error),
            Err(taken) => Err(io::Error::other(taken.to_string())),
        }
    }

    fn end_segment(&mut self) -> io::Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let finished = current.file.finish();
        current.segment.modified_unix_ns = clock::unix_ns();
        if let Ok(file) = &finished {
            current.segment.bytes = file.bytes;
            // One that is cut off is no part of an incident: nothing behind it could be read.
            current.segment.own = Some(current.own);
        }
        self.segments.push_back(current.segment);
        finished.map(drop)
    }

    fn write(&mut self, t: Nanos, n: u64, text: &[u8]) {
        match &mut self.current {
            Some(current) => {
                current.own.end = current.own.end.max(t);
                current.unflushed = true;
                if let Err(error) = current.file.write_all(text) {
                    lock(&self.shared.status).lost += n;
                    self.stop(&error);
                }
            }
            None => lock(&self.shared.status).lost += n,
        }
        if let Some(Err(error)) = self.incident.as_mut().map(|incident| incident.write(text)) {
            self.cut_incident(&error);
        }
    }

    fn tick(&mut self, t: Nanos) {
        match self.incident.as_mut().map(|incident| incident.tick(t)) {
            Some(Ok(true)) => self.end_incident(),
            Some(Err(error)) => self.cut_incident(&error),
            Some(Ok(false)) | None => {}
        }
        if let Some(current) = &mut self.current {
            let flushed = if current.unflushed { current.file.flush() } else { Ok(()) };
            current.unflushed = false;
            current.segment.bytes = current.file.get_ref().bytes;
            let large = current.segment.bytes.saturating_sub(current.own.observed_at) >= self.options.max_bytes / PARTS;
            let there = current.segment.path.exists();
            if let Err(error) = flushed {
                self.stop(&error);
            } else if !there {
                self.stop(&io::Error::new(io::ErrorKind::NotFound, "its directory or its file was removed"));
            } else if large {
                self.shared.wanted.store(true, Ordering::Relaxed);
            }
        } else if self.rest.is_none_or(|rest| Instant::now() >= rest) {
            self.shared.wanted.store(true, Ordering::Relaxed);
        }
        self.trim(t);
    }

    /// Removes the oldest segments, until the rest is young and small enough.
    fn trim(&mut self, t: Nanos) {
        let keep_ns = u64::try_from(self.options.keep.as_nanos()).unwrap_or(Nanos::MAX);
        let unix_ns = clock::unix_ns();
        while let Some(oldest) = self.segments.front() {
            let old = match oldest.own {
                Some(own) => own.end.saturating_add(keep_ns) < t,
                None => oldest.modified_unix_ns.saturating_add(keep_ns) < unix_ns,
            };
            if !old && self.bytes() <= self.options.max_bytes {
                return;
            }
            let Some(oldest) = self.segments.pop_front() else { return };
            match segment::remove(&oldest.path, RING) {
                Ok(true) => {}
                Ok(false) => {
                    self.say_foreign(&format!("ring: {} is no segment any more; it stays", oldest.path.display()));
                }
                Err(error) => {
                    self.say_foreign(&format!("ring: cannot remove {}: {error}", oldest.path.display()));
                    // It still takes its place, and is tried again.
                    self.segments.push_front(oldest);
                    return;
                }
            }
        }
    }

    fn say_foreign(&mut self, line: &str) {
        if !std::mem::replace(&mut self.said.foreign, true) {
            (self.log)(&format!("{line} (said once)"));
        }
    }

    fn bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |current| current.segment.bytes);
        self.segments.iter().map(|segment| segment.bytes).sum::<u64>() + current
    }

    /// Bytes of the segments of this collector: what an incident is made of.
    fn own_bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |current| current.segment.bytes);
        self.segments.iter().filter(|segment| segment.own.is_some()).map(|segment| segment.bytes).sum::<u64>() + current
    }

    fn critical(&mut self, t: Nanos, unix_ns: u64, rule: &str) {
        if let Some(incident) = &mut self.incident {
            incident.prolong(t, &self.options);
            return;
        }
        match self.save(t, unix_ns, rule) {
            Ok(true) => self.said.not_saved = false,
            Ok(false) => {
                let (n, size, own) = (self.options.max_incidents, self.options.max_incident_bytes, self.own_bytes());
                self.not_saved(&if own > size {
                    format!("it would be {own} bytes, more than the {size} of incident-max-size")
                } else {
                    format!("{n} incidents or {size} bytes of them are kept already; remove some")
                });
            }
            Err(error) => self.not_saved(&reason(&error)),
        }
    }

    /// False: there is no room for another.
    fn save(&mut self, t: Nanos, unix_ns: u64, rule: &str) -> io::Result<bool> {
        if let Err(error) = self.end_frame() {
            self.stop(&error);
            return Err(error);
        }
        if !self.make_room()? {
            return Ok(false);
        }
        let Some(directory) = &self.directory else { return Err(io::ErrorKind::NotFound.into()) };
        let current = self.current.as_mut().map(|current| {
            current.segment.own = Some(current.own);
            &current.segment
        });
        let own: Vec<&Segment> = self.segments.iter().filter(|s| s.own.is_some()).chain(current).collect();
        if own.is_empty() {
            return Err(io::Error::other("nothing of it could be recorded"));
        }
        self.incident = Some(Incident::begin(directory, &self.header, &own, &self.options, (t, unix_ns, rule))?);
        Ok(true)
    }

    /// What the open segment holds is to be whole, to be copied.
    fn end_frame(&mut self) -> io::Result<()> {
        let Some(Current { file, segment, own, .. }) = self.current.take() else { return Ok(()) };
        let file = file.finish()?;
        let segment = Segment { bytes: file.bytes, ..segment };
        self.current = Some(Current { file: segment::frame(file)?, segment, own, unflushed: true });
        Ok(())
    }

    /// Room for one more incident, made by removing the oldest where that is wanted.
    fn make_room(&self) -> io::Result<bool> {
        let Some(directory) = &self.directory else { return Ok(true) };
        // What never fits costs no other incident its place.
        let own = self.own_bytes();
        if own > self.options.max_incident_bytes {
            return Ok(false);
        }
        let mut kept: VecDeque<_> = directory.incidents().into();
        loop {
            let bytes = kept.iter().map(|(_, bytes)| bytes).sum::<u64>() + own;
            if kept.len() < self.options.max_incidents && bytes <= self.options.max_incident_bytes {
                return Ok(true);
            }
            match kept.pop_front() {
                Some((oldest, _)) if self.options.remove_oldest => drop(segment::remove(&oldest, INCIDENT)?),
                _ => return Ok(false),
            }
        }
    }

    fn not_saved(&mut self, why: &str) {
        lock(&self.shared.status).not_saved += 1;
        if !std::mem::replace(&mut self.said.not_saved, true) {
            (self.log)(&format!("ring: an incident is not saved: {why} (said once; all are counted)"));
        }
    }

    fn end_incident(&mut self) {
        let Some(incident) = self.incident.take() else { return };
        match incident.end() {
            Ok(path) => {
                (self.log)(&format!("ring: incident {} saved", path.display()));
                let mut status = lock(&self.shared.status);
                status.incidents += 1;
                status.last_incident = Some(path);
            }
            Err(error) => self.not_saved(&format!("it is cut off: {}", reason(&error))),
        }
    }

    /// What was written of it stays: it holds what led to the finding.
    fn cut_incident(&mut self, error: &io::Error) {
        if let Some(incident) = self.incident.take() {
            let _ = incident.end();
            self.not_saved(&format!("it is cut off: {}", reason(error)));
        }
    }

    /// Nothing is written for a while.
    fn stop(&mut self, error: &io::Error) {
        // It is cut off: it only takes room until its time is over.
        self.segments.extend(self.current.take().map(|current| current.segment));
        self.continues = false;
        self.rest = Some(Instant::now() + REST);
        let why = format!("{}: {}", self.options.directory.display(), reason(error));
        if !std::mem::replace(&mut self.said.stopped, true) {
            (self.log)(&format!("ring stopped: {why}; it is tried again (said once)"));
        }
        lock(&self.shared.status).stopped = Some(why);
    }

    /// Said only after it was said that it had stopped.
    fn write_again(&mut self) {
        self.rest = None;
        lock(&self.shared.status).stopped = None;
        if std::mem::take(&mut self.said.stopped) {
            (self.log)(&format!("ring: {} is written again", self.options.directory.display()));
        }
    }

    fn publish(&self) {
        let mut status = lock(&self.shared.status);
        status.bytes = self.bytes();
        status.segments = self.segments.len() + usize::from(self.current.is_some());
        status.saving = self.incident.is_some();
    }
}

fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::StorageFull { "the disk is full".to_owned() } else { error.to_string() }
}
