//! Whether probes of returns leave processes alone that are confined by seccomp.
//!
//! On x86-64 a probed function returns into the kernel by a system call of its own (`uretprobe`, 335) since Linux 6.11. A
//! filter that does not know it refuses it, and the process dies of what follows. Fixed by commit cf6cb56ef244 ("seccomp:
//! passthrough uretprobe systemcall without filtering") in 6.14, 6.13.3 and 6.12.14. It is tried before the first such probe
//! is attached: a child of this program refuses itself the call and then returns from a probed function.
//!
//! The contract with the binary: when its first argument is [`CHILD_ARG`], it calls [`child_main`] before anything else and
//! exits with what that returns.

#![cfg_attr(
    target_arch = "x86_64",
    allow(
        unsafe_code,
        reason = "a function with a known first instruction, and a filter of system calls; each block says why"
    )
)]

use std::io::Read;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use aya::Ebpf;

use super::reason::Why;

/// The first argument that makes the binary the child process.
pub const CHILD_ARG: &str = "confined-return";

/// Set for the child, so that a program that does not know the argument starts no child of its own.
const TRYING: &str = "RDMASCOPE_CONFINED_RETURN";

/// How long the child may take; it needs milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the child says when it came back from the function.
const RETURNED: &str = "returned";

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// The process lives.
    Returned,
    /// It was ended.
    Died,
    /// Nothing can be said.
    Unknown,
}

/// Why no return may be probed on this kernel; `None` when it may.
pub(super) fn forbidden(ebpf: &mut Ebpf) -> Option<Why> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let release = version(&release);
    if release.is_some_and(|release| release < (6, 11, 0)) {
        return None;
    }
    judge(attempt(ebpf), release)
}

fn judge(tried: Tried, release: Option<(u32, u32, u32)>) -> Option<Why> {
    const ENDS: &str = "this kernel's return probes end processes that are confined by seccomp";
    const FIX: &str = "update the kernel (fixed in Linux 6.12.14, 6.13.3 and 6.14)";
    match tried {
        Tried::Died => Some(Why::with_fix(ENDS, FIX)),
        Tried::Unknown if release.is_some_and(is_affected) => {
            Some(Why::with_fix(format!("{ENDS}, by its version; it could not be tried"), FIX))
        }
        Tried::Returned | Tried::Unknown => None,
    }
}

/// The releases between the system call and the fix.
fn is_affected((major, minor, patch): (u32, u32, u32)) -> bool {
    match (major, minor) {
        (6, 11) => true,
        (6, 12) => patch < 14,
        (6, 13) => patch < 3,
        _ => false,
    }
}

/// The version a release begins with.
fn version(release: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    // "6.13-rc7" has no third number of its own.
    let patch = release.split('.').nth(2).map_or(Some(0), |rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })?;
    Some((major, minor, patch))
}

#[cfg(not(target_arch = "x86_64"))]
fn attempt(_ebpf: &mut Ebpf) -> Tried {
    Tried::Unknown
}

/// With the probe on the return of a function of this program, has a confined child call it.
#[cfg(target_arch = "x86_64")]
fn attempt(ebpf: &mut Ebpf) -> Tried {
    if std::env::var_os(TRYING).is_some() {
        return Tried::Unknown;
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg(CHILD_ARG);
    attempt_with(ebpf, command)
}

#[cfg(target_arch = "x86_64")]
fn attempt_with(ebpf: &mut Ebpf, command: Command) -> Tried {
    use std::path::Path;

    use super::library::Library;
    use super::uprobes::link;
    let Some(offset) = x86_64::offset() else { return Tried::Unknown };
    let Ok(program) = Library::open(Path::new("/proc/self/exe")) else { return Tried::Unknown };
    let Ok(_attached) = link(ebpf, "poll_cq_return", &program, offset) else { return Tried::Unknown };
    ended(command)
}

/// Runs the child, and says what became of it.
fn ended(mut command: Command) -> Tried {
    command.env(TRYING, "1").env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else { return Tried::Unknown };
    let said = child.stdout.take().map(|pipe| {
        thread::spawn(move || {
            let mut said = String::new();
            let _ = pipe.take(1 << 16).read_to_string(&mut said);
            said
        })
    });
    let deadline = Instant::now() + TIMEOUT;
    let status: Option<ExitStatus> = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => break None,
        }
    };
    let Some(status) = status else {
        // By its process id, and waited for.
        let _ = child.kill();
        let _ = child.wait();
        return Tried::Unknown;
    };
    let said = said.and_then(|thread| thread.join().ok()).unwrap_or_default();
    // It says that it begins, and that it is back: a program that does not know the argument says neither.
    let said = |word: &str| said.lines().any(|line| line == word);
    match (said(BEGINS), said(RETURNED)) {
        (true, true) if status.success() => Tried::Returned,
        (true, false) => Tried::Died,
        _ => Tried::Unknown,
    }
}

/// What the child says when it is confined and calls the function.
const BEGINS: &str = "confined";

/// What the binary does when its first argument is [`CHILD_ARG`].
#[must_use]
#[cfg(not(target_arch = "x86_64"))]
pub fn child_main() -> ExitCode {
    ExitCode::FAILURE
}

/// What the binary does when its first argument is [`CHILD_ARG`].
#[must_use]
#[cfg(target_arch = "x86_64")]
pub fn child_main() -> ExitCode {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // Whatever becomes of it, no image of it is kept.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if x86_64::confine().is_err() {
        return ExitCode::FAILURE;
    }
    println!("{BEGINS}");
    if !x86_64::call() {
        return ExitCode::FAILURE;
    }
    println!("{RETURNED}");
    ExitCode::SUCCESS
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::io;

    use crate::source::verbs::maps;

    std::arch::global_asm!(
        ".pushsection .text.rdmascope_confined, \"ax\", @progbits",
        ".balign 16",
        ".globl rdmascope_confined_poll",
        ".hidden rdmascope_confined_poll",
        "rdmascope_confined_poll:",
        "push rbx",
        "mov eax, 7",
        "pop rbx",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        fn rdmascope_confined_poll(cq: u64, n: u64, wc: u64) -> i32;
    }

    /// Where the function lies in this program's file.
    pub(super) fn offset() -> Option<u64> {
        let text = crate::source::proc::text("/proc/self/maps".as_ref()).ok()?;
        let address = rdmascope_confined_poll as *const () as u64;
        maps::mappings(&text).find(|mapping| mapping.holds(address))?.place(address).map(|place| place.offset)
    }

    /// Calls the function; whether it gave what it should.
    pub(super) fn call() -> bool {
        // SAFETY: the function looks at none of its arguments.
        std::hint::black_box(unsafe { rdmascope_confined_poll(0, 0, 0) }) == 7
    }

    /// Refuses this thread the system call by which a probed function returns, as filters do that do not know it.
    pub(super) fn confine() -> io::Result<()> {
        const URETPROBE: u32 = 335;
        const ARCH_X86_64: u32 = 0xc000_003e;
        /// Of `struct seccomp_data`: where the number and the architecture lie, in bytes.
        const NR: u32 = 0;
        const ARCH: u32 = 4;
        /// Load a word, jump if equal, return a constant (`include/uapi/linux/bpf_common.h`).
        const LOAD: u16 = 0x20;
        const JUMP_IF: u16 = 0x15;
        const RETURN: u16 = 0x06;
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut filter = [
            step(LOAD, 0, 0, ARCH),
            step(JUMP_IF, 0, 3, ARCH_X86_64),
            step(LOAD, 0, 0, NR),
            step(JUMP_IF, 0, 1, URETPROBE),
            step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
            step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
        rustix::thread::set_no_new_privs(true)?;
        // SAFETY: `program` and the filter it points to live until the call is over, and the kernel copies them.
        let result = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::c_ulong::from(libc::SECCOMP_MODE_FILTER), &raw const program)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
    fn what_became_of_the_child_is_told_by_its_words_and_its_end() {
        assert_eq!(ended(shell("echo noise; echo confined; echo returned")), Tried::Returned);
        assert_eq!(ended(shell("echo confined; kill -SEGV $$")), Tried::Died);
        assert_eq!(ended(shell("echo confined; exit 1")), Tried::Died);
        // It knows nothing of all this, cannot be confined, or cannot be started.
        assert_eq!(ended(shell("exit 0")), Tried::Unknown);
        assert_eq!(ended(shell("exit 1")), Tried::Unknown);
        assert_eq!(ended(Command::new("/nonexistent")), Tried::Unknown);
    }

    #[test]
    fn a_trial_is_believed_and_the_version_decides_where_there_was_none() {
        for release in ["6.11.0-29-generic", "6.12.0", "6.12.13", "6.13.0-rc7", "6.13.2-arch1-1"] {
            let release = version(release);
            let why = judge(Tried::Unknown, release).unwrap_or_else(|| panic!("{release:?}"));
            assert!(why.reason.starts_with("this kernel's return probes end processes that are confined by seccomp"));
            assert!(why.reason.contains("could not be tried") && why.fix.is_some());
            assert_eq!(judge(Tried::Returned, release), None, "the fix was taken over: {release:?}");
        }
        for release in ["6.10.14", "6.12.14", "6.12.117+deb12-amd64", "6.13.3", "6.14-rc2", "6.18.44-fc-v595", "5.15.0"]
        {
            let release = version(release);
            assert_eq!(judge(Tried::Unknown, release), None, "{release:?}");
            assert_eq!(
                judge(Tried::Died, release).map(|why| why.reason).as_deref(),
                Some("this kernel's return probes end processes that are confined by seccomp")
            );
        }
        assert_eq!((version("6.14-rc2"), version("nonsense")), (Some((6, 14, 0)), None));
    }

    /// Run as a process of its own by the test below.
    #[test]
    #[ignore = "tool: the confined process"]
    #[cfg(target_arch = "x86_64")]
    fn a_confined_process() {
        if std::env::var_os(TRYING).is_some() {
            println!();
            assert_eq!(format!("{:?}", child_main()), format!("{:?}", ExitCode::SUCCESS));
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn this_kernel_s_return_probes_are_tried_on_a_confined_process() {
        let mut attached = super::super::attach::Attached::new(64);
        let Some(ebpf) = attached.ebpf() else { return println!("skipped: no BPF program can be loaded here") };
        let mut command = Command::new("/proc/self/exe");
        command.args(["--ignored", "--nocapture", "--exact", "source::probes::confined::tests::a_confined_process"]);
        let release = version(&rustix::system::uname().release().to_string_lossy()).expect("a version");
        let tried = attempt_with(ebpf, command);
        println!("{tried:?} on {release:?}");
        match tried {
            Tried::Unknown => println!("skipped: uprobes cannot be attached here"),
            // A distribution may have taken over the fix; none has it the other way round.
            Tried::Returned => {}
            Tried::Died => assert!(is_affected(release), "{release:?}"),
        }
    }
}
