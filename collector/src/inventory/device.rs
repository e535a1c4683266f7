//! Devices and their identity: the PCI function and the node GUID, never the name.

use std::sync::Arc;

use serde::Serialize;

use super::{CounterSet, FanOutRecord, QpTotals};
use crate::observation::{self, Nanos};
use crate::timeline::Events;
use crate::timeline::arithmetic::Fell;

/// Reports kept per device.
const MAX_REPORTS: usize = 64;

/// A device's place in [`super::World::devices`]; it survives renames and reloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

impl DeviceId {
    pub(crate) fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("a node has fewer than 2^32 devices"))
    }
}

/// What a device is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A physical function.
    Pf,
    /// A virtual function.
    Vf,
    /// A management sub-device of another device.
    Management,
}

/// What makes a device the same device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// PCI function.
    pub pci: Option<Arc<str>>,
    /// Node GUID; an all-zero GUID is none.
    pub guid: Option<Arc<str>>,
}

impl Identity {
    /// Both say the same where both say something, and at least one thing is said by both.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let agree = |a: &Option<Arc<str>>, b: &Option<Arc<str>>| match (a, b) {
            (Some(a), Some(b)) => Some(a == b),
            _ => None,
        };
        match (agree(&self.pci, &other.pci), agree(&self.guid, &other.guid)) {
            (Some(false), _) | (_, Some(false)) | (None, None) => false,
            (Some(true), _) | (None, Some(true)) => self.pci.is_some() == other.pci.is_some(),
        }
    }

    /// None contradicts the other, and at least one thing is said by both.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let agree = |a: &Option<Arc<str>>, b: &Option<Arc<str>>| matches!((a, b), (Some(a), Some(b)) if a == b);
        !self.contradicts(other) && (agree(&self.pci, &other.pci) || agree(&self.guid, &other.guid))
    }

    /// One of both contradicts the other.
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        let differ = |a: &Option<Arc<str>>, b: &Option<Arc<str>>| matches!((a, b), (Some(a), Some(b)) if a != b);
        differ(&self.pci, &other.pci) || differ(&self.guid, &other.guid)
    }
}

/// One device.
#[derive(Debug, Clone)]
pub struct DeviceRecord {
    /// Its name now (or the last one it had).
    pub name: Arc<str>,
    /// Names it had before, oldest first.
    pub former_names: Vec<Arc<str>>,
    /// RDMA device index.
    pub index: Option<u32>,
    /// Driver.
    pub driver: Option<Arc<str>>,
    /// Node GUID; an all-zero GUID is none.
    pub node_guid: Option<Arc<str>>,
    /// Firmware version.
    pub fw: Option<Arc<str>>,
    /// PCI function.
    pub pci: Option<Arc<str>>,
    /// Physical function of a virtual one, where it can be seen.
    pub physfn: Option<Arc<str>>,
    /// It is a virtual function.
    pub vf: bool,
    /// Board or HCA type.
    pub model: Option<Arc<str>>,
    /// It is gone.
    pub removed: bool,
    /// When it came, another one was there at its PCI function (or with its node GUID).
    pub second: bool,
    /// Why nothing more of it can be read.
    pub unreadable: Option<Arc<str>>,
    /// When it was first seen.
    pub first_seen: Nanos,
    /// Counter sets of the whole device.
    pub sets: Vec<CounterSet>,
    /// What it reported about itself: asynchronous events such as `DEVICE_FATAL`, messages of health reporters.
    pub reports: Events<Arc<str>>,
    /// The last reset of its counters: when, and how many counters fell together.
    pub reset: Option<(Nanos, Fell)>,
    /// What became of its QPs since the beginning.
    pub qps: QpTotals,
    /// How many of them are in use at once, as the probes see it.
    pub fan_out: FanOutRecord,
}

impl DeviceRecord {
    pub(crate) fn new(name: &str, t: Nanos) -> Self {
        Self {
            name: name.into(),
            former_names: Vec::new(),
            index: None,
            driver: None,
            node_guid: None,
            fw: None,
            pci: None,
            physfn: None,
            vf: false,
            model: None,
            removed: false,
            second: false,
            unreadable: None,
            first_seen: t,
            sets: Vec::new(),
            reports: Events::new(MAX_REPORTS),
            reset: None,
            qps: QpTotals::default(),
            fan_out: FanOutRecord::default(),
        }
    }

    /// What makes it this device.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity { pci: self.pci.clone(), guid: self.node_guid.clone() }
    }

    /// Where it is, in one word: its PCI function, else its node GUID.
    #[must_use]
    pub fn place(&self) -> Option<&Arc<str>> {
        self.pci.as_ref().or(self.node_guid.as_ref())
    }

    /// Takes what an observation says; what it does not mention stays.
    pub(crate) fn update(&mut self, seen: &observation::Device<'_>) {
        if *self.name != *seen.device {
            let former = std::mem::replace(&mut self.name, seen.device.as_ref().into());
            self.former_names.push(former);
        }
        let text = |slot: &mut Option<Arc<str>>, new: &Option<observation::Text<'_>>| {
            if let Some(new) = new
                && slot.as_deref() != Some(&**new)
            {
                *slot = Some(new.as_ref().into());
            }
        };
        text(&mut self.driver, &seen.driver);
        text(&mut self.fw, &seen.fw);
        text(&mut self.pci, &seen.pci);
        text(&mut self.physfn, &seen.physfn);
        text(&mut self.model, &seen.model);
        if let Some(guid) = real_guid(seen) {
            self.node_guid = Some(guid.into());
        }
        self.index = seen.index.or(self.index);
        self.vf = seen.vf.unwrap_or(self.vf) || self.physfn.is_some();
        self.removed = seen.removed == Some(true);
        self.unreadable = seen.unreadable.as_deref().map(Into::into);
    }
}

/// The observation's node GUID unless it is all zero.
pub(crate) fn real_guid<'a>(seen: &'a observation::Device<'_>) -> Option<&'a str> {
    seen.node_guid.as_deref().filter(|guid| guid.bytes().any(|b| b.is_ascii_hexdigit() && b != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(pci: &str, guid: &str) -> Identity {
        let some = |s: &str| (!s.is_empty()).then(|| Arc::from(s));
        Identity { pci: some(pci), guid: some(guid) }
    }

    #[test]
    fn the_same_function_and_guid_are_the_same_device() {
        assert!(identity("a", "g").matches(&identity("a", "g")));
        assert!(identity("a", "").matches(&identity("a", "g")));
        assert!(identity("", "g").matches(&identity("", "g")));
    }

    #[test]
    fn nothing_known_is_no_identity_and_a_difference_is_another_device() {
        assert!(!identity("", "").matches(&identity("", "")));
        assert!(!identity("a", "g").matches(&identity("b", "g")));
        assert!(!identity("a", "g").matches(&identity("a", "h")));
        assert!(!identity("a", "g").matches(&identity("", "g")));
    }
}
