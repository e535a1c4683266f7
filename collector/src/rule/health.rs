//! What a device says of its own health.

use super::clock::when;
use super::{Rule, Trigger, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Subject, SubjectKey, Verdict};
use crate::inventory::{DeviceId, DeviceRecord};
use crate::observation::Seeing;

/// How long a report keeps the finding raised, seconds.
const KEEP_S: f64 = 600.0;

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
        "The device itself reported that it is in trouble: a DEVICE_FATAL event, or a message of one of its health \
         reporters. It says nothing of the cause; after DEVICE_FATAL every QP of the device is lost."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some(name) = &finding.subject.device else { return Vec::new() };
        let mut lines = vec![format!("rdma dev show {name}"), "sudo dmesg -T | tail -n 50".to_owned()];
        let pci = view.world.device_named(name).and_then(|(_, device)| device.pci.clone());
        lines.extend(pci.map(|pci| format!("devlink health show pci/{pci}")));
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present().filter_map(|(id, device)| reported(view, id, device)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        if view.world.present().next().is_none() {
            return Some("there is no device".to_owned());
        }
        let heard = view.world.sources.get("probes").is_none_or(|probes| probes.state != Seeing::Off);
        (!heard).then(|| "no probe hears the devices' events".to_owned())
    }
}

fn reported(view: &View<'_>, id: DeviceId, device: &DeviceRecord) -> Option<Verdict> {
    let recent = || device.reports.since(view.ago(KEEP_S));
    let (last, report) = recent().next()?;
    let first = recent().last().map_or(*last, |(t, _)| *t);
    let n = recent().count() as u64;
    let more = if n > 1 { format!(" ({n} reports since {})", when(view, first)) } else { String::new() };
    Some(Verdict::Holds(Box::new(Conclusion {
        key: SubjectKey::Device(id),
        subject: Subject { device: Some(device.name.clone()), ..Subject::default() },
        severity: Severity::Critical,
        grade: Grade::Confirmed,
        summary: format!("the device reported {report} at {}{more}", when(view, *last)),
        evidence: vec![Evidence::new(&**report, Some(KEEP_S), n as f64, 0.0, "reports")],
        advice: "Move the work off this adapter; read the kernel log, and reset or replace it.".to_owned(),
        would_raise: String::new(),
        part_of: None,
        since: first,
        revision: last ^ n,
    })))
}
