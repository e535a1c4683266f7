//! As much of x86-64 machine code as it takes to walk through a function: how long an instruction is, where it goes on,
//! and which general register it writes.
//!
//! A decoder of the whole instruction set (iced-x86) would make the binary 160 KB larger, for a question that concerns
//! the few instructions compilers put into prologues. Here the length is that of the legacy and VEX encodings (Intel SDM
//! volume 2, appendix A); of anything else, and of EVEX, nothing is said. What is not listed below as writing nothing or
//! one register may write anything. The tests compare both with iced-x86, over real code and over random bytes.

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Length in bytes.
    pub(super) len: usize,
    /// Where the process goes on.
    pub(super) flow: Flow,
    /// What changes among the general registers, but for the stack pointer.
    pub(super) writes: Writes,
}

/// Where a process goes on behind an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Behind it.
    Next,
    /// So many bytes from its end.
    Jump(i32),
    /// Behind it, or so many bytes from its end.
    Branch(i32),
    /// Elsewhere, and most likely back.
    Call,
    /// Elsewhere.
    End,
}

/// What an instruction changes among the general registers, numbered as in its encoding (0 rax, 1 rcx, 2 rdx, 6 rsi,
/// 7 rdi, 8 r8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writes {
    /// None of them.
    Nothing,
    /// This one, in whole or in part.
    Register(u8),
    /// Any of them, as far as is known here.
    Anything,
}

use Writes::{Anything, Nothing};

/// Reads bytes one after another.
struct Bytes<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip(&mut self, n: usize) -> Option<()> {
        self.at += n;
        // The longest instruction has 15 bytes (SDM volume 2, 2.3.11).
        (self.at <= self.bytes.len().min(15)).then_some(())
    }

    fn rel8(&mut self) -> Option<i32> {
        Some(i32::from(self.next()?.cast_signed()))
    }

    fn rel32(&mut self) -> Option<i32> {
        let bytes = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Prefixes of an instruction.
#[derive(Default)]
struct Prefixes {
    operand: bool,
    address: bool,
    repeat: bool,
    rex: Option<u8>,
}

impl Prefixes {
    fn rex_bit(&self, bit: u8) -> u8 {
        self.rex.map_or(0, |rex| rex >> bit & 1)
    }

    fn immediate(&self) -> usize {
        // REX.W goes before a prefix for 16 bits.
        if self.operand && self.rex_bit(3) == 0 { 2 } else { 4 }
    }

    /// The register a number in the encoding stands for: without REX, bytes 4 to 7 are the second ones of 0 to 3.
    fn register(&self, low: u8, rex_bit: u8, byte: bool) -> Writes {
        let second = byte && self.rex.is_none() && low >= 4;
        Writes::Register(if second { low - 4 } else { low | self.rex_bit(rex_bit) << 3 })
    }
}

/// The operands of an instruction, as its `ModRM` byte names them.
#[derive(Clone, Copy)]
struct ModRm {
    reg: u8,
    rm: u8,
    direct: bool,
}

impl ModRm {
    /// Reads it with what belongs to its address.
    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let byte = bytes.next()?;
        let (mode, rm) = (byte >> 6, byte & 7);
        let sib = mode != 3 && rm == 4;
        let base = if sib { bytes.next()? & 7 } else { rm };
        bytes.skip(match mode {
            0 if base == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        })?;
        Some(Self { reg: byte >> 3 & 7, rm, direct: mode == 3 })
    }

    fn reg(self, prefixes: &Prefixes, byte: bool) -> Writes {
        prefixes.register(self.reg, 2, byte)
    }

    /// The operand that may lie in memory.
    fn rm(self, prefixes: &Prefixes, byte: bool) -> Writes {
        if self.direct { prefixes.register(self.rm, 0, byte) } else { Nothing }
    }
}

/// The instruction that `bytes` start with; `None` when it is none that is known here.
pub(super) fn decode(bytes: &[u8]) -> Option<Instruction> {
    let mut bytes = Bytes { bytes, at: 0 };
    let mut prefixes = Prefixes::default();
    while let Some(byte) = bytes.peek() {
        match byte {
            0x66 => prefixes.operand = true,
            0x67 => prefixes.address = true,
            0xf2 | 0xf3 => prefixes.repeat = true,
            // Segments; most mean nothing here. A lock stands before memory only.
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 => {}
            _ => break,
        }
        bytes.at += 1;
    }
    if bytes.peek().is_some_and(|byte| byte & 0xf0 == 0x40) {
        prefixes.rex = bytes.next();
    }
    let (flow, writes) = match bytes.next()? {
        0x0f => match bytes.next()? {
            // Maps of three bytes: the opcode itself comes next.
            0x38 => {
                bytes.next()?;
                ModRm::read(&mut bytes)?;
                (Flow::Next, Anything)
            }
            0x3a => {
                bytes.next()?;
                ModRm::read(&mut bytes)?;
                bytes.skip(1)?;
                (Flow::Next, Anything)
            }
            opcode => two_bytes(opcode, &prefixes, &mut bytes)?,
        },
        start @ (0xc4 | 0xc5) => vex(start, &prefixes, &mut bytes)?,
        opcode => one_byte(opcode, &prefixes, &mut bytes)?,
    };
    bytes.skip(0)?;
    Some(Instruction { len: bytes.at, flow, writes })
}

fn vex(start: u8, prefixes: &Prefixes, bytes: &mut Bytes<'_>) -> Option<(Flow, Writes)> {
    if prefixes.rex.is_some() || prefixes.operand || prefixes.repeat {
        return None;
    }
    let first = bytes.next()?;
    let map = if start == 0xc5 {
        1
    } else {
        bytes.next()?;
        first & 0x1f
    };
    let opcode = bytes.next()?;
    match (map, opcode) {
        (1, 0x77) => {}
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => {
            ModRm::read(bytes)?;
            bytes.skip(1)?;
        }
        (1 | 2, _) => {
            ModRm::read(bytes)?;
        }
        _ => return None,
    }
    Some((Flow::Next, Anything))
}

#[allow(clippy::match_same_arms, reason = "in the order of the opcode map, each with what it is")]
fn one_byte(opcode: u8, prefixes: &Prefixes, bytes: &mut Bytes<'_>) -> Option<(Flow, Writes)> {
    let byte = opcode & 1 == 0;
    let low = opcode & 7;
    let next = |writes| Some((Flow::Next, writes));
    match opcode {
        // add, or, adc, sbb, and, sub, xor, cmp.
        0x00..=0x3f if low < 6 => {
            let compares = opcode & 0x38 == 0x38;
            let writes = match low {
                0 | 1 => ModRm::read(bytes)?.rm(prefixes, byte),
                2 | 3 => ModRm::read(bytes)?.reg(prefixes, byte),
                _ => {
                    bytes.skip(if byte { 1 } else { prefixes.immediate() })?;
                    Writes::Register(0)
                }
            };
            next(if compares { Nothing } else { writes })
        }
        // push, pop.
        0x50..=0x57 => next(Nothing),
        0x58..=0x5f => next(prefixes.register(low, 0, false)),
        // movsxd.
        0x63 => next(ModRm::read(bytes)?.reg(prefixes, false)),
        0x68 => bytes.skip(prefixes.immediate()).and_then(|()| next(Nothing)),
        0x6a => bytes.skip(1).and_then(|()| next(Nothing)),
        // imul.
        0x69 | 0x6b => {
            let operands = ModRm::read(bytes)?;
            bytes.skip(if opcode == 0x6b { 1 } else { prefixes.immediate() })?;
            next(operands.reg(prefixes, false))
        }
        0x70..=0x7f => Some((Flow::Branch(bytes.rel8()?), Nothing)),
        0x80 | 0x81 | 0x83 => {
            let operands = ModRm::read(bytes)?;
            bytes.skip(if opcode == 0x81 { prefixes.immediate() } else { 1 })?;
            next(if operands.reg == 7 { Nothing } else { operands.rm(prefixes, byte) })
        }
        // test.
        0x84 | 0x85 => ModRm::read(bytes).and_then(|_| next(Nothing)),
        // mov, lea; xchg writes both.
        0x86 | 0x87 => ModRm::read(bytes).and_then(|_| next(Anything)),
        0x88 | 0x89 | 0x8c => next(ModRm::read(bytes)?.rm(prefixes, opcode == 0x88)),
        0x8a | 0x8b => next(ModRm::read(bytes)?.reg(prefixes, byte)),
        0x8d => next(ModRm::read(bytes)?.reg(prefixes, false)),
        0x8e => ModRm::read(bytes).and_then(|_| next(Anything)),
        0x90 if prefixes.rex.is_none() => next(Nothing),
        0x90..=0x98 | 0x9b..=0x9f | 0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf | 0xd7 | 0xec..=0xef => next(Anything),
        // cqo and its likes: rdx.
        0x99 => next(Writes::Register(2)),
        0xa0..=0xa3 => bytes.skip(if prefixes.address { 4 } else { 8 }).and_then(|()| next(Anything)),
        0xa8 => bytes.skip(1).and_then(|()| next(Nothing)),
        0xa9 => bytes.skip(prefixes.immediate()).and_then(|()| next(Nothing)),
        0xb0..=0xb7 => bytes.skip(1).and_then(|()| next(prefixes.register(low, 0, true))),
        0xb8..=0xbf => {
            bytes.skip(if prefixes.rex_bit(3) == 1 { 8 } else { prefixes.immediate() })?;
            next(prefixes.register(low, 0, false))
        }
        // Shifts, and mov of an immediate.
        0xc0 | 0xc1 | 0xd0..=0xd3 | 0xc6 | 0xc7 => {
            let operands = ModRm::read(bytes)?;
            if opcode & 0xfe == 0xc6 && operands.reg != 0 {
                return None;
            }
            bytes.skip(match opcode {
                0xd0..=0xd3 => 0,
                0xc7 => prefixes.immediate(),
                _ => 1,
            })?;
            next(operands.rm(prefixes, byte))
        }
        0xc9 => next(Writes::Register(5)),
        // x87.
        0xd8..=0xdf => ModRm::read(bytes).and_then(|_| next(Anything)),
        0xf5 | 0xf8..=0xfd => next(Nothing),
        // ret; hlt and int3 end a path too.
        0xc3 | 0xcb | 0xcc | 0xcf | 0xf4 => Some((Flow::End, Anything)),
        0xc2 | 0xca => bytes.skip(2).map(|()| (Flow::End, Anything)),
        0xe0..=0xe3 => Some((Flow::Branch(bytes.rel8()?), Anything)),
        // With a prefix, makers differ in what a near jump is.
        0xe8 if !prefixes.operand => bytes.skip(4).map(|()| (Flow::Call, Anything)),
        0xe9 if !prefixes.operand => Some((Flow::Jump(bytes.rel32()?), Nothing)),
        0xeb => Some((Flow::Jump(bytes.rel8()?), Nothing)),
        0xf6 | 0xf7 => {
            let operands = ModRm::read(bytes)?;
            if operands.reg < 2 {
                bytes.skip(if byte { 1 } else { prefixes.immediate() })?;
            }
            next(match operands.reg {
                0 | 1 => Nothing,
                2 | 3 => operands.rm(prefixes, byte),
                _ => Anything,
            })
        }
        0xfe | 0xff => {
            let operands = ModRm::read(bytes)?;
            match (opcode, operands.reg) {
                (_, 0 | 1) => next(operands.rm(prefixes, byte)),
                (0xff, 2 | 3) => Some((Flow::Call, Anything)),
                (0xff, 4 | 5) => Some((Flow::End, Anything)),
                (0xff, 6) => next(Nothing),
                _ => None,
            }
        }
        _ => None,
    }
}

#[allow(clippy::match_same_arms, reason = "in the order of the opcode map, each with what it is")]
fn two_bytes(opcode: u8, prefixes: &Prefixes, bytes: &mut Bytes<'_>) -> Option<(Flow, Writes)> {
    let next = |writes| Some((Flow::Next, writes));
    match opcode {
        // syscall and what has no operands.
        0x05 | 0x30..=0x33 | 0x77 | 0xa0..=0xa2 | 0xa8 | 0xa9 => next(Anything),
        0x0b => Some((Flow::End, Anything)),
        0x80..=0x8f if !prefixes.operand => Some((Flow::Branch(bytes.rel32()?), Nothing)),
        // bswap.
        0xc8..=0xcf => next(prefixes.register(opcode & 7, 0, false)),
        // Between mmx or xmm registers and memory.
        0x10..=0x17 | 0x28 | 0x29 | 0x2b | 0x54..=0x57 | 0x60..=0x6f | 0x7f | 0xd6 | 0xe7 | 0xef | 0x0d | 0x18 => {
            ModRm::read(bytes).and_then(|_| next(Nothing))
        }
        // nop and endbr64; with a register the latter's neighbour reads the shadow stack's pointer.
        0x1e | 0x1f => {
            let operands = ModRm::read(bytes)?;
            let marks = opcode == 0x1f || !operands.direct || (operands.reg == 7 && matches!(operands.rm, 2 | 3));
            next(if marks { Nothing } else { Anything })
        }
        // cmov, imul, movzx, movsx, bsf, bsr.
        0x40..=0x4f | 0xaf | 0xb6 | 0xb7 | 0xbc..=0xbf => next(ModRm::read(bytes)?.reg(prefixes, false)),
        // setcc.
        0x90..=0x9f => next(ModRm::read(bytes)?.rm(prefixes, true)),
        // bt and its likes.
        0xa3 => ModRm::read(bytes).and_then(|_| next(Nothing)),
        0xab | 0xb3 | 0xbb => next(ModRm::read(bytes)?.rm(prefixes, false)),
        // With an immediate.
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => {
            ModRm::read(bytes)?;
            bytes.skip(1)?;
            next(Anything)
        }
        // The rest of what has operands.
        0x00..=0x03 | 0x2a | 0x2c..=0x2f | 0x50..=0x53 | 0x58..=0x5f | 0x74..=0x76 | 0x7c..=0x7e => {
            ModRm::read(bytes).and_then(|_| next(Anything))
        }
        0xa5 | 0xad | 0xae | 0xb0 | 0xb1 | 0xb8 | 0xc0 | 0xc1 | 0xc3 | 0xc7 | 0xd0..=0xfe => {
            ModRm::read(bytes).and_then(|_| next(Anything))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, Register};
    use proptest::prelude::*;

    use super::*;

    /// Compares with iced-x86; returns whether the instruction is known to both.
    fn compare(bytes: &[u8]) -> bool {
        let Some(own) = decode(bytes) else { return false };
        let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
        let theirs = decoder.decode();
        if theirs.is_invalid() {
            // Not every encoding that makes no sense is refused.
            return false;
        }
        assert_eq!(own.len, theirs.len(), "length of {bytes:02x?}");
        let by = theirs.near_branch_target().wrapping_sub(own.len as u64).cast_signed();
        let flow = match theirs.flow_control() {
            FlowControl::Next | FlowControl::Interrupt if own.flow == Flow::End => Flow::End,
            FlowControl::Next => Flow::Next,
            FlowControl::UnconditionalBranch => Flow::Jump(i32::try_from(by).expect("it is relative")),
            FlowControl::ConditionalBranch => Flow::Branch(i32::try_from(by).expect("it is relative")),
            FlowControl::Call | FlowControl::XbeginXabortXend if own.writes == Anything => own.flow,
            FlowControl::IndirectCall => Flow::Call,
            _ => Flow::End,
        };
        assert_eq!(own.flow, flow, "flow of {bytes:02x?}");
        let mut info = InstructionInfoFactory::new();
        for used in info.info(&theirs).used_registers() {
            let register = used.register().full_register();
            let writes =
                !matches!(used.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
            if !writes || !register.is_gpr64() || register == Register::RSP {
                continue;
            }
            let number = u8::try_from(register.number()).expect("there are sixteen");
            assert!(
                own.writes == Anything || own.writes == Writes::Register(number),
                "{bytes:02x?} writes {register:?}, not {:?}",
                own.writes
            );
        }
        true
    }

    #[test]
    fn the_instructions_of_real_libraries_are_known_by_length_and_effect() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        for function in [libc::pthread_create as *const () as u64, compare as *const () as u64] {
            let mapping = crate::source::verbs::maps::mappings(&maps).find(|mapping| mapping.holds(function));
            let place = mapping.and_then(|mapping| mapping.place(function)).expect("it lies in a file");
            let library = super::super::library::Library::open(&place.path).expect("it can be read");
            let mut code = library.code();
            let (code, at) = code.around(place.offset).expect("64 bits").expect("code");
            let code = &code[at..code.len().min(at + (1 << 19))];
            let (mut all, mut known, mut offset) = (0, 0, 0);
            let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
            while decoder.can_decode() {
                let theirs = decoder.decode();
                if !theirs.is_invalid() {
                    all += 1;
                    known += u32::from(compare(&code[offset..]));
                }
                offset = decoder.position();
            }
            assert!(all > 10_000, "{all} instructions");
            assert!(known * 100 >= all * 95, "{known} of {all} are known in {}", place.path.display());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn no_bytes_are_taken_for_something_harmless_that_they_are_not(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            compare(&bytes);
        }
    }
}
