//! The screen in a real terminal (tmux): what becomes of the process and of the terminal when one of them ends.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use end_to_end::binary;

/// A tmux server of its own with one window that runs the binary.
struct Session {
    name: String,
}

impl Session {
    /// Starts the demo; prints the skip where there is no tmux.
    fn start(name: &str) -> Option<Self> {
        let session = Self::run(name, "demo")?;
        session.wait("the first screen", |session| session.tmux(&["capture-pane", "-p"]).contains("Overview"));
        Some(session)
    }

    /// The same with any of the binary's commands.
    fn run(name: &str, command: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("skipped: tmux is not installed");
            return None;
        }
        let session = Self { name: format!("rdmascope-{name}-{}", std::process::id()) };
        let command = format!("exec {} {command}", binary::path().display());
        let size = ["-x", "120", "-y", "40"];
        session.tmux(&[&["-f", "/dev/null", "new-session", "-d"][..], &size, &[&command]].concat());
        Some(session)
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.name]).args(arguments).output().expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn pid(&self) -> u32 {
        let text = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        text.trim().parse().unwrap_or_else(|_| panic!("no pid: {text:?}"))
    }

    fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done(self) {
            assert!(Instant::now() < deadline, "{what} did not come");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The process runs; a zombie does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).is_some_and(|state| state != 'Z')
}

#[test]
fn the_screen_ends_when_its_terminal_goes_away() {
    let Some(session) = Session::start("gone") else { return };
    let pid = session.pid();
    assert!(runs(pid));
    session.tmux(&["kill-server"]);
    session.wait("the end of the process", |_| !runs(pid));
}

#[test]
fn q_ends_the_screen() {
    let Some(session) = Session::start("q") else { return };
    let pid = session.pid();
    session.tmux(&["send-keys", "q"]);
    session.wait("the end of the process", |_| !runs(pid));
}

#[test]
fn a_termination_signal_ends_the_screen() {
    let Some(session) = Session::start("term") else { return };
    let pid = session.pid();
    let killed = Command::new("kill").args(["-TERM", &pid.to_string()]).status().expect("kill runs");
    assert!(killed.success());
    session.wait("the end of the process", |_| !runs(pid));
}

#[test]
fn a_service_ends_properly_when_the_terminal_it_was_started_on_goes_away() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let recording = dir.path().join("r.jsonl");
    let command = format!("collect --scenario healthy --socket off --record {}", recording.display());
    let Some(session) = Session::run("service", &command) else { return };
    session.wait("the first line", |session| session.tmux(&["capture-pane", "-p"]).contains("collecting"));
    let pid = session.pid();
    session.tmux(&["kill-server"]);
    session.wait("the end of the process", |_| !runs(pid));
    let path = recording.display().to_string();
    let read = binary::Run::of(["ports", "--json", "--recording", &path]);
    assert_eq!((read.code, read.stderr.as_str()), (Some(0), ""), "the recording is whole");
}
