//! One PCIe function: its link now and at best, its class, its AER totals.

use super::link;
use crate::observation::{AerTotals, Pairs, Pcie};
use crate::source::files::{Files, Folder, base_name};

/// The files of a function: first, for each of the three severities, the totals of the function and those of the messages
/// it received as a root port; then what its link is.
const FILES: [&str; 11] = [
    "aer_dev_correctable",
    "aer_rootport_total_err_cor",
    "aer_dev_nonfatal",
    "aer_rootport_total_err_nonfatal",
    "aer_dev_fatal",
    "aer_rootport_total_err_fatal",
    "class",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
];
/// How many of them hold totals.
const TOTALS: usize = 6;

/// An AER list has about twenty lines of a name and a number.
const AER_BYTES: usize = 2048;

/// A function on the path of an RDMA device.
pub(super) struct Function {
    files: Folder,
    /// What is not read each tick; its `aer` is made from `totals`.
    seen: Pcie<'static>,
    /// What the files of totals held last; empty where there is none.
    totals: [Vec<u8>; TOTALS],
    /// There are totals to be read, or that were.
    has_totals: bool,
    opened: bool,
    changed: bool,
    said: Option<Pcie<'static>>,
}

impl Function {
    pub(super) fn new(directory: String, addresses: Vec<String>) -> Self {
        let pci = base_name(&directory).to_owned().into();
        let path = addresses.into_iter().map(Into::into).collect();
        let seen = Pcie { pci, path, ..Pcie::default() };
        Self {
            files: Folder::new(directory, &FILES),
            seen,
            totals: Default::default(),
            has_totals: false,
            opened: false,
            changed: true,
            said: None,
        }
    }

    pub(super) fn directory(&self) -> &str {
        self.files.path()
    }

    pub(super) fn address(&self) -> &str {
        &self.seen.pci
    }

    pub(super) fn has_link(&self) -> bool {
        self.seen.speed_gts.is_some() && self.seen.width.is_some()
    }

    pub(super) fn has_aer(&self) -> bool {
        self.totals.iter().any(|text| !text.is_empty())
    }

    /// Forgets the open files: another tree is looked at from here on.
    pub(super) fn close(&mut self) {
        self.files.close();
        self.opened = false;
    }

    /// The slow look at link and class, and at which files of totals there are.
    pub(super) fn refresh_link(&mut self, files: &dyn Files) {
        self.look(files);
        let mut text = |file: &str| self.files.text(file);
        let class = text("class").filter(|class| !class.is_empty()).map(Into::into);
        let mut speed = |file: &str| text(file).as_deref().and_then(link::speed);
        let (speed_gts, max_speed_gts) = (speed("current_link_speed"), speed("max_link_speed"));
        let mut width = |file: &str| text(file).as_deref().and_then(link::width);
        let (width, max_width) = (width("current_link_width"), width("max_link_width"));
        let seen = &mut self.seen;
        let before = (&seen.class, seen.speed_gts, seen.width, seen.max_speed_gts, seen.max_width);
        if before != (&class, speed_gts, width, max_speed_gts, max_width) {
            self.changed = true;
            (seen.class, seen.speed_gts, seen.width) = (class, speed_gts, width);
            (seen.max_speed_gts, seen.max_width) = (max_speed_gts, max_width);
        }
    }

    fn look(&mut self, files: &dyn Files) {
        self.files.look(files);
        self.has_totals = self.files.has_any(0..TOTALS) || self.has_aer();
        self.opened = true;
    }

    /// Reads the totals.
    pub(super) fn refresh_aer(&mut self, files: &dyn Files) {
        if !self.opened {
            self.look(files);
        }
        if !self.has_totals {
            return;
        }
        let mut buf = [0u8; AER_BYTES];
        for (at, before) in self.totals.iter_mut().enumerate() {
            // A file that cannot be read has no totals: unknown, not the last ones.
            let n = self.files.read(at, &mut buf).unwrap_or(0);
            let text = buf.get(..n).unwrap_or_default();
            if *before != text {
                before.clear();
                before.extend_from_slice(text);
                self.changed = true;
            }
        }
    }

    /// The function as observed, when it is not as it was said last.
    pub(super) fn take_changed(&mut self) -> Option<Pcie<'static>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let pcie = Pcie { aer: self.aer(), ..self.seen.clone() };
        if self.said.as_ref() == Some(&pcie) {
            return None;
        }
        self.said = Some(pcie.clone());
        Some(pcie)
    }

    fn aer(&self) -> Option<AerTotals<'static>> {
        if !self.has_aer() {
            return None;
        }
        // In twos: the function's own, and what it received.
        let severity = |at: usize| {
            let mut pairs = Pairs::default();
            for line in String::from_utf8_lossy(&self.totals[at]).lines() {
                // The name can hold spaces; the number is the last word. A line cut off or garbled costs itself.
                let Some((name, n)) = line.trim().rsplit_once(' ') else { continue };
                if let Ok(n) = n.parse() {
                    pairs.push(name.trim().to_owned(), n);
                }
            }
            if let Ok(n) = String::from_utf8_lossy(&self.totals[at + 1]).trim().parse() {
                pairs.push(FILES[at + 1], n);
            }
            pairs
        };
        let [correctable, nonfatal, fatal] = [0, 2, 4].map(severity);
        Some(AerTotals { correctable, nonfatal, fatal })
    }
}
