//! A device that is there and does not answer.

use super::clock::{lasting, ns, plural, when};
use super::judged::{Judged, Part};
use super::{Rule, Trigger, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Subject, SubjectKey, Verdict};
use crate::inventory::{CounterSet, DeviceId, DeviceRecord, PortRecord};
use crate::observation::{CounterSource, Nanos, PortState};
use crate::timeline::Series;
use crate::timeline::counter_table::{Meaning, Overflow, Width};

/// Answers of the kernel when a device does not answer it.
const DEAD: [&str; 4] = ["EIO", "ETIMEDOUT", "ENXIO", "EREMOTEIO"];
/// The width field of a PCIe function whose configuration space reads all ones (`PCI_EXP_LNKSTA_NLW`, six bits).
const ALL_ONES_WIDTH: u32 = 63;
/// Reads must fail for so long: a driver that reloads fails for a moment, ns.
const FAILING_NS: Nanos = 10_000_000_000;
/// A set of fewer counters at their limits is a set of old errors, not a dead device.
const WHOLE_SET: usize = 8;
/// So many sources that do not come back from a device are more than a suspicion.
const AGREE: usize = 2;

/// `nic.stuck`.
pub(super) struct Stuck;

impl Rule for Stuck {
    fn id(&self) -> &'static str {
        "nic.stuck"
    }

    fn trigger(&self) -> Trigger {
        Trigger::Pcie
    }

    fn meaning(&self) -> &'static str {
        "The device is listed and does not answer: several of its counters read all ones at once, its PCIe function reads \
         all ones, reads fail with an I/O error that worked before, its signs of life stand still, or reads no longer come \
         back while other devices are read. Traffic on it has stopped or soon will. A device that was removed is no \
         finding of this rule: see link.down."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some(name) = finding.subject.device.as_deref() else { return Vec::new() };
        let mut lines = vec![
            format!("timeout 5 grep . /sys/class/infiniband/{name}/ports/1/counters/*"),
            format!("timeout 5 rdma statistic show link {name}/1"),
        ];
        if let Some(pci) = view.world.device_named(name).and_then(|(_, device)| device.pci.clone()) {
            lines.push(format!("sudo setpci -s {pci} VENDOR_ID.l        # ffffffff: gone from the bus"));
            lines.push(format!("dmesg -T | grep -E '{name}|{pci}' | tail -n 40"));
            lines.push(format!("devlink health show pci/{pci}"));
        }
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present().filter_map(|(id, device)| stuck(view, id, device)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        extent(view).in_part()
    }
}

fn extent(view: &View<'_>) -> Judged {
    let of = view.world.present().count();
    if of == 0 {
        return Judged::Not("there is no device".to_owned());
    }
    let blind = |(id, device): &(DeviceId, &DeviceRecord)| {
        let link = device.pci.as_ref().and_then(|pci| view.world.pcie.get(pci)).is_some_and(|r| r.answered);
        !link && sets(view, *id, device).all(|(_, set)| set.series.is_empty())
    };
    let blind: Vec<(DeviceId, &DeviceRecord)> = view.world.present().filter(blind).collect();
    let names: Vec<&str> = blind.iter().map(|(_, device)| &*device.name).collect();
    let reason = format!("nothing that could stop is read of {}", names.join(", "));
    Judged::without(blind.iter().map(|(id, _)| SubjectKey::Device(*id)).collect(), of, reason)
}

/// Sources that read a device each by itself, and of which none comes back, confirm each other.
fn agree(signs: &mut [Sign]) {
    let mut silent: Vec<&str> = signs.iter().filter_map(|sign| sign.silent).collect();
    silent.sort_unstable();
    silent.dedup();
    if silent.len() >= AGREE {
        for sign in signs.iter_mut().filter(|sign| sign.silent.is_some()) {
            sign.grade = Grade::Probable;
        }
    }
}

/// One sign that the device does not answer.
struct Sign {
    text: String,
    evidence: Evidence,
    since: Nanos,
    grade: Grade,
    severity: Severity,
    /// The source whose reads do not come back.
    silent: Option<&'static str>,
}

/// The counter sets of a device and of its ports.
fn sets<'w>(
    view: &View<'w>,
    id: DeviceId,
    device: &'w DeviceRecord,
) -> impl Iterator<Item = (Option<&'w PortRecord>, &'w CounterSet)> {
    let of_ports = view.world.ports_of(id).flat_map(|port| port.sets.iter().map(move |set| (Some(port), set)));
    device.sets.iter().map(|set| (None, set)).chain(of_ports).filter(|(_, set)| set.bound.is_none())
}

fn stuck(view: &View<'_>, id: DeviceId, device: &DeviceRecord) -> Option<Verdict> {
    let mut signs: Vec<Sign> = Vec::new();
    signs.extend(off_the_bus(view, device));
    for (port, set) in sets(view, id, device) {
        signs.extend(all_ones(view, set));
        signs.extend(failing(view, set));
        signs.extend(silent(view, id, port, set));
        signs.extend(lifeless(view, set));
    }
    agree(&mut signs);
    let since = signs.iter().map(|sign| sign.since).min()?;
    let severity = signs.iter().map(|sign| sign.severity).max()?;
    let grade = signs.iter().map(|sign| sign.grade).max()?;
    // The surest first; the same sign of several sets is said once.
    signs.sort_by(|a, b| b.grade.cmp(&a.grade).then(a.text.cmp(&b.text)));
    signs.dedup_by(|a, b| a.text == b.text);
    let texts: Vec<&str> = signs.iter().take(3).map(|sign| &*sign.text).collect();
    Some(Verdict::Holds(Box::new(Conclusion {
        key: SubjectKey::Device(id),
        subject: Subject { device: Some(device.name.clone()), ..Subject::default() },
        severity,
        grade,
        summary: format!("the device does not answer: {} since {}", texts.join("; "), when(view, since)),
        advice: "Move the work off this adapter. Read the kernel log for a firmware or bus error; reset the function \
                 (devlink dev reload, or the slot), and replace the adapter if it happens again."
            .to_owned(),
        would_raise: match grade {
            Grade::Confirmed => String::new(),
            Grade::Probable | Grade::Suspected => "all-ones of the PCIe function, or a health report".to_owned(),
        },
        part_of: None,
        since,
        revision: signs.len() as u64,
        evidence: signs.into_iter().map(|sign| sign.evidence).collect(),
    })))
}

/// The configuration space of the function reads all ones: nobody answers at its address any more.
fn off_the_bus(view: &View<'_>, device: &DeviceRecord) -> Option<Sign> {
    let record = view.world.pcie.get(device.pci.as_ref()?)?;
    (record.answered && record.link.width == Some(ALL_ONES_WIDTH)).then(|| Sign {
        text: format!("PCIe function {} reads all ones", record.pci),
        evidence: Evidence::new(
            "current_link_width",
            None,
            f64::from(ALL_ONES_WIDTH),
            f64::from(ALL_ONES_WIDTH - 1),
            "lanes (63: all ones)",
        ),
        since: record.link_since.unwrap_or(view.now),
        grade: Grade::Confirmed,
        severity: Severity::Critical,
        silent: None,
    })
}

/// Several counters of a set read all ones at once. One may do so for reasons of its own; no counter of 64 bits, and no
/// three of 32 that wrap, come to it by counting. From the first reading on as well: a function may have left the bus before.
fn all_ones(view: &View<'_>, set: &CounterSet) -> Option<Sign> {
    let (mut n, mut whole, mut limits) = (0, 0, 0);
    for series in set.series.iter().filter(|series| !series.def.is_setting()) {
        n += usize::from(reads_all_ones(series));
        whole += 1;
        limits += usize::from(series.value() == Some(series.def.width.ceiling()));
    }
    // Counters that stop at their limit may stand there for years, but not the traffic's and all the others with them.
    let dead = n >= view.settings.nic_stuck.all_ones.max(2) || (whole >= WHOLE_SET && limits == whole);
    dead.then(|| Sign {
        text: format!("{} of {} read all ones", plural(n.max(limits) as u64, "counter"), set.source.name()),
        evidence: Evidence::new(
            format!("counters of {} at all ones", set.source.name()),
            None,
            n.max(limits) as f64,
            view.settings.nic_stuck.all_ones as f64,
            "counters",
        ),
        since: set.t,
        grade: Grade::Probable,
        severity: Severity::Critical,
        silent: None,
    })
}

fn reads_all_ones(series: &Series) -> bool {
    match series.value() {
        Some(u64::MAX) => true,
        Some(value) => {
            series.def.known()
                && series.def.width == Width::Bits(32)
                && series.def.overflow != Overflow::Sticks
                && value == u64::from(u32::MAX)
        }
        // A driver whose way to say "no value" this is says it from the beginning.
        None => {
            let reason = match &series.reading {
                crate::timeline::arithmetic::Reading::Unavailable(reason) => reason.as_str(),
                crate::timeline::arithmetic::Reading::Value(_) => return false,
            };
            series.def.flags.all_ones_na && reason.contains("all ones") && last_value_end(series).is_some()
        }
    }
}

/// When a counter that could be read ceased to be readable.
fn last_value_end(series: &Series) -> Option<Nanos> {
    series.changes_since(0).find(|(_, n)| n.is_none()).map(|(t, _)| t)
}

/// The whole set answered before and now fails with an I/O error.
fn failing(view: &View<'_>, set: &CounterSet) -> Option<Sign> {
    let reasons = set.series.iter().map(|series| match &series.reading {
        crate::timeline::arithmetic::Reading::Unavailable(reason) => Some(reason.as_str()),
        crate::timeline::arithmetic::Reading::Value(_) => None,
    });
    let mut why = None;
    for reason in reasons {
        let name = reason?.split([':', ' ', ',']).next().unwrap_or("");
        if !DEAD.contains(&name) {
            return None;
        }
        why = Some(name.to_owned());
    }
    let why = why?;
    let since = set.series.iter().filter_map(last_value_end).max()?;
    let lasted = view.now.saturating_sub(since);
    // Only what is still tried and still fails.
    (lasted >= FAILING_NS && set.t.saturating_add(FAILING_NS.saturating_mul(6)) > view.now).then(|| Sign {
        text: format!("reading {} fails with {why}", set.source.name()),
        evidence: Evidence::new(
            format!("{}: {why}", set.source.name()),
            Some(lasted as f64 / 1e9),
            set.series.len() as f64,
            0.0,
            "counters that could be read before",
        ),
        since,
        grade: Grade::Probable,
        severity: Severity::Critical,
        silent: None,
    })
}

/// The set is not read any more while the same source reads other devices: the read of this one has not come back.
fn silent(view: &View<'_>, id: DeviceId, port: Option<&PortRecord>, set: &CounterSet) -> Option<Sign> {
    let (age, least) = (view.now.saturating_sub(set.t), ns(view.settings.nic_stuck.silent_s));
    // Lines of a log come when something happens.
    if age <= least || set.source == CounterSource::Log {
        return None;
    }
    let interval = set.series.iter().map(Series::interval).max().filter(|interval| *interval > 0)?;
    let limit = least.max(interval.saturating_mul(5));
    if age <= limit {
        return None;
    }
    // A port that is down, or whose network device was taken away, is not read for another reason.
    if let Some(port) = port {
        let away = set.netdev.as_ref().is_some_and(|netdev| !port.netdevs.contains(netdev));
        if away || port.state != PortState::Active {
            return None;
        }
    }
    let fresh = |other: &CounterSet| {
        other.source == set.source && view.now.saturating_sub(other.t) <= interval.saturating_mul(3).max(3_000_000_000)
    };
    let others = view.world.present().filter(|(other, _)| *other != id);
    let read = others.flat_map(|(other, device)| sets(view, other, device)).any(|(_, other)| fresh(other));
    read.then(|| Sign {
        text: format!("no reading of {} for {} while other devices are read", set.source.name(), lasting(age)),
        evidence: Evidence::new(
            format!("age of the last reading of {}", set.source.name()),
            None,
            age as f64 / 1e9,
            limit as f64 / 1e9,
            "s",
        ),
        since: set.t,
        grade: Grade::Suspected,
        severity: Severity::Warning,
        silent: Some(set.source.name()),
    })
}

/// The device's signs of life, which came all the time, stand still while the counter is read.
fn lifeless(view: &View<'_>, set: &CounterSet) -> Option<Sign> {
    let series = set.series.iter().find(|series| series.def.meaning == Some(Meaning::KeepAlives))?;
    series.value()?;
    let grown: Vec<Nanos> =
        series.changes_since(0).filter(|(_, n)| n.is_some_and(|n| n > 0)).map(|(t, _)| t).take(4).collect();
    let (newest, oldest) = (*grown.first()?, *grown.last()?);
    let usual = (newest - oldest) / 3;
    let limit = ns(view.settings.nic_stuck.silent_s).max(usual.saturating_mul(5));
    // Read since, and still the same.
    let stood = series.t.saturating_sub(newest);
    (grown.len() == 4 && stood > limit).then(|| Sign {
        text: format!("its signs of life ({}) stand still for {}", series.name, lasting(stood)),
        evidence: Evidence::new(
            format!("{}, time without growth", series.name),
            None,
            stood as f64 / 1e9,
            limit as f64 / 1e9,
            "s",
        ),
        since: newest,
        grade: Grade::Probable,
        severity: Severity::Critical,
        silent: None,
    })
}
