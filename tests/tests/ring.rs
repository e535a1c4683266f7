//! The recording ring of `collect`: an incident of a port that falls, a collector that is killed, a disk that is full.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use end_to_end::binary::{path, wait_until};
use end_to_end::desk::{Desk, LONG};
use rustix::process::Signal;

fn named(directory: &Path, start: &str, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            name.starts_with(start) && name.ends_with(end)
        })
        .collect();
    paths.sort();
    paths
}

#[test]
fn a_critical_finding_leaves_an_incident_that_replay_gives_the_finding_of() {
    let desk = Desk::new();
    let line = "collect --sysfs-root @tree --interval 100ms --socket off --ring @ring --incident-after 1s";
    let mut collecting = desk.start_service(line, &[]);
    assert!(collecting.first.contains("ring "), "{}", collecting.first);
    desk.fall_until("tree", || !named(&desk.at("ring"), "incident-", ".part").is_empty());
    assert!(collecting.line().contains("saved"));
    let incident = named(&desk.at("ring"), "incident-", ".jsonl.zst").remove(0);
    let name = incident.display();
    let replayed = desk.run(&format!("replay --json {name}"));
    assert_eq!((replayed.code, replayed.stderr.as_str()), (Some(0), ""));
    let raised = |rule: &str| {
        replayed
            .stdout
            .lines()
            .any(|line| line.contains(&format!("\"rule\":\"{rule}\"")) && line.contains("\"raised\""))
    };
    assert!(raised("nic.composite") && raised("link.down"), "{replayed:?}");
    let rule = name.to_string();
    assert!(rule.contains("nic.composite") || rule.contains("link.down"), "{rule}");
    let (code, rest) = collecting.end(Signal::TERM);
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains(" saved"), "{rest}");
}

#[test]
fn what_a_killed_collector_left_is_read_and_taken_up() {
    let desk = Desk::new();
    let line = "collect --sysfs-root @tree --interval 100ms --socket off --ring @ring";
    let mut killed = desk.start_service(line, &[]);
    desk.fall_until("tree", || !named(&desk.at("ring"), "incident-", ".part").is_empty());
    // What was observed a second ago is on disk.
    let part = named(&desk.at("ring"), "incident-", ".part").remove(0);
    let segment = named(&desk.at("ring"), "ring-", ".jsonl.zst").remove(0);
    let sizes = || [&part, &segment].map(|path| std::fs::metadata(path).map_or(0, |metadata| metadata.len()));
    let before = sizes();
    assert!(wait_until(LONG, || sizes().iter().zip(before).all(|(now, before)| *now > before)));
    desk.run(line).says(2, &["ring", "another rdmascope collect has it"]);
    killed.child.kill().expect("it is there");
    killed.child.wait().expect("it ends");
    let cut = desk.run(&format!("ports --json --recording {}", segment.display()));
    assert_eq!(cut.code, Some(0), "{cut:?}");
    assert!(!cut.json()["ports"][0]["state"].is_null(), "{cut:?}");
    let mut next = desk.start_service(line, &[]);
    // The ring is opened aside, so its word may come before the service's or after it.
    let told = [next.first.clone(), next.line()];
    assert!(told.iter().any(|line| line.contains("ends early")), "{told:?}");
    let whole = part.with_extension("");
    assert!(whole.exists() && !part.exists() && segment.exists());
    let findings = desk.run(&format!("findings --json --recording {}", whole.display()));
    assert!(findings.stdout.contains("nic.composite"), "{findings:?}");
    assert_eq!(next.end(Signal::TERM).0, Some(0));
}

/// Runs in a mount namespace of its own, with a small file system at `ring`. Prints the skip where that is not allowed.
fn on_a_small_disk(desk: &Desk, size: &str, line: &str) -> Option<Command> {
    let ring = desk.at("ring");
    std::fs::create_dir_all(&ring).expect("a directory");
    let mount = format!("mount -t tmpfs -o size={size} none '{}'", ring.display());
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).stdin(Stdio::null());
        command
    };
    if !unshare(&mount).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("skipped: no file system can be mounted here (unshare --user --map-root-user --mount)");
        return None;
    }
    let plain = desk.command(line);
    // It starts the binary itself: without what the desk has before its path.
    let words: Vec<String> = plain.get_args().skip(2).map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let mut command = unshare(&format!("{mount} && exec setsid '{}' {}", path().display(), words.join(" ")));
    command.env_remove("NOTIFY_SOCKET");
    Some(command)
}

#[test]
fn a_full_disk_costs_the_ring_only_and_is_written_again_when_there_is_room() {
    let desk = Desk::new();
    let line = "collect --sysfs-root @tree --interval 100ms --socket @s --ring @ring --ring-minutes 1";
    let Some(command) = on_a_small_disk(&desk, "64k", line) else { return };
    let mut collecting = desk.start_command(command);
    assert!(collecting.first.contains("ring "), "{}", collecting.first);
    let there = Path::new("/proc").join(collecting.child.id().to_string()).join("root");
    let ring = there.join(desk.at("ring").strip_prefix("/").expect("an absolute path"));
    assert!(wait_until(LONG, || !named(&ring, "ring-", ".zst").is_empty()));
    // Nothing is left for it.
    let filling = ring.join("filling");
    let _ = std::fs::write(&filling, vec![b'.'; 1 << 20]);
    let said = collecting.line();
    assert!(said.contains("ring stopped") && said.contains("the disk is full") && said.contains("again"), "{said}");
    // The rest goes on.
    let mut lines = end_to_end::desk::connect(&desk.at("s"));
    let told = std::thread::spawn(move || lines.any(|line| line["rule"] == "link.down"));
    desk.fall_until("tree", || told.is_finished());
    std::fs::remove_file(&filling).expect("it can be removed");
    let mut said = String::new();
    while !said.contains("is written again") {
        said = collecting.line();
        assert!(!said.contains("stopped"), "said once: {said}");
    }
    let (code, rest) = collecting.end(Signal::TERM);
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("missing in the ring"), "{rest}");
}
