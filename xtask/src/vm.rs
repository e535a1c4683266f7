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
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use rustix::fs::{FlockOperation, flock};

use self::boot::Ending;
use self::kernel::{Family, Kernel};
use self::payload::{Init, Payload};
pub(crate) use self::results::Outcome;
use crate::stage::stage;
use crate::{command, workspace};

/// What the test bench downloads beside the host's packages.
pub(crate) const DOWNLOADS: &str = "packages and two kernels of Debian 12, downloaded by apt below target/vm";

/// How long a guest may take before and after its payloads; ten times what emulation needs.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

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
    let runs = run_payloads(families, &arguments.payload, &arguments.with, arguments.keep)?;
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
    run_payloads(&Family::ALL, &[], &[], false)
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

fn run_payloads(families: &[Family], names: &[String], with: &[PathBuf], keep: bool) -> Result<Vec<Run>> {
    let cache = workspace::target().join("vm");
    fs::create_dir_all(&cache)?;
    let payloads = payload::select(names)?;
    let _lock = lock(&cache)?;
    let work = tempfile::Builder::new().prefix(WORK_PREFIX).tempdir_in(&cache)?;
    let mut runs = Vec::new();
    for family in families {
        if results_directory().join(family.name()).exists() {
            fs::remove_dir_all(results_directory().join(family.name()))?;
        }
    }
    for init in Init::ALL {
        let payloads: Vec<_> = payloads.iter().filter(|payload| payload.init == init).collect();
        for family in families {
            let payloads: Vec<_> = payloads.iter().copied().filter(|payload| payload.runs_on(*family)).collect();
            if !payloads.is_empty() {
                runs.extend(run_boot(*family, init, &payloads, with, &cache, work.path())?);
            }
        }
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

/// The payloads of one boot.
fn run_boot(
    family: Family,
    init: Init,
    payloads: &[&Payload],
    with: &[PathBuf],
    cache: &Path,
    work: &Path,
) -> Result<Vec<Run>> {
    let packed = stage(&format!("payload for {}", init.name()), || payload::pack(init, payloads, with, work))?;
    let image = stage(&format!("image for {}", family.name()), || image::image(&Kernel::newest(family)?, cache))?;
    let directory = results_directory().join(family.name());
    fs::create_dir_all(&directory)?;
    let console = directory.join(format!("console-{}.log", init.name()));
    let name = format!("guest with {} and {}", image.version, init.name());
    let ending = stage(&name, || boot_once(&image, &packed, payloads, work, &console))?;
    let mut runs = Vec::new();
    for payload in payloads {
        let outcome = results::outcome(&directory.join(&payload.name))
            .unwrap_or_else(|| Outcome::Failed(format!("the guest {ending}, see {}", console.display())));
        let run = Run { kernel: family.name(), payload: payload.name.clone(), outcome };
        println!("{}", run.line());
        runs.push(run);
    }
    Ok(runs)
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

/// One boot; what the payloads sent lies beside the console's log afterwards.
fn boot_once(
    image: &image::Image,
    packed: &[u8],
    payloads: &[&Payload],
    work: &Path,
    console: &Path,
) -> Result<Ending> {
    let archives = work.join("results.tar");
    fs::write(&archives, "")?;
    let limit =
        BOOT_LIMIT + payloads.iter().map(|payload| Duration::from_secs(payload.timeout_s + 10)).sum::<Duration>();
    let start = Instant::now();
    let ending = boot::boot(image, packed, work, console, &archives, limit)?;
    if ending != Ending::Completed {
        println!("the guest {ending}, after {:.0} s", start.elapsed().as_secs_f64());
    }
    results::unpack(&archives, console.parent().unwrap_or(work))?;
    Ok(ending)
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
