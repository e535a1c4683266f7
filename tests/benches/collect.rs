//! CPU of one second of `collect` (one poll of a tree with 9 NICs and 423 files, the engine, the page scraped once) beside
//! one scrape of `node_exporter` with nothing but its `infiniband` collector, and a C loop that preads the same files. CPU
//! time of all threads from `/proc/PID/task/*/schedstat`; resident memory of both, without eBPF.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use end_to_end::binary::{command, wait_until};
use end_to_end::http::get;

#[path = "../../collector/benches/nine_nics/mod.rs"]
mod nine_nics;

/// Seconds, and scrapes, that are measured.
const ROUNDS: u32 = 20;
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

/// CPU of a second with a scrape, ms, and resident memory, MiB.
fn measure(process: &Running, page: Option<SocketAddr>, wanted: &str) -> (f64, f64) {
    if let Some(page) = page {
        let served = || get(page, "/metrics").is_some_and(|(status, body)| status == 200 && body.contains(wanted));
        assert!(wait_until(LONG, served), "no page with {wanted}");
    }
    let second = |scrape: bool| {
        let begin = Instant::now();
        if let Some(page) = page.filter(|_| scrape) {
            assert_eq!(get(page, "/metrics").map(|(status, _)| status), Some(200));
        }
        std::thread::sleep(Duration::from_secs(1).saturating_sub(begin.elapsed()));
    };
    (0..5).for_each(|_| second(true));
    let before = process.cpu_ms();
    (0..ROUNDS).for_each(|_| second(true));
    ((process.cpu_ms() - before) / f64::from(ROUNDS), process.resident_mib())
}

fn ours(root: &Path, page: bool) -> (f64, f64) {
    let at = free();
    let mut command = command(["collect", "--no-ebpf", "--socket", "off", "--sysfs-root"]);
    command.arg(root);
    if page {
        command.args(["--prometheus", &at.to_string()]);
    }
    let process = Running::start(&mut command).expect("the binary starts");
    measure(&process, page.then_some(at), "hw_network_io_bytes_total{")
}

fn node_exporter(root: &Path) -> Option<(f64, f64)> {
    let at = free();
    let process = Running::start(
        Command::new("prometheus-node-exporter")
            .arg(format!("--path.sysfs={}", root.display()))
            .arg(format!("--web.listen-address={at}"))
            .args(["--collector.disable-defaults", "--collector.infiniband", "--web.disable-exporter-metrics"]),
    )?;
    Some(measure(&process, Some(at), "node_infiniband_port_data_received_bytes_total{"))
}

/// The C loop's best round, ms; `None` without a C compiler.
fn c_loop(dir: &Path, files: &[PathBuf]) -> Option<f64> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collector/benches/pread.c");
    let program = dir.join("pread");
    if !Command::new("cc").arg("-O2").arg(&source).arg("-o").arg(&program).status().ok()?.success() {
        return None;
    }
    let mut child = Command::new(&program).arg("300").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    {
        let mut input = child.stdin.take()?;
        for file in files {
            writeln!(input, "{}", file.display()).ok()?;
        }
    }
    let output = child.wait_with_output().ok()?;
    let ns: f64 = String::from_utf8(output.stdout).ok()?.split(' ').next()?.parse().ok()?;
    Some(ns / 1e6)
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let root = dir.path().join("sys");
    let files = nine_nics::tree(&root);
    let (bare, bare_mib) = ours(&root, false);
    let (ours, ours_mib) = ours(&root, true);
    println!("files                    {:>9}", files.len());
    println!("collect, no page         {bare:>9.3} ms CPU a second   {bare_mib:>7.1} MiB");
    println!("collect, page scraped    {ours:>9.3} ms CPU a second   {ours_mib:>7.1} MiB");
    match node_exporter(&root) {
        Some((theirs, theirs_mib)) => {
            println!("node_exporter            {theirs:>9.3} ms CPU a scrape   {theirs_mib:>7.1} MiB");
            println!("ratio CPU                {:>9.2}   (target 0.25)", ours / theirs);
            println!("ratio memory             {:>9.2}   (target 1)", ours_mib / theirs_mib);
        }
        None => println!("node_exporter            not measured: no prometheus-node-exporter"),
    }
    match c_loop(dir.path(), &files) {
        Some(c) => {
            println!("C loop                   {c:>9.3} ms");
            println!("ratio, no page           {:>9.2}   (target 4)", bare / c);
            println!("ratio, page scraped      {:>9.2}", ours / c);
        }
        None => println!("C loop                   not measured: no C compiler (cc)"),
    }
}
