//! `collect` as a service runs it: its start, its socket and hooks, its end.

use std::io::{BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Stdio;

use end_to_end::binary::wait_until;
use end_to_end::desk::{Desk, LONG, connect};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn a_fallen_port_reaches_socket_hook_and_recording_and_a_signal_ends_it_properly() {
    let desk = Desk::new();
    desk.hook("cat > input.part; mv input.part input");
    let line = "--config @c.toml collect --sysfs-root @tree --interval 100ms --socket @s --record @r.jsonl.zst";
    let collecting = desk.start(line);
    for word in ["collecting from", "socket", "1 hook", "recording"] {
        assert!(collecting.first.contains(word), "{}", collecting.first);
    }
    let mut lines = connect(&desk.at("s"));
    assert_eq!(lines.next().expect("a greeting")["hello"], "rdmascope");
    desk.fall_until("tree", || desk.at("input").exists());
    let mut raised = lines
        .filter(|line| line["state"] == "raised")
        .map(|line| (line["rule"].clone(), line["predicted_failure"].clone()));
    let told: Vec<_> = raised.by_ref().take(2).collect();
    assert!(told.contains(&("link.down".into(), false.into())), "{told:?}");
    assert!(told.contains(&("nic.composite".into(), true.into())), "{told:?}");
    let input: Value = serde_json::from_slice(&std::fs::read(desk.at("input")).expect("its input")).expect("JSON");
    assert_eq!(input["finding"]["rule"], "link.down");
    assert!(input["t_spawn"].as_u64() >= input["t_event"].as_u64());
    let (code, rest) = collecting.end(Signal::TERM);
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains(" started, 0 failed") && rest.lines().count() == 1, "{rest}");
    let _ = raised.count();
    assert!(!desk.at("s").exists());
    let read = desk.run("ports --json --recording @r.jsonl.zst");
    assert_eq!((read.code, read.stderr.as_str()), (Some(0), ""), "nothing of the recording was lost");
    assert!(!read.json()["ports"][0]["state"].is_null());
}

#[test]
fn every_ending_signal_ends_it_although_a_hook_hangs() {
    for signal in [Signal::TERM, Signal::INT] {
        let desk = Desk::new();
        desk.hook("echo $$ > pid; exec sleep 1000");
        let collecting = desk.start("--config @c.toml collect --sysfs-root @tree --interval 100ms --socket off");
        let pid = || std::fs::read_to_string(desk.at("pid")).unwrap_or_default();
        desk.fall_until("tree", || pid().ends_with('\n'));
        let (code, rest) = collecting.end(signal);
        assert_eq!(code, Some(0), "{rest}");
        assert!(!PathBuf::from("/proc").join(pid().trim()).exists(), "the hook is still there");
    }
}

#[test]
fn a_second_one_is_told_and_a_killed_ones_socket_is_replaced() {
    let desk = Desk::new();
    let mut first = desk.start("collect --sysfs-root @tree --socket @s");
    desk.run("collect --sysfs-root @tree --socket @s").says(2, &["@s".trim_start_matches('@'), "another", "--socket"]);
    first.child.kill().expect("it is there");
    first.child.wait().expect("it ends");
    assert!(desk.at("s").exists(), "a killed process removes nothing");
    let second = desk.start("collect --sysfs-root @tree --socket @s");
    assert!(connect(&desk.at("s")).next().is_some());
    assert_eq!(second.end(Signal::TERM).0, Some(0));
}

#[test]
fn what_cannot_work_is_said_at_the_start_in_one_line() {
    let desk = Desk::new();
    desk.hook("true");
    let hook = desk.at("hook");
    let _listener = UnixListener::bind(desk.at("other")).expect("a socket");
    std::fs::write(desk.at("file"), "precious").expect("written");
    for (line, words) in [
        ("collect --sysfs-root @tree --socket @none/there/s", &["cannot make the socket", "No such file"][..]),
        ("collect --sysfs-root @tree --socket @file", &["no socket"]),
        ("collect --sysfs-root @tree --socket @other", &["another"]),
        ("collect --sysfs-root @tree --socket @s --socket-group no-such-group", &["no-such-group"]),
        ("collect --sysfs-root @tree --socket off --record @file", &["exists", "force"]),
        ("collect --socket off --replay @file", &["file"]),
        ("collect --socket off --replay @none", &["none", "No such file"]),
        ("collect --socket off --scenario nope", &["nope", "healthy"]),
        ("collect --stay", &["--replay"]),
    ] {
        desk.run(line).says(2, words);
    }
    assert_eq!(std::fs::read_to_string(desk.at("file")).expect("it is there"), "precious");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o644)).expect("it can be changed");
    desk.run("--config @c.toml collect --sysfs-root @tree --socket off").says(2, &["hook", "not executable"]);
    std::fs::remove_file(&hook).expect("it is there");
    desk.run("--config @c.toml collect --sysfs-root @tree --socket off").says(2, &["hook", "No such file"]);
    assert_eq!(desk.run("--config @c.toml ports --sysfs-root @tree").code, Some(0), "only collect needs its hooks");
}

#[test]
fn a_full_or_stalled_standard_error_costs_its_lines_and_nothing_else() {
    let desk = Desk::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut ended = desk.command("collect --sysfs-root @tree --socket off --for 300ms");
    assert_eq!(ended.stderr(full).status().expect("it starts").code(), Some(0));
    // A pipe that is full, and whose reader reads no more.
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&vec![b'.'; 65_536]).expect("as much as a pipe holds");
    desk.hook("echo x >> started; exit 1");
    let line = "--config @c.toml collect --sysfs-root @tree --interval 100ms --socket off";
    let mut child = desk.command(line).stderr(writer).stdout(Stdio::null()).spawn().expect("it starts");
    let started = || std::fs::read_to_string(desk.at("started")).unwrap_or_default().lines().count();
    desk.fall_until("tree", || started() > 0);
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::TERM).expect("it is there");
    let mut code = None;
    let ends = wait_until(LONG, || {
        code = child.try_wait().expect("it can be waited for");
        code.is_some()
    });
    assert!(ends, "it waits for a reader that has stalled");
    assert_eq!(code.and_then(|code| code.code()), Some(0));
    drop(reader);
}

#[test]
fn without_a_device_it_says_so_once_and_watches_the_one_that_comes() {
    let desk = Desk::new();
    std::fs::create_dir_all(desk.at("empty/class")).expect("a tree can be made");
    let mut collecting = desk.start("collect --sysfs-root @empty --interval 100ms --socket @s");
    let mut second = String::new();
    collecting.errors.read_line(&mut second).expect("a line");
    assert!(second.contains("no RDMA subsystem") && second.contains("waiting"), "{second}");
    let mut lines = connect(&desk.at("s"));
    assert!(lines.next().is_some());
    let told = std::thread::spawn(move || lines.any(|line| line["rule"] == "link.down"));
    desk.fall_until("empty", || told.is_finished());
    assert!(told.join().expect("the reader does not panic"));
    let (code, rest) = collecting.end(Signal::TERM);
    assert_eq!((code, rest.lines().count()), (Some(0), 1), "{rest}");
}

#[test]
fn a_recording_drives_socket_and_hooks_as_the_node_did() {
    let desk = Desk::new();
    desk.hook("cat >> told");
    let collecting = desk.start("collect --scenario aer-then-down --for 1s --socket off --record @r.jsonl");
    assert_eq!(collecting.end(Signal::TERM).0, Some(0));
    let log = [
        r#"{"type":"header","format":"rdmascope-recording","version":1,"host":"node1"}"#,
        r#"{"t":1,"type":"device","device":"d","driver":"mlx5_core","pci":"0000:01:00.0"}"#,
        r#"{"t":1,"type":"port","device":"d","port":1,"link_layer":"Ethernet","state":"ACTIVE"}"#,
        r#"{"t":2000000000,"type":"async","device":"d","port":1,"event":"PORT_ERR"}"#,
        r#"{"t":4000000000,"type":"source","source":"sysfs","state":"ok"}"#,
    ];
    std::fs::write(desk.at("log.jsonl"), log.join("\n")).expect("written");
    let collecting = desk.start("--config @c.toml collect --replay @log.jsonl --speed max --stay --socket @s");
    assert!(wait_until(LONG, || desk.at("told").exists()), "the hook was not started");
    // The socket has a thread of its own: the hook may have been started before it took the findings.
    let greeted = || connect(&desk.at("s")).next().is_some_and(|hello| hello["raised"] == 2);
    assert!(wait_until(LONG, greeted), "the socket does not know of two findings");
    let lines: Vec<Value> = connect(&desk.at("s")).take(3).collect();
    assert_eq!(lines[0]["host"], "node1");
    assert!(lines.iter().any(|line| line["rule"] == "link.down"), "{lines:?}");
    assert_eq!(collecting.end(Signal::TERM).0, Some(0));
    let run = desk.run("collect --replay @log.jsonl --speed max --socket off");
    assert_eq!(run.code, Some(0), "without --stay it ends with the recording: {run:?}");
}
