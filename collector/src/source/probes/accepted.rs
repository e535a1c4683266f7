//! Whether the kernel this runs on accepts the kept object's programs, and how it runs them.

#![allow(unsafe_code, reason = "aya does not give the code that a program was translated to")]

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

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
    let mut preempted = Vec::new();
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
        if let Program::UProbe(program) = program
            && let Ok(fd) = program.fd()
            && native_code(fd.as_fd()).is_some_and(|code| uses_a_stack_of_the_cpu(&code))
        {
            preempted.push(name.to_owned());
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert_eq!(preempted, Vec::<String>::new(), "run on a stack that another thread may use at the same time");
}

/// The code a program was translated to; `None` where it cannot be had.
fn native_code(program: BorrowedFd<'_>) -> Option<Vec<u8>> {
    const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
    let mut code = vec![0_u8; 1 << 17];
    // `struct bpf_prog_info` (include/uapi/linux/bpf.h): the length of the code at 16, its address at 24.
    let mut info = [0_u64; 32];
    (info[2], info[3]) = (code.len() as u64, code.as_mut_ptr() as u64);
    // The file, the length of the information, its address.
    let length = size_of_val(&info) as u64;
    let mut asked = [u64::from(program.as_raw_fd().cast_unsigned()) | length << 32, info.as_mut_ptr() as u64];
    // SAFETY: the kernel reads `asked` and writes to `info` and `code`, no more than the lengths that are given.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET_INFO_BY_FD, asked.as_mut_ptr(), size_of_val(&asked)) };
    let length = usize::try_from(info[2] & u64::from(u32::MAX)).ok()?;
    (answer == 0 && length != 0).then(|| code[..length.min(1 << 17)].to_vec())
}

/// The program takes its stack from the CPU's data: `add r9, gs:[…]` (`arch/x86/net/bpf_jit_comp.c` since 6.13).
fn uses_a_stack_of_the_cpu(code: &[u8]) -> bool {
    code.windows(4).any(|bytes| bytes == [0x65, 0x4c, 0x03, 0x0c] || bytes == [0x65, 0x4c, 0x03, 0x0d])
}
