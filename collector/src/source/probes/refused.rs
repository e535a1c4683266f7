//! Places that are not attached to, because nothing but a process's memory says that they are functions of a provider:
//! each file told once, with the first of its places.

use std::collections::BTreeMap;

use super::reason::Why;
use crate::source::ProbeReport;
use crate::source::verbs::{FileId, Place};

/// Files that are named; what a process can make up has no end.
const MOST_FILES: usize = 32;

/// Functions of one file that are attached to, when only processes told of them. A provider has two dozen, and some twice,
/// for QPs of another kind.
pub(super) const MOST_OF_A_FILE: usize = 128;

/// Files that are attached to at once.
pub(super) const MOST_ATTACHED: usize = 256;

/// What was refused.
#[derive(Default)]
pub(super) struct Refused {
    files: BTreeMap<FileId, ProbeReport>,
    /// Places in more files than are named.
    beyond: Option<(u64, ProbeReport)>,
}

impl Refused {
    /// A place is not attached to. Returns whether that is something new.
    pub(super) fn add(&mut self, program: &str, file: FileId, place: &Place, why: &Why) -> bool {
        if self.files.contains_key(&file) {
            return false;
        }
        let report = |at, reason| ProbeReport {
            name: program.to_owned(),
            wanted: true,
            attached: false,
            at,
            reason: Some(reason),
            fix: why.fix.clone(),
        };
        if self.files.len() < MOST_FILES {
            let at = format!("{}+{:#x}", place.path.display(), place.offset);
            self.files.insert(file, report(Some(at), why.reason.clone()));
            return true;
        }
        let n = self.beyond.as_ref().map_or(0, |(n, _)| *n) + 1;
        let reason = format!("{n} places in other files are not of a provider, or too many");
        self.beyond = Some((n, report(None, reason)));
        true
    }

    /// What is said of them.
    pub(super) fn reports(&self) -> impl Iterator<Item = &ProbeReport> {
        self.files.values().chain(self.beyond.iter().map(|(_, report)| report))
    }

    /// No process maps the file any more. Returns whether something was refused in it.
    pub(super) fn forget(&mut self, file: FileId) -> bool {
        self.files.remove(&file).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(inode: u64) -> Place {
        Place { path: format!("/tmp/{inode}.so").into(), via: None, dev: (8, 1), inode, offset: 16 }
    }

    #[test]
    fn a_file_is_told_once_and_files_without_end_are_counted() {
        let mut refused = Refused::default();
        assert!(refused.add("post_send", place(1).file(), &place(1), &"no provider".into()));
        assert!(!refused.add("post_recv", place(1).file(), &place(1), &"no provider".into()));
        for inode in 2..200 {
            refused.add("post_send", place(inode).file(), &place(inode), &"no provider".into());
        }
        let reports: Vec<_> = refused.reports().collect();
        assert_eq!(reports.len(), MOST_FILES + 1);
        assert_eq!(reports[0].at.as_deref(), Some("/tmp/1.so+0x10"));
        let told = reports[MOST_FILES].reason.as_deref().expect("it says how many");
        assert!(told.starts_with(&format!("{} places", 199 - MOST_FILES)), "{told}");
        assert!(refused.forget(place(1).file()) && !refused.forget(place(1).file()));
    }
}
