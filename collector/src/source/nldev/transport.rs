//! The RDMA netlink socket, and whether the kernel has one.

use std::fs;
use std::io;
use std::path::Path;

use netlink_sys::protocols::NETLINK_RDMA;

use super::uapi::GROUP_NOTIFY;
pub(super) use crate::source::netlink::transport::{KernelSocket, Transport};

/// Opens a socket for requests.
pub(super) fn open() -> io::Result<KernelSocket> {
    KernelSocket::open(NETLINK_RDMA)
}

/// Opens a socket that hears `rdma monitor`'s events. Joining needs no privilege.
pub(super) fn monitor() -> io::Result<KernelSocket> {
    KernelSocket::listen(NETLINK_RDMA, &[GROUP_NOTIFY])
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
