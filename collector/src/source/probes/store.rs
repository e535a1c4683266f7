//! The maps the statistics are in, as the bookkeeping of QPs sees them.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use aya::Ebpf;
use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray, PerCpuValues, Queue};
use aya::util::nr_cpus;
use collector_ebpf::fan::FanCounts;
use collector_ebpf::outcome::Outcome;
use collector_ebpf::pairing::{CHANGE, FOLLOWED, Watch};
use collector_ebpf::slot::{ContextKey, LAST_PLACES, MARKS_PER_BLOCK, Name, QpKey, Slot, SlotKey, Totals, Wide, state};

use super::mapped::Mapped;
use crate::observation::Nanos;

/// Where slots are kept: the BPF maps, or plain memory in tests.
pub(super) trait Store {
    /// One slot.
    fn slot(&self, index: u32) -> Option<&Slot>;
    /// The histograms of a slot, if it has any.
    fn wide(&self, index: u32) -> Option<&Wide>;
    /// The completions of a slot, if they are kept by status and latency.
    fn outcome(&self, index: u32) -> Option<&Outcome>;
    /// The marks, eight to a word.
    fn marks(&self) -> &[AtomicU64];
    /// The device name an id stands for.
    fn name(&self, id: u64) -> Option<Name>;
    /// Lets no post find a slot any more.
    fn unlink(&mut self, index: u32);
    /// Gives an empty slot back.
    fn give_back(&mut self, index: u32) -> bool;
    /// Processes of which something is kept that another process could use.
    fn processes(&self) -> Vec<u32>;
    /// Forgets what is kept of a process.
    fn forget_process(&mut self, tgid: u32);
}

/// What a slot's owner is in the maps.
pub(super) fn keys(slot: &Slot) -> (SlotKey, QpKey) {
    let key =
        SlotKey { qp: slot.qp.load(Relaxed), context: slot.context.load(Relaxed), tgid: slot.tgid(), qpn: slot.qpn() };
    (key, QpKey { device: slot.device.load(Relaxed), qpn: u64::from(key.qpn) })
}

/// Empties a slot that nothing points to any more.
pub(super) fn clear(slot: &Slot, wide: Option<&Wide>, outcome: Option<&Outcome>) {
    for counter in [
        &slot.device,
        &slot.looked,
        &slot.created,
        &slot.born,
        &slot.posts,
        &slot.wrs,
        &slot.bytes,
        &slot.signaled,
        &slot.switches,
        &slot.truncated,
        &slot.unread,
        &slot.last_post,
        &slot.completions,
        &slot.errors,
        &slot.sent,
        &slot.recv_wrs,
        &slot.last_wr_id,
        &slot.pairing,
        &slot.tick,
        &slot.turn,
    ] {
        counter.store(0, Relaxed);
    }
    if let Some(wide) = wide {
        wide.size_log2.iter().chain(&wide.opcodes).for_each(|counter| counter.store(0, Relaxed));
    }
    if let Some(outcome) = outcome {
        outcome.statuses.iter().chain(&outcome.latency_log2_ns).for_each(|counter| counter.store(0, Relaxed));
    }
    slot.state.store(state::FREE, Relaxed);
}

/// The process a place among the last slots belongs to.
#[allow(clippy::cast_possible_truncation, reason = "the upper half")]
const fn process_in(place: u64) -> u32 {
    (place >> 32) as u32
}

/// How many elements the arrays have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Of the slot array.
    pub(super) slots: u32,
    /// Of the array of histograms.
    pub(super) wide: u32,
    /// Of the array of completions.
    pub(super) outcomes: u32,
}

/// The BPF maps.
pub(super) struct Maps {
    slots: Mapped<Slot>,
    wide: Mapped<Wide>,
    outcomes: Mapped<Outcome>,
    watch: Mapped<Watch>,
    marks: Mapped<AtomicU64>,
    given: Mapped<AtomicU64>,
    slot_of: HashMap<MapData, SlotKey, u32>,
    by_qpn: HashMap<MapData, QpKey, u32>,
    by_context: HashMap<MapData, ContextKey, u32>,
    fans: HashMap<MapData, u64, FanCounts>,
    names: HashMap<MapData, u64, Name>,
    last_slot: HashMap<MapData, u32, u64>,
    last_of: Mapped<AtomicU64>,
    freed: Queue<MapData, u32>,
    untold: HashMap<MapData, u32, u8>,
    totals: PerCpuArray<MapData, Totals>,
}

impl Maps {
    /// Takes the maps out of the loaded object.
    pub(super) fn take(ebpf: &mut Ebpf, sizes: Sizes) -> Result<Self, String> {
        let failed = |name: &str, error: &dyn std::fmt::Display| format!("the BPF map {name} cannot be used: {error}");
        let array = |name: &str| match ebpf.map(name) {
            Some(Map::Array(data)) => Ok(data.fd()),
            _ => Err(failed(name, &"it is not in the object")),
        };
        let mapped = |name: &str, error: std::io::Error| failed(name, &error);
        let words = (sizes.slots.div_ceil(MARKS_PER_BLOCK) * MARKS_PER_BLOCK / 8) as usize;
        let slots = Mapped::new(array("SLOTS")?.as_fd(), sizes.slots as usize).map_err(|e| mapped("SLOTS", e))?;
        let wide = Mapped::new(array("WIDE")?.as_fd(), sizes.wide as usize).map_err(|e| mapped("WIDE", e))?;
        let outcomes = array("OUTCOMES")?;
        let outcomes = Mapped::new(outcomes.as_fd(), sizes.outcomes as usize).map_err(|e| mapped("OUTCOMES", e))?;
        let watch = Mapped::new(array("WATCH")?.as_fd(), 1).map_err(|e| mapped("WATCH", e))?;
        let marks = Mapped::new(array("MARKS")?.as_fd(), words).map_err(|e| mapped("MARKS", e))?;
        let given = Mapped::new(array("GIVEN")?.as_fd(), 1).map_err(|e| mapped("GIVEN", e))?;
        let last_of = array("LAST_OF")?;
        let last_of = Mapped::new(last_of.as_fd(), LAST_PLACES as usize).map_err(|e| mapped("LAST_OF", e))?;
        let mut take = |name: &str| ebpf.take_map(name).ok_or_else(|| failed(name, &"it is not in the object"));
        let map = |name: &'static str| move |error: MapError| failed(name, &error);
        Ok(Self {
            slots,
            wide,
            outcomes,
            watch,
            marks,
            given,
            last_of,
            slot_of: take("SLOT_OF")?.try_into().map_err(map("SLOT_OF"))?,
            by_qpn: take("BY_QPN")?.try_into().map_err(map("BY_QPN"))?,
            by_context: take("BY_CONTEXT")?.try_into().map_err(map("BY_CONTEXT"))?,
            fans: take("FANS")?.try_into().map_err(map("FANS"))?,
            names: take("NAMES")?.try_into().map_err(map("NAMES"))?,
            last_slot: take("LAST_SLOT")?.try_into().map_err(map("LAST_SLOT"))?,
            freed: take("FREED")?.try_into().map_err(map("FREED"))?,
            untold: take("UNTOLD")?.try_into().map_err(map("UNTOLD"))?,
            totals: take("TOTALS")?.try_into().map_err(map("TOTALS"))?,
        })
    }

    /// What the programs counted for themselves, over all CPUs.
    pub(super) fn totals(&self) -> Option<Totals> {
        let per_cpu = self.totals.get(&0, 0).ok()?;
        Some(per_cpu.iter().fold(Totals::default(), |sum, cpu| Totals {
            hits: sum.hits + cpu.hits,
            poll_hits: sum.poll_hits + cpu.poll_hits,
            post_steps: sum.post_steps + cpu.post_steps,
            poll_steps: sum.poll_steps + cpu.poll_steps,
            empty_polls: sum.empty_polls + cpu.empty_polls,
            no_owner: sum.no_owner + cpu.no_owner,
            no_completion: sum.no_completion + cpu.no_completion,
            no_batch: sum.no_batch + cpu.no_batch,
            no_slot: sum.no_slot + cpu.no_slot,
            no_qp: sum.no_qp + cpu.no_qp,
            no_name: sum.no_name + cpu.no_name,
            no_process: sum.no_process + cpu.no_process,
            leaked: sum.leaked + cpu.leaked,
            lost: sum.lost + cpu.lost,
            unreadable: sum.unreadable + cpu.unreadable,
            no_call: sum.no_call + cpu.no_call,
        }))
    }

    /// Says to the programs what is watched from `since` on: something was attached, is going to be detached, or was. One
    /// in `every` signalled requests (a power of two) is timed.
    pub(super) fn begin_epoch(&self, since: Nanos, posts: bool, completions: bool, every: u64) {
        let Some(watch) = self.watch.get(0) else { return };
        for flag in [&watch.latency, &watch.posts, &watch.completions] {
            flag.store(0, SeqCst);
        }
        watch.epoch.fetch_add(1, SeqCst);
        watch.since.store(since, SeqCst);
        watch.mask.store(every.next_power_of_two() - 1, SeqCst);
        watch.posts.store(posts.into(), SeqCst);
        watch.completions.store(completions.into(), SeqCst);
        watch.latency.store((posts && completions).into(), SeqCst);
    }

    /// Says to the programs whether they see all that happens to QPs from now on: then a QP need not be looked at again while
    /// nothing does.
    pub(super) fn follow(&self, followed: bool) {
        let Some(watch) = self.watch.get(0) else { return };
        if (watch.changes.load(SeqCst) & FOLLOWED != 0) == followed {
            return;
        }
        if followed {
            // Something may have happened unseen.
            watch.changes.fetch_add(CHANGE, SeqCst);
            watch.changes.fetch_or(FOLLOWED, SeqCst);
        } else {
            watch.changes.fetch_and(!FOLLOWED, SeqCst);
        }
    }

    /// Takes out whatever was counted, and every slot that was given out: before anything is told of.
    pub(super) fn forget_all(&mut self) {
        for index in 0..u32::try_from(self.given()).unwrap_or(u32::MAX) {
            self.unlink(index);
            self.give_back(index);
        }
        self.marks.all().iter().for_each(|marks| marks.store(0, SeqCst));
        let devices: Vec<u64> = self.names.keys().flatten().collect();
        for device in devices {
            // Neither need be there.
            let _ = self.names.remove(&device);
            let _ = self.fans.remove(&device);
        }
        if let Ok(cpus) = nr_cpus()
            && let Ok(zero) = PerCpuValues::try_from(vec![Totals::default(); cpus])
        {
            let _ = self.totals.set(0, zero, 0);
        }
        self.forget_process(std::process::id());
    }

    /// Processes of which completions were found that tell no QP.
    pub(super) fn untold(&self) -> impl Iterator<Item = u32> + '_ {
        self.untold.keys().flatten()
    }

    /// How many QPs are in use at once, by device.
    pub(super) fn fans(&self) -> impl Iterator<Item = (u64, FanCounts)> + '_ {
        self.fans.iter().flatten()
    }

    /// Slots that were ever given out.
    pub(super) fn given(&self) -> u64 {
        self.given.get(0).map_or(0, |given| given.load(Relaxed))
    }
}

impl Store for Maps {
    fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize)
    }

    fn wide(&self, index: u32) -> Option<&Wide> {
        self.wide.get(index as usize)
    }

    fn outcome(&self, index: u32) -> Option<&Outcome> {
        self.outcomes.get(index as usize)
    }

    fn marks(&self) -> &[AtomicU64] {
        self.marks.all()
    }

    fn name(&self, id: u64) -> Option<Name> {
        self.names.get(&id, 0).ok()
    }

    fn unlink(&mut self, index: u32) {
        let Some(slot) = self.slots.get(index as usize) else { return };
        let (key, qp_key) = keys(slot);
        // A key may point to the slot of the QP's successor by now.
        if self.slot_of.get(&key, 0).is_ok_and(|at| at == index) {
            let _ = self.slot_of.remove(&key);
        }
        if self.by_qpn.get(&qp_key, 0).is_ok_and(|at| at == index) {
            let _ = self.by_qpn.remove(&qp_key);
        }
        let context_key = key.in_context();
        if self.by_context.get(&context_key, 0).is_ok_and(|at| at == index) {
            let _ = self.by_context.remove(&context_key);
        }
    }

    fn give_back(&mut self, index: u32) -> bool {
        if let Some(slot) = self.slots.get(index as usize) {
            clear(slot, self.wide.get(index as usize), self.outcomes.get(index as usize));
        }
        self.freed.push(index, 0).is_ok()
    }

    fn processes(&self) -> Vec<u32> {
        let places = self.last_of.all().iter().map(|place| place.load(Relaxed));
        places.filter(|place| *place != 0).map(process_in).collect()
    }

    fn forget_process(&mut self, tgid: u32) {
        if let Some(place) = self.last_of.get((tgid % LAST_PLACES) as usize) {
            let present = place.load(Relaxed);
            if present != 0 && process_in(present) == tgid {
                // Whoever has it by now keeps it.
                let _ = place.compare_exchange(present, 0, SeqCst, Relaxed);
            }
        }
        // It may never have been entered.
        let _ = self.last_slot.remove(&tgid);
        let _ = self.untold.remove(&tgid);
    }
}
