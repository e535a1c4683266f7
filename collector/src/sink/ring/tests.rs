use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::engine::Engine;
use crate::observation::recording::{INCIDENT, RING, Reader};
use crate::replay::judge;
use crate::rule::Settings;
use crate::sim::Simulator;

const SECOND: Nanos = 1_000_000_000;

/// A simulated node whose observations go to a ring as they do live.
struct Node {
    simulator: Simulator,
    engine: Engine,
    ring: Ring,
    at: Nanos,
    said: Arc<Mutex<Vec<String>>>,
    raised: Vec<(String, FindingState)>,
}

impl Node {
    fn new(scenario: &str, options: &RingOptions) -> Self {
        let simulator = Simulator::new(scenario, 1).expect("there is such a scenario");
        let header = simulator.header();
        let said = Arc::new(Mutex::new(Vec::new()));
        let log = said.clone();
        let log: Log = Arc::new(move |line: &str| log.lock().unwrap().push(line.to_owned()));
        // A child that another test starts has a copy of the lock until it executes its program.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let ring = loop {
            match Ring::start(options, header.clone(), log.clone()) {
                Err(RingError::Taken(_)) if std::time::Instant::now() < deadline => std::thread::yield_now(),
                started => break started.expect("the directory can be used"),
            }
        };
        Self { simulator, engine: Engine::new(header, Settings::default()), ring, at: 0, said, raised: Vec::new() }
    }

    /// So many seconds pass. The ring's thread keeps up: what is tested is not how fast it is.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.at += SECOND;
            let (engine, ring, raised) = (&mut self.engine, &mut self.ring, &mut self.raised);
            self.simulator.advance(self.at, &mut |observation| {
                ring.observation(observation, engine.world());
                engine.take(observation);
                let findings = engine.drain();
                raised.extend(findings.iter().map(|finding| (finding.id(), finding.state)));
                ring.findings(&findings, engine.world());
            });
            self.ring.tick(self.engine.world(), &OwnCost::default());
            self.settle();
        }
    }

    /// Until the thread has done what it was asked.
    fn settle(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let idle = || {
            let queue = lock(&self.ring.shared.queue);
            queue.jobs.is_empty() && !queue.busy
        };
        while !idle() {
            assert!(Instant::now() < deadline, "the ring's thread does nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(mut self) -> (RingStatus, Vec<String>) {
        self.ring.finish();
        assert!(lock(&self.ring.shared.queue).done, "the ring's thread has not ended");
        let said = self.said.lock().unwrap().clone();
        (self.ring.status()(), said)
    }
}

fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn named(directory: &Path, start: &str) -> Vec<PathBuf> {
    files(directory).into_iter().filter(|name| name.starts_with(start)).map(|name| directory.join(name)).collect()
}

fn is_part(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "part")
}

fn small(directory: &Path) -> RingOptions {
    RingOptions {
        keep: Duration::from_secs(20),
        after: Duration::from_secs(5),
        ..RingOptions::new(directory.to_owned())
    }
}

#[test]
fn the_ring_keeps_its_time_and_each_segment_opens_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::new("healthy", &small(dir.path()));
    node.run(35);
    let (status, said) = node.end();
    assert_eq!(said, Vec::<String>::new());
    assert_eq!((status.lost, status.stopped.as_ref(), status.incidents), (0, None, 0));
    let segments = named(dir.path(), "ring-");
    assert!((10..=12).contains(&segments.len()), "{segments:?}");
    let ports = Simulator::new("healthy", 1).unwrap();
    let mut whole = Engine::new(ports.header(), Settings::default());
    let mut simulator = ports;
    simulator.advance(SECOND, &mut |observation| whole.take(observation));
    for path in &segments {
        let mut reader = Reader::open(path).unwrap();
        assert_eq!(reader.header().part.as_deref(), Some(RING));
        let mut engine = Engine::new(reader.header().clone(), Settings::default());
        while reader.next(|observation| engine.take(observation)).unwrap().is_some() {}
        assert_eq!(reader.notices().lines(), Vec::<String>::new());
        assert_eq!(engine.world().ports.len(), whole.world().ports.len(), "{path:?}");
    }
}

#[test]
fn the_ring_keeps_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let options = RingOptions { keep: Duration::from_secs(3600), max_bytes: 100_000, ..small(dir.path()) };
    let mut node = Node::new("healthy", &options);
    let mut most = 0;
    for _ in 0..50 {
        node.run(1);
        most = most.max(named(dir.path(), "ring-").iter().map(|path| path.metadata().unwrap().len()).sum());
    }
    node.end();
    // What is being written is counted at the next tick.
    assert!((50_000..=130_000).contains(&most), "{most}");
}

#[test]
fn a_critical_finding_saves_an_incident_that_gives_the_finding_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::new("aer-then-down", &RingOptions { keep: Duration::from_secs(60), ..small(dir.path()) });
    while !node.raised.iter().any(|(id, _)| id.starts_with("link.down")) {
        node.run(1);
        assert!(node.at < 600 * SECOND, "the port never falls");
    }
    node.run(20);
    let raised = node.raised.clone();
    let (status, said) = node.end();
    assert!(status.incidents >= 1 && status.not_saved == 0, "{status:?}");
    assert!(said.iter().any(|line| line.contains("saved")), "{said:?}");
    let incidents = named(dir.path(), "incident-");
    assert_eq!(incidents.len() as u64, status.incidents, "{incidents:?}");
    assert!(files(dir.path()).iter().all(|name| !is_part(name)));
    let mut again = Vec::new();
    for path in &incidents {
        assert_eq!(Reader::open(path).unwrap().header().part.as_deref(), Some(INCIDENT));
        let (_, notices) = judge(path, Settings::default(), |findings, _| {
            again.extend(findings.iter().map(|finding| (finding.id(), finding.state)));
        })
        .unwrap();
        assert_eq!(notices.lines(), Vec::<String>::new());
    }
    for (id, state) in raised.iter().filter(|(id, _)| id.starts_with("link.down") || id.starts_with("nic.composite")) {
        assert!(again.contains(&(id.clone(), *state)), "{id} {state:?} is not in {again:?}");
    }
}

#[test]
fn incidents_are_bounded_and_the_oldest_goes_only_when_asked() {
    for remove_oldest in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("incident-20000101T000000Z-mine.jsonl.zst"), "precious").unwrap();
        let options =
            RingOptions { max_incidents: 1, remove_oldest, after: Duration::from_secs(1), ..small(dir.path()) };
        let mut node = Node::new("healthy", &options);
        for rule in ["first", "second", "third"] {
            node.run(3);
            assert!(node.ring.shared.push(Job::Critical { t: node.at, unix_ns: node.at, rule }));
        }
        node.run(3);
        let (status, said) = node.end();
        let left: Vec<_> = files(dir.path()).into_iter().filter(|name| name.starts_with("incident-")).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left.iter().any(|name| name.contains("mine")), "{left:?}");
        let kept = if remove_oldest { "third" } else { "first" };
        assert!(left.iter().any(|name| name.contains(kept)), "{left:?}");
        assert_eq!(status.not_saved, if remove_oldest { 0 } else { 2 });
        assert_eq!(said.iter().filter(|line| line.contains("not saved")).count(), usize::from(!remove_oldest));
    }
}

#[test]
fn an_incident_that_never_fits_costs_no_other_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::new("aer-then-down", &small(dir.path()));
    node.run(50);
    assert_eq!(node.end().0.incidents, 1);
    let kept = named(dir.path(), "incident-");
    let options = RingOptions { max_incident_bytes: 1 << 10, remove_oldest: true, ..small(dir.path()) };
    let mut node = Node::new("aer-then-down", &options);
    node.run(50);
    let (status, said) = node.end();
    assert_eq!((status.incidents, named(dir.path(), "incident-")), (0, kept), "{said:?}");
    assert!(said.iter().any(|line| line.contains("more than the 1024 of incident-max-size")), "{said:?}");
}

#[test]
fn what_it_did_not_write_stays() {
    let dir = tempfile::tempdir().unwrap();
    // The name of a segment, but no marker; and the marker, but another name.
    let precious = dir.path().join("ring-1000000000-000001.jsonl.zst");
    std::fs::write(&precious, "precious").unwrap();
    let recording = dir.path().join("mine.jsonl");
    std::fs::write(&recording, r#"{"type":"header","format":"rdmascope-recording","version":1,"part":"ring"}"#)
        .unwrap();
    let options = RingOptions { max_bytes: 1, ..small(dir.path()) };
    let mut node = Node::new("healthy", &options);
    node.run(40);
    node.end();
    assert_eq!(std::fs::read_to_string(precious).unwrap(), "precious");
    assert!(recording.exists());
}

#[test]
fn a_directory_belongs_to_one_and_what_a_killed_one_left_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::new("aer-then-down", &small(dir.path()));
    node.run(5);
    let log: Log = Arc::new(|_: &str| {});
    let second = Ring::start(&small(dir.path()), Header::new(), log);
    assert!(matches!(second, Err(RingError::Taken(_))));
    // An incident has begun, and neither it nor the segment is ended.
    assert!(node.ring.shared.push(Job::Critical { t: node.at, unix_ns: 0, rule: "link.down" }));
    node.run(1);
    node.settle();
    let copy = tempfile::tempdir().unwrap();
    for name in files(dir.path()) {
        std::fs::copy(dir.path().join(&name), copy.path().join(&name)).unwrap();
    }
    node.end();
    let left = named(copy.path(), "ring-").len();
    assert!(left > 0 && files(copy.path()).iter().any(|name| is_part(name)));
    let mut next = Node::new("healthy", &small(copy.path()));
    next.run(1);
    assert_eq!(next.ring.status()().segments, left + 1);
    assert!(files(copy.path()).iter().all(|name| !is_part(name)));
    let incident = named(copy.path(), "incident-").remove(0);
    let mut read = 0;
    let (_, notices) = judge(&incident, Settings::default(), |_, _| read += 1).unwrap();
    assert!(notices.observations > 0, "{notices:?}");
    assert!(next.end().1.iter().any(|line| line.contains("ends early")));
}

#[test]
fn a_directory_that_is_gone_is_said_once_and_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let ring = dir.path().join("ring");
    let mut node = Node::new("healthy", &small(&ring));
    node.run(2);
    std::fs::remove_dir_all(&ring).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    node.run(3);
    assert!(node.ring.status()().stopped.is_some());
    while node.ring.status()().stopped.is_some() {
        assert!(Instant::now() < deadline, "it is not tried again");
        std::thread::sleep(Duration::from_millis(200));
        node.run(1);
    }
    node.run(2);
    let (status, said) = node.end();
    assert!(status.lost > 0);
    assert!(!named(&ring, "ring-").is_empty());
    assert_eq!(said.iter().filter(|line| line.contains("stopped")).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|line| line.contains("again")).count(), 2, "{said:?}");
}
