//! A desk to try `collect` on: a tree of one port that can fall, a hook, and what both leave.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::binary::{Run, command, wait_until};

/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(20);

/// A directory with a tree of one ACTIVE port, a hook and what they leave.
pub struct Desk {
    dir: tempfile::TempDir,
}

impl Default for Desk {
    fn default() -> Self {
        Self::new()
    }
}

impl Desk {
    /// A desk with an ACTIVE port in `tree`.
    ///
    /// # Panics
    /// There is no room for it.
    #[must_use]
    pub fn new() -> Self {
        let desk = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        desk.port("tree", "4: ACTIVE");
        desk
    }

    /// A path on it.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes or changes the port of a tree.
    ///
    /// # Panics
    /// A file cannot be written.
    pub fn port(&self, tree: &str, state: &str) {
        let port = self.at(tree).join("class/infiniband/dev0/ports/1");
        std::fs::create_dir_all(port.join("counters")).expect("a tree can be made");
        for (file, text) in [
            ("state", state),
            ("phys_state", "5: LinkUp"),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("link_layer", "InfiniBand"),
            ("counters/port_rcv_data", "7"),
        ] {
            std::fs::write(port.join(file), text).expect("a file can be written");
        }
    }

    /// The port goes down and comes back until something holds: the first state that is read is no change.
    ///
    /// # Panics
    /// It never does.
    pub fn fall_until(&self, tree: &str, holds: impl Fn() -> bool) {
        let mut states = ["4: ACTIVE", "1: DOWN"].into_iter().cycle();
        let fell = wait_until(LONG, || {
            self.port(tree, states.next().expect("states without end"));
            wait_until(Duration::from_millis(300), &holds)
        });
        assert!(fell, "nothing comes of a fallen port");
    }

    /// A script `hook` that is started as one, and the configuration that says so.
    ///
    /// # Panics
    /// A file cannot be written.
    pub fn hook(&self, script: &str) {
        let hook = self.at("hook");
        std::fs::write(&hook, format!("#!/bin/sh\ncd '{}'\n{script}\n", self.dir.path().display())).expect("written");
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("it can be made executable");
        let config = format!("[[hook]]\ncommand = [{:?}]\nrules = [\"link.down\"]\n", hook.display().to_string());
        std::fs::write(self.at("c.toml"), config).expect("written");
    }

    /// The binary with these arguments; `@name` is a path on the desk.
    #[must_use]
    pub fn command(&self, line: &str) -> Command {
        command(line.split_whitespace().map(|word| match word.strip_prefix('@') {
            Some(name) => self.at(name).display().to_string(),
            None => word.to_owned(),
        }))
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(&self, line: &str) -> Run {
        Run::new(&mut self.command(line))
    }

    /// Starts it and waits until it says what it does.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(&self, line: &str) -> Collecting {
        self.start_command(self.command(line))
    }

    /// The same without a terminal to hang up, in a session of its own, as a service manager starts it.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start_service(&self, line: &str, variables: &[(&str, &str)]) -> Collecting {
        let plain = self.command(line);
        let mut command = Command::new("setsid");
        command.arg(plain.get_program()).args(plain.get_args()).env_clear().stdin(Stdio::null());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.envs(variables.iter().copied());
        self.start_command(command)
    }

    /// Starts any command that comes to be the binary.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start_command(&self, mut command: Command) -> Collecting {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut errors = BufReader::new(child.stderr.take().expect("its errors"));
        let mut first = String::new();
        errors.read_line(&mut first).expect("a line");
        Collecting { child, errors, first }
    }
}

/// A `collect` that runs.
pub struct Collecting {
    /// Its process.
    pub child: Child,
    /// What it says after the first line.
    pub errors: BufReader<std::process::ChildStderr>,
    /// The first line it said.
    pub first: String,
}

impl Collecting {
    /// Sends it a signal.
    ///
    /// # Panics
    /// It is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("it is there");
    }

    /// The next line it says.
    ///
    /// # Panics
    /// It ends without one.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("a line");
        assert!(line.ends_with('\n'), "it ended: {line:?}");
        line
    }

    /// Ends it with a signal; its code and the rest of what it said.
    ///
    /// # Panics
    /// It is gone.
    #[must_use]
    pub fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).expect("text");
        let code = self.child.wait().expect("it ends").code();
        (code, rest)
    }
}

/// What the socket says, line by line.
///
/// # Panics
/// Nobody serves it, or it says no JSON.
pub fn connect(path: &std::path::Path) -> impl Iterator<Item = Value> + use<> {
    let stream = UnixStream::connect(path).expect("the socket is served");
    stream.set_read_timeout(Some(LONG)).expect("a timeout can be set");
    BufReader::new(stream).lines().map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON"))
}
