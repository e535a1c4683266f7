//! Where in a function a uprobe is cheapest: at an instruction that the kernel emulates instead of stepping over it.
//!
//! A uprobe replaces an instruction with a breakpoint. Afterwards the kernel either emulates the instruction, or has the
//! process execute a copy of it with a second trap behind it, which costs three times as much on bare metal and ten times
//! in a virtual machine. On x86-64 kernels 6.1 to 6.12 emulate `push` of a 64-bit register, `nop`, relative jumps and
//! calls (`arch/x86/kernel/uprobes.c`: `push_setup_xol_ops`, `branch_setup_xol_ops`); all but `push rbp`-like forms of one
//! or two bytes are taken for `push`, and only the plain byte 0x90 for `nop`, because longer forms are emulated by some
//! kernels only, and one with a prefix was refused until 6.1.2.
//!
//! A call is left out: the return address it pushes has to be pushed on the shadow stack as well, which only newer
//! kernels do, and a process that has one would die.
//!
//! The place must be passed once by each call, with its arguments untouched. So the search goes straight on from the
//! entry, ends at the first instruction that may go elsewhere or that writes a register with an argument the program
//! reads, and takes nothing that lies behind the target of a jump of the function (a loop would pass it again). Jumps
//! through tables are not followed: compilers make them for `switch`, whose cases lie behind the prologue.
//!
//! On other architectures the place is the entry.

use std::fmt;

use crate::source::verbs::Arg;

/// Where a probe is attached in a function, and why there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Point {
    /// Bytes from the function's entry.
    pub(super) offset: u64,
    /// Why.
    pub(super) because: Because,
}

/// Why a place was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Because {
    /// The kernel emulates the instruction that is there.
    Emulated(&'static str),
    /// No instruction before the arguments are gone is emulated.
    NoneWhileLive,
    /// The return is watched too, which is caught at the entry: both share a breakpoint. What is there is emulated, or not.
    Return(Option<&'static str>),
    /// The code could not be read.
    Unread(String),
    /// This architecture's instructions are not decoded.
    #[cfg_attr(target_arch = "x86_64", expect(dead_code, reason = "x86-64 is decoded"))]
    Architecture,
}

impl Point {
    /// The entry.
    pub(super) const fn entry(because: Because) -> Self {
        Self { offset: 0, because }
    }

    /// The entry, where the return is watched too; `chosen` is what would be chosen otherwise.
    pub(super) fn with_return(chosen: &Self) -> Self {
        let emulated = match chosen {
            Self { offset: 0, because: Because::Emulated(what) } => Some(*what),
            _ => None,
        };
        Self::entry(Because::Return(emulated))
    }

    /// The kernel is known to emulate what is there.
    pub(super) const fn is_emulated(&self) -> bool {
        matches!(self.because, Because::Emulated(_) | Because::Return(Some(_)))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => f.write_str("entry: ")?,
            offset => write!(f, "+{offset}: ")?,
        }
        match &self.because {
            Because::Emulated(what) => write!(f, "{what}, emulated"),
            Because::NoneWhileLive => f.write_str("no emulated instruction while arguments are live"),
            Because::Return(None) => f.write_str("shared with the probe of the return"),
            Because::Return(Some(what)) => write!(f, "{what}, emulated, shared with the probe of the return"),
            Because::Unread(why) => write!(f, "the code cannot be read: {why}"),
            Because::Architecture => f.write_str("the instructions of this architecture are not decoded"),
        }
    }
}

/// Chooses the place for a program that reads the arguments `needed`, in the function that starts at `entry` of `code`.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn choose(_code: &[u8], _entry: usize, _needed: &[Arg]) -> Point {
    Point::entry(Because::Architecture)
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::choose;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::collections::{HashSet, VecDeque};

    use super::super::instruction::{Flow, Writes, decode};
    use super::{Arg, Because, Point};

    /// Bytes from the entry that are searched: prologues are shorter.
    const PROLOGUE: usize = 64;

    /// Instructions of a function that are looked at for jumps. A data-path function has some hundreds; what lies beyond
    /// is left out.
    const MOST_INSTRUCTIONS: usize = 20_000;

    /// Chooses the place for a program that reads the arguments `needed`, in the function that starts at `entry` of
    /// `code`.
    pub(in super::super) fn choose(code: &[u8], entry: usize, needed: &[Arg]) -> Point {
        let candidates = candidates(code.get(entry..).unwrap_or_default(), needed);
        let back = candidates.last().and_then(|&(furthest, _)| first_target(code, entry, furthest));
        candidates.into_iter().find(|(offset, _)| back.is_none_or(|back| *offset < back)).map_or(
            Point::entry(Because::NoneWhileLive),
            |(offset, what)| Point { offset: offset as u64, because: Because::Emulated(what) },
        )
    }

    /// The emulated instructions that each call passes with its arguments untouched, as offsets from the start of
    /// `function`, first first.
    fn candidates(function: &[u8], needed: &[Arg]) -> Vec<(usize, &'static str)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < PROLOGUE
            && let Some(rest) = function.get(at..)
            && let Some(instruction) = decode(rest)
        {
            if let Some(what) = emulated(&rest[..instruction.len]) {
                found.push((at, what));
            }
            let live = match instruction.writes {
                Writes::Nothing => true,
                Writes::Register(written) => needed.iter().all(|arg| register(*arg) != written),
                Writes::Anything => false,
            };
            if instruction.flow != Flow::Next || !live {
                break;
            }
            at += instruction.len;
        }
        found
    }

    /// What an instruction is, when every kernel emulates it.
    fn emulated(bytes: &[u8]) -> Option<&'static str> {
        match *bytes {
            [0x50..=0x57] | [0x41, 0x50..=0x57] => Some("push"),
            [0x90] => Some("nop"),
            [0xeb, _] | [0xe9, _, _, _, _] => Some("jmp"),
            [0x70..=0x7f, _] | [0x0f, 0x80..=0x8f, _, _, _, _] => Some("conditional jmp"),
            _ => None,
        }
    }

    /// The register of an argument, by its number in instructions (System V ABI, AMD64 supplement, 3.2.3): rdi, rsi,
    /// rdx, rcx, r8.
    const fn register(arg: Arg) -> u8 {
        match arg {
            Arg::Arg0 => 7,
            Arg::Arg1 => 6,
            Arg::Arg2 => 2,
            Arg::Arg3 => 1,
            Arg::Arg4 => 8,
        }
    }

    /// The first place behind the entry and up to `furthest` bytes from it that a jump of the function goes to.
    fn first_target(code: &[u8], entry: usize, furthest: usize) -> Option<usize> {
        let mut first: Option<usize> = None;
        let mut seen = HashSet::new();
        let mut paths = VecDeque::from([entry]);
        let mut left = MOST_INSTRUCTIONS;
        while let Some(mut at) = paths.pop_front() {
            while left > 0
                && seen.insert(at)
                && let Some(instruction) = code.get(at..).and_then(decode)
            {
                left -= 1;
                at += instruction.len;
                if let Flow::Jump(by) | Flow::Branch(by) = instruction.flow
                    && let Some(target) = at.checked_add_signed(by as isize)
                {
                    if (entry + 1..=entry + furthest).contains(&target) {
                        let target = target - entry;
                        first = Some(first.map_or(target, |first| first.min(target)));
                    }
                    paths.push_back(target);
                }
                if matches!(instruction.flow, Flow::Jump(_) | Flow::End) {
                    break;
                }
            }
        }
        first
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use Arg::{Arg0, Arg1, Arg2};

    fn chosen(code: &[u8], needed: &[Arg]) -> String {
        // Something before the function, and its end.
        let code = [&[0xcc; 7], code, &[0xc3, 0xcc, 0xcc]].concat();
        choose(&code, 7, needed).to_string()
    }

    #[test]
    fn a_push_at_the_entry_is_taken() {
        // post_send of Debian 12's librxe: push r15; push r14.
        assert_eq!(chosen(&[0x41, 0x57, 0x41, 0x56], &[Arg0, Arg1]), "entry: push, emulated");
    }

    #[test]
    fn a_push_behind_endbr64_is_taken() {
        // endbr64; push rbp; mov rbp, rsp: how compilers begin functions with indirect branch tracking.
        assert_eq!(chosen(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5], &[Arg0]), "+4: push, emulated");
    }

    #[test]
    fn a_probe_with_a_return_stays_at_the_entry_and_knows_whether_that_is_emulated() {
        let push = Point::with_return(&choose(&[0x41, 0x57, 0xc3], 0, &[Arg0]));
        assert_eq!(push.to_string(), "entry: push, emulated, shared with the probe of the return");
        assert!(push.is_emulated());
        let endbr64 = Point::with_return(&choose(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3], 0, &[Arg0]));
        assert_eq!(endbr64.to_string(), "entry: shared with the probe of the return");
        assert!(!endbr64.is_emulated());
    }

    #[test]
    fn a_push_behind_instructions_that_keep_the_arguments_is_taken() {
        // endbr64; mov rax, rdi; xor ecx, ecx; push rbx.
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xf8, 0x31, 0xc9, 0x53];
        assert_eq!(chosen(&code, &[Arg0, Arg1, Arg2]), "+9: push, emulated");
    }

    #[test]
    fn a_push_behind_an_overwritten_argument_is_not_taken() {
        // mov edx, 1; push rbx: the third argument is gone, the second is not.
        let code = [0xba, 1, 0, 0, 0, 0x53];
        assert_eq!(chosen(&code, &[Arg0, Arg1]), "+5: push, emulated");
        let none = "entry: no emulated instruction while arguments are live";
        assert_eq!(chosen(&code, &[Arg0, Arg1, Arg2]), none);
        // mov rdi, [rdi+8]; push rbx.
        assert_eq!(chosen(&[0x48, 0x8b, 0x7f, 0x08, 0x53], &[Arg0]), none);
        // mov dil, 1 writes a part of it.
        assert_eq!(chosen(&[0x40, 0xb7, 1, 0x53], &[Arg0]), none);
        // div may write anything, as far as is known here; so may what is not known at all.
        assert_eq!(chosen(&[0x48, 0xf7, 0xf1, 0x53], &[Arg0, Arg2]), none);
        assert_eq!(chosen(&[0x62, 0xf1, 0x7c, 0x48, 0x28, 0xc1, 0x53], &[Arg0]), none);
    }

    #[test]
    fn a_conditional_jump_is_taken_itself_but_nothing_behind_it() {
        // test edx, edx; jle +1; push rbx: not every call comes to the push.
        assert_eq!(chosen(&[0x85, 0xd2, 0x7e, 0x01, 0x53], &[Arg0]), "+2: conditional jmp, emulated");
    }

    #[test]
    fn nothing_behind_a_call_is_taken_nor_the_call() {
        // call +0; push rbx.
        let none = "entry: no emulated instruction while arguments are live";
        assert_eq!(chosen(&[0xe8, 0, 0, 0, 0, 0x53], &[Arg0]), none);
    }

    #[test]
    fn what_a_loop_passes_again_is_not_taken() {
        // xor eax, eax; inc eax; cmp eax, esi; jne -6: each round comes by the jump.
        let round = [0x31, 0xc0, 0xff, 0xc0, 0x39, 0xf0, 0x75, 0xfa];
        assert_eq!(chosen(&round, &[Arg0, Arg1]), "entry: no emulated instruction while arguments are live");
        // The same loop behind a push that it does not pass.
        let pushed = [&[0x55], round.as_slice()].concat();
        assert_eq!(chosen(&pushed, &[Arg0, Arg1]), "entry: push, emulated");
        // nop; push rbx; pop rbx; jne back to the push: the nop is passed once, the push is not.
        assert_eq!(chosen(&[0x90, 0x53, 0x5b, 0x75, 0xfc], &[Arg0]), "entry: nop, emulated");
        // xor eax, eax; push rbx; pop rbx; jne back to the push; ret.
        let back = [0x31, 0xc0, 0x53, 0x5b, 0x75, 0xfc];
        assert_eq!(chosen(&back, &[Arg0]), "entry: no emulated instruction while arguments are live");
    }

    #[test]
    fn a_jump_from_code_before_the_function_is_seen() {
        // push rbx; jmp back to before the push, from a cold part before the entry.
        let code = [0xeb, 0x05, 0xcc, 0xcc, 0xcc, 0x31, 0xc0, 0x53, 0x75, 0xf6, 0xc3];
        assert_eq!(choose(&code, 5, &[Arg0]), Point::entry(Because::NoneWhileLive));
    }

    #[test]
    fn longer_nops_and_prefixed_pushes_are_left_to_those_kernels_that_emulate_them() {
        let none = "entry: no emulated instruction while arguments are live";
        assert_eq!(chosen(&[0x66, 0x90], &[Arg0]), none);
        assert_eq!(chosen(&[0x0f, 0x1f, 0x44, 0, 0], &[Arg0]), none);
        assert_eq!(chosen(&[0x66, 0x50], &[Arg0]), none);
    }

    #[test]
    fn a_function_that_cannot_be_read_gets_its_entry() {
        assert_eq!(choose(&[], 0, &[Arg0]), Point::entry(Because::NoneWhileLive));
        assert_eq!(choose(&[0x55], 9, &[Arg0]), Point::entry(Because::NoneWhileLive));
    }
}
