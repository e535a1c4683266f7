//! Which load of a module the probes are attached to.
//!
//! A probe ends with the module its function is in, silently: the kernel disarms it when the module is unloaded
//! (`kernel/kprobes.c`, `kprobes_module_callback`) and arms a perf probe never again (`kernel/trace/trace_kprobe.c` does so
//! only for probes of tracefs). The new load may be another build, too, as when an out-of-tree stack is installed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The modules that functions are watched in; the first has the structures the programs read.
pub(super) const NAMES: [&str; 2] = ["ib_core", "ib_uverbs"];

/// What has become of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// Its name.
    pub(super) module: &'static str,
    /// It was there; what was attached to it is attached to nothing now.
    pub(super) ended: bool,
    /// It is there now.
    pub(super) loaded: bool,
}

/// The loads of the modules, as last looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loads([Option<u64>; NAMES.len()]);

impl Loads {
    /// Looks at `/sys/module`, or a copy of it.
    pub(super) fn now(modules: &Path) -> Self {
        Self(NAMES.map(|module| load(&modules.join(module))))
    }

    /// What is different now; the next call compares with now.
    pub(super) fn look_again(&mut self, modules: &Path) -> Vec<Change> {
        let before = std::mem::replace(self, Self::now(modules));
        let pairs = before.0.into_iter().zip(self.0).zip(NAMES);
        let changed = pairs.filter(|((before, now), _)| before != now);
        changed
            .map(|((before, now), module)| Change { module, ended: before.is_some(), loaded: now.is_some() })
            .collect()
    }
}

/// What one load of a module does not share with the next: its directory's inode number. Sysfs gives out numbers in turn
/// (`fs/kernfs/dir.c`), so one does not come again soon.
fn load(module: &Path) -> Option<u64> {
    std::fs::metadata(module).ok().map(|metadata| metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_went_and_came_between_two_looks_has_ended_and_is_loaded() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let core = dir.path().join("ib_core");
        let mut loads = Loads::now(dir.path());
        assert_eq!(loads.look_again(dir.path()), []);
        std::fs::create_dir(&core).expect("a directory");
        let change = |ended, loaded| [Change { module: "ib_core", ended, loaded }];
        assert_eq!(loads.look_again(dir.path()), change(false, true));
        assert_eq!(loads.look_again(dir.path()), []);
        // Both exist for a moment, so they cannot have the same inode.
        std::fs::create_dir(dir.path().join("next")).expect("a directory");
        std::fs::remove_dir(&core).expect("it is empty");
        std::fs::rename(dir.path().join("next"), &core).expect("the name is free");
        assert_eq!(loads.look_again(dir.path()), change(true, true));
        std::fs::remove_dir(&core).expect("it is empty");
        assert_eq!(loads.look_again(dir.path()), change(true, false));
    }
}
