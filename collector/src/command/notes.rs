//! What to know before believing the numbers of `ports` and `check`, in sentences.

use crate::inventory::{DeviceId, DeviceRecord, PortRecord, Role, World};
use crate::observation::Seeing;
use crate::source::nldev::binding;
use crate::source::{congestion, devlink, ethtool, hwmon, netdev};
use crate::timeline::counter_table::Meaning;

/// Sources whose subject a node need not have. That there is nothing for them is said by `doctor`, and is no reason to
/// doubt the numbers of a port.
const BESIDE: [&str; 6] = [netdev::NAME, ethtool::NAME, congestion::NAME, devlink::NAME, hwmon::NAME, binding::NAME];

/// What a port can tell of congestion: marks and the notifications they cause (RoCE), the wait for credits (InfiniBand).
const CONGESTION: [Meaning; 5] =
    [Meaning::EcnMarkedRx, Meaning::CnpSent, Meaning::CnpHandled, Meaning::CnpReceived, Meaning::TxWait];

/// Why there is no port to show, where there is a reason: no device, or none that can be read.
#[must_use]
pub fn why_no_port(world: &World) -> Option<String> {
    if world.present_ports().next().is_some() {
        return None;
    }
    unreadable(world).or_else(|| no_device(world))
}

/// No RDMA device is named at all, and this is why.
#[must_use]
pub fn no_device(world: &World) -> Option<String> {
    let none = world.present().next().is_none();
    world.header.note.clone().filter(|_| none)
}

/// The devices that are named and cannot be read.
fn unreadable(world: &World) -> Option<String> {
    let unreadable: Vec<(&DeviceRecord, &str)> =
        world.present().filter_map(|(_, device)| Some((device, device.unreadable.as_deref()?))).collect();
    let (_, reason) = unreadable.first()?;
    let names: Vec<&str> = unreadable.iter().map(|(device, _)| &*device.name).collect();
    let how_many = match (names.len(), world.present().count()) {
        (1, 1) => "1 RDMA device named, not readable".to_owned(),
        (all, of) if all == of => format!("{all} RDMA devices named, none readable"),
        (some, of) => format!("{some} of {of} RDMA devices not readable"),
    };
    let fix = crate::source::sysfs::remedy(reason).map(|fix| format!("; {fix}")).unwrap_or_default();
    Some(format!("{how_many} ({}): {reason}{fix}", names.join(", ")))
}

/// The notes on the node.
#[must_use]
pub fn of_node(world: &World) -> Vec<String> {
    let mut notes: Vec<String> = no_device(world).into_iter().chain(unreadable(world)).collect();
    for (_, device) in world.present() {
        if let Some((_, fell)) = device.reset {
            let all = if fell.counters == fell.of { "all ".to_owned() } else { format!("{} of ", fell.counters) };
            notes.push(format!("counters of {} reset ({all}{} nonzero counters fell together)", device.name, fell.of));
        }
    }
    let with_role =
        |role: Role| world.present().filter(move |(id, _)| world.role(*id) == Some(role)).collect::<Vec<_>>();
    let parent = |id: DeviceId| world.parent(id).map(|parent| &world.device(parent).name);
    let vfs = with_role(Role::Vf);
    if !vfs.is_empty() {
        notes.push("virtual functions are views of their physical port: their numbers are not added to it".to_owned());
    }
    for (_, device) in vfs.iter().filter(|(id, _)| parent(*id).is_none()) {
        notes.push(format!("{} is a VF (PF not visible)", device.name));
    }
    for (id, device) in with_role(Role::Management) {
        let of = parent(id).map(|parent| format!(" of {parent}")).unwrap_or_default();
        let planes = match world.ports_of(id).count() {
            0 | 1 => String::new(),
            planes => format!(" ({planes} planes)"),
        };
        notes.push(format!("{} is a management sub-device{of}{planes}: it carries no data of its own", device.name));
    }
    if world.findings_dropped > 0 {
        notes.push(format!("{} further findings were only counted: too many of one rule", world.findings_dropped));
    }
    notes.extend(world.notes.iter().map(|(_, note)| note.to_string()));
    for (name, source) in &world.sources {
        // What was said above is not said again in the source's words.
        let nothing_to_read = no_device(world).is_some()
            && source.reason.as_deref().is_some_and(|reason| reason.ends_with("no RDMA device here"));
        if nothing_to_read || (source.state == Seeing::Off && BESIDE.contains(&&**name)) {
            continue;
        }
        let said = |reason: &str| {
            notes.iter().any(|note| reason.ends_with(note.as_str()))
                || world.present().any(|(_, device)| device.unreadable.as_deref().is_some_and(|u| reason.ends_with(u)))
        };
        if let Some(reason) = source.reason.as_deref().filter(|reason| reason.contains("; ") || !said(reason)) {
            notes.push(format!("{name}: {reason}"));
        }
    }
    notes
}

/// The notes on a port: those of the source, and what its counters cannot tell.
#[must_use]
pub fn of_port(port: &PortRecord) -> Vec<std::sync::Arc<str>> {
    let mut notes = port.notes.clone();
    let readable = port.sets.iter().any(|set| set.series.iter().any(|series| series.value().is_some()));
    if readable && CONGESTION.iter().all(|meaning| port.reading(*meaning).is_none()) {
        notes.push("no congestion analysis available: the driver counts neither ECN marks nor CNPs nor waiting".into());
    }
    notes
}
