//! Memory per QP at the scale target: 261,632 idle QPs in the kernel's list, and what one snapshot and one sweep cost.

use std::hint::black_box;
use std::time::Instant;

use collector::engine::Engine;
use collector::observation::recording::Header;
use collector::observation::{Body, Observation, Qp, QpEvent, QpState, QpStats};
use collector::rule::Settings;

const QPS: u32 = 261_632;
const PORTS: u32 = 16;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = statm.split_ascii_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("statm has two fields");
    pages * 4096
}

fn main() {
    let names: Vec<String> = (0..PORTS).map(|port| format!("mlx5_{port}")).collect();
    let device = |qpn: u32| names[(qpn % PORTS) as usize].as_str();
    let mut engine = Engine::new(Header::new(), Settings::default());
    let before = resident_bytes();
    for qpn in 0..QPS {
        engine.take(&Observation {
            t: 1,
            body: Body::Qp(Qp {
                device: device(qpn).into(),
                qpn: qpn + 2,
                port: Some(1),
                event: QpEvent::Seen,
                qp_type: Some("RC".into()),
                to: Some(QpState::Rts),
                pid: Some(1_000 + qpn / 512),
                comm: Some("python3".into()),
                remote_qpn: Some(qpn),
                ..Qp::default()
            }),
        });
    }
    let idle = resident_bytes() - before;
    println!("idle QP         {:>9.1} bytes (target 256)", idle as f64 / f64::from(QPS));

    let start = Instant::now();
    for _ in 0..100 {
        black_box(engine.snapshot());
    }
    println!("snapshot        {:>9.1} µs", start.elapsed().as_secs_f64() * 1e6 / 100.0);

    let sweep = |engine: &mut Engine, t: u64| {
        for qpn in 0..QPS {
            engine.take(&Observation {
                t,
                body: Body::QpStats(QpStats {
                    device: device(qpn).into(),
                    qpn: qpn + 2,
                    posts: t,
                    wrs: t,
                    bytes: t,
                    ..QpStats::default()
                }),
            });
        }
    };
    sweep(&mut engine, 2);
    let kept = engine.snapshot();
    let start = Instant::now();
    sweep(&mut engine, 3);
    println!("sweep, all busy {:>9.1} ms with a snapshot held", start.elapsed().as_secs_f64() * 1e3);
    black_box(kept);
    println!("all busy        {:>9.1} MiB resident", (resident_bytes() - before) as f64 / f64::from(1 << 20));
}
