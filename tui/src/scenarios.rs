//! The scenarios of `demo` on the screen: what an operator sees of each fault, and how soon.

use std::sync::Arc;

use collector::engine::Engine;
use collector::feed::{Feed, Mode, Published, Status};
use collector::inventory::World;
use collector::rule::Settings;
use collector::sim::Simulator;
use collector::source::Source as _;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::App;
use crate::moments::Moments;
use crate::pane::misnamed;
use crate::screen::ScreenOptions;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// A scenario being played.
pub(crate) struct Play {
    simulator: Simulator,
    engine: Engine,
}

impl Play {
    pub(crate) fn new(scenario: &str) -> Self {
        let simulator = Simulator::new(scenario, 1).unwrap();
        let engine = Engine::new(simulator.header(), Settings::default());
        Self { simulator, engine }
    }

    /// Plays up to a time, ns since the start.
    fn until(&mut self, t: u64) -> Arc<World> {
        let engine = &mut self.engine;
        self.simulator.advance(t, &mut |observation| engine.take(observation));
        self.engine.drain();
        self.engine.snapshot()
    }

    pub(crate) fn feed(&mut self, t: u64) -> Feed {
        let world = self.until(t);
        let status = Status { sources: vec![self.simulator.availability()], ..Status::new(Mode::Demo) };
        let feed = Feed::new(world.clone(), status.clone());
        feed.publish(world, status);
        feed
    }
}

fn key(name: &str) -> KeyCode {
    match name {
        "Enter" => KeyCode::Enter,
        "Esc" => KeyCode::Esc,
        "Down" => KeyCode::Down,
        "Up" => KeyCode::Up,
        "Left" => KeyCode::Left,
        "Right" => KeyCode::Right,
        "PgDn" => KeyCode::PageDown,
        "Space" => KeyCode::Char(' '),
        name => KeyCode::Char(name.chars().next().unwrap()),
    }
}

/// A screen after some keys, a frame between two of them.
pub(crate) fn screen(feed: Feed, (width, height): (u16, u16), keys: &[&str]) -> String {
    let mut app = App::new(feed, ScreenOptions::default(), true);
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    app.draw(area, &mut buf, 1);
    for name in keys {
        app.take(&Event::Key(KeyEvent::new(key(name), KeyModifiers::NONE)), 1);
        buf = Buffer::empty(area);
        app.draw(area, &mut buf, 1);
    }
    text(&buf)
}

/// What stands in a buffer.
fn text(buf: &Buffer) -> String {
    let width = usize::from(buf.area.width);
    let lines = buf.content.chunks(width).map(|row| {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// Not a test but a tool: `LOOK="aer-then-down 45 120x40 5 Enter" cargo test -p rdmascope --lib look -- --ignored --nocapture`.
#[test]
#[ignore = "tool: prints the screen of a scenario at a second, at a size, after keys"]
fn look() {
    let asked = std::env::var("LOOK").unwrap();
    for asked in asked.split(';') {
        let words: Vec<&str> = asked.split_whitespace().collect();
        let (width, height) = words[2].split_once('x').unwrap();
        let size = (width.parse().unwrap(), height.parse().unwrap());
        let feed = Play::new(words[0]).feed(words[1].parse::<u64>().unwrap() * SECOND);
        println!("=== {asked}\n{}", screen(feed, size, &words[3..]));
    }
}

/// The scenarios, each with the rule that names its fault, what its subject begins with (congestion of all rails is told of
/// one of them first, which one is no matter), and the latest second in which it does.
const FAULTS: [(&str, &str, &str, u64); 8] = [
    ("ecn-kmin-low", "ecn.premature", "mlx5_", 30),
    ("pfc-storm", "ecn.missed", "mlx5_", 60),
    ("dying-optic", "phy.pre_fec_trend", "mlx5_5/1", 90),
    ("aer-then-down", "link.down", "mlx5_3/1", 90),
    ("qp-storm", "qp.cache_pressure", "mlx5_0/1", 60),
    ("shared-pcie", "pcie.shared_uplink", "mlx5_0 0000:16:00.0", 60),
    ("small-messages", "qp.small_messages", "mlx5_", 60),
    ("rail-asymmetry", "ecn.rail_asymmetry", "mlx5_6/1", 60),
];
const SIZES: [(u16, u16); 4] = [(60, 16), (80, 24), (120, 40), (200, 60)];

/// A text without its line breaks and the spaces around them.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_scenario_s_fault_stands_on_the_overview_before_a_key_is_pressed_and_enter_leads_to_all_about_it() {
    for (scenario, rule, subject, latest) in FAULTS {
        let mut play = Play::new(scenario);
        let raised = (1..=latest).find(|second| {
            let world = play.until(second * SECOND);
            world.findings.iter().any(|finding| finding.rule == rule && finding.part_of.is_none())
        });
        let Some(raised) = raised else { panic!("{scenario}: {rule} was not raised within {latest} s") };
        let feed = play.feed((raised + 2) * SECOND);
        let world = feed.latest().world.clone();
        let worst = &world.findings[0];
        assert_eq!(worst.rule, rule, "{scenario}");
        let charts: Vec<String> = world.findings.iter().flat_map(|finding| misnamed(&world, finding)).collect();
        assert_eq!(charts, [""; 0], "{scenario}");
        assert!(worst.subject.to_string().starts_with(subject), "{scenario}: {}", worst.subject);
        // Its first words: a summary may be longer than a small screen has lines.
        let first: String = flat(&worst.summary).chars().take(40).collect();
        for size in SIZES {
            let overview = screen(feed.clone(), size, &[]);
            assert!(flat(&overview).contains(&first), "{scenario} {size:?}: {first}\n{overview}");
            assert!(overview.contains(rule), "{scenario} {size:?}\n{overview}");
        }
        let told = screen(feed.clone(), (80, 24), &["Enter"]);
        assert!(told.contains(&worst.id()), "{scenario}\n{told}");
        assert!(told.contains("SERIES") && told.contains(" do  "), "{scenario}\n{told}");
        let mut pages = told;
        for n in 1..6 {
            let keys: Vec<&str> = std::iter::once("Enter").chain(std::iter::repeat_n("PgDn", n)).collect();
            pages += &screen(feed.clone(), (80, 24), &keys);
        }
        for part in [" by hand ", "$ ", " meaning ", " how sure "] {
            assert!(pages.contains(part), "{scenario}: {part}\n{pages}");
        }
    }
}

#[test]
fn a_healthy_node_shows_no_finding() {
    let overview = screen(Play::new("healthy").feed(60 * SECOND), (80, 24), &[]);
    assert!(overview.contains("findings: none"), "{overview}");
    assert!(!overview.contains('●'), "{overview}");
}

/// Not a test but a tool: `cargo test --release -p rdmascope --lib frames -- --ignored --nocapture`.
#[test]
#[ignore = "tool: prints how long a frame of each pane takes with all QPs a NIC can have; figures, not facts"]
fn frames() {
    let feed = Play::new("qp-storm").feed(26 * SECOND);
    let area = Rect::new(0, 0, 200, 60);
    for pane in crate::pane::PaneId::ALL {
        let options = ScreenOptions { first: pane, ..ScreenOptions::default() };
        let mut app = App::new(feed.clone(), options, true);
        let mut times = Vec::new();
        for round in 0..6 {
            if round < 5 {
                let latest = feed.latest();
                feed.publish(latest.world.clone(), latest.status.clone());
                app.look();
            }
            let start = std::time::Instant::now();
            app.draw(area, &mut Buffer::empty(area), 1);
            times.push(start.elapsed());
        }
        println!("{}: new worlds {:?}, the same world {:?}", pane.title(), &times[..5], times[5]);
    }
}

/// Not a test but a tool: `LOOK="qp-storm 60" cargo test -p rdmascope --lib kept -- --ignored --nocapture`.
#[test]
#[ignore = "tool: prints how far back one can look after some seconds of a scenario, and what that takes; figures, not facts"]
fn kept() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap() / 1024
    };
    let asked = std::env::var("LOOK").unwrap();
    let (scenario, seconds) = asked.split_once(' ').unwrap();
    let (mut moments, mut play) = (Moments::default(), Play::new(scenario));
    for second in 1..=seconds.parse().unwrap() {
        let (world, status) = (play.until(second * SECOND), Status::new(Mode::Demo));
        moments.keep(&Arc::new(Published { generation: second, world, status }));
    }
    println!("{asked}: {moments}; {} MiB resident with the engine and all else", resident());
}

/// Not a test but a tool: what of `tests/tests/screens/scenarios.toml` does not stand on the screen, long before a terminal says so:
/// `cargo test -p rdmascope --lib facts -- --ignored --nocapture`.
#[test]
#[ignore = "tool: prints the facts of the terminal test that are not on the screen"]
fn facts_of_the_terminal_test() {
    let table: toml::Table = toml::from_str(include_str!("../../tests/tests/screens/scenarios.toml")).unwrap();
    for scenario in table["scenario"].as_array().unwrap() {
        let number = |key: &str| scenario.get(key).and_then(toml::Value::as_integer);
        let name = scenario["name"].as_str().unwrap();
        let mut play = Play::new(name);
        if let Some(qps_per_port) = number("qps_per_port").map(|n| u32::try_from(n).unwrap()) {
            play.simulator = Simulator::with_size(name, 1, collector::sim::Size { qps_per_port }).unwrap();
        }
        play.until(u64::try_from(number("seconds").unwrap()).unwrap() * SECOND);
        play.engine.finish();
        let world = play.engine.snapshot();
        let status = Status { sources: vec![play.simulator.availability()], ..Status::new(Mode::Replay) };
        let feed = Feed::new(world.clone(), status.clone());
        feed.publish(world, status);
        let panes: Vec<String> = (1..=9).map(|pane| pane.to_string()).collect();
        for at in 0..panes.len() {
            let keys: Vec<&str> = panes[..=at].iter().map(String::as_str).collect();
            let text = screen(feed.clone(), (120, 40), &keys);
            for fact in scenario[&panes[at]].as_array().unwrap().iter().filter_map(toml::Value::as_str) {
                if !text.contains(fact) {
                    println!("{name} {}: {fact:?}\n{text}", panes[at]);
                }
            }
        }
    }
}
