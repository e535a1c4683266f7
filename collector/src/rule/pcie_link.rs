//! The link to the host: slower or narrower than it could be.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::clock::{lasting, ns};
use super::judged::{Judged, Part};
use super::{Rule, Trigger, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, SubjectKey, Verdict};
use crate::inventory::{PcieRecord, Role, gbps};
use crate::observation::{Nanos, PortState};

/// `pcie.downgrade`.
pub(super) struct Downgrade;

impl Rule for Downgrade {
    fn id(&self) -> &'static str {
        "pcie.downgrade"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Pcie
    }

    fn meaning(&self) -> &'static str {
        "The NIC's PCIe link runs slower (for half a minute) or narrower than both its ends can, or holds the port's rate \
         back. A link that is all its function can be is no finding, whatever the port's rate. A function that does not \
         show its link, a virtual function and a software device are not judged: unknown is no fault."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some(pci) = finding.subject.pci.as_deref() else { return Vec::new() };
        let mut lines = vec![
            format!("sudo lspci -vvv -s {pci} | grep -E 'LnkCap:|LnkSta:'"),
            format!("grep . /sys/bus/pci/devices/{pci}/{{current,max}}_link_{{speed,width}}"),
        ];
        if let Some(partner) = view.world.pcie.get(pci).and_then(|record| record.partner()) {
            lines.push(format!("sudo lspci -vvv -s {partner} | grep -E 'LnkCap:|LnkSta:'"));
        }
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        functions_of_devices(view)
            .into_iter()
            .filter_map(|pci| view.world.pcie.get(&pci))
            .filter_map(|record| downgrade(view, record))
            .collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        extent(view).in_part()
    }
}

fn extent(view: &View<'_>) -> Judged {
    let all = functions_of_devices(view);
    if all.is_empty() {
        return Judged::Not("no physical function of an RDMA device is visible".to_owned());
    }
    let links: Vec<Option<&PcieRecord>> =
        all.iter().map(|pci| view.world.pcie.get(pci).map(|r| &**r).filter(|r| Link::of(r).is_some())).collect();
    let unknown: Vec<&str> =
        all.iter().zip(&links).filter(|(_, record)| record.is_none()).map(|(pci, _)| &**pci).collect();
    let reason = format!("link speed or width not shown by {}", unknown.join(", "));
    let blind = unknown.iter().map(|pci| SubjectKey::Pci((*pci).into())).collect();
    Judged::without(blind, all.len(), reason).or(|| {
        let settle_s = view.settings.pcie_downgrade.settle_s;
        let waiting = links.iter().flatten().find(|record| slow(view, record) && !settled(view, record));
        waiting.map_or(Judged::All, |record| {
            let seen = lasting(view.now.saturating_sub(since(view, record)));
            let reason = format!("lower speed of {} seen for {seen} of the {settle_s} s it must last", record.pci);
            Judged::with(all.len(), reason)
        })
    })
}

/// Since when the link is as it is.
fn since(view: &View<'_>, record: &PcieRecord) -> Nanos {
    record.link_since.unwrap_or(view.now)
}

/// The link has been as it is for so long that power management does not explain its speed.
fn settled(view: &View<'_>, record: &PcieRecord) -> bool {
    view.now.saturating_sub(since(view, record)) >= ns(view.settings.pcie_downgrade.settle_s)
}

/// Physical functions of devices that are there. A virtual function shows no link of its own, or an emulated one.
fn functions_of_devices(view: &View<'_>) -> BTreeSet<Arc<str>> {
    let physical = view.world.present().filter(|(id, _)| view.world.role(*id) == Some(Role::Pf));
    physical.filter_map(|(_, device)| device.pci.clone()).collect()
}

/// A link whose speed and width are known and possible.
#[derive(Debug, Clone, Copy)]
struct Link {
    speed: f64,
    width: u32,
}

impl Link {
    fn of(record: &PcieRecord) -> Option<Self> {
        Some(Self { speed: speed(record.link.speed_gts)?, width: width(record.link.width)? })
    }
}

/// Widths the specification knows; 0, 63 and 255 are what kernels show for a link that is not there.
fn width(width: Option<u32>) -> Option<u32> {
    width.filter(|width| matches!(width, 1 | 2 | 4 | 8 | 12 | 16 | 32))
}

fn speed(speed: Option<f64>) -> Option<f64> {
    speed.filter(|speed| *speed > 0.0)
}

/// The best both ends can do: the smaller of two maxima, one alone where the other is unknown.
fn best<T: PartialOrd + Copy>(own: Option<T>, partner: Option<T>) -> Option<T> {
    match (own, partner) {
        (Some(own), Some(partner)) => Some(if partner < own { partner } else { own }),
        (own, partner) => own.or(partner),
    }
}

/// Speed and width both ends can do, and which ends said what they can: the function itself, and both.
fn abilities(view: &View<'_>, record: &PcieRecord) -> (Option<f64>, Option<u32>, [bool; 2]) {
    let partner = record.partner().and_then(|pci| view.world.pcie.get(pci));
    let (own_speed, own_width) = (speed(record.link.max_speed_gts), width(record.link.max_width));
    let their_speed = partner.and_then(|p| speed(p.link.max_speed_gts));
    let their_width = partner.and_then(|p| width(p.link.max_width));
    let own = own_speed.is_some() && own_width.is_some();
    let both = own && their_speed.is_some() && their_width.is_some();
    (best(own_speed, their_speed), best(own_width, their_width), [own, both])
}

fn slow(view: &View<'_>, record: &PcieRecord) -> bool {
    let (max_speed, _, _) = abilities(view, record);
    Link::of(record).is_some_and(|link| max_speed.is_some_and(|max| link.speed < max))
}

fn downgrade(view: &View<'_>, record: &PcieRecord) -> Option<Verdict> {
    let link = Link::of(record)?;
    let (max_speed, max_width, [own_known, both_known]) = abilities(view, record);
    let (key, subject) = view.pci_subject(&record.pci);
    let narrow = max_width.filter(|max| link.width < *max);
    let slow = max_speed.filter(|max| link.speed < *max);
    let settled = settled(view, record);
    let slow_now = slow.filter(|_| settled);
    // A speed that may come back in a moment is not held against the link.
    let speed_held = slow.filter(|_| !settled).unwrap_or(link.speed);
    let capacity = gbps(speed_held, link.width);
    let needed = view
        .world
        .present_ports()
        .filter(|(device, port)| device.pci.as_ref() == Some(&record.pci) && port.state == PortState::Active)
        .filter_map(|(_, port)| port.rate_gbps)
        .fold(0.0, f64::max);
    // A link that is all its function can be is the adapter's own limit (or half of a pair that shares one port).
    let own_best = record.link.max_speed_gts.is_some_and(|max| speed_held >= max)
        && width(record.link.max_width).is_some_and(|max| link.width >= max);
    let too_little = needed > capacity && !own_best;
    if narrow.is_none() && slow_now.is_none() && !too_little {
        let undecided = slow.is_some() && !settled && view.raised("pcie.downgrade", &key).is_some();
        return undecided.then_some(Verdict::Keep(key));
    }
    let now = format!("{} GT/s x{}", link.speed, link.width);
    let mut parts = Vec::new();
    let mut evidence = Vec::new();
    if let Some(max) = narrow {
        parts.push(format!("width x{} of x{max}", link.width));
        evidence.push(Evidence::new("current_link_width", None, f64::from(link.width), f64::from(max), "lanes"));
    }
    if let Some(max) = slow_now {
        parts.push(format!("speed {} of {max} GT/s", link.speed));
        evidence.push(Evidence::new("current_link_speed", None, link.speed, max, "GT/s"));
    }
    let mut summary = format!("PCIe link {now}");
    for (i, part) in parts.iter().enumerate() {
        summary.push_str(if i == 0 { ": " } else { ", " });
        summary.push_str(part);
    }
    if too_little {
        let at_most = if speed_held > link.speed { format!(" at most, at {speed_held} GT/s") } else { String::new() };
        let limits = if own_known {
            "the slot limits the port"
        } else {
            "the slot limits the port, unless the adapter itself can do no more, which is not known"
        };
        let short = format!("; it carries {capacity:.1} Gb/s{at_most}, less than the port's {needed} Gb/s: {limits}");
        summary.push_str(&short);
        evidence.push(Evidence::new("PCIe link capacity", None, capacity, needed, "Gb/s"));
    }
    // What the link carries is known from the link alone; that the ends could do more is not.
    let sure = both_known || (too_little && own_known);
    // It may be all that the adapter was made for.
    let only_perhaps = !own_known && narrow.is_none() && slow_now.is_none();
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if only_perhaps { Severity::Info } else { Severity::Warning },
        grade: if sure { Grade::Confirmed } else { Grade::Suspected },
        summary,
        evidence,
        advice: "Reseat the adapter and look at the slot: mechanical x16 slots are often wired x8, and BIOS settings \
                 (bifurcation, link speed limit) or a riser may hold the link back. If it was better before, treat it as a \
                 failing link."
            .to_owned(),
        would_raise: if sure { String::new() } else { "what the function and the bridge at the other end can do (max_link_speed, max_link_width)".to_owned() },
        part_of: None,
        since: since(view, record),
        revision: u64::from(narrow.is_some()) | u64::from(slow_now.is_some()) << 1 | u64::from(too_little) << 2
            | u64::from(link.width) << 8,
    })))
}
