//! Who owns a QP: the process's name and its container, from `/proc/PID`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::source::proc::text;

/// What `/proc` told of a process; nothing when it has exited or hides (`hidepid`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) comm: Option<String>,
    pub(super) container: Option<String>,
}

/// Owners by PID, each looked up once a listing: a PID may belong to another process at the next one.
pub(super) struct Owners {
    proc: PathBuf,
    known: HashMap<u32, Owner>,
}

impl Owners {
    pub(super) fn below(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), known: HashMap::new() }
    }

    pub(super) fn of(&mut self, pid: u32) -> &Owner {
        self.known.entry(pid).or_insert_with(|| {
            let directory = self.proc.join(pid.to_string());
            Owner { comm: comm(&directory), container: container(&directory) }
        })
    }
}

/// The kernel cuts names to 15 bytes, also in the middle of a character.
fn comm(directory: &Path) -> Option<String> {
    let text = text(&directory.join("comm")).ok()?;
    let name = text.trim_end_matches('\n');
    (!name.is_empty()).then(|| name.to_owned())
}

fn container(directory: &Path) -> Option<String> {
    let cgroups = text(&directory.join("cgroup")).ok()?;
    cgroups.lines().find_map(container_id).map(str::to_owned)
}

/// The container's id in a line of `/proc/PID/cgroup` (`hierarchy:controllers:path`, cgroups(7)): the last run of
/// exactly 64 hexadecimal digits of the path. Docker, containerd, CRI-O and Podman name the cgroup by the full id,
/// alone (`/docker/ID`) or in a systemd scope (`cri-containerd-ID.scope`).
fn container_id(line: &str) -> Option<&str> {
    let path = line.splitn(3, ':').nth(2)?;
    path.split(|c: char| !c.is_ascii_hexdigit()).rfind(|run| run.len() == 64)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ID: &str = "3f4c1f0e9a7b52d88c6e0d1b2a394857f6e5d4c3b2a190887766554433221100";

    #[test]
    fn every_runtime_s_cgroup_names_the_container() {
        for path in [
            format!("12:memory:/docker/{ID}"),
            format!("0::/system.slice/docker-{ID}.scope"),
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod5f2c.slice/cri-containerd-{ID}.scope"
            ),
            format!("11:pids:/kubepods/besteffort/pod0c5d1f3e-7a1b-4c2d-9e8f-0a1b2c3d4e5f/{ID}"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope"),
            format!("0::/machine.slice/libpod-{ID}.scope/container"),
            format!("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
            format!("3:cpu:/system.slice/containerd.service/kubepods-besteffort-pod9.slice:cri-containerd:{ID}"),
        ] {
            assert_eq!(container_id(&path), Some(ID), "{path}");
        }
    }

    #[test]
    fn the_innermost_container_is_the_owner() {
        let outer = ID.replace('3', "4");
        assert_eq!(container_id(&format!("0::/docker/{outer}/docker/{ID}")), Some(ID));
    }

    #[test]
    fn other_cgroups_name_no_container() {
        for path in [
            "0::/",
            "0::/../../..",
            "0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0",
            "0::/user.slice/user-1000.slice/session-4.scope",
            "0::/docker/3f4c1f0e9a7b",
            "",
            "3f4c1f0e9a7b52d88c6e0d1b2a394857f6e5d4c3b2a190887766554433221100",
        ] {
            assert_eq!(container_id(path), None, "{path}");
        }
        assert_eq!(container_id(&format!("0::/blob/{ID}0")), None, "65 digits are no id");
    }

    #[test]
    fn a_process_that_is_gone_has_no_name() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("17")).unwrap();
        fs::write(proc.path().join("17/comm"), "ib_write_bw\n").unwrap();
        fs::write(proc.path().join("17/cgroup"), format!("0::/system.slice/docker-{ID}.scope\n")).unwrap();
        let mut owners = Owners::below(proc.path());
        assert_eq!(owners.of(17).comm.as_deref(), Some("ib_write_bw"));
        assert_eq!(owners.of(17).container.as_deref(), Some(ID));
        assert_eq!(*owners.of(18), Owner::default());
        // Whoever may make a cgroup may give it any name.
        let line = [b"0::/\xd0/docker-", ID.as_bytes(), b".scope\n"].concat();
        fs::write(proc.path().join("17/cgroup"), line).unwrap();
        assert_eq!(Owners::below(proc.path()).of(17).container.as_deref(), Some(ID));
    }
}
