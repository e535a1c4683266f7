//! CPU of one poll of a tree with 9 NICs and 423 files, beside a C loop that preads the same files on kept-open
//! descriptors. Both in one run, the best round of each.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use collector::source::Source;
use collector::source::files::RootedFiles;
use collector::source::sysfs::{SysfsOptions, SysfsSource};
use rustix::time::{ClockId, clock_gettime};

mod nine_nics;

const ROUNDS: u32 = 300;

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("CPU time is not negative")
}

/// The C loop's best round, ns; `None` without a C compiler.
fn c_loop(dir: &Path, files: &[PathBuf]) -> Option<u64> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/pread.c");
    let program = dir.join("pread");
    let compiled = Command::new("cc").arg("-O2").arg(&source).arg("-o").arg(&program).status().ok()?;
    if !compiled.success() {
        return None;
    }
    let mut child =
        Command::new(&program).arg(ROUNDS.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    {
        let mut input = child.stdin.take()?;
        for file in files {
            writeln!(input, "{}", file.display()).ok()?;
        }
    }
    let output = child.wait_with_output().ok()?;
    String::from_utf8(output.stdout).ok()?.split(' ').next()?.parse().ok()
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let root = dir.path().join("sys");
    let files = nine_nics::tree(&root);
    let mut source = SysfsSource::new(SysfsOptions::new(Arc::new(RootedFiles::new(&root).expect("the tree is there"))));
    let mut values = 0usize;
    let mut poll = |t: u64| {
        let start = cpu_ns();
        source.poll(t, &mut |observation| {
            if let collector::observation::Body::Counters(counters) = &observation.body {
                values += counters.values.len();
            }
        });
        cpu_ns() - start
    };
    poll(1);
    // Every tenth second the source looks at what seldom changes; the best round is an ordinary one.
    let ours = (1..=u64::from(ROUNDS)).map(|round| poll(round * 1_000_000_000)).min().unwrap_or(0);
    println!("files           {:>9}", files.len());
    println!("values a poll   {:>9}", values / (ROUNDS as usize + 1));
    println!("one poll        {:>9.3} ms", ours as f64 / 1e6);
    match c_loop(dir.path(), &files) {
        Some(c) => {
            println!("C loop          {:>9.3} ms", c as f64 / 1e6);
            println!("ratio           {:>9.2}   (target 3)", ours as f64 / c as f64);
        }
        None => println!("C loop          not measured: no C compiler (cc)"),
    }
}
