//! The programs on functions of libraries: at which places they are attached, and which of them are on now.
//!
//! A place is a function of a file, and each operation is attached to it once, also where several operations share a
//! function. A group of them goes off and comes back as one, since what one counts alone means nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::thread;

use aya::Ebpf;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeLink, UProbeScope};
use aya::programs::{ProgramError, UProbe};

use super::attach::{loaded, why};
use super::library::Library;
use super::opened::{self, Known, Opened};
use super::prologue::{Because, Point};
use super::reason::{self, Why};
use super::refused::{self, Refused};
use crate::source::ProbeReport;
use crate::source::verbs::{FileId, Group, Operation, Place};

/// The program on `ibv_modify_qp`, which tells of each process the addresses its QPs and CQs use.
pub(super) const LEARN: &str = "learn";

/// The function it is attached to.
pub(super) const MODIFY_QP: &str = "ibv_modify_qp";

/// What is attached to libraries.
#[derive(Default)]
pub(super) struct Uprobes {
    sites: Vec<Site>,
    libraries: HashMap<FileId, Arc<Library>>,
    /// Files that are others seen through an overlay.
    same: HashMap<FileId, FileId>,
    /// Groups that are off, and why.
    off: BTreeMap<&'static str, String>,
    /// Operations that are or were attached somewhere.
    seen: Vec<Operation>,
    /// Counts what was attached and detached.
    changes: u64,
    /// Why no return may be probed, when none may: then neither is an entry whose return belongs to it.
    pub(super) no_returns: Option<Why>,
    /// What is no place of a provider.
    refused: Refused,
}

/// What was let go because it was written over, or may have been.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Overwritten {
    /// The files, under every number they were seen with.
    pub(super) files: HashSet<FileId>,
    /// Files of which posts or completions were counted until then, under every number they were seen with.
    pub(super) missed: HashSet<FileId>,
}

/// A function that is probed.
struct Site {
    /// `None` for `ibv_modify_qp`.
    operation: Option<Operation>,
    file: FileId,
    /// Offset of the function in its file.
    entry: u64,
    point: Point,
    /// What is attached. Owned here, not by the program: they are closed side by side.
    links: Vec<UProbeLink>,
    /// Its group is off, and it comes back with it.
    paused: bool,
    /// It was attached at some time.
    was_on: bool,
    report: ProbeReport,
}

impl Uprobes {
    /// How each probe fared.
    pub(super) fn reports(&self) -> impl Iterator<Item = &ProbeReport> {
        self.sites.iter().map(|site| &site.report).chain(self.refused.reports())
    }

    /// A probe on this operation is or was attached somewhere.
    pub(super) fn was_attached(&self, operation: Operation) -> bool {
        self.seen.contains(&operation)
    }

    /// What was attached up to now was attached to nobody's functions.
    pub(super) fn forget_attached(&mut self) {
        self.seen.clear();
    }

    /// What is known of files, so that a look can leave it out.
    pub(super) fn known(&self) -> Known {
        let refused = self.refused.files().map(|file| (file, file));
        let attached = self.libraries.keys().map(|file| (*file, *file));
        Known {
            sites: self.sites.iter().map(|site| (site.operation, site.file, site.entry)).collect(),
            files: refused.chain(attached).chain(self.same.iter().map(|(file, other)| (*file, *other))).collect(),
            no_providers: self.refused.no_providers().clone(),
        }
    }

    /// Attaches at a place that was looked into, once per file and offset: the program of its operation, not now when the
    /// operation's group is off, or the one that learns. Without such a program nothing happens.
    pub(super) fn attach(&mut self, ebpf: &mut Ebpf, opened: Opened) {
        let Opened { operation, place, found } = opened;
        let program = operation.map_or(LEARN, Operation::name);
        if ebpf.program(program).is_none() {
            return;
        }
        let (file, point) = match found {
            Ok((library, point)) => match self.hold(&place, library) {
                Ok(file) => (file, point),
                Err(why) => return self.refused.add(program, place.file(), &place, &why.into()),
            },
            // Of what a process names, there may be no end.
            Err(refusal) if place.via.is_some() => {
                return self.refused.add(program, place.file(), &place, &refusal);
            }
            Err(refusal) => (place.file(), Err(refusal.why)),
        };
        let there = |site: &Site| (site.operation, site.file, site.entry) == (operation, file, place.offset);
        if self.sites.iter().any(there) {
            return;
        }
        let mut site = Site {
            operation,
            file,
            entry: place.offset,
            point: Point::entry(Because::Return(None)),
            links: Vec::new(),
            paused: false,
            was_on: false,
            report: ProbeReport {
                name: program.to_owned(),
                wanted: true,
                attached: false,
                at: Some(format!("{}+{:#x}", place.path.display(), place.offset)),
                reason: None,
                fix: None,
            },
        };
        let off = operation.and_then(|operation| self.off.get(group_name(operation.group())));
        match (point, off) {
            (Err(why), _) => site.fails(why),
            (Ok(point), Some(reason)) => {
                site.point = point;
                site.pauses(reason);
            }
            (Ok(point), None) => {
                site.point = point;
                self.switch_on(ebpf, &mut site);
            }
        }
        self.sites.push(site);
    }

    /// Keeps the file of a place, unless it is kept. Returns the number it is known under, which is another one's when it is
    /// the same file seen through an overlay.
    ///
    /// # Errors
    /// When a process named it and there is no room for it.
    fn hold(&mut self, place: &Place, library: Arc<Library>) -> Result<FileId, Why> {
        let file = place.file();
        if let Some(other) = self.same.get(&file).copied().or_else(|| self.shown_as(file, &library)) {
            self.same.insert(file, other);
            return self.has_room(place, other).map(|()| other);
        }
        self.has_room(place, file)?;
        self.libraries.entry(file).or_insert(library);
        Ok(file)
    }

    /// The number under which a file is kept already, when an overlay shows it under another one.
    fn shown_as(&self, file: FileId, library: &Library) -> Option<FileId> {
        if self.libraries.contains_key(&file) {
            return None;
        }
        self.libraries.iter().find(|(_, other)| library.is_below(other)).map(|(other, _)| *other)
    }

    /// Whether one more place of a file may be attached to.
    fn has_room(&self, place: &Place, file: FileId) -> Result<(), Why> {
        let of_file = self.sites.iter().filter(|site| site.file == file).count();
        let is_new = !self.libraries.contains_key(&file);
        let full = of_file >= refused::MOST_OF_A_FILE || (is_new && self.libraries.len() >= refused::MOST_ATTACHED);
        // What the verbs process found is not for processes to fill up.
        if place.via.is_some() && full { Err(opened::too_many()) } else { Ok(()) }
    }

    fn switch_on(&mut self, ebpf: &mut Ebpf, site: &mut Site) {
        site.paused = false;
        self.changes += 1;
        match self.links(ebpf, site) {
            Ok(links) => {
                site.links = links;
                site.was_on = true;
                site.report.attached = true;
                site.report.reason = Some(site.point.to_string());
                site.report.fix = None;
                self.seen.extend(site.operation.filter(|operation| !self.seen.contains(operation)));
            }
            Err(why) => site.fails(why),
        }
    }

    fn links(&self, ebpf: &mut Ebpf, site: &Site) -> Result<Vec<UProbeLink>, Why> {
        if !reason::has_probe_kind("uprobe") {
            return Err("this kernel has no uprobes (CONFIG_UPROBE_EVENTS)".into());
        }
        let library = self.libraries.get(&site.file).ok_or("the file is not open")?;
        if library.is_overwritten() {
            return Err("the file was written over since it was looked at".into());
        }
        let exit = site.operation.and_then(Operation::exit).filter(|exit| ebpf.program(exit).is_some());
        if let Some(why) = self.no_returns.as_ref().filter(|_| exit.is_some()) {
            return Err(why.clone());
        }
        let entry = site.operation.map_or(LEARN, Operation::name);
        let mut links = Vec::new();
        // The entry first: a return whose entry was not seen would take what another call left for its own.
        let programs = [(entry, site.entry + site.point.offset)].into_iter().chain(exit.map(|exit| (exit, site.entry)));
        for (program, offset) in programs {
            links.push(link(ebpf, program, library, offset).map_err(|error| why(&error))?);
        }
        Ok(links)
    }

    /// Detaches a group everywhere, until [`Self::attach_group`]; what is found meanwhile waits with it.
    pub(super) fn detach_group(&mut self, group: Group, reason: &str) {
        self.off.insert(group_name(group), reason.to_owned());
        let mut links = Vec::new();
        for site in self.sites.iter_mut().filter(|site| site.is_in(group)) {
            links.append(&mut site.links);
            if site.report.attached {
                site.pauses(reason);
            }
        }
        self.changes += 1;
        close(links);
    }

    /// Attaches a group again, everywhere.
    pub(super) fn attach_group(&mut self, ebpf: &mut Ebpf, group: Group) {
        self.off.remove(group_name(group));
        let mut sites = std::mem::take(&mut self.sites);
        // What failed for a reason of its own failed for good.
        let waits = |site: &&mut Site| site.is_in(group) && site.paused;
        sites.iter_mut().filter(waits).for_each(|site| self.switch_on(ebpf, site));
        self.sites = sites;
    }

    /// How many operations are attached to in a file.
    pub(super) fn attached_to(&self, file: FileId) -> usize {
        self.sites.iter().filter(|site| site.file == file && !site.links.is_empty()).count()
    }

    /// A function of the group is attached to, or would be if it were not paused, at an instruction that the kernel steps
    /// over, or at one that is not known.
    pub(super) fn is_stepped(&self, group: Group) -> bool {
        self.sites.iter().any(|site| site.is_in(group) && site.report.attached && !site.point.is_emulated())
    }

    /// A number that changes when something of the data path is attached or detached.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The group is attached somewhere.
    pub(super) fn has_group(&self, group: Group) -> bool {
        self.sites.iter().any(|site| site.is_in(group) && !site.links.is_empty())
    }

    /// The number a file is attached to under: another one, where it is another seen through an overlay.
    pub(super) fn below(&self, file: FileId) -> FileId {
        self.same.get(&file).copied().unwrap_or(file)
    }

    /// The numbers of all files that are kept, and of those something was refused in.
    pub(super) fn files(&self) -> HashSet<FileId> {
        self.libraries.keys().chain(self.same.keys()).copied().chain(self.refused.files()).collect()
    }

    /// Detaches from files that were written over: their functions lie elsewhere, and a breakpoint where one lay changes
    /// other code. They have to be looked at anew, and what comes until then is not counted.
    pub(super) fn detach_overwritten(&mut self) -> Overwritten {
        let files = self.libraries.iter().filter(|(_, library)| library.is_overwritten());
        let files: HashSet<FileId> = files.map(|(file, _)| *file).collect();
        let watched = |file: FileId| self.sites.iter().any(|site| site.file == file && site.is_watched());
        let missed: HashSet<FileId> = files.iter().copied().filter(|file| watched(*file)).collect();
        let under_all = |files: &HashSet<FileId>| {
            let seen_through = self.same.iter().filter(|(_, other)| files.contains(other)).map(|(file, _)| file);
            files.iter().chain(seen_through).copied().collect()
        };
        let overwritten = Overwritten { files: under_all(&files), missed: under_all(&missed) };
        for file in &files {
            self.detach_file(*file);
            self.changes += u64::from(missed.contains(file));
        }
        overwritten
    }

    /// Detaches from a file and lets it go: one that no process maps, by this number or by one under which an overlay shows
    /// it.
    pub(super) fn detach_file(&mut self, file: FileId) {
        self.refused.forget(file);
        if self.same.remove(&file).is_some() {
            return;
        }
        // What was seen under other numbers as well is let go with its first; the next look finds it again.
        self.same.retain(|_, other| *other != file);
        let mut gone: Vec<Site> = self.sites.extract_if(.., |site| site.file == file).collect();
        close(gone.iter_mut().flat_map(|site| site.links.drain(..)).collect());
        self.libraries.remove(&file);
    }
}

impl Site {
    /// What its function does is counted, or would be had its file not been written over.
    fn is_watched(&self) -> bool {
        self.operation.is_some() && self.was_on && !self.paused
    }

    fn is_in(&self, group: Group) -> bool {
        self.operation.is_some_and(|operation| operation.group() == group)
    }

    /// Is detached for a while. It counts as attached: it comes back by itself.
    fn pauses(&mut self, reason: &str) {
        self.paused = true;
        self.report.attached = true;
        self.report.reason = Some(reason.to_owned());
    }

    fn fails(&mut self, why: Why) {
        self.report.attached = false;
        self.report.reason = Some(why.reason);
        self.report.fix = why.fix;
    }
}

const fn group_name(group: Group) -> &'static str {
    match group {
        Group::Posts => "posts",
        Group::Completions => "completions",
    }
}

/// Attaches a program at an offset of a file.
pub(super) fn link(ebpf: &mut Ebpf, program: &str, library: &Library, offset: u64) -> Result<UProbeLink, ProgramError> {
    let probe: &mut UProbe = ebpf.program_mut(program).ok_or(ProgramError::NotLoaded)?.try_into()?;
    loaded(probe.load())?;
    let at = UProbeAttachLocation::AbsoluteOffset(offset);
    let link = probe.attach(at, library.path(), UProbeScope::AllProcesses)?;
    probe.take_link(link)
}

/// Threads that close links at the same time.
const CLOSERS: usize = 16;

/// Detaches without waiting for it. Closing a link takes the breakpoint out at once and then waits until no CPU can be in
/// the program any more (`uprobe_unregister_sync`, kernel/events/uprobes.c since 6.12), 0.1 s for each link as seen on
/// 6.18: one after another they would hold up everything else for seconds.
fn close(links: Vec<UProbeLink>) {
    for part in parts(links) {
        // Without a thread the part is closed here.
        let _ = thread::Builder::new().name("detach".to_owned()).spawn(move || drop(part));
    }
}

/// The links in as many parts as threads close them.
fn parts(links: Vec<UProbeLink>) -> Vec<Vec<UProbeLink>> {
    let mut parts: Vec<Vec<UProbeLink>> = (0..links.len().min(CLOSERS)).map(|_| Vec::new()).collect();
    for (n, link) in links.into_iter().enumerate() {
        parts[n % CLOSERS].push(link);
    }
    parts
}

impl Drop for Uprobes {
    fn drop(&mut self) {
        let links = self.sites.iter_mut().flat_map(|site| site.links.drain(..)).collect();
        // Waited for: when this is over, nothing is attached.
        thread::scope(|scope| parts(links).into_iter().for_each(|part| drop(scope.spawn(move || drop(part)))));
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
#[path = "uprobes_tests.rs"]
mod tests;
