//! The screen at the scale target: the scenario `qp-storm` with 261,632 QPs, of which a tenth is in use.
//!
//! First frames, on the panes a person looks at then, in three sizes, each a screen of its own. A new world comes each
//! simulated second, as a live one does each second: the first frame of it is measured ("new world"), and then that of a key
//! in the same world. Frames are written as a terminal would get them, into a counter of bytes.
//!
//! Then, in a process of its own, both together as they run in `rdmascope demo`: the collector's thread with the simulator
//! in it, and the screen's loop with the table sorted by rate and filtered, in real time. Keys are sent to the loop; measured
//! is the time from sending one to the end of the first frame drawn with it, and what memory the process took. It includes
//! the simulator's own, which a live node does not have and which is measured in a third process.

use std::cell::Cell;
use std::io::{self, Write};
use std::process::Command;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use collector::clock;
use collector::engine::Engine;
use collector::feed::{Feed, Mode, Status};
use collector::live::Live;
use collector::observation::Nanos;
use collector::rule::Settings;
use collector::sim::Simulator;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use rdmascope_screens::headless::{Headless, Keyboard};
use rdmascope_screens::{PaneId, ScreenOptions};

const SCENARIO: &str = "qp-storm";
const QPS: usize = 261_632;
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];
const SECOND_NS: Nanos = 1_000_000_000;
/// Where the measured worlds begin, simulated s: from 20 s on a tenth of the QPs is in use.
const FROM_S: u64 = 24;
/// So many worlds are measured: of 200 the 99th percentile is the third highest.
const WORLDS: u64 = 200;
/// How long the whole process runs, and how long before keys are sent, s.
const TOGETHER_S: u64 = 45;
const BEFORE_KEYS: Duration = Duration::from_secs(22);
/// Between two keys: out of step with the worlds.
const BETWEEN_KEYS: Duration = Duration::from_millis(97);

const FRAME_MS: f64 = 16.0;
const KEY_MS: f64 = 50.0;
const MEMORY_MIB: f64 = 256.0;

/// What is shown, and the keys that bring it there.
const SHOWN: [(&str, PaneId, &str); 6] = [
    ("Overview", PaneId::Overview, ""),
    ("QPs by rate", PaneId::Qps, ""),
    ("QPs by rate, filtered", PaneId::Qps, FILTERED),
    ("QPs by comm", PaneId::Qps, "ssssssssssssss"),
    ("QP", PaneId::Qp, ""),
    ("Findings", PaneId::Findings, ""),
];
/// A text that nearly all of them have, and a number that half of them have.
const FILTERED: &str = "/comm=python pid>41210\n";

/// Counts bytes, and forgets them.
#[derive(Clone, Default)]
struct Counter(Rc<Cell<u64>>);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set(self.0.get() + bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn keys(text: &str) -> impl Iterator<Item = Event> {
    text.chars().map(|c| key(if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) }))
}

fn options(first: PaneId) -> ScreenOptions {
    ScreenOptions { first, ..ScreenOptions::default() }
}

/// Durations, in the order they were measured.
#[derive(Default)]
struct Times(Vec<Duration>);

/// CPU time of this thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

impl Times {
    fn quantile_ms(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a short list")]
        let at = ((sorted.len() as f64 * q).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
        sorted.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }

    fn line(&self) -> String {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| self.quantile_ms(q));
        format!("{p50:>6.2} {p99:>6.2} {max:>6.2}")
    }
}

fn met(holds: bool) -> &'static str {
    if holds { "met" } else { "MISSED" }
}

/// One screen under measurement.
struct Measured {
    name: &'static str,
    size: (u16, u16),
    screen: Headless<Counter>,
    written: Counter,
    new: Times,
    new_cpu: Times,
    same: Times,
    same_cpu: Times,
    bytes: u64,
}

impl Measured {
    /// Draws a frame: how long it took, and how much of that it had a processor.
    fn frame(&mut self) -> (Duration, Duration) {
        let (start, cpu_start) = (Instant::now(), cpu());
        let drawn = self.screen.frame().expect("a counter takes every byte");
        let took = (start.elapsed(), cpu().saturating_sub(cpu_start));
        assert!(drawn, "{} has something new to show", self.name);
        took
    }
}

fn frames() {
    let mut simulator = Simulator::new(SCENARIO, 1).expect("the scenario is there");
    let mut engine = Engine::new(simulator.header(), Settings::default());
    let mut advance = |engine: &mut Engine, s: u64| {
        simulator.advance(s * SECOND_NS, &mut |observation| engine.take(observation));
        engine.drain();
    };
    advance(&mut engine, FROM_S);
    assert_eq!(engine.world().qps.len(), QPS);
    let feed = Feed::new(engine.snapshot(), Status::new(Mode::Demo));
    feed.publish(engine.snapshot(), Status::new(Mode::Demo));
    let mut screens = Vec::new();
    for (name, pane, typed) in SHOWN {
        for size in SIZES {
            let written = Counter::default();
            let screen = Headless::new(feed.clone(), options(pane), size.0, size.1, written.clone());
            let screen = screen.expect("a counter takes every byte");
            let [new, new_cpu, same, same_cpu] = std::array::from_fn(|_| Times::default());
            let mut measured = Measured { name, size, screen, written, new, new_cpu, same, same_cpu, bytes: 0 };
            measured.frame();
            for event in keys(typed) {
                measured.screen.take(&event);
                measured.frame();
            }
            screens.push(measured);
        }
    }
    for n in 1..=WORLDS {
        // As a producer does, which frees here what no screen looks at any more.
        assert_eq!(feed.command(), None);
        advance(&mut engine, FROM_S + n);
        feed.publish(engine.snapshot(), Status::new(Mode::Demo));
        // Whoever comes first finds the world in no cache.
        let count = screens.len();
        screens.rotate_left(usize::try_from(n * 5).unwrap_or(0) % count);
        for measured in &mut screens {
            let before = measured.written.0.get();
            let (took, cpu) = measured.frame();
            measured.bytes += measured.written.0.get() - before;
            measured.new.0.push(took);
            measured.new_cpu.0.push(cpu);
            measured.screen.take(&key(if n % 2 == 0 { KeyCode::Up } else { KeyCode::Down }));
            let (took, cpu) = measured.frame();
            measured.same.0.push(took);
            measured.same_cpu.0.push(cpu);
        }
    }
    screens.sort_by_key(|measured| (SHOWN.iter().position(|(name, ..)| *name == measured.name), measured.size));
    println!(
        "frame, ms                size |  new world: p50    p99    max  cpu p99 |  key: p50    p99    max  cpu p99 | bytes"
    );
    for measured in &screens {
        let (columns, rows) = measured.size;
        let met = met(measured.new.quantile_ms(0.99).max(measured.same.quantile_ms(0.99)) <= FRAME_MS);
        println!(
            "{:22} {:>7} |    {}   {:>6.2} | {}   {:>6.2} | {:>5} {met}",
            measured.name,
            format!("{columns}×{rows}"),
            measured.new.line(),
            measured.new_cpu.quantile_ms(0.99),
            measured.same.line(),
            measured.same_cpu.quantile_ms(0.99),
            measured.bytes / WORLDS
        );
    }
    let busy = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "cpu: of that the time with a processor; tasks that wanted one meanwhile: {}",
        busy.split(' ').next().unwrap_or("?")
    );
    println!("target p99 {FRAME_MS} ms; {WORLDS} worlds with {QPS} QPs, one a simulated second");
}

/// Frames: when each was flushed, and how many keys it knows of.
type Frames = Vec<(Instant, usize)>;

/// When frames were flushed, and how many keys each knows of.
#[derive(Clone)]
struct Flushed {
    keyboard: Arc<Keyboard>,
    frames: Arc<(Mutex<Frames>, Condvar)>,
}

impl Write for Flushed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = (Instant::now(), self.keyboard.taken());
        self.frames.0.lock().expect("nobody panics with it").push(frame);
        self.frames.1.notify_all();
        Ok(())
    }
}

impl Flushed {
    /// When the first frame that knows of so many keys was flushed.
    fn with(&self, keys: usize) -> Instant {
        let mut frames = self.frames.0.lock().expect("nobody panics with it");
        loop {
            if let Some((at, _)) = frames.iter().find(|(_, taken)| *taken >= keys) {
                return *at;
            }
            frames.clear();
            frames = self.frames.1.wait(frames).expect("nobody panics with it");
        }
    }
}

/// A line of `/proc/self/status`, MiB.
fn memory_mib(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find(|line| line.starts_with(field)).expect("the kernel tells it");
    let kib: f64 = line.split_ascii_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib / 1024.0
}

fn simulator() -> Simulator {
    let simulator = Simulator::new(SCENARIO, 1).expect("the scenario is there");
    simulator.starting_at(clock::monotonic_ns(), clock::unix_ns())
}

fn together() {
    let simulator = simulator();
    let header = simulator.header();
    let live = Live::new(Mode::Demo, header, Settings::default(), vec![Box::new(simulator)]);
    let feed = live.feed();
    let collector = live.spawn().expect("a thread starts");
    let keyboard = Arc::new(Keyboard::new().expect("a descriptor is left"));
    let flushed = Flushed { keyboard: keyboard.clone(), frames: Arc::default() };
    let mut screen = Headless::new(feed.clone(), options(PaneId::Qps), 120, 40, flushed.clone()).expect("it draws");
    let start = Instant::now();
    let sender = std::thread::spawn({
        let flushed = flushed.clone();
        move || {
            let mut pressed = 0;
            let mut press = |event: Event| {
                let at = Instant::now();
                flushed.keyboard.press(event);
                pressed += 1;
                flushed.with(pressed).saturating_duration_since(at)
            };
            for event in keys(FILTERED) {
                press(event);
            }
            std::thread::sleep(BEFORE_KEYS.saturating_sub(start.elapsed()));
            let (mut moved, mut sorted, mut typed) = (Times::default(), Times::default(), Times::default());
            for n in 0u32.. {
                if start.elapsed().as_secs() >= TOGETHER_S {
                    break;
                }
                // Down, up; now and then the order is turned, and turned back, and the filter typed on.
                match n % 20 {
                    5 | 6 => sorted.0.push(press(key(KeyCode::Char('S')))),
                    10 => _ = press(key(KeyCode::Char('/'))),
                    11 => typed.0.push(press(key(KeyCode::Char('0')))),
                    12 => typed.0.push(press(key(KeyCode::Backspace))),
                    13 => _ = press(key(KeyCode::Enter)),
                    _ => moved.0.push(press(key(if n % 2 == 0 { KeyCode::Down } else { KeyCode::Up }))),
                }
                std::thread::sleep(BETWEEN_KEYS);
            }
            // A filter that is being typed would take the letter.
            flushed.keyboard.press(key(KeyCode::Esc));
            flushed.keyboard.press(key(KeyCode::Char('q')));
            (moved, sorted, typed)
        }
    });
    screen.run(&keyboard).expect("it draws");
    let (moved, sorted, typed) = sender.join().expect("it does not panic");
    let qps = feed.latest().world.qps.len();
    assert_eq!(qps, QPS);
    let (most, now) = (memory_mib("VmHWM:"), memory_mib("VmRSS:"));
    feed.send(collector::feed::Command::Stop);
    collector.join().expect("the collector ends");
    println!("key to frame, ms: QPs by rate, filtered, 120×40, a new world each second: p50     p99     max");
    for (name, times) in [("up, down", moved), ("order turned", sorted), ("filter typed", typed)] {
        let met = met(times.quantile_ms(0.99) <= KEY_MS);
        println!(
            "{name:>14} ({:>3} keys)                                        {}  {met}",
            times.0.len(),
            times.line()
        );
    }
    println!("target p99 {KEY_MS} ms");
    println!("MEMORY {most:.1} {now:.1}");
}

fn simulator_alone() {
    let before = memory_mib("VmRSS:");
    let mut simulator = Simulator::new(SCENARIO, 1).expect("the scenario is there");
    simulator.advance(TOGETHER_S * SECOND_NS, &mut |_| {});
    println!("{:.1}", memory_mib("VmRSS:") - before);
}

/// What this program prints when it is asked for one of its parts.
fn part(name: &str) -> String {
    let program = std::env::current_exe().expect("it has a path");
    let output = Command::new(program).arg(name).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("together") => return together(),
        Some("simulator") => return simulator_alone(),
        _ => {}
    }
    frames();
    let of_simulator: f64 = part("simulator").trim().parse().expect("a number");
    let told = part("together");
    let (told, memory) = told.split_once("MEMORY ").expect("it tells its memory");
    print!("{told}");
    let mib: Vec<f64> = memory.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    for (name, mib) in ["VmHWM", "VmRSS"].into_iter().zip(mib) {
        println!(
            "{name} {mib:>6.1} MiB engine, screen and simulator; {:.1} without the simulator's {of_simulator:.1}  {}",
            mib - of_simulator,
            met(mib - of_simulator <= MEMORY_MIB)
        );
    }
    println!("target {MEMORY_MIB} MiB");
}
