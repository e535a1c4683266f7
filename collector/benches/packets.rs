//! What the packet source costs a packet: the reader's CPU time, and what the sender pays for the copy, on the loopback
//! device. Needs `CAP_NET_RAW`.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use collector::observation::Body;
use collector::source::Source;
use collector::source::files::RootedFiles;
use collector::source::packets::{PacketOptions, Packets};
use rustix::time::{ClockId, clock_gettime};

/// Fewer than a ring holds, each seen twice: going out and coming in.
const BURST: u32 = 4_000;
const BURSTS: u32 = 100;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("the tree can be made");
    fs::write(path, text).expect("the tree can be written");
}

fn thread_cpu_ns() -> u128 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u128::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u128::try_from(time.tv_nsec).unwrap_or(0)
}

/// Sends a burst of RDMA WRITE packets of one QP with ECT(0), and returns the time it took, ns.
fn send(socket: &UdpSocket, psn: &mut u32) -> u128 {
    let start = Instant::now();
    let mut payload = [0u8; 1052];
    (payload[0], payload[7]) = (0x0a, 0x11);
    for _ in 0..BURST {
        *psn = (*psn + 1) & 0x00ff_ffff;
        payload[8..12].copy_from_slice(&psn.to_be_bytes());
        socket.send_to(&payload, "127.0.0.1:4791").expect("the loopback device takes packets");
    }
    start.elapsed().as_nanos()
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory for the tree");
    let root = dir.path();
    write(root, "class/infiniband/rxe0/parent", "lo\n");
    write(root, "class/infiniband/rxe0/node_type", "1: CA\n");
    write(root, "class/infiniband/rxe0/ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
    write(root, "class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "lo\n");
    write(root, "class/net/lo/ifindex", "1\n");
    write(root, "class/net/lo/type", "772\n");
    // Somebody who takes the packets, so that no error message answers them.
    let _taker = UdpSocket::bind("127.0.0.1:4791");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut psn = 0;
    let alone: u128 = (0..BURSTS).map(|_| send(&socket, &mut psn)).sum();

    let mut source = Packets::start(PacketOptions {
        watch: "auto".parse().expect("auto is known"),
        per_second: u32::MAX,
        files: Arc::new(RootedFiles::new(root).expect("the tree opens")),
        wanted: Arc::new(|_| true),
        period_ns: 1,
    });
    let availability = source.availability();
    if let Some(reason) = availability.reason() {
        println!("skipped: {reason}");
        return;
    }
    let (mut watched, mut cpu, mut seen, mut lost) = (0, 0, 0, 0);
    let mut now = 0;
    let mut poll = |seen: &mut u64, lost: &mut u64| {
        now += 1_000_000_000;
        let before = thread_cpu_ns();
        source.poll(now, &mut |observation| match &observation.body {
            Body::Counters(set) if set.qpn.is_none() => {
                let value = |name| set.values.get(name).copied().unwrap_or(0);
                *seen = value("rx_data") + value("tx_data");
            }
            Body::Lost(more) => *lost += more.n,
            _ => {}
        });
        thread_cpu_ns() - before
    };
    for burst in 1..=BURSTS {
        watched += send(&socket, &mut psn);
        // Until everything of the burst has been handed over.
        let expected = u64::from(burst) * u64::from(BURST) * 2;
        let start = Instant::now();
        while seen + lost < expected && start.elapsed().as_secs() < 10 {
            let idle = seen;
            let used = poll(&mut seen, &mut lost);
            if seen > idle {
                cpu += used;
            } else {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
    let sent = f64::from(BURST * BURSTS);
    println!("reader   {:>7.0} ns CPU for each packet seen ({seen} seen, {lost} lost)", cpu as f64 / seen as f64);
    let share = cpu as f64 / seen as f64 * 100_000.0 / 1e9;
    println!("         {:>7.1} % of a core at the default budget of 100,000 packets/s", share * 100.0);
    println!("sender   {:>7.0} ns a packet alone", alone as f64 / sent);
    println!("         {:>7.0} ns a packet with both its copies taken", watched as f64 / sent);
}
