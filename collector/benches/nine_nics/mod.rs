//! A copy of `/sys` with 9 NICs of one port each, of which a poll reads 423 files: what the benchmarks of the sysfs source
//! and of `collect` work on.

use std::fs;
use std::path::{Path, PathBuf};

const NICS: usize = 9;

const PMA: [&str; 21] = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
];

const HW: [&str; 22] = [
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_read_requests",
    "rx_write_requests",
];

/// Builds the tree; returns the files a poll reads every time.
pub(crate) fn tree(root: &Path) -> Vec<PathBuf> {
    let mut polled = Vec::new();
    for nic in 0..NICS {
        let function = root.join(format!("devices/pci0000:00/0000:{nic:02x}:00.0"));
        let device = function.join(format!("infiniband/mlx5_{nic}"));
        let port = device.join("ports/1");
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("every file has a directory")).expect("the tree can be built");
            fs::write(&path, text).expect("the tree can be built");
            path
        };
        write(device.join("node_guid"), &format!("0002:c903:0000:{:04x}\n", nic + 1));
        for (name, text) in [("board_id", "MT_0000000838\n"), ("fw_ver", "28.39.1002\n"), ("hca_type", "MT4129\n")] {
            write(device.join(name), text);
        }
        write(port.join("link_layer"), "InfiniBand\n");
        write(port.join("lid"), "0x1\n");
        for (name, text) in [("state", "4: ACTIVE\n"), ("phys_state", "5: LinkUp\n"), ("rate", "400 Gb/sec (4X NDR)\n")]
        {
            polled.push(write(port.join(name), text));
        }
        for (at, name) in PMA.iter().enumerate() {
            polled.push(write(port.join("counters").join(name), &format!("{}\n", 1_000 * at)));
        }
        for (at, name) in HW.iter().enumerate() {
            polled.push(write(port.join("hw_counters").join(name), &format!("{}\n", 77 * at)));
        }
        let class = root.join("class/infiniband");
        fs::create_dir_all(&class).expect("the tree can be built");
        std::os::unix::fs::symlink(
            format!("../../devices/pci0000:00/0000:{nic:02x}:00.0/infiniband/mlx5_{nic}"),
            class.join(format!("mlx5_{nic}")),
        )
        .expect("the tree can be built");
        std::os::unix::fs::symlink("../..", device.join("device")).expect("the tree can be built");
        // One polled file per NIC that is no counter, to come to 423 with the state files.
        polled.push(write(port.join("hw_counters/lifespan"), "10\n"));
    }
    polled
}
