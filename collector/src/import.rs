//! Copied sysfs trees become observations: one poll of each source that reads files per tree, at the tree's time.
//!
//! A tree is a directory that holds `class/`, `devices/` or `bus/` as `/sys` does, or one that holds such a directory
//! under the name `sys`. Several trees of one machine lie side by side with a file `TIMES` that gives the seconds of
//! each: `t0 0`, `t1 10`. Nothing is known of the machine's host name or kernel. Beside `sys` may lie saved output of
//! other tools: see [`ethtool`].

mod ethtool;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::ethtool::PortsByNetdev;
use crate::observation::recording::Header;
use crate::observation::{Body, Nanos, Observation, SourceState};
use crate::source::congestion::Congestion;
use crate::source::files::RootedFiles;
use crate::source::hwmon::Hwmon;
use crate::source::netdev::Netdev;
use crate::source::pcie::{PcieOptions, PcieSource};
use crate::source::sysfs::{SysfsOptions, SysfsSource, why_no_device};
use crate::source::{Emit, Source};

/// Why sysfs trees could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The directory cannot be opened.
    #[error("cannot open the tree {}: {source}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A tree's time is no time.
    #[error("the tree {} has the time {seconds} s: give seconds from 0 on, not earlier than the tree before", path.display())]
    Time {
        /// The directory.
        path: PathBuf,
        /// The seconds given.
        seconds: f64,
    },
}

/// What a path given to `import` was taken for.
#[derive(Debug, Clone, PartialEq)]
pub enum Recognised {
    /// Trees of one machine, each with its time in seconds, the earliest first.
    Trees(Vec<(PathBuf, f64)>),
    /// No sysfs tree, and why.
    Not(String),
}

/// Looks at what a directory is.
#[must_use]
pub fn recognise(path: &Path) -> Recognised {
    if !path.is_dir() {
        return Recognised::Not("not a directory".to_owned());
    }
    if let Some(tree) = tree_at(path) {
        return Recognised::Trees(vec![(tree, 0.0)]);
    }
    let Ok(times) = std::fs::read_to_string(path.join("TIMES")) else {
        let samples = path.join("t0").is_dir();
        let why = if samples { "several trees without a TIMES file" } else { "no class/, devices/ or sys/ in it" };
        return Recognised::Not(why.to_owned());
    };
    let mut trees = Vec::new();
    for (number, line) in times.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let time = words.next().zip(words.next().and_then(|seconds| seconds.parse::<f64>().ok()));
        let Some((name, seconds)) = time.filter(|(name, _)| !name.contains('/') && *name != "..") else {
            return Recognised::Not(format!("TIMES, line {}: not a name and seconds", number + 1));
        };
        let Some(tree) = tree_at(&path.join(name)) else {
            return Recognised::Not(format!("TIMES names {name}, which is no sysfs tree"));
        };
        trees.push((tree, seconds));
    }
    trees.sort_by(|a, b| a.1.total_cmp(&b.1));
    if trees.is_empty() { Recognised::Not("TIMES names no tree".to_owned()) } else { Recognised::Trees(trees) }
}

/// The directory that stands for `/sys`: the path itself or its `sys`.
fn tree_at(path: &Path) -> Option<PathBuf> {
    let is_tree = |path: &Path| ["class", "devices", "bus"].iter().any(|name| path.join(name).is_dir());
    [path.to_owned(), path.join("sys")].into_iter().find(|path| is_tree(path))
}

/// The header of a recording of these trees: without a time of day, with the reason where there is no device.
#[must_use]
pub fn header(trees: &[(PathBuf, f64)]) -> Header {
    let files = trees.first().and_then(|(path, _)| RootedFiles::new(path).ok());
    let note = files.and_then(|files| why_no_device(&files)).map(|why| why.to_string());
    Header { mono_ns: None, unix_ns: None, note, ..Header::new() }
}

/// Emits what the sources see in each tree, at its time (seconds from 0 on, ascending). All trees are of one machine: a
/// device or port is said again only where it changed, and a device that a later tree lacks is said to be removed. What
/// a source cannot see is said as on a live node. Gives back the files beside the trees that could not be used.
///
/// # Errors
/// A tree that cannot be opened, or a time that is none. What was emitted before stands.
pub fn import_sysfs_trees(trees: &[(PathBuf, f64)], emit: &mut Emit<'_>) -> Result<Vec<String>, ImportError> {
    let mut sources: Option<TreeSources> = None;
    let mut ports = PortsByNetdev::new();
    let mut said = BTreeMap::new();
    let mut passed_over = Vec::new();
    let mut last = 0;
    for (path, seconds) in trees {
        let t = nanos(*seconds).filter(|t| *t >= last);
        let t = t.ok_or_else(|| ImportError::Time { path: path.clone(), seconds: *seconds })?;
        last = t;
        let open = |source| ImportError::Open { path: path.clone(), source };
        let files = Arc::new(RootedFiles::new(path).map_err(open)?);
        let sources = match &mut sources {
            Some(sources) => {
                sources.look_at(&files);
                sources
            }
            None => sources.insert(TreeSources::new(&files)),
        };
        for source in sources.all() {
            source.poll(t, &mut |observation| {
                note_netdevs(observation, &mut ports);
                emit(observation);
            });
        }
        passed_over.extend(ethtool::emit_beside(beside(path), t, &ports, emit));
        for source in sources.all() {
            let availability = source.availability();
            let says = (availability.state, availability.reason());
            if said.get(availability.name) != Some(&says) {
                let (state, reason) = (availability.state, says.1.as_deref().map(Into::into));
                let body = Body::Source(SourceState { source: availability.name.into(), state, reason });
                emit(&Observation { t, body });
                said.insert(availability.name, says);
            }
        }
    }
    Ok(passed_over)
}

/// The sources that can look at a tree.
struct TreeSources {
    sysfs: SysfsSource,
    pcie: PcieSource,
    netdev: Netdev,
    congestion: Congestion,
    hwmon: Hwmon,
}

impl TreeSources {
    fn new(files: &Arc<RootedFiles>) -> Self {
        let options = SysfsOptions::new(files.clone());
        let ports = options.ports.clone();
        Self {
            sysfs: SysfsSource::new(options),
            pcie: PcieSource::new(PcieOptions::new(files.clone())),
            netdev: Netdev::of_tree(files.clone(), ports.clone(), 0),
            congestion: Congestion::of_tree(files.clone(), ports.clone()),
            hwmon: Hwmon::new(files.clone(), ports),
        }
    }

    /// Goes on in another tree.
    fn look_at(&mut self, files: &Arc<RootedFiles>) {
        self.sysfs.look_at(files.clone());
        self.pcie.look_at(files.clone());
        self.netdev.look_at(files.clone());
        self.congestion.look_at(files.clone());
        self.hwmon.look_at(files.clone());
    }

    /// In the order they are polled.
    fn all(&mut self) -> [&mut dyn Source; 5] {
        [&mut self.sysfs, &mut self.pcie, &mut self.netdev, &mut self.congestion, &mut self.hwmon]
    }
}

/// Where the output of other tools lies: beside `sys`, or in the tree itself where it has no name of its own.
fn beside(tree: &Path) -> &Path {
    tree.parent().filter(|_| tree.file_name().is_some_and(|name| name == "sys")).unwrap_or(tree)
}

/// Keeps which port has which network device.
fn note_netdevs(observation: &Observation<'_>, ports: &mut PortsByNetdev) {
    let Body::Port(port) = &observation.body else { return };
    ports.retain(|_, (device, number)| *device != port.device || *number != port.port);
    for netdev in &port.netdevs {
        ports.entry(netdev.to_string()).or_insert_with(|| (port.device.to_string(), port.port));
    }
}

/// Seconds as nanoseconds; `None` for what is no time from 0 to a century.
fn nanos(seconds: f64) -> Option<Nanos> {
    let ns = (seconds * 1e9).round();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range by the test before it")]
    (0.0..3.2e18).contains(&ns).then_some(ns as Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_recognised_by_what_it_holds_and_anything_else_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).unwrap();
        make("plain/class");
        make("below/sys/devices");
        make("series/t0/sys/class");
        make("series/t1/sys/class");
        make("variants/t0/sys/class");
        make("empty");
        std::fs::write(dir.path().join("series/TIMES"), "t1 0.005\nt0 0\n").unwrap();
        let at = |path: &str| recognise(&dir.path().join(path));
        let trees = |list: &[(&str, f64)]| {
            Recognised::Trees(list.iter().map(|(path, time)| (dir.path().join(path), *time)).collect())
        };
        assert_eq!(at("plain"), trees(&[("plain", 0.0)]));
        assert_eq!(at("below"), trees(&[("below/sys", 0.0)]));
        assert_eq!(at("series"), trees(&[("series/t0/sys", 0.0), ("series/t1/sys", 0.005)]));
        for path in ["variants", "empty", "nothing", "series/TIMES"] {
            assert!(matches!(at(path), Recognised::Not(_)), "{path}");
        }
        std::fs::write(dir.path().join("series/TIMES"), "t0 soon\n").unwrap();
        assert!(matches!(at("series"), Recognised::Not(why) if why.contains("line 1")));
    }

    #[test]
    fn a_time_that_is_none_or_steps_back_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("class")).unwrap();
        let tree = |seconds| (dir.path().to_owned(), seconds);
        let import = |trees: &[(PathBuf, f64)]| import_sysfs_trees(trees, &mut |_| {});
        assert!(import(&[tree(0.0), tree(0.005)]).is_ok());
        for trees in [vec![tree(-1.0)], vec![tree(f64::NAN)], vec![tree(5.0), tree(4.0)]] {
            assert!(matches!(import(&trees), Err(ImportError::Time { .. })));
        }
    }

    #[test]
    fn a_later_tree_says_what_changed_and_what_is_gone() {
        use crate::observation::Body;

        let dir = tempfile::tempdir().unwrap();
        for (tree, devices) in [("t0", &["a", "b"][..]), ("t1", &["b"])] {
            for device in devices {
                let port = dir.path().join(tree).join("class/infiniband").join(device).join("ports/1");
                std::fs::create_dir_all(port.join("counters")).unwrap();
                std::fs::write(port.join("state"), "4: ACTIVE").unwrap();
                std::fs::write(port.join("counters/port_rcv_data"), tree.trim_start_matches('t')).unwrap();
            }
        }
        let trees = [(dir.path().join("t0"), 0.0), (dir.path().join("t1"), 10.0)];
        let mut said = Vec::new();
        import_sysfs_trees(&trees, &mut |observation| {
            if observation.t == 0 {
                return;
            }
            assert_eq!(observation.t, 10_000_000_000);
            said.push(match &observation.body {
                Body::Device(device) => format!("device {} removed {:?}", device.device, device.removed),
                Body::Counters(set) => {
                    format!("{} {} {:?}", set.device, set.source.name(), set.values.get("port_rcv_data"))
                }
                Body::Source(source) => format!("source {}", source.source),
                other => other.type_name().to_owned(),
            });
        })
        .unwrap();
        // The missing hw_counters of b are said once, with the first tree.
        assert_eq!(said, ["device a removed Some(true)", "b counters Some(1)", "source sysfs", "source pcie"]);
    }

    #[test]
    fn what_lies_beside_a_port_is_taken_from_a_tree_as_well() {
        use crate::observation::Body;

        let dir = tempfile::tempdir().unwrap();
        let function = "devices/pci0000:3a/0000:3b:00.0";
        for (path, text) in [
            ("infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
            ("net/eth0/carrier_changes", "3\n"),
            ("net/eth0/ecn/roce_np/cnp_dscp", "48\n"),
            ("hwmon/hwmon2/temp1_input", "61000\n"),
        ] {
            let path = dir.path().join(function).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for (class, name) in [("infiniband", "mlx5_0"), ("net", "eth0"), ("hwmon", "hwmon2")] {
            let at = dir.path().join("class").join(class);
            std::fs::create_dir_all(&at).unwrap();
            std::os::unix::fs::symlink(format!("../../{function}/{class}/{name}"), at.join(name)).unwrap();
        }
        let device = dir.path().join(function).join("infiniband/mlx5_0/device");
        std::os::unix::fs::symlink("../..", device).unwrap();
        let mut said = Vec::new();
        import_sysfs_trees(&[(dir.path().to_owned(), 0.0)], &mut |observation| {
            said.extend(match &observation.body {
                Body::Counters(set) => {
                    set.values.iter().map(|(name, value)| format!("{} {name}={value}", set.source.name())).collect()
                }
                Body::CongestionConfig(config) => vec![format!("{} {:?}", config.device, config.cnp_dscp)],
                _ => Vec::new(),
            });
        })
        .unwrap();
        assert_eq!(said, ["netdev carrier_changes=3", "mlx5_0 Some(48)", "hwmon temp1_input=61000"]);
    }

    #[test]
    fn case_53_two_trees_ten_seconds_apart_give_each_vendors_bytes_by_its_own_names() {
        use crate::observation::Body;
        use crate::source::sysfs::tests::case;

        let dir = case("53");
        let Recognised::Trees(trees) = recognise(&dir.path().join("53")) else { panic!("a series of trees") };
        let mut read = std::collections::BTreeMap::<String, Vec<(Nanos, u64)>>::new();
        import_sysfs_trees(&trees, &mut |observation| {
            let Body::Counters(set) = &observation.body else { return };
            for (name, value) in &set.values {
                read.entry(format!("{} {name}", set.device)).or_default().push((observation.t, *value));
            }
        })
        .unwrap();
        for (counter, per_second) in [
            ("mlx5_0 port_xmit_data", 1000 / 4),
            ("mlx5_0 port_rcv_data", 2000 / 4),
            ("erdma_0 hw_tx_bytes_cnt", 1000),
            ("erdma_0 hw_rx_bytes_cnt", 2000),
        ] {
            let [(0, first), (10_000_000_000, last)] = read[counter][..] else {
                panic!("{counter}: {:?}", read[counter])
            };
            assert_eq!(last - first, 10 * per_second, "{counter}");
        }
    }
}
