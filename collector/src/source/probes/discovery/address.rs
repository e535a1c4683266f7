//! Addresses of functions that processes told of, by calling `ibv_modify_qp`, and the files they lie in.
//!
//! What is told comes from a process's memory, and whoever can call that function can tell something new each time. So no
//! more is kept than a process with several providers has, each process is looked at once however much it told, and that in
//! a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use super::device::Devices;
use super::look::Looked;
use super::process::{self, Process};
use crate::source::proc::{says_ended, text};
use crate::source::verbs::{Operation, maps};

/// Addresses of one process that are kept until it is looked at: a dozen tables.
const MOST_OF_A_PROCESS: usize = 512;

/// Processes whose addresses are kept until they are looked at.
const MOST_PROCESSES: usize = 1024;

/// Files of one process in which places are looked for in one look: more than it has providers. A table is told once, so what lies
/// in more files is lost, and counted.
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

    /// The processes that told something and have a device open, each with the places of its addresses; those that may not be
    /// looked at, and how many addresses of others were lost.
    pub(super) fn look(self, proc: &Path, devices: &Devices) -> Looked {
        let mut looked = Looked::default();
        for (tgid, told) in self.0 {
            let all = told.len();
            match places(proc, devices, tgid, told) {
                Ok(Some((process, lost))) => {
                    looked.processes.push(process);
                    looked.lost += lost as u64;
                }
                Ok(None) => {}
                Err(error) if says_ended(&error) => {}
                Err(error) => {
                    // It tells a table once: what of it was lost is to be searched for.
                    let may_be_later = looked.failed(tgid, &error);
                    looked.lost += if may_be_later { all as u64 } else { 0 };
                }
            }
        }
        looked
    }
}

/// The places of what a process told, and how many more there were.
fn places(
    proc: &Path,
    devices: &Devices,
    pid: u32,
    told: BTreeSet<(Operation, u64)>,
) -> io::Result<Option<(Process, usize)>> {
    let dir = proc.join(pid.to_string());
    // It called `ibv_modify_qp`, or something that looked like it.
    if !devices.open_in(&dir)? {
        return Ok(None);
    }
    let text = text(&dir.join("maps"))?;
    let mappings: Vec<_> = maps::mappings(&text).collect();
    let mut places = process::places(&dir, &mappings, told);
    let (found, mut files) = (places.len(), BTreeSet::new());
    places
        .retain(|(_, place)| files.contains(&place.file()) || (files.len() < MOST_FILES && files.insert(place.file())));
    let lost = found - places.len();
    let (start, comm) = process::start_and_name(&dir)?;
    Ok(Some((Process { pid, start, comm, has_device: true, places, ..Process::default() }, lost)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_dropped_of_what_was_told_is_counted() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (proc, class) = (dir.path().join("proc"), dir.path().join("class"));
        fs::create_dir_all(class.join("uverbs0")).expect("a directory");
        fs::write(class.join("uverbs0/dev"), "1:7\n").expect("a file");
        let devices = Devices::list(&class);
        let of = |n: u64| (0..n).map(|at| (Operation::PostSend, 0x1_0000 * (1 + at)));
        let look = |n| {
            let mut told = Addresses::default();
            assert!(told.add(7, of(n)));
            let looked = told.look(&proc, &devices);
            (looked.processes.first().map(|process| process.places.len()), looked.lost)
        };
        assert_eq!(look(3), (None, 0), "it has ended");
        fs::create_dir_all(proc.join("7")).expect("a directory");
        let line = |at| format!("{0:x}0000-{0:x}1000 r-xp 00000000 08:01 {0} /lib/{0}.so\n", at + 1);
        fs::write(proc.join("7/maps"), (0..20).map(line).collect::<String>()).expect("a file");
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        fs::write(proc.join("7/stat"), format!("7 (train) S {}", fields.join(" "))).expect("a file");
        // It cannot be listed now.
        fs::write(proc.join("7/fd"), "").expect("a file");
        assert_eq!(look(3), (None, 3));
        fs::remove_file(proc.join("7/fd")).expect("it is there");
        fs::create_dir(proc.join("7/fd")).expect("a directory");
        assert_eq!(look(3), (None, 0), "it has no device open");
        std::os::unix::fs::symlink("/dev/full", proc.join("7/fd/3")).expect("a link");
        assert_eq!(look(16), (Some(16), 0));
        assert_eq!(look(20), (Some(16), 4));
    }

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
