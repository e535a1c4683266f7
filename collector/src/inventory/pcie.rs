//! PCIe functions: link, path to the root port, AER totals and events.

use std::sync::Arc;

use serde::Serialize;

use super::aer_tally::AerTally;
use super::uncorrected::Uncorrected;
use crate::observation::{self, AerSeverity, Nanos, Pairs};
use crate::timeline::Events;

/// AER events kept per function.
const MAX_EVENTS: usize = 512;
/// Growth steps of totals kept per function.
const MAX_GROWTH: usize = 512;

/// Speed and width of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LinkState {
    /// Current speed, GT/s per lane.
    pub speed_gts: Option<f64>,
    /// Current width, lanes.
    pub width: Option<u32>,
    /// Highest speed, GT/s per lane.
    pub max_speed_gts: Option<f64>,
    /// Highest width, lanes.
    pub max_width: Option<u32>,
}

impl LinkState {
    /// What the link can carry in one direction now, Gb/s after line coding (no TLP overhead); `None` when speed or
    /// width is not known.
    #[must_use]
    pub fn gbps(&self) -> Option<f64> {
        Some(gbps(self.speed_gts?, self.width?))
    }
}

/// Gb/s of a link in one direction after line coding: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, none in the FLIT
/// mode of 64 GT/s (PCI Express base specification; the kernel's `PCIE_SPEED2MBS_ENC`).
#[must_use]
pub fn gbps(speed_gts: f64, width: u32) -> f64 {
    let coding = if speed_gts <= 5.0 {
        0.8
    } else if speed_gts <= 32.0 {
        128.0 / 130.0
    } else {
        1.0
    };
    speed_gts * f64::from(width) * coding
}

/// One AER event as it was reported.
#[derive(Debug, Clone, PartialEq)]
pub struct AerEvent {
    /// Severity.
    pub severity: AerSeverity,
    /// Status register bits.
    pub status: u32,
    /// Names of the bits.
    pub names: Vec<Arc<str>>,
}

/// One AER total.
#[derive(Debug, Clone, PartialEq)]
pub struct AerTotal {
    /// Severity.
    pub severity: AerSeverity,
    /// Name as sysfs writes it.
    pub name: Arc<str>,
    /// The number.
    pub value: u64,
    /// Since when it is counted: the first reading, or the reading before it fell.
    pub start: Nanos,
}

impl AerTotal {
    /// The line counts messages of all kinds, not one kind of error (`TOTAL_ERR_COR`, `aer_rootport_total_err_cor`).
    #[must_use]
    pub fn is_sum(&self) -> bool {
        self.name.starts_with("TOTAL_") || self.name.contains("total_err")
    }
}

/// One PCIe function.
#[derive(Debug, Clone)]
pub struct PcieRecord {
    /// Its address.
    pub pci: Arc<str>,
    /// Class code, `0x020700`.
    pub class: Option<Arc<str>>,
    /// Addresses from the root port to the function.
    pub path: Vec<Arc<str>>,
    /// Its link.
    pub link: LinkState,
    /// Since when the link is as it is. A source says so when it changes, not at every reading; `None` before the first.
    pub link_since: Option<Nanos>,
    /// Speed and width of the link could be read once: what reads all ones now did not always.
    pub answered: bool,
    /// Maximum payload, bytes.
    pub mps: Option<u32>,
    /// The operating system owns AER here.
    pub aer_owned: Option<bool>,
    /// AER totals; `None` where the function shows none.
    pub aer: Option<Vec<AerTotal>>,
    /// When it was last read.
    pub t: Nanos,
    /// AER events.
    pub events: Events<AerEvent>,
    /// Growth of totals: severity, name, how much.
    pub growth: Events<(AerSeverity, Arc<str>, u64)>,
    /// Events and growth of the last hour, counted.
    pub tally: AerTally,
    /// The uncorrected of them, and messages of such errors to a root port.
    pub uncorrected: Uncorrected,
}

impl PcieRecord {
    /// The totals as counts of what happened. Where the firmware keeps AER to itself they stay 0 whatever happens: then
    /// zeros are no counts.
    #[must_use]
    pub fn counts(&self) -> Option<&[AerTotal]> {
        let counted =
            |totals: &&[AerTotal]| self.aer_owned != Some(false) || totals.iter().any(|total| total.value > 0);
        self.aer.as_deref().filter(counted)
    }

    pub(crate) fn new(pci: &str) -> Self {
        Self {
            pci: pci.into(),
            class: None,
            path: Vec::new(),
            link: LinkState::default(),
            link_since: None,
            answered: false,
            mps: None,
            aer_owned: None,
            aer: None,
            t: 0,
            events: Events::new(MAX_EVENTS),
            growth: Events::new(MAX_GROWTH),
            tally: AerTally::default(),
            uncorrected: Uncorrected::default(),
        }
    }

    /// The bridge at the other end of its link: the last one before it on its path.
    #[must_use]
    pub fn partner(&self) -> Option<&Arc<str>> {
        let at = self.path.iter().position(|bdf| *bdf == self.pci).unwrap_or(self.path.len());
        at.checked_sub(1).map(|before| &self.path[before])
    }

    /// It had an AER error, or received the message of one, while it was watched.
    #[must_use]
    pub fn had_errors(&self) -> bool {
        !self.tally.is_empty() || !self.uncorrected.is_empty()
    }

    /// Takes an AER event.
    pub(crate) fn report(&mut self, t: Nanos, event: AerEvent) {
        self.tally.event(t, event.severity, event.status, &event.names);
        self.uncorrected.event(t, event.severity);
        self.events.push(t, event);
    }

    /// Takes an observation; says whether an AER total grew.
    pub(crate) fn update(&mut self, t: Nanos, seen: &observation::Pcie<'_>) -> bool {
        let before = std::mem::replace(&mut self.t, t);
        if let Some(class) = &seen.class {
            self.class = Some(class.as_ref().into());
        }
        if !seen.path.is_empty() && !self.path.iter().map(|b| &**b).eq(seen.path.iter().map(|b| &**b)) {
            self.path = seen.path.iter().map(|bdf| bdf.as_ref().into()).collect();
        }
        let link = LinkState {
            speed_gts: seen.speed_gts,
            width: seen.width,
            max_speed_gts: seen.max_speed_gts,
            max_width: seen.max_width,
        };
        if link != self.link || self.link_since.is_none() {
            self.link_since = Some(t);
        }
        self.answered |= link.speed_gts.is_some_and(|speed| speed > 0.0)
            && link.width.is_some_and(|width| matches!(width, 1 | 2 | 4 | 8 | 12 | 16 | 32));
        self.link = link;
        self.mps = seen.mps.or(self.mps);
        self.aer_owned = seen.aer_owned.or(self.aer_owned);
        let Some(aer) = &seen.aer else {
            self.aer = None;
            return false;
        };
        let first = self.aer.is_none();
        let mut totals = self.aer.take().unwrap_or_default();
        let mut grew = false;
        for (severity, pairs) in [
            (AerSeverity::Corrected, &aer.correctable),
            (AerSeverity::Nonfatal, &aer.nonfatal),
            (AerSeverity::Fatal, &aer.fatal),
        ] {
            grew |= self.take_totals((before, t), &mut totals, severity, pairs, first);
        }
        self.aer = Some(totals);
        grew
    }

    fn take_totals(
        &mut self,
        (before, t): (Nanos, Nanos),
        totals: &mut Vec<AerTotal>,
        severity: AerSeverity,
        pairs: &Pairs<'_, u64>,
        first: bool,
    ) -> bool {
        let mut grew = false;
        for (name, value) in pairs {
            let old = totals.iter_mut().find(|total| total.severity == severity && *total.name == **name);
            let (name, n) = match old {
                Some(total) => {
                    let n = value.saturating_sub(total.value);
                    if *value < total.value {
                        total.start = before;
                    }
                    total.value = *value;
                    (total.name.clone(), n)
                }
                None => {
                    let name: Arc<str> = name.as_ref().into();
                    totals.push(AerTotal { severity, name: name.clone(), value: *value, start: t });
                    // A kind that was not listed before has an unknown past, except that it was not there a poll ago.
                    (name, if first { 0 } else { *value })
                }
            };
            if n > 0 {
                self.tally.growth(t, severity, &name, n);
                self.uncorrected.growth(t, severity, &name, n);
                self.growth.push(t, (severity, name, n));
                grew = true;
            }
        }
        grew
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_coding_depends_on_the_generation() {
        assert!((gbps(16.0, 8) - 126.03).abs() < 0.01);
        assert!((gbps(5.0, 4) - 16.0).abs() < 1e-9);
        assert!((gbps(64.0, 16) - 1024.0).abs() < 1e-9);
    }

    #[test]
    fn zeros_are_no_counts_where_the_firmware_keeps_aer() {
        let counts = |aer_owned, value| {
            let mut record = PcieRecord::new("a");
            let correctable = [("Rollover".into(), value)].into_iter().collect();
            let aer = Some(observation::AerTotals { correctable, ..Default::default() });
            record.update(1, &observation::Pcie { pci: "a".into(), aer_owned, aer, ..Default::default() });
            record.counts().is_some()
        };
        assert!(counts(Some(true), 0) && counts(None, 0), "nobody says that they stand still");
        assert!(!counts(Some(false), 0) && counts(Some(false), 1));
    }

    #[test]
    fn totals_of_the_past_are_no_growth() {
        let mut record = PcieRecord::new("a");
        let seen = |value: u64| {
            let mut correctable = Pairs::default();
            correctable.push("Rollover", value);
            observation::Pcie {
                pci: "a".into(),
                aer: Some(observation::AerTotals { correctable, ..Default::default() }),
                ..Default::default()
            }
        };
        assert!(!record.update(1, &seen(7)));
        assert!(record.update(2, &seen(9)));
        assert_eq!(record.growth.last().unwrap().1.2, 2);
    }
}
