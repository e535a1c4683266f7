//! Records the dialogues that `dialogues/*.json` hold, on a node with two `rdma_rxe` devices; the file names the kernel.
//!
//! To record another one: `NLDEV_DIALOGUE=out.json <test binary> --ignored --exact
//! source::nldev::stored::record_a_dialogue --nocapture`, as root, with QPs in use.

use std::sync::{Arc, Mutex};

pub(super) use crate::source::netlink::stored::{Asked, Datagram, Dialogue, Exchange, Recorder, Stored};

/// Polls a real kernel, prints what is emitted as JSON Lines, and writes the dialogue to `$NLDEV_DIALOGUE`.
#[test]
#[ignore = "tool: records a dialogue on a node with RDMA devices"]
fn record_a_dialogue() {
    use super::monitor::Monitor;
    use super::{Conversation, Link, Nldev, Options, SECOND, availability};
    use crate::source::Source as _;

    let options = Options::default();
    let dialogue: Arc<Mutex<Dialogue>> = Arc::default();
    let conversation = || {
        let socket = super::transport::open().unwrap();
        Conversation::new(Box::new(Recorder { socket, dialogue: Arc::clone(&dialogue), current: 0 }))
    };
    let sets = super::sets::BoundSets::new(availability::opener(&options.proc));
    let link = match availability::open(&options.proc) {
        Link::Open { .. } => Link::Open { questions: conversation(), lists: conversation() },
        closed @ Link::Closed { .. } => closed,
    };
    let mut source = Nldev::over(link, sets, Monitor::default(), options);
    let started = std::time::Instant::now();
    for round in 0..std::env::var("NLDEV_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap()) {
        let mut now = (1 + round * 5) * SECOND;
        let mut lines = Vec::new();
        loop {
            source.poll(now, &mut |observation| {
                lines.extend_from_slice(format!("{round} {} ", observation.body.type_name()).as_bytes());
                observation.body.write_json(&mut lines).unwrap();
                lines.push(b'\n');
            });
            let Some(listing) = &source.listing else { break };
            println!("a step ended, the next is due {} ms later", (listing.due() - now) / 1_000_000);
            now = listing.due();
        }
        println!("{}", String::from_utf8(lines).unwrap());
        println!("ports {:?}", source.ports());
        println!(
            "covered {:?} events {} after {:?}",
            source.covered_devices(),
            source.device_events(),
            started.elapsed()
        );
        println!("{}", serde_json::to_string(&source.availability()).unwrap());
        if let Ok(gate) = std::env::var("NLDEV_GATE") {
            let gate = format!("{gate}.{round}");
            std::fs::write(format!("{gate}.done"), "").unwrap();
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
            while !std::path::Path::new(&gate).exists() && std::time::Instant::now() < deadline {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
    let mut dialogue = dialogue.lock().unwrap();
    dialogue.kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned();
    if let Ok(path) = std::env::var("NLDEV_DIALOGUE") {
        std::fs::write(path, serde_json::to_vec(&*dialogue).unwrap()).unwrap();
    }
}
