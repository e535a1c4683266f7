//! One directory of counters, its files kept open.
//!
//! Each file is read on its own and each costs only itself: what cannot be read is unavailable with its reason.
//! `lifespan` lies among the `hw_counters` and is none: it says for how many milliseconds the driver serves them from its
//! cache, and a reading before that would show the old values, then twice the growth. Such a reading is left out.
//!
//! Kernels before 4.5 have the 64-bit counters in `counters_ext/` beside `counters/`. They are two readings of one count
//! and never added: the 64-bit one is taken, except where it says 0 beside a non-zero 32-bit one, which is a device
//! that does not fill it. `port_xmit_data_64` goes by the name `port_xmit_data`.

use std::borrow::Cow;
use std::io;

use super::number::{self, COUNTER_BYTES};
use crate::observation::{CounterSource, Counters, Nanos, Pairs, Text};
use crate::source::files::{Entry, Files, OpenFile, errno_name, put_in_order, says_gone};
use crate::timeline::counter_table::known_name;

/// The file that is no counter.
const LIFESPAN: &str = "lifespan";

/// A directory that was listed so often as it was before is taken for whole: one look comes at once, where the driver may not
/// be through with the port, the next ten seconds later.
const SETTLED: u8 = 2;

/// The errno of an attribute whose device is gone.
const ENODEV: i32 = 19;

/// What the kernel may add to the `lifespan` it shows before it really reads again: one jiffy at HZ=100. The cache is
/// fresh while `ts + lifespan >= now`, counted in jiffies (drivers/infiniband/core/sysfs.c).
const LIFESPAN_SLACK_NS: Nanos = 10_000_000;

/// One reading, or why there is none.
type Reading = Result<u64, Text<'static>>;

struct CounterFile {
    name: Text<'static>,
    handle: Result<Box<dyn OpenFile>, Text<'static>>,
    /// The 64-bit file of the same count.
    wide: Option<Box<CounterFile>>,
}

/// The counters of one directory.
pub(super) struct CounterSet {
    dir: String,
    /// `None` for a set of the whole device.
    pub(super) port: Option<u32>,
    pub(super) source: CounterSource,
    files: Vec<CounterFile>,
    /// What the directory held when it was opened, in its own order.
    listed: Vec<Entry>,
    /// Why the directory could not be listed.
    missing: Option<Text<'static>>,
    /// Because there is none.
    absent: bool,
    /// How often the directory was listed as it was before.
    looks_alike: u8,
    readings: Vec<Reading>,
    /// The file that tells the age of the driver's cache.
    lifespan: Option<Box<dyn OpenFile>>,
    /// That age, ms.
    pub(super) lifespan_ms: Option<u32>,
    due: Nanos,
    /// It was read since the last observation.
    fresh: bool,
    /// Where nothing was readable: the reasons that were said last.
    said: Option<(Option<Text<'static>>, Vec<Reading>)>,
    /// Where `counters/` and `counters_ext/` contradict each other, and where `lifespan` is no time.
    pub(super) notes: Vec<String>,
}

impl CounterSet {
    /// Opens `<owner>/counters` or `<owner>/hw_counters`, where the owner is a port or a device.
    pub(super) fn open(files: &dyn Files, owner: &str, port: Option<u32>, source: CounterSource) -> Self {
        let dir = format!("{owner}/{}", source.name());
        let listed = entries(files, &dir);
        Self::of(files, owner, port, source, listed, &mut Vec::new())
    }

    /// The set of what a directory holds. Those files of it that are `held` open already are not opened a second time: for that
    /// there may be no descriptor left.
    fn of(
        files: &dyn Files,
        owner: &str,
        port: Option<u32>,
        source: CounterSource,
        listed: io::Result<Vec<Entry>>,
        held: &mut Vec<(Entry, Box<dyn OpenFile>)>,
    ) -> Self {
        let dir = format!("{owner}/{}", source.name());
        let (listed, missing, absent) = match listed {
            Ok(listed) => (listed, None, false),
            Err(error) => (Vec::new(), Some(errno_name(&error)), says_gone(&error)),
        };
        let mut counters = listed.clone();
        counters.retain(|entry| is_counter(&entry.name));
        put_in_order(&mut counters);
        let mut open = |entry: &Entry| match held.iter().position(|(known, _)| known == entry) {
            Some(at) => CounterFile { handle: Ok(held.swap_remove(at).1), ..CounterFile::closed(&entry.name) },
            None => CounterFile::open(files, &dir, &entry.name, &entry.name),
        };
        let mut set = Self {
            files: counters.iter().map(&mut open).collect(),
            readings: Vec::with_capacity(counters.len()),
            dir,
            port,
            source,
            listed,
            missing,
            absent,
            looks_alike: 0,
            lifespan: None,
            lifespan_ms: None,
            due: 0,
            fresh: false,
            said: None,
            notes: Vec::new(),
        };
        if source == CounterSource::Counters {
            set.open_wide(files, &format!("{owner}/counters_ext"));
        }
        set.open_lifespan(files, held);
        set
    }

    fn open_wide(&mut self, files: &dyn Files, dir: &str) {
        for entry in files.list(dir).unwrap_or_default() {
            (self.missing, self.absent) = (None, false);
            let name = plain_name(&entry.name);
            let wide = CounterFile::open(files, dir, &entry.name, name);
            match self.files.iter_mut().find(|file| &*file.name == name) {
                Some(file) => {
                    self.notes.extend(contradiction(file, &wide));
                    file.wide = Some(Box::new(wide));
                }
                None => self.files.push(wide),
            }
        }
    }

    /// The directory does not exist.
    pub(super) fn is_absent(&self) -> bool {
        self.absent
    }

    /// It could not be listed, and whether it exists is not known; or it does not.
    pub(super) fn is_unlisted(&self) -> bool {
        self.missing.is_some()
    }

    /// The files in the directory are no longer those that were opened, or one could not be opened: open anew.
    fn is_outdated(&self, files: &dyn Files) -> bool {
        let (mut at, mut same) = (0, true);
        let listed = files.each(&self.dir, &mut |entry| {
            same &= self.listed.get(at).is_some_and(|known| entry == *known);
            at += 1;
        });
        match listed {
            Ok(()) => !same || at != self.listed.len() || self.files.iter().any(|file| file.handle.is_err()),
            // No descriptor or memory left: nothing is known to be gone.
            Err(error) => !self.absent && says_gone(&error),
        }
    }

    /// The slow look: opens anew what changed. `true` when something did. A directory that was seen to stay as it is, and of which
    /// every file is open, is listed only at a `rare` one: a driver makes its counters together with the port, and reading one
    /// that it took away says so.
    pub(super) fn refresh_slow(&mut self, files: &dyn Files, rare: bool) -> bool {
        let whole = self.absent || (self.missing.is_none() && self.files.iter().all(|file| file.handle.is_ok()));
        if rare || !whole || self.looks_alike < SETTLED {
            if self.is_outdated(files) {
                let listed = entries(files, &self.dir);
                if listed.as_ref().is_err_and(|error| !says_gone(error)) {
                    return false;
                }
                let owner = self.dir.rsplit_once('/').map_or("", |(owner, _)| owner).to_owned();
                let mut held = self.take_open();
                let mut anew = Self::of(files, &owner, self.port, self.source, listed, &mut held);
                anew.inherit(self);
                *self = anew;
                return true;
            }
            self.looks_alike = self.looks_alike.saturating_add(1);
        }
        let before = (self.lifespan_ms, self.notes.len());
        self.read_lifespan();
        (self.lifespan_ms, self.notes.len()) != before
    }

    /// The files that are open, each with what the directory held under its name.
    fn take_open(&mut self) -> Vec<(Entry, Box<dyn OpenFile>)> {
        let listed = &self.listed;
        let open = |file: CounterFile| {
            let entry = listed.iter().find(|entry| entry.name == *file.name && !entry.object)?;
            Some((entry.clone(), file.handle.ok()?))
        };
        let mut held: Vec<_> = std::mem::take(&mut self.files).into_iter().filter_map(open).collect();
        held.extend(listed.iter().find(|entry| entry.name == LIFESPAN).cloned().zip(self.lifespan.take()));
        held
    }

    fn open_lifespan(&mut self, files: &dyn Files, held: &mut Vec<(Entry, Box<dyn OpenFile>)>) {
        let listed = self.listed.iter().find(|entry| entry.name == LIFESPAN);
        let Some(entry) = listed.filter(|_| self.source == CounterSource::HwCounters) else { return };
        self.lifespan = match held.iter().position(|(known, _)| known == entry) {
            Some(at) => Some(held.swap_remove(at).1),
            None => files.open(&format!("{}/{LIFESPAN}", self.dir)).ok(),
        };
        self.read_lifespan();
    }

    fn read_lifespan(&mut self) {
        self.lifespan_ms = None;
        self.notes.retain(|note| !note.starts_with(LIFESPAN));
        let mut buf = [0u8; COUNTER_BYTES];
        let Some(Ok(n)) = self.lifespan.as_deref().map(|file| file.read(&mut buf)) else { return };
        let text = buf.get(..n).unwrap_or_default();
        match number::parse(text).map(u32::try_from) {
            Ok(Ok(ms)) => self.lifespan_ms = Some(ms),
            Ok(Err(_)) | Err(_) => {
                let text = String::from_utf8_lossy(text);
                self.notes.push(format!(
                    "{LIFESPAN} of {} reads {:?}: how old they are is not known",
                    self.source.name(),
                    text.trim()
                ));
            }
        }
    }

    /// The driver's cache is another one from here on: the next reading is due.
    pub(super) fn forget_cache(&mut self) {
        self.due = 0;
    }

    /// Takes over from the set before it when that was read (it is the same cache) and what was said.
    pub(super) fn inherit(&mut self, before: &Self) {
        self.due = before.due;
        self.said.clone_from(&before.said);
    }

    /// Reads every file, unless that would show the driver's cache again. `false` when a file says that the device is
    /// gone.
    pub(super) fn read(&mut self, now: Nanos) -> bool {
        if now < self.due {
            return true;
        }
        self.due = now + self.lifespan_ms.map_or(0, |ms| Nanos::from(ms) * 1_000_000 + LIFESPAN_SLACK_NS);
        self.fresh = true;
        self.readings.clear();
        let mut present = true;
        for file in &self.files {
            let reading = file.read(&mut present);
            self.readings.push(reading);
        }
        present
    }

    /// What was read since the last call, as an observation; `None` when there is nothing new, or nothing could be read
    /// and that was said before.
    pub(super) fn take_observation<'s>(&'s mut self, device: &'s str) -> Option<Counters<'s>> {
        if !std::mem::take(&mut self.fresh) {
            return None;
        }
        let known = self.known();
        if known == 0 {
            let nothing = self.files.is_empty() && self.missing.is_none();
            if nothing || self.said.as_ref().is_some_and(|said| said.0 == self.missing && said.1 == self.readings) {
                return None;
            }
            self.said = Some((self.missing.clone(), self.readings.clone()));
        } else {
            self.said = None;
        }
        let mut values = Pairs::with_capacity(known);
        let mut unavailable = Pairs::with_capacity(self.readings.len() - known);
        if let Some(reason) = &self.missing {
            unavailable.push("*", Cow::Borrowed(&**reason));
        }
        for (file, reading) in self.files.iter().zip(&self.readings) {
            match reading {
                Ok(value) => values.push(&*file.name, *value),
                Err(reason) => unavailable.push(&*file.name, Cow::Borrowed(&**reason)),
            }
        }
        Some(Counters {
            device: device.into(),
            port: self.port,
            source: self.source,
            values,
            unavailable,
            ..Counters::default()
        })
    }

    /// Counters that were read.
    pub(super) fn known(&self) -> usize {
        self.readings.iter().filter(|reading| reading.is_ok()).count()
    }

    /// What was not read and why: the whole set under its own name, or single counters under theirs.
    pub(super) fn unavailable(&self) -> Vec<(String, Text<'static>)> {
        if let Some(reason) = &self.missing {
            return vec![(self.source.name().to_owned(), reason.clone())];
        }
        let failed = |reading: &Reading| reading.as_ref().err().cloned();
        let first = self.readings.first().and_then(failed);
        if let Some(reason) = first.filter(|first| self.readings.iter().all(|r| r.as_ref().err() == Some(first))) {
            return vec![(self.source.name().to_owned(), reason)];
        }
        let pairs = self.files.iter().zip(&self.readings);
        // The reason first: nearly every counter is read, and its name is copied for nothing then.
        pairs.filter_map(|(file, reading)| failed(reading).map(|reason| (file.name.to_string(), reason))).collect()
    }
}

/// What a directory holds, in its own order.
fn entries(files: &dyn Files, dir: &str) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    files.each(dir, &mut |entry| entries.push(entry.entry()))?;
    Ok(entries)
}

impl CounterFile {
    fn open(files: &dyn Files, dir: &str, file: &str, name: &str) -> Self {
        let handle = files.open(&format!("{dir}/{file}")).map_err(|error| errno_name(&error));
        Self { handle, ..Self::closed(name) }
    }

    /// A file that nobody has opened.
    fn closed(name: &str) -> Self {
        let name = known_name(name).map_or_else(|| name.to_owned().into(), Cow::Borrowed);
        Self { name, handle: Err(Cow::Borrowed("ENOENT")), wide: None }
    }

    fn read(&self, present: &mut bool) -> Reading {
        let own = self.read_own(present);
        let Some(wide) = &self.wide else { return own };
        match (own, wide.read_own(present)) {
            (Ok(narrow), Ok(0)) => Ok(narrow),
            (_, Ok(wide)) => Ok(wide),
            (own, Err(_)) => own,
        }
    }

    fn read_own(&self, present: &mut bool) -> Reading {
        let handle = self.handle.as_ref().map_err(Clone::clone)?;
        let mut buf = [0u8; COUNTER_BYTES];
        match handle.read(&mut buf) {
            Ok(n) => number::parse(&buf[..n]),
            Err(error) => {
                *present &= error.raw_os_error() != Some(ENODEV);
                Err(errno_name(&error))
            }
        }
    }
}

/// `lifespan` is the age of the driver's cache in ms, not a count.
fn is_counter(name: &str) -> bool {
    name != LIFESPAN
}

/// The name in `counters/` of a file in `counters_ext/`.
fn plain_name(name: &str) -> &str {
    if let Some(plain) = name.strip_suffix("_64") {
        return plain;
    }
    match name.strip_prefix("port_") {
        Some(plain) if plain.starts_with("unicast_") || plain.starts_with("multicast_") => plain,
        _ => name,
    }
}

/// Says where the two files of one count contradict each other: the 64-bit reading lies outside of two readings of the
/// other around it, and that one is not at its 32-bit ceiling.
fn contradiction(narrow: &CounterFile, wide: &CounterFile) -> Option<String> {
    let mut present = true;
    let before = narrow.read_own(&mut present).ok()?;
    let wide = wide.read_own(&mut present).ok()?;
    let after = narrow.read_own(&mut present).ok()?;
    if (before..=after).contains(&wide) || before == u64::from(u32::MAX) {
        return None;
    }
    let name = &narrow.name;
    let used = if wide == 0 { "counters" } else { "counters_ext" };
    Some(format!("{name}: counters says {after}, counters_ext says {wide} (when opened); {used} is used"))
}
