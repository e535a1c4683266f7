//! What the source sees here, and why not the rest.

use std::fs;
use std::io;
use std::path::Path;

use crate::observation::Seeing;
use crate::source::{Availability, Missing};

use super::conversation::Conversation;
use super::statistics::State;
use super::transport;
use super::{Link, NAME, Nldev, SECOND};

/// `EPROTONOSUPPORT` (include/uapi/asm-generic/errno.h): the kernel knows no such netlink protocol.
const EPROTONOSUPPORT: i32 = 93;

/// The initial PID namespace (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`), as `/proc/self/ns/pid` names it.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Why there is no way to the kernel.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) reason: String,
    pub(super) fix: Option<String>,
    /// The kernel has no RDMA devices at all.
    pub(super) no_rdma: bool,
}

/// Opens one more way to the kernel.
pub(super) type Opener = Box<dyn FnMut() -> Result<Conversation, Closed> + Send>;

/// Opens the socket, unless that would load `ib_core`.
pub(super) fn open(proc: &Path) -> Link {
    let error = match transport::registered(proc) {
        Some(false) => io::Error::from_raw_os_error(EPROTONOSUPPORT),
        Some(true) | None => match (transport::open(), transport::open()) {
            (Ok(questions), Ok(lists)) => {
                let conversation = |socket| Conversation::new(Box::new(socket));
                return Link::Open { questions: conversation(questions), lists: conversation(lists) };
            }
            (Err(error), _) | (_, Err(error)) => error,
        },
    };
    Link::Closed { reason: closed(&error), retry_at: 0 }
}

/// What opens sockets, unless that would load `ib_core`.
pub(super) fn opener(proc: &Path) -> Opener {
    let proc = proc.to_owned();
    Box::new(move || {
        if transport::registered(&proc) == Some(false) {
            return Err(closed(&io::Error::from_raw_os_error(EPROTONOSUPPORT)));
        }
        transport::open().map(|socket| Conversation::new(Box::new(socket))).map_err(|error| closed(&error))
    })
}

/// This process lives in a PID namespace of its own; `false` when that cannot be told.
pub(super) fn own_pid_namespace(proc: &Path) -> bool {
    fs::read_link(proc.join("self/ns/pid")).is_ok_and(|namespace| namespace.as_os_str() != INITIAL_PID_NAMESPACE)
}

fn closed(error: &io::Error) -> Closed {
    if error.raw_os_error() == Some(EPROTONOSUPPORT) {
        return Closed {
            reason: "the kernel has no RDMA netlink: ib_core is not loaded".to_owned(),
            fix: Some("load the RDMA driver of the adapter, where there is one".to_owned()),
            no_rdma: true,
        };
    }
    Closed { reason: format!("the RDMA netlink socket cannot be opened: {error}"), fix: None, no_rdma: false }
}

impl Nldev {
    /// The source's availability as of the last poll.
    pub(super) fn describe(&self) -> Availability {
        if let Link::Closed { reason, .. } = &self.link {
            let missing = vec![Missing {
                what: "port counters and QPs by netlink".to_owned(),
                reason: reason.reason.clone(),
                fix: reason.fix.clone(),
            }];
            return Availability { name: NAME, state: Seeing::Off, sees: "nothing".to_owned(), missing };
        }
        let mut missing = self.gaps();
        let state = if missing.is_empty() { Seeing::Ok } else { Seeing::Partial };
        if let Some(reason) = self.monitor.missing() {
            // Not a gap: the devices are listed again every few seconds as well.
            missing
                .push(said("device events", format!("{reason}; devices are listed every {}", self.seconds_of_lists())));
        }
        Availability { name: NAME, state, sees: self.sees(), missing }
    }

    fn sees(&self) -> String {
        let mut parts = vec![
            amount(self.devices.len() as u64, "device"),
            amount(self.statistics.ports.len() as u64, "port"),
            amount(self.statistics.names(), "counter"),
            amount(self.qps.len() as u64, "QP"),
        ];
        for device in &self.devices {
            if let Some(parent) = &device.parent {
                let role = if device.smi { "subnet management only, " } else { "" };
                parts.push(format!("{} ({role}sub-device of {parent})", device.name));
            }
        }
        parts.join(", ")
    }

    fn gaps(&self) -> Vec<Missing> {
        let mut gaps = Vec::new();
        if let Some(fault) = &self.devices_fault {
            gaps.push(said("devices", format!("the list failed: {fault}")));
        }
        for port in &self.statistics.ports {
            if let State::Refused { reason, .. } = &port.state {
                let what = format!("counters of {} port {}", port.device, port.port);
                gaps.push(said(&what, format!("{reason}; hw_counters of sysfs are read instead")));
            }
        }
        for (device, fault) in &self.qp_gaps.incomplete {
            gaps.push(said(&format!("QPs of {device}"), format!("the list is incomplete: {fault}")));
        }
        if self.qp_gaps.odd > 0 {
            gaps.push(said("QPs", format!("{} could not be read", amount(self.qp_gaps.odd, "entry of the list"))));
        }
        if self.qp_period > self.options.qp_period {
            let reason = format!(
                "{} cost one driver query each: they are listed every {} s, at most {} queries/s",
                amount(self.qps.len() as u64, "QP"),
                self.qp_period.div_ceil(SECOND),
                self.options.max_qp_queries_per_s
            );
            gaps.push(said("QP changes in between", reason));
        }
        if self.statistics_period > self.options.statistics_period {
            let reason = format!(
                "{} make each read cost {} firmware commands: counters are read every {} s",
                amount(self.statistics.bound(), "counter bound to QPs"),
                self.statistics.bound_queries(),
                self.statistics_period.div_ceil(SECOND)
            );
            let fix = Some("rdma statistic qp unbind, or bind by type instead of by QP".to_owned());
            gaps.push(Missing { what: "counters in between".to_owned(), reason, fix });
        }
        for (port, reason) in self.sets.gaps(&self.statistics.ports) {
            gaps.push(said(&format!("counters bound to QPs of {} port {}", port.device, port.port), reason.to_owned()));
        }
        if self.netns_shared == Some(false) {
            gaps.push(Missing {
                what: "devices of other network namespaces".to_owned(),
                reason: "the RDMA subsystem gives each network namespace its own devices (rdma system: exclusive)"
                    .to_owned(),
                fix: Some("run in the network namespace of the device".to_owned()),
            });
        }
        if self.own_pid_namespace {
            gaps.push(Missing {
                what: "owners of QPs of other PID namespaces".to_owned(),
                reason:
                    "the kernel tells a PID only in its own PID namespace; older kernels do not list those QPs at all"
                        .to_owned(),
                fix: Some("run in the host's PID namespace (hostPID)".to_owned()),
            });
        }
        gaps
    }

    fn seconds_of_lists(&self) -> String {
        format!("{} s", self.options.qp_period.div_ceil(SECOND))
    }
}

fn said(what: &str, reason: String) -> Missing {
    Missing { what: what.to_owned(), reason, fix: None }
}

/// `1 port`, `2 ports`; of a phrase the first word is counted (`2 counters bound to QPs`, `2 entries of the list`).
fn amount(n: u64, noun: &str) -> String {
    let (first, rest) = noun.split_at(noun.find(' ').unwrap_or(noun.len()));
    let plural = match first.strip_suffix('y') {
        _ if n == 1 => first.to_owned(),
        Some(stem) => format!("{stem}ies"),
        None => format!("{first}s"),
    };
    format!("{n} {plural}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_rdma_netlink_is_named_so() {
        let refused = closed(&io::Error::from_raw_os_error(EPROTONOSUPPORT));
        assert_eq!(refused.reason, "the kernel has no RDMA netlink: ib_core is not loaded");
        let denied = closed(&io::Error::from_raw_os_error(1));
        assert!(denied.reason.contains("Operation not permitted"), "{}", denied.reason);
    }

    #[test]
    fn amounts_agree_with_their_number() {
        assert_eq!(amount(1, "QP"), "1 QP");
        assert_eq!(amount(0, "device"), "0 devices");
        assert_eq!(amount(2, "counter bound to QPs"), "2 counters bound to QPs");
        assert_eq!(amount(3, "entry of the list"), "3 entries of the list");
    }
}
