//! The programs on functions of libraries: at which places they are attached, and which of them are on now.
//!
//! A place is a function of a file, and each operation is attached to it once, also where several operations share a
//! function. A group of them goes off and comes back as one, since what one counts alone means nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::thread;

use aya::Ebpf;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeLink, UProbeScope};
use aya::programs::{ProgramError, UProbe};

use super::attach::{loaded, why};
use super::library::Library;
use super::prologue::{self, Because, Point};
use super::reason::{self, Why};
use super::refused::{self, Refused};
use crate::source::ProbeReport;
use crate::source::verbs::{Arg, FileId, Group, Operation, Place};

/// The program on `ibv_modify_qp`, which tells of each process the addresses its QPs and CQs use.
pub(super) const LEARN: &str = "learn";

/// The function it is attached to.
pub(super) const MODIFY_QP: &str = "ibv_modify_qp";

/// What is attached to libraries.
#[derive(Default)]
pub(super) struct Uprobes {
    sites: Vec<Site>,
    libraries: HashMap<FileId, Library>,
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

    /// The file is attached to.
    pub(super) fn knows(&self, file: FileId) -> bool {
        self.libraries.contains_key(&file) || self.same.contains_key(&file)
    }

    /// Attaches the program of an operation at a place, once per file and offset; not now when its group is off. Without
    /// such a program nothing happens. Returns whether there is something new.
    pub(super) fn attach(&mut self, ebpf: &mut Ebpf, operation: Operation, place: &Place) -> bool {
        let exit = operation.exit().filter(|exit| ebpf.program(exit).is_some());
        self.add(ebpf, Some(operation), operation.name(), operation.reads(), exit.is_some(), place)
    }

    /// Attaches the program that learns from `ibv_modify_qp`, which lies at `place`.
    pub(super) fn learn(&mut self, ebpf: &mut Ebpf, place: &Place) -> bool {
        self.add(ebpf, None, LEARN, &[Arg::Arg0], false, place)
    }

    fn add(
        &mut self,
        ebpf: &mut Ebpf,
        operation: Option<Operation>,
        program: &'static str,
        reads: &[Arg],
        returns: bool,
        place: &Place,
    ) -> bool {
        if ebpf.program(program).is_none() {
            return false;
        }
        let (file, found) = match self.open(place) {
            Ok(file) => (file, None),
            Err(why) => (place.file(), Some(why)),
        };
        let there = |site: &Site| (site.operation, site.file, site.entry) == (operation, file, place.offset);
        if self.sites.iter().any(there) {
            return false;
        }
        let admitted = match &found {
            // Of what a process names, there may be no end.
            Some(why) if place.via.is_some() => Err(why.clone()),
            _ => self.admit(file, place, operation),
        };
        if let Err(why) = admitted {
            if !self.sites.iter().any(|site| site.file == file) {
                self.libraries.remove(&file);
                self.same.retain(|_, other| *other != file);
            }
            return self.refused.add(program, file, place, &why);
        }
        let point = match found {
            Some(why) => Err(why),
            None => self.point(file, place.offset, reads, returns),
        };
        let mut site = Site {
            operation,
            file,
            entry: place.offset,
            point: Point::entry(Because::Return(None)),
            links: Vec::new(),
            paused: false,
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
        true
    }

    /// Opens the file of a place, unless it is open. Returns the number it is known under, which is another one's when it
    /// is the same file seen through an overlay.
    fn open(&mut self, place: &Place) -> Result<FileId, Why> {
        let file = place.file();
        if let Some(other) = self.same.get(&file) {
            return Ok(*other);
        }
        if !self.libraries.contains_key(&file) {
            let library = Library::open(place.reachable())?;
            if let Some((other, _)) = self.libraries.iter().find(|(_, other)| library.is_below(other)) {
                self.same.insert(file, *other);
                return Ok(*other);
            }
            self.libraries.insert(file, library);
        }
        Ok(file)
    }

    /// Whether a place may be attached to of which a process told. What the verbs process found needs no proof. The file
    /// is looked at through what is held of it, and attached to through the same.
    fn admit(&self, file: FileId, place: &Place, operation: Option<Operation>) -> Result<(), Why> {
        let Some(library) = self.libraries.get(&file).filter(|_| place.via.is_some()) else { return Ok(()) };
        match operation {
            Some(_) => library.admits(place.offset)?,
            None if library.exported(MODIFY_QP) == Some(place.offset) => {}
            None => return Err(format!("it is not where the library has {MODIFY_QP}").into()),
        }
        let of_file = self.sites.iter().filter(|site| site.file == file).count();
        if of_file >= refused::MOST_OF_A_FILE || (of_file == 0 && self.libraries.len() > refused::MOST_ATTACHED) {
            return Err("more places than any provider has".into());
        }
        Ok(())
    }

    /// Where in a function to attach.
    fn point(&self, file: FileId, entry: u64, reads: &[Arg], returns: bool) -> Result<Point, Why> {
        let library = self.libraries.get(&file).ok_or("the file is not open")?;
        Ok(match library.code(entry)? {
            Ok((code, at)) if returns => Point::with_return(&prologue::choose(&code, at, reads)),
            Ok((code, at)) => prologue::choose(&code, at, reads),
            Err(_) if returns => Point::entry(Because::Return(None)),
            Err(error) => Point::entry(Because::Unread(error)),
        })
    }

    fn switch_on(&mut self, ebpf: &mut Ebpf, site: &mut Site) {
        site.paused = false;
        self.changes += 1;
        match self.links(ebpf, site) {
            Ok(links) => {
                site.links = links;
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

    /// Detaches from files that were written over: their functions lie elsewhere, and a breakpoint where one lay changes
    /// other code. Returns such files, under every number they were seen with; they have to be looked at anew, and what comes
    /// until then is not counted.
    pub(super) fn detach_overwritten(&mut self) -> HashSet<FileId> {
        let files = self.libraries.iter().filter(|(_, library)| library.is_overwritten());
        let mut files: HashSet<FileId> = files.map(|(file, _)| *file).collect();
        let seen_through: Vec<FileId> =
            self.same.iter().filter(|(_, other)| files.contains(other)).map(|(file, _)| *file).collect();
        for file in &files {
            self.detach_file(*file);
            self.changes += 1;
        }
        files.extend(seen_through);
        files
    }

    /// Detaches from a file and lets it go: one that no process maps, by this number or by one under which an overlay shows
    /// it. Returns whether it was attached to.
    pub(super) fn detach_file(&mut self, file: FileId) -> bool {
        let refused = self.refused.forget(file);
        if self.same.remove(&file).is_some() {
            return refused;
        }
        // What was seen under other numbers as well is let go with its first; the next look finds it again.
        self.same.retain(|_, other| *other != file);
        let mut gone: Vec<Site> = self.sites.extract_if(.., |site| site.file == file).collect();
        close(gone.iter_mut().flat_map(|site| site.links.drain(..)).collect());
        self.libraries.remove(&file);
        refused || !gone.is_empty()
    }
}

impl Site {
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
