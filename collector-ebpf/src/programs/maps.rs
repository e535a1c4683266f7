//! The maps and the read-only global. User space sets the sizes of those marked "sized at load".

use core::sync::atomic::AtomicU64;

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, ProgramArray, Queue, RingBuf};
use collector_ebpf::atomic;
use collector_ebpf::batch::Batch;
use collector_ebpf::config::{Config, Field};
use collector_ebpf::event::Event;
use collector_ebpf::fan::Fan;
use collector_ebpf::outcome::Outcome;
use collector_ebpf::pairing::{CHANGE, Pending, PendingKey, Watch};
use collector_ebpf::slot::{ContextKey, LAST_PLACES, MARKS_PER_BLOCK, Name, QpKey, Slot, SlotKey, Totals, Wide};

const BPF_F_MMAPABLE: u32 = 1 << 10;

/// Insert only if the key is not there (`BPF_NOEXIST`).
pub(super) const NOEXIST: u64 = 1;

/// Rare events. 2 MiB hold about 10,000 of them.
#[map]
pub(super) static EVENTS: RingBuf = RingBuf::with_byte_size(2 << 20, 0);

/// What is known of a modify or destroy call between its entry and its return, by task.
#[map]
pub(super) static CALLS: LruHashMap<u64, Event> = LruHashMap::with_max_entries(16_384, 0);

/// The slots. Sized at load.
#[map]
static SLOTS: Array<Slot> = Array::with_max_entries(64, BPF_F_MMAPABLE);

/// The histograms of the first slots. Sized at load.
#[map]
static WIDE: Array<Wide> = Array::with_max_entries(64, BPF_F_MMAPABLE);

/// The completions of the first slots. Sized at load.
#[map]
static OUTCOMES: Array<Outcome> = Array::with_max_entries(64, BPF_F_MMAPABLE);

/// One byte per slot: 1 when the slot changed since user space last looked. Sized at load.
#[map]
static MARKS: Array<[u8; MARKS_PER_BLOCK as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// The slot of a process's QP. Sized at load.
#[map]
pub(super) static SLOT_OF: HashMap<SlotKey, u32> = HashMap::with_max_entries(64, 0);

/// The slot of a QP as the kernel knows it. Sized at load.
#[map]
pub(super) static BY_QPN: HashMap<QpKey, u32> = HashMap::with_max_entries(64, 0);

/// The slot of a QP as completions know it. Sized at load.
#[map]
pub(super) static BY_CONTEXT: HashMap<ContextKey, u32> = HashMap::with_max_entries(64, 0);

/// When the kernel created a process's QP. Sized at load.
#[map]
pub(super) static BORN: LruHashMap<QpKey, u64> = LruHashMap::with_max_entries(64, 0);

/// Which QP's completions a queue holds. Sized at load.
#[map]
pub(super) static CQS: LruHashMap<CqKey, CqUse> = LruHashMap::with_max_entries(64, 0);

/// What user space says of the watch.
#[map]
static WATCH: Array<Watch> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Work requests that are timed. 32,768 are what fits two full send queues.
#[map]
pub(super) static PENDING: LruHashMap<PendingKey, Pending> = LruHashMap::with_max_entries(32_768, 0);

/// Polls between their entry and their return, by task.
#[map]
static POLLS: LruHashMap<u64, Poll> = LruHashMap::with_max_entries(16_384, 0);

/// Work requests that are being built.
#[map]
static BATCHES: LruHashMap<BatchKey, Batch> = LruHashMap::with_max_entries(4096, 0);

/// An empty batch: too large for the stack.
#[map]
static EMPTY_BATCH: PerCpuArray<Batch> = PerCpuArray::with_max_entries(1, 0);

/// Processes whose tables of operations were told.
#[map]
pub(super) static KNOWN: LruHashMap<u64, u8> = LruHashMap::with_max_entries(16_384, 0);

/// How many QPs of a device are in use at once, by [`Name::id`].
#[map]
static FANS: HashMap<u64, Fan> = HashMap::with_max_entries(64, 0);

/// A fan-out that has counted nothing: too large for the stack.
#[map]
static EMPTY_FAN: PerCpuArray<Fan> = PerCpuArray::with_max_entries(1, 0);

/// Slots that user space has freed. Sized at load.
#[map]
pub(super) static FREED: Queue<u32> = Queue::with_max_entries(64, 0);

/// The number of slots that were ever given out.
#[map]
static GIVEN: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// The device names behind [`Name::id`].
#[map]
pub(super) static NAMES: HashMap<u64, Name> = HashMap::with_max_entries(1024, 0);

/// The last slot of each process, plus one.
#[map]
pub(super) static LAST_SLOT: LruHashMap<u32, u64> = LruHashMap::with_max_entries(16_384, 0);

/// The same, found without a hash, in a place that several processes may have: the process in the upper half, the slot
/// plus one in the lower. It belongs to the first of them until user space finds it gone.
#[map]
static LAST_OF: Array<u64> = Array::with_max_entries(LAST_PLACES, BPF_F_MMAPABLE);

/// Slots by the addresses of their QPs, see [`near`].
#[map]
static NEAR: Array<u64> = Array::with_max_entries(NEAR_PLACES, 0);

/// Places of [`NEAR`].
const NEAR_PLACES: u32 = 1 << 14;

/// Processes of which completions on a queue of several QPs were found that tell no QP.
#[map]
pub(super) static UNTOLD: LruHashMap<u32, u8> = LruHashMap::with_max_entries(1024, 0);

/// No program: see [`own_stack`].
#[map]
static NO_PROGRAM: ProgramArray = ProgramArray::with_max_entries(1, 0);

#[map]
static TOTALS: PerCpuArray<Totals> = PerCpuArray::with_max_entries(1, 0);

/// A poll on its way.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Poll {
    /// The queue.
    pub(super) cq: u64,
    /// Where the process wants its completions.
    pub(super) wc: u64,
    /// [`Watch::epoch`] at the entry: what an earlier window left is another call's.
    pub(super) epoch: u64,
}

/// A QP whose work requests are being built.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct BatchKey {
    pub(super) qp: u64,
    pub(super) tgid: u64,
}

/// A process's completion queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqKey {
    pub(super) cq: u64,
    pub(super) tgid: u64,
}

/// Whose completions a queue holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqUse {
    pub(super) context: u64,
    pub(super) qpn: u32,
    /// [`Self::SENDS`], [`Self::RECEIVES`], both, or [`Self::MANY`].
    pub(super) role: u32,
}

impl CqUse {
    /// The QP's sends complete here.
    pub(super) const SENDS: u32 = 1;
    /// The QP's receives complete here.
    pub(super) const RECEIVES: u32 = 2;
    /// Several QPs use the queue.
    pub(super) const MANY: u32 = 4;
    /// The QP was created, or has posted, before our eyes: then its end is seen as well.
    pub(super) const WATCHED: u32 = 8;

    /// One QP alone uses the queue.
    #[inline(always)]
    pub(super) fn is_one_qp(&self) -> bool {
        self.role & Self::MANY == 0
    }

    /// The QP.
    #[inline(always)]
    pub(super) fn key(&self, tgid: u32) -> ContextKey {
        ContextKey { context: self.context, tgid, qpn: self.qpn }
    }
}

/// What user space tells the programs. A `static` that the loader overwrites, hence the volatile reads.
#[unsafe(no_mangle)]
static CONFIG: Config = {
    // SAFETY: all-zero bytes are a valid `Config`: it has only integers.
    unsafe { core::mem::zeroed() }
};

/// A field's place as loaded.
#[inline(always)]
pub(super) fn place(pick: fn(&Config) -> &Field) -> Field {
    // SAFETY: `CONFIG` is a valid, aligned static.
    unsafe { core::ptr::read_volatile(pick(&*&raw const CONFIG)) }
}

/// Counts something in the totals of this CPU.
#[inline(always)]
pub(super) fn count(field: fn(&mut Totals) -> &mut u64) {
    count_many(field, 1);
}

/// Counts several at once.
#[inline(always)]
pub(super) fn count_many(field: fn(&mut Totals) -> &mut u64, n: u64) {
    if let Some(totals) = TOTALS.get_ptr_mut(0) {
        // SAFETY: the map's value outlives the program's run; the atomic addition is for a program that another one
        // of the same CPU interrupts.
        atomic::add(unsafe { AtomicU64::from_ptr(field(&mut *totals)) }, n);
    }
}

/// Says that a slot changed.
///
/// User space first clears a mark and then reads the slot; here the slot is written first and the mark looked at last.
/// So a change is either seen by that read, or its mark is found cleared and set again: none is missed, and the mark's
/// cache line is written only once per sweep however often the slot changes.
#[inline(always)]
pub(super) fn mark(slot: u32) {
    if let Some(block) = MARKS.get_ptr_mut(slot / MARKS_PER_BLOCK) {
        let at = (slot % MARKS_PER_BLOCK) as usize;
        // SAFETY: `at` is below the length of the block; the map's value outlives the program's run. Volatile, because
        // user space writes it too.
        unsafe {
            let mark = block.cast::<u8>().add(at);
            if core::ptr::read_volatile(mark) == 0 {
                core::ptr::write_volatile(mark, 1);
            }
        }
    }
}

/// The slot of an index.
#[inline(always)]
pub(super) fn slot(index: u32) -> Option<&'static Slot> {
    // SAFETY: the elements of an array map are never freed while a program that uses it runs; all fields are atomic.
    SLOTS.get_ptr(index).map(|slot| unsafe { &*slot })
}

/// The histograms of a slot, if it has any.
#[inline(always)]
pub(super) fn wide(index: u32) -> Option<&'static Wide> {
    // SAFETY: as in `slot`.
    WIDE.get_ptr(index).map(|wide| unsafe { &*wide })
}

/// The completions of a slot, if it has any kept by status and latency.
#[inline(always)]
pub(super) fn outcome(index: u32) -> Option<&'static Outcome> {
    // SAFETY: as in `slot`.
    OUTCOMES.get_ptr(index).map(|outcome| unsafe { &*outcome })
}

/// The slot of a QP as completions know it.
#[inline(always)]
pub(super) fn in_context(key: &ContextKey) -> Option<u32> {
    // SAFETY: the value is copied at once.
    unsafe { BY_CONTEXT.get(key) }.copied()
}

/// What user space says of the watch.
#[inline(always)]
pub(super) fn watch() -> Option<&'static Watch> {
    // SAFETY: as in `slot`.
    WATCH.get_ptr(0).map(|watch| unsafe { &*watch })
}

/// Notes that a QP of some process is made, modified or destroyed.
#[inline(always)]
pub(super) fn qp_changes() {
    if let Some(watch) = watch() {
        atomic::add(&watch.changes, CHANGE);
    }
}

/// Where the slot of a process's QP is noted by the QP's address, plus one. A hint: QPs whose addresses fall together
/// write over each other's.
#[inline(always)]
pub(super) fn near(qp: u64, tgid: u32) -> Option<&'static AtomicU64> {
    let hash = (qp ^ u64::from(tgid) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
    // SAFETY: as in `slot`; the elements are 8-byte aligned.
    NEAR.get_ptr(hash as u32 & (NEAR_PLACES - 1)).map(|near| unsafe { AtomicU64::from_ptr(near.cast_mut()) })
}

/// The place of a process among those that are found without a hash, see [`LAST_OF`].
#[inline(always)]
pub(super) fn last_of(tgid: u32) -> Option<&'static AtomicU64> {
    // SAFETY: as in `near`.
    LAST_OF.get_ptr(tgid & (LAST_PLACES - 1)).map(|last| unsafe { AtomicU64::from_ptr(last.cast_mut()) })
}

/// Completions are watched now.
#[inline(always)]
pub(super) fn watches_completions() -> bool {
    watch().is_some_and(|watch| atomic::load(&watch.completions) != 0)
}

/// The name behind a [`Name::id`].
#[inline(always)]
pub(super) fn name(device: u64) -> Option<&'static Name> {
    // SAFETY: an element of a hash map stays allocated while a program runs, and names are never removed.
    NAMES.get_ptr(device).map(|name| unsafe { &*name })
}

/// The fan-out of a device; `None` for a device without a name, and beyond the number of devices that are kept.
#[inline(always)]
pub(super) fn fan(device: u64) -> Option<&'static Fan> {
    if device == 0 {
        return None;
    }
    if let Some(fan) = FANS.get_ptr(device) {
        // SAFETY: as in `name`.
        return Some(unsafe { &*fan });
    }
    let empty = EMPTY_FAN.get_ptr(0)?;
    // SAFETY: the map's value outlives the program's run. Another CPU may be first: then that one's is used.
    let _ = FANS.insert(device, unsafe { &*empty }, NOEXIST);
    // SAFETY: as in `name`.
    FANS.get_ptr(device).map(|fan| unsafe { &*fan })
}

/// A 0 that the verifier does not know to be one: nothing writes to the map it is read from.
#[inline(always)]
pub(super) fn unknown_zero() -> u32 {
    // SAFETY: the map's value outlives the program's run. Volatile: the compiler shall not know it either.
    EMPTY_BATCH.get_ptr(0).map_or(0, |empty| unsafe { core::ptr::read_volatile(&raw const (*empty).n) })
}

/// Has the program run on the stack of the task, by a call that is never made.
///
/// From 6.13 on the verifier gives programs of this kind a stack of the CPU (`bpf_enable_priv_stack`, kernel/bpf/verifier.c), but a
/// program of a uprobe can be preempted, and another thread's run of it on the same CPU would write into the same
/// stack. Programs with a tail call keep the task's.
#[inline(always)]
pub(super) fn own_stack(ctx: &impl EbpfContext) {
    if unknown_zero() != 0 {
        // SAFETY: the array has no program: the call fails, and the program goes on.
        let _ = unsafe { NO_PROGRAM.tail_call(ctx, 0) };
    }
}

/// Notes that the present task polls.
#[inline(always)]
pub(super) fn begin_poll(task: u64, cq: u64, wc: u64) {
    let Some(watch) = watch() else { return };
    let poll = &Poll { cq, wc, epoch: atomic::load(&watch.epoch) };
    if let Some(place) = POLLS.get_ptr_mut(task) {
        // SAFETY: only this task uses the entry of its own key.
        unsafe { *place = *poll };
    } else {
        // Without it the return counts nothing.
        let _ = POLLS.insert(task, poll, 0);
    }
}

/// What the present task polls; `None` for a call that began before the present watch.
#[inline(always)]
pub(super) fn poll(task: u64) -> Option<&'static Poll> {
    let epoch = atomic::load(&watch()?.epoch);
    // SAFETY: only this task uses the entry of its own key; an element stays allocated while a program runs.
    POLLS.get_ptr(task).map(|poll| unsafe { &*poll }).filter(|poll| poll.epoch == epoch)
}

/// The requests that are being built on a QP, if that began in the present watch.
#[inline(always)]
pub(super) fn batch(key: &BatchKey) -> Option<&'static mut Batch> {
    let watch = watch()?;
    // SAFETY: between `wr_start` and `wr_complete` one thread alone may use a QP.
    let batch = BATCHES.get_ptr_mut(key).map(|batch| unsafe { &mut *batch })?;
    (atomic::load(&watch.posts) != 0 && batch.epoch == atomic::load(&watch.epoch)).then_some(batch)
}

/// The same, made where there is none.
#[inline(always)]
pub(super) fn batch_or_new(key: &BatchKey) -> Option<&'static mut Batch> {
    let epoch = atomic::load(&watch()?.epoch);
    if BATCHES.get_ptr(key).is_none() {
        let empty = EMPTY_BATCH.get_ptr(0)?;
        // SAFETY: the map's value outlives the program's run, and nothing writes it.
        let _ = BATCHES.insert(key, unsafe { &*empty }, 0);
    }
    // SAFETY: as in `batch`.
    let batch = BATCHES.get_ptr_mut(key).map(|batch| unsafe { &mut *batch })?;
    batch.epoch = epoch;
    Some(batch)
}

/// The value of a process's entry in [`LAST_SLOT`].
#[inline(always)]
pub(super) fn last_slot(tgid: u32) -> Option<&'static AtomicU64> {
    // SAFETY: an element of a hash map stays allocated while a program runs (it may be reused for another key, which
    // costs one switch more or less); it is 8-byte aligned.
    LAST_SLOT.get_ptr(tgid).map(|last| unsafe { AtomicU64::from_ptr(last.cast_mut()) })
}

/// Gives out a slot that was never used, while there is one.
#[inline(always)]
pub(super) fn fresh_slot() -> Option<u32> {
    let given = GIVEN.get_ptr_mut(0)?;
    // SAFETY: the map's value outlives the program's run and is 8-byte aligned.
    let given = unsafe { AtomicU64::from_ptr(given) };
    // SAFETY: `CONFIG` is a valid, aligned static.
    let slots = u64::from(unsafe { core::ptr::read_volatile(&raw const CONFIG.slots) });
    if atomic::load(given) >= slots {
        return None;
    }
    let index = atomic::fetch_add(given, 1);
    (index < slots).then_some(index as u32)
}

/// Hands an event to user space, or counts that it could not.
#[inline(always)]
pub(super) fn report(event: &Event) {
    if EVENTS.output::<Event>(event, 0).is_err() {
        count(|totals| &mut totals.lost);
    }
}

/// Fills in who is running.
#[inline(always)]
pub(super) fn sign(event: &mut Event) {
    event.tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    event.comm = bpf_get_current_comm().unwrap_or([0; 16]);
}
