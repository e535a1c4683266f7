//! Looks that go on beside each other.

use super::*;

/// A process as it tells of itself that it posts in a file.
fn says(pid: u32, file: FileId) -> Process {
    let heard = Heard { files: [file].into(), posts: true, look: 0 };
    Process { pid, has_device: true, heard, ..Process::default() }
}

/// A process that was searched in vain.
fn in_vain(pid: u32) -> Process {
    Process { pid, has_device: true, missing: Some("unknown provider build".into()), ..Process::default() }
}

/// What stands for a thread, and what takes its answer.
fn thread_of(looked: Looked) -> Awaited<Looked> {
    let (sender, receiver) = std::sync::mpsc::channel();
    sender.send(looked).expect("it is taken");
    receiver.into()
}

#[test]
fn a_look_that_does_not_end_is_told_and_what_is_asked_meanwhile_is_bounded() {
    let proc = tempfile::tempdir().expect("a temporary directory");
    let mut discovery = Discovery::new(proc.path());
    let (_hangs, look) = std::sync::mpsc::channel();
    let (_hangs, hearing) = std::sync::mpsc::channel();
    discovery.look = Some(Awaited::from(look).for_seconds(61));
    assert!(discovery.missing()[0].reason.starts_with("a look at processes has gone on for 1 min"));
    discovery.hearing = Some(Awaited::from(hearing).for_seconds(125));
    assert!(discovery.missing()[1].reason.starts_with("a look at what processes told has gone on for 2 min"));
    for pid in 1..100_000 {
        discovery.saw(pid);
    }
    assert!(discovery.asked.len() <= MOST_REMEMBERED && discovery.all);
    discovery.saw(7);
    discovery.unused(HashSet::new(), &|file| file);
    assert!(discovery.asked.is_empty(), "none of them lives");
}

#[test]
fn a_process_that_tells_where_it_posts_while_it_is_searched_in_vain_is_not_unknown() {
    let file = ((8, 1), 7);
    let proc = tempfile::tempdir().expect("a temporary directory");
    for heard_first in [true, false] {
        let mut discovery = Discovery { looks: 1, ..Discovery::new(proc.path()) };
        let looked = || thread_of(Looked { processes: vec![in_vain(77)], ..Looked::default() });
        let heard = || thread_of(Looked { processes: vec![says(77, file)], ..Looked::default() });
        (discovery.hearing, discovery.look) = if heard_first { (Some(heard()), None) } else { (None, Some(looked())) };
        discovery.take();
        (discovery.hearing, discovery.look) = if heard_first { (None, Some(looked())) } else { (Some(heard()), None) };
        discovery.take();
        assert!(discovery.missing().is_empty(), "{heard_first}: {:?}", discovery.missing());
        assert_eq!(discovery.known[&77].files, [file], "{heard_first}");
    }
    // A look that begins later knows what is attached, and sees whether the process maps it still.
    let mut discovery = Discovery { looks: 1, ..Discovery::new(proc.path()) };
    discovery.hear(says(77, file));
    discovery.looks = 2;
    discovery.remember(in_vain(77));
    assert!(discovery.known[&77].missing.is_some() && discovery.known[&77].files.is_empty());
}

#[test]
fn what_a_process_tells_does_not_wait_for_the_search_of_another() {
    let mut running = Running::start();
    let pid = running.child.id();
    let mut discovery = running.discovery();
    let (_searches, search) = std::sync::mpsc::channel();
    discovery.look = Some(search.into());
    discovery.work(&mut told_addresses(pid, &[(Operation::PostSend, running.post_send)]), &Known::default);
    while discovery.hearing.is_some() {
        assert!(discovery.wait(Duration::from_secs(60)), "it is looked at");
        discovery.take();
    }
    assert_eq!(discovery.next(usize::MAX).filter(|opened| opened.found.is_ok()).count(), 1);
    assert!(discovery.look.is_some());
    running.end();
}

#[test]
fn what_no_thread_could_be_started_for_is_looked_at_when_one_can() {
    let mut running = Running::start();
    let pid = running.child.id();
    let none = |_| Err(std::io::Error::other("no thread"));
    let mut discovery = Discovery { start: none, ..running.discovery() };
    let mut addresses = told_addresses(pid, &[(Operation::PostSend, running.post_send)]);
    discovery.saw(77);
    discovery.look_at_all();
    discovery.work(&mut addresses, &Known::default);
    assert!(!discovery.is_busy() && !addresses.is_empty());
    assert!(discovery.all && discovery.asked.contains(&77));
    discovery.start = look::thread;
    discovery.work(&mut addresses, &Known::default);
    assert!(discovery.look.is_some() && addresses.is_empty() && !discovery.all);
    assert!(found(&mut discovery).iter().any(|opened| opened.operation == Some(Operation::PostSend)));
    running.end();
}

#[test]
fn places_are_handed_over_in_parts_and_nothing_is_looked_at_before_the_last() {
    let mut running = Running::start();
    let mut discovery = running.discovery();
    discovery.saw(running.child.id());
    discovery.work(&mut Addresses::default(), &Known::default);
    while !discovery.has_next() {
        assert!(discovery.wait(Duration::from_secs(60)), "the thread answers");
        discovery.take();
    }
    assert_eq!(discovery.next(2).count(), 2);
    discovery.look_at_all();
    discovery.work(&mut Addresses::default(), &Known::default);
    assert!(discovery.look.is_none() && discovery.wait(Duration::ZERO));
    assert_eq!(discovery.next(2).count(), 1);
    discovery.work(&mut Addresses::default(), &Known::default);
    assert!(discovery.look.is_some());
    running.end();
}

#[test]
fn whoever_writes_over_his_own_library_has_only_those_searched_that_map_it_and_once_a_minute() {
    let mut running = Running::start();
    let mut discovery = running.discovery();
    let pid = running.child.id();
    discovery.saw(pid);
    let places = look(&mut discovery);
    let file = places[0].place.file();
    discovery.remember(Process { pid: 1, files: vec![((8, 1), 1)], ..Process::default() });
    // One that a known provider is not enough for.
    let known = || attached_to(&places);
    for searches in [true, false, true] {
        assert!(!discovery.look_anew(&[file].into()), "the host's providers are not asked");
        assert!(!discovery.all && discovery.search.iter().eq([&pid]));
        discovery.work(&mut Addresses::default(), &known);
        assert_eq!((discovery.look.is_some(), discovery.search.is_empty()), (searches, searches));
        assert!(found(&mut discovery).is_empty(), "its places are known");
        if !searches {
            discovery.searched = Instant::now().checked_sub(SEARCH_PERIOD);
        }
    }
    discovery.look_anew(&[file].into());
    discovery.searched = None;
    discovery.work(&mut Addresses::default(), &Known::default);
    assert_eq!(found(&mut discovery).len(), 3, "what is let go is found again");
    discovery.keep(file);
    assert!(discovery.look_anew(&[file].into()) && discovery.all);
    running.end();
}

#[test]
fn a_provider_of_any_name_is_found_again_when_it_was_written_over() {
    let mut running = Running::named("train", DEVICE, 0);
    let mut discovery = running.discovery();
    let places = take(&mut discovery, running.child.id(), &[(Operation::PostSend, running.post_send)]);
    discovery.look_anew(&[places[0].place.file()].into());
    let found = look(&mut discovery);
    assert!(found.iter().any(|opened| opened.key() == places[0].key()), "{:?}", discovery.missing());
    running.end();
}

/// A process in a directory that stands for `/proc`, which maps this file.
fn process_in(proc: &std::path::Path, pid: u32, file: &str) {
    let dir = proc.join(pid.to_string());
    fs::create_dir_all(dir.join("fd")).expect("a directory");
    fs::write(dir.join("maps"), format!("10000-11000 r-xp 00000000 08:01 7 {file}\n")).expect("a file");
    let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
    fs::write(dir.join("stat"), format!("{pid} (train) S {}", fields.join(" "))).expect("a file");
}

#[test]
fn a_process_that_cannot_be_looked_at_just_now_is_looked_at_again_and_is_no_refusal() {
    let proc = tempfile::tempdir().expect("a temporary directory");
    process_in(proc.path(), 7, "/usr/lib/libibverbs.so.1");
    let maps = proc.path().join("7/maps");
    let text = fs::read(&maps).expect("it was written");
    fs::remove_file(&maps).expect("it is there");
    fs::create_dir(&maps).expect("what cannot be read as a file");
    let mut discovery = Discovery::new(proc.path());
    discovery.saw(7);
    look(&mut discovery);
    let reasons =
        |discovery: &Discovery| discovery.missing().iter().map(|lack| lack.reason.clone()).collect::<Vec<_>>();
    assert_eq!(reasons(&discovery), ["1 processes could not be looked at just now, and will be within 10 s"]);
    assert!(discovery.refused.is_empty() && discovery.asked.is_empty());
    fs::remove_dir(&maps).expect("it is empty");
    fs::write(&maps, text).expect("a file");
    discovery.unused(HashSet::new(), &|file| file);
    look(&mut discovery);
    assert!(reasons(&discovery).is_empty() && discovery.known.contains_key(&7), "{:?}", reasons(&discovery));
}

#[test]
fn what_is_known_to_use_verbs_is_looked_at_with_all_others_whatever_its_files_are_called() {
    let proc = tempfile::tempdir().expect("a temporary directory");
    process_in(proc.path(), 7, "/opt/train");
    let file = ((8, 1), 7);
    let known = || Known { files: [(file, file)].into(), ..Known::default() };
    for asked in [false, true] {
        let mut discovery = Discovery::new(proc.path());
        if asked {
            discovery.saw(7);
        }
        discovery.search.insert(7);
        discovery.look_at_all();
        discovery.work(&mut Addresses::default(), &known);
        assert!(discovery.search.contains(&7), "it is searched after that");
        found(&mut discovery);
        assert_eq!(discovery.known.contains_key(&7), asked);
    }
}
