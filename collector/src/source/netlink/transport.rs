//! How requests and answers travel: the kernel's socket, or (in tests) a stored dialogue.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::{Socket, SocketAddr};

/// The kernel fills answers to a dump up to 32 KiB when the reader offers that much; nothing is larger.
const DATAGRAM_BYTES: usize = 64 * 1024;

/// `MSG_TRUNC` (include/linux/socket.h): `recv` returns the datagram's real length.
const MSG_TRUNC: i32 = 0x20;

/// Carries whole netlink datagrams.
pub(in crate::source) trait Transport: Send {
    /// Sends one request.
    fn send(&mut self, request: &[u8]) -> io::Result<()>;

    /// Replaces `datagram` with the next one. `WouldBlock` when there is none: the kernel queues its answer before
    /// `send` returns and the next part of a dump before `receive` returns, so there is nothing to wait for.
    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()>;

    /// Becomes readable when something arrives unasked; `None` for a stored dialogue.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// One of the kernel's netlink sockets.
pub(in crate::source) struct KernelSocket(Socket);

impl KernelSocket {
    /// Opens a socket for requests. Only the kernel can send to it, because it is connected to the kernel.
    pub(in crate::source) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Opens a socket that hears what the kernel says to `groups`.
    pub(in crate::source) fn listen(protocol: isize, groups: &[u32]) -> io::Result<Self> {
        let socket = Self::open(protocol)?;
        for group in groups {
            socket.0.add_membership(*group)?;
        }
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
