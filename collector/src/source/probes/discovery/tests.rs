//! Discovery over processes of this machine.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::*;

/// Stands for a provider's functions: that they differ is what counts.
fn poll_cq(cq: u64) -> u64 {
    cq + 1
}
fn post_send(qp: u64) -> u64 {
    qp + 2
}
fn post_recv(qp: u64) -> u64 {
    qp + 3
}

/// Run as a process of its own by the tests below: has an `ibv_context` on its heap and a device's file open.
#[test]
#[ignore = "tool: the process that other tests look at"]
fn a_process_with_a_context() {
    let Some(device) = std::env::var_os("DEVICE") else { return };
    let _open = fs::File::open(device).expect("the device's file");
    let mut context = Box::new([0_u64; 44]);
    context[0] = context.as_ptr() as u64;
    context[96 / 8] = poll_cq as *const () as u64;
    context[208 / 8] = post_send as *const () as u64;
    context[216 / 8] = post_recv as *const () as u64;
    context[264 / 8] = 9 << 32 | 8;
    context[320 / 8] = u64::MAX;
    println!("\nready {}", context[208 / 8]);
    let _ = std::io::stdin().read(&mut [0]);
    std::hint::black_box(&context);
}

struct Running {
    child: Child,
    post_send: u64,
    /// Kept, so that it can be written to until the end.
    _output: BufReader<ChildStdout>,
    _files: tempfile::TempDir,
}

impl Running {
    /// Starts a copy of this program under a provider's name, as if the provider were linked into it.
    fn start() -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let program = files.path().join("libtest-rdmav34.so");
        fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
        fs::create_dir(files.path().join("infiniband")).expect("a directory");
        let device = files.path().join("infiniband/uverbs0");
        fs::write(&device, "").expect("a file");
        let mut child = Command::new(&program)
            .args(["--ignored", "--nocapture", "--exact"])
            .arg("source::probes::discovery::tests::a_process_with_a_context")
            .env("DEVICE", &device)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let ready =
            output.by_ref().lines().map_while(Result::ok).find_map(|line| line.strip_prefix("ready ")?.parse().ok());
        Self { child, post_send: ready.expect("it says where its function is"), _output: output, _files: files }
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends with its input");
    }
}

fn news(discovery: &mut Discovery) -> News {
    discovery.wait(Duration::from_secs(60));
    discovery.news().expect("the thread answers")
}

#[test]
fn a_process_with_a_build_of_its_own_is_found_by_its_context_and_forgotten_with_its_file() {
    let mut running = Running::start();
    let pid = running.child.id();
    let mut discovery = Discovery::new(Path::new("/proc"));
    discovery.saw(pid);
    discovery.work(&|_| false);
    let found = news(&mut discovery);
    let places: HashMap<_, _> = found.places.into_iter().collect();
    let place = places.get(&Operation::PostSend).unwrap_or_else(|| panic!("{:?}", discovery.missing()));
    assert_eq!(places.len(), 3);
    // The same place by its address, as when a probe reports it.
    let taken = discovery.take(pid, &[(Operation::PostSend, running.post_send), (Operation::PostRecv, 0)]);
    assert_eq!(taken, [(Operation::PostSend, place.clone())]);
    assert!(discovery.missing().is_empty());
    // The file can be opened by what was found, and is the one that is mapped.
    let library = super::super::library::Library::open(place.reachable()).expect("it is there");
    assert!(library.code(place.offset).expect("64 bits").is_ok());
    let file = place.file();
    assert_eq!(discovery.unused(), []);
    running.end();
    assert_eq!(discovery.unused(), [file]);
}

#[test]
fn a_process_whose_provider_is_known_is_not_searched() {
    let mut running = Running::start();
    let mut discovery = Discovery::new(Path::new("/proc"));
    discovery.take(running.child.id(), &[(Operation::PostSend, running.post_send)]);
    let file = discovery.files().next().expect("it maps a provider");
    discovery.keep(file);
    discovery.known.clear();
    discovery.saw(running.child.id());
    discovery.work(&|other| other == file);
    assert!(news(&mut discovery).places.is_empty());
    assert_eq!(discovery.known.len(), 1);
    running.end();
    // The host's own file stays, whoever maps it.
    assert_eq!(discovery.unused(), []);
}

#[test]
fn a_process_without_a_context_is_named_with_its_reason() {
    let process = |pid, reason: &str| Process {
        pid,
        comm: "train".to_owned(),
        missing: Some(reason.into()),
        ..Process::default()
    };
    let mut discovery = Discovery::new(Path::new("/proc"));
    for pid in 10..16 {
        discovery.remember(process(pid, "started before us, unknown provider build"));
    }
    let missing = discovery.missing();
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].what, "what train (10), train (11), train (12), train (13) and 2 more posts");
    assert_eq!(missing[0].reason, "started before us, unknown provider build");
}

/// What is told now: process ids with the names of their ways.
fn told(discovery: &mut Discovery) -> Vec<(u32, Vec<&'static str>)> {
    let mut all = Vec::new();
    discovery.tell(&mut |process| {
        all.push((process.pid, process.unseen.iter().map(|unseen| unseen.way.name()).collect()));
    });
    all
}

#[test]
fn the_ways_of_a_process_are_told_when_they_change_and_when_it_ends() {
    let mut discovery = Discovery::new(Path::new("/proc"));
    let process = |ways: &[Way], missing: Option<&str>| Process {
        // There is no such process, so it is found to be gone at the next look.
        pid: u32::MAX,
        ways: ways.iter().map(|way| (*way, "libx.so".to_owned())).collect(),
        missing: missing.map(Into::into),
        ..Process::default()
    };
    discovery.remember(process(&[], None));
    assert_eq!(told(&mut discovery), []);
    discovery.remember(process(&[Way::UcxMlx5], Some("unknown")));
    assert_eq!(told(&mut discovery), [(u32::MAX, vec!["ucx_mlx5", "unknown_provider"])]);
    discovery.remember(process(&[Way::UcxMlx5], Some("unknown")));
    assert_eq!(told(&mut discovery), [], "nothing is new");
    discovery.remember(process(&[Way::UcxMlx5], None));
    assert_eq!(told(&mut discovery), [(u32::MAX, vec!["ucx_mlx5"])]);
    let mut next = Discovery::new(Path::new("/proc"));
    next.inherit(&mut discovery);
    assert_eq!(told(&mut next), [(u32::MAX, vec![])], "the next one does not know it");
    discovery.remember(process(&[Way::UcxMlx5], None));
    assert_eq!(told(&mut discovery), [(u32::MAX, vec!["ucx_mlx5"])]);
    discovery.unused();
    assert_eq!(told(&mut discovery), [(u32::MAX, vec![])]);
}

#[test]
fn a_process_that_makes_qps_later_is_looked_at_again_for_what_it_has_loaded_since() {
    let mut discovery = Discovery::new(Path::new("/proc"));
    let process = |missing: Option<&str>| Process {
        pid: 77,
        has_device: true,
        missing: missing.map(Into::into),
        looked: Some(0),
        ..Process::default()
    };
    discovery.remember(process(None));
    discovery.saw(77);
    assert!(discovery.asked.is_empty(), "it was looked at a moment ago");
    discovery.round += 1;
    discovery.saw(77);
    assert!(discovery.asked.contains(&77));
    discovery.asked.clear();
    discovery.remember(process(Some("searched in vain")));
    discovery.round += 1;
    discovery.saw(77);
    assert!(discovery.asked.is_empty());
}

#[test]
fn a_process_that_told_where_it_posts_before_it_was_looked_at_is_still_looked_at() {
    let mut discovery = Discovery::new(Path::new("/proc"));
    let own = std::process::id();
    let taken = discovery.take(own, &[(Operation::PostSend, post_send as *const () as u64)]);
    assert_eq!(taken.len(), 1);
    discovery.saw(own);
    assert!(discovery.asked.contains(&own));
}

#[test]
fn a_process_that_uses_verbs_and_may_not_be_looked_at_is_counted() {
    let proc = tempfile::tempdir().expect("a temporary directory");
    // A directory in place of a file cannot be read, whoever asks.
    fs::create_dir_all(proc.path().join("7/maps")).expect("a directory");
    let mut discovery = Discovery::new(proc.path());
    discovery.look_at_all();
    discovery.work(&|_| false);
    news(&mut discovery);
    assert!(discovery.missing().is_empty(), "nothing says that it uses verbs");
    discovery.saw(7);
    discovery.work(&|_| false);
    news(&mut discovery);
    assert!(discovery.missing()[0].reason.starts_with("1 processes may not be looked at"), "{:?}", discovery.missing());
}
