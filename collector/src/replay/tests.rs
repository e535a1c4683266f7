//! Tests of going to a time: progress, and stopping on the way.

use super::*;
use crate::observation::recording::{Header, Writer};
use crate::observation::{Body, Note, Observation};

const SECOND: u64 = 1_000_000_000;

/// A recording of so many seconds, ten notes each.
fn recording(seconds: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::new(file.reopen().unwrap(), false, &Header::new()).unwrap();
    for tick in 0..seconds * 10 {
        let body = Body::Note(Note { source: "test".into(), text: format!("tick {tick}").into() });
        writer.write(&Observation { t: SECOND + tick * SECOND / 10, body }).unwrap();
    }
    writer.finish().unwrap();
    file
}

/// Waits until a publication is as wanted.
fn wait(feed: &Feed, wanted: impl Fn(&Status, &World) -> bool) -> Arc<crate::feed::Published> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut generation = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(latest) = feed.newer_than(generation, left) else {
            panic!("it never came: {:?}", feed.latest().status)
        };
        if wanted(&latest.status, &latest.world) {
            return latest;
        }
        generation = latest.generation;
    }
}

#[test]
fn on_the_way_to_a_time_the_way_is_told_and_there_it_stands() {
    let file = recording(600);
    let player = Player::open(file.path(), Settings::default(), 1.0).unwrap();
    let feed = player.feed();
    let thread = player.spawn().unwrap();
    feed.send(Command::Seek(500 * SECOND));
    let there = wait(&feed, |status, world| status.paused && status.seeking.is_none() && world.now >= 500 * SECOND);
    let read = there.status.read_share.unwrap();
    assert!((0.5..1.0).contains(&read), "{read}");
    feed.send(Command::Seek(u64::MAX));
    let end = wait(&feed, |status, _| status.ended);
    assert_eq!((end.status.read_share, end.status.seeking), (Some(1.0), None));
    feed.send(Command::Seek(100 * SECOND));
    wait(&feed, |status, world| !status.ended && status.seeking.is_none() && world.now / SECOND == 100);
    feed.send(Command::Stop);
    thread.join().unwrap();
}

#[test]
fn a_pause_on_the_way_stops_there() {
    let file = recording(20_000);
    let mut player = Player::open(file.path(), Settings::default(), 1.0).unwrap();
    player.obey(&Command::Seek(u64::MAX));
    player.play();
    assert_eq!(player.status.seeking, Some(u64::MAX));
    player.obey(&Command::Pause);
    assert!(player.status.paused && player.until.is_none());
    let latest = player.feed.latest();
    assert_eq!(latest.status.seeking, None);
    assert!(latest.world.now < 20_000 * SECOND && !latest.status.ended);
}

#[test]
fn at_its_end_a_recording_is_on_its_way_nowhere() {
    let file = recording(5);
    let mut player = Player::open(file.path(), Settings::default(), f64::INFINITY).unwrap();
    player.obey(&Command::Seek(u64::MAX));
    while !player.status.ended {
        player.play();
    }
    for command in [Command::Step, Command::Seek(u64::MAX), Command::Seek(player.engine.world().now)] {
        player.obey(&command);
        assert_eq!((player.status.seeking, player.status.ended), (None, true), "{command:?}");
    }
    player.obey(&Command::Seek(SECOND));
    assert_eq!(
        (player.status.seeking, player.status.ended),
        (Some(SECOND), false),
        "backwards there is somewhere to go"
    );
}

#[test]
fn gaps_that_are_skipped_are_counted_in_one_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::new(file.reopen().unwrap(), false, &Header::new()).unwrap();
    for minute in 0..60u64 {
        let body = Body::Note(Note { source: "test".into(), text: format!("minute {minute}").into() });
        writer.write(&Observation { t: SECOND + minute * 60 * SECOND, body }).unwrap();
    }
    writer.finish().unwrap();
    let player = Player::open(file.path(), Settings::default(), 1.0).unwrap();
    let feed = player.feed();
    let thread = player.spawn().unwrap();
    let end = wait(&feed, |status, _| status.ended);
    assert_eq!(
        end.status.done,
        [
            "3540 s without an observation were skipped in 59 gaps, the first 0 s and the last 3480 s after the beginning"
        ]
    );
    feed.send(Command::Stop);
    thread.join().unwrap();
}
