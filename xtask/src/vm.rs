//! `cargo xtask vm`: boots Debian's kernels in QEMU and runs payloads in them, against software RDMA devices and injected
//! PCI Express errors.
//!
//! [`kernel`] finds and unpacks the kernels, [`apt`] fetches packages, [`image`] makes the guest's files, [`payload`]
//! what runs in it (archived by [`cpio`]), [`boot`] runs it, [`results`] reads what came back. Everything is kept below
//! `target/vm/`; the results of the last run are `target/vm/results/KERNEL/PAYLOAD/`.

mod apt;
mod boot;
mod cpio;
mod image;
mod kernel;
mod payload;
mod results;

use std::fs::{self, File};
use std::iter;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use rustix::fs::{FlockOperation, flock};

pub(crate) use self::boot::NS_AN_INSTRUCTION;
use self::boot::{Ending, Time};
use self::kernel::{Family, Kernel};
use self::payload::{Init, Payload};
pub(crate) use self::results::Outcome;
use crate::stage::stage;
use crate::{command, workspace};

/// What the test bench downloads beside the host's packages.
pub(crate) const DOWNLOADS: &str = "packages and two kernels of Debian 12, downloaded by apt below target/vm";

/// How long a guest may take before and after its payloads; ten times what emulation needs.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// The most guests at a time.
const AT_ONCE: usize = 2;

/// How many seconds of the host one of a guest with counted instructions may take.
const COUNTED_LIMIT: u32 = 4;

/// How the folder of a running boot is called.
const WORK_PREFIX: &str = "run-";

/// Arguments of `cargo xtask vm`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The kernel family to boot
    #[arg(long, value_enum, default_value = "all")]
    kernel: Choice,
    /// The payloads to run, scripts of tests/guest; all of them by default
    #[arg(long, value_name = "NAME", num_args = 1..)]
    payload: Vec<String>,
    /// Another file to put into /payload of the guest; one called rdmascope is used instead of building the product
    #[arg(long, value_name = "FILE", num_args = 1..)]
    with: Vec<PathBuf>,
    /// Keeps the files of the boot (initrd, compiled programs) in target/vm/kept
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    #[value(name = "6.1")]
    V6_1,
    #[value(name = "6.12")]
    V6_12,
    All,
}

/// A payload's end on one kernel.
pub(crate) struct Run {
    pub(crate) kernel: &'static str,
    pub(crate) payload: String,
    pub(crate) outcome: Outcome,
}

/// Runs the chosen payloads on the chosen kernels; a payload that fails is an error that names it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let families: &[Family] = match arguments.kernel {
        Choice::V6_1 => &[Family::V6_1],
        Choice::V6_12 => &[Family::V6_12],
        Choice::All => &Family::ALL,
    };
    if let Some(reason) = unavailable() {
        bail!("{reason}");
    }
    let runs = run_payloads(families, &arguments.payload, &arguments.with, arguments.keep, Time::Host)?;
    let failed: Vec<_> = runs
        .iter()
        .filter(|run| matches!(run.outcome, Outcome::Failed(_)))
        .map(|run| format!("{} on {}", run.payload, run.kernel))
        .collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Runs every payload on every kernel.
pub(crate) fn run_all() -> Result<Vec<Run>> {
    run_payloads(&Family::ALL, &[], &[], false, Time::Host)
}

/// Runs one payload on kernel 6.1 with the guest's time counted in instructions ([`NS_AN_INSTRUCTION`]), and says where its
/// results are.
pub(crate) fn run_counted(payload: &str, with: &[PathBuf]) -> Result<PathBuf> {
    if let Some(reason) = unavailable() {
        bail!("{reason}");
    }
    let runs = run_payloads(&[Family::V6_1], &[payload.to_owned()], with, false, Time::Instructions)?;
    match runs.first().map(|run| &run.outcome) {
        Some(Outcome::Passed) => Ok(results_directory().join(Family::V6_1.name()).join(payload)),
        _ => bail!("{payload} did not run to its end"),
    }
}

/// Why there can be no guest here, if so.
pub(crate) fn unavailable() -> Option<String> {
    let tools = [boot::QEMU, "apt-get", "dpkg-deb", "tar", "xz", "zstd", "mke2fs", "depmod", "gcc", "setpriv"];
    let missing: Vec<_> = tools.into_iter().filter(|tool| command::find(tool).is_none()).collect();
    if missing.is_empty() {
        None
    } else {
        Some(format!("no virtual machine without {}: cargo xtask setup", missing.join(", ")))
    }
}

/// The folder of all results.
pub(crate) fn results_directory() -> PathBuf {
    workspace::target().join("vm/results")
}

fn run_payloads(families: &[Family], names: &[String], with: &[PathBuf], keep: bool, time: Time) -> Result<Vec<Run>> {
    let cache = workspace::target().join("vm");
    fs::create_dir_all(&cache)?;
    let payloads = payload::select(names)?;
    let _lock = lock(&cache)?;
    let work = tempfile::Builder::new().prefix(WORK_PREFIX).tempdir_in(&cache)?;
    for family in families {
        if results_directory().join(family.name()).exists() {
            fs::remove_dir_all(results_directory().join(family.name()))?;
        }
    }
    let mut boots = Vec::new();
    for init in Init::ALL {
        let payloads: Vec<_> = payloads.iter().filter(|payload| payload.init == init).collect();
        for family in families {
            let payloads: Vec<_> = payloads.iter().copied().filter(|payload| payload.runs_on(*family)).collect();
            if !payloads.is_empty() {
                boots.push(Boot::prepare(*family, (init, time), payloads, with, &cache, work.path())?);
            }
        }
    }
    let mut runs = Vec::new();
    for (boot, ending) in boots.iter().zip(boot_all(&boots)) {
        runs.extend(boot.outcomes(ending?));
    }
    if keep {
        let kept = cache.join("kept");
        if kept.exists() {
            fs::remove_dir_all(&kept)?;
        }
        fs::rename(work.keep(), &kept)?;
        println!("kept: {}", kept.display());
    }
    Ok(runs)
}

/// Boots them, as many at a time as keep the processors busy: one guest keeps about one.
fn boot_all(boots: &[Boot<'_>]) -> Vec<Result<Ending>> {
    let at_once = thread::available_parallelism().map_or(1, usize::from).min(AT_ONCE);
    let next = Mutex::new(boots.iter().enumerate());
    let mut endings: Vec<(usize, Result<Ending>)> = Vec::new();
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || iter::from_fn(|| take().map(|(at, boot)| (at, boot.run()))).collect::<Vec<_>>();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            // A panic of one is one of all.
            endings.extend(worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    endings.sort_by_key(|(at, _)| *at);
    endings.into_iter().map(|(_, ending)| ending).collect()
}

/// A guest, ready to be started.
struct Boot<'a> {
    family: Family,
    time: Time,
    /// What it is called on the terminal.
    name: String,
    image: image::Image,
    packed: Vec<u8>,
    payloads: Vec<&'a Payload>,
    /// A folder of its own, which goes with the run's.
    work: PathBuf,
    console: PathBuf,
}

impl<'a> Boot<'a> {
    fn prepare(
        family: Family,
        (init, time): (Init, Time),
        payloads: Vec<&'a Payload>,
        with: &[PathBuf],
        cache: &Path,
        work: &Path,
    ) -> Result<Self> {
        let work = work.join(format!("{}-{}", family.name(), init.name()));
        fs::create_dir(&work)?;
        let packed = stage(&format!("payload for {}", init.name()), || payload::pack(init, &payloads, with, &work))?;
        let image = stage(&format!("image for {}", family.name()), || image::image(&Kernel::newest(family)?, cache))?;
        let directory = results_directory().join(family.name());
        fs::create_dir_all(&directory)?;
        let console = directory.join(format!("console-{}.log", init.name()));
        let name = format!("guest with {} and {}", image.version, init.name());
        Ok(Self { family, time, name, image, packed, payloads, work, console })
    }

    /// From its start to the end of its last payload; what the payloads sent lies beside the console's log afterwards.
    fn run(&self) -> Result<Ending> {
        stage(&self.name, || {
            let archives = self.work.join("results.tar");
            fs::write(&archives, "")?;
            let timeouts = self.payloads.iter().map(|payload| Duration::from_secs(payload.timeout_s + 10));
            let limit = BOOT_LIMIT + timeouts.sum::<Duration>();
            // Counted seconds are the guest's: it may need several of ours for one.
            let limit = if self.time == Time::Instructions { limit * COUNTED_LIMIT } else { limit };
            let start = Instant::now();
            let files = boot::Files { work: &self.work, console: &self.console, results: &archives };
            let ending = boot::boot(&self.image, &self.packed, &files, limit, self.time, self.family.name())?;
            if ending != Ending::Completed {
                println!("the guest {ending}, after {:.0} s", start.elapsed().as_secs_f64());
            }
            results::unpack(&archives, self.console.parent().unwrap_or(&self.work))?;
            Ok(ending)
        })
    }

    /// How each payload ended, which is also printed.
    fn outcomes(&self, ending: Ending) -> Vec<Run> {
        let outcome = |payload: &&Payload| {
            let outcome = results::outcome(&results_directory().join(self.family.name()).join(&payload.name))
                .unwrap_or_else(|| Outcome::Failed(format!("the guest {ending}, see {}", self.console.display())));
            let run = Run { kernel: self.family.name(), payload: payload.name.clone(), outcome };
            println!("{}", run.line());
            run
        };
        self.payloads.iter().map(outcome).collect()
    }
}

/// Waits until no other run uses `cache`, and removes what a run left that was killed.
fn lock(cache: &Path) -> Result<File> {
    let file = File::create(cache.join("lock"))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        println!("waiting for another run in {}", cache.display());
        flock(&file, FlockOperation::LockExclusive)?;
    }
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(WORK_PREFIX) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(file)
}

impl Run {
    /// One line for people.
    fn line(&self) -> String {
        let (word, reason) = match &self.outcome {
            Outcome::Passed => ("ok", String::new()),
            Outcome::Failed(reason) => ("FAILED", format!(": {reason}")),
            Outcome::Skipped(reason) => ("skipped", format!(": {reason}")),
        };
        format!("{word} {} on {}{reason}", self.payload, self.kernel)
    }
}
