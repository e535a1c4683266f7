//! The program that makes QPs does not outlive the one that started it, also where that is killed.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// A pipe into which nothing more can be written without waiting.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a pipe need not wait");
    while writer.write(&[b' '; 4096]).is_ok() {}
    while writer.write(b" ").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).expect("a pipe can wait");
    (reader, writer)
}

/// The letter of a process's state; `None` where it has ended. One that nobody has waited for has ended as well.
fn state(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.get(stat.rfind(')')? + 2..)?.chars().next().filter(|state| *state != 'Z')
}

#[test]
fn the_program_that_makes_qps_ends_with_the_one_that_started_it() {
    // At run time: the shell that wraps rustc hands on no variable with a hyphen in its name.
    let program = std::env::var("CARGO_BIN_EXE_rdmascope-verbs").expect("cargo tells where it built it");
    let (_reader, full) = full_pipe();
    // What it prints finds no room, so that it waits. It opens no device.
    let started = "\"$0\" operations --allow-changes --device no-such-device >&2 & echo $!; wait";
    let mut parent = Command::new("sh")
        .args(["-c", started, &program])
        .stdout(Stdio::piped())
        .stderr(full)
        .spawn()
        .expect("there is a shell");
    let mut pid = String::new();
    BufReader::new(parent.stdout.take().expect("piped")).read_line(&mut pid).expect("the shell tells the process");
    let pid = pid.trim();
    let exe = format!("/proc/{pid}/exe");
    let program = fs::canonicalize(&program).expect("it was built");
    let waits = || fs::read_link(&exe).is_ok_and(|exe| exe == program) && state(pid) == Some('S');
    until("it does not come to what it prints", waits);
    parent.kill().expect("it lives");
    parent.wait().expect("it is a child of this process");
    until("it outlives the one that started it", || state(pid).is_none());
}
