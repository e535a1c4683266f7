//! What devlink says of one health reporter. Numbers are from include/uapi/linux/devlink.h.

use crate::source::netlink::attribute::Attributes;

/// `DEVLINK_CMD_HEALTH_REPORTER_GET`, and `…_RECOVER`, as which the kernel announces a change
/// (`devlink_recover_notify` in net/devlink/health.c).
pub(super) const REPORTER_GET: u8 = 52;
pub(super) const REPORTER_CHANGED: u8 = 54;

/// `DEVLINK_ATTR_*`.
pub(super) mod attr {
    pub(in super::super) const BUS_NAME: u16 = 1;
    pub(in super::super) const DEV_NAME: u16 = 2;
    pub(in super::super) const PORT_INDEX: u16 = 3;
    pub(in super::super) const HEALTH_REPORTER: u16 = 114;
    pub(in super::super) const NAME: u16 = 115;
    pub(in super::super) const STATE: u16 = 116;
    pub(in super::super) const ERROR_COUNT: u16 = 117;
    pub(in super::super) const RECOVER_COUNT: u16 = 118;
    pub(in super::super) const DUMP_TS_NS: u16 = 137;
}

/// A device as devlink names it: bus and name, `pci/0000:3b:00.0`.
pub(super) fn handle(attributes: Attributes<'_>) -> Option<String> {
    Some(format!("{}/{}", attributes.text(attr::BUS_NAME)?, attributes.text(attr::DEV_NAME)?))
}

/// One reporter of a device, or of one of its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reporter {
    /// `fw`; of a port `tx.port1`.
    pub(super) name: String,
    /// 0 healthy, 1 in error.
    pub(super) state: Option<u8>,
    /// Errors reported since the driver was loaded.
    pub(super) errors: Option<u64>,
    /// Of those, how many were recovered from.
    pub(super) recoveries: Option<u64>,
    /// Wall-clock time of the last dump, ns since 1970.
    pub(super) last_dump_ns: Option<u64>,
}

impl Reporter {
    pub(super) fn read(attributes: Attributes<'_>) -> Option<Self> {
        let reporter = attributes.nest(attr::HEALTH_REPORTER);
        let name = reporter.text(attr::NAME)?;
        let name = match attributes.u32(attr::PORT_INDEX) {
            Some(port) => format!("{name}.port{port}"),
            None => name.to_owned(),
        };
        Some(Self {
            name,
            state: reporter.u8(attr::STATE),
            errors: reporter.u64(attr::ERROR_COUNT),
            recoveries: reporter.u64(attr::RECOVER_COUNT),
            last_dump_ns: reporter.u64(attr::DUMP_TS_NS),
        })
    }

    pub(super) fn in_error(&self) -> bool {
        self.state == Some(1)
    }

    /// Something went wrong between the two.
    pub(super) fn is_worse_than(&self, before: Option<&Self>) -> bool {
        match before {
            Some(before) => (self.in_error() && !before.in_error()) || self.errors > before.errors,
            None => self.in_error(),
        }
    }

    /// The reporter in words.
    pub(super) fn message(&self) -> String {
        let state = if self.in_error() { "in error" } else { "error, recovered" };
        let count = |n: Option<u64>| n.map_or_else(|| "–".to_owned(), |n| n.to_string());
        format!("{state}: {} errors, {} recoveries", count(self.errors), count(self.recoveries))
    }

    /// The reporter's numbers under its name.
    pub(super) fn values(&self) -> impl Iterator<Item = (String, u64)> {
        let values = [
            ("state", self.state.map(u64::from)),
            ("error_count", self.errors),
            ("recover_count", self.recoveries),
            ("last_dump_ns", self.last_dump_ns),
        ];
        values.into_iter().filter_map(|(what, value)| Some((format!("{}.{what}", self.name), value?)))
    }
}
