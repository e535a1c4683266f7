//! Discovery over processes of this machine.

#![allow(unsafe_code, reason = "a symbol with a name of libibverbs: this program is not linked with it")]

mod files;
mod looks;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use std::fs;

use super::*;
use crate::source::verbs::{Operation, Place, maps};

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

/// What makes this program one that has libibverbs inside.
#[unsafe(no_mangle)]
extern "C" fn ibv_open_device(device: u64) -> u64 {
    device + 4
}

/// Run as a process of its own by the tests below: has an `ibv_context` on its heap and a device's file open.
#[test]
#[ignore = "tool: the process that other tests look at"]
fn a_process_with_a_context() {
    let Some(device) = std::env::var_os("DEVICE") else { return };
    // The kernel keeps 15 bytes of it: seven characters and a half.
    fs::write("/proc/self/comm", "обучение").expect("one's own name");
    let _open = fs::File::open(device).expect("the device's file");
    let mut context = Box::new([0_u64; 44]);
    context[0] = context.as_ptr() as u64;
    context[96 / 8] = poll_cq as *const () as u64;
    context[208 / 8] = post_send as *const () as u64;
    context[216 / 8] = post_recv as *const () as u64;
    context[264 / 8] = 9 << 32 | 8;
    context[320 / 8] = u64::MAX;
    // As many bytes behind its start as the test wants, and where it wants it.
    let shift: u64 = std::env::var("SHIFT").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    for at in [96 / 8, 208 / 8, 216 / 8] {
        context[at] += shift;
    }
    std::hint::black_box(ibv_open_device(1));
    println!("\nready {}", context[208 / 8]);
    let _ = std::io::stdin().read(&mut [0]);
    std::hint::black_box(&context);
}

/// A device that everybody may open, in place of one of verbs: 1:7 on every Linux
/// (Documentation/admin-guide/devices.txt).
const DEVICE: &str = "/dev/full";

struct Running {
    child: Child,
    post_send: u64,
    /// Kept, so that it can be written to until the end.
    _output: BufReader<ChildStdout>,
    files: tempfile::TempDir,
}

impl Running {
    /// Starts a copy of this program under a provider's name, as if the provider were linked into it.
    fn start() -> Self {
        Self::with(DEVICE, 0)
    }

    /// The same with another file for its device, and functions that begin elsewhere.
    fn with(device: &str, shift: u64) -> Self {
        Self::named("libtest-rdmav34.so", device, shift)
    }

    /// The same with another name.
    fn named(name: &str, device: &str, shift: u64) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let program = files.path().join(name);
        // By a process of its own: a child that another test starts meanwhile would have what is written here open, too,
        // and what is open for writing cannot be run.
        let copied = Command::new("cp").arg(std::env::current_exe().expect("this program")).arg(&program).status();
        assert!(copied.is_ok_and(|status| status.success()));
        let class = files.path().join("class/uverbs0");
        fs::create_dir_all(&class).expect("a directory");
        fs::write(class.join("dev"), "1:7\n").expect("a file");
        fs::create_dir(files.path().join("infiniband")).expect("a directory");
        fs::write(files.path().join("infiniband/uverbs0"), "").expect("a file");
        let mut child = Command::new(&program)
            .args(["--ignored", "--nocapture", "--exact"])
            .arg("source::probes::discovery::tests::a_process_with_a_context")
            .env("DEVICE", files.path().join(device))
            .env("SHIFT", shift.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let ready =
            output.by_ref().lines().map_while(Result::ok).find_map(|line| line.strip_prefix("ready ")?.parse().ok());
        Self { child, post_send: ready.expect("it says where its function is"), _output: output, files }
    }

    /// The processes of this machine, where the device is one of verbs.
    fn discovery(&self) -> Discovery {
        Discovery { class: self.files.path().join("class"), ..Discovery::new(Path::new("/proc")) }
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends with its input");
    }
}

/// What the looks find that go on.
fn found(discovery: &mut Discovery) -> Vec<Opened> {
    let mut all = Vec::new();
    while discovery.is_busy() {
        assert!(discovery.wait(Duration::from_secs(60)), "the thread answers");
        discovery.take();
        all.extend(discovery.next(usize::MAX));
    }
    all
}

/// The same where nothing is known.
fn look(discovery: &mut Discovery) -> Vec<Opened> {
    discovery.work(&mut Addresses::default(), &Known::default);
    found(discovery)
}

/// What a process told.
fn told_addresses(pid: u32, addresses: &[(Operation, u64)]) -> Addresses {
    let mut told = Addresses::default();
    assert!(told.add(pid, addresses.iter().copied()));
    told
}

/// The places of addresses that a process told.
fn take(discovery: &mut Discovery, pid: u32, addresses: &[(Operation, u64)]) -> Vec<Opened> {
    discovery.work(&mut told_addresses(pid, addresses), &Known::default);
    found(discovery)
}

/// What is known when these are attached to.
fn attached_to(places: &[Opened]) -> Known {
    Known {
        sites: places.iter().map(Opened::key).collect(),
        files: places.iter().map(|opened| (opened.place.file(), opened.place.file())).collect(),
        ..Known::default()
    }
}

#[test]
fn a_process_with_a_build_of_its_own_is_found_by_its_context_and_forgotten_with_its_file() {
    let mut running = Running::start();
    let pid = running.child.id();
    let mut discovery = running.discovery();
    discovery.saw(pid);
    let found = look(&mut discovery);
    let place = found.iter().find(|opened| opened.operation == Some(Operation::PostSend));
    let place = &place.unwrap_or_else(|| panic!("{:?}", discovery.missing())).place;
    assert_eq!(found.len(), 3);
    // The same place by its address, as when a probe reports it.
    let taken = take(&mut discovery, pid, &[(Operation::PostSend, running.post_send), (Operation::PostRecv, 0)]);
    assert_eq!(
        taken.iter().map(Opened::key).collect::<Vec<_>>(),
        [(Some(Operation::PostSend), place.file(), place.offset)]
    );
    assert!(discovery.missing().is_empty());
    // The file could be opened by what was found, and is the one that is mapped.
    let (library, point) = taken[0].found.as_ref().map_err(|refusal| &refusal.why).expect("it is attached to");
    assert!(library.code().around(place.offset).expect("64 bits").is_ok() && point.is_ok());
    let file = place.file();
    assert_eq!(discovery.unused([file].into(), &|file| file), []);
    running.end();
    assert_eq!(discovery.unused([file].into(), &|file| file), [file]);
}

#[test]
fn a_process_whose_provider_is_known_is_not_searched() {
    let mut running = Running::start();
    let mut discovery = running.discovery();
    let places = take(&mut discovery, running.child.id(), &[(Operation::PostSend, running.post_send)]);
    let file = discovery.files().next().expect("it maps a provider");
    discovery.keep(file);
    discovery.known.clear();
    discovery.saw(running.child.id());
    discovery.work(&mut Addresses::default(), &|| attached_to(&places));
    assert!(found(&mut discovery).is_empty());
    assert_eq!(discovery.known.len(), 1);
    running.end();
    // The host's own file stays, whoever maps it.
    assert_eq!(discovery.unused([file].into(), &|file| file), []);
}

#[test]
fn a_file_that_is_called_like_a_device_is_none() {
    let mut running = Running::with("infiniband/uverbs0", 0);
    let mut discovery = running.discovery();
    discovery.saw(running.child.id());
    assert!(look(&mut discovery).is_empty());
    assert!(take(&mut discovery, running.child.id(), &[(Operation::PostSend, running.post_send)]).is_empty());
    running.end();
}

#[test]
fn a_process_may_map_a_file_when_it_was_seen_to_or_is_not_known() {
    let file = |inode| ((8, 1), inode);
    let mut discovery = Discovery::new(Path::new("/proc"));
    discovery.remember(Process { pid: 7, files: vec![file(1)], ..Process::default() });
    let may = |pid, inode| discovery.may_map(pid, &HashSet::from([file(inode)]));
    assert!(may(Some(7), 1) && !may(Some(7), 2) && may(Some(8), 2) && may(None, 2));
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
    discovery.unused(HashSet::new(), &|file| file);
    assert_eq!(told(&mut discovery), [(u32::MAX, vec![])]);
}

#[test]
fn what_is_known_of_a_file_is_forgotten_when_no_process_maps_it() {
    let (gone, here) = (((8, 1), 1), ((8, 1), 2));
    let own = process::start_and_name(Path::new("/proc/self")).expect("its form").0;
    let mut discovery = Discovery::new(Path::new("/proc"));
    discovery.calls.lock().expect("nobody panicked").extend([(gone, vec![Way::Devx]), (here, vec![])]);
    for (pid, file) in [(u32::MAX, gone), (std::process::id(), here)] {
        discovery.remember(Process { pid, start: own, looked_into: vec![file], ..Process::default() });
    }
    discovery.unused(HashSet::new(), &|file| file);
    assert!(discovery.calls.lock().expect("nobody panicked").keys().eq([&here]));
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
    let mut running = Running::start();
    let pid = running.child.id();
    let mut discovery = running.discovery();
    assert_eq!(take(&mut discovery, pid, &[(Operation::PostSend, running.post_send)]).len(), 1);
    discovery.saw(pid);
    assert!(discovery.asked.contains(&pid));
    running.end();
}

#[test]
fn a_process_that_uses_verbs_and_may_not_be_looked_at_is_counted() {
    let proc = tempfile::tempdir().expect("a temporary directory");
    // A directory in place of a file cannot be read, whoever asks.
    fs::create_dir_all(proc.path().join("7/maps")).expect("a directory");
    let mut discovery = Discovery::new(proc.path());
    discovery.look_at_all();
    look(&mut discovery);
    assert!(discovery.missing().is_empty(), "nothing says that it uses verbs");
    let mut looked = Looked::default();
    looked.failed(7, &std::io::Error::from_raw_os_error(libc::EACCES));
    let (sender, receiver) = std::sync::mpsc::channel();
    sender.send(looked).expect("it is taken");
    discovery.look = Some(receiver.into());
    discovery.take();
    discovery.saw(7);
    assert!(discovery.asked.is_empty(), "it would be refused again");
    assert!(discovery.missing()[0].reason.starts_with("1 processes may not be looked at"), "{:?}", discovery.missing());
}
