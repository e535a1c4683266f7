//! What `cargo xtask bench probes` measures: hits of the programs beside hits of programs that do nothing, and a polling
//! loop with and without the probes. Everything happens to functions of the measuring process itself.

#![allow(unsafe_code, reason = "functions with known first instructions can only be written in assembly")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use aya::programs::UProbe;
use aya::programs::uprobe::UProbeLink;
use rustix::time::{ClockId, clock_gettime};

use super::attach::{Attached, loaded};
use super::budget::{Budget, GROUPS};
use super::library::Library;
use super::opened::Opened;
use super::store::Maps;
use super::{ProbeOptions, Probes, uprobes};
use crate::clock;
use crate::source::Source;
use crate::source::verbs::{Operation, Place, maps};

// Copies of two functions of 16 bytes. Both return their second argument: how many completions there are, where they are
// taken for `poll_cq`. The first begins with an instruction that is emulated, the second has it behind one that is not.
std::arch::global_asm!(
    ".pushsection .text.rdmascope_bench, \"ax\", @progbits",
    ".balign 16",
    ".globl rdmascope_bench_push",
    ".hidden rdmascope_bench_push",
    "rdmascope_bench_push:",
    ".rept 8",
    "push rbx",
    "mov eax, esi",
    "pop rbx",
    "ret",
    ".balign 16",
    ".endr",
    ".globl rdmascope_bench_endbr",
    ".hidden rdmascope_bench_endbr",
    "rdmascope_bench_endbr:",
    ".rept 4",
    "endbr64",
    "push rbx",
    "mov eax, esi",
    "pop rbx",
    "ret",
    ".balign 16",
    ".endr",
    ".popsection",
);

type Function = unsafe extern "C" fn(*const u64, *const u64, *const u64) -> i32;

unsafe extern "C" {
    fn rdmascope_bench_push(qp: *const u64, wr: *const u64, third: *const u64) -> i32;
    fn rdmascope_bench_endbr(qp: *const u64, wr: *const u64, third: *const u64) -> i32;
}

/// Bytes from one copy to the next.
const COPY: usize = 16;

/// Where `push` lies behind `endbr64`.
const BEHIND: u64 = 4;

/// The `n`-th copy of a function.
fn copy(first: Function, n: usize) -> Function {
    // SAFETY: there are as many copies, all of them functions of this kind.
    unsafe { std::mem::transmute::<usize, Function>(first as usize + n * COPY) }
}

fn place_of(function: Function) -> Result<Place, String> {
    let text = std::fs::read_to_string("/proc/self/maps").map_err(|error| error.to_string())?;
    let address = function as usize as u64;
    let place = maps::mappings(&text).find(|mapping| mapping.holds(address)).and_then(|mapping| mapping.place(address));
    place.ok_or_else(|| "the function lies in no file".to_owned())
}

/// Calls of one batch, and batches of each case: short ones in turn, so that whatever disturbs hits all cases.
const CALLS: u32 = 200;
const BATCHES: usize = 151;

/// Completions of the largest poll.
const COMPLETIONS: usize = 16;

/// How a function is called.
#[derive(Clone, Copy, PartialEq)]
enum Call {
    /// One work request with one element, with these flags.
    Post { flags: u64 },
    /// The same, with the element far from the work request.
    PostApart { flags: u64 },
    /// The same, to two QPs in turn.
    PostInTurn,
    /// So many completions.
    Poll(usize),
}

/// What is told to the programs: both groups are watched, and one in so many signalled requests is timed.
#[derive(Clone, Copy, PartialEq)]
enum Timing {
    None,
    OneIn(u64),
}

/// A case that is measured.
struct Case {
    name: &'static str,
    function: Function,
    call: Call,
    timing: Timing,
    ns: Vec<f64>,
}

/// One measured case.
#[derive(Debug, Clone)]
pub struct Row {
    /// What was measured.
    pub name: &'static str,
    /// The median time of a call, ns of the calling thread's CPU time.
    pub ns: f64,
}

/// What is attached: a program, at a function.
const PUSH: [&[&str]; 6] =
    [&[], &["nothing"], &["post_send"], &["nothing_return", "nothing"], &["poll_cq_return", "poll_cq"], &["post_send"]];

const SIGNALLED: u64 = 2;

fn cases() -> Vec<Case> {
    let case = |name, function, call, timing| Case { name, function, call, timing, ns: Vec::new() };
    let push = |n| copy(rdmascope_bench_push, n);
    let endbr = |n| copy(rdmascope_bench_endbr, n);
    let (plain, signalled) = (Call::Post { flags: 0 }, Call::Post { flags: SIGNALLED });
    vec![
        case("no probe", push(0), plain, Timing::None),
        case("push, empty", push(1), plain, Timing::None),
        case("push, post_send, not signalled", push(2), plain, Timing::None),
        case("push, post_send, signalled, no latency", push(2), signalled, Timing::None),
        case("push, post_send, signalled, 1 in 8 timed", push(2), signalled, Timing::OneIn(8)),
        case("push, post_send, two QPs in turn", push(2), Call::PostInTurn, Timing::None),
        case(
            "push, post_send, element apart, 1 in 8 timed",
            push(2),
            Call::PostApart { flags: SIGNALLED },
            Timing::OneIn(8),
        ),
        case("push, post_send, element apart", push(2), Call::PostApart { flags: SIGNALLED }, Timing::None),
        case("push, post_send, signalled, each timed", push(2), signalled, Timing::OneIn(1)),
        // Follows the case that posted and timed what is completed here.
        case("push, poll_cq, 1 completion, timed", push(4), Call::Poll(1), Timing::OneIn(1)),
        case("push, poll_cq, 16 completions", push(4), Call::Poll(COMPLETIONS), Timing::OneIn(8)),
        case("push, poll_cq, empty", push(4), Call::Poll(0), Timing::OneIn(8)),
        case("push and return, empty", push(3), Call::Poll(0), Timing::OneIn(8)),
        case("endbr64 (stepped), empty", endbr(0), plain, Timing::None),
        case("push behind endbr64, empty", endbr(1), plain, Timing::None),
        case("endbr64 (stepped), post_send 1 in 8", endbr(2), signalled, Timing::OneIn(8)),
        case("push behind endbr64, post_send 1 in 8", endbr(3), signalled, Timing::OneIn(8)),
    ]
}

/// A process's queue pair with one work request, and its completions, as far as the programs read them (LP64 layout of
/// rdma-core's verbs.h).
struct Scene {
    /// `ibv_device`: the name lies at 24.
    device: Box<[u64; 12]>,
    /// `ibv_context`: the device lies at 0.
    context: Box<[u64; 32]>,
    /// Two of `ibv_qp`: the context lies at 0, the number in the upper half of the word at 48.
    qps: Box<[[u64; 24]; 2]>,
    wr: Box<WithElement>,
    /// The element that lies elsewhere.
    apart: Box<[u64; 2]>,
    /// `ibv_wc`, 48 bytes each.
    wcs: Box<[[u64; 6]; COMPLETIONS]>,
}

/// `ibv_send_wr` and the `ibv_sge` behind it, as most processes have them.
#[repr(align(256))]
struct WithElement {
    wr: [u64; 16],
    sge: [u64; 2],
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self {
            device: Box::new([0; 12]),
            context: Box::new([0; 32]),
            qps: Box::new([[0; 24]; 2]),
            wr: Box::new(WithElement { wr: [0; 16], sge: [0, 64] }),
            apart: Box::new([0, 64]),
            wcs: Box::new([[0; 6]; COMPLETIONS]),
        };
        scene.device[3] = u64::from_le_bytes(*b"measured");
        scene.context[0] = scene.device.as_ptr() as u64;
        for (qp, number) in scene.qps.iter_mut().zip(1..) {
            (qp[0], qp[6]) = (scene.context.as_ptr() as u64, number << 32);
        }
        scene.wr.wr[3] = 1 | 2 << 32;
        scene.wcs.iter_mut().for_each(|wc| wc[3] = 1 << 32);
        scene
    }

    /// The CPU time of one call, ns. Work requests have the numbers from `first` on.
    fn time(&mut self, case: &Case, first: u64) -> f64 {
        (self.wr.wr[2], self.wr.wr[4]) = match case.call {
            Call::Post { flags } => (self.wr.sge.as_ptr() as u64, flags),
            Call::PostApart { flags } => (self.apart.as_ptr() as u64, flags),
            _ => (self.wr.sge.as_ptr() as u64, 0),
        };
        let begin = thread_cpu_ns();
        for call in 0..u64::from(CALLS) {
            self.wr.wr[0] = first + call;
            self.wcs[0][0] = first + call;
            let scene = black_box(&*self);
            let [one, two] = &*scene.qps;
            let wr = scene.wr.wr.as_ptr();
            // SAFETY: the functions follow none of their arguments.
            let found = unsafe {
                match case.call {
                    Call::Post { .. } | Call::PostApart { .. } => (case.function)(one.as_ptr(), wr, std::ptr::null()),
                    Call::PostInTurn => {
                        let qp = if call % 2 == 0 { one } else { two };
                        (case.function)(qp.as_ptr(), wr, std::ptr::null())
                    }
                    // A queue has its context at 0, as a queue pair has.
                    Call::Poll(n) => (case.function)(one.as_ptr(), n as *const u64, scene.wcs.as_ptr().cast()),
                }
            };
            black_box(found);
        }
        (thread_cpu_ns() - begin) as f64 / f64::from(CALLS)
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Loads the programs, or says why that cannot be.
fn load() -> Result<(Attached, Maps), String> {
    let mut attached = Attached::new(64);
    let sizes = attached.sizes;
    let why = attached.reports().find_map(|report| report.reason.clone());
    let ebpf = attached.ebpf().ok_or_else(|| why.unwrap_or_else(|| "no program can be loaded".to_owned()))?;
    let maps = Maps::take(ebpf, sizes)?;
    // The QPs here are nobody's, so nothing happens to them that would go unseen.
    maps.follow(true);
    Ok((attached, maps))
}

fn attach(attached: &mut Attached) -> Result<Vec<UProbeLink>, String> {
    let place = place_of(rdmascope_bench_push)?;
    let endbr = place_of(rdmascope_bench_endbr)?.offset;
    let library = Library::open(place.reachable()).map_err(|why| why.reason)?;
    let ebpf = attached.ebpf().ok_or("nothing is loaded")?;
    let push = PUSH
        .iter()
        .zip(0u64..)
        .flat_map(|(programs, n)| programs.iter().map(move |program| (*program, n * COPY as u64)));
    let mut all: Vec<(&str, u64)> = push.map(|(program, at)| (program, place.offset + at)).collect();
    let behind = [("nothing", 0), ("nothing", BEHIND), ("post_send", 0), ("post_send", BEHIND)];
    all.extend(behind.iter().zip(0u64..).map(|((program, by), n)| (*program, endbr + n * COPY as u64 + by)));
    let mut links = Vec::new();
    for (program, offset) in all {
        let link = uprobes::link(ebpf, program, &library, offset);
        links.push(link.map_err(|error| format!("{program}: {error}"))?);
    }
    Ok(links)
}

/// Measures a call of each case.
///
/// # Errors
/// Why nothing can be measured here.
pub fn calls() -> Result<Vec<Row>, String> {
    let (mut attached, maps) = load()?;
    let _links = attach(&mut attached)?;
    let mut cases = cases();
    let mut scene = Scene::new();
    let mut told = None;
    for batch in 0..BATCHES {
        let mut first = batch as u64 * 10_000;
        for case in &mut cases {
            if told != Some(case.timing) {
                let (completions, every) = match case.timing {
                    Timing::None => (false, 1),
                    Timing::OneIn(every) => (true, every),
                };
                maps.begin_epoch(clock::monotonic_ns(), true, completions, every);
                told = Some(case.timing);
            }
            // Polls complete what was posted before.
            if !matches!(case.call, Call::Poll(_)) {
                first += u64::from(CALLS);
            }
            let ns = scene.time(case, first);
            case.ns.push(ns);
        }
    }
    Ok(cases.into_iter().map(|mut case| Row { name: case.name, ns: median(&mut case.ns) }).collect())
}

/// The time of each program's own, as the kernel's statistics of BPF programs tell it: ns of a run. What a hit takes
/// longer is the trap. Gathering them costs time itself, so this is no part of [`calls`].
///
/// # Errors
/// Why nothing can be measured here.
pub fn programs() -> Result<Vec<Row>, String> {
    let (mut attached, maps) = load()?;
    let _links = attach(&mut attached)?;
    let _gathering = aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(|error| error.to_string())?;
    maps.begin_epoch(clock::monotonic_ns(), true, true, 8);
    let mut scene = Scene::new();
    for batch in 0..BATCHES as u64 {
        for case in cases() {
            scene.time(&case, batch * 10_000);
        }
    }
    let ebpf = attached.ebpf().ok_or("nothing is loaded")?;
    let mut rows = Vec::new();
    for name in ["nothing", "nothing_return", "post_send", "poll_cq", "poll_cq_return"] {
        let probe: &mut UProbe =
            ebpf.program_mut(name).ok_or("a program is missing")?.try_into().map_err(|_| "it is no uprobe")?;
        let info = probe.info().map_err(|error| error.to_string())?;
        rows.push(Row { name, ns: info.run_time().as_nanos() as f64 / info.run_count().max(1) as f64 });
    }
    Ok(rows)
}

/// A loop of empty polls in a thread.
struct Loop {
    polls: Arc<AtomicU64>,
    /// CPU time of the thread, ns.
    cpu_ns: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Loop {
    fn start(function: Function) -> Self {
        let (polls, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let cpu_ns = Arc::new(AtomicU64::new(0));
        let (counts, used, ended) = (Arc::clone(&polls), Arc::clone(&cpu_ns), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            let scene = Scene::new();
            while !ended.load(Relaxed) {
                for _ in 0..STRIDE {
                    // SAFETY: as in `time`.
                    black_box(unsafe { function(scene.qps[0].as_ptr(), std::ptr::null(), std::ptr::null()) });
                    // About as long as a provider takes for an empty queue.
                    for _ in 0..SPINS {
                        std::hint::spin_loop();
                    }
                }
                counts.fetch_add(STRIDE, Relaxed);
                used.store(thread_cpu_ns(), Relaxed);
            }
        });
        Self { polls, cpu_ns, ends, thread: Some(thread) }
    }

    /// Polls so far, and the CPU time they took, ns.
    fn so_far(&self) -> (f64, f64) {
        (self.polls.load(Relaxed) as f64, self.cpu_ns.load(Relaxed) as f64)
    }
}

/// Polls between two looks at the clock.
const STRIDE: u64 = 500;

/// Rounds of the pause instruction between two polls.
const SPINS: u32 = 4;

impl Drop for Loop {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and there is nobody to tell.
            let _ = thread.join();
        }
    }
}

/// A loop of empty polls inside a budget.
#[derive(Debug, Clone, Default)]
pub struct Governed {
    /// Polls a second with no probe attached, and with the probes inside the budget: one pair for each round.
    pub polls_per_s: Vec<(f64, f64)>,
    /// CPU time the loop used beyond what its polls take with no probe attached, as a share of a core, for each round: what
    /// the probes really cost, also where other processes leave the loop only a part of a core.
    pub lost_share: Vec<f64>,
    /// Hits, their estimated cost and the time they were watched in, ns.
    pub hits: u64,
    /// See `hits`.
    pub cost_ns: f64,
    /// See `hits`.
    pub elapsed_ns: f64,
    /// Time of the programs by the kernel's statistics, ns; a part of the cost, the rest is the trap.
    pub programs_ns: f64,
    /// Estimated cost of one hit, ns.
    pub hit_ns: f64,
    /// What the probe said when it was paused.
    pub reason: Option<String>,
    /// Length of the last window and of its period, ns.
    pub window: Option<(u64, u64)>,
}

/// Runs the loop `rounds` times for `alone` without probes and for `watched` with them.
///
/// # Errors
/// Why nothing can be measured here.
pub fn governed(share: f64, rounds: u32, alone: Duration, watched: Duration) -> Result<Governed, String> {
    let function = copy(rdmascope_bench_push, 7);
    let place = place_of(function)?;
    let work = Loop::start(function);
    let _gathering = aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(|error| error.to_string())?;
    let mut seen = Governed::default();
    for _ in 0..rounds {
        let (begin, then) = (Instant::now(), work.so_far());
        thread::sleep(alone);
        let now = work.so_far();
        let free = (now.0 - then.0) / begin.elapsed().as_secs_f64();
        let poll_ns = (now.1 - then.1) / (now.0 - then.0);

        let mut probes = Probes::load(&ProbeOptions { budget: Budget::Share(share), ..ProbeOptions::default() });
        probes.poll(clock::monotonic_ns(), &mut |_| {});
        probes.discovery.keep(place.file());
        probes.attached.attach(Opened::of(Operation::PollCq, &place));
        if !probes.attached.has_group(GROUPS[1]) {
            return Err(format!("poll_cq cannot be attached: {:?}", probes.probes().last()));
        }
        probes.poll(clock::monotonic_ns(), &mut |_| {});
        let (begin, then) = (Instant::now(), work.so_far());
        let (begin_ns, before) = (clock::monotonic_ns(), probes.spent());
        while begin.elapsed() < watched {
            let now = clock::monotonic_ns();
            if now < probes.due() {
                thread::sleep(Duration::from_nanos(probes.due() - now));
            }
            probes.poll(clock::monotonic_ns(), &mut |_| {});
            let said = probes.probes().into_iter().find(|probe| probe.name == "poll_cq").and_then(|probe| probe.reason);
            if let Some(reason) = said.filter(|reason| reason.starts_with("paused")) {
                seen.reason = Some(reason);
            }
        }
        let now = work.so_far();
        let bound = (now.0 - then.0) / begin.elapsed().as_secs_f64();
        let lost_ns = (now.1 - then.1) - (now.0 - then.0) * poll_ns;
        seen.lost_share.push(lost_ns / begin.elapsed().as_nanos() as f64);
        seen.polls_per_s.push((free, bound));
        seen.elapsed_ns += (clock::monotonic_ns() - begin_ns) as f64;
        let after = probes.spent();
        seen.hits += after.0 - before.0;
        seen.cost_ns += after.1 - before.1;
        if let Some(running) = &probes.running {
            seen.window = running.governor.window().or(seen.window);
            seen.hit_ns = running.costs.of([false; 2]).hit.0[1];
        }
        seen.programs_ns += probes.run_time_ns();
    }
    Ok(seen)
}

impl Probes {
    /// Hits so far and their estimated cost, ns.
    fn spent(&self) -> (u64, f64) {
        self.running.as_ref().map_or((0, 0.0), |running| {
            let hits = running.maps.totals().map_or(0, |totals| totals.hits + totals.poll_hits);
            (hits, running.governor.spent_ns())
        })
    }

    /// Time of the polling programs by the kernel's statistics, ns.
    fn run_time_ns(&mut self) -> f64 {
        let Some(ebpf) = self.attached.ebpf() else { return 0.0 };
        let mut sum = 0.0;
        for name in ["poll_cq", "poll_cq_return"] {
            if let Some(Ok(probe)) = ebpf.program_mut(name).map(<&mut UProbe>::try_from)
                && loaded(probe.load()).is_ok()
                && let Ok(info) = probe.info()
            {
                sum += info.run_time().as_nanos() as f64;
            }
        }
        sum
    }
}
