//! Has the kernel bind QPs to hardware counters by their type, where changes are allowed (`--allow-changes`), and undoes it.
//!
//! ```text
//! kernel   what is asked and changed        note       what was changed
//! undo     back to how it was               directory  the notes on disk, before anything is changed
//! port     what becomes of a port, and why  process    whose note it is, and whether that process lives
//! options  what may be changed              left       what others left: undone, or told
//! ```
//!
//! A port whose counter mode is `none` is given the automatic mode (`rdma statistic qp set link DEV/PORT auto type on`): the
//! kernel then makes a set for each type, and binds each QP that gets the port from then on. Never is a single QP bound: each
//! set multiplies what a read of the port's counters costs. A port whose mode somebody else has set is left to them.
//!
//! What is changed is noted first, and undone when the source ends; where the process was killed, the next one that may
//! change something undoes it. Without leave this source opens no socket: it only looks for notes, and tells of them.

mod directory;
mod kernel;
mod left;
mod note;
mod options;
mod port;
mod process;
#[cfg(test)]
mod tests;
mod undo;

use std::collections::BTreeSet;
use std::io;

use rustix::process::geteuid;

use crate::observation::{Body, Nanos, Note as Told, Observation, Seeing};
use crate::source::{Availability, Emit, Missing, Source};

use super::availability;
use super::reply::{CounterMode, DeviceInfo};
use super::uapi::COUNTER_MODE_AUTO;
use directory::Notes;
use kernel::Kernel;
use note::{Changed, Note};
pub use options::{BindBy, Changes, Options};
use port::{MAX_QPS, Port, State, may_bind, missing, refused, too_many};
use process::Process;
use undo::{Changer, undo};

/// The source's name.
pub const NAME: &str = "binding";

/// Between two looks at the notes, the devices and their modes, ns.
const PERIOD_NS: Nanos = 5_000_000_000;

/// What helps where no note can be written.
fn where_to_note(root: bool) -> String {
    if root {
        return format!(
            "give it a directory that only root can write to, and so above it: STATE_DIRECTORY, or {}",
            options::ROOT_S
        );
    }
    "give it a directory it can write to: STATE_DIRECTORY, or XDG_STATE_HOME".to_owned()
}

/// What the source tells in an observation: what it undid, or what somebody else did.
#[must_use]
pub fn told<'o>(body: &'o Body<'_>) -> Option<&'o str> {
    match body {
        Body::Note(note) if note.source == NAME => Some(&note.text),
        _ => None,
    }
}

/// The source.
pub struct Binding {
    options: Options,
    kernel: Kernel,
    notes: Notes,
    /// This process's note; it has the ports in it that are bound.
    note: Option<Note>,
    ports: Vec<Port>,
    /// Notes that could not be dealt with, and why not: they are not tried again.
    kept: Vec<(Process, Missing)>,
    /// Why nothing can be done at all.
    trouble: Option<Missing>,
    /// What others left and is still there.
    left: Vec<Missing>,
    /// What was undone, for those who ask what the source sees.
    undone: Vec<String>,
    /// Sentences to be told with the next poll.
    untold: Vec<String>,
    due: Nanos,
    ended: bool,
}

impl Binding {
    /// Starts the source; nothing is asked or changed before the first poll.
    #[must_use]
    pub fn start(options: Options) -> Self {
        let open = availability::opener(&options.proc);
        Self::over(Kernel::new(open), options)
    }

    fn over(kernel: Kernel, options: Options) -> Self {
        Self {
            kernel,
            notes: Notes::at(&options.directory, &options.others),
            note: None,
            ports: Vec::new(),
            kept: Vec::new(),
            trouble: None,
            left: Vec::new(),
            undone: Vec::new(),
            untold: Vec::new(),
            due: 0,
            ended: false,
            options,
        }
    }

    /// Follows the devices: gives new ports the automatic mode, and sees whether those that have it still do.
    fn follow(&mut self, by: BindBy) {
        let devices = match self.kernel.devices() {
            Ok(devices) => devices,
            Err(trouble) => {
                self.trouble = Some(missing("counters by QP type", trouble.to_string(), trouble.fix()));
                return;
            }
        };
        self.trouble = None;
        self.forget_gone(&devices);
        self.look_at_bound();
        let mut candidates = Vec::new();
        for device in devices.iter().filter(|device| (self.options.wanted)(&device.name) && !device.smi) {
            for port in 1..=device.ports {
                let known = self.ports.iter().find(|known| known.device.index == device.index && known.number == port);
                if known.is_none_or(|known| matches!(known.state, State::Left { again: true, .. })) {
                    candidates.push((device.clone(), port));
                }
            }
        }
        self.bind(candidates, by.mask());
    }

    /// A device that is not here any more is not asked. It stays in the note: one that is gone took its counters with it, but
    /// one that was moved to another network namespace keeps its mode, and may be back at the end. Where its name and its GUID
    /// come under an index that was not there before, it was made anew, and is gone. The GUID alone is not enough: the ports of
    /// one adapter may share it.
    fn forget_gone(&mut self, devices: &[DeviceInfo]) {
        let there = |index: u32| devices.iter().any(|device| device.index == index);
        let before: BTreeSet<u32> = self.ports.iter().map(|port| port.device.index).collect();
        self.ports.retain(|port| there(port.device.index));
        for port in &mut self.ports {
            if let Some(device) = devices.iter().find(|device| device.index == port.device.index) {
                port.device = device.clone();
            }
        }
        // A device may be given another name: the note's is the one by which somebody undoes it by hand.
        self.renote(|noted| {
            for noted in noted {
                if let Some(device) = devices.iter().find(|device| device.index == noted.index) {
                    noted.device.clone_from(&device.name);
                }
            }
        });
        let is_made_anew = |noted: &Changed| {
            let is_it = |device: &DeviceInfo| {
                let same = device.name == noted.device && device.node_guid == noted.node_guid;
                same && device.node_guid.is_some() && !before.contains(&device.index)
            };
            !there(noted.index) && devices.iter().any(is_it)
        };
        self.note_less(|noted| !is_made_anew(noted));
    }

    /// Keeps in the note only the ports that `stays` says.
    fn note_less(&mut self, stays: impl Fn(&Changed) -> bool) {
        self.renote(|noted| noted.retain(stays));
    }

    /// Changes the note, and writes it where that makes a difference.
    fn renote(&mut self, change: impl FnOnce(&mut Vec<Changed>)) {
        let Some(note) = &mut self.note else { return };
        let before = note.ports.clone();
        change(&mut note.ports);
        if note.ports != before
            && let Err(error) = self.notes.put(note)
        {
            self.untold.push(format!("the note in {} cannot be put right: {error}", self.notes.directory().display()));
        }
    }

    /// A port whose mode is another than the one it was given, or whose sets are about to be too long, is given up.
    fn look_at_bound(&mut self) {
        let mut given_up: Vec<(u32, u32)> = Vec::new();
        let mut taken_back: Vec<(u32, u32)> = Vec::new();
        for port in &mut self.ports {
            let State::Bound { mask } = port.state else { continue };
            let place = (port.device.index, port.number);
            let Ok(mode) = self.kernel.mode(place.0, place.1) else { continue };
            if mode != (CounterMode { mode: COUNTER_MODE_AUTO, mask }) {
                let reason = "somebody has changed how QPs are bound to counters; it is left so".to_owned();
                self.untold.push(format!("{}: {reason}", port.name()));
                port.state = State::Left { reason, fix: None, again: false };
                given_up.push(place);
            } else if let Some(qps) = self.kernel.qps(place.0).filter(|qps| *qps > MAX_QPS) {
                port.state = State::Left { reason: too_many(qps), fix: None, again: false };
                taken_back.push(place);
            }
        }
        if !given_up.is_empty() {
            self.note_less(|port| !given_up.contains(&(port.index, port.port)));
        }
        if !taken_back.is_empty() {
            self.undo(|port| taken_back.contains(&(port.index, port.port)));
        }
    }

    /// Undoes what was changed of the ports that are `meant`.
    fn undo(&mut self, meant: impl Fn(&Changed) -> bool) {
        let Some(note) = &mut self.note else { return };
        let all = undo(&mut self.kernel, &self.notes, note, Changer::This, meant);
        self.untold.extend(all.iter().map(|undone| undone.what().to_owned()));
    }

    /// Gives ports the automatic mode, those that have none and may have it. All are noted before the first is changed.
    fn bind(&mut self, candidates: Vec<(DeviceInfo, u32)>, mask: u32) {
        let mut wanted = Vec::new();
        for (device, port) in candidates {
            self.ports.retain(|known| known.device.index != device.index || known.number != port);
            match may_bind(&mut self.kernel, &device, port) {
                Ok(before) => wanted.push((device, port, before)),
                Err(state) => self.ports.push(Port { device, number: port, state }),
            }
        }
        if wanted.is_empty() {
            return;
        }
        let mut note = match self.noted(&wanted, mask) {
            Ok(note) => note,
            Err((why, fix)) => {
                let reason = format!("nothing is changed without a note of it, and {why}");
                for (device, port, _) in wanted {
                    let state = State::Left { reason: reason.clone(), fix: fix.clone(), again: true };
                    self.ports.push(Port { device, number: port, state });
                }
                return;
            }
        };
        for (device, port, _) in wanted {
            let state = match self.kernel.set_automatic(device.index, port, mask) {
                Ok(()) => State::Bound { mask },
                Err(trouble) => refused(&trouble),
            };
            if !matches!(state, State::Bound { .. }) {
                note.ports.retain(|noted| noted.index != device.index || noted.port != port);
            }
            self.ports.push(Port { device, number: port, state });
        }
        // Those that were refused are in it still, where it cannot be written: they are found as they were.
        let _ = self.notes.put(&note);
        self.note = Some(note);
    }

    /// Writes down what is about to be changed.
    ///
    /// # Errors
    /// Why it cannot be written, and what would help.
    fn noted(
        &mut self,
        wanted: &[(DeviceInfo, u32, CounterMode)],
        mask: u32,
    ) -> Result<Note, (String, Option<String>)> {
        let mut note = match self.note.take() {
            Some(note) => note,
            None => Note::new(
                Process::own(&self.options.proc)
                    .map_err(|error| (format!("this process cannot be named: {error}"), None))?,
            ),
        };
        let again =
            |noted: &Changed| wanted.iter().any(|(device, port, _)| (device.index, *port) == (noted.index, noted.port));
        note.ports.retain(|noted| !again(noted));
        let before = note.ports.len();
        note.ports.extend(wanted.iter().map(|(device, port, before)| Changed {
            device: device.name.clone(),
            index: device.index,
            node_guid: device.node_guid.clone(),
            port: *port,
            before: *before,
            mask,
            undoing: false,
        }));
        let elsewhere = |error: io::Error| (error.to_string(), Some(where_to_note(geteuid().is_root())));
        let written = match self.notes.lock() {
            Ok(Some(lock)) => {
                directory::clear(&lock, &self.options.proc);
                self.notes.put(&note).map_err(elsewhere)
            }
            // It will be done soon, and this is tried again.
            Ok(None) => Err(("another rdmascope is changing counters just now".to_owned(), None)),
            Err(error) => Err(elsewhere(error)),
        };
        match written {
            Ok(()) => Ok(note),
            Err((why, fix)) => {
                note.ports.truncate(before);
                if before > 0 {
                    self.note = Some(note);
                }
                Err((format!("none can be written in {}: {why}", self.notes.directory().display()), fix))
            }
        }
    }

    /// Undoes all that this process has changed. Once: what cannot be undone now is in the note.
    fn undo_own(&mut self) {
        self.ended = true;
        self.undo(|_| true);
        self.ports.clear();
    }

    fn tell(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        for text in self.untold.drain(..) {
            emit(&Observation { t: now, body: Body::Note(Told { source: NAME.into(), text: text.into() }) });
        }
    }

    fn bound(&self) -> usize {
        self.ports.iter().filter(|port| matches!(port.state, State::Bound { .. })).count()
    }
}

impl Source for Binding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        let mut gaps: Vec<Missing> = self.trouble.iter().chain(&self.left).cloned().collect();
        for port in &self.ports {
            if let State::Left { reason, fix, .. } = &port.state {
                let what = format!("counters by QP type of {}", port.name());
                gaps.push(Missing { what, reason: reason.clone(), fix: fix.clone() });
            }
        }
        let mut sees = match self.options.changes {
            Changes::None => String::new(),
            Changes::Undo => "changes are allowed; this command binds nothing".to_owned(),
            Changes::Bind(by) => {
                let by = if by == BindBy::Type { "type" } else { "type and process" };
                let n = self.bound();
                format!(
                    "{n} {}: QPs made from now on are bound to counters by {by}",
                    if n == 1 { "port" } else { "ports" }
                )
            }
        };
        if !self.undone.is_empty() {
            sees = format!("{sees}; undone of what others left: {}", self.undone.join("; "));
        }
        let state = match (self.options.changes, self.bound()) {
            // Something is left of an earlier run: that is worth being seen.
            (Changes::None | Changes::Undo, _) if !self.left.is_empty() => Seeing::Partial,
            (Changes::None | Changes::Undo, _) | (Changes::Bind(_), 0) => Seeing::Off,
            _ if gaps.is_empty() => Seeing::Ok,
            _ => Seeing::Partial,
        };
        if self.options.changes == Changes::None {
            let fix = Some("--allow-changes".to_owned());
            gaps.push(missing("counters by QP type", "off unless asked for".to_owned(), fix));
        }
        Availability { name: NAME, state, sees, missing: gaps }
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let settled = self.settle();
        if let (Changes::Bind(by), true, false) = (self.options.changes, settled, self.ended) {
            self.follow(by);
        }
        self.due = now.saturating_add(PERIOD_NS);
        self.tell(now, emit);
    }

    fn end(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        self.undo_own();
        self.tell(now, emit);
    }
}

impl Drop for Binding {
    /// Also where the thread ends by a panic.
    fn drop(&mut self) {
        if !self.ended {
            self.undo_own();
        }
    }
}
