//! The maps and the read-only global. User space sets the sizes of those marked "sized at load".

use core::sync::atomic::AtomicU64;

use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, Queue, RingBuf};
use collector_ebpf::atomic;
use collector_ebpf::config::{Config, Field};
use collector_ebpf::event::Event;
use collector_ebpf::slot::{MARKS_PER_BLOCK, Name, QpKey, Slot, SlotKey, Totals, Wide};

const BPF_F_MMAPABLE: u32 = 1 << 10;

/// Insert only if the key is not there (`BPF_NOEXIST`).
pub(super) const NOEXIST: u64 = 1;

/// Rare events. 2 MiB hold about 10,000 of them.
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(2 << 20, 0);

/// What is known of a modify or destroy call between its entry and its return, by task.
#[map]
pub(super) static CALLS: HashMap<u64, Event> = HashMap::with_max_entries(16_384, 0);

/// The slots. Sized at load.
#[map]
pub(super) static SLOTS: Array<Slot> = Array::with_max_entries(64, BPF_F_MMAPABLE);

/// The histograms of the first slots. Sized at load.
#[map]
pub(super) static WIDE: Array<Wide> = Array::with_max_entries(64, BPF_F_MMAPABLE);

/// One byte per slot: 1 when the slot changed since user space last looked. Sized at load.
#[map]
static MARKS: Array<[u8; MARKS_PER_BLOCK as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// The slot of a process's QP. Sized at load.
#[map]
pub(super) static SLOT_OF: HashMap<SlotKey, u32> = HashMap::with_max_entries(64, 0);

/// The slot of a QP as the kernel knows it. Sized at load.
#[map]
pub(super) static BY_QPN: HashMap<QpKey, u32> = HashMap::with_max_entries(64, 0);

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
pub(super) static LAST_SLOT: HashMap<u32, u64> = HashMap::with_max_entries(16_384, 0);

#[map]
static TOTALS: PerCpuArray<Totals> = PerCpuArray::with_max_entries(1, 0);

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
    if let Some(totals) = TOTALS.get_ptr_mut(0) {
        // SAFETY: the map's value outlives the program's run; the atomic addition is for a program that another one
        // of the same CPU interrupts.
        atomic::add(unsafe { AtomicU64::from_ptr(field(&mut *totals)) }, 1);
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
