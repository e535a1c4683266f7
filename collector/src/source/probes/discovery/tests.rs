//! Discovery over processes of this machine.

#![allow(unsafe_code, reason = "a symbol with a name of libibverbs: this program is not linked with it")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::source::verbs::maps;

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
        let files = tempfile::tempdir().expect("a temporary directory");
        let program = files.path().join("libtest-rdmav34.so");
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

fn news(discovery: &mut Discovery) -> News {
    let mut all = News::default();
    while discovery.job.is_some() {
        discovery.wait(Duration::from_secs(60));
        let mut news = discovery.news().expect("the thread answers");
        all.places.append(&mut news.places);
        all.modify_qp.append(&mut news.modify_qp);
    }
    all
}

/// The places of addresses that a process told.
fn take(discovery: &mut Discovery, pid: u32, addresses: &[(Operation, u64)]) -> Vec<(Operation, Place)> {
    let mut told = Addresses::default();
    assert!(told.add(pid, addresses.iter().copied()));
    discovery.told(told);
    discovery.work(&|_| false);
    news(discovery).places
}

#[test]
fn a_process_with_a_build_of_its_own_is_found_by_its_context_and_forgotten_with_its_file() {
    let mut running = Running::start();
    let pid = running.child.id();
    let mut discovery = running.discovery();
    discovery.saw(pid);
    discovery.work(&|_| false);
    let found = news(&mut discovery);
    let places: HashMap<_, _> = found.places.into_iter().collect();
    let place = places.get(&Operation::PostSend).unwrap_or_else(|| panic!("{:?}", discovery.missing()));
    assert_eq!(places.len(), 3);
    // The same place by its address, as when a probe reports it.
    let taken = take(&mut discovery, pid, &[(Operation::PostSend, running.post_send), (Operation::PostRecv, 0)]);
    assert_eq!(taken, [(Operation::PostSend, place.clone())]);
    assert!(discovery.missing().is_empty());
    // The file can be opened by what was found, and is the one that is mapped.
    let library = super::super::library::Library::open(place.reachable()).expect("it is there");
    assert!(library.code(place.offset).expect("64 bits").is_ok());
    assert_eq!(library.admits(place.offset).map_err(|why| why.reason), Ok(()));
    let file = place.file();
    assert_eq!(discovery.unused(&|file| file), []);
    running.end();
    assert_eq!(discovery.unused(&|file| file), [file]);
}

#[test]
fn a_process_whose_provider_is_known_is_not_searched() {
    let mut running = Running::start();
    let mut discovery = running.discovery();
    take(&mut discovery, running.child.id(), &[(Operation::PostSend, running.post_send)]);
    let file = discovery.files().next().expect("it maps a provider");
    discovery.keep(file);
    discovery.known.clear();
    discovery.saw(running.child.id());
    discovery.work(&|other| other == file);
    assert!(news(&mut discovery).places.is_empty());
    assert_eq!(discovery.known.len(), 1);
    running.end();
    // The host's own file stays, whoever maps it.
    assert_eq!(discovery.unused(&|file| file), []);
}

#[test]
fn a_file_that_is_called_like_a_device_is_none() {
    let mut running = Running::with("infiniband/uverbs0", 0);
    let mut discovery = running.discovery();
    discovery.saw(running.child.id());
    discovery.work(&|_| false);
    assert!(news(&mut discovery).places.is_empty());
    assert!(take(&mut discovery, running.child.id(), &[(Operation::PostSend, running.post_send)]).is_empty());
    running.end();
}

#[test]
fn what_a_process_calls_functions_of_a_provider_is_attached_to_only_where_one_begins() {
    use super::super::attach::Attached;
    let mut attached = Attached::new(64);
    if attached.ebpf().is_none() {
        return println!("skipped: no BPF program can be loaded here");
    }
    for (shift, expected) in [(1, false), (0, true)] {
        let mut running = Running::with(DEVICE, shift);
        let mut discovery = running.discovery();
        let addresses = [(Operation::PostSend, running.post_send), (Operation::PostRecv, running.post_send)];
        let places = take(&mut discovery, running.child.id(), &addresses);
        assert_eq!(places.len(), 2, "both lie in the program");
        let file = places[0].1.file();
        for (operation, place) in &places {
            attached.attach(*operation, place);
        }
        assert_eq!(attached.attached_to(file) > 0, expected, "{shift} bytes behind the start");
        assert_eq!(attached.knows(file), expected);
        let reports: Vec<_> = attached.reports().filter(|report| report.name.starts_with("post_")).cloned().collect();
        if expected {
            assert_eq!(reports.len(), 2, "{reports:?}");
        } else {
            assert_eq!(reports.len(), 1, "once for each file: {reports:?}");
            let reason = reports[0].reason.as_deref().expect("it is told");
            assert!(reason.starts_with("the address is not the start of a function of a provider"), "{reason}");
            assert!(!reports[0].attached && reports[0].wanted);
        }
        running.end();
        for file in discovery.unused(&|file| file) {
            attached.detach_file(file);
        }
        assert!(attached.reports().all(|report| !report.name.starts_with("post_")));
    }
}

/// A copy of this program in a file of its own, with the place of `post_send` in it.
fn copy() -> (tempfile::NamedTempFile, Place) {
    use std::os::unix::fs::MetadataExt;
    let maps = fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
    let address = post_send as *const () as u64;
    let mapping = maps::mappings(&maps).find(|mapping| mapping.holds(address)).expect("it is mapped");
    let offset = mapping.place(address).expect("it comes from a file").offset;
    let copy = tempfile::NamedTempFile::new().expect("a temporary directory");
    fs::copy("/proc/self/exe", copy.path()).expect("a copy");
    let facts = fs::metadata(copy.path()).expect("it is there");
    let dev = (rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev()));
    let place = Place { path: copy.path().to_owned(), via: None, dev, inode: facts.ino(), offset };
    (copy, place)
}

/// Two containers that share a layer: the same file through two overlays, in a mount namespace of their own.
struct Containers {
    child: Child,
    _layer: tempfile::TempDir,
}

impl Containers {
    /// With a copy of this program, and its places in both; `None` where no overlay can be mounted.
    fn start() -> Option<(Self, [Place; 2])> {
        use std::os::unix::fs::MetadataExt;
        let (file, place) = copy();
        let layer = tempfile::tempdir().expect("a temporary directory");
        for name in ["lower", "a", "b", "empty"] {
            fs::create_dir(layer.path().join(name)).expect("a directory");
        }
        fs::copy(file.path(), layer.path().join("lower/lib.so")).expect("a copy");
        let mount = |at| format!("mount -t overlay overlay -o lowerdir=lower:empty {at}");
        let script = format!("{} && {} && echo ready && read end", mount("a"), mount("b"));
        let mut child = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .current_dir(layer.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut said = String::new();
        let _ = BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut said);
        let root = PathBuf::from(format!("/proc/{}/root", child.id()));
        let inside = root.join(layer.path().strip_prefix("/").expect("an absolute path"));
        let containers = Self { child, _layer: layer };
        if said != "ready\n" {
            return None;
        }
        let places = ["a", "b"].map(|name| {
            let path = inside.join(name).join("lib.so");
            let facts = fs::metadata(&path).expect("it is there");
            let dev = (rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev()));
            Place { path, dev, inode: facts.ino(), ..place.clone() }
        });
        Some((containers, places))
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn the_end_of_one_container_leaves_the_probes_to_another_that_shares_its_layer() {
    use super::super::attach::Attached;
    let mut attached = Attached::new(64);
    let Some((_containers, [a, b])) = Containers::start() else {
        return println!("skipped: no overlay can be mounted here");
    };
    assert_ne!(a.file(), b.file());
    attached.attach(Operation::PostSend, &a);
    if attached.attached_to(a.file()) == 0 {
        return println!("skipped: no probe can be attached here: {:?}", attached.reports().last());
    }
    assert!(!attached.attach(Operation::PostSend, &b), "it is the same file below");
    assert_eq!((attached.below(b.file()), attached.below(a.file())), (a.file(), a.file()));

    let mut discovery = Discovery::new(Path::new("/proc"));
    let own = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(process::stat).expect("its form").0;
    // The process of the first has ended; that of the second runs.
    let process = |pid, place: &Place| Process { pid, start: own, files: vec![place.file()], ..Process::default() };
    discovery.remember(process(u32::MAX, &a));
    discovery.remember(process(std::process::id(), &b));
    let mut let_go = |discovery: &mut Discovery| {
        for file in discovery.unused(&|file| attached.below(file)) {
            attached.detach_file(file);
        }
        (attached.attached_to(a.file()), attached.knows(b.file()))
    };
    assert_eq!(let_go(&mut discovery), (1, true));
    assert_eq!(discovery.known.len(), 1);
    discovery.known.clear();
    discovery.remember(process(u32::MAX, &b));
    assert_eq!(let_go(&mut discovery), (0, false));
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
fn a_file_that_is_written_over_is_let_go_and_one_that_loses_its_name_is_kept() {
    use super::super::attach::Attached;
    use crate::source::verbs::Group;
    let mut attached = Attached::new(64);
    let (file, place) = copy();
    attached.attach(Operation::PostSend, &place);
    if attached.attached_to(place.file()) == 0 {
        return println!("skipped: no probe can be attached here: {:?}", attached.reports().last());
    }
    assert!(attached.detach_overwritten().is_empty());
    // As an upgrade does it: another file under the name, and processes that still run this one.
    let link = tempfile::tempdir().expect("a temporary directory");
    fs::hard_link(file.path(), link.path().join("other")).expect("both are temporary");
    assert!(attached.detach_overwritten().is_empty() && attached.attached_to(place.file()) == 1);

    let other = fs::read("/proc/self/exe").expect("it can be read");
    fs::write(file.path(), [&other[..], &[0]].concat()).expect("it is writable");
    attached.detach_group(Group::Posts, "for a while");
    attached.attach_group(Group::Posts);
    let reports: Vec<_> = attached.reports().filter(|report| report.name == "post_send").cloned().collect();
    assert_eq!(reports[0].reason.as_deref(), Some("the file was written over since it was looked at"));
    assert_eq!(attached.attached_to(place.file()), 0);

    assert_eq!(attached.detach_overwritten(), HashSet::from([place.file()]));
    assert!(!attached.knows(place.file()));
    assert!(attached.attach(Operation::PostSend, &place), "it is looked at anew");
    assert_eq!(attached.attached_to(place.file()), 1);
    // Attached to, it is found as well.
    fs::write(file.path(), &other).expect("it is writable");
    assert!(!attached.detach_overwritten().is_empty() && attached.attached_to(place.file()) == 0);
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
    discovery.unused(&|file| file);
    assert_eq!(told(&mut discovery), [(u32::MAX, vec![])]);
}

#[test]
fn what_is_known_of_a_file_is_forgotten_when_no_process_maps_it() {
    let (gone, here) = (((8, 1), 1), ((8, 1), 2));
    let own = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(process::stat).expect("its form").0;
    let mut discovery = Discovery::new(Path::new("/proc"));
    discovery.calls.lock().expect("nobody panicked").extend([(gone, vec![Way::Devx]), (here, vec![])]);
    for (pid, file) in [(u32::MAX, gone), (std::process::id(), here)] {
        discovery.remember(Process { pid, start: own, looked_into: vec![file], ..Process::default() });
    }
    discovery.unused(&|file| file);
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
    discovery.work(&|_| false);
    news(&mut discovery);
    assert!(discovery.missing().is_empty(), "nothing says that it uses verbs");
    discovery.saw(7);
    discovery.work(&|_| false);
    news(&mut discovery);
    assert!(discovery.missing()[0].reason.starts_with("1 processes may not be looked at"), "{:?}", discovery.missing());
}
