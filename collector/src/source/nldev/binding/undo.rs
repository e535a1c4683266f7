//! Undoing what a note tells: a port leaves the automatic mode, and the QPs that were bound in it are let go. What somebody
//! else has changed since is left alone.

use super::directory::Notes;
use super::kernel::{EPERM, Kernel, Trouble};
use super::note::{Changed, Note};
use crate::source::nldev::uapi::{COUNTER_MODE_AUTO, COUNTER_MODE_MANUAL, COUNTER_MODE_NONE};

/// QPs let go in one undoing. Each is a firmware command; more are left to end by themselves.
pub(super) const MAX_RELEASES: usize = 4096;

/// What came of one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undone {
    /// It is as before, or nothing more can be done about it; in words.
    Done(String),
    /// It could not be undone now, why not, and what helps: the note is kept.
    Kept { what: String, fix: Option<String> },
    /// Its device is not seen from here, where the one that changed it may have seen it: the note is kept.
    Unseen(String),
}

/// Who changed what is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changer {
    /// This process.
    This,
    /// One that has ended, in this network namespace or in another.
    Gone { here: bool },
}

impl Undone {
    /// In words.
    pub(super) fn what(&self) -> &str {
        match self {
            Self::Done(what) | Self::Kept { what, .. } | Self::Unseen(what) => what,
        }
    }
}

/// Undoes what a note tells of the ports that are `meant`. The note says so before anything is changed, and is gone when no
/// port is left in it. Returns what came of each.
///
/// Where the note was left by another and cannot be written, nothing is undone: the note would have it undone again and again,
/// also what somebody else does meanwhile.
///
/// A device may be seen in one network namespace only (`rdma system set netns exclusive`): what is not seen from another one
/// is not known to be gone, and stays in the note.
pub(super) fn undo(
    kernel: &mut Kernel,
    notes: &Notes,
    note: &mut Note,
    by: Changer,
    meant: impl Fn(&Changed) -> bool,
) -> Vec<Undone> {
    let devices = match kernel.devices() {
        Ok(devices) => devices,
        Err(trouble) if trouble.no_rdma() => Vec::new(),
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
    let writes = before.iter().any(|port| meant(port) && there(port));
    if writes
        && let Err(error) = notes.put(note)
        && by != Changer::This
    {
        note.ports = before;
        let why = format!("its note in {} cannot be written: {error}", notes.directory().display());
        return note.ports.iter().filter(|port| meant(port)).map(|port| not_undone(port, &why, None)).collect();
    }
    let mut allowed = MAX_RELEASES;
    let mut all = Vec::new();
    let mut left = Vec::new();
    for port in before {
        if !meant(&port) {
            left.push(port);
            continue;
        }
        let undone = if there(&port) { undo_port(kernel, &port, &mut allowed) } else { not_here(&port, by) };
        if !matches!(undone, Undone::Done(_)) {
            left.push(port);
        }
        all.push(undone);
    }
    let as_before = !writes && left.len() == note.ports.len();
    note.ports = left;
    if !as_before && let Err(error) = notes.put(note) {
        let what = format!("the note in {} cannot be put right: {error}", notes.directory().display());
        all.push(Undone::Kept { what, fix: None });
    }
    all
}

fn not_here(port: &Changed, by: Changer) -> Undone {
    let port = port.name();
    if by == (Changer::Gone { here: false }) {
        return Undone::Unseen(format!(
            "{port}: it was changed from another network namespace, and is not seen in this one"
        ));
    }
    let what = "the device is not here: gone, and what was changed with it, or moved to another network namespace";
    Undone::Done(format!("{port}: {what}"))
}

fn kept(port: &Changed, trouble: &Trouble) -> Undone {
    let why = match trouble.errno() {
        Some(EPERM) => "it needs CAP_NET_ADMIN".to_owned(),
        _ => trouble.to_string(),
    };
    not_undone(port, &why, trouble.fix())
}

fn not_undone(port: &Changed, why: &str, fix: Option<String>) -> Undone {
    let port = port.name();
    let what = format!("{port}: QPs are still bound to counters by type, and that could not be undone: {why}");
    Undone::Kept { what, fix }
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
            if let Err(trouble) = kernel.set_automatic(port.index, port.port, 0) {
                return kept(port, &trouble);
            }
            return release(kernel, port, allowed);
        }
        // The automatic mode was ended by us, and then something came between.
        COUNTER_MODE_MANUAL if port.undoing => return release(kernel, port, allowed),
        _ => {}
    }
    Undone::Done(format!("{name}: somebody has changed how QPs are bound to counters since; it is left so"))
}

/// Lets the QPs go that are bound by the automatic mode, which has ended: what is bound from now on is somebody else's, and
/// no automatic set.
fn release(kernel: &mut Kernel, port: &Changed, allowed: &mut usize) -> Undone {
    let name = port.name();
    let stay = |why: &str| {
        Undone::Done(format!(
            "{name}: no further QP is bound to counters; those that are stay so until they end: {why}"
        ))
    };
    let sets = match kernel.automatic_sets(port.index, port.port) {
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
