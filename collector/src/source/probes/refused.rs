//! Places that are not attached to, because nothing but a process's memory says that they are functions of a provider:
//! each file told once, with the first of its places.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::library::Ident;
use super::opened::Refusal;
use crate::source::ProbeReport;
use crate::source::verbs::{FileId, Place};

/// Files that are named; what a process can make up has no end.
const MOST_FILES: usize = 32;

/// Files that are known to be no providers, so that they are not read again; and those that are counted beyond the named ones.
const MOST_KNOWN: usize = 4096;

/// Functions of one file that are attached to, when only processes told of them. A provider has two dozen, and some twice,
/// for QPs of another kind.
pub(super) const MOST_OF_A_FILE: usize = 128;

/// Files that are attached to at once.
pub(super) const MOST_ATTACHED: usize = 256;

/// What was refused.
#[derive(Default)]
pub(super) struct Refused {
    files: BTreeMap<FileId, ProbeReport>,
    no_providers: HashMap<FileId, Ident>,
    /// More files than are named, those that are counted, and what is told of them.
    beyond: HashSet<FileId>,
    told: Option<ProbeReport>,
}

impl Refused {
    /// A place is not attached to.
    pub(super) fn add(&mut self, program: &str, file: FileId, place: &Place, refusal: &Refusal) {
        if let Some(ident) = refusal.file
            && (self.no_providers.len() < MOST_KNOWN || self.no_providers.contains_key(&file))
        {
            self.no_providers.insert(file, ident);
        }
        let why = &refusal.why;
        if self.files.contains_key(&file) || self.beyond.contains(&file) {
            return;
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
        } else if self.beyond.len() < MOST_KNOWN {
            self.beyond.insert(file);
            self.told = Some(report(None, self.beyond_those_named()));
        }
    }

    fn beyond_those_named(&self) -> String {
        let at_least = if self.beyond.len() == MOST_KNOWN { "at least " } else { "" };
        format!("places in {at_least}{} other files are not of a provider, or too many", self.beyond.len())
    }

    /// What is said of them.
    pub(super) fn reports(&self) -> impl Iterator<Item = &ProbeReport> {
        self.files.values().chain(&self.told)
    }

    /// Files that are no providers.
    pub(super) const fn no_providers(&self) -> &HashMap<FileId, Ident> {
        &self.no_providers
    }

    /// The files something was refused in that are not forgotten yet.
    pub(super) fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.files.keys().chain(self.no_providers.keys()).chain(&self.beyond).copied()
    }

    /// No process maps the file any more.
    pub(super) fn forget(&mut self, file: FileId) {
        self.no_providers.remove(&file);
        self.files.remove(&file);
        if self.beyond.remove(&file) {
            let told = self.told.take().filter(|_| !self.beyond.is_empty());
            self.told = told.map(|told| ProbeReport { reason: Some(self.beyond_those_named()), ..told });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Refusal {
        super::super::reason::Why::from("no provider").into()
    }

    fn place(inode: u64) -> Place {
        Place { path: format!("/tmp/{inode}.so").into(), via: None, dev: (8, 1), inode, offset: 16 }
    }

    #[test]
    fn a_file_is_told_once_and_files_without_end_are_counted() {
        let mut refused = Refused::default();
        for program in ["post_send", "post_recv"] {
            refused.add(program, place(1).file(), &place(1), &refusal());
        }
        assert_eq!(refused.reports().count(), 1);
        // Another look finds them again, and nothing new.
        for inode in (2..200).chain(2..200) {
            refused.add("post_send", place(inode).file(), &place(inode), &refusal());
        }
        let beyond = |refused: &Refused| refused.reports().nth(MOST_FILES).and_then(|report| report.reason.clone());
        let says = |n: &str| Some(format!("places in {n} other files are not of a provider, or too many"));
        assert_eq!(refused.reports().count(), MOST_FILES + 1);
        assert_eq!(refused.reports().next().and_then(|report| report.at.as_deref()), Some("/tmp/1.so+0x10"));
        assert_eq!(beyond(&refused), says(&(199 - MOST_FILES).to_string()));
        assert!(refused.files().any(|file| file == place(199).file()), "it is known, and let go with its processes");
        refused.forget(place(199).file());
        refused.forget(place(199).file());
        assert_eq!(beyond(&refused), says(&(198 - MOST_FILES).to_string()));
        for inode in 199..10_000 {
            refused.add("post_send", place(inode).file(), &place(inode), &refusal());
        }
        assert_eq!(beyond(&refused), says(&format!("at least {MOST_KNOWN}")));
        for inode in 2..10_000 {
            refused.forget(place(inode).file());
        }
        assert_eq!(refused.reports().count(), 1);
        refused.forget(place(1).file());
        assert_eq!((refused.reports().count(), refused.files().count()), (0, 0));
    }
}
