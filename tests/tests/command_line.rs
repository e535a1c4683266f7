//! The built binary on bad input: one clear line on standard error, the documented exit code, nothing of a panic. And on
//! signals, full disks and closed pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use end_to_end::binary::{Run, command, wait_until};
use end_to_end::fixture::Case;
use rustix::process::{Pid, Signal, kill_process};

const HEADER: &str = r#"{"type":"header","format":"rdmascope-recording","version":1}"#;
const LONG: Duration = Duration::from_secs(20);

/// A directory to work in, with a small tree of one ACTIVE port and some bad files.
struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        let port = desk.at("tree/class/infiniband/dev0/ports/1");
        std::fs::create_dir_all(port.join("counters")).expect("a tree can be made");
        let port_files = [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("link_layer", "InfiniBand"),
        ];
        for (file, text) in
            port_files.into_iter().chain([("counters/port_rcv_data", "7"), ("counters/port_xmit_data", "8")])
        {
            std::fs::write(port.join(file), text).expect("a file can be written");
        }
        desk
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.at(name), bytes).expect("a file can be written");
        self.at(name)
    }

    fn tree(&self) -> String {
        self.at("tree").display().to_string()
    }

    /// Runs with paths below the desk: `@name` stands for one.
    fn run(&self, line: &str) -> Run {
        Run::new(&mut self.command(line))
    }

    fn command(&self, line: &str) -> std::process::Command {
        let words = line.split_whitespace();
        command(words.map(|word| match word.strip_prefix('@') {
            Some(name) => self.at(name).display().to_string(),
            None => word.to_owned(),
        }))
    }
}

#[test]
fn a_wrong_command_line_is_one_line_that_says_what_is_wrong_and_exit_code_2() {
    let desk = Desk::new();
    for (line, words) in [
        ("--nope", &["'--nope'", "--help"][..]),
        ("--no-ebp", &["'--no-ebp'", "--no-ebpf"]),
        ("frobnicate", &["'frobnicate'"]),
        ("ports --json --nope", &["'--nope'"]),
        ("demo --json --scenario nope", &["\"nope\"", "there are: ", "healthy", "aer-then-down"]),
        ("--probe-budget 7 ports", &["--probe-budget", "1%", "off"]),
        ("--probe-budget 200% ports", &["--probe-budget", "200%"]),
        ("--probe-budget=-1% ports", &["--probe-budget"]),
        ("--interval 1ms ports", &["--interval", "100ms"]),
        ("--interval soon ports", &["--interval"]),
        ("--max-qps many ports", &["--max-qps", "many"]),
        ("--color sometimes ports", &["--color", "auto, always, never"]),
        ("--device [ ports", &["\"[\"", "pattern"]),
        ("record", &["<FILE>"]),
        ("record @x --for", &["--for"]),
        ("record @x --max-size 10X", &["--max-size", "K, M and G"]),
        ("record @x --max-size 1", &["--max-size", "1M"]),
        ("collect --record @x --record-max-size 512K", &["--record-max-size", "1M"]),
        ("collect --ring @x --ring-max-size 1", &["--ring-max-size", "1M"]),
        ("record - --for 0s", &["- is no file name", "/dev/stdout"]),
        ("demo --scenario nope", &["\"nope\"", "there are: "]),
        ("replay @none", &["none: No such file"]),
        ("ports --recording @x --for 1s", &["--for", "--recording"]),
        ("ports --recording @x --sysfs-root @tree", &["--sysfs-root", "--recording"]),
        ("replay @x --speed 0", &["--speed", "slowest speed"]),
        ("completions cobol", &["'cobol'", "bash", "zsh", "fish"]),
        ("import", &["<PATH>"]),
        ("whatif --kmin 1M", &["Kmin must not be above Kmax"]),
        ("whatif --against kmix=1", &["kmix", "kmin, kmax, pmax"]),
        ("whatif --for 50s --seeds 100", &["million packets"]),
        ("whatif --from mlx5_0/1 --recording @x", &["x"]),
        ("whatif --load lots", &["--load", "80%"]),
    ] {
        let run = desk.run(line);
        run.says(2, words);
        assert_eq!(run.stdout, "", "{line}");
    }
}

/// What a command that could not be carried out exits with: the 2 of `check` says that the node is critical.
fn failure(command: &str) -> i32 {
    if command.starts_with("check") { 3 } else { 2 }
}

#[test]
fn check_never_says_critical_of_what_it_could_not_do() {
    let desk = Desk::new();
    for (line, words) in [
        ("check --nope", &["'--nope'"][..]),
        ("check --for soon", &["--for"]),
        ("check --config @none.toml", &["none.toml"]),
        ("check --device [ --sysfs-root @tree", &["pattern"]),
    ] {
        desk.run(line).says(3, words);
    }
    assert_eq!(desk.run("check --for 0s --sysfs-root @tree").code, Some(0), "an ACTIVE port and nothing wrong");
}

#[test]
fn a_variable_is_read_like_its_flag_and_a_switch_takes_yes_and_no() {
    let desk = Desk::new();
    let with = |variable: &str, value: &str| {
        Run::new(desk.command("ports --json").env("RDMASCOPE_SYSFS_ROOT", desk.tree()).env(variable, value))
    };
    with("RDMASCOPE_PROBE_BUDGET", "7").says(2, &["--probe-budget", "1%"]);
    with("RDMASCOPE_COLOR", "sometimes").says(2, &["--color", "auto, always, never"]);
    with("RDMASCOPE_NO_EBPF", "perhaps").says(2, &["--no-ebpf", "yes nor no"]);
    for yes_or_no in ["1", "0", "true", "false", "yes", "no", ""] {
        let run = with("RDMASCOPE_NO_EBPF", yes_or_no);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{yes_or_no}");
        assert_eq!(run.json()["node"]["devices"], 1);
    }
    let excluded = with("RDMASCOPE_EXCLUDE", "other*,dev*").json();
    assert_eq!((&excluded["node"]["devices"], excluded["ports"].as_array().map(Vec::len)), (&0.into(), Some(0)));
    let flag_wins = Run::new(
        desk.command("ports --json --sysfs-root @tree")
            .env("RDMASCOPE_SYSFS_ROOT", "/nowhere")
            .env("RDMASCOPE_DEVICE", "d?v0"),
    );
    assert_eq!(flag_wins.json()["node"]["devices"], 1);
}

#[test]
fn the_configuration_file_is_used_and_what_is_wrong_in_it_is_said() {
    let desk = Desk::new();
    desk.write("good.toml", format!("sysfs-root = {:?}\ninterval = \"200ms\"\n", desk.tree()));
    assert_eq!(desk.run("--config @good.toml ports --json").json()["node"]["devices"], 1);
    desk.run("--config @none.toml ports").says(2, &["none.toml", "No such file"]);
    desk.run("--config @tree ports").says(2, &["tree", "directory"]);
    for (text, words) in [
        ("interval = \"1s\"\nintervall = 3\n", &["line 2", "intervall", "sysfs-root"][..]),
        ("interval = \"1ms\"\n", &["interval", "100ms"]),
        ("probe-budget = \"7\"\n", &["probe-budget"]),
        ("color = \"blue\"\n", &["color", "\"blue\""]),
        ("interval = 3\n", &["line 1"]),
        ("[rule.nope]\n", &["nope"]),
        ("not toml", &["line 1"]),
    ] {
        desk.write("bad.toml", text);
        desk.run("--config @bad.toml ports").says(2, words);
        // What makes a new file works beside a bad one.
        assert_eq!(desk.run("--config @bad.toml config").code, Some(0));
    }
    desk.write("bad.toml", [0xff, 0xfe]);
    desk.run("--config @bad.toml ports").says(2, &["bad.toml"]);
}

#[test]
fn a_recording_that_is_none_is_refused_by_every_command_that_reads_one() {
    let desk = Desk::new();
    desk.write("foreign", "hello\nworld\n");
    desk.write("binary", [0u8, 159, 146, 150, 10, 13]);
    desk.write("empty", "");
    desk.write("json", "{\"type\":\"device\",\"t\":1}\n");
    desk.write("newer", HEADER.replace(":1}", ":2}") + "\n");
    desk.write("cut.zst", &zstd::encode_all(HEADER.as_bytes(), 3).expect("it can be compressed")[..20]);
    desk.write("bad", format!("{HEADER}\n{}", "garbage\n".repeat(150)));
    for (file, words) in [
        ("none", &["No such file"][..]),
        ("tree", &["directory"]),
        ("foreign", &["not an rdmascope recording"]),
        ("binary", &["not an rdmascope recording"]),
        ("empty", &["empty"]),
        ("json", &["header"]),
        ("newer", &["version 2"]),
        ("cut.zst", &["cut off"]),
        ("bad", &["more than 100 bad lines in a row", "line 102"]),
    ] {
        for command in ["ports", "qps", "findings --json", "check", "replay --json"] {
            let argument = if command.starts_with("replay") { "" } else { "--recording" };
            let run = desk.run(&format!("{command} {argument} @{file}"));
            run.says(failure(command), words);
            assert!(run.stderr.contains(&format!("{file}:")) && run.stdout.is_empty(), "{run:?}");
        }
    }
}

#[test]
fn what_is_skipped_of_a_recording_is_counted_and_the_rest_is_judged() {
    let desk = Desk::new();
    let good =
        r#"{"t":1,"type":"port","device":"dev0","port":1,"link_layer":"InfiniBand","state":"ACTIVE","rate_gbps":100}"#;
    let later = good.replace("\"t\":1", "\"t\":2000000000");
    for (name, lines, words) in [
        ("types", r#"{"t":5,"type":"whale","x":1}"#.to_owned() + "\n" + r#"{"t":6,"type":"whale"}"#, &["whale ×2"][..]),
        ("fields", r#"{"t":5,"type":"device","device":"a","colour":"red"}"#.to_owned(), &["1 unknown field"]),
        ("line", "garbage".to_owned(), &["line 3", "skipped"]),
        ("utf8", "\u{0}".to_owned(), &["line 3", "skipped"]),
    ] {
        desk.write(name, format!("{HEADER}\n{good}\n{lines}\n{later}\n"));
        let run = desk.run(&format!("ports --json --recording @{name}"));
        run.says(0, words);
        assert_eq!(run.json()["ports"][0]["state"], "ACTIVE", "{name}");
    }
    desk.write("cut", format!("{HEADER}\n{good}\n{}", &later[..40]));
    let run = desk.run("ports --json --recording @cut");
    run.says(0, &["ends in the middle of line 3"]);
    assert_eq!(run.json()["ports"][0]["state"], "ACTIVE");
    // A compressed one that lost its end gives what can be decompressed: whole blocks.
    let many: String =
        (0..40_000u64).map(|n| good.replace("\"t\":1", &format!("\"t\":{}", n * 7919 * 1_000)) + "\n").collect();
    let whole = zstd::encode_all(format!("{HEADER}\n{many}").as_bytes(), 3).expect("it can be compressed");
    desk.write("cut.zst", &whole[..whole.len() * 3 / 4]);
    let run = desk.run("ports --json --recording @cut.zst");
    run.says(0, &["cut off after line"]);
    assert_eq!(run.json()["ports"][0]["state"], "ACTIVE");
}

#[test]
fn a_tree_that_is_none_is_said_and_one_of_garbage_costs_nothing() {
    let desk = Desk::new();
    desk.write("file", "x");
    for command in ["ports", "check", "doctor", "record @new.jsonl", ""] {
        desk.run(&format!("{command} --sysfs-root @none"))
            .says(failure(command), &["cannot open", "none", "No such file"]);
        desk.run(&format!("{command} --sysfs-root @file"))
            .says(failure(command), &["cannot open", "file", "Not a directory"]);
    }
    assert!(!desk.at("new.jsonl").exists(), "nothing is made before the tree is there");
    let garbage = desk.at("garbage/class/infiniband/x/ports/1");
    std::fs::create_dir_all(garbage.join("counters/directory")).expect("a tree can be made");
    std::fs::create_dir_all(garbage.join("hw_counters")).expect("a tree can be made");
    for file in ["state", "rate", "link_layer", "phys_state", "counters/port_rcv_data", "hw_counters/lifespan", "gids"]
    {
        std::fs::write(garbage.join(file), [0xff, 0, 7, b'\n', b'%', b's']).expect("a file can be written");
    }
    for command in ["ports --json", "check --json --for 0s", "qps --json", "doctor --json", "findings --json"] {
        let run = desk.run(&format!("{command} --sysfs-root @garbage"));
        assert!(run.stderr.is_empty() && run.code.is_some_and(|code| code < 4), "{command}: {run:?}");
        assert!(run.json().is_object(), "{command}");
    }
    let run = desk.run("ports --json --sysfs-root @garbage").json();
    assert_eq!((&run["ports"][0]["state"], &run["ports"][0]["rate_gbps"]), (&().into(), &().into()));
    assert_eq!(desk.run("check --for 0s --sysfs-root @garbage").code, Some(3), "no port could be read");
    desk.write("tree/class/infiniband/dev0/ports/1/state", "0: NOP\n");
    let run = desk.run("check --for 0s --json --sysfs-root @tree");
    let reason = run.json()["reason"].to_string();
    assert_eq!(run.code, Some(3));
    assert!(
        reason.contains("says a state that is known (dev0/1: state reads") && reason.contains("0: NOP"),
        "{reason}"
    );
}

#[test]
fn import_says_what_it_does_not_recognise() {
    let desk = Desk::new();
    desk.write("file", "x");
    desk.run("import @file -o @out").says(2, &["nothing to import", "file", "no line of a format"]);
    assert!(!desk.at("out").exists());
    desk.run("import @tree @file -o @out").code.into_iter().for_each(|code| assert_eq!(code, 2));
    let run = desk.run("import @tree @file -o @out2");
    assert!(run.stderr.lines().any(|line| line.contains("not recognised") && line.contains("file")), "{run:?}");
    assert_eq!(desk.run("ports --json --recording @out2").json()["node"]["devices"], 1, "the rest is imported");
    desk.run("import @tree -o @out2").says(2, &["out2", "exists", "--force"]);
    desk.run("import @tree -o @out2 --force").says(0, &["out2", "observations"]);
    desk.run("import @tree -o @nowhere/out").says(2, &["cannot write", "No such file"]);
    let case = Case::unpack("19");
    Run::of([Path::new("import"), &case.path(), Path::new("-o"), &desk.at("o")]).says(2, &["TIMES"]);
}

#[test]
fn nothing_is_written_onto_what_is_read() {
    let desk = Desk::new();
    let inside = desk.write("tree/o.jsonl", "precious");
    let log = desk.write("dmesg.txt", "[    1.000000] mlx5_core 0000:3b:00.0: firmware version: 1\n");
    std::fs::hard_link(&log, desk.at("linked")).expect("a link can be made");
    std::os::unix::fs::symlink(&inside, desk.at("far")).expect("a link can be made");
    for line in [
        "import @tree @dmesg.txt -o @dmesg.txt --force",
        "import @tree @dmesg.txt -o @linked --force",
        "import @tree -o @tree/o.jsonl --force",
        "import @tree -o @far --force",
        "record @tree/o.jsonl --force --for 0s --sysfs-root @tree",
    ] {
        desk.run(line).says(2, &["which is read"]);
    }
    desk.run("import @tree -o @r.jsonl");
    let before = std::fs::read(desk.at("r.jsonl")).expect("it is there");
    desk.run("collect --socket off --replay @r.jsonl --speed max --record @r.jsonl --record-force")
        .says(2, &["r.jsonl", "which is read"]);
    std::fs::copy(desk.at("r.jsonl"), desk.at("s.2.jsonl")).expect("a copy can be made");
    desk.run(
        "collect --socket off --replay @s.2.jsonl --speed max --record @s.jsonl --record-max-size 1M --record-force",
    )
    .says(2, &["s.2.jsonl", "which is read"]);
    assert_eq!(std::fs::read(desk.at("r.jsonl")).expect("it is there"), before);
    assert_eq!(std::fs::read(&inside).expect("it is there"), b"precious");
}

#[test]
fn a_table_takes_two_readings_in_the_time_of_an_interval_and_says_when_it_cannot() {
    let desk = Desk::new();
    let rates = |run: &Run| {
        let counters = run.json()["ports"][0]["counters"].as_array().cloned().unwrap_or_default();
        counters.iter().filter(|counter| counter["rate"].is_number()).count()
    };
    let run = desk.run("ports --json --for 1s --sysfs-root @tree");
    assert_eq!((run.code, run.stderr.as_str(), rates(&run)), (Some(0), "", 2));
    let run = desk.run("ports --json --for 300ms --sysfs-root @tree");
    run.says(0, &["one reading", "interval of 1s"]);
    assert_eq!(rates(&run), 0);
    let run = desk.run("check --for 300ms --sysfs-root @tree");
    assert!(run.stderr.contains("one reading"), "{}", run.stderr);
    desk.run("record /dev/null --for 300ms --sysfs-root @tree").says(0, &["observations"]);
}

#[test]
fn record_does_not_touch_a_file_that_exists() {
    let desk = Desk::new();
    desk.write("precious", "precious");
    desk.run("record @precious --for 1s --sysfs-root @tree").says(2, &["precious", "exists", "--force"]);
    assert_eq!(std::fs::read(desk.at("precious")).expect("it is there"), b"precious");
    desk.run("record @precious --force --for 300ms --sysfs-root @tree").says(0, &["precious", "observations"]);
    assert_eq!(desk.run("ports --json --recording @precious").json()["node"]["devices"], 1);
    desk.run("record @none/x --for 1s --sysfs-root @tree").says(2, &["cannot write", "No such file"]);
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_watching() {
    let desk = Desk::new();
    let mut child = desk
        .command("record /dev/full --json --for 4s --interval 100ms --sysfs-root @tree")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let first = std::thread::spawn(move || output.lines().next());
    // The first round writes to the disk; a port that leaves ACTIVE is seen in a later one.
    let mut states = ["1: DOWN", "4: ACTIVE"].into_iter().cycle();
    let said = wait_until(LONG, || {
        let state = states.next().expect("states without end");
        std::fs::write(desk.at("tree/class/infiniband/dev0/ports/1/state"), state).expect("the state can be written");
        std::thread::sleep(Duration::from_millis(250));
        first.is_finished()
    });
    assert!(said, "no finding while the disk is full");
    let line = first.join().expect("the reader does not panic").expect("a finding").expect("text");
    assert!(line.contains("link.down"), "{line}");
    let run = Run::from(child.wait_with_output().expect("it ends"));
    run.says(2, &["/dev/full", "the disk is full"]);
}

/// A recording under way, and the file it writes.
fn recording(desk: &Desk, name: &str) -> Child {
    let child = desk
        .command(&format!("record @{name} --interval 100ms --sysfs-root @tree"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // It is under way when the file has more than the header: the first flush comes within a second.
    let file = desk.at(name);
    let under_way = || Reader::observations(&file) >= 4;
    assert!(wait_until(LONG, under_way), "nothing is recorded");
    child
}

/// What can be read of a recording, through the library.
struct Reader;

impl Reader {
    fn observations(path: &Path) -> u64 {
        let Ok(mut reader) = collector::observation::recording::Reader::open(path) else { return 0 };
        while let Ok(Some(())) = reader.next(|_| ()) {}
        reader.notices().observations
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
    kill_process(pid, signal).expect("the child is there");
}

#[test]
fn ending_a_recording_by_a_signal_finishes_the_file() {
    for (ending, name) in [(Signal::TERM, "term.jsonl"), (Signal::INT, "int.jsonl.zst"), (Signal::HUP, "hup.jsonl.zst")]
    {
        let desk = Desk::new();
        let child = recording(&desk, name);
        signal(&child, ending);
        Run::from(child.wait_with_output().expect("it ends")).says(0, &[name, "observations"]);
        let read = desk.run(&format!("ports --json --recording @{name}"));
        assert_eq!((read.code, read.stderr.as_str()), (Some(0), ""), "{name}: nothing was lost");
        assert_eq!(read.json()["node"]["devices"], 1);
    }
}

#[test]
fn killing_a_recording_leaves_what_was_flushed() {
    for name in ["kill.jsonl", "kill.jsonl.zst"] {
        let desk = Desk::new();
        let mut child = recording(&desk, name);
        signal(&child, Signal::KILL);
        child.wait().expect("it ends");
        let read = desk.run(&format!("ports --json --recording @{name}"));
        assert_eq!(read.code, Some(0), "{read:?}");
        assert!(read.stderr.lines().count() <= 1, "{read:?}");
        assert_eq!(read.json()["ports"][0]["state"], "ACTIVE", "{name}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let desk = Desk::new();
    desk.run("import @tree -o @r.jsonl").says(0, &[]);
    for line in ["ports --json --recording @r.jsonl", "man", "config", "completions bash", "demo --json --for 120s"] {
        let mut child =
            desk.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut output = child.stdout.take().expect("its output");
        let mut byte = [0];
        let n = output.read(&mut byte).expect("it can be read");
        drop(output);
        let run = Run::from(child.wait_with_output().expect("it ends"));
        assert_eq!((n, run.code, run.stderr.as_str()), (1, Some(0), ""), "{line}");
    }
    let into = |line: &str, output: Stdio| {
        let child = desk.command(line).stdout(output).stderr(Stdio::piped()).spawn();
        Run::from(child.and_then(Child::wait_with_output).expect("it runs"))
    };
    for line in ["ports --recording @r.jsonl", "--help", "--version"] {
        // Nobody reads at all.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let run = into(line, writer.into());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{line}");
        // A full disk under the output is one.
        let full = std::fs::File::create("/dev/full").expect("there is /dev/full");
        into(line, full.into()).says(2, &["cannot write to standard output"]);
    }
}

#[test]
fn without_a_terminal_the_bare_command_gives_a_hint_and_screens_say_what_to_do() {
    let desk = Desk::new();
    let run = desk.run("--sysfs-root @tree --no-ebpf");
    assert_eq!((run.code, run.stderr.as_str(), run.stdout.lines().count()), (Some(0), "", 1), "{run:?}");
    assert!(run.stdout.contains("no terminal") && run.stdout.contains("ports"), "{run:?}");
    let case = Case::unpack("19");
    for (tree, reason) in [("t0", "no RDMA subsystem"), ("t1", "0 devices"), ("t2", "mlx5_ib not loaded?")] {
        let run = Run::of([Path::new("--sysfs-root"), &case.at(tree).join("sys")]);
        assert_eq!((run.code, run.stderr.as_str(), run.stdout.lines().count()), (Some(0), "", 1), "{run:?}");
        assert!(run.stdout.contains(reason) && run.stdout.contains("demo --json"), "{run:?}");
    }
    desk.run("demo").says(2, &["no terminal", "demo --json"]);
    desk.run("import @tree -o @r.jsonl").says(0, &[]);
    desk.run("replay @r.jsonl").says(2, &["no terminal", "replay --json"]);
}

#[test]
fn what_is_made_for_other_programs_is_complete() {
    let config = Run::of(["config"]);
    assert_eq!((config.code, config.stderr.as_str()), (Some(0), ""));
    // The settings of the rules have their own tests.
    let keys = config.stdout.split_once("\n[rule").map_or(&*config.stdout, |(before, _)| before);
    insta::assert_snapshot!("config", keys);
    let desk = Desk::new();
    desk.write("sample.toml", &config.stdout);
    let run = desk.run("--config @sample.toml ports --json --sysfs-root @tree");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "the sample is a configuration");
    let manual = Run::of(["man"]);
    assert_eq!((manual.code, manual.stderr.as_str()), (Some(0), ""));
    for word in [".TH rdmascope", "check", "RDMASCOPE_SYSFS_ROOT", "import"] {
        assert!(manual.stdout.contains(word), "{word}");
    }
    for child in [collector::source::verbs::CHILD_ARG, collector::source::probes::CONFINED_ARG] {
        assert!(!manual.stdout.contains(child), "{child} is not for people");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Run::of(["completions", shell]);
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(script.stdout.contains("sysfs-root") && script.stdout.contains("findings"), "{shell}");
    }
    let help = Run::of(["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(Run::of(["--version"]).stdout.starts_with("rdmascope "));
    std::io::stdout().flush().expect("the output can be flushed");
}

#[test]
fn every_configuration_of_the_guests_is_accepted() {
    let desk = Desk::new();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
    let mut seen = 0;
    for entry in std::fs::read_dir(scripts).expect("the guests' scripts") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a script");
        // As in `cat > hooks.toml << END`.
        for part in text.split("cat > ").skip(1).filter(|part| part.lines().next().is_some_and(|l| l.contains(".toml")))
        {
            let configuration = part.lines().skip(1).take_while(|line| *line != "END").collect::<Vec<_>>().join("\n");
            desk.write("guest.toml", configuration.replace("/payload/", "/bin/"));
            let run = desk.run("--config @guest.toml demo --scenario healthy --for 1s --json");
            assert!(!run.stderr.contains("rule."), "{}: {}\n{configuration}", path.display(), run.stderr);
            assert_eq!(run.code, Some(0), "{}: {}\n{configuration}", path.display(), run.stderr);
            seen += 1;
        }
    }
    assert!(seen > 1, "{seen}");
}
