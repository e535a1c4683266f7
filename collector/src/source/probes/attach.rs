//! Loads the object and attaches its programs, each on its own: one that fails never costs the others.

use std::collections::HashSet;
use std::path::Path;

use aya::programs::kprobe::KProbeLinkId;
use aya::programs::{KProbe, ProgramError, TracePoint};
use aya::{Ebpf, EbpfLoader};
use collector_ebpf::config::Config;
use collector_ebpf::slot::MARKS_PER_BLOCK;

use super::confined;
use super::modules::{self, Loads};
use super::opened::{Known, Opened};
use super::reason::Why;
use super::store::Sizes;
use super::uprobes::{Overwritten, Uprobes};
use super::{offsets, reason, tracefs};
use crate::source::ProbeReport;
use crate::source::verbs::{FileId, Group, Operation};

/// The programs, built by `cargo xtask build` and kept in the repository.
#[cfg(target_arch = "x86_64")]
pub(super) static OBJECT: Option<&[u8]> =
    Some(aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/probes.x86_64.o")));
#[cfg(not(target_arch = "x86_64"))]
pub(super) static OBJECT: Option<&[u8]> = None;

/// Slots that have histograms at most: 384 bytes each, so 12 MiB.
const MOST_WIDE_SLOTS: u32 = 32_768;

/// Slots whose completions are kept by status and latency at most: 512 bytes each, so 4 MiB.
const MOST_OUTCOMES: u32 = 8192;

/// A kernel function to watch.
struct Function {
    name: &'static str,
    module: &'static str,
    /// Programs for the entry and the return.
    entry: Option<&'static str>,
    returns: Option<&'static str>,
}

const FUNCTIONS: [Function; 7] = [
    Function { name: "ib_create_qp_user", module: "ib_core", entry: None, returns: Some("create_qp_user") },
    Function { name: "ib_create_qp_kernel", module: "ib_core", entry: None, returns: Some("create_qp_kernel") },
    Function {
        name: "ib_modify_qp_with_udata",
        module: "ib_core",
        entry: Some("modify_qp_user"),
        returns: Some("modify_qp_return"),
    },
    Function {
        name: "ib_modify_qp",
        module: "ib_core",
        entry: Some("modify_qp_kernel"),
        returns: Some("modify_qp_return"),
    },
    Function {
        name: "ib_destroy_qp_user",
        module: "ib_core",
        entry: Some("destroy_qp"),
        returns: Some("destroy_qp_return"),
    },
    Function { name: "ib_dispatch_event", module: "ib_core", entry: Some("async_event"), returns: None },
    Function { name: "ib_uverbs_qp_event_handler", module: "ib_uverbs", entry: Some("async_event"), returns: None },
];

/// Where the loaded modules are.
const MODULES: &str = "/sys/module";

/// The name of the destroy probe's report: without it, QPs that are reused at once cannot be told apart.
pub(super) const DESTROY: &str = "ib_destroy_qp_user";
/// Those that with it tell all that happens to the QPs of processes.
const CREATE: &str = "ib_create_qp_user";
const MODIFY: &str = "ib_modify_qp_with_udata";
/// The name of the data-path probe's reports, where there is but one.
pub(super) const POST_SEND: &str = Operation::PostSend.name();
/// The name of the AER probe's report.
pub(super) const AER: &str = "ras:aer_event";

/// The loaded programs. Dropping it detaches everything: links are file descriptors.
pub(super) struct Attached {
    ebpf: Option<Ebpf>,
    /// How each probe of the kernel's functions fared, and why there is none of the data path.
    reports: Vec<ProbeReport>,
    /// Entries of the arrays.
    pub(super) sizes: Sizes,
    uprobes: Uprobes,
    /// What is attached to kernel functions: the function, the program, the link.
    links: Vec<(&'static str, &'static str, KProbeLinkId)>,
    /// The modules for which the offsets were read and to which the probes are attached.
    loads: Loads,
}

impl Attached {
    /// Loads the object and attaches the probes of the control path and of AER. Never fails: the reports say what did
    /// not work.
    pub(super) fn new(max_qps: u32) -> Self {
        let slots = max_qps.clamp(1, 1 << 24);
        let sizes = Sizes { slots, wide: slots.min(MOST_WIDE_SLOTS), outcomes: slots.min(MOST_OUTCOMES) };
        let mut config = Config { slots, wide_slots: sizes.wide, ..Config::default() };
        // Before the offsets are read: a module that is loaded meanwhile is then seen to be another.
        let loads = Loads::now(Path::new(MODULES));
        let kernel = offsets::Kernel { btf: Path::new("/sys/kernel/btf"), modules: Path::new(MODULES) };
        let fields = offsets::fill(&kernel, &mut config).map_err(|error| error.why());
        let aer = tracefs::fill(&mut config).map_err(|error| error.why());

        let mut attached =
            Self { ebpf: None, reports: Vec::new(), sizes, uprobes: Uprobes::default(), links: Vec::new(), loads };
        let loaded = load(&config, sizes);
        let failed = loaded.as_ref().err().cloned();
        attached.ebpf = loaded.ok();
        for function in &FUNCTIONS {
            let result = match (&failed, &fields) {
                (Some(reason), _) | (None, Err(reason)) => Err(reason.clone()),
                (None, Ok(())) => attached.function(function),
            };
            attached.report(function.name, format!("{}:{}", function.module, function.name), result);
        }
        let result = match (failed, aer) {
            (Some(reason), _) | (None, Err(reason)) => Err(reason),
            (None, Ok(())) => attached.aer(),
        };
        attached.report(AER, AER.to_owned(), result);
        attached
    }

    /// How each probe fared.
    pub(super) fn reports(&self) -> impl Iterator<Item = &ProbeReport> {
        self.reports.iter().chain(self.uprobes.reports())
    }

    /// Nothing that seemed to work does.
    pub(super) fn give_up_all(&mut self, why: &Why) {
        for report in self.reports.iter_mut().filter(|report| report.attached) {
            report.attached = false;
            report.reason = Some(why.reason.clone());
            report.fix.clone_from(&why.fix);
        }
    }

    /// The maps.
    pub(super) fn ebpf(&mut self) -> Option<&mut Ebpf> {
        self.ebpf.as_mut()
    }

    /// Looks at what has become of the modules, and gives up what was attached to one that ended. Returns whether `ib_core`
    /// was loaded anew: the fields the programs read may lie elsewhere in it.
    pub(super) fn look_at_modules(&mut self) -> bool {
        let changes = self.loads.look_again(Path::new(MODULES));
        for change in changes.iter().filter(|change| change.ended) {
            self.give_up(change.module);
        }
        changes.iter().any(|change| change.module == modules::NAMES[0] && change.loaded)
    }

    fn give_up(&mut self, module: &str) {
        for function in FUNCTIONS.iter().filter(|function| function.module == module) {
            for (_, program, link) in self.links.extract_if(.., |(name, ..)| *name == function.name) {
                let program = self.ebpf.as_mut().and_then(|ebpf| ebpf.program_mut(program));
                if let Some(Ok(program)) = program.map(<&mut KProbe>::try_from) {
                    // What it was attached to is gone: there is nothing left that could fail.
                    let _ = program.detach(link);
                }
            }
            for report in self.reports.iter_mut().filter(|report| report.name == function.name && report.attached) {
                report.attached = false;
                report.reason = Some(not_loaded(function));
                report.fix = Some(load_it(function));
            }
        }
    }

    /// Attaches what failed because its module was not loaded and now is. Returns whether there was something.
    pub(super) fn catch_up(&mut self) -> bool {
        let late: Vec<&Function> = FUNCTIONS
            .iter()
            .filter(|function| !self.has(function.name))
            .filter(|function| {
                let reason = not_loaded(function);
                self.reports
                    .iter()
                    .any(|report| report.name == function.name && report.reason.as_ref() == Some(&reason))
            })
            .filter(|function| is_loaded(function))
            .collect();
        for function in &late {
            self.reports.retain(|report| report.name != function.name);
            let result = self.function(function);
            self.report(function.name, format!("{}:{}", function.module, function.name), result);
        }
        !late.is_empty()
    }

    /// A probe of this name is attached.
    pub(super) fn has(&self, name: &str) -> bool {
        self.reports().any(|report| report.name == name && report.attached)
    }

    /// All that happens to QPs of processes is seen: one cannot take another's address unnoticed.
    pub(super) fn follows_qps(&self) -> bool {
        [CREATE, MODIFY, DESTROY].iter().all(|name| self.has(name))
    }

    /// The probe on an operation is or was attached somewhere.
    pub(super) fn was_attached(&self, operation: Operation) -> bool {
        self.uprobes.was_attached(operation)
    }

    /// What was attached up to now was attached to nobody's functions.
    pub(super) fn forget_attached(&mut self) {
        self.uprobes.forget_attached();
    }

    /// Attaches at a place that was looked into, once per file and offset; when its group is off, it waits with it.
    pub(super) fn attach(&mut self, opened: Opened) {
        if opened.operation == Some(Operation::PostSend) {
            self.reports.retain(|report| report.name != POST_SEND);
        }
        if let Some(ebpf) = &mut self.ebpf {
            self.uprobes.attach(ebpf, opened);
        }
    }

    /// Finds out whether returns may be probed here: to be called before the first one is.
    pub(super) fn try_returns(&mut self) {
        self.uprobes.no_returns = self.ebpf.as_mut().and_then(confined::forbidden);
    }

    /// The number a file is attached to under: another one, where it is another seen through an overlay.
    pub(super) fn below(&self, file: FileId) -> FileId {
        self.uprobes.below(file)
    }

    /// How many operations are attached to in a file.
    pub(super) fn attached_to(&self, file: FileId) -> usize {
        self.uprobes.attached_to(file)
    }

    /// The group is attached, or would be if it were not paused, at an instruction that the kernel steps over.
    pub(super) fn is_stepped(&self, group: Group) -> bool {
        self.uprobes.is_stepped(group)
    }

    /// A number that changes when something of the data path was attached or detached.
    pub(super) fn changes(&self) -> u64 {
        self.uprobes.changes()
    }

    /// A probe of the group is attached.
    pub(super) fn has_group(&self, group: Group) -> bool {
        self.uprobes.has_group(group)
    }

    /// Detaches a group everywhere, until it is attached again. Takes milliseconds, and is not waited for.
    pub(super) fn detach_group(&mut self, group: Group, reason: &str) {
        self.uprobes.detach_group(group, reason);
    }

    /// Attaches a group again, everywhere.
    pub(super) fn attach_group(&mut self, group: Group) {
        if let Some(ebpf) = &mut self.ebpf {
            self.uprobes.attach_group(ebpf, group);
        }
    }

    /// What is known of files, so that a look can leave it out.
    pub(super) fn known(&self) -> Known {
        self.uprobes.known()
    }

    /// The numbers of all files that are kept, and of those something was refused in.
    pub(super) fn files(&self) -> HashSet<FileId> {
        self.uprobes.files()
    }

    /// Detaches from files that were written over.
    pub(super) fn detach_overwritten(&mut self) -> Overwritten {
        self.uprobes.detach_overwritten()
    }

    /// Detaches from a file that no process maps any more.
    pub(super) fn detach_file(&mut self, file: FileId) {
        self.uprobes.detach_file(file);
    }

    /// Says why the data-path probe is not attached anywhere; `wanted` is false when it is switched off.
    pub(super) fn no_post_send(&mut self, wanted: bool, why: Why) {
        if self.reports().any(|report| report.name == POST_SEND) {
            return;
        }
        self.reports.push(ProbeReport {
            name: POST_SEND.to_owned(),
            wanted,
            attached: false,
            at: None,
            reason: Some(why.reason),
            fix: why.fix,
        });
    }

    /// Forgets why the data-path probe was not attached, before another attempt.
    pub(super) fn retry_post_send(&mut self) {
        self.reports.retain(|report| report.name != POST_SEND);
    }

    fn report(&mut self, name: &str, at: String, result: Result<(), Why>) {
        let attached = result.is_ok();
        let (reason, fix) = result.err().map_or((None, None), |why| (Some(why.reason), why.fix));
        self.reports.push(ProbeReport { name: name.to_owned(), wanted: true, attached, at: Some(at), reason, fix });
    }

    fn function(&mut self, function: &Function) -> Result<(), Why> {
        if !reason::has_probe_kind("kprobe") {
            return Err("this kernel has no kprobes (CONFIG_KPROBE_EVENTS)".into());
        }
        // The return first: an entry without its return would leave something behind for each call.
        for program in [function.returns, function.entry].into_iter().flatten() {
            self.kprobe(program, function.name).map_err(|error| match reason::errno(&error) {
                Some(2 | 22 | 99) if !is_loaded(function) => Why::with_fix(not_loaded(function), load_it(function)),
                Some(2 | 99) => format!("this kernel has no function {}", function.name).into(),
                _ => why(&error),
            })?;
        }
        Ok(())
    }

    fn kprobe(&mut self, program: &'static str, function: &'static str) -> Result<(), ProgramError> {
        let probe: &mut KProbe = self.program(program)?;
        loaded(probe.load())?;
        let link = probe.attach(function, 0)?;
        self.links.push((function, program, link));
        Ok(())
    }

    fn aer(&mut self) -> Result<(), Why> {
        let attach = |this: &mut Self| {
            let probe: &mut TracePoint = this.program("aer_event")?;
            loaded(probe.load())?;
            probe.attach("ras", "aer_event").map(|_| ())
        };
        attach(self).map_err(|error| why(&error))
    }

    fn program<'p, P>(&'p mut self, name: &str) -> Result<P, ProgramError>
    where
        P: TryFrom<&'p mut aya::programs::Program, Error = ProgramError>,
    {
        let program = self.ebpf.as_mut().and_then(|ebpf| ebpf.program_mut(name)).ok_or(ProgramError::NotLoaded)?;
        P::try_from(program)
    }
}

fn is_loaded(function: &Function) -> bool {
    Path::new(MODULES).join(function.module).exists()
}

fn not_loaded(function: &Function) -> String {
    format!("the module {} is not loaded", function.module)
}

fn load_it(function: &Function) -> String {
    format!("modprobe {}", function.module)
}

/// An error in words. A refusal by the verifier is a refusal of the program, whatever its error code says.
pub(super) fn why(error: &ProgramError) -> Why {
    match error {
        ProgramError::LoadError { io_error, verifier_log } if !verifier_log.to_string().trim().is_empty() => {
            reason::refused(io_error, &verifier_log.to_string())
        }
        _ => reason::explain(error),
    }
}

/// A program that is attached at two places is loaded once.
pub(super) fn loaded(result: Result<(), ProgramError>) -> Result<(), ProgramError> {
    match result {
        Err(ProgramError::AlreadyLoaded) => Ok(()),
        other => other,
    }
}

fn load(config: &Config, sizes: Sizes) -> Result<Ebpf, Why> {
    let Some(object) = OBJECT else {
        return Err(format!("no object for this architecture ({})", std::env::consts::ARCH).into());
    };
    if let Some(why) = reason::cannot_load().or_else(reason::locked_down) {
        return Err(why);
    }
    EbpfLoader::new()
        .override_global("CONFIG", config, true)
        .map_max_entries("SLOTS", config.slots)
        .map_max_entries("WIDE", config.wide_slots)
        .map_max_entries("OUTCOMES", sizes.outcomes)
        .map_max_entries("MARKS", config.slots.div_ceil(MARKS_PER_BLOCK))
        .map_max_entries("SLOT_OF", config.slots)
        .map_max_entries("BY_QPN", config.slots)
        .map_max_entries("BY_CONTEXT", config.slots)
        .map_max_entries("BORN", config.slots)
        .map_max_entries("CQS", config.slots)
        .map_max_entries("FREED", config.slots)
        .load(object)
        .map_err(|error| reason::explain(&error))
}
