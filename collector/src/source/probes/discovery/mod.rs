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
//! ```
//!
//! The verbs process tells the places of the builds the host has. Any other is met through the processes that use it: one
//! look at all of them at the start, then one at each process that creates or changes a QP for the first time. A look
//! reads `/proc/PID/maps`, and memory only where no provider the process maps is known, so a node whose processes all use
//! the host's build costs one read for each. What takes longer than that is done in a thread of its own, one at a time.
//!
//! A file that no process maps any more is let go: looked at every 10 s, through the processes that were met alone. A process
//! loads libraries as it goes: one that makes QPs is looked at again, at most that often.

mod address;
mod bypass;
mod device;
mod memory;
mod process;
mod provider;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

pub(super) use self::address::Addresses;
use self::bypass::Calls;
use self::device::Devices;
use self::process::{Process, Thoroughness};
use crate::observation::{self, Text, Unseen, Way};
use crate::source::Missing;
use crate::source::verbs::{FileId, Operation, Place};

/// Processes that are looked at in one go at the start.
const MOST_PROCESSES: usize = 65_536;

/// Processes that are remembered: those that use verbs. What is more is not looked at, and counted.
const MOST_REMEMBERED: usize = 16_384;

/// What a look brought.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Operations and where they lie.
    pub(super) places: Vec<(Operation, Place)>,
    /// `ibv_modify_qp` of each libibverbs.
    pub(super) modify_qp: Vec<Place>,
}

/// What a thread brings back, in one or two parts: what a process told must not wait for a search of another's memory.
#[derive(Default)]
struct Looked {
    /// Processes that told where they post, with the places.
    told: Vec<Process>,
    processes: Vec<Process>,
    /// Processes that may not be looked at.
    refused: Vec<u32>,
    /// Nothing comes after it.
    last: bool,
}

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
    /// What processes told of where they post.
    addresses: Addresses,
    job: Option<Receiver<Looked>>,
    /// Readable when the thread has an answer; absent when there can be none.
    done: Option<Arc<OwnedFd>>,
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
            all: false,
            addresses: Addresses::default(),
            job: None,
            done: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Arc::new),
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

    /// A process uses verbs.
    pub(super) fn saw(&mut self, tgid: u32) {
        // One whose memory was searched in vain would be searched again.
        let done =
            |process: &Process| process.has_device && (process.looked == Some(self.round) || process.missing.is_some());
        if !self.refused.contains(&tgid) && !self.known.get(&tgid).is_some_and(done) {
            self.asked.insert(tgid);
        }
    }

    /// Processes told where they post. Returns of how many nothing is kept, or not all.
    pub(super) fn told(&mut self, addresses: Addresses) -> u64 {
        self.addresses.append(addresses)
    }

    /// Starts a look where one is due. `attached` says whether a file is attached to.
    pub(super) fn work(&mut self, attached: &dyn Fn(FileId) -> bool) {
        if self.job.is_some() || (self.asked.is_empty() && !self.all && self.addresses.is_empty()) {
            return;
        }
        let addresses = std::mem::take(&mut self.addresses);
        let all = std::mem::take(&mut self.all);
        let asked = std::mem::take(&mut self.asked);
        let known: HashSet<FileId> = self.files().filter(|file| attached(*file)).collect();
        let (proc, class, done) = (self.proc.clone(), self.class.clone(), self.done.clone());
        let calls = self.calls.clone();
        let (sender, receiver) = mpsc::channel();
        let look = move || {
            let devices = Devices::list(&class);
            let bring = |looked: Looked| {
                // Nobody waits for the answer any more when the source is gone.
                let _ = sender.send(looked);
                if let Some(done) = &done {
                    let _ = rustix::io::write(&**done, &1_u64.to_ne_bytes());
                }
            };
            let told = addresses.places(&proc, &devices);
            if !told.is_empty() {
                bring(Looked { told, ..Looked::default() });
            }
            let pids = if all { all_processes(&proc) } else { asked.into_iter().collect() };
            let how = Thoroughness { known: &known, deep: all, devices: &devices };
            let looked = look_at(&proc, &pids, &how, &mut calls.lock().unwrap_or_else(PoisonError::into_inner));
            bring(Looked { last: true, ..looked });
        };
        // Without a thread there is no answer, and the next process asks again.
        self.job = thread::Builder::new().name("discovery".to_owned()).spawn(look).is_ok().then_some(receiver);
    }

    /// Waits until there are news, when something is looked at.
    pub(super) fn wait(&self, timeout: Duration) {
        let (Some(_), Some(done)) = (&self.job, &self.done) else { return };
        let Ok(timeout) = Timespec::try_from(timeout) else { return };
        let _ = poll(&mut [PollFd::new(done, PollFlags::IN)], Some(&timeout));
    }

    /// What was found since the last call.
    pub(super) fn news(&mut self) -> Option<News> {
        let mut parts = Vec::new();
        while let Some(job) = &self.job {
            let looked = match job.try_recv() {
                Ok(looked) => looked,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => Looked { last: true, ..Looked::default() },
            };
            if looked.last {
                self.job = None;
            }
            parts.push(looked);
        }
        if parts.is_empty() {
            return None;
        }
        if let Some(done) = &self.done {
            let _ = rustix::io::read(&**done, &mut [0; 8]);
        }
        let mut news = News::default();
        for looked in parts {
            self.refused.extend(looked.refused);
            for mut process in looked.told {
                news.places.extend(process.places.iter().cloned());
                self.take(&mut process);
            }
            for mut process in looked.processes {
                news.places.append(&mut process.places);
                news.modify_qp.extend(process.modify_qp.take());
                process.looked = Some(self.round);
                self.remember(process);
            }
        }
        news.places.sort_by(|(a, at), (b, bt)| (a, at.file(), at.offset).cmp(&(b, bt.file(), bt.offset)));
        news.places.dedup_by(|(a, at), (b, bt)| (*a, at.file(), at.offset) == (*b, bt.file(), bt.offset));
        Some(news)
    }

    fn remember(&mut self, process: Process) {
        self.changed = true;
        if self.known.len() >= MOST_REMEMBERED && !self.known.contains_key(&process.pid) {
            self.forgotten += 1;
            return;
        }
        self.known.insert(process.pid, process);
    }

    /// Takes up what a process told of itself, and that it maps those files.
    fn take(&mut self, told: &mut Process) {
        let places = std::mem::take(&mut told.places);
        let Some(known) = self.known.get_mut(&told.pid) else { return self.remember(std::mem::take(told)) };
        for file in &told.files {
            if !known.files.contains(file) {
                known.files.push(*file);
            }
        }
        let posts = places.iter().any(|(operation, _)| *operation == Operation::PostSend);
        if posts && known.missing.take().is_some() {
            self.changed = true;
        }
    }

    /// Forgets the processes that are gone, and returns the files that none maps any more. Who maps a file maps the one that
    /// is `below` it as well: containers that share a layer have numbers of their own for its files, and one of them is that
    /// by which the file is attached to.
    pub(super) fn unused(&mut self, below: &dyn Fn(FileId) -> FileId) -> Vec<FileId> {
        let mapped = |this: &Self| this.files().flat_map(|file| [file, below(file)]).collect::<BTreeSet<FileId>>();
        let before = mapped(self);
        let proc = &self.proc;
        self.round += 1;
        self.changed = true;
        self.known.retain(|pid, process| {
            let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok();
            stat.as_deref().and_then(process::stat).is_some_and(|(start, _)| start == process.start)
        });
        self.refused.retain(|pid| proc.join(pid.to_string()).exists());
        // Not while a look goes on: it is not waited for, and the next time is soon.
        if let (None, Ok(mut calls)) = (&self.job, self.calls.try_lock()) {
            let mapped: HashSet<FileId> =
                self.known.values().flat_map(|process| &process.looked_into).copied().collect();
            calls.retain(|file, _| mapped.contains(file));
        }
        let after = mapped(self);
        before.difference(&after).copied().collect()
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

    /// The processes of which is known that they use verbs and not where.
    pub(super) fn missing(&self) -> Vec<Missing> {
        let mut reasons: BTreeMap<(&str, Option<&str>), Vec<String>> = BTreeMap::new();
        let mut processes: Vec<&Process> = self.known.values().collect();
        processes.sort_unstable_by_key(|process| process.pid);
        for process in processes {
            if let Some(why) = &process.missing {
                let who = format!("{} ({})", process.comm, process.pid);
                reasons.entry((&why.reason, why.fix.as_deref())).or_default().push(who);
            }
        }
        let mut missing: Vec<Missing> = reasons
            .into_iter()
            .map(|((reason, fix), who)| Missing {
                what: format!("what {} posts", some_of(&who)),
                reason: reason.to_owned(),
                fix: fix.map(str::to_owned),
            })
            .collect();
        let counted = [
            (
                self.refused.len() as u64,
                "processes may not be looked at, so a provider build of their own is not found",
                Some("give it CAP_SYS_PTRACE"),
            ),
            (self.forgotten, "processes use verbs beyond those that are remembered", None),
        ];
        for (n, reason, fix) in counted {
            if n > 0 {
                let what = "what other processes post".to_owned();
                missing.push(Missing { what, reason: format!("{n} {reason}"), fix: fix.map(str::to_owned) });
            }
        }
        missing
    }
}

/// The first of many.
fn some_of(all: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = all.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN { format!("{shown} and {} more", all.len() - SHOWN) } else { shown }
}

fn all_processes(proc: &Path) -> Vec<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id()).take(MOST_PROCESSES).collect()
}

fn look_at(proc: &Path, pids: &[u32], how: &Thoroughness<'_>, calls: &mut Calls) -> Looked {
    let mut looked = Looked::default();
    for pid in pids {
        match process::look(proc, *pid, how, calls) {
            Ok(process) => looked.processes.extend(process),
            // Of one that was not seen to use verbs, nothing is said: it may be any process of the node.
            Err(_) if how.deep => {}
            Err(_) => looked.refused.push(*pid),
        }
    }
    looked
}

#[cfg(test)]
mod tests;
