//! Shows the screens on a made-up node: `cargo run --example screens [--calm] [--seconds N] [--broken-after N] [--ascii]`.

#[path = "../src/sample.rs"]
#[allow(dead_code)]
mod sample;

use std::time::Duration;

use collector::clock::monotonic_ns;
use collector::feed::{Command, Feed, Mode};
use collector::inventory::{DeviceId, PortKey};
use rdmascope_screens::{ScreenOptions, run};

fn number(args: &[String], name: &str) -> Option<u64> {
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1)?.parse().ok()
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let mut node = sample::Node::new(!has("--calm"));
    for _ in 0..number(&args, "--seconds").unwrap_or(100) {
        node.second();
    }
    let feed = Feed::new(node.world(), sample::Node::status(Mode::Live));
    let producer = feed.clone();
    let broken_after = number(&args, "--broken-after");
    std::thread::spawn(move || {
        for second in 0u64.. {
            let mut status = sample::Node::status(Mode::Live);
            status.published_at = monotonic_ns();
            let mut world = node.world();
            if broken_after.is_some_and(|after| second >= after) {
                // A world no engine makes: drawing it panics, which shows what the terminal looks like afterwards.
                let world = std::sync::Arc::make_mut(&mut world);
                for port in &mut world.ports {
                    std::sync::Arc::make_mut(port).key = PortKey { device: DeviceId(9_999), port: 1 };
                }
            }
            producer.publish(world, status);
            if producer.command_within(Duration::from_secs(1)) == Some(Command::Stop) {
                return;
            }
            node.second();
        }
    });
    run(feed, ScreenOptions { ascii: has("--ascii"), ..ScreenOptions::default() })
}
