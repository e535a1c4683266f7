//! Which congestion control the NIC says it runs. What it does not say is unknown, not off.

use serde_json::{Map, Value};

use crate::inventory::PortRecord;

/// How senders are told to slow down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// DCQCN: marks, CNPs.
    Dcqcn,
    /// By round-trip time: marks and CNPs are not needed.
    Rtt,
    /// None, on purpose: lossless fabrics that rely on PFC alone, or control by the application.
    Off,
    /// Nobody said.
    Unknown,
}

impl Control {
    /// Of a port, by the last words about its parameters.
    pub(super) fn of(port: &PortRecord) -> Self {
        let Some(config) = &port.congestion else { return Self::Unknown };
        match config.cc_algorithm.as_deref() {
            Some("rtt") => Self::Rtt,
            Some("none") => Self::Off,
            // A response DSCP for round-trip measurement is set only where they are made.
            None if rtt_dscp(&config.rp).is_some_and(|dscp| dscp > 0) => Self::Rtt,
            _ if all_off(port) => Self::Off,
            Some(_) => Self::Dcqcn,
            None => Self::Unknown,
        }
    }

    /// Marks and CNPs are expected to slow senders down, as far as is known.
    pub(super) fn needs_marks(self) -> bool {
        matches!(self, Self::Dcqcn | Self::Unknown)
    }

    /// For a sentence; empty when nothing is to be said.
    pub(super) fn note(self) -> &'static str {
        match self {
            Self::Dcqcn => "",
            Self::Rtt => "congestion control by round-trip time is on: it needs no marks and no CNPs, which is legal",
            Self::Off => "congestion control is switched off on purpose, which is legal",
            Self::Unknown => "which congestion control runs is not known; one by round-trip time needs no CNPs",
        }
    }
}

/// DSCP of the answers to round-trip measurements; `None` where it is not set, or the NIC says that it is not in force.
fn rtt_dscp(rp: &Map<String, Value>) -> Option<u64> {
    let in_force = rp.get("rtt_resp_dscp_valid").is_none_or(|valid| number(valid) != Some(0) && *valid != false);
    rp.get("rtt_resp_dscp").and_then(number).filter(|_| in_force)
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64()
}

/// What `enable` says by priority; `None` where it does not.
fn enabled(map: &Map<String, Value>) -> Option<[bool; 8]> {
    let list = map.get("enable")?.as_array()?;
    let mut by_priority = [false; 8];
    for (slot, value) in by_priority.iter_mut().zip(list) {
        *slot = value.as_bool().or_else(|| value.as_u64().map(|n| n != 0))?;
    }
    (list.len() == 8).then_some(by_priority)
}

/// The notification point (receiver) by priority.
pub(super) fn np_enabled(port: &PortRecord) -> Option<[bool; 8]> {
    enabled(&port.congestion.as_ref()?.np)
}

/// The reaction point (sender) by priority.
pub(super) fn rp_enabled(port: &PortRecord) -> Option<[bool; 8]> {
    enabled(&port.congestion.as_ref()?.rp)
}

/// Neither end of it is on for any priority, and both are known: that is a choice, not a slip.
fn all_off(port: &PortRecord) -> bool {
    let off = |point: Option<[bool; 8]>| point.is_some_and(|by_priority| by_priority.iter().all(|on| !on));
    off(np_enabled(port)) && off(rp_enabled(port))
}

/// DSCP of CNPs, where the NIC says it.
pub(super) fn cnp_dscp(port: &PortRecord) -> Option<u8> {
    let config = port.congestion.as_ref()?;
    config.cnp_dscp.or_else(|| u8::try_from(config.np.get("cnp_dscp").and_then(number)?).ok())
}

/// Priority of CNPs, where the NIC says it.
pub(super) fn cnp_priority(port: &PortRecord) -> Option<u8> {
    let priority = port.congestion.as_ref()?.np.get("cnp_802p_prio").and_then(number)?;
    u8::try_from(priority).ok().filter(|priority| *priority < 8)
}

/// Shortest time between two CNPs, µs, where the NIC says it.
pub(super) fn cnp_interval_us(port: &PortRecord) -> Option<u64> {
    port.congestion.as_ref()?.np.get("min_time_between_cnps").and_then(number)
}
