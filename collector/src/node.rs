//! This node: which sources there are for it, and what its header says. The list of sources is here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::clock;
use crate::observation::recording::Header;
use crate::observation::{Nanos, Seeing};
use crate::source::congestion::Congestion;
use crate::source::devlink::Devlink;
use crate::source::ethtool::Ethtool;
use crate::source::files::RootedFiles;
use crate::source::hwmon::Hwmon;
use crate::source::loopback::{self, Loopback, LoopbackOptions};
use crate::source::netdev::Netdev;
use crate::source::nldev::binding::{self, Binding, Changes};
use crate::source::packets::{self, PacketOptions, Packets, Watch};
use crate::source::pcie::{PcieOptions, PcieSource};
use crate::source::probes::{ProbeOptions, Probes};
use crate::source::starting::Starting;
use crate::source::sysfs::{NoDevice, SysfsOptions, SysfsSource, why_no_device};
use crate::source::verbs::Making;
use crate::source::{Availability, Emit, Missing, Source, devlink, ethtool, nldev};

/// What to watch, and how.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Another tree than `/sys`.
    pub sysfs_root: Option<PathBuf>,
    /// Watch only devices that match one of these patterns; none: all.
    pub device: Vec<String>,
    /// Never open anything of devices that match one of these.
    pub exclude: Vec<String>,
    /// Between two readings of the counters, ns.
    pub interval_ns: u64,
    /// Probes; `None` attaches none.
    pub probes: Option<ProbeOptions>,
    /// QPs the probes have room for; `None`: twice the QPs the node has now, and never less than the probes' own default.
    pub max_qps: Option<u32>,
    /// Network devices on which packets are looked at.
    pub packets: Watch,
    /// Packets looked at in a second.
    pub packet_budget: u32,
    /// Measure a loopback of each port with this program (`None`: the one that is found); `None` measures nothing.
    pub loopback: Option<Option<PathBuf>>,
    /// What may be changed on the node.
    pub changes: Changes,
    /// Where changes are allowed, have QPs and CQs made by this program (`None`: the one that is found) to learn the functions
    /// they have of their own; `None` makes nothing.
    pub making: Option<Option<PathBuf>>,
    /// Start the probes aside: a screen is there at once, but what happens in the first second or so is not traced.
    pub probes_aside: bool,
}

/// Why the node cannot be watched as asked.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A pattern is none.
    #[error("{0:?} is no device pattern: {1}")]
    Pattern(String, String),
    /// The tree cannot be opened.
    #[error("cannot open {path}: {error}", path = .0.display(), error = .1)]
    Root(PathBuf, std::io::Error),
}

/// This node's sources.
pub struct Node {
    /// The sources, in the order they are polled.
    pub sources: Vec<Box<dyn Source>>,
    /// The header of what is observed here.
    pub header: Header,
    /// Why there is no device; `None` when there is one.
    pub no_device: Option<NoDevice>,
}

impl Node {
    /// Opens the sources. What a source cannot see is in its availability, not an error.
    pub fn open(options: &NodeOptions) -> Result<Self, NodeError> {
        let root = options.sysfs_root.as_deref().unwrap_or(Path::new("/sys"));
        let here = is_this_node(root);
        let files = Arc::new(RootedFiles::new(root).map_err(|error| NodeError::Root(root.to_owned(), error))?);
        let wanted = filter(&options.device, &options.exclude)?;
        let no_device = why_no_device(&*files);
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        let aside = options.probes_aside;
        let mut sysfs = SysfsOptions::new(files.clone());
        sysfs.wanted = wanted.clone();
        sysfs.period_ns = options.interval_ns;
        let mut pcie = PcieOptions::new(files.clone());
        pcie.wanted = wanted.clone();
        pcie.ports = Some(sysfs.ports.clone());
        if here {
            let mut netlink = nldev::Nldev::start(nldev::Options {
                wanted: wanted.clone(),
                statistics_period: options.interval_ns,
                ..nldev::Options::default()
            });
            let now = u32::try_from(netlink.count_qps()).unwrap_or(u32::MAX);
            let probes = options.probes.clone().map(|probes| ProbeOptions {
                max_qps: options.max_qps.unwrap_or_else(|| probes.max_qps.max(now.saturating_mul(2))),
                making: options.making.clone().map(|program| Making {
                    program,
                    device: options.device.clone(),
                    exclude: options.exclude.clone(),
                }),
                ..probes
            });
            let coverage = netlink.coverage();
            sysfs.skip_hw_counters = Arc::new(move |device| coverage.contains(device));
            // Netlink first: what it reads need not be read again from sysfs in the same round.
            sources.push(Box::new(netlink));
            let ports = sysfs.ports.clone();
            let netdev = Netdev::start(files.clone(), ports.clone(), options.interval_ns);
            let says_bonds = netdev.says_bonds();
            sysfs.skip_bonds = Arc::new(move || says_bonds.load(Ordering::Relaxed));
            // Before those that read what lies beside the ports it finds.
            sources.push(Box::new(SysfsSource::new(sysfs)));
            sources.push(Box::new(PcieSource::new(pcie)));
            sources.push(Box::new(netdev));
            sources.push(Box::new(Ethtool::start(ports.clone(), options.interval_ns)));
            sources.push(Box::new(Congestion::start(files.clone(), ports.clone())));
            sources.push(Box::new(Devlink::start(files.clone(), ports.clone())));
            sources.push(Box::new(Hwmon::new(files.clone(), ports)));
            match probes {
                Some(probes) if aside => {
                    sources.push(Box::new(Starting::new("probes", move || Box::new(Probes::start(&probes)))));
                }
                Some(probes) => sources.push(Box::new(Probes::start(&probes))),
                None => sources.push(Box::new(Absent::new("probes", "switched off (--no-ebpf)", None))),
            }
            match &options.loopback {
                Some(program) => {
                    let options = LoopbackOptions {
                        program: program.clone(),
                        device: options.device.clone(),
                        exclude: options.exclude.clone(),
                    };
                    sources.push(Box::new(Loopback::start(options, !aside)));
                }
                None => sources.push(Box::new(Absent::new(loopback::NAME, "off unless asked for", Some("--loopback")))),
            }
            sources.push(Box::new(Binding::start(binding::Options::here(options.changes, wanted.clone()))));
            if options.packets.is_off() {
                let fix = Some("--packets auto");
                sources.push(Box::new(Absent::new(packets::NAME, "off unless asked for", fix)));
            } else {
                sources.push(Box::new(Packets::start(PacketOptions {
                    watch: options.packets.clone(),
                    per_second: options.packet_budget,
                    files,
                    wanted,
                    period_ns: options.interval_ns,
                })));
            }
        } else {
            let ports = sysfs.ports.clone();
            sources.push(Box::new(SysfsSource::new(sysfs)));
            sources.push(Box::new(PcieSource::new(pcie)));
            sources.push(Box::new(Netdev::of_tree(files.clone(), ports.clone(), options.interval_ns)));
            sources.push(Box::new(Congestion::of_tree(files.clone(), ports.clone())));
            sources.push(Box::new(Hwmon::new(files, ports)));
            for name in
                [nldev::NAME, ethtool::NAME, devlink::NAME, "probes", loopback::NAME, binding::NAME, packets::NAME]
            {
                sources.push(Box::new(Absent::new(
                    name,
                    "other root: it would show this node, not the tree",
                    Some("leave out --sysfs-root"),
                )));
            }
        }
        Ok(Self { sources, header: header(here), no_device })
    }
}

/// The tree is this node's own `/sys`, by whatever path.
fn is_this_node(root: &Path) -> bool {
    let id = |path: &Path| rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
    id(root).is_some_and(|root| Some(root) == id(Path::new("/sys")))
}

fn header(here: bool) -> Header {
    let mut header = Header::new();
    (header.unix_ns, header.mono_ns) = (Some(clock::unix_ns()), Some(clock::monotonic_ns()));
    if here {
        let uname = rustix::system::uname();
        header.host = Some(uname.nodename().to_string_lossy().into_owned());
        header.kernel = Some(uname.release().to_string_lossy().into_owned());
    }
    header
}

/// Whether a device of this name is to be watched.
pub type Wanted = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The filter by patterns of devices wanted (none: all) and of devices left alone.
///
/// # Errors
/// A pattern is none.
pub fn filter(device: &[String], exclude: &[String]) -> Result<Wanted, NodeError> {
    let (device, exclude) = (patterns(device)?, patterns(exclude)?);
    Ok(Arc::new(move |name| (device.is_empty() || device.is_match(name)) && !exclude.is_match(name)))
}

fn patterns(patterns: &[String]) -> Result<GlobSet, NodeError> {
    let mut set = GlobSetBuilder::new();
    let wrong =
        |pattern: &str, error: &globset::Error| NodeError::Pattern(pattern.to_owned(), error.kind().to_string());
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|error| wrong(pattern, &error))?);
    }
    set.build().map_err(|error| wrong("", &error))
}

/// A source that is not there, with the reason.
struct Absent {
    name: &'static str,
    reason: &'static str,
    fix: Option<&'static str>,
}

impl Absent {
    fn new(name: &'static str, reason: &'static str, fix: Option<&'static str>) -> Self {
        Self { name, reason, fix }
    }
}

impl Source for Absent {
    fn name(&self) -> &'static str {
        self.name
    }

    fn availability(&self) -> Availability {
        let missing =
            Missing { what: "everything".to_owned(), reason: self.reason.to_owned(), fix: self.fix.map(str::to_owned) };
        Availability { name: self.name, state: Seeing::Off, sees: String::new(), missing: vec![missing] }
    }

    fn due(&self) -> Nanos {
        Nanos::MAX
    }

    fn poll(&mut self, _: Nanos, _: &mut Emit<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_watched_when_it_matches_and_is_not_excluded() {
        let wanted = filter(&["mlx5_*".to_owned()], &["mlx5_1?".to_owned()]).unwrap();
        assert!(wanted("mlx5_0"));
        assert!(!wanted("mlx5_10"));
        assert!(!wanted("rxe0"));
        assert!(filter(&[], &[]).unwrap()("rxe0"));
        assert!(filter(&["[".to_owned()], &[]).is_err());
    }
}
