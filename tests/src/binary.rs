//! The product's binary: built once for each test program, run with a clean environment.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The environment variable that names a binary to test instead of the workspace's own.
pub const BINARY: &str = "END_TO_END_BINARY";

/// No run of the tests takes longer than this.
const DEADLINE: Duration = Duration::from_secs(60);

/// The binary's path.
///
/// Cargo names the binary to the tests of its own package only, so it is asked to build it (which does nothing when it
/// is fresh) and to say where it lies.
///
/// # Panics
/// It cannot be built.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os(BINARY).map_or_else(build, PathBuf::from))
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).args([
        "build",
        "--package=rdmascope",
        "--bin=rdmascope",
        "--message-format=json-render-diagnostics",
    ]);
    // Cargo told this test of its package; build scripts of other packages would take that for a change.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let output = command.stderr(Stdio::inherit()).output().expect("cargo runs");
    assert!(output.status.success(), "the binary cannot be built");
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "rdmascope")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    executable.expect("cargo names the executable it built")
}

/// A command of the binary without input, without variables of the caller's environment. It is hung up by SIGHUP also where
/// the tests were started with nohup, which a child would inherit.
pub fn command<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.arg("--default-signal=HUP").arg(path()).args(args).env_clear().stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// What a run left.
#[derive(Debug)]
pub struct Run {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// Runs the binary to its end.
    ///
    /// # Panics
    /// It does not end in a minute.
    pub fn of<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Self {
        Self::new(&mut command(args))
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// It cannot be started, or does not end in a minute.
    pub fn new(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let pid = child.id();
        let reader = std::thread::spawn(move || child.wait_with_output());
        assert!(wait_until(DEADLINE, || reader.is_finished()), "{command:?} (pid {pid}) does not end");
        let output = reader.join().expect("the reader does not panic").expect("the command can be waited for");
        Self::from(output)
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    /// It is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON: {error}: {self:?}"))
    }

    /// Fails unless it ended with this code and said exactly one line, with all of `words` in it, on standard error.
    ///
    /// # Panics
    /// When it did not.
    pub fn says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.starts_with("rdmascope: ") && self.stderr.ends_with('\n'), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing: {self:?}");
        }
        for panic in ["panicked", "RUST_BACKTRACE", "Error {", "unwrap"] {
            assert!(!self.stderr.contains(panic), "{self:?}");
        }
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Waits until a condition holds; `false` when it does not within the time.
pub fn wait_until(within: Duration, holds: impl FnMut() -> bool) -> bool {
    wait_looking(Duration::from_millis(5), within, holds)
}

/// The same, looking so often: where a look is dear.
pub fn wait_looking(every: Duration, within: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(every);
    }
}

/// A process runs; a zombie does not.
#[must_use]
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).is_some_and(|state| state != 'Z')
}
