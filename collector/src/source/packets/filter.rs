//! The filter the kernel runs on every frame of the network device, so that nothing but RoCEv2 is copied.
//!
//! Classic BPF (`Documentation/networking/filter.rst`): it takes UDP to port 4791 over IPv4 (first fragments only) or
//! IPv6, behind up to two VLAN tags, and answers with the number of bytes to copy, 0 for none.

use super::frame::{ETHERNET_BYTES, IPV4, IPV6, IPV6_BYTES, ROCE_PORT, SNAP_BYTES, TAGS, UDP};

/// One instruction: `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u16,
    pub(super) jump_true: u8,
    pub(super) jump_false: u8,
    pub(super) k: u32,
}

// Opcodes (include/uapi/linux/bpf_common.h): class, size and mode added up.
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_X_IP_HEADER: u16 = 0xb1;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_BITS: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Offsets in the IP header and in UDP's.
const FRAGMENT: u32 = 6;
const PROTOCOL_V4: u32 = 9;
const PROTOCOL_V6: u32 = 6;
const DESTINATION_PORT: u32 = 2;

/// The program.
pub(super) fn program() -> Vec<Instruction> {
    let mut program = Vec::new();
    let ethernet = u32::try_from(ETHERNET_BYTES).unwrap_or(0);
    for tags in 0..=2u32 {
        let ip = ethernet + tags * 4;
        let more = tags < 2;
        let body_v4 = ipv4(ip);
        let body_v6 = ipv6(ip);
        program.push(load(LOAD_HALF, ip - 2));
        // Each test falls through to its block, or jumps over it to the next one.
        program.push(unless_equal(IPV4.into(), body_v4.len()));
        program.extend(body_v4);
        program.push(unless_equal(IPV6.into(), body_v6.len()));
        program.extend(body_v6);
        if more {
            // A tag goes on with the next round; anything else is not wanted.
            program.push(Instruction { code: JUMP_EQUAL, jump_true: 2, jump_false: 0, k: TAGS[0].into() });
            program.push(Instruction { code: JUMP_EQUAL, jump_true: 1, jump_false: 0, k: TAGS[1].into() });
        }
        program.push(answer(0));
    }
    program
}

fn ipv4(ip: u32) -> Vec<Instruction> {
    vec![
        load(LOAD_BYTE, ip + PROTOCOL_V4),
        unless_equal(UDP.into(), 6),
        load(LOAD_HALF, ip + FRAGMENT),
        Instruction { code: JUMP_BITS, jump_true: 4, jump_false: 0, k: 0x1fff },
        load(LOAD_X_IP_HEADER, ip),
        load(LOAD_HALF_INDEXED, ip + DESTINATION_PORT),
        unless_equal(ROCE_PORT.into(), 1),
        answer(SNAP_BYTES),
        answer(0),
    ]
}

fn ipv6(ip: u32) -> Vec<Instruction> {
    let header = u32::try_from(IPV6_BYTES).unwrap_or(0);
    vec![
        load(LOAD_BYTE, ip + PROTOCOL_V6),
        unless_equal(UDP.into(), 3),
        load(LOAD_HALF, ip + header + DESTINATION_PORT),
        unless_equal(ROCE_PORT.into(), 1),
        answer(SNAP_BYTES),
        answer(0),
    ]
}

fn load(code: u16, k: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, k }
}

fn answer(bytes: u32) -> Instruction {
    load(RETURN, bytes)
}

/// Jumps over `over` instructions unless the loaded value is `k`.
fn unless_equal(k: u32, over: usize) -> Instruction {
    let over = u8::try_from(over).expect("a block is a handful of instructions");
    Instruction { code: JUMP_EQUAL, jump_true: 0, jump_false: over, k }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::packets::frame::parse;
    use crate::source::packets::frames::{Frame, TX_OF_RXE};

    /// The kernel's interpreter, for these opcodes: a load outside of the frame ends it with 0.
    fn run(program: &[Instruction], frame: &[u8]) -> u32 {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        let byte = |at: u32| frame.get(at as usize).copied().map(u32::from);
        let half = |at: u32| Some(byte(at)? << 8 | byte(at + 1)?);
        loop {
            let step = program[at];
            at += 1;
            let value = match step.code {
                LOAD_HALF => half(step.k),
                LOAD_BYTE => byte(step.k),
                LOAD_HALF_INDEXED => half(x + step.k),
                LOAD_X_IP_HEADER => match byte(step.k) {
                    Some(first) => {
                        x = (first & 0xf) * 4;
                        Some(a)
                    }
                    None => None,
                },
                JUMP_EQUAL | JUMP_BITS => {
                    let holds = if step.code == JUMP_EQUAL { a == step.k } else { a & step.k != 0 };
                    at += usize::from(if holds { step.jump_true } else { step.jump_false });
                    Some(a)
                }
                RETURN => return step.k,
                other => panic!("unknown opcode {other:#x}"),
            };
            match value {
                Some(value) => a = value,
                None => return 0,
            }
        }
    }

    #[test]
    fn a_packet_of_the_software_driver_passes_and_other_traffic_does_not() {
        let program = program();
        assert_eq!(run(&program, TX_OF_RXE), SNAP_BYTES);
        for tags in 0..3 {
            for v6 in [false, true] {
                let frame = Frame { v6, tags, ..Frame::default() };
                assert_eq!(run(&program, &frame.bytes()), SNAP_BYTES, "{frame:?}");
                let other = Frame { port: 4790, ..frame.clone() };
                assert_eq!(run(&program, &other.bytes()), 0, "{other:?}");
                let tcp = Frame { protocol: 6, ..frame };
                assert_eq!(run(&program, &tcp.bytes()), 0, "{tcp:?}");
            }
        }
        assert_eq!(run(&program, &Frame { fragment: 8, ..Frame::default() }.bytes()), 0);
        assert_eq!(run(&program, &Frame { tags: 3, ..Frame::default() }.bytes()), 0);
        let arp = [&[0xff; 12][..], &[0x08, 0x06], &[0; 46]].concat();
        assert_eq!(run(&program, &arp), 0);
    }

    proptest! {
        #[test]
        fn whatever_is_a_packet_passes_the_filter(
            at in 12usize..60, byte: u8, v6: bool, tags in 0u8..4, options in 0u8..11
        ) {
            let mut bytes = Frame { v6, tags, options, ..Frame::default() }.bytes();
            bytes[at] = byte;
            if parse(&bytes).is_some() {
                prop_assert_eq!(run(&program(), &bytes), SNAP_BYTES);
            }
        }
    }
}
