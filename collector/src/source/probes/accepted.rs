//! Whether the kernel this runs on accepts the kept object's programs.

use aya::EbpfLoader;
use aya::programs::Program;
use collector_ebpf::config::Config;

use super::attach;
use super::reason;

#[test]
fn this_kernel_s_verifier_accepts_every_program() {
    let Some(object) = attach::OBJECT else { return eprintln!("skipped: no object for this architecture") };
    if let Some(why) = reason::cannot_load().or_else(reason::locked_down) {
        return eprintln!("skipped: {}", why.reason);
    }
    let config = Config { slots: 64, wide_slots: 64, ..Config::default() };
    let mut ebpf = EbpfLoader::new().override_global("CONFIG", &config, true).load(object).expect("the maps are made");
    let mut refused = Vec::new();
    for (name, program) in ebpf.programs_mut() {
        let loaded = match program {
            Program::KProbe(program) => program.load(),
            Program::UProbe(program) => program.load(),
            Program::TracePoint(program) => program.load(),
            other => panic!("{name} is of a kind nobody attaches: {other:?}"),
        };
        if let Err(error) = loaded {
            refused.push(format!("{name}: {error:#?}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
