//! The bookkeeping of QPs, over slots in plain memory.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;

use collector_ebpf::event::{Event, has, kind};
use collector_ebpf::outcome::Outcome;
use collector_ebpf::slot::{Name, Wide};
use collector_ebpf::walk::Found;

use super::super::events::Events;
use super::super::store::clear;
use super::*;

struct Memory {
    slots: Vec<Slot>,
    wide: Vec<Wide>,
    outcomes: Vec<Outcome>,
    marks: Vec<AtomicU64>,
    names: Vec<Name>,
    unlinked: HashSet<u32>,
    free: Vec<u32>,
    /// Processes that have a place of their own.
    processes: Vec<u32>,
    forgotten: Vec<u32>,
}

impl Memory {
    fn new() -> Self {
        Self {
            slots: (0..64).map(|_| Slot::default()).collect(),
            wide: (0..8).map(|_| Wide::default()).collect(),
            outcomes: (0..4).map(|_| Outcome::default()).collect(),
            marks: (0..8).map(|_| AtomicU64::new(0)).collect(),
            names: vec![name("rxea"), name("rxeb")],
            unlinked: HashSet::new(),
            free: Vec::new(),
            processes: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    /// What the programs do at the first post of a QP.
    fn give(&self, index: u32, device: &str, qpn: u64, tgid: u64, created: u64) {
        let slot = &self.slots[index as usize];
        slot.device.store(name(device).id(), Relaxed);
        slot.who.store(tgid << 32 | qpn, Relaxed);
        slot.created.store(created, Relaxed);
        slot.state.store(state::LIVE, Relaxed);
    }

    /// What they do at every post.
    fn post(&self, index: u32, bytes: u64, t: u64) {
        let slot = &self.slots[index as usize];
        slot.add(&Found { wrs: 1, bytes, ..Found::default() }, t);
        if let Some(wide) = self.wide.get(index as usize) {
            wide.add(bytes, 2);
        }
        self.mark(index);
    }

    /// What they do at a completion.
    fn complete(&self, index: u32, status: u32) {
        let slot = &self.slots[index as usize];
        slot.completions.fetch_add(1, Relaxed);
        if status != 0 {
            slot.errors.fetch_add(1, Relaxed);
        }
        if let Some(outcome) = self.outcomes.get(index as usize) {
            outcome.completed(status);
        }
        self.mark(index);
    }

    fn mark(&self, index: u32) {
        let mut bytes = self.marks[index as usize / 8].load(Relaxed).to_ne_bytes();
        bytes[index as usize % 8] = 1;
        self.marks[index as usize / 8].store(u64::from_ne_bytes(bytes), Relaxed);
    }

    fn retire(&self, index: u32) {
        self.slots[index as usize].state.store(state::RETIRED, Relaxed);
        self.mark(index);
    }
}

impl Store for Memory {
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
        &self.marks
    }
    fn name(&self, id: u64) -> Option<Name> {
        self.names.iter().find(|name| name.id() == id).copied()
    }
    fn unlink(&mut self, index: u32) {
        self.unlinked.insert(index);
    }
    fn give_back(&mut self, index: u32) -> bool {
        clear(&self.slots[index as usize], self.wide.get(index as usize), self.outcomes.get(index as usize));
        self.free.push(index);
        true
    }
    fn processes(&self) -> Vec<u32> {
        self.processes.clone()
    }
    fn forget_process(&mut self, tgid: u32) {
        self.forgotten.push(tgid);
    }
}

fn name(text: &str) -> Name {
    let mut name = Name::EMPTY;
    name.0[..text.len()].copy_from_slice(text.as_bytes());
    name
}

fn event(kind: u32, device: &str, qpn: u32, t: u64) -> Event {
    let mut event = Event::new(kind, t);
    event.device = name(device);
    event.qpn = qpn;
    event.has = has::QPN | has::USER;
    event.tgid = 100;
    event
}

struct Bench {
    memory: Memory,
    qps: Qps,
    lost: u64,
    said: Vec<String>,
}

impl Bench {
    fn new() -> Self {
        Self { memory: Memory::new(), qps: Qps::new(64), lost: 0, said: Vec::new() }
    }

    fn collect(&mut self) {
        self.qps.collect(&mut self.memory);
    }

    fn take(&mut self, event: &Event) {
        let said = &mut self.said;
        let mut events = Events { qps: &mut self.qps, store: &mut self.memory, lost: &mut self.lost };
        events.take(event, event.t, &mut |observation| said.push(tell(observation)));
    }

    fn sweep(&mut self, t: u64) {
        let said = &mut self.said;
        self.qps.sweep(&mut self.memory, t, &mut |observation| said.push(tell(observation)));
    }

    fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }
}

fn tell(observation: &Observation<'_>) -> String {
    match &observation.body {
        Body::QpStats(stats) => {
            let wide = stats.size_log2.as_ref().map(|sizes| sizes.0.iter().sum::<u64>());
            let wide = wide.map_or(String::new(), |n| format!(" sizes {n}"));
            let completed = stats.completions.map_or(String::new(), |n| format!(" completions {n}"));
            let errors = stats.errors.iter().fold(String::new(), |text, (name, n)| text + &format!(" {name} {n}"));
            let vendor_err = stats.vendor_err.map_or(String::new(), |code| format!(" vendor_err {code}"));
            let missed = if stats.completions_missed && stats.sent.is_none() { " and more" } else { "" };
            let tail = format!("{wide}{completed}{errors}{vendor_err}{missed}");
            format!("{}:{} posts {} bytes {}{tail}", stats.device, stats.qpn, stats.posts, stats.bytes)
        }
        Body::Qp(qp) => {
            let state = |state: Option<QpState>| state.map_or("–", QpState::name);
            let errno = qp.errno.map_or(String::new(), |errno| format!(" errno {errno}"));
            format!("{}:{} {:?} {}→{}{errno}", qp.device, qp.qpn, qp.event, state(qp.from), state(qp.to))
        }
        other => other.type_name().to_owned(),
    }
}

#[test]
fn only_qps_that_changed_are_told() {
    let mut bench = Bench::new();
    bench.memory.give(0, "rxea", 17, 100, 10);
    bench.memory.give(1, "rxeb", 17, 101, 11);
    bench.memory.post(0, 100, 10);
    bench.memory.post(1, 5, 11);
    bench.collect();
    bench.sweep(20);
    assert_eq!(bench.said(), ["rxea:17 posts 1 bytes 100 sizes 1", "rxeb:17 posts 1 bytes 5 sizes 1"]);
    bench.memory.post(0, 100, 30);
    bench.collect();
    bench.sweep(40);
    assert_eq!(bench.said(), ["rxea:17 posts 2 bytes 200 sizes 2"]);
    bench.collect();
    bench.sweep(50);
    assert!(bench.said().is_empty());
}

#[test]
fn the_last_numbers_come_before_the_end_although_no_sweep_saw_the_qp() {
    let mut bench = Bench::new();
    bench.take(&event(kind::CREATE, "rxea", 17, 5));
    bench.memory.give(3, "rxea", 17, 100, 10);
    bench.memory.post(3, 64, 10);
    bench.memory.retire(3);
    let mut destroy = event(kind::DESTROY, "rxea", 17, 20);
    destroy.has |= has::SLOT;
    destroy.slot = 3;
    bench.take(&destroy);
    let told = ["rxea:17 Create –→RESET", "rxea:17 posts 1 bytes 64 sizes 1", "rxea:17 Destroy RESET→–"];
    assert_eq!(bench.said(), told);
    bench.collect();
    bench.sweep(30);
    assert!(bench.memory.free.is_empty(), "a post that is still under way must not meet another QP's slot");
    bench.sweep(40);
    assert_eq!(bench.memory.free, [3]);
    assert_eq!(bench.memory.slots[3].posts.load(Relaxed), 0);
    assert!(bench.said().is_empty());
}

#[test]
fn a_number_that_is_reused_at_once_is_two_qps() {
    let mut bench = Bench::new();
    bench.memory.give(0, "rxea", 17, 100, 10);
    bench.memory.post(0, 1, 10);
    bench.memory.retire(0);
    bench.memory.give(1, "rxea", 17, 100, 30);
    bench.memory.post(1, 7, 30);
    // The slots are looked at before any of the events is told.
    bench.collect();
    let mut destroy = event(kind::DESTROY, "rxea", 17, 20);
    destroy.has |= has::SLOT;
    bench.take(&destroy);
    bench.take(&event(kind::CREATE, "rxea", 17, 25));
    bench.sweep(40);
    let told = [
        "rxea:17 posts 1 bytes 1 sizes 1",
        "rxea:17 Destroy –→–",
        "rxea:17 Create –→RESET",
        "rxea:17 posts 1 bytes 7 sizes 1",
    ];
    assert_eq!(bench.said(), told);
    assert!(!bench.memory.unlinked.contains(&1), "the successor's slot is still in use");
}

#[test]
fn both_sides_of_a_fork_are_one_qp() {
    let mut bench = Bench::new();
    bench.memory.give(0, "rxea", 17, 100, 10);
    bench.memory.give(1, "rxea", 17, 200, 12);
    bench.memory.post(0, 5, 10);
    bench.memory.post(1, 8, 12);
    bench.collect();
    bench.take(&event(kind::DESTROY, "rxea", 17, 20));
    assert_eq!(bench.said(), ["rxea:17 posts 2 bytes 13 sizes 2", "rxea:17 Destroy –→–"]);
    assert!(bench.memory.unlinked.contains(&0) && bench.memory.unlinked.contains(&1));
    bench.sweep(30);
    assert!(bench.said().is_empty());
}

#[test]
fn a_destroyed_qp_whose_event_was_lost_is_told_at_the_second_sweep() {
    let mut bench = Bench::new();
    bench.memory.give(0, "rxea", 17, 100, 10);
    bench.memory.post(0, 5, 10);
    bench.memory.retire(0);
    bench.collect();
    bench.sweep(20);
    assert_eq!(bench.said(), ["rxea:17 posts 1 bytes 5 sizes 1"]);
    bench.sweep(30);
    assert_eq!(bench.said(), ["rxea:17 Destroy –→–"]);
    bench.sweep(40);
    bench.sweep(50);
    assert_eq!(bench.memory.free, [0]);
}

#[test]
fn a_qp_without_histograms_has_none_rather_than_zeros() {
    let mut bench = Bench::new();
    bench.memory.give(40, "rxea", 17, 100, 10);
    bench.memory.post(40, 5, 10);
    bench.collect();
    bench.sweep(20);
    assert_eq!(bench.said(), ["rxea:17 posts 1 bytes 5"]);
}

#[test]
fn a_slot_whose_device_is_not_known_yet_waits() {
    let mut bench = Bench::new();
    bench.memory.give(0, "late", 17, 100, 10);
    bench.memory.post(0, 5, 10);
    bench.collect();
    bench.sweep(20);
    assert!(bench.said().is_empty());
    assert_eq!(bench.qps.unresolved(), 1);
    bench.memory.names.push(name("late"));
    bench.collect();
    bench.sweep(30);
    assert_eq!(bench.said(), ["late:17 posts 1 bytes 5 sizes 1"]);
    assert_eq!(bench.qps.unresolved(), 0);
}

#[test]
fn states_are_followed_and_a_failed_change_changes_nothing() {
    let mut bench = Bench::new();
    bench.take(&event(kind::CREATE, "rxea", 17, 1));
    let change = |state, result, t| {
        let mut modify = event(kind::MODIFY, "rxea", 17, t);
        modify.has |= has::STATE | has::RESULT;
        modify.state = state;
        modify.result = result;
        modify
    };
    for modify in [change(1, 0, 2), change(3, -22, 3), change(2, 0, 4)] {
        bench.take(&modify);
    }
    let mut fatal = event(kind::ASYNC, "rxea", 17, 5);
    fatal.code = 1;
    bench.take(&fatal);
    bench.take(&event(kind::DESTROY, "rxea", 17, 6));
    let told = [
        "rxea:17 Create –→RESET",
        "rxea:17 Modify RESET→INIT",
        "rxea:17 Modify INIT→RTS errno 22",
        "rxea:17 Modify INIT→RTR",
        "async",
        "rxea:17 Destroy ERR→–",
    ];
    assert_eq!(bench.said(), told);
    assert_eq!(bench.lost, 0);
}

#[test]
fn a_call_without_a_result_is_lost_and_the_state_unknown() {
    let mut bench = Bench::new();
    bench.take(&event(kind::CREATE, "rxea", 17, 1));
    let mut modify = event(kind::MODIFY, "rxea", 17, 2);
    modify.has |= has::STATE;
    modify.state = 3;
    bench.take(&modify);
    bench.take(&event(kind::DESTROY, "rxea", 17, 3));
    assert_eq!(bench.said(), ["rxea:17 Create –→RESET", "rxea:17 Destroy –→–"]);
    assert_eq!(bench.lost, 1);
}

#[test]
fn the_qps_of_a_process_that_is_gone_are_forgotten_with_their_last_numbers() {
    let mut bench = Bench::new();
    bench.memory.give(0, "rxea", 17, 100, 10);
    bench.memory.give(1, "rxea", 18, 200, 10);
    bench.memory.post(0, 5, 10);
    bench.memory.post(1, 6, 10);
    bench.collect();
    let said = &mut bench.said;
    bench.qps.reap(&mut bench.memory, 20, &|tgid| tgid == 100, &mut |observation| said.push(tell(observation)));
    assert_eq!(bench.said(), ["rxea:17 posts 1 bytes 5 sizes 1"]);
    assert_eq!(bench.qps.len(), 1);
    bench.sweep(30);
    assert_eq!(bench.said(), ["rxea:18 posts 1 bytes 6 sizes 1"]);
}

#[test]
fn the_place_of_a_process_that_is_gone_is_for_another_though_its_qps_were_told_to_end() {
    let mut bench = Bench::new();
    bench.memory.processes = vec![100, 200];
    let Bench { qps, memory, .. } = &mut bench;
    qps.reap(memory, 20, &|pid| pid == 100, &mut |_| {});
    assert_eq!(memory.forgotten, [100]);
}

/// A QP with three work requests, whose completions are watched.
fn with_completions(index: u32) -> Bench {
    let mut bench = Bench::new();
    bench.qps.watched = Watched { completions: true, ..Watched::default() };
    bench.memory.give(index, "rxea", 17, 100, 10);
    (0..3).for_each(|i| bench.memory.post(index, 100, 20 + i));
    bench
}

#[test]
fn completions_are_told_by_status() {
    let mut bench = with_completions(1);
    for status in [0, 12, 5] {
        bench.memory.complete(1, status);
    }
    bench.collect();
    bench.sweep(1000);
    let stats = "rxea:17 posts 3 bytes 300 sizes 3 completions 3 WR_FLUSH_ERR 1 RETRY_EXC_ERR 1";
    assert_eq!(bench.said(), [stats]);
}

#[test]
fn completions_that_are_not_counted_any_more_are_told_though_no_number_changed() {
    let mut bench = with_completions(1);
    bench.memory.complete(1, 0);
    bench.collect();
    bench.sweep(1000);
    assert_eq!(bench.said(), ["rxea:17 posts 3 bytes 300 sizes 3 completions 1"]);
    bench.qps.set_untold([100].into());
    bench.sweep(2000);
    assert_eq!(bench.said(), ["rxea:17 posts 3 bytes 300 sizes 3 and more"]);
    bench.qps.set_untold([100, 101].into());
    bench.sweep(3000);
    assert!(bench.said().is_empty(), "it was told");
}

#[test]
fn a_process_that_takes_the_number_of_one_whose_completions_told_no_qp_has_completions() {
    let mut bench = with_completions(1);
    bench.qps.set_untold([100, 200].into());
    bench.collect();
    bench.take(&event(kind::DESTROY, "rxea", 17, 40));
    bench.said();
    assert_eq!(bench.qps.len(), 0, "its QPs were told to end before it did");
    let Bench { qps, memory, .. } = &mut bench;
    qps.reap(memory, 50, &|pid| pid == 100, &mut |_| {});
    assert_eq!(memory.forgotten, [100]);
    bench.memory.give(2, "rxea", 18, 100, 60);
    bench.memory.post(2, 6, 61);
    bench.memory.complete(2, 0);
    bench.collect();
    bench.sweep(1000);
    assert_eq!(bench.said(), ["rxea:18 posts 1 bytes 6 sizes 1 completions 1"]);
}

#[test]
fn qps_that_were_not_watched_for_a_while_have_no_completions_any_more_and_those_made_later_have() {
    let mut bench = with_completions(1);
    bench.memory.complete(1, 0);
    bench.memory.give(2, "rxea", 18, 200, 10);
    bench.memory.post(2, 6, 20);
    bench.memory.complete(2, 0);
    bench.collect();
    bench.sweep(1000);
    bench.said();
    bench.qps.miss(|pid| pid == Some(100));
    assert_eq!(bench.qps.gaps(), 1);
    bench.memory.give(3, "rxea", 19, 100, 1500);
    bench.memory.post(3, 6, 1501);
    bench.memory.complete(3, 0);
    bench.memory.complete(2, 0);
    bench.collect();
    bench.sweep(2000);
    let said = bench.said();
    assert!(said.contains(&"rxea:17 posts 3 bytes 300 sizes 3 and more".to_owned()), "{said:?}");
    for other in ["rxea:18 posts 1 bytes 6 sizes 1 completions 2", "rxea:19 posts 1 bytes 6 sizes 1 completions 1"] {
        assert!(said.contains(&other.to_owned()), "{other}: {said:?}");
    }
}

#[test]
fn errors_of_a_qp_without_room_for_statuses_are_told_without_a_name() {
    let mut bench = with_completions(6);
    for status in [0, 12] {
        bench.memory.complete(6, status);
    }
    bench.collect();
    bench.sweep(1000);
    assert_eq!(bench.said(), ["rxea:17 posts 3 bytes 300 sizes 3 completions 2 other 1"]);
}

#[test]
fn where_completions_are_not_watched_none_is_not_told_as_zero() {
    let mut bench = with_completions(1);
    bench.qps.watched = Watched::default();
    bench.collect();
    bench.sweep(1000);
    assert_eq!(bench.said(), ["rxea:17 posts 3 bytes 300 sizes 3"]);
}

#[test]
fn the_first_error_is_told_when_it_comes_and_with_the_provider_s_code() {
    let mut bench = with_completions(1);
    bench.collect();
    bench.sweep(1000);
    bench.said();
    bench.memory.complete(1, 12);
    bench.collect();
    let mut first = event(kind::COMPLETION, "rxea", 17, 1500);
    (first.slot, first.status, first.code) = (1, 12, 129);
    first.has |= has::SLOT | has::VENDOR_ERR;
    bench.take(&first);
    assert_eq!(bench.said(), ["rxea:17 posts 3 bytes 300 sizes 3 completions 1 RETRY_EXC_ERR 1 vendor_err 129"]);
    bench.sweep(2000);
    assert!(bench.said().is_empty(), "nothing changed since");
}

#[test]
fn the_provider_s_code_is_told_also_when_a_sweep_was_quicker_than_the_event() {
    let mut bench = with_completions(1);
    bench.memory.complete(1, 10);
    bench.collect();
    bench.sweep(1000);
    assert_eq!(bench.said(), ["rxea:17 posts 3 bytes 300 sizes 3 completions 1 REM_ACCESS_ERR 1"]);
    let mut first = event(kind::COMPLETION, "rxea", 17, 1500);
    (first.slot, first.status, first.code) = (1, 10, 0);
    first.has |= has::SLOT | has::VENDOR_ERR;
    bench.take(&first);
    assert_eq!(bench.said(), ["rxea:17 posts 3 bytes 300 sizes 3 completions 1 REM_ACCESS_ERR 1 vendor_err 0"]);
    bench.sweep(2000);
    assert!(bench.said().is_empty(), "nothing changed since");
}

#[test]
fn a_flush_is_not_taken_for_the_cause() {
    let mut bench = with_completions(1);
    bench.memory.complete(1, 5);
    bench.collect();
    let mut flushed = event(kind::COMPLETION, "rxea", 17, 1500);
    (flushed.slot, flushed.status, flushed.code) = (1, 5, 249);
    flushed.has |= has::SLOT | has::VENDOR_ERR;
    bench.take(&flushed);
    assert_eq!(bench.said(), ["rxea:17 posts 3 bytes 300 sizes 3 completions 1 WR_FLUSH_ERR 1"]);
}

#[test]
fn no_post_finds_the_slot_of_a_qp_that_ended_unseen_because_its_successor_looks_the_same() {
    let mut bench = Bench::new();
    bench.memory.give(3, "rxea", 17, 100, 10);
    bench.memory.post(3, 64, 10);
    bench.collect();
    let key = keys(&bench.memory.slots[3]).0;
    assert!(bench.memory.slots[3].is_of(&key));
    // There was no destroy call, or it did not find the slot.
    bench.take(&event(kind::CREATE, "rxea", 17, 20));
    assert!(bench.memory.unlinked.contains(&3));
    assert!(!bench.memory.slots[3].is_of(&key), "address, context, process and number are the same");
    bench.sweep(30);
    bench.sweep(40);
    assert_eq!(bench.memory.free, [3]);
}
