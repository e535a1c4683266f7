//! Errors of loading and attaching, in the operator's words.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

use crate::source::proc;

/// Capability numbers (include/uapi/linux/capability.h).
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// Error codes (include/uapi/asm-generic/errno-base.h).
const EPERM: i32 = 1;
const EACCES: i32 = 13;

/// What gives a process all that the probes need.
pub(super) const RUN_AS_ROOT: &str = "run it as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN";

/// What ends the lockdown.
const UNLOCK: &str = "boot without lockdown=confidentiality: integrity forbids nothing that is used here";

/// Why something does not work, and what the operator can do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Why {
    /// Why.
    pub(super) reason: String,
    /// What to do; `None` when nothing is known to help.
    pub(super) fix: Option<String>,
}

impl Why {
    /// A reason and what to do about it.
    pub(super) fn with_fix(reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { reason: reason.into(), fix: Some(fix.into()) }
    }
}

impl<T: Into<String>> From<T> for Why {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), fix: None }
    }
}

/// Why BPF programs cannot be loaded here at all, as far as it can be told before trying.
pub(super) fn cannot_load() -> Option<Why> {
    forbidden(&proc::text("/proc/self/status".as_ref()).ok()?)
}

fn forbidden(status: &str) -> Option<Why> {
    let caps = effective_capabilities(status)?;
    let lacks = |cap: u32| caps & 1 << cap == 0;
    if !lacks(SYS_ADMIN) {
        return None;
    }
    let missing = match (lacks(BPF), lacks(PERFMON)) {
        (false, false) => return None,
        (true, true) => "CAP_BPF and CAP_PERFMON",
        (true, false) => "CAP_BPF",
        (false, true) => "CAP_PERFMON",
    };
    let who = if is_root(status) { "root without capabilities, as in a container" } else { "not root" };
    Some(Why::with_fix(format!("{who}: loading BPF programs needs {missing}"), RUN_AS_ROOT))
}

/// The effective user is root: the second of the four ids in the line `Uid:` (proc(5)).
fn is_root(status: &str) -> bool {
    status.lines().find_map(|line| line.strip_prefix("Uid:")).and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

/// Why no program may look into the kernel, when it says so itself: `confidentiality` forbids kprobes, reading kernel
/// memory and tracefs (security/security.c, `lockdown_reasons`). It would allow the probe of posts, which reads processes
/// only; but aya asks for `bpf_probe_read_kernel`, and where that is refused it takes the kernel for one before 5.5 and
/// has all programs call `bpf_probe_read`, which is refused as well.
pub(super) fn locked_down() -> Option<Why> {
    locked(&fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default())
}

fn locked(lockdown: &str) -> Option<Why> {
    lockdown
        .contains("[confidentiality]")
        .then(|| Why::with_fix("the kernel is locked down (confidentiality): nobody may trace it", UNLOCK))
}

/// What the verifier said, in words. It refuses a helper that lockdown forbids as one it does not know.
pub(super) fn refused(error: &io::Error, log: &str) -> Why {
    let no_helper = log.contains("unknown func") || log.contains("cannot use helper");
    if no_helper && log.contains("bpf_probe_read") {
        let reason = "the kernel gives programs no helper to read memory (bpf_probe_read), as when it is locked down \
            (confidentiality)";
        return Why::with_fix(reason, UNLOCK);
    }
    cut(&format!("this kernel's verifier refuses the program ({error}): {log}")).into()
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The kernel can attach probes of a kind (`kprobe`, `uprobe`) through perf; the older way would write to tracefs.
pub(super) fn has_probe_kind(kind: &str) -> bool {
    Path::new("/sys/bus/event_source/devices").join(kind).join("type").exists()
}

/// An error with what caused it, in one line. Where the kernel gives the same code for several causes, they are told as
/// what they are: possible.
pub(super) fn explain(error: &(dyn Error + 'static)) -> Why {
    let sys_admin = proc::text("/proc/self/status".as_ref())
        .ok()
        .and_then(|status| effective_capabilities(&status))
        .is_some_and(|caps| caps & 1 << SYS_ADMIN != 0);
    denied(errno(error), sys_admin).unwrap_or_else(|| chain(error).into())
}

fn denied(errno: Option<i32>, sys_admin: bool) -> Option<Why> {
    Some(match errno? {
        EPERM | EACCES if !sys_admin => {
            Why::with_fix("permission denied: this process has no CAP_SYS_ADMIN", RUN_AS_ROOT)
        }
        EPERM => "not permitted in spite of CAP_SYS_ADMIN; possible causes: a container's seccomp profile, lockdown, \
            another security module"
            .into(),
        EACCES => "refused in spite of CAP_SYS_ADMIN; possible causes: this kernel's verifier does not accept the \
            program, a security module forbids it"
            .into(),
        _ => return None,
    })
}

/// The operating system's error code behind an error.
pub(super) fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && let Some(code) = io.raw_os_error()
        {
            return Some(code);
        }
        at = error.source();
    }
    None
}

/// The messages of an error and its sources, each once.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut at = Some(error);
    while let Some(error) = at {
        let message = error.to_string();
        if !text.contains(&message) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&message);
        }
        at = error.source();
    }
    cut(&text)
}

/// Cuts a text to what fits a line. The end is kept: the end of a verifier's log says what was wrong.
pub(super) fn cut(text: &str) -> String {
    const LONGEST: usize = 600;
    let text = text.lines().collect::<Vec<_>>().join(" | ");
    if text.len() <= LONGEST {
        return text;
    }
    let tail = text.char_indices().rev().take(LONGEST / 2).last().map_or(0, |(at, _)| at);
    let head = text.char_indices().nth(LONGEST / 2).map_or(text.len(), |(at, _)| at);
    format!("{} … {}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(uid: u32, caps: u64) -> String {
        format!("Name:\tx\nUid:\t1\t{uid}\t1\t1\nCapPrm:\t{caps:016x}\nCapEff:\t{caps:016x}\n")
    }

    #[test]
    fn an_ordinary_user_is_told_which_capabilities_are_missing_and_what_to_do() {
        let why = forbidden(&status(1000, 0)).expect("no capability, no BPF");
        assert_eq!(why.reason, "not root: loading BPF programs needs CAP_BPF and CAP_PERFMON");
        assert!(why.fix.is_some_and(|fix| fix.contains("root") && fix.contains("CAP_SYS_ADMIN")));
        let half = forbidden(&status(1000, 1 << BPF)).expect("half is not enough");
        assert_eq!(half.reason, "not root: loading BPF programs needs CAP_PERFMON");
    }

    #[test]
    fn root_that_lost_its_capabilities_is_not_told_that_it_is_not_root() {
        let why = forbidden(&status(0, 0)).expect("no capability, no BPF");
        assert!(why.reason.starts_with("root without capabilities"), "{why:?}");
    }

    #[test]
    fn root_and_the_two_small_capabilities_may_load() {
        assert_eq!(forbidden(&status(0, u64::MAX)), None);
        assert_eq!(forbidden(&status(1000, 1 << BPF | 1 << PERFMON)), None);
    }

    #[test]
    fn confidentiality_lockdown_is_named_and_integrity_is_no_obstacle() {
        let why = locked("none integrity [confidentiality]\n").expect("locked down");
        assert!(why.reason.contains("confidentiality") && why.fix.is_some(), "{why:?}");
        assert_eq!(locked("none [integrity] confidentiality\n"), None);
        assert_eq!(locked(""), None);
    }

    #[test]
    fn a_refused_helper_is_lockdown_and_any_other_refusal_is_the_verifier_s() {
        let error = io::Error::from_raw_os_error(22);
        for log in ["unknown func bpf_probe_read#4", "program of this type cannot use helper bpf_probe_read_kernel#113"]
        {
            assert!(refused(&error, log).reason.contains("locked down"), "{log}");
        }
        let why = refused(&io::Error::from_raw_os_error(EACCES), "R1 invalid mem access 'scalar'");
        assert!(why.reason.contains("verifier refuses") && !why.reason.contains("seccomp"), "{why:?}");
    }

    #[test]
    fn a_denial_with_several_causes_names_none_of_them_as_certain() {
        let why = denied(Some(EACCES), true).expect("it is a denial");
        assert!(why.reason.contains("possible causes") && why.reason.contains("verifier"), "{why:?}");
        assert!(!why.reason.contains("seccomp"), "{why:?}");
        let why = denied(Some(EPERM), true).expect("it is a denial");
        assert!(why.reason.contains("possible causes") && why.reason.contains("seccomp"), "{why:?}");
        assert!(denied(Some(EACCES), false).is_some_and(|why| why.fix.is_some()));
        assert_eq!(denied(Some(2), true), None);
    }

    #[test]
    fn a_long_log_keeps_its_end() {
        let error = io::Error::other(format!("start {}\n{} the end", "x".repeat(2000), "y".repeat(2000)));
        let text = explain(&error).reason;
        assert!(text.len() < 700 && text.starts_with("start") && text.ends_with("the end"), "{text}");
    }

    #[test]
    fn the_error_code_is_found_behind_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        assert_eq!(errno(&Outer(io::Error::from_raw_os_error(2))), Some(2));
    }
}
