//! Attaches the program on `post_send` to functions of this program, at the places that are chosen, and compares what it
//! counts with what they were called with.

#![allow(unsafe_code, reason = "functions with a prologue of one's own can only be written in assembly")]

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::super::attach::Attached;
use super::super::store::{Maps, Store};
use super::*;
use crate::source::verbs::maps::mappings;

/// `ibv_qp` up to its number, as far as the program reads it.
#[repr(C)]
struct Qp {
    words: [u64; 6],
    handle: u32,
    qpn: u32,
}

/// `ibv_send_wr`, and the one `ibv_sge` it has.
#[repr(C)]
struct SendWr {
    wr_id: u64,
    next: u64,
    sg_list: u64,
    num_sge: u32,
    opcode: u32,
    rest: [u64; 12],
}

#[repr(C)]
struct Sge {
    addr: u64,
    length: u32,
    lkey: u32,
}

type PostSend = unsafe extern "C" fn(*const Qp, *const SendWr, u64) -> u64;

// Each returns its first argument plus its third, so that what a probe would spoil shows.
std::arch::global_asm!(
    ".pushsection .text.rdmascope_test, \"ax\", @progbits",
    ".balign 16",
    "rdmascope_test_push:",
    "push rbx",
    "mov rbx, rdi",
    "lea rax, [rbx + rdx]",
    "xor esi, esi",
    "pop rbx",
    "ret",
    ".balign 16",
    "rdmascope_test_endbr:",
    "endbr64",
    "mov rax, rdi",
    "push r12",
    "xor edi, edi",
    "xor esi, esi",
    "add rax, rdx",
    "pop r12",
    "ret",
    ".balign 16",
    "rdmascope_test_branch:",
    "mov rax, rdi",
    "test rdx, rdx",
    "je 2f",
    "push rbx",
    "add rax, rdx",
    "pop rbx",
    "2:",
    "ret",
    ".balign 16",
    "rdmascope_test_late:",
    "mov rax, rdi",
    "xor edi, edi",
    "push rbx",
    "add rax, rdx",
    "pop rbx",
    "ret",
    ".balign 16",
    "rdmascope_test_loop:",
    "lea rax, [rdi + rdx]",
    "mov ecx, 3",
    "3:",
    "push rbx",
    "pop rbx",
    "dec ecx",
    "jne 3b",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn rdmascope_test_push(qp: *const Qp, wr: *const SendWr, third: u64) -> u64;
    fn rdmascope_test_endbr(qp: *const Qp, wr: *const SendWr, third: u64) -> u64;
    fn rdmascope_test_branch(qp: *const Qp, wr: *const SendWr, third: u64) -> u64;
    fn rdmascope_test_late(qp: *const Qp, wr: *const SendWr, third: u64) -> u64;
    fn rdmascope_test_loop(qp: *const Qp, wr: *const SendWr, third: u64) -> u64;
}

/// The functions, and what is to be chosen in them.
const FUNCTIONS: [(PostSend, &str); 5] = [
    (rdmascope_test_push, "entry: push, emulated"),
    (rdmascope_test_endbr, "+7: push, emulated"),
    (rdmascope_test_branch, "+6: conditional jmp, emulated"),
    (rdmascope_test_late, "entry: no emulated instruction while arguments are live"),
    (rdmascope_test_loop, "entry: no emulated instruction while arguments are live"),
];

/// Calls a function `n` times for QP number `qpn`, each with one work request of `length` bytes.
fn post(function: PostSend, qpn: u32, n: u64, length: u32) {
    let qp = Qp { words: [0; 6], handle: 0, qpn };
    let sge = Sge { addr: 0, length, lkey: 0 };
    let sg_list = &raw const sge as u64;
    let wr = SendWr { wr_id: 1, next: 0, sg_list, num_sge: 1, opcode: 0, rest: [0; 12] };
    for call in 0..n {
        // Every second call takes the branch of the function that has one.
        let third = call % 2;
        // SAFETY: the functions take two pointers they do not follow, and a number.
        let got = unsafe { function(&raw const qp, &raw const wr, third) };
        assert_eq!(got, &raw const qp as u64 + third, "the function is unharmed");
    }
}

fn place_of(function: PostSend) -> Place {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
    let address = function as usize as u64;
    let mapping = mappings(&maps).find(|mapping| mapping.holds(address)).expect("it is mapped");
    mapping.place(address).expect("it comes from a file")
}

fn counted(maps: &Maps, qpn: u32) -> (u64, u64) {
    let given = u32::try_from(maps.given()).expect("there are few");
    let slots = (0..given).filter_map(|index| maps.slot(index));
    slots
        .filter(|slot| slot.qpn() == qpn)
        .fold((0, 0), |(posts, bytes), slot| (posts + slot.posts.load(Relaxed), bytes + slot.bytes.load(Relaxed)))
}

/// Waits until calls are not counted any more.
fn uncounted(maps: &Maps) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let before = counted(maps, 300);
        post(FUNCTIONS[0].0, 300, 5, 1);
        if counted(maps, 300) == before {
            return;
        }
        assert!(Instant::now() < deadline, "still attached");
    }
}

#[test]
fn arguments_are_right_where_a_probe_is_attached_and_a_group_goes_off_and_comes_back() {
    let mut attached = Attached::new(64);
    let sizes = attached.sizes;
    let Some(ebpf) = attached.ebpf() else {
        println!(
            "skipped: no BPF program can be loaded here: {:?}",
            attached.reports().next().map(|report| &report.reason)
        );
        return;
    };
    let maps = Maps::take(ebpf, sizes).expect("the maps are in the object");
    maps.begin_epoch(0, true, true, 1);
    for (function, _) in FUNCTIONS {
        attached.attach(Opened::of(Operation::PostSend, &place_of(function)));
        attached.attach(Opened::of(Operation::PostSend, &place_of(function)));
    }
    let reports: Vec<ProbeReport> = attached.reports().filter(|report| report.name == "post_send").cloned().collect();
    assert_eq!(reports.len(), FUNCTIONS.len(), "once is enough");
    if let Some(report) = reports.iter().find(|report| !report.attached) {
        println!("skipped: uprobes cannot be attached here: {:?}", report.reason);
        return;
    }
    for (report, (_, chosen)) in reports.iter().zip(FUNCTIONS) {
        assert_eq!(report.reason.as_deref(), Some(chosen));
    }
    for (qpn, (function, chosen)) in (100..).zip(FUNCTIONS) {
        post(function, qpn, 6, 1000 + qpn);
        assert_eq!(counted(&maps, qpn), (6, u64::from(6 * (1000 + qpn))), "{chosen}");
    }

    // Each is a QP of its own, mostly at the address of the one before.
    for qpn in 400..404 {
        maps.follow(false);
        maps.follow(true);
        for bytes in [7, 9] {
            post(FUNCTIONS[0].0, qpn, 5, bytes);
        }
        assert_eq!(counted(&maps, qpn), (10, 80));
    }
    maps.follow(false);

    let before = Instant::now();
    attached.detach_group(Group::Posts, "over budget");
    let off = before.elapsed();
    assert!(!attached.has_group(Group::Posts));
    assert!(
        attached
            .reports()
            .filter(|report| report.name == "post_send")
            .all(|report| { report.attached && report.reason.as_deref() == Some("over budget") })
    );
    uncounted(&maps);
    let before = Instant::now();
    attached.attach_group(Group::Posts);
    println!("{} places: {off:?} to detach, {:?} to attach", FUNCTIONS.len(), before.elapsed());
    post(FUNCTIONS[0].0, 200, 5, 1);
    assert_eq!(counted(&maps, 200), (5, 5));

    let file = place_of(FUNCTIONS[0].0).file();
    let kept = |attached: &Attached| attached.files().contains(&file);
    assert!(kept(&attached));
    attached.detach_file(file);
    assert!(!kept(&attached));
    uncounted(&maps);
    assert!(attached.reports().all(|report| report.name != "post_send"));
}

/// Words of a page.
const PAGE: usize = 512;

#[test]
fn elements_are_added_up_wherever_they_lie_and_a_qp_is_looked_at_again_when_one_has_changed() {
    let mut attached = Attached::new(64);
    let sizes = attached.sizes;
    let Some(ebpf) = attached.ebpf() else { return println!("skipped: no BPF program can be loaded here") };
    let maps = Maps::take(ebpf, sizes).expect("the maps are in the object");
    maps.begin_epoch(0, true, false, 1);
    maps.follow(true);
    let function = FUNCTIONS[0].0;
    attached.attach(Opened::of(Operation::PostSend, &place_of(function)));
    if !attached.reports().any(|report| report.name == "post_send" && report.attached) {
        return println!("skipped: uprobes cannot be attached here");
    }
    let device = [0, 0, 0, u64::from_le_bytes(*b"measured"), 0, 0, 0, 0, 0, 0, 0, 0];
    let context = [device.as_ptr() as u64, 0];
    let mut qp = Qp { words: [context.as_ptr() as u64, 0, 0, 0, 0, 0], handle: 0, qpn: 500 };
    let mut memory = vec![0_u64; 5 * PAGE];
    let pages = memory.as_ptr().align_offset(4096);
    let address = |word: usize| &raw const memory[word] as u64;
    let addresses: Vec<u64> = (0..memory.len()).map(address).collect();
    let (mut posts, mut bytes) = (0, 0);
    // In the midst of a page, at its beginning and at its end.
    for at in [PAGE + 100, PAGE + 2, 2 * PAGE - 7] {
        let wr = pages + at;
        // As near as is read at once, and farther; more than one post at each, since the first finds where it lies.
        for by in [-2, -13, -14, -15, 5, 16, 17, 18, 300, 16] {
            let sge = wr.checked_add_signed(by).expect("there is a page before");
            for n in 0..3 {
                let length = 1000 + posts;
                memory[wr..wr + 5].copy_from_slice(&[n, 0, addresses[sge], 1 | 2 << 32, 2]);
                memory[sge..sge + 2].copy_from_slice(&[0, length | 77 << 32]);
                // SAFETY: the function follows none of its arguments.
                unsafe { function(&raw const qp, std::ptr::from_ref(&memory[wr]).cast(), 1) };
                posts += 1;
                bytes += length;
                assert_eq!(counted(&maps, 500), (posts, bytes), "word {at}, element {by} words from it");
            }
        }
    }
    let slot = maps.slot(0).expect("the first");
    assert_eq!((slot.qpn(), slot.looked.load(Relaxed) & 1), (500, 1), "its address alone was enough");
    assert_eq!(slot.signaled.load(Relaxed), posts);
    let wide = maps.wide(0).expect("the first has one");
    assert_eq!(wide.opcodes[2].load(Relaxed), posts);
    assert_eq!(wide.size_log2.iter().map(|n| n.load(Relaxed)).sum::<u64>(), posts);

    // Two work requests, the second with two elements, all beside each other.
    let wr = pages + PAGE + 100;
    memory[wr..wr + 5].copy_from_slice(&[1, addresses[wr + 16], addresses[wr + 32], 1 | 2 << 32, 0]);
    memory[wr + 16..wr + 21].copy_from_slice(&[2, 0, addresses[wr + 34], 2 | 2 << 32, 0]);
    memory[wr + 32..wr + 38].copy_from_slice(&[0, 10, 0, 200, 0, 3000]);
    for _ in 0..3 {
        // SAFETY: as above.
        unsafe { function(&raw const qp, std::ptr::from_ref(&memory[wr]).cast(), 1) };
        posts += 1;
        bytes += 3210;
    }
    assert_eq!(counted(&maps, 500), (posts, bytes));
    assert_eq!(slot.wrs.load(Relaxed), posts + 3);

    // The same address is another QP's: what tells is that one was made.
    qp.qpn = 501;
    maps.follow(false);
    maps.follow(true);
    // SAFETY: as above.
    unsafe { function(&raw const qp, std::ptr::from_ref(&memory[wr]).cast(), 1) };
    assert_eq!((counted(&maps, 500), counted(&maps, 501)), ((posts, bytes), (1, 3210)));
}
