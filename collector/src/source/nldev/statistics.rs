//! Port counters by `RDMA_NLDEV_CMD_STAT_GET`: all of a port's counters in one message, and always fresh.
//!
//! sysfs serves `hw_counters` from a cache of `lifespan` ms; this command asks the driver each time. It has two traps:
//! - While counters are bound to QPs (`rdma statistic qp`), the kernel asks every bound counter of the port again for
//!   every name it prints (`rdma_counter_get_hwstat_value`, drivers/infiniband/core/counters.c): names × bound counters
//!   firmware commands a read. So their number is watched (`sets`) and the period grows with it.
//! - It knows no counters of a whole device, only of ports, and answers EINVAL to all it does not know.

use std::sync::{Arc, PoisonError, RwLock};

use crate::observation::{Body, CounterSource, Counters, Nanos, Observation, Pairs};
use crate::source::Emit;

use super::conversation::{Conversation, Fault};
use super::reply::{self, DeviceInfo};
use super::uapi::{attr, command};

/// What netlink gave of one port.
pub(super) struct PortStatistics {
    pub(super) device_index: u32,
    pub(super) device: String,
    pub(super) port: u32,
    pub(super) state: State,
    /// Counters bound to QPs of this port, at the last count.
    pub(super) bound: u64,
}

/// How the last read of a port ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Not read yet.
    Unread,
    /// This many counters.
    Covered { names: u64 },
    /// Nothing, and why; asked again at `retry_at`.
    Refused { reason: String, retry_at: Nanos },
}

/// Tells which devices' counters netlink gives, also from another thread.
#[derive(Debug, Clone, Default)]
pub struct Coverage(Arc<RwLock<Vec<String>>>);

impl Coverage {
    /// Every port of the device gave its counters at the last read.
    #[must_use]
    pub fn contains(&self, device: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().any(|covered| covered == device)
    }

    fn set(&self, devices: Vec<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = devices;
    }
}

/// The ports' counters and how often they may be read.
#[derive(Default)]
pub(super) struct Statistics {
    pub(super) ports: Vec<PortStatistics>,
    coverage: Coverage,
}

impl Statistics {
    /// Takes over the devices' ports; what is known of a port stays with its device's index.
    pub(super) fn follow(&mut self, devices: &[DeviceInfo]) {
        let old = std::mem::take(&mut self.ports);
        for device in devices {
            for port in 1..=device.ports {
                let known = old.iter().find(|p| p.device_index == device.index && p.port == port);
                self.ports.push(PortStatistics {
                    device_index: device.index,
                    device: device.name.clone(),
                    port,
                    state: known.map_or(State::Unread, |p| p.state.clone()),
                    bound: known.map_or(0, |p| p.bound),
                });
            }
        }
        self.tell_coverage();
    }

    pub(super) fn coverage(&self) -> Coverage {
        self.coverage.clone()
    }

    fn tell_coverage(&self) {
        self.coverage.set(self.covered().into_iter().map(str::to_owned).collect());
    }

    /// Reads every port once and emits what came. Returns the faults that are no refusal, and whether a port that was
    /// covered refused: its device may be gone.
    pub(super) fn read(
        &mut self,
        conversation: &mut Conversation,
        now: Nanos,
        retry_after: Nanos,
        emit: &mut Emit<'_>,
    ) -> (Vec<Fault>, bool) {
        let mut faults = Vec::new();
        let mut lost_a_port = false;
        for port in &mut self.ports {
            if matches!(port.state, State::Refused { retry_at, .. } if now < retry_at) {
                continue;
            }
            let request = [(attr::DEV_INDEX, port.device_index), (attr::PORT_INDEX, port.port)];
            let mut names = 0;
            let answer = conversation.get(command::STAT_GET, &request, |message| {
                let values: Pairs<'_, u64> =
                    reply::counters(message).map(|(name, value)| (name.into(), value)).collect();
                names = values.len() as u64;
                if values.is_empty() {
                    return;
                }
                let body = Body::Counters(Counters {
                    device: port.device.as_str().into(),
                    port: Some(port.port),
                    source: CounterSource::Nldev,
                    values,
                    ..Counters::default()
                });
                emit(&Observation { t: now, body });
            });
            let reason = match &answer {
                Ok(_) if names > 0 => None,
                Ok(_) => Some("the driver lists no hardware counter".to_owned()),
                Err(fault) => Some(fault.to_string()),
            };
            lost_a_port |= reason.is_some() && matches!(port.state, State::Covered { .. });
            port.state = match reason {
                None => State::Covered { names },
                Some(reason) => State::Refused { reason, retry_at: now.saturating_add(retry_after) },
            };
            faults.extend(answer.err().filter(|fault| !matches!(fault, Fault::Refused(_))));
        }
        self.tell_coverage();
        (faults, lost_a_port)
    }

    /// Firmware commands that bound counters add to one read of all ports.
    pub(super) fn bound_queries(&self) -> u64 {
        self.ports.iter().fold(0, |sum, port| match port.state {
            State::Covered { names } => sum.saturating_add(names.saturating_mul(port.bound)),
            _ => sum,
        })
    }

    /// Bound counters of all ports.
    pub(super) fn bound(&self) -> u64 {
        self.ports.iter().map(|port| port.bound).sum()
    }

    /// Counters of all ports at the last read.
    pub(super) fn names(&self) -> u64 {
        self.ports.iter().fold(0, |sum, port| match port.state {
            State::Covered { names } => sum.saturating_add(names),
            _ => sum,
        })
    }

    /// Devices whose every port answered at the last read.
    pub(super) fn covered(&self) -> Vec<&str> {
        let mut devices: Vec<&str> = self.ports.iter().map(|port| port.device.as_str()).collect();
        devices.dedup();
        devices.retain(|device| {
            self.ports.iter().filter(|p| p.device == *device).all(|p| matches!(p.state, State::Covered { .. }))
        });
        devices
    }
}
