//! Scratch: engine cost of the healthy demo late in its history.
use collector::engine::Engine;
use collector::observation::recording::Header;
use collector::rule::Settings;
use collector::sim::{Simulator, Size};

#[inline(never)]
fn late(sim: &mut Simulator, engine: &mut Engine, from: u64, to: u64) -> u64 {
    let mut n = 0;
    for s in from..to {
        sim.advance(s * 1_000_000_000, &mut |o| {
            engine_take(engine, o);
            n += 1;
        });
        std::hint::black_box(engine.drain());
    }
    n
}
#[inline(never)]
fn engine_take(engine: &mut Engine, o: &collector::observation::Observation<'_>) {
    engine.take(o);
}

fn main() {
    let n: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let name = std::env::args().nth(1).unwrap();
    let (history, more) = (n[0], n[1]);
    let mut sim = Simulator::with_size(&name, 1, Size { qps_per_port: 64 }).unwrap();
    let mut engine = Engine::new(Header::new(), Settings::default());
    let start = std::time::Instant::now();
    sim.advance(history * 1_000_000_000, &mut |o| engine.take(o));
    engine.drain();
    let a = start.elapsed();
    let lines = late(&mut sim, &mut engine, history + 1, history + more + 1);
    println!("{lines} lines in {more} s; history {a:?}, late {:?}", start.elapsed() - a);
}
