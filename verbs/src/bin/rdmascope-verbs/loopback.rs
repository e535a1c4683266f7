//! `loopback`: the devices as they come and go, each in a thread of its own, so that one whose driver hangs keeps nobody
//! else from being measured.

use std::io::{self, Read};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use collector::clock;
use collector::node::filter;
use collector::source::loopback::PROGRAM;
use collector::source::loopback::line::{Line, Measured};

use crate::Loopback;
use crate::say::Say;
use crate::stop::Stop;
use crate::watch::{Plan, Progress, watch};

/// How often new devices are looked for, and how often it is said that this is alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The first time it is said when every port was tried, or after this.
const FIRST: Duration = Duration::from_secs(3);
/// A step of a round that takes longer hangs in a driver or provider, ns: to open a device or to measure one port, which
/// waits for a second and an operation of two at most, is a step.
const HANGS_NS: u64 = 5_000_000_000;
/// How long the threads have for destroying what they made.
const FAREWELL: Duration = Duration::from_secs(1);
/// Devices begin their rounds at so many different parts of the period: they are not to measure each other.
const PARTS: u32 = 16;

/// A device's thread.
struct Watched {
    name: String,
    progress: Arc<Progress>,
    thread: JoinHandle<()>,
}

/// Runs until standard input ends or nobody reads what is printed.
pub(crate) fn run(asked: &Loopback) -> Result<(), String> {
    let wanted = filter(&asked.device, &asked.exclude).map_err(|error| error.to_string())?;
    let stop = Arc::new(Stop::default());
    let say = Arc::new(Say::new(Box::new(io::stdout()), stop.clone()));
    end_with_standard_input(stop.clone())?;
    let plan = Plan { period: asked.period(), operations: asked.operations, bytes: asked.bytes };
    say.line(&Line::Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        operations: plan.operations,
        bytes: plan.bytes,
        period_ns: u64::try_from(plan.period.as_nanos()).unwrap_or(u64::MAX),
    });
    let (start, mut watched, mut begun) = (Instant::now(), Vec::<Watched>::new(), 0u32);
    let mut next = start;
    let mut quiet = true;
    loop {
        watched.retain(|device| !device.thread.is_finished());
        for name in devices().into_iter().filter(|name| wanted(name)) {
            if !watched.iter().any(|device| device.name == name) {
                let first = Instant::now() + plan.period / PARTS * (begun % PARTS);
                begun += 1;
                watched.push(begin(name, plan, first, &say, &stop)?);
            }
        }
        let now = clock::monotonic_ns();
        for device in watched.iter().filter(|device| device.progress.busy_for(now) > HANGS_NS) {
            let reason = "a call into its driver or provider does not return".to_owned();
            say.port(&device.name, None, Measured::Failed(reason));
        }
        quiet &= start.elapsed() < FIRST && !watched.iter().all(|device| device.progress.has_tried());
        if !quiet {
            say.line(&Line::Alive { t: now, cpu_ns: clock::process_cpu_ns() });
        }
        next = if quiet { Instant::now() + LOOK_EVERY / 50 } else { (next + LOOK_EVERY).max(Instant::now()) };
        if stop.wait_until(next) {
            break;
        }
    }
    let deadline = Instant::now() + FAREWELL;
    while Instant::now() < deadline && !watched.iter().all(|device| device.thread.is_finished()) {
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn begin(name: String, plan: Plan, first: Instant, say: &Arc<Say>, stop: &Arc<Stop>) -> Result<Watched, String> {
    let progress = Arc::new(Progress::default());
    let (shown, say, stop, device) = (progress.clone(), say.clone(), stop.clone(), name.clone());
    // The kernel's list of QPs names the thread that made them, and people look for the program's name there.
    let thread = thread::Builder::new()
        .name(PROGRAM.to_owned())
        .spawn(move || watch(&device, plan, first, &shown, &say, &stop))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(Watched { name, progress, thread })
}

/// The names of the RDMA devices, by the kernel alone: nothing is opened for it.
fn devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// The input ends when whoever started this does, however that comes about.
fn end_with_standard_input(stop: Arc<Stop>) -> Result<(), String> {
    let read = move || {
        let mut bytes = [0; 256];
        while let Ok(n) = io::stdin().read(&mut bytes) {
            if n == 0 {
                break;
            }
        }
        stop.set();
    };
    let thread = thread::Builder::new().name("standard input".to_owned()).spawn(read);
    thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}
