//! What a device says of its own health, and what is measured of it.

use super::clock::when;
use super::health_signs::signs;
use super::{Rule, Trigger, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Subject, SubjectKey, Verdict};
use crate::inventory::{DeviceId, DeviceRecord};
use crate::observation::{Nanos, Seeing};

/// How long a report keeps the finding raised, seconds.
pub(super) const KEEP_S: f64 = 600.0;

/// `nic.health`.
pub(super) struct Health;

impl Rule for Health {
    fn id(&self) -> &'static str {
        "nic.health"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Port
    }

    fn meaning(&self) -> &'static str {
        "The device is in trouble by its own word or by measurement: a DEVICE_FATAL event, a message or an error count of \
         one of its health reporters, firmware commands that fail, a temperature over its limit, trouble of its module. It \
         says nothing of the cause; after DEVICE_FATAL every QP of the device is lost. What a driver says of the power of \
         its slot is no finding: adapters say it in slots that are good enough."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some(name) = &finding.subject.device else { return Vec::new() };
        let mut lines = vec![format!("rdma dev show {name}"), "sudo dmesg -T | tail -n 50".to_owned()];
        let device = view.world.device_named(name);
        if let Some(pci) = device.and_then(|(_, device)| device.pci.clone()) {
            lines.push(format!("devlink health show pci/{pci}"));
            lines.push(format!("grep . /sys/bus/pci/devices/{pci}/hwmon/hwmon*/temp*"));
        }
        for netdev in device.into_iter().flat_map(|(id, _)| view.world.ports_of(id)).flat_map(|port| &port.netdevs) {
            lines.push(format!("ethtool -S {netdev} | grep module_; ethtool -m {netdev}"));
        }
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present().filter_map(|(id, device)| health(view, id, device)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        if view.world.present().next().is_none() {
            return Some("there is no device".to_owned());
        }
        let heard = view.world.sources.get("probes").is_none_or(|probes| probes.state != Seeing::Off);
        (!heard).then(|| "no probe hears the devices' events".to_owned())
    }
}

/// One thing that is wrong with a device.
#[derive(Debug, Clone)]
pub(super) struct Sign {
    /// What, with numbers.
    pub(super) text: String,
    pub(super) evidence: Vec<Evidence>,
    pub(super) since: Nanos,
    pub(super) severity: Severity,
    pub(super) grade: Grade,
    /// Changes when it should be told again.
    pub(super) revision: u64,
    /// A temperature between limit and clear limit: alone it raises nothing and keeps what is raised.
    pub(super) between: bool,
}

fn health(view: &View<'_>, id: DeviceId, device: &DeviceRecord) -> Option<Verdict> {
    let mut all: Vec<Sign> = reported(view, device).into_iter().collect();
    all.extend(signs(view, id, device));
    let between = all.iter().any(|sign| sign.between);
    all.retain(|sign| !sign.between);
    let key = SubjectKey::Device(id);
    if all.is_empty() {
        let raised = view.raised("nic.health", &key).is_some();
        return (between && raised).then_some(Verdict::Keep(key));
    }
    // The worst first.
    all.sort_by_key(|sign| std::cmp::Reverse(sign.severity));
    let severity = all.iter().map(|sign| sign.severity).max()?;
    let worst = || all.iter().filter(|sign| sign.severity == severity);
    let grade = worst().map(|sign| sign.grade).max()?;
    let since = all.iter().map(|sign| sign.since).min()?;
    let texts: Vec<&str> = all.iter().map(|sign| &*sign.text).collect();
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject: Subject { device: Some(device.name.clone()), ..Subject::default() },
        severity,
        grade,
        summary: texts.join("; "),
        evidence: all.iter().flat_map(|sign| sign.evidence.clone()).collect(),
        advice: if severity == Severity::Critical {
            "Move the work off this adapter; read the kernel log, and reset or replace it."
        } else {
            "Plan to look at this adapter: air flow and module for a temperature, the kernel log for its firmware."
        }
        .to_owned(),
        would_raise: if grade == Grade::Confirmed { String::new() } else { "a health report of the device".to_owned() },
        part_of: None,
        since,
        revision: all.iter().fold(0, |all, sign| all.rotate_left(7) ^ sign.revision.wrapping_add(1)),
    })))
}

/// A report that is no sign of trouble: what drivers say of the power of the slot (mlx5: "PCIe slot advertised sufficient
/// power (27W)", "Detected insufficient power on the PCIe slot (27W)", `drivers/net/ethernet/mellanox/mlx5/core/events.c`),
/// and events of a queue, which are its owner's.
fn harmless(report: &str) -> bool {
    let lower = report.to_ascii_lowercase();
    let slot_power =
        lower.contains("power") && (lower.contains("slot") || lower.contains("27w") || lower.contains("27 w"));
    let of_a_queue = ["CQ_", "SRQ_", "QP_", "WQ_"].iter().any(|of| report.starts_with(of));
    slot_power || of_a_queue
}

fn reported(view: &View<'_>, device: &DeviceRecord) -> Option<Sign> {
    let recent = || device.reports.since(view.ago(KEEP_S)).filter(|(_, report)| !harmless(report));
    let (last, report) = recent().next()?;
    let first = recent().last().map_or(*last, |(t, _)| *t);
    let n = recent().count() as u64;
    let more = if n > 1 { format!(" ({n} reports since {})", when(view, first)) } else { String::new() };
    Some(Sign {
        text: format!("the device reported {report} at {}{more}", when(view, *last)),
        evidence: vec![Evidence::new(&**report, Some(KEEP_S), n as f64, 0.0, "reports")],
        since: first,
        severity: Severity::Critical,
        grade: Grade::Confirmed,
        revision: last ^ n,
        between: false,
    })
}
