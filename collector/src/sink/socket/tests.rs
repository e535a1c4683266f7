use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;
use crate::engine::Engine;
use crate::observation::{Aer, AerSeverity, Body, Observation, Port, PortState};
use crate::rule::Settings;

const LONG: Duration = Duration::from_secs(20);

fn options(path: &Path) -> SocketOptions {
    SocketOptions { path: path.to_owned(), group: None }
}

fn start(path: &Path) -> Socket {
    let header = Header { host: Some("node1".into()), ..Header::new() };
    Socket::start(&options(path), header, Arc::new(|_| {})).expect("the socket can be made")
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "it never holds");
        std::thread::yield_now();
    }
}

/// An engine that has seen a port, and a way to tell the socket what it concludes.
struct Node {
    engine: Engine,
}

impl Node {
    fn new() -> Self {
        let mut node = Self { engine: Engine::new(Header::new(), Settings::default()) };
        node.port(1, PortState::Active);
        node
    }

    fn port(&mut self, t: u64, state: PortState) {
        let port =
            Port { device: "d".into(), port: 1, state, netdev_pci: Some("0000:01:00.0".into()), ..Port::default() };
        self.engine.take(&Observation { t, body: Body::Port(port) });
    }

    fn aer(&mut self, t: u64, severity: AerSeverity) {
        let aer = Aer {
            pci: "0000:01:00.0".into(),
            severity,
            status: 0,
            names: vec!["CmpltTO".into()],
            tlp: vec![],
            agent: None,
        };
        self.engine.take(&Observation { t, body: Body::Aer(aer) });
    }

    fn tell(&mut self, socket: &mut Socket) -> usize {
        let findings = self.engine.drain();
        socket.findings(&findings, self.engine.world());
        findings.len()
    }
}

fn lines(path: &Path) -> impl Iterator<Item = Value> + use<> {
    let stream = UnixStream::connect(path).expect("the socket is served");
    stream.set_read_timeout(Some(LONG)).expect("a timeout can be set");
    BufReader::new(stream).lines().map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON"))
}

#[test]
fn a_reader_is_greeted_told_what_is_raised_and_then_what_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made/events.sock");
    let mut socket = start(&path);
    let mut node = Node::new();
    node.aer(2, AerSeverity::Nonfatal);
    node.tell(&mut socket);
    wait_until(|| lock(&socket.shared.queue).lines.is_empty());
    let mut reader = lines(&path);
    let hello = reader.next().unwrap();
    assert_eq!((&hello["hello"], &hello["version"], &hello["host"]), (&"rdmascope".into(), &1.into(), &"node1".into()));
    assert_eq!(hello["raised"], 1);
    let fatal = reader.next().unwrap();
    assert_eq!((&fatal["rule"], &fatal["predicted_failure"]), (&"pcie.aer_fatal".into(), &true.into()));
    assert_eq!(fatal["subject"]["device"], "d");
    node.port(3, PortState::Down);
    assert!(node.tell(&mut socket) >= 2);
    let down: Vec<Value> = reader.by_ref().take(2).collect();
    let told = |rule: &str| &down.iter().find(|line| line["rule"] == rule).expect("told")["predicted_failure"];
    assert_eq!((told("link.down"), told("nic.composite")), (&false.into(), &true.into()));
    socket.finish();
    assert!(!path.exists(), "the path goes with its server");
    assert_eq!(reader.count(), 0, "readers are told the end");
}

#[test]
fn owner_and_group_may_connect_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _socket = start(&path);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
}

#[test]
fn a_served_socket_is_refused_a_left_one_replaced_and_another_file_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let log: Log = Arc::new(|_| {});
    let socket = start(&path);
    let error = Socket::start(&options(&path), Header::new(), log.clone()).err().expect("refused");
    assert!(matches!(error, SocketError::Served(_)), "{error}");
    drop(socket);
    // A killed process leaves its path behind.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let socket = start(&path);
    assert!(lines(&path).next().is_some());
    drop(socket);
    std::fs::write(&path, "precious").unwrap();
    let error = Socket::start(&options(&path), Header::new(), log).err().expect("refused");
    assert!(matches!(error, SocketError::NoSocket(_)), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_reader_that_does_not_read_is_dropped_and_costs_the_others_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut socket = start(&path);
    let mut sleeper = UnixStream::connect(&path).unwrap();
    let mut reader = lines(&path);
    assert!(reader.next().is_some());
    let status = socket.status();
    let mut node = Node::new();
    let mut t = 2;
    let mut told = 0;
    let deadline = Instant::now() + LONG;
    while status().dropped == 0 {
        assert!(Instant::now() < deadline, "never dropped");
        // The port falls and returns: findings are raised and cleared.
        t += 1_000_000;
        node.port(t, if t % 2_000_000 == 2 { PortState::Down } else { PortState::Active });
        told += node.tell(&mut socket);
        while told > 0 {
            assert!(reader.next().is_some(), "the other reader goes on");
            told -= 1;
        }
    }
    assert_eq!((status().dropped, status().readers), (1, 1));
    // What was on its way comes, then the end.
    let mut rest = Vec::new();
    sleeper.set_read_timeout(Some(LONG)).unwrap();
    let _ = sleeper.read_to_end(&mut rest);
    assert!(rest.starts_with(b"{\"hello\""));
}

#[test]
fn what_readers_send_is_not_read_and_one_that_left_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let socket = start(&path);
    let status = socket.status();
    let mut talker = UnixStream::connect(&path).unwrap();
    wait_until(|| status().readers == 1);
    talker.write_all(b"{\"stop\":true}\n").unwrap();
    drop(talker);
    wait_until(|| {
        socket.shared.wake();
        status().readers == 0
    });
    assert_eq!(status().connected, 1);
    assert!(lines(&path).next().is_some(), "it is served as before");
}

#[test]
fn where_no_descriptor_is_left_the_listener_rests_and_that_is_said_once() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let into = said.clone();
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let shared = Arc::new(Shared { queue: Mutex::default(), wake, status: Mutex::default() });
    let log: Log = Arc::new(move |line| lock(&into).push(line.to_owned()));
    let mut server = Server {
        shared: shared.clone(),
        header: Header::new(),
        log,
        raised: Vec::new(),
        readers: Vec::new(),
        rest: None,
        said: Said::default(),
    };
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("s")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let _waiting = UnixStream::connect(dir.path().join("s")).unwrap();
    for errno in [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOMEM] {
        let before = Instant::now();
        server.accept(|| Err(errno.into()));
        assert!(server.rest >= Some(before + REST), "{errno}");
    }
    assert_eq!(lock(&said).len(), 1, "{said:?}");
    // Somebody is waiting all the time; without the rest this would return at once.
    server.wait(Some(&listener), None);
    assert!(server.resting().is_none(), "it has slept until the rest was over");
    server.accept(|| listener.accept().map(|(stream, _)| stream));
    assert_eq!(lock(&shared.status).connected, 1);
}

#[test]
fn a_socket_of_another_kind_is_kept_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let error = Socket::start(&options(&path), Header::new(), Arc::new(|_| {})).err().expect("refused");
    assert!(matches!(error, SocketError::OtherKind(_)), "{error}");
    assert!(path.exists());
}

/// The umask is the process's, so each is tried in a process that runs this test alone.
#[test]
fn the_directory_that_is_made_can_be_passed_by_all_and_written_by_the_owner_whatever_the_umask() {
    if let Some(directory) = std::env::var_os("SOCKET_DIRECTORY") {
        let directory = Path::new(&directory).join("made");
        let _socket = start(&directory.join("s"));
        assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o755);
        return;
    }
    let test = "sink::socket::tests::\
        the_directory_that_is_made_can_be_passed_by_all_and_written_by_the_owner_whatever_the_umask";
    for umask in ["077", "000"] {
        let dir = tempfile::tempdir().unwrap();
        let mut sh = std::process::Command::new("sh");
        sh.args(["-c", "umask $1; exec \"$2\" --exact \"$3\"", "sh", umask]);
        sh.arg(std::env::current_exe().unwrap()).arg(test).env("SOCKET_DIRECTORY", dir.path());
        let output = sh.output().unwrap();
        assert!(output.status.success(), "umask {umask}: {}", String::from_utf8_lossy(&output.stdout));
        assert!(dir.path().join("made").exists(), "umask {umask}: the test has run");
    }
}

#[test]
fn readers_beyond_the_most_are_refused_counted_and_that_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let said = Arc::new(Mutex::new(Vec::new()));
    let into = said.clone();
    let log: Log = Arc::new(move |line| lock(&into).push(line.to_owned()));
    let socket = Socket::start(&options(&path), Header::new(), log).unwrap();
    let status = socket.status();
    let mut readers = Vec::new();
    for n in 1..=MAX_READERS + 2 {
        readers.push(UnixStream::connect(&path).unwrap());
        wait_until(|| status().connected + status().refused == n as u64);
    }
    assert_eq!((status().connected, status().refused), (MAX_READERS as u64, 2));
    drop(socket);
    let said = lock(&said);
    assert!(said.len() == 1 && said[0].contains("refused"), "{said:?}");
}

#[test]
fn lines_that_are_lost_are_counted_and_that_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let into = said.clone();
    let log: Log = Arc::new(move |line| lock(&into).push(line.to_owned()));
    let socket = Socket::start(&options(&dir.path().join("s")), Header::new(), log).unwrap();
    let world = World::new(Header::new());
    for times in 1..=2 {
        // The queue is full for as long as this thread holds it; one more is one too many.
        socket.tell((0..=MAX_QUEUED).map(|_| "{}\n".to_owned()), &world);
        wait_until(|| lock(&socket.shared.queue).lines.is_empty());
        assert_eq!(socket.status()().lost, times);
    }
    drop(socket);
    let said = lock(&said);
    assert!(said.len() == 1 && said[0].contains("lost"), "{said:?}");
}
