//! Verbs operations: at which file offsets the providers' data-path functions lie.
//!
//! `ibv_post_send` and `ibv_poll_cq` are inline calls through `ibv_context.ops`, and providers are stripped, so there is
//! no symbol to attach to. A child process of the same binary ([`child`]) loads libibverbs, opens each device, reads the
//! operation table, tells its file offsets and ends: a provider that crashes or hangs cannot take the collector down,
//! and the collector itself never links or loads libibverbs.
//!
//! The contract with the binary: when its first argument is [`CHILD_ARG`], it calls [`child_main`] before anything else
//! and exits with what that returns.

mod child;
mod made;
pub(in crate::source) mod maps;
mod operation;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use child::child_main;
pub use made::Making;
pub use maps::FileId;
pub use operation::{Arg, Group, Operation, Table};

/// The first argument that makes the binary the child process.
pub const CHILD_ARG: &str = "verbs-operations";

/// How long the child may take in all. Opening a device asks its firmware a few questions; that is milliseconds.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// What the child found.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Operations {
    /// Each device's provider.
    pub devices: Vec<ProviderOps>,
    /// `ibv_modify_qp` of the libibverbs that processes here get, where a process can be watched using a QP.
    pub modify_qp: Option<Place>,
}

/// Where one device's provider keeps its data-path functions.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProviderOps {
    /// Device name as libibverbs knows it.
    pub device: String,
    /// What its context names. What a QP or a CQ names itself is there only where one was made ([`Making`]).
    #[serde(default, deserialize_with = "known")]
    pub places: BTreeMap<Operation, Place>,
    /// Why nothing is known, when the device could not be opened.
    pub error: Option<String>,
}

/// The places of operations that this version knows; another one's program may name more.
fn known<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<Operation, Place>, D::Error> {
    let all = <BTreeMap<String, Place> as serde::Deserialize>::deserialize(from)?;
    let operation = |name: &str| Operation::ALL.iter().copied().find(|operation| operation.name() == name);
    Ok(all.into_iter().filter_map(|(name, place)| Some((operation(&name)?, place))).collect())
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// Path of the file, as the process that uses it sees it.
    pub path: PathBuf,
    /// Where this process finds the file, when that is another path: a process may have a mount namespace of its own,
    /// and the file may have been replaced since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<PathBuf>,
    /// Major and minor number of the file system's device.
    pub dev: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

impl Place {
    /// The file.
    #[must_use]
    pub const fn file(&self) -> FileId {
        (self.dev, self.inode)
    }

    /// The function is libibverbs's own, which only says that the provider has none.
    #[must_use]
    pub fn is_stub(&self) -> bool {
        self.path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libibverbs.so"))
    }

    /// Where this process finds the file.
    #[must_use]
    pub fn reachable(&self) -> &Path {
        self.via.as_deref().unwrap_or(&self.path)
    }
}

/// Why the operation tables are not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The child could not be started.
    #[error("the child process could not be started: {0}")]
    Start(#[source] std::io::Error),
    /// The child did not end in time and was killed.
    #[error("the child process that asks libibverbs did not answer within {} s and was killed: a provider hangs", .0.as_secs_f64())]
    Hung(Duration),
    /// The child ended without an answer.
    #[error("the child process that asks libibverbs failed: {0}")]
    Failed(String),
    /// The child answered something else.
    #[error("the child process gave no valid answer: {0}")]
    Answer(#[from] serde_json::Error),
    /// libibverbs said no.
    #[error("{0}")]
    Verbs(String),
    /// There is no device to ask for.
    #[error("no RDMA device here")]
    NoDevice,
    /// No process can open a device.
    #[error("the module ib_uverbs is not loaded, so no process can use the RDMA devices")]
    NoUverbs,
    /// There is no libibverbs.
    #[error("libibverbs.so.1 is not installed, so it cannot be asked where processes post")]
    NotInstalled,
}

/// What brings the providers' libraries.
pub(super) const INSTALL_PROVIDERS: &str =
    "install the provider libraries (Debian: ibverbs-providers; Fedora: libibverbs)";

impl Error {
    /// What the operator can do about it; `None` when nothing is known to help.
    #[must_use]
    pub fn fix(&self) -> Option<&'static str> {
        match self {
            Self::NoDevice => Some("load the RDMA driver of the adapter, where there is one"),
            Self::NoUverbs => Some("modprobe ib_uverbs"),
            Self::NotInstalled => Some("install libibverbs (Debian: libibverbs1 and ibverbs-providers)"),
            Self::Start(_) | Self::Hung(_) | Self::Failed(_) | Self::Answer(_) | Self::Verbs(_) => None,
        }
    }
}

/// What the child prints: one JSON object.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Found(Operations),
    Error(String),
    NotInstalled {},
}

/// Asks a child process of this binary for the operations of every device; blocks up to `timeout`.
///
/// # Errors
/// Without a device or without `ib_uverbs` no child is started: libibverbs asks the kernel by RDMA netlink, which would
/// load the modules that are missing, and watching changes nothing.
pub fn operations(timeout: Duration) -> Result<Operations, Error> {
    usable(Path::new("/sys/class"))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(CHILD_ARG);
    for_a_child(&mut command);
    ask(command, timeout)
}

/// What a service manager tells the collector is not for its children.
fn for_a_child(command: &mut Command) {
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
}

/// Whether there is a device that processes can open, told by `classes` (`/sys/class`) alone. Files beside the devices
/// (`abi_version`) are no devices.
pub(super) fn usable(classes: &Path) -> Result<(), Error> {
    let has_device = |class: &str| {
        fs::read_dir(classes.join(class)).is_ok_and(|entries| entries.flatten().any(|entry| entry.path().is_dir()))
    };
    if !has_device("infiniband") {
        return Err(Error::NoDevice);
    }
    if has_device("infiniband_verbs") { Ok(()) } else { Err(Error::NoUverbs) }
}

fn ask(mut command: Command, timeout: Duration) -> Result<Operations, Error> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(Error::Start)?;
    // The pipes are read by threads of their own: a child that fills one of them must not wait for us.
    let answer = child.stdout.take().map(|pipe| thread::spawn(move || read(pipe)));
    let noise = child.stderr.take().map(|pipe| thread::spawn(move || read(pipe)));
    let ended = wait(&mut child, timeout);
    if ended.is_none() {
        // By its process id, and waited for; only then are its pipes at their end for sure. A grandchild that keeps
        // them open is not waited for: the threads are left to it.
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::Hung(timeout));
    }
    let answer = answer.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let status = ended.map_or_else(String::new, |status| status.to_string());
    if !ended.is_some_and(|status| status.success()) {
        let noise = noise.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let mut reason = status;
        if let Some(line) = String::from_utf8_lossy(&noise).lines().rev().find(|line| !line.trim().is_empty()) {
            let _ = write!(reason, ": {line}");
        }
        return Err(Error::Failed(reason));
    }
    // A provider may print what it likes before the answer.
    let text = String::from_utf8_lossy(&answer);
    let line = text.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
    match serde_json::from_str(line)? {
        Answer::Found(operations) => Ok(operations),
        Answer::Error(error) => Err(Error::Verbs(error)),
        Answer::NotInstalled {} => Err(Error::NotInstalled),
    }
}

fn read(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = pipe.by_ref().take(1 << 20).read_to_end(&mut bytes);
    bytes
}

/// The place of an address of this process by the text of its `maps`; `None` for memory that no file backs. For the process
/// that makes QPs to read where their functions lie.
#[must_use]
pub fn own_place(maps: &str, address: u64) -> Option<Place> {
    maps::place(maps, address)
}

fn wait(child: &mut Child, timeout: Duration) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_child_that_hangs_is_killed_and_named() {
        let error = ask(shell("exec sleep 1000"), Duration::from_millis(100)).expect_err("it cannot have answered");
        assert!(matches!(error, Error::Hung(_)), "{error}");
        assert!(error.to_string().contains("a provider hangs"), "{error}");
    }

    #[test]
    fn a_child_that_crashes_gives_its_signal_and_its_last_words() {
        let script = "echo 'provider: bad state' >&2; kill -SEGV $$";
        let error = ask(shell(script), TIMEOUT).expect_err("it cannot have answered").to_string();
        assert!(error.contains("signal: 11") && error.contains("provider: bad state"), "{error}");
    }

    #[test]
    fn a_child_that_prints_nonsense_is_not_believed() {
        assert!(matches!(ask(shell("echo hello"), TIMEOUT), Err(Error::Answer(_))));
    }

    #[test]
    fn the_answer_is_found_behind_a_provider_s_own_output() {
        let script = r#"echo 'libmlx5: debug'; echo '{"found":{"devices":[{"device":"mlx5_0","places":{"post_send":{"path":"/p.so","dev":[8,1],"inode":7,"offset":4096}},"error":null}],"modify_qp":null}}'"#;
        let found = ask(shell(script), TIMEOUT).expect("the answer is valid");
        assert_eq!(found.devices[0].device, "mlx5_0");
        let place = &found.devices[0].places[&Operation::PostSend];
        assert_eq!((place.dev, place.inode, place.offset), ((8, 1), 7, 4096));
    }

    #[test]
    fn without_a_device_that_can_be_opened_no_child_is_needed_to_say_so() {
        let classes = tempfile::tempdir().expect("a temporary directory");
        let make = |path: &str| fs::create_dir_all(classes.path().join(path)).expect("a directory");
        assert!(matches!(usable(classes.path()), Err(Error::NoDevice)));
        make("infiniband/mlx5_0");
        make("infiniband_verbs");
        fs::write(classes.path().join("infiniband_verbs/abi_version"), "6").expect("a file");
        assert!(matches!(usable(classes.path()), Err(Error::NoUverbs)));
        make("infiniband_verbs/uverbs0");
        assert!(usable(classes.path()).is_ok());
    }

    #[test]
    fn a_missing_libibverbs_comes_with_what_to_install() {
        let answer = serde_json::to_string(&Answer::NotInstalled {}).expect("an answer is JSON");
        let error = ask(shell(&format!("echo '{answer}'")), TIMEOUT).expect_err("it is not there");
        assert!(matches!(error, Error::NotInstalled), "{error}");
        assert!(error.fix().is_some_and(|fix| fix.contains("libibverbs1")));
    }

    #[test]
    fn libibverbs_own_refusal_is_passed_on() {
        let error = ask(shell(r#"echo '{"error":"libibverbs.so.1 not found"}'"#), TIMEOUT).expect_err("it refused");
        assert_eq!(error.to_string(), "libibverbs.so.1 not found");
    }
}
