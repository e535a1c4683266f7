//! Errors of loading and attaching, in the operator's words.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

/// Capability numbers (include/uapi/linux/capability.h).
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// Why BPF programs cannot be loaded here at all, as far as it can be told before trying.
pub(super) fn cannot_load() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    forbidden(&status, &lockdown)
}

fn forbidden(status: &str, lockdown: &str) -> Option<String> {
    if lockdown.contains("[confidentiality]") {
        return Some("the kernel is locked down (confidentiality): it lets nobody trace it".to_owned());
    }
    let caps = effective_capabilities(status)?;
    let has = |cap: u32| caps & 1 << cap != 0;
    if has(SYS_ADMIN) || (has(BPF) && has(PERFMON)) {
        return None;
    }
    Some("not root: loading BPF programs needs CAP_BPF and CAP_PERFMON, and attaching them CAP_SYS_ADMIN".to_owned())
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The kernel can attach probes of a kind (`kprobe`, `uprobe`) through perf; the older way would write to tracefs.
pub(super) fn has_probe_kind(kind: &str) -> bool {
    Path::new("/sys/bus/event_source/devices").join(kind).join("type").exists()
}

/// An error with what caused it, in one line.
pub(super) fn explain(error: &(dyn Error + 'static)) -> String {
    let errno = errno(error);
    let sys_admin = fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| effective_capabilities(&status))
        .is_some_and(|caps| caps & 1 << SYS_ADMIN != 0);
    match errno {
        Some(1 | 13) if !sys_admin => {
            "permission denied: attaching probes needs CAP_SYS_ADMIN (root, or the service unit's capabilities)".to_owned()
        }
        Some(1 | 13) => {
            "permission denied in spite of CAP_SYS_ADMIN: a container's seccomp profile, lockdown or an LSM forbids bpf() \
             or perf_event_open()"
                .to_owned()
        }
        _ => chain(error),
    }
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

    fn status(caps: u64) -> String {
        format!("Name:\tx\nCapPrm:\t{caps:016x}\nCapEff:\t{caps:016x}\n")
    }

    #[test]
    fn an_ordinary_user_is_told_which_capabilities_are_missing() {
        let reason = forbidden(&status(0), "").expect("no capability, no BPF");
        assert!(reason.contains("CAP_BPF") && reason.contains("CAP_SYS_ADMIN"), "{reason}");
    }

    #[test]
    fn root_and_the_two_small_capabilities_may_load() {
        assert_eq!(forbidden(&status(u64::MAX), "[none] integrity confidentiality"), None);
        assert_eq!(forbidden(&status(1 << BPF | 1 << PERFMON), "none [integrity] confidentiality"), None);
        assert!(forbidden(&status(1 << BPF), "").is_some());
    }

    #[test]
    fn confidentiality_lockdown_is_named() {
        let reason = forbidden(&status(u64::MAX), "none integrity [confidentiality]").expect("locked down");
        assert!(reason.contains("confidentiality"), "{reason}");
    }

    #[test]
    fn a_long_log_keeps_its_end() {
        let error = io::Error::other(format!("start {}\n{} the end", "x".repeat(2000), "y".repeat(2000)));
        let text = explain(&error);
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
