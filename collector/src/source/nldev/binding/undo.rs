//! Undoing what a note tells: a port leaves the automatic mode, and the QPs that were bound in it are let go. What somebody
//! else has changed since is left alone.

use super::kernel::{Kernel, Trouble};
use super::note::{Changed, Note, Notes};
use crate::source::nldev::uapi::{COUNTER_MODE_AUTO, COUNTER_MODE_MANUAL, COUNTER_MODE_NONE};

/// QPs let go in one undoing. Each is a firmware command; more are left to end by themselves.
pub(super) const MAX_RELEASES: usize = 4096;

/// What came of one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undone {
    /// It is as before, or nothing more can be done about it; in words.
    Done(String),
    /// It could not be undone now, and why not: the note is kept.
    Kept(String),
}

/// Undoes what a note tells of the ports that are `meant`. The note says so before anything is changed, and is gone when no
/// port is left in it. Returns what came of each.
pub(super) fn undo(
    kernel: &mut Kernel,
    notes: &Notes,
    note: &mut Note,
    meant: impl Fn(&Changed) -> bool,
) -> Vec<Undone> {
    let devices = match kernel.devices() {
        Ok(devices) => devices,
        Err(trouble) => {
            return note.ports.iter().filter(|port| meant(port)).map(|port| kept(port, &trouble)).collect();
        }
    };
    // In this boot an index belongs to one device for ever, unless ib_core was loaded anew: then the GUID may tell.
    let there = |port: &Changed| {
        devices.iter().any(|device| {
            let same = device.node_guid.is_none() || port.node_guid.is_none() || device.node_guid == port.node_guid;
            device.index == port.index && same
        })
    };
    let before = note.ports.clone();
    for port in note.ports.iter_mut().filter(|port| meant(port)) {
        port.undoing = true;
    }
    // A note that cannot be written says less than it could; what it tells is undone all the same.
    let _ = notes.put(note);
    let mut allowed = MAX_RELEASES;
    let mut all = Vec::new();
    let mut left = Vec::new();
    for port in before {
        if !meant(&port) {
            left.push(port);
            continue;
        }
        let undone = if there(&port) {
            undo_port(kernel, &port, &mut allowed)
        } else {
            Undone::Done(format!("{}: the device is gone, and what was changed with it", port.name()))
        };
        if matches!(undone, Undone::Kept(_)) {
            left.push(port);
        }
        all.push(undone);
    }
    note.ports = left;
    if let Err(error) = notes.put(note) {
        all.push(Undone::Kept(format!("the note in {} cannot be put right: {error}", notes.directory().display())));
    }
    all
}

fn kept(port: &Changed, trouble: &Trouble) -> Undone {
    let why = match trouble.errno() {
        Some(super::port::EPERM) => "it needs CAP_NET_ADMIN".to_owned(),
        _ => trouble.to_string(),
    };
    Undone::Kept(format!(
        "{}: QPs are still bound to counters by type, and that could not be undone: {why}",
        port.name()
    ))
}

fn undo_port(kernel: &mut Kernel, port: &Changed, allowed: &mut usize) -> Undone {
    let name = port.name();
    let mode = match kernel.mode(port.index, port.port) {
        Ok(mode) => mode,
        Err(trouble) => return kept(port, &trouble),
    };
    match mode.mode {
        COUNTER_MODE_NONE => return Undone::Done(format!("{name}: QPs are not bound to counters any more")),
        COUNTER_MODE_AUTO if mode.mask == port.mask => {
            // Listed before: what is bound afterwards is somebody else's.
            let sets = kernel.automatic_sets(port.index, port.port);
            if let Err(trouble) = kernel.set_automatic(port.index, port.port, 0) {
                return kept(port, &trouble);
            }
            return release(kernel, port, sets, allowed);
        }
        // The automatic mode was ended by us, and then something came between.
        COUNTER_MODE_MANUAL if port.undoing => {
            let sets = kernel.automatic_sets(port.index, port.port);
            return release(kernel, port, sets, allowed);
        }
        _ => {}
    }
    Undone::Done(format!("{name}: somebody has changed how QPs are bound to counters since; it is left so"))
}

/// Lets the QPs of the sets go.
fn release(
    kernel: &mut Kernel,
    port: &Changed,
    sets: Result<Option<Vec<super::kernel::MadeSet>>, Trouble>,
    allowed: &mut usize,
) -> Undone {
    let name = port.name();
    let stay = |why: &str| {
        Undone::Done(format!(
            "{name}: no further QP is bound to counters; those that are stay so until they end: {why}"
        ))
    };
    let sets = match sets {
        Ok(Some(sets)) => sets,
        Ok(None) => return stay("there are more in a set than the kernel can list"),
        Err(trouble) => return stay(&trouble.to_string()),
    };
    let qps = sets.iter().flat_map(|set| set.qpns.iter().map(move |qpn| (set.id, *qpn)));
    let (mut released, mut refused) = (0u32, None);
    let mut beyond = 0u32;
    for (set, qpn) in qps {
        if *allowed == 0 {
            beyond += 1;
            continue;
        }
        *allowed -= 1;
        match kernel.release(port.index, port.port, set, qpn) {
            Ok(()) => released += 1,
            Err(trouble) => refused = Some(trouble),
        }
    }
    // A QP that has ended meanwhile is refused as well, and nothing is left of it.
    match kernel.mode(port.index, port.port) {
        Ok(mode) if mode.mode == COUNTER_MODE_NONE => {
            let let_go = if released == 1 { "1 QP was" } else { &format!("{released} QPs were") };
            Undone::Done(format!("{name}: as before; {let_go} let go by the counters"))
        }
        _ if beyond > 0 => stay(&format!("{beyond} more than are let go at once")),
        _ => stay(&refused.map_or_else(|| "others were bound since".to_owned(), |trouble| trouble.to_string())),
    }
}
