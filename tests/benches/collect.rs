//! CPU of one second of `collect` (one poll of a tree with 9 NICs and 423 files, the engine; with and without its page
//! scraped once) beside one scrape of `node_exporter` with nothing but its `infiniband` collector, and a C loop that preads
//! the same files. Resident memory of both, without eBPF.
//!
//! All of them run in the same seconds, so that the machine's mood hits all. What is counted is the CPU time of all threads
//! of a process (`/proc/PID/task/*/schedstat`, user and system) over all seconds, divided by their number: what `collect`
//! does every ten seconds has its share in it. The C loop is measured twice. In the tight loop its caches are warm; one pass
//! a second, as `collect` makes it, finds them cold like `collect` does, and is the one to compare with.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use end_to_end::binary::{command, wait_until};
use end_to_end::http::get;

#[path = "../../collector/benches/nine_nics/mod.rs"]
mod nine_nics;

/// Seconds, and scrapes, that are measured: four of those in ten that have more to do.
const ROUNDS: u32 = 40;
const LONG: Duration = Duration::from_secs(30);

/// A process that is ended with the benchmark.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(command: &mut Command) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Self)
    }

    /// CPU time of all its threads, ms.
    fn cpu_ms(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it runs");
        let ns = tasks.flatten().filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        ns.sum::<u64>() as f64 / 1e6
    }

    /// CPU time in user and in system mode, in the kernel's ticks: it looks which of the two it is at each tick, so short work
    /// is told apart only roughly.
    fn modes(&self) -> [u64; 2] {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it runs");
        // The name, in brackets, can hold spaces; utime and stime are the 14th and 15th field (proc_pid_stat(5)).
        let rest = stat.rsplit_once(") ").expect("a name in brackets").1;
        let ticks = |at: usize| rest.split(' ').nth(at).and_then(|word| word.parse().ok()).expect("a number");
        [ticks(11), ticks(12)]
    }

    /// Resident memory, MiB.
    fn resident_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has memory");
        let kib: f64 = line.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
        kib / 1024.0
    }
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// One process under measurement.
struct Measured {
    process: Running,
    page: Option<SocketAddr>,
    wanted: &'static str,
    before: (f64, [u64; 2]),
}

/// What a second of it takes.
struct Figures {
    cpu_ms: f64,
    /// Share of it in system mode, roughly; `None` when the kernel saw none of it.
    system: Option<f64>,
    mib: f64,
}

impl Measured {
    fn new(process: Running, page: Option<SocketAddr>, wanted: &'static str) -> Self {
        Self { process, page, wanted, before: (0.0, [0; 2]) }
    }

    fn wait_for_page(&self) {
        let Some(page) = self.page else { return };
        let served = || get(page, "/metrics").is_some_and(|(status, body)| status == 200 && body.contains(self.wanted));
        assert!(wait_until(LONG, served), "no page with {}", self.wanted);
    }

    fn scrape(&self) {
        if let Some(page) = self.page {
            assert_eq!(get(page, "/metrics").map(|(status, _)| status), Some(200));
        }
    }

    fn begin(&mut self) {
        self.before = (self.process.cpu_ms(), self.process.modes());
    }

    fn end(&self, seconds: f64) -> Figures {
        let cpu_ms = (self.process.cpu_ms() - self.before.0) / seconds;
        let [user, system] = self.process.modes();
        let (user, system) = ((user - self.before.1[0]) as f64, (system - self.before.1[1]) as f64);
        let share = (user + system > 0.0).then(|| system / (user + system));
        Figures { cpu_ms, system: share, mib: self.process.resident_mib() }
    }
}

impl Figures {
    fn print(&self, name: &str, unit: &str) {
        let system = self.system.map_or_else(String::new, |share| format!("   about {:>3.0} % system", share * 100.0));
        println!("{name:24} {:>9.3} ms CPU a {unit}   {:>5.1} MiB{system}", self.cpu_ms, self.mib);
    }
}

fn ours(root: &Path, page: bool) -> Measured {
    let at = free();
    let mut command = command(["collect", "--no-ebpf", "--socket", "off", "--sysfs-root"]);
    command.arg(root);
    if page {
        command.args(["--prometheus", &at.to_string()]);
    }
    let process = Running::start(&mut command).expect("the binary starts");
    Measured::new(process, page.then_some(at), "hw_network_io_bytes_total{")
}

fn node_exporter(root: &Path) -> Option<Measured> {
    let at = free();
    let process = Running::start(
        Command::new("prometheus-node-exporter")
            .arg(format!("--path.sysfs={}", root.display()))
            .arg(format!("--web.listen-address={at}"))
            .args(["--collector.disable-defaults", "--collector.infiniband", "--web.disable-exporter-metrics"]),
    )?;
    Some(Measured::new(process, Some(at), "node_infiniband_port_data_received_bytes_total{"))
}

/// The C loop's program; `None` without a C compiler.
fn c_program(dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collector/benches/pread.c");
    let program = dir.join("pread");
    let compiled = Command::new("cc").arg("-O2").arg(&source).arg("-o").arg(&program).status().ok()?;
    compiled.success().then_some(program)
}

/// Starts it over the files, with a pause before each round.
fn c_start(program: &Path, files: &[PathBuf], rounds: u32, pause_ms: u32) -> Option<Child> {
    let arguments = [rounds.to_string(), pause_ms.to_string()];
    let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut input = child.stdin.take()?;
    for file in files {
        writeln!(input, "{}", file.display()).ok()?;
    }
    Some(child)
}

/// Its best round and the mean of all, ms.
fn c_end(child: Child) -> Option<(f64, f64)> {
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let ms = |at: usize| Some(text.split_ascii_whitespace().nth(at)?.parse::<f64>().ok()? / 1e6);
    Some((ms(0)?, ms(3)?))
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let root = dir.path().join("sys");
    let files = nine_nics::tree(&root);
    let program = c_program(dir.path());
    let warm = program.as_deref().and_then(|program| c_start(program, &files, 300, 0)).and_then(c_end);
    let mut all = vec![ours(&root, false), ours(&root, true)];
    all.extend(node_exporter(&root));
    all.iter().for_each(Measured::wait_for_page);
    let cold = program.as_deref().and_then(|program| c_start(program, &files, ROUNDS, 1_000));
    let second = |all: &[Measured]| {
        let begin = Instant::now();
        all.iter().for_each(Measured::scrape);
        std::thread::sleep(Duration::from_secs(1).saturating_sub(begin.elapsed()));
    };
    // The first seconds have what is done once.
    (0..5).for_each(|_| second(&all));
    all.iter_mut().for_each(Measured::begin);
    let begin = Instant::now();
    (0..ROUNDS).for_each(|_| second(&all));
    let seconds = begin.elapsed().as_secs_f64();
    let figures: Vec<Figures> = all.iter().map(|measured| measured.end(seconds)).collect();
    drop(all);
    let cold = cold.and_then(c_end);

    println!("files                    {:>9}", files.len());
    println!("measured                 {seconds:>9.1} s, a tick and a scrape each second; CPU of all threads / s");
    let (bare, scraped) = (&figures[0], &figures[1]);
    bare.print("collect, no page", "second");
    scraped.print("collect, page scraped", "second");
    match figures.get(2) {
        Some(theirs) => {
            theirs.print("node_exporter", "scrape");
            println!("ratio CPU, no page       {:>9.2}   (target 0.25)", bare.cpu_ms / theirs.cpu_ms);
            println!(
                "ratio CPU, page scraped  {:>9.2}   (target 0.25; like with like)",
                scraped.cpu_ms / theirs.cpu_ms
            );
            println!("ratio memory             {:>9.2}   (target 1)", scraped.mib / theirs.mib);
        }
        None => println!("node_exporter            not measured: no prometheus-node-exporter"),
    }
    match warm.zip(cold) {
        Some(((warm, _), (_, cold))) => {
            println!("C loop, tight            {warm:>9.3} ms (the best of 300 rounds)");
            println!("C loop, a pass a second  {cold:>9.3} ms (mean)");
            println!("ratio, tight             {:>9.2}   (target 4)", bare.cpu_ms / warm);
            println!("ratio, a pass a second   {:>9.2}   (target 4; like with like)", bare.cpu_ms / cold);
        }
        None => println!("C loop                   not measured: no C compiler (cc)"),
    }
}
