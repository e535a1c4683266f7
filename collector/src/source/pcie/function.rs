//! One PCIe function: its link now and at best, its class, its AER totals.

use super::link;
use crate::observation::{AerTotals, Pairs, Pcie};
use crate::source::files::{Files, OpenFile, base_name};

/// The three severities: the totals of the function, and for a root port the messages it received.
const AER_FILES: [(&str, &str); 3] = [
    ("aer_dev_correctable", "aer_rootport_total_err_cor"),
    ("aer_dev_nonfatal", "aer_rootport_total_err_nonfatal"),
    ("aer_dev_fatal", "aer_rootport_total_err_fatal"),
];

/// An AER list has about twenty lines of a name and a number.
const AER_BYTES: usize = 2048;

/// A file of totals kept open.
struct TotalsFile {
    name: &'static str,
    handle: Option<Box<dyn OpenFile>>,
    text: Vec<u8>,
}

/// A function on the path of an RDMA device.
pub(super) struct Function {
    pub(super) directory: String,
    /// What is not read each tick; its `aer` is made from `totals`.
    seen: Pcie<'static>,
    totals: Vec<TotalsFile>,
    opened: bool,
    changed: bool,
    said: Option<Pcie<'static>>,
}

impl Function {
    pub(super) fn new(directory: String, addresses: Vec<String>) -> Self {
        let pci = base_name(&directory).to_owned().into();
        let path = addresses.into_iter().map(Into::into).collect();
        let seen = Pcie { pci, path, ..Pcie::default() };
        Self { directory, seen, totals: Vec::new(), opened: false, changed: true, said: None }
    }

    pub(super) fn address(&self) -> &str {
        &self.seen.pci
    }

    pub(super) fn has_link(&self) -> bool {
        self.seen.speed_gts.is_some() && self.seen.width.is_some()
    }

    pub(super) fn has_aer(&self) -> bool {
        self.totals.iter().any(|file| !file.text.is_empty())
    }

    /// Forgets the open files: another tree is looked at from here on.
    pub(super) fn close(&mut self) {
        self.opened = false;
    }

    /// The slow look at link and class; the files of totals are opened anew.
    pub(super) fn refresh_link(&mut self, files: &dyn Files) {
        let text = |file: &str| files.text(&format!("{}/{file}", self.directory)).ok();
        let speed = |file: &str| text(file).as_deref().and_then(link::speed);
        let width = |file: &str| text(file).as_deref().and_then(link::width);
        let seen = Pcie {
            pci: self.seen.pci.clone(),
            path: self.seen.path.clone(),
            class: text("class").filter(|class| !class.is_empty()).map(Into::into),
            speed_gts: speed("current_link_speed"),
            width: width("current_link_width"),
            max_speed_gts: speed("max_link_speed"),
            max_width: width("max_link_width"),
            ..Pcie::default()
        };
        self.changed |= seen != self.seen;
        self.seen = seen;
        self.open_totals(files);
    }

    fn open_totals(&mut self, files: &dyn Files) {
        let names = AER_FILES.iter().flat_map(|(own, root_port)| [*own, *root_port]);
        let before = std::mem::take(&mut self.totals);
        let open = |name: &'static str| TotalsFile {
            name,
            handle: files.open(&format!("{}/{name}", self.directory)).ok(),
            text: Vec::new(),
        };
        self.totals = names.map(open).collect();
        for (now, before) in self.totals.iter_mut().zip(before) {
            now.text = before.text;
        }
        self.opened = true;
    }

    /// Reads the totals.
    pub(super) fn refresh_aer(&mut self, files: &dyn Files) {
        if !self.opened {
            self.open_totals(files);
        }
        for file in &mut self.totals {
            let mut buf = [0u8; AER_BYTES];
            // A file that cannot be read has no totals: unknown, not the last ones.
            let n = file.handle.as_ref().and_then(|handle| handle.read(&mut buf).ok()).unwrap_or(0);
            let text = buf.get(..n).unwrap_or_default();
            if file.text != text {
                file.text.clear();
                file.text.extend_from_slice(text);
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
        let severity = |(own, root_port): (&str, &str)| {
            let mut pairs = Pairs::default();
            for file in self.totals.iter().filter(|file| file.name == own || file.name == root_port) {
                let text = String::from_utf8_lossy(&file.text);
                if file.name == root_port {
                    if let Ok(n) = text.trim().parse() {
                        pairs.push(file.name, n);
                    }
                    continue;
                }
                for line in text.lines() {
                    // The name can hold spaces; the number is the last word. A line cut off or garbled costs itself.
                    let Some((name, n)) = line.trim().rsplit_once(' ') else { continue };
                    if let Ok(n) = n.parse() {
                        pairs.push(name.trim().to_owned(), n);
                    }
                }
            }
            pairs
        };
        let [correctable, nonfatal, fatal] = AER_FILES.map(severity);
        Some(AerTotals { correctable, nonfatal, fatal })
    }
}
