//! How well the rules do: precision, recall and time to detect on traces of which the truth is known, and false alarms on
//! traces in which nothing is wrong. `cargo xtask score` runs it and writes docs/accuracy.md.
//!
//! - [`watch`]: two engines look at one trace, one sees QPs, one counters only; what they told, and what was true
//! - [`event`]: faults of the simulated node, judged by event
//! - [`window`]: ECN traces of the packet model, judged by second
//! - [`detail`]: one trace: what was true, and what was told
//! - [`calm`]: hours in which nothing is wrong
//! - [`tally`]: the counts
//! - [`report`]: the page
//! - [`targets`]: against what each rule is judged, and whether it is met
//! - [`why`]: why a target is not met
//! - [`floor`]: what a change must not fall below

mod calm;
mod detail;
mod event;
mod floor;
mod report;
mod tally;
mod targets;
mod watch;
mod why;
mod window;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::rule::Settings;

pub use detail::details;
pub use floor::below;
pub use report::{page, table};
pub use tally::{Calm, Case, Tally};

/// Seeds of scoring begin here; rules are tuned with smaller ones.
pub const FIRST_SEED: u64 = 1_000_000;

/// How much is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The first seed: [`FIRST_SEED`], or a smaller one to tune with.
    pub first_seed: u64,
    /// Kinds of traces, by name; all when empty.
    pub only: Vec<String>,
    /// Traces of each fault and of each class of ECN trouble.
    pub traces: u64,
    /// Nodes in which nothing is wrong, and simulated hours of each.
    pub nodes: u64,
    /// See `nodes`.
    pub hours: u64,
    /// Threads.
    pub threads: usize,
}

impl Plan {
    /// What docs/accuracy.md rests on.
    pub const FULL: Self =
        Self { first_seed: FIRST_SEED, only: Vec::new(), traces: 200, nodes: 6, hours: 8, threads: 2 };
    /// What every change must pass.
    pub const SUBSET: Self =
        Self { first_seed: FIRST_SEED, only: Vec::new(), traces: 6, nodes: 2, hours: 1, threads: 2 };
}

/// What a run found.
#[derive(Debug, Clone, Default)]
pub struct Accuracy {
    /// One row for each kind of trace.
    pub cases: Vec<Case>,
    /// Hours in which nothing is wrong.
    pub calm: Calm,
}

/// One piece of work.
#[derive(Debug, Clone, Copy)]
enum Work {
    Fault(&'static str, u64),
    Class(&'static str, u64),
    Calm(u64, u64),
}

/// What came of it.
enum Done {
    Case(Box<Case>),
    Calm(Calm),
}

/// Runs the plan; `told` is called after each piece of work with how much is done and how much there is.
pub fn run(plan: &Plan, settings: &Settings, told: &(dyn Fn(usize, usize) + Sync)) -> Accuracy {
    let mut work: Vec<Work> = (0..plan.nodes).map(|node| Work::Calm(plan.first_seed + node, plan.hours)).collect();
    let seeds = || (0..plan.traces).map(|n| plan.first_seed + n);
    let wanted = |name: &str| plan.only.is_empty() || plan.only.iter().any(|only| only == name);
    for class in window::classes().into_iter().filter(|class| wanted(class)) {
        work.extend(seeds().map(|seed| Work::Class(class, seed)));
    }
    for fault in crate::sim::faults().into_iter().filter(|fault| wanted(fault.name)) {
        work.extend(seeds().map(|seed| Work::Fault(fault.name, seed)));
    }
    let all = work.len();
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let done: Mutex<Vec<(usize, Done)>> = Mutex::new(Vec::with_capacity(work.len()));
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(|| {
                while let Some((at, work)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    work.get(at).map(|work| (at, *work))
                } {
                    let result = match work {
                        Work::Fault(name, seed) => {
                            event::judge(name, seed, settings).map(|case| Done::Case(Box::new(case)))
                        }
                        Work::Class(name, seed) => {
                            window::judge(name, seed, settings).map(|case| Done::Case(Box::new(case)))
                        }
                        Work::Calm(seed, hours) => calm::judge(seed, hours, settings).map(Done::Calm),
                    };
                    if let Some(result) = result {
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                    }
                    told(finished.fetch_add(1, Ordering::Relaxed) + 1, all);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    // In the plan's order, so that the page does not depend on who was faster.
    done.sort_by_key(|(at, _)| *at);
    let mut accuracy = Accuracy::default();
    for (_, result) in done {
        match result {
            Done::Calm(calm) => accuracy.calm.add(&calm),
            Done::Case(case) => {
                match accuracy.cases.iter_mut().find(|have| have.name == case.name && have.model == case.model) {
                    Some(have) => have.add(*case),
                    None => accuracy.cases.push(*case),
                }
            }
        }
    }
    accuracy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_the_same_however_many_threads_made_it() {
        let plan = |threads| Plan { traces: 0, nodes: 2, hours: 0, threads, ..Plan::FULL };
        let page = |threads| report::page(&run(&plan(threads), &Settings::default(), &|_, _| {}), &plan(1), "");
        assert_eq!(page(1), page(2));
    }
}
