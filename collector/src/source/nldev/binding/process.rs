//! A process, told from another one that later has the same number.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::source::proc::{says_ended, text};

/// Which process, of which boot, seen from which PID namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// When it was started, clock ticks since boot (field 22 of `/proc/PID/stat`, proc(5)).
    pub(super) start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub(super) boot_id: String,
    /// `pid:[4026531836]`: the number means something in this namespace only.
    pub(super) pid_namespace: String,
    /// `net:[4026531840]`: a device may be seen in this namespace only (`rdma system set netns exclusive`). Absent in notes of
    /// versions that did not write it.
    #[serde(default)]
    pub(super) net_namespace: Option<String>,
}

/// What became of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It runs.
    Living,
    /// It has ended in this boot.
    Ended,
    /// It belonged to an earlier boot: nothing of it is in this kernel.
    EarlierBoot,
    /// It cannot be told, and why not.
    Unknown(&'static str),
}

impl Process {
    /// This process.
    pub(super) fn own(proc: &Path) -> io::Result<Self> {
        let stat = text(&proc.join("self/stat"))?;
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "/proc/self/stat is not in its form");
        Ok(Self {
            pid: std::process::id(),
            start_ticks: start_ticks(&stat).ok_or_else(odd)?,
            boot_id: boot_id(proc)?,
            pid_namespace: namespace(proc, "pid")?,
            net_namespace: namespace(proc, "net").ok(),
        })
    }

    /// Whether it still runs.
    pub(super) fn life(&self, proc: &Path) -> Life {
        match boot_id(proc) {
            Ok(boot_id) if boot_id != self.boot_id => return Life::EarlierBoot,
            Ok(_) => {}
            Err(_) => return Life::Unknown("the boot's id cannot be read"),
        }
        if namespace(proc, "pid").ok().as_ref() != Some(&self.pid_namespace) {
            return Life::Unknown("it is of another PID namespace");
        }
        life(proc, self.pid, self.start_ticks)
    }

    /// It saw the devices that are seen here: it was of this network namespace, or it is not known of which.
    pub(super) fn shares_network(&self, proc: &Path) -> bool {
        self.net_namespace.is_none() || namespace(proc, "net").ok() == self.net_namespace
    }
}

/// Whether a process of this boot and PID namespace still runs.
pub(super) fn life(proc: &Path, pid: u32, started: u64) -> Life {
    match text(&proc.join(pid.to_string()).join("stat")) {
        Ok(stat) => match start_ticks(&stat) {
            Some(ticks) if ticks == started => Life::Living,
            Some(_) => Life::Ended,
            None => Life::Unknown("its /proc/PID/stat is not in its form"),
        },
        // Processes of others may be hidden (`hidepid=2`, proc(5)).
        Err(error) if error.kind() == io::ErrorKind::NotFound && exists(pid) => {
            Life::Unknown("its /proc/PID is hidden")
        }
        Err(error) if says_ended(&error) => Life::Ended,
        Err(_) => Life::Unknown("its /proc/PID/stat cannot be read"),
    }
}

/// Some process has this number.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

fn boot_id(proc: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(proc.join("sys/kernel/random/boot_id"))?.trim().to_owned())
}

fn namespace(proc: &Path, kind: &str) -> io::Result<String> {
    Ok(fs::read_link(proc.join("self/ns").join(kind))?.to_string_lossy().into_owned())
}

/// The name before it may hold anything, also brackets.
fn start_ticks(stat: &str) -> Option<u64> {
    stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_with_another_start_has_ended() {
        let own = Process::own(Path::new("/proc")).unwrap();
        assert_eq!(own.life(Path::new("/proc")), Life::Living);
        let before = Process { start_ticks: own.start_ticks - 1, ..own.clone() };
        assert_eq!(before.life(Path::new("/proc")), Life::Ended);
        let gone = Process { pid: u32::MAX, ..own.clone() };
        assert_eq!(gone.life(Path::new("/proc")), Life::Ended);
    }

    /// The kernel cuts a name at 15 bytes, also in the middle of a character.
    #[test]
    fn a_process_lives_whatever_its_name_is() {
        let proc = tempfile::tempdir().unwrap();
        for dir in ["sys/kernel/random", "self/ns", "7"] {
            fs::create_dir_all(proc.path().join(dir)).unwrap();
        }
        fs::write(proc.path().join("sys/kernel/random/boot_id"), "b\n").unwrap();
        std::os::unix::fs::symlink("pid:[1]", proc.path().join("self/ns/pid")).unwrap();
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = [b"7 (\xd0\xbe\xd0) S ", fields.join(" ").as_bytes()].concat();
        fs::write(proc.path().join("7/stat"), &stat).unwrap();
        fs::write(proc.path().join("self/stat"), &stat).unwrap();
        let own = Process::own(proc.path()).unwrap();
        assert_eq!(Process { pid: 7, ..own }.life(proc.path()), Life::Living);
    }

    #[test]
    fn a_process_of_another_boot_left_nothing_and_one_of_another_namespace_may_live() {
        let own = Process::own(Path::new("/proc")).unwrap();
        let booted = Process { boot_id: "other".to_owned(), ..own.clone() };
        assert_eq!(booted.life(Path::new("/proc")), Life::EarlierBoot);
        let elsewhere = Process { pid: u32::MAX, pid_namespace: "pid:[1]".to_owned(), ..own.clone() };
        assert!(matches!(elsewhere.life(Path::new("/proc")), Life::Unknown(_)));
        assert!(own.net_namespace.is_some());
        let ended = Process { pid: u32::MAX, ..own.clone() };
        let unseen = Process { net_namespace: Some("net:[1]".to_owned()), ..ended.clone() };
        assert_eq!(unseen.life(Path::new("/proc")), Life::Ended, "the number says it");
        let living = Process { net_namespace: unseen.net_namespace.clone(), ..own.clone() };
        assert_eq!(living.life(Path::new("/proc")), Life::Living);
        assert!(own.shares_network(Path::new("/proc")) && !unseen.shares_network(Path::new("/proc")));
        let older = Process { net_namespace: None, ..ended };
        assert!(older.life(Path::new("/proc")) == Life::Ended && older.shares_network(Path::new("/proc")));
        assert!(matches!(own.life(Path::new("/nonexistent")), Life::Unknown(_)));
    }
}
