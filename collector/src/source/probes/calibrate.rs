//! What one hit of the data-path probes costs here, measured on this process itself.
//!
//! Most of it is the trap, and how long a trap takes differs tenfold between bare metal and a virtual machine, and
//! threefold between an instruction the kernel emulates and one it steps over. So the programs are attached to functions
//! of this program for a moment, and these are called with a queue pair and a work request that look real. What the
//! programs counted on the way is taken out of the maps again.

#![cfg_attr(
    target_arch = "x86_64",
    allow(unsafe_code, reason = "functions with a known first instruction can only be written in assembly")
)]

use super::attach::Attached;
use super::budget::{HitCosts, Price};
use super::store::Maps;

/// Cost of one hit where it was not measured, ns: stepped over on bare metal, and in a virtual machine, where both traps
/// leave the guest (0.9 µs and 9–11 µs, and the program).
const HIT_NS: f64 = 1_100.0;
const HIT_IN_GUEST_NS: f64 = 10_000.0;

/// Cost of one step where it was not measured, ns (200 to 300 seen); of the program alone, so the same in a guest.
const STEP_NS: f64 = 300.0;

/// Cost of one hit of each group, at an instruction that is emulated and at one that is stepped over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Costs {
    emulated: HitCosts,
    stepped: HitCosts,
    /// Cost of each further work request or completion of one hit.
    more: HitCosts,
    /// It was measured.
    pub(super) measured: bool,
}

impl Costs {
    /// What is assumed where nothing can be measured: on the safe side.
    pub(super) fn assumed(in_guest: bool) -> Self {
        let hit = if in_guest { HIT_IN_GUEST_NS } else { HIT_NS };
        Self {
            emulated: HitCosts([hit; 2]),
            stepped: HitCosts([hit; 2]),
            more: HitCosts([STEP_NS; 2]),
            measured: false,
        }
    }

    /// What the groups cost; `stepped` says which of them is attached at an instruction that is stepped over.
    pub(super) fn of(&self, stepped: [bool; 2]) -> Price {
        let pick = |i: usize| if stepped[i] { self.stepped.0[i] } else { self.emulated.0[i] };
        Price { hit: HitCosts([pick(0), pick(1)]), step: self.more }
    }
}

/// This is a virtual machine, or may be one: x86 tells it in the processor's flags, others do not tell.
pub(super) fn in_guest(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_none_or(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn measure(_attached: &mut Attached, _maps: &mut Maps) -> Option<Costs> {
    None
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::measure;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::hint::black_box;
    use std::time::Instant;

    use super::super::opened::Opened;
    use super::{Attached, Costs, HitCosts, Maps};
    use crate::clock;
    use crate::source::verbs::{Operation, Place, maps};

    /// Calls of one batch; the quickest of some batches counts, because what disturbs only ever makes it slower.
    const CALLS: u32 = 64;
    const BATCHES: u32 = 8;

    type Function = unsafe extern "C" fn(*const u64, *const u64, *const u64) -> i32;

    /// Work requests of the longer list, completions of the fuller queue.
    const MANY: usize = 16;

    // Each returns its second argument: so many completions, for those that are taken for `poll_cq`.
    std::arch::global_asm!(
        ".pushsection .text.rdmascope_calibrate, \"ax\", @progbits",
        ".balign 16",
        ".globl rdmascope_calibrate_post_emulated",
        ".hidden rdmascope_calibrate_post_emulated",
        "rdmascope_calibrate_post_emulated:",
        "push rbx",
        "mov eax, esi",
        "pop rbx",
        "ret",
        ".balign 16",
        ".globl rdmascope_calibrate_post_stepped",
        ".hidden rdmascope_calibrate_post_stepped",
        "rdmascope_calibrate_post_stepped:",
        "mov eax, esi",
        "ret",
        ".balign 16",
        ".globl rdmascope_calibrate_poll_emulated",
        ".hidden rdmascope_calibrate_poll_emulated",
        "rdmascope_calibrate_poll_emulated:",
        "push rbx",
        "mov eax, esi",
        "pop rbx",
        "ret",
        ".balign 16",
        ".globl rdmascope_calibrate_poll_stepped",
        ".hidden rdmascope_calibrate_poll_stepped",
        "rdmascope_calibrate_poll_stepped:",
        "mov eax, esi",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        fn rdmascope_calibrate_post_emulated(qp: *const u64, wr: *const u64, bad_wr: *const u64) -> i32;
        fn rdmascope_calibrate_post_stepped(qp: *const u64, wr: *const u64, bad_wr: *const u64) -> i32;
        fn rdmascope_calibrate_poll_emulated(cq: *const u64, n: *const u64, wc: *const u64) -> i32;
        fn rdmascope_calibrate_poll_stepped(cq: *const u64, n: *const u64, wc: *const u64) -> i32;
    }

    /// The functions, what they are taken for, and the hits of one call.
    const FUNCTIONS: [(Function, Operation, f64); 4] = [
        (rdmascope_calibrate_post_emulated, Operation::PostSend, 1.0),
        (rdmascope_calibrate_poll_emulated, Operation::PollCq, 2.0),
        (rdmascope_calibrate_post_stepped, Operation::PostSend, 1.0),
        (rdmascope_calibrate_poll_stepped, Operation::PollCq, 2.0),
    ];

    /// A process's queue pair with work requests, as far as the programs read them (LP64 layout of rdma-core's
    /// verbs.h).
    struct Scene {
        /// `ibv_device`: the name lies at 24.
        device: [u64; 12],
        /// `ibv_context`: the device lies at 0.
        context: [u64; 32],
        /// `ibv_qp`: the context lies at 0, the number in the upper half of the word at 48.
        qp: [u64; 24],
        /// `ibv_send_wr`: signalled, with one element; the next lies at 8.
        wrs: [[u64; 16]; MANY],
        /// `ibv_sge`: the length lies at 8.
        sge: [u64; 2],
        /// `ibv_wc`: the number lies in the upper half of the word at 24.
        wcs: [[u64; 6]; MANY],
    }

    impl Scene {
        fn new() -> Box<Self> {
            const QPN: u64 = 1 << 32;
            let mut scene = Box::new(Self {
                device: [0; 12],
                context: [0; 32],
                qp: [0; 24],
                wrs: [[0; 16]; MANY],
                sge: [0, 64],
                wcs: [[0; 6]; MANY],
            });
            scene.device[3] = u64::from_le_bytes(*b"measured");
            scene.context[0] = scene.device.as_ptr() as u64;
            (scene.qp[0], scene.qp[6]) = (scene.context.as_ptr() as u64, QPN);
            let sge = scene.sge.as_ptr() as u64;
            for wr in &mut scene.wrs {
                (wr[2], wr[3], wr[4]) = (sge, 1 | 2 << 32, 2);
            }
            for wc in &mut scene.wcs {
                wc[3] = QPN;
            }
            scene
        }

        /// Makes one list of the first `n` work requests, and gives them and the completions ids of their own.
        fn link(&mut self, n: usize) {
            for i in 0..MANY {
                self.wrs[i][1] = if i + 1 < n { self.wrs[i + 1].as_ptr() as u64 } else { 0 };
                self.wrs[i][0] += MANY as u64;
                self.wcs[i][0] = self.wrs[i][0];
            }
        }
    }

    /// Measures. `None` where the programs cannot be attached. To be called before anything else of the data path is
    /// attached: all that is in the maps is taken out.
    pub(in super::super) fn measure(attached: &mut Attached, maps: &mut Maps) -> Option<Costs> {
        let places: Vec<Place> = FUNCTIONS.iter().map(|(function, ..)| place_of(*function)).collect::<Option<_>>()?;
        let file = places.first()?.file();
        for ((_, operation, _), place) in FUNCTIONS.iter().zip(&places) {
            attached.attach(Opened::of(*operation, place));
        }
        let all = attached.attached_to(file) == FUNCTIONS.len();
        maps.begin_epoch(clock::monotonic_ns(), true, true, 1);
        let mut scene = Scene::new();
        let costs = FUNCTIONS.map(|(function, operation, hits)| time(&mut scene, function, operation, 1) / hits);
        let [post, poll] = [FUNCTIONS[0], FUNCTIONS[1]].map(|(function, operation, _)| {
            let [one, many] = [1, MANY].map(|n| time(&mut scene, function, operation, n));
            (many - one).max(0.0) / (MANY - 1) as f64
        });
        maps.begin_epoch(clock::monotonic_ns(), false, false, 1);
        attached.detach_file(file);
        // Hits are told of operations that were attached: nothing of the kind was yet.
        attached.forget_attached();
        maps.forget_all();
        let [post_emulated, poll_emulated, post_stepped, poll_stepped] = costs;
        all.then_some(Costs {
            emulated: HitCosts([post_emulated, poll_emulated]),
            stepped: HitCosts([post_stepped, poll_stepped]),
            more: HitCosts([post, poll]),
            measured: true,
        })
    }

    /// The time of one call with `n` work requests or completions, ns.
    fn time(scene: &mut Scene, function: Function, operation: Operation, n: usize) -> f64 {
        let mut best = f64::INFINITY;
        for _ in 0..BATCHES {
            let begin = Instant::now();
            for _ in 0..CALLS {
                scene.link(n);
                let scene = black_box(&*scene);
                let (qp, wr, wc) = (scene.qp.as_ptr(), scene.wrs[0].as_ptr(), scene.wcs[0].as_ptr());
                // SAFETY: the functions above follow none of their arguments.
                let found = match operation {
                    // A queue has its context at 0, as a queue pair has.
                    Operation::PollCq => unsafe { function(qp, std::ptr::without_provenance(n), wc) },
                    _ => unsafe { function(qp, wr, std::ptr::null()) },
                };
                black_box(found);
            }
            #[allow(clippy::cast_precision_loss, reason = "a few milliseconds")]
            {
                best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(CALLS));
            }
        }
        best
    }

    fn place_of(function: Function) -> Option<Place> {
        let text = crate::source::proc::text("/proc/self/maps".as_ref()).ok()?;
        let address = function as usize as u64;
        maps::mappings(&text).find(|mapping| mapping.holds(address))?.place(address)
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::{Maps, Store as _};
    use super::*;

    #[test]
    fn a_guest_knows_that_it_is_one() {
        assert!(in_guest("processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"));
        assert!(!in_guest("processor\t: 0\nflags\t\t: fpu vme lahf_lm\n"));
    }

    #[test]
    fn where_it_cannot_be_told_the_dearer_hit_is_assumed() {
        assert!(in_guest("processor\t: 0\nFeatures\t: fp asimd evtstrm\nCPU implementer\t: 0x41\n"));
        assert!(in_guest(""));
    }

    #[test]
    fn a_hit_costs_time_and_leaves_nothing_behind() {
        let mut attached = Attached::new(64);
        let sizes = attached.sizes;
        let Some(ebpf) = attached.ebpf() else { return println!("skipped: no BPF program can be loaded here") };
        let mut maps = Maps::take(ebpf, sizes).expect("the maps are in the object");
        let Some(costs) = measure(&mut attached, &mut maps) else {
            return println!("skipped: uprobes cannot be attached here");
        };
        println!("{costs:?}");
        for hit in [costs.emulated, costs.stepped].into_iter().flat_map(|costs| costs.0) {
            assert!((50.0..1e6).contains(&hit), "{costs:?}");
        }
        // Reading one more takes a copy from the process's memory at least.
        assert!(costs.more.0.iter().all(|step| (10.0..1e5).contains(step)), "{costs:?}");
        assert_eq!(maps.totals().expect("they can be read").hits, 0);
        assert_eq!(maps.fans().count(), 0);
        let live = |index: u32| {
            maps.slot(index).is_some_and(|slot| slot.state.load(std::sync::atomic::Ordering::Relaxed) != 0)
        };
        assert!((0..64).all(|index| !live(index)));
        assert!(attached.reports().all(|report| report.name != "post_send"));
    }
}
