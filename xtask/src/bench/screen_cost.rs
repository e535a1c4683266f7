//! `cargo xtask bench screen-cost`: instructions a second of the screen takes, beside rdmatop, in one boot of the guest
//! whose time is its instructions. The payload is `tests/guest/screen_cost.sh`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::vm;

pub(super) const NAME: &str = "screen-cost";
pub(super) const MEASURES: &str = "instructions a second of the screen beside rdmatop in the guest (target 0.5 x), --rdmatop FILE; bytes when nothing changes";
const PAYLOAD: &str = "screen_cost";
/// The file's name in the guest.
const PEER: &str = "rdmatop";
const TARGET: f64 = 0.5;

/// What a run of a screen took.
struct Figure {
    name: String,
    seconds: f64,
    instructions: f64,
    bytes: f64,
}

impl Figure {
    fn read(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line)?;
        let number = |name: &str| value[name].as_f64().with_context(|| format!("no {name} in {line}"));
        let seconds = number("ns")? / 1e9;
        Ok(Self {
            name: value["name"].as_str().unwrap_or_default().to_owned(),
            seconds,
            instructions: number("cpu_ns")? / vm::NS_AN_INSTRUCTION as f64 / seconds,
            bytes: number("bytes")? / seconds,
        })
    }
}

/// Boots, measures and prints.
pub(super) fn run(peer: Option<&Path>, product: Option<&Path>) -> Result<()> {
    let Some(peer) = peer.filter(|peer| peer.file_name().is_some_and(|name| name == PEER)) else {
        bail!(
            "{NAME} needs --rdmatop FILE, a program called {PEER} that runs on Debian 12: \
             cargo install rdmatop --version 0.1.32 --root DIRECTORY"
        );
    };
    let given: Vec<_> = [Some(peer), product].into_iter().flatten().map(Path::to_owned).collect();
    let folder = vm::run_counted(PAYLOAD, &given)?;
    let lines = fs::read_to_string(folder.join("figures.jsonl"))?;
    let figures: Vec<Figure> = lines.lines().map(Figure::read).collect::<Result<_>>()?;
    let of = |name: &str| figures.iter().find(|figure| figure.name == name).with_context(|| format!("no {name}"));
    println!("two rxe devices, 4 busy QPs, tmux 120×40, 1 s refresh; the process's own instructions, user and kernel");
    for (name, what) in [
        ("rdmatop", "rdmatop"),
        ("no-ebpf", "rdmascope --no-ebpf"),
        ("ebpf", "rdmascope, eBPF on, budget 1 %"),
        ("idle", "rdmascope --no-ebpf, no traffic"),
        ("paused", "the same, paused"),
    ] {
        let figure = of(name)?;
        println!(
            "{what:32} {:>8.2} M instructions/s   {:>8.0} bytes/s written   ({:.0} s)",
            figure.instructions / 1e6,
            figure.bytes,
            figure.seconds
        );
    }
    println!("once, to load and attach the probes: {:.0} M instructions", of("ebpf-start")?.instructions / 1e6);
    let peer = of("rdmatop")?.instructions;
    for name in ["no-ebpf", "ebpf"] {
        let ratio = of(name)?.instructions / peer;
        println!("{name} / rdmatop: {ratio:.2} (target {TARGET}: {})", if ratio <= TARGET { "met" } else { "MISSED" });
    }
    let (hits, ns) = programs(&folder)?;
    let seconds = of("ebpf")?.seconds;
    println!(
        "not in it: the probes' programs, which run in the processes they watch: {:.0} runs/s, {:.2} M instructions/s, without the traps",
        hits / seconds,
        ns / vm::NS_AN_INSTRUCTION as f64 / 1e6 / seconds
    );
    Ok(())
}

/// Runs and time of all BPF programs between the two accounts of bpftool.
fn programs(folder: &Path) -> Result<(f64, f64)> {
    let read = |name: &str| -> Result<HashMap<u64, (f64, f64)>> {
        let list: Vec<Value> = serde_json::from_str(&fs::read_to_string(folder.join(name))?)?;
        let number = |program: &Value, name: &str| program[name].as_f64().unwrap_or(0.0);
        let account = |program: &Value| {
            let id = program["id"].as_u64()?;
            Some((id, (number(program, "run_cnt"), number(program, "run_time_ns"))))
        };
        Ok(list.iter().filter_map(account).collect())
    };
    let before = read("programs.before")?;
    let mut sum = (0.0, 0.0);
    for (id, (runs, ns)) in read("programs.after")? {
        let (first_runs, first_ns) = before.get(&id).copied().unwrap_or_default();
        sum = (sum.0 + runs - first_runs, sum.1 + ns - first_ns);
    }
    Ok(sum)
}
