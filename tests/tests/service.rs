//! `collect` under a service manager: what it tells it, what a hang-up does, what its lines look like, how it ends.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use end_to_end::binary::wait_until;
use end_to_end::desk::{Collecting, Desk, LONG, connect};
use rustix::process::Signal;

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    path: String,
}

impl Manager {
    fn new(desk: &Desk) -> Self {
        let path = desk.at("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        Self { socket, path: path.display().to_string() }
    }

    /// The next word, unless none comes for so long.
    fn word(&self, within: Duration) -> Option<String> {
        let mut word = [0; 4096];
        self.socket.set_read_timeout(Some(within)).expect("a timeout can be set");
        let n = self.socket.recv(&mut word).ok()?;
        Some(String::from_utf8_lossy(&word[..n]).trim_end().to_owned())
    }

    /// The words up to one that begins so.
    fn until(&self, start: &str) -> Vec<String> {
        let mut words = Vec::new();
        loop {
            let word = self.word(LONG).unwrap_or_else(|| panic!("no {start} after {words:?}"));
            let last = word.starts_with(start);
            words.push(word);
            if last {
                return words;
            }
        }
    }
}

fn write_config(desk: &Desk, text: &str) {
    std::fs::write(desk.at("c.toml"), text).expect("written");
}

/// A script that tells by a file of its name that it was started.
fn script(desk: &Desk, name: &str) -> String {
    let path = desk.at(name);
    let text = format!("#!/bin/sh\nenv > '{0}/env'; echo >> '{0}/{name}.ran'\n", desk.at("").display());
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it can be made executable");
    format!("[[hook]]\ncommand = [{:?}]\nrules = [\"link.down\"]\ndebounce = \"0s\"\n", path.display().to_string())
}

fn hang_up(collecting: &mut Collecting) -> String {
    collecting.signal(Signal::HUP);
    collecting.line()
}

#[test]
fn the_service_manager_hears_that_it_is_ready_goes_on_and_ends() {
    let desk = Desk::new();
    let manager = Manager::new(&desk);
    write_config(&desk, &script(&desk, "hook"));
    let line = "--config @c.toml collect --sysfs-root @tree --interval 100ms --socket off";
    let variables = [("NOTIFY_SOCKET", &*manager.path), ("WATCHDOG_USEC", "20000000")];
    let collecting = desk.start_service(line, &variables);
    let first = manager.until("READY=1");
    assert_eq!(first, ["STATUS=1 device, 1 port; no finding raised", "READY=1"]);
    assert_eq!(manager.word(LONG).as_deref(), Some("WATCHDOG=1"));
    assert_eq!(manager.word(LONG).as_deref(), Some("WATCHDOG=1"), "a second of the loop");
    desk.fall_until("tree", || desk.at("hook.ran").exists());
    let status = manager.until("STATUS=");
    assert!(status.last().is_some_and(|word| word.contains("raised")), "{status:?}");
    let environment = std::fs::read_to_string(desk.at("env")).expect("the hook's environment");
    assert!(environment.contains("RDMASCOPE_RULE=link.down"), "{environment}");
    assert!(!environment.contains("NOTIFY_SOCKET") && !environment.contains("WATCHDOG"), "{environment}");
    let (code, rest) = collecting.end(Signal::TERM);
    assert_eq!(code, Some(0), "{rest}");
    manager.until("STOPPING=1");
}

#[test]
fn a_loop_that_hangs_is_not_kept_alive_and_a_signal_ends_it_all_the_same() {
    let desk = Desk::new();
    let manager = Manager::new(&desk);
    // A pipe that nobody reads: once it is full the recording waits for it, and the loop with it.
    let fifo = desk.at("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe can be made");
    let mut pipe = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).expect("it can be opened");
    rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).expect("it can be changed");
    let line = "collect --sysfs-root @tree --interval 100ms --socket off --record @fifo";
    let collecting = desk.start_service(line, &[("NOTIFY_SOCKET", &*manager.path)]);
    manager.until("READY=1");
    manager.until("WATCHDOG=1");
    while pipe.write(&[b'.'; 64]).is_ok() {}
    let quiet = wait_until(LONG, || manager.word(Duration::from_secs(3)).is_none());
    assert!(quiet, "a loop that hangs is said to be alive");
    let (code, rest) = collecting.end(Signal::TERM);
    assert_eq!(code, Some(2), "{rest}");
    assert!(rest.contains("something hangs"), "{rest}");
}

#[test]
fn a_hangup_has_the_configuration_read_again_and_a_wrong_one_changes_nothing() {
    let desk = Desk::new();
    let manager = Manager::new(&desk);
    let (first, second) = (script(&desk, "first"), script(&desk, "second"));
    write_config(&desk, &first);
    let line = "--config @c.toml collect --sysfs-root @tree --interval 100ms --socket @s";
    let mut collecting = desk.start_service(line, &[("NOTIFY_SOCKET", &*manager.path)]);
    manager.until("READY=1");
    desk.fall_until("tree", || desk.at("first.ran").exists());

    write_config(&desk, &format!("device = [\"dev*\"]\n{second}"));
    let said = hang_up(&mut collecting);
    assert!(said.contains("c.toml read again and in force") && said.contains("device need a restart"), "{said}");
    let words = manager.until("RELOADING=1");
    assert!(words.last().is_some_and(|word| word.contains("MONOTONIC_USEC=")), "{words:?}");
    manager.until("READY=1");
    let before = std::fs::metadata(desk.at("first.ran")).expect("it ran").len();
    desk.fall_until("tree", || desk.at("second.ran").exists());
    assert_eq!(std::fs::metadata(desk.at("first.ran")).expect("it ran").len(), before, "it is configured no more");

    for (wrong, words) in [
        (format!("{first}\nintervall = 3\n"), &["line 6", "intervall"][..]),
        (first.replace("/first", "/nowhere"), &["nowhere", "No such file"]),
        ("[collect]\nring-minutes = 0\n".to_owned(), &["ring-minutes"]),
        ("[collect]\nsocket-group = \"no-such-group\"\n".to_owned(), &["no-such-group"]),
    ] {
        write_config(&desk, &wrong);
        let said = hang_up(&mut collecting);
        assert!(said.contains("everything stays as it was"), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    let words = manager.until("STATUS=1 device, 1 port");
    assert!(words.iter().filter(|word| **word == "READY=1").count() >= 1, "{words:?}");
    std::fs::remove_file(desk.at("second.ran")).expect("it ran");
    desk.fall_until("tree", || desk.at("second.ran").exists());

    // What a rule that is switched off had raised is cleared; the rest is as it was.
    desk.port("tree", "1: DOWN");
    let mut lines = connect(&desk.at("s"));
    assert_eq!(lines.next().expect("a greeting")["hello"], "rdmascope");
    write_config(&desk, &format!("{second}[rule]\ndisabled = [\"link.down\"]\n"));
    let told = std::thread::spawn(move || lines.any(|line| line["rule"] == "link.down" && line["state"] == "cleared"));
    let said = hang_up(&mut collecting);
    assert!(said.contains("in force"), "{said}");
    assert!(wait_until(LONG, || told.is_finished()), "the finding of a rule that is switched off stays");
    assert!(told.join().expect("the reader does not panic"));
    let (code, rest) = collecting.end(Signal::TERM);
    assert_eq!((code, rest.lines().count()), (Some(0), 1), "{rest}");
}

#[test]
fn a_hangup_that_whoever_started_it_ignores_stays_ignored() {
    let desk = Desk::new();
    let plain = desk.command("collect --sysfs-root @tree --socket off");
    let mut command = std::process::Command::new("setsid");
    // Without the first argument, which would undo it.
    command.args(["nohup"]).arg(plain.get_program()).args(plain.get_args().skip(1)).stdin(Stdio::null());
    let mut collecting = desk.start_command(command);
    while !collecting.first.contains("collecting") {
        collecting.first = collecting.line();
    }
    collecting.signal(Signal::HUP);
    let (code, rest) = collecting.end(Signal::TERM);
    assert_eq!((code, rest.lines().count()), (Some(0), 1), "{rest}");
}

#[test]
fn without_a_file_a_hangup_changes_nothing_and_says_so() {
    let desk = Desk::new();
    let mut collecting = desk.start_service("collect --sysfs-root @tree --socket off", &[]);
    let said = hang_up(&mut collecting);
    assert!(said.contains("no configuration file"), "{said}");
    assert_eq!(collecting.end(Signal::TERM).0, Some(0));
}

#[test]
fn as_much_is_said_as_asked_for() {
    let desk = Desk::new();
    let run = |log: &str| desk.run(&format!("--log {log} collect --scenario aer-then-down --for 300ms --socket off"));
    let (quiet, usual, all) = (run("warn"), run("info"), run("debug"));
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    assert_eq!(usual.stderr.lines().count(), 2, "{usual:?}");
    assert!(all.stderr.contains("source sim"), "{all:?}");
    write_config(&desk, "log = \"error\"\n");
    let run = desk.run("--config @c.toml collect --sysfs-root @tree --socket off --for 1ms");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    write_config(&desk, "log = \"loud\"\n");
    desk.run("--config @c.toml collect --sysfs-root @tree --socket off").says(2, &["log", "loud", "debug"]);
}

#[test]
fn the_journal_is_told_how_bad_a_line_is() {
    let desk = Desk::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let file = rustix::fs::fstat(&writer).expect("a pipe has a number");
    let stream = format!("{}:{}", file.st_dev, file.st_ino);
    let mut command = desk.command("collect --sysfs-root @tree --socket off --for 1ms");
    let status = command.env("JOURNAL_STREAM", &stream).stderr(writer).status().expect("it starts");
    assert_eq!(status.code(), Some(0));
    drop(command);
    let lines: Vec<String> = BufReader::new(reader).lines().map(|line| line.expect("a line")).collect();
    assert!(
        lines.len() == 2 && lines.iter().all(|line| line.starts_with("<6>") && !line.contains("rdmascope:")),
        "{lines:?}"
    );
    // The variable is inherited by what is redirected elsewhere: it is not the journal then.
    let mut command = desk.command("collect --sysfs-root @tree --socket off --for 1ms");
    let run = end_to_end::binary::Run::new(command.env("JOURNAL_STREAM", &stream));
    assert!(run.stderr.starts_with("rdmascope: "), "{run:?}");
}

#[test]
fn a_signal_ends_it_although_hook_and_reader_hang() {
    let desk = Desk::new();
    desk.hook("trap '' TERM; echo $$ > pid; while :; do sleep 1; done");
    let line =
        "--config @c.toml collect --sysfs-root @tree --interval 100ms --socket @s --ring @ring --record @r.jsonl";
    let collecting = desk.start_service(line, &[]);
    // A reader that reads nothing, with as little room as the kernel gives.
    let stalled = UnixStream::connect(desk.at("s")).expect("the socket is served");
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&stalled, 1);
    assert!(stalled.as_raw_fd() > 0);
    desk.fall_until("tree", || std::fs::read_to_string(desk.at("pid")).is_ok_and(|pid| pid.ends_with('\n')));
    let began = Instant::now();
    let (code, rest) = collecting.end(Signal::TERM);
    println!("it took {:?} to end", began.elapsed());
    assert_eq!(code, Some(0), "{rest}");
    let read = desk.run("ports --json --recording @r.jsonl");
    assert_eq!((read.code, read.stderr.as_str()), (Some(0), ""), "nothing of the recording was lost");
}
