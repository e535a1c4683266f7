//! The kernel's side: an `AF_PACKET` socket on one network device and the ring it shares with this process
//! (`TPACKET_V3`, `Documentation/networking/packet_mmap.rst`).
//!
//! The socket only looks. It is not promiscuous unless asked, binds nothing to the device, and everything ends with its
//! descriptor. Frames are copied into blocks; a block is handed over when it is full, or after [`HAND_OVER_MS`].

#![allow(unsafe_code, reason = "libc's sockets and a shared mapping; each block says why it is sound")]
#![allow(clippy::cast_possible_truncation, reason = "constants and sizes of structures, all below 2^15")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_uint, c_void, socklen_t};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::block::{self, Captured};
use super::filter::{Instruction, program};

/// Blocks of a ring, and the size of one: 4 MiB, some 18,000 frames. Many small ones, since a block that is handed over
/// with one frame in it is as taken as a full one: with little traffic the ring outlasts 6 s without a reader.
const BLOCKS: usize = 64;
const BLOCK_BYTES: usize = 64 * 1024;
/// The kernel only checks that blocks hold a whole number of these; frames lie packed.
const FRAME_BYTES: usize = 2048;
/// A block that is not full is handed over after this time, ms.
const HAND_OVER_MS: c_uint = 100;

/// A ring on one network device.
pub(super) struct Ring {
    socket: OwnedFd,
    base: NonNull<u8>,
    next: usize,
}

// SAFETY: the mapping belongs to the whole process, and only this object reads it.
unsafe impl Send for Ring {}

impl Ring {
    /// Opens a ring on the device with this index; `promiscuous` has the device take frames that are not for it.
    ///
    /// # Errors
    /// The errno of the call that failed: `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` where the kernel has no packet
    /// sockets, `ENODEV` where the device is gone.
    pub(super) fn open(ifindex: i32, promiscuous: bool) -> io::Result<Self> {
        // Protocol 0: nothing is taken before the filter and the ring are there and the socket is bound.
        // SAFETY: the call takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to this call alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as c_int))?;
        attach_filter(&socket)?;
        let request = libc::tpacket_req3 {
            tp_block_size: number(BLOCK_BYTES),
            tp_block_nr: number(BLOCKS),
            tp_frame_size: number(FRAME_BYTES),
            tp_frame_nr: number(BLOCKS * BLOCK_BYTES / FRAME_BYTES),
            tp_retire_blk_tov: HAND_OVER_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let (bytes, access) = (BLOCKS * BLOCK_BYTES, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a fresh mapping at an address of the kernel's choice; the ring keeps its size while it is mapped.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &socket, 0) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        let ring = Self { socket, base, next: 0 };
        if promiscuous {
            let membership = libc::packet_mreq {
                mr_ifindex: ifindex,
                mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            set(&ring.socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        }
        bind(&ring.socket, ifindex)?;
        Ok(ring)
    }

    /// Becomes readable when a block is handed over.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Hands the frames of the next block to `each` and the block back to the kernel; `false` when none is ready.
    pub(super) fn read_block(&mut self, mut each: impl FnMut(Captured<'_>)) -> bool {
        // SAFETY: `next` is below BLOCKS, so the block lies inside the mapping, which lives as long as `self`.
        let start = unsafe { self.base.add(self.next * BLOCK_BYTES) };
        // SAFETY: the status word of a block, aligned to 4 bytes; both sides change it by whole words only.
        let status = unsafe { start.add(block::STATUS).cast::<AtomicU32>().as_ref() };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the whole block lies inside the mapping. The kernel does not write to a block it has handed over, and
        // the slice is gone before the block is given back.
        let bytes = unsafe { slice::from_raw_parts(start.as_ptr(), BLOCK_BYTES) };
        block::frames(bytes).for_each(&mut each);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % BLOCKS;
        true
    }

    /// Frames that found no room since the last call.
    pub(super) fn take_drops(&self) -> u64 {
        get::<libc::tpacket_stats_v3>(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)
            .map_or(0, |statistics| statistics.tp_drops.into())
    }

    /// The socket's pending error, which is cleared: `ENETDOWN` when the device was set down. Otherwise the descriptor
    /// would stay readable.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        let errno = get::<c_int>(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
        (errno != 0).then(|| io::Error::from_raw_os_error(errno))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), BLOCKS * BLOCK_BYTES) };
    }
}

fn attach_filter(socket: &OwnedFd) -> io::Result<()> {
    let to_kernel =
        |step: Instruction| libc::sock_filter { code: step.code, jt: step.jump_true, jf: step.jump_false, k: step.k };
    let mut steps: Vec<libc::sock_filter> = program().into_iter().map(to_kernel).collect();
    let len = u16::try_from(steps.len()).map_err(io::Error::other)?;
    // The kernel copies the program during the call.
    let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn bind(socket: &OwnedFd, ifindex: i32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        // All protocols: what this host sends is shown to no other kind of socket.
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: ifindex,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let bytes = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: the pointer is to a whole `sockaddr_ll` that outlives the call, and `bytes` is its size.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets a socket option whose value is a `T`.
fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as socklen_t;
    let pointer: *const c_void = std::ptr::from_ref(value).cast();
    // SAFETY: the pointer is to a whole `T` that outlives the call, and `bytes` is its size.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Types of plain integers, for which any bytes are valid.
trait Plain {}
impl Plain for c_int {}
impl Plain for libc::tpacket_stats_v3 {}

/// Gets a socket option whose value is a `T`.
fn get<T: Plain>(socket: &OwnedFd, level: c_int, option: c_int) -> Option<T> {
    // SAFETY: `T` is made of integers, for which zeros are valid.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<T>() as socklen_t;
    let pointer: *mut c_void = (&raw mut value).cast();
    // SAFETY: the pointer is to a whole `T`, of which the kernel writes at most `bytes`.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, pointer, &raw mut bytes) };
    (result == 0).then_some(value)
}

fn number(n: usize) -> c_uint {
    c_uint::try_from(n).expect("the ring's sizes are constants below 2^32")
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::source::packets::frame::parse;

    /// The index of the loopback device of every network namespace.
    const LOOPBACK: i32 = 1;

    #[test]
    fn a_packet_sent_on_the_loopback_device_is_seen_going_out_and_coming_in() {
        let mut ring = match Ring::open(LOOPBACK, false) {
            Ok(ring) => ring,
            Err(error) => {
                println!("skipped: no packet socket here: {error}");
                return;
            }
        };
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // The UDP payload of a packet: BTH with opcode 0x0a to QP 0x11, and 16 bytes more.
        let mut payload = [0u8; 28];
        (payload[0], payload[7], payload[11]) = (0x0a, 0x11, 0x64);
        let Ok(_) = socket.send_to(&payload, "127.0.0.1:4791") else {
            println!("skipped: the loopback device is down");
            return;
        };
        // Traffic of others does not pass the filter.
        socket.send_to(&payload, "127.0.0.1:4790").unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut seen = Vec::new();
        while seen.len() < 2 && Instant::now() < deadline {
            ring.read_block(|captured| {
                let packet = parse(captured.frame).expect("only packets pass the filter");
                seen.push((captured.outgoing, packet.dest_qpn, packet.psn, captured.at_ns > 0));
            });
        }
        assert_eq!(seen, [(true, 0x11, 0x64, true), (false, 0x11, 0x64, true)]);
        assert_eq!(ring.take_drops(), 0);
        assert!(ring.take_error().is_none());
    }
}
