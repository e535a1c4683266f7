//! Files that are attached to, and let go.

use super::super::super::attach::Attached;
use super::*;
use crate::source::verbs::Group;

#[test]
fn what_a_process_calls_functions_of_a_provider_is_attached_to_only_where_one_begins() {
    let mut attached = Attached::new(64);
    if attached.ebpf().is_none() {
        return println!("skipped: no BPF program can be loaded here");
    }
    for (shift, expected) in [(1, false), (0, true)] {
        let mut running = Running::with(DEVICE, shift);
        let mut discovery = running.discovery();
        let addresses = [(Operation::PostSend, running.post_send), (Operation::PostRecv, running.post_send)];
        let places = take(&mut discovery, running.child.id(), &addresses);
        assert_eq!(places.len(), if expected { 2 } else { 1 }, "both lie in the program, refused once");
        let file = places[0].place.file();
        for opened in places {
            attached.attach(opened);
        }
        assert_eq!(attached.attached_to(file) > 0, expected, "{shift} bytes behind the start");
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
        for file in discovery.unused(attached.files(), &|file| file) {
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
    let mut attached = Attached::new(64);
    let Some((_containers, [a, b])) = Containers::start() else {
        return println!("skipped: no overlay can be mounted here");
    };
    assert_ne!(a.file(), b.file());
    attached.attach(Opened::of(Operation::PostSend, &a));
    if attached.attached_to(a.file()) == 0 {
        return println!("skipped: no probe can be attached here: {:?}", attached.reports().last());
    }
    let n = attached.reports().count();
    attached.attach(Opened::of(Operation::PostSend, &b));
    assert_eq!(attached.reports().count(), n, "it is the same file below");
    assert_eq!((attached.below(b.file()), attached.below(a.file())), (a.file(), a.file()));

    let mut discovery = Discovery::new(Path::new("/proc"));
    let own = process::start_and_name(Path::new("/proc/self")).expect("its form").0;
    // The process of the first has ended; that of the second runs.
    let process = |pid, place: &Place| Process { pid, start: own, files: vec![place.file()], ..Process::default() };
    discovery.remember(process(u32::MAX, &a));
    discovery.remember(process(std::process::id(), &b));
    let mut let_go = |discovery: &mut Discovery| {
        for file in discovery.unused(attached.files(), &|file| attached.below(file)) {
            attached.detach_file(file);
        }
        (attached.attached_to(a.file()), attached.files().contains(&b.file()))
    };
    assert_eq!(let_go(&mut discovery), (1, true));
    assert_eq!(discovery.known.len(), 1);
    discovery.known.clear();
    discovery.remember(process(u32::MAX, &b));
    assert_eq!(let_go(&mut discovery), (0, false));
}

#[test]
fn a_file_that_is_written_over_is_let_go_and_one_that_loses_its_name_is_kept() {
    let mut attached = Attached::new(64);
    let (file, place) = copy();
    attached.attach(Opened::of(Operation::PostSend, &place));
    if attached.attached_to(place.file()) == 0 {
        return println!("skipped: no probe can be attached here: {:?}", attached.reports().last());
    }
    assert!(attached.detach_overwritten().files.is_empty());
    // As an upgrade does it: another file under the name, and processes that still run this one.
    let link = tempfile::tempdir().expect("a temporary directory");
    fs::hard_link(file.path(), link.path().join("other")).expect("both are temporary");
    assert!(attached.detach_overwritten().files.is_empty() && attached.attached_to(place.file()) == 1);

    let other = fs::read("/proc/self/exe").expect("it can be read");
    fs::write(file.path(), [&other[..], &[0]].concat()).expect("it is writable");
    attached.detach_group(Group::Posts, "for a while");
    attached.attach_group(Group::Posts);
    let reports: Vec<_> = attached.reports().filter(|report| report.name == "post_send").cloned().collect();
    assert_eq!(reports[0].reason.as_deref(), Some("the file was written over since it was looked at"));
    assert_eq!(attached.attached_to(place.file()), 0);

    assert_eq!(attached.detach_overwritten().missed, HashSet::from([place.file()]));
    assert!(!attached.files().contains(&place.file()));
    attached.attach(Opened::of(Operation::PostSend, &place));
    assert_eq!(attached.attached_to(place.file()), 1, "it is looked at anew");
    // Attached to, it is found as well.
    fs::write(file.path(), &other).expect("it is writable");
    assert!(!attached.detach_overwritten().files.is_empty() && attached.attached_to(place.file()) == 0);
}

#[test]
fn touching_a_library_that_nothing_is_counted_in_costs_nobody_its_completions() {
    use std::os::unix::fs::PermissionsExt;
    let mut attached = Attached::new(64);
    let (file, place) = copy();
    let touch = |mode| fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("it is ours");
    let learns = || Opened { operation: None, ..Opened::of(Operation::PostSend, &place) };
    attached.attach(learns());
    if attached.attached_to(place.file()) == 0 {
        return println!("skipped: no probe can be attached here: {:?}", attached.reports().last());
    }
    touch(0o640);
    let overwritten = attached.detach_overwritten();
    assert!(overwritten.files.contains(&place.file()) && overwritten.missed.is_empty(), "{overwritten:?}");
    attached.attach(learns());
    attached.attach(Opened::of(Operation::PostSend, &place));
    touch(0o600);
    assert_eq!(attached.detach_overwritten().missed, HashSet::from([place.file()]));
}
#[test]
fn a_file_without_a_provider_s_name_stays_while_the_process_that_told_of_it_maps_it() {
    let mut running = Running::named("train", DEVICE, 0);
    let pid = running.child.id();
    let mut discovery = running.discovery();
    let places = take(&mut discovery, pid, &[(Operation::PostSend, running.post_send)]);
    let file = places[0].place.file();
    discovery.saw(pid);
    discovery.work(&mut Addresses::default(), &|| attached_to(&places));
    assert!(found(&mut discovery).is_empty(), "what it maps is known");
    assert!(discovery.missing().is_empty(), "{:?}", discovery.missing());
    assert!(discovery.known[&pid].looked.is_some());
    assert_eq!(discovery.unused([file].into(), &|file| file), []);
    running.end();
    assert_eq!(discovery.unused([file].into(), &|file| file), [file]);
}

/// A `/proc` with one process, 7, that maps a file and has no device open.
fn write_process(proc: &Path, comm: &[u8], maps: &str) {
    let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
    fs::create_dir_all(proc.join("7/fd")).expect("a directory");
    let stat = [b"7 (", comm, b") S ", fields.join(" ").as_bytes()].concat();
    fs::write(proc.join("7/stat"), stat).expect("a file");
    fs::write(proc.join("7/maps"), maps).expect("a file");
}

#[test]
fn a_file_that_a_process_maps_no_more_is_let_go_although_the_process_lives() {
    let proc = tempfile::tempdir().expect("a temporary directory");
    let provider = |inode| format!("7f0000-7f1000 r-xp 00000000 08:01 {inode} /lib/libtest-rdmav34.so\n");
    let file = |inode| ((8, 1), inode);
    let kept = || HashSet::from([file(1), file(2)]);
    let mut discovery = Discovery::new(proc.path());
    write_process(proc.path(), b"train", &provider(1));
    discovery.saw(7);
    look(&mut discovery);
    assert_eq!(discovery.unused(kept(), &|file| file), [file(2)]);
    // It closed one provider and opened another.
    write_process(proc.path(), b"train", &provider(2));
    discovery.saw(7);
    look(&mut discovery);
    assert_eq!(discovery.unused(kept(), &|file| file), [file(1)]);
    // It runs another program, which has none.
    write_process(proc.path(), b"sh", "");
    discovery.unused(kept(), &|file| file);
    look(&mut discovery);
    assert!(discovery.known.is_empty());
    let mut unused = discovery.unused(kept(), &|file| file);
    unused.sort_unstable();
    assert_eq!(unused, [file(1), file(2)]);
}

#[test]
fn a_process_that_takes_a_name_cut_inside_a_character_keeps_its_file() {
    let proc = tempfile::tempdir().expect("a temporary directory");
    let file = ((8, 1), 1);
    let maps = "7f0000-7f1000 r-xp 00000000 08:01 1 /lib/libtest-rdmav34.so\n";
    let mut discovery = Discovery::new(proc.path());
    write_process(proc.path(), b"train", maps);
    discovery.saw(7);
    look(&mut discovery);
    write_process(proc.path(), "обучение".as_bytes().get(..15).expect("it is longer"), maps);
    assert_eq!(discovery.unused([file].into(), &|file| file), []);
    look(&mut discovery);
    assert_eq!(discovery.known[&7].comm, "обучени\u{fffd}");
    // Nor is one gone that cannot be read.
    fs::remove_file(proc.path().join("7/stat")).expect("it is there");
    fs::create_dir(proc.path().join("7/stat")).expect("a directory");
    assert_eq!(discovery.unused([file].into(), &|file| file), []);
    fs::remove_dir_all(proc.path().join("7")).expect("it is there");
    assert_eq!(discovery.unused([file].into(), &|file| file), [file]);
}
