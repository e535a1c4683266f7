//! The governor at work on the kernel: the source itself, attached to a function of this program that is taken for
//! `poll_cq`, and called by the test. What is asserted holds however slow the machine is.

#![allow(unsafe_code, reason = "a function with a known first instruction can only be written in assembly")]

use std::fs;
use std::time::{Duration, Instant};

use super::budget::GROUPS;
use super::opened::Opened;
use super::{Budget, ProbeOptions, Probes};
use crate::clock;
use crate::observation::{Body, Probes as ProbesBody};
use crate::source::Source as _;
use crate::source::verbs::maps::mappings;
use crate::source::verbs::{self, Group, Operation};

std::arch::global_asm!(
    ".pushsection .text.rdmascope_governed, \"ax\", @progbits",
    ".balign 16",
    ".globl rdmascope_governed_poll",
    ".hidden rdmascope_governed_poll",
    "rdmascope_governed_poll:",
    "push rbx",
    "mov eax, esi",
    "pop rbx",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn rdmascope_governed_poll(cq: u64, n: u64, wc: u64) -> i32;
}

/// Polls an empty queue.
fn poll(n: u32) {
    for _ in 0..n {
        // SAFETY: the function follows none of its arguments.
        std::hint::black_box(unsafe { rdmascope_governed_poll(0, 0, 0) });
    }
}

fn place() -> verbs::Place {
    let text = fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
    let address = rdmascope_governed_poll as *const () as u64;
    let mapping = mappings(&text).find(|mapping| mapping.holds(address)).expect("it is mapped");
    mapping.place(address).expect("it comes from a file")
}

/// The source with its probe on the function; `None` where uprobes do not work.
fn attached(share: f64) -> Option<Probes> {
    let mut probes =
        Probes::load(&ProbeOptions { budget: Budget::Share(share), max_qps: 64, data_path: true, making: None });
    look(&mut probes);
    // Nobody that is looked at maps it.
    probes.discovery.keep(place().file());
    probes.attached.attach(Opened::of(Operation::PollCq, &place()));
    if !probes.attached.has_group(Group::Completions) {
        println!("skipped: no probe can be attached here: {:?}", probes.probes().last());
        return None;
    }
    Some(probes)
}

/// Lets the source look now, and returns its last report.
fn look(probes: &mut Probes) -> ProbesBody<'static> {
    let mut said = None;
    probes.look = 0;
    probes.due = 0;
    probes.poll(clock::monotonic_ns(), &mut |observation| {
        if let Body::Probes(body) = &observation.body {
            said = Some((body.hits, body.cost_ns, body.budget_share, body.window_ns, body.period_ns));
        }
    });
    let (hits, cost_ns, budget_share, window_ns, period_ns) = said.expect("each sweep ends with a report");
    ProbesBody { hits, cost_ns, budget_share, window_ns, period_ns, groups: probes.groups(), ..ProbesBody::default() }
}

fn reason(probes: &Probes) -> String {
    let report = probes.probes().into_iter().find(|report| report.name == "poll_cq").expect("it is wanted");
    assert!(report.attached, "a pause is no failure");
    report.reason.unwrap_or_default()
}

#[test]
fn a_polling_loop_is_paused_says_so_keeps_to_its_budget_and_is_watched_again() {
    const SHARE: f64 = 0.2;
    const BATCH: u32 = 5_000;
    let begin = clock::monotonic_ns();
    let Some(mut probes) = attached(SHARE) else { return };
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut largest = 0.0_f64;
    let mut before = probes.running.as_ref().expect("it runs").governor.spent_ns();
    while !reason(&probes).starts_with("paused: ") {
        assert!(Instant::now() < deadline, "not paused: {}", reason(&probes));
        poll(BATCH);
        look(&mut probes);
        let spent = probes.running.as_ref().expect("it runs").governor.spent_ns();
        largest = largest.max(spent - before);
        before = spent;
    }
    let said = reason(&probes);
    assert!(said.ends_with("are more than the budget of 20 % of one core"), "{said}");
    let seen = look(&mut probes);
    let elapsed = clock::monotonic_ns() - begin;
    let governor = &probes.running.as_ref().expect("it runs").governor;
    // What both groups start with, the share since then, and what was polled before the last look.
    let allowed = SHARE * (1e9 + elapsed as f64) + largest;
    assert!(governor.spent_ns() <= allowed, "{} of {allowed}", governor.spent_ns());
    let [group] = seen.groups.as_slice() else { panic!("{:?}", seen.groups) };
    assert_eq!((&*group.group, group.paused), ("completions", true));
    let cost = group.hits as f64 * governor.standing(Group::Completions).hit_ns;
    assert!((governor.spent_ns() - cost).abs() < 1.0, "hits × cost of a hit");
    assert!(governor.watched_ns(Group::Completions, clock::monotonic_ns()).is_some_and(|ns| ns < elapsed));

    // It is saved up for, and watched again; then the window is known.
    while reason(&probes).starts_with("paused: ") {
        assert!(Instant::now() < deadline, "never attached again");
        std::thread::sleep(Duration::from_millis(20));
        look(&mut probes);
    }
    poll(10);
    let again = look(&mut probes);
    let hits = |body: &ProbesBody<'_>| body.groups.first().map_or(0, |group| group.hits);
    assert!(hits(&again) >= hits(&seen) + 20, "entries and returns are hits again");
    let [group] = again.groups.as_slice() else { panic!("{:?}", again.groups) };
    let (window, period) = group.window_ns.zip(group.period_ns).expect("a window has ended");
    assert!(0 < window && window < period, "{window} of {period}");
}

#[test]
fn with_a_budget_of_nothing_no_data_path_probe_is_attached() {
    let options = ProbeOptions { budget: Budget::Share(0.0), max_qps: 64, data_path: true, making: None };
    let mut probes = Probes::start(&options);
    for _ in 0..3 {
        look_only(&mut probes);
    }
    assert!(GROUPS.iter().all(|group| !probes.attached.has_group(*group)));
    let report = probes.probes().into_iter().find(|report| report.name == "post_send").expect("it is named");
    assert!(!report.wanted && !report.attached);
    assert_eq!(report.reason.as_deref(), Some("switched off by a probe budget of 0"));
    assert!(probes.groups().is_empty());
}

fn look_only(probes: &mut Probes) {
    probes.due = 0;
    probes.poll(clock::monotonic_ns(), &mut |_| {});
}
