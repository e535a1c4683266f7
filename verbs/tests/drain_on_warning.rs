//! The part of the example `drain_on_warning` that needs no RDMA: what it hears of the socket.

#[path = "../examples/drain_on_warning/warnings.rs"]
mod warnings;

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use self::warnings::{Heard, Warnings};

fn heard(warnings: &mut Warnings) -> Heard {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(heard) = warnings.next() {
            return heard;
        }
        assert!(Instant::now() < deadline, "nothing is heard");
        std::thread::yield_now();
    }
}

#[test]
fn the_end_of_the_stream_is_told_once_after_the_last_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let collect = std::thread::spawn(move || {
        let (mut reader, _) = listener.accept().unwrap();
        reader.write_all(b"{\"hello\":\"rdmascope\",\"version\":1}\n").unwrap();
        reader.write_all(b"{\"subject\":{\"device\":\"a\"},\"predicted_failure\":true}\n").unwrap();
    });
    let mut warnings = Warnings::subscribe(path.to_str().unwrap(), ["a".to_owned(), "b".to_owned()]).unwrap();
    collect.join().unwrap();
    assert!(matches!(heard(&mut warnings), Heard::Warning(finding) if finding["subject"]["device"] == "a"));
    assert_eq!(heard(&mut warnings), Heard::End);
    assert_eq!(warnings.next(), None);
}
