//! Addresses of functions that processes told of, by calling `ibv_modify_qp`, and the files they lie in.
//!
//! What is told comes from a process's memory, and whoever can call that function can tell something new each time. So no
//! more is kept than a process with several providers has, each process is looked at once however much it told, and that in
//! a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::device::Devices;
use super::process::{self, Process};
use crate::source::verbs::{Operation, maps};

/// Addresses of one process that are kept until it is looked at: a dozen tables.
const MOST_OF_A_PROCESS: usize = 512;

/// Processes whose addresses are kept until they are looked at.
const MOST_PROCESSES: usize = 1024;

/// Files of one process in which places are looked for at once: more than it has providers.
const MOST_FILES: usize = 16;

/// What was told since the last look.
#[derive(Debug, Default)]
pub(in super::super) struct Addresses(BTreeMap<u32, BTreeSet<(Operation, u64)>>);

impl Addresses {
    /// Keeps what a process told. Returns whether there was room for it.
    pub(in super::super) fn add(&mut self, tgid: u32, told: impl IntoIterator<Item = (Operation, u64)>) -> bool {
        if self.0.len() >= MOST_PROCESSES && !self.0.contains_key(&tgid) {
            return false;
        }
        let of_process = self.0.entry(tgid).or_default();
        for one in told.into_iter().filter(|(_, address)| *address != 0) {
            if of_process.len() >= MOST_OF_A_PROCESS && !of_process.contains(&one) {
                return false;
            }
            of_process.insert(one);
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The processes that told something and have a device open, each with the places of its addresses.
    pub(super) fn places(self, proc: &Path, devices: &Devices) -> Vec<Process> {
        self.0.into_iter().filter_map(|(tgid, told)| places(proc, devices, tgid, told)).collect()
    }
}

fn places(proc: &Path, devices: &Devices, pid: u32, told: BTreeSet<(Operation, u64)>) -> Option<Process> {
    let dir = proc.join(pid.to_string());
    // It called `ibv_modify_qp`, or something that looked like it.
    if !devices.open_in(&dir).unwrap_or(false) {
        return None;
    }
    let text = fs::read(dir.join("maps")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mappings: Vec<_> = maps::mappings(&text).collect();
    let mut places = process::places(&dir, &mappings, told);
    let mut files = BTreeSet::new();
    places
        .retain(|(_, place)| files.contains(&place.file()) || (files.len() < MOST_FILES && files.insert(place.file())));
    let (start, comm) = process::start_and_name(&dir).ok()?;
    Some(Process { pid, start, comm, has_device: true, places, ..Process::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_tells_without_end_is_cut_short_and_costs_no_other() {
        let mut addresses = Addresses::default();
        let told = |from: u64| (from..from + 40).map(|address| (Operation::PostSend, address));
        let kept = (0..1000).filter(|table| addresses.add(7, told(1 + table * 40))).count();
        assert_eq!(kept, MOST_OF_A_PROCESS / 40);
        assert_eq!(addresses.0[&7].len(), MOST_OF_A_PROCESS);
        assert!(addresses.add(7, told(1)), "what is known already is no more");
        assert!(addresses.add(8, told(1)) && addresses.add(8, [(Operation::PostRecv, 0)]));
        assert_eq!(addresses.0[&8].len(), 40, "what is no address is none");
        for tgid in 100..5000 {
            addresses.add(tgid, told(1));
        }
        assert_eq!(addresses.0.len(), MOST_PROCESSES);
        assert!(!addresses.add(6000, told(1)), "there is no room for one more");
        assert!(addresses.add(8, told(100)));
        assert_eq!(addresses.0[&8].len(), 80);
    }
}
