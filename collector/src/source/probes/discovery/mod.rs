//! Which processes use which build of a provider, so that each is attached to: on the host and in containers, started
//! before or after.
//!
//! ```text
//! address  what processes tell of where they post
//! device   the character devices of verbs, and who has one open
//! process  what a process maps of the verbs libraries, and where its contexts point
//! memory   contexts, QPs and CQs in the memory of a process whose calls were not watched from the start
//! provider the verbs libraries by the names of their files
//! bypass   what a process maps with which it can post where no probe sees it
//! look     the looks themselves, in threads
//! missing  what is not seen of processes, and why
//! ```
//!
//! The verbs process tells the places of the builds the host has. Any other is met through the processes that use it: one
//! look at all of them at the start, then one at each process that creates or changes a QP for the first time. A look
//! reads `/proc/PID/maps`, and memory only where no provider the process maps is known, so a node whose processes all use
//! the host's build costs one read for each. What takes longer than that is done in a thread, and so is whatever reads the
//! files that processes map. What processes told has a thread beside it: it waits for no search of another's memory. Neither
//! begins before what the last ones found is taken.
//!
//! A file that no process maps any more is let go: looked at every 10 s, through the processes that were met alone. A process
//! loads libraries as it goes: one that makes QPs is looked at again, at most that often. Of a file that was written over the
//! processes that map it are searched, at most once a minute.

mod address;
mod bypass;
mod device;
mod look;
mod memory;
mod missing;
mod process;
mod provider;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

pub(super) use self::address::Addresses;
use self::bypass::Calls;
use self::look::{Look, Looked, Start};
pub(super) use self::missing::OWN_BUILD;
use self::process::{Heard, Process, Whom};
use super::awaited::{self, Awaited};
use super::opened::{Known, Opened};
use crate::observation::{self, Text, Unseen, Way};
use crate::source::proc::says_ended;
use crate::source::verbs::FileId;

/// Processes that are remembered: those that use verbs. What is more is not looked at, and counted.
const MOST_REMEMBERED: usize = 16_384;

/// Between two searches for the sake of files that were written over: whoever owns one can write to it without end.
const SEARCH_PERIOD: Duration = Duration::from_secs(60);

/// The processes that use verbs, and what they map.
pub(super) struct Discovery {
    proc: PathBuf,
    /// Where the kernel lists the character devices of verbs.
    class: PathBuf,
    known: HashMap<u32, Process>,
    /// Processes to look at.
    asked: BTreeSet<u32>,
    /// All of them.
    all: bool,
    /// Processes to look at in the next round: they could not be looked at when it was their turn.
    later: BTreeSet<u32>,
    /// Processes to search, also where a provider that they map is known.
    search: BTreeSet<u32>,
    /// When such a search began last.
    searched: Option<Instant>,
    /// The look at processes that goes on.
    look: Option<Awaited<Looked>>,
    /// Looks at processes that have begun.
    looks: u64,
    /// The look at what processes told that goes on.
    hearing: Option<Awaited<Looked>>,
    /// Addresses that processes told and that were not looked for, since they were taken.
    lost: u64,
    /// What was found and is not handed over yet.
    places: VecDeque<Opened>,
    /// Readable when a thread has an answer; absent when there can be none.
    done: Option<Arc<OwnedFd>>,
    start: Start,
    /// Files that are the host's own: new processes may map them at any time.
    host: HashSet<FileId>,
    /// Processes that use verbs and may not be looked at.
    refused: BTreeSet<u32>,
    forgotten: u64,
    /// What of files is known that were looked into.
    calls: Arc<Mutex<Calls>>,
    /// Counts the looks for processes that are gone.
    round: u64,
    /// What was told of processes that post where no probe sees it.
    told: BTreeMap<u32, Told>,
    /// Something of the processes changed since it was told.
    changed: bool,
}

/// A process's name and its ways, each with a file or a reason.
type Told = (String, Vec<(Way, Evidence)>);

/// What a way was concluded from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Evidence {
    Library(String),
    Reason(String),
}

impl Discovery {
    /// Over the processes of `/proc`, or a copy of it.
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            class: PathBuf::from(device::CLASS),
            known: HashMap::new(),
            asked: BTreeSet::new(),
            later: BTreeSet::new(),
            all: false,
            search: BTreeSet::new(),
            searched: None,
            look: None,
            looks: 0,
            hearing: None,
            lost: 0,
            places: VecDeque::new(),
            done: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Arc::new),
            start: look::thread,
            host: HashSet::new(),
            refused: BTreeSet::new(),
            forgotten: 0,
            calls: Arc::default(),
            round: 0,
            told: BTreeMap::new(),
            changed: false,
        }
    }

    /// Goes on where another one ends: what that told of processes stands until it is told otherwise.
    pub(super) fn inherit(&mut self, before: &mut Self) {
        self.told = std::mem::take(&mut before.told);
        self.changed = true;
    }

    /// Becomes readable when there are news.
    pub(super) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.done.as_ref().map(|done| done.as_fd())
    }

    /// A file that stays attached to whatever maps it.
    pub(super) fn keep(&mut self, file: FileId) {
        self.host.insert(file);
    }

    /// Look at every process.
    pub(super) fn look_at_all(&mut self) {
        self.all = true;
    }

    /// Files that were attached to are not what they were. The processes that map them are searched, whatever else of them is
    /// known; where one is the host's own, all are looked at. Returns whether one is: then the providers are to be asked again.
    pub(super) fn look_anew(&mut self, overwritten: &HashSet<FileId>) -> bool {
        let is_host_s = !self.host.is_disjoint(overwritten);
        if is_host_s {
            self.look_at_all();
        } else {
            let maps = |process: &&Process| process.files.iter().any(|file| overwritten.contains(file));
            self.search.extend(self.known.values().filter(maps).map(|process| process.pid));
        }
        is_host_s
    }

    /// A process uses verbs.
    pub(super) fn saw(&mut self, tgid: u32) {
        // One whose memory was searched in vain would be searched again.
        let done =
            |process: &Process| process.has_device && (process.looked == Some(self.round) || process.missing.is_some());
        if !self.refused.contains(&tgid) && !self.known.get(&tgid).is_some_and(done) {
            self.asked.insert(tgid);
        }
        // A look that does not end: all are looked at after it.
        if self.asked.len() > MOST_REMEMBERED {
            self.asked.clear();
            self.all = true;
        }
    }

    /// Starts the looks that are due, once all that was found is handed over. `addresses` is what processes told, and is taken
    /// when it is looked at; `known` tells what is known of files.
    pub(super) fn work(&mut self, addresses: &mut Addresses, known: &dyn Fn() -> Known) {
        if !self.places.is_empty() {
            return;
        }
        let done = self.done.as_ref();
        let look = || Look { proc: self.proc.clone(), class: self.class.clone(), known: known() };
        if self.hearing.is_none() && !addresses.is_empty() {
            let take = || (look(), std::mem::take(addresses));
            let hearing = look::begin(self.start, done, take, |(look, addresses)| look.at_addresses(addresses));
            self.hearing = hearing.map(Awaited::from);
        }
        let may_search = self.searched.is_none_or(|searched| searched.elapsed() >= SEARCH_PERIOD);
        let whom = match (self.all, may_search && !self.search.is_empty(), self.asked.is_empty()) {
            (true, ..) => Some(Whom::All),
            (_, true, _) => Some(Whom::Search),
            (.., false) => Some(Whom::Asked),
            _ => None,
        };
        if let (None, Some(whom)) = (&self.look, whom) {
            let (all, search, asked) = (&mut self.all, &mut self.search, &mut self.asked);
            let take = || {
                let pids = match whom {
                    // The others that are asked for are among them. Those to search may be of any name: they wait.
                    Whom::All => {
                        *all = false;
                        std::mem::take(asked)
                    }
                    Whom::Search => std::mem::take(search),
                    Whom::Asked => std::mem::take(asked),
                };
                (look(), pids)
            };
            let calls = self.calls.clone();
            let look = look::begin(self.start, done, take, move |(look, pids)| look.at_processes(whom, &pids, &calls));
            self.look = look.map(Awaited::from);
            self.looks += u64::from(self.look.is_some());
            if whom == Whom::Search && self.look.is_some() {
                self.searched = Some(Instant::now());
            }
        }
    }

    /// Something is looked at, or was found and not handed over.
    pub(super) fn is_busy(&self) -> bool {
        self.look.is_some() || self.hearing.is_some() || !self.places.is_empty()
    }

    /// Waits until there are news, when something is looked at. Returns whether there may be some.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let Some(done) = self.done.as_ref().filter(|_| self.is_busy()) else { return false };
        let Ok(timeout) = Timespec::try_from(timeout) else { return false };
        !self.places.is_empty() || poll(&mut [PollFd::new(done, PollFlags::IN)], Some(&timeout)).is_ok_and(|n| n > 0)
    }

    /// Takes up what was found since the last call.
    pub(super) fn take(&mut self) {
        // First: what a thread sends after it was looked for wakes up again.
        if let Some(done) = &self.done {
            let _ = rustix::io::read(&**done, &mut [0; 8]);
        }
        if let Some(heard) = awaited::take(&mut self.hearing) {
            self.refused.extend(heard.refused);
            self.later.extend(heard.later);
            self.lost += heard.lost;
            for process in heard.processes {
                self.hear(process);
            }
            self.places.extend(heard.places);
        }
        if let Some(looked) = awaited::take(&mut self.look) {
            self.refused.extend(looked.refused);
            self.later.extend(looked.later);
            for process in looked.processes {
                self.remember(Process { looked: Some(self.round), ..process });
            }
            for pid in looked.without {
                // What it told meanwhile was not known to the look.
                if self.known.get(&pid).is_some_and(|process| process.heard.look != self.looks) {
                    self.known.remove(&pid);
                    self.changed = true;
                }
            }
            self.places.extend(looked.places);
        }
    }

    /// The next places to attach to, so many at most.
    pub(super) fn next(&mut self, most: usize) -> impl Iterator<Item = Opened> + '_ {
        self.places.drain(..most.min(self.places.len()))
    }

    /// Some places are not handed over yet.
    pub(super) fn has_next(&self) -> bool {
        !self.places.is_empty()
    }

    /// Addresses that processes told and that were not looked for, since the last call.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn remember(&mut self, mut process: Process) {
        self.changed = true;
        let before = self.known.get(&process.pid).filter(|before| before.start == process.start);
        // What it told while it was looked at was not known to the look.
        if let Some(before) = before.filter(|before| before.heard.look == self.looks) {
            process.hear(&before.heard);
        }
        if self.known.len() >= MOST_REMEMBERED && !self.known.contains_key(&process.pid) {
            self.forgotten += 1;
            return;
        }
        self.known.insert(process.pid, process);
    }

    /// Takes up what a process told of itself, and that it maps those files.
    fn hear(&mut self, mut told: Process) {
        let heard = Heard { look: self.looks, ..std::mem::take(&mut told.heard) };
        self.changed = true;
        match self.known.get_mut(&told.pid).filter(|known| known.start == told.start) {
            Some(known) => known.hear(&heard),
            None => {
                told.hear(&heard);
                self.remember(told);
            }
        }
    }

    /// Forgets the processes that are gone, and returns those of the files `kept` that none maps any more. Who maps a file
    /// maps the one that is `below` it as well: containers that share a layer have numbers of their own for its files, and
    /// one of them is that by which the file is attached to.
    pub(super) fn unused(&mut self, kept: HashSet<FileId>, below: &dyn Fn(FileId) -> FileId) -> Vec<FileId> {
        let proc = &self.proc;
        self.round += 1;
        self.changed = true;
        self.asked.append(&mut self.later);
        let (asked, refused) = (&mut self.asked, &self.refused);
        self.known.retain(|pid, process| {
            let (start, comm) = match process::start_and_name(&proc.join(pid.to_string())) {
                Ok(now) => now,
                // What cannot be read now is not known to be gone.
                Err(error) => return !says_ended(&error),
            };
            // It may run another program, which tells by its name. One that was searched in vain would be searched again.
            let is_other = comm != process.comm && process.missing.is_none() && !refused.contains(pid);
            if start == process.start && is_other {
                asked.insert(*pid);
            }
            start == process.start
        });
        let exists = |pid: &u32| proc.join(pid.to_string()).exists();
        self.refused.retain(exists);
        self.asked.retain(exists);
        self.search.retain(exists);
        // Not while a look goes on: it is not waited for, and the next time is soon.
        if let (None, Ok(mut calls)) = (&self.look, self.calls.try_lock()) {
            let mapped: HashSet<FileId> =
                self.known.values().flat_map(|process| &process.looked_into).copied().collect();
            calls.retain(|file, _| mapped.contains(file));
        }
        // Those that are not remembered may map any.
        if self.known.len() >= MOST_REMEMBERED {
            return Vec::new();
        }
        let mapped: HashSet<FileId> = self.files().flat_map(|file| [file, below(file)]).collect();
        kept.into_iter().filter(|file| !mapped.contains(file)).collect()
    }

    /// Whether a process maps one of the files, as far as is known; one that is not known may.
    pub(super) fn may_map(&self, pid: Option<u32>, files: &HashSet<FileId>) -> bool {
        let process = pid.and_then(|pid| self.known.get(&pid));
        process.is_none_or(|process| process.files.iter().any(|file| files.contains(file)))
    }

    fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.known.values().flat_map(|process| process.files.iter()).chain(&self.host).copied()
    }

    /// What is new of the processes that post, or may post, where no probe sees it.
    pub(super) fn tell(&mut self, tell: &mut dyn FnMut(observation::Process<'_>)) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let ways = |process: &Process| {
            let mapped = process.ways.iter().map(|(way, library)| (*way, Evidence::Library(library.clone())));
            let unknown = process.missing.as_ref().map(|why| Evidence::Reason(why.reason.clone()));
            mapped.chain(unknown.map(|reason| (Way::UnknownProvider, reason))).collect::<Vec<_>>()
        };
        let now: BTreeMap<u32, Told> = self
            .known
            .values()
            .map(|process| (process.pid, (process.comm.clone(), ways(process))))
            .filter(|(_, (_, ways))| !ways.is_empty())
            .collect();
        for (pid, (comm, _)) in self.told.iter().filter(|(pid, _)| !now.contains_key(pid)) {
            tell(observation::Process { pid: *pid, comm: Some(Text::Borrowed(comm)), unseen: Vec::new() });
        }
        for (pid, told) in now.iter().filter(|(pid, told)| self.told.get(pid) != Some(told)) {
            let (comm, ways) = told;
            let unseen = ways.iter().map(|(way, evidence)| match evidence {
                Evidence::Library(library) => Unseen { way: *way, file: Some(Text::Borrowed(library)), reason: None },
                Evidence::Reason(reason) => Unseen { way: *way, file: None, reason: Some(Text::Borrowed(reason)) },
            });
            tell(observation::Process { pid: *pid, comm: Some(Text::Borrowed(comm)), unseen: unseen.collect() });
        }
        self.told = now;
    }
}

#[cfg(test)]
mod tests;
