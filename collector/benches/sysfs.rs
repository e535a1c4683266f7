//! CPU of one poll of a tree with 9 NICs and 423 files, beside a C loop that preads the same files on kept-open
//! descriptors. Both in one run, the best round of each.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use collector::source::Source;
use collector::source::files::RootedFiles;
use collector::source::sysfs::{SysfsOptions, SysfsSource};
use rustix::time::{ClockId, clock_gettime};

const NICS: usize = 9;
const ROUNDS: u32 = 300;

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
fn tree(root: &Path) -> Vec<PathBuf> {
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

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("CPU time is not negative")
}

/// The C loop's best round, ns; `None` without a C compiler.
fn c_loop(dir: &Path, files: &[PathBuf]) -> Option<u64> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/pread.c");
    let program = dir.join("pread");
    let compiled = Command::new("cc").arg("-O2").arg(&source).arg("-o").arg(&program).status().ok()?;
    if !compiled.success() {
        return None;
    }
    let mut child =
        Command::new(&program).arg(ROUNDS.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    {
        let mut input = child.stdin.take()?;
        for file in files {
            writeln!(input, "{}", file.display()).ok()?;
        }
    }
    let output = child.wait_with_output().ok()?;
    String::from_utf8(output.stdout).ok()?.split(' ').next()?.parse().ok()
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let root = dir.path().join("sys");
    let files = tree(&root);
    let mut source = SysfsSource::new(SysfsOptions::new(Arc::new(RootedFiles::new(&root).expect("the tree is there"))));
    let mut values = 0usize;
    let mut poll = |t: u64| {
        let start = cpu_ns();
        source.poll(t, &mut |observation| {
            if let collector::observation::Body::Counters(counters) = &observation.body {
                values += counters.values.len();
            }
        });
        cpu_ns() - start
    };
    poll(1);
    // Every tenth second the source looks at what seldom changes; the best round is an ordinary one.
    let ours = (1..=u64::from(ROUNDS)).map(|round| poll(round * 1_000_000_000)).min().unwrap_or(0);
    println!("files           {:>9}", files.len());
    println!("values a poll   {:>9}", values / (ROUNDS as usize + 1));
    println!("one poll        {:>9.3} ms", ours as f64 / 1e6);
    match c_loop(dir.path(), &files) {
        Some(c) => {
            println!("C loop          {:>9.3} ms", c as f64 / 1e6);
            println!("ratio           {:>9.2}   (target 3)", ours as f64 / c as f64);
        }
        None => println!("C loop          not measured: no C compiler (cc)"),
    }
}
