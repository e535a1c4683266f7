//! `doctor`: what can be seen here and why not the rest.

use std::path::Path;

use serde::Serialize;

use super::probe_lines;
use super::qps::{Unseen, unseen};
use super::table::line;
use crate::inventory::World;
use crate::observation::Seeing;
use crate::source::{Availability, ProbeReport, proc};

/// `doctor --json`; stable.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    /// Each source: what it sees and what it misses.
    pub sources: Vec<Availability>,
    /// Each probe.
    pub probes: Vec<ProbeReport>,
    /// The kernel.
    pub kernel: Kernel,
    /// Who posts, or may post, where no probe sees it, as far as a first look tells.
    pub unseen: Vec<Unseen>,
    /// What this program can never see, on any node.
    pub blind_spots: Vec<&'static str>,
}

/// The kernel and this process's place on it.
#[derive(Debug, Serialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// `uname -m`.
    pub machine: String,
    /// BTF of the running kernel.
    pub btf: bool,
    /// BTF of the loaded `ib_core` module.
    pub ib_core_btf: bool,
    /// Lockdown mode; null when it cannot be read.
    pub lockdown: Option<String>,
    /// tracefs can be read.
    pub tracefs: bool,
    /// Effective user is root.
    pub root: bool,
    /// Effective capabilities that matter here, by name.
    pub capabilities: Vec<&'static str>,
}

/// Capabilities that matter here: bit (linux/capability.h) and name.
const CAPABILITIES: &[(u32, &str)] =
    &[(12, "CAP_NET_ADMIN"), (19, "CAP_SYS_PTRACE"), (21, "CAP_SYS_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];

/// Paths that no host-side observer without the vendor's tools sees.
const BLIND_SPOTS: &[&str] = &[
    "QPs created through DEVX (mlx5dv_devx_obj_create): not in the kernel's list, their state changes pass by the probes",
    "posts that ring the doorbell without libibverbs operations: mlx5dv direct WQEs, UCX rc_mlx5/dc_mlx5, DPDK",
    "posts from the GPU (GPUDirect Async, IBGDA)",
    "posts of the kernel's own users (storage, IPoIB): their functions are not watched",
    "QPs of virtual machines that own a virtual function",
];

/// Looks at the kernel. Never fails: what cannot be read is false, null or empty.
#[must_use]
pub fn kernel() -> Kernel {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    Kernel {
        release: text(uname.release()),
        machine: text(uname.machine()),
        btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        ib_core_btf: Path::new("/sys/kernel/btf/ib_core").exists(),
        lockdown: std::fs::read_to_string("/sys/kernel/security/lockdown").ok().and_then(|modes| selected(&modes)),
        tracefs: ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"]
            .iter()
            .any(|path| std::fs::read_dir(path).is_ok()),
        root: rustix::process::geteuid().is_root(),
        capabilities: proc::text("/proc/self/status".as_ref()).map(|s| capabilities(&s)).unwrap_or_default(),
    }
}

/// The mode in brackets of `none [integrity] confidentiality`.
fn selected(modes: &str) -> Option<String> {
    Some(modes.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn capabilities(status: &str) -> Vec<&'static str> {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    CAPABILITIES.iter().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, name)| *name).collect()
}

impl DoctorReport {
    /// The report on what sources and probes say, and on what was seen meanwhile.
    #[must_use]
    pub fn new(sources: Vec<Availability>, probes: Vec<ProbeReport>, world: &World) -> Self {
        Self { sources, probes, kernel: kernel(), unseen: unseen(world), blind_spots: BLIND_SPOTS.to_vec() }
    }

    /// A source sees something, so the program is of use here.
    #[must_use]
    pub fn sees_anything(&self) -> bool {
        self.sources.iter().any(|source| source.state != Seeing::Off)
    }

    /// The report as text; `verbose`: each probe in a line of its own.
    #[must_use]
    pub fn text(&self, verbose: bool) -> String {
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        let kernel = &self.kernel;
        let mut text = String::new();
        let about = format!(
            "kernel {} {}: BTF {}, ib_core BTF {}, tracefs {}, lockdown {}, root {}, capabilities {}",
            kernel.release,
            kernel.machine,
            yes(kernel.btf),
            yes(kernel.ib_core_btf),
            yes(kernel.tracefs),
            kernel.lockdown.as_deref().unwrap_or("–"),
            yes(kernel.root),
            if kernel.capabilities.is_empty() {
                "none that matter here".to_owned()
            } else {
                kernel.capabilities.join(" ")
            }
        );
        line(&mut text, &about);
        for source in &self.sources {
            let word = match source.state {
                Seeing::Ok => "ok     ",
                Seeing::Partial => "partial",
                Seeing::Off => "off    ",
            };
            line(&mut text, &format!("{word} {}: {}", source.name, source.sees));
            for missing in &source.missing {
                line(&mut text, &format!("          not seen: {}: {}", missing.what, missing.reason));
                if let Some(fix) = &missing.fix {
                    line(&mut text, &format!("          to do:    {fix}"));
                }
            }
        }
        for probe in if verbose { probe_lines::each(&self.probes) } else { probe_lines::folded(&self.probes) } {
            line(&mut text, &format!("probe {probe}"));
        }
        for unseen in &self.unseen {
            line(&mut text, &format!("not seen ({}): {}", unseen.likelihood, unseen.line));
        }
        text.push_str("never seen from here:\n");
        for blind in &self.blind_spots {
            text.push_str(&format!("  - {blind}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lockdown_mode_is_the_one_in_brackets() {
        assert_eq!(selected("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(selected("garbage"), None);
    }

    #[test]
    fn capabilities_are_read_from_the_effective_mask() {
        assert_eq!(capabilities("CapEff:\t0000008000200000\n"), ["CAP_SYS_ADMIN", "CAP_BPF"]);
        assert_eq!(capabilities(""), Vec::<&str>::new());
    }
}
