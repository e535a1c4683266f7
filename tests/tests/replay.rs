//! A recording gives the findings of the live run, byte for byte, whatever file it lies in.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use end_to_end::binary::{Run, command, wait_until};
use end_to_end::fixture::Case;
use serde_json::Value;

const LONG: Duration = Duration::from_secs(20);

fn replay(recording: &Path) -> String {
    let run = Run::of([Path::new("replay"), Path::new("--json"), recording]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    run.stdout
}

/// The same recording compressed, or plain.
fn converted(recording: &Path) -> PathBuf {
    let bytes = std::fs::read(recording).expect("a recording");
    if recording.extension().is_some_and(|extension| extension == "zst") {
        let plain = recording.with_extension("plain.jsonl");
        std::fs::write(&plain, zstd::decode_all(&*bytes).expect("it is compressed")).expect("it can be written");
        return plain;
    }
    let packed = recording.with_extension("packed.zst");
    std::fs::write(&packed, zstd::encode_all(&*bytes, 3).expect("it can be compressed")).expect("it can be written");
    packed
}

#[test]
fn imported_trees_give_the_same_findings_each_time_and_compressed() {
    for (number, findings) in [("10", true), ("20", true), ("14", false), ("23", false), ("53", false), ("55", false)] {
        let case = Case::unpack(number);
        let desk = tempfile::tempdir().expect("a temporary directory");
        let mut replayed = Vec::new();
        for name in ["a.jsonl", "b.jsonl.zst"] {
            let recording = desk.path().join(name);
            let run = Run::of([Path::new("import"), &case.path(), Path::new("-o"), &recording]);
            assert_eq!(run.code, Some(0), "{run:?}");
            replayed.extend([replay(&recording), replay(&recording), replay(&converted(&recording))]);
        }
        assert!(replayed.iter().all(|lines| *lines == replayed[0]), "case {number}: {replayed:#?}");
        assert_eq!(!replayed[0].is_empty(), findings, "case {number}: {}", replayed[0]);
        let print = |file: &str| {
            let run =
                Run::of([Path::new("ports"), Path::new("--json"), Path::new("--recording"), &desk.path().join(file)]);
            run.json()
        };
        assert_eq!(print("a.jsonl"), print("b.jsonl.zst"), "case {number}");
    }
}

#[test]
fn the_simulated_fabric_gives_the_same_findings_each_time_and_others_with_another_seed_only() {
    let demo = |seed: &str| {
        let run = Run::of(["demo", "--json", "--for", "50s", "--seed", seed]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        run.stdout
    };
    let first = demo("1");
    assert!(first.lines().any(|line| line.contains("\"rule\":\"link.down\"")), "{first}");
    assert_eq!(first, demo("1"));
    // Another seed moves moments and numbers, not what is wrong.
    let rules = |lines: &str| {
        let rule = |line: &str| serde_json::from_str::<Value>(line).expect("a finding")["rule"].to_string();
        lines.lines().map(rule).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(rules(&first), rules(&demo("2")));
}

/// A device of two ports below a temporary root.
fn tree(dir: &Path) {
    for (device, pci) in [("mlx5_0", "0000:3b:00.0"), ("mlx5_1", "0000:5e:00.0")] {
        let function = dir.join("devices/pci0000:3a").join(pci);
        let port = function.join("infiniband").join(device).join("ports/1");
        std::fs::create_dir_all(port.join("counters")).expect("a tree can be made");
        std::fs::create_dir_all(dir.join("class/infiniband")).expect("a tree can be made");
        let target = format!("../../devices/pci0000:3a/{pci}/infiniband/{device}");
        std::os::unix::fs::symlink(target, dir.join("class/infiniband").join(device)).expect("a link can be made");
        for (file, text) in [
            ("state", "4: ACTIVE\n"),
            ("phys_state", "5: LinkUp\n"),
            ("rate", "200 Gb/sec (4X HDR)\n"),
            ("link_layer", "InfiniBand\n"),
            ("counters/port_xmit_data", "1000\n"),
            ("counters/port_rcv_data", "1000\n"),
            ("counters/link_downed", "0\n"),
        ] {
            std::fs::write(port.join(file), text).expect("a file can be written");
        }
    }
}

#[test]
fn a_port_that_goes_down_and_up_while_recording_is_told_alike_live_and_in_the_replay() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("sys");
    tree(&root);
    for name in ["live.jsonl", "live.jsonl.zst"] {
        let recording = dir.path().join(name);
        let args = ["record", "--json", "--interval", "100ms", "--sysfs-root"].map(Path::new);
        let mut child = command(args.into_iter().chain([&*root, &*recording]))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, receiver) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in output.lines() {
                if sender.send(line.expect("text")).is_err() {
                    return;
                }
            }
        });
        let state = root.join("class/infiniband/mlx5_1/ports/1/state");
        let mut live: Vec<String> = Vec::new();
        // The state stands still until the recording has begun to see it: only then is a fall one.
        let seen = || {
            let reader = collector::observation::recording::Reader::open(&recording);
            reader.is_ok_and(|mut reader| matches!(reader.next(|_| ()), Ok(Some(()))))
        };
        assert!(wait_until(LONG, seen), "nothing is recorded");
        for (text, wanted) in [("1: DOWN\n", "raised"), ("4: ACTIVE\n", "cleared"), ("1: DOWN\n", "raised")] {
            std::fs::write(&state, text).expect("the state can be written");
            let told = wait_until(LONG, || {
                live.extend(receiver.try_iter());
                live.last().is_some_and(|line| line.contains(&format!("\"state\":\"{wanted}\"")))
            });
            assert!(told, "link.down is not {wanted}: {live:#?}");
        }
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the child is there");
        let run = Run::from(child.wait_with_output().expect("it ends"));
        assert_eq!(run.code, Some(0), "{run:?}");
        reader.join().expect("the reader does not panic");
        live.extend(receiver.try_iter());
        std::fs::write(&state, "4: ACTIVE\n").expect("the state can be written");

        assert!(live[0].contains("\"rule\":\"link.down\"") && live[0].contains("mlx5_1"), "{live:#?}");
        let live: String = live.into_iter().map(|line| line + "\n").collect();
        assert_eq!(replay(&recording), live, "{name}");
        assert_eq!(replay(&converted(&recording)), live, "{name}, converted");
    }
}
