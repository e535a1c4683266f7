//! Looks at processes, and at what they told, each in a thread of its own.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::super::opened::{Known, Opened, Places};
use super::Addresses;
use super::bypass::Calls;
use super::device::Devices;
use super::process::{self, Process, Thoroughness, Whom};
use crate::source::verbs::{Operation, Place};

/// Processes that are looked at in one go at the start.
const MOST_PROCESSES: usize = 65_536;

/// What a thread brings back.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) processes: Vec<Process>,
    /// Where to attach, and what may not be attached to.
    pub(super) places: Vec<Opened>,
    /// Processes that may not be looked at.
    pub(super) refused: Vec<u32>,
    /// Processes that could not be looked at just now, for example for want of a descriptor.
    pub(super) later: Vec<u32>,
    /// Processes that have nothing to do with verbs any more, or are gone.
    pub(super) without: Vec<u32>,
    /// Addresses that processes told and that were not looked for.
    pub(super) lost: u64,
}

impl Looked {
    /// A process that uses verbs was not looked at. Returns whether it may be later.
    pub(super) fn failed(&mut self, pid: u32, error: &io::Error) -> bool {
        let may_be = error.kind() != io::ErrorKind::PermissionDenied;
        if may_be { &mut self.later } else { &mut self.refused }.push(pid);
        may_be
    }
}

/// What is looked at.
pub(super) struct Look {
    pub(super) proc: PathBuf,
    /// Where the kernel lists the character devices of verbs.
    pub(super) class: PathBuf,
    pub(super) known: Known,
}

/// How a thread is started.
pub(super) type Start = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Starts a thread.
pub(super) fn thread(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    thread::Builder::new().name("discovery".to_owned()).spawn(work).map(drop)
}

/// Has a thread do what `work` does with what `take` gives, which is asked only once there is one: without a thread nothing is
/// taken. `done` becomes readable when there is an answer.
pub(super) fn begin<I: Send + 'static>(
    start: Start,
    done: Option<&Arc<OwnedFd>>,
    take: impl FnOnce() -> I,
    work: impl FnOnce(I) -> Looked + Send + 'static,
) -> Option<Receiver<Looked>> {
    let (input, inputs) = mpsc::channel();
    let (output, outputs) = mpsc::channel();
    let done = done.cloned();
    let run = move || {
        let Ok(input) = inputs.recv() else { return };
        // Nobody waits for the answer any more when the source is gone.
        let _ = output.send(work(input));
        if let Some(done) = &done {
            let _ = rustix::io::write(&**done, &1_u64.to_ne_bytes());
        }
    };
    start(Box::new(run)).ok()?;
    // The thread waits for it.
    let _ = input.send(take());
    Some(outputs)
}

impl Look {
    /// Looks at what processes told of where they post.
    pub(super) fn at_addresses(self, addresses: Addresses) -> Looked {
        let Looked { processes: mut told, refused, later, lost, .. } =
            addresses.look(&self.proc, &Devices::list(&self.class));
        let mut places = Places::default();
        for process in &told {
            for (operation, place) in &process.places {
                places.add(Some(*operation), place.clone(), &self.known);
            }
        }
        let places = places.open(&self.known);
        let admitted: HashSet<_> = places.iter().filter(|opened| opened.found.is_ok()).map(Opened::key).collect();
        for process in &mut told {
            let post_send = |(operation, place): &(Operation, Place)| {
                *operation == Operation::PostSend
                    && (self.known.has_at(Some(*operation), place)
                        || admitted.contains(&(Some(*operation), place.file(), place.offset)))
            };
            process.heard.posts = process.places.iter().any(post_send);
            process.heard.files.extend(process.places.drain(..).map(|(_, place)| place.file()));
        }
        Looked { processes: told, places, refused, later, lost, ..Looked::default() }
    }

    /// Looks at these processes, or at all, of which these are known to use verbs.
    pub(super) fn at_processes(self, whom: Whom, pids: &BTreeSet<u32>, calls: &Mutex<Calls>) -> Looked {
        let devices = Devices::list(&self.class);
        let all = if whom == Whom::All { all_processes(&self.proc) } else { pids.iter().copied().collect() };
        let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut looked = Looked::default();
        let mut places = Places::default();
        for pid in all {
            let uses_verbs = pids.contains(&pid);
            let how = Thoroughness { known: &self.known, whom, uses_verbs, devices: &devices };
            match process::look(&self.proc, pid, &how, &mut calls) {
                Ok(Some(mut process)) => {
                    for (operation, place) in process.places.drain(..) {
                        places.add(Some(operation), place, &self.known);
                    }
                    if let Some(place) = process.modify_qp.take() {
                        places.add(None, place, &self.known);
                    }
                    looked.processes.push(process);
                }
                // Of one that was not seen to use verbs, nothing is said: it may be any process of the node.
                Ok(None) | Err(_) if !uses_verbs => {}
                Ok(None) => looked.without.push(pid),
                Err(error) => _ = looked.failed(pid, &error),
            }
        }
        looked.places = places.open(&self.known);
        looked
    }
}

fn all_processes(proc: &Path) -> Vec<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id()).take(MOST_PROCESSES).collect()
}
