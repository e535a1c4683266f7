//! The QPs as the probes know them: from first sight to destruction, with the slots their statistics are in.
//!
//! A QP is known by its device and number for as long as it lives; its successor with the same number is another QP. A
//! slot belongs to the QP that was alive when the slot was given out, so the times of both decide where the events
//! themselves come late. Usually a QP has one slot; a QP that is used on both sides of a fork has two.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use collector_ebpf::event::COMM_LEN;
use collector_ebpf::slot::{Slot, state};

use super::devices::Devices;
use super::stats::{Sum, Watched};
use super::store::{Store, keys};
use crate::observation::{Body, Nanos, Observation, Qp, QpEvent, QpState, Text};
use crate::source::Emit;

/// One QP.
#[derive(Default)]
pub(super) struct Known {
    pub(super) device: u32,
    pub(super) qpn: u32,
    pub(super) state: QpState,
    pub(super) pid: Option<u32>,
    pub(super) comm: Option<[u8; COMM_LEN]>,
    pub(super) qp_type: Option<u32>,
    /// When it was created, or first seen.
    pub(super) since: Nanos,
    slot: Option<u32>,
    more_slots: Vec<u32>,
    /// [`Sum::signature`] of what was last emitted.
    emitted: u64,
    unread: u64,
    /// The provider's code of the first error completion that is no flush.
    pub(super) vendor_err: Option<u32>,
    dirty: bool,
    /// It has not been destroyed; a place that is not alive is vacant, or will be after the sweep.
    alive: bool,
    /// The last sweep found it destroyed, but there was no event of it.
    retired: bool,
    /// For a while what it did was not watched: completions may have gone uncounted.
    gap: bool,
}

impl Known {
    fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.slot.into_iter().chain(self.more_slots.iter().copied())
    }
}

/// Which QP a slot belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Nobody,
    Qp(u32),
    /// To one that is gone; the slot is about to be given back.
    Gone,
}

/// All QPs and slots.
#[derive(Default)]
pub(super) struct Qps {
    pub(super) devices: Devices,
    by_key: HashMap<(u32, u32), u32>,
    known: Vec<Known>,
    vacant: Vec<u32>,
    owner: Vec<Owner>,
    dirty: Vec<u32>,
    /// Slots whose device could not be told when they were last looked at.
    unresolved: Vec<u32>,
    /// Slots that are given back at the next sweep, and those at the one after it: a post that has just found its slot
    /// when the QP was destroyed is given that long to end.
    leaving: Vec<u32>,
    left: Vec<u32>,
    sum: Sum,
    /// What is watched.
    pub(super) watched: Watched,
    /// Processes whose completions cannot all be given to a QP: none of their QPs has a number of them.
    untold: HashSet<u32>,
    /// Lists of work requests that could not be read to their end.
    pub(super) unread: u64,
    /// Slots that could not be given back.
    pub(super) leaked: u64,
}

impl Qps {
    /// For so many slots.
    pub(super) fn new(slots: u32) -> Self {
        Self { owner: vec![Owner::Nobody; slots as usize], ..Self::default() }
    }

    /// Takes note of the processes whose completions cannot all be given to a QP. Those of their QPs that change no more
    /// would otherwise be taken to wait for completions that nobody counts.
    pub(super) fn set_untold(&mut self, untold: HashSet<u32>) {
        let new = |pid: Option<u32>| pid.is_some_and(|pid| untold.contains(&pid) && !self.untold.contains(&pid));
        let known = self.by_key.values().copied();
        let qps: Vec<u32> = known.filter(|qp| self.known.get(*qp as usize).is_some_and(|qp| new(qp.pid))).collect();
        self.untold = untold;
        for qp in qps {
            self.touch(qp);
        }
    }

    /// What the processes that are `meant` post is not watched for a while. A completion that comes meanwhile is never
    /// counted: none of the QPs they have now has a number of its completions any more.
    pub(super) fn miss(&mut self, meant: impl Fn(Option<u32>) -> bool) {
        let known: Vec<u32> = self.by_key.values().copied().collect();
        for qp in known {
            if let Some(known) = self.known.get_mut(qp as usize)
                && known.slot.is_some()
                && meant(known.pid)
            {
                known.gap = true;
                self.touch(qp);
            }
        }
    }

    /// QPs of which some was not watched for a while.
    pub(super) fn gaps(&self) -> usize {
        self.known.iter().filter(|known| known.gap).count()
    }

    /// Takes up the slots that changed.
    pub(super) fn collect(&mut self, store: &mut dyn Store) {
        for index in std::mem::take(&mut self.unresolved) {
            self.changed(store, index);
        }
        for at in 0..store.marks().len() {
            let Some(word) = store.marks().get(at) else { break };
            if word.load(Relaxed) == 0 {
                continue;
            }
            let marks = word.swap(0, SeqCst).to_ne_bytes();
            for (index, mark) in (at * 8..).zip(marks) {
                if mark != 0
                    && let Ok(index) = u32::try_from(index)
                {
                    self.changed(store, index);
                }
            }
        }
    }

    fn changed(&mut self, store: &mut dyn Store, index: u32) {
        let Some(slot) = store.slot(index) else { return };
        if slot.state.load(Relaxed) == state::FREE {
            return;
        }
        match self.owner.get(index as usize) {
            Some(Owner::Qp(qp)) => self.touch(*qp),
            Some(Owner::Nobody) => self.bind(store, index),
            Some(Owner::Gone) | None => {}
        }
    }

    /// Finds out which QP a slot belongs to.
    fn bind(&mut self, store: &dyn Store, index: u32) {
        let Some(slot) = store.slot(index) else { return };
        let (slot_key, qp_key) = keys(slot);
        let device = match self.devices.known(qp_key.device) {
            Some(device) => device,
            None => match store.name(qp_key.device) {
                Some(name) => self.devices.intern(&name),
                None => return self.unresolved.push(index),
            },
        };
        let since = slot.created.load(Relaxed);
        let qp = self.find_or_add(device, slot_key.qpn, since);
        if let Some(known) = self.known.get_mut(qp as usize) {
            known.pid = known.pid.or(Some(slot_key.tgid));
        }
        self.own(qp, index);
    }

    fn own(&mut self, qp: u32, index: u32) {
        let Some(known) = self.known.get_mut(qp as usize) else { return };
        match known.slot {
            None => known.slot = Some(index),
            Some(_) => known.more_slots.push(index),
        }
        if let Some(owner) = self.owner.get_mut(index as usize) {
            *owner = Owner::Qp(qp);
        }
        self.touch(qp);
    }

    fn touch(&mut self, qp: u32) {
        if let Some(known) = self.known.get_mut(qp as usize)
            && !std::mem::replace(&mut known.dirty, true)
        {
            self.dirty.push(qp);
        }
    }

    /// The QP of a device and number, if it is known.
    pub(super) fn find(&self, device: u32, qpn: u32) -> Option<u32> {
        self.by_key.get(&(device, qpn)).copied()
    }

    /// What is known of a QP.
    pub(super) fn get(&mut self, qp: u32) -> Option<&mut Known> {
        self.known.get_mut(qp as usize)
    }

    /// The number of QPs known.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Slots whose QP's device is not known.
    pub(super) fn unresolved(&self) -> usize {
        self.unresolved.len()
    }

    /// The QP of a device and number; a new one when it is not known.
    pub(super) fn find_or_add(&mut self, device: u32, qpn: u32, since: Nanos) -> u32 {
        if let Some(qp) = self.find(device, qpn) {
            return qp;
        }
        let known = Known { device, qpn, since, alive: true, ..Known::default() };
        let qp = if let Some(qp) = self.vacant.pop() {
            if let Some(place) = self.known.get_mut(qp as usize) {
                *place = known;
            }
            qp
        } else {
            self.known.push(known);
            u32::try_from(self.known.len() - 1).unwrap_or(u32::MAX)
        };
        self.by_key.insert((device, qpn), qp);
        qp
    }

    /// Attaches the slot a destroy event names, when no sweep has seen it yet.
    pub(super) fn adopt(&mut self, device: u32, qpn: u32, index: u32, t: Nanos) {
        if self.owner.get(index as usize) == Some(&Owner::Nobody) {
            let qp = self.find_or_add(device, qpn, t);
            self.own(qp, index);
        }
    }

    /// A QP was destroyed at `ended`: emits its last numbers, at time `t`, and forgets it. Slots that were given out
    /// later are its successor's.
    pub(super) fn end(&mut self, store: &mut dyn Store, qp: u32, ended: Nanos, t: Nanos, emit: &mut Emit<'_>) {
        let Some(known) = self.known.get_mut(qp as usize) else { return };
        let all: Vec<u32> = known.slots().collect();
        let later = |index: &u32| store.slot(*index).is_some_and(|slot| slot.created.load(Relaxed) > ended);
        let (later, own): (Vec<u32>, Vec<u32>) = all.into_iter().partition(later);
        known.slot = None;
        known.more_slots.clone_from(&own);
        let (device, qpn) = (known.device, known.qpn);
        self.emit_stats(store, qp, t, emit);
        for index in own {
            self.release(store, index);
        }
        self.by_key.remove(&(device, qpn));
        if let Some(known) = self.known.get_mut(qp as usize) {
            // `dirty` stays: the list of dirty QPs still holds this place.
            *known = Known { dirty: known.dirty, ..Known::default() };
        }
        // A place in the list of dirty QPs is reused only after the sweep that clears the list.
        if self.known.get(qp as usize).is_some_and(|known| !known.dirty) {
            self.vacant.push(qp);
        }
        for index in later {
            if let Some(owner) = self.owner.get_mut(index as usize) {
                *owner = Owner::Nobody;
            }
            self.bind(store, index);
        }
    }

    fn release(&mut self, store: &mut dyn Store, index: u32) {
        if let Some(owner) = self.owner.get_mut(index as usize) {
            *owner = Owner::Gone;
        }
        // Before the keys go: a process's last slot is used again without them, as long as it fits and is in use.
        if let Some(slot) = store.slot(index) {
            slot.state.store(state::RETIRED, SeqCst);
        }
        store.unlink(index);
        self.leaving.push(index);
    }

    /// Emits the statistics of every QP that changed since the last sweep.
    pub(super) fn sweep(&mut self, store: &mut dyn Store, now: Nanos, emit: &mut Emit<'_>) {
        for qp in std::mem::take(&mut self.dirty) {
            let Some(known) = self.known.get_mut(qp as usize) else { continue };
            known.dirty = false;
            if !known.alive {
                // Destroyed since it was touched.
                self.vacant.push(qp);
                continue;
            }
            self.emit_stats(store, qp, now, emit);
            self.notice_retired(store, qp, now, emit);
        }
        for index in std::mem::take(&mut self.left) {
            if let Some(owner) = self.owner.get_mut(index as usize) {
                *owner = Owner::Nobody;
            }
            if !store.give_back(index) {
                self.leaked += 1;
            }
        }
        std::mem::swap(&mut self.left, &mut self.leaving);
    }

    /// A QP whose slots the destroy probe has retired, but whose destroy event has not come until the second sweep
    /// after it: the event was lost.
    fn notice_retired(&mut self, store: &mut dyn Store, qp: u32, now: Nanos, emit: &mut Emit<'_>) {
        let Some(known) = self.known.get_mut(qp as usize) else { return };
        let retired = |slot: &Slot| slot.state.load(Relaxed) == state::RETIRED;
        if known.slot.is_none() || !known.slots().all(|index| store.slot(index).is_some_and(retired)) {
            known.retired = false;
            return;
        }
        if !std::mem::replace(&mut known.retired, true) {
            return self.touch(qp);
        }
        let (device, qpn, pid) = (known.device, known.qpn, known.pid);
        self.end(store, qp, now, now, emit);
        let body = Qp {
            device: Text::Borrowed(self.devices.name(device)),
            qpn,
            event: QpEvent::Destroy,
            pid,
            ..Qp::default()
        };
        emit(&Observation { t: now, body: Body::Qp(body) });
    }

    /// Emits the statistics of a QP, if they changed since they were last emitted.
    pub(super) fn emit_stats(&mut self, store: &dyn Store, qp: u32, t: Nanos, emit: &mut Emit<'_>) {
        let Some(known) = self.known.get_mut(qp as usize) else { return };
        if known.slot.is_none() && known.more_slots.is_empty() {
            return;
        }
        self.sum.read(store, known.slots());
        let told = !known.gap && known.pid.is_none_or(|pid| !self.untold.contains(&pid));
        // That its completions have no number any more is told as well, and a code that came after the numbers, though it may
        // post nothing any more.
        let besides = u64::from(!told) | u64::from(known.vendor_err.is_some()) << 1;
        let signature = self.sum.signature().wrapping_add(besides << 62);
        if signature == known.emitted {
            return;
        }
        known.emitted = signature;
        self.unread += self.sum.unread().saturating_sub(known.unread);
        known.unread = self.sum.unread();
        let watched = Watched { missed: self.watched.completions && !told, ..self.watched };
        let mut stats = self.sum.lend(self.devices.name(known.device), known.qpn, &watched);
        stats.vendor_err = known.vendor_err;
        let observation = Observation { t, body: Body::QpStats(stats) };
        emit(&observation);
        if let Body::QpStats(stats) = observation.body {
            self.sum.take_back(stats);
        }
    }

    /// Forgets the QPs of processes that are gone: without the destroy probe nothing else tells. `gone` is asked once per
    /// process.
    pub(super) fn reap(&mut self, store: &mut dyn Store, now: Nanos, gone: &dyn Fn(u32) -> bool, emit: &mut Emit<'_>) {
        let mut verdicts: HashMap<u32, bool> = HashMap::new();
        let mut ended = Vec::new();
        for qp in self.by_key.values() {
            let Some(known) = self.known.get(*qp as usize) else { continue };
            let mut tgids =
                known.slots().filter_map(|index| store.slot(index)).map(|slot| keys(slot).0.tgid).peekable();
            if tgids.peek().is_some() && tgids.all(|tgid| *verdicts.entry(tgid).or_insert_with(|| gone(tgid))) {
                ended.push(*qp);
            }
        }
        for qp in ended {
            self.end(store, qp, now, now, emit);
        }
        // Its QPs may have been told to end, and another process may get its number.
        for tgid in self.untold.iter().copied().chain(store.processes()) {
            verdicts.entry(tgid).or_insert_with(|| gone(tgid));
        }
        for (tgid, _) in verdicts.into_iter().filter(|(_, gone)| *gone) {
            self.untold.remove(&tgid);
            store.forget_process(tgid);
        }
    }
}

#[cfg(test)]
#[path = "qps_tests.rs"]
mod tests;
