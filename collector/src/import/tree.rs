//! Copied sysfs trees: one poll of each source that reads files per tree, at the tree's time. All trees of a bundle are of one
//! machine: a device or port is said again only where it changed, and a device that a later tree lacks is said to be
//! removed. What a source cannot see is said as on a live node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ImportError;
use super::machine::Machine;
use crate::observation::{Body, Nanos, Observation, Seeing, SourceState};
use crate::source::congestion::Congestion;
use crate::source::files::RootedFiles;
use crate::source::hwmon::Hwmon;
use crate::source::netdev::Netdev;
use crate::source::pcie::{PcieOptions, PcieSource};
use crate::source::sysfs::{SysfsOptions, SysfsSource, why_no_device};
use crate::source::{Emit, Source};

/// The directory that stands for `/sys`: the path itself or its `sys`.
pub(super) fn tree_at(path: &Path) -> Option<PathBuf> {
    let is_tree = |path: &Path| ["class", "devices", "bus"].iter().any(|name| path.join(name).is_dir());
    [path.to_owned(), path.join("sys")].into_iter().find(|path| is_tree(path))
}

/// Opens a tree's files.
fn files(path: &Path) -> Result<RootedFiles, ImportError> {
    RootedFiles::new(path).map_err(|source| ImportError::Open { path: path.to_owned(), source })
}

/// Why a tree holds no device, where it holds none.
pub(super) fn why_empty(path: &Path) -> Option<String> {
    why_no_device(&RootedFiles::new(path).ok()?).map(|why| why.to_string())
}

/// Learns from a tree which device is which.
pub(super) fn learn(path: &Path, machine: &mut Machine) -> Result<(), ImportError> {
    let files = Arc::new(files(path)?);
    SysfsSource::new(SysfsOptions::new(files)).poll(0, &mut |observation| machine.see(observation));
    Ok(())
}

/// Polls trees one after another.
#[derive(Default)]
pub(super) struct Trees {
    sources: Option<Sources>,
    said: BTreeMap<&'static str, (Seeing, Option<String>)>,
}

impl Trees {
    /// Polls a tree at its time.
    pub(super) fn poll(&mut self, path: &Path, t: Nanos, emit: &mut Emit<'_>) -> Result<(), ImportError> {
        let files = Arc::new(files(path)?);
        let sources = match &mut self.sources {
            Some(sources) => {
                sources.look_at(&files);
                sources
            }
            None => self.sources.insert(Sources::new(&files)),
        };
        for source in sources.all() {
            source.poll(t, emit);
        }
        for source in sources.all() {
            let availability = source.availability();
            let says = (availability.state, availability.reason());
            if self.said.get(availability.name) != Some(&says) {
                let (state, reason) = (availability.state, says.1.as_deref().map(Into::into));
                let body = Body::Source(SourceState { source: availability.name.into(), state, reason });
                emit(&Observation { t, body });
                self.said.insert(availability.name, says);
            }
        }
        Ok(())
    }
}

/// The sources that can look at a tree.
struct Sources {
    sysfs: SysfsSource,
    pcie: PcieSource,
    netdev: Netdev,
    congestion: Congestion,
    hwmon: Hwmon,
}

impl Sources {
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
