//! One block of the kernel's ring: the frames in it.
//!
//! Layout: `struct tpacket_block_desc` and `struct tpacket3_hdr` (`include/uapi/linux/if_packet.h`), described in
//! `Documentation/networking/packet_mmap.rst`. Numbers are in the host's order.

/// Where a block says what it is: `hdr.bh1.block_status`.
pub(super) const STATUS: usize = 8;
const PACKETS: usize = 12;
const FIRST: usize = 16;

/// Fields of a frame's own header, and of the `struct sockaddr_ll` behind it.
const NEXT: usize = 0;
const SECONDS: usize = 4;
const NANOSECONDS: usize = 8;
const COPIED: usize = 12;
const FRAME: usize = 24;
const ADDRESS: usize = 48;
const PACKET_TYPE: usize = ADDRESS + 10;

/// `PACKET_OUTGOING`: the host sent it.
const OUTGOING: u8 = 4;

/// One frame, as far as it was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Captured<'b> {
    pub(super) frame: &'b [u8],
    /// This host sent it; else it came from the wire.
    pub(super) outgoing: bool,
    /// `CLOCK_REALTIME` of the kernel's look at it, ns.
    pub(super) at_ns: u64,
}

/// The frames of a block, in the order they came. It ends early where the block contradicts itself.
pub(super) fn frames(block: &[u8]) -> impl Iterator<Item = Captured<'_>> {
    let mut left = u32_at(block, PACKETS).unwrap_or(0);
    let mut at = u32_at(block, FIRST).map_or(usize::MAX, index);
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let header = block.get(at..)?;
        let start = usize::from(u16_at(header, FRAME)?);
        let frame = header.get(start..start.checked_add(index(u32_at(header, COPIED)?))?)?;
        let at_ns = u64::from(u32_at(header, SECONDS)?) * 1_000_000_000 + u64::from(u32_at(header, NANOSECONDS)?);
        let outgoing = *header.get(PACKET_TYPE)? == OUTGOING;
        match u32_at(header, NEXT)? {
            // The last one of the block names no next one.
            0 => left = 0,
            next => at = at.checked_add(index(next))?,
        }
        Some(Captured { frame, outgoing, at_ns })
    })
}

fn index(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use proptest::prelude::*;

    use super::*;

    fn block(frames: &[(&[u8], u8)]) -> Vec<u8> {
        let mut block = vec![0; 48];
        block[PACKETS..PACKETS + 4].copy_from_slice(&u32::try_from(frames.len()).unwrap().to_ne_bytes());
        block[FIRST..FIRST + 4].copy_from_slice(&48u32.to_ne_bytes());
        for (n, (frame, kind)) in frames.iter().enumerate() {
            let mut header = vec![0u8; 82];
            let slot = (82 + frame.len()).next_multiple_of(16);
            let next = if n + 1 == frames.len() { 0 } else { u32::try_from(slot).unwrap() };
            header[NEXT..NEXT + 4].copy_from_slice(&next.to_ne_bytes());
            header[SECONDS..SECONDS + 4].copy_from_slice(&u32::try_from(n).unwrap().to_ne_bytes());
            header[NANOSECONDS..NANOSECONDS + 4].copy_from_slice(&5u32.to_ne_bytes());
            header[COPIED..COPIED + 4].copy_from_slice(&u32::try_from(frame.len()).unwrap().to_ne_bytes());
            header[FRAME..FRAME + 2].copy_from_slice(&82u16.to_ne_bytes());
            header[PACKET_TYPE] = *kind;
            block.extend(header);
            block.extend(*frame);
            block.resize(block.len().next_multiple_of(16), 0);
        }
        block
    }

    #[test]
    fn the_offsets_are_those_of_the_kernels_structures() {
        use libc::{sockaddr_ll, tpacket_block_desc, tpacket_hdr_v1, tpacket3_hdr};
        let header = offset_of!(tpacket_block_desc, hdr);
        assert_eq!(STATUS, header + offset_of!(tpacket_hdr_v1, block_status));
        assert_eq!(PACKETS, header + offset_of!(tpacket_hdr_v1, num_pkts));
        assert_eq!(FIRST, header + offset_of!(tpacket_hdr_v1, offset_to_first_pkt));
        assert_eq!((NEXT, SECONDS), (offset_of!(tpacket3_hdr, tp_next_offset), offset_of!(tpacket3_hdr, tp_sec)));
        assert_eq!((NANOSECONDS, COPIED), (offset_of!(tpacket3_hdr, tp_nsec), offset_of!(tpacket3_hdr, tp_snaplen)));
        assert_eq!(FRAME, offset_of!(tpacket3_hdr, tp_mac));
        assert_eq!(ADDRESS, size_of::<tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT));
        assert_eq!(PACKET_TYPE, ADDRESS + offset_of!(sockaddr_ll, sll_pkttype));
        assert_eq!(OUTGOING, libc::PACKET_OUTGOING);
    }

    #[test]
    fn the_frames_of_a_block_come_in_order_with_direction_and_time() {
        let block = block(&[(&[1, 2, 3], 0), (&[4; 100], 4), (&[], 3)]);
        let seen: Vec<_> = frames(&block).collect();
        assert_eq!(seen.len(), 3);
        assert_eq!((seen[0].frame, seen[0].outgoing, seen[0].at_ns), (&[1u8, 2, 3][..], false, 5));
        assert_eq!((seen[1].frame.len(), seen[1].outgoing, seen[1].at_ns), (100, true, 1_000_000_005));
        assert!(!seen[2].outgoing);
    }

    proptest! {
        #[test]
        fn no_block_panics_or_yields_for_ever(damage in prop::collection::vec((0usize..400, any::<u8>()), 0..20)) {
            let mut block = block(&[(&[1; 60], 0), (&[2; 60], 4)]);
            for (at, byte) in damage {
                let at = at % block.len();
                block[at] = byte;
            }
            let _ = frames(&block).take(1 << 20).count();
        }
    }
}
