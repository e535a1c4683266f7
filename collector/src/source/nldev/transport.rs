//! How requests and answers travel: the kernel's socket, or (in tests) a stored dialogue.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use netlink_sys::protocols::NETLINK_RDMA;
use netlink_sys::{Socket, SocketAddr};

use super::uapi::GROUP_NOTIFY;

/// The kernel fills answers to a dump up to 32 KiB when the reader offers that much; nothing is larger.
const DATAGRAM_BYTES: usize = 64 * 1024;

/// `MSG_TRUNC` (include/linux/socket.h): `recv` returns the datagram's real length.
const MSG_TRUNC: i32 = 0x20;

/// Carries whole netlink datagrams.
pub(super) trait Transport: Send {
    /// Sends one request.
    fn send(&mut self, request: &[u8]) -> io::Result<()>;

    /// Replaces `datagram` with the next one. `WouldBlock` when there is none: the kernel queues its answer before
    /// `send` returns and the next part of a dump before `receive` returns, so there is nothing to wait for.
    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()>;

    /// Becomes readable when something arrives unasked; `None` for a stored dialogue.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// The kernel's RDMA netlink socket.
pub(super) struct KernelSocket(Socket);

impl KernelSocket {
    /// Opens a socket for requests. Only the kernel can send to it, because it is connected to the kernel.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_RDMA)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Opens a socket that hears `rdma monitor`'s events. Joining needs no privilege.
    pub(super) fn monitor() -> io::Result<Self> {
        let socket = Self::open()?;
        socket.0.add_membership(GROUP_NOTIFY)?;
        Ok(socket)
    }
}

impl Transport for KernelSocket {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.0.send(request, 0).map(|_| ())
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        datagram.clear();
        datagram.reserve(DATAGRAM_BYTES);
        let length = self.0.recv(datagram, MSG_TRUNC)?;
        if length > datagram.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a datagram of {length} bytes was cut")));
        }
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// The kernel has RDMA netlink, told without touching it: opening the socket on a kernel without it would load
/// `ib_core` (`MODULE_ALIAS_NET_PF_PROTO` in drivers/infiniband/core/netlink.c), and watching must change nothing.
/// `None` when `net/netlink` below `proc` cannot be read.
pub(super) fn registered(proc: &Path) -> Option<bool> {
    Some(lists_rdma(&fs::read_to_string(proc.join("net/netlink")).ok()?))
}

/// A line of `/proc/net/netlink` whose protocol column (`Eth`) is RDMA: the kernel's own socket is always listed.
fn lists_rdma(table: &str) -> bool {
    table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|eth| eth == "20"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_table_tells_whether_the_kernel_has_rdma_netlink() {
        let head = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n";
        let route = "0000000000000000 0   0          00000000 0        0        0     2        0        20\n";
        let rdma = "0000000000000000 20  0          00000000 0        0        0     2        0        1042\n";
        assert!(!lists_rdma(&[head, route].concat()));
        assert!(lists_rdma(&[head, route, rdma].concat()));
        assert_eq!(registered(Path::new("/nonexistent")), None);
    }
}
